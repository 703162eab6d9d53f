/* products.cu - linear layers for training: y = x W^T + b;  dx += dy W,  dW += dy^T x,  db += sum of dy. With heads: a matrix for each.
 *
 * y is as exact as sums in float32, at a third of the speed of FP16. Each row of x and of W is divided by a power of two, and becomes the
 * sum of two FP16 numbers (kernels/cuda/gemm/activations_f16.cuh):
 *
 *     y = (x_low W^T + x W_low^T + x W^T) * scales of the rows of x and of W + b
 *
 * What is left out, x_low W_low^T, is at most 2^-24 of the magnitudes. Matrices of heads are small, and multiplied in float32.
 *
 * Gradients are products of TF32. cuBLAS would cut float32 numbers off after 11 bits, which makes all products too small by the same share.
 * So copies rounded to the nearest are multiplied: off by at most 2^-12, with no direction. */
#include "kernels/cuda/gemm/activations_f16.cuh"
#include "kernels/cuda/grad/grad.cuh"

/* Tensor cores truncate each time they add. So long sums are made of sums of so many columns, as in kernels/cuda/gemm/gemm.cu. */
enum { CAREFUL_COLUMNS = 4096 };

/* How cuBLAS multiplies each kind of numbers. Some versions take FP16 of odd shapes only the second way. */
static const struct {
    cudaDataType_t type;
    cublasComputeType_t compute[2];
} of_numbers[] = {
    {CUDA_R_32F, {CUBLAS_COMPUTE_32F_PEDANTIC, CUBLAS_COMPUTE_32F}},
    {CUDA_R_32F, {CUBLAS_COMPUTE_32F_FAST_TF32, CUBLAS_COMPUTE_32F}},
    {CUDA_R_16F, {CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_PEDANTIC}},
};

apr_status grad_multiply(apr_cuda_device *device, const grad_product *p, apr_error *err)
{
    const float one = 1.0f, beta = p->adds ? 1.0f : 0.0f;
    const bool b_rows = p->b.column == 1, a_rows = p->a.column == 1;
    const cudaDataType_t type = of_numbers[p->numbers].type;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;

    if (device->blas == NULL) return apr_fail(err, APR_E_USAGE, "training on a device needs cuBLAS, which was not started");
    if (p->m == 0 || p->n == 0 || p->n_batches == 0) return APR_OK;
    for (const cublasComputeType_t compute : of_numbers[p->numbers].compute) {
        /* by columns, as cuBLAS has it: c^T = b^T a^T */
        status = cublasGemmStridedBatchedEx(device->blas, b_rows ? CUBLAS_OP_N : CUBLAS_OP_T, a_rows ? CUBLAS_OP_N : CUBLAS_OP_T, (int)p->n,
                                            (int)p->m, (int)p->k, &one, p->b.at, type, (int)(b_rows ? p->b.row : p->b.column), p->b.batch,
                                            p->a.at, type, (int)(a_rows ? p->a.row : p->a.column), p->a.batch, &beta, p->c, CUDA_R_32F,
                                            (int)p->c_row, p->c_batch, (int)p->n_batches, compute, CUBLAS_GEMM_DEFAULT);
        if (status == CUBLAS_STATUS_SUCCESS) return APR_OK;
    }
    return apr_fail(err, APR_E_DEVICE, "%s: cuBLAS error: %s (%s)", apr_cuda_operation(device), cublasGetStatusString(status),
                    cublasGetStatusName(status));
}

/* ---- shapes ---- */

static int64_t heads_of(const apr_linear_args *a) { return a->heads.n > 0 ? a->heads.n : 1; }

/* Numbers of a row of the weight, and of all its rows. */
static int64_t weight_row(const apr_linear_args *a) { return a->heads.n > 0 && a->heads.transposed ? a->n_out : a->n_in; }
static int64_t weight_numbers(const apr_linear_args *a) { return (a->heads.n > 0 ? a->heads.n * a->heads.rows : a->n_out) * weight_row(a); }

static int64_t inputs_of(const apr_grad_call *c) { return c->n_rows * heads_of(&c->args->linear) * c->args->linear.n_in; }
static int64_t outputs_of(const apr_grad_call *c) { return c->n_rows * heads_of(&c->args->linear) * c->args->linear.n_out; }

/* Where the first head's matrix begins, and how far apart heads are. */
static int64_t weight_first(const apr_linear_args *a) { return a->heads.first * weight_row(a); }
static int64_t weight_batch(const apr_linear_args *a) { return a->heads.n > 0 ? a->heads.rows * weight_row(a) : 0; }

