/*
 * The traffic of programs that people run over RDMA on Macs, rebuilt from what is known of their buffers and depths.
 *
 *     shapes SHAPE PATTERN BYTES RANK RANKS PORT DEVICE...
 *
 * One process for each rank; DEVICE is the device that leads to each rank, in their order, or '-'. Addresses are exchanged over TCP with rank 0,
 * as JACCL does. In the pattern `mesh` each rank sends BYTES to each other one; in `ring` each passes what it got to the next one, RANKS - 1
 * times, and waits for each step to end. Each byte that arrives is compared. Exit codes: 0 all is right, 1 a call failed, 3 nothing moved
 * for more than three seconds, 4 other bytes arrived than were sent, 5 a completion reports an error.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_RANKS = 8, PSN = 7, READY = 1 };

struct shape {
	const char *name;
	/* The longest message, and whether it is sent whole however few bytes are in use */
	size_t longest;
	int is_padded;
	/* Buffers in each direction */
	int buffers;
	int depth, cqe;
	int access;
	enum ibv_mtu mtu;
	/* The first entry of the GID table, instead of the one that maps an IPv4 address */
	int uses_first_gid;
	/* Memory across a 4 GiB boundary of its addresses, beyond which Apple's device misplaces data */
	int crosses_boundary;
	/* A completion queue for receives beside that for sends */
	int has_two_queues;
	/* Rounds: all receives of the next messages, then all sends, and the end of both before the next round */
	int has_rounds;
};

static const struct shape SHAPES[] = {
	{"jaccl", 512 << 10, 1, 2, 32, 64, 7, IBV_MTU_1024, 0, 0, 0, 0},
	{"tccl", 512 << 10, 0, 2, 32, 64, 7, IBV_MTU_1024, 0, 0, 0, 0},
	/* Reductions of three ranks and more */
	{"tccl-reduce", 512 << 10, 0, 1, 32, 64, 7, IBV_MTU_1024, 0, 0, 0, 1},
	{"llama", 128 << 10, 1, 16, 512, 1025, 7, IBV_MTU_4096, 0, 0, 0, 0},
	{"mesh-flow", 16 << 10, 0, 64, 4095, 4096, 1, IBV_MTU_4096, 1, 0, 1, 0},
	/* The same with pages of 4 KiB, as many as a queue holds */
	{"mesh-flow-pages", 4 << 10, 0, 4095, 4095, 4096, 1, IBV_MTU_4096, 1, 0, 1, 0},
	{"gojaccl", 64 << 10, 0, 4, 64, 128, 7, IBV_MTU_1024, 0, 0, 0, 0},
	/* This one stands for no program that people run */
	{"misplaced", 64 << 10, 0, 4, 64, 128, 7, IBV_MTU_1024, 0, 1, 0, 0},
};

static void fail(int code, const char *what, long detail)
{
	printf("%s (%ld)\n", what, detail);
	fflush(stdout);
	_exit(code);
}

#define CHECK(condition) do { if (!(condition)) fail(1, #condition, errno); } while (0)

/* The functions, found as programs on macOS find them: by name in a library that was opened by its path */
#define FUNCTIONS(X)                                                                                                  \
	X(ibv_get_device_list) X(ibv_get_device_name) X(ibv_free_device_list) X(ibv_open_device) X(ibv_alloc_pd)         \
	X(ibv_create_cq) X(ibv_create_qp) X(ibv_modify_qp) X(ibv_query_gid) X(ibv_destroy_qp) X(ibv_dereg_mr)            \
	X(ibv_destroy_cq) X(ibv_dealloc_pd) X(ibv_close_device)
#undef ibv_reg_mr
#define DECLARE(name) static typeof(&name) p_##name;
FUNCTIONS(DECLARE)
static struct ibv_mr *(*p_ibv_reg_mr)(struct ibv_pd *, void *, size_t, int);

static void load(void)
{
	const char *path = getenv("RDMA_PROVIDER");
	void *library = dlopen(path ? path : "/usr/lib/librdma.dylib", RTLD_NOW | RTLD_GLOBAL);
	if (!library)
		fail(1, dlerror(), 0);
#define FIND(name) CHECK(p_##name = dlsym(library, #name));
	FUNCTIONS(FIND)
	CHECK(p_ibv_reg_mr = dlsym(library, "ibv_reg_mr"));
}

/* The side channel: a star of TCP connections to rank 0 */

static int rank, ranks, star[MAX_RANKS];

static void put(int stream, const void *bytes, size_t len)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = send(stream, (const char *)bytes + done, len - done, MSG_NOSIGNAL);
		if (n <= 0)
			fail(1, "the side channel is gone", errno);
		done += n;
	}
}

