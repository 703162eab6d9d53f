/* placement.c - offsets of activations: values that are not alive together share memory. */
#include "runtime/plan/placement.h"
#include "runtime/program/fusion.h"
#include "runtime/program/op_spec.h"

#include <stdlib.h>

typedef struct lifetime {
    int value;
    int64_t begin, end; /* floats per token, half-open */
} lifetime;

/* The values that are alive, gathered by offset. */
typedef struct live_set {
    lifetime *items; /* capacity n_values */
    size_t n;
} live_set;

static void live_remove(live_set *live, size_t at)
{
    live->n--;
    for (size_t i = at; i < live->n; i++) live->items[i] = live->items[i + 1];
}

/* Inserts into the smallest gap that holds `width`, otherwise at the end. Returns the offset. */
static int64_t live_insert(live_set *live, int value, int64_t width)
{
    size_t best = live->n;
    int64_t best_gap = INT64_MAX, end = 0, place;

    for (size_t i = 0; i < live->n; i++) {
        const int64_t gap = live->items[i].begin - end;
        if (gap >= width && gap < best_gap) {
            best = i;
            best_gap = gap;
        }
        end = live->items[i].end;
    }
    place = best == 0 ? 0 : live->items[best - 1].end;
    for (size_t i = live->n; i > best; i--) live->items[i] = live->items[i - 1];
    live->items[best] = (lifetime){value, place, place + width};
    live->n++;
    return place;
}

/* A latent query runs as one step (runtime/program/fusion.h), which still reads the rotated query where it writes the joined one: the query
 * stays until then. */
static void keep_latent_query(const apr_program *program, size_t *last)
{
    for (size_t i = 0; i + APR_LATENT_QUERY_JOIN < program->n_ops; i++) {
        const apr_op *const rope = &program->ops[i], *const absorb = rope + APR_LATENT_ABSORB;
        const size_t join = i + APR_LATENT_QUERY_JOIN;
        const bool is_query = rope->kind == APR_OP_ROPE && absorb->kind == APR_OP_LINEAR && absorb->args.linear.heads.n > 0 &&
                              program->ops[join].kind == APR_OP_JOIN;
        if (is_query && last[rope->out] < join) last[rope->out] = join;
    }
}

/* last[v]: the last operation here that reads v (or computes it, if none reads it), or before which v is copied away. */
static void last_uses(const apr_program_part *part, size_t *last)
{
    const apr_program *const program = part->program;

    for (size_t i = 0; i < program->n_ops; i++) {
        const apr_op *const op = &program->ops[i];
        if (!apr_partition_has_op(part->partition, part->place, i)) continue;
        if (op->out >= 0) last[op->out] = i;
        for (int j = 0; j < APR_OP_MAX_IN; j++)
            if (op->in[j] >= 0) last[op->in[j]] = i;
    }
    for (size_t i = 0; part->partition != NULL && i < part->partition->n_transfers; i++) {
        const apr_transfer *const m = &part->partition->transfers[i];
        if (m->from == part->place && last[m->value] < m->op) last[m->value] = m->op;
    }
    keep_latent_query(program, last);
}

/* Puts the output in place of the first input, if the operation allows it and this is the last read of that input. */
static bool reuse_input(const apr_program *program, const apr_op *op, size_t at, const size_t *last, live_set *live, apr_plan *plan)
{
    const int from = op->in[0];
    if (!apr_op_specs[op->kind]->in_place || last[from] != at || program->values[from].width != program->values[op->out].width)
        return false;
    for (size_t i = 0; i < live->n; i++)
        if (live->items[i].value == from) {
            live->items[i].value = op->out;
            plan->value_offsets[op->out] = plan->value_offsets[from];
            return true;
        }
    return false;
}

static void place_value(const apr_program *program, int value, live_set *live, apr_plan *plan)
{
    const int64_t width = apr_rounded_width(program->values[value].width), place = live_insert(live, value, width);
    plan->value_offsets[value] = place;
    if (place + width > plan->activation_width) plan->activation_width = place + width;
}

/* For each operation places the values that are copied here before it, then its output. */
static void place_values(const apr_program_part *part, const size_t *last, live_set *live, apr_plan *plan)
{
    const apr_program *const program = part->program;
    size_t next = 0;

    for (size_t i = 0; i < program->n_ops; i++) {
        const apr_op *const op = &program->ops[i];
        for (; part->partition != NULL && next < part->partition->n_transfers && part->partition->transfers[next].op == i; next++)
            if (part->partition->transfers[next].to == part->place)
                place_value(program, part->partition->transfers[next].value, live, plan);
        if (apr_partition_has_op(part->partition, part->place, i) && op->out >= 0 && !program->values[op->out].is_logits &&
            !reuse_input(program, op, i, last, live, plan))
            place_value(program, op->out, live, plan);
        for (size_t j = live->n; j-- > 0;)
            if (last[live->items[j].value] <= i) live_remove(live, j);
    }
}

apr_status apr_place_activations(apr_plan *plan, const apr_program_part *part, apr_error *err)
{
    const size_t n = part->program->n_values;
    size_t *const last = calloc(n + 1, sizeof *last);
    live_set live = {.items = malloc((n + 1) * sizeof *live.items)};
    apr_status status = APR_OK;

    plan->value_offsets = apr_arena_array(&plan->arena, n + 1, sizeof *plan->value_offsets);
    if (last == NULL || live.items == NULL || plan->value_offsets == NULL) {
        status = apr_no_memory(err, "the places of the activations");
    } else {
        for (size_t v = 0; v < n; v++) plan->value_offsets[v] = -1;
        last_uses(part, last);
        place_values(part, last, &live, plan);
    }
    free(last);
    free(live.items);
    return status;
}
