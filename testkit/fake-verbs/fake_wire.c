/* Moves data between the queue pairs of one process: reliable connections, datagrams, extended reliable connections. A
 * request is done when it is posted, or waits for a receive. What is wrong ends as adapters end it. */
#include "fake.h"

enum { WAITS = -1 };

static struct wire *wires;
static int changed;

struct wire *wire_new(uint32_t number, int type, const struct ibv_qp_cap *cap)
{
    struct wire *q = calloc(1, sizeof *q);
    q->number = number, q->type = type, q->holders = 1;
    q->depth = cap && cap->max_send_wr ? cap->max_send_wr : 1;
    q->sends = calloc(q->depth, sizeof *q->sends);
    q->receives.depth = cap ? cap->max_recv_wr : 0;
    q->receives.ring = calloc(q->receives.depth + 1, sizeof *q->receives.ring);
    q->next = wires;
    wires = q;
    return q;
}

struct wire *wire_of(uint32_t number)
{
    struct wire *q = wires;
    while (q && q->number != number) q = q->next;
    return q;
}

int receives_add(struct receives *r, struct ibv_recv_wr *wr)
{
    if (r->tail - r->head >= r->depth) return ENOMEM;
    if (wr->num_sge > 4) return EINVAL;
    struct receive *to = &r->ring[r->tail++ % r->depth];
    to->id = wr->wr_id, to->pieces = wr->num_sge;
    if (wr->num_sge) memcpy(to->piece, wr->sg_list, wr->num_sge * sizeof *wr->sg_list);
    return 0;
}

static int is_atomic(int opcode)
{
    return opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
}

/* ---- ends ---- */
static void send_ends(struct wire *q, struct work *w, int status)
{
    static const int opcodes[] = {
        [IBV_WR_RDMA_WRITE] = IBV_WC_RDMA_WRITE, [IBV_WR_SEND] = IBV_WC_SEND,
        [IBV_WR_SEND_WITH_IMM] = IBV_WC_SEND, [IBV_WR_RDMA_READ] = IBV_WC_RDMA_READ,
        [IBV_WR_RDMA_WRITE_WITH_IMM] = IBV_WC_RDMA_WRITE,
        [IBV_WR_ATOMIC_FETCH_AND_ADD] = IBV_WC_FETCH_ADD, [IBV_WR_ATOMIC_CMP_AND_SWP] = IBV_WC_COMP_SWAP,
    };
    q->head++;
    q->unsignalled++;
    free(w->copy);
    w->copy = NULL;
    if (!status && !(w->flags & IBV_SEND_SIGNALED)) return;
    struct ibv_wc wc = {.wr_id = w->id, .status = status, .opcode = opcodes[w->opcode], .qp_num = q->number};
    unsigned frees = q->unsignalled;
    q->unsignalled = 0;
    fake_complete(q->send_cq, wc, frees);
}

static void flush(struct wire *q)
{
    while (q->head != q->tail) send_ends(q, &q->sends[q->head % q->depth], IBV_WC_WR_FLUSH_ERR);
    struct receives *r = &q->receives;
    while (r->head != r->tail) {
        struct ibv_wc wc = {.wr_id = r->ring[r->head++ % r->depth].id, .status = IBV_WC_WR_FLUSH_ERR,
                            .opcode = IBV_WC_RECV, .qp_num = q->number};
        fake_complete(q->recv_cq, wc, 0);
    }
}

static void fail(struct wire *q)
{
    if (q->state != IBV_QPS_ERR) changed = 1;
    q->state = IBV_QPS_ERR;
    flush(q);
}

static void forget(struct wire *q)
{
    for (; q->head != q->tail; q->head++) {
        free(q->sends[q->head % q->depth].copy);
        q->sends[q->head % q->depth].copy = NULL;
    }
    q->head = q->tail = q->used = q->unsignalled = 0;
    q->receives.head = q->receives.tail = 0;
    if (q->send_cq) fake_purge(q->send_cq, q->number);
    if (q->recv_cq) fake_purge(q->recv_cq, q->number);
}

void wire_drop(struct wire *q)
{
    if (--q->holders) return;
    forget(q);
    struct wire **at = &wires;
    while (*at != q) at = &(*at)->next;
    *at = q->next;
    free(q->sends);
    free(q->receives.ring);
    free(q);
    changed = 1;
    wire_run();
}

