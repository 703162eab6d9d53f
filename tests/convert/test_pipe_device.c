/* test_pipe_device.c - the way through a device with workers that are really the host: same bytes and figures as without, in
 * bounded memory, and failures that come out as their sentence. */
#include "convert/pipe.h"

#include "formats/model/made.h"
#include "formats/number/half.h"
#include "kernels/rows.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

/* ---- a device made of the reference codecs ---- */

struct apr_cuda_device {
    int n_open, n_started; /* workers, portions */
};

typedef struct fake_worker {
    apr_cuda_worker worker; /* first */
    apr_cuda_device *device;
    apr_cuda_worker_sizes sizes;
    apr_cuda_portion portion;
    bool started;
} fake_worker;

static apr_cuda_device devices[4];
static int n_devices = 1;
static bool all_must_start;                    /* the first portion of each device waits for those of the others */
static int n_open, n_most, n_started, fail_at; /* fail_at: the portion whose start fails; 0: none */

static bool decodes(apr_dtype dtype) { return apr_can_decode(dtype) && dtype != APR_IQ4_NL; }

static int workers_free = 1000; /* room for so many on the device */

static apr_status room(apr_cuda_device *device, const apr_cuda_worker_sizes *sizes, int n_workers, apr_error *err)
{
    (void)device, (void)sizes;
    return n_workers <= workers_free ? APR_OK : apr_fail(err, APR_E_MEMORY, "the device is full");
}

