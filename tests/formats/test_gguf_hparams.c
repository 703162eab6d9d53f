/* formats/shape/gguf_hparams.c, gguf_layers.c, gguf_rope.c, gguf_aprkit_keys.c: what is understood by the keys of files that others made,
 * and by those that no program should have made. */
#include "formats/gguf/gguf.h"
#include "formats/shape/gguf_hparams.h"
#include "tests/support/kv_fixture.h"

#include <math.h>

static void set_int(fixture *f, const char *key, int64_t value)
{
    assert_int_equal(apr_kv_set_int(&f->kv, key, APR_KV_I64, value, &f->err), APR_OK);
}
static void set_text(fixture *f, const char *key, const char *text)
{
    assert_int_equal(apr_kv_set_string(&f->kv, key, apr_str_of(text), &f->err), APR_OK);
}
static void set_array(fixture *f, const char *key, apr_kv_type type, size_t n, const void *numbers)
{
    const apr_kv item = {.key = apr_str_of(key), .type = APR_KV_ARRAY, .elem_type = type, .n_elems = n, .value.numbers = numbers};
    assert_int_equal(apr_kv_set(&f->kv, &item, &f->err), APR_OK);
}

static apr_status read_hparams(fixture *f)
{
    const apr_status status = apr_gguf_hparams(&f->kv, &f->h, &f->arena, "keys.gguf", &f->err);
    return status == APR_OK ? apr_hparams_complete(&f->h, &f->arena, "keys.gguf", &f->err) : status;
}

static void start(fixture *f, const char *arch)
{
    f->kv.n_items = 0;
    f->err = (apr_error){0};
    set_text(f, "general.architecture", arch);
}

/* --- families that share a name --- */

static void a_key_distinguishes_families_with_one_name(void **state)
{
    static const struct {
        const char *arch, *key;
        int64_t value;
        const char *family;
    } rows[] = {
        {"llama", "llama.expert_count", 0, "llama"},
        {"llama", "llama.expert_count", 8, "mixtral"},
        {"deepseek2", "deepseek2.expert_gating_func", 2, "deepseek_v3"},
        {"deepseek2", "deepseek2.expert_gating_func", 1, "deepseek_v2"},
        {"deepseek2", "deepseek2.block_count", 27, "deepseek_v2"},      /* an old file: llama.cpp takes softmax */
        {"deepseek2", "deepseek2.vocab_size", 154880, "glm4_moe_lite"}, /* GLM-4.7-Flash */
        {"nemotron_h", "nemotron_h.block_count", 4, "nemotron_h"},
        {"nemotron_h_moe", "nemotron_h_moe.expert_count", 8, "nemotron_h"},
        {"gemma3", "gemma3.block_count", 4, "gemma3_text"},
        {"nobody_knows", "nobody_knows.expert_count", 8, "nobody_knows"},
    };
    fixture *const f = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        start(f, rows[i].arch);
        set_int(f, rows[i].key, rows[i].value);
        assert_int_equal(read_hparams(f), APR_OK);
        assert_string_equal(f->h.architecture, rows[i].family);
    }
    start(f, "llama");
    set_text(f, "aprkit.architecture", "mistral"); /* what we wrote ourselves holds */
    assert_int_equal(read_hparams(f), APR_OK);
    assert_string_equal(f->h.architecture, "mistral");
}

static void a_nemotron_is_named_by_whether_it_has_experts(void **state)
{
    const apr_vocab none = {.kind = APR_VOCAB_NONE};
    apr_hparams h = {.architecture = "nemotron_h", .hidden_size = 64};
    fixture *const f = *state;
    apr_str arch;

    assert_int_equal(apr_gguf_keys(&h, &none, NULL, 0, &f->kv, &f->err), APR_OK);
    assert_true(apr_kv_get_string(&f->kv, "general.architecture", &arch) && apr_str_is(arch, "nemotron_h"));
    f->kv.n_items = 0;
    h.num_experts = 8;
    assert_int_equal(apr_gguf_keys(&h, &none, NULL, 0, &f->kv, &f->err), APR_OK);
    assert_true(apr_kv_get_string(&f->kv, "general.architecture", &arch) && apr_str_is(arch, "nemotron_h_moe"));
}

/* --- numbers --- */

