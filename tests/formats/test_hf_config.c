/* formats/hf/safetensors.h: config.json in its old, new and nested styles, to hyperparameters and back. */
#include "formats/base/json.h"
#include "formats/hf/safetensors.h"
#include "formats/shape/hf_config.h"
#include "tests/support/config_facts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static apr_status read_text(const char *text, apr_hparams *h, apr_arena *arena, apr_error *err)
{
    const size_t n = strlen(text);
    uint8_t *const copy = malloc(n > 0 ? n : 1); /* exact: reading past the end is seen */
    assert_non_null(copy);
    memcpy(copy, text, n);
    const apr_attachment config = {"config.json", copy, n};
    apr_status status = apr_hf_config_read(&config, h, arena, "config.json", err);
    if (status == APR_OK) status = apr_hparams_complete(h, arena, "config.json", err);
    free(copy);
    return status;
}

static void read_ok(const char *text, apr_hparams *h, apr_arena *arena)
{
    apr_error err = {0};
    if (read_text(text, h, arena, &err) != APR_OK) fail_msg("%s", err.text);
}

static void a_llama_of_the_old_style_is_understood(void **state)
{
    static const char text[] =
        "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_size\":4096,\"intermediate_size\":14336,"
        "\"num_hidden_layers\":32,\"num_attention_heads\":32,\"num_key_value_heads\":8,\"vocab_size\":128256,\"head_dim\":null,"
        "\"rope_theta\":500000.0,\"rope_scaling\":{\"type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
        "\"original_max_position_embeddings\":8192},\"rms_norm_eps\":1e-05,\"torch_dtype\":\"bfloat16\"}";
    apr_arena arena = {0};
    apr_hparams h;

    (void)state;
    read_ok(text, &h, &arena);
    assert_string_equal(h.architecture, "llama");
    assert_string_equal(h.hf_class, "LlamaForCausalLM");
    assert_string_equal(h.torch_dtype, "bfloat16");
    assert_int_equal(h.num_layers, 32);
    assert_int_equal(h.head_dim, 128);
    assert_int_equal(h.rotary_dim, 128);
    assert_true(h.rope_theta == 500000.0 && h.rms_norm_eps == 1e-5);
    assert_int_equal(h.rope.kind, APR_ROPE_LLAMA3);
    assert_true(h.rope.factor == 8 && h.rope.low_freq_factor == 1 && h.rope.high_freq_factor == 4);
    assert_int_equal(h.rope.original_context, 8192);
    assert_false(h.tie_word_embeddings);
    assert_null(h.layer_kinds);
    apr_arena_close(&arena);
}

static void a_gpt_oss_of_the_new_style_is_understood(void **state)
{
    static const char text[] =
        "{\"model_type\":\"gpt_oss\",\"hidden_size\":256,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"head_dim\":64,\"dtype\":"
        "\"bfloat16\","
        "\"num_local_experts\":8,\"num_experts_per_tok\":2,\"sliding_window\":32,\"layer_types\":[\"sliding_attention\",\"full_attention\"]"
        ","
        "\"rope_parameters\":{\"rope_type\":\"yarn\",\"rope_theta\":150000.0,\"factor\":8.0,\"beta_fast\":32.0,\"beta_slow\":1.0,"
        "\"original_max_position_embeddings\":128,\"truncate\":false},\"attention_bias\":true}";
    apr_arena arena = {0};
    apr_hparams h;

    (void)state;
    read_ok(text, &h, &arena);
    assert_int_equal(h.num_experts, 8);
    assert_int_equal(h.sliding_window, 32);
    assert_int_equal(h.layer_kinds[0], APR_LAYER_SLIDING);
    assert_int_equal(h.layer_kinds[1], APR_LAYER_FULL);
    assert_int_equal(h.rope.kind, APR_ROPE_YARN);
    assert_true(h.rope_theta == 150000.0 && h.rope.factor == 8 && h.rope.beta_fast == 32 && h.rope.beta_slow == 1);
    assert_int_equal(h.rope.original_context, 128);
    assert_true(h.rope.no_truncate);
    assert_true(h.attention_bias);
    assert_string_equal(h.torch_dtype, "bfloat16");
    apr_arena_close(&arena);
}

