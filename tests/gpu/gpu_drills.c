/* Faults on role: each ends in its sentence, or in the loud fall-back to the host; never in a crash or a wrong answer. */
#include "kernels/cuda_loader.h"
#include "runtime/session/session_internal.h"
#include "tests/support/golden_model.h"
#include "tools/engine/device/probe.h"

#include <libgen.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const apr_cuda_api *cuda;
static apr_cuda_drill_fn drill;
static golden g;
static char warning[2048]; /* the last one */

static void keep_warning(void *user, const char *sentence)
{
    (void)user;
    snprintf(warning, sizeof warning, "%s", sentence);
}

static apr_session_options on_device(void)
{
    apr_session_options options = apr_session_defaults;
    options.cuda = cuda;
    options.n_ctx = 128;
    options.on_warning = keep_warning;
    return options;
}

static const int32_t prompt[] = {1, 5, 9, 2, 7, 11, 3, 8, 4, 6, 12, 10};
enum { N_PROMPT = sizeof prompt / sizeof *prompt };

/* Logits of the last prompt token on the host. */
static float *host_logits(void)
{
    apr_session_options options = apr_session_defaults;
    const size_t n_bytes = (size_t)g.model.hparams.vocab_size * sizeof(float);
    float *const copy = malloc(n_bytes);
    apr_session *s;

    options.n_ctx = 128;
    assert_int_equal(apr_session_open(&s, &g.model, &options, NULL), APR_OK);
    assert_int_equal(apr_session_eval(s, prompt, N_PROMPT, NULL, NULL), APR_OK);
    memcpy(copy, apr_session_logits(s), n_bytes);
    apr_session_close(s);
    return copy;
}

static void an_allocation_that_fails_names_its_line_and_auto_goes_on_on_the_host(void **state)
{
    (void)state;
    float *const reference = host_logits();
    int64_t n = 0;

    for (n = 1; n < 100; n++) {
        apr_session_options options = on_device();
        apr_error err = {0};
        apr_session *s;
        options.fail_allocation = n;
        const apr_status status = apr_session_open(&s, &g.model, &options, &err);
        apr_session_close(s);
        if (status == APR_OK) break;
        print_message("%s\n", err.text);
        assert_int_equal(status, APR_E_DEVICE);
        assert_non_null(strstr(err.text, "cannot allocate"));
        options.fall_back = true;
        warning[0] = '\0';
        assert_int_equal(apr_session_open(&s, &g.model, &options, &err), APR_OK);
        assert_non_null(strstr(warning, "continuing on the host"));
        assert_string_equal(apr_session_backend_name(s), "host");
        assert_int_equal(apr_session_eval(s, prompt, N_PROMPT, NULL, NULL), APR_OK);
        assert_memory_equal(apr_session_logits(s), reference, (size_t)g.model.hparams.vocab_size * sizeof *reference);
        apr_session_close(s);
    }
    assert_true(n > 5); /* cuBLAS' workspace, weights, vectors, states, activations, logits, workspace */
    free(reference);
}

static void what_does_not_fit_is_refused_before_the_first_allocation_and_forced_with_a_warning(void **state)
{
    (void)state;
    apr_session_options options = on_device();
    apr_error err = {0};
    apr_session *s;

    options.headroom_bytes = (uint64_t)1 << 50;
    options.fail_allocation = 1; /* it would show */
    assert_int_equal(apr_session_open(&s, &g.model, &options, &err), APR_E_MEMORY);
    print_message("%s\n", err.text);
    assert_non_null(strstr(err.text, "headroom"));
    options.fail_allocation = 0;
    options.force = true;
    warning[0] = '\0';
    assert_int_equal(apr_session_open(&s, &g.model, &options, &err), APR_OK);
    assert_non_null(strstr(warning, "continuing because of --force"));
    apr_session_close(s);
}

static void a_library_without_code_for_the_device_is_refused(void **state)
{
    (void)state;
    apr_cuda_api other = *cuda;
    apr_session_options options = on_device();
    apr_error err = {0};
    apr_session *s;

    other.architectures = "999";
    options.cuda = &other;
    assert_int_equal(apr_session_open(&s, &g.model, &options, &err), APR_E_UNSUPPORTED);
    print_message("%s\n", err.text);
    assert_non_null(strstr(err.text, "ARCHS="));
}

