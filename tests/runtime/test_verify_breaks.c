/* runtime/check: a small model of each kind of layer, in every type that its widths allow, is the model that it was made from; each subtle
 * break of it is found, by the check that names it. */
#include "convert/naming.h"
#include "tests/support/family_model.h"
#include "tests/support/model_verdict.h"
#include "tests/support/work_folder.h"

/* Rows of 32 numbers have no blocks of 256: q5_0 is what Q4_K_M gives them. */
static const apr_dtype types[] = {APR_BF16, APR_Q8_0, APR_Q5_0, APR_MXFP4};
enum { N_TYPES = sizeof types / sizeof *types, N_CTX = 48 };

/* A family's checkpoint as it is run. */
typedef struct original {
    apr_model source, canonical, between, view; /* view: in ggml's ways, where that was asked for */
    const apr_model *model;
    apr_session *session;
} original;

static void open_original(original *o, const char *family, bool in_ggml_ways)
{
    char dir[96];
    apr_error err = {0};

    *o = (original){.model = &o->canonical};
    snprintf(dir, sizeof dir, "tests/data/families/%s", family);
    if (family_write(dir, in_work(family), NULL, &err) != APR_OK) fail_msg("%s", err.text);
    if (apr_model_open(&o->source, in_work(family), &err) != APR_OK) fail_msg("%s", err.text);
    if (apr_canonical(&o->canonical, &o->source, &err) != APR_OK) fail_msg("%s", err.text);
    if (in_ggml_ways) {
        if (apr_view_as_gguf(&o->view, &o->between, &o->canonical, &err) != APR_OK) fail_msg("%s", err.text);
        o->model = &o->view;
    }
    o->session = edited_model_session(o->model, N_CTX);
}

static void close_original(original *o)
{
    apr_session_close(o->session);
    apr_model_close(&o->view);
    apr_model_close(&o->between);
    apr_model_close(&o->canonical);
    apr_model_close(&o->source);
}

/* --- what is well made --- */

static void passes_in_every_type(const char *family, bool in_ggml_ways)
{
    original reference;

    open_original(&reference, family, in_ggml_ways);
    for (size_t t = 0; t < N_TYPES; t++) {
        edited_model other;
        edited_model_open_with(&other, reference.model, types[t], NULL);
        const model_verdict j = model_verdict_on(reference.session, &other.model, N_CTX);
        if (j.facts[0] != '\0' || j.weights[0] != '\0' || j.operations[0] != '\0')
            fail_msg("%s in %s: %s %s %s", family, apr_dtypes[types[t]].name, j.facts, j.weights, j.operations);
        edited_model_close(&other);
    }
    close_original(&reference);
}

static void a_model_quantized_correctly_passes_in_every_type(void **state)
{
    (void)state;
    static const char *const families[] = {
        "cohere2", "deepseek_v2", "deepseek_v3",      "ernie4_5_moe", "gemma2",     "gemma3",     "gemma4",   "gemma4_moe", "glm4_moe_lite",
        "gpt_oss", "granite",     "granitemoehybrid", "lfm2_moe",     "llama4",     "minimax_m2", "mistral4", "nemotron_h", "olmo2",
        "phi3",    "qwen2_moe",   "qwen3_5",          "qwen3_5_moe",  "qwen3_next", "seed_oss",   "smollm3",  "gemma3n",
    };
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) passes_in_every_type(families[i], false);
}

static void a_model_in_ggmls_naming_passes_as_well(void **state)
{
    (void)state;
    passes_in_every_type("qwen3_5", true);     /* value heads in turn */
    passes_in_every_type("qwen3_next", true);  /* separate projections */
    passes_in_every_type("deepseek_v2", true); /* latents split */
}

/* --- what is broken --- */

static bool is(const apr_tensor *t, const char *name) { return t != NULL && strcmp(t->name, name) == 0; }

static void fill(const apr_tensor *t, float *values, float value)
{
    for (int64_t i = 0; i < apr_tensor_elems(t); i++) values[i] = value;
}

/* The first n numbers and the next n change places. */
static void swap_blocks(float *values, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float kept = values[i];
        values[i] = values[n + i];
        values[n + i] = kept;
    }
}

static void without_plus_one(edited_model *m, const apr_tensor *t, float *values)
{
    (void)m;
    if (!is(t, "model.layers.1.input_layernorm.weight")) return;
    for (int64_t i = 0; i < t->dims[0]; i++) values[i] -= 1.0f;
}

