/* Counts the words of text files on all ranks; prints what the Rust example of the same name prints.
 *
 *   gasnetrun_ibv -n 4 ./wordcount [-k K] FILE...
 *
 * Each rank reads an equal share of the bytes. Every word has an owner, found by a hash; counts travel to the owners in
 * Medium requests, each confirmed by a Short reply. Then every rank puts its K most frequent words into rank 0's
 * segment, and after a barrier rank 0 merges and prints them. A word is what `tr -cs '[:alpha:]' '\n' | tr A-Z a-z`
 * prints in the C locale: a longest run of ASCII letters; a file's end ends its last word.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "start.h"

/* ---- counts by word ---- */

typedef struct {
    char *word; /* null: free */
    uint32_t length;
    uint32_t hash;
    uint64_t count;
} Row;

/* Open addressing, never more than half full; `space` is a power of two. */
typedef struct {
    Row *rows;
    size_t used, space;
} Table;

static uint64_t fnv(const char *word, size_t length)
{
    uint64_t hash = 0xcbf29ce484222325ULL;
    for (size_t at = 0; at < length; at++) hash = (hash ^ (unsigned char)word[at]) * 0x100000001b3ULL;
    return hash;
}

static Row *place(const Table *table, const char *word, size_t length, uint32_t hash)
{
    size_t at = hash & (table->space - 1);
    for (;; at = (at + 1) & (table->space - 1)) {
        Row *row = &table->rows[at];
        if (!row->word || (row->hash == hash && row->length == length && !memcmp(row->word, word, length))) return row;
    }
}

static void grow(Table *table)
{
    Table old = *table;
    table->space = old.space ? 2 * old.space : 1024;
    table->rows = checked(calloc(table->space, sizeof *table->rows));
    for (size_t at = 0; at < old.space; at++)
        if (old.rows[at].word)
            *place(table, old.rows[at].word, old.rows[at].length, old.rows[at].hash) = old.rows[at];
    free(old.rows);
}

static void add(Table *table, const char *word, size_t length, uint64_t count)
{
    if (2 * table->used >= table->space) grow(table);
    uint32_t hash = (uint32_t)fnv(word, length);
    Row *row = place(table, word, length, hash);
    if (!row->word) {
        row->word = checked(malloc(length + 1));
        memcpy(row->word, word, length);
        row->length = (uint32_t)length;
        row->hash = hash;
        table->used++;
    }
    row->count += count;
}

static void drop(Table *table)
{
    for (size_t at = 0; at < table->space; at++) free(table->rows[at].word);
    free(table->rows);
    memset(table, 0, sizeof *table);
}

/* Most frequent first, ties by word. */
static int order(const void *left, const void *right)
{
    const Row *a = left, *b = right;
    if (a->count != b->count) return a->count > b->count ? -1 : 1;
    int bytes = memcmp(a->word, b->word, a->length < b->length ? a->length : b->length);
    return bytes ? bytes : (a->length > b->length) - (a->length < b->length);
}

/* Moves the rows to the front and sorts them; the table serves no look-ups after that. */
static void sort(Table *table)
{
    size_t used = 0;
    for (size_t at = 0; at < table->space; at++) {
        Row row = table->rows[at];
        table->rows[at].word = NULL;
        if (row.word) table->rows[used++] = row;
    }
    if (used) qsort(table->rows, used, sizeof *table->rows, order);
}

/* ---- records: count, length of the word, word ---- */

enum { RECORD = 12 };

static size_t encode(char *to, const Row *row)
{
    memcpy(to, &row->count, 8);
    memcpy(to + 8, &row->length, 4);
    memcpy(to + RECORD, row->word, row->length);
    return RECORD + row->length;
}

/* Adds all records; 0 when the bytes are damaged. */
static int decode(const char *from, size_t bytes, Table *into)
{
    while (bytes > 0) {
        uint64_t count;
        uint32_t length;
        if (bytes < RECORD) return 0;
        memcpy(&count, from, 8);
        memcpy(&length, from + 8, 4);
        if (length > bytes - RECORD) return 0;
        add(into, from + RECORD, length, count);
        from += RECORD + length;
        bytes -= RECORD + length;
    }
    return 1;
}

/* ---- reading ---- */

static int is_letter(char byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
}

/* The file as bytes, read on demand through one buffer. */
typedef struct {
    const char *path;
    int file;
    uint64_t at, length; /* of the next byte; of the file */
    size_t next, filled;
    char buffer[65536];
} Reader;

