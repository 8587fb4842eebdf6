/* A hash table over all ranks. Each key has an owner; inserts and lookups are Short requests to it, answered by Short
 * replies. Every rank inserts its keys, adds to keys that all ranks share, then looks up what its neighbour inserted.
 *
 *   gasnetrun_ibv -n 4 ./hashtable [keys per rank]
 */
#include "start.h"

/* The part of the table that this rank owns: open addressing, key 0 marks a free slot. */
typedef struct {
    uint64_t key, value;
} Slot;

static Slot *slots;
static size_t slot_count; /* a power of two */

/* Handlers run only inside calls of this process's one thread, so plain variables do. */
static uint64_t inserts_sent, inserts_done, inserts_refused;
static uint64_t lookups_sent, lookups_done, lookups_missing, lookups_wrong;

static uint64_t mix(uint64_t key)
{
    key ^= key >> 33;
    key *= 0xff51afd7ed558ccdULL;
    key ^= key >> 33;
    key *= 0xc4ceb9fe1a85ec53ULL;
    return key ^ key >> 33;
}

/* Slot of the key, or a free one for it; null when the table is full. */
static Slot *find(uint64_t key)
{
    size_t at = (size_t)mix(key) & (slot_count - 1);
    for (size_t tries = 0; tries < slot_count; tries++, at = (at + 1) & (slot_count - 1))
        if (slots[at].key == key || slots[at].key == 0) return &slots[at];
    return NULL;
}

/* Arguments of messages have 32 bits. */
#define LOW(word) ((gex_AM_Arg_t)(uint32_t)(word))
#define HIGH(word) ((gex_AM_Arg_t)(uint32_t)((word) >> 32))
#define WORD(low, high) ((uint64_t)(uint32_t)(low) | (uint64_t)(uint32_t)(high) << 32)

enum { ADD, ADDED, ASK, ANSWER, HANDLERS };

static gex_AM_Entry_t handlers[HANDLERS];

/* At the owner: adds to the value of a key; the reply says whether there was room. */
static void on_add(gex_Token_t token, gex_AM_Arg_t key0, gex_AM_Arg_t key1, gex_AM_Arg_t value0, gex_AM_Arg_t value1)
{
    uint64_t key = WORD(key0, key1);
    Slot *slot = key ? find(key) : NULL;
    if (slot) {
        slot->key = key;
        slot->value += WORD(value0, value1);
    }
    OK(gex_AM_ReplyShort(token, handlers[ADDED].gex_index, 0, (gex_AM_Arg_t)(slot != NULL)));
}

static void on_added(gex_Token_t token, gex_AM_Arg_t done)
{
    (void)token;
    inserts_done++;
    if (!done) inserts_refused++;
}

/* At the owner: replies with the value, and with what the asker expects, so that it need not remember. */
static void on_ask(gex_Token_t token, gex_AM_Arg_t key0, gex_AM_Arg_t key1, gex_AM_Arg_t want0, gex_AM_Arg_t want1)
{
    const Slot *slot = find(WORD(key0, key1));
    int found = slot && slot->key != 0;
    uint64_t value = found ? slot->value : 0;
    OK(gex_AM_ReplyShort(token, handlers[ANSWER].gex_index, 0, found, LOW(value), HIGH(value), want0, want1));
}

static void on_answer(gex_Token_t token, gex_AM_Arg_t found, gex_AM_Arg_t value0, gex_AM_Arg_t value1,
                      gex_AM_Arg_t want0, gex_AM_Arg_t want1)
{
    (void)token;
    lookups_done++;
    if (!found)
        lookups_missing++;
    else if (value0 != want0 || value1 != want1)
        lookups_wrong++;
}

static void describe(int which, gex_AM_Fn_t function, gex_Flags_t flags, unsigned int nargs, const char *name)
{
    handlers[which].gex_index = 0; /* the library chooses */
    handlers[which].gex_fnptr = function;
    handlers[which].gex_flags = GEX_FLAG_AM_SHORT | flags;
    handlers[which].gex_nargs = nargs;
    handlers[which].gex_name = name;
}

