/* runtime/program/program.h: what each family emits, rotary frequencies against transformers' numbers, and what is refused. */
#include "runtime/program/op_spec.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static apr_hparams small_model(const char *architecture)
{
    apr_hparams h = {.architecture = architecture,
                     .hidden_size = 64,
                     .num_layers = 3,
                     .num_heads = 4,
                     .num_kv_heads = 2,
                     .head_dim = 32,
                     .vocab_size = 100,
                     .intermediate_size = 96,
                     .max_position_embeddings = 512,
                     .rms_norm_eps = 1e-5,
                     .rope_theta = 10000.0,
                     .rotary_dim = 32};
    return h;
}

static apr_program emit(const apr_hparams *h)
{
    apr_program program;
    apr_error err = {0};
    if (apr_program_emit(&program, h, &err) != APR_OK) fail_msg("%s", err.text);
    return program;
}

static const apr_weight_slot *slot_of(const apr_program *p, const char *name)
{
    for (size_t i = 0; i < p->n_weights; i++)
        if (strcmp(p->weights[i].name, name) == 0) return &p->weights[i];
    return NULL;
}

/* Operations read values that are there, and write each value once. */
static void check_order(const apr_program *p)
{
    bool *const made = calloc(p->n_values, sizeof *made);
    assert_non_null(made);
    for (size_t i = 0; i < p->n_ops; i++) {
        const apr_op *const op = &p->ops[i];
        for (int j = 0; j < APR_OP_MAX_IN; j++) assert_true(op->in[j] < 0 || (op->in[j] < (int)p->n_values && made[op->in[j]]));
        for (int j = 0; j < APR_OP_MAX_WEIGHTS; j++) assert_true(op->weight[j] < (int)p->n_weights);
        assert_true(op->state < (int)p->n_states);
        if (op->out < 0) continue;
        assert_false(made[op->out]);
        made[op->out] = true;
    }
    for (size_t i = 0; i < p->n_values; i++) assert_true(made[i]);
    free(made);
}

static void every_family_emits_a_program_in_order(void **state)
{
    (void)state;
    static const char *const families[] = {"llama", "mistral", "qwen2", "qwen3"};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const apr_hparams h = small_model(families[i]);
        apr_program p = emit(&h);
        check_order(&p);
        assert_int_equal(p.n_states, 3);
        assert_int_equal(p.n_taps, 4);
        assert_null(apr_program_missing_op(&p, &apr_ref_backend));
        assert_null(apr_program_missing_op(&p, &apr_host_backend));
        apr_program_close(&p);
    }
}

