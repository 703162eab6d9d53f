/* weights.c - pairs and scans the weights of two programs, and builds the control during the scan. */
#include "runtime/check/weights.h"

#include "formats/base/threads.h"
#include "runtime/check/control_encoder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the scan of one tensor: decodes it in blocks of rows, and compares each row with the reference's and with a control --- */

/* The allowed RMS error, as a multiple of the control's, for a tensor and for a row. llama.cpp's encoders have at most 1.06 times our error
 * in a tensor of the tested models. An importance matrix costs some more, and a single row has fewer blocks to average over. */
static const double times_control = 1.6, times_control_row = 3.0;
/* Rows that are much smaller than the rest share scales with larger ones. So a tenth of the average row's error is allowed in addition. */
static const double share_of_mean = 0.1;

/* Where the other encoder is ours, nearly all rows are the control's, number for number. Then a row that is not is held closer to its
 * control: as a sum of squares. Choices that rounding tips have equal errors; a row of 4 bits that was scaled by 1.01 has 1.018 times. */
static const double share_of_same = 0.99, times_control_odd = 1.01;
enum { ROWS_TO_JUDGE_BY = 100 };

/* Allowed relative errors for types without an encoder here, by bits per value: what the coarsest types lose on Gaussian weights, plus a
 * margin. A row taken from another tensor has a relative error of 1.4, a row of zeros 1. */
static const struct {
    double bits, whole, row;
} by_bits[] = {{8.0, 0.05, 0.15}, {5.0, 0.2, 0.45}, {4.0, 0.3, 0.6}, {3.0, 0.45, 0.75}, {0.0, 0.85, 0.97}};

typedef struct tensor_scan {
    const apr_tensor *tensor, *reference;
    const apr_scan_outputs *keep; /* NULL: nothing */
    bool has_control;
    const apr_control_encoder *encoder; /* makes the control; NULL: the host does */
    /* [n_rows] sums of squares of the reference, of the difference, and of the control's difference; NULL without a reference */
    double *sq_rows, *sq_errors, *sq_control;
} tensor_scan;

static bool can_control(const apr_tensor *tensor)
{
    const apr_dtype_facts *const facts = &apr_dtypes[tensor->dtype];
    return !apr_tensor_is_packed(tensor) && apr_can_encode(tensor->dtype) && !facts->flat &&
           apr_tensor_columns(tensor) % facts->elems_per_block == 0;
}

static uint64_t control_bytes(const apr_tensor *tensor)
{
    return (uint64_t)(apr_row_bytes(tensor->dtype, apr_tensor_columns(tensor)) * apr_tensor_rows(tensor));
}

/* --- rows --- */

static void count_unusual(const float *rows, int64_t n, int64_t first, apr_tensor_scan *found)
{
    for (int64_t i = 0; i < n; i++) {
        if (rows[i] != 0.0f) found->all_zero = false;
        if (isfinite(rows[i])) continue;
        if (found->first_nonfinite < 0 || first + i < found->first_nonfinite) found->first_nonfinite = first + i;
        found->n_nonfinite++;
    }
}

/* The reference's row in the tensor's type. */
static void encode_control(const tensor_scan *s, const float *was, int64_t columns, uint8_t *bytes, float *scale)
{
    if (s->tensor->scale != NULL) apr_encode_fp8_row(was, bytes, scale, columns);
    else apr_host_codecs()[s->tensor->dtype].encode(was, bytes, columns);
}

/* Decodes the control's row again, and keeps its bytes if they are asked for. */
static void decode_control(const tensor_scan *s, int64_t row, const uint8_t *bytes, float scale, int64_t columns, float *back)
{
    apr_host_codecs()[s->tensor->dtype].decode(bytes, back, columns);
    if (s->tensor->scale != NULL)
        for (int64_t i = 0; i < columns; i++) back[i] *= scale;
    if (s->keep == NULL || s->keep->control == NULL) return;
    const size_t row_bytes = (size_t)apr_row_bytes(s->tensor->dtype, columns);
    memcpy(s->keep->control + (size_t)row * row_bytes, bytes, row_bytes);
    if (s->keep->control_scales != NULL) s->keep->control_scales[row] = scale;
}

/* Computes the sums of one row. Adds column errors to `columns_sq`, which is private to the thread, or NULL. */
static void compare_row(const tensor_scan *s, int64_t row, const float *now, const float *was, const float *control, int64_t columns,
                        double *columns_sq)
{
    double sq = 0.0, sq_error = 0.0, sq_control = 0.0;

    for (int64_t i = 0; i < columns; i++) {
        const double x = (double)was[i], error = x - (double)now[i];
        sq += x * x;
        sq_error += error * error;
        if (columns_sq != NULL) columns_sq[i] += error * error;
        if (control != NULL) sq_control += (x - (double)control[i]) * (x - (double)control[i]);
    }
    s->sq_rows[row] = sq;
    s->sq_errors[row] = sq_error;
    s->sq_control[row] = sq_control;
}

