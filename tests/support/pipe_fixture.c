/* pipe_fixture.c - a device made of the reference codecs, a sink in memory, and tensors of random bytes. */
#include "tests/support/pipe_fixture.h"

#include "kernels/rows.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { MOST_DEVICES = 4 };

/* ---- the device ---- */

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

static apr_cuda_device devices[MOST_DEVICES];
fake_codecs_state fake_codecs_is = {.n_devices = 1, .workers_free = 1000};

static bool decodes(apr_dtype dtype) { return apr_can_decode(dtype) && dtype != APR_IQ4_NL; }

static bool encodes_by(apr_dtype dtype) { return apr_ref_codecs[dtype].encode_by != NULL && dtype != APR_Q5_1; }

static apr_status check_memory(apr_cuda_device *device, const apr_cuda_worker_sizes *sizes, int n_workers, apr_error *err)
{
    (void)device, (void)sizes;
    return n_workers <= fake_codecs_is.workers_free ? APR_OK : apr_fail(err, APR_E_MEMORY, "the device is full");
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
                                  .row_scales = malloc((size_t)sizes->n_rows * sizeof(float) + 1),
                                  .importance = malloc((size_t)sizes->n_importance * sizeof(float) + 1)};
    *worker = &l->worker;
    const int n_now = __atomic_add_fetch(&fake_codecs_is.n_open, 1, __ATOMIC_RELAXED);
    int before = __atomic_load_n(&fake_codecs_is.n_most, __ATOMIC_RELAXED);
    while (n_now > before &&
           !__atomic_compare_exchange_n(&fake_codecs_is.n_most, &before, n_now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        continue;
    return APR_OK;
}

static void close_worker(apr_cuda_worker *worker)
{
    if (worker == NULL) return;
    free(worker->in);
    free(worker->factors);
    free(worker->out);
    free(worker->row_scales);
    free(worker->importance);
    ((fake_worker *)worker)->device->n_open--;
    free(worker);
    fake_codecs_is.n_open--;
}

static void wait_for_all(void)
{
    for (int i = 0; i < fake_codecs_is.n_devices; i++)
        for (int ms = 0; __atomic_load_n(&devices[i].n_started, __ATOMIC_RELAXED) == 0; ms++) {
            if (ms > 20000) fail_msg("device %d is given nothing", i);
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        }
}

static apr_status start(apr_cuda_worker *worker, const apr_cuda_portion *portion, apr_error *err)
{
    fake_worker *const l = (fake_worker *)worker;
    __atomic_add_fetch(&l->device->n_started, 1, __ATOMIC_RELAXED);
    if (fake_codecs_is.all_must_start) wait_for_all();
    if (__atomic_add_fetch(&fake_codecs_is.n_started, 1, __ATOMIC_RELAXED) == fake_codecs_is.fail_at)
        return apr_fail(err, APR_E_DEVICE, "the device broke");
    const bool flat = portion->from == APR_APR_Q8; /* without the scale that apr_row_bytes counts */
    if (portion->in_bytes != (size_t)(flat ? portion->n_elems : apr_row_bytes(portion->from, portion->n_elems)))
        return apr_fail(err, APR_E_USAGE, "not the bytes of the portion");
    if (portion->n_elems > l->sizes.n_elems || portion->in_bytes > l->sizes.in_bytes || portion->n_importance > l->sizes.n_importance)
        return apr_fail(err, APR_E_USAGE, "too large for the worker");
    l->portion = *portion;
    return APR_OK;
}

/* As apr_cuda_portion says; every number that is asked for must have been given. */
static void encode_by_importance(const fake_worker *l, const float *values)
{
    const apr_cuda_portion *const p = &l->portion;
    float *const each = malloc((size_t)p->n_elems * sizeof *each);
    assert_non_null(each);
    for (int64_t i = 0; i < p->n_elems; i++) {
        const int64_t e = p->importance_first + i, at = e / p->importance_matrix * p->columns + e % p->columns;
        assert_true(at < p->n_importance);
        each[i] = l->worker.importance[at];
    }
    apr_ref_codecs[p->to].encode_by(values, each, l->worker.out, p->n_elems);
    free(each);
}

static apr_status wait_worker(apr_cuda_worker *worker, apr_out_of_range *out_of_range, apr_error *err)
{
    fake_worker *const l = (fake_worker *)worker;
    const apr_cuda_portion *const p = &l->portion;
    const apr_dtype from = p->from == APR_APR_Q8 ? APR_I8 : p->from; /* the factor is next to it */
    float *const values = malloc((size_t)p->n_elems * sizeof *values);
    (void)err;
    assert_non_null(values);
    apr_ref_codecs[from].decode(worker->in, values, p->n_elems);
    for (int64_t i = 0; i < p->n_elems && p->factors_wide > 0; i++)
        values[i] *= worker->factors[i / p->columns * p->factors_wide + i % p->columns / p->factors_group];
    *out_of_range = apr_find_out_of_range(values, p->n_elems, p->to);
    assert_memory_equal(&p->range, &(apr_range[]){apr_encode_range(p->to)}, 2 * sizeof(float));
    if (p->saturate) apr_saturate(values, values, p->n_elems, p->to);
    if (p->n_importance > 0 && encodes_by(p->to)) encode_by_importance(l, values);
    else if (p->to != APR_F8_E4M3) apr_ref_codecs[p->to].encode(values, worker->out, p->n_elems);
    for (int64_t r = 0; p->to == APR_F8_E4M3 && r < p->n_elems / p->columns; r++)
        apr_encode_fp8_row(values + r * p->columns, worker->out + r * p->columns, &worker->row_scales[r], p->columns);
    free(values);
    return APR_OK;
}

const apr_cuda_codecs fake_codecs = {.decodes = decodes,
                                     .encodes = apr_can_encode,
                                     .encodes_by = encodes_by,
                                     .check_memory = check_memory,
                                     .open_worker = open_worker,
                                     .close_worker = close_worker,
                                     .start = start,
                                     .wait = wait_worker};

apr_cuda_device *const *fake_codecs_devices(void)
{
    static apr_cuda_device *list[MOST_DEVICES];
    for (int i = 0; i < MOST_DEVICES; i++) {
        devices[i] = (apr_cuda_device){0};
        list[i] = &devices[i];
    }
    return list;
}

int fake_codecs_open_on(int device) { return devices[device].n_open; }

/* ---- the sink ---- */

static apr_status put(apr_sink *sink, const void *bytes, size_t n_bytes, apr_error *err)
{
    memory_sink *const s = (memory_sink *)sink;
    if (s->fail_after > 0 && s->n + n_bytes > s->fail_after) return apr_fail(err, APR_E_IO, "the disk is full");
    assert_true(n_bytes <= s->room - s->n);
    memcpy(s->bytes + s->n, bytes, n_bytes);
    s->n += n_bytes;
    return APR_OK;
}

memory_sink memory_sink_new(size_t room)
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

apr_tensor pipe_tensor(const char *name, apr_dtype dtype, int64_t rows, int64_t columns)
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

void pipe_fixture_add(pipe_fixture *f, size_t tensor, apr_dtype to)
{
    f->items[f->n_items++] = (apr_pipe_item){.from = &f->tensors[tensor], .to = to};
    if (to == APR_F8_E4M3) f->items[f->n_items++] = (apr_pipe_item){.from = &f->tensors[tensor], .to = APR_F32, .is_scales = true};
}

void pipe_fixture_make(pipe_fixture *f)
{
    *f = (pipe_fixture){0};
    f->tensors[0] = pipe_tensor("large", APR_F16, 3001, 1536); /* more than a job, no whole number of portions */
    f->tensors[1] = pipe_tensor("moved", APR_F16, 512, 256);
    f->tensors[1].pending = (apr_step){APR_STEP_HALVES_TO_PAIRS, {4}};
    f->tensors[2] = pipe_tensor("scaled", APR_F8_E4M3, 300, 512);
    f->scale = pipe_tensor("scale", APR_F16, 3, 4);
    f->tensors[2].scale = &f->scale;
    f->tensors[2].scale_rows = f->tensors[2].scale_columns = 128;
    f->tensors[3] = pipe_tensor("flat q8", APR_APR_Q8, 256, 512);
    f->tensors[4] = pipe_tensor("small", APR_F16, 4, 256);
    f->tensors[5] = pipe_tensor("copied", APR_F16, 256, 512);
    f->tensors[6] = pipe_tensor("unreadable", APR_IQ4_NL, 256, 512);
    f->tensors[7] = pipe_tensor("flat q4", APR_APR_Q4, 256, 512);
    pipe_fixture_add(f, 0, APR_Q8_0);
    pipe_fixture_add(f, 1, APR_Q4_0);
    pipe_fixture_add(f, 4, APR_Q8_0);
    pipe_fixture_add(f, 2, APR_BF16);
    pipe_fixture_add(f, 0, APR_F8_E4M3);
    pipe_fixture_add(f, 3, APR_F16);
    pipe_fixture_add(f, 5, APR_F16);
    pipe_fixture_add(f, 6, APR_F32);
    pipe_fixture_add(f, 7, APR_F32);
    pipe_fixture_add(f, 1, APR_F8_E4M3);
}

void pipe_fixture_close(pipe_fixture *f)
{
    for (size_t i = 0; i < sizeof f->tensors / sizeof *f->tensors; i++) free((void *)(uintptr_t)f->tensors[i].data);
    free((void *)(uintptr_t)f->scale.data);
}

apr_status pipe_fixture_run_into(pipe_fixture *f, apr_sink *sink, bool device, bool metrics, apr_error *err)
{
    const apr_pipe_options options = {.want_metrics = metrics,
                                      .codecs = device ? &fake_codecs : NULL,
                                      .devices = fake_codecs_devices(),
                                      .n_devices = fake_codecs_is.n_devices};
    fake_codecs_is.n_started = 0;
    return apr_pipe_run(sink, f->items, f->n_items, &options, err);
}

apr_status pipe_fixture_run(pipe_fixture *f, memory_sink *sink, bool device, bool metrics, apr_error *err)
{
    return pipe_fixture_run_into(f, &sink->base, device, metrics, err);
}
