/* convert/convert.h, ggml_location.h: importances find their tensors in every family, in whichever order the columns are. */
#include "convert/convert.h"
#include "convert/ggml_location.h"
#include "formats/shape/family.h"

#include "convert/naming.h"
#include "formats/shape/family.h"
#include "kernels/rows.h"
#include "tests/support/edited_model.h"
#include "tests/support/family_model.h"
#include "tests/support/work_folder.h"

#include <dirent.h>
#include <omp.h>

/* A family's model in which every number of a matrix is the number of its column. */
typedef struct subject {
    apr_model source, canonical, ggml;
    edited_model made;
} subject;

static void count_columns(edited_model *m, const apr_tensor *t, float *values)
{
    (void)m;
    if (t == NULL || t->rank < 2) return;
    const int64_t n = apr_tensor_columns(t);
    for (int64_t i = 0; i < apr_tensor_elems(t); i++) values[i] = (float)(i % n);
}

static void open_subject(subject *s, const char *family)
{
    char from[128];
    apr_error err = {0};

    *s = (subject){.source = {0}};
    snprintf(from, sizeof from, "tests/data/families/%s", family);
    if (family_write(from, in_work(family), NULL, &err) != APR_OK) fail_msg("%s", err.text);
    if (apr_model_open(&s->source, in_work(family), &err) != APR_OK) fail_msg("%s", err.text);
    if (apr_canonical(&s->canonical, &s->source, &err) != APR_OK) fail_msg("%s", err.text);
    edited_model_open_with(&s->made, &s->canonical, APR_F32, count_columns);
    if (apr_translate(&s->ggml, &s->made.model, APR_NAMING_GGML, &err) != APR_OK) fail_msg("%s", err.text);
}

static void close_subject(subject *s)
{
    apr_model_close(&s->ggml);
    edited_model_close(&s->made);
    apr_model_close(&s->canonical);
    apr_model_close(&s->source);
}

/* Is the tensor where its place says, with its columns in the order that it says? */
static void check_place(const subject *s, const char *family, const apr_tensor *t, const apr_ggml_location *place)
{
    const apr_tensor *const there = apr_model_find(&s->ggml, place->name);
    const int64_t n = apr_tensor_columns(t);
    int64_t *const order = malloc((size_t)n * sizeof *order);
    apr_error err = {0};

    if (there == NULL) fail_msg("%s: '%s' is nowhere, where '%s' should be", family, place->name, t->name);
    assert_int_equal(apr_tensor_columns(there), n);
    float *const rows = malloc((size_t)apr_tensor_elems(there) * sizeof *rows);
    apr_decode_rows(there, 0, apr_tensor_rows(there), rows);
    assert_int_equal(apr_ggml_columns(place, n, order, &err), APR_OK);
    const int64_t matrix_rows = there->rank > 2 ? there->dims[there->rank - 2] : 0,
                  first = place->matrix > 0 ? place->matrix * matrix_rows : 0;
    float factor = 0.0f; /* of families that multiply their weights; of others 1 */
    for (int64_t j = 0; j < n; j++)
        if (order[j] == 1) factor = rows[first * n + j];
    if (!(factor > 0.0f) || (factor != 1.0f && !apr_family_find(s->made.model.hparams.architecture)->gguf.folds_multipliers))
        fail_msg("%s: column 1 of '%s' is nowhere in '%s'", family, t->name, place->name);
    for (int64_t j = 0; j < n; j++)
        if (fabsf(rows[first * n + j] - factor * (float)order[j]) > 1e-6f * rows[first * n + j])
            fail_msg("%s: column %d of '%s' is the %dth of '%s', not the %dth", family, (int)j, place->name, (int)rows[first * n + j],
                     t->name, (int)order[j]);
    free(order);
    free(rows);
}

/* Matrices whose role is to be multiplied: how many have a place. */
static int check_family(const char *family)
{
    subject s;
    apr_arena arena = {0};
    apr_error err = {0};
    apr_ggml_location place;
    int n = 0;

    open_subject(&s, family);
    for (size_t i = 0; i < s.made.model.n_tensors; i++) {
        const apr_tensor *const t = &s.made.model.tensors[i];
        if (t->rank != 2 || apr_model_find(&s.ggml, t->name) != NULL) continue;
        assert_int_equal(apr_ggml_location_of(&place, &s.made.model, t->name, &arena, &err), APR_OK);
        if (place.name == NULL) continue;
        check_place(&s, family, t, &place);
        n++;
    }
    apr_arena_close(&arena);
    close_subject(&s);
    return n;
}

