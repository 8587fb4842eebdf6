/* Atomics: words of one thread, whose every step is known, and words that all share, whose sum is. */
#ifndef TESTS_C_TRAFFIC_ATOMICS_H
#define TESTS_C_TRAFFIC_ATOMICS_H 1

#include "world.h"

#define MOVES (GEX_OP_SET | GEX_OP_GET | GEX_OP_SWAP | GEX_OP_CAS | GEX_OP_FCAS)
#define SUMS                                                                                                         \
    (GEX_OP_ADD | GEX_OP_SUB | GEX_OP_MULT | GEX_OP_MIN | GEX_OP_MAX | GEX_OP_INC | GEX_OP_DEC | GEX_OP_FADD |       \
     GEX_OP_FSUB | GEX_OP_FMULT | GEX_OP_FMIN | GEX_OP_FMAX | GEX_OP_FINC | GEX_OP_FDEC)
#define BITS (GEX_OP_AND | GEX_OP_OR | GEX_OP_XOR | GEX_OP_FAND | GEX_OP_FOR | GEX_OP_FXOR)

static gex_AD_t domains[6];

/* Domains of all types, which belong to a team. */
static void make_domains(gex_TM_t tm)
{
    static const gex_DT_t types[6] = {GEX_DT_I32, GEX_DT_U32, GEX_DT_I64, GEX_DT_U64, GEX_DT_FLT, GEX_DT_DBL};
    int at;
    for (at = 0; at < 6; at++) gex_AD_Create(&domains[at], tm, types[at], MOVES | SUMS | (at < 4 ? BITS : 0), 0);
}

/* Applies X to each operation; those of integers alone in EACH_BITS. */
#define EACH_SUM(X)                                                                                                  \
    X(SET) X(GET) X(SWAP) X(CAS) X(FCAS) X(ADD) X(SUB) X(MULT) X(MIN) X(MAX) X(INC) X(DEC) X(FADD) X(FSUB) X(FMULT) \
    X(FMIN) X(FMAX) X(FINC) X(FDEC)
#define EACH_BITS(X) X(AND) X(OR) X(XOR) X(FAND) X(FOR) X(FXOR)

static const gex_OP_t all_ops[] = {
#define NUMBER(op) GEX_OP_##op,
    EACH_SUM(NUMBER) EACH_BITS(NUMBER)
#undef NUMBER
};
#define OF_FLOATS 19
#define OF_INTEGERS 25

static int fetches(gex_OP_t op)
{
    return op > GEX_OP_CAS;
}

