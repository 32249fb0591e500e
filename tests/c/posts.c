/*
 * What a call of ibv_post_send costs between two processes, in nanoseconds
 *
 *     cc -O2 -o posts posts.c -libverbs
 *     RDMA_SIM_TOPOLOGY=pair LD_PRELOAD=.../librdma.so ./posts ROUNDS LENGTH
 *
 * The receiver posts 65 receives, reports it through a pipe, and blocks. The sender posts one message that wakes the thread
 * beside the receiver, and measures the next 64 posts. Printed: the least and the median over the rounds.
 */
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 64, PAGE = 1 << 20 };

struct address { uint32_t qpn; union ibv_gid gid; };

static int in, out;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static char *page;

#define CHECK(condition) \
    do { if (!(condition)) { fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); exit(1); } } while (0)

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static void write_all(const void *bytes, size_t len) { CHECK(write(out, bytes, len) == (ssize_t)len); }

static void read_all(void *bytes, size_t len)
{
    for (size_t got = 0; got < len;) {
        ssize_t n = read(in, (char *)bytes + got, len - got);
        CHECK(n > 0);
        got += n;
    }
}

static void connect_to_peer(void)
{
    int count;
    struct ibv_device **list = ibv_get_device_list(&count);
    CHECK(list && count > 0);
    struct ibv_context *context = ibv_open_device(list[0]);
    CHECK(context);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    CHECK(pd);
    CHECK(!posix_memalign((void **)&page, 16384, PAGE));
    mr = ibv_reg_mr(pd, page, PAGE, IBV_ACCESS_LOCAL_WRITE);
    cq = ibv_create_cq(context, 1024, NULL, NULL, 0);
    CHECK(mr && cq);
    struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UC, .sq_sig_all = 1,
        .cap = { .max_send_wr = 255, .max_recv_wr = 255, .max_send_sge = 1, .max_recv_sge = 1 } };
    qp = ibv_create_qp(pd, &init);
    CHECK(qp);
    struct address mine = { .qpn = qp->qp_num }, peer;
    CHECK(!ibv_query_gid(context, 1, 1, &mine.gid));
    write_all(&mine, sizeof mine);
    read_all(&peer, sizeof peer);
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_LOCAL_WRITE };
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    struct ibv_qp_attr ready = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .dest_qp_num = peer.qpn,
        .ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = peer.gid, .hop_limit = 1, .sgid_index = 1 } } };
    CHECK(!ibv_modify_qp(qp, &ready, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN));
    struct ibv_qp_attr send = { .qp_state = IBV_QPS_RTS };
    CHECK(!ibv_modify_qp(qp, &send, IBV_QP_STATE | IBV_QP_SQ_PSN));
    write_all("r", 1);
    char ready_too;
    read_all(&ready_too, 1);
}

static void drain(int wanted)
{
    struct ibv_wc wc[32];
    while (wanted > 0) {
        int n = ibv_poll_cq(cq, 32, wc);
        CHECK(n >= 0);
        for (int at = 0; at < n; at++)
            CHECK(wc[at].status == IBV_WC_SUCCESS);
        wanted -= n;
    }
}

static int by_value(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    int rounds = atoi(argv[1]), len = atoi(argv[2]), to_b[2], to_a[2];
    char name[32], word = 0;
    snprintf(name, sizeof name, "posts-%d", getpid());
    setenv("RDMA_SIM_FABRIC", name, 1);
    CHECK(!pipe(to_b) && !pipe(to_a));
    int is_sender = fork() != 0;
    in = is_sender ? to_a[0] : to_b[0];
    out = is_sender ? to_b[1] : to_a[1];
    setenv("RDMA_SIM_HOST", is_sender ? "a" : "b", 1);
    connect_to_peer();
    struct ibv_sge sge = { .addr = (uintptr_t)page, .length = len, .lkey = mr->lkey };
    if (!is_sender) {
        struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
        for (int round = 0; round < rounds; round++) {
            for (int number = 0; number <= BATCH; number++)
                CHECK(!ibv_post_recv(qp, &wr, &bad));
            write_all("r", 1);
            read_all(&word, 1);
            drain(BATCH + 1);
        }
        return 0;
    }
    struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED },
                       *bad;
    double *times = calloc(rounds, sizeof *times);
    for (int round = 0; round < rounds; round++) {
        read_all(&word, 1);
        struct ibv_wc none;
        CHECK(ibv_poll_cq(cq, 1, &none) == 0);
        CHECK(!ibv_post_send(qp, &wr, &bad));
        double start = now();
        for (int number = 0; number < BATCH; number++)
            CHECK(!ibv_post_send(qp, &wr, &bad));
        times[round] = (now() - start) / BATCH;
        drain(BATCH + 1);
        write_all("g", 1);
    }
    qsort(times, rounds, sizeof *times, by_value);
    printf("ibv_post_send of %d bytes: %.0f ns least, %.0f ns median of %d rounds\n", len, times[0], times[rounds / 2],
        rounds);
    return 0;
}