static int next_byte(Reader *reader, char *byte)
{
    if (reader->next == reader->filled) {
        ssize_t got;
        if (reader->at >= reader->length) return 0;
        do got = pread(reader->file, reader->buffer, sizeof reader->buffer, (off_t)reader->at);
        while (got < 0 && errno == EINTR);
        if (got < 0) fail("wordcount: cannot read %s: %s", reader->path, strerror(errno));
        if (got == 0) fail("wordcount: cannot read %s: it became shorter", reader->path);
        reader->next = 0;
        reader->filled = (size_t)got;
    }
    *byte = reader->buffer[reader->next++];
    reader->at++;
    return 1;
}

/* Counts the words that start in bytes [from, to). */
static void count_piece(const char *path, uint64_t length, uint64_t from, uint64_t to, Table *into)
{
    static Reader reader;
    char *word = NULL, byte;
    size_t used = 0, space = 0;
    int foreign = 0; /* inside a word that started before the piece */
    reader.path = path;
    reader.length = length;
    reader.next = reader.filled = 0;
    reader.file = open(path, O_RDONLY | O_CLOEXEC);
    if (reader.file < 0) fail("wordcount: cannot read %s: %s", path, strerror(errno));
    reader.at = from ? from - 1 : 0;
    if (from && next_byte(&reader, &byte)) foreign = is_letter(byte);
    while (reader.at < to || used) {
        int more = next_byte(&reader, &byte);
        if (more && is_letter(byte)) {
            if (foreign) continue;
            if (used == space) {
                space = space ? 2 * space : 64;
                word = checked(realloc(word, space));
            }
            word[used++] = (char)(byte | 0x20); /* lower case */
            continue;
        }
        foreign = 0;
        if (used) add(into, word, used, 1);
        used = 0;
        if (!more) break;
    }
    free(word);
    close(reader.file);
}

/* Counts this rank's share of all bytes; returns how many they are. */
static uint64_t count_share(char **files, int count, Table *into)
{
    uint64_t *lengths = checked(calloc((size_t)count, sizeof *lengths)), total = 0, base = 0;
    for (int file = 0; file < count; file++) {
        struct stat data;
        if (stat(files[file], &data)) fail("wordcount: cannot look at %s: %s", files[file], strerror(errno));
        if (!S_ISREG(data.st_mode)) fail("wordcount: %s is not a regular file", files[file]);
        lengths[file] = (uint64_t)data.st_size;
        total += lengths[file];
    }
    /* total * rank may exceed 64 bits, so divide first. */
    uint64_t whole = total / size, rest = total % size;
    uint64_t from = whole * rank + rest * rank / size, to = whole * (rank + 1) + rest * (rank + 1) / size;
    for (int file = 0; file < count; file++) {
        uint64_t end = base + lengths[file];
        uint64_t first = from > base ? from : base, last = to < end ? to : end;
        if (first < last) count_piece(files[file], lengths[file], first - base, last - base, into);
        base = end;
    }
    free(lengths);
    return to - from;
}

/* ---- messages ---- */

static Table owned; /* words that this rank owns; only touched by handlers until all ranks are done */
static uint64_t sent, confirmed;
static gex_AM_Entry_t handlers[2];

static void on_confirm(gex_Token_t token)
{
    (void)token;
    confirmed++;
}

static void on_batch(gex_Token_t token, void *payload, size_t bytes)
{
    if (!decode(payload, bytes, &owned)) fail("wordcount: a batch of %zu bytes is damaged", bytes);
    OK(gex_AM_ReplyShort(token, handlers[1].gex_index, 0));
}

static void register_handlers(void)
{
    handlers[0].gex_fnptr = (gex_AM_Fn_t)on_batch;
    handlers[0].gex_flags = GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REQUEST;
    handlers[0].gex_name = "batch";
    handlers[1].gex_fnptr = (gex_AM_Fn_t)on_confirm;
    handlers[1].gex_flags = GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REPLY;
    handlers[1].gex_name = "confirm";
    OK(gex_EP_RegisterHandlers(endpoint, handlers, 2));
}

typedef struct {
    char *data;
    size_t used;
} Batch;

static void send_batch(gex_Rank_t to, Batch *batch)
{
    if (batch->used == 0) return;
    OK(gex_AM_RequestMedium(team, to, handlers[0].gex_index, batch->data, batch->used, GEX_EVENT_NOW, 0));
    batch->used = 0;
    sent++;
}

