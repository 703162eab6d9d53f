/* descend.cu - chooses each sub-block's codes again, one row per warp; neighbouring scales are tried in parallel. A sub-block has 16 or 32
 * columns, one per lane, or is a whole block of 64 to 256 columns, up to eight per lane. */
#include "kernels/cuda/feedback/feedback.cuh"

enum { PANEL = FEEDBACK_PANEL, WARPS = FEEDBACK_WARPS, AT_ONCE = 5 /* trials of a pass, where there are more */ };

/* Changes of a sub-block's scale and minimum, or of d; the first changes nothing. Same order as quant/feedback/feedback.c. */
struct nudge {
    int scale, min;
    float factor;
};

/* The block's parameters of this sub-block after a nudge. */
struct nudged {
    uint16_t d;
    int scale, min;
};

/* What a type tries: nothing else, factors of d, neighbours one at a time, or all within its reach. */
enum trial_kind { AS_IS, FACTORS, NEIGHBOURS, REACH };

template <trial_kind KIND> static __device__ __forceinline__ nudge nudge_of(const apr_cuda_grid &grid, int t)
{
    if (KIND == AS_IS || t == 0) return {0, 0, 1.0f};
    if (KIND == FACTORS) return {0, 0, t == 1 ? 0.94f : t == 2 ? 0.97f : t == 3 ? 1.03f : 1.06f};
    if (KIND == REACH) { /* minimums faster, without the middle one, which is the first trial */
        const int wide = 2 * grid.min_reach + 1, middle = grid.scale_reach * wide + grid.min_reach, at = t <= middle ? t - 1 : t;
        return {at / wide - grid.scale_reach, at % wide - grid.min_reach, 1.0f};
    }
    if (t < 3) return {t == 1 ? 1 : -1, 0, 1.0f};
    if (t < 5) return {0, t == 3 ? 1 : -1, 1.0f};
    return {t == 5 ? 1 : -1, t == 5 ? 1 : -1, 1.0f};
}

/* d times a factor; d as it is where that would not be finite. */
static __device__ __forceinline__ uint16_t scaled_half(uint16_t d, float factor)
{
    const uint16_t scaled = apr_f32_to_f16(__fmul_rn(apr_f16_to_f32(d), factor));
    return factor != 1.0f && (scaled & 0x7c00) != 0x7c00 ? scaled : d;
}

static __device__ __forceinline__ int between(int x, int low, int high) { return x < low ? low : x > high ? high : x; }

template <trial_kind KIND> static __device__ __forceinline__ nudged make_nudged(const apr_cuda_grid &grid, nudged from, int t)
{
    const nudge by = nudge_of<KIND>(grid, t);
    if (t == 0) return from;
    return {scaled_half(from.d, by.factor), between(from.scale + by.scale, grid.scale_low, grid.scale_high),
            between(from.min + by.min, grid.min_low, grid.min_high)};
}

/* The best trial of a sub-block so far, as a lane has it. */
struct best_trial {
    int number;
    float gain, code, left;
};

/* One sub-block of SUB columns from column `at` on. Returns the decrease of the lane's error. TRIALS: of a pass; only REACH has more than
 * one pass. */
