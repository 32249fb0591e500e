/*
 * Apple's published recipe for RDMA over Thunderbolt, step by step, and every error number on the way.
 *
 * recipe LIBRARY A B C D E F: two devices with a cable between them, three times (rdma_en2, rdma_en3 and rdma_en4 of hosts a and b): one for
 * the recipe and the limits, one for what goes wrong on the way to ready-to-receive, one that is unplugged. The library is loaded as
 * clients on macOS load it: by name, with the functions that all of them use. Faults come through rdma_sim_inject, which only the simulated provider has.
 */
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static int failures;

#define CHECK(condition, ...)                                  \
	do {                                                       \
		if (condition) {                                       \
			printf("ok      " __VA_ARGS__);                    \
		} else {                                               \
			printf("FAILED  " __VA_ARGS__);                    \
			failures++;                                        \
		}                                                      \
		printf("\n");                                          \
	} while (0)

#define FUNCTIONS(X)                                           \
	X(ibv_get_device_list) X(ibv_get_device_name) X(ibv_free_device_list) X(ibv_open_device) X(ibv_close_device) \
	X(ibv_alloc_pd) X(ibv_dealloc_pd) X(ibv_create_cq) X(ibv_destroy_cq) X(ibv_create_qp) X(ibv_destroy_qp)      \
	X(ibv_modify_qp) X(ibv_query_gid) X(ibv_dereg_mr) X(ibv_query_qp)

#undef ibv_reg_mr
#undef ibv_query_port
#define DECLARE(name) static typeof(&name) p_##name;
FUNCTIONS(DECLARE)
static struct ibv_mr *(*p_ibv_reg_mr)(struct ibv_pd *, void *, size_t, int);
static int (*p_ibv_query_port)(struct ibv_context *, uint8_t, void *);
static int (*inject)(const char *);

static const size_t ARENA = 64 << 20;

/* Apple's device misplaces data in memory across a 4 GiB boundary: one half of twice the memory does not cross it */
static void *arena(void)
{
	char *memory = mmap(NULL, 2 * ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return NULL;
	return (uintptr_t)memory >> 32 == ((uintptr_t)memory + ARENA - 1) >> 32 ? memory : memory + ARENA;
}

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	char *memory;
	union ibv_gid gid;
	int gid_index;
};

static struct ibv_context *open_device(const char *wanted)
{
	int count = 0;
	struct ibv_device **list = p_ibv_get_device_list(&count);
	struct ibv_context *context = NULL;
	for (int i = 0; list && i < count; i++)
		if (!strcmp(p_ibv_get_device_name(list[i]), wanted))
			context = p_ibv_open_device(list[i]);
	if (list)
		p_ibv_free_device_list(list);
	return context;
}

static int port_state(struct ibv_context *context)
{
	struct ibv_port_attr attr;
	memset(&attr, 0, sizeof attr);
	return p_ibv_query_port(context, 1, &attr) ? -1 : (int)attr.state;
}

static struct ibv_qp *create_qp(struct end *end, enum ibv_qp_type type, int depth)
{
	struct ibv_qp_init_attr init = {.send_cq = end->cq, .recv_cq = end->cq, .qp_type = type};
	init.cap.max_send_wr = init.cap.max_recv_wr = depth;
	init.cap.max_send_sge = init.cap.max_recv_sge = 1;
	errno = 0;
	return p_ibv_create_qp(end->pd, &init);
}

/* The entry of the GID table that maps an IPv4 address, and its index */
static int find_gid(struct end *end)
{
	static const unsigned char prefix[12] = {[10] = 0xff, [11] = 0xff};
	for (int index = 0; index < 16; index++)
		if (!p_ibv_query_gid(end->context, 1, index, &end->gid) && !memcmp(end->gid.raw, prefix, 12)) {
			end->gid_index = index;
			return 0;
		}
	return -1;
}

/* Everything before the peer is known */
static int prepare(struct end *end, const char *device, int depth)
{
	memset(end, 0, sizeof *end);
	end->context = open_device(device);
	if (!end->context || port_state(end->context) != IBV_PORT_ACTIVE || find_gid(end))
		return -1;
	end->pd = p_ibv_alloc_pd(end->context);
	end->cq = p_ibv_create_cq(end->context, 4096, NULL, NULL, 0);
	end->memory = arena();
	if (!end->pd || !end->cq || !end->memory)
		return -1;
	end->mr = p_ibv_reg_mr(end->pd, end->memory, ARENA, IBV_ACCESS_LOCAL_WRITE);
	end->qp = create_qp(end, IBV_QPT_UC, depth);
	return end->mr && end->qp ? 0 : -1;
}

