/*
 * What a launcher's own process interface takes: init, barrier, finalise, and nothing else. The reference for the start of our ranks.
 *
 *   bench_pmi wire     PMI-1, spoken here over PMI_FD
 *   bench_pmi pmi2     libpmi2 (built with HAVE_PMI2)
 *   bench_pmi pmix     libpmix (built with HAVE_PMIX)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef HAVE_PMI2
#include <slurm/pmi2.h>
#endif
#ifdef HAVE_PMIX
#include <pmix.h>
#endif

static int fail(const char *what) {
    fprintf(stderr, "bench_pmi: %s\n", what);
    return 1;
}

/* Sends a line and reads the answer's line; 0 when it begins as it should. */
static int ask(int fd, const char *line, const char *answer) {
    char buffer[1024];
    size_t length = 0, whole = strlen(line);
    if (write(fd, line, whole) != (ssize_t)whole) return 1;
    do {
        if (length == sizeof buffer || read(fd, buffer + length, 1) != 1) return 1;
    } while (buffer[length++] != '\n');
    return strncmp(buffer, answer, strlen(answer)) != 0;
}

static int wire(void) {
    const char *text = getenv("PMI_FD");
    int fd = text ? atoi(text) : -1;
    if (fd < 0) return fail("PMI_FD is not set");
    if (ask(fd, "cmd=init pmi_version=1 pmi_subversion=1\n", "cmd=response_to_init")) return fail("init");
    if (ask(fd, "cmd=barrier_in\n", "cmd=barrier_out")) return fail("barrier");
    if (ask(fd, "cmd=finalize\n", "cmd=finalize_ack")) return fail("finalize");
    return 0;
}

static int pmi2(void) {
#ifdef HAVE_PMI2
    int spawned, size, rank, number;
    if (PMI2_Init(&spawned, &size, &rank, &number) != PMI2_SUCCESS) return fail("PMI2_Init");
    if (PMI2_KVS_Fence() != PMI2_SUCCESS) return fail("PMI2_KVS_Fence");
    if (PMI2_Finalize() != PMI2_SUCCESS) return fail("PMI2_Finalize");
    return 0;
#else
    return fail("built without libpmi2");
#endif
}

static int pmix(void) {
#ifdef HAVE_PMIX
    pmix_proc_t self, all;
    if (PMIx_Init(&self, NULL, 0) != PMIX_SUCCESS) return fail("PMIx_Init");
    PMIX_PROC_CONSTRUCT(&all);
    PMIX_LOAD_PROCID(&all, self.nspace, PMIX_RANK_WILDCARD);
    if (PMIx_Fence(&all, 1, NULL, 0) != PMIX_SUCCESS) return fail("PMIx_Fence");
    if (PMIx_Finalize(NULL, 0) != PMIX_SUCCESS) return fail("PMIx_Finalize");
    return 0;
#else
    return fail("built without libpmix");
#endif
}

int main(int argc, char **argv) {
    const char *kind = argc == 2 ? argv[1] : "";
    if (!strcmp(kind, "wire")) return wire();
    if (!strcmp(kind, "pmi2")) return pmi2();
    if (!strcmp(kind, "pmix")) return pmix();
    return fail("usage: bench_pmi wire|pmi2|pmix");
}