static void a_nested_config_is_understood(void **state)
{
    static const char text[] =
        "{\"architectures\":[\"Qwen3_5ForConditionalGeneration\"],\"model_type\":\"qwen3_5\",\"tie_word_embeddings\":true,\"text_config\":{"
        "\"model_type\":\"qwen3_5_text\",\"hidden_size\":256,\"num_hidden_layers\":4,\"num_attention_heads\":4,\"head_dim\":64,"
        "\"full_attention_interval\":4,\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":1e7,\"partial_rotary_factor\":0.25}},"
        "\"vision_config\":{\"hidden_size\":99}}";
    static const uint8_t kinds[] = {APR_LAYER_LINEAR, APR_LAYER_LINEAR, APR_LAYER_LINEAR, APR_LAYER_FULL};
    apr_arena arena = {0};
    apr_hparams h;

    (void)state;
    read_ok(text, &h, &arena);
    assert_string_equal(h.architecture, "qwen3_5");
    assert_int_equal(h.hidden_size, 256);
    assert_int_equal(h.rotary_dim, 16);
    assert_true(h.rope_theta == 1e7);
    assert_true(h.tie_word_embeddings);
    assert_memory_equal(h.layer_kinds, kinds, sizeof kinds);
    apr_arena_close(&arena);
}

#define BASE "\"hidden_size\":64,\"num_hidden_layers\":4,\"num_attention_heads\":4"