/* Sends every count to the word's owner. At the end all batches of all ranks are in `owned`. */
static void distribute(const Table *counts)
{
    size_t most = gex_AM_MaxRequestMedium(team, GEX_RANK_INVALID, GEX_EVENT_NOW, 0, 0);
    Batch *batches = checked(calloc(size, sizeof *batches));
    for (size_t at = 0; at < counts->space; at++) {
        const Row *row = &counts->rows[at];
        if (!row->word) continue;
        if (RECORD + (size_t)row->length > most)
            fail("wordcount: a word of %u letters does not fit in a message of %zu bytes", row->length, most);
        /* The upper half is the better mixed one, and the lower half chooses the row in the table. */
        gex_Rank_t to = (gex_Rank_t)((fnv(row->word, row->length) >> 32) % size);
        Batch *batch = &batches[to];
        if (!batch->data) batch->data = checked(malloc(most));
        if (batch->used + RECORD + row->length > most) send_batch(to, batch);
        batch->used += encode(batch->data + batch->used, row);
    }
    for (gex_Rank_t to = 0; to < size; to++) {
        send_batch(to, &batches[to]);
        free(batches[to].data);
    }
    free(batches);
    GASNET_BLOCKUNTIL(confirmed == sent);
    barrier();
}

/* ---- result ---- */

/* What a rank puts at its place in rank 0's segment, in front of its records. */
typedef struct {
    uint64_t length, bytes, total, distinct;
} Head;

static size_t place_bytes(unsigned long most)
{
    return (most * 64 + 16384 + 65535) / 65536 * 65536;
}

/* Puts this rank's most frequent words into its place at rank 0. */
static void put_summary(void *segment0, uint64_t bytes, unsigned long most)
{
    size_t space = place_bytes(most), used = sizeof(Head);
    char *out = checked(malloc(space));
    Head head = {0, bytes, 0, owned.used};
    for (size_t at = 0; at < owned.space; at++) head.total += owned.rows[at].word ? owned.rows[at].count : 0;
    sort(&owned);
    for (size_t at = 0; at < owned.used && at < most; at++) {
        if (used + RECORD + owned.rows[at].length > space)
            fail("wordcount: the %lu most frequent words need more than %zu bytes; use a smaller -k", most, space);
        used += encode(out + used, &owned.rows[at]);
    }
    head.length = used - sizeof head;
    memcpy(out, &head, sizeof head);
    OK(gex_RMA_PutBlocking(team, 0, (char *)segment0 + space * rank, out, used, 0));
    free(out);
}

static void print_result(const char *segment, int files, unsigned long most, double seconds)
{
    Table all = {0};
    Head sum = {0};
    for (gex_Rank_t from = 0; from < size; from++) {
        const char *place = segment + place_bytes(most) * from;
        Head head;
        memcpy(&head, place, sizeof head);
        if (head.length > place_bytes(most) - sizeof head || !decode(place + sizeof head, head.length, &all))
            fail("wordcount: the result of rank %u is damaged", (unsigned)from);
        sum.bytes += head.bytes;
        sum.total += head.total;
        sum.distinct += head.distinct;
    }
    sort(&all);
    printf("%12s  word\n", "count");
    for (size_t at = 0; at < all.used && at < most; at++)
        printf("%12llu  %.*s\n", (unsigned long long)all.rows[at].count, (int)all.rows[at].length, all.rows[at].word);
    printf("%llu words, %llu distinct, %llu bytes of %d files on %u ranks: %.3f s, %.1f MB/s\n",
           (unsigned long long)sum.total, (unsigned long long)sum.distinct, (unsigned long long)sum.bytes, files,
           (unsigned)size, seconds, (double)sum.bytes / 1e6 / seconds);
    drop(&all);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* All ranks see the same mistake; one speaks. */
__attribute__((__noreturn__)) static void usage(void)
{
    if (rank == 0) fprintf(stderr, "usage: wordcount [-k K] FILE...   (K from 1 to 1000000)\n");
    leave(2);
}

int main(int argc, char **argv)
{
    unsigned long most = 10;
    int option;
    join_job("wordcount", &argc, &argv);
    opterr = 0;
    while ((option = getopt(argc, argv, "k:")) != -1) {
        char *end = NULL;
        if (option != 'k') usage();
        most = strtoul(optarg, &end, 10);
        if (end == optarg || *end || most < 1 || most > 1000000) usage();
    }
    if (optind == argc) usage();

    /* Only rank 0's segment is used, but every rank has to attach one. */
    char *segment = attach(place_bytes(most) * (rank == 0 ? size : 1));
    void *segment0 = segment_of(0);
    register_handlers();
    barrier();

    double begin = now();
    Table counts = {0};
    uint64_t bytes = count_share(argv + optind, argc - optind, &counts);
    distribute(&counts);
    drop(&counts);
    put_summary(segment0, bytes, most);
    barrier();
    if (rank == 0) print_result(segment, argc - optind, most, now() - begin);
    drop(&owned);
    leave(0);
}
