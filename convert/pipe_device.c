/* pipe_device.c - converts on GPUs: threads fill workers, the devices encode, and other threads write, all concurrently.
 *
 * A job is up to 2 Mi values of one tensor. Jobs are numbered through all tensors that the devices convert. Each device has its own
 * workers and filler threads. A filler waits for a free worker of its device, takes the next job number, copies the source into the
 * worker and starts it; so a faster device gets more jobs. The pipe handles one tensor after another. If the sink knows
 * the tensor's extent, several threads wait for its jobs and write each at its offset; otherwise the pipe's thread puts them in
 * order. Then the job's worker is free again. Memory is that of the workers, whatever the model's size. */
#include "convert/pipe_internal.h"
#include "convert/pipe_queue.h"

#include "formats/base/crc32.h"
#include "formats/base/threads.h"
#include "formats/files/map.h"
#include "kernels/rows.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { WORKERS = 16, FILLERS = 8, WRITERS = 8 };                       /* WORKERS, FILLERS: of each device; WRITERS: in all */
enum { JOB_ELEMS = 2 * 1024 * 1024, SMALL_ELEMS = APR_PORTION_ELEMS }; /* smaller tensors are not worth the transfer */

/* What the device does with one item. */
typedef struct task {
    bool taken;
    apr_cut cut;
    int64_t portions_per_job;
    int64_t first_job, n_jobs;
    int64_t factors_wide, factors_group; /* scales for each row, and columns that share a scale; 0: none */
} task;

typedef struct worker {
    apr_cuda_worker *worker;
    bool is_taken; /* holds a job that is not written yet */
    int64_t job;   /* the job that was started or failed to start; -1: none yet */
    apr_status status;
    apr_error err;
} worker;

typedef struct filler {
    apr_pipe_device *pipe;
    int device;
    pthread_t thread;
} filler;

struct apr_pipe_device {
    apr_pipe *pipe;
    const apr_cuda_codecs *codecs;
    apr_pipe_item *items;
    task *tasks; /* [n_items] */
    size_t n_items;
    int64_t n_jobs;
    int n_devices, n_fillers;
    worker *workers;        /* [n_devices, WORKERS] */
    filler *fillers;        /* [n_fillers] */
    worker **worker_of_job; /* [n_jobs] the worker of each job; NULL: not started */
    pthread_mutex_t mutex;  /* protects all below, worker_of_job, and the job, status and err of workers */
    pthread_cond_t changed;
    int64_t next_job;
    bool stop;
};

/* ---- which items the device converts ---- */

static bool goes_by_importance(const apr_pipe_item *item) { return item->importance != NULL && apr_ref_codecs[item->to].encode_by != NULL; }

/* Number of values of a matrix: all of its rows use the same importance. */
static int64_t matrix_elems(const apr_tensor *t)
{
    return t->rank > 2 ? t->dims[t->rank - 2] * apr_tensor_columns(t) : apr_tensor_elems(t);
}

/* Rows are copied to the device as bytes, so they must start at a byte; scales are read as plain numbers. */
static bool can_take(const apr_cuda_codecs *codecs, const apr_pipe_item *item)
{
    const apr_tensor *const t = item->from;
    if (item->packed != NULL || item->is_scales || item->is_commons || item->same_numbers || item->counts_cost || item->to == t->dtype ||
        apr_tensor_elems(t) < SMALL_ELEMS)
        return false;
    if (!codecs->decodes(t->dtype) || !codecs->encodes(item->to)) return false;
    if (goes_by_importance(item) && (!codecs->encodes_by(item->to) || apr_tensor_columns(t) % apr_dtypes[item->to].elems_per_block != 0))
        return false;
    if (t->rank == 1 && apr_tensor_source(t) == APR_SOURCE_REORDERED) return false;
    if (apr_dtypes[t->dtype].flat && apr_tensor_columns(t) % 32 != 0) return false;
    return t->scale == NULL || apr_dtypes[t->scale->dtype].elems_per_block == 1;
}

