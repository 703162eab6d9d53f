/* threads.h - a kernel's threads, played one after another by a single thread of the host.
 *
 * Each CUDA thread is a fiber: a stack, and the place where it goes on. A fiber runs until it meets others (a barrier, a shuffle, a product
 * on tensor cores) and is not the last to come; then the scheduler (threads.cpp) lets another one run. Who comes last does what was met
 * for, on what all of them brought, and all go on. Between two meetings a fiber runs alone, so a barrier that is missing shows: a thread
 * reads what has not been written, or what was overwritten. Who runs first is chosen by $APR_EMULATED_ORDER. */
#ifndef APR_TESTS_EMULATED_THREADS_H
#define APR_TESTS_EMULATED_THREADS_H

#include <functional>
#include <stddef.h>
#include <stdint.h>
#include <vector>

namespace emulated
{

struct place {
    unsigned x, y, z;
};

struct block;
struct warp;
struct fiber;

/* What a thread brings to a meeting and takes from it: up to 12 words. */
union operand {
    uint32_t word[12];
    float number[12];
    uint64_t wide[6];
    const void *at[6];
};

/* A copy from device memory to shared memory on its way (cp.async). */
struct copy_under_way {
    void *to;
    const void *from;
    int n_bytes, group;
};

struct thread {
    place index;
    block *of;
    warp *in;
    int lane;
    bool is_ready, has_ended;
    const void *waits_for; /* in wait_for */
    operand brought, taken;
    std::vector<copy_under_way> copies;
    int n_groups; /* of copies, closed */
    fiber *runs_on;
};

/* A copy that a barrier in shared memory counts (cp.async.bulk). */
struct bulk_copy {
    void *to;
    const void *from;
    size_t n_bytes;
    void *barrier;
};

/* What a meeting of lanes is for: called by the last one, of the lanes `who`. */
typedef void (*settlement)(warp &w, uint32_t who);

struct meeting {
    uint32_t expected, arrived;
    settlement settle;
};

struct warp {
    thread *lanes[32]; /* NULL: none */
    uint32_t ended;
    std::vector<meeting> open;
};

/* Shared memory of a block that has a name: `key` says which declaration it belongs to. */
struct shared_piece {
    const void *key;
    void *memory;
    size_t n_bytes;
};

struct block {
    place index, size, grid;
    unsigned rank; /* in its cluster */
    block *cluster;
    unsigned n_in_cluster;
    std::vector<thread> threads;
    std::vector<warp> warps;
    size_t n_ended, n_at_barrier, n_at_cluster_barrier;
    void *dynamic;
    size_t dynamic_bytes;
    std::vector<shared_piece> pieces;
    std::vector<bulk_copy> bulk_copies; /* under way */
};

/* The one that is running; NULL in the host's own code. */
extern thread *self;
extern place threadIdx, blockIdx, blockDim, gridDim; /* its */

/* How a run's threads take turns: what $APR_EMULATED_ORDER says, "forward" (the lowest first), "backward", or a number that shuffles. */
enum order { FORWARD, BACKWARD, SHUFFLED };
order order_of_run(void);
uint32_t random_number(void);

void meet(uint32_t mask, settlement settle);
void meet_block(void);
void meet_cluster(void);
/* Until some thread of the block wakes who waits for it. */
void wait_for(const void *what);
void wake(const void *what);

/* Memory of the block for the declaration that `key` belongs to; bytes that were not written are 0xff: NaNs, and far too large numbers. */
void *shared_memory(const void *key, size_t n_bytes, size_t alignment);
void *dynamic_memory(void);
bool is_shared(const void *p, size_t n_bytes);

template <typename T> static inline T &shared(void)
{
    static const char key = 0;
    return *(T *)shared_memory(&key, sizeof(T), alignof(T));
}

/* A grid of blocks of threads, each of which calls body(); n_in_cluster blocks along x are there at the same time. False: a thread read or
 * wrote where there is no memory. */
struct grid {
    place blocks, threads;
    unsigned n_in_cluster;
    size_t dynamic_bytes;
    std::function<void()> body;
};
bool run_grid(const grid &g);

/* Says what is wrong with the kernel, and who was about what, and ends the process: no test passes. */
[[noreturn]] void wrong(const char *what);

} // namespace emulated

#endif
