/* threads.cpp - see threads.h: who runs when, and where threads meet. */
#include "tests/emulated/threads.h"
#include "tests/emulated/fibers.h"

#include <algorithm>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace emulated
{

thread *self;
place threadIdx, blockIdx, blockDim, gridDim;

/* The grid under way, and the blocks of it that are there: a cluster, which most often is one block. */
static const grid *running;
static std::vector<block> present;
static std::vector<warp *> turns; /* all warps of these, in the order in which they take turns */

/* --- order --- */

static uint32_t random_state;

uint32_t random_number(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return random_state >> 8;
}

order order_of_run(void)
{
    static int known = -1;
    if (known < 0) {
        const char *const text = getenv("APR_EMULATED_ORDER");
        known = text == NULL || strcmp(text, "forward") == 0 ? FORWARD : strcmp(text, "backward") == 0 ? BACKWARD : SHUFFLED;
        if (known == SHUFFLED) random_state = (uint32_t)strtoul(text, NULL, 10);
    }
    return (order)known;
}

static void shuffle(std::vector<warp *> &list)
{
    for (size_t i = list.size(); i > 1; i--) std::swap(list[i - 1], list[random_number() % i]);
}

/* Lane i of a turn: forward, backward, or from a random one on in random odd steps, which come to all of 32. */
struct lane_order {
    unsigned first, step;
};
static lane_order next_lane_order(void)
{
    switch (order_of_run()) {
    case FORWARD: return lane_order{0, 1};
    case BACKWARD: return lane_order{31, 31};
    default: return lane_order{random_number() % 32, random_number() % 32 | 1};
    }
}

/* --- what is wrong --- */

void wrong(const char *what)
{
    fprintf(stderr, "emulated device: %s\n", what);
    if (self != NULL)
        fprintf(stderr, "  in thread %u %u %u of block %u %u %u\n", self->index.x, self->index.y, self->index.z, self->of->index.x,
                self->of->index.y, self->of->index.z);
    for (const block &b : present)
        for (size_t i = 0; i < b.warps.size(); i++) {
            fprintf(stderr, "  block %u %u %u, warp %zu: ended %08x", b.index.x, b.index.y, b.index.z, i, b.warps[i].ended);
            for (const meeting &m : b.warps[i].open) fprintf(stderr, ", %08x of %08x wait for each other", m.arrived, m.expected);
            fprintf(stderr, "\n");
        }
    abort();
}

/* --- meetings --- */

static void wait_here(void)
{
    self->is_ready = false;
    leave_fiber();
}

/* All whom it waits for are there, or have ended. */
static bool is_complete(const warp &w, const meeting &m) { return ((m.arrived | w.ended) & m.expected) == m.expected; }

static void settle(warp &w, size_t which)
{
    const meeting m = w.open[which];
    w.open.erase(w.open.begin() + (ptrdiff_t)which);
    if (m.settle != NULL) m.settle(w, m.arrived);
    for (int i = 0; i < 32; i++)
        if (m.arrived >> i & 1) w.lanes[i]->is_ready = true;
}

void meet(uint32_t mask, settlement what)
{
    warp &w = *self->in;
    size_t i = 0;
    if ((mask >> self->lane & 1) == 0) wrong("a thread meets others and is not in their mask");
    while (i < w.open.size() && w.open[i].expected != mask) i++;
    if (i == w.open.size()) {
        for (const meeting &m : w.open)
            if ((m.expected & mask) != 0) wrong("lanes of a warp wait for each other with different masks");
        w.open.push_back(meeting{mask, 0, what});
    }
    if (w.open[i].settle != what) wrong("lanes of a warp meet for different operations");
    w.open[i].arrived |= 1u << self->lane;
    if (is_complete(w, w.open[i])) settle(w, i);
    else wait_here();
}

static void release_block(block &b)
{
    if (b.n_at_barrier == 0 || b.n_at_barrier + b.n_ended < b.threads.size()) return;
    b.n_at_barrier = 0;
    for (thread &t : b.threads)
        if (!t.has_ended) t.is_ready = true;
}

static void release_cluster(void)
{
    size_t n_here = 0, n_all = 0;
    for (const block &b : present) n_here += b.n_at_cluster_barrier + b.n_ended, n_all += b.threads.size();
    if (n_here < n_all) return;
    for (block &b : present) {
        b.n_at_cluster_barrier = 0;
        for (thread &t : b.threads)
            if (!t.has_ended) t.is_ready = true;
    }
}

void meet_block(void)
{
    self->of->n_at_barrier++;
    self->is_ready = false;
    release_block(*self->of);
    if (!self->is_ready) wait_here();
}

void meet_cluster(void)
{
    self->of->n_at_cluster_barrier++;
    self->is_ready = false;
    release_cluster();
    if (!self->is_ready) wait_here();
}

void wait_for(const void *what)
{
    self->waits_for = what;
    wait_here();
}

void wake(const void *what)
{
    for (thread &t : self->of->threads)
        if (!t.has_ended && t.waits_for == what) t.waits_for = NULL, t.is_ready = true;
}

/* Who has ended is waited for no more. */
static void end_thread(void)
{
    warp &w = *self->in;
    self->has_ended = true, self->is_ready = false;
    w.ended |= 1u << self->lane;
    for (size_t i = 0; i < w.open.size();)
        if (is_complete(w, w.open[i])) settle(w, i);
        else i++;
    self->of->n_ended++;
    release_block(*self->of);
    if (present.size() > 1) release_cluster();
}

static void begin_thread(void)
{
    running->body();
    end_thread();
    end_fiber();
}

/* --- memory --- */

static void *fresh(size_t n_bytes, size_t alignment)
{
    void *p = NULL;
    if (posix_memalign(&p, alignment < sizeof(void *) ? sizeof(void *) : alignment, n_bytes > 0 ? n_bytes : 1) != 0)
        wrong("no memory of the host for shared memory");
    memset(p, 0xff, n_bytes);
    return p;
}

void *shared_memory(const void *key, size_t n_bytes, size_t alignment)
{
    for (const shared_piece &p : self->of->pieces)
        if (p.key == key) return p.memory;
    void *const memory = fresh(n_bytes, alignment);
    self->of->pieces.push_back(shared_piece{key, memory, n_bytes});
    return memory;
}

void *dynamic_memory(void) { return self->of->dynamic; }

bool is_shared(const void *p, size_t n_bytes)
{
    const auto inside = [=](const void *memory, size_t n_there) {
        const uint8_t *const at = (const uint8_t *)p, *const from = (const uint8_t *)memory;
        return at >= from && at + n_bytes <= from + n_there;
    };
    if (inside(self->of->dynamic, self->of->dynamic_bytes)) return true;
    for (const shared_piece &piece : self->of->pieces)
        if (inside(piece.memory, piece.n_bytes)) return true;
    return false;
}

/* --- blocks --- */

static void fill_block(block &b, const grid &g, place index)
{
    const size_t n = (size_t)g.threads.x * g.threads.y * g.threads.z;
    b.index = index, b.size = g.threads, b.grid = g.blocks;
    b.rank = index.x % g.n_in_cluster;
    b.cluster = present.data(), b.n_in_cluster = g.n_in_cluster;
    b.n_ended = b.n_at_barrier = b.n_at_cluster_barrier = 0;
    b.dynamic = fresh(g.dynamic_bytes, 1024), b.dynamic_bytes = g.dynamic_bytes;
    b.pieces.clear(), b.bulk_copies.clear();
    b.warps.assign((n + 31) / 32, warp());
    b.threads.resize(n);
    for (size_t i = 0; i < n; i++) {
        thread &t = b.threads[i];
        const unsigned at = (unsigned)i;
        t.index = place{at % g.threads.x, at / g.threads.x % g.threads.y, at / g.threads.x / g.threads.y};
        t.of = &b, t.in = &b.warps[i / 32], t.lane = (int)(i % 32);
        t.is_ready = true, t.has_ended = false, t.waits_for = NULL;
        t.copies.clear(), t.n_groups = 0;
        t.in->lanes[t.lane] = &t;
        t.runs_on = take_fiber(begin_thread);
    }
    warp &last = b.warps.back();
    if (n % 32 != 0) last.ended = ~0u << n % 32;
}

static void empty_block(block &b)
{
    free(b.dynamic);
    for (const shared_piece &p : b.pieces) free(p.memory);
    b.pieces.clear();
}

/* A warp runs until each of its lanes waits for another warp, or has ended; shuffled, until a whim. */
static bool run_warp(warp &w)
{
    bool any = false, again = true;
    while (again) {
        const lane_order o = next_lane_order();
        again = false;
        for (unsigned i = 0; i < 32; i++) {
            thread *const t = w.lanes[(o.first + i * o.step) % 32];
            if (t == NULL || !t->is_ready) continue;
            self = t;
            threadIdx = t->index, blockIdx = t->of->index, blockDim = t->of->size, gridDim = t->of->grid;
            enter_fiber(t->runs_on);
            self = NULL;
            any = again = true;
        }
        if (order_of_run() == SHUFFLED && random_number() % 8 == 0) break;
    }
    return any;
}

static bool all_ended(void)
{
    for (const block &b : present)
        if (b.n_ended < b.threads.size()) return false;
    return true;
}

static void run_present(void)
{
    while (!all_ended()) {
        bool any = false;
        if (order_of_run() == SHUFFLED) shuffle(turns);
        for (warp *w : turns) any = run_warp(*w) || any;
        if (!any && !all_ended()) wrong("all threads wait for somebody who does not come");
    }
}

static void run_cluster(const grid &g, place first)
{
    present.resize(g.n_in_cluster);
    turns.clear();
    for (unsigned i = 0; i < g.n_in_cluster; i++) fill_block(present[i], g, place{first.x + i, first.y, first.z});
    for (block &b : present)
        for (warp &w : b.warps) turns.push_back(&w);
    if (order_of_run() == BACKWARD) std::reverse(turns.begin(), turns.end());
    run_present();
    for (block &b : present) empty_block(b);
}

/* --- faults --- */

static sigjmp_buf after_fault;

static void on_fault(int number, siginfo_t *, void *)
{
    if (self != NULL) siglongjmp(after_fault, 1);
    ::signal(number, SIG_DFL); /* not a kernel's: happens again, and ends the process */
}

static void drop_present(void)
{
    for (block &b : present) {
        for (thread &t : b.threads)
            if (!t.has_ended) drop_fiber(t.runs_on);
        empty_block(b);
    }
    self = NULL;
}

static bool run_blocks(const grid &g)
{
    const size_t n_x = g.blocks.x / g.n_in_cluster, n = n_x * g.blocks.y * g.blocks.z;
    for (size_t i = 0; i < n; i++) {
        const size_t at = order_of_run() == BACKWARD ? n - 1 - i : i;
        run_cluster(g, place{(unsigned)(at % n_x) * g.n_in_cluster, (unsigned)(at / n_x % g.blocks.y), (unsigned)(at / n_x / g.blocks.y)});
    }
    return true;
}

bool run_grid(const grid &g)
{
    running = &g;
#ifdef __SANITIZE_ADDRESS__
    return run_blocks(g); /* which says more of a fault than we would */
#else
    static uint8_t stack[64 << 10];
    struct sigaction action, before[2];
    stack_t other = {stack, 0, sizeof stack}, old;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaltstack(&other, &old);
    sigaction(SIGSEGV, &action, &before[0]), sigaction(SIGBUS, &action, &before[1]);
    const bool is_well = sigsetjmp(after_fault, 1) == 0 && run_blocks(g);
    if (!is_well) drop_present();
    sigaction(SIGSEGV, &before[0], NULL), sigaction(SIGBUS, &before[1], NULL);
    sigaltstack(&old, NULL);
    return is_well;
#endif
}

} // namespace emulated