static task plan_task(const apr_cuda_codecs *codecs, const apr_pipe_item *item, int64_t first_job)
{
    const apr_tensor *const t = item->from;
    task k = {.taken = can_take(codecs, item), .first_job = first_job};
    if (!k.taken) return k;
    k.cut = apr_cut_tensor(item);
    const int64_t portion_elems = k.cut.units_per_portion * k.cut.unit_elems;
    k.portions_per_job = portion_elems < JOB_ELEMS ? JOB_ELEMS / portion_elems : 1;
    k.n_jobs = (apr_cut_portions(&k.cut) + k.portions_per_job - 1) / k.portions_per_job;
    if (t->scale != NULL) {
        k.factors_group = t->scale_columns;
        k.factors_wide = (apr_tensor_columns(t) + t->scale_columns - 1) / t->scale_columns;
    } else if (apr_dtypes[t->dtype].scales == APR_SCALES_FIRST) {
        k.factors_group = apr_tensor_columns(t);
        k.factors_wide = 1;
    }
    return k;
}

static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* Sizes of a worker that can hold the largest job. */
static apr_cuda_worker_sizes sizes_of(const apr_pipe_device *d)
{
    apr_cuda_worker_sizes s = {0};
    for (size_t i = 0; i < d->n_items; i++) {
        const task *const k = &d->tasks[i];
        if (!k->taken) continue;
        const int64_t units = k->portions_per_job * k->cut.units_per_portion, n_units = units < k->cut.n_units ? units : k->cut.n_units;
        const int64_t n_elems = n_units * k->cut.unit_elems, rows = k->cut.whole_rows ? n_units : 0;
        s.n_elems = most(s.n_elems, n_elems);
        s.in_bytes = (size_t)most((int64_t)s.in_bytes, apr_row_bytes(d->items[i].from->dtype, n_elems));
        s.out_bytes = (size_t)most((int64_t)s.out_bytes, apr_row_bytes(d->items[i].to, n_elems));
        s.n_factors = most(s.n_factors, rows * k->factors_wide);
        s.n_rows = most(s.n_rows, rows);
        if (goes_by_importance(&d->items[i])) {
            const int64_t columns = apr_tensor_columns(d->items[i].from), elems = matrix_elems(d->items[i].from);
            s.n_importance =
                most(s.n_importance, ((n_elems + elems - 2) / elems + 1) * columns); /* a job may begin in the last row of a matrix */
        }
    }
    return s;
}

/* ---- filling ---- */

/* The scales of a stored row, one for each group of columns. APR_Q8 has one scale before the tensor's codes. */
static void row_factors(const apr_tensor *t, int64_t row, int64_t wide, float *factors)
{
    if (t->scale != NULL) apr_decode_scales(t, row, 0, wide, factors);
    else memcpy(factors, t->data, sizeof *factors);
}

/* Copies the source of units [first, first + n) into the worker, rows in their logical order. Returns its bytes. */
static size_t fill(const task *k, int64_t first, int64_t n, const apr_cuda_worker *to)
{
    const apr_tensor *const t = k->cut.tensor;
    const size_t head = apr_dtypes[t->dtype].scales == APR_SCALES_FIRST
                            ? sizeof(float)
                            : 0; /* the scale before the first row, which apr_row_bytes includes */
    const size_t unit_bytes = (size_t)apr_row_bytes(t->dtype, k->cut.unit_elems) - head;
    const bool moved = apr_tensor_source(t) == APR_SOURCE_REORDERED;

    if (!apr_tensor_is_stored(t)) {
        apr_read_bytes(t, first * k->cut.unit_elems, n * k->cut.unit_elems, to->in);
        return (size_t)apr_row_bytes(t->dtype, n * k->cut.unit_elems);
    }
    if (!k->cut.whole_rows) {
        const size_t n_bytes = (size_t)apr_row_bytes(t->dtype, n);
        apr_map_read(to->in, t->data + apr_row_bytes(t->dtype, first), n_bytes);
        return n_bytes;
    }
    if (!moved) apr_map_read(to->in, t->data + head + (size_t)first * unit_bytes, (size_t)n * unit_bytes);
    for (int64_t i = 0; i < n && (moved || k->factors_wide > 0); i++) {
        const int64_t row = apr_step_row(t->pending, k->cut.n_units, first + i);
        if (moved) memcpy(to->in + (size_t)i * unit_bytes, t->data + head + (size_t)row * unit_bytes, unit_bytes);
        if (k->factors_wide > 0) row_factors(t, row, k->factors_wide, to->factors + i * k->factors_wide);
    }
    return (size_t)n * unit_bytes;
}

