/* activation.h - scalar activation functions of feed-forward layers, gates and convolutions. */
#ifndef APR_KERNELS_ACTIVATION_H
#define APR_KERNELS_ACTIVATION_H

#include <math.h>

#ifdef __CUDACC__
#define APR_HOST_DEVICE_INLINE static __host__ __device__ inline
#else
#define APR_HOST_DEVICE_INLINE static inline
#endif

typedef enum {
    APR_ACT_NONE,      /* x */
    APR_ACT_SILU,      /* x * sigmoid(x) */
    APR_ACT_GELU_TANH, /* 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))): transformers' gelu_pytorch_tanh and gelu_new */
    APR_ACT_RELU2,     /* max(x, 0)^2 */
    APR_ACT_GELU,      /* x (1 + erf(x / sqrt(2))) / 2 */
    APR_ACT_RELU,      /* max(x, 0) */
    APR_ACT_SIGMOID,   /* 1 / (1 + exp(-x)) */
    APR_ACT_SOFTPLUS,  /* ln(1 + exp(x)); x itself above 20, as PyTorch has it */
    APR_ACT_COUNT
} apr_activation;

/* No branch overflows: exp(-x) of a very negative x is infinite, and 1 / (1 + inf) is 0. */
APR_HOST_DEVICE_INLINE float apr_sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
APR_HOST_DEVICE_INLINE float apr_softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

APR_HOST_DEVICE_INLINE float apr_gelu_tanh(float x) { return 0.5f * x * (1.0f + tanhf(0.797884560802865f * (x + 0.044715f * x * x * x))); }

APR_HOST_DEVICE_INLINE float apr_gelu(float x) { return 0.5f * x * (1.0f + erff(x * 0.707106781186547f)); }

APR_HOST_DEVICE_INLINE float apr_activate(apr_activation activation, float x)
{
    switch (activation) {
    case APR_ACT_SILU: return x / (1.0f + expf(-x));
    case APR_ACT_GELU_TANH: return apr_gelu_tanh(x);
    case APR_ACT_RELU2: return x > 0.0f ? x * x : 0.0f;
    case APR_ACT_GELU: return apr_gelu(x);
    case APR_ACT_RELU: return x > 0.0f ? x : 0.0f;
    case APR_ACT_SIGMOID: return apr_sigmoid(x);
    case APR_ACT_SOFTPLUS: return apr_softplus(x);
    default: return x;
    }
}

/* A gated linear unit, activation(gate) * up:
 *     limit > 0:  gate = min(gate, limit), up = max(-limit, min(up, limit))
 *     alpha > 0:  gate * sigmoid(alpha * gate), else activation(gate);  times (up + up_offset) */
typedef struct apr_glu_shape {
    apr_activation activation;
    float limit, alpha, up_offset; /* 0: none */
} apr_glu_shape;

APR_HOST_DEVICE_INLINE float apr_glu_of(const apr_glu_shape *shape, float gate, float up)
{
    if (shape->limit > 0.0f) {
        gate = fminf(gate, shape->limit);
        up = fmaxf(-shape->limit, fminf(up, shape->limit));
    }
    const float activated = shape->alpha > 0.0f ? gate * apr_sigmoid(shape->alpha * gate) : apr_activate(shape->activation, gate);
    return activated * (up + shape->up_offset);
}

#endif
