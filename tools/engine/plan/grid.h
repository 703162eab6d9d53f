/* grid.h - many plans of one model at once: a table whose rows and columns each change what is asked, by type, context or GPU.
 *
 *     apr_plan_choice rows[..] = {{.dtype = "q8_0"}, {.dtype = "q4_k_m"}}, columns[..] = {{.ctx = 4096}, {.ctx = 32768}};
 *     apr_question_grid(&q, rows, 2, columns, 2, cells, &err);
 *
 * cells[r * n_columns + c] says what the single plan with both changes says: the numbers are those of `aprplan --dtype --ctx --gpu`. */
#ifndef APR_ENGINE_PLAN_GRID_H
#define APR_ENGINE_PLAN_GRID_H

#include "tools/engine/plan/parts.h"
#include "tools/engine/plan/question.h"

/* A change of what is asked; members that are 0 or NULL change nothing. */
typedef struct apr_plan_choice {
    const char *dtype;
    int64_t ctx;
    const apr_gpu *gpu; /* alone, with its own memory: --vram, --gpus and several names do not apply */
} apr_plan_choice;

/* The plan of one combination. With several places (GPUs, or a part on the host) the sums over all of them. */
typedef struct apr_plan_cell {
    bool is_made; /* false: there is no such plan, for example of a type that this model's rows cannot have */
    bool fits;
    int64_t n_ctx;
    int64_t max_ctx; /* the largest context that fits at all places; 0: none. Stated in the first column of each row only */
    uint64_t taken_bytes, budget_bytes;
    uint64_t parts[APR_PLAN_PARTS]; /* of the places that taken_bytes counts */
} apr_plan_cell;

/* Fills cells[n_rows * n_columns]. A combination that cannot be planned is a cell that is not made; APR_E_MEMORY fails. */
apr_status apr_question_grid(apr_plan_question *q, const apr_plan_choice *rows, size_t n_rows, const apr_plan_choice *columns,
                             size_t n_columns, apr_plan_cell *cells, apr_error *err);

#endif