static void another_decay(edited_model *m, const apr_tensor *t, float *values)
{
    (void)m;
    if (is(t, "model.layers.2.linear_attn.A_log")) values[3] += 0.02f;
}

static void taps_shifted(edited_model *m, const apr_tensor *t, float *values)
{
    (void)m;
    if (!is(t, "model.layers.1.linear_attn.conv1d.weight")) return;
    memmove(values, values + 1, ((size_t)apr_tensor_elems(t) - 1) * sizeof *values);
}

static void value_heads_swapped(edited_model *m, const apr_tensor *t, float *values)
{
    if (is(t, "model.layers.0.linear_attn.in_proj_z.weight")) swap_blocks(values, m->model.hparams.linear_value_head_dim * t->dims[1]);
}

static void value_heads_interleaved(edited_model *m, const apr_tensor *t, float *values)
{
    (void)values;
    if (t == NULL) m->model.hparams.tiled_value_heads = true;
}

static void sinks_zeroed(edited_model *m, const apr_tensor *t, float *values)
{
    (void)m;
    if (is(t, "model.layers.1.self_attn.sinks")) fill(t, values, 0.0f);
}

static void window_off_by_one(edited_model *m, const apr_tensor *t, float *values)
{
    (void)values;
    if (t == NULL) m->model.hparams.sliding_window++;
}

/* Both experts are there, in each other's place. */
static void experts_swapped(edited_model *m, const apr_tensor *t, float *values)
{
    static const char one[] = "model.layers.2.mlp.experts.1.", two[] = "model.layers.2.mlp.experts.4.";
    (void)values;
    for (size_t i = 0; t == NULL && i < m->model.n_tensors; i++) {
        const char *const name = m->model.tensors[i].name, *to = NULL;
        if (strncmp(name, one, sizeof one - 1) == 0) to = two;
        if (strncmp(name, two, sizeof two - 1) == 0) to = one;
        if (to == NULL) continue;
        char *const changed = edited_model_memory(m, strlen(name));
        memcpy(changed, name, strlen(name));
        memcpy(changed, to, strlen(to));
        m->model.tensors[i].name = changed;
    }
}

static void keys_of_two_heads_swapped(edited_model *m, const apr_tensor *t, float *values)
{
    (void)m;
    if (is(t, "model.layers.1.self_attn.k_b_proj.weight")) swap_blocks(values, t->dims[1] * t->dims[2]);
}

static void expert_scale_dropped(edited_model *m, const apr_tensor *t, float *values)
{
    (void)m;
    if (is(t, "model.layers.0.router.per_expert_scale")) fill(t, values, 1.0f);
}

static void layer_scalar_dropped(edited_model *m, const apr_tensor *t, float *values)
{
    (void)m;
    if (is(t, "model.layers.0.layer_scalar")) fill(t, values, 1.0f);
}

/* Gemma 3n: matrices of two layers change places, a gain is left out, streams are corrected otherwise. */
static void low_rank_matrices_of_layers_swapped(edited_model *m, const apr_tensor *t, float *values)
{
    (void)values;
    for (size_t i = 0; t == NULL && i < m->model.n_tensors; i++) {
        const char *const name = m->model.tensors[i].name, *const end = strstr(name, ".laurel.linear_left.weight");
        if (end == NULL || (end[-1] != '1' && end[-1] != '2')) continue;
        char *const changed = edited_model_memory(m, strlen(name));
        memcpy(changed, name, strlen(name));
        changed[end - 1 - name] = end[-1] == '1' ? '2' : '1';
        m->model.tensors[i].name = changed;
    }
}

static void output_scale_dropped(edited_model *m, const apr_tensor *t, float *values)
{
    (void)m;
    if (is(t, "model.layers.2.altup.correct_output_scale")) fill(t, values, 1.0f);
}

static void correction_coefs_transposed(edited_model *m, const apr_tensor *t, float *values)
{
    (void)m;
    if (!is(t, "model.layers.1.altup.correction_coefs.weight")) return;
    const float kept = values[1];
    values[1] = values[t->dims[1]];
    values[t->dims[1]] = kept;
}

static void more_gates_kept(edited_model *m, const apr_tensor *t, float *values)
{
    (void)values;
    if (t == NULL) m->model.hparams.activation_sparsity = 0.49;
}