/* The weight as [n_out, n_in]; the rows that come in and go out, of each head. */
static grad_matrix weight_of(const apr_linear_args *a, const float *weight)
{
    const grad_matrix m = grad_rows_of(weight + weight_first(a), weight_row(a), weight_batch(a));
    return a->heads.n > 0 && a->heads.transposed ? grad_turned(m) : m;
}
static grad_matrix x_of(const apr_linear_args *a, const float *x) { return grad_rows_of(x, heads_of(a) * a->n_in, a->n_in); }
static grad_matrix y_of(const apr_linear_args *a, const float *y) { return grad_rows_of(y, heads_of(a) * a->n_out, a->n_out); }

/* ---- scratch memory ---- */

/* Of the forward pass, in floats: both parts of x and of W, the power of two of each row. */
struct pair_memory {
    apr_cuda_activations_f16 x, weight;
    size_t n;
};

static float *cut(float *work, size_t *n, int64_t n_floats)
{
    float *const at = work != NULL ? work + *n : NULL;
    *n += (size_t)(n_floats + 63) / 64 * 64;
    return at;
}

static apr_cuda_activations_f16 cut_pairs(float *work, size_t *n, int64_t n_rows, int64_t width)
{
    const int64_t n_floats = (n_rows * width + 1) / 2;
    apr_cuda_activations_f16 pairs = {};

    pairs.values = (__half *)cut(work, n, n_floats);
    pairs.remainders = (__half *)cut(work, n, n_floats);
    pairs.scales = cut(work, n, n_rows);
    return pairs;
}

/* work: NULL to count. */
static pair_memory cut_memory(const apr_grad_call *c, float *work)
{
    const apr_linear_args *const a = &c->args->linear;
    pair_memory m = {};

    if (a->heads.n > 0) return m; /* in float32: no copies */
    m.x = cut_pairs(work, &m.n, c->n_rows, a->n_in);
    m.weight = cut_pairs(work, &m.n, a->n_out, a->n_in);
    return m;
}

/* Rounded copies of the backward pass: dy, and of W for dx, then of x for dW. */
size_t grad_linear_work(const apr_grad_call *c)
{
    const int64_t x = inputs_of(c), y = outputs_of(c), w = weight_numbers(&c->args->linear);
    const size_t forward = cut_memory(c, NULL).n, backward = (size_t)(y + (x > w ? x : w)),
                 sums = grad_columns_work(c->n_rows, c->width_out);
    const size_t most = forward > backward ? forward : backward;
    return most > sums ? most : sums;
}

/* ---- forward ---- */

struct repeat_row {
    const float *row;
    int64_t n;
    float *to;
    __device__ void operator()(int64_t i) const { to[i] = row[i % n]; }
};

static apr_status forward_float32(apr_cuda_device *device, const apr_grad_call *c, apr_error *err)
{
    const apr_linear_args *const a = &c->args->linear;
    float *const out = (float *)c->out;
    const grad_matrix y = y_of(a, out);

    if (c->weight[1] != NULL) APR_TRY(grad_each(device, repeat_row{grad_weight(c, 1), c->width_out, out}, grad_n_out(c), err));
    const grad_product product = {x_of(a, grad_in(c, 0)),
                                  grad_turned(weight_of(a, grad_weight(c, 0))),
                                  out,
                                  y.row,
                                  y.batch,
                                  c->n_rows,
                                  a->n_out,
                                  a->n_in,
                                  heads_of(a),
                                  c->weight[1] != NULL,
                                  GRAD_FLOAT32};
    return grad_multiply(device, &product, err);
}

/* y = or += x W^T of n columns. */
static apr_status multiply_columns(apr_cuda_device *device, const apr_grad_call *c, const __half *x, const __half *weight, int64_t n,
                                   bool adds, apr_error *err)
{
    const int64_t n_in = c->args->linear.n_in, n_out = c->args->linear.n_out;
    const grad_product product = {grad_rows_of(x, n_in, 0),
                                  grad_turned(grad_rows_of(weight, n_in, 0)),
                                  (float *)c->out,
                                  n_out,
                                  0,
                                  c->n_rows,
                                  n_out,
                                  n,
                                  1,
                                  adds,
                                  GRAD_F16};
    return grad_multiply(device, &product, err);
}

struct finish_pairs {
    const float *x_scales, *weight_scales, *bias; /* bias NULL: none */
    int64_t n_out;
    float *y;
    __device__ void operator()(int64_t i) const
    {
        const int64_t row = i / n_out, column = i % n_out;
        y[i] = y[i] * x_scales[row] * weight_scales[column] + (bias != NULL ? bias[column] : 0.0f);
    }
};