static int64_t first_unit(const task *k, int64_t job) { return (job - k->first_job) * k->portions_per_job * k->cut.units_per_portion; }

static int64_t units_of_job(const task *k, int64_t job)
{
    const int64_t all = k->portions_per_job * k->cut.units_per_portion, left = k->cut.n_units - first_unit(k, job);
    return left < all ? left : all;
}

/* Copies the importance of the matrices that a job of n values touches. */
static void add_importance(const apr_pipe_item *item, int64_t first, apr_cuda_worker *to, apr_cuda_portion *portion)
{
    const int64_t columns = apr_tensor_columns(item->from), elems = matrix_elems(item->from), matrix = first / elems;

    portion->columns = columns;
    portion->importance_matrix = elems;
    portion->importance_first = first - matrix * elems;
    portion->n_importance = ((first + portion->n_elems - 1) / elems - matrix + 1) * columns;
    memcpy(to->importance, item->importance + matrix * columns, (size_t)portion->n_importance * sizeof *to->importance);
}

static apr_status start_job(apr_pipe_device *d, apr_cuda_worker *to, size_t item, int64_t job, apr_error *err)
{
    const task *const k = &d->tasks[item];
    const int64_t n = units_of_job(k, job);
    apr_cuda_portion portion = {.from = d->items[item].from->dtype,
                                .to = d->items[item].to,
                                .n_elems = n * k->cut.unit_elems,
                                .columns = k->cut.whole_rows ? k->cut.unit_elems : 0,
                                .in_bytes = fill(k, first_unit(k, job), n, to),
                                .factors_wide = k->factors_wide,
                                .factors_group = k->factors_group,
                                .range = apr_encode_range(d->items[item].to),
                                .saturate = d->pipe->options->saturate};
    if (goes_by_importance(&d->items[item])) add_importance(&d->items[item], first_unit(k, job) * k->cut.unit_elems, to, &portion);
    return d->codecs->start(to, &portion, err);
}

/* Number of workers or fillers of a device: at most most_each, and over all devices no more than there are jobs. */
static int share_of(const apr_pipe_device *d, int device, int most_each)
{
    const int64_t n = (d->n_jobs + d->n_devices - 1 - device) / d->n_devices;
    return n < most_each ? (int)n : most_each;
}

static worker *find_free(const apr_pipe_device *d, int device)
{
    worker *const own = &d->workers[device * WORKERS];
    for (int i = 0; i < share_of(d, device, WORKERS); i++)
        if (!own[i].is_taken) return &own[i];
    return NULL;
}

/* Waits for a free worker of the device and takes the next job; NULL: no more jobs. */
static worker *take_job(apr_pipe_device *d, int device, int64_t *job)
{
    worker *free_one = NULL;

    pthread_mutex_lock(&d->mutex);
    while (!d->stop && d->next_job < d->n_jobs && (free_one = find_free(d, device)) == NULL) pthread_cond_wait(&d->changed, &d->mutex);
    if (free_one != NULL) {
        *job = d->next_job++;
        free_one->is_taken = true;
        d->worker_of_job[*job] = free_one;
    }
    pthread_mutex_unlock(&d->mutex);
    return free_one;
}

