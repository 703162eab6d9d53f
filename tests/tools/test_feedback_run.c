/* tools/engine/quantize/feedback_run.h on a device that is really the host: the text goes through it, sums stay there, memory is planned before
 * anything is allocated, and a device that fails leaves a run that goes on on the host. */
#define _XOPEN_SOURCE 700
#include "tools/engine/quantize/feedback_run.h"

#include "convert/naming.h"
#include "tests/support/fake_device.h"
#include "tests/support/fake_feedback.h"
#include "tests/support/work_folder.h"
#include "tools/engine/quantize/feedback_internal.h"
#include "tools/verbs/convert/quant_report.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct bench {
    apr_model source;
    apr_text_input text;
    apr_conversion c;
    apr_feedback_run *run;
    apr_cuda_device *device;
    apr_error err;
} bench;

/* Three matrices, of which two have the same inputs: the rest of the model keeps its type. */
static void open_bench_of(bench *b, uint64_t memory_bytes, apr_dtype to, apr_dtype v_to)
{
    const apr_recipe_override one[] = {{.regex = "layers\\.0\\.self_attn\\.v_proj\\.weight", .to = v_to},
                                       {.regex = "layers\\.[01]\\.self_attn\\.k_proj\\.weight", .to = to}};
    const apr_convert_options options = {
        .format = APR_FORMAT_APR, .recipe = {.overrides = one, .n_overrides = 2}, .sink = {.overwrite = true, .allow_loss = true}};
    const apr_feedback_request request = {
        .calibration = &b->text, .n_tokens = 64, .window = 32, .memory_bytes = memory_bytes, .options = {.damping = 0.01, .rounds = 1}};
    *b = (bench){.run = NULL};
    fake_feedback_is = (fake_feedback_state){0};
    fake_device_has_memory((uint64_t)1 << 34);
    if (apr_text_input_open(&b->text, "tests/data/heldout.txt", &b->err) != APR_OK ||
        apr_model_open(&b->source, "tests/data/tiny-qwen2", &b->err) != APR_OK ||
        apr_conversion_plan(&b->c, &b->source, &options, &b->err) != APR_OK ||
        apr_feedback_run_open(&b->run, &request, &b->c, NULL, &b->err) != APR_OK ||
        fake_device()->open(&b->device, 0, &(apr_cuda_options){0}, &b->err) != APR_OK)
        fail_msg("%s", b->err.text);
}

static void open_bench(bench *b, uint64_t memory_bytes) { open_bench_of(b, memory_bytes, APR_MXFP4, APR_MXFP4); }

static void close_bench(bench *b)
{
    apr_feedback_run_to_host(b->run);
    assert_int_equal(fake_device_bytes_there(), 0);
    assert_int_equal(fake_feedback_is.n_open, 0);
    apr_feedback_run_close(b->run);
    fake_device()->close(b->device);
    apr_conversion_close(&b->c);
    apr_model_close(&b->source);
    apr_text_input_close(&b->text);
}

static apr_status enter(bench *b)
{
    b->err = (apr_error){0};
    return apr_feedback_run_to_gpu(b->run, fake_device(), b->device, 0, &b->err);
}

/* All tensors that are taken, in order. */
static apr_status make_all(bench *b, size_t *n_made, uint32_t *sum)
{
    const apr_custom_encoder *const custom_encoder = apr_feedback_run_custom_encoder(b->run);
    *n_made = 0;
    *sum = 0;
    b->err = (apr_error){0};
    for (size_t i = 0; i < b->c.layout.n_tensors; i++) {
        const uint8_t *bytes;
        apr_out_of_range out_of_range;
        if (!custom_encoder->takes(custom_encoder->user, i)) continue;
        APR_TRY(custom_encoder->make(custom_encoder->user, i, &bytes, &out_of_range, &b->err));
        const int64_t n = apr_row_bytes(b->c.items[i].to, apr_tensor_elems(b->c.items[i].from));
        for (int64_t k = 0; k < n; k++) *sum = *sum * 31 + bytes[k];
        ++*n_made;
    }
    return APR_OK;
}

