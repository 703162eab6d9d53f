/* fake_device_prompt.c - a prompt's steps on a device that is none: their operations one after the other. */
#include "tests/support/fake_device_internal.h"

static int n_steps;
int fake_device_prompt_steps(void) { return n_steps; }

static apr_status inputs_now(apr_cuda_device *device, const apr_prompt_args *a, apr_error *err)
{
    const apr_op_args add = {
        .add = {.n_tokens = a->norm.n_tokens, .width = a->norm.width, .a = a->residual, .b = a->addend, .out = a->sum}};
    apr_op_args norm = {.norm = a->norm};

    if (a->has_sum) APR_TRY(fake_run(device, APR_OP_ADD, &add, err));
    if (a->has_sum) norm.norm.x = a->sum;
    return a->has_norm ? fake_run(device, APR_OP_NORM, &norm, err) : APR_OK;
}

static apr_status qkv_epilogue_now(apr_cuda_device *device, const apr_qkv_epilogue_args *a, apr_error *err)
{
    const apr_norm_args *const norms[2] = {&a->q_norm, &a->k_norm};
    const apr_rope_args *const ropes[2] = {&a->q, &a->k};
    for (int k = 0; k < 2; k++) {
        if (norms[k]->chunk > 0) APR_TRY(fake_run(device, APR_OP_NORM, &(apr_op_args){.norm = *norms[k]}, err));
        APR_TRY(fake_run(device, APR_OP_ROPE, &(apr_op_args){.rope = *ropes[k]}, err));
    }
    return fake_run(device, APR_OP_KV_STORE, &(apr_op_args){.kv_store = a->store}, err);
}

apr_status fake_prompt(apr_cuda_device *device, const apr_prompt_args *a, apr_error *err)
{
    n_steps++;
    if (a->parts[0].n_tokens < APR_PROMPT_MIN_TOKENS) return apr_fail(err, APR_E_USAGE, "a fake: so few tokens are not a prompt");
    APR_TRY(inputs_now(device, a, err));
    for (int i = 0; i < a->n_parts; i++) APR_TRY(fake_run(device, APR_OP_LINEAR, &(apr_op_args){.linear = a->parts[i]}, err));
    if (a->epilogue == APR_PROMPT_GLU) return fake_run(device, APR_OP_GLU, &(apr_op_args){.glu = a->glu}, err);
    return a->epilogue == APR_PROMPT_QKV ? qkv_epilogue_now(device, &a->qkv, err) : APR_OK;
}
