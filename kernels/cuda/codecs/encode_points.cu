/* encode_points.cu - IQ1, IQ2 and IQ3 with and without importance, by the search of kernels/ref/iq_search.h: a warp per block of 256, eight
 * threads per sub-block, four sub-blocks at a time. Without importance, all weights are 1.
 *
 * Thread l of eight has value l of a group, and lane l of the reference's sums. The threads of a point (all eight, or four) share the list
 * of its cell, and the first point of least error wins, as there. All functions are called by the whole warp, because its threads meet in
 * every one of them. */
#include "kernels/cuda/codecs/codecs.cuh"
#include "kernels/cuda/codecs/points.cuh"
#include "kernels/cuda/device/launch.cuh"

enum { BLOCK = IQ_ELEMS, WARPS = 4, WARP = 32, TEAM = 8, TEAMS = WARP / TEAM };
enum { ERROR_ROW = WARP + 1, PADDED = BLOCK + BLOCK / 4 }; /* so that threads read and write different banks */
static const unsigned ALL = 0xffffffffu;

/* How a thread writes a block. */
#define X(ID, id, ...) \
    static __device__ void pack_points(const iq_block *b, apr_block_##ID *block) { iq_pack_##id(b, block); }
IQ_TYPES(X)
#undef X

/* A warp's block. */
template <apr_dtype D> struct shared_block {
    float x[PADDED], w[PADDED];
    uint8_t minus[BLOCK / TEAM];
    float error[TEAM][ERROR_ROW]; /* [value of a group][8 * team + level] */
    float nearest[WARP];
    float a[IQ_MAX_SUBS][IQ_FITS], b[IQ_MAX_SUBS][IQ_FITS], scale[IQ_MAX_SUBS]; /* step 1 of the search: iq_sub */
    int n_fits[IQ_MAX_SUBS];
    float least[IQ_MAX_SUBS], sum_a[IQ_MAX_SUBS], sum_b[IQ_MAX_SUBS]; /* step 3, for each sub-block */
    iq_block found[2];                                                /* the best one, and a trial */
    typename block_of<D>::type packed;
};

/* A thread's place. power: what a level of its value counts in a cell. */
struct place {
    int thread, lane, team, power;
};

static __device__ __forceinline__ int padded(int i) { return i + i / WARP * TEAM; }
/* What thread `lane` of the team has. */
template <class T> static __device__ __forceinline__ T of_lane(place p, T v, int lane)
{
    return __shfl_sync(ALL, v, p.thread - p.lane + lane);
}

static __device__ __forceinline__ float sum_of_team(float v)
{
    for (int step = TEAM / 2; step > 0; step /= 2) v += __shfl_xor_sync(ALL, v, step);
    return v;
}

/* The thread of N with the least value, the first of equals; *least: its value. */
template <int N> static __device__ __forceinline__ int first_least(int thread, float v, float *least)
{
    int best = thread % N;
#pragma unroll
    for (int step = N / 2; step > 0; step /= 2) {
        const float other = __shfl_xor_sync(ALL, v, step);
        const int at = __shfl_xor_sync(ALL, best, step);
        if (other < v || (other == v && at < best)) v = other, best = at;
    }
    *least = v;
    return best;
}

/* ---- a point ---- */

/* Level i of those with a shift. */
template <apr_dtype D> static __device__ __forceinline__ float level_of(int shift, int i)
{
    const iq_type *const t = points_of<D>::in_memory();
    float level = 0.0f;
#pragma unroll
    for (int l = 0; l < points_of<D>::type().n_levels; l++)
        if (i == l) level = has_shifts<D>() && shift ? t->level[1][l] : t->level[0][l];
    return level;
}

template <apr_dtype D> static __device__ __forceinline__ float boundary_of(int shift, int i)
{
    const iq_type *const t = points_of<D>::in_memory();
    return has_shifts<D>() && shift ? t->boundary[1][i] : t->boundary[0][i];
}

/* The number of the level nearest to a value. */
template <apr_dtype D> static __device__ __forceinline__ int level_near(float x, float s, int shift)
{
    int level = 0;
#pragma unroll
    for (int l = 0; l < points_of<D>::type().n_levels - 1; l++) level += x > s * boundary_of<D>(shift, l);
    return level;
}

/* Writes the errors of the thread's value at all levels, or at those of the other sign. Returns the least. */
template <apr_dtype D>
static __device__ __forceinline__ float put_errors(shared_block<D> &b, place p, float x, float w, float s, int shift, bool turned)
{
    float least = FLT_MAX;
#pragma unroll
    for (int l = 0; l < points_of<D>::type().n_levels; l++) {
        const float value = s * level_of<D>(shift, l), e = turned ? x + value : x - value, error = w * (e * e);
        b.error[p.lane][TEAM * p.team + l] = error;
        least = error < least ? error : least;
    }
    return least;
}

/* A point for the values of N threads, and its error. */
struct found_point {
    float error;
    uint32_t word;
};

/* The best point of a list, in all threads that have its values. In the order of error, then of the list; errors are not negative. */
template <apr_dtype D>
static __device__ found_point best_of_list(const shared_block<D> &b, place p, const uint16_t *__restrict__ list, int n)
{
    constexpr int N = points_of<D>::type().n_values, BITS = 16 / N;
    const float(*const error)[ERROR_ROW] = b.error + p.lane / N * N;
    const int column = TEAM * p.team;
    uint64_t best = ~(uint64_t)0;

    for (int k = p.lane % N; k < n; k += N) {
        const uint32_t word = __ldg(list + k);
        float pair[N / 2];
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
            const uint32_t two = word >> 2 * BITS * i;
            pair[i] = error[2 * i][column + (two & (BITS == 2 ? 3 : 7))] + error[2 * i + 1][column + (two >> BITS & (BITS == 2 ? 3 : 7))];
        }
        float sum = pair[0] + pair[1];
        if constexpr (N == 8) sum = sum + (pair[2] + pair[3]);
        const uint64_t key = (uint64_t)apr_f32_bits(sum) << 32 | (uint32_t)k << 16 | word;
        best = key < best ? key : best;
    }
#pragma unroll
    for (int step = N / 2; step > 0; step /= 2) {
        const uint64_t other = __shfl_xor_sync(ALL, best, step);
        best = other < best ? other : best;
    }
    return {apr_f32_from_bits((uint32_t)(best >> 32)), (uint32_t)best & 0xffff};
}

