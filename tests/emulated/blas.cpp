/* blas.cpp - products of matrices as cuBLAS and cuBLASLt have them, column by column, as plain loops in float64. */
#include "tests/emulated/device.h"

#include <cublasLt.h>
#include <string.h>
#include <vector>

using emulated::give;

struct cublasContext {
    cudaStream_t stream;
    bool factors_on_device;
};
struct emulated_product {
    cublasOperation_t op_a;
    bool factors_on_device;
};
struct emulated_layout {
    cudaDataType_t type;
    uint64_t rows, columns;
    int64_t ld;
};
struct emulated_preference {
    int unused;
};

const char *cublasGetStatusName(cublasStatus_t status)
{
    static const char *const names[] = {"CUBLAS_STATUS_SUCCESS", "CUBLAS_STATUS_INVALID_VALUE", "CUBLAS_STATUS_ARCH_MISMATCH",
                                        "CUBLAS_STATUS_NOT_SUPPORTED"};
    return names[status];
}
const char *cublasGetStatusString(cublasStatus_t status)
{
    static const char *const words[] = {"success", "an invalid value was given", "the architecture lacks this", "not supported"};
    return words[status];
}

cublasStatus_t cublasCreate(cublasHandle_t *handle) { return *handle = new cublasContext{NULL, false}, CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasDestroy(cublasHandle_t handle) { return delete handle, CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) { return cublasCreate(handle); }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return cublasDestroy(handle); }
cublasStatus_t cublasGetVersion(cublasHandle_t, int *version) { return *version = 130000, CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) { return handle->stream = stream, CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetWorkspace(cublasHandle_t, void *, size_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetPointerMode(cublasHandle_t handle, cublasPointerMode_t mode)
{
    return handle->factors_on_device = mode == CUBLAS_POINTER_MODE_DEVICE, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; } /* sums are what they are */

/* --- products --- */

static float number(cudaDataType_t type, const void *p, int64_t i)
{
    switch (type) {
    case CUDA_R_16F: return apr_f16_to_f32(((const uint16_t *)p)[i]);
    case CUDA_R_16BF: return apr_bf16_to_f32(((const uint16_t *)p)[i]);
    case CUDA_R_8F_E4M3: return apr_e4m3_to_f32(((const uint8_t *)p)[i]);
    default: return ((const float *)p)[i];
    }
}
static void put(cudaDataType_t type, void *p, int64_t i, float f)
{
    if (type == CUDA_R_16F) ((uint16_t *)p)[i] = apr_f32_to_f16(f);
    else ((float *)p)[i] = f;
}
static size_t size_of(cudaDataType_t type) { return type == CUDA_R_32F ? 4 : type == CUDA_R_8F_E4M3 ? 1 : 2; }

/* c = alpha * op(a) * op(b) + beta * c; c is float32, or FP16. */
struct gemm {
    cublasOperation_t op_a, op_b;
    int64_t m, n, k;
    cudaDataType_t a_type, b_type, c_type;
    const void *a, *b;
    void *c;
    int64_t lda, ldb, ldc;
    const float *alpha, *beta; /* on the device, or NULL: */
    float alpha_here, beta_here;
    bool is_rounded; /* float32 inputs to TF32 */
};

/* To the nearest TF32: 10 bits of fraction, ties to even. */
static float to_tf32(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if ((bits & 0x7f800000) != 0x7f800000) bits = (bits + 0xfff + (bits >> 13 & 1)) & ~(uint32_t)0x1fff;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Vector i of a matrix as k numbers: of op(a) a row, of op(b) a column. */
static void vector_of(cudaDataType_t type, const void *p, int64_t ld, bool along, int64_t i, int64_t k, float *out)
{
    for (int64_t j = 0; j < k; j++) out[j] = number(type, p, along ? i * ld + j : j * ld + i);
}

static void carry_out(const gemm &g)
{
    const float alpha = g.alpha != NULL ? *g.alpha : g.alpha_here, beta = g.beta != NULL ? *g.beta : g.beta_here;
    std::vector<float> rows((size_t)(g.m * g.k)), column((size_t)g.k);
    for (int64_t i = 0; i < g.m; i++) vector_of(g.a_type, g.a, g.lda, g.op_a == CUBLAS_OP_T, i, g.k, rows.data() + i * g.k);
    if (g.is_rounded)
        for (float &x : rows) x = to_tf32(x);
    for (int64_t j = 0; j < g.n; j++) {
        vector_of(g.b_type, g.b, g.ldb, g.op_b == CUBLAS_OP_N, j, g.k, column.data());
        if (g.is_rounded)
            for (float &x : column) x = to_tf32(x);
        for (int64_t i = 0; i < g.m; i++) {
            const float *const row = rows.data() + i * g.k;
            double sum = 0;
            for (int64_t l = 0; l < g.k; l++) sum += (double)row[l] * (double)column[(size_t)l];
            const int64_t at = j * g.ldc + i;
            put(g.c_type, g.c, at, (float)(alpha * sum + (beta != 0.0f ? (double)beta * (double)number(g.c_type, g.c, at) : 0.0)));
        }
    }
}

static bool can_leave(cudaDataType_t of, cudaDataType_t type) { return type == CUDA_R_32F || (type == CUDA_R_16F && of == CUDA_R_16F); }

/* What a factor is, now or when the product is made. */
static void take_factors(gemm *g, bool on_device, const void *alpha, const void *beta)
{
    if (on_device) g->alpha = (const float *)alpha, g->beta = (const float *)beta;
    else g->alpha_here = *(const float *)alpha, g->beta_here = *(const float *)beta;
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
                                          const void *alpha, const void *a, cudaDataType_t a_type, int lda, long long a_stride,
                                          const void *b, cudaDataType_t b_type, int ldb, long long b_stride, const void *beta, void *c,
                                          cudaDataType_t c_type, int ldc, long long c_stride, int n_batches, cublasComputeType_t compute,
                                          cublasGemmAlgo_t)
{
    gemm g = {op_a, op_b, m, n, k, a_type, b_type, c_type, a, b, c, lda, ldb, ldc, NULL, NULL, 0.0f, 0.0f, false};
    g.is_rounded = compute == CUBLAS_COMPUTE_32F_FAST_TF32 && a_type == CUDA_R_32F;
    if (m < 0 || n < 0 || k < 0 || n_batches < 0 || lda < (op_a == CUBLAS_OP_N ? m : k) || ldb < (op_b == CUBLAS_OP_N ? k : n) || ldc < m)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!can_leave(a_type, c_type) || a_type != b_type || a_type == CUDA_R_8F_E4M3) return CUBLAS_STATUS_NOT_SUPPORTED;
    take_factors(&g, handle->factors_on_device, alpha, beta);
    give(handle->stream, [=] {
        gemm one = g;
        for (int i = 0; i < n_batches; i++) {
            one.a = (const uint8_t *)g.a + (size_t)i * (size_t)a_stride * size_of(g.a_type);
            one.b = (const uint8_t *)g.b + (size_t)i * (size_t)b_stride * size_of(g.b_type);
            one.c = (uint8_t *)g.c + (size_t)i * (size_t)c_stride * size_of(g.c_type);
            carry_out(one);
        }
        return true;
    });
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k, const void *alpha,
                            const void *a, cudaDataType_t a_type, int lda, const void *b, cudaDataType_t b_type, int ldb, const void *beta,
                            void *c, cudaDataType_t c_type, int ldc, cublasComputeType_t compute, cublasGemmAlgo_t algo)
{
    return cublasGemmStridedBatchedEx(handle, op_a, op_b, m, n, k, alpha, a, a_type, lda, 0, b, b_type, ldb, 0, beta, c, c_type, ldc, 0, 1,
                                      compute, algo);
}

/* What factorise.cu asks for: a triangle above the diagonal, transposed, on the left. */
cublasStatus_t cublasDtrsm(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t fill, cublasOperation_t op, cublasDiagType_t diag,
                           int m, int n, const double *alpha, const double *a, int lda, double *b, int ldb)
{
    const double factor = *alpha;
    if (side != CUBLAS_SIDE_LEFT || fill != CUBLAS_FILL_MODE_UPPER || op != CUBLAS_OP_T || diag != CUBLAS_DIAG_NON_UNIT)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    give(handle->stream, [=] {
        for (int64_t j = 0; j < n; j++)
            for (int64_t i = 0; i < m; i++) {
                double sum = factor * b[j * ldb + i];
                for (int64_t l = 0; l < i; l++) sum -= a[i * lda + l] * b[j * ldb + l];
                b[j * ldb + i] = sum / a[i * lda + i];
            }
        return true;
    });
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDsyrk(cublasHandle_t handle, cublasFillMode_t fill, cublasOperation_t op, int n, int k, const double *alpha,
                           const double *a, int lda, const double *beta, double *c, int ldc)
{
    const double factor = *alpha, kept = *beta;
    if (fill != CUBLAS_FILL_MODE_UPPER || op != CUBLAS_OP_T) return CUBLAS_STATUS_NOT_SUPPORTED;
    give(handle->stream, [=] {
        for (int64_t j = 0; j < n; j++)
            for (int64_t i = 0; i <= j; i++) {
                double sum = 0;
                for (int64_t l = 0; l < k; l++) sum += a[i * lda + l] * a[j * lda + l];
                c[j * ldc + i] = factor * sum + kept * c[j * ldc + i];
            }
        return true;
    });
    return CUBLAS_STATUS_SUCCESS;
}

/* --- cuBLASLt --- */

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *product, cublasComputeType_t, cudaDataType_t)
{
    return *product = new emulated_product{CUBLAS_OP_N, false}, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) { return delete product, CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute, const void *value,
                                              size_t)
{
    const int32_t n = *(const int32_t *)value;
    if (attribute == CUBLASLT_MATMUL_DESC_TRANSA) product->op_a = (cublasOperation_t)n;
    else product->factors_on_device = n == CUBLASLT_POINTER_MODE_DEVICE;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType_t type, uint64_t rows, uint64_t columns, int64_t ld)
{
    return *layout = new emulated_layout{type, rows, columns, ld}, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) { return delete layout, CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t, const void *value,
                                                size_t n_bytes)
{
    if (n_bytes != sizeof layout->columns) return CUBLAS_STATUS_INVALID_VALUE;
    return memcpy(&layout->columns, value, n_bytes), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    return *preference = new emulated_preference{0}, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) { return delete preference, CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t, const void *, size_t)
{
    return CUBLAS_STATUS_SUCCESS;
}

static bool is_fit(const emulated_product &p, const emulated_layout &a, const emulated_layout &b, const emulated_layout &d)
{
    const uint64_t m = p.op_a == CUBLAS_OP_T ? a.columns : a.rows, k = p.op_a == CUBLAS_OP_T ? a.rows : a.columns;
    const uint64_t most = (uint64_t)1 << 31;
    if (m >= most || k >= most || b.columns >= most || m == 0 || k == 0 || b.columns == 0) return false; /* also what was negative */
    if (a.type != b.type || !can_leave(a.type, d.type) || k != b.rows || m != d.rows || b.columns != d.columns) return false;
    if (a.type != CUDA_R_8F_E4M3) return true;
    return __CUDA_ARCH__ >= 890 && p.op_a == CUBLAS_OP_T && m % 16 == 0 && k % 16 == 0;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t, int most, cublasLtMatmulHeuristicResult_t *ways, int *n_ways)
{
    *n_ways = most > 0 && is_fit(*product, *a, *b, *d) ? 1 : 0;
    if (*n_ways == 0) return CUBLAS_STATUS_NOT_SUPPORTED;
    ways[0] = cublasLtMatmulHeuristicResult_t{{0}, 0, CUBLAS_STATUS_SUCCESS, 1.0f};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t product, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,
                              const void *, cublasLtMatrixLayout_t, void *d, cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *,
                              void *, size_t, cudaStream_t stream)
{
    gemm g = {};
    if (!is_fit(*product, *a_layout, *b_layout, *d_layout)) return CUBLAS_STATUS_NOT_SUPPORTED;
    g.op_a = product->op_a, g.op_b = CUBLAS_OP_N;
    g.m = (int64_t)d_layout->rows, g.n = (int64_t)d_layout->columns, g.k = (int64_t)b_layout->rows;
    g.a_type = a_layout->type, g.b_type = b_layout->type, g.c_type = d_layout->type;
    g.a = a, g.b = b, g.c = d;
    g.lda = a_layout->ld, g.ldb = b_layout->ld, g.ldc = d_layout->ld;
    take_factors(&g, product->factors_on_device, alpha, beta);
    give(stream, [=] { return carry_out(g), true; });
    return CUBLAS_STATUS_SUCCESS;
}
