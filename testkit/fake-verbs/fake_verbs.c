/* A libibverbs without hardware, for what no device of the tests can do: an InfiniBand port with a LID, XRC and on-demand
 * paging, refusals at a chosen place, events of the device. Built by the tests against the installed header (script `build`),
 * loaded through fabric::verbs::open(Some(path)). Requests complete at once and go nowhere, unless the knob `moves` is set:
 * then fake_wire.c takes them to the queue pair that they are connected to, inside this process.
 *
 * fake_set(name, value) turns the knobs, fake_get(name) reads them and what was seen; fake.h has the table. */
#include "fake.h"

#undef ibv_query_port
#undef ibv_reg_mr
#ifdef WITHOUT_REG_MR /* a library that lacks a function */
#define ibv_reg_mr fake_reg_mr
#endif

#define DEFINE_KNOB(name, value) long long knob_##name = value;
KNOBS(DEFINE_KNOB)
#define NAME_KNOB(name, value) {#name, &knob_##name},
static const struct { const char *name; long long *value; } knobs[] = {KNOBS(NAME_KNOB)};

static long long *knob(const char *name)
{
    for (size_t i = 0; i < sizeof knobs / sizeof *knobs; i++)
        if (strcmp(knobs[i].name, name) == 0) return knobs[i].value;
    fprintf(stderr, "fake_verbs: no knob %s\n", name);
    abort();
}

void fake_set(const char *name, long long value) { *knob(name) = value; }
long long fake_get(const char *name) { return *knob(name); }

static pthread_mutex_t big = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
void fake_lock(void) { pthread_mutex_lock(&big); }
void fake_unlock(void *held) { (void)held; pthread_mutex_unlock(&big); }

static struct fake_context *last_context;
static struct fake_qp *last_qp;

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
    /* Where data moves, a second one of the first kind. */
    {.node_type = MOVING(IBV_NODE_CA, IBV_NODE_RNIC), .transport_type = MOVING(IBV_TRANSPORT_IB, IBV_TRANSPORT_IWARP),
     .name = MOVING("fake_ib1", "fake_iw0"),
     .ibdev_path = MOVING("/nonexistent/fake_ib1", "/nonexistent/fake_iw0")},
};

static int ports_of(int device) { return device == 0 ? 2 : 1; }

uint32_t fake_lid(int device, int port)
{
    return port < 1 || port > ports_of(device) ? 0 : K(lid) + 0x100 * device + 0x1000 * (port - 1);
}

int ibv_fork_init(void) { K(forks)++; return 0; }
enum ibv_fork_status ibv_is_fork_initialized(void) { return (enum ibv_fork_status)K(fork_status); }

struct ibv_device **ibv_get_device_list(int *count)
{
    LOCKED;
    static struct ibv_device *list[3];
    if (K(node_count) < 0) return errno = ENOSYS, NULL;
    fakes[0].transport_type = K(transport);
    for (int i = 0; i < 3; i++) list[i] = i < K(node_count) ? &fakes[i] : NULL;
    *count = K(node_count);
    K(live)++;
    return list;
}
void ibv_free_device_list(struct ibv_device **list) { LOCKED; (void)list; K(live)--; }

static int poll_cq(struct ibv_cq *, int, struct ibv_wc *);
static int notify(struct ibv_cq *, int);
static int post_send(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);
static int post_recv(struct ibv_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **);
static int post_srq(struct ibv_srq *, struct ibv_recv_wr *, struct ibv_recv_wr **);
static struct ibv_xrcd *open_xrcd(struct ibv_context *, struct ibv_xrcd_init_attr *);
static int close_xrcd(struct ibv_xrcd *);
static struct ibv_srq *create_srq_ex(struct ibv_context *, struct ibv_srq_init_attr_ex *);
static int get_srq_num(struct ibv_srq *, uint32_t *);
static struct ibv_qp *create_qp_ex(struct ibv_context *, struct ibv_qp_init_attr_ex *);
static struct ibv_qp *open_qp(struct ibv_context *, struct ibv_qp_open_attr *);

