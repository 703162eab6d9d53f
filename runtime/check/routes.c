/* routes.c - records, compares and replaces the rows of operations that choose. A row is [expert ids, weights, gap] or [positions, gap]. */
#include "runtime/check/routes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool chooses(const apr_op *op) { return op->kind == APR_OP_ROUTE || op->kind == APR_OP_INDEX; }

bool apr_program_routes(const apr_program *program)
{
    for (size_t i = 0; i < program->n_ops; i++)
        if (chooses(&program->ops[i])) return true;
    return false;
}

/* The number of routing operations before this one. */
static int64_t ordinal_of(const apr_program *program, const apr_op *op)
{
    int64_t n = 0;
    for (const apr_op *o = program->ops; o < op; o++) n += chooses(o);
    return n;
}

static apr_status read_rows(apr_session *s, const apr_op *op, int64_t width, float **rows, apr_error *err)
{
    *rows = malloc((size_t)(apr_trace_n_tokens(s) * width) * sizeof **rows + 1);
    if (*rows == NULL) return apr_no_memory(err, "the choices of experts");
    const apr_status status = apr_trace_read(s, op->out, *rows, err);
    if (status != APR_OK) free(*rows);
    return status;
}

static apr_status record_rows(void *user, apr_session *s, const apr_op *op, apr_error *err)
{
    apr_routes *const r = user;
    const int64_t i = ordinal_of(apr_session_program(s), op), first = apr_session_position(s), n = apr_trace_n_tokens(s);
    float *rows;

    if (!chooses(op)) return APR_OK;
    if (i >= r->n_ops || first + n > r->n_positions) return APR_OK;
    APR_TRY(read_rows(s, op, r->widths[i], &rows, err));
    memcpy(r->rows[i] + first * r->widths[i], rows, (size_t)(n * r->widths[i]) * sizeof *rows);
    free(rows);
    return APR_OK;
}

static apr_status allocate(apr_routes *r, const apr_program *program, int64_t n_ids, apr_error *err)
{
    int64_t n = 0;

    for (size_t i = 0; i < program->n_ops; i++) r->n_ops += chooses(&program->ops[i]);
    r->n_positions = n_ids;
    r->widths = calloc((size_t)r->n_ops + 1, sizeof *r->widths);
    r->rows = calloc((size_t)r->n_ops + 1, sizeof *r->rows);
    if (r->widths == NULL || r->rows == NULL) return apr_no_memory(err, "the choices of experts");
    for (size_t i = 0; i < program->n_ops; i++) {
        if (!chooses(&program->ops[i])) continue;
        r->widths[n] = program->values[program->ops[i].out].width;
        r->rows[n] = calloc((size_t)(n_ids * r->widths[n]) + 1, sizeof **r->rows);
        if (r->rows[n++] == NULL) return apr_no_memory(err, "the choices of experts");
    }
    return APR_OK;
}

apr_status apr_routes_record(apr_routes *routes, apr_session *reference, const int32_t *ids, int64_t n_ids, apr_error *err)
{
    *routes = (apr_routes){0};
    APR_TRY(allocate(routes, apr_session_program(reference), n_ids, err));
    apr_session_reset(reference);
    apr_trace_watch(reference, APR_OP_COUNT, record_rows, routes);
    const apr_status status = apr_session_eval(reference, ids, (size_t)n_ids, NULL, err);
    apr_trace_watch(reference, APR_OP_COUNT, NULL, NULL);
    apr_session_reset(reference);
    return status;
}

void apr_routes_close(apr_routes *r)
{
    for (int64_t i = 0; r->rows != NULL && i < r->n_ops; i++) free(r->rows[i]);
    free(r->rows);
    free(r->widths);
    *r = (apr_routes){0};
}

/* True if both rows choose the same experts, in any order, or the same positions. */
static bool same_choices(const float *a, const float *b, int64_t n)
{
    if (memcmp(a, b, (size_t)n * sizeof *a) == 0) return true;
    for (int64_t i = 0; i < n; i++) {
        int64_t j = 0;
        while (j < n && a[i] != b[j]) j++;
        if (j == n) return false;
    }
    return true;
}

/* Compares one row. Returns false if it replaced the row by the reference's. */
static bool compare_row(apr_routes *r, const float *reference, float *row, int64_t width, const apr_op *op, int64_t position)
{
    const int64_t n_used = op->kind == APR_OP_INDEX ? width - 1 : (width - 1) / 2;
    const double gap = (double)reference[width - 1];

    r->count.n_choices++;
    if (same_choices(reference, row, n_used)) return true;
    if (gap <= r->bound) {
        r->count.n_forced++;
        memcpy(row, reference, (size_t)width * sizeof *row);
        return false;
    }
    if (r->count.n_wrong++ > 0) return true;
    r->count.first_layer = op->layer;
    r->count.first_is_position = op->kind == APR_OP_INDEX;
    r->count.first_position = position;
    r->count.first_gap = gap;
    return true;
}

static apr_status compare_rows(void *user, apr_session *s, const apr_op *op, apr_error *err)
{
    apr_routes *const r = user;
    const int64_t i = ordinal_of(apr_session_program(s), op), first = apr_session_position(s), n = apr_trace_n_tokens(s);
    bool all_kept = true;
    float *rows;

    if (!chooses(op)) return APR_OK;
    if (i >= r->n_ops || apr_session_program(s)->values[op->out].width != r->widths[i]) return APR_OK;
    APR_TRY(read_rows(s, op, r->widths[i], &rows, err));
    for (int64_t t = 0; t < n && first + t < r->n_positions; t++)
        all_kept &= compare_row(r, r->rows[i] + (first + t) * r->widths[i], rows + t * r->widths[i], r->widths[i], op, first + t);
    const apr_status status = all_kept ? APR_OK : apr_trace_write(s, op->out, rows, err);
    free(rows);
    return status;
}

void apr_routes_compare(apr_routes *routes, apr_session *session, double bound)
{
    routes->bound = bound;
    routes->count = (apr_route_count){0};
    apr_trace_watch(session, APR_OP_COUNT, compare_rows, routes);
}

void apr_routes_compare_stop(apr_session *session) { apr_trace_watch(session, APR_OP_COUNT, NULL, NULL); }

apr_status apr_routes_compare_live(apr_routes *routes, apr_session *reference, apr_session *other, int64_t n_positions, double bound,
                                   apr_error *err)
{
    *routes = (apr_routes){0};
    APR_TRY(allocate(routes, apr_session_program(reference), n_positions, err));
    apr_trace_watch(reference, APR_OP_COUNT, record_rows, routes);
    apr_routes_compare(routes, other, bound);
    return APR_OK;
}