static void windows_follow_what_the_family_means_by_them(void **state)
{
    static const struct {
        const char *text;
        int64_t window;
        const char *kinds; /* f and s, or NULL: all full */
    } cases[] = {
        {"{\"model_type\":\"qwen2\"," BASE ",\"sliding_window\":32,\"use_sliding_window\":false}", 0, NULL},
        {"{\"model_type\":\"qwen2\"," BASE ",\"sliding_window\":32,\"use_sliding_window\":true,\"max_window_layers\":2}", 32, "ffss"},
        {"{\"model_type\":\"qwen2\"," BASE ",\"sliding_window\":null,\"use_sliding_window\":true}", 0, NULL},
        {"{\"model_type\":\"mistral\"," BASE ",\"sliding_window\":32}", 32, "ssss"},
        {"{\"model_type\":\"mistral\"," BASE ",\"sliding_window\":null}", 0, NULL},
        {"{\"model_type\":\"mistral\"," BASE "}", 4096, "ssss"}, /* the class's default */
        {"{\"model_type\":\"qwen2\"," BASE ",\"sliding_window\":32}", 0, NULL},
        {"{\"model_type\":\"qwen3\"," BASE ",\"sliding_window\":32,\"use_sliding_window\":true}", 32, "ffff"}, /* from layer 28 on */
        {"{\"model_type\":\"qwen2\"," BASE ",\"use_sliding_window\":true,\"max_window_layers\":3}", 4096, "fffs"},
        {"{\"model_type\":\"gpt_oss\"," BASE ",\"sliding_window\":32}", 32, "sfsf"},
        {"{\"model_type\":\"llama\"," BASE "}", 0, NULL},
        {"{\"model_type\":\"unheard_of\"," BASE ",\"sliding_window\":32,\"layer_types\":[\"odd\",\"odd\",\"odd\",\"odd\"]}", 32, NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_arena arena = {0};
        apr_hparams h;
        read_ok(cases[i].text, &h, &arena);
        assert_int_equal(h.sliding_window, cases[i].window);
        if (cases[i].kinds == NULL) assert_null(h.layer_kinds);
        for (size_t l = 0; cases[i].kinds != NULL && l < 4; l++)
            assert_int_equal(h.layer_kinds[l], cases[i].kinds[l] == 's' ? APR_LAYER_SLIDING : APR_LAYER_FULL);
        apr_arena_close(&arena);
    }
}

static void every_kind_of_rope_scaling_has_its_name(void **state)
{
    static const struct {
        const char *scaling;
        apr_rope_kind kind;
    } cases[] = {
        {"null", APR_ROPE_PLAIN},
        {"{\"rope_type\":\"default\"}", APR_ROPE_PLAIN},
        {"{\"type\":\"mrope\",\"mrope_section\":[1,1]}", APR_ROPE_PLAIN},
        {"{\"type\":\"linear\",\"factor\":2}", APR_ROPE_LINEAR},
        {"{\"rope_type\":\"dynamic\",\"factor\":2.0}", APR_ROPE_DYNAMIC},
        {"{\"type\":\"yarn\",\"factor\":4.0,\"original_max_position_embeddings\":32768}", APR_ROPE_YARN},
        {"{\"type\":\"longrope\",\"short_factor\":[1,1,1,1,1,1,1,1],\"long_factor\":[1,1,1,1,1,1,1,2]}", APR_ROPE_LONGROPE},
        {"{\"type\":\"su\",\"short_factor\":[1,1,1,1,1,1,1,1],\"long_factor\":[1,1,1,1,1,1,1,2]}", APR_ROPE_LONGROPE},
        {"{\"rope_type\":\"proportional\",\"partial_rotary_factor\":0.25}", APR_ROPE_PROPORTIONAL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        apr_arena arena = {0};
        apr_hparams h;
        snprintf(text, sizeof text, "{\"model_type\":\"llama\"," BASE ",\"rope_scaling\":%s}", cases[i].scaling);
        read_ok(text, &h, &arena);
        assert_int_equal(h.rope.kind, cases[i].kind);
        assert_false(h.rope.no_truncate);
        apr_arena_close(&arena);
    }
}

static void a_false_config_is_refused_with_a_sentence(void **state)
{
    static const struct {
        const char *text;
        apr_status status;
        const char *part_of_sentence;
    } cases[] = {
        {"", APR_E_DAMAGED, "no value"},
        {"[]", APR_E_DAMAGED, "not a JSON object"},
        {"{\"hidden_size\":\"64\"}", APR_E_DAMAGED, "\"hidden_size\" is not an integer"},
        {"{\"hidden_size\":64.5}", APR_E_DAMAGED, "\"hidden_size\" is not an integer"},
        {"{\"hidden_size\":-64}", APR_E_DAMAGED, "hidden_size is -64"},
        {"{\"hidden_size\":9007199254740992}", APR_E_DAMAGED, "which no model has"},
        {"{\"rms_norm_eps\":\"x\"}", APR_E_DAMAGED, "\"rms_norm_eps\" is not a number"},
        {"{\"logits_scaling\":NaN}", APR_E_DAMAGED, "\"logits_scaling\" is not a number"},
        {"{\"logits_scaling\":Infinity}", APR_E_DAMAGED, "\"logits_scaling\" is not a number"},
        {"{\"rms_norm_eps\":1e999}", APR_E_DAMAGED, "\"rms_norm_eps\" is not a number"},
        {"{\"tie_word_embeddings\":1}", APR_E_DAMAGED, "neither true nor false"},
        {"{" BASE ",\"layer_types\":[\"full_attention\"]}", APR_E_DAMAGED, "1 entries for 4 layers"},
        {"{" BASE ",\"layer_types\":7}", APR_E_DAMAGED, "not a list"},
        {"{\"model_type\":\"llama\"," BASE ",\"rope_scaling\":{\"rope_type\":\"linear\"}}", APR_E_DAMAGED, "factor above 0"},
        {"{\"model_type\":\"llama\"," BASE ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":-1}}", APR_E_DAMAGED, "factor above 0"},
        {"{\"model_type\":\"llama\"," BASE ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8}}", APR_E_DAMAGED, "low_freq_factor"},
        {"{" BASE ",\"partial_rotary_factor\":1.5}", APR_E_DAMAGED, "partial_rotary_factor"},
        {"{\"model_type\":\"llama\"," BASE ",\"num_key_value_heads\":3}", APR_E_DAMAGED, "cannot share"},
        {"{\"model_type\":\"unknown\"," BASE ",\"num_key_value_heads\":3}", APR_OK, ""}, /* who knows what it means there */
        {"{\"num_hidden_layers\":1000000}", APR_E_DAMAGED, "more than"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_arena arena = {0};
        apr_error err = {0};
        apr_hparams h;
        const apr_status status = read_text(cases[i].text, &h, &arena, &err);
        if (status != cases[i].status || strstr(err.text, cases[i].part_of_sentence) == NULL)
            fail_msg("%s gave %d: %s", cases[i].text, status, err.text);
        apr_arena_close(&arena);
    }
}

/* --- there and back --- */

static void assert_same(const apr_hparams *a, const apr_hparams *b, const char *where)
{
    apr_hparams x = *a, y = *b;

    for (size_t i = 0; i < apr_n_hparam_fields; i++) {
        const apr_hparam_field *const f = &apr_hparam_fields[i];
        const bool same = f->is_int ? *apr_hparam_int(&x, f) == *apr_hparam_int(&y, f) : *apr_hparam_real(&x, f) == *apr_hparam_real(&y, f);
        if (!same) fail_msg("%s: %s differs", where, f->name);
    }
    assert_string_equal(a->architecture, b->architecture);
    assert_string_equal(a->hf_class, b->hf_class);
    assert_memory_equal(&a->rope.kind, &b->rope.kind, sizeof a->rope.kind);
    assert_true(a->rope.factor == b->rope.factor && a->rope.beta_fast == b->rope.beta_fast &&
                a->rope.low_freq_factor == b->rope.low_freq_factor);
    assert_int_equal(a->rope.original_context, b->rope.original_context);
    assert_int_equal(a->rope.no_truncate, b->rope.no_truncate);
    assert_int_equal(a->tie_word_embeddings, b->tie_word_embeddings);
    assert_int_equal(a->attention_bias, b->attention_bias);
    assert_int_equal(a->norm_topk_prob, b->norm_topk_prob);
    assert_int_equal(a->layer_kinds != NULL, b->layer_kinds != NULL);
    if (a->layer_kinds != NULL) assert_memory_equal(a->layer_kinds, b->layer_kinds, (size_t)a->num_layers);
}

/* Written in full, and with each style alone: what transformers 4 and 5 look at must say the same. */
static void assert_back(const apr_hparams *h, const char *where)
{
    static const char *const hidden[] = {"", "\"rope_parameters\"", "\"rope_scaling\""};
    char *const text = apr_hf_config_write(h, NULL);

    assert_non_null(text);
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++) {
        apr_arena arena = {0};
        apr_hparams back;
        char *const found = *hidden[i] != '\0' ? strstr(text, hidden[i]) : NULL;
        if (found != NULL) found[1] = 'X';
        read_ok(text, &back, &arena);
        if (found != NULL) found[1] = 'r';
        assert_same(h, &back, where);
        apr_arena_close(&arena);
    }
    free(text);
}

static void what_is_written_reads_back_the_same(void **state)
{
    apr_model model;
    apr_error err = {0};

    (void)state;
    if (apr_config_open(&model, "tests/data/tiny-qwen2/config.json", &err) != APR_OK) fail_msg("%s", err.text);
    assert_int_equal(model.format, APR_FORMAT_CONFIG);
    assert_int_equal(model.n_tensors, 0);
    assert_non_null(apr_model_attachment(&model, "config.json"));
    assert_back(&model.hparams, "tiny-qwen2");
    apr_model_close(&model);
}

/* 36 families as transformers 5 writes them, and configurations as they are published: all are read, shown and written back. */
static void public_configs_read_back_the_same(void **state)
{
    cJSON *const all = fact_configs();
    const cJSON *config;

    (void)state;
    cJSON_ArrayForEach(config, all)
    {
        char *const text = cJSON_PrintUnformatted(config);
        apr_arena arena = {0};
        apr_hparams h;
        read_ok(text, &h, &arena);
        if (h.hidden_size <= 0) fail_msg("%s", config->string);
        if (h.refusal != NULL || h.unknown_fields != NULL)
            fail_msg("%s: %s; unknown: %s", config->string, h.refusal != NULL ? h.refusal : "", h.unknown_fields);
        assert_back(&h, config->string);
        apr_arena_close(&arena);
        cJSON_free(text);
    }
    assert_int_equal(cJSON_GetArraySize(all), 82);
    cJSON_Delete(all);
}

/* --- what is not done is named --- */

static const struct {
    const char *architecture, *field, *part_of_refusal; /* NULL: none */
} asked_for[] = {
    {"llama", "\"hidden_act\":\"gelu\"", "\"hidden_act\" is \"gelu\""},
    {"llama", "\"hidden_act\":\"relu\"", "\"relu\""},
    {"llama", "\"hidden_act\":\"silu\"", NULL},
    {"llama", "\"hidden_act\":null", NULL},
    {"llama", "\"hidden_act\":\"swish\"", NULL},
    {"qwen2", "\"hidden_activation\":\"gelu_pytorch_tanh\"", "hidden_activation"},
    {"gemma2", "\"hidden_activation\":\"gelu_pytorch_tanh\",\"final_logit_softcapping\":30.0", NULL},
    {"llama", "\"mlp_bias\":true,\"attention_bias\":true", NULL},
    {"mistral", "\"attention_bias\":true", "attention_bias"},
    {"qwen2", "\"attention_bias\":false", NULL},
    {"qwen3", "\"attention_bias\":true", NULL},
    {"qwen3", "\"mlp_bias\":true", "mlp_bias"},
    {"llama", "\"attention_multiplier\":0.25", NULL}, /* 1 / sqrt(16): what is computed anyway */
    {"llama", "\"attention_multiplier\":0.5", "\"attention_multiplier\" is 0.5"},
    {"llama", "\"residual_multiplier\":1", NULL},
    {"llama", "\"residual_multiplier\":0.22", "residual_multiplier"},
    {"llama", "\"embedding_multiplier\":12", "embedding_multiplier"},
    {"llama", "\"logits_scaling\":8", "logits_scaling"},
    {"llama", "\"clip_qkv\":NaN", "clip_qkv"},
    {"llama", "\"clip_qkv\":Infinity", "clip_qkv"},
    {"qwen2", "\"final_logit_softcapping\":30.0", "final_logit_softcapping"},
    {"qwen2", "\"attn_logit_softcapping\":null", NULL},
    {"qwen3", "\"query_pre_attn_scalar\":128", NULL}, /* qwen3's head_dim unless stated */
    {"qwen3", "\"query_pre_attn_scalar\":256", "query_pre_attn_scalar"},
    {"llama", "\"clip_qkv\":8.0", "clip_qkv"},
    {"llama", "\"qk_layernorm\":true", "qk_layernorm"},
    {"llama", "\"use_qk_norm\":false", NULL},
    {"qwen3", "\"use_qk_norm\":true", NULL},
    {"llama", "\"partial_rotary_factor\":0.5", "partial_rotary_factor"},
    {"llama", "\"partial_rotary_factor\":1.0", NULL},
    {"qwen2", "\"partial_rotary_factor\":0.5", NULL},
    {"llama", "\"pretraining_tp\":2", NULL}, /* the same sums in pieces */
    {"llama", "\"no_rope_layers\":[1,1,1,0]", "no_rope_layers"},
    {"llama", "\"no_rope_layers\":[1,1,1,1]", NULL},
    {"llama", "\"attn_temperature_tuning\":true", "attn_temperature_tuning"},
    {"llama", "\"attention_chunk_size\":8192", "attention_chunk_size"},
    {"llama", "\"sliding_window\":16", "sliding_window"},
    {"llama", "\"sliding_window\":2048", NULL}, /* all of the context */
    {"llama", "\"layer_types\":[\"full_attention\",\"sliding_attention\",\"full_attention\",\"full_attention\"]", "layer_types"},
    {"mistral", "\"sliding_window\":16,\"layer_types\":[\"full_attention\",\"sliding_attention\",\"full_attention\",\"full_attention\"]",
     "layer_types"},
    {"llama", "\"layer_types\":[\"x\",\"x\",\"x\",\"x\"]", "unknown type \"x\""},
    {"llama", "\"intermediate_size\":[1,2,3,4]", "\"intermediate_size\" differs from layer to layer"},
    {"llama", "\"rope_scaling\":{\"rope_type\":\"magic\"}", "rope_type is \"magic\""},
    {"llama", "\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,\"llama_4_scaling_beta\":0.1}", "llama_4_scaling_beta"},
    {"llama", "\"rope_parameters\":{\"rope_type\":\"dynamic\",\"factor\":1,\"alpha\":1000}", "\"alpha\" is 1000"},
    {"llama", "\"rope_parameters\":{\"full_attention\":{\"rope_theta\":1e6},\"sliding_attention\":{\"rope_theta\":1e4}}", "differ between"},
    {"llama", "\"rope_parameters\":{\"rope_type\":\"default\"},\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}",
     "but its rope_parameters"},
    {"llama", "\"rope_parameters\":{\"factor\":4,\"type\":\"linear\"},\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}",
     "differ in \"factor\""},
    {"llama", "\"norm_eps\":1e-6", NULL},
    {"llama", "\"layer_norm_eps\":1e-5", "layer_norm_eps"},
    {"llama", "\"num_local_experts\":8", "num_local_experts"},
    {"qwen3_moe", "\"num_experts\":8,\"decoder_sparse_step\":2", NULL},
    {"qwen3_moe", "\"num_experts\":8,\"mlp_only_layers\":[0]", NULL},
    {"mixtral", "\"decoder_sparse_step\":2", "decoder_sparse_step"},
    {"llama", "\"is_encoder_decoder\":true", "is_encoder_decoder"},
};

static void what_would_compute_something_else_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof asked_for / sizeof *asked_for; i++) {
        char text[600];
        apr_arena arena = {0};
        apr_hparams h;
        snprintf(text, sizeof text, "{\"model_type\":\"%s\"," BASE ",%s}", asked_for[i].architecture, asked_for[i].field);
        read_ok(text, &h, &arena);
        const char *const part = asked_for[i].part_of_refusal;
        if ((part == NULL) != (h.refusal == NULL) || (part != NULL && strstr(h.refusal, part) == NULL))
            fail_msg("%s gave: %s", text, h.refusal != NULL ? h.refusal : "no refusal");
        assert_null(h.unknown_fields);
        apr_arena_close(&arena);
    }
}

