/* elementwise.cu - backward of what is computed a number at a time: gated linear units, gates, scales, products, soft caps, sums. */
#include "kernels/cuda/grad/grad.cuh"

/* ---- derivatives of kernels/activation.h ---- */

static __device__ float silu_slope(float x) { return apr_sigmoid(x) * (1.0f + x * (1.0f - apr_sigmoid(x))); }

static __device__ float gelu_slope(float x)
{
    return 0.5f * (1.0f + erff(x * 0.707106781186547f)) + x * expf(-0.5f * x * x) * 0.398942280401433f;
}

static __device__ float gelu_tanh_slope(float x)
{
    const float t = tanhf(0.797884560802865f * (x + 0.044715f * x * x * x)), inner = 0.797884560802865f * (1.0f + 0.134145f * x * x);
    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * inner;
}

static __device__ float activation_slope(apr_activation activation, float x)
{
    switch (activation) {
    case APR_ACT_SILU: return silu_slope(x);
    case APR_ACT_GELU_TANH: return gelu_tanh_slope(x);
    case APR_ACT_RELU2: return x > 0.0f ? 2.0f * x : 0.0f;
    case APR_ACT_GELU: return gelu_slope(x);
    case APR_ACT_RELU: return x > 0.0f ? 1.0f : 0.0f;
    case APR_ACT_SIGMOID: return apr_sigmoid(x) * (1.0f - apr_sigmoid(x));
    case APR_ACT_SOFTPLUS: return x > 20.0f ? 1.0f : apr_sigmoid(x);
    default: return 1.0f;
    }
}

/* ---- gated linear units ---- */

/* Derivatives of apr_glu_of by gate and up: zero where the limit holds one. */
static __device__ float2 glu_slopes(const apr_glu_shape &s, float gate, float up)
{
    const bool gate_ends = s.limit > 0.0f && gate > s.limit, up_ends = s.limit > 0.0f && fabsf(up) > s.limit;
    const float g = gate_ends ? s.limit : gate, u = (up_ends ? copysignf(s.limit, up) : up) + s.up_offset;
    const float activated = s.alpha > 0.0f ? g * apr_sigmoid(s.alpha * g) : apr_activate(s.activation, g);
    const float slope = s.alpha > 0.0f ? silu_slope(s.alpha * g) : activation_slope(s.activation, g);
    return make_float2(gate_ends ? 0.0f : slope * u, up_ends ? 0.0f : activated);
}

struct glu_backward {
    apr_glu_shape shape;
    const float *gate, *up, *d_out;
    float *d_gate, *d_up;
    __device__ void operator()(int64_t i) const
    {
        const float2 slopes =
            up != NULL ? glu_slopes(shape, gate[i], up[i]) : make_float2(activation_slope(shape.activation, gate[i]), 0.0f);
        if (d_gate != NULL) d_gate[i] += d_out[i] * slopes.x;
        if (d_up != NULL) d_up[i] += d_out[i] * slopes.y;
    }
};

apr_status grad_glu_backward(apr_cuda_device *device, const apr_grad_call *c, apr_error *err)
{
    const glu_backward b = {c->args->glu.shape, grad_in(c, 0), grad_in(c, 1), grad_d_out(c), grad_d_in(c, 0), grad_d_in(c, 1)};
    return grad_each(device, b, grad_n_out(c), err);
}

/* ---- gates ---- */

struct gate_inputs {
    apr_activation activation;
    int64_t head_dim;
    const float *gate, *d_out;
    float *d_x;
    __device__ void operator()(int64_t i) const { d_x[i] += d_out[i] * apr_activate(activation, gate[i / head_dim]); }
};

struct gate_gates {
    apr_activation activation;
    const float *gate;
    float *d_gate;
    __device__ void operator()(int64_t head, float sum) const { d_gate[head] += sum * activation_slope(activation, gate[head]); }
};

struct add_to {
    float *to;
    __device__ void operator()(int64_t row, float sum) const { to[row] += sum; }
};

/* A warp for each row of `n` numbers: use(row, sum of a * b). */
template <typename F>
static __global__ void __launch_bounds__(GRAD_THREADS) k_row_products(const float *a, const float *b, int64_t n_rows, int64_t n, F use)
{
    const int64_t row = ((int64_t)blockIdx.x * GRAD_THREADS + threadIdx.x) / 32;
    const int lane = (int)threadIdx.x % 32;
    float sum = 0.0f;

    if (row >= n_rows) return;
    for (int64_t i = lane; i < n; i += 32) sum += a[row * n + i] * b[row * n + i];
    sum = warp_sum(sum);
    if (lane == 0) use(row, sum);
}

template <typename F>
static apr_status row_products(apr_cuda_device *device, const float *a, const float *b, int64_t n_rows, int64_t n, const F &use,
                               apr_error *err)
{
    k_row_products<F><<<blocks_of(n_rows, GRAD_THREADS / 32), GRAD_THREADS, 0, device->stream>>>(a, b, n_rows, n, use);
    return apr_cuda_outcome(device, cudaGetLastError(), err);
}

