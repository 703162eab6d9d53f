/* formats/shape/meta_params.h and formats/shape/meta_names.h: Meta's and Mistral's own releases mean what their code means. */
#include "formats/shape/meta_names.h"
#include "formats/shape/meta_params.h"
#include "tests/support/work_folder.h"

/* --- helpers --- */

/* Hyperparameters of a params.json, next to an embedding of 1,000 rows and an output matrix. */
static apr_status read_params(const char *text, apr_hparams *h, apr_arena *arena, apr_error *err)
{
    apr_tensor tensors[] = {{.name = "tok_embeddings.weight", .rank = 2, .dims = {1000, 64}}, {.name = "output.weight", .rank = 2}};
    const apr_model model = {.tensors = tensors, .n_tensors = 2};
    const apr_attachment file = {"params.json", (const uint8_t *)text, strlen(text)};

    *err = (apr_error){0};
    return apr_params_read(&file, &model, h, arena, "test", err);
}

static apr_hparams read_ok(const char *text, apr_arena *arena)
{
    apr_hparams h;
    apr_error err;
    if (read_params(text, &h, arena, &err) != APR_OK) fail_msg("%s", err.text);
    return h;
}

#define SIZES "\"dim\":4096,\"n_layers\":32,\"n_heads\":32,\"n_kv_heads\":8,\"norm_eps\":1e-5"

static void assert_refuses(const char *text, const char *words)
{
    apr_arena arena = {0};
    const apr_hparams h = read_ok(text, &arena);
    if (h.refusal == NULL || strstr(h.refusal, words) == NULL) fail_msg("'%s' does not say '%s'", h.refusal ? h.refusal : "", words);
    apr_arena_close(&arena);
}

static void assert_damaged(const char *text, const char *words)
{
    apr_arena arena = {0};
    apr_hparams h;
    apr_error err;
    assert_int_equal(read_params(text, &h, &arena, &err), APR_E_DAMAGED);
    if (strstr(err.text, words) == NULL) fail_msg("'%s' does not say '%s'", err.text, words);
    apr_arena_close(&arena);
}

/* --- params.json --- */

/* The widths that Meta's models have: Llama 2 7B and 70B, Llama 3 8B and 70B. */
static void the_feed_forward_has_metas_width(void **state)
{
    static const struct {
        const char *text;
        int64_t width;
    } table[] = {
        {"{\"dim\":4096,\"multiple_of\":256,\"n_heads\":32,\"n_layers\":32,\"norm_eps\":1e-05,\"vocab_size\":-1}", 11008},
        {"{\"dim\":8192,\"multiple_of\":4096,\"ffn_dim_multiplier\":1.3,\"n_heads\":64,\"n_kv_heads\":8,\"n_layers\":80,\"norm_eps\":1e-5}",
         28672},
        {"{\"dim\":4096,\"n_layers\":32,\"n_heads\":32,\"n_kv_heads\":8,\"vocab_size\":128256,\"multiple_of\":1024,"
         "\"ffn_dim_multiplier\":1.3,\"norm_eps\":1e-05,\"rope_theta\":500000.0}",
         14336},
        {"{\"dim\":8192,\"ffn_dim_multiplier\":1.3,\"multiple_of\":1024,\"n_heads\":64,\"n_kv_heads\":8,\"n_layers\":80,\"norm_eps\":1e-5,"
         "\"rope_theta\":500000.0,\"vocab_size\":128256}",
         28672},
    };

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        apr_arena arena = {0};
        const apr_hparams h = read_ok(table[i].text, &arena);
        assert_int_equal(h.intermediate_size, table[i].width);
        assert_string_equal(h.architecture, "llama");
        assert_null(h.refusal);
        apr_arena_close(&arena);
    }
}

static void what_metas_file_leaves_out_follows(void **state)
{
    apr_arena arena = {0};
    const apr_hparams h = read_ok("{\"dim\":4096,\"n_heads\":32,\"n_layers\":32,\"norm_eps\":1e-6,\"vocab_size\":-1}", &arena);

    (void)state;
    assert_int_equal(h.vocab_size, 1000); /* the embedding's rows */
    assert_int_equal(h.num_kv_heads, 32);
    assert_int_equal(h.head_dim, 128);
    assert_true(h.rope_theta == 10000);
    assert_int_equal(h.max_position_embeddings, 2048);
    assert_false(h.tie_word_embeddings);
    apr_arena_close(&arena);
}

