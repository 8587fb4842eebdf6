/* Heat flow on a square plate, cut into one block per rank. After every step each block puts its border into the
 * neighbours' halos; two halos take turns, so one barrier per step is enough. At the end rank 0 gets all blocks and
 * compares them with a computation of its own.
 *
 *   gasnetrun_ibv -n 4 ./halo [cells per side [steps]]
 */
#include "start.h"

enum { WEST, EAST, NORTH, SOUTH, SIDES };

typedef struct {
    int columns, rows; /* blocks in the grid of ranks */
    int side, steps;   /* cells of the whole plate, each way */
} Plate;

/* One rank's block: cells [left, right) x [top, bottom) of the plate. */
typedef struct {
    int left, right, top, bottom;
    int width, height;
} Block;

static int cut(int side, int parts, int part)
{
    return (int)((long long)side * part / parts);
}

static Block block_of(const Plate *plate, gex_Rank_t owner)
{
    int column = (int)owner % plate->columns, row = (int)owner / plate->columns;
    Block block;
    block.left = cut(plate->side, plate->columns, column);
    block.right = cut(plate->side, plate->columns, column + 1);
    block.top = cut(plate->side, plate->rows, row);
    block.bottom = cut(plate->side, plate->rows, row + 1);
    block.width = block.right - block.left;
    block.height = block.bottom - block.top;
    return block;
}

/* The segment, in doubles: for each of two turns the halos of the four sides, then the finished cells of the block.
 * All ranks use the places of the largest block, so they know the offsets in each other's segments. */
static size_t longest(const Plate *plate)
{
    int width = (plate->side + plate->columns - 1) / plate->columns;
    int height = (plate->side + plate->rows - 1) / plate->rows;
    return (size_t)(width > height ? width : height);
}

static size_t halo_at(const Plate *plate, int turn, int side)
{
    return ((size_t)turn * SIDES + (size_t)side) * longest(plate);
}

static size_t cells_at(const Plate *plate)
{
    return 2 * SIDES * longest(plate);
}

static double start_value(const Plate *plate, int x, int y)
{
    unsigned mixed = (unsigned)(y * plate->side + x) * 2654435761U;
    return (double)(mixed >> 16) / 65536.0;
}

static double step_value(double here, double west, double east, double north, double south)
{
    return here + 0.2 * (west + east + north + south - 4.0 * here);
}

/* All steps on the whole plate by one rank; edges of the plate are held at 0. */
static double *serial(const Plate *plate)
{
    size_t line = (size_t)plate->side + 2, count = line * line;
    double *now = checked(calloc(count, sizeof *now)), *next = checked(calloc(count, sizeof *next));
    for (int y = 0; y < plate->side; y++)
        for (int x = 0; x < plate->side; x++) now[(size_t)(y + 1) * line + (size_t)x + 1] = start_value(plate, x, y);
    for (int step = 0; step < plate->steps; step++) {
        for (size_t y = 1; y + 1 < line; y++)
            for (size_t at = y * line + 1; at + 1 < (y + 1) * line; at++)
                next[at] = step_value(now[at], now[at - 1], now[at + 1], now[at - line], now[at + line]);
        double *other = now;
        now = next;
        next = other;
    }
    free(next);
    return now;
}

/* Puts this block's borders into the halos of the neighbours: the cells along my western side are the eastern halo of
 * the block in the west. Complete at every rank when the barrier is over. */
static void exchange(const Plate *plate, const Block *block, void *const *segments, int turn, const double *now)
{
    size_t line = (size_t)block->width + 2, width = (size_t)block->width, height = (size_t)block->height;
    int column = (int)rank % plate->columns, row = (int)rank / plate->columns;
    double *packed = checked(malloc(2 * height * sizeof *packed));
    for (size_t y = 0; y < height; y++) {
        packed[y] = now[(y + 1) * line + 1];
        packed[height + y] = now[(y + 1) * line + width];
    }
    const struct {
        int exists, distance, side;
        const double *from;
        size_t count;
    } edges[SIDES] = {
        {column > 0, -1, EAST, packed, height},
        {column + 1 < plate->columns, 1, WEST, packed + height, height},
        {row > 0, -plate->columns, SOUTH, now + line + 1, width},
        {row + 1 < plate->rows, plate->columns, NORTH, now + height * line + 1, width},
    };
    for (int edge = 0; edge < SIDES; edge++) {
        if (!edges[edge].exists || edges[edge].count == 0) continue;
        gex_Rank_t other = (gex_Rank_t)((int)rank + edges[edge].distance);
        double *to = (double *)segments[other] + halo_at(plate, turn, edges[edge].side);
        /* NOW: `packed` may be reused when the call returns. */
        OK(gex_RMA_PutNBI(team, other, to, edges[edge].from, edges[edge].count * sizeof *to, GEX_EVENT_NOW, 0));
    }
    gex_NBI_Wait(GEX_EC_PUT, 0);
    free(packed);
    barrier();
}

