/* A libibverbs without hardware, for what no device of the tests can do: an InfiniBand port with a LID, XRC and on-demand
 * paging, refusals at a chosen place, events of the device. Built by the tests against the installed header, loaded through
 * fabric::verbs::open(Some(path)). Requests complete at once; data does not move.
 *
 * fake_set(name, value) turns the knobs, fake_get(name) reads them and what was seen; see the table below. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#undef ibv_query_port
#undef ibv_reg_mr
#ifdef WITHOUT_REG_MR /* a library that lacks a function */
#define ibv_reg_mr fake_reg_mr
#endif

/* ---- knobs and what was seen ---- */
static struct knob {
    const char *name;
    long long value;
} knobs[] = {
    /* set by tests */
    {"transport", IBV_TRANSPORT_IB},
    {"node_count", 2},      /* devices; 0: none, -1: ENOSYS */
    {"open_errno", 0},      /* refuses to open */
    {"legacy", 0},          /* no extended context */
    {"xrc_bit", 1}, {"xrc_works", 1}, {"odp", 1}, {"odp_rc", 15},
    {"atomics", 1}, {"srq", 64},
    {"register_errno", 0}, {"register_failures", 0}, /* so many registrations end so */
    {"refuse_state", -1}, {"refuse_errno", EINVAL},  /* a change to this state is refused */
    {"max_inline", 64}, {"post_errno", 0}, {"status", 0}, {"poll_result", 0},
    {"lid", 0x11}, {"link", IBV_LINK_LAYER_INFINIBAND}, {"port_state", IBV_PORT_ACTIVE},
    {"active_mtu", IBV_MTU_2048},
    /* seen */
    {"registrations", 0}, {"access", 0}, {"created_qps", 0}, {"sent_opcode", 0}, {"sent_flags", 0},
    {"sent_imm", 0}, {"sent_pieces", 0}, {"sent_bytes", 0}, {"sent_qkey", 0}, {"sent_qpn", 0},
    {"dlid", 0}, {"global", 0}, {"sgid_index", 0}, {"hop_limit", 0}, {"mask", 0}, {"path_mtu", 0},
    {"retry_cnt", 0}, {"ah_dlid", 0}, {"forks", 0}, {"acked", 0}, {"violations", 0}, {"live", 0},
    {"qp_number", 0},
};

static long long *knob(const char *name)
{
    for (size_t i = 0; i < sizeof knobs / sizeof *knobs; i++)
        if (strcmp(knobs[i].name, name) == 0) return &knobs[i].value;
    fprintf(stderr, "fake_verbs: no knob %s\n", name);
    abort();
}
#define K(name) (*knob(#name))

void fake_set(const char *name, long long value) { *knob(name) = value; }
long long fake_get(const char *name) { return *knob(name); }

/* ---- objects, with the order in which they may go ---- */
struct fake_context {
    struct verbs_context outer;
    int write_end;
    int pds, cqs, channels;
};
struct fake_pd { struct ibv_pd pd; int users; };
struct fake_channel { struct ibv_comp_channel channel; int write_end, cqs; };
struct fake_cq {
    struct ibv_cq cq;
    int users, armed, unacked;
    unsigned head, tail;
    struct ibv_wc ring[256];
};
struct fake_srq { struct ibv_srq srq; int users, posted, depth; };
struct fake_qp { struct ibv_qp qp; int unacked; struct ibv_qp_attr attr; };

static struct fake_context *last_context;
static struct fake_qp *last_qp;

static struct fake_context *own(struct ibv_context *c)
{
    return (struct fake_context *)((char *)c - offsetof(struct fake_context, outer.context));
}

static void must(int good) { if (!good) K(violations)++; }

static void pipes(int *read_end, int *write_end)
{
    int both[2];
    if (pipe2(both, O_CLOEXEC) != 0) abort();
    *read_end = both[0];
    *write_end = both[1];
}

/* ---- devices ---- */
static struct ibv_device fakes[2] = {
    {.node_type = IBV_NODE_CA, .name = "fake_ib0", .dev_name = "uverbs0",
     .dev_path = "/nonexistent/uverbs0", .ibdev_path = "/nonexistent/fake_ib0"},
    {.node_type = IBV_NODE_RNIC, .transport_type = IBV_TRANSPORT_IWARP, .name = "fake_iw0",
     .ibdev_path = "/nonexistent/fake_iw0"},
};

int ibv_fork_init(void) { K(forks)++; return 0; }

struct ibv_device **ibv_get_device_list(int *count)
{
    static struct ibv_device *list[3];
    if (K(node_count) < 0) return errno = ENOSYS, NULL;
    fakes[0].transport_type = K(transport);
    for (int i = 0; i < 3; i++) list[i] = i < K(node_count) ? &fakes[i] : NULL;
    *count = K(node_count);
    K(live)++;
    return list;
}
void ibv_free_device_list(struct ibv_device **list) { (void)list; K(live)--; }

