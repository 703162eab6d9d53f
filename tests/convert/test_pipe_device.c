/* test_pipe_device.c - the way through a device with workers that are really the host: same bytes and figures as without, in
 * bounded memory, and failures that come out as their sentence. */
#include "convert/pipe.h"

#include "formats/number/half.h"
#include "formats/tensor/composed.h"
#include "tests/support/pipe_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void the_device_gives_the_hosts_bytes_and_figures(void **state)
{
    pipe_fixture f;
    apr_pipe_item on_host[12];
    memory_sink a = memory_sink_new(1 << 25), b = memory_sink_new(1 << 25);
    (void)state;
    pipe_fixture_make(&f);
    assert_int_equal(pipe_fixture_run(&f, &a, false, true, NULL), APR_OK);
    memcpy(on_host, f.items, sizeof on_host);
    assert_int_equal(pipe_fixture_run(&f, &b, true, true, NULL), APR_OK);
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.bytes, b.bytes, a.n);
    for (size_t i = 0; i < f.n_items; i++) {
        assert_int_equal(on_host[i].out_of_range.n_nonfinite, f.items[i].out_of_range.n_nonfinite);
        assert_memory_equal(&on_host[i].metrics, &f.items[i].metrics, sizeof f.items[i].metrics);
        const char *const name = f.items[i].from->name;
        const bool stays = strcmp(name, "small") == 0 || strcmp(name, "copied") == 0 || strcmp(name, "unreadable") == 0;
        assert_int_equal(f.items[i].on_device, !stays && !f.items[i].is_scales);
        assert_false(on_host[i].on_device);
    }
    assert_int_equal(fake_codecs_is.n_open, 0);
    assert_true(fake_codecs_is.n_most <= 16);
    free(a.bytes);
    free(b.bytes);
    pipe_fixture_close(&f);
}

/* A stack of matrices whose jobs begin in the middle of one, a plain matrix, and a type that this device encodes without importance only.
 */
static void importance_goes_to_the_device_with_the_values(void **state)
{
    enum { COLUMNS = 512, MATRICES = 13, ROWS = 700 };
    float *const columns = malloc(MATRICES * COLUMNS * sizeof *columns);
    memory_sink a = memory_sink_new(1 << 25), b = memory_sink_new(1 << 25), plain = memory_sink_new(1 << 25);
    pipe_fixture f = {0};
    (void)state;
    assert_non_null(columns);
    for (int i = 0; i < MATRICES * COLUMNS; i++) columns[i] = (float)(i * 7919 % 1001 + i / COLUMNS);
    f.tensors[0] = pipe_tensor("stack", APR_F16, MATRICES * ROWS, COLUMNS);
    f.tensors[0].rank = 3;
    f.tensors[0].dims[0] = MATRICES, f.tensors[0].dims[1] = ROWS, f.tensors[0].dims[2] = COLUMNS;
    f.tensors[1] = pipe_tensor("moved", APR_F16, 512, 256);
    f.tensors[1].pending = (apr_step){APR_STEP_HALVES_TO_PAIRS, {4}};
    pipe_fixture_add(&f, 0, APR_Q4_0);
    pipe_fixture_add(&f, 1, APR_MXFP4);
    pipe_fixture_add(&f, 1, APR_Q5_1);
    pipe_fixture_add(&f, 1, APR_Q8_0);
    assert_int_equal(pipe_fixture_run(&f, &plain, false, false, NULL), APR_OK);
    for (size_t i = 0; i < f.n_items; i++) f.items[i].importance = columns;
    assert_int_equal(pipe_fixture_run(&f, &a, false, false, NULL), APR_OK);
    assert_int_equal(pipe_fixture_run(&f, &b, true, false, NULL), APR_OK);
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.bytes, b.bytes, a.n);
    assert_memory_not_equal(a.bytes, plain.bytes, a.n);
    assert_true(f.items[0].on_device && f.items[1].on_device && f.items[3].on_device);
    assert_false(f.items[2].on_device);
    free(a.bytes);
    free(b.bytes);
    free(plain.bytes);
    free(columns);
    pipe_fixture_close(&f);
}

