/* test_families.c - every family's checkpoint through APR and GGUF and back, and what llama.cpp's converter makes of it. */
#define _XOPEN_SOURCE 700
#include "convert/convert.h"
#include "convert/naming.h"
#include "formats/base/crc32.h"
#include "formats/number/half.h"
#include "formats/shape/family.h"
#include "kernels/rows.h"
#include "tests/support/conversion.h"
#include "tests/support/family_model.h"
#include "tests/support/work_folder.h"

#include <math.h>

static const char *const families[] = {"cohere2",
                                       "deepseek_v2",
                                       "deepseek_v3",
                                       "ernie4_5_moe",
                                       "gemma2",
                                       "gemma3",
                                       "gemma4",
                                       "gemma4_moe",
                                       "glm4",
                                       "glm4_moe",
                                       "glm4_moe_lite",
                                       "gpt_oss",
                                       "granite",
                                       "granitemoehybrid",
                                       "hunyuan_v1_moe",
                                       "lfm2",
                                       "lfm2_moe",
                                       "llama",
                                       "llama4",
                                       "minimax_m2",
                                       "ministral3",
                                       "mistral",
                                       "mistral4",
                                       "mixtral",
                                       "nemotron_h",
                                       "olmo2",
                                       "phi3",
                                       "qwen2",
                                       "qwen2_moe",
                                       "qwen3",
                                       "qwen3_5",
                                       "qwen3_5_moe",
                                       "qwen3_moe",
                                       "qwen3_next",
                                       "seed_oss",
                                       "smollm3",
                                       "afmoe",
                                       "arcee",
                                       "dots1",
                                       "ernie4_5",
                                       "exaone4",
                                       "exaone_moe",
                                       "gemma",
                                       "granitemoe",
                                       "granitemoeshared",
                                       "hunyuan_v1_dense",
                                       "hy_v3",
                                       "internlm3",
                                       "iquestcoder",
                                       "mellum",
                                       "ministral",
                                       "olmo3",
                                       "olmoe",
                                       "solar_open",
                                       "starcoder2",
                                       "phi",
                                       "gpt_neox",
                                       "gpt2",
                                       "cohere",
                                       "mamba2",
                                       "bamba",
                                       "falcon_h1",
                                       "deepseek_v32",
                                       "glm_moe_dsa",
                                       "kimi_linear",
                                       "gemma3n"};
enum { N_FAMILIES = sizeof families / sizeof *families };

/* ---- helpers ---- */

static const char *in_checkpoint(const char *folder, char path[256])
{
    snprintf(path, 256, "%s/model.safetensors", folder);
    return path;
}

static void make(const char *room, const char *name, const char *out)
{
    char dir[256];
    apr_error err = {0};
    snprintf(dir, sizeof dir, "tests/data/%s/%s", room, name);
    if (family_write(dir, out, NULL, &err) != APR_OK) fail_msg("%s", err.text);
}

static float *values_of(const apr_tensor *t)
{
    float *const values = malloc((size_t)apr_tensor_elems(t) * sizeof *values + 1);
    apr_decode_rows(t, 0, apr_tensor_rows(t), values);
    return values;
}

static bool ends_with(const char *name, const char *suffix)
{
    const size_t n = strlen(name), m = strlen(suffix);
    return n >= m && strcmp(name + n - m, suffix) == 0;
}

/* Widened to float32 on the way, a value of a checkpoint is itself again when it is rounded; of what was computed there and back
 * (norms plus one, decay rates) a few lose their last bit. */
static void assert_values(const char *family, const apr_tensor *x, const apr_tensor *y)
{
    const bool was_computed = ends_with(x->name, "norm.weight") || ends_with(x->name, "A_log");
    const int64_t n = apr_tensor_elems(x);
    float *const a = values_of(x), *const b = values_of(y);

    assert_int_equal(apr_tensor_elems(y), n);
    for (int64_t i = 0; i < n; i++) {
        const float rounded = apr_bf16_to_f32(apr_f32_to_bf16(b[i]));
        if (rounded != a[i] && !(was_computed && fabsf(b[i] - a[i]) <= 2e-7f * (1 + fabsf(a[i]))))
            fail_msg("%s: '%s' [%lld]: %.9g became %.9g", family, x->name, (long long)i, (double)a[i], (double)b[i]);
    }
    free(a);
    free(b);
}

