/* damage.c - evaluates the model once as it is, then with some tensors quantized. */
#include "runtime/calibrate/damage.h"

#include "formats/base/threads.h"
#include "kernels/out_of_range.h"
#include "kernels/rows.h"
#include "runtime/check/compare.h"
#include "runtime/session/kept.h"
#include "runtime/session/trace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool apr_damage_can_be(const apr_tensor *tensor, apr_dtype to)
{
    const apr_dtype_facts *const type = &apr_dtypes[to];
    return tensor->rank >= 2 && apr_dtype_is_weights(tensor->dtype) && apr_can_decode(tensor->dtype) && type->class_of == APR_CLASS_BLOCK &&
           !type->flat && apr_can_encode(to) && apr_tensor_columns(tensor) % type->elems_per_block == 0;
}

uint64_t apr_damage_bytes(int64_t vocab_size, int64_t n_ids) { return (uint64_t)vocab_size * (uint64_t)n_ids * sizeof(float); }

/* --- evaluating --- */

typedef struct reader {
    const apr_damage *d;
    int64_t first; /* first token of the window */
    double sum;    /* of divergences */
} reader;

static apr_status keep_rows(void *user, int64_t first, int64_t n_rows, const float *logits, apr_error *err)
{
    const reader *const r = user;
    const size_t n = (size_t)(n_rows * r->d->vocab_size);

    memcpy(r->d->reference + (r->first + first) * r->d->vocab_size, logits, n * sizeof *logits);
    for (size_t i = 0; i < n; i++)
        if (!isfinite(logits[i])) return apr_fail(err, APR_E_NO, "the model's own logits are not finite");
    return APR_OK;
}

static apr_status compare_rows(void *user, int64_t first, int64_t n_rows, const float *logits, apr_error *err)
{
    reader *const r = user;
    const int64_t n_vocab = r->d->vocab_size;
    double *const rows = malloc((size_t)n_rows * sizeof *rows);

    if (rows == NULL) return apr_no_memory(err, "divergences");
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n_rows; i++)
        rows[i] = apr_compare_logits(r->d->reference + (r->first + first + i) * n_vocab, logits + i * n_vocab, n_vocab, -1).kl;
    for (int64_t i = 0; i < n_rows; i++) r->sum += rows[i]; /* in order, so that threads do not change the sum */
    free(rows);
    return APR_OK;
}

static apr_status keep_rows_there(void *user, int64_t first, int64_t n_rows, const float *logits, apr_error *err)
{
    const reader *const r = user;
    const apr_damage *const d = r->d;
    return d->options.cuda->transfer(d->device, logits, d->device, d->reference + (r->first + first) * d->vocab_size,
                                     (uint64_t)(n_rows * d->vocab_size) * sizeof *logits, err);
}

static apr_status compare_rows_there(void *user, int64_t first, int64_t n_rows, const float *logits, apr_error *err)
{
    reader *const r = user;
    const apr_damage *const d = r->d;
    const apr_cuda_api *const cuda = d->options.cuda;
    apr_cuda_logits_difference *const rows = malloc((size_t)n_rows * sizeof *rows);

    if (rows == NULL) return apr_no_memory(err, "divergences");
    apr_status status = cuda->compare_logits(d->device, d->reference + (r->first + first) * d->vocab_size, logits, d->vocab_size, n_rows,
                                             d->next, d->rows, err);
    if (status == APR_OK) status = cuda->download(d->device, rows, d->rows, (uint64_t)n_rows * sizeof *rows, err);
    for (int64_t i = 0; i < n_rows && status == APR_OK; i++) r->sum += rows[i].kl < 0.0 ? 0.0 : rows[i].kl; /* NaN stays */
    free(rows);
    return status;
}

/* Evaluates all windows from operation `begin` on, and compares them: sums[i] is that of window i. sums NULL: the model itself, whose
 * logits and values are kept. */