static void several_devices_share_the_work_and_give_the_same_bytes(void **state)
{
    pipe_fixture f;
    apr_pipe_item on_one[12];
    memory_sink a = memory_sink_new(1 << 25), b = memory_sink_new(1 << 25);
    (void)state;
    pipe_fixture_make(&f);
    assert_int_equal(pipe_fixture_run(&f, &a, true, true, NULL), APR_OK);
    const int n_portions = fake_codecs_is.n_started;
    memcpy(on_one, f.items, sizeof on_one);
    fake_codecs_is.all_must_start = true;
    for (fake_codecs_is.n_devices = 2; fake_codecs_is.n_devices <= 4; fake_codecs_is.n_devices++) {
        b.n = 0;
        fake_codecs_is.n_most = 0;
        assert_int_equal(pipe_fixture_run(&f, &b, true, true, NULL), APR_OK);
        assert_int_equal(a.n, b.n);
        assert_memory_equal(a.bytes, b.bytes, a.n);
        assert_int_equal(fake_codecs_is.n_started, n_portions);
        for (size_t i = 0; i < f.n_items; i++) assert_memory_equal(&on_one[i].metrics, &f.items[i].metrics, sizeof on_one[i].metrics);
        for (int i = 0; i < fake_codecs_is.n_devices; i++) assert_int_equal(fake_codecs_open_on(i), 0);
        assert_true(fake_codecs_is.n_most > 0 && fake_codecs_is.n_most <= n_portions + fake_codecs_is.n_devices);
    }
    fake_codecs_is.all_must_start = false;
    fake_codecs_is.n_devices = 1;
    free(a.bytes);
    free(b.bytes);
    pipe_fixture_close(&f);
}

static void any_of_several_devices_that_fails_ends_the_run(void **state)
{
    pipe_fixture f;
    (void)state;
    pipe_fixture_make(&f);
    fake_codecs_is.n_devices = 3;
    for (fake_codecs_is.fail_at = 1; fake_codecs_is.fail_at <= 6; fake_codecs_is.fail_at++) {
        memory_sink s = memory_sink_new(1 << 25);
        apr_error err = {0};
        assert_int_equal(pipe_fixture_run(&f, &s, true, false, &err), APR_E_DEVICE);
        assert_string_equal(err.text, "the device broke");
        assert_int_equal(fake_codecs_is.n_open, 0);
        free(s.bytes);
    }
    fake_codecs_is.fail_at = 0;
    fake_codecs_is.n_devices = 1;
    pipe_fixture_close(&f);
}

static void composed_tensors_go_through_the_device(void **state)
{
    pipe_fixture f = {0};
    apr_arena arena = {0};
    apr_chain chain;
    memory_sink a = memory_sink_new(1 << 25), b = memory_sink_new(1 << 25);
    (void)state;
    f.tensors[0] = pipe_tensor("one", APR_F16, 320, 1536);
    f.tensors[1] = pipe_tensor("other", APR_F16, 320, 1536);
    apr_tensor made = {.name = "made"};
    const apr_tensor *const parts[] = {&f.tensors[0], &f.tensors[1]};
    assert_true(apr_chain_parse(&chain, "stack transpose deinterleave:1,2"));
    assert_int_equal(apr_tensor_compose(&made, parts, 2, &chain, &arena, "test", NULL), APR_OK);
    f.tensors[2] = made;
    pipe_fixture_add(&f, 2, APR_Q8_0);
    pipe_fixture_add(&f, 2, APR_F8_E4M3);
    pipe_fixture_add(&f, 2, APR_F16);
    assert_int_equal(pipe_fixture_run(&f, &a, false, false, NULL), APR_OK);
    assert_int_equal(pipe_fixture_run(&f, &b, true, false, NULL), APR_OK);
    assert_true(f.items[0].on_device && f.items[1].on_device);
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.bytes, b.bytes, a.n);
    free(a.bytes);
    free(b.bytes);
    pipe_fixture_close(&f);
    apr_arena_close(&arena);
}

/* The sums are made on the host and encoded on the device. */
static void merged_tensors_go_through_the_device(void **state)
{
    pipe_fixture f = {0};
    apr_arena arena = {0};
    memory_sink a = memory_sink_new(1 << 25), b = memory_sink_new(1 << 25);
    (void)state;
    f.tensors[0] = pipe_tensor("base", APR_F16, 640, 1536);
    f.tensors[1] = pipe_tensor("a", APR_F16, 3, 1536);
    f.tensors[2] = pipe_tensor("b", APR_F16, 640, 3);
    f.tensors[3] = f.tensors[0];
    const apr_merge merge = {.base = &f.tensors[0], .a = &f.tensors[1], .b = &f.tensors[2], .scale = 0.25f};
    assert_int_equal(apr_tensor_merge(&f.tensors[3], &f.tensors[0], &merge, &arena, "test", NULL), APR_OK);
    pipe_fixture_add(&f, 3, APR_BF16);
    pipe_fixture_add(&f, 3, APR_Q8_0);
    pipe_fixture_add(&f, 3, APR_F8_E4M3);
    assert_int_equal(pipe_fixture_run(&f, &a, false, false, NULL), APR_OK);
    assert_int_equal(pipe_fixture_run(&f, &b, true, false, NULL), APR_OK);
    assert_true(f.items[0].on_device && f.items[1].on_device && f.items[2].on_device);
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.bytes, b.bytes, a.n);
    free(a.bytes);
    free(b.bytes);
    pipe_fixture_close(&f);
    apr_arena_close(&arena);
}