/* The best point of a cell's list, where there is one to be found. */
template <apr_dtype D>
static __device__ __forceinline__ found_point best_in_cell(const shared_block<D> &b, place p, const device_book &book, int cell,
                                                           bool is_asked)
{
    const uint32_t first = is_asked ? __ldg(book.first + cell) : 0, end = is_asked ? __ldg(book.first + cell + 1) : 0;
    return best_of_list<D>(b, p, book.list + first, (int)(end - first));
}

template <apr_dtype D> static __device__ __forceinline__ int cell_of(place p, int level)
{
    int cell = level * p.power;
#pragma unroll
    for (int step = points_of<D>::type().n_values / 2; step > 0; step /= 2) cell += __shfl_xor_sync(ALL, cell, step);
    return cell;
}

/* ---- a group ---- */

/* A thread's value with its weight, and the scale of its sub-block. */
struct group_value {
    float x, w, s;
    unsigned minus; /* signs of the group */
};

/* The best points if the sign of one value must be turned, as iq_turn_a_sign: *word is that of the thread's point. Returns which value's,
 * or -1 where the team must turn none. nearest: the least error of the thread's value. */
template <apr_dtype D>
static __device__ int turn_a_sign(shared_block<D> &b, place p, const device_book &book, const group_value &v, bool must, int cell,
                                  int level, float nearest, const found_point &as_is, uint32_t *word)
{
    constexpr int N = points_of<D>::type().n_values;
    const float other = N == 4 ? __shfl_xor_sync(ALL, as_is.error, 4) : 0.0f; /* the error of the group's other point */
    const float opposite = v.x + v.s * level_of<D>(0, 0), price = v.w * (opposite * opposite) - nearest;
    float low = 0.0f, least = FLT_MAX, unused;
    int best = 0;
    uint32_t best_word = 0;

    b.nearest[p.thread] = nearest;
    __syncwarp();
    for (int i = 0; i < N; i++) low += b.nearest[p.thread / N * N + i];
    const float bound = price + (low + other);
    const int cheapest = first_least<TEAM>(p.thread, bound, &unused);
#pragma unroll 1
    for (int k = -1; k < TEAM; k++) {
        const int i = k < 0 ? cheapest : k;
        const bool tries = of_lane(p, bound, i) < least && must && k != cheapest, is_mine = tries && p.lane == i;
        if (!__any_sync(ALL, tries)) continue;
        if (is_mine) put_errors(b, p, v.x, v.w, v.s, 0, true);
        __syncwarp();
        const int turned_cell = of_lane(p, cell - level * p.power, i);
        const found_point found = best_in_cell(b, p, book, turned_cell, tries && p.lane / N == i / N);
        const float error = of_lane(p, found.error, i) + of_lane(p, other, i);
        const uint32_t now = of_lane(p, found.word, i);
        if (tries && error < least) least = error, best = i, best_word = now;
        __syncwarp();
        if (is_mine) put_errors(b, p, v.x, v.w, v.s, 0, false);
    }
    if (must && p.lane / N == best / N) *word = best_word;
    return must ? best : -1;
}

