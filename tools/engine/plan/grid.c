/* grid.c - plans with two changes at a time. */
#include "tools/engine/plan/grid.h"

#include "formats/base/bytes.h"

static void add_place(apr_plan_cell *cell, const apr_plan *plan)
{
    cell->taken_bytes = apr_saturating_add(cell->taken_bytes, plan->taken_bytes);
    cell->budget_bytes = apr_saturating_add(cell->budget_bytes, plan->budget_bytes);
    for (size_t i = 0; i < plan->n_lines; i++) {
        const apr_plan_line *const line = &plan->lines[i];
        uint64_t *const part = &cell->parts[apr_plan_part_of(line)];
        if (plan->is_shared || line->on == plan->judged) *part = apr_saturating_add(*part, line->bytes);
    }
}

static void take_plans(apr_plan_cell *cell, const apr_plans *plans)
{
    cell->is_made = true;
    cell->fits = apr_plans_fit(plans);
    cell->n_ctx = plans->plans[0].n_ctx;
    cell->max_ctx = INT64_MAX;
    for (int i = 0; i < plans->partition.n_places; i++) {
        add_place(cell, &plans->plans[i]);
        if (plans->plans[i].max_ctx < cell->max_ctx) cell->max_ctx = plans->plans[i].max_ctx;
    }
}

static void apply(apr_plan_question *q, apr_plan_asked *asked, const apr_plan_choice *choice)
{
    if (choice->dtype != NULL) asked->dtype = choice->dtype;
    if (choice->ctx != 0) asked->ctx = choice->ctx;
    if (choice->gpu == NULL) return;
    asked->vram = 0;
    q->gpu = choice->gpu;
    q->n_devices = 1;
    q->n_named = 0;
    q->ordinals[0] = 0;
}

/* is_first: of its row. The largest context is the same in all columns that change the context, and the slowest part of a plan. */
static apr_status fill_cell(apr_plan_question *q, const apr_plan_choice *row, const apr_plan_choice *column, bool is_first,
                            apr_plan_cell *cell, apr_error *err)
{
    apr_plan_asked asked = *q->asked;
    apr_plans_options options;
    apr_plans plans;

    *cell = (apr_plan_cell){.is_made = false};
    apply(q, &asked, row);
    apply(q, &asked, column);
    apr_status status = apr_question_options(q, &asked, apr_offload_is_some(&q->offload), &options, err);
    options.each.no_largest = !is_first;
    if (status == APR_OK) status = apr_plans_make(&plans, &q->program, &options, err);
    if (status != APR_OK) return status == APR_E_MEMORY ? status : APR_OK;
    take_plans(cell, &plans);
    apr_plans_close(&plans);
    return APR_OK;
}

apr_status apr_question_grid(apr_plan_question *q, const apr_plan_choice *rows, size_t n_rows, const apr_plan_choice *columns,
                             size_t n_columns, apr_plan_cell *cells, apr_error *err)
{
    for (size_t i = 0; i < n_rows * n_columns; i++)
        APR_TRY(fill_cell(q, &rows[i / n_columns], &columns[i % n_columns], i % n_columns == 0, &cells[i], err));
    return APR_OK;
}