template <int SUB, int TRIALS, trial_kind KIND, grid_codes CODES>
static __device__ __forceinline__ float descend_sub_block(const apr_cuda_feedback_rows &r, const float *__restrict__ h, int64_t n,
                                                          int64_t row, int64_t at, float g)
{
    const int lane = (int)threadIdx.x % 32, n_trials = KIND == REACH ? (2 * r.grid.scale_reach + 1) * (2 * r.grid.min_reach + 1) : TRIALS;
    const bool is_there = lane < SUB;
    const int64_t here = row * n + at + (is_there ? lane : 0), sub = row * (n / SUB) + at / SUB,
                  block = row * (n / r.grid.elems) + at / r.grid.elems;
    const float *const corner = h + at * n + at + (is_there ? lane : 0);
    const float weight = r.weight[here], error = r.error[here], inverse = 1.0f / __ldg(h + (at + (is_there ? lane : 0)) * (n + 1));
    const nudged from = {r.d[block], r.scale[sub], r.min[sub]};
    const uint16_t dmin = r.dmin[block];
    best_trial best = {0, 0.0f, 0.0f, 0.0f};

#pragma unroll 1
    for (int first = 0; first < n_trials; first += TRIALS) {
        grid_step step[TRIALS];
        float now[TRIALS], code[TRIALS], left[TRIALS];
#pragma unroll
        for (int t = 0; t < TRIALS; t++) {
            const nudged to = make_nudged<KIND>(r.grid, from, first + t < n_trials ? first + t : 0);
            step[t] = step_of(r.grid, to.d, dmin, to.scale, to.min);
            now[t] = g;
            code[t] = left[t] = 0.0f;
        }
#pragma unroll(CODES == CODES_IQ4 ? 1 : 2)
        for (int k = 0; k < SUB; k++) {
            const float row_k = __ldg(corner + k * n);
#pragma unroll
            for (int t = 0; t < TRIALS; t++) {
                const float q = nearest_code<CODES>(r.grid, step[t], weight - error + now[t] * inverse), e = weight - value_of(step[t], q);
                if (lane == k) code[t] = q, left[t] = e;
                now[t] -= row_k * __shfl_sync(0xffffffffu, error - e, k);
            }
        }
        /* a change x of the values lowers the objective by x (2 g - H x), and H x is the decrease of g */
#pragma unroll
        for (int t = 0; t < TRIALS; t++) {
            const float gain = warp_sum(is_there ? (error - left[t]) * (g + now[t]) : 0.0f);
            if (first + t > 0 && !(gain > best.gain)) continue;
            best = {first + t, gain, code[t], left[t]};
        }
    }
    if (!(best.gain > 0.0f)) return 0.0f;
    if (is_there) {
        r.code[here] = (int8_t)best.code;
        r.error[here] = best.left;
    }
    if (best.number > 0 && lane == 0) {
        const nudged to = make_nudged<KIND>(r.grid, from, best.number);
        r.d[block] = to.d;
        r.scale[sub] = (int16_t)to.scale;
        r.min[sub] = (int16_t)to.min;
    }
    __syncwarp();
    return is_there ? error - best.left : 0.0f;
}

template <int SUB, int TRIALS, trial_kind KIND, grid_codes CODES>
static __global__ void __launch_bounds__(32 * WARPS, 2)
    k_descend(apr_cuda_feedback_rows r, const float *__restrict__ h, int64_t n, int64_t first, int width)
{
    __shared__ float panels[WARPS][PANEL];
    const int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const int lane = (int)threadIdx.x % 32;
    float *const g = panels[threadIdx.x / 32];

    if (row >= r.n_rows) return; /* warps do not wait for each other */
    for (int c = lane; c < width; c += 32) g[c] = r.panel[row * PANEL + c];
    __syncwarp();
    for (int begin = 0; begin < width; begin += SUB) {
        const float lost = descend_sub_block<SUB, TRIALS, KIND, CODES>(r, h, n, row, first + begin, lane < SUB ? g[begin + lane] : 0.0f);
        update_later(h, n, first, begin, begin + SUB, begin + SUB, width, lost, g);
    }
}

/* ---- blocks with one scale and codes of two bits ---- */

/* The trials of a block as a lane has them. The codes of a chunk, from -1 to 2, are two bits of `codes`. */
template <int TRIALS, int CHUNKS> struct block_trials {
    grid_step step[TRIALS];
    float now[TRIALS][CHUNKS], gain[TRIALS];
    uint32_t codes[TRIALS];
};

/* Chooses the codes of chunk I, 32 columns, one after another. Earlier chunks of `now` are not updated any more, because they are not needed:
 * a change x of the values of this chunk lowers the objective by x (2 g - H x), where g has the changes of earlier chunks, and H x is the
 * decrease of g by x alone. */
