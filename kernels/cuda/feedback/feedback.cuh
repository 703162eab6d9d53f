/* feedback.cuh - shared by the files of error feedback: a device's handles, and the arithmetic of a grid, as in quant/feedback. */
#ifndef APR_KERNELS_CUDA_FEEDBACK_CUH
#define APR_KERNELS_CUDA_FEEDBACK_CUH

#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/reduce.cuh"

extern "C" {
#include "formats/number/half.h"
#include "kernels/ref/step_ladders.h"
}

struct cusolver_functions;

struct apr_cuda_solver {
    apr_cuda_device *device;
    cublasHandle_t blas;
    void *dense; /* cuSOLVER's handle; NULL: not available */
    const cusolver_functions *functions;
    int *info; /* of the last factorization, in device memory, inside the workspace given to open */
};

enum { FEEDBACK_PANEL = APR_CUDA_PANEL, FEEDBACK_WARPS = 8 /* rows of a thread block */ };

apr_status feedback_blas(cublasStatus_t status, const char *doing, apr_error *err);

/* factorise.cu */
apr_status apr_cuda_factorise(apr_cuda_solver *solver, const apr_cuda_factors *factors, double scale, double damping, double *l, void *work,
                              bool *done, apr_error *err);
apr_status apr_cuda_finish_factors(apr_cuda_solver *solver, const apr_cuda_factors *factors, double scale, double damping, const double *l,
                                   apr_error *err);
/* panels.cu */
apr_status apr_cuda_start_rows(apr_cuda_solver *solver, apr_dtype dtype, const apr_cuda_feedback_rows *lanes, void *blocks, apr_error *err);
apr_status apr_cuda_row_errors(apr_cuda_solver *solver, const apr_cuda_feedback_rows *lanes, apr_error *err);
apr_status apr_cuda_row_objective(apr_cuda_solver *solver, const apr_cuda_feedback_rows *lanes, apr_error *err);
apr_status apr_cuda_row_round(apr_cuda_solver *solver, const apr_cuda_feedback_rows *lanes, apr_error *err);
/* The inputs of these products as they are, or rounded to TF32 (2^-11), which is five times as fast (panels.cu). */
enum feedback_product { PRODUCT_EXACT, PRODUCT_ROUNDED };
/* panel = the errors before column `first` of the order, times what they pull the columns from there to first + width by */
apr_status apr_cuda_panel_of_pull(apr_cuda_solver *solver, const apr_cuda_feedback_rows *lanes, int64_t first, int64_t width,
                                  feedback_product how, apr_error *err);
/* panel = E H[:, first .. first + width) */
apr_status apr_cuda_panel_of_errors(apr_cuda_solver *solver, const apr_cuda_feedback_rows *lanes, int64_t first, int64_t width,
                                    feedback_product how, apr_error *err);
/* points.cu: types with codebooks */
apr_status apr_cuda_points_round(apr_cuda_solver *solver, const apr_cuda_feedback_rows *lanes, apr_error *err);
apr_status apr_cuda_points_descend(apr_cuda_solver *solver, const apr_cuda_feedback_rows *lanes, bool rescale, apr_error *err);
/* descend.cu, refit.cu */
apr_status apr_cuda_row_descend(apr_cuda_solver *solver, const apr_cuda_feedback_rows *lanes, bool rescale, apr_error *err);
apr_status apr_cuda_row_refit(apr_cuda_solver *solver, const apr_cuda_feedback_rows *lanes, apr_error *err);

/* --- a grid: without contraction to FMA, so that values are those of a decoder --- */

enum { GRID_HALF, GRID_SUB_SCALE, GRID_EXPONENT, GRID_E4M3, GRID_POINTS };
/* What codes are: whole numbers, doubled values of E2M1, levels of IQ4, or -1 and 1. */
enum grid_codes { CODES_WHOLE, CODES_E2M1, CODES_IQ4, CODES_SIGNS };
enum { SIGNS_ELEMS = 128 /* of a block of Q1_0, the one type with signs; no other type has blocks of as many (test_feedback_device) */ };

static inline grid_codes codes_of(const apr_cuda_grid *grid)
{
    if (grid->is_e2m1) return CODES_E2M1;
    if (grid->is_iq4) return CODES_IQ4;
    return grid->elems == SIGNS_ELEMS ? CODES_SIGNS : CODES_WHOLE;
}

struct grid_step {
    float step, offset, inverse;
};

