/* train_cuda.c - passes on a GPU: its memory, and the operations of kernels/cuda/grad. */
#include "runtime/train/train_internal.h"

#include "runtime/plan/gpus.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the device ---- */

static apr_status start(apr_train_device *d, int ordinal, apr_error *err)
{
    const apr_cuda_options options = {.stack_bytes = APR_DEFAULT_STACK_BYTES};
    apr_cuda_facts facts;
    void *workspace;
    int version;

    APR_TRY(d->cuda->facts(ordinal, &facts, err));
    snprintf(d->name, sizeof d->name, "%s", facts.name);
    APR_TRY(d->cuda->open(&d->device, ordinal, &options, err));
    const apr_gpu gpu = {.major = facts.major};
    d->line = (apr_train_line){"train.cublas", "cuBLAS workspace", apr_gpu_cublas_workspace_bytes(&gpu), true};
    APR_TRY(d->cuda->alloc(d->device, d->line.bytes, d->line.what, &workspace, err));
    return d->cuda->start_blas(d->device, workspace, d->line.bytes, &version, err);
}

apr_status apr_train_device_open(apr_train_device **device, const apr_cuda_api *cuda, int ordinal, apr_error *err)
{
    apr_train_device *const d = calloc(1, sizeof *d);

    *device = NULL;
    if (d == NULL) return apr_no_memory(err, "a GPU");
    d->cuda = cuda;
    const apr_status status = start(d, ordinal, err);
    if (status == APR_OK) *device = d;
    else apr_train_device_close(d);
    return status;
}

void apr_train_device_close(apr_train_device *device)
{
    if (device == NULL) return;
    device->cuda->close(device->device); /* frees the workspace */
    free(device);
}

apr_status apr_train_device_check(const apr_train_device *device, uint64_t n_bytes, const char *what, const char *advice, apr_error *err)
{
    const uint64_t needed = n_bytes + APR_TRAIN_RESERVE;
    uint64_t n_free, n_total;

    APR_TRY(device->cuda->memory(device->device, &n_free, &n_total, err));
    if (needed <= n_free) return APR_OK;
    return apr_fail(err, APR_E_MEMORY, "%s needs %.2f GiB of GPU memory with what the driver takes, %.2f GiB more than %s has free: %s",
                    what, (double)needed / 0x1p30, (double)(needed - n_free) / 0x1p30, device->name, advice);
}

/* ---- the backend ---- */

static const apr_cuda_api *api(const apr_train *t) { return t->options.device->cuda; }
static apr_cuda_device *device(const apr_train *t) { return t->options.device->device; }

static bool has(const apr_train *t, apr_op_kind kind) { return api(t)->grad->has(kind); }

/* FOUND_NUMBERS more, where the index of a number that is not finite is put. */
enum { FOUND_NUMBERS = 16 };
static size_t work(const apr_train *t, apr_op_kind kind, const apr_grad_call *call)
{
    return (size_t)api(t)->grad->work(kind, call) + FOUND_NUMBERS;
}

/* Frequencies are behind the ids, at a multiple of 64 bytes; operations get their device pointers. */
static apr_status send_frequencies(apr_train *t, apr_error *err)
{
    const size_t n_bytes = (size_t)t->n_freqs * sizeof *t->freqs, at = ((size_t)t->n_rows * sizeof *t->ids + 63) / 64 * 64;
    float *const there = (float *)(void *)(t->memory[LINE_IDS] + at);

    for (size_t i = 0; i < t->program.n_ops; i++)
        if (t->program.ops[i].kind == APR_OP_ANGLES) t->args[i].angles.freqs = there + (t->args[i].angles.freqs - (const float *)t->freqs);
    return n_bytes > 0 ? api(t)->upload(device(t), there, t->freqs, n_bytes, err) : APR_OK;
}

/* ---- weights as they are stored ---- */

/* Matrices of one tensor, in a type that is decoded there. */
static bool keeps(const apr_train *t, const apr_tensor *tensor)
{
    return tensor->rank == 2 && tensor->n_bytes > 0 && tensor->scale == NULL && apr_tensor_is_stored(tensor) &&
           api(t)->takes(tensor->dtype);
}

static int32_t *row_numbers(const apr_train *t) { return (int32_t *)(void *)(t->memory[LINE_STORED] + t->row_numbers_at); }

/* Rows are there in their logical order. They are copied to pinned memory first: all threads do that, and the link is faster from there. */
static apr_status renew(apr_train *t, size_t i, apr_error *err)
{
    const apr_tensor *const tensor = t->trained[i];
    const int64_t n_rows = apr_tensor_rows(tensor), columns = apr_tensor_columns(tensor);
    const uint64_t row_bytes = apr_row_bytes(tensor->dtype, columns);
    uint8_t *const bytes = (uint8_t *)train_floats(t);
    const int n_threads = apr_threads(apr_all_threads(), n_rows, (double)tensor->n_bytes);

#pragma omp parallel for schedule(static) num_threads(n_threads)
    for (int64_t r = 0; r < n_rows; r++) apr_read_bytes(tensor, r * columns, columns, bytes + (uint64_t)r * row_bytes);
    return api(t)->upload(device(t), t->memory[LINE_STORED] + t->stored[i].at, bytes, tensor->n_bytes, err);
}

