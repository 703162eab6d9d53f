/* quant/recipe.h: llama.cpp's mixtures tensor by tensor, fallbacks with their reasons, and what is refused. */
#include "quant/mixtures.h"
#include "quant/recipe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static bool gguf_like(apr_dtype dtype) { return apr_dtypes[dtype].ggml_id >= 0; }

/* A dense model of names and shapes. */
typedef struct shape {
    int64_t layers, hidden, intermediate, heads, kv_heads, head_dim, vocab;
    bool tied, ggml_names;
} shape;

static void add(apr_model *m, const char *name, int rank, int64_t rows, int64_t columns)
{
    apr_tensor *const t = &m->tensors[m->n_tensors++];
    *t = (apr_tensor){.name = apr_arena_copy(&m->arena, name, strlen(name)), .dtype = APR_BF16, .rank = rank, .dims = {rows, columns}};
    if (rank == 1) t->dims[0] = columns;
    assert_int_equal(apr_tensor_size(t, "test", NULL), APR_OK);
}

static void make_model(apr_model *m, shape s)
{
    char name[128];
    const struct {
        const char *hf, *ggml;
        int64_t rows, columns;
    } matrices[] = {
        {"self_attn.q_proj", "attn_q", s.heads * s.head_dim, s.hidden},
        {"self_attn.k_proj", "attn_k", s.kv_heads * s.head_dim, s.hidden},
        {"self_attn.v_proj", "attn_v", s.kv_heads * s.head_dim, s.hidden},
        {"self_attn.o_proj", "attn_output", s.hidden, s.heads * s.head_dim},
        {"mlp.gate_proj", "ffn_gate", s.intermediate, s.hidden},
        {"mlp.up_proj", "ffn_up", s.intermediate, s.hidden},
        {"mlp.down_proj", "ffn_down", s.hidden, s.intermediate},
    };

    *m = (apr_model){.path = "test",
                     .hparams = {.architecture = "qwen3",
                                 .num_layers = s.layers,
                                 .num_heads = s.heads,
                                 .num_kv_heads = s.kv_heads,
                                 .tie_word_embeddings = s.tied}};
    m->tensors = apr_arena_array(&m->arena, (size_t)(s.layers * 10 + 3), sizeof *m->tensors);
    add(m, s.ggml_names ? "token_embd.weight" : "model.embed_tokens.weight", 2, s.vocab, s.hidden);
    if (!s.tied) add(m, s.ggml_names ? "output.weight" : "lm_head.weight", 2, s.vocab, s.hidden);
    for (int64_t l = 0; l < s.layers; l++) {
        for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++) {
            if (s.ggml_names) snprintf(name, sizeof name, "blk.%d.%s.weight", (int)l, matrices[i].ggml);
            else snprintf(name, sizeof name, "model.layers.%d.%s.weight", (int)l, matrices[i].hf);
            add(m, name, 2, matrices[i].rows, matrices[i].columns);
        }
        snprintf(name, sizeof name, s.ggml_names ? "blk.%d.attn_norm.weight" : "model.layers.%d.input_layernorm.weight", (int)l);
        add(m, name, 1, 0, s.hidden);
    }
    assert_int_equal(apr_model_index_names(m, NULL), APR_OK);
}

static apr_dtype type_of(const apr_recipe *recipe, const char *name)
{
    for (size_t i = 0; i < recipe->n_lines; i++)
        if (strcmp(recipe->lines[i].tensor->name, name) == 0) return recipe->lines[i].to;
    fail_msg("no line for %s", name);
    return APR_DTYPE_COUNT;
}

static const apr_recipe_line *line_of(const apr_recipe *recipe, const char *name)
{
    for (size_t i = 0; i < recipe->n_lines; i++)
        if (strcmp(recipe->lines[i].tensor->name, name) == 0) return &recipe->lines[i];
    return NULL;
}

static const shape qwen3_14b = {40, 5120, 17408, 40, 8, 128, 151936, false, false};
static const shape tiny_qwen3 = {4, 256, 768, 6, 2, 64, 2048, false, false};

