/* plan_basics.c - default options, lookup of a line, and closing of a plan. */
#include "runtime/plan/plan.h"

const apr_plan_options apr_plan_defaults = {.n_batch = 512,
                                            .n_logits = 16,
                                            .n_sequences = 1,
                                            .kv_dtype = APR_F16,
                                            .headroom_bytes = (uint64_t)1 << 30,
                                            .stack_bytes = APR_DEFAULT_STACK_BYTES,
                                            .n_threads = 1};

void apr_plan_close(apr_plan *plan)
{
    apr_arena_close(&plan->arena);
    *plan = (apr_plan){0};
}

const apr_plan_line *apr_plan_line_of(const apr_plan *plan, apr_line_id id)
{
    for (size_t i = 0; i < plan->n_lines; i++)
        if (plan->lines[i].id == id) return &plan->lines[i];
    return NULL;
}