static void get(int stream, void *bytes, size_t len)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = recv(stream, (char *)bytes + done, len - done, 0);
		if (n <= 0)
			fail(1, "the side channel is gone", errno);
		done += n;
	}
}

static void meet(int port)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int own = socket(AF_INET, SOCK_STREAM, 0), on = 1;
	CHECK(own >= 0);
	if (rank == 0) {
		CHECK(!setsockopt(own, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
		CHECK(!bind(own, (void *)&address, sizeof address) && !listen(own, MAX_RANKS));
		for (int i = 1; i < ranks; i++) {
			int32_t other, stream = accept(own, NULL, NULL);
			CHECK(stream >= 0);
			get(stream, &other, sizeof other);
			CHECK(other > 0 && other < ranks);
			star[other] = stream;
		}
		return;
	}
	for (int i = 0; connect(own, (void *)&address, sizeof address); i++) {
		CHECK(i < 500);
		usleep(20000);
	}
	int32_t number = rank;
	put(own, &number, sizeof number);
	star[0] = own;
}

/* Exchanges `len` bytes of each rank, in the order of the ranks; also a barrier */
static void all_gather(const void *own, void *all, size_t len)
{
	char *bytes = all;
	if (rank) {
		put(star[0], own, len);
		get(star[0], all, len * ranks);
		return;
	}
	memcpy(all, own, len);
	for (int i = 1; i < ranks; i++)
		get(star[i], bytes + i * len, len);
	for (int i = 1; i < ranks; i++)
		put(star[i], all, len * ranks);
}

/* A queue pair to one peer, with its buffers */

struct address {
	uint32_t qpn;
	union ibv_gid gid;
};

struct link {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq, *receive_cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	char *memory;
	size_t len;
	int gid_index;
	union ibv_gid gid;
	/* Bytes that were sent and received, of those to send and to receive, and posts that have not completed */
	size_t sent, received, posted;
	int free_buffers, next_buffer, next_receive;
};

static const struct shape *shape;

/* Memory for both directions: inside one 4 GiB window, or with the boundary between two windows in its middle */
static char *map(size_t len)
{
	const size_t window = (size_t)1 << 32;
	char *addresses = mmap(NULL, 3 * window, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(addresses != MAP_FAILED);
	char *boundary = addresses + 2 * window - (uintptr_t)addresses % window;
	char *start = shape->crosses_boundary ? boundary - len / 2 : boundary;
	CHECK(!mprotect(start, len, PROT_READ | PROT_WRITE));
	return start;
}

static void open_link(struct link *link, const char *device)
{
	int count = 0;
	struct ibv_device **list = p_ibv_get_device_list(&count);
	CHECK(list);
	for (int i = 0; i < count; i++)
		if (!strcmp(p_ibv_get_device_name(list[i]), device))
			link->context = p_ibv_open_device(list[i]);
	p_ibv_free_device_list(list);
	CHECK(link->context);
	static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
	for (link->gid_index = 0; link->gid_index < 16; link->gid_index++)
		if (!p_ibv_query_gid(link->context, 1, link->gid_index, &link->gid)
		    && (shape->uses_first_gid || !memcmp(link->gid.raw, mapped, sizeof mapped)))
			break;
	CHECK(link->gid_index < 16);
	CHECK(link->pd = p_ibv_alloc_pd(link->context));
	CHECK(link->cq = p_ibv_create_cq(link->context, shape->cqe, NULL, NULL, 0));
	link->len = 2 * shape->buffers * shape->longest;
	link->memory = map(link->len);
	CHECK(link->mr = p_ibv_reg_mr(link->pd, link->memory, link->len, shape->access));
	link->receive_cq = link->cq;
	if (shape->has_two_queues)
		CHECK(link->receive_cq = p_ibv_create_cq(link->context, shape->cqe, NULL, NULL, 0));
	struct ibv_qp_init_attr init = {.send_cq = link->cq, .recv_cq = link->receive_cq, .qp_type = IBV_QPT_UC};
	init.cap.max_send_wr = init.cap.max_recv_wr = shape->depth;
	init.cap.max_send_sge = init.cap.max_recv_sge = 1;
	CHECK(link->qp = p_ibv_create_qp(link->pd, &init));
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = shape->access};
	int error = p_ibv_modify_qp(link->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (error)
		fail(1, "INIT", error);
}

static void connect_link(struct link *link, const struct address *peer)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR, .path_mtu = shape->mtu, .dest_qp_num = peer->qpn, .rq_psn = PSN};
	attr.ah_attr.is_global = attr.ah_attr.port_num = 1;
	attr.ah_attr.grh.dgid = peer->gid;
	attr.ah_attr.grh.hop_limit = 1;
	attr.ah_attr.grh.sgid_index = link->gid_index;
	int error = p_ibv_modify_qp(link->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN);
	if (error)
		fail(1, "RTR", error);
	struct ibv_qp_attr ready = {.qp_state = IBV_QPS_RTS, .sq_psn = PSN};
	error = p_ibv_modify_qp(link->qp, &ready, IBV_QP_STATE | IBV_QP_SQ_PSN);
	if (error)
		fail(1, "RTS", error);
}

