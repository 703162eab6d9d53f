/* gemm.cu - linear layers of many tokens: FP16 inputs (activations_f16.cuh) and FP16 weights, dequantized whole or in tiles unless they are stored
 * so, through cuBLAS (blaslt.cuh).
 *
 * With up to APR_CUDA_CAREFUL_TOKENS tokens, where reading the weights dominates, the inputs' rounding errors are multiplied as well:
 * inputs count with 22 bits. */
#include "kernels/cuda/device/code.cuh"
#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/gemm/blaslt.cuh"
#include "kernels/cuda/gemm/gemm.cuh"
#include "kernels/cuda/small_gemm/small_gemm.cuh"

apr_status apr_cuda_blas_failed(cublasStatus_t status, const char *doing, apr_error *err)
{
    return apr_fail(err, APR_E_DEVICE, "%s: cuBLAS error: %s (%s)", doing, cublasGetStatusString(status), cublasGetStatusName(status));
}

apr_status apr_cuda_start_blas(apr_cuda_device *device, void *workspace, uint64_t n_bytes, int *version, apr_error *err)
{
    APR_TRY(apr_cuda_make_current(device, err));
    cublasStatus_t status = cublasCreate(&device->blas);
    if (status != CUBLAS_STATUS_SUCCESS) {
        device->blas = NULL;
        return apr_cuda_blas_failed(status, "starting cuBLAS", err);
    }
    device->workspace = workspace;
    device->workspace_bytes = n_bytes;
    status = cublasSetStream(device->blas, device->stream);
    if (status == CUBLAS_STATUS_SUCCESS) status = cublasSetWorkspace(device->blas, workspace, n_bytes);
    if (status == CUBLAS_STATUS_SUCCESS) status = cublasGetVersion(device->blas, version);
    return status == CUBLAS_STATUS_SUCCESS ? APR_OK : apr_cuda_blas_failed(status, "giving cuBLAS its stream and workspace", err);
}

/* At most n of its tokens, from `first` on. */
static apr_linear_args tokens_of(const apr_linear_args *a, int64_t first, int64_t n)
{
    apr_linear_args some = *a;
    const int64_t n_heads = a->heads.n > 0 ? a->heads.n : 1;
    some.n_tokens = a->n_tokens - first < n ? a->n_tokens - first : n;
    some.x = a->x + first * n_heads * a->n_in;
    some.out = a->out + first * n_heads * a->n_out;
    return some;
}

/* Without cuBLAS, or when inputs may not be rounded: a few tokens at a time from the packed weights. Slower, and as accurate as float32. */
static cudaError_t without_blas(const apr_cuda_device *device, const apr_linear_args *a)
{
    cudaError_t error = cudaSuccess;
    for (int64_t first = 0; first < a->n_tokens && error == cudaSuccess; first += APR_CUDA_FEW_TOKENS) {
        const apr_linear_args few = tokens_of(a, first, APR_CUDA_FEW_TOKENS);
        error = (device->batch_invariant ? apr_cuda_linear_batch_invariant : apr_cuda_linear_few)(&few, device->stream);
    }
    return error;
}

/* Columns that tensor cores sum at a time, for the accuracy of float32 with few tokens. */
enum { CAREFUL_COLUMNS = 4096 };

typedef struct gemm_buffers {
    apr_cuda_activations_f16 inputs = {}; /* no remainders: many tokens */
    __half *tile;
    int64_t tile_rows;
    bool is_f16;
    bool has_floats; /* the float32 inputs also exist: the fallback if cuBLAS refuses */
    bool to_f16;     /* outputs are stored as FP16, multiplied by 2^exponent */
    int exponent;
} gemm_buffers;

/* Whether a pass over the outputs, which applies each token's power of two, would take longer than finding a shared one. With a bias that
 * pass is needed anyway. */
bool apr_cuda_shares_scale(const apr_linear_args *a)
{
    return apr_prompt_shares_scale(a->n_tokens, a->n_in, a->n_out, a->bias != NULL) && (uintptr_t)a->x % 16 == 0;
}

apr_cuda_activations_f16 apr_cuda_cut_inputs(const apr_workspace *work, int64_t n_tokens, int64_t n_in, bool shares_scale, size_t *n_bytes)
{
    const size_t inputs = apr_cuda_inputs_bytes(n_tokens, n_in), scales = apr_cuda_round((size_t)n_tokens * 4);
    uint8_t *const at = (uint8_t *)work->data, *const rows = at + apr_cuda_scales_bytes(n_tokens);
    apr_cuda_activations_f16 h = {};

    h.scales = (float *)at;
    h.largest = (float *)(at + scales);
    h.factors = shares_scale ? (float *)(at + 2 * scales) : NULL;
    h.values = (__half *)rows;
    h.remainders = n_tokens <= APR_CUDA_CAREFUL_TOKENS ? (__half *)(rows + inputs / 2) : NULL;
    *n_bytes = inputs + apr_cuda_scales_bytes(n_tokens);
    return h;
}

