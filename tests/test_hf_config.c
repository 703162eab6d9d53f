/* formats/safetensors.h: config.json in its old, new and nested styles, to hyperparameters and back. */
#include "formats/json.h"
#include "formats/safetensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
        {"{\"model_type\":\"gpt_oss\"," BASE ",\"sliding_window\":32}", 32, "sfsf"},
        {"{\"model_type\":\"llama\"," BASE "}", 0, NULL},
        {"{\"model_type\":\"unheard_of\"," BASE ",\"sliding_window\":32,\"layer_types\":[\"conv\",\"conv\",\"conv\",\"conv\"]}", 32, NULL},
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
        {"{\"type\":\"longrope\",\"short_factor\":[1],\"long_factor\":[1]}", APR_ROPE_LONGROPE},
        {"{\"type\":\"su\",\"short_factor\":[1],\"long_factor\":[1]}", APR_ROPE_LONGROPE},
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
        {"[]", APR_E_DAMAGED, "no JSON object"},
        {"{\"hidden_size\":\"64\"}", APR_E_DAMAGED, "\"hidden_size\" is no integer"},
        {"{\"hidden_size\":64.5}", APR_E_DAMAGED, "\"hidden_size\" is no integer"},
        {"{\"hidden_size\":-64}", APR_E_DAMAGED, "hidden_size is -64"},
        {"{\"hidden_size\":9007199254740992}", APR_E_DAMAGED, "which no model has"},
        {"{\"intermediate_size\":[1,2]}", APR_E_UNSUPPORTED, "differs from layer to layer"},
        {"{\"rms_norm_eps\":\"x\"}", APR_E_DAMAGED, "\"rms_norm_eps\" is no number"},
        {"{\"rms_norm_eps\":1e999}", APR_E_DAMAGED, "\"rms_norm_eps\" is no number"},
        {"{\"tie_word_embeddings\":1}", APR_E_DAMAGED, "neither true nor false"},
        {"{" BASE ",\"layer_types\":[\"full_attention\"]}", APR_E_DAMAGED, "1 entries for 4 layers"},
        {"{" BASE ",\"layer_types\":7}", APR_E_DAMAGED, "no list"},
        {"{\"model_type\":\"llama\"," BASE ",\"layer_types\":[\"x\",\"x\",\"x\",\"x\"]}", APR_E_UNSUPPORTED, "unknown type \"x\""},
        {"{\"model_type\":\"llama\"," BASE ",\"rope_scaling\":{\"rope_type\":\"magic\"}}", APR_E_UNSUPPORTED, "\"magic\""},
        {"{\"model_type\":\"llama\"," BASE ",\"rope_scaling\":{\"rope_type\":\"linear\"}}", APR_E_DAMAGED, "factor above 0"},
        {"{\"model_type\":\"llama\"," BASE ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":-1}}", APR_E_DAMAGED, "factor above 0"},
        {"{\"model_type\":\"llama\"," BASE ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8}}", APR_E_DAMAGED, "low_freq_factor"},
        {"{" BASE ",\"partial_rotary_factor\":1.5}", APR_E_DAMAGED, "partial_rotary_factor"},
        {"{" BASE ",\"num_key_value_heads\":3}", APR_E_DAMAGED, "cannot share"},
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

static void so_do_the_public_configs(void **state)
{
    static const char *const names[] = {
        "configs/gpt-oss-120b.json",      "configs/gpt-oss-20b.json",     "configs/llama-3.1-70b.json",    "configs/llama-3.1-8b.json",
        "configs/qwen2.5-0.5b.json",      "configs/qwen2.5-7b.json",      "configs/qwen3-30b-a3b.json",    "configs/qwen3-8b.json",
        "configs/qwen3.5-27b.json",       "configs/qwen3.5-35b-a3b.json", "models/tiny-qwen3/config.json", "models/tiny-gptoss/config.json",
        "models/tiny-qwen35/config.json",
    };

    (void)state;
    if (access("../shared/configs", F_OK) != 0) skip();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[128];
        apr_model model;
        apr_error err = {0};
        snprintf(path, sizeof path, "../shared/%s", names[i]);
        if (apr_config_open(&model, path, &err) != APR_OK) fail_msg("%s", err.text);
        assert_back(&model.hparams, names[i]);
        apr_model_close(&model);
    }
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

static void what_is_no_config_is_not_opened_as_one(void **state)
{
    apr_model model;
    apr_error err = {0};

    (void)state;
    assert_int_equal(apr_config_open(&model, "tests/data/tiny-qwen2/tokenizer_config.json", &err), APR_E_DAMAGED);
    assert_non_null(strstr(err.text, "no hidden_size"));
    assert_int_equal(apr_config_open(&model, "tests/data/no-such-file", NULL), APR_E_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_llama_of_the_old_style_is_understood),  cmocka_unit_test(a_gpt_oss_of_the_new_style_is_understood),
        cmocka_unit_test(a_nested_config_is_understood),           cmocka_unit_test(windows_follow_what_the_family_means_by_them),
        cmocka_unit_test(every_kind_of_rope_scaling_has_its_name), cmocka_unit_test(a_false_config_is_refused_with_a_sentence),
        cmocka_unit_test(what_is_written_reads_back_the_same),     cmocka_unit_test(so_do_the_public_configs),
        cmocka_unit_test(a_config_names_the_class_of_its_family),  cmocka_unit_test(what_is_no_config_is_not_opened_as_one),
    };
    return cmocka_run_group_tests_name("hf_config", tests, NULL, NULL);
}