static apr_status open_worker(apr_cuda_device *device, const apr_cuda_worker_sizes *sizes, apr_cuda_worker **worker, apr_error *err)
{
    fake_worker *const l = calloc(1, sizeof *l);
    (void)err;
    assert_non_null(l);
    l->device = device;
    __atomic_add_fetch(&device->n_open, 1, __ATOMIC_RELAXED);
    l->sizes = *sizes;
    l->worker = (apr_cuda_worker){.in = malloc(sizes->in_bytes + 1),
                                  .factors = malloc((size_t)sizes->n_factors * sizeof(float) + 1),
                                  .out = malloc(sizes->out_bytes + 1),
                                  .row_scales = malloc((size_t)sizes->n_rows * sizeof(float) + 1)};
    *worker = &l->worker;
    const int n_now = __atomic_add_fetch(&n_open, 1, __ATOMIC_RELAXED);
    int before = __atomic_load_n(&n_most, __ATOMIC_RELAXED);
    while (n_now > before && !__atomic_compare_exchange_n(&n_most, &before, n_now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) continue;
    return APR_OK;
}

static void close_worker(apr_cuda_worker *worker)
{
    if (worker == NULL) return;
    free(worker->in);
    free(worker->factors);
    free(worker->out);
    free(worker->row_scales);
    ((fake_worker *)worker)->device->n_open--;
    free(worker);
    n_open--;
}

static void wait_for_all(void)
{
    for (int i = 0; i < n_devices; i++)
        for (int ms = 0; __atomic_load_n(&devices[i].n_started, __ATOMIC_RELAXED) == 0; ms++) {
            if (ms > 20000) fail_msg("device %d is given nothing", i);
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        }
}

static apr_status start(apr_cuda_worker *worker, const apr_cuda_portion *portion, apr_error *err)
{
    fake_worker *const l = (fake_worker *)worker;
    __atomic_add_fetch(&l->device->n_started, 1, __ATOMIC_RELAXED);
    if (all_must_start) wait_for_all();
    if (__atomic_add_fetch(&n_started, 1, __ATOMIC_RELAXED) == fail_at) return apr_fail(err, APR_E_DEVICE, "the device broke");
    const bool flat = portion->from == APR_APR_Q8; /* without the scale that apr_row_bytes counts */
    if (portion->in_bytes != (size_t)(flat ? portion->n_elems : apr_row_bytes(portion->from, portion->n_elems)))
        return apr_fail(err, APR_E_USAGE, "not the bytes of the portion");
    if (portion->n_elems > l->sizes.n_elems || portion->in_bytes > l->sizes.in_bytes)
        return apr_fail(err, APR_E_USAGE, "too large for the worker");
    l->portion = *portion;
    return APR_OK;
}

static apr_status wait_worker(apr_cuda_worker *worker, apr_misfits *misfits, apr_error *err)
{
    fake_worker *const l = (fake_worker *)worker;
    const apr_cuda_portion *const p = &l->portion;
    const apr_dtype from = p->from == APR_APR_Q8 ? APR_I8 : p->from; /* the factor is beside it */
    float *const values = malloc((size_t)p->n_elems * sizeof *values);
    (void)err;
    assert_non_null(values);
    apr_ref_codecs[from].decode(worker->in, values, p->n_elems);
    for (int64_t i = 0; i < p->n_elems && p->factors_wide > 0; i++)
        values[i] *= worker->factors[i / p->columns * p->factors_wide + i % p->columns / p->factors_group];
    *misfits = apr_find_misfits(values, p->n_elems, p->to);
    assert_memory_equal(&p->range, &(apr_range[]){apr_encode_range(p->to)}, 2 * sizeof(float));
    if (p->saturate) apr_saturate(values, values, p->n_elems, p->to);
    if (p->to != APR_F8_E4M3) apr_ref_codecs[p->to].encode(values, worker->out, p->n_elems);
    for (int64_t r = 0; p->to == APR_F8_E4M3 && r < p->n_elems / p->columns; r++)
        apr_encode_fp8_row(values + r * p->columns, worker->out + r * p->columns, &worker->row_scales[r], p->columns);
    free(values);
    return APR_OK;
}

static const apr_cuda_codecs fake = {.decodes = decodes,
                                     .encodes = apr_can_encode,
                                     .room = room,
                                     .open_worker = open_worker,
                                     .close_worker = close_worker,
                                     .start = start,
                                     .wait = wait_worker};

/* ---- a sink that remembers ---- */

typedef struct memory_sink {
    apr_sink base;
    uint8_t *bytes;
    size_t n, room;
    size_t fail_after; /* bytes; 0: never */
} memory_sink;

static apr_status put(apr_sink *sink, const void *bytes, size_t n_bytes, apr_error *err)
{
    memory_sink *const s = (memory_sink *)sink;
    if (s->fail_after > 0 && s->n + n_bytes > s->fail_after) return apr_fail(err, APR_E_IO, "the disk is full");
    assert_true(n_bytes <= s->room - s->n);
    memcpy(s->bytes + s->n, bytes, n_bytes);
    s->n += n_bytes;
    return APR_OK;
}

static memory_sink new_sink(size_t room)
{
    static const apr_sink_ops ops = {.put = put};
    const memory_sink s = {.base = {&ops}, .bytes = malloc(room), .room = room};
    assert_non_null(s.bytes);
    return s;
}

/* ---- tensors ---- */

static uint8_t *noise(size_t n_bytes, uint32_t seed)
{
    uint8_t *const bytes = malloc(n_bytes);
    assert_non_null(bytes);
    for (size_t i = 0; i < n_bytes; i++) {
        seed = seed * 1664525u + 1013904223u;
        bytes[i] = (uint8_t)(seed >> 24);
    }
    return bytes;
}

/* Random bytes; those of floats get exponents that are of this world. */
static apr_tensor make_tensor(const char *name, apr_dtype dtype, int64_t rows, int64_t columns)
{
    apr_tensor t = {.name = name, .dtype = dtype, .rank = 2, .dims = {rows, columns}};
    if (dtype == APR_APR_Q8) t.n_bytes = (uint64_t)(rows * columns) + sizeof(float);
    else assert_int_equal(apr_tensor_size(&t, "test", NULL), APR_OK);
    uint8_t *const bytes = noise((size_t)t.n_bytes, (uint32_t)(rows + columns));
    for (size_t i = 1; dtype == APR_F16 && i < t.n_bytes; i += 2) bytes[i] = (uint8_t)((bytes[i] & 0x83) | 0x30);
    if (dtype == APR_APR_Q8) memcpy(bytes, &(float){0.01f}, sizeof(float));
    t.data = bytes;
    return t;
}

typedef struct fixture {
    apr_tensor tensors[8], scale;
    apr_pipe_item items[12];
    size_t n_items;
} fixture;

static void add(fixture *f, size_t tensor, apr_dtype to)
{
    f->items[f->n_items++] = (apr_pipe_item){.from = &f->tensors[tensor], .to = to};
    if (to == APR_F8_E4M3) f->items[f->n_items++] = (apr_pipe_item){.from = &f->tensors[tensor], .to = APR_F32, .is_scales = true};
}

/* Plain, moved, scaled, flat and small tensors; one that is copied, and one of a type that this device does not read. */
static void make_fixture(fixture *f)
{
    *f = (fixture){0};
    f->tensors[0] = make_tensor("large", APR_F16, 3001, 1536); /* more than a job, no whole number of portions */
    f->tensors[1] = make_tensor("moved", APR_F16, 512, 256);
    f->tensors[1].pending = (apr_step){APR_STEP_HALVES_TO_PAIRS, {4}};
    f->tensors[2] = make_tensor("scaled", APR_F8_E4M3, 300, 512);
    f->scale = make_tensor("scale", APR_F16, 3, 4);
    f->tensors[2].scale = &f->scale;
    f->tensors[2].scale_rows = f->tensors[2].scale_columns = 128;
    f->tensors[3] = make_tensor("flat q8", APR_APR_Q8, 256, 512);
    f->tensors[4] = make_tensor("small", APR_F16, 4, 256);
    f->tensors[5] = make_tensor("copied", APR_F16, 256, 512);
    f->tensors[6] = make_tensor("unreadable", APR_IQ4_NL, 256, 512);
    f->tensors[7] = make_tensor("flat q4", APR_APR_Q4, 256, 512);
    add(f, 0, APR_Q8_0);
    add(f, 1, APR_Q4_0);
    add(f, 4, APR_Q8_0);
    add(f, 2, APR_BF16);
    add(f, 0, APR_F8_E4M3);
    add(f, 3, APR_F16);
    add(f, 5, APR_F16);
    add(f, 6, APR_F32);
    add(f, 7, APR_F32);
    add(f, 1, APR_F8_E4M3);
}

static void close_fixture(fixture *f)
{
    for (size_t i = 0; i < sizeof f->tensors / sizeof *f->tensors; i++) free((void *)(uintptr_t)f->tensors[i].data);
    free((void *)(uintptr_t)f->scale.data);
}

static apr_cuda_device *const *list_of_devices(void)
{
    static apr_cuda_device *list[4];
    for (int i = 0; i < 4; i++) {
        devices[i] = (apr_cuda_device){0};
        list[i] = &devices[i];
    }
    return list;
}

static apr_status run(fixture *f, memory_sink *sink, bool device, bool metrics, apr_error *err)
{
    const apr_pipe_options options = {
        .want_metrics = metrics, .codecs = device ? &fake : NULL, .devices = list_of_devices(), .n_devices = n_devices};
    n_started = 0;
    return apr_pipe_run(&sink->base, f->items, f->n_items, &options, err);
}

static void the_device_gives_the_hosts_bytes_and_figures(void **state)
{
    fixture f;
    apr_pipe_item on_host[12];
    memory_sink a = new_sink(1 << 25), b = new_sink(1 << 25);
    (void)state;
    make_fixture(&f);
    assert_int_equal(run(&f, &a, false, true, NULL), APR_OK);
    memcpy(on_host, f.items, sizeof on_host);
    assert_int_equal(run(&f, &b, true, true, NULL), APR_OK);
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.bytes, b.bytes, a.n);
    for (size_t i = 0; i < f.n_items; i++) {
        assert_int_equal(on_host[i].misfits.n_unusual, f.items[i].misfits.n_unusual);
        assert_memory_equal(&on_host[i].metrics, &f.items[i].metrics, sizeof f.items[i].metrics);
        const char *const name = f.items[i].from->name;
        const bool stays = strcmp(name, "small") == 0 || strcmp(name, "copied") == 0 || strcmp(name, "unreadable") == 0;
        assert_int_equal(f.items[i].on_device, !stays && !f.items[i].is_scales);
        assert_false(on_host[i].on_device);
    }
    assert_int_equal(n_open, 0);
    assert_true(n_most <= 8);
    free(a.bytes);
    free(b.bytes);
    close_fixture(&f);
}