static int query_ex(struct ibv_context *c, const struct ibv_query_device_ex_input *in,
                    struct ibv_device_attr_ex *attr, size_t size)
{
    (void)c, (void)in;
    if (size < offsetof(struct ibv_device_attr_ex, odp_caps) + sizeof attr->odp_caps) return EINVAL;
    attr->odp_caps.general_caps = K(odp) ? IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT : 0;
    attr->odp_caps.per_transport_caps.rc_odp_caps = K(odp_rc);
    return 0;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    LOCKED;
    if (K(open_errno)) return errno = K(open_errno), NULL;
    struct fake_context *c = calloc(1, sizeof *c);
    struct ibv_context *inner = &c->outer.context;
    c->device = device - fakes;
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
        c->outer.create_srq_ex = K(xrc_lacks) == 1 ? NULL : create_srq_ex;
        c->outer.get_srq_num = K(xrc_lacks) == 2 ? NULL : get_srq_num;
        c->outer.create_qp_ex = K(xrc_lacks) == 3 ? NULL : create_qp_ex;
        c->outer.open_qp = K(xrc_lacks) == 4 ? NULL : open_qp;
    }
    K(live)++;
    last_context = c;
    return inner;
}
int ibv_close_device(struct ibv_context *context)
{
    LOCKED;
    struct fake_context *c = own(context);
    must(c->pds == 0 && c->cqs == 0 && c->channels == 0 && c->domains == 0);
    close(context->async_fd);
    close(c->write_end);
    free(c);
    K(live)--;
    return 0;
}

int ibv_query_device(struct ibv_context *c, struct ibv_device_attr *a)
{
    memset(a, 0, sizeof *a);
    a->max_mr_size = MOVING(1 << 30, 1 << 20);
    a->max_qp = MOVING(1000, 100), a->max_qp_wr = MOVING(4096, 64), a->max_sge = a->max_sge_rd = 40;
    a->max_cqe = MOVING(1 << 16, 200), a->max_mr = MOVING(1000, 50);
    a->device_cap_flags = K(xrc_bit) ? IBV_DEVICE_XRC : 0;
    a->max_qp_rd_atom = 16, a->max_qp_init_rd_atom = 300;
    a->atomic_cap = K(atomics) == 2 ? IBV_ATOMIC_GLOB : K(atomics) ? IBV_ATOMIC_HCA : IBV_ATOMIC_NONE;
    a->max_srq = K(srq) ? 4 : 0, a->max_srq_wr = K(srq), a->max_srq_sge = 2;
    a->phys_port_cnt = ports_of(own(c)->device);
    return 0;
}

int ibv_query_port(struct ibv_context *c, uint8_t port, struct _compat_ibv_port_attr *out)
{
    struct ibv_port_attr *a = (struct ibv_port_attr *)out;
    a->state = port == 1 ? K(port_state) : IBV_PORT_DOWN;
    a->active_mtu = port == 1 ? K(active_mtu) : 0;
    a->gid_tbl_len = 4, a->max_msg_sz = 1 << 30, a->pkey_tbl_len = 8;
    a->lid = port == 1 ? fake_lid(own(c)->device, port) : 0;
    a->link_layer = K(link);
    return 0;
}
int ibv_query_gid(struct ibv_context *c, uint8_t port, int index, union ibv_gid *gid)
{
    (void)port;
    memset(gid, 0, sizeof *gid);
    if (index == 2) return errno = ENODATA, -1;
    if (index == 0) gid->raw[0] = 0xfe, gid->raw[1] = 0x80, gid->raw[15] = 7 + own(c)->device;
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
    LOCKED;
    struct fake_pd *pd = calloc(1, sizeof *pd);
    pd->pd.context = context;
    own(context)->pds++;
    K(live)++;
    return &pd->pd;
}
int ibv_dealloc_pd(struct ibv_pd *pd)
{
    LOCKED;
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

/* Regions by the upper bits of their key. */
static struct fake_mr **regions;
static uint32_t region_count;

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access)
{
    LOCKED;
    K(registrations)++;
    K(access) = access;
    if (K(register_failures) > 0) {
        K(register_failures)--;
        return errno = K(register_errno), NULL;
    }
    if (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) && !(access & IBV_ACCESS_LOCAL_WRITE))
        return errno = EINVAL, NULL;
    uint32_t slot = 0;
    while (slot < region_count && regions[slot]) slot++;
    if (slot == region_count) {
        regions = realloc(regions, ++region_count * sizeof *regions);
        regions[slot] = NULL;
    }
    struct fake_mr *mr = calloc(1, sizeof *mr);
    uint32_t key = (slot + 1) << 8 | (K(registrations) & 0xff);
    mr->mr = (struct ibv_mr){.context = pd->context, .pd = pd, .addr = addr, .length = len, .lkey = key, .rkey = key};
    mr->access = access;
    regions[slot] = mr;
    use(pd, 1);
    return &mr->mr;
}
int ibv_dereg_mr(struct ibv_mr *mr)
{
    LOCKED;
    use(mr->pd, -1);
    regions[(mr->lkey >> 8) - 1] = NULL;
    free(mr);
    return 0;
}
void *fake_memory(struct ibv_pd *pd, uint32_t key, uint64_t addr, uint64_t len, int access)
{
    uint32_t slot = (key >> 8) - 1;
    struct fake_mr *mr = slot < region_count ? regions[slot] : NULL;
    if (!mr || mr->mr.lkey != key || mr->mr.pd != pd || (mr->access & access) != access) return NULL;
    uint64_t from = addr - (uint64_t)mr->mr.addr;
    if (addr < (uint64_t)mr->mr.addr || from > mr->mr.length || len > mr->mr.length - from) return NULL;
    return (void *)addr;
}