static int to_init(struct ibv_qp *qp, int port, int mask)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = port, .qp_access_flags = 0};
	return p_ibv_modify_qp(qp, &attr, mask);
}

static const int INIT = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
static const int RTR = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
static const int RTS = IBV_QP_STATE | IBV_QP_SQ_PSN;

static int to_rtr(struct ibv_qp *qp, const struct end *own, const union ibv_gid *gid, uint32_t qpn, int index, int mask)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qpn, .rq_psn = 7};
	(void)own;
	attr.ah_attr.is_global = 1;
	attr.ah_attr.port_num = 1;
	attr.ah_attr.dlid = 1;
	attr.ah_attr.grh.dgid = *gid;
	attr.ah_attr.grh.hop_limit = 1;
	attr.ah_attr.grh.sgid_index = index;
	return p_ibv_modify_qp(qp, &attr, mask);
}

static int to_rts(struct ibv_qp *qp, int mask)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .sq_psn = 7};
	return p_ibv_modify_qp(qp, &attr, mask);
}

static int connect_to(struct end *own, const struct end *peer)
{
	int error = to_init(own->qp, 1, INIT);
	if (!error)
		error = to_rtr(own->qp, own, &peer->gid, peer->qp->qp_num, own->gid_index, RTR);
	return error ? error : to_rts(own->qp, RTS);
}

static int post(struct end *end, int is_send, uint64_t id, size_t at, size_t len, uint32_t lkey, void **bad)
{
	struct ibv_sge sge = {.addr = (uintptr_t)end->memory + at, .length = len, .lkey = lkey};
	if (is_send) {
		struct ibv_send_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
		return ibv_post_send(end->qp, &wr, (struct ibv_send_wr **)bad);
	}
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1};
	return ibv_post_recv(end->qp, &wr, (struct ibv_recv_wr **)bad);
}

static int next(struct end *end, struct ibv_wc *wc)
{
	for (int i = 0; i < 100000; i++) {
		int n = ibv_poll_cq(end->cq, 1, wc);
		if (n)
			return n;
	}
	return 0;
}

static void finish(struct end *end)
{
	if (end->qp)
		p_ibv_destroy_qp(end->qp);
	if (end->mr)
		p_ibv_dereg_mr(end->mr);
	if (end->cq)
		p_ibv_destroy_cq(end->cq);
	if (end->pd)
		p_ibv_dealloc_pd(end->pd);
	if (end->context)
		p_ibv_close_device(end->context);
	if (end->memory)
		munmap(end->memory, ARENA);
}

static void the_recipe(const char *device_a, const char *device_b)
{
	struct end a, b;
	CHECK(!prepare(&a, device_a, 1024) && !prepare(&b, device_b, 1024), "devices, domains, queues, memory, queue pairs");
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	memset(&attr, 0, sizeof attr);
	memset(&init, 0, sizeof init);
	CHECK(!p_ibv_query_qp(a.qp, &attr, IBV_QP_CAP, &init) && attr.cap.max_recv_wr >= 1024, "the granted depth is read back: %u", attr.cap.max_recv_wr);
	CHECK(a.qp->qp_num % 256 == 0 && a.qp->qp_num >= 0x900, "queue pair numbers are hop numbers: %#x", a.qp->qp_num);
	CHECK(!connect_to(&a, &b) && !connect_to(&b, &a), "both ends become ready to send");

	void *bad = NULL;
	struct ibv_wc wc;
	size_t lens[] = {1, 64, 4096, 4097, 1 << 20, 1023 * 4096};
	for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
		size_t len = lens[i], far = 16 << 20;
		for (size_t at = 0; at < len; at++)
			a.memory[at] = (char)(at * 31 + i);
		int posted = post(&b, 0, 7, far, len, b.mr->lkey, &bad) | post(&a, 1, 9, 0, len, a.mr->lkey, &bad);
		int received = next(&b, &wc) == 1 && wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && wc.byte_len == len && wc.wr_id == 7 && wc.qp_num == b.qp->qp_num;
		int sent = next(&a, &wc) == 1 && wc.status == IBV_WC_SUCCESS && wc.wr_id == 9;
		CHECK(!posted && received && sent && !memcmp(a.memory, b.memory + far, len), "%zu bytes arrive", len);
	}

	/* Queues count frames; what does not fit is refused with a negative number, and bad_wr is left alone. */
	bad = &wc;
	int error = 0, count = 0;
	while (!error && count < 5000)
		error = post(&b, 0, count++, 0, 4096, b.mr->lkey, &bad);
	CHECK(error == -12 && bad == &wc && count - 1 == (int)attr.cap.max_recv_wr, "a full queue: %d after %d", error, count - 1);
	CHECK(post(&a, 1, 1, 0, 64, 0xbad, &bad) == EINVAL, "a foreign key is refused");
	CHECK(post(&a, 1, 1, ARENA - 32, 64, a.mr->lkey, &bad) == EINVAL, "memory that is not registered is refused");
	CHECK(p_ibv_dealloc_pd(a.pd) == EBUSY && p_ibv_destroy_cq(a.cq) == EBUSY, "an object in use is not destroyed");
	finish(&a);
	finish(&b);
}

