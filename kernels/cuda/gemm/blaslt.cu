/* blaslt.cu - GEMMs through cuBLASLt (blaslt.cuh): the choice of algorithms, and fallbacks. */
#include "kernels/cuda/gemm/blaslt.cuh"

#include <cublasLt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_ALGOS = 6, N_CHOICES = 128, MAX_ALIGNMENT = 256 };

/* The key of a choice; compared byte by byte. */
typedef struct gemm_key {
    int64_t n_rows, most_tokens, n_in, row_stride, out_stride;
    int32_t type, out_type, has_factors;
    uint32_t aligned[3]; /* of weights, inputs, out: a power of two, at most MAX_ALIGNMENT */
} gemm_key;

typedef struct gemm_choice {
    gemm_key key;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t weights, inputs, out;
    int64_t n_tokens; /* of the layouts of inputs and out */
    cublasLtMatmulAlgo_t algos[N_ALGOS];
    float waves[N_ALGOS];
    int n_algos, algo; /* algorithms before `algo` did not work */
} gemm_choice;

typedef struct apr_cuda_choices {
    gemm_choice of[N_CHOICES];
    int n, oldest;
} apr_cuda_choices;

static uint32_t alignment_of(const void *p)
{
    uint32_t n = MAX_ALIGNMENT;
    while ((uintptr_t)p % n != 0) n /= 2;
    return n;
}

static cudaDataType_t out_type(const apr_cuda_gemm *p) { return p->to_f16 ? CUDA_R_16F : CUDA_R_32F; }

/* The number of tokens, rounded up: the best algorithm for one number of tokens is good for the next, and each algorithm is code that the
 * driver keeps in device memory. Prompts of all lengths need about twenty of them. */
static int64_t most_tokens_like(const apr_cuda_gemm *p)
{
    int64_t step = 32;
    if (p->type != CUDA_R_16F || p->n_tokens <= 64) return p->n_tokens;
    while (8 * step < p->n_tokens) step *= 2;
    return (p->n_tokens + step - 1) / step * step;
}

static gemm_key key_of(const apr_cuda_gemm *p)
{
    gemm_key key;
    memset(&key, 0, sizeof key);
    key.n_rows = p->n_rows;
    key.most_tokens = most_tokens_like(p);
    key.n_in = p->n_in;
    key.row_stride = p->row_stride;
    key.out_stride = p->out_stride;
    key.type = (int32_t)p->type;
    key.out_type = (int32_t)out_type(p);
    key.has_factors = p->factors != NULL;
    key.aligned[0] = alignment_of(p->weights);
    key.aligned[1] = alignment_of(p->inputs);
    key.aligned[2] = alignment_of(p->out);
    return key;
}

static void destroy_choice(gemm_choice *c)
{
    if (c->out != NULL) cublasLtMatrixLayoutDestroy(c->out);
    if (c->inputs != NULL) cublasLtMatrixLayoutDestroy(c->inputs);
    if (c->weights != NULL) cublasLtMatrixLayoutDestroy(c->weights);
    if (c->product != NULL) cublasLtMatmulDescDestroy(c->product);
    memset(c, 0, sizeof *c);
}

void apr_cuda_free_gemm_choices(apr_cuda_choices *choices)
{
    for (int i = 0; choices != NULL && i < choices->n; i++) destroy_choice(&choices->of[i]);
    free(choices);
}

/* Creates the descriptors. cuBLAS is column major: its columns are rows of n_in numbers, or of outputs. */
static cublasStatus_t describe(gemm_choice *c)
{
    const gemm_key *const k = &c->key;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const int32_t mode = k->has_factors ? CUBLASLT_POINTER_MODE_DEVICE : CUBLASLT_POINTER_MODE_HOST;
    const cudaDataType_t type = (cudaDataType_t)k->type;
    cublasStatus_t s = cublasLtMatmulDescCreate(&c->product, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = cublasLtMatmulDescSetAttribute(c->product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
    if (s == CUBLAS_STATUS_SUCCESS) s = cublasLtMatmulDescSetAttribute(c->product, CUBLASLT_MATMUL_DESC_POINTER_MODE, &mode, sizeof mode);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = cublasLtMatrixLayoutCreate(&c->weights, type, (uint64_t)k->n_in, (uint64_t)k->n_rows, k->row_stride);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = cublasLtMatrixLayoutCreate(&c->inputs, type, (uint64_t)k->n_in, (uint64_t)k->most_tokens, k->row_stride);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = cublasLtMatrixLayoutCreate(&c->out, (cudaDataType_t)k->out_type, (uint64_t)k->n_rows, (uint64_t)k->most_tokens, k->out_stride);
    return s;
}

static cublasStatus_t prefer(cublasLtMatmulPreference_t preference, const apr_cuda_device *device, const gemm_key *k)
{
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE; /* no split-K with FP16 partial sums: they may overflow */
    cublasStatus_t s = cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &device->workspace_bytes,
                                                            sizeof device->workspace_bytes);
    for (int i = 0; i < 4 && s == CUBLAS_STATUS_SUCCESS; i++) {
        const uint32_t n = k->aligned[i < 2 ? i : 2];
        s = cublasLtMatmulPreferenceSetAttribute(preference, alignments[i], &n, sizeof n);
    }
    if (s != CUBLAS_STATUS_SUCCESS || k->out_type == CUDA_R_32F) return s;
    return cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions);
}