/* The small products first: then they are not lost. */
static apr_status forward_pairs(apr_cuda_device *device, const apr_grad_call *c, apr_error *err)
{
    const apr_linear_args *const a = &c->args->linear;
    const pair_memory m = cut_memory(c, (float *)c->work);

    APR_TRY(apr_cuda_outcome(device, apr_cuda_make_f16(grad_in(c, 0), &m.x, c->n_rows, a->n_in, device->stream), err));
    APR_TRY(apr_cuda_outcome(device, apr_cuda_make_f16(grad_weight(c, 0), &m.weight, a->n_out, a->n_in, device->stream), err));
    APR_TRY(multiply_columns(device, c, m.x.remainders, m.weight.values, a->n_in, false, err));
    APR_TRY(multiply_columns(device, c, m.x.values, m.weight.remainders, a->n_in, true, err));
    for (int64_t i = 0; i < a->n_in; i += CAREFUL_COLUMNS) {
        const int64_t n = a->n_in - i < CAREFUL_COLUMNS ? a->n_in - i : (int64_t)CAREFUL_COLUMNS;
        APR_TRY(multiply_columns(device, c, m.x.values + i, m.weight.values + i, n, true, err));
    }
    return grad_each(device, finish_pairs{m.x.scales, m.weight.scales, grad_weight(c, 1), a->n_out, (float *)c->out}, grad_n_out(c), err);
}

apr_status grad_linear_forward(apr_cuda_device *device, const apr_grad_call *c, apr_error *err)
{
    return device->exact || c->args->linear.heads.n > 0 ? forward_float32(device, c, err) : forward_pairs(device, c, err);
}

/* ---- backward ---- */

/* What is multiplied for n numbers: they themselves, or `copy`, where they are rounded. */
static apr_status rounded(apr_cuda_device *device, const float *numbers, int64_t n, float *copy, const float **found, apr_error *err)
{
    *found = device->exact ? numbers : copy;
    return device->exact ? APR_OK : grad_each(device, grad_round{numbers, copy}, n, err);
}

static grad_numbers numbers_of(const apr_cuda_device *device) { return device->exact ? GRAD_FLOAT32 : GRAD_TF32; }

static apr_status backward_inputs(apr_cuda_device *device, const apr_grad_call *c, const float *dy, float *copy, apr_error *err)
{
    const apr_linear_args *const a = &c->args->linear;
    const grad_matrix dx = x_of(a, grad_d_in(c, 0));
    const float *weight;

    APR_TRY(rounded(device, grad_weight(c, 0), weight_numbers(a), copy, &weight, err));
    const grad_product product = {
        y_of(a, dy), weight_of(a, weight), grad_d_in(c, 0), dx.row, dx.batch, c->n_rows, a->n_in, a->n_out, heads_of(a),
        true,        numbers_of(device)};
    return grad_multiply(device, &product, err);
}

static apr_status backward_weight(apr_cuda_device *device, const apr_grad_call *c, const float *dy, float *copy, apr_error *err)
{
    const apr_linear_args *const a = &c->args->linear;
    const bool turned = a->heads.n > 0 && a->heads.transposed;
    const float *x;

    APR_TRY(rounded(device, grad_in(c, 0), inputs_of(c), copy, &x, err));
    const grad_matrix rows = turned ? x_of(a, x) : y_of(a, dy), columns = turned ? y_of(a, dy) : x_of(a, x);
    const grad_product product = {grad_turned(rows),
                                  columns,
                                  grad_d_weight(c, 0) + weight_first(a),
                                  weight_row(a),
                                  weight_batch(a),
                                  turned ? a->n_in : a->n_out,
                                  turned ? a->n_out : a->n_in,
                                  c->n_rows,
                                  heads_of(a),
                                  true,
                                  numbers_of(device)};
    return grad_multiply(device, &product, err);
}

apr_status grad_linear_backward(apr_cuda_device *device, const apr_grad_call *c, apr_error *err)
{
    float *const work = (float *)c->work, *const copy = work + outputs_of(c);
    const float *dy;

    if (c->d_weight[1] != NULL)
        APR_TRY(
            grad_add_columns(device, grad_entry_of{grad_d_out(c), c->width_out}, c->n_rows, c->width_out, work, grad_d_weight(c, 1), err));
    if (c->d_in[0] == NULL && c->d_weight[0] == NULL) return APR_OK;
    APR_TRY(rounded(device, grad_d_out(c), outputs_of(c), work, &dy, err));
    if (c->d_in[0] != NULL) APR_TRY(backward_inputs(device, c, dy, copy, err));
    return c->d_weight[0] != NULL ? backward_weight(device, c, dy, copy, err) : APR_OK;
}