static void assert_same_values(const char *family, const char *first, const char *second)
{
    apr_model a, b;
    assert_int_equal(apr_model_open(&a, first, NULL), APR_OK);
    assert_int_equal(apr_model_open(&b, second, NULL), APR_OK);
    for (size_t i = 0; i < a.n_tensors; i++) {
        const apr_tensor *const y = apr_model_find(&b, a.tensors[i].name);
        if (y == NULL) fail_msg("%s: '%s' did not come back", family, a.tensors[i].name);
        assert_int_equal(y->rank, a.tensors[i].rank);
        assert_memory_equal(y->dims, a.tensors[i].dims, sizeof y->dims);
        assert_values(family, &a.tensors[i], y);
    }
    assert_int_equal(a.n_tensors, b.n_tensors);
    apr_model_close(&a);
    apr_model_close(&b);
}

static apr_model open_model(const char *path)
{
    apr_model m;
    apr_error err = {0};
    if (apr_model_open(&m, path, &err) != APR_OK) fail_msg("%s", err.text);
    return m;
}

static apr_model canonical_of(const apr_model *source)
{
    apr_model view;
    apr_error err = {0};
    if (apr_canonical(&view, source, &err) != APR_OK) fail_msg("%s", err.text);
    return view;
}

/* ---- every family ---- */

static void a_checkpoint_comes_back_from_apr_byte_for_byte(void **state)
{
    (void)state;
    char there[256], back[256];
    for (int i = 0; i < N_FAMILIES; i++) {
        make("families", families[i], in_work("ck"));
        convert_as(in_work("ck"), in_work("m.apr"), NULL);
        convert_as(in_work("m.apr"), in_work("back"), NULL);
        assert_same_file(in_checkpoint(in_work("ck"), there), in_checkpoint(in_work("back"), back));
    }
}

static void through_gguf_every_value_comes_back(void **state)
{
    (void)state;
    char there[256], back[256];
    for (int i = 0; i < N_FAMILIES; i++) {
        if (apr_family_gguf_of(apr_family_find(families[i]))->folds_multipliers) continue; /* its values are multiplied */
        make("families", families[i], in_work("ck"));
        convert_as(in_work("ck"), in_work("m.gguf"), NULL);
        convert_as(in_work("m.gguf"), in_work("back"), NULL);
        assert_same_values(families[i], in_checkpoint(in_work("ck"), there), in_checkpoint(in_work("back"), back));
    }
}

static void a_gguf_comes_back_from_apr_byte_for_byte(void **state)
{
    (void)state;
    for (int i = 0; i < N_FAMILIES; i++) {
        make("families", families[i], in_work("ck"));
        convert_as(in_work("ck"), in_work("m.gguf"), NULL);
        convert_as(in_work("m.gguf"), in_work("m.apr"), NULL);
        convert_as(in_work("m.apr"), in_work("back.gguf"), NULL);
        assert_same_file(in_work("m.gguf"), in_work("back.gguf"));
    }
}

/* ---- against llama.cpp ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const apr_tensor *const *)a)->name, (*(const apr_tensor *const *)b)->name);
}

/* The sum of tests/data/families/llamacpp.txt. */
static uint32_t sum_of(const char *gguf, int *n)
{
    apr_model m;
    uint32_t crc = 0;
    char text[512], dims[128];

    assert_int_equal(apr_model_open(&m, gguf, NULL), APR_OK);
    const apr_tensor **const sorted = malloc((m.n_tensors + 1) * sizeof *sorted);
    for (size_t i = 0; i < m.n_tensors; i++) sorted[i] = &m.tensors[i];
    qsort(sorted, m.n_tensors, sizeof *sorted, by_name);
    *n = 0;
    for (size_t i = 0; i < m.n_tensors; i++) {
        assert_int_equal(sorted[i]->dtype, APR_F32);
        snprintf(text, sizeof text, "%s %s", sorted[i]->name, apr_dims_text(sorted[i], dims, sizeof dims));
        crc = apr_crc32(apr_crc32(crc, text, strlen(text)), sorted[i]->data, sorted[i]->n_bytes);
        ++*n;
    }
    free(sorted);
    apr_model_close(&m);
    return crc;
}