static apr_status evaluate(const apr_damage *d, apr_session *session, size_t begin, double *sums, apr_error *err)
{
    apr_status status = APR_OK;

    for (int64_t i = 0; i < d->n_ids / d->window && status == APR_OK; i++) {
        reader r = {.d = d, .first = i * d->window};
        const apr_kept kept = {.values = d->kept, .first = r.first, .begin = begin};
        apr_eval_output out = {.all_logits = true, .kept = d->kept_bytes > 0 && (sums == NULL || begin > 0) ? &kept : NULL, .user = &r};
        if (d->session != NULL) out.on_device_logits = sums == NULL ? keep_rows_there : compare_rows_there;
        else out.on_logits = sums == NULL ? keep_rows : compare_rows;
        apr_session_reset(session);
        status = apr_session_eval(session, d->ids + r.first, (size_t)d->window, &out, err);
        if (sums != NULL) sums[i] = r.sum;
    }
    return status;
}

/* --- beginning with a later layer --- */

/* Sets uses[n_tensors]: the first operation that reads each tensor; 0 where it is not known. */
static void find_uses(const apr_damage *d, const apr_program *p, size_t *uses)
{
    for (size_t i = p->n_ops; i-- > 0;) {
        for (int k = 0; k < APR_OP_MAX_WEIGHTS; k++) {
            const apr_weight_slot *const slot = p->ops[i].weight[k] >= 0 ? &p->weights[p->ops[i].weight[k]] : NULL;
            for (int64_t e = 0; slot != NULL && e < slot->count; e++) {
                char name[256];
                const apr_tensor *const tensor = apr_model_find(d->model, apr_slot_name(slot, e, name, sizeof name));
                if (tensor != NULL) uses[tensor - d->model->tensors] = i;
            }
        }
    }
}

/* The first operation of a layer, or of the logits? */
static bool is_boundary(const apr_program *p, size_t op)
{
    return op > 0 && (p->ops[op].layer != p->ops[op - 1].layer || (p->ops[op].out >= 0 && p->values[p->ops[op].out].is_logits));
}

/* Lowers begins[] from the first use of each tensor to a boundary with which an evaluation can begin. */
static void find_begins(apr_damage *d, const apr_session *session, bool *is_needed)
{
    const apr_program *const p = apr_session_program(session);
    size_t last = 0;

    for (size_t op = 0; op < p->n_ops; op++) {
        if (is_boundary(p, op) && apr_session_can_begin(session, op, is_needed)) last = op;
        for (size_t i = 0; i < d->model->n_tensors; i++)
            if (d->begins[i] == op) d->begins[i] = last;
    }
}

static uint64_t value_bytes(const apr_damage *d, const apr_program *p, size_t value)
{
    return (uint64_t)(d->n_ids * p->values[value].width) * sizeof(float);
}

static void release_kept(apr_damage *d)
{
    for (size_t v = 0; d->kept != NULL && v < d->n_values; v++) {
        if (d->kept[v] == NULL) continue;
        if (d->session != NULL) d->options.cuda->release(d->device, d->kept[v]);
        else free(d->kept[v]);
        d->kept[v] = NULL;
    }
    d->kept_bytes = 0;
}

/* Memory of a device is taken only if as much stays free as the session left. */
static bool has_memory(const apr_damage *d, uint64_t n_bytes)
{
    uint64_t n_free = 0, n_total = 0;
    if (d->session == NULL) return true;
    return d->options.cuda->memory(d->device, &n_free, &n_total, NULL) == APR_OK && n_free > d->options.headroom_bytes &&
           n_bytes <= n_free - d->options.headroom_bytes;
}

static bool allocate_kept(apr_damage *d, const apr_program *p, const bool *is_needed)
{
    uint64_t n_bytes = 0;

    for (size_t v = 0; v < p->n_values; v++) n_bytes += is_needed[v] ? value_bytes(d, p, v) : 0;
    if (n_bytes == 0 || !has_memory(d, n_bytes)) return false;
    for (size_t v = 0; v < p->n_values; v++) {
        if (!is_needed[v]) continue;
        if (d->session == NULL) d->kept[v] = malloc((size_t)value_bytes(d, p, v));
        else if (d->options.cuda->alloc(d->device, value_bytes(d, p, v), "values between layers", (void **)&d->kept[v], NULL) != APR_OK)
            d->kept[v] = NULL;
        if (d->kept[v] == NULL) return false;
    }
    d->kept_bytes = n_bytes;
    return true;
}

