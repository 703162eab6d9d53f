/* instructions.cpp - see instructions.h, and what lanes of a warp exchange. */
#include "tests/emulated/instructions.h"

#include <math.h>

namespace emulated
{

/* --- shuffles and votes: wide[0] is the value, word[2] who or what for --- */

static void settle_shuffle(warp &w, uint32_t who)
{
    for (int i = 0; i < 32; i++) {
        if ((who >> i & 1) == 0) continue;
        thread &t = *w.lanes[i];
        const uint32_t from = t.brought.word[2] & 31;
        if (who >> from & 1) t.taken.wide[0] = w.lanes[from]->brought.wide[0];
        else t.taken.wide[0] = ~(uint64_t)0; /* of a lane that is not there: anything */
    }
}

uint64_t shuffle(uint32_t mask, uint64_t value, int from)
{
    self->brought.wide[0] = value, self->brought.word[2] = (uint32_t)from;
    meet(mask, settle_shuffle);
    return self->taken.wide[0];
}

static void settle_vote(warp &w, uint32_t who)
{
    uint32_t ballot = 0, most = 0;
    for (int i = 0; i < 32; i++) {
        if ((who >> i & 1) == 0) continue;
        const uint32_t value = w.lanes[i]->brought.word[0];
        if (value != 0) ballot |= 1u << i;
        if (value > most) most = value;
    }
    for (int i = 0; i < 32; i++)
        if (who >> i & 1) w.lanes[i]->taken.word[0] = ballot, w.lanes[i]->taken.word[1] = most, w.lanes[i]->taken.word[2] = who;
}

votes vote(uint32_t mask, uint32_t value)
{
    self->brought.word[0] = value;
    meet(mask, settle_vote);
    return votes{self->taken.word[0], self->taken.word[1], self->taken.word[2]};
}

/* --- products on tensor cores ---
 *
 * Of lane 4 g + t, D columns of a word: words 0 and 2 of a are row g, columns D t and on, and the same half the depth further; words 1 and
 * 3 row g + 8. Of b (words 4, 5) those are rows, and g the column. Sums (words 8 to 11) are row g, columns 2 t and 2 t + 1, then row g + 8.
 */

enum { ROWS = 16, COLUMNS = 8, MOST_DEPTH = 32 };

template <typename N> struct matrices {
    N a[ROWS][MOST_DEPTH], b[MOST_DEPTH][COLUMNS];
};

static float element(product kind, uint32_t word, int i)
{
    const uint16_t bits = (uint16_t)(word >> 16 * i);
    return kind == BF16 ? apr_bf16_to_f32(bits) : apr_f16_to_f32(bits);
}
static int byte_of(bool is_signed, uint32_t word, int i)
{
    const uint8_t byte = (uint8_t)(word >> 8 * i);
    return is_signed ? (int8_t)byte : byte;
}

template <typename N, typename AT> static void gather(warp &w, int depth, int in_word, matrices<N> *m, AT &&at)
{
    for (int lane = 0; lane < 32; lane++) {
        const uint32_t *const word = w.lanes[lane]->brought.word;
        const int g = lane / 4, t = lane % 4;
        for (int half = 0; half < depth / (4 * in_word); half++)
            for (int i = 0; i < in_word; i++) {
                const int k = half * 4 * in_word + in_word * t + i;
                m->a[g][k] = at(word[2 * half], i, true);
                m->a[g + 8][k] = at(word[2 * half + 1], i, true);
                m->b[k][g] = at(word[4 + half], i, false);
            }
    }
}

/* Toward zero, as tensor cores cut off. */
static float cut_off(double exact)
{
    float f = (float)exact;
    if (fabs((double)f) > fabs(exact) && isfinite(exact)) f = nextafterf(f, 0.0f);
    return f;
}

template <product KIND, int DEPTH> static void settle_floats(warp &w, uint32_t who)
{
    matrices<float> m;
    if (who != 0xffffffffu) wrong("a product on tensor cores without all lanes of a warp");
    gather(w, DEPTH, 2, &m, [](uint32_t word, int i, bool) { return element(KIND, word, i); });
    for (int row = 0; row < ROWS; row++) {
        double sums[COLUMNS];
        for (int c = 0; c < COLUMNS; c++) sums[c] = w.lanes[4 * (row % 8) + c / 2]->brought.number[8 + 2 * (row / 8) + c % 2];
        for (int k = 0; k < DEPTH; k++)
            for (int c = 0; c < COLUMNS; c++) sums[c] += (double)m.a[row][k] * (double)m.b[k][c];
        for (int c = 0; c < COLUMNS; c++) w.lanes[4 * (row % 8) + c / 2]->taken.number[2 * (row / 8) + c % 2] = cut_off(sums[c]);
    }
}

template <product KIND> static void settle_bytes(warp &w, uint32_t who)
{
    matrices<int> m;
    if (who != 0xffffffffu) wrong("a product on tensor cores without all lanes of a warp");
    gather(w, 32, 4, &m, [](uint32_t word, int i, bool is_a) { return byte_of(KIND == S8 || !is_a, word, i); });
    for (int row = 0; row < ROWS; row++)
        for (int c = 0; c < COLUMNS; c++) {
            thread &t = *w.lanes[4 * (row % 8) + c / 2];
            uint32_t sum = t.brought.word[8 + 2 * (row / 8) + c % 2];
            for (int k = 0; k < 32; k++) sum += (uint32_t)(m.a[row][k] * m.b[k][c]);
            t.taken.word[2 * (row / 8) + c % 2] = sum;
        }
}

void multiply(product kind, operand *o)
{
    static const settlement settlements[] = {settle_floats<F16, 16>, settle_floats<F16, 8>, settle_floats<BF16, 16>, settle_bytes<S8>,
                                             settle_bytes<U8>};
    self->brought = *o;
    meet(0xffffffffu, settlements[kind]);
    *o = self->taken;
}

/* --- matrices of 8 x 8 FP16 numbers from shared memory: lane l has the address of row l % 8 of matrix l / 8 --- */

template <bool TURNED> static void settle_load(warp &w, uint32_t who)
{
    if (who != 0xffffffffu) wrong("matrices are loaded without all lanes of a warp");
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++) {
            const int g = lane / 4, t = lane % 4;
            uint16_t pair[2];
            for (int k = 0; k < 2; k++) {
                const int row = TURNED ? 2 * t + k : g, column = TURNED ? g : 2 * t + k;
                pair[k] = ((const uint16_t *)w.lanes[8 * i + row]->brought.at[0])[column];
            }
            w.lanes[lane]->taken.word[i] = (uint32_t)pair[1] << 16 | pair[0];
        }
}

