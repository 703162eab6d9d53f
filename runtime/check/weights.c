/* weights.c - pairs and scans the weights of two programs, and builds the control during the scan. */
#include "runtime/check/weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct comparison {
    apr_weights *w;
    const apr_session *reference, *other;
    const apr_program *a, *b;
    int64_t *last_of; /* [a->n_weights] first pair of the reference's slot, the last time it was paired; -1: none */
    size_t capacity;
    apr_error *err;
} comparison;

/* --- the control --- */

/* Allocates memory that the result owns. */
static void *alloc_buffer(comparison *c, size_t n_bytes)
{
    void **const grown = realloc(c->w->buffers, (c->w->n_buffers + 1) * sizeof *grown);
    if (grown == NULL) return NULL;
    c->w->buffers = grown;
    return grown[c->w->n_buffers++] = malloc(n_bytes + 1);
}

/* The control starts with the tensors that the reference's program reads. */
static apr_status start_control(comparison *c)
{
    const apr_model *const reference = apr_trace_model(c->reference);
    apr_model *const control = &c->w->control;

    *control =
        (apr_model){.path = reference->path, .format = reference->format, .naming = reference->naming, .hparams = reference->hparams};
    size_t n_tensors = 1;
    for (size_t i = 0; i < c->a->n_weights; i++) n_tensors += (size_t)c->a->weights[i].count;
    control->tensors = apr_arena_array(&control->arena, n_tensors, sizeof *control->tensors);
    if (control->tensors == NULL) return apr_no_memory(c->err, "the control");
    for (size_t i = 0; i < c->a->n_weights; i++) {
        int64_t n;
        const apr_tensor *const parts = apr_trace_tensors(c->reference, (int)i, &n);
        for (int64_t j = 0; j < n; j++) control->tensors[control->n_tensors++] = parts[j];
    }
    return apr_model_index_names(control, c->err);
}

/* Allocates the control's tensor. A type without an encoder takes the other model's tensor; its bounds follow from its bits. */
static apr_status allocate_control(comparison *c, const apr_weight_pair *pair, apr_tensor *control, apr_scan_outputs *keep)
{
    const apr_tensor *const other = pair->other;

    *control = (apr_tensor){.name = pair->reference->name, .dtype = other->dtype, .rank = other->rank};
    memcpy(control->dims, other->dims, sizeof control->dims);
    if (!apr_has_control(other)) {
        *control = *other;
        control->name = pair->reference->name;
        return APR_OK;
    }
    control->n_bytes = apr_control_bytes(other);
    control->data = keep->control = alloc_buffer(c, (size_t)control->n_bytes);
    if (control->data == NULL) return apr_no_memory(c->err, "the control");
    if (other->scale == NULL) return APR_OK;
    apr_tensor *const scale = alloc_buffer(c, sizeof *scale);
    const int64_t n_rows = apr_tensor_rows(other);
    keep->control_scales = alloc_buffer(c, (size_t)n_rows * sizeof(float));
    if (scale == NULL || keep->control_scales == NULL) return apr_no_memory(c->err, "the control");
    *scale = (apr_tensor){.name = "scales",
                          .dtype = APR_F32,
                          .rank = 2,
                          .dims = {n_rows, 1},
                          .data = (const uint8_t *)keep->control_scales,
                          .n_bytes = (uint64_t)n_rows * sizeof(float)};
    control->scale = scale;
    control->scale_rows = 1;
    control->scale_columns = apr_tensor_columns(other);
    return APR_OK;
}

/* --- pairs --- */

static void note_damaged(apr_weights *w, const apr_tensor *tensor, const apr_tensor_scan *scan)
{
    if (w->n_damaged++ > 0) return;
    if (scan->n_nonfinite == 0) snprintf(w->damaged, sizeof w->damaged, "'%.200s' is all zeros", tensor->name);
    else
        snprintf(w->damaged, sizeof w->damaged, "'%.200s' has %lld numbers that are not finite, the first at %lld", tensor->name,
                 (long long)scan->n_nonfinite, (long long)scan->first_nonfinite);
}