static void a_device_encodes_what_it_is_asked_for_and_the_terms_say_so(void **state)
{
    bench b;
    size_t n_made, n_again;
    uint32_t first, again;
    (void)state;
    open_bench(&b, 0);
    assert_null(strstr(apr_feedback_run_terms(b.run), "GPU"));
    if (enter(&b) != APR_OK) fail_msg("%s", b.err.text);
    assert_non_null(strstr(apr_feedback_run_terms(b.run), ", on a GPU"));
    if (make_all(&b, &n_made, &first) != APR_OK) fail_msg("%s", b.err.text);
    assert_int_equal(n_made, 3);
    apr_feedback_run_restart(b.run);
    assert_int_equal(make_all(&b, &n_again, &again), APR_OK);
    assert_int_equal(first, again);
    close_bench(&b);
}

static double sum_of_errors(const bench *b)
{
    double sum = 0.0;
    for (size_t i = 0; i < b->c.layout.n_tensors; i++) sum += b->run->facts[i].errors.end;
    return sum;
}

/* Types of one and of several scales a block, with codebooks, and two with the same inputs of which one needs columns in another order. A
 * device's sums are float32, so that a few codes are others. */
static void types_are_rounded_on_a_device_as_on_the_host(void **state)
{
    static const apr_dtype types[][2] = {{APR_NVFP4, APR_NVFP4}, {APR_TQ2_0, APR_TQ2_0}, {APR_IQ2_S, APR_IQ2_S}, {APR_IQ1_S, APR_IQ3_XXS},
                                         {APR_MXFP4, APR_IQ2_S}, {APR_IQ1_M, APR_MXFP4}, {APR_Q2_0, APR_IQ3_S}};
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        bench b;
        size_t n_made;
        uint32_t sum;
        open_bench_of(&b, 0, types[i][0], types[i][1]);
        if (make_all(&b, &n_made, &sum) != APR_OK) fail_msg("%s", b.err.text);
        const double on_host = sum_of_errors(&b);
        close_bench(&b);
        open_bench_of(&b, 0, types[i][0], types[i][1]);
        if (enter(&b) != APR_OK || make_all(&b, &n_made, &sum) != APR_OK) fail_msg("%s", b.err.text);
        assert_int_equal(n_made, 3);
        assert_true(on_host > 0.0);
        if (fabs(sum_of_errors(&b) / on_host - 1.0) > 1e-2)
            fail_msg("%s, %s: %g, %g", apr_dtypes[types[i][0]].name, apr_dtypes[types[i][1]].name, sum_of_errors(&b), on_host);
        close_bench(&b);
    }
}

/* The sums of a pass are taken up by the next run of the same output, which reads no text and makes the same; damaged ones are not. */
static void sums_of_a_finished_pass_are_kept(void **state)
{
    static const char kept[] = "/tmp/aprkit-kept-sums", sums[] = "/tmp/aprkit-kept-sums.resume/sums";
    const struct {
        bool is_kept, is_damaged;
        int n_passes;
    } runs[] = {{false, false, 1}, {true, false, 1}, {true, false, 0}, {true, true, 1}};
    uint32_t first = 0, sum;
    size_t n;

    (void)state;
    assert_int_equal(system("rm -rf /tmp/aprkit-kept-sums.resume && mkdir /tmp/aprkit-kept-sums.resume"), 0);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        bench b;
        if (runs[i].is_damaged) {
            FILE *const file = fopen(sums, "r+");
            assert_non_null(file);
            assert_int_equal(fseek(file, -5000, SEEK_END), 0);
            fputs("damage", file);
            fclose(file);
        }
        open_bench(&b, 0);
        b.run->request.kept = runs[i].is_kept ? kept : NULL;
        if (make_all(&b, &n, &sum) != APR_OK) fail_msg("%s", b.err.text);
        if (i == 0) first = sum;
        assert_int_equal(sum, first);
        if (b.run->n_passes != runs[i].n_passes) fail_msg("run %zu: %d passes", i, b.run->n_passes);
        close_bench(&b);
    }
    assert_int_equal(system("rm -rf /tmp/aprkit-kept-sums.resume"), 0);
}