static bool is_tested(const char *family)
{
    for (int i = 0; i < N_FAMILIES; i++)
        if (strcmp(families[i], family) == 0) return true;
    return false;
}

static void the_gguf_has_the_names_shapes_and_bytes_of_llama_cpps(void **state)
{
    (void)state;
    char line[256], family[64];
    FILE *const file = fopen("tests/data/families/llamacpp.txt", "r");
    int n_families = 0;

    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        int n_theirs, n_ours;
        unsigned theirs;
        if (sscanf(line, "%63s %d %x", family, &n_theirs, &theirs) != 3 || line[0] == '#' || !is_tested(family)) continue;
        make("families", family, in_work("ck"));
        convert_as(in_work("ck"), in_work("m.gguf"), "f32");
        const uint32_t ours = sum_of(in_work("m.gguf"), &n_ours);
        if (n_ours != n_theirs || ours != theirs)
            fail_msg("%s: %d tensors with sum %08x, llama.cpp makes %d with %08x", family, n_ours, ours, n_theirs, theirs);
        n_families++;
    }
    fclose(file);
    assert_int_equal(n_families,
                     N_FAMILIES -
                         3); /* its converter does not know ministral nor gemma3n with three streams, and has another order for bamba */
}

/* Multipliers are in the weights of a GGUF, so that the model that comes back has none; sums and products are in the same order. */
static void a_gguf_has_its_multipliers_in_the_weights(void **state)
{
    (void)state;
    make("families", "falcon_h1", in_work("ck"));
    convert_as(in_work("ck"), in_work("m.gguf"), NULL);
    convert_as(in_work("m.gguf"), in_work("back"), NULL);
    apr_model a = open_model(in_work("ck")), b = open_model(in_work("back"));
    const apr_hparams *const h = &a.hparams;
    const struct {
        const char *name;
        int64_t row; /* of the first number that is compared */
        double factor;
    } cases[] = {
        {"model.embed_tokens.weight", 7, h->embedding_multiplier},
        {"lm_head.weight", 0, h->logit_scale},
        {"model.layers.1.self_attn.q_proj.weight", 3, h->attention_in_multiplier},
        {"model.layers.1.self_attn.k_proj.weight", 3, h->attention_in_multiplier * h->key_multiplier},
        {"model.layers.1.self_attn.o_proj.weight", 3, h->attention_out_multiplier},
        {"model.layers.1.mamba.in_proj.weight", 63, h->ssm_in_multiplier * h->ssm_z_multiplier}, /* 64 rows of z, 64 of x */
        {"model.layers.1.mamba.in_proj.weight", 64, h->ssm_in_multiplier * h->ssm_x_multiplier},
        {"model.layers.1.mamba.in_proj.weight", 128, h->ssm_in_multiplier * h->ssm_b_multiplier}, /* 2 groups of 12 numbers */
        {"model.layers.1.mamba.in_proj.weight", 152, h->ssm_in_multiplier * h->ssm_c_multiplier},
        {"model.layers.1.mamba.in_proj.weight", 176, h->ssm_in_multiplier * h->ssm_dt_multiplier},
        {"model.layers.1.mamba.out_proj.weight", 0, h->ssm_out_multiplier},
        {"model.layers.1.feed_forward.gate_proj.weight", 0, h->mlp_gate_multiplier},
        {"model.layers.1.feed_forward.up_proj.weight", 0, 1},
        {"model.layers.1.feed_forward.down_proj.weight", 0, h->mlp_down_multiplier},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const apr_tensor *const x = apr_model_find(&a, cases[i].name), *const y = apr_model_find(&b, cases[i].name);
        float *const was = values_of(x), *const is = values_of(y);
        const int64_t at = cases[i].row * apr_tensor_columns(x);
        const double expected = (double)was[at] * cases[i].factor;
        if (fabs((double)is[at] - expected) > 1e-6 * fabs(expected)) fail_msg("%s: %g, not %g", cases[i].name, (double)is[at], expected);
        free(was);
        free(is);
    }
    assert_true(h->embedding_multiplier == 5 && b.hparams.ssm_in_multiplier == 0 && b.hparams.ssm_z_multiplier == 1);
    apr_model_close(&b);

    /* a head that is the embedding would need another factor than it */
    apr_error err = {0};
    apr_model view = canonical_of(&a), other;
    view.hparams.tie_word_embeddings = true;
    assert_int_equal(apr_translate(&other, &view, APR_NAMING_GGML, &err), APR_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "a tied head whose multiplier (0.3) is not that of the embeddings (5)"));
    apr_model_close(&other);
    apr_model_close(&view);
    apr_model_close(&a);
}