/* ---- channels and completion queues ---- */
struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
    LOCKED;
    struct fake_channel *c = calloc(1, sizeof *c);
    c->channel.context = context;
    pipes(&c->channel.fd, &c->write_end);
    own(context)->channels++;
    K(live)++;
    return &c->channel;
}
int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
    LOCKED;
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
    LOCKED;
    struct fake_cq *cq = calloc(1, sizeof *cq);
    must(vector == 0);
    cq->cq.context = context, cq->cq.cq_context = cq_context, cq->cq.channel = channel;
    cq->cq.cqe = cqe + 3;
    cq->ring = calloc(cq->cq.cqe, sizeof *cq->ring);
    if (channel) ((struct fake_channel *)channel)->cqs++;
    own(context)->cqs++;
    K(live)++;
    return &cq->cq;
}
/* What nobody read goes with the queue. */
static void unannounce(struct fake_cq *c)
{
    struct fake_channel *channel = (struct fake_channel *)c->cq.channel;
    struct ibv_cq *cq;
    for (int left = channel->events; left > 0; left--) {
        if (read(channel->channel.fd, &cq, sizeof cq) != sizeof cq) abort();
        if (cq == &c->cq) channel->events--;
        else if (write(channel->write_end, &cq, sizeof cq) < 0) abort();
    }
}
int ibv_destroy_cq(struct ibv_cq *cq)
{
    LOCKED;
    struct fake_cq *c = (struct fake_cq *)cq;
    must(c->users == 0 && c->unacked == 0);
    if (cq->channel) {
        ((struct fake_channel *)cq->channel)->cqs--;
        unannounce(c);
    }
    own(cq->context)->cqs--;
    free(c->ring);
    free(c);
    K(live)--;
    return 0;
}
static void announce(struct fake_cq *c)
{
    if (!c->armed || !c->cq.channel) return;
    struct fake_channel *channel = (struct fake_channel *)c->cq.channel;
    struct ibv_cq *cq = &c->cq;
    c->armed = 0;
    channel->events++;
    if (write(channel->write_end, &cq, sizeof cq) < 0) abort();
}
void fake_complete(struct ibv_cq *cq, struct ibv_wc wc, unsigned frees)
{
    struct fake_cq *c = (struct fake_cq *)cq;
    if (c->tail - c->head == (unsigned)cq->cqe) {
        if (c->broken) return;
        c->broken = 1;
        fake_async(cq->context, (struct ibv_async_event){.event_type = IBV_EVENT_CQ_ERR, .element.cq = cq});
    } else {
        c->ring[c->tail++ % cq->cqe] = (struct end){wc, frees};
    }
    announce(c);
}
void fake_purge(struct ibv_cq *cq, uint32_t qpn)
{
    struct fake_cq *c = (struct fake_cq *)cq;
    unsigned kept = c->head;
    for (unsigned at = c->head; at != c->tail; at++)
        if (c->ring[at % cq->cqe].wc.qp_num != qpn) c->ring[kept++ % cq->cqe] = c->ring[at % cq->cqe];
    c->tail = kept;
}
static int poll_cq(struct ibv_cq *cq, int room, struct ibv_wc *wc)
{
    LOCKED;
    struct fake_cq *c = (struct fake_cq *)cq;
    int n = 0;
    if (c->head == c->tail && c->broken) return -1;
    if (K(poll_result) < 0 && c->head == c->tail) return K(poll_result);
    for (; n < room && c->head != c->tail; n++) {
        struct end *end = &c->ring[c->head++ % cq->cqe];
        struct wire *q = end->frees ? wire_of(end->wc.qp_num) : NULL;
        if (q) q->used -= end->frees;
        wc[n] = end->wc;
    }
    return n;
}
static int notify(struct ibv_cq *cq, int solicited)
{
    LOCKED;
    must(!solicited);
    ((struct fake_cq *)cq)->armed = 1;
    return 0;
}
int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **context)
{
    LOCKED;
    if (read(channel->fd, cq, sizeof *cq) != sizeof *cq) return -1;
    *context = (*cq)->cq_context;
    ((struct fake_channel *)channel)->events--;
    ((struct fake_cq *)*cq)->unacked++;
    return 0;
}
void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
    LOCKED;
    ((struct fake_cq *)cq)->unacked -= n;
    K(acked) += n;
}

