/* damage.c - evaluates the model once as it is, then with some tensors quantized. */
#include "runtime/calibrate/damage.h"

#include "kernels/rows.h"
#include "runtime/check/compare.h"

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

/* Evaluates all windows in one session. sums[i] is that of window i; sums may be NULL. */
static apr_status evaluate(const apr_damage *d, const apr_model *model,
                           apr_status (*on_logits)(void *user, int64_t first, int64_t n_rows, const float *logits, apr_error *err),
                           double *sums, apr_error *err)
{
    apr_session *session = NULL;
    apr_status status = apr_session_open(&session, model, &d->options, err);

    for (int64_t i = 0; i < d->n_ids / d->window && status == APR_OK; i++) {
        reader r = {.d = d, .first = i * d->window};
        const apr_eval_output out = {.all_logits = true, .on_logits = on_logits, .user = &r};
        apr_session_reset(session);
        status = apr_session_eval(session, d->ids + r.first, (size_t)d->window, &out, err);
        if (sums != NULL) sums[i] = r.sum;
    }
    apr_session_close(session);
    return status;
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

apr_status apr_damage_open(apr_damage *d, const apr_model *model, const apr_session_options *options, const int32_t *ids, int64_t n_ids,
                           int64_t window, apr_error *err)
{
    *d = (apr_damage){.model = model, .options = *options, .ids = ids, .n_ids = n_ids, .window = window};
    d->vocab_size = model->hparams.vocab_size;
    d->options.n_ctx = window;
    if (window < 1 || n_ids < window || n_ids % window != 0 || d->vocab_size < 1)
        return apr_fail(err, APR_E_USAGE, "%lld tokens are not a multiple of the window of %lld", (long long)n_ids, (long long)window);
    APR_TRY(copy_table(d, err));
    d->reference = malloc((size_t)apr_damage_bytes(d->vocab_size, n_ids));
    if (d->reference == NULL) return apr_no_memory(err, "the model's logits");
    return evaluate(d, &d->altered, keep_rows, NULL, err);
}

void apr_damage_close(apr_damage *d)
{
    free(d->reference);
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

apr_status apr_damage_measure(apr_damage *d, const apr_replaced *replaced, size_t n, apr_damage_figure *figure, apr_error *err)
{
    const int64_t n_windows = d->n_ids / d->window;
    double *const sums = calloc((size_t)n_windows, sizeof *sums);
    apr_status status = sums != NULL ? APR_OK : apr_no_memory(err, "divergences");
    size_t n_done = 0;

    while (status == APR_OK && n_done < n) {
        status = replace(d, &replaced[n_done], err);
        n_done += status == APR_OK;
    }
    if (status == APR_OK) status = evaluate(d, &d->altered, compare_rows, sums, err);
    for (size_t i = 0; i < n_done; i++) put_back(d, replaced[i].tensor);
    if (status == APR_OK) *figure = figure_of(sums, n_windows, d->window);
    free(sums);
    if (status == APR_OK && !isfinite(figure->mean)) return apr_fail(err, APR_E_NO, "the quantized model's logits are not finite");
    return status;
}