static void fewer_sums_at_a_time_take_more_passes_and_give_the_same(void **state)
{
    bench all, few;
    size_t n;
    uint32_t a, b;
    (void)state;
    open_bench(&all, 0);
    assert_int_equal(enter(&all), APR_OK);
    assert_int_equal(make_all(&all, &n, &a), APR_OK);
    const int n_steps = fake_feedback_is.n_steps;
    close_bench(&all);
    open_bench(&few, 1);
    assert_int_equal(enter(&few), APR_OK);
    assert_int_equal(make_all(&few, &n, &b), APR_OK);
    assert_int_equal(fake_feedback_is.n_steps, n_steps); /* the same sums, one at a time */
    assert_int_equal(a, b);
    close_bench(&few);
}

static void what_does_not_fit_is_refused_before_anything_is_allocated(void **state)
{
    bench b;
    (void)state;
    open_bench(&b, 0);
    fake_device_has_memory(100 << 20);
    assert_int_equal(enter(&b), APR_E_MEMORY);
    assert_non_null(strstr(b.err.text, "error feedback needs"));
    assert_non_null(strstr(b.err.text, "100 MiB are free; use --device host"));
    assert_int_equal(fake_device_most_bytes(), 0);
    fake_device_has_memory((uint64_t)1 << 34);
    close_bench(&b);
}

/* Whatever fails, allocation or step: a sentence, nothing is left on the device, and the host goes on. */
static void a_device_that_fails_is_left_and_the_host_goes_on(void **state)
{
    bench b;
    size_t n_made;
    uint32_t sum, on_host;
    (void)state;
    open_bench(&b, 0);
    assert_int_equal(make_all(&b, &n_made, &on_host), APR_OK);
    for (int what = 1; what <= 12; what++) {
        fake_feedback_is.n_steps = 0;
        fake_feedback_is.fail_at = what <= 6 ? 0 : what - 5;
        fake_device_fail_allocation(what <= 6 ? what : 0);
        apr_status status = enter(&b);
        if (status == APR_OK) status = make_all(&b, &n_made, &sum);
        if (status != APR_E_DEVICE) fail_msg("%d: %d %s", what, status, b.err.text);
        assert_non_null(strstr(b.err.text, "a fake"));
        apr_feedback_run_to_host(b.run);
        assert_int_equal(fake_device_bytes_there(), 0);
        fake_device_fail_allocation(0);
        fake_feedback_is.fail_at = 0;
        apr_feedback_run_restart(b.run);
    }
    assert_null(strstr(apr_feedback_run_terms(b.run), "GPU"));
    if (make_all(&b, &n_made, &sum) != APR_OK) fail_msg("%s", b.err.text);
    assert_int_equal(sum, on_host);
    close_bench(&b);
}

static void without_cusolver_the_run_says_what_factorises(void **state)
{
    bench b;
    size_t n_made;
    uint32_t sum;
    apr_json_text json = {0};
    (void)state;
    open_bench(&b, 0);
    fake_feedback_is.name = "own Cholesky kernels: libcusolver.so.12 is not here";
    assert_int_equal(enter(&b), APR_OK);
    assert_int_equal(make_all(&b, &n_made, &sum), APR_OK);
    apr_feedback_run_to_host(b.run);
    apr_json_open(&json, NULL, '{');
    apr_feedback_report(&(apr_report){.json = &json}, b.run, NULL, false);
    apr_json_close(&json, '}');
    size_t n;
    char *const text = apr_json_text_take(&json, &n);
    assert_non_null(text);
    assert_non_null(strstr(text, "\"solver\":\"own Cholesky kernels: libcusolver.so.12 is not here\""));
    assert_non_null(strstr(text, "\"model_bytes\":"));
    free(text);
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_encodes_what_it_is_asked_for_and_the_terms_say_so),
        cmocka_unit_test(types_are_rounded_on_a_device_as_on_the_host),
        cmocka_unit_test(sums_of_a_finished_pass_are_kept),
        cmocka_unit_test(fewer_sums_at_a_time_take_more_passes_and_give_the_same),
        cmocka_unit_test(what_does_not_fit_is_refused_before_anything_is_allocated),
        cmocka_unit_test(a_device_that_fails_is_left_and_the_host_goes_on),
        cmocka_unit_test(without_cusolver_the_run_says_what_factorises),
    };
    return cmocka_run_group_tests_name("feedback_run", tests, NULL, NULL);
}