static void close_link(struct link *link)
{
	CHECK(!p_ibv_destroy_qp(link->qp) && !p_ibv_dereg_mr(link->mr) && !p_ibv_destroy_cq(link->cq));
	CHECK(link->receive_cq == link->cq || !p_ibv_destroy_cq(link->receive_cq));
	CHECK(!p_ibv_dealloc_pd(link->pd) && !p_ibv_close_device(link->context));
	munmap(link->memory, link->len);
}

/* The length of the message that begins at `at` of `total` bytes, and how much of it is in use */
static size_t message(size_t at, size_t total, size_t *used)
{
	size_t len = total - at < shape->longest ? total - at : shape->longest;
	*used = len;
	if (!shape->is_padded)
		return len;
	/* JACCL has classes of 4 KiB times a power of two, of which the largest that is not above the whole vector is used */
	size_t class = shape->longest;
	while (shape->longest > 128 << 10 && class > 4096 && class > total)
		class /= 2;
	*used = len < class ? len : class;
	return class;
}

static unsigned char byte_of(int origin, size_t at)
{
	return (unsigned char)(origin * 131 + at * 7 + (at >> 8) + (at >> 16));
}

static void post_receive(struct link *link, size_t len)
{
	char *buffer = link->memory + (shape->buffers + link->next_receive) * shape->longest;
	struct ibv_sge sge = {.addr = (uintptr_t)buffer, .length = len, .lkey = link->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = link->next_receive, .sg_list = &sge, .num_sge = 1}, *bad;
	int error = ibv_post_recv(link->qp, &wr, &bad);
	if (error)
		fail(1, "post_recv", error);
	link->next_receive = (link->next_receive + 1) % shape->buffers;
}