static void layers_that_predict_more_tokens_are_not_run(void **state)
{
    const apr_vocab none = {.kind = APR_VOCAB_NONE};
    const apr_hparams h = {.architecture = "glm4_moe", .hidden_size = 64, .num_layers = 46, .num_heads = 4, .num_nextn_layers = 1};
    fixture *const f = *state;
    int64_t n;

    assert_int_equal(apr_gguf_keys(&h, &none, NULL, 0, &f->kv, &f->err), APR_OK);
    assert_true(apr_kv_get_int(&f->kv, "glm4moe.block_count", &n) && n == 47);
    assert_int_equal(read_hparams(f), APR_OK);
    assert_int_equal(f->h.num_layers, 46);
    assert_int_equal(f->h.num_nextn_layers, 1);
    set_int(f, "glm4moe.nextn_predict_layers", 47); /* of 47: no such model, and nothing overflows */
    assert_int_equal(read_hparams(f), APR_OK);
    assert_int_equal(f->h.num_layers, 47);
}

/* Before llama.cpp kept latents, a head's own widths stood under the usual keys. */
static void old_files_with_latent_attention_say_the_widths_of_heads(void **state)
{
    fixture *const f = *state;
    start(f, "deepseek2");
    set_int(f, "deepseek2.attention.head_count", 16);
    set_int(f, "deepseek2.attention.head_count_kv", 16);
    set_int(f, "deepseek2.attention.kv_lora_rank", 512);
    set_int(f, "deepseek2.attention.key_length", 192);
    set_int(f, "deepseek2.attention.value_length", 128);
    set_int(f, "deepseek2.rope.dimension_count", 64);
    assert_int_equal(read_hparams(f), APR_OK);
    assert_int_equal(f->h.head_dim, 192);
    assert_int_equal(f->h.qk_nope_head_dim, 128);
    assert_int_equal(f->h.qk_rope_head_dim, 64);
    assert_int_equal(f->h.v_head_dim, 128);
    assert_int_equal(f->h.num_kv_heads, 16);
}

static void alpha_is_written_as_the_theta_that_it_makes(void **state)
{
    const apr_vocab none = {.kind = APR_VOCAB_NONE};
    const apr_hparams h = {.architecture = "hunyuan_v1_moe",
                           .hidden_size = 64,
                           .num_layers = 2,
                           .num_heads = 4,
                           .head_dim = 128,
                           .rotary_dim = 128,
                           .rope_theta = 10000,
                           .rope = {.kind = APR_ROPE_DYNAMIC, .alpha = 1000}};
    fixture *const f = *state;
    double theta;

    assert_int_equal(apr_gguf_keys(&h, &none, NULL, 0, &f->kv, &f->err), APR_OK);
    assert_true(apr_kv_get_real(&f->kv, "hunyuan-moe.rope.freq_base", &theta));
    assert_float_equal(theta, 11158839.9251, 1.0); /* as the converter's comment has it */
    assert_int_equal(read_hparams(f), APR_OK);
    assert_true(f->h.rope_theta == 10000 && f->h.rope.kind == APR_ROPE_DYNAMIC && f->h.rope.alpha == 1000);
}

static void a_zero_is_written_where_a_reader_would_assume_a_default(void **state)
{
    const apr_vocab none = {.kind = APR_VOCAB_NONE};
    const apr_hparams h = {.architecture = "llama4_text", .hidden_size = 64, .num_layers = 4, .num_heads = 4, .use_qk_norm = true};
    fixture *const f = *state;

    assert_int_equal(apr_gguf_keys(&h, &none, NULL, 0, &f->kv, &f->err), APR_OK);
    assert_int_equal(read_hparams(f), APR_OK);
    assert_true(f->h.attn_temperature == 0 && f->h.attention_chunk_size == 0);
    apr_kv_remove(&f->kv, "aprkit.attn_temperature");
    assert_int_equal(read_hparams(f), APR_OK);
    assert_true(f->h.attn_temperature == 0.1); /* as llama.cpp assumes */
}

/* --- layers that share an index --- */

static const char *shared_letters(const apr_hparams *h)
{
    static char text[16];
    for (int i = 0; i < h->num_layers; i++) text[i] = apr_layer_shares_index(h, i) ? 's' : 'o';
    text[h->num_layers] = '\0';
    return text;
}

