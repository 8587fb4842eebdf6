/* Atomics on mapped memory without a call. The library does the rest by the same instructions, and names errors. */
#ifndef GASNET_IBV_ATOMICS_H
#define GASNET_IBV_ATOMICS_H 1

#include <string.h>

#include "types.h"
#include "world.h"

GEXI_BEGIN_C

/* What the library shows of a domain; never freed. */
struct gexi_ad_s {
    void *cdata;
    void *reserved;
    uint64_t direct; /* GEXI_AD_DIRECT of the operations that may be done here; 0 unless for tm0, and once destroyed */
};

/* Type and operations as one word. */
#define GEXI_AD_DIRECT(dt, ops) ((uint64_t)(dt) << 32 | (ops))

/* The flags that change nothing for a word that is mapped: on the way here every operation is a release and an
 * acquire of the calling thread, as far as it writes and reads. */
#define GEXI_AD_PLAIN(flags)                                                                                         \
    (((flags) & ~(GEX_FLAG_IMMEDIATE | GEX_FLAG_AD_REL | GEX_FLAG_AD_ACQ | GEX_FLAG_AD_MY_NBRHD |                    \
                  GEX_FLAG_RANK_IS_JOBRANK)) == 0)

#define GEXI_AD_INTEGERS (GEX_DT_I32 | GEX_DT_U32 | GEX_DT_I64 | GEX_DT_U64)
#define GEXI_AD_MOVES (GEX_OP_SET | GEX_OP_SWAP | GEX_OP_GET | GEX_OP_CAS | GEX_OP_FCAS)
#define GEXI_AD_SUMS                                                                                                 \
    (GEX_OP_ADD | GEX_OP_SUB | GEX_OP_INC | GEX_OP_DEC | GEX_OP_FADD | GEX_OP_FSUB | GEX_OP_FINC | GEX_OP_FDEC |     \
     GEX_OP_AND | GEX_OP_OR | GEX_OP_XOR | GEX_OP_FAND | GEX_OP_FOR | GEX_OP_FXOR)

/* One operation, by one instruction, or one and a loop around it. The debug library looks at every operation. */
#ifdef GASNET_DEBUG
#define GEXI_AD_INLINE(op, dt) 0
#else
#define GEXI_AD_INLINE(op, dt)                                                                                       \
    (((op) & ((op) - 1)) == 0 && ((op) & (GEXI_AD_MOVES | (((dt) & GEXI_AD_INTEGERS) ? GEXI_AD_SUMS : 0))) != 0)
#endif

/* An operation on `*word`, whose bits are of type U; what it fetches goes to `*result`. Only with an opcode that the
 * compiler knows: what remains is one case. */
#define GEXI_AD_WORD(bits, U)                                                                                        \
    GEXI_INLINE void gexi_ad_##bits(U *word, gex_OP_t op, U first, U second, void *result)                           \
    {                                                                                                                \
        U old = first;                                                                                               \
        switch (op) {                                                                                                \
        case GEX_OP_SET: __atomic_store_n(word, first, __ATOMIC_RELEASE); return;                                    \
        case GEX_OP_CAS:                                                                                             \
            (void)__atomic_compare_exchange_n(word, &old, second, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);            \
            return;                                                                                                  \
        case GEX_OP_ADD: (void)__atomic_fetch_add(word, first, __ATOMIC_ACQ_REL); return;                            \
        case GEX_OP_SUB: (void)__atomic_fetch_sub(word, first, __ATOMIC_ACQ_REL); return;                            \
        case GEX_OP_INC: (void)__atomic_fetch_add(word, (U)1, __ATOMIC_ACQ_REL); return;                             \
        case GEX_OP_DEC: (void)__atomic_fetch_sub(word, (U)1, __ATOMIC_ACQ_REL); return;                             \
        case GEX_OP_AND: (void)__atomic_fetch_and(word, first, __ATOMIC_ACQ_REL); return;                            \
        case GEX_OP_OR: (void)__atomic_fetch_or(word, first, __ATOMIC_ACQ_REL); return;                              \
        case GEX_OP_XOR: (void)__atomic_fetch_xor(word, first, __ATOMIC_ACQ_REL); return;                            \
        case GEX_OP_GET: old = __atomic_load_n(word, __ATOMIC_ACQUIRE); break;                                       \
        case GEX_OP_SWAP: old = __atomic_exchange_n(word, first, __ATOMIC_ACQ_REL); break;                           \
        case GEX_OP_FCAS:                                                                                            \
            (void)__atomic_compare_exchange_n(word, &old, second, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);            \
            break;                                                                                                   \
        case GEX_OP_FADD: old = __atomic_fetch_add(word, first, __ATOMIC_ACQ_REL); break;                            \
        case GEX_OP_FSUB: old = __atomic_fetch_sub(word, first, __ATOMIC_ACQ_REL); break;                            \
        case GEX_OP_FINC: old = __atomic_fetch_add(word, (U)1, __ATOMIC_ACQ_REL); break;                             \
        case GEX_OP_FDEC: old = __atomic_fetch_sub(word, (U)1, __ATOMIC_ACQ_REL); break;                             \
        case GEX_OP_FAND: old = __atomic_fetch_and(word, first, __ATOMIC_ACQ_REL); break;                            \
        case GEX_OP_FOR: old = __atomic_fetch_or(word, first, __ATOMIC_ACQ_REL); break;                              \
        case GEX_OP_FXOR: old = __atomic_fetch_xor(word, first, __ATOMIC_ACQ_REL); break;                            \
        default: return;                                                                                             \
        }                                                                                                            \
        memcpy(result, &old, sizeof old);                                                                            \
    }