static void *fill_workers(void *context)
{
    const filler *const self = context;
    apr_pipe_device *const d = self->pipe;
    size_t item = 0;
    int64_t job;

    for (worker *l; (l = take_job(d, self->device, &job)) != NULL;) {
        apr_error err = {0};
        while (!d->tasks[item].taken || job >= d->tasks[item].first_job + d->tasks[item].n_jobs) item++;
        const apr_status status = start_job(d, l->worker, item, job, &err);
        pthread_mutex_lock(&d->mutex);
        l->job = job;
        l->status = status;
        l->err = err;
        pthread_cond_broadcast(&d->changed);
        pthread_mutex_unlock(&d->mutex);
    }
    return NULL;
}

/* ---- the pipe's side ---- */

static apr_status plan_jobs(apr_pipe_device *d, apr_error *err)
{
    const size_t n = (size_t)d->n_devices;

    d->tasks = calloc(d->n_items + 1, sizeof *d->tasks);
    d->workers = calloc(n * WORKERS, sizeof *d->workers);
    d->fillers = calloc(n * FILLERS, sizeof *d->fillers);
    if (d->tasks == NULL || d->workers == NULL || d->fillers == NULL) return apr_no_memory(err, "the conversion on the device");
    for (size_t i = 0; i < d->n_items; i++) {
        if (d->items[i].state != APR_TENSOR_WANTED || apr_pipe_is_custom(d->pipe, i)) continue;
        d->tasks[i] = plan_task(d->codecs, &d->items[i], d->n_jobs);
        d->items[i].on_device = d->tasks[i].taken;
        d->n_jobs += d->tasks[i].n_jobs;
    }
    d->worker_of_job = calloc((size_t)d->n_jobs + 1, sizeof *d->worker_of_job);
    return d->worker_of_job != NULL ? APR_OK : apr_no_memory(err, "the conversion on the device");
}

static apr_status open_workers(apr_pipe_device *d, int device, const apr_cuda_worker_sizes *sizes, apr_error *err)
{
    const int n = share_of(d, device, WORKERS);
    apr_cuda_device *const on = d->pipe->options->devices[device];

    if (n > 0) APR_TRY(d->codecs->check_memory(on, sizes, n, err));
    for (int i = 0; i < n; i++) {
        worker *const l = &d->workers[device * WORKERS + i];
        l->job = -1;
        APR_TRY(d->codecs->open_worker(on, sizes, &l->worker, err));
    }
    return APR_OK;
}

/* Opens the workers of all devices concurrently, because pinning memory is slow. The first failure is returned. */
static apr_status open_all_workers(apr_pipe_device *d, apr_error *err)
{
    const apr_cuda_worker_sizes sizes = sizes_of(d);
    struct {
        apr_status status;
        apr_error err;
    } *const results = calloc((size_t)d->n_devices, sizeof *results);
    apr_status status = APR_OK;

    if (results == NULL) return apr_no_memory(err, "the conversion on the device");
#pragma omp parallel for num_threads(d->n_devices)
    for (int i = 0; i < d->n_devices; i++) results[i].status = open_workers(d, i, &sizes, &results[i].err);
    for (int i = 0; i < d->n_devices; i++) {
        if (status == APR_OK && results[i].status != APR_OK) status = apr_fail(err, results[i].status, "%s", results[i].err.text);
    }
    free(results);
    return status;
}

static apr_status start_fillers(apr_pipe_device *d, int device, apr_error *err)
{
    for (int i = 0; i < share_of(d, device, FILLERS); i++) {
        filler *const f = &d->fillers[d->n_fillers];
        *f = (filler){.pipe = d, .device = device};
        if (pthread_create(&f->thread, NULL, fill_workers, f) != 0)
            return apr_fail(err, APR_E_MEMORY, "no thread could be started for the conversion");
        d->n_fillers++;
    }
    return APR_OK;
}

