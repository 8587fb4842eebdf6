/* What the two halves of the fake share: knobs, objects, the lock. */
#ifndef FAKE_H
#define FAKE_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef FAKE_MOVES
#define MOVING(moves, does_not) (moves)
#else
#define MOVING(moves, does_not) (does_not)
#endif

#ifndef FAKE_LIST
#define FAKE_LIST 0
#endif

/* ---- knobs and what was seen ---- */
#define KNOBS(X)                                                                                  \
    /* set by tests */                                                                            \
    X(moves, MOVING(1, 0))    /* requests reach the queue pair that they are connected to */      \
    X(transport, IBV_TRANSPORT_IB)                                                                \
    X(node_count, 2)          /* devices; 0: none, -1: ENOSYS */                                  \
    X(open_errno, 0)          /* refuses to open */                                               \
    X(legacy, 0)              /* no extended context */                                           \
    X(xrc_bit, 1) X(xrc_works, 1)                                                                 \
    X(xrc_lacks, 0)           /* 1 to 4: no create_srq_ex, get_srq_num, create_qp_ex, open_qp */  \
    X(odp, 1) X(odp_rc, 15) X(atomics, 1)                                                         \
    X(srq, MOVING(4096, 64))  /* entries of a shared receive queue */                             \
    X(register_errno, 0) X(register_failures, 0) /* so many registrations end so */               \
    X(refuse_state, -1) X(refuse_errno, EINVAL)  /* a change to this state is refused */          \
    X(max_inline, MOVING(256, 64)) X(post_errno, 0) X(status, 0) X(poll_result, 0)                \
    X(list_room, FAKE_LIST)   /* so many sends of a list are taken; 0: all */                     \
    X(lid, 0x11) X(link, IBV_LINK_LAYER_INFINIBAND) X(port_state, IBV_PORT_ACTIVE)                \
    X(active_mtu, IBV_MTU_2048) X(fork_status, IBV_FORK_DISABLED)                                 \
    /* seen */                                                                                    \
    X(registrations, 0) X(access, 0) X(created_qps, 0) X(sent_opcode, 0) X(sent_flags, 0)         \
    X(sent_imm, 0) X(sent_pieces, 0) X(sent_bytes, 0) X(sent_qkey, 0) X(sent_qpn, 0)              \
    X(sent_srqn, 0) X(dlid, 0) X(global, 0) X(sgid_index, 0) X(hop_limit, 0) X(mask, 0)           \
    X(path_mtu, 0) X(retry_cnt, 0) X(ah_dlid, 0) X(forks, 0) X(acked, 0) X(violations, 0)         \
    X(live, 0) X(qp_number, 0) X(xrc_targets, 0) X(xrc_opened, 0)                                 \
    X(send_posts, 0)          /* calls that post sends, of one or a list */

#define DECLARE_KNOB(name, value) extern long long knob_##name;
KNOBS(DECLARE_KNOB)
#define K(name) knob_##name

/* Something was destroyed too early, or said wrongly. */
#define must(good)                                                                    \
    do {                                                                              \
        if (good) break;                                                              \
        K(violations)++;                                                              \
        fprintf(stderr, "fake_verbs: %s:%d: not %s\n", __func__, __LINE__, #good);    \
    } while (0)

/* One lock for everything, held until the end of the block. */
void fake_lock(void);
void fake_unlock(void *);
#define LOCKED                                                        \
    int held __attribute__((cleanup(fake_unlock), unused)) = 0;       \
    fake_lock()

/* ---- objects, with the order in which they may go ---- */
struct fake_context {
    struct verbs_context outer;
    int device, write_end;
    int pds, cqs, channels, domains;
};
struct fake_pd { struct ibv_pd pd; int users; };
struct fake_mr { struct ibv_mr mr; int access; };
struct fake_channel { struct ibv_comp_channel channel; int write_end, cqs, events; };
struct end { /* of a request, in a completion queue */
    struct ibv_wc wc;
    unsigned frees; /* slots of the send queue */
};
struct fake_cq {
    struct ibv_cq cq;
    int users, armed, unacked, broken;
    unsigned head, tail;
    struct end *ring;
};
struct receive { uint64_t id; int pieces; struct ibv_sge piece[4]; };
struct receives { struct receive *ring; unsigned head, tail, depth; };
struct shared_domain { /* one for each file and device */
    struct shared_domain *next;
    dev_t dev;
    ino_t ino;
    int device, holders;
};
struct fake_xrcd { struct ibv_xrcd xrcd; struct shared_domain *shared; int users; };
struct fake_srq {
    struct ibv_srq srq;
    struct fake_srq *next;
    int users;
    struct receives receives;
    /* of an extended one */
    uint32_t number;
    struct fake_xrcd *domain;
    struct ibv_cq *cq;
};
struct work { /* a posted send */
    uint64_t id, remote, add, swap;
    int opcode, pieces;
    unsigned flags;
    uint32_t imm, rkey, srqn, qpn, qkey, dlid;
    struct ibv_sge piece[32];
    uint8_t *copy; /* of inline data, which is then the only piece */
};
/* A queue pair; several processes may have opened one that receives for an XRC domain. */
struct wire {
    struct wire *next;
    uint32_t number;
    int type, holders;
    enum ibv_qp_state state;
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct shared_domain *domain;
    struct ibv_cq *send_cq, *recv_cq;
    struct fake_srq *srq;
    struct ibv_qp_attr attr; /* all that was ever set */
    struct work *sends;
    unsigned head, tail, depth, used, unsignalled;
    struct receives receives;
};
struct fake_qp { struct ibv_qp qp; int unacked; struct wire *wire; struct fake_xrcd *domain; };

static inline struct fake_context *own(struct ibv_context *c)
{
    return (struct fake_context *)((char *)c - offsetof(struct fake_context, outer.context));
}

/* ---- fake_verbs.c ---- */
uint32_t fake_lid(int device, int port);
void fake_complete(struct ibv_cq *, struct ibv_wc, unsigned frees);
/* Forgets what a queue pair reported. */
void fake_purge(struct ibv_cq *, uint32_t qpn);
void fake_async(struct ibv_context *, struct ibv_async_event);
/* The registered memory of a key, if it is of this domain and covers the range with these rights. */
void *fake_memory(struct ibv_pd *, uint32_t key, uint64_t addr, uint64_t len, int access);
struct fake_srq *fake_srq_of(uint32_t number);

/* ---- fake_wire.c: data moves ---- */
struct wire *wire_new(uint32_t number, int type, const struct ibv_qp_cap *);
struct wire *wire_of(uint32_t number);
void wire_drop(struct wire *);
int wire_modify(struct wire *, struct ibv_qp_attr *, int mask);
int wire_send(struct wire *, struct ibv_send_wr *);
int wire_receive(struct wire *, struct ibv_recv_wr *);
int receives_add(struct receives *, struct ibv_recv_wr *);
/* A receive was posted, a state changed: who waits may go on. */
void wire_run(void);

#endif
