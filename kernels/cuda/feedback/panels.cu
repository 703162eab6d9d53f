/* panels.cu - rows in panels of columns: the effect of the columns outside a panel is one matrix product, that of the columns inside is
 * computed for each row in float32 by one warp.
 *
 * The product may round its inputs to TF32, as that of the sums does (solver.cu). Rounding and descent then choose another code only where
 * two are nearly equal: over the 196 matrices of a 7B in Q4_K_M the error that is left is 0.56585 of the start's, with and without. Refitting
 * a scale, and codebooks, whose points of eight values are nearly equal more often, take the inputs as they are: with rounded ones up to 1 %
 * more error was left on small matrices. Then numbers are those of quant/feedback/feedback.c, added in another order. */
#include "kernels/cuda/codecs/codecs.cuh"
#include "kernels/cuda/feedback/feedback.cuh"

enum { THREADS = 256, PANEL = FEEDBACK_PANEL, WARPS = FEEDBACK_WARPS, EACH = PANEL / 32 };

/* panel[row][c] = sum over j < k: x[row][j] * b[..]; b to cuBLAS as stored (OP_N) or transposed (OP_T) */
static apr_status multiply(apr_cuda_solver *s, const apr_cuda_feedback_rows *r, const float *x, const float *b, bool transposed,
                           int64_t width, int64_t k, feedback_product how, apr_error *err)
{
    const float one = 1.0f, zero = 0.0f;
    const int n = (int)r->factors->n;
    return feedback_blas(cublasGemmEx(s->blas, transposed ? CUBLAS_OP_T : CUBLAS_OP_N, CUBLAS_OP_N, (int)width, (int)r->n_rows, (int)k,
                                      &one, b, CUDA_R_32F, n, x, CUDA_R_32F, n, &zero, r->panel, CUDA_R_32F, PANEL,
                                      how == PRODUCT_ROUNDED ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F_PEDANTIC,
                                      CUBLAS_GEMM_DEFAULT),
                         "multiplying the errors of rows", err);
}

apr_status apr_cuda_panel_of_errors(apr_cuda_solver *s, const apr_cuda_feedback_rows *r, int64_t first, int64_t width, feedback_product how,
                                    apr_error *err)
{
    const int64_t n = r->factors->n;
    return multiply(s, r, r->error, r->factors->h + first * n, true, width, n, how, err);
}

apr_status apr_cuda_panel_of_pull(apr_cuda_solver *s, const apr_cuda_feedback_rows *r, int64_t first, int64_t width, feedback_product how,
                                  apr_error *err)
{
    return multiply(s, r, r->gathered, r->factors->pull + first, false, width, first, how, err);
}

/* ---- the start ---- */

apr_status apr_cuda_start_rows(apr_cuda_solver *s, apr_dtype dtype, const apr_cuda_feedback_rows *r, void *blocks, apr_error *err)
{
    const int64_t n = r->factors->n, n_elems = r->n_rows * n;
    const codec_importance importance = {r->factors->diagonal, n, n_elems, 0};

    APR_TRY(apr_cuda_make_current(s->device, err));
    apr_cuda_begin(s->device, "encoding %lld rows of %lld to %s", (long long)r->n_rows, (long long)n, apr_dtypes[dtype].name);
    if (apr_cuda_encoder_by_of(dtype) != nullptr)
        return apr_cuda_outcome(s->device, apr_cuda_encoder_by_of(dtype)(r->weight, &importance, blocks, n_elems, s->device->stream), err);
    if (apr_cuda_encoder_of(dtype) == nullptr)
        return apr_fail(err, APR_E_UNSUPPORTED, "there is no GPU encoder for %s", apr_dtypes[dtype].name);
    return apr_cuda_outcome(s->device, apr_cuda_encoder_of(dtype)(r->weight, blocks, n_elems, s->device->stream), err);
}

static __global__ void __launch_bounds__(THREADS) k_errors(apr_cuda_feedback_rows r, int64_t n)
{
    const int64_t row = blockIdx.y, column = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (column >= n) return;
    const int64_t sub = row * (n / r.grid.sub_elems) + column / r.grid.sub_elems, block = row * (n / r.grid.elems) + column / r.grid.elems;
    const grid_step s = step_of(r.grid, r.d[block], r.dmin[block], r.scale[sub], r.min[sub]);
    r.error[row * n + column] = r.weight[row * n + column] - value_of(s, (float)r.code[row * n + column]);
}

apr_status apr_cuda_row_errors(apr_cuda_solver *s, const apr_cuda_feedback_rows *r, apr_error *err)
{
    const int64_t n = r->factors->n;
    APR_TRY(apr_cuda_make_current(s->device, err));
    apr_cuda_begin(s->device, "errors of %lld rows of %lld", (long long)r->n_rows, (long long)n);
    k_errors<<<dim3(blocks_of(n, THREADS), (unsigned)r->n_rows), THREADS, 0, s->device->stream>>>(*r, n);
    return apr_cuda_outcome(s->device, cudaGetLastError(), err);
}

/* ---- the objective ---- */