/* llama.cpp takes a model of at least 2^20 positions that does not list its layers for GLM-5.2. */
static void layers_with_an_index_are_listed_where_readers_assume_others(void **state)
{
    static const uint8_t shares[10] = {0, 1, 1, 0, 0, 1};
    static const struct {
        const uint8_t *shares;
        int64_t n_positions;
        const char *without_key, *with_key; /* with_key NULL: the key is not written */
    } cases[] = {
        {NULL, 4096, "oooooooooo", NULL},
        {shares, 4096, "oooooooooo", "ossoosoooo"},
        {NULL, 1 << 20, "ooosssosss", "oooooooooo"},
        {shares, 1 << 20, "ooosssosss", "ossoosoooo"},
    };
    const apr_vocab none = {.kind = APR_VOCAB_NONE};
    fixture *const f = *state;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const apr_hparams h = {.architecture = "glm_moe_dsa",
                               .num_layers = 10,
                               .max_position_embeddings = cases[i].n_positions,
                               .shares_index = cases[i].shares};
        start(f, "glm-dsa");
        assert_int_equal(apr_gguf_keys(&h, &none, NULL, 0, &f->kv, &f->err), APR_OK);
        assert_int_equal(apr_kv_find(&f->kv, "glm-dsa.attention.indexer.types") != NULL, cases[i].with_key != NULL);
        assert_null(apr_kv_find(&f->kv, "aprkit.shares_index"));
        assert_int_equal(read_hparams(f), APR_OK);
        assert_string_equal(shared_letters(&f->h), cases[i].with_key != NULL ? cases[i].with_key : cases[i].without_key);
        apr_kv_remove(&f->kv, "glm-dsa.attention.indexer.types");
        assert_int_equal(read_hparams(f), APR_OK);
        assert_string_equal(shared_letters(&f->h), cases[i].without_key);
    }
}

/* --- tensors --- */

static apr_tensor floats(const char *name, const float *numbers, int64_t n)
{
    return (apr_tensor){
        .name = name, .dtype = APR_F32, .rank = 1, .dims = {n}, .data = (const uint8_t *)numbers, .n_bytes = (uint64_t)n * sizeof *numbers};
}

/* The scaling of a model with these tensors. */
static const apr_rope_scaling *scaling_of(fixture *f, apr_model *model, apr_tensor *tensors, size_t n)
{
    model->tensors = tensors;
    model->n_tensors = n;
    model->hparams = (apr_hparams){.rope_theta = 1e6};
    assert_int_equal(apr_model_index_names(model, &f->err), APR_OK);
    assert_int_equal(apr_gguf_rope_read(model, &f->err), APR_OK);
    return &model->hparams.rope;
}

static void divisors_that_stop_the_rest_are_a_proportional_scaling(void **state)
{
    float divisors[12] = {1, 1, 1};
    apr_tensor t = floats("rope_freqs.weight", divisors, 12);
    apr_model model = {.path = "x.gguf"};

    for (int i = 3; i < 12; i++) divisors[i] = 1e30f;
    const apr_rope_scaling *const rope = scaling_of(*state, &model, &t, 1);
    assert_int_equal(rope->kind, APR_ROPE_PROPORTIONAL);
    assert_true(rope->partial_rotary_factor == 0.25);
    divisors[5] = 1; /* one of them rotates after all */
    assert_int_equal(scaling_of(*state, &model, &t, 1)->kind, APR_ROPE_PLAIN);
    apr_arena_close(&model.arena);
}

static void factors_of_longrope_come_from_both_tensors_or_not_at_all(void **state)
{
    static const float short_[] = {1, 1.1f, 1.2f}, long_[] = {2, 3, 4.05f};
    apr_tensor both[] = {floats("rope_factors_short.weight", short_, 3), floats("rope_factors_long.weight", long_, 3)};
    apr_tensor fewer[] = {both[0], floats("rope_factors_long.weight", long_, 2)};
    apr_model model = {.path = "x.gguf"};

    assert_int_equal(scaling_of(*state, &model, fewer, 2)->kind, APR_ROPE_PLAIN);
    assert_int_equal(scaling_of(*state, &model, both, 1)->kind, APR_ROPE_PLAIN);
    const apr_rope_scaling *const rope = scaling_of(*state, &model, both, 2);
    assert_int_equal(rope->kind, APR_ROPE_LONGROPE);
    assert_int_equal(rope->n_factors, 3);
    assert_true(rope->short_factor[1] == 1.1 && rope->long_factor[2] == 4.05); /* as config.json had them */
    apr_arena_close(&model.arena);
}

/* --- files that no program should have made --- */