/* All ranks register the same table in the same order, so the chosen indices are equal everywhere. */
static void register_handlers(void)
{
    describe(ADD, (gex_AM_Fn_t)on_add, GEX_FLAG_AM_REQUEST, 4, "add");
    describe(ADDED, (gex_AM_Fn_t)on_added, GEX_FLAG_AM_REPLY, 1, "added");
    describe(ASK, (gex_AM_Fn_t)on_ask, GEX_FLAG_AM_REQUEST, 4, "ask");
    describe(ANSWER, (gex_AM_Fn_t)on_answer, GEX_FLAG_AM_REPLY, 5, "answer");
    OK(gex_EP_RegisterHandlers(endpoint, handlers, HANDLERS));
}

static gex_Rank_t owner(uint64_t key)
{
    /* Another part of the hash than the one that chooses the slot. */
    return (gex_Rank_t)((mix(key) >> 40) % size);
}

static void add(uint64_t key, uint64_t value)
{
    OK(gex_AM_RequestShort(team, owner(key), handlers[ADD].gex_index, 0, LOW(key), HIGH(key), LOW(value), HIGH(value)));
    inserts_sent++;
}

static void ask(uint64_t key, uint64_t want)
{
    OK(gex_AM_RequestShort(team, owner(key), handlers[ASK].gex_index, 0, LOW(key), HIGH(key), LOW(want), HIGH(want)));
    lookups_sent++;
}

static uint64_t own_key(gex_Rank_t of, uint64_t number)
{
    return ((uint64_t)of + 1) << 40 | number;
}

static uint64_t own_value(uint64_t key)
{
    return mix(key ^ 0x5bd1e995);
}

int main(int argc, char **argv)
{
    enum { SHARED = 64 };
    uint64_t keys = 20000;
    join_job("hashtable", &argc, &argv);
    if (argc > 1) {
        char *end;
        keys = strtoull(argv[1], &end, 10);
        if (end == argv[1] || *end || keys < 1 || keys > 50000000)
            fail("hashtable: '%s' is no number of keys from 1 to 50000000", argv[1]);
    }
    /* Four times the mean load: hashes spread keys almost evenly. */
    for (slot_count = 1024; slot_count < 4 * (keys + SHARED);) slot_count *= 2;
    slots = checked(calloc(slot_count, sizeof *slots));
    register_handlers();
    barrier(); /* no request may come before the table is there */

    for (uint64_t number = 0; number < keys; number++) add(own_key(rank, number), own_value(own_key(rank, number)));
    for (uint64_t number = 1; number <= SHARED; number++) add(number, rank + number);
    GASNET_BLOCKUNTIL(inserts_done == inserts_sent);
    barrier(); /* everybody's inserts are confirmed */
    if (inserts_refused) fail("hashtable: no room for %llu keys", (unsigned long long)inserts_refused);

    gex_Rank_t neighbour = (rank + 1) % size;
    for (uint64_t number = 0; number < keys; number++)
        ask(own_key(neighbour, number), own_value(own_key(neighbour, number)));
    /* Every rank added its number to the shared keys. */
    for (uint64_t number = 1; number <= SHARED; number++)
        ask(number, (uint64_t)size * (size - 1) / 2 + size * number);
    GASNET_BLOCKUNTIL(lookups_done == lookups_sent);
    if (lookups_missing || lookups_wrong)
        fail("hashtable: %llu keys are missing, %llu values are wrong", (unsigned long long)lookups_missing,
             (unsigned long long)lookups_wrong);

    /* A key that nobody inserted is reported as missing. */
    ask(own_key(size, 0), 0);
    GASNET_BLOCKUNTIL(lookups_done == lookups_sent);
    if (lookups_missing != 1) fail("hashtable: a key was found that nobody inserted");
    barrier();
    if (rank == 0)
        printf("hashtable: %llu keys on %u ranks, all found\n", (unsigned long long)(keys * size + SHARED), (unsigned)size);
    free(slots);
    leave(0);
}