static void what_a_backend_lacks_is_named_with_its_layer(void **state)
{
    (void)state;
    static const uint8_t kinds[3] = {APR_LAYER_LINEAR, APR_LAYER_FULL, APR_LAYER_LINEAR};
    static const struct {
        const char *architecture;
        apr_op_kind missing;
        int layer;
    } cases[] = {
        {"qwen3_moe", APR_OP_ROUTE, 0}, {"gpt_oss", APR_OP_EXPERTS, 0}, {"qwen3_5", APR_OP_CONV, 0}, {"qwen3_5_moe", APR_OP_ATTEND, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_hparams h = small_model(cases[i].architecture);
        h.num_experts = 5;
        h.num_experts_per_tok = 2;
        h.moe_intermediate_size = 24;
        h.shared_expert_intermediate_size = 40;
        h.linear_num_key_heads = 2;
        h.linear_num_value_heads = 4;
        h.linear_key_head_dim = h.linear_value_head_dim = 16;
        h.linear_conv_kernel_dim = 4;
        if (strncmp(cases[i].architecture, "qwen3_5", 7) == 0) h.layer_kinds = kinds;
        apr_program p = emit(&h);
        check_order(&p);
        assert_int_equal(p.n_taps, 4);
        assert_null(apr_program_missing_op(&p, &apr_host_backend));
        apr_backend lacking = apr_host_backend;
        lacking.ops[cases[i].missing] = NULL;
        const apr_op *const missing = apr_program_missing_op(&p, &lacking);
        assert_non_null(missing);
        assert_int_equal(missing->kind, cases[i].missing);
        assert_int_equal(missing->layer, cases[i].layer);
        apr_program_close(&p);
    }
}

static void families_differ_in_biases_norms_and_heads(void **state)
{
    (void)state;
    static const char q_bias[] = "model.layers.2.self_attn.q_proj.bias", o_bias[] = "model.layers.2.self_attn.o_proj.bias";
    static const char q_norm[] = "model.layers.2.self_attn.q_norm.weight";
    static const struct {
        const char *architecture;
        bool attention_bias, needs_q_bias, needs_o_bias, has_q_norm;
    } cases[] = {
        {"llama", false, false, false, false}, {"llama", true, true, true, false},   {"mistral", false, false, false, false},
        {"qwen2", false, true, false, false},  {"qwen3", false, false, false, true}, {"qwen3", true, true, true, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_hparams h = small_model(cases[i].architecture);
        h.attention_bias = cases[i].attention_bias;
        apr_program p = emit(&h);
        assert_int_equal(slot_of(&p, q_bias)->optional, !cases[i].needs_q_bias);
        assert_int_equal(slot_of(&p, o_bias)->optional, !cases[i].needs_o_bias);
        assert_int_equal(slot_of(&p, q_norm) != NULL, cases[i].has_q_norm);
        assert_int_equal(slot_of(&p, "lm_head.weight")->role, APR_ROLE_HEAD);
        assert_int_equal(slot_of(&p, "model.layers.0.self_attn.k_proj.weight")->dims[0], 64);
        assert_int_equal(slot_of(&p, "model.layers.0.self_attn.o_proj.weight")->dims[1], 128);
        apr_program_close(&p);
        h.tie_word_embeddings = true;
        p = emit(&h);
        assert_null(slot_of(&p, "lm_head.weight"));
        assert_string_equal(p.weights[p.ops[p.n_ops - 1].weight[0]].name, "model.embed_tokens.weight");
        apr_program_close(&p);
    }
}

static void windows_come_from_the_layers_or_for_mistral_from_the_config(void **state)
{
    (void)state;
    static const uint8_t kinds[3] = {APR_LAYER_FULL, APR_LAYER_SLIDING, APR_LAYER_FULL};
    apr_hparams h = small_model("qwen2");
    h.sliding_window = 32;
    apr_program p = emit(&h);
    for (int i = 0; i < 3; i++) assert_int_equal(p.states[i].kind, APR_STATE_KV); /* qwen2's config states a window it does not use */
    apr_program_close(&p);
    h.layer_kinds = kinds;
    p = emit(&h);
    assert_int_equal(p.states[0].kind, APR_STATE_KV);
    assert_int_equal(p.states[1].kind, APR_STATE_KV_WINDOW);
    assert_int_equal(p.states[1].window, 32);
    apr_program_close(&p);
    h = small_model("mistral");
    h.sliding_window = 48;
    p = emit(&h);
    for (int i = 0; i < 3; i++) assert_int_equal(p.states[i].window, 48);
    apr_program_close(&p);
}

/* The expectations were computed with numpy in float32 after transformers' rope functions. */
static void rotary_frequencies_are_those_of_transformers(void **state)
{
    (void)state;
    static const struct {
        int64_t rotary_dim;
        double theta;
        apr_rope_scaling rope;
        struct {
            int index;
            double freq;
        } want[4];
        double magnitude;
    } cases[] = {
        {64, 1e6, {0}, {{0, 1}, {1, 0.649381638}, {15, 0.00153992663}, {31, 1.53992653e-06}}, 1},
        {128, 1e4, {.kind = APR_ROPE_LINEAR, .factor = 4}, {{0, 0.25}, {1, 0.216491088}, {32, 0.00249999994}, {63, 2.88695519e-05}}, 1},
        {128,
         5e5,
         {.kind = APR_ROPE_LLAMA3, .factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_context = 8192},
         {{0, 1}, {30, 0.00137189368}, {34, 0.000178507791}, {63, 3.06892588e-07}},
         1},
        {64,
         1.5e5,
         {.kind = APR_ROPE_YARN, .factor = 32, .original_context = 4096, .beta_fast = 32, .beta_slow = 1, .no_truncate = true},
         {{0, 1}, {9, 0.0317056961}, {13, 0.00386035908}, {31, 3.0235114e-07}},
         1.34657359},
        {128,
         1e6,
         {.kind = APR_ROPE_YARN, .factor = 4, .original_context = 32768},
         {{0, 1}, {24, 0.00537532149}, {35, 0.000246258394}, {63, 3.10234441e-07}},
         1.13862944},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_hparams h = small_model("llama");
        h.head_dim = h.rotary_dim = cases[i].rotary_dim;
        h.rope_theta = cases[i].theta;
        h.rope = cases[i].rope;
        apr_program p = emit(&h);
        assert_int_equal(p.ropes[0].n_freqs, cases[i].rotary_dim / 2);
        for (int j = 0; j < 4; j++) {
            const double got = (double)p.ropes[0].freqs[cases[i].want[j].index];
            if (fabs(got / cases[i].want[j].freq - 1.0) > 3e-7)
                fail_msg("case %zu: frequency %d is %.9g, not %.9g", i, cases[i].want[j].index, got, cases[i].want[j].freq);
        }
        assert_float_equal(p.ropes[0].magnitude, cases[i].magnitude, 1e-6);
        apr_program_close(&p);
    }
}

static void what_cannot_be_emitted_is_refused_with_a_reason(void **state)
{
    (void)state;
    static const struct {
        const char *architecture, *part_of_sentence;
        apr_status status;
        int64_t hidden_size, num_heads, num_kv_heads, head_dim, intermediate_size;
        apr_rope_scaling rope;
    } cases[] = {
        {"falcon", "'falcon'", APR_E_UNSUPPORTED, 64, 4, 2, 32, 96, {0}},
        {"", "(not stated)", APR_E_UNSUPPORTED, 64, 4, 2, 32, 96, {0}},
        {"llama", "hidden_size", APR_E_DAMAGED, 0, 4, 2, 32, 96, {0}},
        {"llama", "num_heads", APR_E_DAMAGED, 64, 0, 2, 32, 96, {0}},
        {"llama", "intermediate_size", APR_E_DAMAGED, 64, 4, 2, 32, 0, {0}},
        {"llama", "cannot share", APR_E_DAMAGED, 64, 4, 3, 32, 96, {0}},
        {"llama", "more than can be run", APR_E_UNSUPPORTED, (int64_t)1 << 40, 4, 2, 32, 96, {0}},
        {"llama", "more than can be run", APR_E_UNSUPPORTED, 64, 4, 2, 1 << 20, 96, {0}},
        {"llama", "'longrope'", APR_E_DAMAGED, 64, 4, 2, 32, 96, {.kind = APR_ROPE_LONGROPE, .factor = 2}},
        {"llama", "does not state a factor", APR_E_DAMAGED, 64, 4, 2, 32, 96, {.kind = APR_ROPE_LINEAR}},
        {"llama", "'llama3'", APR_E_DAMAGED, 64, 4, 2, 32, 96, {.kind = APR_ROPE_LLAMA3, .factor = 8}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_hparams h = small_model(cases[i].architecture);
        apr_program p;
        apr_error err = {0};
        h.hidden_size = cases[i].hidden_size;
        h.num_heads = cases[i].num_heads;
        h.num_kv_heads = cases[i].num_kv_heads;
        h.head_dim = h.rotary_dim = cases[i].head_dim;
        h.intermediate_size = cases[i].intermediate_size;
        h.rope = cases[i].rope;
        assert_int_equal(apr_program_emit(&p, &h, &err), cases[i].status);
        if (strstr(err.text, cases[i].part_of_sentence) == NULL) fail_msg("case %zu: unexpected: %s", i, err.text);
        apr_program_close(&p); /* nothing to close, and that is fine */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_emits_a_program_in_order),
        cmocka_unit_test(what_a_backend_lacks_is_named_with_its_layer),
        cmocka_unit_test(families_differ_in_biases_norms_and_heads),
        cmocka_unit_test(windows_come_from_the_layers_or_for_mistral_from_the_config),
        cmocka_unit_test(rotary_frequencies_are_those_of_transformers),
        cmocka_unit_test(what_cannot_be_emitted_is_refused_with_a_reason),
    };
    return cmocka_run_group_tests_name("program", tests, NULL, NULL);
}