/* The tile takes the rest of the workspace after the inputs. */
static apr_status cut_tile(const apr_linear_args *a, size_t before, gemm_buffers *b, apr_error *err)
{
    const size_t given = a->work.slice * sizeof(float);
    b->is_f16 = apr_cuda_is_f16(a->weight);
    const size_t rest = given > before ? given - before : 0,
                 tile_bytes = rest < APR_CUDA_DEQUANTIZED_BYTES ? rest : (size_t)APR_CUDA_DEQUANTIZED_BYTES;
    b->tile_rows = b->is_f16 ? a->n_out : apr_cuda_dequantized_rows(a->n_in, a->n_out, tile_bytes);
    if (given < before || (!b->is_f16 && (size_t)(b->tile_rows * a->n_in) * 2 > rest))
        return apr_fail(err, APR_E_USAGE, "linear '%s' of %lld tokens needs %zu bytes of workspace and got %zu", a->weight->name,
                        (long long)a->n_tokens,
                        apr_cuda_linear_bytes_within(a->n_tokens, a->n_in, a->n_out, b->is_f16, APR_CUDA_MIN_DEQUANTIZED_BYTES), given);
    b->tile = (__half *)((uint8_t *)a->work.data + before);
    return APR_OK;
}

static apr_status cut_workspace(const apr_linear_args *a, gemm_buffers *b, apr_error *err)
{
    size_t before;
    b->inputs = apr_cuda_cut_inputs(&a->work, a->n_tokens, a->n_in, apr_cuda_shares_scale(a), &before);
    return cut_tile(a, before, b, err);
}

void apr_cuda_cache_inputs(apr_cuda_device *device, const apr_cuda_cached_inputs *inputs)
{
    device->cached_inputs = *inputs;
    device->kept_for = device->n_writes + 1;
}

bool apr_cuda_has_cached_inputs(const apr_cuda_device *device, const apr_cuda_cached_inputs *wanted)
{
    const apr_cuda_cached_inputs *const there = &device->cached_inputs;
    return device->kept_for == device->n_writes && there->x == wanted->x && there->work == wanted->work &&
           there->n_tokens == wanted->n_tokens && there->n_in == wanted->n_in && there->shares_scale == wanted->shares_scale &&
           there->fragments == wanted->fragments && there->layout == wanted->layout;
}

static apr_cuda_cached_inputs inputs_of(const apr_linear_args *a, const apr_cuda_activations_f16 *inputs)
{
    return apr_cuda_cached_inputs{a->x, a->work.data, a->n_tokens, a->n_in, inputs->factors != NULL, false, 0};
}

cudaError_t apr_cuda_make_f16_once(apr_cuda_device *device, const apr_linear_args *a, const apr_cuda_activations_f16 *inputs)
{
    const apr_cuda_cached_inputs wanted = inputs_of(a, inputs);
    return apr_cuda_has_cached_inputs(device, &wanted) ? cudaSuccess
                                                       : apr_cuda_make_f16(a->x, inputs, a->n_tokens, a->n_in, device->stream);
}

/* Keeps the inputs for the next call after a product, unless its outputs overwrote the float32 inputs. */
static void cache_inputs(apr_cuda_device *device, const apr_linear_args *a, const apr_cuda_cached_inputs *inputs)
{
    const float *const x_end = a->x + a->n_tokens * a->n_in, *const out_end = a->out + a->n_tokens * a->n_out;
    if (a->x >= out_end || a->out >= x_end) apr_cuda_cache_inputs(device, inputs);
}

/* A part of a product: n_columns columns of inputs and weights from `column` on. */
static apr_cuda_gemm part_of(const apr_cuda_gemm *p, const __half *inputs, int64_t column, int64_t n_columns)
{
    apr_cuda_gemm part = *p;
    part.weights = (const __half *)p->weights + column;
    part.inputs = inputs + column;
    part.n_in = n_columns;
    return part;
}

/* Multiplies both parts of the inputs: first the rounding errors, then the rounded numbers. Tensor cores truncate each time they add, where
 * float32 would round. Over 28672 columns and 80 layers that is more than all other errors, so the sums of long rows are made of shorter
 * ones. */