void load_matrices(const void *row, uint32_t *m, bool turned)
{
    if ((uintptr_t)row % 16 != 0 || !is_shared(row, 16)) wrong("a matrix is loaded that is not in shared memory, at a multiple of 16");
    self->brought.at[0] = row;
    meet(0xffffffffu, turned ? settle_load<true> : settle_load<false>);
    memcpy(m, self->taken.word, 4 * sizeof *m);
}

/* --- copies --- */

static void carry_out(const copy_under_way &c)
{
    if (c.n_bytes > 0) *(uint4 *)c.to = *(const uint4 *)c.from;
    else *(uint4 *)c.to = make_uint4(0, 0, 0, 0);
}

void copy_later(void *to, const void *from, int n_bytes)
{
    const copy_under_way c = {to, from, n_bytes, self->n_groups};
    if ((uintptr_t)to % 16 != 0 || !is_shared(to, 16)) wrong("a copy does not go into shared memory, to a multiple of 16");
    if ((uintptr_t)from % 16 != 0) wrong("a copy does not come from a multiple of 16");
    if (order_of_run() == BACKWARD || (order_of_run() == SHUFFLED && random_number() % 2 == 0)) carry_out(c);
    else self->copies.push_back(c);
}

void close_copies(void) { self->n_groups++; }

void wait_for_copies(int n_left)
{
    std::vector<copy_under_way> &all = self->copies;
    size_t n = 0;
    while (n < all.size() && all[n].group < self->n_groups - n_left) carry_out(all[n++]);
    all.erase(all.begin(), all.begin() + (ptrdiff_t)n);
}

/* --- barriers in shared memory, and copies that they wait for --- */

/* In 8 bytes: arrivals of a round, and those yet to come; bytes yet to come; whether the round is an odd one. */
struct barrier {
    uint16_t n, left;
    uint32_t bytes : 31, is_odd : 1;
};
static_assert(sizeof(barrier) == 8, "as in PTX");