/* Whether the last wave of tiles (one on each multiprocessor) is mostly full. */
static bool fills_its_waves(const cublasLtMatmulHeuristicResult_t *algo)
{
    return algo->wavesCount >= 0.9375f * ceilf(algo->wavesCount); /* 15 of 16 */
}

/* cuBLASLt prefers large tiles even if they leave a third of a device idle: 3.9 waves of smaller ones are 12 % faster than 1.7 waves of
 * them. So the first proposal that fills its waves is tried first. The choice must not depend on timings: other algorithms add in another
 * order. */
static void put_full_waves_first(cublasLtMatmulHeuristicResult_t *algos, int n)
{
    int first = 0;
    while (first < n && !(algos[first].state == CUBLAS_STATUS_SUCCESS && fills_its_waves(&algos[first]))) first++;
    if (first == n) return;
    const cublasLtMatmulHeuristicResult_t full = algos[first];
    memmove(algos + 1, algos, (size_t)first * sizeof *algos);
    algos[0] = full;
}

static cublasStatus_t choose(const apr_cuda_device *device, gemm_choice *c)
{
    cublasLtMatmulHeuristicResult_t results[N_ALGOS];
    cublasLtMatmulPreference_t preference = NULL;
    int n = 0;

    cublasStatus_t s = describe(c);
    if (s == CUBLAS_STATUS_SUCCESS) s = cublasLtMatmulPreferenceCreate(&preference);
    if (s == CUBLAS_STATUS_SUCCESS) s = prefer(preference, device, &c->key);
    if (s == CUBLAS_STATUS_SUCCESS) /* a cuBLAS handle is also a valid cuBLASLt handle */
        s = cublasLtMatmulAlgoGetHeuristic((cublasLtHandle_t)device->blas, c->product, c->weights, c->inputs, c->out, c->out, preference,
                                           N_ALGOS, results, &n);
    if (preference != NULL) cublasLtMatmulPreferenceDestroy(preference);
    if (s == CUBLAS_STATUS_SUCCESS) put_full_waves_first(results, n);
    for (int i = 0; i < n && s == CUBLAS_STATUS_SUCCESS; i++)
        if (results[i].state == CUBLAS_STATUS_SUCCESS) {
            c->waves[c->n_algos] = results[i].wavesCount;
            c->algos[c->n_algos++] = results[i].algo;
        }
    return s;
}

/* The choice for a key, made on first use; n_algos is 0 if it cannot be described. NULL: out of memory. */
static gemm_choice *choice_of(apr_cuda_device *device, const gemm_key *key)
{
    if (device->choices == NULL) device->choices = (apr_cuda_choices *)calloc(1, sizeof *device->choices);
    apr_cuda_choices *const all = device->choices;
    if (all == NULL) return NULL;
    for (int i = 0; i < all->n; i++)
        if (memcmp(&all->of[i].key, key, sizeof *key) == 0) return &all->of[i];
    const int at = all->n < N_CHOICES ? all->n++ : all->oldest++ % N_CHOICES;
    gemm_choice *const c = &all->of[at];
    destroy_choice(c);
    c->key = *key;
    c->n_tokens = key->most_tokens;
    if (choose(device, c) != CUBLAS_STATUS_SUCCESS) c->n_algos = 0;
    return c;
}

int apr_cuda_force_gemm_algorithm(apr_cuda_device *device, const apr_cuda_gemm *product, int algo, float *waves)
{
    const gemm_key key = key_of(product);
    gemm_choice *const c = choice_of(device, &key);
    if (c == NULL || algo >= c->n_algos) return c == NULL ? 0 : c->n_algos;
    c->algo = algo;
    *waves = c->waves[algo];
    return c->n_algos;
}

/* Sets the number of tokens of the layouts. */
static cublasStatus_t describe_tokens(gemm_choice *c, int64_t n_tokens)
{
    const uint64_t n = (uint64_t)n_tokens;
    if (c->n_tokens == n_tokens || c->n_algos == 0) return CUBLAS_STATUS_SUCCESS;
    c->n_tokens = 0; /* invalid, in case only one of them is changed */
    cublasStatus_t s = cublasLtMatrixLayoutSetAttribute(c->inputs, CUBLASLT_MATRIX_LAYOUT_COLS, &n, sizeof n);
    if (s == CUBLAS_STATUS_SUCCESS) s = cublasLtMatrixLayoutSetAttribute(c->out, CUBLASLT_MATRIX_LAYOUT_COLS, &n, sizeof n);
    if (s == CUBLAS_STATUS_SUCCESS) c->n_tokens = n_tokens;
    return s;
}

