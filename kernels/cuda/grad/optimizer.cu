/* optimizer.cu - Adam's steps of weights, and what their types store of them (the formulas are in runtime/distill/student.c). */
#include "kernels/cuda/grad/grad.cuh"

extern "C" {
#include "formats/number/half.h"
}

static __device__ float stored_as(apr_dtype dtype, float x)
{
    switch (dtype) {
    case APR_F16: return apr_f16_to_f32(apr_f32_to_f16(x));
    case APR_BF16: return apr_bf16_to_f32(apr_f32_to_bf16(x));
    default: return x;
    }
}

struct store_floats {
    const float *from;
    apr_dtype dtype;
    float *to;
    __device__ void operator()(int64_t i) const { to[i] = stored_as(dtype, from[i]); }
};

apr_status grad_stored(apr_cuda_device *device, const float *x, int64_t n, apr_dtype dtype, float *to, apr_error *err)
{
    APR_TRY(apr_cuda_make_current(device, err));
    apr_cuda_begin_phase(device, "rounding weights to their type");
    return grad_each(device, store_floats{x, dtype, to}, n, err);
}

/* What x moves by. */
static __device__ float adam_step(const apr_cuda_adam &a, float rate, float gradient, float *mean, float *power)
{
    *mean = a.mean_decay * *mean + a.mean_share * gradient;
    *power = a.power_decay * *power + a.power_share * gradient * gradient;
    return rate * (*mean * a.mean_scale) / (sqrtf(*power * a.power_scale) + a.epsilon);
}

struct adamw_step {
    apr_cuda_adam adam;
    float rate, decay;
    const float *gradient;
    float *x, *mean, *power;
    __device__ void operator()(int64_t i) const { x[i] -= adam_step(adam, rate, gradient[i], &mean[i], &power[i]) + decay * x[i]; }
};

apr_status grad_adamw(apr_cuda_device *device, const apr_cuda_adam *adam, float rate, float decay, const float *gradient, int64_t n,
                      float *x, float *mean, float *power, apr_error *err)
{
    APR_TRY(apr_cuda_make_current(device, err));
    apr_cuda_begin_phase(device, "a step of AdamW");
    return grad_each(device, adamw_step{*adam, rate, decay, gradient, x, mean, power}, n, err);
}