/* A weight that its multiplier takes out of range, named by its place: the largest number of BF16, times 5. */
static void what_a_multiplier_makes_infinite_is_damage(void **state)
{
    (void)state;
    static const uint8_t largest[2] = {0x7f, 0x7f};
    char path[256];
    apr_error err = {0};
    make("families", "falcon_h1", in_work("ck"));
    apr_model m = open_model(in_work("ck"));
    const apr_tensor *const t = apr_model_find(&m, "model.embed_tokens.weight");
    uint8_t *const bytes = malloc(t->n_bytes);
    memcpy(bytes, t->data, t->n_bytes);
    FILE *const file = fopen(in_checkpoint(in_work("ck"), path), "r+b");
    uint8_t head[64];
    long at = -1;
    for (long i = 0; at < 0 && fseek(file, i, SEEK_SET) == 0 && fread(head, 1, sizeof head, file) == sizeof head; i++)
        if (memcmp(head, bytes, sizeof head) == 0) at = i;
    assert_true(at > 0);
    assert_int_equal(fseek(file, at + 2 * 4001, SEEK_SET), 0);
    assert_int_equal(fwrite(largest, 1, 2, file), 2);
    fclose(file);
    free(bytes);
    apr_model_close(&m);
    const apr_convert_options options = {.sink = {.allow_loss = true}};
    assert_int_equal(try_conversion(in_work("ck"), in_work("inf.gguf"), &options, &err), APR_E_DAMAGED);
    assert_non_null(strstr(err.text, "tensor 'token_embd.weight' is computed"));
    assert_non_null(strstr(err.text, "the first at index 4001"));
}

/* ---- other spellings of the same ---- */

/* Stacked, under the prefix of a larger model, next to tensors that are not run. */
static void a_stacked_checkpoint_is_read_as_one_with_single_experts(void **state)
{
    (void)state;
    char there[256], back[256];
    make("spellings", "qwen3_5_moe_stacked", in_work("stacked"));
    apr_model source = open_model(in_work("stacked")), view = canonical_of(&source);
    const apr_tensor *const stack = apr_model_find(&source, "model.language_model.layers.2.mlp.experts.gate_up_proj");
    const apr_tensor *const up = apr_model_find(&view, "model.layers.2.mlp.experts.4.up_proj.weight");
    assert_non_null(up);
    assert_ptr_equal(up->data, stack->data + ((size_t)(4 * 40 + 20) * 32) * 2); /* a view: nothing is copied */
    assert_non_null(apr_model_find(&view, "model.visual.patch_embed.proj.weight"));
    apr_model_close(&view);
    apr_model_close(&source);

    convert_as(in_work("stacked"), in_work("s.apr"), NULL);
    convert_as(in_work("s.apr"), in_work("s.back"), NULL);
    assert_same_file(in_checkpoint(in_work("stacked"), there), in_checkpoint(in_work("s.back"), back));
    convert_as(in_work("stacked"), in_work("s.gguf"), NULL);
    source = open_model(in_work("s.gguf"));
    assert_non_null(apr_model_find(&source, "blk.2.ffn_up_exps.weight"));
    assert_null(apr_model_find(&source, "mtp.fc.weight"));
    for (size_t i = 0; i < source.n_tensors; i++) assert_null(strstr(source.tensors[i].name, "visual"));
    apr_model_close(&source);
}

