/* refit.cu - d and dmin of each block by least squares with fixed codes: one row per warp. */
#include "kernels/cuda/feedback/feedback.cuh"

enum { PANEL = FEEDBACK_PANEL, WARPS = FEEDBACK_WARPS };

/* Sums of a block's values d * a - dmin * c: products with g and H. */
struct fit_sums {
    double ga, gc, aa, ac, cc;
};

/* Shared memory of one row. */
struct fit_memory {
    float g[PANEL], a[PANEL], c[PANEL];
};

/* The decrease of the objective when d grows by x and dmin by y. */
static __device__ double gain_of(const fit_sums &s, double x, double y)
{
    return 2.0 * (x * s.ga - y * s.gc) - (x * x * s.aa - 2.0 * x * y * s.ac + y * y * s.cc);
}

static __device__ bool is_finite_half(uint16_t half) { return (half & 0x7c00) != 0x7c00; }

/* The FP16 numbers nearest to the minimum. False: one would be infinite, or there is no improvement. */
static __device__ bool fit_block(const apr_cuda_grid &grid, const fit_sums &s, uint16_t *d_half, uint16_t *dmin_half)
{
    const double d = (double)apr_f16_to_f32(*d_half), dmin = (double)apr_f16_to_f32(*dmin_half);
    const double det = grid.fits_min ? s.aa * s.cc - s.ac * s.ac : 0.0;
    double x = s.aa > 0.0 ? s.ga / s.aa : 0.0, y = 0.0;

    if (det > 1e-9 * s.aa * s.cc) {
        x = (s.ga * s.cc - s.gc * s.ac) / det;
        y = (s.ga * s.ac - s.gc * s.aa) / det;
    }
    if (!grid.min_is_signed && dmin + y < 0.0) y = -dmin;
    const uint16_t new_d = apr_f32_to_f16((float)(d + x)), new_dmin = apr_f32_to_f16((float)(dmin + y));
    if (!is_finite_half(new_d) || !is_finite_half(new_dmin) || (new_d == *d_half && new_dmin == *dmin_half)) return false;
    if (!(gain_of(s, (double)apr_f16_to_f32(new_d) - d, (double)apr_f16_to_f32(new_dmin) - dmin) > 0.0)) return false;
    *d_half = new_d;
    *dmin_half = new_dmin;
    return true;
}

/* The sums of the block of ELEMS columns from `begin` of the panel on, for which m->a and m->c are filled. The same in all lanes. */
template <int ELEMS> static __device__ fit_sums sum_fit(const fit_memory *m, const float *__restrict__ h, int64_t n, int64_t at, int begin)
{
    enum { CHUNKS = ELEMS / 32 };
    const int lane = (int)threadIdx.x % 32;
    float ha[CHUNKS] = {}, hc[CHUNKS] = {};
    fit_sums s = {};

    for (int k = 0; k < ELEMS; k++) {
        const float a = m->a[begin + k], c = m->c[begin + k];
        const float *const row = h + (at + k) * n + at + lane;
#pragma unroll
        for (int i = 0; i < CHUNKS; i++) {
            const float v = __ldg(row + 32 * i);
            ha[i] += v * a;
            hc[i] += v * c;
        }
    }
#pragma unroll
    for (int i = 0; i < CHUNKS; i++) {
        const int j = begin + 32 * i + lane;
        s.ga += (double)m->g[j] * (double)m->a[j];
        s.gc += (double)m->g[j] * (double)m->c[j];
        s.aa += (double)ha[i] * (double)m->a[j];
        s.ac += (double)hc[i] * (double)m->a[j];
        s.cc += (double)hc[i] * (double)m->c[j];
    }
    return {warp_sum(s.ga), warp_sum(s.gc), warp_sum(s.aa), warp_sum(s.ac), warp_sum(s.cc)};
}

template <int ELEMS>
static __global__ void __launch_bounds__(32 * WARPS, 2)
    k_refit(apr_cuda_feedback_rows r, const float *__restrict__ h, int64_t n, int64_t first, int width)
{
    __shared__ fit_memory memories[WARPS];
    const int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const int lane = (int)threadIdx.x % 32, sub_elems = r.grid.sub_elems;
    fit_memory *const m = &memories[threadIdx.x / 32];

    if (row >= r.n_rows) return; /* there is no barrier of the thread block */
    for (int c = lane; c < width; c += 32) {
        const int64_t sub = row * (n / sub_elems) + (first + c) / sub_elems;
        m->g[c] = r.panel[row * PANEL + c];
        m->a[c] = multiple_of(r.grid, r.scale[sub]) * (float)r.code[row * n + first + c];
        m->c[c] = r.grid.fits_min ? (float)r.min[sub] : 0.0f;
    }
    __syncwarp();
    for (int begin = 0; begin < width; begin += ELEMS) {
        const int64_t block = row * (n / ELEMS) + (first + begin) / ELEMS;
        uint16_t d = r.d[block], dmin = r.dmin[block];
        const fit_sums s = sum_fit<ELEMS>(m, h, n, first + begin, begin);
        if (!fit_block(r.grid, s, &d, &dmin)) continue; /* all lanes agree */
        for (int c = begin + lane; c < begin + ELEMS; c += 32) {
            const int64_t here = row * n + first + c, sub = row * (n / sub_elems) + (first + c) / sub_elems;
            const float before = r.error[here];
            const float left = r.weight[here] - value_of(step_of(r.grid, d, dmin, r.scale[sub], r.min[sub]), (float)r.code[here]);
            r.error[here] = left;
            if (ELEMS == PANEL) continue; /* no column is after the block */
            update_later(h, n, first, c - lane, c - lane + 32, begin + ELEMS, width, before - left, m->g);
        }
        __syncwarp();
        if (lane == 0) r.d[block] = d, r.dmin[block] = dmin;
        __syncwarp();
    }
}

typedef void (*refit_fn)(apr_cuda_feedback_rows r, const float *h, int64_t n, int64_t first, int width);

static refit_fn kernel_of(int elems)
{
    switch (elems) {
    case 32: return k_refit<32>;
    case 64: return k_refit<64>;
    case 128: return k_refit<128>;
    default: return k_refit<PANEL>;
    }
}

apr_status apr_cuda_row_refit(apr_cuda_solver *s, const apr_cuda_feedback_rows *r, apr_error *err)
{
    const int64_t n = r->factors->n;
    const refit_fn kernel = kernel_of(r->grid.elems);
    if (r->grid.steps == GRID_EXPONENT || r->grid.steps == GRID_E4M3) return APR_OK; /* without d */
    APR_TRY(apr_cuda_make_current(s->device, err));
    apr_cuda_begin(s->device, "refitting the scales of %lld rows of %lld", (long long)r->n_rows, (long long)n);
    for (int64_t first = 0; first < n; first += PANEL) {
        const int64_t width = n - first < PANEL ? n - first : (int64_t)PANEL;
        APR_TRY(apr_cuda_panel_of_errors(s, r, first, width, PRODUCT_EXACT, err));
        kernel<<<blocks_of_rows(r->n_rows), 32 * WARPS, 0, s->device->stream>>>(*r, r->factors->h, n, first, (int)width);
        APR_TRY(apr_cuda_outcome(s->device, cudaGetLastError(), err));
    }
    return APR_OK;
}