static void the_limits(const char *device)
{
	struct end a;
	CHECK(!prepare(&a, device, 32), "a device that was used before is as good as new");
	CHECK(!create_qp(&a, IBV_QPT_RC, 32) && errno == 102, "reliable queue pairs: errno %d", errno);
	CHECK(!create_qp(&a, IBV_QPT_UC, 5000), "queues of 5000 frames");
	CHECK(post(&a, 0, 1, 0, 64, a.mr->lkey, NULL) == EINVAL, "a receive before INIT");
	CHECK(to_init(a.qp, 2, INIT) == EINVAL, "port 2");
	CHECK(to_init(a.qp, 1, IBV_QP_STATE) == EINVAL, "INIT without its mask");
	CHECK(to_rtr(a.qp, &a, &a.gid, 0x900, a.gid_index, RTR) == EINVAL, "RESET to RTR");
	CHECK(!to_init(a.qp, 1, INIT) && to_rts(a.qp, RTS) == EINVAL, "INIT to RTS");
	CHECK(post(&a, 1, 1, 0, 64, a.mr->lkey, NULL) == EINVAL, "a send before RTS");

	struct ibv_qp *qps[16];
	int count = 0;
	while (count < 16 && (qps[count] = create_qp(&a, IBV_QPT_UC, 32)))
		count++;
	CHECK(count == 9 && errno == EBUSY, "%d queue pairs and one more: errno %d", count + 1, errno);
	while (count)
		p_ibv_destroy_qp(qps[--count]);
	struct ibv_pd *pds[16];
	while (count < 16 && (pds[count] = p_ibv_alloc_pd(a.context)))
		count++;
	CHECK(count == 10, "%d protection domains", count + 1);
	while (count)
		p_ibv_dealloc_pd(pds[--count]);
	struct ibv_cq *cqs[16];
	while (count < 16 && (cqs[count] = p_ibv_create_cq(a.context, 16, NULL, NULL, 0)))
		count++;
	CHECK(count == 10, "%d completion queues", count + 1);
	while (count)
		p_ibv_destroy_cq(cqs[--count]);
	struct ibv_mr *mrs[128];
	errno = 0;
	while (count < 128 && (mrs[count] = p_ibv_reg_mr(a.pd, a.memory, 16384, IBV_ACCESS_LOCAL_WRITE)))
		count++;
	CHECK(count == 99 && errno == ENOMEM, "%d memory regions and one more: errno %d", count + 1, errno);
	while (count)
		p_ibv_dereg_mr(mrs[--count]);
	errno = 0;
	CHECK(!p_ibv_reg_mr(a.pd, a.memory + 8, 4096, IBV_ACCESS_LOCAL_WRITE) && errno == EINVAL, "memory that begins within a page: errno %d", errno);
	CHECK(a.mr->rkey == 0 && (a.mr->lkey & 0xff) == 1, "keys: %#x, and none for peers", a.mr->lkey);
	finish(&a);
}

/* Misuse that has crashed programs: here it is answered */
static void misuse(const char *device)
{
	struct end a;
	CHECK(!prepare(&a, device, 32), "a device to misuse");
	struct ibv_qp *qp = a.qp;
	struct ibv_mr *mr = a.mr;
	errno = 0;
	CHECK(!p_ibv_alloc_pd(NULL) && !p_ibv_reg_mr(NULL, a.memory, 4096, 1) && !p_ibv_create_cq(NULL, 1, NULL, NULL, 0), "NULL is refused");
	CHECK(!p_ibv_destroy_qp(qp) && p_ibv_destroy_qp(qp) == EINVAL, "a queue pair is destroyed once");
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
	CHECK(p_ibv_modify_qp(qp, &attr, IBV_QP_STATE) == EINVAL && p_ibv_modify_qp(NULL, &attr, 1) == EINVAL, "a destroyed queue pair is not modified");
	CHECK(!p_ibv_dereg_mr(mr) && p_ibv_dereg_mr(mr) == EINVAL, "memory is deregistered once");
	CHECK(p_ibv_destroy_cq((struct ibv_cq *)a.pd) == EINVAL, "a domain is not a queue");
	a.qp = NULL;
	a.mr = NULL;
	finish(&a);
}