GEXI_AD_WORD(4, uint32_t)
GEXI_AD_WORD(8, uint64_t)
#undef GEXI_AD_WORD

/* The operation on `size` bytes at `word`, both operands given by address. */
GEXI_INLINE void gexi_ad_here(size_t size, void *word, gex_OP_t op, const void *operand1, const void *operand2,
                              void *result)
{
    if (size == 4) {
        uint32_t first, second;
        memcpy(&first, operand1, 4);
        memcpy(&second, operand2, 4);
        gexi_ad_4((uint32_t *)word, op, first, second, result);
    } else {
        uint64_t first, second;
        memcpy(&first, operand1, 8);
        memcpy(&second, operand2, 8);
        gexi_ad_8((uint64_t *)word, op, first, second, result);
    }
}

/* Whether a domain may do an operation on mapped memory. */
GEXI_INLINE int gexi_ad_may(gex_AD_t ad, gex_DT_t dt, gex_OP_t op, const void *result, gex_Flags_t flags)
{
    int needs_result = op > GEX_OP_CAS; /* operations that fetch have the higher bits */
    return GEXI_AD_PLAIN(flags) && ad != GEX_AD_INVALID && (!needs_result || result != NULL) &&
           (ad->direct & GEXI_AD_DIRECT(dt, op)) == GEXI_AD_DIRECT(dt, op);
}

/* tm0 once there are domains. As the steps of gexi_reach, in a way that a compiler may keep it over atomics, which it
 * has to assume to change all memory. */
GEXI_INLINE gex_TM_t gexi_ad_tm0(void)
{
#if defined(__x86_64__) && !defined(GEXI_PLAIN)
    gex_TM_t tm;
    __asm__("movq 8(%[world]), %[tm]" : [tm] "=r"(tm) : [world] "r"(&gexi_world));
    return tm;
#else
    return gexi_world.tm0;
#endif
}

/* gexi_reach for a word of tm0. Words of a loop are seldom one behind the other, so the bias needs no care. */
GEXI_INLINE int gexi_ad_reach(gex_Rank_t rank, const void *address, size_t size, struct gexi_place *place)
{
    uintptr_t entry = gexi_entry(gexi_ad_tm0(), rank);
    uintptr_t bias = gexi_bias(entry);
    uintptr_t span = gexi_span(entry, bias, size);
    place->bias = bias;
    place->first = gexi_first(entry, span);
    place->offset = (uintptr_t)address + bias;
    return place->offset < span && place->offset % size == 0;
}

/* GEX_DT_##dt and the functions for a type. */
#define GEXI_AD_OPERATIONS(dt, type)                                                                                 \
    GEXI_API gex_Event_t gexi_AD_OpNB_##dt(gex_AD_t ad, type *result_p, gex_Rank_t tgt_rank, void *tgt_addr,         \
                                           gex_OP_t opcode, type operand1, type operand2, gex_Flags_t flags)         \
        GEXI_COLD;                                                                                                   \
    GEXI_API int gexi_AD_OpNBI_##dt(gex_AD_t ad, type *result_p, gex_Rank_t tgt_rank, void *tgt_addr,                \
                                    gex_OP_t opcode, type operand1, type operand2, gex_Flags_t flags) GEXI_COLD;     \
    GEXI_AD_OPERATION(gex_Event_t, OpNB_##dt, GEX_DT_##dt, type, GEX_EVENT_INVALID)                                  \
    GEXI_AD_OPERATION(int, OpNBI_##dt, GEX_DT_##dt, type, 0)

#define GEXI_AD_OPERATION(answer, name, dt, type, complete)                                                          \
    GEXI_INLINE answer gex_AD_##name(gex_AD_t ad, type *result_p, gex_Rank_t tgt_rank, void *tgt_addr,               \
                                     gex_OP_t opcode, type operand1, type operand2, gex_Flags_t flags)               \
    {                                                                                                                \
        if (__builtin_constant_p(opcode) && GEXI_AD_INLINE(opcode, dt)) {                                            \
            struct gexi_place at;                                                                                    \
            if (GEXI_LIKELY(gexi_ad_may(ad, dt, opcode, result_p, flags)) &&                                         \
                GEXI_LIKELY(gexi_ad_reach(tgt_rank, tgt_addr, sizeof(type), &at))) {                                 \
                gexi_ad_here(sizeof(type), GEXI_HERE(at), opcode, &operand1, &operand2, result_p);                   \
                return complete;                                                                                     \
            }                                                                                                        \
        }                                                                                                            \
        return gexi_AD_##name(ad, result_p, tgt_rank, tgt_addr, opcode, operand1, operand2, flags);                  \
    }

GEXI_END_C
#endif