static cublasStatus_t multiply_carefully(apr_cuda_device *device, const apr_cuda_gemm *p, const apr_cuda_activations_f16 *inputs)
{
    const apr_cuda_gemm remainders = part_of(p, inputs->remainders, 0, p->n_in);
    cublasStatus_t status = apr_cuda_multiply(device, &remainders);
    for (int64_t column = 0; column < p->n_in && status == CUBLAS_STATUS_SUCCESS; column += CAREFUL_COLUMNS) {
        const int64_t left = p->n_in - column;
        apr_cuda_gemm part = part_of(p, inputs->values, column, left < CAREFUL_COLUMNS ? left : (int64_t)CAREFUL_COLUMNS);
        part.adds = true;
        status = apr_cuda_multiply(device, &part);
    }
    return status;
}

/* Multiplies rows [first, first + n_rows) for all tokens. */
static cublasStatus_t multiply(apr_cuda_device *device, const apr_linear_args *a, const gemm_buffers *b, int64_t first, int64_t n_rows)
{
    apr_cuda_gemm p = {};
    p.type = CUDA_R_16F;
    p.n_rows = n_rows;
    p.n_tokens = a->n_tokens;
    p.n_in = p.row_stride = a->n_in;
    p.weights = b->is_f16 ? (const void *)a->weight->data : b->tile;
    p.inputs = b->inputs.values;
    p.out = b->to_f16 ? (float *)((__half *)a->out + first) : a->out + first;
    p.out_stride = a->n_out;
    p.factors = b->inputs.factors;
    p.to_f16 = b->to_f16;
    p.exponent = b->exponent;
    if (b->inputs.remainders != NULL) return multiply_carefully(device, &p, &b->inputs);
    const cublasStatus_t status = apr_cuda_multiply(device, &p);
    if (status == CUBLAS_STATUS_SUCCESS || b->has_floats) return status;
    return apr_cuda_multiply_scaled(&p, device->stream) == cudaSuccess ? CUBLAS_STATUS_SUCCESS : status;
}

/* Dequantizes and multiplies weights, as many rows at a time as the tile holds. */
static cudaError_t multiply_tiles(apr_cuda_device *device, const apr_linear_args *a, const gemm_buffers *b, cublasStatus_t *status)
{
    cudaError_t error = cudaSuccess;

    *status = CUBLAS_STATUS_SUCCESS;
    for (int64_t first = 0; first < a->n_out && error == cudaSuccess && *status == CUBLAS_STATUS_SUCCESS; first += b->tile_rows) {
        const int64_t n_rows = a->n_out - first < b->tile_rows ? a->n_out - first : b->tile_rows;
        if (!b->is_f16) error = apr_cuda_decode_to_half(a->weight, first, n_rows, b->tile, device->stream);
        if (error == cudaSuccess) *status = multiply(device, a, b, first, n_rows);
    }
    return error;
}

static size_t inputs_bytes(const apr_linear_args *a)
{
    return apr_cuda_inputs_bytes(a->n_tokens, a->n_in) + apr_cuda_scales_bytes(a->n_tokens);
}

bool apr_cuda_cut_stacked_input(const apr_linear_args *parts, int n_parts, apr_cuda_stacked_qkv *stacked)
{
    const apr_linear_args *const a = &parts[0];
    const size_t before = inputs_bytes(a);
    uint8_t *const at = (uint8_t *)a->work.data + before;

    if (a->n_in % 8 != 0) return false; /* each matrix must start at a multiple of 16 bytes */
    stacked->n_rows = 0;
    for (int i = 0; i < n_parts; i++) {
        if (apr_cuda_is_f16(parts[i].weight)) return false;
        stacked->n_rows += parts[i].n_out;
    }
    const size_t weights = apr_cuda_round((size_t)(stacked->n_rows * a->n_in) * sizeof(__half));
    stacked->weights = (__half *)at;
    stacked->out = (float *)(at + weights);
    return before + weights + (size_t)(a->n_tokens * stacked->n_rows) * sizeof(float) <= a->work.slice * sizeof(float);
}