/* Prepares what the evaluation of the model itself is to keep. */
static apr_status open_kept(apr_damage *d, const apr_session *session, apr_error *err)
{
    const apr_program *const p = apr_session_program(session);
    bool *const is_needed = calloc(p->n_values + 1, sizeof *is_needed);

    d->n_values = p->n_values;
    d->kept = calloc(p->n_values + 1, sizeof *d->kept);
    d->begins = calloc(d->model->n_tensors + 1, sizeof *d->begins);
    if (is_needed == NULL || d->kept == NULL || d->begins == NULL) {
        free(is_needed);
        return apr_no_memory(err, "a table of values");
    }
    find_uses(d, p, d->begins);
    find_begins(d, session, is_needed);
    if (!allocate_kept(d, p, is_needed)) release_kept(d);
    free(is_needed);
    return APR_OK;
}

static size_t begin_of(const apr_damage *d, const apr_replaced *replaced, size_t n)
{
    size_t begin = n > 0 && d->kept_bytes > 0 ? SIZE_MAX : 0;
    for (size_t i = 0; i < n && begin > 0; i++)
        if (d->begins[replaced[i].tensor] < begin) begin = d->begins[replaced[i].tensor];
    return begin;
}

/* --- the model with other tensors --- */

static apr_status copy_table(apr_damage *d, apr_error *err)
{
    const apr_model *const m = d->model;
    apr_model *const a = &d->altered;

    *a = *m;
    a->arena = (apr_arena){0};
    a->maps = NULL;
    a->n_maps = 0;
    a->tensors = apr_arena_array(&a->arena, m->n_tensors + 1, sizeof *a->tensors);
    if (a->tensors == NULL) return apr_no_memory(err, "a table of tensors");
    memcpy(a->tensors, m->tensors, m->n_tensors * sizeof *m->tensors);
    return apr_model_index_names(a, err);
}

static apr_status allocate_there(apr_damage *d, apr_error *err)
{
    const apr_cuda_api *const cuda = d->options.cuda;
    const size_t n_bytes = (size_t)d->window * sizeof *d->next;
    int32_t *const none = malloc(n_bytes);

    if (none == NULL) return apr_no_memory(err, "divergences");
    memset(none, 0xff, n_bytes); /* -1: no token follows */
    apr_status status =
        cuda->alloc(d->device, apr_damage_bytes(d->vocab_size, d->n_ids), "the model's logits", (void **)&d->reference, err);
    if (status == APR_OK) status = cuda->alloc(d->device, n_bytes, "divergences", (void **)&d->next, err);
    if (status == APR_OK) status = cuda->alloc(d->device, (uint64_t)d->window * sizeof *d->rows, "divergences", (void **)&d->rows, err);
    if (status == APR_OK) status = cuda->upload(d->device, d->next, none, n_bytes, err);
    free(none);
    return status;
}

static apr_status open_there(apr_damage *d, apr_error *err)
{
    const apr_cuda_api *cuda;

    d->options.n_logits = d->window;
    d->options.fall_back = false;
    d->is_changed = calloc(d->model->n_tensors + 1, sizeof *d->is_changed);
    if (d->is_changed == NULL) return apr_no_memory(err, "a table of tensors");
    APR_TRY(apr_session_open(&d->session, &d->altered, &d->options, err));
    d->device = apr_trace_device(d->session, &cuda);
    APR_TRY(allocate_there(d, err));
    apr_control_encoder_open(&d->encoder, d->session);
    APR_TRY(open_kept(d, d->session, err));
    return evaluate(d, d->session, 0, NULL, err);
}

/* Its session's end frees the memory of the device. */
static void close_there(apr_damage *d)
{
    apr_control_encoder_close(&d->encoder);
    for (size_t i = 0; d->is_changed != NULL && i < d->model->n_tensors; i++)
        if (d->is_changed[i] && d->altered.tensors[i].data != d->model->tensors[i].data) free((void *)d->altered.tensors[i].data);
    if (d->reference != NULL) d->options.cuda->release(d->device, d->reference);
    if (d->next != NULL) d->options.cuda->release(d->device, d->next);
    if (d->rows != NULL) d->options.cuda->release(d->device, d->rows);
    apr_session_close(d->session);
    free(d->spare);
    free(d->is_changed);
}

