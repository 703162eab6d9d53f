/* test_pipe_device.c - the way through a device with lanes that are really the host: same bytes and figures as without, in
 * bounded memory, and failures that come out as their sentence. */
#include "convert/pipe.h"

#include "kernels/rows.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- a device made of the reference codecs ---- */

typedef struct fake_lane {
    apr_cuda_lane lane; /* first */
    apr_cuda_lane_sizes sizes;
    apr_cuda_piece piece;
    bool started;
} fake_lane;

static int n_open, n_most, n_started, fail_at; /* fail_at: the piece whose start fails; 0: none */

static bool decodes(apr_dtype dtype) { return apr_can_decode(dtype) && dtype != APR_IQ4_NL; }

static apr_status open_lane(apr_cuda_device *device, const apr_cuda_lane_sizes *sizes, apr_cuda_lane **lane, apr_error *err)
{
    fake_lane *const l = calloc(1, sizeof *l);
    (void)device, (void)err;
    assert_non_null(l);
    l->sizes = *sizes;
    l->lane = (apr_cuda_lane){.in = malloc(sizes->in_bytes + 1),
                              .factors = malloc((size_t)sizes->n_factors * sizeof(float) + 1),
                              .out = malloc(sizes->out_bytes + 1),
                              .row_scales = malloc((size_t)sizes->n_rows * sizeof(float) + 1)};
    *lane = &l->lane;
    n_most = ++n_open > n_most ? n_open : n_most;
    return APR_OK;
}

static void close_lane(apr_cuda_lane *lane)
{
    if (lane == NULL) return;
    free(lane->in);
    free(lane->factors);
    free(lane->out);
    free(lane->row_scales);
    free(lane);
    n_open--;
}

static apr_status start(apr_cuda_lane *lane, const apr_cuda_piece *piece, apr_error *err)
{
    fake_lane *const l = (fake_lane *)lane;
    if (__atomic_add_fetch(&n_started, 1, __ATOMIC_RELAXED) == fail_at) return apr_fail(err, APR_E_DEVICE, "the device broke");
    const bool flat = piece->from == APR_APR_Q8; /* without the scale that apr_row_bytes counts */
    if (piece->in_bytes != (size_t)(flat ? piece->n_elems : apr_row_bytes(piece->from, piece->n_elems)))
        return apr_fail(err, APR_E_USAGE, "not the bytes of the piece");
    if (piece->n_elems > l->sizes.n_elems || piece->in_bytes > l->sizes.in_bytes)
        return apr_fail(err, APR_E_USAGE, "too large for the lane");
    l->piece = *piece;
    return APR_OK;
}

static apr_status wait_lane(apr_cuda_lane *lane, int64_t *n_unusual, apr_error *err)
{
    fake_lane *const l = (fake_lane *)lane;
    const apr_cuda_piece *const p = &l->piece;
    const apr_dtype from = p->from == APR_APR_Q8 ? APR_I8 : p->from; /* the factor is beside it */
    float *const values = malloc((size_t)p->n_elems * sizeof *values);
    (void)err;
    assert_non_null(values);
    apr_ref_codecs[from].decode(lane->in, values, p->n_elems);
    for (int64_t i = 0; i < p->n_elems && p->factors_wide > 0; i++)
        values[i] *= lane->factors[i / p->columns * p->factors_wide + i % p->columns / p->factors_group];
    *n_unusual = apr_count_unusual(values, p->n_elems);
    if (p->to != APR_F8_E4M3) apr_ref_codecs[p->to].encode(values, lane->out, p->n_elems);
    for (int64_t r = 0; p->to == APR_F8_E4M3 && r < p->n_elems / p->columns; r++)
        apr_encode_fp8_row(values + r * p->columns, lane->out + r * p->columns, &lane->row_scales[r], p->columns);
    free(values);
    return APR_OK;
}

static const apr_cuda_codecs fake = {
    .decodes = decodes, .encodes = apr_can_encode, .open_lane = open_lane, .close_lane = close_lane, .start = start, .wait = wait_lane};

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
    f->tensors[0] = make_tensor("large", APR_F16, 3001, 1536); /* more than a job, no whole number of pieces */
    f->tensors[1] = make_tensor("moved", APR_F16, 512, 256);
    f->tensors[1].pending = (apr_step){APR_STEP_HALVES_TO_PAIRS, 4};
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

static apr_status run(fixture *f, memory_sink *sink, bool device, bool metrics, apr_error *err)
{
    const apr_pipe_options options = {.want_metrics = metrics, .codecs = device ? &fake : NULL};
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
        assert_int_equal(on_host[i].n_unusual, f.items[i].n_unusual);
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
        cmocka_unit_test(a_failing_device_ends_in_its_sentence),
        cmocka_unit_test(a_full_disk_stops_the_fillers),
    };
    return cmocka_run_group_tests_name("pipe_device", tests, NULL, NULL);
}