/* As an operation of the inline kind: the compiler knows the opcode. */
#define WORD_TYPE(name, type, wide, each_more, more, ops)                                                            \
    static gex_Event_t known_nb_##name(type *result, gex_Rank_t to, void *word, gex_OP_t op, type a, type b,         \
                                       gex_Flags_t flags, gex_AD_t ad)                                               \
    {                                                                                                                \
        switch (op) {                                                                                                \
            EACH_SUM(KNOWN_NB_##name) each_more(KNOWN_NB_##name)                                                     \
        }                                                                                                            \
        return gex_AD_OpNB_##name(ad, result, to, word, op, a, b, flags);                                            \
    }                                                                                                                \
    static int known_nbi_##name(type *result, gex_Rank_t to, void *word, gex_OP_t op, type a, type b,                \
                                gex_Flags_t flags, gex_AD_t ad)                                                      \
    {                                                                                                                \
        switch (op) {                                                                                                \
            EACH_SUM(KNOWN_NBI_##name) each_more(KNOWN_NBI_##name)                                                   \
        }                                                                                                            \
        return gex_AD_OpNBI_##name(ad, result, to, word, op, a, b, flags);                                           \
    }                                                                                                                \
    static type next_##name(gex_OP_t op, type x, type a, type b)                                                     \
    {                                                                                                                \
        switch (op) {                                                                                                \
        case GEX_OP_SET:                                                                                             \
        case GEX_OP_SWAP: return a;                                                                                  \
        case GEX_OP_CAS:                                                                                             \
        case GEX_OP_FCAS: return x == a ? b : x;                                                                     \
        case GEX_OP_ADD:                                                                                             \
        case GEX_OP_FADD: return (type)((wide)x + (wide)a);                                                          \
        case GEX_OP_SUB:                                                                                             \
        case GEX_OP_FSUB: return (type)((wide)x - (wide)a);                                                          \
        case GEX_OP_MULT:                                                                                            \
        case GEX_OP_FMULT: return (type)((wide)x * (wide)a);                                                         \
        case GEX_OP_MIN:                                                                                             \
        case GEX_OP_FMIN: return x < a ? x : a;                                                                      \
        case GEX_OP_MAX:                                                                                             \
        case GEX_OP_FMAX: return x > a ? x : a;                                                                      \
        case GEX_OP_INC:                                                                                             \
        case GEX_OP_FINC: return (type)((wide)x + (wide)1);                                                          \
        case GEX_OP_DEC:                                                                                             \
        case GEX_OP_FDEC: return (type)((wide)x - (wide)1);                                                          \
        more                                                                                                         \
        default: return x;                                                                                           \
        }                                                                                                            \
    }                                                                                                                \
    static void word_##name(struct worker *w, struct flight *f, gex_Rank_t to, size_t number, int how)               \
    {                                                                                                                \
        char *word = bases[to] + words_at(t_rank, w->number) + number * 8;                                           \
        gex_OP_t op = all_ops[below(w, ops)];                                                                        \
        type x, a = (type)below(w, 7), b = (type)below(w, 100), *result = (type *)(void *)f->buffer;                 \
        gex_Flags_t flags = (below(w, 4) ? 0 : GEX_FLAG_AD_ACQ) | (below(w, 4) ? 0 : GEX_FLAG_AD_REL);               \
        gex_AD_t ad = domains[number % 6];                                                                           \
        memcpy(&x, &w->words[to][number], sizeof x);                                                                 \
        /* Keeps floating numbers exact. */                                                                          \
        if (ops == OF_FLOATS && (x > (type)10000 || x < (type)-10000)) op = GEX_OP_SET;                              \
        if (below(w, 2)) a = x;                                                                                      \
        if ((op == GEX_OP_MULT || op == GEX_OP_FMULT) && ops == OF_FLOATS) a = (type)2;                              \
        memcpy(f->want, &x, sizeof x);                                                                               \
        x = next_##name(op, x, a, b);                                                                                \
        memcpy(&w->words[to][number], &x, sizeof x);                                                                 \
        book(f, WORD, how, to, SLOT + number * 8, SLOT + number * 8 + 8);                                            \
        f->category = op == GEX_OP_SET ? GEX_EC_PUT : op == GEX_OP_GET ? GEX_EC_GET : GEX_EC_RMW;                    \
        f->length = fetches(op) ? sizeof x : 0;                                                                      \
        f->event = GEX_EVENT_INVALID;                                                                                \
        if (how == EVENT)                                                                                            \
            f->event = below(w, 2) ? known_nb_##name(result, to, word, op, a, b, flags, ad)                          \
                                   : gex_AD_OpNB_##name(ad, result, to, word, op, a, b, flags);                      \
        else                                                                                                         \
            OK(below(w, 2) ? known_nbi_##name(result, to, word, op, a, b, flags, ad)                                 \
                           : gex_AD_OpNBI_##name(ad, result, to, word, op, a, b, flags));                            \
    }

#define BITS_NEXT                                                                                                    \
    case GEX_OP_AND:                                                                                                 \
    case GEX_OP_FAND: return x & a;                                                                                  \
    case GEX_OP_OR:                                                                                                  \
    case GEX_OP_FOR: return x | a;                                                                                   \
    case GEX_OP_XOR:                                                                                                 \
    case GEX_OP_FXOR: return x ^ a;
#define NO_BITS(X)
#define KNOWN(name, kind, op)                                                                                        \
    case GEX_OP_##op: return gex_AD_##kind##_##name(ad, result, to, word, GEX_OP_##op, a, b, flags);
#define KNOWN_NB_I32(op) KNOWN(I32, OpNB, op)
#define KNOWN_NB_U32(op) KNOWN(U32, OpNB, op)
#define KNOWN_NB_I64(op) KNOWN(I64, OpNB, op)
#define KNOWN_NB_U64(op) KNOWN(U64, OpNB, op)
#define KNOWN_NB_FLT(op) KNOWN(FLT, OpNB, op)
#define KNOWN_NB_DBL(op) KNOWN(DBL, OpNB, op)
#define KNOWN_NBI_I32(op) KNOWN(I32, OpNBI, op)
#define KNOWN_NBI_U32(op) KNOWN(U32, OpNBI, op)
#define KNOWN_NBI_I64(op) KNOWN(I64, OpNBI, op)
#define KNOWN_NBI_U64(op) KNOWN(U64, OpNBI, op)
#define KNOWN_NBI_FLT(op) KNOWN(FLT, OpNBI, op)
#define KNOWN_NBI_DBL(op) KNOWN(DBL, OpNBI, op)
/* Sums that wrap are computed in unsigned words. */
WORD_TYPE(I32, int32_t, uint32_t, EACH_BITS, BITS_NEXT, OF_INTEGERS)
WORD_TYPE(U32, uint32_t, uint32_t, EACH_BITS, BITS_NEXT, OF_INTEGERS)
WORD_TYPE(I64, int64_t, uint64_t, EACH_BITS, BITS_NEXT, OF_INTEGERS)
WORD_TYPE(U64, uint64_t, uint64_t, EACH_BITS, BITS_NEXT, OF_INTEGERS)
WORD_TYPE(FLT, float, float, NO_BITS, , OF_FLOATS)
WORD_TYPE(DBL, double, double, NO_BITS, , OF_FLOATS)

static void own_word(struct worker *w, gex_Rank_t to)
{
    size_t number = below(w, WORDS);
    struct flight *f;
    int how;
    if (!clear(w, to, SLOT + number * 8, SLOT + number * 8 + 8, 1)) return;
    f = take(w);
    how = some_way(w);
    w->operations++;
    switch (number % 6) {
    case 0: word_I32(w, f, to, number, how); break;
    case 1: word_U32(w, f, to, number, how); break;
    case 2: word_I64(w, f, to, number, how); break;
    case 3: word_U64(w, f, to, number, how); break;
    case 4: word_FLT(w, f, to, number, how); break;
    default: word_DBL(w, f, to, number, how);
    }
}

/* Even words are sums of 64 bits, odd ones exclusive ors of 32 bits. */
static void shared_word(struct worker *w, gex_Rank_t to)
{
    size_t number = below(w, WORDS), kind = below(w, 6);
    char *word = bases[to] + shared_at() + number * 8;
    uint64_t term = below(w, 1000);
    struct flight *f = take(w);
    int how = some_way(w);
    gex_Event_t event = GEX_EVENT_INVALID;
    w->operations++;
    if (number % 2) {
        uint32_t bits = t_random(&w->state), *old = (uint32_t *)(void *)f->buffer;
        w->sums[to][number] ^= bits;
        if (how != EVENT) OK(gex_AD_OpNBI_U32(domains[1], old, to, word, GEX_OP_FXOR, bits, 0, 0));
        else if (kind % 2) event = gex_AD_OpNB_U32(domains[1], NULL, to, word, GEX_OP_XOR, bits, 0, 0);
        else event = gex_AD_OpNB_U32(domains[1], old, to, word, GEX_OP_FXOR, bits, 0, 0);
    } else {
        uint64_t *old = (uint64_t *)(void *)f->buffer;
        gex_OP_t op = kind == 0 ? GEX_OP_ADD : kind == 1 ? GEX_OP_FADD : kind == 2 ? GEX_OP_INC : kind == 3 ? GEX_OP_FINC
                    : kind == 4 ? GEX_OP_SUB : GEX_OP_FDEC;
        w->sums[to][number] += kind < 2 ? term : kind < 4 ? 1 : kind == 4 ? -term : ~(uint64_t)0;
        if (how != EVENT) OK(gex_AD_OpNBI_U64(domains[3], old, to, word, op, term, 0, 0));
        else if (kind == 1) event = gex_AD_OpNB_U64(domains[3], old, to, word, GEX_OP_FADD, term, 0, 0);
        else event = gex_AD_OpNB_U64(domains[3], old, to, word, op, term, 0, 0);
    }
    /* What it fetches depends on the others; nothing of it is compared. */
    book(f, WORD, how, to, SLOT * 2, SLOT * 2);
    f->event = event;
}

#endif
