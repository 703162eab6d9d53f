/* session_kept.c - where an evaluation may begin again, and the values that are copied for it. */
#include "runtime/session/session_internal.h"

#include <stdlib.h>
#include <string.h>

/* --- where an evaluation may begin --- */

/* Does an operation from `op` on use a state that an earlier one uses? */
static bool shares_states(const apr_program *p, size_t op)
{
    for (size_t i = op; i < p->n_ops; i++)
        for (size_t k = 0; k < op && p->ops[i].state >= 0; k++)
            if (p->ops[k].state == p->ops[i].state) return true;
    return false;
}

/* The last operation that reads the value; 0: none does. */
static size_t last_reader(const apr_program *p, int value)
{
    for (size_t i = p->n_ops; i-- > 1;)
        for (int k = 0; k < APR_OP_MAX_IN; k++)
            if (p->ops[i].in[k] == value) return i;
    return 0;
}

/* Fills is_live[n_values]: made before operation `op`, read by it or later. */
static void find_live(const apr_program *p, size_t op, bool *is_live)
{
    memset(is_live, 0, p->n_values * sizeof *is_live);
    for (size_t i = op; i < p->n_ops; i++)
        for (int k = 0; k < APR_OP_MAX_IN; k++)
            if (p->ops[i].in[k] >= 0) is_live[p->ops[i].in[k]] = true;
    for (size_t i = op; i < p->n_ops; i++)
        if (p->ops[i].out >= 0) is_live[p->ops[i].out] = false;
}

static size_t first_of(const apr_fused *step)
{
    const int first = step->kind != APR_FUSED_PROMPT ? step->op
                      : step->add >= 0               ? step->add
                      : step->norm >= 0              ? step->norm
                                                     : step->linears[0];
    return (size_t)first;
}

size_t apr_session_prompt_step(const apr_session_place *at, size_t op)
{
    size_t i = at->prompt.n_steps - 1;
    while (i > 0 && first_of(&at->prompt.steps[i]) > op) i--;
    return i;
}

/* Does the step leave float32 for any reader, not only for the step after it? */
static bool leaves_floats(const apr_fused *step)
{
    return step->kind != APR_FUSED_PROMPT || step->store >= 0 || (step->glu < 0 && step->writes_f32);
}

/* A step can begin with its norm, after the sum that it would compute. */
static bool step_can_begin(const apr_session_place *at, size_t op)
{
    const size_t i = apr_session_prompt_step(at, op), first = first_of(&at->prompt.steps[i]);
    if (first == op) return i == 0 || leaves_floats(&at->prompt.steps[i - 1]);
    return apr_session_begins_after_sum(&at->prompt.steps[i], op);
}

bool apr_session_begins_after_sum(const apr_fused *step, size_t op)
{
    return step->kind == APR_FUSED_PROMPT && step->add >= 0 && step->norm == (int)op && step->add + 1 == step->norm;
}

/* Is the value in memory after the step that makes it? A step's sum is, if it is read after the step. */
static bool is_stored(const apr_session *s, const apr_session_place *at, int value)
{
    size_t maker = 0;
    while (s->program.ops[maker].out != value) maker++;
    const size_t i = apr_session_prompt_step(at, maker);
    const apr_fused *const step = &at->prompt.steps[i];
    if (step->kind == APR_FUSED_OPERATION) return true;
    return step->kind == APR_FUSED_PROMPT && step->add == (int)maker && i + 1 < at->prompt.n_steps &&
           last_reader(&s->program, value) >= first_of(&at->prompt.steps[i + 1]);
}

bool apr_session_can_begin(const apr_session *s, size_t op, bool *is_needed)
{
    const apr_program *const p = &s->program;
    const apr_session_place *const at = &s->places[0];
    const bool has_steps = at->prompt.n_steps > 0;

    if (s->n_places > 1 || op >= p->n_ops || shares_states(p, op) || (has_steps && !step_can_begin(at, op))) return false;
    for (size_t i = 0; i < op; i++)
        if (p->ops[i].out >= 0 && p->values[p->ops[i].out].is_logits) return false;
    bool *const is_live = malloc(p->n_values * sizeof *is_live);
    if (is_live == NULL) return false;
    find_live(p, op, is_live);
    bool can = true;
    for (size_t v = 0; v < p->n_values && has_steps; v++) can &= !is_live[v] || is_stored(s, at, (int)v);
    for (size_t v = 0; v < p->n_values && can && is_needed != NULL; v++) is_needed[v] |= is_live[v];
    free(is_live);
    return can;
}

/* --- copies --- */

static apr_status copy(const apr_session *s, const apr_session_batch *b, const apr_kept *kept, int value, bool back, apr_error *err)
{
    const int64_t width = s->program.values[value].width;
    float *const own = apr_session_value_at(s, value), *const away = kept->values[value] + (kept->first + b->first) * width;
    const size_t n_bytes = (size_t)(b->n_tokens * width) * sizeof *own;
    const apr_session_place *const at = &s->places[0];

    if (at->device != NULL) return s->options.cuda->transfer(at->device, back ? away : own, at->device, back ? own : away, n_bytes, err);
    memcpy(back ? own : away, back ? away : own, n_bytes);
    return APR_OK;
}

apr_status apr_session_store_kept(const apr_session *s, const apr_session_batch *b, const apr_kept *kept, int value, apr_error *err)
{
    if (kept == NULL || kept->begin > 0 || value < 0 || kept->values[value] == NULL) return APR_OK;
    return copy(s, b, kept, value, false, err);
}

apr_status apr_session_load_kept(const apr_session *s, const apr_session_batch *b, const apr_kept *kept, apr_error *err)
{
    if (kept == NULL || kept->begin == 0) return APR_OK;
    bool *const is_live = malloc(s->program.n_values * sizeof *is_live);
    apr_status status = is_live != NULL ? APR_OK : apr_no_memory(err, "a table of values");
    if (status == APR_OK) find_live(&s->program, kept->begin, is_live);
    for (size_t v = 0; v < s->program.n_values && status == APR_OK; v++)
        if (is_live[v]) status = copy(s, b, kept, (int)v, true, err);
    free(is_live);
    return status;
}