/* A group's point or points, in the threads of each, and the level of a thread's value, with a sign where it is not the value's. */
struct group_fit {
    uint32_t word;
    unsigned bits;
    float level;
};

template <apr_dtype D> static __device__ __forceinline__ float level_in_word(place p, int shift, uint32_t word)
{
    constexpr int N = points_of<D>::type().n_values, BITS = 16 / N;
    return level_of<D>(shift, (int)(word >> BITS * (p.lane % N) & (BITS == 2 ? 3 : 7)));
}

/* As iq_fit_signed. */
template <apr_dtype D, bool IS_TRIAL>
static __device__ group_fit fit_signed(shared_block<D> &b, place p, const device_book &book, const group_value &v)
{
    constexpr bool EVEN = points_of<D>::type().signs == IQ_EVEN_SIGNS, IS_WHOLE = points_of<D>::type().n_values == TEAM;
    const bool is_odd = EVEN && (__popc(v.minus) & 1) != 0;
    const int level = level_near<D>(v.x, v.s, 0), cell = cell_of<D>(p, level);
    int turned = -1;

    const float nearest = put_errors(b, p, v.x, v.w, v.s, 0, false);
    __syncwarp();
    const found_point found = best_in_cell(b, p, book, cell, IS_TRIAL || !IS_WHOLE || !is_odd);
    uint32_t word = found.word;
    if constexpr (EVEN && !IS_TRIAL)
        if (__any_sync(ALL, is_odd)) turned = turn_a_sign(b, p, book, v, is_odd, cell, level, nearest, found, &word);
    group_fit fit = {word, v.minus, level_in_word<D>(p, 0, word)};
    if constexpr (EVEN && IS_TRIAL) {
        float unused;
        const int least = first_least<TEAM>(p.thread, v.w * v.x * fit.level, &unused);
        if (is_odd) turned = least;
    }
    if (turned >= 0) fit.bits ^= 1u << turned;
    if (turned == p.lane) fit.level = -fit.level;
    __syncwarp();
    return fit;
}

/* As iq_fit_shifted. shift: of the sub-block; a type with shifted points takes the better of both. */
template <apr_dtype D>
static __device__ group_fit fit_shifted(shared_block<D> &b, place p, const device_book &book, const group_value &v, int shift)
{
    constexpr bool BOTH = points_of<D>::type().signs == IQ_SHIFTED_POINTS;
    float least = FLT_MAX;
    group_fit fit = {0, 0, 0.0f};
#pragma unroll 1
    for (int k = BOTH ? 0 : shift; k <= (BOTH ? 1 : shift); k++) {
        const int cell = cell_of<D>(p, level_near<D>(v.x, v.s, k));
        put_errors(b, p, v.x, v.w, v.s, k, false);
        __syncwarp();
        const found_point found = best_in_cell(b, p, book, cell, true);
        if (found.error < least) least = found.error, fit.word = found.word, fit.bits = (unsigned)k;
        __syncwarp();
    }
    fit.level = level_in_word<D>(p, (int)fit.bits, fit.word);
    return fit;
}

/* ---- a sub-block at a scale ---- */