apr_status apr_damage_open(apr_damage *d, const apr_model *model, const apr_session_options *options, const int32_t *ids, int64_t n_ids,
                           int64_t window, apr_error *err)
{
    *d = (apr_damage){.model = model, .options = *options, .ids = ids, .n_ids = n_ids, .window = window};
    d->vocab_size = model->hparams.vocab_size;
    d->options.n_ctx = window;
    if (window < 1 || n_ids < window || n_ids % window != 0 || d->vocab_size < 1)
        return apr_fail(err, APR_E_USAGE, "%lld tokens are not a multiple of the window of %lld", (long long)n_ids, (long long)window);
    APR_TRY(copy_table(d, err));
    if (d->options.cuda != NULL) return open_there(d, err);
    d->reference = malloc((size_t)apr_damage_bytes(d->vocab_size, n_ids));
    if (d->reference == NULL) return apr_no_memory(err, "the model's logits");
    apr_session *session = NULL;
    apr_status status = apr_session_open(&session, &d->altered, &d->options, err);
    if (status == APR_OK) status = open_kept(d, session, err);
    if (status == APR_OK) status = evaluate(d, session, 0, NULL, err);
    apr_session_close(session);
    return status;
}

void apr_damage_close(apr_damage *d)
{
    release_kept(d);
    free(d->kept);
    free(d->begins);
    if (d->options.cuda != NULL) close_there(d);
    else free(d->reference);
    apr_arena_close(&d->altered.arena);
    *d = (apr_damage){0};
}

/* Encodes the tensor; the result is malloc'ed. */
static uint8_t *encode(const apr_tensor *from, apr_dtype to)
{
    const int64_t n_rows = apr_tensor_rows(from), n_columns = apr_tensor_columns(from);
    const size_t row_bytes = (size_t)apr_row_bytes(to, n_columns);
    uint8_t *const blocks = malloc((size_t)n_rows * row_bytes + 1);
    bool failed = blocks == NULL;

#pragma omp parallel if (!failed)
    {
        float *const row = malloc((size_t)n_columns * sizeof *row);
#pragma omp atomic
        failed |= row == NULL;
#pragma omp for schedule(static)
        for (int64_t i = 0; i < n_rows; i++) {
            if (row == NULL || blocks == NULL) continue;
            apr_decode_rows(from, i, 1, row);
            apr_host_codecs()[to].encode(row, blocks + (size_t)i * row_bytes, n_columns);
        }
        free(row);
    }
    if (!failed) return blocks;
    free(blocks);
    return NULL;
}

/* Replaces the tensor by its quantized copy, without packing or pending step. */
static apr_status replace(apr_damage *d, const apr_replaced *r, apr_error *err)
{
    const apr_tensor *const from = &d->model->tensors[r->tensor];
    apr_tensor *const to = &d->altered.tensors[r->tensor];

    if (!apr_damage_can_be(from, r->to))
        return apr_fail(err, APR_E_UNSUPPORTED, "tensor '%s' cannot be quantized to %s", from->name, apr_dtypes[r->to].name);
    uint8_t *const blocks = encode(from, r->to);
    if (blocks == NULL) return apr_no_memory(err, "a quantized tensor");
    *to = (apr_tensor){.name = from->name, .dtype = r->to, .rank = from->rank, .data = blocks};
    memcpy(to->dims, from->dims, sizeof to->dims);
    to->n_bytes = (uint64_t)apr_tensor_rows(from) * (uint64_t)apr_row_bytes(r->to, apr_tensor_columns(from));
    return APR_OK;
}

static void put_back(apr_damage *d, size_t tensor)
{
    free((void *)d->altered.tensors[tensor].data);
    d->altered.tensors[tensor] = d->model->tensors[tensor];
}

/* --- on a GPU: the tensor's numbers as they are after encoding, in its own type --- */

/* Memory for a tensor's bytes. That of the tensor before is used again, because fresh memory, which the kernel clears page by page, takes
 * longer than the bytes. */
static uint8_t *take_bytes(apr_damage *d, uint64_t n_bytes)
{
    if (n_bytes > d->spare_bytes) return malloc((size_t)n_bytes + 1);
    uint8_t *const spare = d->spare;
    d->spare = NULL;
    d->spare_bytes = 0;
    return spare;
}

static void give_bytes(apr_damage *d, uint8_t *bytes, uint64_t n_bytes)
{
    if (n_bytes <= d->spare_bytes) {
        free(bytes);
        return;
    }
    free(d->spare);
    d->spare = bytes;
    d->spare_bytes = n_bytes;
}

