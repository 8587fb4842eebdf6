/* A program that speaks PMIx itself. Usage: pmix WHAT [NUMBER or FILE]
 *   run        puts keys, a fence that collects them, keys of all ranks, what is known of the job
 *   direct     the same keys after a fence that collects nothing
 *   some       fences of ranks with even and with odd numbers
 *   abort N    rank 1 aborts with N while the others sleep
 *   exit N     rank 1 returns N after PMIx_Finalize
 *   quit N     rank 1 exits with N without PMIx_Finalize while the others sleep
 *   die        rank 1 is killed while the others sleep
 *   vain       rank 1 finalizes and ends, the others enter a fence of all ranks a little later
 *   linger     rank 1 finalizes and sleeps, the others enter a fence of all ranks a little later
 *   early      the others are in a fence of all ranks when rank 1 finalizes and sleeps
 *   again FILE rank 1 finalizes, begins anew and makes the file before a fence of all ranks, then all begin anew
 *   refused    what is not served says so
 *   sleep      sleeps until the end of the job */
#include <pmix.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pmix_proc_t self;
static unsigned size;

static void need(int good, const char *what) {
    if (good) return;
    fprintf(stderr, "rank %u of %u: %s\n", self.rank, size, what);
    PMIx_Abort(99, what, NULL, 0);
    exit(99);
}

static pmix_value_t *get(pmix_rank_t rank, const char *key) {
    pmix_proc_t proc;
    pmix_value_t *value = NULL;
    PMIX_LOAD_PROCID(&proc, self.nspace, rank);
    pmix_status_t code = PMIx_Get(&proc, key, NULL, 0, &value);
    if (code != PMIX_SUCCESS) fprintf(stderr, "%s of rank %u: %s\n", key, rank, PMIx_Error_string(code));
    need(code == PMIX_SUCCESS, key);
    return value;
}

static unsigned number(pmix_rank_t rank, const char *key) {
    pmix_value_t *value = get(rank, key);
    unsigned found = value->type == PMIX_UINT16 ? value->data.uint16 : value->data.uint32;
    PMIX_VALUE_RELEASE(value);
    return found;
}

static char *text(pmix_rank_t rank, const char *key) {
    pmix_value_t *value = get(rank, key);
    need(value->type == PMIX_STRING, key);
    char *found = strdup(value->data.string);
    PMIX_VALUE_RELEASE(value);
    return found;
}

static void fence(pmix_proc_t *procs, size_t count, bool collect) {
    pmix_info_t info;
    PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
    pmix_status_t code = PMIx_Fence(procs, count, &info, 1);
    if (code != PMIX_SUCCESS) fprintf(stderr, "fence: %s\n", PMIx_Error_string(code));
    need(code == PMIX_SUCCESS, "a fence");
    PMIX_INFO_DESTRUCT(&info);
}

static void all(bool collect) {
    pmix_proc_t whole;
    PMIX_LOAD_PROCID(&whole, self.nspace, PMIX_RANK_WILDCARD);
    fence(&whole, 1, collect);
}

static void put(int round) {
    char key[64], mine[4096];
    pmix_value_t value;
    snprintf(key, sizeof key, "test.key.%d", round);
    memset(mine, 'a' + self.rank % 26, sizeof mine - 1);
    mine[sizeof mine - 1] = 0;
    PMIX_VALUE_LOAD(&value, mine, PMIX_STRING);
    need(PMIx_Put(PMIX_GLOBAL, key, &value) == PMIX_SUCCESS, "PMIx_Put");
    need(PMIx_Commit() == PMIX_SUCCESS, "PMIx_Commit");
    PMIX_VALUE_DESTRUCT(&value);
}

static void keys(bool collect) {
    for (int round = 0; round < 3; round++) {
        char key[64];
        snprintf(key, sizeof key, "test.key.%d", round);
        put(round);
        all(collect);
        for (unsigned rank = 0; rank < size; rank++) {
            char *found = text(rank, key);
            need(strlen(found) == 4095 && found[0] == (char)('a' + rank % 26), "a key of another rank");
            free(found);
        }
        all(false);
    }
}