apr_status apr_pipe_device_start(apr_pipe_device **device, apr_pipe *p, apr_pipe_item *items, size_t n_items, apr_error *err)
{
    apr_pipe_device *const d = *device = calloc(1, sizeof *d);
    if (d == NULL) return apr_no_memory(err, "the conversion on the device");
    *d = (apr_pipe_device){.pipe = p, .codecs = p->options->codecs, .items = items, .n_items = n_items, .n_devices = p->options->n_devices};
    pthread_mutex_init(&d->mutex, NULL);
    pthread_cond_init(&d->changed, NULL);
    APR_TRY(plan_jobs(d, err));
    APR_TRY(open_all_workers(d, err));
    for (int i = 0; i < d->n_devices; i++) APR_TRY(start_fillers(d, i, err));
    return APR_OK;
}

/* Waits until a job has started, and then until it is done. */
static apr_status wait_for_job(apr_pipe_device *d, int64_t job, worker **by, apr_out_of_range *out_of_range, apr_error *err)
{
    worker *l;

    pthread_mutex_lock(&d->mutex);
    while ((l = d->worker_of_job[job]) == NULL || l->job != job) pthread_cond_wait(&d->changed, &d->mutex);
    const apr_status status = l->status;
    if (status != APR_OK && err != NULL) *err = l->err;
    pthread_mutex_unlock(&d->mutex);
    *by = l;
    return status != APR_OK ? status : d->codecs->wait(l->worker, out_of_range, err);
}

static void free_worker(apr_pipe_device *d, worker *l)
{
    pthread_mutex_lock(&d->mutex);
    l->is_taken = false;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->mutex);
}

static void keep_scales(const apr_pipe_device *d, const apr_pipe_item *item, const task *k, int64_t job, const apr_cuda_worker *l)
{
    if (apr_dtypes[item->to].scales != APR_SCALES_SEPARATE) return;
    memcpy(d->pipe->row_scales + first_unit(k, job), l->row_scales, (size_t)units_of_job(k, job) * sizeof(float));
}

static uint64_t bytes_of(const apr_pipe_item *item, const task *k, int64_t n_units)
{
    return (uint64_t)apr_row_bytes(item->to, n_units * k->cut.unit_elems);
}

/* --- in order, by one thread --- */

static apr_status put_job(apr_pipe_device *d, size_t item_number, int64_t job, apr_error *err)
{
    const task *const k = &d->tasks[item_number];
    apr_pipe_item *const item = &d->items[item_number];
    const int64_t n = units_of_job(k, job), first_portion = (job - k->first_job) * k->portions_per_job;
    const int64_t portions = (n + k->cut.units_per_portion - 1) / k->cut.units_per_portion;
    apr_out_of_range out_of_range;
    worker *by;

    APR_TRY(wait_for_job(d, job, &by, &out_of_range, err));
    const apr_cuda_worker *const l = by->worker;
    apr_out_of_range_merge(&item->out_of_range, &out_of_range);
    keep_scales(d, item, k, job, l);
    if (d->pipe->options->want_metrics) APR_TRY(apr_pipe_measure(d->pipe, &k->cut, item, first_portion, portions, l->out, err));
    APR_TRY(apr_sink_put(d->pipe->sink, l->out, (size_t)bytes_of(item, k, n), err));
    free_worker(d, by);
    return APR_OK;
}

static apr_status put_in_order(apr_pipe_device *d, size_t item, apr_error *err)
{
    const task *const k = &d->tasks[item];

    for (int64_t job = k->first_job; job < k->first_job + k->n_jobs; job++) {
        APR_TRY(put_job(d, item, job, err));
        apr_pipe_progress(d->pipe, d->items[item].from, d->items[item].from->n_bytes / (uint64_t)k->n_jobs);
    }
    return APR_OK;
}

/* --- at their offsets, by several threads --- */