static void note_far(apr_weights *w, const apr_weight_pair *pair)
{
    const apr_tensor_scan *const scan = &pair->scan;
    char place[48] = "the whole tensor";

    if (w->n_far++ > 0) return;
    if (scan->excess_at >= 0 && pair->other->rank >= 2) snprintf(place, sizeof place, "row %lld", (long long)scan->excess_at);
    if (scan->excess_allowed == 0.0)
        snprintf(w->far, sizeof w->far, "'%.200s': %s has a relative error of %.3g, but %s holds the reference's numbers exactly",
                 pair->other->name, place, scan->excess_error, apr_dtypes[pair->other->dtype].name);
    else
        snprintf(w->far, sizeof w->far, "'%.200s': %s has a relative error of %.3g; %s causes at most %.2g on these numbers",
                 pair->other->name, place, scan->excess_error, apr_dtypes[pair->other->dtype].name, scan->excess_allowed);
}

static void check_pair(apr_weights *w, const apr_weight_pair *pair)
{
    const apr_tensor_scan *const scan = &pair->scan;

    w->unchanged &= scan->relative == 0.0 && scan->n_nonfinite == 0;
    const bool may_be_zeros = pair->uses == APR_USE_FLOAT; /* biases, for example */
    if (scan->n_nonfinite > 0 || (scan->all_zero && scan->relative > 0.0 && !may_be_zeros)) note_damaged(w, pair->other, scan);
    if (scan->n_nonfinite > 0) return; /* its error is NaN */
    if (!(scan->excess <= 1.0)) note_far(w, pair);
}

static apr_weight_pair *add_pair(comparison *c, unsigned uses, const apr_tensor *reference, const apr_tensor *other)
{
    apr_weights *const w = c->w;

    if (w->n_pairs == c->capacity) {
        c->capacity = c->capacity > 0 ? 2 * c->capacity : 64;
        apr_weight_pair *const grown = realloc(w->pairs, c->capacity * sizeof *grown);
        if (grown == NULL) return NULL;
        w->pairs = grown;
    }
    apr_weight_pair *const pair = &w->pairs[w->n_pairs++];
    *pair = (apr_weight_pair){.reference = reference, .other = other, .uses = uses};
    return pair;
}

static bool same_bytes(const apr_tensor *a, const apr_tensor *b)
{
    const bool are_stored = a->made == NULL && b->made == NULL && a->packing == NULL && b->packing == NULL;
    return are_stored && a->dtype == b->dtype && a->n_bytes == b->n_bytes && a->scale == NULL && b->scale == NULL &&
           apr_step_equal(&a->pending, &b->pending) && memcmp(a->data, b->data, (size_t)a->n_bytes) == 0;
}

static apr_status scan_pair(comparison *c, apr_weight_pair *pair)
{
    apr_model *const control = &c->w->control;
    apr_scan_outputs keep = {0};
    apr_tensor replacement = *pair->reference;

    if (!same_bytes(pair->reference, pair->other)) {
        if ((pair->uses & APR_USE_MULTIPLIED) != 0) {
            pair->column_errors = calloc((size_t)apr_tensor_columns(pair->other) + 1, sizeof *pair->column_errors);
            if (pair->column_errors == NULL) return apr_no_memory(c->err, "the errors of the columns");
        }
        keep.column_errors = pair->column_errors;
        if (c->w->has_control) APR_TRY(allocate_control(c, pair, &replacement, &keep));
    }
    APR_TRY(apr_scan_tensor(pair->other, pair->reference, &keep, &pair->scan, c->err));
    const apr_tensor *const own = c->w->has_control ? apr_model_find(control, pair->reference->name) : NULL;
    if (own != NULL && !same_bytes(pair->reference, pair->other)) control->tensors[own - control->tensors] = replacement;
    check_pair(c->w, pair);
    return APR_OK;
}

/* Only one model has the tensor. Zeros are allowed, because a bias of zeros equals no bias. */
static apr_status check_single(comparison *c, const apr_tensor *tensor, bool is_truths)
{
    apr_tensor_scan scan;
    APR_TRY(apr_scan_tensor(tensor, NULL, NULL, &scan, c->err));
    if (scan.all_zero) return APR_OK;
    if (c->w->n_missing++ == 0)
        snprintf(c->w->missing, sizeof c->w->missing, is_truths ? "'%.200s' is missing" : "'%.200s' is not in the reference", tensor->name);
    return APR_OK;
}

static apr_status compare_parts(comparison *c, int slot, const apr_tensor *reference, const apr_tensor *other, int64_t n)
{
    const int64_t first = (int64_t)c->w->n_pairs;

    for (int64_t i = 0; i < n; i++) {
        apr_weight_pair *const pair = add_pair(c, c->a->weights[slot].uses, &reference[i], &other[i]);
        if (pair == NULL) return apr_no_memory(c->err, "the pairs of weights");
        APR_TRY(scan_pair(c, pair));
    }
    c->last_of[slot] = first;
    for (int64_t i = 0; i < n; i++) c->w->pairs[first + i].n_parts = n - i;
    return APR_OK;
}