/* Buffers of one thread. */
typedef struct buffers {
    float *rows, *control; /* decoded rows of the tensor, then of the reference; one decoded row of the control */
    uint8_t *bytes;        /* the control's encoded row */
    double *columns_sq;    /* [columns] sums of squared errors, or NULL */
} buffers;

static bool open_buffers(buffers *b, const tensor_scan *s, int64_t block, int64_t columns)
{
    const bool keeps_columns = s->keep != NULL && s->keep->column_errors != NULL;
    const size_t n_bytes = s->has_control ? (size_t)apr_row_bytes(s->tensor->dtype, columns) : 0;

    *b = (buffers){.rows = malloc((size_t)(2 * block * columns) * sizeof(float) + 1),
                   .control = malloc((size_t)columns * sizeof(float) + 1),
                   .bytes = malloc(n_bytes + 1),
                   .columns_sq = keeps_columns ? calloc((size_t)columns + 1, sizeof(double)) : NULL};
    return b->rows != NULL && b->control != NULL && b->bytes != NULL && (!keeps_columns || b->columns_sq != NULL);
}

static void close_buffers(buffers *b)
{
    free(b->rows);
    free(b->control);
    free(b->bytes);
    free(b->columns_sq);
}

/* A thread's block of rows. With a worker the GPU makes the control of the reference's values while the tensor's are decoded. */
static apr_status scan_block(const tensor_scan *s, int64_t first, int64_t n_rows, const buffers *b, apr_cuda_worker *worker,
                             apr_tensor_scan *found, apr_error *err)
{
    const int64_t columns = apr_tensor_columns(s->tensor);
    const int64_t row_bytes = s->has_control ? apr_row_bytes(s->tensor->dtype, columns) : 0;
    float *const was = worker != NULL ? (float *)(void *)worker->in : b->rows + n_rows * columns;

    if (s->reference != NULL) apr_decode_rows(s->reference, first, n_rows, was);
    if (worker != NULL) APR_TRY(apr_control_encoder_start(s->encoder, worker, s->tensor->dtype, n_rows, columns, err));
    apr_decode_rows(s->tensor, first, n_rows, b->rows);
    count_unusual(b->rows, n_rows * columns, first * columns, found);
    if (worker != NULL) APR_TRY(apr_control_encoder_wait(s->encoder, worker, err));
    for (int64_t r = 0; r < n_rows && s->reference != NULL; r++) {
        const uint8_t *const bytes = worker != NULL ? worker->out + r * row_bytes : b->bytes;
        float scale = worker != NULL && s->tensor->scale != NULL ? worker->row_scales[r] : 1.0f;
        if (s->has_control && worker == NULL) encode_control(s, was + r * columns, columns, b->bytes, &scale);
        if (s->has_control) decode_control(s, first + r, bytes, scale, columns, b->control);
        compare_row(s, first + r, b->rows + r * columns, was + r * columns, s->has_control ? b->control : NULL, columns, b->columns_sq);
    }
    return APR_OK;
}

static apr_status scan_blocks(const tensor_scan *s, int64_t n_rows, int64_t columns, apr_tensor_scan *found, apr_error *err)
{
    const int64_t most = s->encoder != NULL ? APR_CONTROL_VALUES : 16384, block = columns > 0 && columns < most ? most / columns : 1;
    const apr_tensor_scan nothing = *found;
    apr_status status = APR_OK;

#pragma omp parallel num_threads( \
    apr_threads(apr_all_threads(), (n_rows + block - 1) / block, (double)n_rows * (double)columns * APR_OPS_EXP))
    {
        apr_tensor_scan own = nothing;
        apr_error own_err = {0};
        buffers b;
        apr_cuda_worker *const worker = s->encoder != NULL ? s->encoder->workers[apr_thread_number()] : NULL;
        apr_status own_status = open_buffers(&b, s, block, columns) ? APR_OK : apr_no_memory(&own_err, "a block of decoded rows");
#pragma omp for schedule(dynamic)
        for (int64_t first = 0; first < n_rows; first += block)
            if (own_status == APR_OK)
                own_status = scan_block(s, first, n_rows - first < block ? n_rows - first : block, &b, worker, &own, &own_err);
#pragma omp critical
        {
            if (own_status != APR_OK && status == APR_OK) status = apr_fail(err, own_status, "%s", own_err.text);
            found->n_nonfinite += own.n_nonfinite;
            found->all_zero &= own.all_zero;
            if (own.first_nonfinite >= 0 && (found->first_nonfinite < 0 || own.first_nonfinite < found->first_nonfinite))
                found->first_nonfinite = own.first_nonfinite;
            for (int64_t i = 0; own_status == APR_OK && b.columns_sq != NULL && i < columns; i++)
                s->keep->column_errors[i] += b.columns_sq[i];
        }
        close_buffers(&b);
    }
    return status;
}