/* The sums of a sub-block's points. The points of its group l are in thread l. */
struct sub_fit {
    float a, b;
    uint32_t words;
    unsigned bits;
};

template <apr_dtype D, bool IS_TRIAL>
static __device__ sub_fit fit_sub(shared_block<D> &b, place p, const device_book &book, int sub, int shift, float s)
{
    constexpr iq_type t = points_of<D>::type();
    sub_fit fit = {0.0f, 0.0f, 0, 0};
#pragma unroll 1
    for (int g = 0; g < t.sub_elems / TEAM; g++) {
        const int at = sub * t.sub_elems + TEAM * g, i = padded(at + p.lane);
        const group_value v = {b.x[i], b.w[i], s, b.minus[at / TEAM]};
        group_fit group;
        if constexpr (has_shifts<D>()) group = fit_shifted<D>(b, p, book, v, shift);
        else group = fit_signed<D, IS_TRIAL>(b, p, book, v);
        fit.a += v.w * v.x * group.level;
        fit.b += v.w * (group.level * group.level);
        if constexpr (IS_TRIAL) continue;
        uint32_t words = group.word;
        if constexpr (t.n_values == 4) words = of_lane(p, group.word, 0) | of_lane(p, group.word, 4) << 16;
        if (p.lane == g) fit.words = words, fit.bits = group.bits;
    }
    fit.a = sum_of_team(fit.a);
    fit.b = sum_of_team(fit.b);
    return fit;
}

template <apr_dtype D> static __device__ constexpr int shifts_of(void) { return points_of<D>::type().signs == IQ_SHIFTED_SUBS ? 2 : 1; }

/* Step 1. The last trial is at the best scale of those before it. */
template <apr_dtype D> static __device__ void search_sub(shared_block<D> &b, place p, const device_book &book, int sub)
{
    constexpr iq_type t = points_of<D>::type();
    float most = 0.0f, best = 0.0f, best_gain = 0.0f;
    int n = 0;

    for (int i = p.lane; i < t.sub_elems; i += TEAM) most = fmaxf(most, fabsf(b.x[padded(sub * t.sub_elems + i)]));
    for (int step = TEAM / 2; step > 0; step /= 2) most = fmaxf(most, __shfl_xor_sync(ALL, most, step));
    const bool is_zero = !(most > 0x1p-40f);
#pragma unroll 1
    for (int k = 0; k <= t.trials; k++) {
        const bool counts = k < t.trials ? !is_zero : n > 0;
        const float s = k < t.trials ? iq_trial_scale(points_of<D>::in_memory(), most, k) : best;
        for (int shift = 0; shift < shifts_of<D>(); shift++) {
            const sub_fit fit = fit_sub<D, true>(b, p, book, sub, shift, s);
            if (!counts || !(fit.a > 0.0f && fit.b > 0.0f)) continue;
            const float scale = fit.a / fit.b, gain = fit.a * scale;
            if (p.lane == 0) b.a[sub][n] = fit.a, b.b[sub][n] = fit.b;
            n++;
            if (gain > best_gain) best_gain = gain, best = scale;
        }
    }
    if (p.lane == 0) b.scale[sub] = best, b.n_fits[sub] = n;
}

/* ---- a block ---- */

/* Step 2: a thread a candidate for d. */
template <apr_dtype D> static __device__ uint16_t best_candidate(const shared_block<D> &b, place p)
{
    constexpr iq_type t = points_of<D>::type();
    float largest = 0.0f, error = 0.0f, unused;

    static_assert((int)IQ_CANDIDATES == (int)WARP, "a thread each");
    for (int sub = 0; sub < BLOCK / t.sub_elems; sub++) largest = b.scale[sub] > largest ? b.scale[sub] : largest;
    if (!(largest > 0.0f)) return 0;
    const uint16_t half = iq_candidate(points_of<D>::in_memory(), largest, p.thread);
    const float d = apr_f16_to_f32(half);
    for (int sub = 0; sub < BLOCK / t.sub_elems; sub++) {
        if (b.n_fits[sub] == 0) continue;
        const float below = iq_stored_below(points_of<D>::in_memory(), b.scale[sub], d);
        const float low = iq_scale(points_of<D>::in_memory(), d, below), high = iq_scale(points_of<D>::in_memory(), d, below + 1.0f);
        float least = FLT_MAX;
        for (int k = 0; k < b.n_fits[sub]; k++) {
            const float sum_a = 2.0f * b.a[sub][k], sum_b = b.b[sub][k];
            const float at_low = low * (low * sum_b - sum_a), at_high = high * (high * sum_b - sum_a);
            least = at_low < least ? at_low : least;
            least = at_high < least ? at_high : least;
        }
        error += least;
    }
    return __shfl_sync(ALL, half, first_least<WARP>(p.thread, error, &unused));
}

