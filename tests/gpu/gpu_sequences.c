/* runtime/session/session.h: several sequences in one session on a CUDA device. Each has the bits that it has alone, whatever the others
 * are, and they are right; the memory is the plan's.
 *
 * Arguments name the tests that are to be run alone. */
#include "kernels/cuda_loader.h"
#include "runtime/session/session.h"
#include "tests/support/program_model.h"
#include "tests/support/sequence_check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const apr_cuda_api *cuda;

static sequence_check on_device(void) { return (sequence_check){.kv_dtype = APR_F16, .cuda = cuda}; }

/* Wide enough for products on tensor cores. */
static void wide(apr_hparams *h)
{
    h->hidden_size = 256;
    h->intermediate_size = 512;
    h->moe_intermediate_size = h->shared_expert_intermediate_size = h->moe_latent_size = 256;
    h->head_dim = h->rotary_dim = 64;
    h->vocab_size = 128;
}

static void check(const char *architecture, apr_dtype dtype, void (*sizes)(apr_hparams *h))
{
    const sequence_check c = on_device();
    const int n = check_family(&c, architecture, dtype, sizes);
    print_message("%s, %s: %d layers\n", architecture, apr_dtypes[dtype].name, n);
    assert_true(n > 0);
}

static void open_llama(program_model *m, apr_dtype dtype)
{
    static const uint8_t mixers[] = {APR_LAYER_FULL, APR_LAYER_FULL}, ffns[] = {APR_FFN_DENSE, APR_FFN_DENSE};
    apr_hparams h = program_model_sizes("llama");
    apr_error err = {0};
    wide(&h);
    h.max_position_embeddings = 4096;
    h.layer_kinds = mixers;
    h.ffn_kinds = ffns;
    h.num_experts = 0;
    if (program_model_open(m, &h, dtype, &err) != APR_OK) fail_msg("%s", err.text);
}

/* --- memory --- */

static void the_driver_reports_what_was_planned(void **state)
{
    program_model m;
    (void)state;
    open_llama(&m, APR_Q4_K);
    sequence_check c = on_device();
    c.model = &m.model;
    c.what = "llama of 19 sequences";
    c.stretch = 20;
    apr_session *const s = check_open(&c, CHECK_SEQUENCES, 0);
    for (int step = 0; step < 3; step++) {
        apr_sequence_token tokens[CHECK_SEQUENCES];
        apr_error err = {0};
        for (int64_t i = 0; i < CHECK_SEQUENCES && step == 0; i++) check_evaluate(&c, s, i, i, 0, 100 + i, NULL);
        for (int64_t i = 0; i < CHECK_SEQUENCES; i++) tokens[i] = (apr_sequence_token){i, check_id(&m.model, i, 100 + i + step)};
        if (apr_session_step(s, tokens, CHECK_SEQUENCES, NULL, &err) != APR_OK) fail_msg("%s", err.text);
    }
    const apr_session_memory memory = apr_session_check_memory(s);
    print_message("%lld bytes planned, %lld measured\n", (long long)memory.planned, (long long)memory.measured);
    check_memory(&c, s);
    apr_session_close(s);
    program_model_close(&m);
}

/* --- alone and among others --- */

static void dense_models_are_the_same_alone_and_among_others(void **state)
{
    (void)state;
    check("qwen2", APR_Q4_K, wide);
    check("llama", APR_Q6_K, wide);
    check("qwen3", APR_F16, wide);
    check("qwen2", APR_Q8_0, wide);
    check("llama", APR_Q5_K, wide); /* has no small GEMM */
    check("llama", APR_F32, NULL);
}

static void models_with_windows_chunks_and_caps_are_the_same_alone_and_among_others(void **state)
{
    (void)state;
    check("gemma3_text", APR_BF16, wide);
    check("gemma2", APR_Q8_0, wide);
    check("llama4_text", APR_Q8_0, NULL);
    check("ministral3", APR_MXFP4, wide);
}

static void mixtures_are_the_same_alone_and_among_others(void **state)
{
    (void)state;
    check("qwen3_moe", APR_Q4_K, wide);
    check("gpt_oss", APR_MXFP4, wide);
    check("qwen2_moe", APR_Q8_0, NULL);
}

static void recurrent_and_latent_models_are_the_same_alone_and_among_others(void **state)
{
    (void)state;
    check("deepseek_v32", APR_F32, NULL);
    check("qwen3_5", APR_Q8_0, NULL);
    check("granitemoehybrid", APR_Q8_0, NULL);
    check("deepseek_v2", APR_Q8_0, NULL);
    check("glm4_moe_lite", APR_F16, NULL);
}

/* --- texts that models write themselves --- */

static void text_of_family(const sequence_check *c)
{
    check_own_text(c, 6, 9); /* one more than go together in one of the ways */
    print_message("%s: one text\n", c->what);
}

static void texts_do_not_depend_on_how_many_windows_are_written_at_once(void **state)
{
    static const struct {
        const char *architecture;
        apr_dtype dtype;
        void (*sizes)(apr_hparams *h);
    } cases[] = {{"llama", APR_Q4_K, wide},     {"qwen3", APR_F16, wide},    {"gemma3_text", APR_BF16, wide},
                 {"qwen3_moe", APR_Q4_K, wide}, {"qwen3_5", APR_Q8_0, NULL}, {"deepseek_v2", APR_Q8_0, NULL}};
    sequence_check c = on_device();
    (void)state;
    c.kv_dtype = APR_F32;
    c.of_family = text_of_family;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_true(check_family(&c, cases[i].architecture, cases[i].dtype, cases[i].sizes) > 0);
}