static barrier *barrier_at(uint64_t *b)
{
    if ((uintptr_t)b % 8 != 0 || !is_shared(b, 8)) wrong("a barrier is not in shared memory, at a multiple of 8");
    return (barrier *)b;
}
static void end_round(barrier *b)
{
    if (b->left > 0 || b->bytes > 0) return;
    b->left = b->n, b->is_odd ^= 1;
    wake(b);
}

void begin_barrier(uint64_t *at, int n_arrivals)
{
    const barrier fresh = {(uint16_t)n_arrivals, (uint16_t)n_arrivals, 0, 0};
    *barrier_at(at) = fresh;
}

void arrive(uint64_t *at, int n_bytes)
{
    barrier *const b = barrier_at(at);
    if (b->left == 0) wrong("more arrive at a barrier than it expects");
    b->left--, b->bytes += (unsigned)n_bytes;
    end_round(b);
}

static void carry_out(const bulk_copy &c)
{
    barrier *const b = (barrier *)c.barrier;
    memcpy(c.to, c.from, c.n_bytes);
    if (b->bytes < c.n_bytes) wrong("more bytes come than a barrier was told of");
    b->bytes -= (unsigned)c.n_bytes;
    end_round(b);
}

void copy_bulk(void *to, const void *from, int n_bytes, uint64_t *at)
{
    const bulk_copy c = {to, from, (size_t)n_bytes, barrier_at(at)};
    if (n_bytes % 16 != 0 || (uintptr_t)to % 16 != 0 || !is_shared(to, c.n_bytes))
        wrong("a copy does not go into shared memory, or by 16 bytes");
    if ((uintptr_t)from % 16 != 0) wrong("a copy does not come from a multiple of 16");
    if (order_of_run() == BACKWARD || (order_of_run() == SHUFFLED && random_number() % 2 == 0)) carry_out(c);
    else self->of->bulk_copies.push_back(c), wake(c.barrier); /* who waits already carries it out */
}

void await_round(uint64_t *at, int parity)
{
    std::vector<bulk_copy> &all = self->of->bulk_copies;
    barrier *const b = barrier_at(at);
    while (b->is_odd == (unsigned)parity) {
        size_t kept = 0, n = all.size();
        for (size_t i = 0; i < n; i++) {
            if (all[i].barrier == b) carry_out(all[i]);
            else all[kept++] = all[i];
        }
        all.resize(kept);
        if (b->is_odd == (unsigned)parity) wait_for(b);
    }
}

/* --- products of a warpgroup --- */

/* Of a column of a matrix, words 2 t and 2 t + 1, and those 8 further. The 16 bytes that hold them are where the address' bits 7 and 8
 * say, or bit 7 alone. */
void load_column(uint64_t matrix, int tile, int column, int t, uint32_t (&word)[2])
{
    const bool is_64 = matrix >> 63;
    const uint64_t begin = (matrix & (((uint64_t)1 << 48) - 1)) + (matrix >> 48 & 0x7fff) * 16 * (uint64_t)tile;
    for (int i = 0; i < 2; i++) {
        uint64_t at = begin + (uint64_t)(column * (is_64 ? 64 : 32) + 16 * i + 4 * t);
        at ^= (at >> 7 & (is_64 ? 3 : 1)) << 4;
        if (!is_shared((const void *)at, 4)) wrong("a warpgroup's product reads what is not in shared memory");
        word[i] = *(const uint32_t *)at;
    }
}

/* --- clusters --- */

const void *in_block_of_cluster(const void *p, int rank, size_t n_bytes)
{
    const block &mine = *self->of;
    if (rank < 0 || (unsigned)rank >= mine.n_in_cluster) wrong("a cluster has no block of that rank");
    const block &theirs = mine.cluster[rank];
    const size_t at = (size_t)((const uint8_t *)p - (const uint8_t *)mine.dynamic);
    if (at + n_bytes > mine.dynamic_bytes) wrong("what another block of a cluster has is not in dynamic shared memory");
    if (theirs.n_ended == theirs.threads.size()) wrong("shared memory is read of a block that has ended");
    return (const uint8_t *)theirs.dynamic + at;
}

} // namespace emulated