static __global__ void __launch_bounds__(32 * WARPS) k_objective(apr_cuda_feedback_rows r, int64_t n, int64_t first, int width)
{
    const int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const int lane = (int)threadIdx.x % 32;
    double sum = 0.0;

    if (row >= r.n_rows) return;
    for (int c = lane; c < width; c += 32) sum += (double)r.panel[row * PANEL + c] * (double)r.error[row * n + first + c];
    sum = warp_sum(sum);
    if (lane == 0) r.objective[row] = (first == 0 ? 0.0 : r.objective[row]) + sum;
}

apr_status apr_cuda_row_objective(apr_cuda_solver *s, const apr_cuda_feedback_rows *r, apr_error *err)
{
    const int64_t n = r->factors->n;
    APR_TRY(apr_cuda_make_current(s->device, err));
    apr_cuda_begin(s->device, "the objective of %lld rows of %lld", (long long)r->n_rows, (long long)n);
    for (int64_t first = 0; first < n; first += PANEL) {
        const int64_t width = n - first < PANEL ? n - first : (int64_t)PANEL;
        APR_TRY(apr_cuda_panel_of_errors(s, r, first, width, PRODUCT_ROUNDED, err));
        k_objective<<<blocks_of_rows(r->n_rows), 32 * WARPS, 0, s->device->stream>>>(*r, n, first, (int)width);
        APR_TRY(apr_cuda_outcome(s->device, cudaGetLastError(), err));
    }
    return APR_OK;
}

/* ---- feedback ---- */

/* A lane has columns lane, 32 + lane, ... of the panel, in the order of the Hessian. Column after column, its lane finds the code and
 * broadcasts the error, and all lanes add that to the targets of later columns. */
template <grid_codes CODES>
static __global__ void __launch_bounds__(32 * WARPS, 2) /* else 7.5, with 1,024 threads, gets 64 registers, and spills */
    k_round(apr_cuda_feedback_rows r, const float *__restrict__ pull, const int32_t *__restrict__ order, int64_t n, int64_t first,
            int width)
{
    const int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32, n_subs = n / r.grid.sub_elems, n_blocks = n / r.grid.elems;
    const int lane = (int)threadIdx.x % 32;
    float x[EACH], weight[EACH];

    if (row >= r.n_rows) return;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const bool is_there = 32 * i < width; /* a panel's width is a multiple of 32 */
        weight[i] = is_there ? r.weight[row * n + order[first + 32 * i + lane]] : 0.0f;
        x[i] = is_there ? (first > 0 ? r.panel[row * PANEL + 32 * i + lane] : 0.0f) + weight[i] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        if (32 * i >= width) break;
        const int64_t column = order[first + 32 * i + lane], sub = row * n_subs + column / r.grid.sub_elems;
        const int64_t block = row * n_blocks + column / r.grid.elems;
        const grid_step step = step_of(r.grid, r.d[block], r.dmin[block], r.scale[sub], r.min[sub]);
        float code = 0.0f, error = 0.0f;
#pragma unroll 4
        for (int l = 0; l < 32; l++) {
            const float q = nearest_code<CODES>(r.grid, step, x[i]), e = weight[i] - value_of(step, q);
            if (lane == l) code = q, error = e;
            const float broadcast = __shfl_sync(0xffffffffu, e, l);
            const float *const from = pull + (first + 32 * i + l) * n + first + lane;
#pragma unroll
            for (int k = i; k < EACH; k++)
                if (32 * k < width) x[k] += __ldg(from + 32 * k) * broadcast;
        }
        r.code[row * n + column] = (int8_t)code;
        r.error[row * n + column] = error;
        r.gathered[row * n + first + 32 * i + lane] = error;
    }
}

typedef void (*round_fn)(apr_cuda_feedback_rows r, const float *pull, const int32_t *order, int64_t n, int64_t first, int width);

static round_fn round_kernel_of(grid_codes codes)
{
    switch (codes) {
    case CODES_E2M1: return k_round<CODES_E2M1>;
    case CODES_IQ4: return k_round<CODES_IQ4>;
    case CODES_SIGNS: return k_round<CODES_SIGNS>;
    default: return k_round<CODES_WHOLE>;
    }
}

apr_status apr_cuda_row_round(apr_cuda_solver *s, const apr_cuda_feedback_rows *r, apr_error *err)
{
    const apr_cuda_factors *const f = r->factors;
    const int64_t n = f->n;
    if (r->grid.points != APR_DTYPE_COUNT) return apr_cuda_points_round(s, r, err);
    const auto kernel = round_kernel_of(codes_of(&r->grid));
    APR_TRY(apr_cuda_make_current(s->device, err));
    apr_cuda_begin(s->device, "rounding %lld rows of %lld with feedback", (long long)r->n_rows, (long long)n);
    for (int64_t first = 0; first < n; first += PANEL) {
        const int64_t width = n - first < PANEL ? n - first : (int64_t)PANEL;
        const unsigned blocks = blocks_of_rows(r->n_rows);
        if (first > 0) APR_TRY(apr_cuda_panel_of_pull(s, r, first, width, PRODUCT_ROUNDED, err));
        kernel<<<blocks, 32 * WARPS, 0, s->device->stream>>>(*r, f->pull, f->order, n, first, (int)width);
        APR_TRY(apr_cuda_outcome(s->device, cudaGetLastError(), err));
    }
    return APR_OK;
}