/* --- one model in many ways --- */

static void long_contexts_are_cut_in_the_same_way(void **state)
{
    program_model m;
    (void)state;
    open_llama(&m, APR_Q8_0);
    sequence_check c = on_device();
    c.model = &m.model;
    c.what = "prompts of up to 1397 tokens";
    c.stretch = 11;
    check_sequences(&c, 7);
    program_model_close(&m);
}

static void every_type_of_cache_is_independent(void **state)
{
    program_model m;
    (void)state;
    open_llama(&m, APR_F16);
    for (int i = 0; i < APR_KV_DTYPES; i++) {
        sequence_check c = on_device();
        c.model = &m.model;
        c.what = apr_dtypes[apr_kv_dtypes[i]].name;
        c.kv_dtype = apr_kv_dtypes[i];
        check_sequences(&c, 7);
        c.is_exact = true;
        check_sequences(&c, 1);
    }
    program_model_close(&m);
}

static void logits_are_those_of_the_reference(void **state)
{
    static const struct {
        apr_dtype weights, kv;
        int64_t stretch;
        double bound;
    } cases[] = {{APR_F16, APR_F16, 1, 2e-3}, {APR_F16, APR_F32, 1, 1e-3}, {APR_Q4_K, APR_F16, 1, 2e-3}, {APR_Q8_0, APR_F16, 6, 2e-3}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        program_model m;
        open_llama(&m, cases[i].weights);
        sequence_check c = on_device();
        c.model = &m.model;
        c.what = "llama";
        c.kv_dtype = cases[i].kv;
        c.stretch = cases[i].stretch;
        sequence_check reference = c;
        reference.cuda = NULL;
        reference.backend = &apr_host_exact_backend;
        const double off = check_distance(&c, &reference);
        print_message("%s, cache %s, prompts of up to %lld tokens: logits are off by %.2e, bound %.0e\n", apr_dtypes[cases[i].weights].name,
                      apr_dtypes[cases[i].kv].name, (long long)(127 * c.stretch), off, cases[i].bound);
        assert_true(off <= cases[i].bound);
        program_model_close(&m);
    }
}

static void a_common_prefix_of_sequences_is_computed_once(void **state)
{
    static const struct {
        const char *architecture;
        uint8_t mixer;
        bool anywhere;
    } cases[] = {{"llama", APR_LAYER_FULL, true}, {"qwen3_5", APR_LAYER_LINEAR, false}, {"gemma3_text", APR_LAYER_SLIDING, false}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static const uint8_t ffn = APR_FFN_DENSE;
        apr_hparams h = program_model_sizes(cases[i].architecture);
        program_model m;
        apr_error err = {0};
        h.num_layers = 1;
        h.layer_kinds = &cases[i].mixer;
        h.ffn_kinds = &ffn;
        h.num_experts = 0;
        if (program_model_open(&m, &h, APR_F16, &err) != APR_OK) fail_msg("%s", err.text);
        sequence_check c = on_device();
        c.model = &m.model;
        c.what = cases[i].architecture;
        check_sharing(&c, cases[i].anywhere);
        program_model_close(&m);
    }
}

int main(int argc, char **argv)
{
    const struct {
        const char *name;
        struct CMUnitTest test;
    } tests[] = {
        {"memory", cmocka_unit_test(the_driver_reports_what_was_planned)}, /* first: what a process has loaded stays */
        {"dense", cmocka_unit_test(dense_models_are_the_same_alone_and_among_others)},
        {"text", cmocka_unit_test(texts_do_not_depend_on_how_many_windows_are_written_at_once)},
        {"windows", cmocka_unit_test(models_with_windows_chunks_and_caps_are_the_same_alone_and_among_others)},
        {"mixtures", cmocka_unit_test(mixtures_are_the_same_alone_and_among_others)},
        {"recurrent", cmocka_unit_test(recurrent_and_latent_models_are_the_same_alone_and_among_others)},
        {"long", cmocka_unit_test(long_contexts_are_cut_in_the_same_way)},
        {"caches", cmocka_unit_test(every_type_of_cache_is_independent)},
        {"right", cmocka_unit_test(logits_are_those_of_the_reference)},
        {"shared", cmocka_unit_test(a_common_prefix_of_sequences_is_computed_once)},
    };
    struct CMUnitTest chosen[sizeof tests / sizeof *tests];
    size_t n = 0;
    int n_devices;
    apr_error err = {0};

    if (apr_cuda_load(&cuda, &err) != APR_OK || cuda->count(&n_devices, &err) != APR_OK) {
        printf("skipped: no device (%s)\n", err.text);
        return 77;
    }
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        bool is_chosen = argc < 2;
        for (int k = 1; k < argc; k++) is_chosen |= strcmp(argv[k], tests[i].name) == 0;
        if (is_chosen) chosen[n++] = tests[i].test;
    }
    return _cmocka_run_group_tests("sequences", chosen, n, NULL, NULL);
}