/* llama.cpp's own tests/snapshots/qwen3-14b.schema: V and down are Q6_K in these layers, Q4_K elsewhere. */
static void q4_k_m_of_a_14b_is_llama_cpps(void **state)
{
    (void)state;
    static const int more[] = {0, 1, 2, 3, 4, 7, 10, 13, 16, 19, 22, 25, 28, 31, 34, 35, 36, 37, 38, 39};
    for (int ggml = 0; ggml < 2; ggml++) {
        apr_model m;
        apr_recipe r;
        shape s = qwen3_14b;
        s.ggml_names = ggml;
        make_model(&m, s);
        assert_int_equal(apr_recipe_make(&r, &m, &(apr_recipe_options){.mixture = "q4_k_m"}, NULL), APR_OK);
        for (int l = 0; l < 40; l++) {
            char v[96], down[96], q[96];
            bool has_more = false;
            for (size_t i = 0; i < sizeof more / sizeof *more; i++) has_more |= more[i] == l;
            snprintf(v, sizeof v, ggml ? "blk.%d.attn_v.weight" : "model.layers.%d.self_attn.v_proj.weight", l);
            snprintf(down, sizeof down, ggml ? "blk.%d.ffn_down.weight" : "model.layers.%d.mlp.down_proj.weight", l);
            snprintf(q, sizeof q, ggml ? "blk.%d.attn_q.weight" : "model.layers.%d.self_attn.q_proj.weight", l);
            assert_int_equal(type_of(&r, v), has_more ? APR_Q6_K : APR_Q4_K);
            assert_int_equal(type_of(&r, down), has_more ? APR_Q6_K : APR_Q4_K);
            assert_int_equal(type_of(&r, q), APR_Q4_K);
        }
        assert_int_equal(type_of(&r, ggml ? "output.weight" : "lm_head.weight"), APR_Q6_K);
        assert_int_equal(type_of(&r, ggml ? "token_embd.weight" : "model.embed_tokens.weight"), APR_Q4_K);
        assert_int_equal(r.file_type, 15);
        apr_recipe_close(&r);
        apr_model_close(&m);
    }
}

/* What llama-quantize d32676d prints for models of these shapes (4 query heads a kv head; or 2; or 8 experts): V, out and down of layers 0, 1
 * and the last, and the embedding. */