static int poll_cq(struct ibv_cq *, int, struct ibv_wc *);
static int notify(struct ibv_cq *, int);
static int post_send(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);
static int post_recv(struct ibv_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **);
static int post_srq(struct ibv_srq *, struct ibv_recv_wr *, struct ibv_recv_wr **);

static int query_ex(struct ibv_context *c, const struct ibv_query_device_ex_input *in,
                    struct ibv_device_attr_ex *attr, size_t size)
{
    (void)c, (void)in;
    if (size < offsetof(struct ibv_device_attr_ex, odp_caps) + sizeof attr->odp_caps) return EINVAL;
    attr->odp_caps.general_caps = K(odp) ? IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT : 0;
    attr->odp_caps.per_transport_caps.rc_odp_caps = K(odp_rc);
    return 0;
}
static struct ibv_xrcd *open_xrcd(struct ibv_context *c, struct ibv_xrcd_init_attr *attr)
{
    static struct ibv_xrcd domain;
    must(attr->comp_mask == 3 && attr->fd == -1 && attr->oflags == O_CREAT);
    if (!K(xrc_works)) return errno = EOPNOTSUPP, NULL;
    domain.context = c;
    K(live)++;
    return &domain;
}
static int close_xrcd(struct ibv_xrcd *domain) { (void)domain; K(live)--; return 0; }

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    if (K(open_errno)) return errno = K(open_errno), NULL;
    struct fake_context *c = calloc(1, sizeof *c);
    struct ibv_context *inner = &c->outer.context;
    inner->device = device;
    inner->ops.poll_cq = poll_cq;
    inner->ops.req_notify_cq = notify;
    inner->ops.post_send = post_send;
    inner->ops.post_recv = post_recv;
    inner->ops.post_srq_recv = K(srq) ? post_srq : NULL;
    inner->cmd_fd = -1;
    pipes(&inner->async_fd, &c->write_end);
    if (!K(legacy)) {
        inner->abi_compat = __VERBS_ABI_IS_EXTENDED;
        c->outer.sz = sizeof c->outer;
        c->outer.query_device_ex = query_ex;
        c->outer.open_xrcd = open_xrcd;
        c->outer.close_xrcd = close_xrcd;
    }
    K(live)++;
    last_context = c;
    return inner;
}
int ibv_close_device(struct ibv_context *context)
{
    struct fake_context *c = own(context);
    must(c->pds == 0 && c->cqs == 0 && c->channels == 0);
    close(context->async_fd);
    close(c->write_end);
    free(c);
    K(live)--;
    return 0;
}

int ibv_query_device(struct ibv_context *c, struct ibv_device_attr *a)
{
    memset(a, 0, sizeof *a);
    a->max_mr_size = 1 << 20;
    a->max_qp = 100, a->max_qp_wr = 64, a->max_sge = 40, a->max_cqe = 200, a->max_mr = 50;
    a->device_cap_flags = K(xrc_bit) ? IBV_DEVICE_XRC : 0;
    a->max_qp_rd_atom = 16, a->max_qp_init_rd_atom = 300;
    a->atomic_cap = K(atomics) ? IBV_ATOMIC_HCA : IBV_ATOMIC_NONE;
    a->max_srq = K(srq) ? 4 : 0, a->max_srq_wr = K(srq), a->max_srq_sge = 2;
    a->phys_port_cnt = c->device == fakes ? 2 : 1;
    return 0;
}

int ibv_query_port(struct ibv_context *c, uint8_t port, struct _compat_ibv_port_attr *out)
{
    struct ibv_port_attr *a = (struct ibv_port_attr *)out;
    (void)c;
    a->state = port == 1 ? K(port_state) : IBV_PORT_DOWN;
    a->active_mtu = port == 1 ? K(active_mtu) : 0;
    a->gid_tbl_len = 4, a->max_msg_sz = 1 << 30, a->pkey_tbl_len = 8;
    a->lid = port == 1 ? K(lid) : 0;
    a->link_layer = K(link);
    return 0;
}
int ibv_query_gid(struct ibv_context *c, uint8_t port, int index, union ibv_gid *gid)
{
    (void)c, (void)port;
    memset(gid, 0, sizeof *gid);
    if (index == 2) return errno = ENODATA, -1;
    if (index == 0) gid->raw[0] = 0xfe, gid->raw[1] = 0x80, gid->raw[15] = 7;
    return 0;
}
int ibv_query_pkey(struct ibv_context *c, uint8_t port, int index, __be16 *key)
{
    (void)c, (void)port;
    static const uint8_t keys[8][2] = {{0xff, 0xff}, {0, 0}, {0x80, 0x05}};
    memcpy(key, keys[index], 2);
    return 0;
}

