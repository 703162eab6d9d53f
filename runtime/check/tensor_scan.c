/* tensor_scan.c - decodes a tensor in blocks of rows, and compares each row with the reference's and with a control. */
#include "runtime/check/tensor_scan.h"

#include "formats/base/threads.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The allowed RMS error, as a multiple of the control's, for a tensor and for a row. llama.cpp's encoders have at most 1.06 times our error
 * in a tensor of the tested models. An importance matrix costs some more, and a single row has fewer blocks to average over. */
static const double times_control = 1.6, times_control_row = 3.0;
/* Rows that are much smaller than the rest share scales with larger ones. So a tenth of the average row's error is allowed in addition. */
static const double share_of_mean = 0.1;

/* Allowed relative errors for types without an encoder here, by bits per value: what the coarsest types lose on Gaussian weights, plus a
 * margin. A row taken from another tensor has a relative error of 1.4, a row of zeros 1. */
static const struct {
    double bits, whole, row;
} by_bits[] = {{8.0, 0.05, 0.15}, {5.0, 0.2, 0.45}, {4.0, 0.3, 0.6}, {3.0, 0.45, 0.75}, {0.0, 0.85, 0.97}};

typedef struct scan {
    const apr_tensor *tensor, *reference;
    const apr_scan_outputs *keep; /* NULL: nothing */
    bool has_control;
    /* [n_rows] sums of squares of the reference, of the difference, and of the control's difference; NULL without a reference */
    double *sq_rows, *sq_errors, *sq_control;
} scan;

bool apr_has_control(const apr_tensor *tensor)
{
    const apr_dtype_facts *const facts = &apr_dtypes[tensor->dtype];
    return tensor->packing == NULL && apr_can_encode(tensor->dtype) && !facts->flat &&
           apr_tensor_columns(tensor) % facts->elems_per_block == 0;
}

uint64_t apr_control_bytes(const apr_tensor *tensor)
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

/* Encodes the reference's row to the tensor's type and decodes it again. */
static void make_control(const scan *s, int64_t row, const float *was, int64_t columns, uint8_t *bytes, float *back)
{
    const apr_codec *const codec = &apr_host_codecs()[s->tensor->dtype];
    float scale = 1.0f;

    if (s->tensor->scale != NULL) apr_encode_fp8_row(was, bytes, &scale, columns);
    else codec->encode(was, bytes, columns);
    codec->decode(bytes, back, columns);
    if (s->tensor->scale != NULL)
        for (int64_t i = 0; i < columns; i++) back[i] *= scale;
    if (s->keep == NULL || s->keep->control == NULL) return;
    const size_t row_bytes = (size_t)apr_row_bytes(s->tensor->dtype, columns);
    memcpy(s->keep->control + (size_t)row * row_bytes, bytes, row_bytes);
    if (s->keep->control_scales != NULL) s->keep->control_scales[row] = scale;
}