static void low_bit_mixtures_are_llama_cpps(void **state)
{
    enum { LAYERS = 16, LAST = LAYERS - 1 };
    static const struct {
        const char *mixture;
        int64_t kv_heads, experts;
        bool has_importance;
        apr_dtype v[3], out, down[3], up, embedding;
        int64_t file_type;
    } table[] = {
        {"q2_k", 2, 0, false, {APR_Q4_K, APR_Q4_K, APR_Q4_K}, APR_Q3_K, {APR_Q3_K, APR_Q3_K, APR_Q3_K}, APR_Q2_K, APR_Q2_K, 10},
        {"q2_k", 4, 0, false, {APR_Q3_K, APR_Q3_K, APR_Q3_K}, APR_Q3_K, {APR_Q3_K, APR_Q3_K, APR_Q3_K}, APR_Q2_K, APR_Q2_K, 10},
        {"q2_k", 4, 8, false, {APR_Q8_0, APR_Q8_0, APR_Q8_0}, APR_Q5_K, {APR_Q3_K, APR_Q3_K, APR_Q3_K}, APR_Q2_K, APR_Q2_K, 10},
        {"q2_k_s", 2, 0, true, {APR_Q4_K, APR_Q4_K, APR_Q4_K}, APR_Q2_K, {APR_Q4_K, APR_Q4_K, APR_Q2_K}, APR_Q2_K, APR_Q2_K, 21},
        {"q2_k_s", 4, 0, true, {APR_Q2_K, APR_Q2_K, APR_Q2_K}, APR_Q2_K, {APR_Q4_K, APR_Q4_K, APR_Q2_K}, APR_Q2_K, APR_Q2_K, 21},
        {"q3_k_s", 2, 0, false, {APR_Q3_K, APR_Q3_K, APR_Q3_K}, APR_Q3_K, {APR_Q3_K, APR_Q3_K, APR_Q3_K}, APR_Q3_K, APR_Q3_K, 11},
        {"q3_k_m", 2, 0, false, {APR_Q5_K, APR_Q5_K, APR_Q4_K}, APR_Q4_K, {APR_Q5_K, APR_Q4_K, APR_Q4_K}, APR_Q3_K, APR_Q3_K, 12},
        {"q3_k_m", 4, 8, false, {APR_Q8_0, APR_Q8_0, APR_Q8_0}, APR_Q5_K, {APR_Q5_K, APR_Q4_K, APR_Q4_K}, APR_Q3_K, APR_Q3_K, 12},
        {"q3_k_l", 2, 0, false, {APR_Q5_K, APR_Q5_K, APR_Q5_K}, APR_Q5_K, {APR_Q5_K, APR_Q5_K, APR_Q5_K}, APR_Q3_K, APR_Q3_K, 13},
        {"q3_k_l", 4, 8, false, {APR_Q8_0, APR_Q8_0, APR_Q8_0}, APR_Q3_K, {APR_Q5_K, APR_Q5_K, APR_Q5_K}, APR_Q3_K, APR_Q3_K, 13},
        {"iq4_nl", 2, 0, false, {APR_Q5_K, APR_Q5_K, APR_Q5_K}, APR_IQ4_NL, {APR_Q5_K, APR_Q5_K, APR_IQ4_NL}, APR_IQ4_NL, APR_IQ4_NL, 25},
        {"iq4_xs",
         4,
         0,
         true,
         {APR_IQ4_XS, APR_IQ4_XS, APR_IQ4_XS},
         APR_IQ4_XS,
         {APR_IQ4_XS, APR_IQ4_XS, APR_IQ4_XS},
         APR_IQ4_XS,
         APR_IQ4_XS,
         30},
        {"iq3_m", 4, 0, false, {APR_Q4_K, APR_Q4_K, APR_Q4_K}, APR_Q4_K, {APR_Q4_K, APR_Q4_K, APR_IQ3_S}, APR_IQ3_S, APR_IQ3_S, 27},
        {"iq3_s", 4, 0, false, {APR_IQ3_S, APR_IQ3_S, APR_IQ3_S}, APR_IQ3_S, {APR_IQ3_S, APR_IQ3_S, APR_IQ3_S}, APR_IQ3_S, APR_IQ3_S, 26},
        {"iq3_xs", 2, 0, false, {APR_Q4_K, APR_Q4_K, APR_Q4_K}, APR_IQ3_S, {APR_IQ3_S, APR_IQ3_S, APR_IQ3_S}, APR_IQ3_S, APR_IQ3_S, 22},
        {"tq2_0", 2, 0, false, {APR_TQ2_0, APR_TQ2_0, APR_TQ2_0}, APR_TQ2_0, {APR_TQ2_0, APR_TQ2_0, APR_TQ2_0}, APR_TQ2_0, APR_Q4_K, 37},
        {"tq1_0", 2, 0, false, {APR_TQ1_0, APR_TQ1_0, APR_TQ1_0}, APR_TQ1_0, {APR_TQ1_0, APR_TQ1_0, APR_TQ1_0}, APR_TQ1_0, APR_Q4_K, 36},
        {"q2_0", 2, 0, false, {APR_Q2_0, APR_Q2_0, APR_Q2_0}, APR_Q2_0, {APR_Q2_0, APR_Q2_0, APR_Q2_0}, APR_Q2_0, APR_Q4_K, 41},
        {"q1_0", 2, 0, false, {APR_Q1_0, APR_Q1_0, APR_Q1_0}, APR_Q1_0, {APR_Q1_0, APR_Q1_0, APR_Q1_0}, APR_Q1_0, APR_Q1_0, 40},
    };
    static const int layers[3] = {0, 1, LAST};
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char name[96];
        apr_model m;
        apr_recipe r;
        make_model(&m, (shape){LAYERS, 512, 1024, 8, table[i].kv_heads, 64, 2048, false, false});
        m.hparams.num_experts = table[i].experts;
        const apr_recipe_options options = {.mixture = table[i].mixture, .has_importance = table[i].has_importance};
        assert_int_equal(apr_recipe_make(&r, &m, &options, NULL), APR_OK);
        for (int l = 0; l < 3; l++) {
            snprintf(name, sizeof name, "model.layers.%d.self_attn.v_proj.weight", layers[l]);
            assert_int_equal(type_of(&r, name), table[i].v[l]);
            snprintf(name, sizeof name, "model.layers.%d.mlp.down_proj.weight", layers[l]);
            assert_int_equal(type_of(&r, name), table[i].down[l]);
            snprintf(name, sizeof name, "model.layers.%d.self_attn.o_proj.weight", layers[l]);
            assert_int_equal(type_of(&r, name), table[i].out);
            snprintf(name, sizeof name, "model.layers.%d.mlp.up_proj.weight", layers[l]);
            assert_int_equal(type_of(&r, name), table[i].up);
        }
        assert_int_equal(type_of(&r, "model.embed_tokens.weight"), table[i].embedding);
        assert_int_equal(type_of(&r, "lm_head.weight"), APR_Q6_K);
        assert_int_equal(r.file_type, table[i].file_type);
        apr_recipe_close(&r);
        apr_model_close(&m);
    }
}