/* What the server says of the job must fit together. */
static void job(void) {
    unsigned local = number(PMIX_RANK_WILDCARD, PMIX_LOCAL_SIZE);
    need(number(PMIX_RANK_WILDCARD, PMIX_UNIV_SIZE) == size, "the universe");
    char *peers = text(PMIX_RANK_WILDCARD, PMIX_LOCAL_PEERS), *own = text(self.rank, PMIX_HOSTNAME);
    unsigned node = number(self.rank, PMIX_NODEID), here = 0, seen = 0;
    for (unsigned rank = 0; rank < size; rank++) {
        char *host = text(rank, PMIX_HOSTNAME);
        /* libpmix 4.2 does not tell the number of another host. */
        if (!strcmp(host, own)) need(number(rank, PMIX_NODEID) == node, "a host");
        here += !strcmp(host, own);
        free(host);
    }
    for (char *word = strtok(peers, ","); word; word = strtok(NULL, ",")) {
        if (strtoul(word, NULL, 10) == self.rank) need(number(self.rank, PMIX_LOCAL_RANK) == seen, "the local rank");
        seen++;
    }
    need(local == here && local == seen, "the local size");
    need(number(self.rank, PMIX_NODE_RANK) < local, "the rank on the node");
    printf("hello from rank %u of %u\nrank %u: appnum %u\nrank %u: %u ranks share its host\n", self.rank, size,
           self.rank, number(self.rank, PMIX_APPNUM), self.rank, local);
    free(peers);
    free(own);
}

/* Two sets at the same time, several rounds. */
static void some(void) {
    pmix_proc_t *procs = calloc(size, sizeof *procs);
    size_t count = 0;
    for (unsigned rank = self.rank % 2; rank < size; rank += 2) {
        PMIX_LOAD_PROCID(&procs[count], self.nspace, rank);
        count++;
    }
    for (int round = 0; round < 5; round++) {
        char key[64];
        snprintf(key, sizeof key, "test.key.%d", round);
        put(round);
        fence(procs, count, true);
        free(text((self.rank + 2) % size % 2 == self.rank % 2 ? (self.rank + 2) % size : self.rank, key));
    }
    free(procs);
}

static void begin(void) {
    pmix_status_t code = PMIx_Init(&self, NULL, 0);
    if (code != PMIX_SUCCESS) {
        fprintf(stderr, "PMIx_Init: %s\n", PMIx_Error_string(code));
        exit(98);
    }
}

/* The others wait for a file that rank 1 makes once it has begun anew. */
static void again(const char *sign) {
    all(false);
    if (self.rank == 1) {
        PMIx_Finalize(NULL, 0);
        begin();
        fclose(fopen(sign, "w"));
    } else {
        while (access(sign, F_OK)) usleep(10000);
    }
    all(false);
    PMIx_Finalize(NULL, 0);
    sleep(1);
    begin();
    all(false);
}

static void refused(void) {
    pmix_info_t info;
    PMIX_INFO_LOAD(&info, "test.published", "x", PMIX_STRING);
    pmix_status_t code = PMIx_Publish(&info, 1);
    printf("publish: %s\n", code == PMIX_SUCCESS ? "served" : "refused");
    pmix_app_t app;
    pmix_nspace_t space;
    PMIX_APP_CONSTRUCT(&app);
    app.cmd = strdup("true");
    app.maxprocs = 1;
    code = PMIx_Spawn(NULL, 0, &app, 1, space);
    printf("spawn: %s\n", code == PMIX_SUCCESS ? "served" : "refused");
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "run";
    int code = 0, given = argc > 2 ? atoi(argv[2]) : 0;
    begin();
    size = number(PMIX_RANK_WILDCARD, PMIX_JOB_SIZE);
    if (!strcmp(what, "run") || !strcmp(what, "direct")) {
        job();
        fflush(stdout);
        keys(!strcmp(what, "run"));
        if (self.rank == 0) printf("PASS %u\n", size);
    } else if (!strcmp(what, "some")) {
        some();
        all(false);
        if (self.rank == 0) printf("PASS %u\n", size);
    } else if (!strcmp(what, "again")) {
        again(argv[2]);
        if (self.rank == 0) printf("PASS %u\n", size);
    } else if (!strcmp(what, "refused")) {
        if (self.rank == 0) refused();
    } else if (!strcmp(what, "exit")) {
        code = self.rank == 1 ? given : 0;
    } else if (!strcmp(what, "sleep")) {
        printf("sleeps\n");
        fflush(stdout);
        for (;;) pause();
    } else {
        all(false);
        bool ends = !strcmp(what, "vain"), lingers = !strcmp(what, "linger"), early = !strcmp(what, "early");
        if (self.rank != 1) {
            if (!ends && !lingers && !early) sleep(60);
            if (!early) sleep(1);
            all(false);
        } else if (lingers || early) {
            if (early) sleep(1);
            PMIx_Finalize(NULL, 0);
            sleep(600);
        } else if (!strcmp(what, "abort")) {
            PMIx_Abort(given, "as asked", NULL, 0);
        } else if (!strcmp(what, "quit")) {
            _exit(given);
        } else if (!strcmp(what, "die")) {
            kill(getpid(), SIGKILL);
        }
    }
    PMIx_Finalize(NULL, 0);
    return code;
}
