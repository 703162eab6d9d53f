/* step_oracle.c - steps by their definitions: coordinates after to coordinates before. */
#include "tests/support/step_oracle.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

uint32_t oracle_random(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

int64_t oracle_elems(const apr_shape *shape)
{
    int64_t n = 1;
    for (int i = 0; i < shape->rank; i++) n *= shape->dims[i];
    return n;
}

static bool changes_rows(apr_step_kind kind) { return kind == APR_STEP_PAD || kind == APR_STEP_CROP; }

/* The rows of PAD and CROP fit the shape. */
static apr_step random_step(apr_step_kind kind, const apr_shape *shape, uint32_t *seed)
{
    static const int numbers[] = {0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 4, 5, 6, 8, 32};
    const int32_t rows = (int32_t)shape->dims[0], other = (int32_t)(oracle_random(seed) % 9);
    apr_step step = {.kind = kind};
    if (kind == APR_STEP_PAD) return (apr_step){kind, {rows, rows + other}};
    if (kind == APR_STEP_CROP) return (apr_step){kind, {rows - other, rows}};
    for (int p = 0; p < apr_step_kinds[kind].n_parameters; p++)
        step.n[p] = numbers[oracle_random(seed) % (sizeof numbers / sizeof *numbers)];
    return step;
}

apr_step oracle_step_for(apr_step_kind kind, const apr_shape *shape, uint32_t *seed)
{
    for (int i = 0; i < 100; i++) {
        const apr_step step = random_step(kind, shape, seed);
        apr_shape after = *shape;
        apr_move move;
        if (apr_step_plan(&step, &after, &move) == NULL) return step;
    }
    return (apr_step){0};
}

apr_step oracle_fitting_step(apr_step_kind kind, apr_dtype dtype, int64_t columns, apr_shape *shape, uint32_t *seed)
{
    static const int64_t lengths[] = {1, 2, 3, 4, 6, 8, 12};
    for (int i = 0; i < 10000; i++) {
        *shape = (apr_shape){.dtype = dtype, .rank = changes_rows(kind) ? 2 : 1 + (int)(oracle_random(seed) % 4)};
        for (int d = 0; d < shape->rank; d++) shape->dims[d] = lengths[oracle_random(seed) % 7];
        shape->dims[shape->rank - 1] *= columns;
        if (oracle_elems(shape) > ORACLE_MOST) continue;
        const apr_step step = oracle_step_for(kind, shape, seed);
        if (step.kind == kind) return step;
    }
    abort();
}

/* Position along an axis of that length before the step, for position p after it. */
static int64_t before(const apr_step *step, int64_t length, int64_t p)
{
    const int64_t n = step->n[1], first = step->n[1], groups = step->n[2], each = step->n[3];
    const int64_t m = length / (n > 0 ? n : 1), width = groups > 0 && each > 0 ? (length - first) / (groups * each) : 0;

    if (step->kind == APR_STEP_DEINTERLEAVE) return p % m * n + p / m;
    if (step->kind == APR_STEP_INTERLEAVE) return p % n * m + p / n;
    if (step->kind == APR_STEP_TAKE) return p / step->n[3] * (length / step->n[1]) + step->n[2] + p % step->n[3];
    if (p < first) return p;
    const int64_t head = (p - first) / width, inside = (p - first) % width;
    if (step->kind == APR_STEP_GROUPED_TO_TILED) return first + (head % groups * each + head / groups) * width + inside;
    return first + (head % each * groups + head / each) * width + inside;
}

static int64_t rotary_before(const apr_step *step, int64_t n_rows, int64_t row)
{
    const bool of_part = step->kind == APR_STEP_PART_TO_HALVES || step->kind == APR_STEP_PART_TO_PAIRS;
    const bool to_halves = step->kind == APR_STEP_PAIRS_TO_HALVES || step->kind == APR_STEP_PART_TO_HALVES;
    const int64_t d = n_rows / step->n[0], h = row / d, r = row % d, n = of_part ? step->n[1] : d;
    for (int64_t j = 0; j < n / 2; j++)
        for (int64_t s = 0; s < 2; s++) {
            const int64_t pair = 2 * j + s, half = s * n / 2 + j;
            if (to_halves && half == r) return h * d + pair;
            if (!to_halves && pair == r) return h * d + half;
        }
    return row;
}

/* The axis at `at` of dims seen as [outer][length][inner]; `length_before` is what it was. */
static int64_t along_axis(const apr_step *step, const apr_shape *old, const apr_shape *now, int at, int64_t i)
{
    int64_t inner = 1;
    for (int d = at + 1; d < now->rank; d++) inner *= now->dims[d];
    const int64_t p = i / inner % now->dims[at], outer = i / inner / now->dims[at];
    return (outer * old->dims[at] + before(step, old->dims[at], p)) * inner + i % inner;
}

static int64_t source(const apr_step *step, const apr_shape *old, const apr_shape *now, int64_t i)
{
    const int64_t columns = old->rank > 1 ? old->dims[old->rank - 1] : 1, n = oracle_elems(old);
    switch (step->kind) {
    case APR_STEP_PAIRS_TO_HALVES:
    case APR_STEP_HALVES_TO_PAIRS:
    case APR_STEP_PART_TO_HALVES:
    case APR_STEP_PART_TO_PAIRS: return rotary_before(step, n / columns, i / columns) * columns + i % columns;
    case APR_STEP_TRANSPOSE: {
        const int64_t rows = old->dims[old->rank - 2], matrix = i / (rows * columns), c = i / rows % columns;
        return (matrix * rows + i % rows) * columns + c;
    }
    case APR_STEP_PICK: return step->n[0] * (n / old->dims[0]) + i;
    case APR_STEP_PAD: return i < n ? i : i % columns;
    case APR_STEP_CROP:
    case APR_STEP_SQUEEZE:
    case APR_STEP_UNSQUEEZE:
    case APR_STEP_FOLD:
    case APR_STEP_UNFOLD: return i;
    default: return along_axis(step, old, now, old->rank - 1 - step->n[0], i);
    }
}

void oracle_apply(const apr_step *step, apr_shape *shape, uint32_t *ids)
{
    const apr_shape old = *shape;
    apr_move move;
    if (apr_step_plan(step, shape, &move) != NULL) abort();
    const int64_t n = oracle_elems(shape);
    uint32_t *const moved = malloc((size_t)n * sizeof *moved + 1);
    for (int64_t i = 0; i < n; i++) moved[i] = ids[source(step, &old, shape, i)];
    memcpy(ids, moved, (size_t)n * sizeof *moved);
    free(moved);
}

void oracle_join(const apr_step *step, const apr_shape *parts, size_t n_parts, int64_t i, size_t *part, int64_t *element)
{
    const int at = parts[0].rank - 1 - step->n[0];
    int64_t inner = 1, length = 0;
    for (int d = at + 1; d < parts[0].rank; d++) inner *= parts[0].dims[d];
    for (size_t p = 0; p < n_parts; p++) length += parts[p].dims[at];
    const int64_t position = i / inner % length, outer = i / inner / length, width = length / step->n[1];
    int64_t inside = position % width;
    for (*part = 0; inside >= parts[*part].dims[at] / step->n[1]; ++*part) inside -= parts[*part].dims[at] / step->n[1];
    const int64_t share = parts[*part].dims[at] / step->n[1];
    *element = (outer * parts[*part].dims[at] + position / width * share + inside) * inner + i % inner;
}
