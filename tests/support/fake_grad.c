/* fake_grad.c - see fake_grad.h. Called while the device works, and with its own pointers. */
#include "tests/support/fake_grad.h"

#include "tests/support/fake_device_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool has(apr_op_kind kind) { return kind < APR_OP_ROUTE && kind != APR_OP_INDEX; }

static uint64_t work(apr_op_kind kind, const apr_grad_call *call)
{
    const apr_grad_op *const op = &apr_grad_float32.ops[kind];
    return op->work != NULL ? op->work(call) : 0;
}

static apr_status run(apr_cuda_device *device, apr_grad_fn fn, const apr_grad_call *call, apr_error *err)
{
    apr_grad_call c = *call;
    apr_op_args args = *call->args;

    if (fn == NULL) return APR_OK;
    c.n_threads = 1;
    c.tiles = malloc(apr_grad_tiles() * sizeof(float));
    if (c.tiles == NULL) return apr_no_memory(err, "a fake device");
    fake_see(device, &c, sizeof c);
    fake_see(device, &args, sizeof args);
    c.args = &args;
    fake_touch(device, true);
    fn(&c);
    fake_touch(device, false);
    free(c.tiles);
    return APR_OK;
}

static apr_status forward(apr_cuda_device *device, apr_op_kind kind, const apr_grad_call *call, apr_error *err)
{
    return run(device, apr_grad_float32.ops[kind].forward, call, err);
}

static apr_status backward(apr_cuda_device *device, apr_op_kind kind, const apr_grad_call *call, apr_error *err)
{
    return run(device, apr_grad_float32.ops[kind].backward, call, err);
}

static apr_status divergence(apr_cuda_device *device, const float *teacher, float *student, int64_t n_rows, int64_t width, double factor,
                             bool gradient, double *kl, apr_error *err)
{
    (void)err;
    fake_touch(device, true);
    apr_grad_float32.divergence(fake_seen(device, teacher), fake_seen(device, student), n_rows, width, factor, gradient,
                                fake_seen(device, kl), 1);
    fake_touch(device, false);
    return APR_OK;
}

static apr_status first_not_finite(apr_cuda_device *device, const float *x, int64_t n, uint64_t *found, apr_error *err)
{
    (void)err;
    fake_touch(device, true);
    *(uint64_t *)fake_seen(device, found) = ~(uint64_t)apr_grad_float32.first_not_finite(fake_seen(device, x), n);
    fake_touch(device, false);
    return APR_OK;
}

static apr_status stored(apr_cuda_device *device, const float *x, int64_t n, apr_dtype dtype, float *to, apr_error *err)
{
    uint8_t bytes[8];
    const float *const from = fake_seen(device, x);
    float *const own = fake_seen(device, to);
    (void)err;
    fake_touch(device, true);
    for (int64_t i = 0; i < n; i++) {
        apr_ref_codecs[dtype].encode(from + i, bytes, 1);
        apr_ref_codecs[dtype].decode(bytes, own + i, 1);
    }
    fake_touch(device, false);
    return APR_OK;
}

static apr_status adamw(apr_cuda_device *device, const apr_cuda_adam *a, float rate, float decay, const float *gradient, int64_t n,
                        float *x, float *mean, float *power, apr_error *err)
{
    const float *const g = fake_seen(device, gradient);
    float *const w = fake_seen(device, x), *const m = fake_seen(device, mean), *const v = fake_seen(device, power);
    (void)err;
    fake_touch(device, true);
    for (int64_t i = 0; i < n; i++) {
        m[i] = a->mean_decay * m[i] + a->mean_share * g[i];
        v[i] = a->power_decay * v[i] + a->power_share * g[i] * g[i];
        w[i] -= rate * (m[i] * a->mean_scale) / (sqrtf(v[i] * a->power_scale) + a->epsilon) + decay * w[i];
    }
    fake_touch(device, false);
    return APR_OK;
}

const apr_cuda_grad fake_grad = {.has = has,
                                 .work = work,
                                 .forward = forward,
                                 .backward = backward,
                                 .divergence = divergence,
                                 .first_not_finite = first_not_finite,
                                 .stored = stored,
                                 .adamw = adamw};
