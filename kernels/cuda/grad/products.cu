/* products.cu - linear layers for training: y = x W^T + b;  dx += dy W,  dW += dy^T x,  db += sum of dy. With heads: a matrix for each.
 *
 * cuBLAS would cut float32 numbers off after 11 bits, which makes all products too small by the same share. So copies rounded to the nearest
 * are multiplied: off by at most 2^-12, with no direction. */
#include "kernels/cuda/grad/grad.cuh"

apr_status grad_multiply(apr_cuda_device *device, const grad_product *p, apr_error *err)
{
    const float one = 1.0f, beta = p->adds ? 1.0f : 0.0f;
    const bool b_rows = p->b.column == 1, a_rows = p->a.column == 1;

    if (device->blas == NULL) return apr_fail(err, APR_E_USAGE, "training on a device needs cuBLAS, which was not started");
    if (p->m == 0 || p->n == 0 || p->n_batches == 0) return APR_OK;
    /* by columns, as cuBLAS has it: c^T = b^T a^T */
    const cublasStatus_t status =
        cublasGemmStridedBatchedEx(device->blas, b_rows ? CUBLAS_OP_N : CUBLAS_OP_T, a_rows ? CUBLAS_OP_N : CUBLAS_OP_T, (int)p->n,
                                   (int)p->m, (int)p->k, &one, p->b.at, CUDA_R_32F, (int)(b_rows ? p->b.row : p->b.column), p->b.batch,
                                   p->a.at, CUDA_R_32F, (int)(a_rows ? p->a.row : p->a.column), p->a.batch, &beta, p->c, CUDA_R_32F,
                                   (int)p->c_row, p->c_batch, (int)p->n_batches, CUBLAS_COMPUTE_32F_FAST_TF32, CUBLAS_GEMM_DEFAULT);
    if (status == CUBLAS_STATUS_SUCCESS) return APR_OK;
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

/* Rounded copies: forward of x and W, backward of dy, and of W for dx, then of x for dW. */
size_t grad_linear_work(const apr_grad_call *c)
{
    const int64_t x = inputs_of(c), y = outputs_of(c), w = weight_numbers(&c->args->linear);
    const size_t forward = (size_t)(x + w), backward = (size_t)(y + (x > w ? x : w)), sums = grad_columns_work(c->n_rows, c->width_out);
    const size_t most = forward > backward ? forward : backward;
    return most > sums ? most : sums;
}

static apr_status round_to(apr_cuda_device *device, const float *from, int64_t n, float *to, apr_error *err)
{
    return grad_each(device, grad_round{from, to}, n, err);
}

/* ---- the operation ---- */

struct repeat_row {
    const float *row;
    int64_t n;
    float *to;
    __device__ void operator()(int64_t i) const { to[i] = row[i % n]; }
};

apr_status grad_linear_forward(apr_cuda_device *device, const apr_grad_call *c, apr_error *err)
{
    const apr_linear_args *const a = &c->args->linear;
    float *const out = (float *)c->out, *const x = (float *)c->work, *const weight = x + inputs_of(c);
    const grad_matrix y = y_of(a, out);

    APR_TRY(round_to(device, grad_in(c, 0), inputs_of(c), x, err));
    APR_TRY(round_to(device, grad_weight(c, 0), weight_numbers(a), weight, err));
    if (c->weight[1] != NULL) APR_TRY(grad_each(device, repeat_row{grad_weight(c, 1), c->width_out, out}, grad_n_out(c), err));
    const grad_product product = {
        x_of(a, x),          grad_turned(weight_of(a, weight)), out, y.row, y.batch, c->n_rows, a->n_out, a->n_in, heads_of(a),
        c->weight[1] != NULL};
    return grad_multiply(device, &product, err);
}

static apr_status backward_inputs(apr_cuda_device *device, const apr_grad_call *c, const float *dy, float *weight, apr_error *err)
{
    const apr_linear_args *const a = &c->args->linear;
    const grad_matrix dx = x_of(a, grad_d_in(c, 0));

    APR_TRY(round_to(device, grad_weight(c, 0), weight_numbers(a), weight, err));
    const grad_product product = {
        y_of(a, dy), weight_of(a, weight), grad_d_in(c, 0), dx.row, dx.batch, c->n_rows, a->n_in, a->n_out, heads_of(a), true};
    return grad_multiply(device, &product, err);
}

static apr_status backward_weight(apr_cuda_device *device, const apr_grad_call *c, const float *dy, float *x, apr_error *err)
{
    const apr_linear_args *const a = &c->args->linear;
    const bool turned = a->heads.n > 0 && a->heads.transposed;

    APR_TRY(round_to(device, grad_in(c, 0), inputs_of(c), x, err));
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
                                  true};
    return grad_multiply(device, &product, err);
}

apr_status grad_linear_backward(apr_cuda_device *device, const apr_grad_call *c, apr_error *err)
{
    float *const dy = (float *)c->work, *const other = dy + outputs_of(c);

    if (c->d_weight[1] != NULL)
        APR_TRY(
            grad_add_columns(device, grad_entry_of{grad_d_out(c), c->width_out}, c->n_rows, c->width_out, dy, grad_d_weight(c, 1), err));
    if (c->d_in[0] == NULL && c->d_weight[0] == NULL) return APR_OK;
    APR_TRY(round_to(device, grad_d_out(c), outputs_of(c), dy, err));
    if (c->d_in[0] != NULL) APR_TRY(backward_inputs(device, c, dy, other, err));
    return c->d_weight[0] != NULL ? backward_weight(device, c, dy, other, err) : APR_OK;
}
