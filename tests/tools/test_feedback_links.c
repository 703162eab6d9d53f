/* tools/engine/quantize/feedback_links.h: a tensor of an output is linked to the inputs that its columns are multiplied with, in every family. */
#define _XOPEN_SOURCE 700
#include "tools/engine/quantize/feedback_links.h"

#include "convert/naming.h"
#include "kernels/rows.h"
#include "tests/support/family_model.h"
#include "tests/support/work_folder.h"

#include <dirent.h>

typedef struct linked {
    apr_model source, between, model;
    apr_conversion c;
    apr_session *session;
    apr_layer_inputs inputs;
    apr_feedback_links links;
} linked;

static void open_linked(linked *l, const char *folder, apr_format format)
{
    const apr_convert_options options = {.format = format, .recipe = {.mixture = "q8_0"}, .sink = {.overwrite = true, .allow_loss = true}};
    apr_session_options session = apr_session_defaults;
    apr_error err = {0};

    *l = (linked){.session = NULL};
    session.n_ctx = session.n_batch = 16;
    session.n_logits = 1;
    session.n_threads = 1;
    if (apr_model_open(&l->source, folder, &err) != APR_OK || apr_conversion_plan(&l->c, &l->source, &options, &err) != APR_OK ||
        apr_view_without_provenance(&l->between, &l->c.view, &err) != APR_OK || apr_canonical(&l->model, &l->between, &err) != APR_OK ||
        apr_session_open(&l->session, &l->model, &session, &err) != APR_OK || apr_layer_inputs_of(&l->inputs, l->session, &err) != APR_OK ||
        apr_feedback_links_of(&l->links, &l->c, l->session, &l->inputs, &err) != APR_OK)
        fail_msg("%s: %s", folder, err.text);
}

static void close_linked(linked *l)
{
    apr_feedback_links_close(&l->links);
    apr_layer_inputs_close(&l->inputs);
    apr_session_close(l->session);
    apr_model_close(&l->model);
    apr_model_close(&l->between);
    apr_conversion_close(&l->c);
    apr_model_close(&l->source);
}

/* Is the row one of the matrix, its numbers in the same columns? */
static bool has_row(const apr_tensor *tensor, int64_t matrix, const float *row, int64_t n)
{
    const int64_t n_rows = apr_tensor_rows(tensor) / apr_feedback_matrices(tensor);
    float *const own = malloc((size_t)n * sizeof *own);
    bool found = false;
    for (int64_t r = 0; r < n_rows && !found; r++) {
        apr_decode_rows(tensor, matrix * n_rows + r, 1, own);
        found = memcmp(own, row, (size_t)n * sizeof *own) == 0;
    }
    free(own);
    return found;
}

/* Every third row of what reads the layer input is a row of a linked matrix. False: nothing is linked. */
static bool is_linked(const linked *l, const apr_tensor *tensor, size_t input, int64_t expert, int64_t first, int64_t n_rows)
{
    const int64_t n = l->inputs.inputs[input].width;
    float *const row = malloc((size_t)n * sizeof *row);
    bool any = false;

    for (size_t i = 0; i < l->links.n_links; i++) any |= l->links.links[i].input == input && l->links.links[i].expert == expert;
    for (int64_t r = first; r < first + n_rows && any; r += 3) {
        bool found = false;
        apr_decode_rows(tensor, r, 1, row);
        for (size_t i = 0; i < l->links.n_links && !found; i++) {
            const apr_feedback_link *const link = &l->links.links[i];
            found = link->input == input && link->expert == expert && has_row(l->c.items[link->item].from, link->matrix, row, n);
        }
        if (!found) fail_msg("%s: row %d of '%s' is in no linked tensor", l->source.path, (int)r, tensor->name);
    }
    free(row);
    return any;
}