template <int I, int TRIALS, int CHUNKS, grid_codes CODES>
static __device__ __forceinline__ void try_chunk(const apr_cuda_feedback_rows &r, const float *__restrict__ corner, int64_t n,
                                                 float inverse, int64_t here, block_trials<TRIALS, CHUNKS> &trials)
{
    const int lane = (int)threadIdx.x % 32;
    const float weight = r.weight[here], error = r.error[here];
    float code[TRIALS], before[TRIALS];

#pragma unroll
    for (int t = 0; t < TRIALS; t++) code[t] = 0.0f, before[t] = trials.now[t][I];
#pragma unroll(CHUNKS > 2 ? 1 : 2)
    for (int k = 0; k < 32; k++) {
        float row_k[CHUNKS];
#pragma unroll
        for (int i = I; i < CHUNKS; i++) row_k[i] = __ldg(corner + k * n + 32 * i);
#pragma unroll
        for (int t = 0; t < TRIALS; t++) {
            const grid_step &step = trials.step[t];
            const float q = nearest_code<CODES>(r.grid, step, weight - error + trials.now[t][I] * inverse), e = weight - value_of(step, q);
            const float change = __shfl_sync(0xffffffffu, error - e, k);
            if (lane == k) code[t] = q;
#pragma unroll
            for (int i = I; i < CHUNKS; i++) trials.now[t][i] -= row_k[i] * change;
        }
    }
#pragma unroll
    for (int t = 0; t < TRIALS; t++) {
        const float left = weight - value_of(trials.step[t], code[t]);
        trials.gain[t] += (error - left) * (before[t] + trials.now[t][I]);
        trials.codes[t] |= (uint32_t)((int)code[t] + 1) << 2 * I;
    }
}

/* Chunk I and those after it. */
template <int I, int TRIALS, int CHUNKS, grid_codes CODES>
static __device__ __forceinline__ void try_chunks(const apr_cuda_feedback_rows &r, const float *__restrict__ h, int64_t n, int64_t at,
                                                  int64_t here, block_trials<TRIALS, CHUNKS> &trials)
{
    const int lane = (int)threadIdx.x % 32;
    const int64_t column = at + 32 * I;
    if constexpr (I < CHUNKS) {
        try_chunk<I, TRIALS, CHUNKS, CODES>(r, h + column * n + at + lane, n, 1.0f / __ldg(h + (column + lane) * (n + 1)), here + 32 * I,
                                            trials);
        try_chunks<I + 1, TRIALS, CHUNKS, CODES>(r, h, n, at, here, trials);
    }
}

/* The block of SUB columns from `begin` of the panel on; g of the columns after it is updated. */
template <int SUB, int TRIALS, trial_kind KIND, grid_codes CODES>
static __device__ __forceinline__ void descend_block(const apr_cuda_feedback_rows &r, const float *__restrict__ h, int64_t n, int64_t row,
                                                     int64_t first, int begin, int width, float *g)
{
    enum { CHUNKS = SUB / 32 };
    const int lane = (int)threadIdx.x % 32;
    const int64_t at = first + begin, here = row * n + at + lane, block = row * (n / SUB) + at / SUB;
    const uint16_t d = r.d[block];
    block_trials<TRIALS, CHUNKS> trials;
    float best_gain = 0.0f, best_step = 0.0f;
    uint32_t best_codes = 0;
    int best = 0;

#pragma unroll
    for (int t = 0; t < TRIALS; t++) {
        trials.step[t] = step_of(r.grid, scaled_half(d, nudge_of<KIND>(r.grid, t).factor), 0, 1, 0);
        trials.gain[t] = 0.0f;
        trials.codes[t] = 0;
#pragma unroll
        for (int i = 0; i < CHUNKS; i++) trials.now[t][i] = g[begin + 32 * i + lane];
    }
    try_chunks<0, TRIALS, CHUNKS, CODES>(r, h, n, at, here, trials);
#pragma unroll
    for (int t = 0; t < TRIALS; t++) {
        const float gain = warp_sum(trials.gain[t]);
        if (t > 0 && !(gain > best_gain)) continue;
        best = t, best_gain = gain, best_step = trials.step[t].step, best_codes = trials.codes[t];
    }
    if (!(best_gain > 0.0f)) return;
#pragma unroll 1
    for (int i = 0; i < CHUNKS; i++) {
        const float code = (float)(int)(best_codes >> 2 * i & 3) - 1.0f, before = r.error[here + 32 * i];
        const float left = r.weight[here + 32 * i] - __fmul_rn(best_step, code);
        r.code[here + 32 * i] = (int8_t)code;
        r.error[here + 32 * i] = left;
        if (SUB == PANEL) continue; /* no column is after the block */
        update_later(h, n, first, begin + 32 * i, begin + 32 * i + 32, begin + SUB, width, before - left, g);
    }
    if (best > 0 && lane == 0) r.d[block] = scaled_half(d, nudge_of<KIND>(r.grid, best).factor);
    __syncwarp();
}