/* ---- moving ---- */
/* The pieces as memory, if all are registered for it. */
static int pieces(struct ibv_pd *pd, struct ibv_sge *piece, int count, int access, uint8_t **at, uint64_t *len)
{
    *len = 0;
    for (int i = 0; i < count; i++) {
        static uint8_t none;
        at[i] = &none;
        if (piece[i].length) at[i] = fake_memory(pd, piece[i].lkey, piece[i].addr, piece[i].length, access);
        if (!at[i]) return 0;
        *len += piece[i].length;
    }
    return 1;
}

/* Between pieces and plain memory, in either direction. */
static void copy(uint8_t **at, struct ibv_sge *piece, int count, uint8_t *plain, uint64_t len, int into_pieces)
{
    for (int i = 0; i < count && len; i++) {
        uint64_t part = piece[i].length < len ? piece[i].length : len;
        if (into_pieces) memcpy(at[i], plain, part);
        else memcpy(plain, at[i], part);
        plain += part, len -= part;
    }
}

static uint32_t port_lid(struct wire *q) { return fake_lid(own(q->context)->device, q->attr.port_num); }

/* The far end of a connection, if it is ready and means this end. */
static struct wire *far_end(struct wire *q)
{
    struct wire *far = wire_of(q->attr.dest_qp_num);
    int wanted = q->type == IBV_QPT_XRC_SEND ? IBV_QPT_XRC_RECV : IBV_QPT_RC;
    if (!far || far->type != wanted) return NULL;
    if (far->state != IBV_QPS_RTR && far->state != IBV_QPS_RTS) return NULL;
    if (far->attr.dest_qp_num != q->number || far->attr.rq_psn != q->attr.sq_psn) return NULL;
    return port_lid(far) == q->attr.ah_attr.dlid && port_lid(q) == far->attr.ah_attr.dlid ? far : NULL;
}

/* Data into the next receive. `head` bytes stay free in front. */
static int deliver(struct wire *q, struct work *w, uint8_t *data, uint64_t len, struct wire *far, struct fake_srq *srq,
                   int head, struct wire **victim)
{
    struct receives *r = srq ? &srq->receives : &far->receives;
    struct ibv_cq *cq = srq && srq->cq ? srq->cq : far->recv_cq;
    struct ibv_pd *pd = srq ? srq->srq.pd : far->pd;
    if (r->head == r->tail) return q->attr.rnr_retry == 7 ? WAITS : IBV_WC_RNR_RETRY_EXC_ERR;
    struct receive *to = &r->ring[r->head++ % r->depth];
    struct ibv_wc wc = {.wr_id = to->id, .opcode = IBV_WC_RECV, .byte_len = len + head, .qp_num = far->number,
                        .src_qp = q->number};
    if (w->opcode == IBV_WR_SEND_WITH_IMM) wc.imm_data = w->imm, wc.wc_flags = IBV_WC_WITH_IMM;
    uint8_t *at[4];
    uint64_t room;
    int status = 0;
    if (!pieces(pd, to->piece, to->pieces, IBV_ACCESS_LOCAL_WRITE, at, &room))
        wc.status = IBV_WC_LOC_PROT_ERR, status = IBV_WC_REM_OP_ERR;
    else if (len + head > room)
        wc.status = IBV_WC_LOC_LEN_ERR, status = IBV_WC_REM_INV_REQ_ERR;
    else if (head) memcpy(at[0] + head, data, len);
    else copy(at, to->piece, to->pieces, data, len, 1);
    if (status) *victim = far;
    fake_complete(cq, wc, 0);
    return status;
}

/* A write with immediate data uses up a receive, whose memory it leaves alone. */
static int tell(struct wire *q, struct work *w, uint64_t len, struct wire *far, struct fake_srq *srq)
{
    struct receives *r = srq ? &srq->receives : &far->receives;
    struct ibv_cq *cq = srq && srq->cq ? srq->cq : far->recv_cq;
    if (r->head == r->tail) return q->attr.rnr_retry == 7 ? WAITS : IBV_WC_RNR_RETRY_EXC_ERR;
    struct ibv_wc wc = {.wr_id = r->ring[r->head++ % r->depth].id, .opcode = IBV_WC_RECV_RDMA_WITH_IMM, .byte_len = len,
                        .qp_num = far->number, .src_qp = q->number, .imm_data = w->imm, .wc_flags = IBV_WC_WITH_IMM};
    fake_complete(cq, wc, 0);
    return 0;
}