static void several_devices_share_the_work_and_give_the_same_bytes(void **state)
{
    fixture f;
    apr_pipe_item on_one[12];
    memory_sink a = new_sink(1 << 25), b = new_sink(1 << 25);
    (void)state;
    make_fixture(&f);
    assert_int_equal(run(&f, &a, true, true, NULL), APR_OK);
    const int n_portions = n_started;
    memcpy(on_one, f.items, sizeof on_one);
    all_must_start = true;
    for (n_devices = 2; n_devices <= 4; n_devices++) {
        b.n = 0;
        n_most = 0;
        assert_int_equal(run(&f, &b, true, true, NULL), APR_OK);
        assert_int_equal(a.n, b.n);
        assert_memory_equal(a.bytes, b.bytes, a.n);
        assert_int_equal(n_started, n_portions);
        for (size_t i = 0; i < f.n_items; i++) assert_memory_equal(&on_one[i].metrics, &f.items[i].metrics, sizeof on_one[i].metrics);
        for (int i = 0; i < n_devices; i++) assert_int_equal(devices[i].n_open, 0);
        assert_true(n_most > 0 && n_most <= n_portions + n_devices);
    }
    all_must_start = false;
    n_devices = 1;
    free(a.bytes);
    free(b.bytes);
    close_fixture(&f);
}