/* MXFP4 in blocks and scales, as gpt-oss is published: made here from a GGUF of that type. */
static void experts_in_mxfp4_go_between_blocks_and_gguf(void **state)
{
    (void)state;
    static const apr_recipe_override experts = {.regex = "experts.*weight|exps.weight", .to = APR_MXFP4};
    char there[256], back[256];

    make("spellings", "gpt_oss_wide", in_work("wide"));
    must_convert(in_work("wide"), in_work("w.gguf"),
                 &(apr_convert_options){.recipe = {.overrides = &experts, .n_overrides = 1}, .sink = {.allow_loss = true}});
    convert_as(in_work("w.gguf"), in_work("blocks"), NULL);
    convert_as(in_work("blocks"), in_work("w.apr"), NULL);
    convert_as(in_work("w.apr"), in_work("b.back"), NULL);
    assert_same_file(in_checkpoint(in_work("blocks"), there), in_checkpoint(in_work("b.back"), back));
    convert_as(in_work("blocks"), in_work("w2.gguf"), NULL);

    apr_model blocks = open_model(in_work("blocks")), first = open_model(in_work("w.gguf")), second = open_model(in_work("w2.gguf"));
    const apr_tensor *const scales = apr_model_find(&blocks, "model.layers.1.mlp.experts.gate_up_proj_scales");
    const apr_tensor *const nibbles = apr_model_find(&blocks, "model.layers.1.mlp.experts.gate_up_proj_blocks");
    const apr_tensor *const up = apr_model_find(&first, "blk.1.ffn_up_exps.weight");
    assert_int_equal(up->dtype, APR_MXFP4);
    assert_int_equal(nibbles->rank, 4);
    /* up's row 5 of expert 2 is row 11 there; elements j and j + 16 of a block, and 2 j and 2 j + 1 */
    const uint8_t *const block = up->data + (size_t)((2 * 96 + 5) * 2 + 1) * 17;
    const size_t at = (size_t)((2 * 192 + 11) * 2 + 1);
    assert_int_equal(scales->data[at], block[0]);
    for (int i = 0; i < 32; i++) {
        const int ours = i < 16 ? block[1 + i] & 15 : block[1 + i - 16] >> 4;
        const int theirs = i % 2 == 0 ? nibbles->data[at * 16 + (size_t)i / 2] & 15 : nibbles->data[at * 16 + (size_t)i / 2] >> 4;
        assert_int_equal(ours, theirs);
    }
    for (size_t i = 0; i < first.n_tensors; i++) {
        const apr_tensor *const other = apr_model_find(&second, first.tensors[i].name);
        assert_non_null(other);
        assert_int_equal(other->dtype, first.tensors[i].dtype);
        assert_memory_equal(other->data, first.tensors[i].data, other->n_bytes);
    }
    apr_model_close(&blocks);
    apr_model_close(&first);
    apr_model_close(&second);
}

/* ---- what a GGUF keeps of its naming ---- */

static void value_heads_stay_tiled_and_latents_split_until_they_leave(void **state)
{
    (void)state;
    make("families", "qwen3_5", in_work("ck"));
    convert_as(in_work("ck"), in_work("m.gguf"), NULL);
    apr_model source = open_model(in_work("m.gguf")), view = canonical_of(&source);
    assert_true(view.hparams.tiled_value_heads);
    assert_false(view.hparams.split_kv_b);
    const apr_tensor *const z = apr_model_find(&view, "model.layers.0.linear_attn.in_proj_z.weight");
    assert_ptr_equal(z->data, apr_model_find(&source, "blk.0.attn_gate.weight")->data);
    apr_model_close(&view);
    apr_model_close(&source);

    make("families", "deepseek_v3", in_work("ck2"));
    convert_as(in_work("ck2"), in_work("m2.gguf"), NULL);
    source = open_model(in_work("m2.gguf"));
    view = canonical_of(&source);
    assert_true(view.hparams.split_kv_b);
    assert_non_null(apr_model_find(&view, "model.layers.0.self_attn.k_b_proj.weight"));
    assert_null(apr_model_find(&view, "model.layers.0.self_attn.kv_b_proj.weight"));
    apr_model_close(&view);
    apr_model_close(&source);
}