static int transfer(struct wire *q, struct work *w, struct wire **victim)
{
    int reads = w->opcode == IBV_WR_RDMA_READ || is_atomic(w->opcode);
    uint8_t *at[32];
    uint64_t len;
    if (w->copy) at[0] = w->copy, len = w->pieces ? w->piece[0].length : 0;
    else if (!pieces(q->pd, w->piece, w->pieces, reads ? IBV_ACCESS_LOCAL_WRITE : 0, at, &len))
        return IBV_WC_LOC_PROT_ERR;
    struct wire *far = far_end(q);
    if (!far) return IBV_WC_RETRY_EXC_ERR;
    struct fake_srq *srq = far->srq;
    if (q->type == IBV_QPT_XRC_SEND) {
        srq = fake_srq_of(w->srqn);
        if (!srq || srq->domain->shared != far->domain) return *victim = far, IBV_WC_REM_INV_REQ_ERR;
    }
    struct ibv_pd *pd = q->type == IBV_QPT_XRC_SEND ? srq->srq.pd : far->pd;
    uint8_t *plain = NULL;
    if (w->opcode == IBV_WR_SEND || w->opcode == IBV_WR_SEND_WITH_IMM) {
        plain = malloc(len + 1);
        copy(at, w->piece, w->pieces, plain, len, 0);
        int status = deliver(q, w, plain, len, far, srq, 0, victim);
        free(plain);
        return status;
    }
    int told = w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    int rights = told || w->opcode == IBV_WR_RDMA_WRITE ? IBV_ACCESS_REMOTE_WRITE
                 : w->opcode == IBV_WR_RDMA_READ        ? IBV_ACCESS_REMOTE_READ
                                                        : IBV_ACCESS_REMOTE_ATOMIC;
    if (is_atomic(w->opcode)) len = 8;
    if (!(far->attr.qp_access_flags & rights)) return *victim = far, IBV_WC_REM_ACCESS_ERR;
    if (len && !(plain = fake_memory(pd, w->rkey, w->remote, len, rights)))
        return *victim = far, IBV_WC_REM_ACCESS_ERR;
    int status = told ? tell(q, w, len, far, srq) : 0;
    if (status) return status;
    copy(at, w->piece, w->pieces, plain, len, reads);
    if (is_atomic(w->opcode)) {
        uint64_t word;
        memcpy(&word, plain, 8);
        if (w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) word += w->add;
        else if (word == w->add) word = w->swap;
        memcpy(plain, &word, 8);
    }
    return 0;
}

/* Lost without a word when nobody takes it. */
static int datagram(struct wire *q, struct work *w)
{
    uint8_t *at[32], plain[4096];
    uint64_t len;
    if (w->copy) at[0] = w->copy, len = w->pieces ? w->piece[0].length : 0;
    else if (!pieces(q->pd, w->piece, w->pieces, 0, at, &len)) return IBV_WC_LOC_PROT_ERR;
    struct wire *far = wire_of(w->qpn), *victim;
    if (!far || far->type != IBV_QPT_UD || (far->state != IBV_QPS_RTR && far->state != IBV_QPS_RTS)) return 0;
    if (far->attr.qkey != w->qkey || port_lid(far) != w->dlid || far->receives.head == far->receives.tail) return 0;
    struct receive *to = &far->receives.ring[far->receives.head % far->receives.depth];
    if (to->pieces != 1 || to->piece[0].length < len + 40) return 0;
    copy(at, w->piece, w->pieces, plain, len, 0);
    deliver(q, w, plain, len, far, NULL, 40, &victim);
    return 0;
}

static void progress(struct wire *q)
{
    while (q->state == IBV_QPS_RTS && q->head != q->tail) {
        struct work *w = &q->sends[q->head % q->depth];
        struct wire *victim = NULL;
        int status = q->type == IBV_QPT_UD ? datagram(q, w) : transfer(q, w, &victim);
        if (status == WAITS) return;
        send_ends(q, w, status);
        if (victim) fail(victim);
        if (status) fail(q);
    }
}

void wire_run(void)
{
    do {
        changed = 0;
        for (struct wire *q = wires; q; q = q->next) progress(q);
    } while (changed);
}