static void post_send(struct link *link, int origin, size_t total)
{
	size_t used, len = message(link->sent, total, &used);
	char *buffer = link->memory + link->next_buffer * shape->longest;
	for (size_t i = 0; i < used; i++)
		buffer[i] = byte_of(origin, link->sent + i);
	struct ibv_sge sge = {.addr = (uintptr_t)buffer, .length = len, .lkey = link->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 1 << 16 | link->next_buffer, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
	int error = ibv_post_send(link->qp, &wr, &bad);
	if (error)
		fail(1, "post_send", error);
	link->next_buffer = (link->next_buffer + 1) % shape->buffers;
	link->free_buffers--;
	link->sent += used;
}

/* Posts receives for the beginning of `total` bytes, as many as there are buffers, unless rounds do */
static void begin(struct link *link, size_t total)
{
	link->sent = link->received = link->posted = 0;
	link->free_buffers = shape->buffers;
	link->next_buffer = link->next_receive = 0;
	for (int i = 0; !shape->has_rounds && i < shape->buffers && link->posted < total; i++) {
		size_t used, len = message(link->posted, total, &used);
		post_receive(link, len);
		link->posted += used;
	}
}

/* Takes what has completed to a queue, and returns how much that is; `total` bytes of `origin` are expected */
static int poll_queue(struct link *link, struct ibv_cq *cq, int origin, size_t total)
{
	struct ibv_wc wc[4];
	int n = ibv_poll_cq(cq, 4, wc);
	if (n < 0)
		fail(1, "poll_cq", n);
	for (int i = 0; i < n; i++) {
		if (wc[i].status)
			fail(5, "completion", wc[i].status);
		if (wc[i].wr_id >> 16) {
			link->free_buffers++;
			continue;
		}
		size_t used, len = message(link->received, total, &used);
		const char *buffer = link->memory + (shape->buffers + wc[i].wr_id) * shape->longest;
		if (wc[i].byte_len != len)
			fail(4, "length", wc[i].byte_len);
		for (size_t at = 0; at < used; at++)
			if ((unsigned char)buffer[at] != byte_of(origin, link->received + at))
				fail(4, "wrong byte", link->received + at);
		link->received += used;
		if (link->posted < total && !shape->has_rounds) {
			len = message(link->posted, total, &used);
			post_receive(link, len);
			link->posted += used;
		}
	}
	return n;
}

static int poll(struct link *link, int origin, size_t total)
{
	int n = poll_queue(link, link->cq, origin, total);
	return link->receive_cq == link->cq ? n : n + poll_queue(link, link->receive_cq, origin, total);
}

/* Begins the next round if the last one is over; returns whether sends may be posted */
static int begin_round(struct link **out, int outs, struct link **in, int ins, size_t total)
{
	for (int i = 0; i < outs; i++)
		if (out[i]->free_buffers < shape->buffers)
			return 0;
	for (int i = 0; i < ins; i++)
		if (in[i]->received < in[i]->posted)
			return 0;
	for (int i = 0; i < ins; i++) {
		if (in[i]->posted == total)
			continue;
		size_t used, len = message(in[i]->posted, total, &used);
		post_receive(in[i], len);
		in[i]->posted += used;
	}
	return 1;
}

/* Runs until nothing is left to do; both ends may be the same link, in a ring of two */
static void run(struct link **out, const int *origins, int outs, struct link **in, const int *from, int ins, size_t total)
{
	time_t last = time(NULL);
	for (int is_done = 0; !is_done;) {
		int moved = 0;
		is_done = 1;
		int may_send = !shape->has_rounds || begin_round(out, outs, in, ins, total);
		for (int i = 0; i < outs; i++) {
			while (may_send && out[i]->sent < total && out[i]->free_buffers > 0) {
				post_send(out[i], origins[i], total);
				moved++;
			}
		}
		for (int i = 0; i < ins; i++)
			moved += poll(in[i], from[i], total);
		for (int i = 0; i < outs; i++) {
			int is_in = 0;
			for (int j = 0; j < ins; j++)
				is_in |= out[i] == in[j];
			if (!is_in)
				moved += poll(out[i], -1, 0);
			is_done &= out[i]->sent == total && out[i]->free_buffers == shape->buffers;
		}
		for (int i = 0; i < ins; i++)
			is_done &= in[i]->received == total;
		if (moved)
			last = time(NULL);
		else if (time(NULL) - last > 3)
			fail(3, "nothing moves", errno);
	}
}

int main(int argc, char **argv)
{
	CHECK(argc > 7);
	for (size_t i = 0; i < sizeof SHAPES / sizeof *SHAPES; i++)
		if (!strcmp(SHAPES[i].name, argv[1]))
			shape = &SHAPES[i];
	int is_ring = !strcmp(argv[2], "ring");
	size_t total = strtoul(argv[3], NULL, 10);
	rank = atoi(argv[4]);
	ranks = atoi(argv[5]);
	CHECK(shape && ranks > 1 && ranks <= MAX_RANKS && argc == 7 + ranks);
	load();
	static struct link links[MAX_RANKS];
	static struct address own[MAX_RANKS], all[MAX_RANKS][MAX_RANKS];
	int is_linked[MAX_RANKS];
	for (int i = 0; i < ranks; i++) {
		is_linked[i] = strcmp(argv[7 + i], "-");
		if (is_linked[i]) {
			open_link(&links[i], argv[7 + i]);
			own[i] = (struct address){.qpn = links[i].qp->qp_num, .gid = links[i].gid};
		}
	}
	meet(atoi(argv[6]));
	all_gather(own, all, sizeof own);
	for (int i = 0; i < ranks; i++)
		if (is_linked[i])
			connect_link(&links[i], &all[i][rank]);
	char ready = READY, others[MAX_RANKS];
	if (is_ring) {
		int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
		for (int step = 0; step + 1 < ranks; step++) {
			begin(&links[left], total);
			if (left != right)
				begin(&links[right], 0);
			all_gather(&ready, others, 1);
			int origin = (rank + ranks - step) % ranks, from = (left + ranks - step) % ranks;
			run((struct link *[]){&links[right]}, &origin, 1, (struct link *[]){&links[left]}, &from, 1, total);
			all_gather(&ready, others, 1);
		}
	} else {
		struct link *peers[MAX_RANKS];
		int origins[MAX_RANKS], from[MAX_RANKS], count = 0;
		for (int i = 0; i < ranks; i++) {
			if (!is_linked[i])
				continue;
			begin(&links[i], total);
			origins[count] = rank;
			from[count] = i;
			peers[count++] = &links[i];
		}
		all_gather(&ready, others, 1);
		run(peers, origins, count, peers, from, count, total);
		all_gather(&ready, others, 1);
	}
	for (int i = 0; i < ranks; i++)
		if (is_linked[i])
			close_link(&links[i]);
	printf("all bytes are right\n");
	return 0;
}