/* ---- domains and memory ---- */
struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    struct fake_pd *pd = calloc(1, sizeof *pd);
    pd->pd.context = context;
    own(context)->pds++;
    K(live)++;
    return &pd->pd;
}
int ibv_dealloc_pd(struct ibv_pd *pd)
{
    must(((struct fake_pd *)pd)->users == 0);
    own(pd->context)->pds--;
    free(pd);
    K(live)--;
    return 0;
}
static void use(struct ibv_pd *pd, int by)
{
    ((struct fake_pd *)pd)->users += by;
    K(live) += by;
}
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access)
{
    K(registrations)++;
    K(access) = access;
    if (K(register_failures) > 0) {
        K(register_failures)--;
        return errno = K(register_errno), NULL;
    }
    struct ibv_mr *mr = calloc(1, sizeof *mr);
    *mr = (struct ibv_mr){.context = pd->context, .pd = pd, .addr = addr, .length = len,
                          .lkey = 0x100, .rkey = 0x200};
    use(pd, 1);
    return mr;
}
int ibv_dereg_mr(struct ibv_mr *mr) { use(mr->pd, -1); free(mr); return 0; }

/* ---- channels and completion queues ---- */
struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
    struct fake_channel *c = calloc(1, sizeof *c);
    c->channel.context = context;
    pipes(&c->channel.fd, &c->write_end);
    own(context)->channels++;
    K(live)++;
    return &c->channel;
}
int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
    struct fake_channel *c = (struct fake_channel *)channel;
    must(c->cqs == 0);
    own(channel->context)->channels--;
    close(channel->fd);
    close(c->write_end);
    free(c);
    K(live)--;
    return 0;
}
struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
                             struct ibv_comp_channel *channel, int vector)
{
    struct fake_cq *cq = calloc(1, sizeof *cq);
    must(vector == 0);
    cq->cq.context = context, cq->cq.cq_context = cq_context, cq->cq.channel = channel;
    cq->cq.cqe = cqe + 3;
    if (channel) ((struct fake_channel *)channel)->cqs++;
    own(context)->cqs++;
    K(live)++;
    return &cq->cq;
}
int ibv_destroy_cq(struct ibv_cq *cq)
{
    struct fake_cq *c = (struct fake_cq *)cq;
    must(c->users == 0 && c->unacked == 0);
    if (cq->channel) ((struct fake_channel *)cq->channel)->cqs--;
    own(cq->context)->cqs--;
    free(c);
    K(live)--;
    return 0;
}
static void complete(struct ibv_cq *cq, struct ibv_wc wc)
{
    struct fake_cq *c = (struct fake_cq *)cq;
    c->ring[c->tail++ % 256] = wc;
    if (c->armed && cq->channel) {
        c->armed = 0;
        c->unacked++;
        if (write(((struct fake_channel *)cq->channel)->write_end, &cq, sizeof cq) < 0) abort();
    }
}
static int poll_cq(struct ibv_cq *cq, int room, struct ibv_wc *wc)
{
    struct fake_cq *c = (struct fake_cq *)cq;
    int n = 0;
    if (K(poll_result) < 0 && c->head == c->tail) return K(poll_result);
    while (n < room && c->head != c->tail) wc[n++] = c->ring[c->head++ % 256];
    return n;
}
static int notify(struct ibv_cq *cq, int solicited)
{
    must(!solicited);
    ((struct fake_cq *)cq)->armed = 1;
    return 0;
}
int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **context)
{
    if (read(channel->fd, cq, sizeof *cq) != sizeof *cq) return -1;
    *context = (*cq)->cq_context;
    return 0;
}
void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
    ((struct fake_cq *)cq)->unacked -= n;
    K(acked) += n;
}

