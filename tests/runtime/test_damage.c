/* runtime/calibrate/damage.h on the bundled model: against a comparison of two whole models, and what is put back. */
#include "runtime/calibrate/damage.h"

#include "convert/convert.h"
#include "convert/naming.h"
#include "kernels/rows.h"
#include "runtime/check/compare.h"
#include "tests/support/conversion.h"
#include "tests/support/fake_device.h"
#include "tests/support/family_model.h"
#include "tests/support/golden_model.h"
#include "tests/support/work_folder.h"

#include <math.h>

enum { WINDOW = 16, N_IDS = 4 * WINDOW };

static golden bundled;
static int32_t ids[N_IDS];

static int open_model(void **state)
{
    (void)state;
    apr_error err = {0};
    if (golden_open(&bundled, "tests/data/tiny-qwen2", &err) != APR_OK) fail_msg("%s", err.text);
    return golden_text(&bundled, ids, N_IDS) ? 0 : -1;
}

static int close_model(void **state)
{
    (void)state;
    golden_close(&bundled);
    return 0;
}

static size_t index_of(const char *name)
{
    const apr_tensor *const found = apr_model_find(&bundled.model, name);
    assert_non_null(found);
    return (size_t)(found - bundled.model.tensors);
}

static void open_damage(apr_damage *d)
{
    apr_error err = {0};
    if (apr_damage_open(d, &bundled.model, &apr_session_defaults, ids, N_IDS, WINDOW, &err) != APR_OK) fail_msg("%s", err.text);
}

static double measure(apr_damage *d, const apr_replaced *replaced, size_t n)
{
    apr_damage_figure figure = {NAN, NAN};
    apr_error err = {0};
    if (apr_damage_measure(d, replaced, n, &figure, &err) != APR_OK) fail_msg("%s", err.text);
    assert_true(figure.error >= 0.0 && figure.error <= figure.mean);
    return figure.mean;
}

/* The same by other means: a model with those rows decoded to float32, compared by runtime/check. */
static double by_comparison(size_t tensor, apr_dtype to)
{
    apr_model other = bundled.model;
    apr_session_options options = apr_session_defaults;
    apr_session *a = NULL, *b = NULL;
    apr_divergence divergence;
    const apr_tensor *const from = &bundled.model.tensors[tensor];
    const int64_t n_rows = apr_tensor_rows(from), n_columns = apr_tensor_columns(from);
    float *const values = malloc((size_t)(n_rows * n_columns) * sizeof *values);
    uint8_t *const row = malloc((size_t)apr_row_bytes(to, n_columns));

    apr_decode_rows(from, 0, n_rows, values);
    for (int64_t i = 0; i < n_rows; i++) {
        apr_ref_codecs[to].encode(values + i * n_columns, row, n_columns);
        apr_ref_codecs[to].decode(row, values + i * n_columns, n_columns);
    }
    other.arena = (apr_arena){0};
    other.tensors = malloc(other.n_tensors * sizeof *other.tensors);
    memcpy(other.tensors, bundled.model.tensors, other.n_tensors * sizeof *other.tensors);
    other.tensors[tensor].dtype = APR_F32;
    other.tensors[tensor].data = (const uint8_t *)values;
    other.tensors[tensor].n_bytes = (uint64_t)(n_rows * n_columns) * sizeof *values;
    assert_int_equal(apr_model_index_names(&other, NULL), APR_OK);
    options.n_ctx = WINDOW;
    assert_int_equal(apr_session_open(&a, &bundled.model, &options, NULL), APR_OK);
    assert_int_equal(apr_session_open(&b, &other, &options, NULL), APR_OK);
    assert_int_equal(apr_compare_models(a, b, ids, N_IDS, WINDOW, NULL, NULL, &divergence, NULL), APR_OK);
    const double mean = divergence.mean;
    apr_divergence_close(&divergence);
    apr_session_close(a);
    apr_session_close(b);
    apr_arena_close(&other.arena);
    free(other.tensors);
    free(values);
    free(row);
    return mean;
}

static void a_tensor_does_the_damage_that_a_comparison_of_models_finds(void **state)
{
    (void)state;
    static const char *const names[] = {"model.layers.0.mlp.down_proj.weight", "model.embed_tokens.weight"};
    apr_damage d;

    open_damage(&d);
    for (size_t i = 0; i < 2; i++) {
        const apr_replaced one = {index_of(names[i]), APR_Q4_K};
        const double found = measure(&d, &one, 1), wanted = by_comparison(one.tensor, one.to);
        assert_true(wanted > 1e-4);
        if (!(fabs(found - wanted) <= 0.01 * wanted)) fail_msg("%s: %.6g is not %.6g", names[i], found, wanted); /* rounded inputs */
    }
    apr_damage_close(&d);
}

