/* runtime/check: every family's model is the one that it was made from, in three types; a gain that is missing, two experts that changed
 * places and another window are found in each, and named. test_verify_breaks.c has the subtle breaks of single kinds of layer. */
#include "convert/naming.h"
#include "runtime/check/parity.h"
#include "tests/support/family_model.h"
#include "tests/support/model_verdict.h"
#include "tests/support/sanitizer.h"
#include "tests/support/work_folder.h"

#include <dirent.h>

/* Rows of 32 numbers have no blocks of 256: q5_0 is what Q4_K_M gives them. */
static const apr_dtype types[] = {APR_BF16, APR_Q8_0, APR_Q5_0};
enum { N_TYPES = sizeof types / sizeof *types, N_CTX = 48, MOST_FAMILIES = 128 };

static char *families[MOST_FAMILIES];
static size_t n_families;

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void list_families(void)
{
    DIR *const folder = opendir("tests/data/families");
    const struct dirent *entry;
    char path[320];

    assert_non_null(folder);
    while ((entry = readdir(folder)) != NULL) {
        snprintf(path, sizeof path, "tests/data/families/%s/tensors.json", entry->d_name);
        FILE *const file = fopen(path, "re");
        if (file == NULL) continue;
        fclose(file);
        assert_true(n_families < MOST_FAMILIES);
        families[n_families++] = strdup(entry->d_name);
    }
    closedir(folder);
    qsort(families, n_families, sizeof *families, by_name);
    assert_true(n_families >= 68);
}

/* --- the family's model, and what it has that can be broken --- */

typedef struct original {
    apr_model source, canonical;
    apr_session *session;
    const char *gain;  /* of layer 1 */
    char experts[200]; /* what the names of one layer's experts begin with; "": it has none */
    bool has_window;   /* a layer attends to the last positions only, or within a chunk */
} original;

static original reference; /* edits read it */

static bool is_in_layer_1(const char *name) { return strstr(name, ".layers.1.") != NULL; }

static const char *find_gain(const apr_model *m)
{
    for (size_t i = 0; i < m->n_tensors; i++) {
        const apr_tensor *const t = &m->tensors[i];
        if (t->rank == 1 && is_in_layer_1(t->name) && strstr(t->name, "norm") != NULL && strstr(t->name, ".bias") == NULL) return t->name;
    }
    return NULL;
}

/* Of the last layer that has any. */
static void find_experts(original *o)
{
    static const char first[] = ".experts.0.";
    for (size_t i = 0; i < o->canonical.n_tensors; i++) {
        const char *const name = o->canonical.tensors[i].name, *const at = strstr(name, first);
        if (at != NULL) snprintf(o->experts, sizeof o->experts, "%.*s", (int)(at - name + (int)sizeof first - 3), name);
    }
}

static bool has_experts(const apr_program *program)
{
    for (size_t i = 0; i < program->n_ops; i++)
        if (program->ops[i].kind == APR_OP_EXPERTS) return true;
    return false;
}

static bool has_window(const apr_program *program)
{
    for (size_t i = 0; i < program->n_ops; i++) {
        const apr_op *const op = &program->ops[i];
        if (op->kind == APR_OP_ATTEND && (op->args.attend.window > 0 || op->args.attend.chunk > 0)) return true;
    }
    return false;
}

static void open_reference(const char *family)
{
    char dir[320];
    apr_error err = {0};

    reference = (original){0};
    snprintf(dir, sizeof dir, "tests/data/families/%s", family);
    if (family_write(dir, in_work(family), NULL, &err) != APR_OK) fail_msg("%s", err.text);
    if (apr_model_open(&reference.source, in_work(family), &err) != APR_OK) fail_msg("%s", err.text);
    if (apr_canonical(&reference.canonical, &reference.source, &err) != APR_OK) fail_msg("%s", err.text);
    reference.session = edited_model_session(&reference.canonical, N_CTX);
    const apr_program *const program = apr_session_program(reference.session);
    reference.gain = find_gain(&reference.canonical);
    find_experts(&reference);
    reference.has_window = has_window(program);
    if (reference.gain == NULL) fail_msg("%s: no gain in layer 1", family);
    if ((reference.experts[0] != '\0') != has_experts(program)) fail_msg("%s: experts were not found by name", family);
}

static void close_reference(void)
{
    apr_session_close(reference.session);
    apr_model_close(&reference.canonical);
    apr_model_close(&reference.source);
}

/* --- the breaks --- */

/* What a converter leaves that forgot the gain: a factor of 1, stored as 1 or, where the layer adds 1, as 0. */
static void without_gain(edited_model *m, const apr_tensor *t, float *values)
{
    double sum = 0.0;

    (void)m;
    if (t == NULL || strcmp(t->name, reference.gain) != 0) return;
    for (int64_t i = 0; i < t->dims[0]; i++) sum += (double)values[i];
    for (int64_t i = 0; i < t->dims[0]; i++) values[i] = sum > 0.5 * (double)t->dims[0] ? 1.0f : 0.0f;
}

static void experts_swapped(edited_model *m, const apr_tensor *t, float *values)
{
    const size_t n = strlen(reference.experts);

    (void)values;
    for (size_t i = 0; t == NULL && i < m->model.n_tensors; i++) {
        const char *const name = m->model.tensors[i].name;
        if (strncmp(name, reference.experts, n) != 0 || (name[n] != '0' && name[n] != '1') || name[n + 1] != '.') continue;
        char *const changed = edited_model_memory(m, strlen(name));
        memcpy(changed, name, strlen(name));
        changed[n] = name[n] == '0' ? '1' : '0';
        m->model.tensors[i].name = changed;
    }
}