typedef struct recoding {
    const apr_damage *d;
    const apr_tensor *from;
    apr_dtype to;
    bool there; /* the GPU encodes, decodes and encodes again */
    int64_t columns;
    uint8_t *blocks; /* the result */
} recoding;

/* Rows [first, first + n). */
static apr_status recode_rows_there(const recoding *r, int64_t first, int64_t n, uint8_t *blocks, apr_error *err)
{
    apr_cuda_worker *const worker = r->d->encoder.workers[apr_thread_number()];

    apr_read_bytes(r->from, first * r->columns, n * r->columns, worker->in);
    APR_TRY(apr_control_encoder_recode(&r->d->encoder, worker, r->from->dtype, r->to, n, r->columns, err));
    memcpy(blocks, worker->out, (size_t)n * (size_t)apr_row_bytes(r->from->dtype, r->columns));
    return APR_OK;
}

/* The same bytes; values and encoded have room for the rows. */
static void recode_rows_here(const recoding *r, int64_t first, int64_t n, float *values, uint8_t *encoded, uint8_t *blocks)
{
    const apr_codec *const codecs = apr_host_codecs();
    const int64_t row_bytes = apr_row_bytes(r->to, r->columns), n_values = n * r->columns;

    apr_decode_rows(r->from, first, n, values);
    for (int64_t i = 0; i < n; i++) {
        codecs[r->to].encode(values + i * r->columns, encoded + i * row_bytes, r->columns);
        codecs[r->to].decode(encoded + i * row_bytes, values + i * r->columns, r->columns);
    }
    apr_saturate(values, values, n_values, r->from->dtype);
    codecs[r->from->dtype].encode(values, blocks, n_values);
}

static apr_status recode_rows(const recoding *r, int64_t first, int64_t n, float *values, uint8_t *encoded, apr_error *err)
{
    uint8_t *const blocks = r->blocks + (size_t)first * (size_t)apr_row_bytes(r->from->dtype, r->columns);

    if (r->there) return recode_rows_there(r, first, n, blocks, err);
    recode_rows_here(r, first, n, values, encoded, blocks);
    return APR_OK;
}

static apr_status recode(const recoding *r, apr_error *err)
{
    const int64_t n_rows = apr_tensor_rows(r->from), fit = APR_CONTROL_VALUES / r->columns, each = fit > 0 ? fit : 1;
    const int n_threads = r->there ? r->d->encoder.n_workers : apr_all_threads();
    apr_status status = APR_OK;

#pragma omp parallel num_threads(n_threads)
    {
        float *const values = malloc((size_t)(each * r->columns) * sizeof *values);
        uint8_t *const encoded = malloc((size_t)(each * apr_row_bytes(r->to, r->columns)));
#pragma omp for schedule(dynamic, 1)
        for (int64_t first = 0; first < n_rows; first += each) {
            const int64_t n = n_rows - first < each ? n_rows - first : each;
            apr_error own = {0};
            apr_status now = values != NULL && encoded != NULL ? recode_rows(r, first, n, values, encoded, &own)
                                                               : apr_no_memory(&own, "rows of a tensor");
            if (now == APR_OK) continue;
#pragma omp critical(apr_damage_recode)
            if (status == APR_OK) status = apr_fail(err, now, "%s", own.text);
        }
        free(values);
        free(encoded);
    }
    return status;
}

static apr_status put_back_there(apr_damage *d, size_t tensor, apr_error *err)
{
    const apr_tensor *const own = &d->model->tensors[tensor];

    if (!d->is_changed[tensor]) return APR_OK;
    give_bytes(d, (uint8_t *)(uintptr_t)d->altered.tensors[tensor].data, d->altered.tensors[tensor].n_bytes);
    d->altered.tensors[tensor] = *own;
    d->is_changed[tensor] = false;
    return apr_session_rewrite(d->session, own->name, own, err);
}