/* Step 3 for a sub-block: the better of two stored scales and all points for them. */
template <apr_dtype D> static __device__ void choose_scale(shared_block<D> &b, place p, const device_book &book, int sub, iq_block *block)
{
    constexpr iq_type t = points_of<D>::type();
    const float d = apr_f16_to_f32(block->d), below = iq_stored_below(points_of<D>::in_memory(), b.scale[sub], d);
    float least = FLT_MAX, sum_a = 0.0f, sum_b = 0.0f;
#pragma unroll 1
    for (int k = 0; k < 2 * shifts_of<D>(); k++) {
        const float stored = below + (float)(k / shifts_of<D>()), s = iq_scale(points_of<D>::in_memory(), d, stored);
        const sub_fit fit = fit_sub<D, false>(b, p, book, sub, k % shifts_of<D>(), s);
        const float error = s * (s * fit.b - 2.0f * fit.a), m = iq_multiplier(points_of<D>::in_memory(), stored) * t.factor;
        if (!(error < least)) continue;
        least = error;
        sum_a = m * fit.a;
        sum_b = m * m * fit.b;
        if (p.lane == 0) block->stored[sub] = (uint8_t)stored;
        if (p.lane < t.sub_elems / TEAM)
            block->group[sub * t.sub_elems / TEAM + p.lane] = {{(uint16_t)fit.words, (uint16_t)(fit.words >> 16)}, (uint8_t)fit.bits};
    }
    if (p.lane == 0) b.least[sub] = least, b.sum_a[sub] = sum_a, b.sum_b[sub] = sum_b;
}

/* Chooses the scales of a block for its d. Returns the best d for the points, as it is stored. */
template <apr_dtype D> static __device__ uint16_t choose_scales(shared_block<D> &b, place p, const device_book &book, iq_block *block)
{
    constexpr int SUBS = BLOCK / points_of<D>::type().sub_elems;
    float error = 0.0f, sum_a = 0.0f, sum_b = 0.0f;
#pragma unroll 1
    for (int sub = p.team; sub < SUBS; sub += TEAMS) choose_scale(b, p, book, sub, block);
    __syncwarp();
    for (int sub = 0; sub < SUBS; sub++) error += b.least[sub], sum_a += b.sum_a[sub], sum_b += b.sum_b[sub];
    if (p.thread == 0) block->error = error;
    __syncwarp();
    return sum_a > 0.0f ? iq_stored_scale(sum_a / sum_b) : (uint16_t)0;
}

/* Returns the best block, or one with d = 0. */
template <apr_dtype D> static __device__ iq_block *search_block(shared_block<D> &b, place p, const device_book &book)
{
    iq_block *best = &b.found[0], *now = &b.found[1];
#pragma unroll 1
    for (int sub = p.team; sub < BLOCK / points_of<D>::type().sub_elems; sub += TEAMS) search_sub(b, p, book, sub);
    if (p.thread == 0) best->d = 0, best->error = 0.0f;
    __syncwarp();
    uint16_t d = best_candidate(b, p);
#pragma unroll 1
    for (int round = 0; round < IQ_ROUNDS && d != 0; round++) {
        if (p.thread == 0) now->d = d;
        __syncwarp();
        const uint16_t fitted = choose_scales(b, p, book, now);
        if (!(now->error < best->error)) break;
        iq_block *const worse = best;
        best = now, now = worse;
        if (fitted == d) break;
        d = fitted;
    }
    return best;
}