static apr_status compare_slots(comparison *c, int slot, int other_slot, int64_t *pair_of)
{
    int64_t n, n_other;
    const apr_tensor *const reference = apr_trace_tensors(c->reference, slot, &n), *const other =
                                                                                       apr_trace_tensors(c->other, other_slot, &n_other);

    if (n == 0 && n_other == 0) return APR_OK; /* one program may have no slot where the other has an empty one */
    if (n == 0 || n_other == 0) return check_single(c, n > 0 ? reference : other, n > 0);
    if (c->last_of[slot] < 0 || c->w->pairs[c->last_of[slot]].other != other) APR_TRY(compare_parts(c, slot, reference, other, n));
    *pair_of = c->last_of[slot];
    return APR_OK;
}

static uint64_t bytes_of_control(const comparison *c)
{
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < c->b->n_weights; i++) {
        int64_t n;
        const apr_tensor *const parts = apr_trace_tensors(c->other, (int)i, &n);
        for (int64_t j = 0; j < n; j++)
            if (apr_has_control(&parts[j])) n_bytes += parts[j].n_bytes;
    }
    return n_bytes;
}

static apr_status compare_all(comparison *c, uint64_t control_limit, const apr_progress *progress)
{
    apr_weights *const w = c->w;

    w->control_bytes = bytes_of_control(c);
    w->has_control = control_limit > 0 && w->control_bytes <= control_limit;
    if (w->has_control) APR_TRY(start_control(c));
    for (size_t op = 0; op < c->a->n_ops; op++) {
        for (size_t i = 0; i < APR_OP_MAX_WEIGHTS; i++)
            APR_TRY(compare_slots(c, c->a->ops[op].weight[i], c->b->ops[op].weight[i], &w->pair_of[op * APR_OP_MAX_WEIGHTS + i]));
        if (progress != NULL) apr_progress_report(progress, op + 1, c->a->n_ops, "operations' weights");
    }
    for (size_t i = 0; i < w->n_pairs; i++)
        if (w->pairs[i].scan.excess > (w->worst != NULL ? w->worst->scan.excess : 0.0)) w->worst = &w->pairs[i];
    return APR_OK;
}

apr_status apr_weights_compare(apr_weights *w, const apr_session *reference, const apr_session *other, uint64_t control_limit,
                               const apr_progress *progress, apr_error *err)
{
    comparison c = {
        .w = w, .reference = reference, .other = other, .a = apr_session_program(reference), .b = apr_session_program(other), .err = err};

    *w = (apr_weights){.unchanged = true};
    w->pair_of = malloc((c.a->n_ops * APR_OP_MAX_WEIGHTS + 1) * sizeof *w->pair_of);
    c.last_of = malloc((c.a->n_weights + 1) * sizeof *c.last_of);
    apr_status status = w->pair_of != NULL && c.last_of != NULL ? APR_OK : apr_no_memory(err, "the pairs of weights");
    if (status == APR_OK) {
        for (size_t i = 0; i < c.a->n_ops * APR_OP_MAX_WEIGHTS; i++) w->pair_of[i] = -1;
        for (size_t i = 0; i < c.a->n_weights; i++) c.last_of[i] = -1;
        status = compare_all(&c, control_limit, progress);
    }
    free(c.last_of);
    return status;
}

void apr_weights_close(apr_weights *w)
{
    for (size_t i = 0; i < w->n_pairs; i++) free(w->pairs[i].column_errors);
    for (size_t i = 0; i < w->n_buffers; i++) free(w->buffers[i]);
    free(w->pairs);
    free(w->pair_of);
    free(w->buffers);
    apr_model_close(&w->control);
    *w = (apr_weights){0};
}

const apr_weight_pair *apr_weights_pair(const apr_weights *w, size_t op, int which)
{
    const int64_t pair = w->pair_of[op * APR_OP_MAX_WEIGHTS + (size_t)which];
    return pair >= 0 ? &w->pairs[pair] : NULL;
}

double apr_weights_relative(const apr_weights *w, size_t op, int which)
{
    const apr_weight_pair *const first = apr_weights_pair(w, op, which);
    double largest = 0.0;
    for (int64_t i = 0; first != NULL && i < first->n_parts; i++) largest = fmax(largest, first[i].scan.relative);
    return largest;
}