static void a_failing_device_ends_in_its_sentence(void **state)
{
    pipe_fixture f;
    (void)state;
    pipe_fixture_make(&f);
    for (fake_codecs_is.fail_at = 1; fake_codecs_is.fail_at <= 4; fake_codecs_is.fail_at++) {
        memory_sink s = memory_sink_new(1 << 25);
        apr_error err = {0};
        assert_int_equal(pipe_fixture_run(&f, &s, true, false, &err), APR_E_DEVICE);
        assert_string_equal(err.text, "the device broke");
        assert_int_equal(fake_codecs_is.n_open, 0);
        free(s.bytes);
    }
    fake_codecs_is.fail_at = 0;
    pipe_fixture_close(&f);
}

static void a_full_device_is_refused_before_anything_is_allocated(void **state)
{
    pipe_fixture f;
    apr_error err = {0};
    memory_sink s = memory_sink_new(1 << 25);
    (void)state;
    pipe_fixture_make(&f);
    fake_codecs_is.workers_free = 3;
    fake_codecs_is.n_most = 0;
    assert_int_equal(pipe_fixture_run(&f, &s, true, false, &err), APR_E_MEMORY);
    assert_string_equal(err.text, "the device is full");
    assert_int_equal(fake_codecs_is.n_most, 0);
    assert_int_equal(s.n, 0);
    fake_codecs_is.workers_free = 1000;
    free(s.bytes);
    pipe_fixture_close(&f);
}

/* ---- values that a type cannot hold ---- */

enum { WIDE_ROWS = 512, WIDE_COLUMNS = 256 };

/* float32 values that FP16 holds, except four values and an infinity. */
static apr_tensor wide_tensor(void)
{
    apr_tensor t = pipe_tensor("wide.weight", APR_F32, WIDE_ROWS, WIDE_COLUMNS);
    float *const x = (float *)(uintptr_t)t.data;
    for (int i = 0; i < WIDE_ROWS * WIDE_COLUMNS; i++) x[i] = (float)(i % 401 - 200) * 0.125f;
    x[3] = 7e4f;
    x[70000] = -3e9f;
    x[70001] = 3e9f;
    x[131071] = 65520.0f;
    x[131070] = -INFINITY;
    return t;
}

static apr_status run_one(const apr_tensor *t, apr_dtype to, memory_sink *s, bool device, bool saturate, apr_pipe_item *item,
                          apr_error *err)
{
    const apr_pipe_options options = {.want_metrics = true,
                                      .saturate = saturate,
                                      .codecs = device ? &fake_codecs : NULL,
                                      .devices = fake_codecs_devices(),
                                      .n_devices = 1};
    *item = (apr_pipe_item){.from = t, .to = to};
    s->n = 0;
    return apr_pipe_run(&s->base, item, 1, &options, err);
}

static void a_finite_value_that_would_be_lost_ends_the_run(void **state)
{
    static const struct {
        apr_dtype to;
        int64_t n_out_of_range;
        const char *says;
    } cases[] = {{APR_F16, 4, "the limit of f16 is 65504) and would become infinite"},
                 {APR_Q8_0, 2, "the limit of q8_0 is"},
                 {APR_Q4_K, 2, "the limit of q4_k is"},
                 {APR_BF16, 0, NULL},
                 {APR_F32, 0, NULL}};
    const apr_tensor t = wide_tensor();
    memory_sink s = memory_sink_new(1 << 22);
    apr_pipe_item item;
    (void)state;
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        apr_error err = {0};
        const apr_dtype to = cases[i / 2].to;
        if (to == APR_F32) continue; /* a copy */
        const apr_status status = run_one(&t, to, &s, i % 2 == 1, false, &item, &err);
        assert_int_equal(item.out_of_range.n_nonfinite, 1);
        assert_int_equal(item.out_of_range.n_out_of_range, cases[i / 2].n_out_of_range);
        assert_int_equal(status, cases[i / 2].says != NULL ? APR_E_UNSUPPORTED : APR_OK);
        if (cases[i / 2].says == NULL) continue;
        assert_true(item.out_of_range.worst == 3e9f);
        assert_non_null(strstr(err.text, "tensor 'wide.weight'"));
        assert_non_null(strstr(err.text, cases[i / 2].says));
        assert_non_null(strstr(err.text, "--tensor 'wide.weight=bf16'"));
        assert_non_null(strstr(err.text, "--saturate"));
    }
    free(s.bytes);
    free((void *)(uintptr_t)t.data);
}