/* aprrun next to this program, with a drill. */
static int child(const char *fault, int seconds, char *text, size_t n_text)
{
    char program[4096], path[4200];
    const ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    int exit_code;

    assert_true(n > 0);
    program[n] = '\0';
    snprintf(path, sizeof path, "%s/aprrun", dirname(program));
    const char *const argv[] = {path, "doctor", "--drill", fault, NULL};
    assert_int_equal(apr_probe_child(argv, seconds, &exit_code, text, n_text, NULL), APR_OK);
    return exit_code;
}

static void a_kernel_out_of_bounds_ends_a_child_with_exit_code_7_and_a_sentence(void **state)
{
    (void)state;
    char text[1024];
    assert_int_equal(child("out-of-bounds", 60, text, sizeof text), APR_E_DEVICE);
    print_message("%s\n", text);
    assert_non_null(strstr(text, "writes out of bounds"));
    assert_non_null(strstr(text, "illegal memory access"));
}

static void impossible_dimensions_are_reported_with_them(void **state)
{
    (void)state;
    char text[1024];
    assert_int_equal(child("bad-gemm", 60, text, sizeof text), APR_E_DEVICE);
    print_message("%s\n", text);
    assert_non_null(strstr(text, "[64, -64]"));
}

static void a_probe_that_hangs_is_ended(void **state)
{
    (void)state;
    char text[1024];
    assert_int_equal(child("hang", 4, text, sizeof text), -1);
}

/* The last one: nothing works on the device afterwards in this process. */
static void a_device_lost_in_the_middle_is_named_and_auto_goes_on_on_the_host(void **state)
{
    (void)state;
    apr_session_options options = on_device();
    float *const reference = host_logits();
    apr_error err = {0};
    apr_session *s, *strict;

    assert_int_equal(apr_session_open(&strict, &g.model, &options, &err), APR_OK);
    options.fall_back = true;
    assert_int_equal(apr_session_open(&s, &g.model, &options, &err), APR_OK);
    assert_int_equal(apr_session_eval(s, prompt, N_PROMPT - 1, NULL, &err), APR_OK);
    assert_string_equal(apr_session_backend_name(s), "cuda");
    assert_int_equal(drill(s->places[0].device, APR_CUDA_DRILL_OUT_OF_BOUNDS, &err), APR_E_DEVICE);
    warning[0] = '\0';
    assert_int_equal(apr_session_eval(s, prompt + N_PROMPT - 1, 1, NULL, NULL), APR_OK);
    print_message("%s\n", warning);
    assert_string_equal(apr_session_backend_name(s), "host");
    assert_int_equal(apr_session_position(s), N_PROMPT);
    assert_true(largest_difference(apr_session_logits(s), reference, (size_t)g.model.hparams.vocab_size) < 1e-3);
    err = (apr_error){0};
    assert_int_equal(apr_session_eval(strict, prompt, N_PROMPT, NULL, &err), APR_E_DEVICE);
    print_message("%s\n", err.text);
    assert_non_null(strstr(err.text, "illegal memory access"));
    apr_session_close(s);
    apr_session_close(strict);
    free(reference);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_allocation_that_fails_names_its_line_and_auto_goes_on_on_the_host),
        cmocka_unit_test(what_does_not_fit_is_refused_before_the_first_allocation_and_forced_with_a_warning),
        cmocka_unit_test(a_library_without_code_for_the_device_is_refused),
        cmocka_unit_test(a_kernel_out_of_bounds_ends_a_child_with_exit_code_7_and_a_sentence),
        cmocka_unit_test(impossible_dimensions_are_reported_with_them),
        cmocka_unit_test(a_probe_that_hangs_is_ended),
        cmocka_unit_test(a_device_lost_in_the_middle_is_named_and_auto_goes_on_on_the_host),
    };
    apr_error err = {0};
    int n;
    if (apr_cuda_load_drills(&cuda, &drill, &err) != APR_OK || cuda->count(&n, &err) != APR_OK) {
        printf("skipped: no device (%s)\n", err.text);
        return 77;
    }
    if (golden_open(&g, "tests/data/tiny-qwen2", &err) != APR_OK) {
        printf("%s\n", err.text);
        return 1;
    }
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    golden_close(&g);
    return failed;
}