static void unknown_fields_are_named(void **state)
{
    apr_arena arena = {0};
    apr_hparams h;

    (void)state;
    read_ok("{\"model_type\":\"llama\"," BASE ",\"flux_capacity\":1.21,\"_name_or_path\":\"x\",\"use_cache\":true,\"hover\":false}", &h,
            &arena);
    assert_string_equal(h.unknown_fields, "flux_capacity, hover");
    assert_null(h.refusal);
    read_ok("{\"model_type\":\"unheard_of\"," BASE ",\"flux_capacity\":1.21}", &h, &arena); /* nothing is promised of it */
    assert_null(h.unknown_fields);
    apr_arena_close(&arena);
}

static void what_is_absent_has_the_default_of_the_class(void **state)
{
    static const struct {
        const char *text;
        int64_t num_kv_heads, head_dim, context, rotary_dim;
        double eps, theta;
    } cases[] = {
        {"{\"model_type\":\"llama\",\"hidden_size\":512,\"num_attention_heads\":16}", 16, 32, 2048, 32, 1e-6, 1e4},
        {"{\"model_type\":\"mistral\",\"hidden_size\":512,\"num_attention_heads\":16}", 8, 32, 131072, 32, 1e-6, 1e4},
        {"{\"model_type\":\"mistral\",\"hidden_size\":512,\"num_attention_heads\":16,\"num_key_value_heads\":null}", 16, 32, 131072, 32,
         1e-6, 1e4},
        {"{\"model_type\":\"qwen2\",\"hidden_size\":512,\"num_attention_heads\":16}", 16, 32, 32768, 32, 1e-6, 1e4},
        {"{\"model_type\":\"qwen3\",\"hidden_size\":512,\"num_attention_heads\":16}", 16, 128, 32768, 128, 1e-6, 1e4},
        {"{\"model_type\":\"qwen3\",\"hidden_size\":512,\"num_attention_heads\":16,\"head_dim\":null}", 16, 32, 32768, 32, 1e-6, 1e4},
        {"{\"model_type\":\"qwen3_moe\",\"hidden_size\":512,\"num_attention_heads\":16}", 4, 32, 32768, 32, 1e-6, 1e4},
        {"{\"model_type\":\"gpt_oss\",\"hidden_size\":512,\"num_attention_heads\":16}", 8, 64, 131072, 64, 1e-5, 150000},
        {"{\"model_type\":\"mixtral\",\"hidden_size\":512,\"num_attention_heads\":16}", 8, 32, 131072, 32, 1e-5, 1e6},
        {"{\"model_type\":\"qwen3_5\",\"text_config\":{\"hidden_size\":512,\"num_attention_heads\":16}}", 4, 256, 32768, 64, 1e-6, 1e4},
        {"{\"model_type\":\"unheard_of\",\"hidden_size\":512,\"num_attention_heads\":16}", 16, 32, 0, 32, 0, 1e4},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_arena arena = {0};
        apr_hparams h;
        read_ok(cases[i].text, &h, &arena);
        if (h.num_kv_heads != cases[i].num_kv_heads || h.head_dim != cases[i].head_dim || h.max_position_embeddings != cases[i].context ||
            h.rotary_dim != cases[i].rotary_dim || h.rms_norm_eps != cases[i].eps || h.rope_theta != cases[i].theta)
            fail_msg("%s: %lld %lld %lld %lld %g %g", cases[i].text, (long long)h.num_kv_heads, (long long)h.head_dim,
                     (long long)h.max_position_embeddings, (long long)h.rotary_dim, h.rms_norm_eps, h.rope_theta);
        apr_arena_close(&arena);
    }
}