static void pure_mixtures_have_no_rules(void **state)
{
    (void)state;
    apr_model m;
    apr_recipe r;
    make_model(&m, (shape){4, 512, 1024, 8, 2, 64, 2048, false, false});
    assert_int_equal(apr_recipe_make(&r, &m, &(apr_recipe_options){.mixture = "q2_k", .pure = true}, NULL), APR_OK);
    assert_int_equal(type_of(&r, "model.layers.0.self_attn.v_proj.weight"), APR_Q2_K);
    assert_int_equal(type_of(&r, "model.layers.0.mlp.down_proj.weight"), APR_Q2_K);
    apr_recipe_close(&r);
    apr_model_close(&m);
}

static void a_row_that_blocks_do_not_divide_falls_back_and_says_why(void **state)
{
    (void)state;
    apr_model m;
    apr_recipe r;
    make_model(&m, tiny_qwen3); /* o_proj has 384 columns */
    assert_int_equal(apr_recipe_make(&r, &m, &(apr_recipe_options){.mixture = "q4_k_m"}, NULL), APR_OK);
    const apr_recipe_line *const line = line_of(&r, "model.layers.0.self_attn.o_proj.weight");
    assert_int_equal(line->to, APR_Q5_0);
    assert_true(line->fell_back);
    assert_string_equal(line->reason, "384 columns are not a multiple of 256: q5_0 instead of q4_k");
    assert_false(line_of(&r, "model.layers.0.self_attn.q_proj.weight")->fell_back);
    apr_recipe_close(&r);

    /* where the container has no q5_0, f16 stands in */
    const apr_recipe_limits narrow = {.container = "the narrow profile", .plain_fallback = true};
    assert_int_equal(apr_recipe_make(&r, &m, &(apr_recipe_options){.mixture = "q4_k", .limits = narrow}, NULL), APR_OK);
    assert_int_equal(type_of(&r, "model.layers.0.self_attn.o_proj.weight"), APR_F16);
    apr_recipe_close(&r);
    apr_model_close(&m);
}

static void a_tied_embedding_is_treated_as_the_head(void **state)
{
    (void)state;
    apr_model m;
    apr_recipe r;
    shape s = tiny_qwen3;
    s.tied = true;
    make_model(&m, s);
    assert_int_equal(apr_recipe_make(&r, &m, &(apr_recipe_options){.mixture = "q4_k_m"}, NULL), APR_OK);
    assert_int_equal(type_of(&r, "model.embed_tokens.weight"), APR_Q6_K);
    apr_recipe_close(&r);
    apr_model_close(&m);
}

static void vectors_are_kept_or_widened(void **state)
{
    (void)state;
    apr_model m;
    apr_recipe r;
    make_model(&m, tiny_qwen3);
    assert_int_equal(apr_recipe_make(&r, &m, &(apr_recipe_options){.mixture = "q8_0"}, NULL), APR_OK);
    assert_int_equal(type_of(&r, "model.layers.0.input_layernorm.weight"), APR_BF16);
    apr_recipe_close(&r);
    assert_int_equal(
        apr_recipe_make(&r, &m,
                        &(apr_recipe_options){.mixture = "q8_0", .limits = {.container = "GGUF", .allows = gguf_like, .vectors_f32 = true}},
                        NULL),
        APR_OK);
    assert_int_equal(type_of(&r, "model.layers.0.input_layernorm.weight"), APR_F32);
    apr_recipe_close(&r);
    apr_model_close(&m);
}

static void an_override_wins_over_the_mixture(void **state)
{
    (void)state;
    apr_model m;
    apr_recipe r;
    const apr_recipe_override overrides[] = {{"layers\\.[01]\\.mlp\\.down", APR_Q8_0}, {"down_proj", APR_F16}};
    make_model(&m, tiny_qwen3);
    assert_int_equal(apr_recipe_make(&r, &m, &(apr_recipe_options){.mixture = "q4_k", .overrides = overrides, .n_overrides = 2}, NULL),
                     APR_OK);
    assert_int_equal(type_of(&r, "model.layers.1.mlp.down_proj.weight"), APR_Q8_0);
    assert_int_equal(type_of(&r, "model.layers.2.mlp.down_proj.weight"), APR_F16);
    assert_int_equal(type_of(&r, "model.layers.2.mlp.up_proj.weight"), APR_Q4_K);
    apr_recipe_close(&r);
    apr_model_close(&m);
}

