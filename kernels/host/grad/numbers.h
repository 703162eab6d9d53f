/* numbers.h - the type of number that a file of this folder is compiled for, its functions, and its activations with their derivatives.
 *
 * The headers of this folder are compiled twice: by grad_float32.c, and by grad_float64.c, which defines GRAD_FLOAT64. */
#ifndef APR_KERNELS_HOST_GRAD_NUMBERS_H
#define APR_KERNELS_HOST_GRAD_NUMBERS_H

#include "formats/base/threads.h"
#include "kernels/grad.h"

#include <math.h>
#include <string.h>

#ifdef GRAD_FLOAT64
typedef double num;
#define MATH(name) name
#else
typedef float num;
#define MATH(name) name##f
#endif

static inline num sigmoid(num x) { return 1 / (1 + MATH(exp)(-x)); }
static inline num softplus(num x) { return x > 20 ? x : MATH(log1p)(MATH(exp)(x)); }
static inline num softplus_slope(num x) { return x > 20 ? 1 : sigmoid(x); }

/* y = x * Phi(x), and its derivative Phi(x) + x * phi(x) */
static inline num gelu(num x) { return x * (1 + MATH(erf)(x * (num)0.70710678118654752)) / 2; }
static inline num gelu_slope(num x)
{
    return (1 + MATH(erf)(x * (num)0.70710678118654752)) / 2 + x * MATH(exp)(-x * x / 2) * (num)0.39894228040143268;
}

static inline num gelu_tanh_argument(num x) { return (num)0.79788456080286536 * (x + (num)0.044715 * x * x * x); }
static inline num gelu_tanh(num x) { return x * (1 + MATH(tanh)(gelu_tanh_argument(x))) / 2; }
static inline num gelu_tanh_slope(num x)
{
    const num t = MATH(tanh)(gelu_tanh_argument(x)), inner = (num)0.79788456080286536 * (1 + 3 * (num)0.044715 * x * x);
    return (1 + t) / 2 + x * (1 - t * t) * inner / 2;
}

static inline num activate(apr_activation activation, num x)
{
    switch (activation) {
    case APR_ACT_SILU: return x * sigmoid(x);
    case APR_ACT_GELU_TANH: return gelu_tanh(x);
    case APR_ACT_RELU2: return x > 0 ? x * x : 0;
    case APR_ACT_GELU: return gelu(x);
    case APR_ACT_RELU: return x > 0 ? x : 0;
    case APR_ACT_SIGMOID: return sigmoid(x);
    case APR_ACT_SOFTPLUS: return softplus(x);
    default: return x;
    }
}

static inline num sigmoid_slope(num x) { return sigmoid(x) * (1 - sigmoid(x)); }
static inline num silu_slope(num x) { return sigmoid(x) * (1 + x * (1 - sigmoid(x))); }

static inline num activation_slope(apr_activation activation, num x)
{
    switch (activation) {
    case APR_ACT_SILU: return silu_slope(x);
    case APR_ACT_GELU_TANH: return gelu_tanh_slope(x);
    case APR_ACT_RELU2: return x > 0 ? 2 * x : 0;
    case APR_ACT_GELU: return gelu_slope(x);
    case APR_ACT_RELU: return x > 0 ? 1 : 0;
    case APR_ACT_SIGMOID: return sigmoid_slope(x);
    case APR_ACT_SOFTPLUS: return softplus_slope(x);
    default: return 1;
    }
}

/* A gated linear unit (kernels/activation.h), and its derivatives by gate and up. */
typedef struct glu_value {
    num out, by_gate, by_up;
} glu_value;

static inline glu_value glu_of(const apr_glu_shape *s, num gate, num up)
{
    const num limit = (num)s->limit, alpha = (num)s->alpha;
    const bool gate_ends = limit > 0 && gate > limit, up_ends = limit > 0 && MATH(fabs)(up) > limit;
    const num g = gate_ends ? limit : gate, u = (up_ends ? MATH(copysign)(limit, up) : up) + (num)s->up_offset;
    const num activated = alpha > 0 ? g * sigmoid(alpha * g) : activate(s->activation, g);
    const num slope = alpha > 0 ? silu_slope(alpha * g) : activation_slope(s->activation, g);
    return (glu_value){activated * u, gate_ends ? 0 : slope * u, up_ends ? 0 : activated};
}

/* A derivative by sums of many rows is added in the order of rows by one thread; over columns threads may share it. */
static inline int threads_for(const apr_grad_call *c, int64_t n_pieces, double steps) { return apr_threads(c->n_threads, n_pieces, steps); }

#endif