/* transformers: attention_factor, else m(mscale) / m(mscale_all_dim), m(s) = 0.1 s ln(factor) + 1. */
static void yarn_takes_its_magnitude_from_the_pair_of_scales(void **state)
{
    apr_arena arena = {0};
    apr_hparams h;

    (void)state;
    read_ok("{\"model_type\":\"qwen2\"," BASE
            ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":40,\"mscale\":1.0,\"mscale_all_dim\":0.707}}",
            &h, &arena);
    assert_true(h.rope.attention_factor > 1.085726 - 1e-6 && h.rope.attention_factor < 1.085726 + 1e-6);
    read_ok("{\"model_type\":\"qwen2\"," BASE ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":40,\"mscale\":1.0}}", &h, &arena);
    assert_true(h.rope.attention_factor == 0);
    apr_arena_close(&arena);
}

static void a_config_names_the_class_of_its_family(void **state)
{
    static const struct {
        const char *architecture, *part;
    } cases[] = {
        {"llama", "\"architectures\":[\"LlamaForCausalLM\"]"},
        {"qwen2", "\"architectures\":[\"Qwen2ForCausalLM\"]"},
        {"qwen3_moe", "\"architectures\":[\"Qwen3MoeForCausalLM\"]"},
        {"gpt_oss", "\"num_local_experts\":4"},
        {"unheard_of", "\"model_type\":\"unheard_of\""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const apr_hparams h = {.architecture = cases[i].architecture, .hidden_size = 64, .num_experts = 4};
        char *const text = apr_hf_config_write(&h, NULL);
        assert_non_null(strstr(text, cases[i].part));
        free(text);
    }
}

/* Absent fields are the class's own in transformers: what must not be them is written out. */
static void a_written_config_leaves_no_window_to_the_class(void **state)
{
    static const uint8_t last_two[] = {APR_LAYER_FULL, APR_LAYER_SLIDING, APR_LAYER_SLIDING};
    static const uint8_t first[] = {APR_LAYER_SLIDING, APR_LAYER_FULL, APR_LAYER_FULL};
    const apr_hparams none = {.architecture = "mistral", .hidden_size = 64};
    apr_hparams h = {.architecture = "qwen2", .hidden_size = 64, .num_layers = 3, .sliding_window = 8, .layer_kinds = last_two};
    char *text = apr_hf_config_write(&none, NULL);

    (void)state;
    assert_non_null(strstr(text, "\"sliding_window\":null"));
    free(text);
    text = apr_hf_config_write(&h, NULL);
    assert_non_null(strstr(text, "\"max_window_layers\":1")); /* for transformers before layer_types */
    assert_non_null(strstr(text, "\"use_sliding_window\":true"));
    free(text);
    h.layer_kinds = first;
    text = apr_hf_config_write(&h, NULL);
    assert_null(strstr(text, "max_window_layers"));
    free(text);
}

static void what_is_not_a_config_is_not_opened_as_one(void **state)
{
    apr_model model;
    apr_error err = {0};

    (void)state;
    assert_int_equal(apr_config_open(&model, "tests/data/tiny-qwen2/tokenizer_config.json", &err), APR_E_DAMAGED);
    assert_non_null(strstr(err.text, "hidden_size is missing"));
    assert_int_equal(apr_config_open(&model, "tests/data/no-such-file", NULL), APR_E_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_llama_of_the_old_style_is_understood),
        cmocka_unit_test(a_gpt_oss_of_the_new_style_is_understood),
        cmocka_unit_test(a_nested_config_is_understood),
        cmocka_unit_test(windows_follow_what_the_family_means_by_them),
        cmocka_unit_test(every_kind_of_rope_scaling_has_its_name),
        cmocka_unit_test(a_false_config_is_refused_with_a_sentence),
        cmocka_unit_test(what_is_written_reads_back_the_same),
        cmocka_unit_test(public_configs_read_back_the_same),
        cmocka_unit_test(what_would_compute_something_else_is_named),
        cmocka_unit_test(unknown_fields_are_named),
        cmocka_unit_test(what_is_absent_has_the_default_of_the_class),
        cmocka_unit_test(yarn_takes_its_magnitude_from_the_pair_of_scales),
        cmocka_unit_test(a_config_names_the_class_of_its_family),
        cmocka_unit_test(a_written_config_leaves_no_window_to_the_class),
        cmocka_unit_test(what_is_not_a_config_is_not_opened_as_one),
    };
    return cmocka_run_group_tests_name("hf_config", tests, NULL, NULL);
}