static void what_cannot_be_is_refused_with_a_sentence(void **state)
{
    (void)state;
    const apr_recipe_override broken = {"down_(proj", APR_F16};
    apr_recipe r;
    apr_model m;
    make_model(&m, tiny_qwen3);
    const struct {
        apr_recipe_options options;
        apr_status status;
        const char *says;
    } cases[] = {
        {{.mixture = "q9_k"}, APR_E_USAGE, "cannot write 'q9_k'"},
        {{.mixture = "q4_k", .overrides = &broken, .n_overrides = 1}, APR_E_USAGE, "down_(proj"},
        {{.mixture = "fp8", .limits = {.allows = gguf_like, .container = "GGUF"}}, APR_E_UNSUPPORTED, "fp8 has no place in GGUF"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_error err = {0};
        assert_int_equal(apr_recipe_make(&r, &m, &cases[i].options, &err), cases[i].status);
        assert_non_null(strstr(err.text, cases[i].says));
    }
    apr_model_close(&m);
}

static void quantizing_twice_must_be_asked_for(void **state)
{
    (void)state;
    apr_recipe r;
    apr_model m;
    apr_error err = {0};
    make_model(&m, tiny_qwen3);
    for (size_t i = 0; i < m.n_tensors; i++)
        if (m.tensors[i].rank == 2) {
            m.tensors[i].dtype = APR_Q8_0;
            assert_int_equal(apr_tensor_size(&m.tensors[i], "test", NULL), APR_OK);
        }
    assert_int_equal(apr_recipe_make(&r, &m, &(apr_recipe_options){.mixture = "q4_k"}, &err), APR_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "lose precision twice"));
    assert_int_equal(apr_recipe_make(&r, &m, &(apr_recipe_options){.mixture = "q4_k", .allow_requantize = true}, NULL), APR_OK);
    apr_recipe_close(&r);
    assert_int_equal(apr_recipe_make(&r, &m, &(apr_recipe_options){.mixture = "f16"}, NULL), APR_OK); /* dequantizing loses nothing twice */
    apr_recipe_close(&r);
    apr_model_close(&m);
}

static void sizes_are_rows_times_row_bytes(void **state)
{
    (void)state;
    const apr_tensor t = {.name = "x", .dtype = APR_BF16, .rank = 2, .dims = {10, 512}, .n_bytes = 10240};
    assert_int_equal(apr_recipe_bytes(&t, APR_Q4_K), 10 * 2 * 144);
    assert_int_equal(apr_recipe_bytes(&t, APR_F8_E4M3), 10 * 512 + 10 * 4);
    assert_int_equal(apr_recipe_bytes(&t, APR_BF16), 10240);
}

/* Of the families with experts and recurrent layers: what every mixture leaves as it is, and what it does not go below. */
/* flux, gpt2, mamba2, ...: what no rule knows is a matrix by its shape, and the recipe counts what became of all of them. */
static void matrices_of_unknown_names_are_chosen_by_shape(void **state)
{
    const apr_recipe_options options = {.mixture = "q8_0"};
    apr_model m = {.path = "test", .hparams = {.architecture = "flux"}};
    apr_recipe recipe;

    (void)state;
    m.tensors = apr_arena_array(&m.arena, 6, sizeof *m.tensors);
    add(&m, "double_blocks.0.img_attn.qkv.weight", 2, 192, 64);
    add(&m, "h.0.attn.c_attn.weight", 2, 64, 192);
    add(&m, "wpos_emb.weight", 2, 192, 64);    /* a table of positions */
    add(&m, "score.weight", 2, 2, 64);         /* a classifier of two rows */
    add(&m, "blocks.0.odd.weight", 2, 64, 36); /* no block divides its rows */
    add(&m, "double_blocks.0.img_attn.qkv.bias", 1, 1, 192);
    assert_int_equal(apr_recipe_make(&recipe, &m, &options, NULL), APR_OK);
    assert_int_equal(type_of(&recipe, "double_blocks.0.img_attn.qkv.weight"), APR_Q8_0);
    assert_int_equal(type_of(&recipe, "h.0.attn.c_attn.weight"), APR_Q8_0);
    for (size_t i = 2; i < 6; i++) assert_int_equal(type_of(&recipe, m.tensors[i].name), APR_BF16);
    assert_int_equal(recipe.n_matrices, 5);
    assert_int_equal(recipe.n_quantized, 2);
    assert_int_equal(recipe.n_by_shape, 2);
    apr_recipe_close(&recipe);
    apr_arena_close(&m.arena);
}

