/* diff.c - pairs the tensors of two models by name and compares bytes and decoded values. */
#include "runtime/check/diff.h"

#include "formats/base/threads.h"
#include "formats/tensor/library_type.h"
#include "kernels/rows.h"
#include "runtime/check/row_blocks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double apr_diff_relative_max(const apr_metrics *metrics)
{
    const int64_t n = metrics->n - metrics->n_nonfinite;
    if (metrics->max_error == 0.0f || n <= 0) return 0.0;
    const double rms = sqrt(metrics->sum_sq_a / (double)n);
    return rms > 0.0 ? (double)metrics->max_error / rms : INFINITY;
}

static bool same_dims(const apr_tensor *a, const apr_tensor *b)
{
    return a->rank == b->rank && memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims) == 0;
}

/* True if every logical row is stored as the same bytes. The shapes must be equal. */
static bool same_bytes(const apr_tensor *a, const apr_tensor *b)
{
    if (a->dtype != b->dtype || a->n_bytes != b->n_bytes) return false;
    if (a->n_bytes == 0) return true;
    if (a->made != NULL || b->made != NULL || a->packing != NULL || b->packing != NULL) return false; /* no stored bytes */
    if (apr_step_equal(&a->pending, &b->pending)) return memcmp(a->data, b->data, a->n_bytes) == 0;
    const int64_t n_rows = a->rank == 1 ? a->dims[0] : apr_tensor_rows(a); /* a pending step permutes the elements of a vector */
    const uint64_t row_bytes = a->n_bytes / (uint64_t)n_rows;
    for (int64_t r = 0; r < n_rows; r++) {
        const uint8_t *const row_a = a->data + (uint64_t)apr_step_row(a->pending, n_rows, r) * row_bytes;
        const uint8_t *const row_b = b->data + (uint64_t)apr_step_row(b->pending, n_rows, r) * row_bytes;
        if (memcmp(row_a, row_b, row_bytes) != 0) return false;
    }
    return true;
}

/* One side of a pair. A packed layout has two valid readings: exact products of code and scale, or these rounded to the type that the
 * layout's library computes in. */
typedef struct side {
    const apr_tensor *tensor;
    apr_dtype library; /* type to round the values to; APR_F32: do not round */
    bool is_products;  /* read the exact products, although readers normally round them */
} side;

static void decode(const side *s, int64_t row, int64_t n_rows, float *values)
{
    apr_tensor products = *s->tensor;
    const int64_t n = n_rows * apr_tensor_columns(s->tensor);

    if (s->is_products) products.dtype = APR_F32;
    apr_decode_rows(&products, row, n_rows, values);
    for (int64_t i = 0; i < n && s->library != APR_F32; i++) values[i] = apr_round_as(s->library, values[i]);
}

/* False: out of memory. */
static bool compare_block(const side sides[2], const apr_row_blocks *blocks, int64_t i, apr_metrics *metrics)
{
    const int64_t row = i * blocks->rows_per_block, n_rows = apr_block_rows(blocks, i);
    float *const a = malloc(apr_block_bytes(blocks)), *const b = malloc(apr_block_bytes(blocks));
    const bool has_memory = a != NULL && b != NULL;

    *metrics = apr_metrics_empty();
    if (has_memory) {
        decode(&sides[0], row, n_rows, a);
        decode(&sides[1], row, n_rows, b);
        apr_metrics_add(metrics, a, b, n_rows * blocks->n_columns);
    }
    free(a);
    free(b);
    return has_memory;
}