/* ---- extended reliable connections ---- */
static struct shared_domain *domains;

static struct ibv_xrcd *open_xrcd(struct ibv_context *c, struct ibv_xrcd_init_attr *attr)
{
    LOCKED;
    must(attr->comp_mask == (IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS) && attr->oflags == O_CREAT);
    if (!K(xrc_works)) return errno = EOPNOTSUPP, NULL;
    struct stat seen = {0};
    if (attr->fd != -1 && fstat(attr->fd, &seen) != 0) return NULL;
    int device = own(c)->device;
    struct shared_domain *shared = attr->fd == -1 ? NULL : domains;
    while (shared && (shared->dev != seen.st_dev || shared->ino != seen.st_ino || shared->device != device))
        shared = shared->next;
    if (!shared) {
        shared = calloc(1, sizeof *shared);
        *shared = (struct shared_domain){domains, seen.st_dev, seen.st_ino, device, 0};
        domains = shared;
    }
    shared->holders++;
    struct fake_xrcd *domain = calloc(1, sizeof *domain);
    domain->xrcd.context = c, domain->shared = shared;
    own(c)->domains++;
    K(live)++;
    return &domain->xrcd;
}
static int close_xrcd(struct ibv_xrcd *xrcd)
{
    LOCKED;
    struct fake_xrcd *domain = (struct fake_xrcd *)xrcd;
    must(domain->users == 0);
    if (--domain->shared->holders == 0) {
        struct shared_domain **at = &domains;
        while (*at != domain->shared) at = &(*at)->next;
        *at = domain->shared->next;
        free(domain->shared);
    }
    own(xrcd->context)->domains--;
    free(domain);
    K(live)--;
    return 0;
}

/* ---- receive queues and queue pairs ---- */
static struct fake_srq *srqs;

static struct fake_srq *new_srq(struct ibv_context *context, struct ibv_pd *pd, uint32_t depth)
{
    struct fake_srq *s = calloc(1, sizeof *s);
    s->srq.context = context, s->srq.pd = pd;
    s->receives.depth = depth;
    s->receives.ring = calloc(depth + 1, sizeof *s->receives.ring);
    s->next = srqs;
    srqs = s;
    use(pd, 1);
    return s;
}
struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
    LOCKED;
    return &new_srq(pd->context, pd, attr->attr.max_wr)->srq;
}
static struct ibv_srq *create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr)
{
    LOCKED;
    static uint32_t next = 0x900;
    must(attr->comp_mask == (IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ));
    must(attr->srq_type == IBV_SRQT_XRC && attr->attr.max_sge == 1);
    struct fake_srq *s = new_srq(context, attr->pd, attr->attr.max_wr);
    s->number = next++, s->cq = attr->cq, s->domain = (struct fake_xrcd *)attr->xrcd;
    s->domain->users++;
    ((struct fake_cq *)attr->cq)->users++;
    return &s->srq;
}
static int get_srq_num(struct ibv_srq *srq, uint32_t *number)
{
    struct fake_srq *s = (struct fake_srq *)srq;
    if (!s->domain) return EINVAL;
    *number = s->number;
    return 0;
}
struct fake_srq *fake_srq_of(uint32_t number)
{
    struct fake_srq *s = srqs;
    while (s && (!s->domain || s->number != number)) s = s->next;
    return s;
}
int ibv_destroy_srq(struct ibv_srq *srq)
{
    LOCKED;
    struct fake_srq *s = (struct fake_srq *)srq, **at = &srqs;
    must(s->users == 0);
    while (*at != s) at = &(*at)->next;
    *at = s->next;
    if (s->domain) s->domain->users--, ((struct fake_cq *)s->cq)->users--;
    use(srq->pd, -1);
    free(s->receives.ring);
    free(s);
    wire_run();
    return 0;
}
static int post_srq(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    LOCKED;
    int result = 0;
    for (; wr && !result; wr = result ? wr : wr->next) {
        result = receives_add(&((struct fake_srq *)srq)->receives, wr);
        if (result) *bad = wr;
    }
    wire_run();
    return result;
}