/* The results of a job; added up in order. */
typedef struct job_result {
    apr_out_of_range out_of_range;
    uint32_t crc;
} job_result;

typedef struct write_state {
    apr_pipe_device *d;
    apr_pipe_item *item;
    const task *task;
    apr_extent extent;
    uint32_t crc;
    size_t n_slots;
    job_result *job_result; /* [n_slots] */
} write_state;

/* Frees the job's worker in every case, because other threads wait for one. */
static apr_status write_job(void *context, int64_t number, size_t slot, int thread, apr_error *err)
{
    write_state *const w = context;
    const task *const k = w->task;
    const int64_t job = k->first_job + number;
    const uint64_t at = bytes_of(w->item, k, first_unit(k, job)), n_bytes = bytes_of(w->item, k, units_of_job(k, job));
    worker *by;
    (void)thread;

    apr_status status = wait_for_job(w->d, job, &by, &w->job_result[slot].out_of_range, err);
    const apr_cuda_worker *const l = by->worker;
    if (status == APR_OK) {
        keep_scales(w->d, w->item, k, job, l);
        if (w->extent.wants_crc) w->job_result[slot].crc = apr_crc32(0, l->out, n_bytes);
        status = apr_extent_put(&w->extent, at, l->out, (size_t)n_bytes, err);
    }
    free_worker(w->d, by);
    return status;
}

static apr_status take_jobs(void *context, int64_t first, int64_t n, apr_error *err)
{
    write_state *const w = context;
    const task *const k = w->task;
    (void)err;

    for (int64_t i = first; i < first + n; i++) {
        const job_result *const one = &w->job_result[(size_t)i % w->n_slots];
        apr_out_of_range_merge(&w->item->out_of_range, &one->out_of_range);
        if (w->extent.wants_crc) w->crc = apr_crc32_combine(w->crc, one->crc, bytes_of(w->item, k, units_of_job(k, k->first_job + i)));
    }
    apr_pipe_progress(w->d->pipe, w->item->from, w->item->from->n_bytes / (uint64_t)k->n_jobs * (uint64_t)n);
    return APR_OK;
}

static apr_status write_all(apr_pipe_device *d, size_t item, const apr_extent *extent, apr_error *err)
{
    const int n_threads = apr_all_threads() < WRITERS ? apr_all_threads() : WRITERS;
    write_state w = {.d = d, .item = &d->items[item], .task = &d->tasks[item], .extent = *extent, .n_slots = apr_portion_slots(n_threads)};
    const apr_portion_work work = {
        .n_portions = w.task->n_jobs, .n_slots = w.n_slots, .n_threads = n_threads, .context = &w, .make = write_job, .take = take_jobs};

    w.job_result = calloc(w.n_slots, sizeof *w.job_result);
    if (w.job_result == NULL) return apr_no_memory(err, "the results of jobs");
    apr_status status = apr_run_portions(&work, err);
    if (status == APR_OK) status = apr_sink_pass(d->pipe->sink, w.crc, err);
    free(w.job_result);
    return status;
}

apr_status apr_pipe_device_item(apr_pipe_device *d, size_t item, const apr_extent *extent, apr_error *err)
{
    return extent != NULL ? write_all(d, item, extent, err) : put_in_order(d, item, err);
}

void apr_pipe_device_stop(apr_pipe_device *d)
{
    if (d == NULL) return;
    pthread_mutex_lock(&d->mutex);
    d->stop = true;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->mutex);
    for (int i = 0; i < d->n_fillers; i++) pthread_join(d->fillers[i].thread, NULL);
    for (int i = 0; d->workers != NULL && i < d->n_devices * WORKERS; i++) d->codecs->close_worker(d->workers[i].worker);
    pthread_cond_destroy(&d->changed);
    pthread_mutex_destroy(&d->mutex);
    free(d->tasks);
    free(d->workers);
    free(d->worker_of_job);
    free(d->fillers);
    free(d);
}