static void window_shorter(edited_model *m, const apr_tensor *t, float *values)
{
    (void)values;
    if (t != NULL) return;
    m->model.hparams.sliding_window--;
    m->model.hparams.attention_chunk_size--;
}

/* --- every family --- */

static model_verdict verdict_of(apr_dtype dtype, model_edit edit)
{
    edited_model other;

    edited_model_open_with(&other, &reference.canonical, dtype, edit);
    const model_verdict j = model_verdict_on(reference.session, &other.model, N_CTX);
    edited_model_close(&other);
    return j;
}

static void passes(const char *family, apr_dtype dtype)
{
    const model_verdict j = verdict_of(dtype, NULL);
    if (j.facts[0] != '\0' || j.weights[0] != '\0' || j.operations[0] != '\0')
        fail_msg("%s in %s: %s %s %s", family, apr_dtypes[dtype].name, j.facts, j.weights, j.operations);
}

static void assert_has(const char *family, apr_dtype dtype, const char *found, const char *wanted)
{
    if (strstr(found, wanted) == NULL) fail_msg("%s in %s: '%s' does not name %s", family, apr_dtypes[dtype].name, found, wanted);
}

/* A sanitizer sees every fifth. */
enum { EVERY = APR_HAS_SANITIZER ? 5 : 1 };

static void breaks_are_found_in_every_family(void **state)
{
    size_t n_with_experts = 0, n_with_window = 0;

    (void)state;
    for (size_t f = 0; f < n_families; f += EVERY) {
        open_reference(families[f]);
        n_with_experts += reference.experts[0] != '\0';
        n_with_window += reference.has_window;
        for (size_t t = 0; t < N_TYPES; t++) {
            passes(families[f], types[t]);
            assert_has(families[f], types[t], verdict_of(types[t], without_gain).weights, reference.gain);
            if (reference.experts[0] != '\0')
                assert_has(families[f], types[t], verdict_of(types[t], experts_swapped).weights, reference.experts);
            if (reference.has_window) assert_has(families[f], types[t], verdict_of(types[t], window_shorter).facts, "window");
        }
        close_reference();
    }
    print_message("%zu families: %zu with experts, %zu with a window\n", n_families, n_with_experts, n_with_window);
    if (EVERY == 1) assert_true(n_with_experts >= 30 && n_with_window >= 15);
}

/* Products of one output are held to their terms where these cancel: an error of a hundredth of the matrix is found all the same. */
static void gate_a_hundredth_larger(edited_model *m, const apr_tensor *t, float *values)
{
    (void)m;
    if (t == NULL || strstr(t->name, "layers.1.mlp.shared_expert_gate") == NULL) return;
    assert_int_equal(apr_tensor_rows(t), 1);
    for (int64_t i = 0; i < apr_tensor_elems(t); i++) values[i] *= 1.01f;
}

static void a_damaged_product_of_one_output_is_named(void **state)
{
    (void)state;
    static const int64_t positions[] = {0, 20};
    static const int32_t ids[] = {5, 17, 3, 90, 41, 77, 8, 126, 64, 2, 33};
    const apr_parity_options options = {
        .positions = positions, .n_positions = 2, .n_batch = APR_PARITY_BATCH, .fp16_above = INT64_MAX, .layer = APR_PARITY_ALL_LAYERS};
    apr_model source, canonical;
    apr_error err = {0};

    if (family_write("tests/data/families/qwen2_moe", in_work("gated"), NULL, &err) != APR_OK) fail_msg("%s", err.text);
    assert_int_equal(apr_model_open(&source, in_work("gated"), &err), APR_OK);
    assert_int_equal(apr_canonical(&canonical, &source, &err), APR_OK);
    for (int is_damaged = 0; is_damaged < 2; is_damaged++) {
        edited_model a, b;
        apr_parity_result result;
        edited_model_open_with(&a, &canonical, APR_F32, NULL);
        edited_model_open_with(&b, &canonical, APR_F32, is_damaged ? gate_a_hundredth_larger : NULL);
        apr_session *const right = edited_model_session(&a.model, 48), *const other = edited_model_session(&b.model, 48);
        assert_int_equal(apr_parity_run(right, other, ids, sizeof ids / sizeof *ids, &options, &result, &err), APR_OK);
        assert_int_equal(result.failed, is_damaged);
        if (is_damaged) assert_string_equal(result.first.name, "model.layers.1.mlp.shared_expert_gate.weight");
        if (is_damaged) assert_int_equal(result.n_checked - result.n_passed, 4); /* a batch and a token at two positions */
        apr_parity_result_close(&result);
        apr_session_close(right);
        apr_session_close(other);
        edited_model_close(&a);
        edited_model_close(&b);
    }
    apr_model_close(&canonical);
    apr_model_close(&source);
}

static int open_all(void **state)
{
    list_families();
    return make_work(state);
}

static int close_all(void **state)
{
    for (size_t i = 0; i < n_families; i++) free(families[i]);
    return remove_work(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(breaks_are_found_in_every_family),
        cmocka_unit_test(a_damaged_product_of_one_output_is_named),
    };
    return cmocka_run_group_tests_name("verify_families", tests, open_all, close_all);
}