static void what_is_small_and_sensitive_is_kept(void **state)
{
    (void)state;
    static const struct {
        const char *family, *name;
        apr_dtype q4_k, in_gguf, f32;
    } cases[] = {
        {"qwen3_5_text", "model.layers.0.linear_attn.in_proj_a.weight", APR_Q8_0, APR_Q8_0, APR_F32},
        {"qwen3_next", "model.layers.0.linear_attn.in_proj_ba.weight", APR_Q8_0, APR_Q8_0, APR_F32},
        {"qwen3_5_text", "model.layers.0.linear_attn.in_proj_qkv.weight", APR_Q4_K, APR_Q4_K, APR_F32},
        {"qwen3_5_text", "model.layers.0.linear_attn.conv1d.weight", APR_BF16, APR_F32, APR_F32},
        {"gpt_oss", "model.layers.0.mlp.router.weight", APR_BF16, APR_F32, APR_F32},
        {"gpt_oss", "model.layers.0.mlp.experts.down_proj_bias", APR_BF16, APR_F32, APR_F32},
        {"gemma4_text", "model.per_layer_model_projection.weight", APR_BF16, APR_BF16, APR_F32},
        {"gemma3n_text", "model.altup_projections.1.weight", APR_BF16, APR_BF16, APR_F32},
        {"gemma3n_text", "model.layers.0.laurel.linear_left.weight", APR_BF16, APR_BF16, APR_F32},
        {"gemma3n_text", "model.layers.0.altup.correct_output_scale", APR_BF16, APR_F32, APR_F32},
        {"gemma3n_text", "model.layers.0.per_layer_input_gate.weight", APR_Q4_K, APR_Q4_K, APR_F32},
        {"deepseek_v3", "model.layers.0.self_attn.kv_a_proj_with_mqa.weight", APR_Q4_K, APR_Q4_K, APR_F32},
        {"deepseek_v3", "model.layers.0.strange.weight", APR_BF16, APR_BF16, APR_BF16},
        {"lfm2", "model.layers.0.conv.conv.weight", APR_BF16, APR_F32, APR_F32},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const apr_dtype wanted[] = {cases[i].q4_k, cases[i].in_gguf, cases[i].f32};
        apr_model m = {.path = "test", .hparams = {.architecture = cases[i].family, .num_layers = 1, .num_experts = 4}};
        m.tensors = apr_arena_array(&m.arena, 1, sizeof *m.tensors);
        add(&m, cases[i].name, 2, 4, 256);
        assert_int_equal(apr_model_index_names(&m, NULL), APR_OK);
        for (int way = 0; way < 3; way++) {
            apr_recipe r;
            const apr_recipe_options options = {.mixture = way == 2 ? "f32" : "q4_k",
                                                .limits = {.container = "GGUF", .vectors_f32 = way == 1}};
            assert_int_equal(apr_recipe_make(&r, &m, &options, NULL), APR_OK);
            if (type_of(&r, cases[i].name) != wanted[way])
                fail_msg("'%s' becomes %s, not %s", cases[i].name, apr_dtypes[type_of(&r, cases[i].name)].name,
                         apr_dtypes[wanted[way]].name);
            apr_recipe_close(&r);
        }
        apr_model_close(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(q4_k_m_of_a_14b_is_llama_cpps),
        cmocka_unit_test(low_bit_mixtures_are_llama_cpps),
        cmocka_unit_test(pure_mixtures_have_no_rules),
        cmocka_unit_test(a_row_that_blocks_do_not_divide_falls_back_and_says_why),
        cmocka_unit_test(a_tied_embedding_is_treated_as_the_head),
        cmocka_unit_test(vectors_are_kept_or_widened),
        cmocka_unit_test(an_override_wins_over_the_mixture),
        cmocka_unit_test(what_cannot_be_is_refused_with_a_sentence),
        cmocka_unit_test(quantizing_twice_must_be_asked_for),
        cmocka_unit_test(sizes_are_rows_times_row_bytes),
        cmocka_unit_test(matrices_of_unknown_names_are_chosen_by_shape),
        cmocka_unit_test(what_is_small_and_sensitive_is_kept),
    };
    return cmocka_run_group_tests_name("recipe", tests, NULL, NULL);
}