static void any_of_several_devices_that_fails_ends_the_run(void **state)
{
    fixture f;
    (void)state;
    make_fixture(&f);
    n_devices = 3;
    for (fail_at = 1; fail_at <= 6; fail_at++) {
        memory_sink s = new_sink(1 << 25);
        apr_error err = {0};
        assert_int_equal(run(&f, &s, true, false, &err), APR_E_DEVICE);
        assert_string_equal(err.text, "the device broke");
        assert_int_equal(n_open, 0);
        free(s.bytes);
    }
    fail_at = 0;
    n_devices = 1;
    close_fixture(&f);
}

static void tensors_made_of_others_go_through_the_device(void **state)
{
    fixture f = {0};
    apr_arena arena = {0};
    apr_chain chain;
    memory_sink a = new_sink(1 << 25), b = new_sink(1 << 25);
    (void)state;
    f.tensors[0] = make_tensor("one", APR_F16, 320, 1536);
    f.tensors[1] = make_tensor("other", APR_F16, 320, 1536);
    apr_tensor made = {.name = "made"};
    const apr_tensor *const parts[] = {&f.tensors[0], &f.tensors[1]};
    assert_true(apr_chain_parse(&chain, "stack transpose deinterleave:1,2"));
    assert_int_equal(apr_tensor_make(&made, parts, 2, &chain, &arena, "test", NULL), APR_OK);
    f.tensors[2] = made;
    add(&f, 2, APR_Q8_0);
    add(&f, 2, APR_F8_E4M3);
    add(&f, 2, APR_F16);
    assert_int_equal(run(&f, &a, false, false, NULL), APR_OK);
    assert_int_equal(run(&f, &b, true, false, NULL), APR_OK);
    assert_true(f.items[0].on_device && f.items[1].on_device);
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.bytes, b.bytes, a.n);
    free(a.bytes);
    free(b.bytes);
    close_fixture(&f);
    apr_arena_close(&arena);
}

/* The sums are made on the host and encoded on the device. */
static void merged_tensors_go_through_the_device(void **state)
{
    fixture f = {0};
    apr_arena arena = {0};
    memory_sink a = new_sink(1 << 25), b = new_sink(1 << 25);
    (void)state;
    f.tensors[0] = make_tensor("base", APR_F16, 640, 1536);
    f.tensors[1] = make_tensor("a", APR_F16, 3, 1536);
    f.tensors[2] = make_tensor("b", APR_F16, 640, 3);
    f.tensors[3] = f.tensors[0];
    const apr_merge merge = {.base = &f.tensors[0], .a = &f.tensors[1], .b = &f.tensors[2], .scale = 0.25f};
    assert_int_equal(apr_tensor_merge(&f.tensors[3], &f.tensors[0], &merge, &arena, "test", NULL), APR_OK);
    add(&f, 3, APR_BF16);
    add(&f, 3, APR_Q8_0);
    add(&f, 3, APR_F8_E4M3);
    assert_int_equal(run(&f, &a, false, false, NULL), APR_OK);
    assert_int_equal(run(&f, &b, true, false, NULL), APR_OK);
    assert_true(f.items[0].on_device && f.items[1].on_device && f.items[2].on_device);
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.bytes, b.bytes, a.n);
    free(a.bytes);
    free(b.bytes);
    close_fixture(&f);
    apr_arena_close(&arena);
}

static void a_failing_device_ends_in_its_sentence(void **state)
{
    fixture f;
    (void)state;
    make_fixture(&f);
    for (fail_at = 1; fail_at <= 4; fail_at++) {
        memory_sink s = new_sink(1 << 25);
        apr_error err = {0};
        assert_int_equal(run(&f, &s, true, false, &err), APR_E_DEVICE);
        assert_string_equal(err.text, "the device broke");
        assert_int_equal(n_open, 0);
        free(s.bytes);
    }
    fail_at = 0;
    close_fixture(&f);
}