/* Values, weights and signs of a block. */
template <apr_dtype D> static __device__ void load_block(shared_block<D> &b, place p, const float *src, const float *columns)
{
    const block_weights weigh = columns != nullptr ? weights_of_block<BLOCK>(ALL, p.lane, columns) : block_weights{1.0f, true};

    for (int at = p.thread; at < BLOCK; at += WARP) {
        const float x = apr_clamp_finite(src[at], iq_limit(points_of<D>::in_memory()));
        const unsigned minus = __ballot_sync(ALL, x < 0.0f);
        b.x[padded(at)] = !has_shifts<D>() && x < 0.0f ? -x : x;
        b.w[padded(at)] = columns != nullptr ? weigh(columns[at]) : 1.0f;
        if (p.thread < TEAMS) b.minus[at / TEAM - at % WARP / TEAM + p.thread] = (uint8_t)(minus >> TEAM * p.thread);
    }
    __syncwarp();
}

/* Zeros have d = 0, and the first point everywhere. */
template <apr_dtype D>
static __device__ void store_block(shared_block<D> &b, place p, const device_book &book, iq_block *block, uint8_t *dst)
{
    constexpr int N = points_of<D>::type().n_values;
    const bool is_zero = block->d == 0;
    for (int h = 0; h < TEAM / N && !is_zero; h++) { /* a thread a group */
        const uint32_t word = block->group[p.thread].word[h];
        int cell = 0;
        for (int i = N - 1; i >= 0; i--) cell = cell * points_of<D>::type().n_levels + (int)(word >> 16 / N * i & (N == 8 ? 3 : 7));
        block->group[p.thread].word[h] = __ldg(book.index + cell);
    }
    __syncwarp();
    if (p.thread == 0 && !is_zero) pack_points(block, &b.packed);
    __syncwarp();
    const uint8_t *const bytes = (const uint8_t *)&b.packed;
    for (int i = p.thread; i < (int)sizeof b.packed; i += WARP) dst[i] = is_zero ? (uint8_t)0 : bytes[i];
}

template <apr_dtype D>
static __global__ void __launch_bounds__(WARPS *WARP, 4)
    k_encode_points(const float *src, codec_importance importance, device_book book, uint8_t *dst, int64_t n_blocks)
{
    typedef shared_block<D> block_of_warp;
    __shared__ block_of_warp blocks[WARPS];
    const int thread = (int)threadIdx.x % WARP, lane = thread % TEAM;
    const int64_t at = (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP;
    shared_block<D> &b = blocks[threadIdx.x / WARP];
    place p = {thread, lane, thread / TEAM, 1};

    if (at >= n_blocks) return; /* whole warps */
    for (int i = 0; i < lane % points_of<D>::type().n_values; i++) p.power *= points_of<D>::type().n_levels;
    load_block(b, p, src + at * BLOCK, importance.columns != nullptr ? importance_of_block(importance, at * BLOCK) : nullptr);
    iq_block *const best = search_block(b, p, book);
    store_block(b, p, book, best, dst + at * (int64_t)sizeof b.packed);
}

template <apr_dtype D>
static cudaError_t launch_by(const float *src, const codec_importance *importance, void *dst, int64_t n_elems, cudaStream_t stream)
{
    const int64_t n_blocks = n_elems / BLOCK;
    const unsigned n = blocks_of(n_blocks, (int64_t)WARPS);
    device_book book;
    const cudaError_t error = book_on_device(points_of<D>::BOOK, stream, &book);
    if (error != cudaSuccess) return error;
    k_encode_points<D><<<n, WARPS * WARP, 0, stream>>>(src, *importance, book, (uint8_t *)dst, n_blocks);
    return cudaGetLastError();
}

template <apr_dtype D> static cudaError_t launch(const float *src, void *dst, int64_t n_elems, cudaStream_t stream)
{
    const codec_importance none = {};
    return launch_by<D>(src, &none, dst, n_elems, stream);
}

launch_encode_fn encoder_of_points(apr_dtype dtype)
{
    switch (dtype) {
#define X(ID, ...) \
    case APR_##ID: return launch<APR_##ID>;
        IQ_TYPES(X)
#undef X
    default: return nullptr;
    }
}

launch_encode_by_fn encoder_by_of_points(apr_dtype dtype)
{
    switch (dtype) {
#define X(ID, ...) \
    case APR_##ID: return launch_by<APR_##ID>;
        IQ_TYPES(X)
#undef X
    default: return nullptr;
    }
}