static void fewer_bits_do_more_damage_and_more_tensors_too(void **state)
{
    (void)state;
    const size_t down = index_of("model.layers.1.mlp.down_proj.weight"), up = index_of("model.layers.1.mlp.up_proj.weight");
    const apr_replaced eight = {down, APR_Q8_0}, four = {down, APR_Q4_K}, both[] = {{down, APR_Q4_K}, {up, APR_Q4_K}};
    apr_damage d;

    open_damage(&d);
    const double of_eight = measure(&d, &eight, 1), of_four = measure(&d, &four, 1);
    assert_true(of_eight > 0.0 && of_four > 10.0 * of_eight);
    assert_true(measure(&d, both, 2) > of_four);
    apr_damage_close(&d);
}

static void nothing_is_left(void **state)
{
    (void)state;
    const apr_replaced one = {index_of("model.layers.0.mlp.up_proj.weight"), APR_Q4_0};
    apr_damage d;

    open_damage(&d);
    assert_true(measure(&d, NULL, 0) == 0.0);
    const double first = measure(&d, &one, 1);
    assert_true(measure(&d, NULL, 0) == 0.0);
    assert_true(measure(&d, &one, 1) == first);
    assert_memory_equal(d.altered.tensors, bundled.model.tensors, bundled.model.n_tensors * sizeof *bundled.model.tensors);
    apr_damage_close(&d);
}

/* On a GPU a tensor's numbers are written over its own: the same damage but for roundings, in the same session, and nothing is left. */
static void a_gpu_finds_the_host_s_damage_and_keeps_none(void **state)
{
    (void)state;
    const size_t down = index_of("model.layers.1.mlp.down_proj.weight"), up = index_of("model.layers.0.mlp.up_proj.weight"),
                 embedding = index_of("model.embed_tokens.weight"); /* also the head, and looked up on the host */
    const apr_replaced sets[][2] = {{{down, APR_Q4_K}}, {{down, APR_Q3_K}}, {{embedding, APR_Q4_K}}, {{down, APR_Q4_K}, {up, APR_Q4_0}}};
    static const size_t n[] = {1, 1, 1, 2};
    apr_session_options options = apr_session_defaults;
    apr_error err = {0};
    apr_damage host, there;

    open_damage(&host);
    options.cuda = fake_device();
    if (apr_damage_open(&there, &bundled.model, &options, ids, N_IDS, WINDOW, &err) != APR_OK) fail_msg("%s", err.text);
    assert_true(there.kept_bytes > 0 && there.begins[down] > there.begins[up]);
    for (size_t i = 0; i < 4; i++) {
        const double wanted = measure(&host, sets[i], n[i]), found = measure(&there, sets[i], n[i]);
        if (!(fabs(found - wanted) <= 0.03 * wanted)) fail_msg("set %zu: %.6g is not %.6g", i, found, wanted);
    }
    assert_true(measure(&there, NULL, 0) < 1e-9);
    assert_memory_equal(there.altered.tensors, bundled.model.tensors, bundled.model.n_tensors * sizeof *bundled.model.tensors);
    measure(&there, sets[3], 2); /* closed with other numbers in it */
    apr_damage_close(&there);
    apr_damage_close(&host);
}

/* A matrix of all experts of a layer, or one tensor: those whose names differ from the first one's in the expert's number alone. */
static size_t with_all_experts(const apr_model *model, size_t first, apr_dtype to, apr_replaced *replaced)
{
    const char *const name = model->tensors[first].name, *const at = strstr(name, ".experts.");
    const size_t n_before = at != NULL ? (size_t)(at - name) + strlen(".experts.") : strlen(name);
    size_t n = 0;

    for (size_t i = first; i < model->n_tensors && n < 32; i++) {
        const char *const other = model->tensors[i].name;
        if (strncmp(name, other, n_before) != 0) continue;
        if (strcmp(name + n_before + strspn(name + n_before, "0123456789"), other + n_before + strspn(other + n_before, "0123456789")) == 0)
            replaced[n++] = (apr_replaced){i, to};
    }
    return n;
}

/* The same bits from a tensor's layer on as from the beginning, of a dense model, a mixture and one with recurrent layers. */
static void a_measurement_that_begins_with_a_layer_is_that_of_the_whole(void **state)
{
    static const char *const folders[] = {"qwen2", "qwen3_moe", "qwen3_5", "granitemoehybrid"};
    (void)state;
    make_work(NULL);
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++) {
        int32_t some_ids[32];
        char from[96];
        apr_model source, model;
        apr_damage d;
        apr_error err = {0};
        size_t n_later = 0;
        for (int i = 0; i < 32; i++) some_ids[i] = (i * i + 7 * i) % 60;
        snprintf(from, sizeof from, "tests/data/families/%s", folders[f]);
        if (family_write(from, in_work(folders[f]), NULL, &err) != APR_OK) fail_msg("%s", err.text);
        if (apr_model_open(&source, in_work(folders[f]), &err) != APR_OK || apr_canonical(&model, &source, &err) != APR_OK)
            fail_msg("%s", err.text);
        if (apr_damage_open(&d, &model, &apr_session_defaults, some_ids, 32, 16, &err) != APR_OK) fail_msg("%s", err.text);
        const uint64_t n_bytes = d.kept_bytes;
        assert_true(n_bytes >= (uint64_t)((model.hparams.num_layers - 1) * 32 * model.hparams.hidden_size) * sizeof(float));
        for (size_t i = 0; i < model.n_tensors; i++) {
            apr_replaced all[32];
            const size_t n = with_all_experts(&model, i, APR_Q4_0, all);
            const char *const expert = strstr(model.tensors[i].name, ".experts.");
            const bool is_in_another = expert != NULL && strncmp(expert, ".experts.0.", 11) != 0;
            if (!apr_damage_can_be(&model.tensors[i], APR_Q4_0) || is_in_another) continue;
            const double rest = measure(&d, all, n);
            d.kept_bytes = 0;
            const double whole = measure(&d, all, n);
            d.kept_bytes = n_bytes;
            if (memcmp(&rest, &whole, sizeof rest) != 0) fail_msg("%s, %s: %g is not %g", folders[f], model.tensors[i].name, rest, whole);
            n_later += d.begins[i] > 0;
        }
        assert_true(n_later > 4);
        apr_damage_close(&d);
        apr_model_close(&model);
        apr_model_close(&source);
    }
    remove_work(NULL);
}