/* Rows of a matrix are read as those of an embedding: each by its number. */
static apr_status send_row_numbers(apr_train *t, apr_error *err)
{
    const size_t n = (size_t)t->most_stored_rows;
    int32_t *const numbers = malloc(n * sizeof *numbers + 1);

    if (numbers == NULL) return apr_no_memory(err, "the numbers of rows");
    for (size_t i = 0; i < n; i++) numbers[i] = (int32_t)i;
    const apr_status status = api(t)->upload(device(t), row_numbers(t), numbers, n * sizeof *numbers, err);
    free(numbers);
    return status;
}

static apr_status send_stored(apr_train *t, apr_error *err)
{
    APR_TRY(send_row_numbers(t, err));
    for (size_t i = 0; i < t->n_trained; i++) {
        if (!t->stored[i].is_there) continue;
        t->stored[i].copy.pending = (apr_step){0};
        t->stored[i].copy.data = (const uint8_t *)t->memory[LINE_STORED] + t->stored[i].at;
        APR_TRY(renew(t, i, err));
    }
    return APR_OK;
}

static apr_status decode(apr_train *t, size_t i, float *to, apr_error *err)
{
    const apr_tensor *const table = &t->stored[i].copy;
    const apr_op_args args = {.embed = {.n_tokens = apr_tensor_rows(table),
                                        .width = apr_tensor_columns(table),
                                        .n_rows = apr_tensor_rows(table),
                                        .ids = row_numbers(t),
                                        .table = table,
                                        .out = to}};
    return api(t)->run(device(t), APR_OP_EMBED, &args, err);
}

static apr_status allocate(apr_train *t, int line, apr_error *err)
{
    const apr_train_line *const l = &t->lines[line];
    void *p = NULL;

    APR_TRY((l->on_device ? api(t)->alloc : api(t)->pin)(device(t), l->bytes, l->what, &p, err));
    t->memory[line] = p;
    if (line == LINE_STORED) return send_stored(t, err);
    return line == LINE_IDS ? send_frequencies(t, err) : APR_OK;
}

static void release(apr_train *t, int line) { api(t)->release(device(t), t->memory[line]); }

static apr_status take_ids(apr_train *t, const int32_t *ids, apr_error *err)
{
    t->ids = (const int32_t *)(const void *)t->memory[LINE_IDS];
    return api(t)->upload(device(t), t->memory[LINE_IDS], ids, (uint64_t)t->n_rows * sizeof *ids, err);
}

static apr_status clear(apr_train *t, void *there, size_t n_bytes, apr_error *err) { return api(t)->clear(device(t), there, n_bytes, err); }

static apr_status copy(apr_train *t, void *to, const void *from, size_t n_bytes, apr_error *err)
{
    return api(t)->transfer(device(t), from, device(t), to, n_bytes, err);
}

static apr_status put(apr_train *t, const float *from, int64_t n, void *there, apr_error *err)
{
    return api(t)->upload(device(t), there, from, (uint64_t)n * sizeof *from, err);
}

static apr_status get(apr_train *t, const void *there, int64_t n, float *to, apr_error *err)
{
    return api(t)->download(device(t), to, there, (uint64_t)n * sizeof *to, err);
}

static apr_grad_call with_workspace(const apr_train *t, const apr_grad_call *call)
{
    apr_grad_call c = *call;
    c.work = train_numbers_at(t, LINE_WORKSPACE, FOUND_NUMBERS);
    return c;
}

static apr_status forward(apr_train *t, apr_op_kind kind, const apr_grad_call *call, apr_error *err)
{
    const apr_grad_call c = with_workspace(t, call);
    return api(t)->grad->forward(device(t), kind, &c, err);
}

static apr_status backward(apr_train *t, apr_op_kind kind, const apr_grad_call *call, apr_error *err)
{
    const apr_grad_call c = with_workspace(t, call);
    return api(t)->grad->backward(device(t), kind, &c, err);
}

static apr_status first_not_finite(apr_train *t, const void *x, int64_t n, int64_t *at, apr_error *err)
{
    uint64_t *const there = (uint64_t *)(void *)t->memory[LINE_WORKSPACE], found = 0;

    APR_TRY(api(t)->grad->first_not_finite(device(t), x, n, there, err));
    APR_TRY(api(t)->download(device(t), &found, there, sizeof found, err));
    *at = (int64_t)~found;
    return APR_OK;
}

/* The divergences come to the host in the memory through which tensors travel. */
static apr_status divergence(apr_train *t, void *student, int64_t n_rows, double factor, bool gradient, const double **kl, apr_error *err)
{
    double *const there = train_row_losses(t), *const here = (double *)(void *)train_floats(t);

    *kl = here;
    APR_TRY(
        api(t)->grad->divergence(device(t), train_teacher_rows(t), student, n_rows, t->program.vocab_size, factor, gradient, there, err));
    return api(t)->download(device(t), here, there, (uint64_t)n_rows * sizeof *here, err);
}

const train_backend train_on_cuda = {
    .where = " on a GPU",
    .n_logits = 1024,
    .has = has,
    .work = work,
    .allocate = allocate,
    .release = release,
    .take_ids = take_ids,
    .keeps = keeps,
    .renew = renew,
    .decode = decode,
    .clear = clear,
    .copy = copy,
    .put = put,
    .get = get,
    .forward = forward,
    .backward = backward,
    .first_not_finite = first_not_finite,
    .divergence = divergence,
};