static cublasStatus_t multiply_lt(apr_cuda_device *device, const apr_cuda_gemm *p)
{
    const float host[2] = {ldexpf(1.0f, p->exponent), p->adds ? 1.0f : 0.0f}, *const factors = p->factors != NULL ? p->factors : host;
    const gemm_key key = key_of(p);
    gemm_choice *const c = choice_of(device, &key);
    cublasStatus_t s = CUBLAS_STATUS_NOT_SUPPORTED;

    if (c != NULL && describe_tokens(c, p->n_tokens) != CUBLAS_STATUS_SUCCESS) return s;
    for (; c != NULL && c->algo < c->n_algos; c->algo++) {
        s = cublasLtMatmul((cublasLtHandle_t)device->blas, c->product, &factors[0], p->weights, c->weights, p->inputs, c->inputs,
                           &factors[1], p->out, c->out, p->out, c->out, &c->algos[c->algo], device->workspace, device->workspace_bytes,
                           device->stream);
        if (s == CUBLAS_STATUS_SUCCESS) break;
    }
    return s;
}

/* The product through plain cuBLAS, the fastest compute type first. */
static cublasStatus_t multiply_plain(apr_cuda_device *device, const apr_cuda_gemm *p)
{
    static const cublasComputeType_t algos[] = {CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_PEDANTIC};
    const float host[2] = {ldexpf(1.0f, p->exponent), p->adds ? 1.0f : 0.0f}, *const factors = p->factors != NULL ? p->factors : host;
    cublasStatus_t s = cublasSetPointerMode(device->blas, p->factors != NULL ? CUBLAS_POINTER_MODE_DEVICE : CUBLAS_POINTER_MODE_HOST);

    if (p->to_f16 && cublasSetMathMode(device->blas, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION) != CUBLAS_STATUS_SUCCESS)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    for (size_t i = 0; i < sizeof algos / sizeof *algos; i++) {
        s = cublasGemmEx(device->blas, CUBLAS_OP_T, CUBLAS_OP_N, (int)p->n_rows, (int)p->n_tokens, (int)p->n_in, &factors[0], p->weights,
                         p->type, (int)p->row_stride, p->inputs, p->type, (int)p->row_stride, &factors[1], p->out, out_type(p),
                         (int)p->out_stride, algos[i], CUBLAS_GEMM_DEFAULT);
        if (s == CUBLAS_STATUS_SUCCESS) break;
    }
    cublasSetPointerMode(device->blas, CUBLAS_POINTER_MODE_HOST);
    if (p->to_f16) cublasSetMathMode(device->blas, CUBLAS_DEFAULT_MATH);
    return s;
}

/* Tokens and rows of a thread block, and the columns that it takes at a time. */
enum { SIDE = 16 };

/* Without tensor cores: a thread per output, float32 sums in column order. */
static __global__ void __launch_bounds__(SIDE *SIDE) k_multiply(const __grid_constant__ apr_cuda_gemm p)
{
    __shared__ float weights[SIDE][SIDE + 1], inputs[SIDE][SIDE];
    const int x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
    const int64_t first_row = (int64_t)blockIdx.x * SIDE, first_token = (int64_t)blockIdx.y * SIDE, row = first_row + x,
                  token = first_token + y;
    float sum = 0.0f;

    for (int64_t column = 0; column < p.n_in; column += SIDE) {
        const bool in_row = column + x < p.n_in;
        const int64_t weight = (first_row + y) * p.row_stride + column + x, input = token * p.row_stride + column + x;
        weights[y][x] = in_row && first_row + y < p.n_rows ? __half2float(((const __half *)p.weights)[weight]) : 0.0f;
        inputs[y][x] = in_row && token < p.n_tokens ? __half2float(((const __half *)p.inputs)[input]) : 0.0f;
        __syncthreads();
        for (int i = 0; i < SIDE; i++) sum = fmaf(weights[x][i], inputs[y][i], sum);
        __syncthreads();
    }
    if (row >= p.n_rows || token >= p.n_tokens) return;
    const int64_t at = token * p.out_stride + row;
    sum *= p.factors != NULL ? p.factors[0] : __uint_as_float((uint32_t)(127 + p.exponent) << 23);
    if (p.to_f16) ((__half *)p.out)[at] = __float2half_rn(sum);
    else p.out[at] = p.adds ? p.out[at] + sum : sum;
}

cudaError_t apr_cuda_multiply_scaled(const apr_cuda_gemm *p, cudaStream_t stream)
{
    const int64_t n_rows = (p->n_rows + SIDE - 1) / SIDE, n_tokens = (p->n_tokens + SIDE - 1) / SIDE;
    if (p->type != CUDA_R_16F || n_tokens > UINT16_MAX) return cudaErrorNotSupported;
    k_multiply<<<dim3((unsigned)n_rows, (unsigned)n_tokens), SIDE * SIDE, 0, stream>>>(*p);
    return cudaGetLastError();
}

cublasStatus_t apr_cuda_multiply(apr_cuda_device *device, const apr_cuda_gemm *product)
{
    if (device->refuses) return CUBLAS_STATUS_NOT_SUPPORTED;
    const cublasStatus_t s = multiply_lt(device, product);
    return s == CUBLAS_STATUS_SUCCESS || product->type != CUDA_R_16F ? s : multiply_plain(device, product);
}
