/* Experts whose rows end within an item, on a CUDA device: filled up as the plan says, their numbers are those of the reference, token by
 * token, in prompts and in steps of several sequences. */
#include "kernels/cuda_loader.h"
#include "runtime/session/session.h"
#include "tests/support/program_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LAYERS = 2, N_TOKENS = 24, N_SEQUENCES = 3, SINGLE = 6 };

static const apr_cuda_api *cuda;
static apr_cuda_api counted;
static int n_streamed;

static apr_status count_experts(apr_cuda_device *device, const apr_experts_args *args, const apr_decode_gemv_args *gemv, apr_error *err)
{
    n_streamed++;
    return cuda->experts(device, args, gemv, err);
}

typedef struct kind {
    const char *architecture;
    apr_dtype dtype;
    int64_t hidden, middle;
} kind;

/* What is multiplied besides experts has whole items, or none. */
static const kind kinds[] = {{"gpt_oss", APR_MXFP4, 320, 352},
                             {"qwen3_moe", APR_MXFP4, 512, 96},
                             {"gpt_oss", APR_Q8_0, 320, 160},
                             {"qwen3_moe", APR_Q8_0, 192, 256}};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static void open_model(program_model *m, const kind *k)
{
    static const uint8_t mixers[LAYERS] = {APR_LAYER_FULL, APR_LAYER_FULL}, experts[LAYERS] = {APR_FFN_EXPERTS, APR_FFN_EXPERTS};
    apr_hparams h = program_model_sizes(k->architecture);
    apr_error err = {0};
    h.hidden_size = k->hidden;
    h.moe_intermediate_size = k->middle;
    h.head_dim = h.rotary_dim = 64;
    h.vocab_size = 128;
    h.num_layers = LAYERS;
    h.layer_kinds = mixers;
    h.ffn_kinds = experts;
    if (program_model_open(m, &h, k->dtype, &err) != APR_OK) fail_msg("%s", err.text);
}

static uint64_t padding_bytes(const apr_session *s)
{
    const apr_plan_line *const line = apr_plan_line_of(apr_session_plan(s), APR_LINE_FILLED);
    return line != NULL ? line->bytes : 0;
}

static apr_session *open_session(const apr_model *model, bool on_device, int64_t n_sequences, bool apart)
{
    apr_session_options options = apr_session_defaults;
    options.n_ctx = 64;
    options.n_batch = options.n_logits = N_TOKENS;
    options.n_sequences = n_sequences;
    options.no_fusion = apart;
    if (on_device) options.cuda = &counted;
    else options.backend = &apr_ref_backend;
    return must_open_session(model, &options);
}

static int32_t id_of(const apr_model *model, int64_t sequence, int64_t i)
{
    return (int32_t)((31 * sequence + 17 * i + i * i) % model->hparams.vocab_size);
}

/* Logits [N_TOKENS, vocab] of a prompt and the single tokens after it. */
static float *run_one(apr_session *s, const apr_model *model, int64_t sequence)
{
    const int64_t width = model->hparams.vocab_size;
    float *const logits = malloc((size_t)(N_TOKENS * width) * sizeof *logits);
    int32_t ids[N_TOKENS];
    apr_error err = {0};

    assert_non_null(logits);
    for (int64_t i = 0; i < N_TOKENS; i++) ids[i] = id_of(model, sequence, i);
    const size_t n = N_TOKENS - SINGLE;
    if (apr_session_eval(s, ids, n, &(apr_eval_output){.all_logits = true, .logits = logits}, &err) != APR_OK) fail_msg("%s", err.text);
    for (int64_t i = (int64_t)n; i < N_TOKENS; i++)
        if (apr_session_eval(s, &ids[i], 1, &(apr_eval_output){.logits = logits + i * width}, &err) != APR_OK) fail_msg("%s", err.text);
    return logits;
}

/* Of the largest. */
static double off_by(const float *a, const float *b, size_t n)
{
    double most = 0.0, off = 0.0;
    for (size_t i = 0; i < n; i++) {
        if (!(fabs((double)a[i]) < 1e30)) return INFINITY;
        off = fmax(off, fabs((double)a[i] - b[i]));
        most = fmax(most, fabs((double)b[i]));
    }
    return off / most;
}