apr_status apr_cuda_multiply_stacked(apr_cuda_device *device, const apr_linear_args *parts, int n_parts,
                                     const apr_cuda_activations_f16 *inputs, const apr_cuda_stacked_qkv *stacked, apr_error *err)
{
    apr_linear_args all = parts[0];
    cudaError_t error = cudaSuccess;
    __half *to = stacked->weights;
    gemm_buffers b = {};

    for (int i = 0; i < n_parts && error == cudaSuccess; i++) {
        error = apr_cuda_decode_to_half(parts[i].weight, 0, parts[i].n_out, to, device->stream);
        to += parts[i].n_out * parts[i].n_in;
    }
    if (error != cudaSuccess) return apr_cuda_outcome(device, error, err);
    all.n_out = stacked->n_rows;
    all.out = stacked->out;
    b.inputs = *inputs;
    b.tile = stacked->weights;
    const cublasStatus_t status = multiply(device, &all, &b, 0, all.n_out);
    return status == CUBLAS_STATUS_SUCCESS ? APR_OK : apr_cuda_blas_failed(status, apr_cuda_operation(device), err);
}

static apr_status multiply_after_inputs(apr_cuda_device *device, const apr_linear_args *a, gemm_buffers *b, apr_error *err)
{
    cublasStatus_t status;

    APR_TRY(cut_tile(a, inputs_bytes(a), b, err));
    const cudaError_t error = multiply_tiles(device, a, b, &status);
    if (error == cudaSuccess && status != CUBLAS_STATUS_SUCCESS) return apr_cuda_blas_failed(status, apr_cuda_operation(device), err);
    return apr_cuda_outcome(device, error, err);
}

apr_status apr_cuda_multiply_f16(apr_cuda_device *device, const apr_linear_args *a, const apr_cuda_activations_f16 *inputs, apr_error *err)
{
    gemm_buffers b = {};
    b.inputs = *inputs;
    return multiply_after_inputs(device, a, &b, err);
}

apr_status apr_cuda_multiply_to_f16(apr_cuda_device *device, const apr_linear_args *a, const apr_cuda_activations_f16 *inputs, int exponent,
                                    apr_error *err)
{
    gemm_buffers b = {};
    b.inputs = *inputs;
    b.to_f16 = true;
    b.exponent = exponent;
    return multiply_after_inputs(device, a, &b, err);
}