/* ---- requests ---- */
int wire_send(struct wire *q, struct ibv_send_wr *wr)
{
    if (q->state != IBV_QPS_RTS && q->state != IBV_QPS_ERR) return EINVAL;
    if (q->used >= q->depth) return ENOMEM;
    if (wr->num_sge > 32 || (wr->send_flags & ~(IBV_SEND_SIGNALED | IBV_SEND_INLINE))) return EINVAL;
    struct work *w = &q->sends[q->tail % q->depth];
    *w = (struct work){.id = wr->wr_id, .opcode = wr->opcode, .flags = wr->send_flags, .imm = wr->imm_data,
                       .pieces = wr->num_sge};
    if (wr->num_sge) memcpy(w->piece, wr->sg_list, wr->num_sge * sizeof *wr->sg_list);
    uint64_t len = 0;
    for (int i = 0; i < wr->num_sge; i++) len += wr->sg_list[i].length;
    if (q->type == IBV_QPT_UD) {
        if (len > 128u << K(active_mtu)) return EMSGSIZE;
        struct ibv_ah *ah = wr->wr.ud.ah;
        w->qpn = wr->wr.ud.remote_qpn, w->qkey = wr->wr.ud.remote_qkey, w->dlid = ah->handle;
    } else if (is_atomic(wr->opcode)) {
        w->remote = wr->wr.atomic.remote_addr, w->rkey = wr->wr.atomic.rkey, w->add = wr->wr.atomic.compare_add;
        w->swap = wr->wr.atomic.swap;
    } else {
        w->remote = wr->wr.rdma.remote_addr, w->rkey = wr->wr.rdma.rkey;
    }
    if (q->type == IBV_QPT_XRC_SEND) w->srqn = wr->qp_type.xrc.remote_srqn;
    if (wr->send_flags & IBV_SEND_INLINE) {
        w->copy = malloc(len + 1);
        uint8_t *to = w->copy;
        for (int i = 0; i < wr->num_sge; to += wr->sg_list[i++].length)
            memcpy(to, (void *)wr->sg_list[i].addr, wr->sg_list[i].length);
        w->pieces = 1;
        w->piece[0] = (struct ibv_sge){.length = len};
    }
    q->tail++;
    q->used++;
    if (q->state == IBV_QPS_ERR) flush(q);
    progress(q);
    if (changed) wire_run();
    return 0;
}

int wire_receive(struct wire *q, struct ibv_recv_wr *wr)
{
    if (q->state == IBV_QPS_RESET || q->srq || q->type == IBV_QPT_XRC_SEND || q->type == IBV_QPT_XRC_RECV) return EINVAL;
    int result = receives_add(&q->receives, wr);
    if (!result && q->state == IBV_QPS_ERR) flush(q);
    wire_run();
    return result;
}

/* ---- states ---- */
/* What Linux demands of each type and change, without STATE; -1: there is no such change. */
static int demanded(int type, int from, int to)
{
    int init = IBV_QP_PKEY_INDEX | IBV_QP_PORT | (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
    int path = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    int answers = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    int asks = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
    if (from == IBV_QPS_RESET && to == IBV_QPS_INIT) return init;
    if (from == IBV_QPS_INIT && to == IBV_QPS_RTR)
        return type == IBV_QPT_UD ? 0 : type == IBV_QPT_XRC_SEND ? path : path | answers;
    if (from == IBV_QPS_RTR && to == IBV_QPS_RTS)
        return type == IBV_QPT_UD         ? IBV_QP_SQ_PSN
               : type == IBV_QPT_XRC_RECV ? IBV_QP_TIMEOUT | IBV_QP_SQ_PSN
                                          : asks;
    if (to == IBV_QPS_RESET || (to == IBV_QPS_ERR && from != IBV_QPS_RESET)) return 0;
    return -1;
}

int wire_modify(struct wire *q, struct ibv_qp_attr *a, int mask)
{
    if ((mask & ~IBV_QP_STATE) != demanded(q->type, q->state, a->qp_state)) return EINVAL;
    if (mask & IBV_QP_PORT && (a->port_num < 1 || !fake_lid(own(q->context)->device, a->port_num))) return EINVAL;
#define KEEP(bit, field) if (mask & bit) q->attr.field = a->field
    KEEP(IBV_QP_PORT, port_num);
    KEEP(IBV_QP_ACCESS_FLAGS, qp_access_flags);
    KEEP(IBV_QP_QKEY, qkey);
    KEEP(IBV_QP_AV, ah_attr);
    KEEP(IBV_QP_DEST_QPN, dest_qp_num);
    KEEP(IBV_QP_RQ_PSN, rq_psn);
    KEEP(IBV_QP_SQ_PSN, sq_psn);
    KEEP(IBV_QP_RNR_RETRY, rnr_retry);
    q->state = a->qp_state;
    if (q->state == IBV_QPS_RESET) forget(q);
    if (q->state == IBV_QPS_ERR) flush(q);
    wire_run();
    return 0;
}