/* Value for value what the checkpoint has, under the same names. */
static void without_its_naming_a_gguf_is_as_its_checkpoint(void **state)
{
    (void)state;
    static const char *const names[] = {"qwen3_next", "qwen3_5", "deepseek_v3", "gpt_oss", "granitemoehybrid"};
    char file[64];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(file, sizeof file, "plain%zu.gguf", i);
        make("families", names[i], in_work("plain"));
        convert_as(in_work("plain"), in_work(file), NULL);
        apr_model source = open_model(in_work("plain")), other = open_model(in_work(file));
        apr_model a = canonical_of(&source), b = canonical_of(&other);
        assert_int_equal(apr_view_as_checkpoint(&b, NULL), APR_OK);
        assert_int_equal(a.n_tensors, b.n_tensors);
        for (size_t t = 0; t < a.n_tensors; t++) {
            const apr_tensor *const y = apr_model_find(&b, a.tensors[t].name);
            if (y == NULL) fail_msg("%s: '%s' is not there", names[i], a.tensors[t].name);
            assert_values(names[i], &a.tensors[t], y);
        }
        apr_model_close(&a);
        apr_model_close(&b);
        apr_model_close(&other);
        apr_model_close(&source);
    }
}

/* The columns of out_proj move by heads of 8 numbers: that would break blocks. */
static void quantized_value_heads_cannot_leave_ggmls_order(void **state)
{
    (void)state;
    apr_error err = {0};
    apr_model source = {.path = "toy", .naming = APR_NAMING_GGML, .format = APR_FORMAT_GGUF, .origin = {.format = APR_FORMAT_GGUF}};
    static const uint8_t bytes[32 * 96];
    apr_tensor tensors[] = {{.name = "blk.0.ssm_out.weight", .dtype = APR_Q4_0, .rank = 2, .dims = {32, 96}, .data = bytes}};
    apr_model view, other;

    source.hparams = (apr_hparams){.architecture = "qwen3_5_text",
                                   .num_layers = 1,
                                   .linear_num_key_heads = 2,
                                   .linear_num_value_heads = 6,
                                   .linear_key_head_dim = 16,
                                   .linear_value_head_dim = 16};
    source.tensors = tensors;
    source.n_tensors = 1;
    assert_int_equal(apr_tensor_size(&tensors[0], "toy", NULL), APR_OK);
    assert_int_equal(apr_model_index_names(&source, NULL), APR_OK);
    view = canonical_of(&source);
    assert_int_equal(apr_translate(&other, &view, APR_NAMING_HF, &err), APR_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "would break the blocks of its type"));
    apr_model_close(&other);
    apr_model_close(&view);
    apr_arena_close(&source.arena);
}

/* What is computed and does not give the same bits back is kept next to the result, and left out of checkpoints. */
static void an_original_is_kept_where_no_step_has_an_inverse(void **state)
{
    (void)state;
    static const float a[] = {-1.5f, -0.3f, -7.25f, -0.001f, -3.3f, -0.9f}, norm[] = {1.25f, 0.5f, 1.0f, 1.875f, 0.75f, 1.5f},
                       tiny[] = {1e-9f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f};
    apr_tensor tensors[] = {{.name = "blk.0.ssm_a", .dtype = APR_F32, .rank = 1, .dims = {6}, .data = (const uint8_t *)a},
                            {.name = "blk.0.attn_norm.weight", .dtype = APR_F32, .rank = 1, .dims = {6}, .data = (const uint8_t *)norm},
                            {.name = "output_norm.weight", .dtype = APR_F32, .rank = 1, .dims = {6}, .data = (const uint8_t *)tiny}};
    apr_model source = {
        .path = "toy", .naming = APR_NAMING_GGML, .origin = {.format = APR_FORMAT_GGUF}, .tensors = tensors, .n_tensors = 3};
    apr_model view, back, other;

    source.hparams = (apr_hparams){.architecture = "qwen3_5_text", .num_layers = 1, .linear_num_key_heads = 6, .linear_num_value_heads = 6};
    for (int i = 0; i < 3; i++) assert_int_equal(apr_tensor_size(&tensors[i], "toy", NULL), APR_OK);
    assert_int_equal(apr_model_index_names(&source, NULL), APR_OK);
    view = canonical_of(&source);
    assert_string_equal(apr_model_find(&view, "model.norm.weight")->origin_kept, "output_norm.weight");
    assert_null(apr_model_find(&view, "model.layers.0.input_layernorm.weight")->origin_kept);
    float *const shifted = values_of(apr_model_find(&view, "model.layers.0.input_layernorm.weight"));
    assert_true(shifted[0] == 0.25f && shifted[1] == -0.5f);
    free(shifted);

    assert_int_equal(apr_translate(&back, &view, APR_NAMING_GGML, NULL), APR_OK);
    assert_int_equal(back.n_tensors, 3);
    for (int i = 0; i < 3; i++) {
        float *const values = values_of(apr_model_find(&back, tensors[i].name));
        assert_memory_equal(values, tensors[i].data, sizeof a);
        free(values);
    }
    assert_int_equal(apr_translate(&other, &view, APR_NAMING_HF, NULL), APR_OK);
    assert_int_equal(other.n_tensors, 3);
    assert_non_null(apr_model_find(&other, "model.layers.0.linear_attn.A_log"));
    apr_model_close(&other);
    apr_model_close(&back);
    apr_model_close(&view);
    apr_arena_close(&source.arena);
}