apr_status grad_gate_backward(apr_cuda_device *device, const apr_grad_call *c, apr_error *err)
{
    const apr_gate_args *const a = &c->args->gate;
    const float *const gate = grad_in(c, 1);

    if (c->d_in[0] != NULL)
        APR_TRY(grad_each(device, gate_inputs{a->activation, a->head_dim, gate, grad_d_out(c), grad_d_in(c, 0)}, grad_n_out(c), err));
    if (c->d_in[1] == NULL) return APR_OK;
    return row_products(device, grad_d_out(c), grad_in(c, 0), c->n_rows * a->n_heads, a->head_dim,
                        gate_gates{a->activation, gate, grad_d_in(c, 1)}, err);
}

/* ---- scales ---- */

struct scale_numbers {
    apr_scale_args a;
    int64_t width, n_positions;
    const float *from;
    bool adds;
    float *to;
    __device__ void operator()(int64_t i) const
    {
        const float periods = a.warmth != 0.0f ? floorf(((float)(i / width % n_positions) + a.shift) / a.period) : 0.0f;
        to[i] = (adds ? to[i] : 0.0f) + from[i] * (a.factor * (1.0f + a.warmth * log1pf(periods)));
    }
};

apr_status grad_scale_forward(apr_cuda_device *device, const apr_grad_call *c, apr_error *err)
{
    const scale_numbers f = {c->args->scale, c->width_out, c->n_positions, grad_in(c, 0), false, (float *)c->out};
    return grad_each(device, f, grad_n_out(c), err);
}

apr_status grad_scale_backward(apr_cuda_device *device, const apr_grad_call *c, apr_error *err)
{
    const scale_numbers b = {c->args->scale, c->width_out, c->n_positions, grad_d_out(c), true, grad_d_in(c, 0)};
    return c->d_in[0] != NULL ? grad_each(device, b, grad_n_out(c), err) : APR_OK;
}

/* ---- products ---- */

/* to += d_out * the other factor: of rows of `width` numbers or of one, or one row for all. */
struct mul_inputs {
    int64_t width, y_width;
    bool y_is_vector;
    const float *y, *d_out;
    float *to;
    __device__ void operator()(int64_t i) const
    {
        to[i] += d_out[i] * y[(y_is_vector ? 0 : i / width * y_width) + (y_width == 1 ? 0 : i % width)];
    }
};

struct product_entry {
    const float *a, *b;
    int64_t n;
    __device__ float operator()(int64_t row, int64_t column) const { return a[row * n + column] * b[row * n + column]; }
};

/* A vector's gradient is summed over rows, a scalar's over all numbers. */
static int64_t vector_width(const apr_grad_call *c) { return c->args->mul.y_width == 1 ? 1 : c->width_out; }

size_t grad_mul_work(const apr_grad_call *c)
{
    return c->args->mul.y_is_vector ? grad_columns_work(grad_n_out(c) / vector_width(c), vector_width(c)) : 0;
}

static apr_status mul_factor(apr_cuda_device *device, const apr_grad_call *c, apr_error *err)
{
    const apr_mul_args *const a = &c->args->mul;
    const float *const x = grad_in(c, 0), *const d_out = grad_d_out(c);
    const int64_t n = vector_width(c);

    if (a->y_is_vector) {
        if (c->d_weight[0] == NULL) return APR_OK;
        return grad_add_columns(device, product_entry{d_out, x, n}, grad_n_out(c) / n, n, (float *)c->work, grad_d_weight(c, 0), err);
    }
    if (c->d_in[1] == NULL) return APR_OK;
    if (a->y_width == 1) return row_products(device, d_out, x, c->n_rows, c->width_out, add_to{grad_d_in(c, 1)}, err);
    return grad_each(device, mul_inputs{c->width_out, c->width_out, false, x, d_out, grad_d_in(c, 1)}, grad_n_out(c), err);
}

apr_status grad_mul_backward(apr_cuda_device *device, const apr_grad_call *c, apr_error *err)
{
    const apr_mul_args *const a = &c->args->mul;
    const float *const y = a->y_is_vector ? grad_weight(c, 0) : grad_in(c, 1);

    if (c->d_in[0] != NULL)
        APR_TRY(
            grad_each(device, mul_inputs{c->width_out, a->y_width, a->y_is_vector, y, grad_d_out(c), grad_d_in(c, 0)}, grad_n_out(c), err));
    return mul_factor(device, c, err);
}

/* ---- soft caps and sums ---- */

struct softcap_backward {
    const float *out, *d_out;
    float cap, *d_in;
    __device__ void operator()(int64_t i) const
    {
        const float t = out[i] / cap;
        d_in[i] += d_out[i] * (1.0f - t * t);
    }
};

apr_status grad_softcap_backward(apr_cuda_device *device, const apr_grad_call *c, apr_error *err)
{
    const softcap_backward b = {(const float *)c->out, grad_d_out(c), c->args->softcap.cap, grad_d_in(c, 0)};
    return c->d_in[0] != NULL ? grad_each(device, b, grad_n_out(c), err) : APR_OK;
}

struct add_numbers {
    const float *from;
    float *to;
    __device__ void operator()(int64_t i) const { to[i] += from[i]; }
};

apr_status grad_add_backward(apr_cuda_device *device, const apr_grad_call *c, apr_error *err)
{
    for (int k = 0; k < 2; k++)
        if (c->d_in[k] != NULL) APR_TRY(grad_each(device, add_numbers{grad_d_out(c), grad_d_in(c, k)}, grad_n_out(c), err));
    return APR_OK;
}