static void on_the_way(const char *device_a, const char *device_b, const char *place)
{
	struct end a, b;
	char fault[128];
	CHECK(!prepare(&a, device_a, 32) && !prepare(&b, device_b, 32), "two more devices");
	CHECK(!to_init(a.qp, 1, INIT) && to_rtr(a.qp, &a, &b.gid, b.qp->qp_num, 0, RTR) == EINVAL, "the GID at index 0: 22");
	CHECK(to_rtr(a.qp, &a, &b.gid, b.qp->qp_num, a.gid_index, RTR) == EBUSY, "a second try of the same queue pair: 16");
	p_ibv_destroy_qp(a.qp);
	a.qp = create_qp(&a, IBV_QPT_UC, 32);
	union ibv_gid unused = b.gid;
	unused.raw[15] ^= 0x55;
	CHECK(a.qp && !to_init(a.qp, 1, INIT) && to_rtr(a.qp, &a, &unused, b.qp->qp_num, a.gid_index, RTR) == 60, "an unreachable peer: 60, as on macOS");
	p_ibv_destroy_qp(a.qp);
	a.qp = NULL;

	struct { const char *what; int expected; } faults[] = {{"unresolvable", 60}, {"no-gids", 96}, {"busy", 16}};
	for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
		snprintf(fault, sizeof fault, "at 0s %s %s", place, faults[i].what);
		int injected = inject(fault);
		a.qp = create_qp(&a, IBV_QPT_UC, 32);
		int init = a.qp ? to_init(a.qp, 1, INIT) : -1;
		int rtr = to_rtr(a.qp, &a, &b.gid, b.qp->qp_num, a.gid_index, RTR);
		CHECK(!injected && !init && rtr == faults[i].expected, "%s: %d", faults[i].what, rtr);
		p_ibv_destroy_qp(a.qp);
		a.qp = NULL;
		if (i == 0) {
			snprintf(fault, sizeof fault, "at 0s %s resolvable", place);
			inject(fault);
		}
	}
	finish(&a);
	finish(&b);
}

static void unplugged(const char *device_a, const char *device_b, const char *place)
{
	struct end a, b;
	char fault[128];
	struct ibv_wc wc;
	CHECK(!prepare(&a, device_a, 32) && !prepare(&b, device_b, 32) && !connect_to(&a, &b) && !connect_to(&b, &a), "a third pair");
	CHECK(!post(&b, 0, 1, 0, 64, b.mr->lkey, NULL), "a receive waits");
	snprintf(fault, sizeof fault, "at 0s %s unplug", place);
	CHECK(!inject(fault) && port_state(a.context) == IBV_PORT_DOWN, "a port without its cable is down");
	CHECK(!p_ibv_alloc_pd(a.context), "no domain on a port that is down");
	CHECK(next(&b, &wc) == 0, "an unplugged cable completes nothing");
	CHECK(post(&a, 1, 1, 0, 64, a.mr->lkey, NULL) != 0, "nothing is sent on it");
	snprintf(fault, sizeof fault, "at 0s %s replug", place);
	CHECK(!inject(fault) && port_state(a.context) == IBV_PORT_ACTIVE, "the port is back");
	CHECK(post(&a, 1, 1, 0, 64, a.mr->lkey, NULL) != 0, "and the queue pair is not");
	finish(&a);
	finish(&b);
	CHECK(!prepare(&a, device_a, 32) && !prepare(&b, device_b, 32) && !connect_to(&a, &b) && !connect_to(&b, &a), "new ones are");
	finish(&a);
	finish(&b);
}

static void *symbol(void *library, const char *name)
{
	void *found = dlsym(library, name);
	if (!found) {
		fprintf(stderr, "no %s\n", name);
		exit(2);
	}
	return found;
}

int main(int argc, char **argv)
{
	if (argc != 8) {
		fprintf(stderr, "recipe LIBRARY A B C D E F\n");
		return 2;
	}
	void *library = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return 2;
	}
#define RESOLVE(name) p_##name = (typeof(p_##name))symbol(library, #name);
	FUNCTIONS(RESOLVE)
	RESOLVE(ibv_reg_mr)
	RESOLVE(ibv_query_port)
	inject = (int (*)(const char *))symbol(library, "rdma_sim_inject");
	the_recipe(argv[2], argv[3]);
	the_limits(argv[2]);
	misuse(argv[2]);
	on_the_way(argv[4], argv[5], "a:rdma_en3");
	unplugged(argv[6], argv[7], "a:rdma_en4");
	printf("%d failed\n", failures);
	return failures != 0;
}