static void llama_3_1_scales_its_frequencies(void **state)
{
    apr_arena arena = {0};
    const apr_hparams h =
        read_ok("{" SIZES ",\"rope_theta\":500000.0,\"use_scaled_rope\":true,\"vocab_size\":128256,\"multiple_of\":1024}", &arena);

    (void)state;
    assert_int_equal(h.rope.kind, APR_ROPE_LLAMA3);
    assert_true(h.rope.factor == 8);
    assert_int_equal(h.rope.original_context, 8192);
    assert_null(h.refusal);
    apr_arena_close(&arena);
    assert_refuses("{\"dim\":2048,\"n_layers\":16,\"n_heads\":32,\"norm_eps\":1e-5,\"use_scaled_rope\":true}", "which is 8 or 32");
}

static void mistrals_file_states_more(void **state)
{
    apr_arena arena = {0};
    const apr_hparams h = read_ok("{" SIZES ",\"head_dim\":96,\"hidden_dim\":14336,\"sliding_window\":4096,\"vocab_size\":32000}", &arena);
    const apr_hparams open = read_ok("{" SIZES ",\"hidden_dim\":14336,\"vocab_size\":32000,\"tied_embeddings\":true}", &arena);

    (void)state;
    assert_string_equal(h.architecture, "mistral");
    assert_int_equal(h.head_dim, 96);
    assert_int_equal(h.sliding_window, 4096);
    assert_true(h.rope_theta == 10000);
    assert_int_equal(open.sliding_window, 0);
    assert_true(open.rope_theta == 1000000); /* as its code has it where no window slides */
    assert_true(open.tie_word_embeddings);
    apr_arena_close(&arena);
}

static void experts_make_a_mixtral(void **state)
{
    apr_arena arena = {0};
    const apr_hparams h =
        read_ok("{" SIZES ",\"hidden_dim\":14336,\"moe\":{\"num_experts\":8,\"num_experts_per_tok\":2},\"rope_theta\":1e6}", &arena);

    (void)state;
    assert_string_equal(h.architecture, "mixtral");
    assert_int_equal(h.num_experts, 8);
    assert_int_equal(h.num_experts_per_tok, 2);
    assert_null(h.refusal);
    apr_arena_close(&arena);
}

static void yarn_and_warm_queries_make_a_ministral(void **state)
{
    apr_arena arena = {0};
    const apr_hparams h = read_ok("{" SIZES ",\"hidden_dim\":9216,\"rope_theta\":1e6,\"yarn\":{\"original_max_position_embeddings\":16384,"
                                  "\"factor\":16,\"apply_scale\":false,\"beta\":32,\"alpha\":1},"
                                  "\"llama_4_scaling\":{\"original_max_position_embeddings\":16384,\"beta\":0.1}}",
                                  &arena);

    (void)state;
    assert_string_equal(h.architecture, "ministral3");
    assert_int_equal(h.rope.kind, APR_ROPE_YARN);
    assert_true(h.rope.factor == 16 && h.rope.beta_fast == 32 && h.rope.beta_slow == 1);
    assert_true(h.rope.attention_factor == 1);
    assert_true(h.attn_temperature == 0.1);
    assert_null(h.refusal);
    apr_arena_close(&arena);
}

static void what_is_not_understood_is_named(void **state)
{
    (void)state;
    assert_refuses("{" SIZES ",\"hidden_dim\":8,\"kv_lora_rank\":512}", "\"kv_lora_rank\", which is not understood");
    assert_refuses("{" SIZES ",\"hidden_dim\":8,\"moe\":{\"num_experts\":8,\"num_experts_per_tok\":2,\"num_shared_experts\":1}}",
                   "\"num_shared_experts\"");
    assert_refuses("{" SIZES ",\"hidden_dim\":8,\"quantization\":{\"qformat_weight\":\"int4\"}}", "\"qformat_weight\" int4");
    assert_refuses("{" SIZES ",\"hidden_dim\":8,\"moe\":[1]}", "has \"moe\", which is not understood");
    assert_refuses("{" SIZES ",\"hidden_dim\":8,\"causal\":false}", "\"causal\": false");
    assert_refuses("{" SIZES ",\"hidden_dim\":8,\"llama_4_scaling\":{\"beta\":0.1}}", "\"llama_4_scaling\" without \"yarn\"");
    assert_refuses("{" SIZES ",\"hidden_dim\":8,\"yarn\":{\"factor\":4,\"original_max_position_embeddings\":16,\"apply_scale\":true}}",
                   "\"apply_scale\"");
    apr_arena arena = {0};
    assert_null(read_ok("{" SIZES ",\"hidden_dim\":8,\"use_biases\":false,\"lora\":null}", &arena).refusal); /* off */
    apr_arena_close(&arena);
}