/* What d is multiplied by. Exact: a few bits. */
static __device__ __forceinline__ float multiple_of(const apr_cuda_grid &grid, int scale)
{
    return grid.steps == GRID_POINTS ? grid.first + grid.gap * (float)scale : (float)scale;
}

static __device__ __forceinline__ grid_step step_of(const apr_cuda_grid &grid, uint16_t d, uint16_t dmin, int scale, int min)
{
    grid_step s;
    if (grid.steps == GRID_EXPONENT) s.step = __uint_as_float(scale < 2 ? 0x00200000u << scale : (uint32_t)(scale - 1) << 23);
    else if (grid.steps == GRID_E4M3) s.step = scale == 0x7f ? 0.0f : __fmul_rn(apr_e4m3_to_f32((uint8_t)scale), 0.5f);
    else s.step = __fmul_rn(apr_f16_to_f32(d), multiple_of(grid, scale));
    s.offset = min != 0 ? __fmul_rn(apr_f16_to_f32(dmin), (float)min) : 0.0f;
    s.inverse = s.step > 0x1p-126f || s.step < -0x1p-126f ? __fdiv_rn(1.0f, s.step) : 0.0f;
    return s;
}

static __device__ __forceinline__ float value_of(const grid_step &s, float code) { return __fsub_rn(__fmul_rn(s.step, code), s.offset); }

/* The nearest of 0 1 2 3 4 6 8 12, ties to the lower one. */
static __device__ __forceinline__ float nearest_magnitude(float a)
{
    const float below_4 = (a > 0.5f ? 1.0f : 0.0f) + (a > 1.5f ? 1.0f : 0.0f) + (a > 2.5f ? 1.0f : 0.0f) + (a > 3.5f ? 1.0f : 0.0f);
    return below_4 + (a > 5.0f ? 2.0f : 0.0f) + (a > 7.0f ? 2.0f : 0.0f) + (a > 10.0f ? 4.0f : 0.0f);
}

/* The nearest level of IQ4: each middle between two of them that u is beyond adds the distance from one to the next. */
static __device__ __forceinline__ float nearest_iq4(float u)
{
    const int8_t levels[16] = {APR_IQ4_LEVELS};
    float level = (float)levels[0]; /* whole numbers: exact */
#pragma unroll
    for (int k = 0; k < 15; k++) level += u > 0.5f * (float)(levels[k] + levels[k + 1]) ? (float)(levels[k + 1] - levels[k]) : 0.0f;
    return level;
}

template <grid_codes CODES> static __device__ __forceinline__ float nearest_code(const apr_cuda_grid &grid, const grid_step &s, float x)
{
    if (CODES == CODES_E2M1) {
        const float u = __fmul_rn(x, s.inverse);
        return copysignf(nearest_magnitude(fabsf(u)), u);
    }
    if (CODES == CODES_IQ4) return nearest_iq4(__fmul_rn(x, s.inverse));
    if (CODES == CODES_SIGNS) return __fmul_rn(x, s.inverse) > 0.0f ? 1.0f : -1.0f;
    const float u = __fmul_rn(__fadd_rn(x, s.offset), s.inverse), bounded = u > grid.low ? u : grid.low;
    const float inside = bounded < grid.high ? bounded : grid.high;
    return __fsub_rn(__fadd_rn(inside, 12582912.0f), 12582912.0f);
}

/* --- warps: one row each --- */

static inline unsigned blocks_of_rows(int64_t n_rows) { return blocks_of(n_rows, FEEDBACK_WARPS); }

/* Updates g, a row's part of E H, for the changes of its errors in columns [begin, end): columns from `later` to `width` of the panel that
 * begins with column `first`. lost: the decrease of a column's error, one column per lane, zeros after the last. */
static __device__ __forceinline__ void update_later(const float *__restrict__ h, int64_t n, int64_t first, int begin, int end, int later,
                                                    int width, float lost, float *g)
{
    const int lane = (int)threadIdx.x % 32;
    if (!__any_sync(0xffffffffu, lost != 0.0f)) return;
    for (int c = later; c < width; c += 32) {
        const bool is_there = c + lane < width;
        const float *const column = h + (first + begin) * n + first + (is_there ? c + lane : c);
        float sum = 0.0f;
        for (int k = 0; k < end - begin; k++) sum += __ldg(column + k * n) * __shfl_sync(0xffffffffu, lost, k);
        if (is_there) g[c + lane] -= sum;
    }
    __syncwarp();
}

#endif
