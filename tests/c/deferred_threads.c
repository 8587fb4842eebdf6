/* GEX_FLAG_DEFER_THREADS: the program runs the threads of the network. None where none is asked for; with the argument
 * `network` and GASNET_RCV_THREAD=1 over a network, messages are delivered while nobody polls as soon as they run. */
#include "t.h"
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include <gasnet_tools.h>
#include <pthread.h>

static gasnett_atomic_t arrived = gasnett_atomic_init(0);

static void arrive(gex_Token_t token)
{
    (void)token;
    gasnett_atomic_increment(&arrived, 0);
}

/* Waits without the library. */
static int wait_arrived(int wanted, int milliseconds)
{
    const struct timespec pause = {0, 1000000};
    for (; (int)gasnett_atomic_read(&arrived, 0) < wanted && milliseconds > 0; milliseconds--) nanosleep(&pause, NULL);
    return (int)gasnett_atomic_read(&arrived, 0);
}

/* Progress threads that the library has started. */
static int own_threads(void)
{
    int found = 0;
    struct dirent *entry;
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL);
    while ((entry = readdir(tasks)) != NULL) {
        char path[300], name[32] = "";
        FILE *file;
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        if ((file = fopen(path, "r")) == NULL) continue;
        if (fgets(name, sizeof name, file) != NULL) found += strncmp(name, "gasnet-progress", 15) == 0;
        fclose(file);
    }
    closedir(tasks);
    return found;
}

int main(int argc, char **argv)
{
    const gex_ProgressThreadInfo_t *info = NULL;
    gex_AM_Entry_t table[1];
    unsigned int count = 77, at, receivers = 0;
    pthread_t thread;
    t_name = "deferred_threads";
    OK(gex_Client_Init(&t_client, &t_ep, &t_tm, t_name, &argc, &argv, GEX_FLAG_DEFER_THREADS));
    t_rank = gex_TM_QueryRank(t_tm);
    t_size = gex_TM_QuerySize(t_tm);
    OK(gasnet_set_waitmode(GASNET_WAIT_BLOCK));
    table[0] = t_entry(200, (gex_AM_Fn_t)arrive, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 0);
    OK(gex_EP_RegisterHandlers(t_ep, table, 1));
    t_barrier();
    OK(gex_System_QueryProgressThreads(t_client, &count, &info, 0));
    if (argc < 2) {
        CHECK_EQ(count, 0);
        t_pass();
        return 1;
    }
    CHECK(count > 0 && info != NULL);
    CHECK_EQ(gex_System_QueryHiddenAMConcurrencyLevel(), 1);
    t_barrier();
    OK(gex_AM_RequestShort0(t_tm, (t_rank + 1) % t_size, 200, 0));
    CHECK_EQ(own_threads(), 0);
    for (at = 0; at < count; at++) {
        CHECK(info[at].gex_device_list != NULL && info[at].gex_device_list[0] != '\0');
        CHECK(info[at].gex_thread_roles == GEX_THREAD_ROLE_RCV || info[at].gex_thread_roles == GEX_THREAD_ROLE_SND);
        receivers += info[at].gex_thread_roles == GEX_THREAD_ROLE_RCV;
        CHECK_EQ(pthread_create(&thread, NULL, info[at].gex_progress_fn, info[at].gex_progress_arg), 0);
    }
    CHECK(receivers > 0);
    CHECK_EQ(wait_arrived(1, 20000), 1);
    t_barrier();
    OK(gex_AM_RequestShort0(t_tm, (t_rank + 1) % t_size, 200, 0));
    CHECK_EQ(wait_arrived(2, 20000), 2);
    t_pass();
    return 1;
}
