/* gemv.cu - GEMV of a few tokens: the kernels' view of a matrix, and the kernel of its type. */
#include "kernels/cuda/gemv/gemv.cuh"

static bool can_be_factors(apr_dtype dtype)
{
    return dtype == APR_F32 || dtype == APR_F16 || dtype == APR_BF16 || dtype == APR_F8_E4M3 || dtype == APR_E8M0;
}

bool apr_cuda_takes_packing(const apr_packing *p, apr_dtype dtype)
{
    const bool is_canonical = p->order == APR_CODES_BY_ROW && !p->scales_down && p->nested == NULL && p->first_row == 0 &&
                              (p->zero_order == APR_ZEROS_NONE || p->zero_order == APR_ZEROS_BY_ROW);
    const bool has_levels =
        p->bits == 4 ? p->level != APR_LEVEL_E4M3 : p->bits == 8 && p->level != APR_LEVEL_TABLE && p->level != APR_LEVEL_E2M1;
    return is_canonical && has_levels && can_be_factors(p->scale_dtype) && p->scale_rows > 0 && p->scale_columns > 0 &&
           p->matrix_rows > 0 && (dtype == APR_F32 || dtype == APR_F16 || dtype == APR_BF16);
}

/* Fills the view of a packed matrix in the canonical layout; the shape is already set. */
static bool view_packing(const apr_packing *p, apr_dtype dtype, weight_view *v)
{
    if (!apr_cuda_takes_packing(p, dtype) || p->rows != v->n_rows || p->columns != v->n_in || v->step != APR_STEP_NONE) return false;
    v->data = p->codes->data;
    v->row_bytes = (v->n_in * p->bits + 7) / 8;
    v->factors = p->scales->data;
    v->factor_dtype = p->scale_dtype;
    v->one_factor = false;
    v->factor_rows = p->scale_rows;
    v->factor_columns = p->scale_columns < v->n_in ? p->scale_columns : v->n_in;
    v->matrix_rows = p->matrix_rows;
    v->canonical.bits = p->bits;
    v->canonical.level = p->level;
    v->canonical.dtype = dtype;
    v->canonical.zeros = p->zeros != NULL ? p->zeros->data : NULL;
    v->canonical.signed_zeros = p->zeros != NULL && p->zeros->dtype == APR_I8;
    v->canonical.divides = p->divides;
    v->canonical.zero_bias = (float)p->zero_bias;
    v->canonical.global_scales = p->global_scales != NULL ? (const float *)p->global_scales->data : NULL;
    v->canonical.groups = p->groups != NULL ? (const int32_t *)p->groups->data : NULL;
    for (int i = 0; i < 16; i++) v->canonical.levels[i] = p->level == APR_LEVEL_TABLE ? p->levels[i] : 0.0f;
    return true;
}

bool apr_cuda_view(const apr_tensor *matrix, weight_view *v)
{
    const apr_dtype_facts *const facts = &apr_dtypes[matrix->dtype];
    int64_t n_rows = 1, n_scales = 1;

    for (int i = 0; i < matrix->rank - 1; i++) n_rows *= matrix->dims[i];
    v->data = matrix->data;
    v->n_rows = n_rows;
    v->n_in = matrix->rank > 0 ? matrix->dims[matrix->rank - 1] : 1;
    v->row_bytes = apr_tiled_row_bytes(matrix->dtype, matrix->tiled, v->n_in);
    v->step = matrix->pending.kind;
    v->head_rows = v->step != APR_STEP_NONE ? n_rows / matrix->pending.n[0] : 0;
    v->canonical.bits = 0;
    v->tiled = matrix->tiled;
    v->factors = NULL;
    v->factor_dtype = APR_F32;
    v->one_factor = true;
    v->factor_rows = v->factor_columns = 1;
    v->matrix_rows = matrix->rank >= 2 ? matrix->dims[matrix->rank - 2] : 1;
    if (matrix->packing != NULL) {
        if (!view_packing(matrix->packing, matrix->dtype, v)) return false;
    } else if (facts->scales == APR_SCALES_FIRST) { /* one scale, then the codes */
        v->factors = matrix->data;
        v->data += sizeof(float);
    } else if (matrix->scale != NULL) {
        if (!can_be_factors(matrix->scale->dtype) || matrix->scale_rows < 1 || matrix->scale_columns < 1) return false;
        for (int i = 0; i < matrix->scale->rank; i++) n_scales *= matrix->scale->dims[i];
        v->factors = matrix->scale->data;
        v->factor_dtype = matrix->scale->dtype;
        v->one_factor = n_scales == 1;
        v->factor_rows = matrix->scale_rows;
        v->factor_columns = matrix->scale_columns;
    }
    if (v->factor_rows > v->matrix_rows) v->factor_rows = v->matrix_rows > 0 ? v->matrix_rows : 1; /* equivalent, and fits 32 bits */
    v->factors_high = (v->matrix_rows + v->factor_rows - 1) / v->factor_rows;
    v->factors_wide = (v->n_in + v->factor_columns - 1) / v->factor_columns;
    return v->n_in > 0 && v->n_in < INT32_MAX && v->n_rows <= UINT32_MAX && (facts->flat || v->n_in % facts->elems_per_block == 0);
}

static gemv_fn gemv_of_type(apr_dtype dtype)
{
    const gemv_fn of_blocks = gemv_of_blocks_type(dtype), of_k = gemv_of_k_type(dtype);
    return of_blocks != NULL ? of_blocks : of_k != NULL ? of_k : gemv_of_plain_type(dtype);
}

gemv_fn apr_cuda_gemv_of(const apr_tensor *matrix) { return matrix->packing != NULL ? gemv_of_canonical : gemv_of_type(matrix->dtype); }

bool apr_cuda_has_kernel(apr_dtype dtype) { return gemv_of_type(dtype) != NULL; }

static cudaError_t few(const apr_linear_args *args, bool batch_invariant, cudaStream_t stream)
{
    const gemv_fn start = apr_cuda_gemv_of(args->weight);
    gemv_args a = {};

    if (args->n_tokens == 0 || args->n_out == 0) return cudaSuccess;
    if (start == NULL) return cudaErrorNotSupported;
    if (args->n_tokens > APR_CUDA_FEW_TOKENS || !apr_cuda_view(args->weight, &a.weight) || a.weight.n_in != args->n_in ||
        args->n_out > a.weight.n_rows)
        return cudaErrorInvalidValue;
    a.x = args->x;
    a.bias = args->bias;
    a.out = args->out;
    a.n_out = args->n_out;
    a.n_tokens = (int)args->n_tokens;
    a.batch_invariant = batch_invariant;
    a.n_parts = 1;
    return start(a, stream);
}

cudaError_t apr_cuda_linear_few(const apr_linear_args *args, cudaStream_t stream) { return few(args, false, stream); }
cudaError_t apr_cuda_linear_batch_invariant(const apr_linear_args *args, cudaStream_t stream) { return few(args, true, stream); }