static void compare(const kind *k, bool is_filled)
{
    program_model m;
    open_model(&m, k);
    apr_session *const ref = open_session(&m.model, false, 1, false), *const s = open_session(&m.model, true, 1, !is_filled);
    float *const reference = run_one(ref, &m.model, 0);
    n_streamed = 0;
    float *const logits = run_one(s, &m.model, 0);
    const size_t width = (size_t)m.model.hparams.vocab_size, prompt = (N_TOKENS - SINGLE) * width;
    const double of_prompt = off_by(logits, reference, prompt), of_tokens = off_by(logits + prompt, reference + prompt, SINGLE * width);
    print_message("%s, %s, %lld and %lld wide, %s: prompt %.2g, tokens %.2g\n", k->architecture, apr_dtypes[k->dtype].name,
                  (long long)k->hidden, (long long)k->middle, is_filled ? "filled up" : "as stored", of_prompt, of_tokens);
    assert_true(of_prompt <= 3e-3);
    assert_true(of_tokens <= 3e-3);
    assert_int_equal(padding_bytes(s) > 0, is_filled);
    assert_int_equal(n_streamed > 0, is_filled);
    free(reference);
    free(logits);
    apr_session_close(s);
    apr_session_close(ref);
    program_model_close(&m);
}

static void padded_rows_have_the_reference_s_numbers(void **state)
{
    (void)state;
    for (int i = 0; i < N_KINDS; i++) compare(&kinds[i], true);
}

/* Where no kernel reads tiles; whether there is memory for padded rows is the plan's matter (tests/runtime/test_plans.c). */
static void rows_that_are_not_padded_stay_as_stored(void **state)
{
    (void)state;
    for (int i = 0; i < N_KINDS; i++) compare(&kinds[i], false);
}

static void sequences_read_padded_rows(void **state)
{
    (void)state;
    for (int i = 0; i < N_KINDS; i++) {
        program_model m;
        open_model(&m, &kinds[i]);
        apr_session *const s = open_session(&m.model, true, N_SEQUENCES, false);
        assert_true(padding_bytes(s) > 0);
        const size_t width = (size_t)m.model.hparams.vocab_size;
        float *reference[N_SEQUENCES], logits[N_SEQUENCES * 128];
        apr_sequence_token tokens[N_SEQUENCES];
        apr_error err = {0};
        for (int64_t q = 0; q < N_SEQUENCES; q++) {
            apr_session *const ref = open_session(&m.model, false, 1, false);
            int32_t ids[N_TOKENS];
            reference[q] = run_one(ref, &m.model, q);
            apr_session_close(ref);
            for (int64_t j = 0; j < N_TOKENS; j++) ids[j] = id_of(&m.model, q, j);
            apr_session_use(s, q);
            if (apr_session_eval(s, ids, N_TOKENS - SINGLE, NULL, &err) != APR_OK) fail_msg("%s", err.text);
        }
        for (int64_t j = N_TOKENS - SINGLE; j < N_TOKENS; j++) {
            for (int64_t q = 0; q < N_SEQUENCES; q++) tokens[q] = (apr_sequence_token){q, id_of(&m.model, q, j)};
            if (apr_session_step(s, tokens, N_SEQUENCES, &(apr_eval_output){.logits = logits}, &err) != APR_OK) fail_msg("%s", err.text);
            for (int64_t q = 0; q < N_SEQUENCES; q++)
                assert_true(off_by(logits + q * (int64_t)width, reference[q] + j * (int64_t)width, width) <= 3e-3);
        }
        for (int64_t q = 0; q < N_SEQUENCES; q++) free(reference[q]);
        apr_session_close(s);
        program_model_close(&m);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(padded_rows_have_the_reference_s_numbers),
                                       cmocka_unit_test(rows_that_are_not_padded_stay_as_stored),
                                       cmocka_unit_test(sequences_read_padded_rows)};
    int n_devices;
    apr_error err = {0};

    if (apr_cuda_load(&cuda, &err) != APR_OK || cuda->count(&n_devices, &err) != APR_OK) {
        printf("skipped: no device (%s)\n", err.text);
        return 77;
    }
    counted = *cuda;
    counted.experts = count_experts;
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("experts' rows filled up", tests, NULL, NULL);
}