static struct fake_qp *new_qp(struct ibv_context *context, int type, struct wire *wire)
{
    struct fake_qp *q = calloc(1, sizeof *q);
    q->qp.context = context;
    q->qp.qp_num = wire->number, q->qp.qp_type = type;
    q->wire = wire;
    K(qp_number) = wire->number;
    last_qp = q;
    return q;
}
static uint32_t next_qpn(void)
{
    static uint32_t next = 0x40;
    return next++;
}
struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    LOCKED;
    K(created_qps)++;
    if (attr->cap.max_inline_data > K(max_inline)) return errno = EINVAL, NULL;
    int sends_only = attr->qp_type == IBV_QPT_XRC_SEND;
    must(!sends_only == !!attr->recv_cq && attr->qp_type != IBV_QPT_XRC_RECV);
    must(!sends_only || (!attr->srq && !attr->cap.max_recv_wr && !attr->cap.max_recv_sge));
    struct wire *wire = wire_new(next_qpn(), attr->qp_type, &attr->cap);
    wire->context = pd->context, wire->pd = pd, wire->srq = (struct fake_srq *)attr->srq;
    wire->send_cq = attr->send_cq, wire->recv_cq = attr->recv_cq;
    struct fake_qp *q = new_qp(pd->context, attr->qp_type, wire);
    q->qp.pd = pd, q->qp.srq = attr->srq;
    q->qp.send_cq = attr->send_cq, q->qp.recv_cq = attr->recv_cq;
    ((struct fake_cq *)attr->send_cq)->users++;
    if (attr->recv_cq) ((struct fake_cq *)attr->recv_cq)->users++;
    if (attr->srq) ((struct fake_srq *)attr->srq)->users++;
    use(pd, 1);
    return &q->qp;
}
/* A handle of a queue pair that receives for a domain. */
static struct ibv_qp *xrc_handle(struct ibv_context *context, struct wire *wire, struct ibv_xrcd *xrcd)
{
    struct fake_qp *q = new_qp(context, IBV_QPT_XRC_RECV, wire);
    q->domain = (struct fake_xrcd *)xrcd;
    q->domain->users++;
    K(live)++;
    return &q->qp;
}
static struct ibv_qp *create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
    LOCKED;
    must(attr->comp_mask == IBV_QP_INIT_ATTR_XRCD && attr->qp_type == IBV_QPT_XRC_RECV);
    must(!attr->send_cq && !attr->recv_cq && !attr->srq && !attr->pd);
    struct wire *wire = wire_new(next_qpn(), IBV_QPT_XRC_RECV, NULL);
    wire->context = context, wire->domain = ((struct fake_xrcd *)attr->xrcd)->shared;
    K(xrc_targets)++;
    return xrc_handle(context, wire, attr->xrcd);
}
static struct ibv_qp *open_qp(struct ibv_context *context, struct ibv_qp_open_attr *attr)
{
    LOCKED;
    must(attr->comp_mask == (IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE));
    must(attr->qp_type == IBV_QPT_XRC_RECV);
    struct wire *wire = wire_of(attr->qp_num);
    if (!wire || !wire->domain || wire->domain != ((struct fake_xrcd *)attr->xrcd)->shared) return errno = EINVAL, NULL;
    wire->holders++;
    K(xrc_opened)++;
    return xrc_handle(context, wire, attr->xrcd);
}
int ibv_destroy_qp(struct ibv_qp *qp)
{
    LOCKED;
    struct fake_qp *q = (struct fake_qp *)qp;
    must(q->unacked == 0);
    wire_drop(q->wire);
    if (q->domain) {
        q->domain->users--;
        K(live)--;
    } else {
        ((struct fake_cq *)qp->send_cq)->users--;
        if (qp->recv_cq) ((struct fake_cq *)qp->recv_cq)->users--;
        if (qp->srq) ((struct fake_srq *)qp->srq)->users--;
        use(qp->pd, -1);
    }
    free(q);
    return 0;
}
int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    LOCKED;
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
    return wire_modify(((struct fake_qp *)qp)->wire, attr, mask);
}
int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
                 struct ibv_qp_init_attr *init)
{
    LOCKED;
    (void)mask, (void)init;
    attr->qp_state = ((struct fake_qp *)qp)->wire->state;
    return 0;
}
static int post_one(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
    struct wire *wire = ((struct fake_qp *)qp)->wire;
    if (K(post_errno)) return K(post_errno);
    K(sent_opcode) = wr->opcode, K(sent_flags) = wr->send_flags, K(sent_pieces) = wr->num_sge;
    K(sent_imm) = be32toh(wr->imm_data);
    K(sent_bytes) = 0;
    for (int i = 0; i < wr->num_sge; i++) K(sent_bytes) += wr->sg_list[i].length;
    if (qp->qp_type == IBV_QPT_UD) K(sent_qkey) = wr->wr.ud.remote_qkey, K(sent_qpn) = wr->wr.ud.remote_qpn;
    if (qp->qp_type == IBV_QPT_XRC_SEND) K(sent_srqn) = wr->qp_type.xrc.remote_srqn;
    must(qp->qp_type != IBV_QPT_XRC_RECV);
    if (K(moves)) return wire_send(wire, wr);
    struct ibv_wc wc = {.wr_id = wr->wr_id, .status = K(status), .opcode = IBV_WC_SEND, .qp_num = qp->qp_num};
    if (wc.status) wire->state = IBV_QPS_ERR;
    if (wc.status || wr->send_flags & IBV_SEND_SIGNALED) fake_complete(qp->send_cq, wc, 0);
    return 0;
}
static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    LOCKED;
    K(send_posts)++;
    for (int taken = 0; wr; wr = wr->next, taken++) {
        int result = K(list_room) && taken == K(list_room) ? ENOMEM : post_one(qp, wr);
        if (result) return *bad = wr, result;
    }
    return 0;
}
static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    LOCKED;
    struct wire *wire = ((struct fake_qp *)qp)->wire;
    for (; wr; wr = wr->next) {
        if (K(post_errno)) return *bad = wr, K(post_errno);
        if (K(moves)) {
            int result = wire_receive(wire, wr);
            if (result) return *bad = wr, result;
            continue;
        }
        struct ibv_wc wc = {.wr_id = wr->wr_id, .status = IBV_WC_WR_FLUSH_ERR, .qp_num = qp->qp_num};
        if (wire->state == IBV_QPS_ERR) fake_complete(qp->recv_cq, wc, 0);
    }
    return 0;
}
struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
    LOCKED;
    if (K(link) == IBV_LINK_LAYER_ETHERNET && !attr->is_global) return errno = EINVAL, NULL;
    struct ibv_ah *ah = calloc(1, sizeof *ah);
    ah->context = pd->context, ah->pd = pd;
    ah->handle = attr->dlid; /* for fake_wire.c */
    K(ah_dlid) = attr->dlid;
    use(pd, 1);
    return ah;
}
int ibv_destroy_ah(struct ibv_ah *ah) { LOCKED; use(ah->pd, -1); free(ah); return 0; }

/* ---- events of the device ---- */
void fake_async(struct ibv_context *context, struct ibv_async_event event)
{
    if (write(own(context)->write_end, &event, sizeof event) < 0) abort();
}
/* Makes an event of the device opened last: of its port, or of the queue pair made last. */
void fake_event(int type, int port)
{
    LOCKED;
    struct ibv_async_event event = {.event_type = type};
    if (type == IBV_EVENT_QP_FATAL) {
        event.element.qp = &last_qp->qp;
        last_qp->unacked++;
    } else {
        event.element.port_num = port;
    }
    fake_async(&last_context->outer.context, event);
}
int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    return read(context->async_fd, event, sizeof *event) == sizeof *event ? 0 : -1;
}
void ibv_ack_async_event(struct ibv_async_event *event)
{
    LOCKED;
    K(acked)++;
    if (event->event_type == IBV_EVENT_QP_FATAL) ((struct fake_qp *)event->element.qp)->unacked--;
}