/* ---- what is wrong is said ---- */

/* A view of the family's checkpoint, changed, on its way to GGUF. */
static void assert_refused(const char *family, void (*change)(apr_model *), apr_status status, const char *sentence)
{
    apr_model view, other;
    apr_error err = {0};
    make("families", family, in_work("bad"));
    apr_model source = open_model(in_work("bad"));
    change(&source);
    apr_status answer = apr_canonical(&view, &source, &err);
    if (answer == APR_OK) {
        answer = apr_translate(&other, &view, APR_NAMING_GGML, &err);
        apr_model_close(&other);
    }
    apr_model_close(&view);
    apr_model_close(&source);
    assert_int_equal(answer, status);
    if (strstr(err.text, sentence) == NULL) fail_msg("'%s' does not say '%s'", err.text, sentence);
}

static void rename_tensor(apr_model *m, const char *from, const char *to)
{
    for (size_t i = 0; i < m->n_tensors; i++)
        if (strcmp(m->tensors[i].name, from) == 0) m->tensors[i].name = to;
    assert_int_equal(apr_model_index_names(m, NULL), APR_OK);
}

static void lose_last_expert(apr_model *m) { rename_tensor(m, "model.layers.1.mlp.experts.5.up_proj.weight", "mtp.lost"); }
static void lose_an_expert(apr_model *m) { rename_tensor(m, "model.layers.1.mlp.experts.3.up_proj.weight", "mtp.lost"); }
static void add_a_stranger(apr_model *m) { rename_tensor(m, "model.norm.weight", "model.strange.weight"); }
static void count_wrongly(apr_model *m) { m->hparams.num_experts = 7; }

static void missing_experts_and_unknown_tensors_are_named(void **state)
{
    (void)state;
    assert_refused("qwen3_moe", lose_last_expert, APR_E_DAMAGED, "'model.layers.1.mlp.experts.5.up_proj.weight' is missing");
    assert_refused("qwen3_moe", lose_an_expert, APR_E_DAMAGED, "other parts of its origin are missing");
    assert_refused("qwen3_moe", add_a_stranger, APR_E_UNSUPPORTED, "'model.strange.weight' has no name in ggml's naming");
    assert_refused("gpt_oss", count_wrongly, APR_E_DAMAGED, "is a stack of 6 experts, but the model has 7");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_checkpoint_comes_back_from_apr_byte_for_byte),
        cmocka_unit_test(through_gguf_every_value_comes_back),
        cmocka_unit_test(a_gguf_comes_back_from_apr_byte_for_byte),
        cmocka_unit_test(the_gguf_has_the_names_shapes_and_bytes_of_llama_cpps),
        cmocka_unit_test(a_gguf_has_its_multipliers_in_the_weights),
        cmocka_unit_test(what_a_multiplier_makes_infinite_is_damage),
        cmocka_unit_test(a_stacked_checkpoint_is_read_as_one_with_single_experts),
        cmocka_unit_test(experts_in_mxfp4_go_between_blocks_and_gguf),
        cmocka_unit_test(value_heads_stay_tiled_and_latents_split_until_they_leave),
        cmocka_unit_test(without_its_naming_a_gguf_is_as_its_checkpoint),
        cmocka_unit_test(quantized_value_heads_cannot_leave_ggmls_order),
        cmocka_unit_test(an_original_is_kept_where_no_step_has_an_inverse),
        cmocka_unit_test(missing_experts_and_unknown_tensors_are_named),
    };
    return cmocka_run_group_tests_name("families", tests, make_work, remove_work);
}