static void a_full_device_is_refused_before_anything_is_allocated(void **state)
{
    fixture f;
    apr_error err = {0};
    memory_sink s = new_sink(1 << 25);
    (void)state;
    make_fixture(&f);
    workers_free = 3;
    n_most = 0;
    assert_int_equal(run(&f, &s, true, false, &err), APR_E_MEMORY);
    assert_string_equal(err.text, "the device is full");
    assert_int_equal(n_most, 0);
    assert_int_equal(s.n, 0);
    workers_free = 1000;
    free(s.bytes);
    close_fixture(&f);
}

/* ---- values that a type cannot hold ---- */

enum { WIDE_ROWS = 512, WIDE_COLUMNS = 256 };

/* float32 that halves hold, but for four values and an infinity. */
static apr_tensor wide_tensor(void)
{
    apr_tensor t = make_tensor("wide.weight", APR_F32, WIDE_ROWS, WIDE_COLUMNS);
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
    const apr_pipe_options options = {
        .want_metrics = true, .saturate = saturate, .codecs = device ? &fake : NULL, .devices = list_of_devices(), .n_devices = 1};
    *item = (apr_pipe_item){.from = t, .to = to};
    s->n = 0;
    return apr_pipe_run(&s->base, item, 1, &options, err);
}

static void a_finite_value_that_would_be_lost_ends_the_run(void **state)
{
    static const struct {
        apr_dtype to;
        int64_t n_beyond;
        const char *says;
    } cases[] = {{APR_F16, 4, "ends at 65504) and would become infinite"},
                 {APR_Q8_0, 2, "q8_0 ends at"},
                 {APR_Q4_K, 2, "q4_k ends at"},
                 {APR_BF16, 0, NULL},
                 {APR_F32, 0, NULL}};
    const apr_tensor t = wide_tensor();
    memory_sink s = new_sink(1 << 22);
    apr_pipe_item item;
    (void)state;
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        apr_error err = {0};
        const apr_dtype to = cases[i / 2].to;
        if (to == APR_F32) continue; /* a copy */
        const apr_status status = run_one(&t, to, &s, i % 2 == 1, false, &item, &err);
        assert_int_equal(item.misfits.n_unusual, 1);
        assert_int_equal(item.misfits.n_beyond, cases[i / 2].n_beyond);
        assert_int_equal(status, cases[i / 2].says != NULL ? APR_E_UNSUPPORTED : APR_OK);
        if (cases[i / 2].says == NULL) continue;
        assert_true(item.misfits.worst == 3e9f);
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
    memory_sink a = new_sink(1 << 22), b = new_sink(1 << 22);
    apr_pipe_item on_host, on_device;
    (void)state;
    for (int to = 0; to < APR_DTYPE_COUNT; to++) {
        if (!apr_can_encode((apr_dtype)to) || to == APR_F32 || to == APR_F8_E4M3) continue;
        assert_int_equal(run_one(&t, (apr_dtype)to, &a, false, true, &on_host, NULL), APR_OK);
        assert_int_equal(run_one(&t, (apr_dtype)to, &b, true, true, &on_device, NULL), APR_OK);
        assert_int_equal(a.n, b.n);
        assert_memory_equal(a.bytes, b.bytes, a.n);
        assert_int_equal(on_host.misfits.n_beyond, on_device.misfits.n_beyond);
        assert_true(on_device.on_device && on_host.misfits.worst == on_device.misfits.worst);
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
    apr_tensor t = make_tensor("double", APR_F64, 256, 512);
    double *const x = (double *)(uintptr_t)t.data;
    memory_sink s = new_sink(1 << 22);
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
    assert_int_equal(item.misfits.n_unusual, 1);
    free(s.bytes);
    free(x);
}

static void a_full_disk_stops_the_fillers(void **state)
{
    fixture f;
    apr_error err = {0};
    memory_sink s = new_sink(1 << 25);
    (void)state;
    make_fixture(&f);
    s.fail_after = 1000000;
    assert_int_equal(run(&f, &s, true, false, &err), APR_E_IO);
    assert_string_equal(err.text, "the disk is full");
    assert_int_equal(n_open, 0);
    free(s.bytes);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_device_gives_the_hosts_bytes_and_figures),
        cmocka_unit_test(several_devices_share_the_work_and_give_the_same_bytes),
        cmocka_unit_test(any_of_several_devices_that_fails_ends_the_run),
        cmocka_unit_test(tensors_made_of_others_go_through_the_device),
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