static const struct {
    const char *family;
    bool in_ggml_ways;
    model_edit edit;
    const char *facts, *weights; /* what the check says that finds it; NULL: it finds nothing */
} breaks[] = {
    {"qwen3_5", false, without_plus_one, NULL, "'model.layers.1.input_layernorm.weight'"},
    {"qwen3_5", false, another_decay, NULL, "'model.layers.2.linear_attn.A_log'"},
    {"qwen3_5", false, taps_shifted, NULL, "'model.layers.1.linear_attn.conv1d.weight'"},
    {"qwen3_5", false, value_heads_swapped, NULL, "'model.layers.0.linear_attn.in_proj_z.weight': row "},
    {"qwen3_5", false, value_heads_interleaved, "layer 0, delta rule: whether value heads", NULL},
    {"gpt_oss", false, sinks_zeroed, NULL, "'model.layers.1.self_attn.sinks'"},
    {"gpt_oss", false, window_off_by_one, "window 8) in the one model and", ""},
    {"gpt_oss", false, experts_swapped, NULL, "'model.layers.2.mlp.experts.1.gate_proj.weight': row "},
    {"deepseek_v2", true, keys_of_two_heads_swapped, NULL, "'model.layers.1.self_attn.k_b_proj.weight': row "},
    {"gemma4_moe", false, expert_scale_dropped, NULL, "'model.layers.0.router.per_expert_scale'"},
    {"gemma4_moe", false, layer_scalar_dropped, NULL, "'model.layers.0.layer_scalar'"},
    {"gemma3n", false, low_rank_matrices_of_layers_swapped, NULL, "'model.layers.1.laurel.linear_left.weight': row "},
    {"gemma3n", false, output_scale_dropped, NULL, "'model.layers.2.altup.correct_output_scale'"},
    {"gemma3n", false, correction_coefs_transposed, NULL, "'model.layers.1.altup.correction_coefs.weight'"},
    {"gemma3n", false, window_off_by_one, "window 9) in the one model and", ""},
    {"gemma3n", false, more_gates_kept, "the quantile", NULL},
};

static void assert_says(const char *found, const char *wanted, size_t which, apr_dtype dtype)
{
    if (wanted == NULL && found[0] == '\0') return;
    if (wanted != NULL && strstr(found, wanted) != NULL) return;
    fail_msg("break %zu of %s in %s: '%s' instead of '%s'", which, breaks[which].family, apr_dtypes[dtype].name, found,
             wanted != NULL ? wanted : "");
}

static void each_subtle_break_is_found_in_every_type_and_named(void **state)
{
    (void)state;
    for (size_t b = 0; b < sizeof breaks / sizeof *breaks; b++) {
        original reference;
        open_original(&reference, breaks[b].family, breaks[b].in_ggml_ways);
        for (size_t t = 0; t < N_TYPES; t++) {
            edited_model other;
            edited_model_open_with(&other, reference.model, types[t], breaks[b].edit);
            const model_verdict j = model_verdict_on(reference.session, &other.model, N_CTX);
            assert_says(j.facts, breaks[b].facts, b, types[t]);
            assert_says(j.weights, breaks[b].weights, b, types[t]);
            edited_model_close(&other);
        }
        close_original(&reference);
    }
}

/* The order of a checkpoint under the name of ggml's: what a converter leaves that forgot to distribute the heads. */
static void value_heads_that_were_not_dealt_out_are_found_in_every_type(void **state)
{
    (void)state;
    original reference, plain;

    open_original(&reference, "qwen3_5", true);
    open_original(&plain, "qwen3_5", false);
    for (size_t t = 0; t < N_TYPES; t++) {
        edited_model other;
        edited_model_open_with(&other, plain.model, types[t], value_heads_interleaved);
        const model_verdict j = model_verdict_on(reference.session, &other.model, N_CTX);
        assert_string_equal(j.facts, "");
        assert_non_null(strstr(j.weights, "'model.layers.0.linear_attn."));
        edited_model_close(&other);
    }
    close_original(&plain);
    close_original(&reference);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_quantized_correctly_passes_in_every_type),
        cmocka_unit_test(a_model_in_ggmls_naming_passes_as_well),
        cmocka_unit_test(each_subtle_break_is_found_in_every_type_and_named),
        cmocka_unit_test(value_heads_that_were_not_dealt_out_are_found_in_every_type),
    };
    return cmocka_run_group_tests_name("verify_breaks", tests, make_work, remove_work);
}
