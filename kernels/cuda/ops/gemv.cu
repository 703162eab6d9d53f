/* gemv.cu - linear of a few tokens: a matrix as kernels see it, and the kernel of its type. */
#include "kernels/cuda/ops/gemv.cuh"

static bool has_plain_factors(const apr_tensor *scale)
{
    return scale->dtype == APR_F32 || scale->dtype == APR_F16 || scale->dtype == APR_BF16;
}

bool apr_cuda_view(const apr_tensor *matrix, weight_view *v)
{
    const apr_dtype_facts *const facts = &apr_dtypes[matrix->dtype];
    int64_t n_rows = 1, n_scales = 1;

    for (int i = 0; i < matrix->rank - 1; i++) n_rows *= matrix->dims[i];
    v->data = matrix->data;
    v->n_rows = n_rows;
    v->n_in = matrix->rank > 0 ? matrix->dims[matrix->rank - 1] : 1;
    v->row_bytes = v->n_in / facts->elems_per_block * facts->bytes_per_block;
    v->step = matrix->pending.kind;
    v->head_rows = v->step != APR_STEP_NONE ? n_rows / matrix->pending.n[0] : 0;
    v->factors = NULL;
    v->factor_dtype = APR_F32;
    v->one_factor = true;
    v->factor_rows = v->factor_columns = 1;
    v->matrix_rows = matrix->rank >= 2 ? matrix->dims[matrix->rank - 2] : 1;
    if (facts->scales == APR_SCALES_FIRST) { /* one scale, then the codes */
        v->factors = matrix->data;
        v->data += sizeof(float);
    } else if (matrix->scale != NULL) {
        if (!has_plain_factors(matrix->scale) || matrix->scale_rows < 1 || matrix->scale_columns < 1) return false;
        for (int i = 0; i < matrix->scale->rank; i++) n_scales *= matrix->scale->dims[i];
        v->factors = matrix->scale->data;
        v->factor_dtype = matrix->scale->dtype;
        v->one_factor = n_scales == 1;
        v->factor_rows = matrix->scale_rows;
        v->factor_columns = matrix->scale_columns;
    }
    if (v->factor_rows > v->matrix_rows) v->factor_rows = v->matrix_rows > 0 ? v->matrix_rows : 1; /* the same, and it fits 32 bits */
    v->factors_high = (v->matrix_rows + v->factor_rows - 1) / v->factor_rows;
    v->factors_wide = (v->n_in + v->factor_columns - 1) / v->factor_columns;
    return v->n_in > 0 && v->n_in < INT32_MAX && v->n_rows <= UINT32_MAX && (facts->flat || v->n_in % facts->elems_per_block == 0);
}

gemv_fn apr_cuda_gemv_of(apr_dtype dtype)
{
    const gemv_fn of_blocks = gemv_of_blocks_type(dtype), of_k = gemv_of_k_type(dtype);
    return of_blocks != NULL ? of_blocks : of_k != NULL ? of_k : gemv_of_plain_type(dtype);
}

bool apr_cuda_has_kernel(apr_dtype dtype) { return apr_cuda_gemv_of(dtype) != NULL; }

cudaError_t apr_cuda_linear_few(const apr_linear_args *args, cudaStream_t stream)
{
    const gemv_fn start = apr_cuda_gemv_of(args->weight->dtype);
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
    a.n_parts = 1;
    return start(a, stream);
}