/* --- bounds --- */

/* Records the ratio of error to allowed error at one place, if it is the largest so far. All arguments are sums of squares. */
static void add_excess(apr_tensor_scan *found, int64_t at, double error, double allowed, double size)
{
    const double excess = error > 0.0 || isnan(error) ? sqrt(error / allowed) : 0.0; /* infinite if no error is allowed */
    if (excess <= found->excess || isnan(found->excess)) return;
    found->excess = excess;
    found->excess_at = at;
    found->excess_error = sqrt(error / size);
    found->excess_allowed = sqrt(allowed / size);
}

/* Conversion may have transformed an F32 vector and back (adding 1 to a norm's gains and subtracting it, exp and log of a decay rate).
 * So each number may differ by four roundings of itself or of 1. */
static double rounding_of(const tensor_scan *s, int64_t n_rows, double sq)
{
    static const double largest = 0x1p-22;
    if (s->tensor->dtype != APR_F32 || n_rows != 1) return 0.0;
    return largest * largest * ((double)apr_tensor_columns(s->tensor) + sq);
}

/* The few rows that differ from the control, if all others are equal to it. */
static void check_odd_rows(const tensor_scan *s, int64_t n_rows, apr_tensor_scan *found)
{
    int64_t n_same = 0;

    for (int64_t r = 0; r < n_rows; r++) n_same += s->sq_errors[r] == s->sq_control[r];
    if (n_rows < ROWS_TO_JUDGE_BY || n_same == n_rows || (double)n_same < share_of_same * (double)n_rows) return;
    for (int64_t r = 0; r < n_rows; r++)
        if (s->sq_errors[r] > s->sq_control[r]) add_excess(found, r, s->sq_errors[r], times_control_odd * s->sq_control[r], s->sq_rows[r]);
}

static void check_by_control(const tensor_scan *s, int64_t n_rows, double sq, double sq_error, double sq_control, apr_tensor_scan *found)
{
    const double whole = times_control * times_control, row = times_control_row * times_control_row, rounding = rounding_of(s, n_rows, sq);

    found->control = sq_control > 0.0 ? sqrt(sq_control / sq) : 0.0;
    for (int64_t r = 0; r < n_rows; r++)
        add_excess(found, r, s->sq_errors[r], row * (s->sq_control[r] + share_of_mean * sq_control / (double)n_rows) + rounding,
                   s->sq_rows[r]);
    if (found->excess <= 1.0) check_odd_rows(s, n_rows, found);
    if (found->excess <= 1.0) add_excess(found, -1, sq_error, whole * sq_control + rounding, sq); /* a wrong row is the better message */
}

static void check_by_bits(const tensor_scan *s, int64_t n_rows, double sq, double sq_error, apr_tensor_scan *found)
{
    const double bits = apr_dtype_bits(s->tensor->dtype);
    size_t i = 0;

    while (bits < by_bits[i].bits) i++;
    found->control = NAN;
    for (int64_t r = 0; r < n_rows; r++)
        add_excess(found, r, s->sq_errors[r], by_bits[i].row * by_bits[i].row * fmax(s->sq_rows[r], 1e-4 * sq / (double)n_rows),
                   s->sq_rows[r]);
    if (found->excess <= 1.0) add_excess(found, -1, sq_error, by_bits[i].whole * by_bits[i].whole * sq, sq);
}

/* Threads fill the rows in any order; this adds them up in order, so the result does not depend on the number of threads. */
static void sum_rows(const tensor_scan *s, int64_t n_rows, apr_tensor_scan *found)
{
    double sq = 0.0, sq_error = 0.0, sq_control = 0.0;

    for (int64_t r = 0; r < n_rows; r++) sq += s->sq_rows[r], sq_error += s->sq_errors[r], sq_control += s->sq_control[r];
    if (s->has_control) check_by_control(s, n_rows, sq, sq_error, sq_control, found);
    else check_by_bits(s, n_rows, sq, sq_error, found);
    if (sq_error == 0.0) return;
    found->relative = sqrt(sq_error / sq);
    for (int64_t r = 0; r < n_rows; r++) {
        const double error =
            s->sq_errors[r] > 0.0 ? sqrt(s->sq_errors[r] / fmax(s->sq_rows[r], 1e-4 * sq / (double)n_rows)) : s->sq_errors[r];
        if (!(error <= found->worst_row) && !isnan(found->worst_row)) found->worst_row = error, found->worst_row_at = r;
    }
}

