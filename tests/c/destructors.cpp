// C++: handlers and objects with static destructors. gasnet_exit runs none of them; a return from main runs them all.
#include "t.h"

#include <atomic>
#include <string>
#include <vector>

static bool exits;

struct Speaks {
    std::string name;
    explicit Speaks(const char *text) : name(text) {}
    ~Speaks()
    {
        if (exits) t_say("destructor of %s ran in gasnet_exit", name.c_str());
        std::string line = "DESTROYED " + name + "\n";
        if (write(1, line.data(), line.size()) < 0) _exit(94);
    }
};

static Speaks object("object");
static std::atomic<int> arrived{0};

static void arrive(gex_Token_t, void *data, size_t bytes, gex_AM_Arg_t key)
{
    std::vector<unsigned char> copy(static_cast<unsigned char *>(data), static_cast<unsigned char *>(data) + bytes);
    CHECK(t_same(copy.data(), static_cast<uint32_t>(key), bytes));
    arrived++;
}

int main(int argc, char **argv)
{
    exits = argc > 1;
    t_start("destructors", &argc, &argv, 4096);
    gex_AM_Entry_t table[] = {{0, reinterpret_cast<gex_AM_Fn_t>(arrive), GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REQUEST, 1, nullptr,
                               "arrive"}};
    OK(gex_EP_RegisterHandlers(t_ep, table, 1));
    t_barrier();
    std::vector<unsigned char> data(777);
    t_fill(data.data(), t_rank, data.size());
    for (gex_Rank_t to = 0; to < t_size; to++)
        OK(gex_AM_RequestMedium(t_tm, to, table[0].gex_index, data.data(), data.size(), GEX_EVENT_NOW, 0, t_rank));
    GASNET_BLOCKUNTIL(arrived == static_cast<int>(t_size));
    t_barrier();
    if (exits) t_pass();
    if (t_rank == 0) printf("PASS destructors\n");
    return 0;
}