apr_status apr_cuda_row_sum(apr_cuda_device *device, const apr_linear_args *a, float *sum, apr_error *err)
{
    gemm_buffers b = {};

    APR_TRY(cut_tile(a, inputs_bytes(a), &b, err));
    cudaError_t error = cudaMemsetAsync(a->out, 0, sizeof *sum, device->stream);
    for (int64_t first = 0; first < a->n_out && error == cudaSuccess; first += b.tile_rows) {
        const int64_t n_rows = a->n_out - first < b.tile_rows ? a->n_out - first : b.tile_rows;
        if (!b.is_f16) error = apr_cuda_decode_to_half(a->weight, first, n_rows, b.tile, device->stream);
        const __half *const rows = b.is_f16 ? (const __half *)a->weight->data : b.tile;
        if (error == cudaSuccess) error = apr_cuda_find_row_sum(rows, n_rows, a->n_in, a->out, device->stream);
    }
    if (error == cudaSuccess) error = cudaMemcpyAsync(sum, a->out, sizeof *sum, cudaMemcpyDeviceToHost, device->stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(device->stream);
    return apr_cuda_outcome(device, error, err);
}

static apr_status linear_many(apr_cuda_device *device, const apr_linear_args *a, apr_error *err)
{
    gemm_buffers b = {};
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;

    b.has_floats = true;
    APR_TRY(cut_workspace(a, &b, err));
    const apr_cuda_cached_inputs inputs = inputs_of(a, &b.inputs);
    cudaError_t error = apr_cuda_make_f16_once(device, a, &b.inputs);
    if (error == cudaSuccess) error = multiply_tiles(device, a, &b, &status);
    if (error == cudaSuccess) cache_inputs(device, a, &inputs);
    if (error == cudaSuccess && status != CUBLAS_STATUS_SUCCESS) {
        error = without_blas(device, a);
        if (error != cudaSuccess) return apr_cuda_blas_failed(status, apr_cuda_operation(device), err);
        return APR_OK;
    }
    if (error == cudaSuccess) error = apr_cuda_finish(a->out, &b.inputs, a->bias, a->n_tokens, a->n_out, device->stream);
    return apr_cuda_outcome(device, error, err);
}

/* Up to 64 tokens: the small GEMM. Inputs count with 11 bits, as with many tokens; for 16-bit weights with 22 (F16) or 16 (BF16).
 * cudaErrorNotSupported: there is none for this product. */
static cudaError_t linear_some(apr_cuda_device *device, const apr_linear_args *a)
{
    const int64_t columns = apr_small_gemm_columns_of(a->weight, a->n_in);
    const apr_cuda_cached_inputs wanted = {
        a->x, a->work.data, a->n_tokens, columns, false, true, apr_cuda_small_gemm_layout(a->weight->dtype)};
    const bool some = a->n_tokens <= APR_SMALL_GEMM_MAX_TOKENS && (a->n_tokens > 1 || device->batch_invariant);
    if (!some || device->exact || device->tiles) return cudaErrorNotSupported;
    const cudaError_t error = apr_cuda_linear_small_gemm(a, apr_cuda_has_cached_inputs(device, &wanted), device->facts.n_sms,
                                                         apr_cuda_code_major(), device->stream);
    if (error == cudaSuccess) cache_inputs(device, a, &wanted);
    return error;
}

/* Batch invariant: as many tokens at a time as the small GEMM takes, with the same results for fewer. */
static apr_status linear_batch_invariant(apr_cuda_device *device, const apr_linear_args *a, apr_error *err)
{
    const bool has_heads = a->heads.n > 0;
    cudaError_t error = a->is_router && !device->exact ? apr_cuda_router(a, device->stream) : cudaErrorNotSupported;

    if (error != cudaErrorNotSupported) return apr_cuda_outcome(device, error, err);
    error = cudaSuccess;
    for (int64_t first = 0, n = has_heads ? 1 : APR_SMALL_GEMM_MAX_TOKENS; first < a->n_tokens && error == cudaSuccess; first += n) {
        const apr_linear_args some = tokens_of(a, first, n);
        error = has_heads ? apr_cuda_linear_heads_few(&some, device->stream) : linear_some(device, &some);
        if (error != cudaErrorNotSupported || has_heads) continue;
        apr_cuda_count_write(device); /* inputs that an earlier part kept are not those of the next call */
        error = without_blas(device, &some);
    }
    return apr_cuda_outcome(device, error, err);
}

apr_status apr_cuda_linear(apr_cuda_device *device, const apr_linear_args *a, apr_error *err)
{
    if (device->batch_invariant) return linear_batch_invariant(device, a, err);
    if (a->heads.n > 0) return apr_cuda_linear_heads(device, a, err);
    const cudaError_t error = linear_some(device, a);
    if (error != cudaErrorNotSupported) return apr_cuda_outcome(device, error, err);
    const bool as_few = device->exact || a->n_tokens <= APR_CUDA_FEW_TOKENS;
    const bool packed = !device->tiles || apr_cuda_is_f16(a->weight); /* there is a kernel that reads the stored weights */
    if ((as_few && packed) || device->blas == NULL) return apr_cuda_outcome(device, without_blas(device, a), err);
    bool done = false;
    APR_TRY(apr_cuda_linear_fp8(device, a, &done, err));
    return done ? APR_OK : linear_many(device, a, err);
}

/* If the next product takes FP16 inputs, the GLU also writes those. */
apr_status apr_cuda_glu(apr_cuda_device *device, const apr_glu_args *a, apr_error *err)
{
    const bool through_f16 =
        a->n_tokens > APR_SMALL_GEMM_MAX_TOKENS && device->blas != NULL && !device->exact && !device->fp8 && !device->batch_invariant;
    size_t n_bytes;
    const apr_cuda_activations_f16 to = apr_cuda_cut_inputs(&a->work, a->n_tokens, a->width, false, &n_bytes);
    cudaError_t error = cudaErrorNotSupported;

    if (through_f16 && n_bytes <= a->work.slice * sizeof(float)) error = apr_cuda_glu_f16(a, NULL, &to, device->stream);
    const apr_cuda_cached_inputs inputs = {a->out, a->work.data, a->n_tokens, a->width, false, false, 0};
    if (error == cudaSuccess) apr_cuda_cache_inputs(device, &inputs);
    if (error == cudaErrorNotSupported) error = apr_cuda_glu_floats(a, device->stream);
    return apr_cuda_outcome(device, error, err);
}

apr_status apr_cuda_decode_f16(apr_cuda_device *device, const apr_tensor *matrix, int64_t first, int64_t n_rows, void *out, apr_error *err)
{
    APR_TRY(apr_cuda_make_current(device, err));
    apr_cuda_begin(device, "decoding '%s' (%s) to FP16", matrix->name,
                   matrix->packing != NULL ? matrix->packing->scheme : apr_dtypes[matrix->dtype].name);
    return apr_cuda_outcome(device, apr_cuda_decode_to_half(matrix, first, n_rows, (__half *)out, device->stream), err);
}