/* ---- receive queues and queue pairs ---- */
struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
    struct fake_srq *s = calloc(1, sizeof *s);
    s->srq.context = pd->context, s->srq.pd = pd;
    s->depth = attr->attr.max_wr;
    use(pd, 1);
    return &s->srq;
}
int ibv_destroy_srq(struct ibv_srq *srq)
{
    must(((struct fake_srq *)srq)->users == 0);
    use(srq->pd, -1);
    free(srq);
    return 0;
}
static int post_srq(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct fake_srq *s = (struct fake_srq *)srq;
    if (s->posted == s->depth) return *bad = wr, ENOMEM;
    s->posted++;
    return 0;
}
struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    static uint32_t next = 0x40;
    K(created_qps)++;
    if (attr->cap.max_inline_data > K(max_inline)) return errno = EINVAL, NULL;
    struct fake_qp *q = calloc(1, sizeof *q);
    q->qp.context = pd->context, q->qp.pd = pd;
    q->qp.send_cq = attr->send_cq, q->qp.recv_cq = attr->recv_cq, q->qp.srq = attr->srq;
    q->qp.qp_num = next++, q->qp.qp_type = attr->qp_type;
    K(qp_number) = q->qp.qp_num;
    last_qp = q;
    ((struct fake_cq *)attr->send_cq)->users++;
    ((struct fake_cq *)attr->recv_cq)->users++;
    if (attr->srq) ((struct fake_srq *)attr->srq)->users++;
    use(pd, 1);
    return &q->qp;
}
int ibv_destroy_qp(struct ibv_qp *qp)
{
    must(((struct fake_qp *)qp)->unacked == 0);
    ((struct fake_cq *)qp->send_cq)->users--;
    ((struct fake_cq *)qp->recv_cq)->users--;
    if (qp->srq) ((struct fake_srq *)qp->srq)->users--;
    use(qp->pd, -1);
    free(qp);
    return 0;
}
int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    must(mask & IBV_QP_STATE);
    K(mask) = mask;
    if (mask & IBV_QP_AV) {
        K(dlid) = attr->ah_attr.dlid, K(global) = attr->ah_attr.is_global;
        K(sgid_index) = attr->ah_attr.grh.sgid_index, K(hop_limit) = attr->ah_attr.grh.hop_limit;
        K(path_mtu) = attr->path_mtu;
        /* As real ports do. */
        if (attr->path_mtu > K(active_mtu)) return EINVAL;
        if (K(link) == IBV_LINK_LAYER_INFINIBAND && attr->ah_attr.dlid == 0) return EINVAL;
    }
    if (mask & IBV_QP_RETRY_CNT) K(retry_cnt) = attr->retry_cnt;
    if ((int)attr->qp_state == K(refuse_state)) return K(refuse_errno);
    qp->state = attr->qp_state;
    return 0;
}
int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
                 struct ibv_qp_init_attr *init)
{
    (void)mask, (void)init;
    attr->qp_state = qp->state;
    return 0;
}
static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    if (K(post_errno)) return *bad = wr, K(post_errno);
    K(sent_opcode) = wr->opcode, K(sent_flags) = wr->send_flags, K(sent_pieces) = wr->num_sge;
    K(sent_imm) = be32toh(wr->imm_data);
    K(sent_bytes) = 0;
    for (int i = 0; i < wr->num_sge; i++) K(sent_bytes) += wr->sg_list[i].length;
    if (qp->qp_type == IBV_QPT_UD) K(sent_qkey) = wr->wr.ud.remote_qkey, K(sent_qpn) = wr->wr.ud.remote_qpn;
    must(wr->next == NULL);
    struct ibv_wc wc = {.wr_id = wr->wr_id, .status = K(status), .opcode = IBV_WC_SEND, .qp_num = qp->qp_num};
    if (wc.status) qp->state = IBV_QPS_ERR;
    if (wc.status || wr->send_flags & IBV_SEND_SIGNALED) complete(qp->send_cq, wc);
    return 0;
}
static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    if (K(post_errno)) return *bad = wr, K(post_errno);
    struct ibv_wc wc = {.wr_id = wr->wr_id, .status = IBV_WC_WR_FLUSH_ERR, .qp_num = qp->qp_num};
    if (qp->state == IBV_QPS_ERR) complete(qp->recv_cq, wc);
    return 0;
}
struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
    if (K(link) == IBV_LINK_LAYER_ETHERNET && !attr->is_global) return errno = EINVAL, NULL;
    struct ibv_ah *ah = calloc(1, sizeof *ah);
    ah->context = pd->context, ah->pd = pd;
    K(ah_dlid) = attr->dlid;
    use(pd, 1);
    return ah;
}
int ibv_destroy_ah(struct ibv_ah *ah) { use(ah->pd, -1); free(ah); return 0; }

/* ---- events of the device ---- */
/* Makes an event of the device opened last: of its port, or of the queue pair made last. */
void fake_event(int type, int port)
{
    struct ibv_async_event event = {.event_type = type};
    if (type == IBV_EVENT_QP_FATAL) {
        event.element.qp = &last_qp->qp;
        last_qp->unacked++;
    } else {
        event.element.port_num = port;
    }
    if (write(last_context->write_end, &event, sizeof event) < 0) abort();
}
int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    return read(context->async_fd, event, sizeof *event) == sizeof *event ? 0 : -1;
}
void ibv_ack_async_event(struct ibv_async_event *event)
{
    K(acked)++;
    if (event->event_type == IBV_EVENT_QP_FATAL) ((struct fake_qp *)event->element.qp)->unacked--;
}