/* Blocks are measured in parallel and added in order, so the result does not depend on the number of threads. */
static apr_status compare_sides(const side sides[2], apr_metrics *metrics, apr_error *err)
{
    const apr_row_blocks blocks = apr_row_blocks_of(sides[0].tensor);
    apr_metrics *const pieces = calloc((size_t)blocks.n_blocks + 1, sizeof *pieces);
    bool no_memory = pieces == NULL;

    if (pieces == NULL) return apr_no_memory(err, "the comparison");
    const double steps = (double)apr_tensor_elems(sides[0].tensor) * APR_OPS_EXP; /* two values decoded, and sums of float64 */
#pragma omp parallel for schedule(dynamic) reduction(|| : no_memory) num_threads(apr_threads(apr_all_threads(), blocks.n_blocks, steps))
    for (int64_t i = 0; i < blocks.n_blocks; i++) no_memory = !compare_block(sides, &blocks, i, &pieces[i]) || no_memory;
    *metrics = apr_metrics_empty();
    for (int64_t i = 0; i < blocks.n_blocks; i++) apr_metrics_merge(metrics, &pieces[i]);
    free(pieces);
    return no_memory ? apr_no_memory(err, "decoded values") : APR_OK;
}

static bool are_equal(const apr_metrics *metrics) { return metrics->max_at < 0 && metrics->n_nonfinite == 0; }

/* The other reading of a packed matrix: exact products if it is read rounded, rounded values if it is read as products. */
static side other_numbers(const apr_model *model, const apr_tensor *tensor)
{
    const apr_dtype library = apr_reference_type(model, tensor);
    if (apr_is_read_as_products(model, tensor)) return (side){tensor, library, false};
    return (side){tensor, APR_F32, tensor->packing != NULL && (library == APR_F16 || library == APR_BF16)};
}

static bool has_other_numbers(const side *s) { return s->is_products || s->library != APR_F32; }

/* Compares the other readings of one or both sides; as_library if any combination is equal. */
static apr_status compare_others(const apr_model_diff *diff, apr_tensor_diff *pair, apr_error *err)
{
    const side read[2] = {{pair->a, APR_F32, false}, {pair->b, APR_F32, false}},
               others[2] = {other_numbers(diff->a, pair->a), other_numbers(diff->b, pair->b)};

    for (int which = 1; which < 4 && !pair->as_library; which++) {
        const bool a = (which & 1) != 0, b = (which & 2) != 0;
        const side sides[2] = {a ? others[0] : read[0], b ? others[1] : read[1]};
        apr_metrics metrics;
        if ((a && !has_other_numbers(&others[0])) || (b && !has_other_numbers(&others[1]))) continue;
        APR_TRY(compare_sides(sides, &metrics, err));
        pair->as_library = are_equal(&metrics);
        if (pair->as_library) pair->metrics = metrics;
    }
    return APR_OK;
}

static apr_status compare_values(const apr_model_diff *diff, apr_tensor_diff *pair, apr_error *err)
{
    const side sides[2] = {{pair->a, APR_F32, false}, {pair->b, APR_F32, false}};

    APR_TRY(compare_sides(sides, &pair->metrics, err));
    pair->has_metrics = true;
    return are_equal(&pair->metrics) || pair->metrics.n_nonfinite > 0 ? APR_OK : compare_others(diff, pair, err);
}

static apr_status compare_pair(const apr_model_diff *diff, apr_tensor_diff *pair, double tolerance, apr_error *err)
{
    pair->differs = true;
    if (pair->a == NULL || pair->b == NULL) return APR_OK;
    pair->same_dims = same_dims(pair->a, pair->b);
    if (!pair->same_dims) return APR_OK;
    pair->same_bytes = same_bytes(pair->a, pair->b);
    const bool has_scales = pair->a->scale != NULL || pair->b->scale != NULL; /* equal bytes may then have different values */
    const bool is_composed = pair->a->made != NULL || pair->b->made != NULL || pair->a->packing != NULL || pair->b->packing != NULL;
    pair->differs = !pair->same_bytes;
    if ((pair->same_bytes && !has_scales) || !apr_can_decode(pair->a->dtype) || !apr_can_decode(pair->b->dtype)) return APR_OK;
    APR_TRY(compare_values(diff, pair, err));
    if (is_composed && pair->a->dtype == pair->b->dtype && are_equal(&pair->metrics) && !pair->as_library) {
        pair->same_bytes = true; /* one side has no stored bytes; writing its values would give the other's bytes */
        pair->differs = false;
    }
    const bool is_close =
        pair->metrics.n_nonfinite == 0 && apr_diff_relative_max(&pair->metrics) <= tolerance; /* false without a tolerance */
    if (!isnan(tolerance)) pair->differs = !is_close;
    return APR_OK;
}

