/* prompt.cu - fused operations of many tokens (kernels/cuda/prompt_args.h): inputs, products, epilogue.
 *
 * The rows' scales are at the beginning of the workspace (gemm.cuh): a kernel that prepares a row reads its old scale before it writes the
 * new one. */
#include "kernels/cuda/gemm/gemm.cuh"
#include "kernels/cuda/gemv/decode_gemv.cuh"

static const char *words_of(const apr_prompt_args *a)
{
    static const char *const words[] = {"products of a prompt", "products of a prompt, without their scales",
                                        "gate, up and GLU of a prompt", "QKV products and epilogue of a prompt"};
    return words[a->epilogue];
}

/* Whether the parts are products of one x, with so many tokens that inputs have one part. */
static bool is_valid(const apr_prompt_args *a)
{
    static const int n_parts[] = {0, 1, 2, 3}; /* for each epilogue; STORE has any number */
    const apr_linear_args *const first = &a->parts[0];
    const bool fits =
        a->n_parts >= 1 && a->n_parts <= APR_PROMPT_PARTS && (a->epilogue == APR_PROMPT_STORE || a->n_parts == n_parts[a->epilogue]);

    if (!fits || first->n_tokens < APR_PROMPT_MIN_TOKENS || (a->has_sum && !a->has_norm) || (a->has_norm && a->input_is_glu)) return false;
    for (int i = 0; i < a->n_parts; i++) {
        const apr_linear_args *const p = &a->parts[i];
        const bool is_same =
            p->x == first->x && p->work.data == first->work.data && p->n_tokens == first->n_tokens && p->n_in == first->n_in;
        if (!is_same || p->heads.n > 0 || apr_cuda_shares_scale(p) != apr_cuda_shares_scale(first)) return false;
        if (p->bias != NULL && (a->epilogue == APR_PROMPT_UNSCALED || a->epilogue == APR_PROMPT_GLU)) return false;
    }
    return true;
}

/* Whether the inputs share a power of two. With gate and up as FP16 the GLU applies each row's scale anyway. */
static bool inputs_share_scale(const apr_prompt_args *a)
{
    bool has_own = a->epilogue == APR_PROMPT_GLU && a->row_sums != NULL;
    int exponent;
    for (int i = 0; i < 2 && has_own; i++) has_own = apr_prompt_f16_exponent(a->row_sums[i], a->parts[i].n_in, &exponent);
    return !has_own && apr_cuda_shares_scale(&a->parts[0]);
}

/* Writes the products' inputs as FP16. */
static cudaError_t prepare(apr_cuda_device *device, const apr_prompt_args *a, const apr_cuda_activations_f16 *inputs)
{
    const apr_linear_args *const first = &a->parts[0];
    const apr_cuda_cached_inputs wanted = {first->x, first->work.data, first->n_tokens, first->n_in, inputs->factors != NULL, false, 0};

    if (a->has_norm) {
        apr_cuda_sum rows = {a->norm.x, NULL, NULL, NULL, NULL};
        if (a->has_sum) rows = apr_cuda_sum{a->residual, a->addend, a->addend_is_unscaled ? inputs->scales : NULL, NULL, a->sum};
        return apr_cuda_sum_f16(&rows, &a->norm, inputs, device->stream);
    }
    if (a->input_is_glu) return apr_cuda_has_cached_inputs(device, &wanted) ? cudaSuccess : cudaErrorInvalidValue;
    return apr_cuda_make_f16_once(device, first, inputs);
}

static apr_status store(apr_cuda_device *device, const apr_prompt_args *a, const apr_cuda_activations_f16 *inputs, apr_error *err)
{
    cudaError_t error = cudaSuccess;
    for (int i = 0; i < a->n_parts && error == cudaSuccess; i++) {
        const apr_linear_args *const p = &a->parts[i];
        error = apr_cuda_finish(p->out, inputs, p->bias, p->n_tokens, p->n_out, device->stream);
    }
    return apr_cuda_outcome(device, error, err);
}

/* Finds the powers of two for gate and up as FP16; computes row sums that are not known yet. *found false: they stay float32. */
static apr_status find_exponents(apr_cuda_device *device, const apr_prompt_args *a, int exponents[2], bool *found, apr_error *err)
{
    *found = a->row_sums != NULL;
    for (int i = 0; i < 2 && *found; i++) {
        if (a->row_sums[i] == 0.0f && device->recording) *found = false; /* waiting is not possible while recording */
        else if (a->row_sums[i] == 0.0f) APR_TRY(apr_cuda_row_sum(device, &a->parts[i], &a->row_sums[i], err));
        *found = *found && apr_prompt_f16_exponent(a->row_sums[i], a->parts[i].n_in, &exponents[i]);
    }
    return APR_OK;
}