template <int SUB, int TRIALS, trial_kind KIND, grid_codes CODES>
static __global__ void __launch_bounds__(32 * WARPS, 2)
    k_descend_blocks(apr_cuda_feedback_rows r, const float *__restrict__ h, int64_t n, int64_t first, int width)
{
    __shared__ float panels[WARPS][PANEL];
    const int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    float *const g = panels[threadIdx.x / 32];

    if (row >= r.n_rows) return; /* warps do not wait for each other */
    for (int c = (int)threadIdx.x % 32; c < width; c += 32) g[c] = r.panel[row * PANEL + c];
    __syncwarp();
    for (int begin = 0; begin < width; begin += SUB) descend_block<SUB, TRIALS, KIND, CODES>(r, h, n, row, first, begin, width, g);
}

typedef void (*descend_fn)(apr_cuda_feedback_rows r, const float *h, int64_t n, int64_t first, int width);

/* Of Q2_0, Q1_0, and of TQ1_0 and TQ2_0. */
static descend_fn kernel_of_blocks(int elems, bool rescale)
{
    switch (elems) {
    case 64: return rescale ? k_descend_blocks<64, 5, FACTORS, CODES_WHOLE> : k_descend_blocks<64, 1, AS_IS, CODES_WHOLE>;
    case SIGNS_ELEMS:
        return rescale ? k_descend_blocks<SIGNS_ELEMS, 5, FACTORS, CODES_SIGNS> : k_descend_blocks<SIGNS_ELEMS, 1, AS_IS, CODES_SIGNS>;
    default: return rescale ? k_descend_blocks<PANEL, 5, FACTORS, CODES_WHOLE> : k_descend_blocks<PANEL, 1, AS_IS, CODES_WHOLE>;
    }
}

/* The kernel of a type; without rescale no other scales are tried. */
static descend_fn kernel_of(const apr_cuda_grid *grid, bool rescale)
{
    const bool reaches = grid->scale_reach > 0;
    if (grid->sub_elems > 32) return kernel_of_blocks(grid->sub_elems, rescale);
    if (grid->is_iq4) {
        if (!rescale) return k_descend<32, 1, AS_IS, CODES_IQ4>;
        return reaches ? k_descend<32, AT_ONCE, REACH, CODES_IQ4> : k_descend<32, 5, FACTORS, CODES_IQ4>;
    }
    if (grid->is_e2m1) {
        if (grid->sub_elems == 16) return rescale ? k_descend<16, AT_ONCE, REACH, CODES_E2M1> : k_descend<16, 1, AS_IS, CODES_E2M1>;
        return rescale ? k_descend<32, 3, NEIGHBOURS, CODES_E2M1> : k_descend<32, 1, AS_IS, CODES_E2M1>;
    }
    if (grid->sub_elems == 16) {
        if (!rescale) return k_descend<16, 1, AS_IS, CODES_WHOLE>;
        return reaches ? k_descend<16, AT_ONCE, REACH, CODES_WHOLE> : k_descend<16, 3, NEIGHBOURS, CODES_WHOLE>;
    }
    if (!rescale) return k_descend<32, 1, AS_IS, CODES_WHOLE>;
    return grid->steps == GRID_HALF ? k_descend<32, 5, FACTORS, CODES_WHOLE> : k_descend<32, 7, NEIGHBOURS, CODES_WHOLE>;
}

apr_status apr_cuda_row_descend(apr_cuda_solver *s, const apr_cuda_feedback_rows *r, bool rescale, apr_error *err)
{
    const int64_t n = r->factors->n;
    if (r->grid.points != APR_DTYPE_COUNT) return apr_cuda_points_descend(s, r, rescale, err);
    const descend_fn kernel = kernel_of(&r->grid, rescale);
    APR_TRY(apr_cuda_make_current(s->device, err));
    apr_cuda_begin(s->device, "descent of %lld rows of %lld", (long long)r->n_rows, (long long)n);
    for (int64_t first = 0; first < n; first += PANEL) {
        const int64_t width = n - first < PANEL ? n - first : (int64_t)PANEL;
        APR_TRY(apr_cuda_panel_of_errors(s, r, first, width, PRODUCT_ROUNDED, err));
        kernel<<<blocks_of_rows(r->n_rows), 32 * WARPS, 0, s->device->stream>>>(*r, r->factors->h, n, first, (int)width);
        APR_TRY(apr_cuda_outcome(s->device, cudaGetLastError(), err));
    }
    return APR_OK;
}