/* Copies what the neighbours have put around the block. At the plate's edge the halo was never written and is 0. */
static void take_halo(const Plate *plate, const Block *block, const double *segment, int turn, double *now)
{
    size_t line = (size_t)block->width + 2, width = (size_t)block->width, height = (size_t)block->height;
    for (size_t y = 0; y < height; y++) {
        now[(y + 1) * line] = segment[halo_at(plate, turn, WEST) + y];
        now[(y + 1) * line + width + 1] = segment[halo_at(plate, turn, EAST) + y];
    }
    memcpy(now + 1, segment + halo_at(plate, turn, NORTH), width * sizeof *now);
    memcpy(now + (height + 1) * line + 1, segment + halo_at(plate, turn, SOUTH), width * sizeof *now);
}

/* All steps on this rank's block; the finished cells go to the end of the segment. */
static void parallel(const Plate *plate, double *segment, void *const *segments)
{
    Block block = block_of(plate, rank);
    size_t line = (size_t)block.width + 2, rows = (size_t)block.height + 2;
    double *now = checked(calloc(line * rows, sizeof *now)), *next = checked(calloc(line * rows, sizeof *next));
    for (int y = 0; y < block.height; y++)
        for (int x = 0; x < block.width; x++)
            now[(size_t)(y + 1) * line + (size_t)x + 1] = start_value(plate, block.left + x, block.top + y);
    for (int step = 0; step < plate->steps; step++) {
        exchange(plate, &block, segments, step % 2, now);
        take_halo(plate, &block, segment, step % 2, now);
        for (size_t y = 1; y + 1 < rows; y++)
            for (size_t at = y * line + 1; at + 1 < (y + 1) * line; at++)
                next[at] = step_value(now[at], now[at - 1], now[at + 1], now[at - line], now[at + line]);
        double *other = now;
        now = next;
        next = other;
    }
    for (int y = 0; y < block.height; y++)
        memcpy(segment + cells_at(plate) + (size_t)y * (size_t)block.width, now + (size_t)(y + 1) * line + 1,
               (size_t)block.width * sizeof *now);
    free(now);
    free(next);
    barrier();
}

/* Rank 0: gets every block and counts cells that differ from the serial computation, which adds in the same order. */
static long differences(const Plate *plate, void *const *segments)
{
    double *expected = serial(plate);
    size_t line = (size_t)plate->side + 2;
    long wrong = 0;
    for (gex_Rank_t owner = 0; owner < size; owner++) {
        Block block = block_of(plate, owner);
        size_t count = (size_t)block.width * (size_t)block.height;
        double *cells = checked(malloc((count + 1) * sizeof *cells));
        OK(gex_RMA_GetBlocking(team, cells, owner, (double *)segments[owner] + cells_at(plate), count * sizeof *cells, 0));
        for (int y = 0; y < block.height; y++)
            for (int x = 0; x < block.width; x++) {
                double value = expected[(size_t)(block.top + y + 1) * line + (size_t)(block.left + x) + 1];
                double away = cells[(size_t)y * (size_t)block.width + (size_t)x] - value;
                if (!(away < 1e-12 && away > -1e-12)) wrong++;
            }
        free(cells);
    }
    free(expected);
    return wrong;
}

static int number(const char *text, int most)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (end == text || *end || value < 1 || value > most) fail("halo: '%s' is no number from 1 to %d", text, most);
    return (int)value;
}

int main(int argc, char **argv)
{
    Plate plate = {1, 1, 120, 50};
    join_job("halo", &argc, &argv);
    if (argc > 1) plate.side = number(argv[1], 4096);
    if (argc > 2) plate.steps = number(argv[2], 1000000);
    /* The grid of ranks that is nearest to a square. */
    for (int rows = 1; rows * rows <= (int)size; rows++)
        if ((int)size % rows == 0) plate.rows = rows;
    plate.columns = (int)size / plate.rows;
    if (plate.side < plate.columns)
        fail("halo: %d cells per side cannot be cut for %d ranks side by side", plate.side, plate.columns);

    size_t largest = longest(&plate) * longest(&plate);
    double *segment = attach((cells_at(&plate) + largest) * sizeof *segment);
    /* Halos that no neighbour writes must read as 0. */
    memset(segment, 0, cells_at(&plate) * sizeof *segment);
    void **segments = checked(malloc(size * sizeof *segments));
    for (gex_Rank_t other = 0; other < size; other++) segments[other] = segment_of(other);
    barrier();

    parallel(&plate, segment, segments);
    long wrong = 0;
    if (rank == 0) {
        wrong = differences(&plate, segments);
        printf("halo: %d x %d cells, %d steps, %d x %d ranks: %s\n", plate.side, plate.side, plate.steps, plate.columns,
               plate.rows, wrong ? "WRONG" : "equal to the serial computation");
    }
    if (wrong) fail("halo: %ld cells are wrong", wrong);
    free(segments);
    leave(0);
}