static apr_status scan_tensor(const apr_tensor *tensor, const apr_tensor *reference, const apr_scan_outputs *keep,
                              const apr_control_encoder *encoder, apr_tensor_scan *found, apr_error *err)
{
    const int64_t columns = apr_tensor_columns(tensor), n_rows = columns > 0 ? apr_tensor_rows(tensor) : 0;
    tensor_scan s = {.tensor = tensor, .reference = reference, .keep = keep, .has_control = reference != NULL && can_control(tensor)};
    char have[96], want[96];

    *found = (apr_tensor_scan){.first_nonfinite = -1, .all_zero = n_rows > 0, .worst_row_at = -1, .excess_at = -1};
    if (!apr_can_decode(tensor->dtype) || (reference != NULL && !apr_can_decode(reference->dtype)))
        return apr_fail(err, APR_E_UNSUPPORTED, "tensor '%s' is %s, which cannot be decoded", tensor->name, apr_dtypes[tensor->dtype].name);
    if (reference != NULL &&
        (tensor->rank != reference->rank || memcmp(tensor->dims, reference->dims, (size_t)tensor->rank * sizeof *tensor->dims) != 0))
        return apr_fail(err, APR_E_NO, "tensor '%s' is %s, the reference's %s", tensor->name, apr_dims_text(tensor, have, sizeof have),
                        apr_dims_text(reference, want, sizeof want));
    if (s.has_control && encoder != NULL && apr_control_encoder_takes(encoder, tensor)) s.encoder = encoder;
    double *const sums = reference != NULL ? calloc(3 * (size_t)n_rows + 1, sizeof *sums) : NULL;
    if (reference != NULL && sums == NULL) return apr_no_memory(err, "the errors of the rows");
    s.sq_rows = sums;
    s.sq_errors = sums != NULL ? sums + n_rows : NULL;
    s.sq_control = sums != NULL ? sums + 2 * n_rows : NULL;
    const apr_status status = scan_blocks(&s, n_rows, columns, found, err);
    if (status == APR_OK && reference != NULL) sum_rows(&s, n_rows, found);
    free(sums);
    return status;
}

apr_status apr_scan_tensor(const apr_tensor *tensor, const apr_tensor *reference, const apr_scan_outputs *keep, apr_tensor_scan *found,
                           apr_error *err)
{
    return scan_tensor(tensor, reference, keep, NULL, found, err);
}

/* --- pairs of both programs --- */

typedef struct comparison {
    apr_weights *w;
    const apr_session *reference, *other;
    const apr_program *a, *b;
    int64_t *last_of; /* [a->n_weights] first pair of the reference's slot, the last time it was paired; -1: none */
    size_t capacity;
    apr_control_encoder encoder;
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
    if (!can_control(other)) {
        *control = *other;
        control->name = pair->reference->name;
        return APR_OK;
    }
    control->n_bytes = control_bytes(other);
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
    return a->scale == NULL && b->scale == NULL && apr_step_equal(&a->pending, &b->pending) && apr_same_bytes(a, b);
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
    APR_TRY(scan_tensor(pair->other, pair->reference, &keep, &c->encoder, &pair->scan, c->err));
    const apr_tensor *const own = c->w->has_control ? apr_model_find(control, pair->reference->name) : NULL;
    if (own != NULL && !same_bytes(pair->reference, pair->other)) control->tensors[own - control->tensors] = replacement;
    check_pair(c->w, pair);
    return APR_OK;
}

/* Only one model has the tensor. Zeros are allowed, because a bias of zeros equals no bias. */
static apr_status check_single(comparison *c, const apr_tensor *tensor, bool is_truths)
{
    apr_tensor_scan scan;
    APR_TRY(scan_tensor(tensor, NULL, NULL, NULL, &scan, c->err));
    if (scan.all_zero) return APR_OK;
    if (c->w->n_missing++ == 0)
        snprintf(c->w->missing, sizeof c->w->missing, is_truths ? "'%.200s' is missing" : "'%.200s' is not in the reference", tensor->name);
    return APR_OK;
}

static apr_status compare_parts(comparison *c, int slot, const apr_tensor *reference, const apr_tensor *other, int64_t n)
{
    const int64_t first = (int64_t)c->w->n_pairs;

    for (int64_t i = 0; i < n; i++) {
        APR_TRY(apr_session_go_on(c->other, c->err));
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
            if (can_control(&parts[j])) n_bytes += parts[j].n_bytes;
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
        apr_control_encoder_open(&c.encoder, other);
        status = compare_all(&c, control_limit, progress);
        apr_control_encoder_close(&c.encoder);
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