static void damage_is_reported_by_its_field(void **state)
{
    (void)state;
    assert_damaged("{}", "\"dim\", \"n_layers\" or \"n_heads\" is missing");
    assert_damaged("[]", "not a JSON object");
    assert_damaged("[1, null]", "not a JSON object");
    assert_damaged("NaN", "not a JSON object");
    assert_damaged("{\"dim\":\"4096\"}", "\"dim\" is not a valid size");
    assert_damaged("{\"dim\":4096.5}", "\"dim\" is not a valid size");
    assert_damaged("{" SIZES ",\"multiple_of\":0}", "\"multiple_of\" or \"ffn_dim_multiplier\" is not a valid size");
    assert_damaged("{" SIZES ",\"ffn_dim_multiplier\":1e300}", "\"multiple_of\" or \"ffn_dim_multiplier\" is not a valid size");
    assert_damaged("{" SIZES ",\"rope_theta\":\"x\"}", "\"rope_theta\" is not a number");
    assert_damaged("{", "test");
}

/* --- names --- */

static void names_and_orders_become_canonical(void **state)
{
    static const struct {
        const char *meta, *canonical;
        int heads; /* of the rotary pairs; 0: rows stay */
    } table[] = {
        {"tok_embeddings.weight", "model.embed_tokens.weight", 0},
        {"norm.weight", "model.norm.weight", 0},
        {"output.weight", "lm_head.weight", 0},
        {"layers.17.attention.wq.weight", "model.layers.17.self_attn.q_proj.weight", 32},
        {"layers.17.attention.wk.weight", "model.layers.17.self_attn.k_proj.weight", 8},
        {"layers.17.attention.wk.bias", "model.layers.17.self_attn.k_proj.bias", 8},
        {"layers.17.attention.wk.qscale_weight", "model.layers.17.self_attn.k_proj.weight_scale_inv", 0},
        {"layers.17.attention.wv.qscale_act", "model.layers.17.self_attn.v_proj.activation_scale", 0},
        {"layers.0.ffn_norm.weight", "model.layers.0.post_attention_layernorm.weight", 0},
        {"layers.0.feed_forward.w2.weight", "model.layers.0.mlp.down_proj.weight", 0},
        {"layers.3.feed_forward.gate.weight", "model.layers.3.block_sparse_moe.gate.weight", 0},
        {"layers.3.feed_forward.experts.11.w3.weight", "model.layers.3.block_sparse_moe.experts.11.w3.weight", 0},
        {"rope.freqs", "rope.freqs", 0},
        {"layers.x.attention.wq.weight", "layers.x.attention.wq.weight", 0},
        {"layers.1.attention.wq.weight.more", "layers.1.attention.wq.weight.more", 0},
        {"vision_encoder.layers.0.attention.wq.weight", "vision_encoder.layers.0.attention.wq.weight", 0},
        {"", "", 0},
    };
    const apr_hparams h = {.num_heads = 32, .num_kv_heads = 8};
    apr_arena arena = {0};

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        apr_chain chain;
        assert_string_equal(apr_meta_to_canonical(table[i].meta, &h, &chain, &arena), table[i].canonical);
        assert_int_equal(chain.n_steps, table[i].heads > 0);
        if (table[i].heads == 0) continue;
        assert_int_equal(chain.steps[0].kind, APR_STEP_PAIRS_TO_HALVES);
        assert_int_equal(chain.steps[0].n[0], table[i].heads);
    }
    apr_arena_close(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_feed_forward_has_metas_width),
        cmocka_unit_test(what_metas_file_leaves_out_follows),
        cmocka_unit_test(llama_3_1_scales_its_frequencies),
        cmocka_unit_test(mistrals_file_states_more),
        cmocka_unit_test(experts_make_a_mixtral),
        cmocka_unit_test(yarn_and_warm_queries_make_a_ministral),
        cmocka_unit_test(what_is_not_understood_is_named),
        cmocka_unit_test(damage_is_reported_by_its_field),
        cmocka_unit_test(names_and_orders_become_canonical),
    };
    return cmocka_run_group_tests_name("params", tests, NULL, NULL);
}