static void asked_to_saturate_it_becomes_the_largest_and_is_counted(void **state)
{
    const apr_tensor t = wide_tensor();
    memory_sink a = memory_sink_new(1 << 22), b = memory_sink_new(1 << 22);
    apr_pipe_item on_host, on_device;
    (void)state;
    for (int to = 0; to < APR_DTYPE_COUNT; to++) {
        if (!apr_can_encode((apr_dtype)to) || to == APR_F32 || to == APR_F8_E4M3) continue;
        assert_int_equal(run_one(&t, (apr_dtype)to, &a, false, true, &on_host, NULL), APR_OK);
        assert_int_equal(run_one(&t, (apr_dtype)to, &b, true, true, &on_device, NULL), APR_OK);
        assert_int_equal(a.n, b.n);
        assert_memory_equal(a.bytes, b.bytes, a.n);
        assert_int_equal(on_host.out_of_range.n_out_of_range, on_device.out_of_range.n_out_of_range);
        assert_true(on_device.on_device && on_host.out_of_range.worst == on_device.out_of_range.worst);
        assert_memory_equal(&on_host.metrics, &on_device.metrics, sizeof on_host.metrics);
    }
    assert_int_equal(run_one(&t, APR_F16, &a, false, true, &on_host, NULL), APR_OK);
    const uint16_t *const half = (const uint16_t *)(const void *)a.bytes;
    assert_int_equal(half[3], 0x7bff);
    assert_int_equal(half[70000], 0xfbff);
    assert_int_equal(half[70001], 0x7bff);
    assert_int_equal(half[131071], 0x7bff);
    assert_int_equal(half[131070], 0xfc00); /* was infinite, and is */
    assert_int_equal(half[4], apr_f32_to_f16((4 - 200) * 0.125f));
    assert_true(on_host.metrics.max_error >= 3e9f - 65504.0f); /* of what was given, not of what was cut off */
    free(a.bytes);
    free(b.bytes);
    free((void *)(uintptr_t)t.data);
}

static void doubles_beyond_float32_can_only_be_kept(void **state)
{
    apr_tensor t = pipe_tensor("double", APR_F64, 256, 512);
    double *const x = (double *)(uintptr_t)t.data;
    memory_sink s = memory_sink_new(1 << 22);
    apr_pipe_item item;
    (void)state;
    for (int i = 0; i < 256 * 512; i++) x[i] = 1.0;
    x[9] = -1e300;
    for (int i = 0; i < 4; i++) {
        apr_error err = {0};
        assert_int_equal(run_one(&t, APR_BF16, &s, i % 2, i / 2, &item, &err), APR_E_UNSUPPORTED);
        assert_non_null(strstr(err.text, "tensor 'double': 1 of its 131072 values"));
        assert_non_null(strstr(err.text, "-1e+300"));
    }
    assert_int_equal(run_one(&t, APR_F64, &s, false, false, &item, NULL), APR_OK);
    x[9] = -INFINITY;
    assert_int_equal(run_one(&t, APR_BF16, &s, false, false, &item, NULL), APR_OK);
    assert_int_equal(item.out_of_range.n_nonfinite, 1);
    free(s.bytes);
    free(x);
}

static void a_full_disk_stops_the_fillers(void **state)
{
    pipe_fixture f;
    apr_error err = {0};
    memory_sink s = memory_sink_new(1 << 25);
    (void)state;
    pipe_fixture_make(&f);
    s.fail_after = 1000000;
    assert_int_equal(pipe_fixture_run(&f, &s, true, false, &err), APR_E_IO);
    assert_string_equal(err.text, "the disk is full");
    assert_int_equal(fake_codecs_is.n_open, 0);
    free(s.bytes);
    pipe_fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_device_gives_the_hosts_bytes_and_figures),
        cmocka_unit_test(importance_goes_to_the_device_with_the_values),
        cmocka_unit_test(several_devices_share_the_work_and_give_the_same_bytes),
        cmocka_unit_test(any_of_several_devices_that_fails_ends_the_run),
        cmocka_unit_test(composed_tensors_go_through_the_device),
        cmocka_unit_test(merged_tensors_go_through_the_device),
        cmocka_unit_test(a_failing_device_ends_in_its_sentence),
        cmocka_unit_test(a_full_device_is_refused_before_anything_is_allocated),
        cmocka_unit_test(a_finite_value_that_would_be_lost_ends_the_run),
        cmocka_unit_test(asked_to_saturate_it_becomes_the_largest_and_is_counted),
        cmocka_unit_test(doubles_beyond_float32_can_only_be_kept),
        cmocka_unit_test(a_full_disk_stops_the_fillers),
    };
    return cmocka_run_group_tests_name("pipe_device", tests, NULL, NULL);
}