/* What is linked, of all matrices that products read. */
static void check_links(const linked *l, size_t *n_linked, size_t *n_all)
{
    for (size_t i = 0; i < l->inputs.n_readers; i++) {
        const apr_layer_input *const input = &l->inputs.inputs[l->inputs.readers[i].input];
        int64_t n;
        const apr_tensor *const tensors = apr_trace_tensors(l->session, l->inputs.readers[i].slot, &n);
        for (int64_t e = 0; e < n; e++) {
            const int64_t n_matrices = apr_feedback_matrices(&tensors[e]), n_rows = apr_tensor_rows(&tensors[e]) / n_matrices;
            for (int64_t m = 0; m < n_matrices; m++) {
                const int64_t expert = input->n_experts == 0 ? 0 : n_matrices > 1 ? m : e;
                *n_linked += is_linked(l, &tensors[e], l->inputs.readers[i].input, expert, m * n_rows, n_rows);
                ++*n_all;
            }
        }
    }
}

static void check_family(const char *name, apr_format format)
{
    char from[128];
    apr_error err = {0};
    linked l;
    size_t n_linked = 0, n_all = 0;

    snprintf(from, sizeof from, "tests/data/families/%.80s", name);
    if (family_write(from, in_work(name), NULL, &err) != APR_OK) fail_msg("%s", err.text);
    open_linked(&l, in_work(name), format);
    check_links(&l, &n_linked, &n_all);
    if (n_linked * 2 < n_all) fail_msg("%s: %zu of %zu matrices are linked", name, n_linked, n_all);
    if (n_linked < n_all) print_message("%s: %zu of %zu\n", name, n_linked, n_all);
    close_linked(&l);
}

static void check_families(apr_format format)
{
    DIR *const folder = opendir("tests/data/families");
    size_t n = 0;

    assert_non_null(folder);
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char from[512];
        snprintf(from, sizeof from, "tests/data/families/%s", entry->d_name);
        if (strchr(entry->d_name, '.') != NULL || (format == APR_FORMAT_GGUF && !family_is_in_gguf(from))) continue;
        check_family(entry->d_name, format);
        n++;
    }
    closedir(folder);
    assert_true(n >= 60); /* all but opt and bailing_hybrid */
}

static void tensors_of_a_gguf_are_linked_to_what_their_columns_are_multiplied_with(void **state)
{
    (void)state;
    check_families(APR_FORMAT_GGUF);
}

static void tensors_of_an_apr_file_are_linked_in_the_same_way(void **state)
{
    (void)state;
    check_families(APR_FORMAT_APR);
}

static void queries_keys_and_values_share_their_inputs_and_a_tied_head_has_those_of_its_product(void **state)
{
    (void)state;
    linked l;
    size_t first[4];

    open_linked(&l, "tests/data/tiny-qwen2", APR_FORMAT_GGUF);
    static const char *const names[] = {"blk.1.attn_q.weight", "blk.1.attn_k.weight", "blk.1.attn_v.weight", "token_embd.weight"};
    for (size_t i = 0; i < 4; i++) {
        const apr_tensor *const t = apr_model_find(&l.c.layout, names[i]);
        assert_int_equal(apr_feedback_links_of_item(&l.links, (size_t)(t - l.c.layout.tensors), &first[i]), 1);
    }
    assert_int_equal(l.links.links[first[0]].input, l.links.links[first[1]].input);
    assert_int_equal(l.links.links[first[0]].input, l.links.links[first[2]].input);
    assert_int_equal(l.inputs.inputs[l.links.links[first[3]].input].layer, -1);
    const apr_tensor *const norm = apr_model_find(&l.c.layout, "blk.1.attn_norm.weight");
    assert_int_equal(apr_feedback_links_of_item(&l.links, (size_t)(norm - l.c.layout.tensors), &first[0]), 0);
    close_linked(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_of_a_gguf_are_linked_to_what_their_columns_are_multiplied_with),
        cmocka_unit_test(tensors_of_an_apr_file_are_linked_in_the_same_way),
        cmocka_unit_test(queries_keys_and_values_share_their_inputs_and_a_tied_head_has_those_of_its_product),
    };
    return cmocka_run_group_tests_name("feedback_links", tests, make_work, remove_work);
}