static void every_place_of_every_family_holds_what_it_says(void **state)
{
    DIR *const folder = opendir("tests/data/families");
    int n_families = 0;
    (void)state;

    assert_non_null(folder);
    for (const struct dirent *e = readdir(folder); e != NULL; e = readdir(folder)) {
        char from[512];
        snprintf(from, sizeof from, "tests/data/families/%s", e->d_name);
        if (strchr(e->d_name, '.') != NULL || !family_is_in_gguf(from)) continue;
        if (check_family(e->d_name) < 8) fail_msg("%s: hardly a matrix has a place", e->d_name);
        n_families++;
    }
    closedir(folder);
    assert_true(n_families >= 60); /* all but opt and bailing_hybrid */
}

/* ---- from a file to tensors ---- */

/* An imatrix of one entry, whose sums count up. */
static apr_imatrix one_entry(const char *name, int64_t n_matrices, int64_t n_columns)
{
    apr_imatrix m;
    apr_error err = {0};
    assert_int_equal(apr_imatrix_start(&m, "one", 1, &err), APR_OK);
    apr_imatrix_entry *const e = apr_imatrix_add(&m, name, n_matrices, n_columns);
    for (int64_t i = 0; i < n_matrices * n_columns; i++) e->sums[i] = (double)i;
    for (int64_t i = 0; i < n_matrices; i++) e->counts[i] = 2.0 * (double)i; /* the first saw nothing */
    return m;
}

static void an_expert_has_its_own_and_unseen_ones_have_none(void **state)
{
    (void)state;
    subject s;
    apr_arena arena = {0};
    apr_error err = {0};
    apr_importance found;
    open_subject(&s, "qwen3_moe");
    const apr_tensor *const down = apr_model_find(&s.made.model, "model.layers.0.mlp.experts.1.down_proj.weight");
    const apr_tensor *const stack = apr_model_find(&s.ggml, "blk.0.ffn_down_exps.weight");
    assert_true(down != NULL && stack != NULL);
    const int64_t n = apr_tensor_columns(down), n_experts = stack->dims[0];
    apr_imatrix m = one_entry("blk.0.ffn_down_exps.weight", n_experts, n);

    assert_int_equal(apr_importance_of(&found, &m, &s.made.model, down, &arena, &err), APR_OK);
    for (int64_t j = 0; j < n; j++) assert_true(found.columns[j] == (float)(n + j) / 2.0f);
    assert_int_equal(found.n_unseen, 0);
    assert_int_equal(apr_importance_of(&found, &m, &s.ggml, stack, &arena, &err), APR_OK);
    assert_true(found.n_unseen == 1 && found.n_matrices == n_experts && found.columns[3] == 0.0f);
    assert_true(found.columns[2 * n + 1] == (float)(2 * n + 1) / 4.0f);
    apr_imatrix_close(&m);
    apr_arena_close(&arena);
    close_subject(&s);
}

static void another_models_sizes_are_refused(void **state)
{
    (void)state;
    subject s;
    apr_arena arena = {0};
    apr_error err = {0};
    apr_importance found;
    open_subject(&s, "qwen3");
    const apr_tensor *const q = apr_model_find(&s.ggml, "blk.0.attn_q.weight"), *const k = apr_model_find(&s.ggml, "blk.0.attn_k.weight");
    apr_imatrix m = one_entry("blk.0.attn_q.weight", 1, apr_tensor_columns(q) + 1);

    assert_int_equal(apr_importance_of(&found, &m, &s.ggml, q, &arena, &err), APR_E_DAMAGED);
    assert_non_null(strstr(err.text, "it was made from another model"));
    assert_int_equal(apr_importance_of(&found, &m, &s.ggml, k, &arena, &err), APR_OK);
    assert_null(found.columns); /* nothing is said of it */
    apr_imatrix_close(&m);
    apr_arena_close(&arena);
    close_subject(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_place_of_every_family_holds_what_it_says),
        cmocka_unit_test(an_expert_has_its_own_and_unseen_ones_have_none),
        cmocka_unit_test(another_models_sizes_are_refused),
    };
    omp_set_num_threads(1);
    return cmocka_run_group_tests_name("importance", tests, make_work, remove_work);
}