static void arrays_that_fit_no_model_do_no_harm(void **state)
{
    static const int32_t odd[] = {-5, 0, INT32_MAX, 3};
    static const float reals[] = {NAN, INFINITY, -1, 0};
    static const apr_str texts[] = {{"a", 1}, {"b", 1}};
    static const char *const archs[] = {"nemotron_h_moe", "lfm2", "gemma4",  "granitehybrid", "llama4",
                                        "deepseek2",      "phi3", "cohere2", "glm-dsa"};
    static const char *const keys[] = {"attention.head_count_kv",  "feed_forward_length",    "attention.sliding_window_pattern",
                                       "attention.key_length_swa", "expert_count",           "leading_dense_block_count",
                                       "rope.dimension_count",     "attention.indexer.types"};
    fixture *const f = *state;

    for (size_t a = 0; a < sizeof archs / sizeof *archs; a++) {
        for (size_t k = 0; k < 4 * sizeof keys / sizeof *keys; k++) {
            const char *const key = apr_arena_print(&f->arena, "%s.%s", archs[a], keys[k / 4]);
            start(f, archs[a]);
            set_int(f, apr_arena_print(&f->arena, "%s.ssm.conv_kernel", archs[a]), 4);
            set_int(f, apr_arena_print(&f->arena, "%s.block_count", archs[a]), 4);
            if (k % 4 == 0) set_array(f, key, APR_KV_I32, 4, odd);
            if (k % 4 == 1) set_array(f, key, APR_KV_I32, 2, odd); /* fewer than layers */
            if (k % 4 == 2) set_array(f, key, APR_KV_F32, 4, reals);
            const apr_kv text = {
                .key = apr_str_of(key), .type = APR_KV_ARRAY, .elem_type = APR_KV_STRING, .n_elems = 2, .value.strings = texts};
            if (k % 4 == 3) assert_int_equal(apr_kv_set(&f->kv, &text, &f->err), APR_OK);
            const apr_status status = read_hparams(f);
            assert_true(status == APR_OK || status == APR_E_DAMAGED);
            if (status == APR_OK && f->h.layer_kinds != NULL)
                for (int i = 0; i < 4; i++) assert_true(f->h.layer_kinds[i] < APR_N_LAYER_KINDS);
        }
    }
}

static void another_number_of_layers_leaves_no_kinds_of_the_old_ones(void **state)
{
    fixture *const f = *state;
    start(f, "smollm3");
    set_int(f, "smollm3.block_count", 4);
    set_int(f, "aprkit.num_layers", 9000);
    assert_int_equal(read_hparams(f), APR_OK);
    assert_int_equal(f->h.num_layers, 9000);
    assert_true(apr_layer_has_rope(&f->h, 8999));
}

static void keys_of_our_own_that_make_no_sense_are_refused_with_a_sentence(void **state)
{
    static const double factors[] = {1, 2};
    static const struct {
        const char *key, *text, *says;
    } rows[] = {
        {"aprkit.layer_kinds", "fff", "aprkit.layer_kinds is not one letter for each layer"},
        {"aprkit.layer_kinds", "ffzf", "aprkit.layer_kinds"},
        {"aprkit.ffn_kinds", "dedx", "aprkit.ffn_kinds"},
        {"aprkit.no_rope", "rrr\0", "aprkit.no_rope"},
        {"aprkit.shares_index", "osso?", "aprkit.shares_index"},
        {"aprkit.rope.type", "spiral", "unknown rotary scaling 'spiral'"},
        {"aprkit.rope_local.type", "spiral", "unknown rotary scaling 'spiral'"},
        {"aprkit.rope.long_factor", "2", "aprkit.rope.long_factor is not a list of factors"},
    };
    fixture *const f = *state;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        start(f, "llama");
        set_int(f, "llama.block_count", 4);
        set_text(f, rows[i].key, rows[i].text);
        assert_int_not_equal(read_hparams(f), APR_OK);
        if (strstr(f->err.text, rows[i].says) == NULL) fail_msg("'%s' does not say '%s'", f->err.text, rows[i].says);
    }
    start(f, "llama");
    set_array(f, "aprkit.rope.short_factor", APR_KV_F64, 2, factors);
    assert_int_equal(read_hparams(f), APR_E_DAMAGED);
    assert_non_null(strstr(f->err.text, "2 short factors and 0 long ones"));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_key_distinguishes_families_with_one_name),
        TEST(a_nemotron_is_named_by_whether_it_has_experts),
        TEST(layers_that_predict_more_tokens_are_not_run),
        TEST(old_files_with_latent_attention_say_the_widths_of_heads),
        TEST(alpha_is_written_as_the_theta_that_it_makes),
        TEST(a_zero_is_written_where_a_reader_would_assume_a_default),
        TEST(layers_with_an_index_are_listed_where_readers_assume_others),
        TEST(divisors_that_stop_the_rest_are_a_proportional_scaling),
        TEST(factors_of_longrope_come_from_both_tensors_or_not_at_all),
        TEST(arrays_that_fit_no_model_do_no_harm),
        TEST(another_number_of_layers_leaves_no_kinds_of_the_old_ones),
        TEST(keys_of_our_own_that_make_no_sense_are_refused_with_a_sentence),
    };
    return cmocka_run_group_tests_name("gguf hyperparameters", tests, NULL, NULL);
}