static apr_status replace_there(apr_damage *d, const apr_replaced *replaced, apr_error *err)
{
    const apr_tensor *const from = &d->model->tensors[replaced->tensor];
    apr_tensor *const altered = &d->altered.tensors[replaced->tensor];
    apr_tensor shape = {.name = from->name, .dtype = replaced->to, .rank = from->rank};

    if (!apr_damage_can_be(from, replaced->to) || apr_dtypes[from->dtype].class_of == APR_CLASS_BLOCK || from->scale != NULL)
        return apr_fail(err, APR_E_UNSUPPORTED, "tensor '%s' cannot be tried in %s on a GPU; use --device host", from->name,
                        apr_dtypes[replaced->to].name);
    memcpy(shape.dims, from->dims, sizeof shape.dims);
    recoding r = {.d = d, .from = from, .to = replaced->to, .columns = apr_tensor_columns(from)};
    const uint64_t n_bytes = (uint64_t)apr_tensor_rows(from) * (uint64_t)apr_row_bytes(from->dtype, r.columns);
    r.there = apr_control_encoder_takes(&d->encoder, &shape) && apr_control_encoder_recodes(&d->encoder, from->dtype, replaced->to);
    r.blocks = take_bytes(d, n_bytes);
    if (r.blocks == NULL) return apr_no_memory(err, "a quantized tensor");
    apr_status status = recode(&r, err);
    if (status != APR_OK) {
        free(r.blocks);
        return status;
    }
    if (d->is_changed[replaced->tensor]) give_bytes(d, (uint8_t *)(uintptr_t)altered->data, altered->n_bytes);
    shape.dtype = from->dtype;
    shape.data = r.blocks;
    shape.n_bytes = n_bytes;
    *altered = shape;
    d->is_changed[replaced->tensor] = true;
    return apr_session_rewrite(d->session, from->name, altered, err);
}

/* What an earlier measurement has replaced stays until another tensor is measured. */
static apr_status replace_all_there(apr_damage *d, const apr_replaced *replaced, size_t n, apr_error *err)
{
    for (size_t i = 0; i < d->model->n_tensors; i++) {
        bool is_kept = false;
        for (size_t k = 0; d->is_changed[i] && k < n; k++) is_kept |= replaced[k].tensor == i;
        if (!is_kept) APR_TRY(put_back_there(d, i, err));
    }
    for (size_t i = 0; i < n; i++) APR_TRY(replace_there(d, &replaced[i], err));
    return APR_OK;
}

static apr_damage_figure figure_of(const double *sums, int64_t n_windows, int64_t window)
{
    double mean = 0.0, squares = 0.0;

    for (int64_t i = 0; i < n_windows; i++) mean += sums[i] / (double)(window * n_windows);
    for (int64_t i = 0; i < n_windows; i++) {
        const double off = sums[i] / (double)window - mean;
        squares += off * off;
    }
    return (apr_damage_figure){mean, n_windows > 1 ? sqrt(squares / ((double)n_windows * (double)(n_windows - 1))) : 0.0};
}

static apr_status measure_there(apr_damage *d, const apr_replaced *replaced, size_t n, double *sums, apr_error *err)
{
    APR_TRY(replace_all_there(d, replaced, n, err));
    return evaluate(d, d->session, begin_of(d, replaced, n), sums, err);
}

/* On the host a session binds the model's tensors when it is opened. */
static apr_status measure_here(apr_damage *d, const apr_replaced *replaced, size_t n, double *sums, apr_error *err)
{
    apr_session *session = NULL;
    apr_status status = APR_OK;
    size_t n_done = 0;

    while (status == APR_OK && n_done < n) {
        status = replace(d, &replaced[n_done], err);
        n_done += status == APR_OK;
    }
    if (status == APR_OK) status = apr_session_open(&session, &d->altered, &d->options, err);
    if (status == APR_OK) status = evaluate(d, session, begin_of(d, replaced, n), sums, err);
    apr_session_close(session);
    for (size_t i = 0; i < n_done; i++) put_back(d, replaced[i].tensor);
    return status;
}

apr_status apr_damage_measure(apr_damage *d, const apr_replaced *replaced, size_t n, apr_damage_figure *figure, apr_error *err)
{
    const int64_t n_windows = d->n_ids / d->window;
    double *const sums = calloc((size_t)n_windows, sizeof *sums);
    if (sums == NULL) return apr_no_memory(err, "divergences");
    const apr_status status = (d->session != NULL ? measure_there : measure_here)(d, replaced, n, sums, err);
    if (status == APR_OK) *figure = figure_of(sums, n_windows, d->window);
    free(sums);
    if (status == APR_OK && !isfinite(figure->mean)) return apr_fail(err, APR_E_NO, "the quantized model's logits are not finite");
    return status;
}