static void what_cannot_be_blocks_is_refused_by_name(void **state)
{
    (void)state;
    const apr_replaced norm = {index_of("model.norm.weight"), APR_Q8_0};
    apr_damage d;
    apr_damage_figure figure;
    apr_error err = {0};

    open_damage(&d);
    assert_int_equal(apr_damage_measure(&d, &norm, 1, &figure, &err), APR_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "model.norm.weight"));
    apr_damage_close(&d);
    assert_int_equal(apr_damage_open(&d, &bundled.model, &apr_session_defaults, ids, WINDOW + 1, WINDOW, &err), APR_E_USAGE);
    apr_damage_close(&d);
}

/* As gpt-oss is published: its experts' MXFP4 is composed of two tensors, nibbles and scales, and is stored nowhere as blocks. */

static void convert(const char *in, const char *out, const apr_recipe_override *to)
{
    must_convert(in, out, &(apr_convert_options){.recipe = {.overrides = to, .n_overrides = to != NULL}, .sink = {.allow_loss = true}});
}

/* What all stacks in MXFP4 do as Q4_0, *n_made of which are made of several tensors. */
static double damage_of_stacks(const char *path, size_t *n_made)
{
    static const int32_t some_ids[] = {3, 14, 15, 92, 65, 35, 89, 79, 32, 38, 46, 26, 43, 38, 32, 79};
    apr_model source, model;
    apr_damage d;
    apr_damage_figure figure;
    apr_replaced stacks[32];
    apr_error err = {0};
    size_t n = 0;

    if (apr_model_open(&source, path, &err) != APR_OK || apr_canonical(&model, &source, &err) != APR_OK) fail_msg("%s", err.text);
    *n_made = 0;
    for (size_t i = 0; i < model.n_tensors && n < sizeof stacks / sizeof *stacks; i++) {
        if (model.tensors[i].dtype != APR_MXFP4) continue;
        *n_made += model.tensors[i].composed != NULL;
        stacks[n++] = (apr_replaced){i, APR_Q4_0};
    }
    assert_true(n > 0);
    if (apr_damage_open(&d, &model, &apr_session_defaults, some_ids, 16, 8, &err) != APR_OK ||
        apr_damage_measure(&d, stacks, n, &figure, &err) != APR_OK)
        fail_msg("%s: %s", path, err.text);
    apr_damage_close(&d);
    apr_model_close(&model);
    apr_model_close(&source);
    return figure.mean;
}

static void a_stack_composed_of_two_tensors_is_tried_like_one_stored_in_blocks(void **state)
{
    static const apr_recipe_override experts = {.regex = "experts.*weight|exps.weight", .to = APR_MXFP4};
    apr_error err = {0};
    size_t n_made;
    (void)state;
    make_work(NULL);
    if (family_write("tests/data/spellings/gpt_oss_wide", in_work("wide"), NULL, &err) != APR_OK) fail_msg("%s", err.text);
    convert(in_work("wide"), in_work("whole.gguf"), &experts);
    convert(in_work("whole.gguf"), in_work("parts"), NULL);
    const double whole = damage_of_stacks(in_work("whole.gguf"), &n_made);
    assert_int_equal(n_made, 0);
    const double parts = damage_of_stacks(in_work("parts"), &n_made);
    assert_true(n_made > 0);
    assert_true(whole > 1e-5);
    if (!(fabs(whole - parts) <= 1e-6 * whole)) fail_msg("%.9g as blocks, %.9g as two tensors", whole, parts);
    remove_work(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tensor_does_the_damage_that_a_comparison_of_models_finds),
        cmocka_unit_test(fewer_bits_do_more_damage_and_more_tensors_too),
        cmocka_unit_test(nothing_is_left),
        cmocka_unit_test(a_gpu_finds_the_host_s_damage_and_keeps_none),
        cmocka_unit_test(a_measurement_that_begins_with_a_layer_is_that_of_the_whole),
        cmocka_unit_test(what_cannot_be_blocks_is_refused_by_name),
        cmocka_unit_test(a_stack_composed_of_two_tensors_is_tried_like_one_stored_in_blocks),
    };
    return cmocka_run_group_tests_name("damage", tests, open_model, close_model);
}