static apr_status make_glu(apr_cuda_device *device, const apr_prompt_args *a, const apr_cuda_gated *gated, apr_error *err)
{
    size_t n_bytes;
    const apr_cuda_activations_f16 to = apr_cuda_cut_inputs(&a->glu.work, a->glu.n_tokens, a->glu.width, false, &n_bytes);
    apr_glu_args glu = a->glu;

    if (n_bytes > glu.work.slice * sizeof(float))
        return apr_fail(err, APR_E_USAGE, "the GLU of %lld tokens needs %zu bytes of workspace and got %zu", (long long)glu.n_tokens,
                        n_bytes, glu.work.slice * sizeof(float));
    glu.out = NULL;
    APR_TRY(apr_cuda_outcome(device, apr_cuda_glu_f16(&glu, gated, &to, device->stream), err));
    const apr_cuda_cached_inputs inputs = {a->glu.out, glu.work.data, glu.n_tokens, glu.width, false, false, 0};
    apr_cuda_cache_inputs(device, &inputs);
    return APR_OK;
}

static apr_status multiply_glu(apr_cuda_device *device, const apr_prompt_args *a, const apr_cuda_activations_f16 *inputs, apr_error *err)
{
    apr_cuda_gated gated = {inputs->scales, false, {1.0f, 1.0f}};
    int exponents[2] = {0, 0};

    APR_TRY(find_exponents(device, a, exponents, &gated.is_f16, err));
    for (int i = 0; i < 2; i++) {
        if (gated.is_f16) APR_TRY(apr_cuda_multiply_to_f16(device, &a->parts[i], inputs, exponents[i], err));
        else APR_TRY(apr_cuda_multiply_f16(device, &a->parts[i], inputs, err));
        gated.by[i] = ldexpf(1.0f, -exponents[i]);
    }
    return make_glu(device, a, &gated, err);
}

/* stacked: q, k and v of a token are next to each other there; NULL: they are separate. */
static apr_status qkv_epilogue(apr_cuda_device *device, const apr_prompt_args *a, const apr_cuda_activations_f16 *inputs,
                               const apr_cuda_stacked_qkv *stacked, apr_error *err)
{
    apr_cuda_unscaled_qkv unscaled = {inputs->scales, {a->parts[0].bias, a->parts[1].bias, a->parts[2].bias}, {NULL, NULL, NULL}, 0};
    const float *from = stacked != NULL ? stacked->out : NULL;

    for (int i = 0; stacked != NULL && i < a->n_parts; i++) {
        unscaled.from[i] = from;
        from += a->parts[i].n_out;
    }
    unscaled.stride = stacked != NULL ? stacked->n_rows : 0;
    return apr_cuda_outcome(device, apr_cuda_qkv_epilogue_many(&a->qkv, &unscaled, device->stream), err);
}

/* Keys and values have few rows: together with the query's they are one product that fills a device, if the workspace has room. Only the
 * QKV epilogue reads its output. */
static apr_status multiply_qkv(apr_cuda_device *device, const apr_prompt_args *a, const apr_cuda_activations_f16 *inputs, apr_error *err)
{
    apr_cuda_stacked_qkv stacked;
    const bool is_stacked = apr_cuda_cut_stacked_input(a->parts, a->n_parts, &stacked);

    if (is_stacked) APR_TRY(apr_cuda_multiply_stacked(device, a->parts, a->n_parts, inputs, &stacked, err));
    for (int i = 0; !is_stacked && i < a->n_parts; i++) APR_TRY(apr_cuda_multiply_f16(device, &a->parts[i], inputs, err));
    return qkv_epilogue(device, a, inputs, is_stacked ? &stacked : NULL, err);
}

static apr_status run(apr_cuda_device *device, const apr_prompt_args *a, apr_error *err)
{
    const apr_linear_args *const first = &a->parts[0];
    size_t n_bytes;
    const apr_cuda_activations_f16 inputs =
        apr_cuda_cut_inputs(&first->work, first->n_tokens, first->n_in, inputs_share_scale(a), &n_bytes);

    if (n_bytes > first->work.slice * sizeof(float))
        return apr_fail(err, APR_E_USAGE, "%s: inputs of %lld tokens need %zu bytes of workspace", words_of(a), (long long)first->n_tokens,
                        n_bytes);
    APR_TRY(apr_cuda_outcome(device, prepare(device, a, &inputs), err));
    if (a->epilogue == APR_PROMPT_QKV) return multiply_qkv(device, a, &inputs, err);
    if (a->epilogue == APR_PROMPT_GLU) return multiply_glu(device, a, &inputs, err);
    for (int i = 0; i < a->n_parts; i++) APR_TRY(apr_cuda_multiply_f16(device, &a->parts[i], &inputs, err));
    return a->epilogue == APR_PROMPT_STORE ? store(device, a, &inputs, err) : APR_OK;
}

apr_status apr_cuda_run_prompt(apr_cuda_device *device, const apr_prompt_args *args, apr_error *err)
{
    APR_TRY(apr_cuda_make_current(device, err));
    apr_cuda_begin_phase(device, words_of(args));
    if (device->blas == NULL || device->exact || device->tiles || device->batch_invariant || device->fp8 || !is_valid(args))
        return apr_fail(err, APR_E_USAGE, "%s: there is no fused operation for these arguments", words_of(args));
    APR_TRY(run(device, args, err));
    if (!device->options.check_each) return APR_OK;
    return apr_cuda_outcome(device, cudaStreamSynchronize(device->stream), err);
}