static apr_status pair_tensors(apr_model_diff *diff, apr_error *err)
{
    diff->tensors = apr_arena_array(&diff->arena, diff->a->n_tensors + diff->b->n_tensors + 1, sizeof *diff->tensors);
    if (diff->tensors == NULL) return apr_no_memory(err, "the list of tensors");
    for (size_t i = 0; i < diff->a->n_tensors; i++) {
        const apr_tensor *const a = &diff->a->tensors[i], *const b = apr_model_find(diff->b, a->name);
        diff->tensors[diff->n_tensors++] = (apr_tensor_diff){.a = a, .b = b};
        diff->n_only_a += b == NULL;
    }
    for (size_t i = 0; i < diff->b->n_tensors; i++) {
        const apr_tensor *const b = &diff->b->tensors[i];
        if (apr_model_find(diff->a, b->name) != NULL) continue;
        diff->tensors[diff->n_tensors++] = (apr_tensor_diff){.b = b};
        diff->n_only_b++;
    }
    return APR_OK;
}

bool apr_tensor_diff_has_same_values(const apr_tensor_diff *pair)
{
    if (pair->has_metrics) return pair->metrics.max_at < 0 && pair->metrics.n_nonfinite == 0;
    return pair->same_bytes;
}

static apr_status compare_tensors(apr_model_diff *diff, double tolerance, const apr_progress *progress, apr_error *err)
{
    uint64_t total = 0, done = 0;

    APR_TRY(pair_tensors(diff, err));
    for (size_t i = 0; i < diff->a->n_tensors; i++) total += diff->a->tensors[i].n_bytes;
    for (size_t i = 0; i < diff->n_tensors; i++) {
        apr_tensor_diff *const pair = &diff->tensors[i];
        const apr_tensor *const named = pair->a != NULL ? pair->a : pair->b;
        apr_progress_report(progress, done, total, named->name);
        APR_TRY(compare_pair(diff, pair, tolerance, err));
        diff->n_differing += pair->differs;
        const bool same_values = !pair->same_bytes && apr_tensor_diff_has_same_values(pair);
        diff->n_same_bytes += pair->same_bytes;
        diff->n_same_values += same_values;
        diff->n_as_library += same_values && pair->as_library;
        diff->n_close += !pair->differs && !pair->same_bytes && !same_values;
        done += pair->a != NULL ? pair->a->n_bytes : 0;
    }
    return APR_OK;
}

apr_status apr_diff_models(apr_model_diff *diff, const apr_model *a, const apr_model *b, const apr_diff_options *options,
                           const apr_progress *progress, apr_error *err)
{
    *diff = (apr_model_diff){.a = a, .b = b};
    APR_TRY(apr_diff_facts(diff, !options->no_metadata, err));
    return compare_tensors(diff, options->tolerance, progress, err);
}

void apr_diff_close(apr_model_diff *diff)
{
    apr_arena_close(&diff->arena);
    *diff = (apr_model_diff){0};
}

bool apr_diff_is_same(const apr_model_diff *diff) { return diff->n_facts == 0 && diff->n_differing == 0; }

bool apr_diff_has_same_values(const apr_model_diff *diff)
{
    for (size_t i = 0; i < diff->n_tensors; i++)
        if (diff->tensors[i].differs && !apr_tensor_diff_has_same_values(&diff->tensors[i])) return false;
    return diff->n_facts == 0;
}