/* Computes the sums of one row. Adds column errors to `columns_sq`, which is private to the thread, or NULL. */
static void compare_row(const scan *s, int64_t row, const float *now, const float *was, const float *control, int64_t columns,
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

static bool open_buffers(buffers *b, const scan *s, int64_t block, int64_t columns)
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

static void scan_block(const scan *s, int64_t first, int64_t n_rows, const buffers *b, apr_tensor_scan *found)
{
    const int64_t columns = apr_tensor_columns(s->tensor);
    float *const was = b->rows + n_rows * columns;

    apr_decode_rows(s->tensor, first, n_rows, b->rows);
    count_unusual(b->rows, n_rows * columns, first * columns, found);
    if (s->reference == NULL) return;
    apr_decode_rows(s->reference, first, n_rows, was);
    for (int64_t r = 0; r < n_rows; r++) {
        if (s->has_control) make_control(s, first + r, was + r * columns, columns, b->bytes, b->control);
        compare_row(s, first + r, b->rows + r * columns, was + r * columns, s->has_control ? b->control : NULL, columns, b->columns_sq);
    }
}

static apr_status scan_blocks(const scan *s, int64_t n_rows, int64_t columns, apr_tensor_scan *found, apr_error *err)
{
    const int64_t block = columns > 0 && columns < 16384 ? 16384 / columns : 1;
    const apr_tensor_scan nothing = *found;
    bool failed = false;

#pragma omp parallel num_threads( \
    apr_threads(apr_all_threads(), (n_rows + block - 1) / block, (double)n_rows * (double)columns * APR_OPS_EXP))
    {
        apr_tensor_scan own = nothing;
        buffers b;
        const bool ready = open_buffers(&b, s, block, columns);
#pragma omp for schedule(dynamic)
        for (int64_t first = 0; first < n_rows; first += block)
            if (ready) scan_block(s, first, n_rows - first < block ? n_rows - first : block, &b, &own);
#pragma omp critical
        {
            failed |= !ready;
            found->n_nonfinite += own.n_nonfinite;
            found->all_zero &= own.all_zero;
            if (own.first_nonfinite >= 0 && (found->first_nonfinite < 0 || own.first_nonfinite < found->first_nonfinite))
                found->first_nonfinite = own.first_nonfinite;
            for (int64_t i = 0; ready && b.columns_sq != NULL && i < columns; i++) s->keep->column_errors[i] += b.columns_sq[i];
        }
        close_buffers(&b);
    }
    return failed ? apr_no_memory(err, "a block of decoded rows") : APR_OK;
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
static double rounding_of(const scan *s, int64_t n_rows, double sq)
{
    static const double largest = 0x1p-22;
    if (s->tensor->dtype != APR_F32 || n_rows != 1) return 0.0;
    return largest * largest * ((double)apr_tensor_columns(s->tensor) + sq);
}

static void check_by_control(const scan *s, int64_t n_rows, double sq, double sq_error, double sq_control, apr_tensor_scan *found)
{
    const double whole = times_control * times_control, row = times_control_row * times_control_row, rounding = rounding_of(s, n_rows, sq);

    found->control = sq_control > 0.0 ? sqrt(sq_control / sq) : 0.0;
    for (int64_t r = 0; r < n_rows; r++)
        add_excess(found, r, s->sq_errors[r], row * (s->sq_control[r] + share_of_mean * sq_control / (double)n_rows) + rounding,
                   s->sq_rows[r]);
    if (found->excess <= 1.0) add_excess(found, -1, sq_error, whole * sq_control + rounding, sq); /* a wrong row is the better message */
}

static void check_by_bits(const scan *s, int64_t n_rows, double sq, double sq_error, apr_tensor_scan *found)
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
static void sum_rows(const scan *s, int64_t n_rows, apr_tensor_scan *found)
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

apr_status apr_scan_tensor(const apr_tensor *tensor, const apr_tensor *reference, const apr_scan_outputs *keep, apr_tensor_scan *found,
                           apr_error *err)
{
    const int64_t columns = apr_tensor_columns(tensor), n_rows = columns > 0 ? apr_tensor_rows(tensor) : 0;
    scan s = {.tensor = tensor, .reference = reference, .keep = keep, .has_control = reference != NULL && apr_has_control(tensor)};
    char have[96], want[96];

    *found = (apr_tensor_scan){.first_nonfinite = -1, .all_zero = n_rows > 0, .worst_row_at = -1, .excess_at = -1};
    if (!apr_can_decode(tensor->dtype) || (reference != NULL && !apr_can_decode(reference->dtype)))
        return apr_fail(err, APR_E_UNSUPPORTED, "tensor '%s' is %s, which cannot be decoded", tensor->name, apr_dtypes[tensor->dtype].name);
    if (reference != NULL &&
        (tensor->rank != reference->rank || memcmp(tensor->dims, reference->dims, (size_t)tensor->rank * sizeof *tensor->dims) != 0))
        return apr_fail(err, APR_E_NO, "tensor '%s' is %s, the reference's %s", tensor->name, apr_dims_text(tensor, have, sizeof have),
                        apr_dims_text(reference, want, sizeof want));
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
