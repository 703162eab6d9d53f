/* composed.c - plans composed tensors; reads no weights. */
#include "formats/tensor/composed.h"

#include "formats/base/bytes.h"
#include "formats/tensor/packing.h"

#include <string.h>

apr_shape apr_tensor_shape(const apr_tensor *tensor)
{
    apr_shape shape = {.dtype = tensor->dtype, .rank = tensor->rank};
    memcpy(shape.dims, tensor->dims, sizeof shape.dims);
    return shape;
}

static apr_status step_error(const apr_tensor *tensor, const apr_step *step, const apr_shape *shape, const char *why, const char *where,
                             apr_error *err)
{
    apr_tensor seen = {.rank = shape->rank};
    char dims[128], text[APR_CHAIN_TEXT];
    const apr_chain chain = {1, {*step}};

    memcpy(seen.dims, shape->dims, sizeof seen.dims);
    return apr_fail(err, strcmp(why, "does not fit") == 0 ? APR_E_DAMAGED : APR_E_UNSUPPORTED, "%s: tensor '%s', %s %s: the step '%s' %s",
                    where, tensor->name, apr_dtypes[shape->dtype].name, apr_dims_text(&seen, dims, sizeof dims),
                    apr_chain_text(&chain, text), why);
}

/* ---- several tensors as one ---- */

/* Are all dimensions equal, except the one at `except`? */
static bool same_but(const apr_tensor *a, const apr_tensor *b, int except)
{
    if (a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (i != except && a->dims[i] != b->dims[i]) return false;
    return true;
}

/* Adds a new outermost axis. */
static bool plan_stack(apr_composed *composed, apr_shape *shape, int64_t *ends)
{
    const apr_tensor *const first = composed->parts[0];

    if (first->rank == APR_MAX_RANK) return false;
    for (size_t i = 0; i < composed->n_parts; i++) {
        if (!same_but(first, composed->parts[i], -1)) return false;
        if (__builtin_mul_overflow((int64_t)i + 1, apr_tensor_elems(first), &ends[i])) return false;
    }
    memmove(shape->dims + 1, shape->dims, (size_t)shape->rank * sizeof *shape->dims);
    shape->dims[0] = (int64_t)composed->n_parts;
    shape->rank++;
    return true;
}

/* Each group along the axis holds a share of every part. */
static bool plan_join(apr_composed *composed, const apr_step *step, apr_shape *shape, int64_t *ends)
{
    const int at = shape->rank - 1 - step->n[0];
    const int64_t groups = step->n[1];
    int64_t length = 0, inner = 1;

    if (step->n[0] < 0 || at < 0 || groups < 1) return false;
    for (int i = at + 1; i < shape->rank; i++) inner *= shape->dims[i];
    for (size_t i = 0; i < composed->n_parts; i++) {
        const apr_tensor *const part = composed->parts[i];
        if (!same_but(composed->parts[0], part, at) || part->dims[at] % groups != 0) return false;
        if (__builtin_add_overflow(length, part->dims[at], &length)) return false;
        if (__builtin_mul_overflow(length / groups, inner, &ends[i])) return false;
    }
    shape->dims[at] = length;
    return true;
}

static bool are_whole_blocks(const int64_t *ends, size_t n, apr_dtype dtype)
{
    for (size_t i = 0; i < n; i++)
        if (ends[i] % apr_dtypes[dtype].elems_per_block != 0) return false;
    return dtype != APR_APR_Q4 && dtype != APR_APR_Q8;
}

static apr_status plan_joining(apr_tensor *tensor, apr_composed *composed, apr_shape *shape, apr_arena *arena, const char *where,
                               apr_error *err)
{
    const apr_step *const step = &composed->chain.steps[0];
    int64_t *const ends = apr_arena_array(arena, composed->n_parts, sizeof *ends);

    if (ends == NULL) return apr_no_memory(err, "the parts of a tensor");
    if (!(step->kind == APR_STEP_STACK ? plan_stack(composed, shape, ends) : plan_join(composed, step, shape, ends)))
        return step_error(tensor, step, shape, "does not fit", where, err);
    if (!are_whole_blocks(ends, composed->n_parts, shape->dtype))
        return step_error(tensor, step, shape, "would break the blocks of its type", where, err);
    composed->ends = ends;
    composed->moves[0] = (apr_move){.kind = APR_MOVE_JOIN, .chunk = ends[composed->n_parts - 1]};
    return APR_OK;
}

/* ---- the whole chain ---- */

/* Do all parts have the same type, without scales or packing? Then bytes can be moved without decoding. */
static bool have_one_type(const apr_composed *composed)
{
    for (size_t i = 0; i < composed->n_parts; i++) {
        const apr_tensor *const part = composed->parts[i];
        if (part->dtype != composed->parts[0]->dtype || part->scale != NULL || apr_tensor_is_packed(part)) return false;
        if (apr_tensor_is_composed(part) && (part->composed->computes || part->composed->decodes)) return false;
    }
    return true;
}

static apr_status plan_chain(apr_tensor *tensor, apr_composed *composed, apr_shape *shape, apr_arena *arena, const char *where,
                             apr_error *err)
{
    const bool of_several = composed->chain.n_steps > 0 && apr_step_kinds[composed->chain.steps[0].kind].of_several;
    bool multiplies_rows = false; /* which rows is computed from their place in the result (kernels/rows.c) */

    composed->decodes = !have_one_type(composed);
    if (composed->decodes) shape->dtype = APR_F32;
    composed->lowest = composed->dtype = shape->dtype;
    if (of_several) APR_TRY(plan_joining(tensor, composed, shape, arena, where, err));
    else if (composed->n_parts != 1)
        return apr_fail(err, APR_E_USAGE, "%s: tensor '%s' has several parts and no step that joins them", where, tensor->name);
    for (int i = of_several; i < composed->chain.n_steps; i++) {
        const apr_step *const step = &composed->chain.steps[i];
        const apr_shape before = *shape;
        const char *const why = apr_step_plan(step, shape, &composed->moves[i]);
        if (why != NULL) return step_error(tensor, step, &before, why, where, err);
        if (multiplies_rows && composed->moves[i].kind != APR_MOVE_NOTHING)
            return step_error(tensor, step, &before, "would move rows that were multiplied", where, err);
        multiplies_rows |= (step->kind == APR_STEP_MULTIPLY || step->kind == APR_STEP_DIVIDE) && step->n[2] > 0;
        composed->computes |= apr_step_kinds[step->kind].reach == APR_REACH_VALUES;
        if (!composed->computes) composed->dtype = shape->dtype;
    }
    return APR_OK;
}

/* The first element of the tensor in its only part, if it is contiguous there; otherwise -1. Each cut must take from one chunk that is
 * all that the cuts before it left. */
static int64_t contiguous_from(const apr_composed *composed)
{
    const apr_tensor *const part = composed->parts[0];
    int64_t first = 0, n_elems = apr_tensor_elems(part);

    if (composed->n_parts != 1 || composed->ends != NULL || composed->computes || apr_tensor_is_composed(part)) return -1;
    for (int i = 0; i < composed->chain.n_steps; i++) {
        const apr_move *const move = &composed->moves[i];
        if (move->kind == APR_MOVE_NOTHING) continue;
        if (move->kind != APR_MOVE_CUT || move->chunk != n_elems) return -1;
        first += move->first;
        n_elems = move->count;
    }
    return first;
}

/* Whole rows of a packed matrix are a packed matrix again. */
static apr_status view_packed(apr_tensor *tensor, const apr_tensor *part, int64_t first, apr_arena *arena, apr_error *err)
{
    apr_packing *const packing = apr_arena_alloc(arena, sizeof *packing);
    if (packing == NULL) return apr_no_memory(err, "a part of a packed matrix");
    *packing = *part->packing;
    packing->first_row += first / packing->columns;
    tensor->dtype = part->dtype;
    tensor->packing = packing;
    return APR_OK;
}

/* A range of rows of a tensor with scales: its rows and the rows of scales that belong to them. */
typedef struct scaled_rows {
    int64_t first_row, n_rows, first_scale_row, n_scale_rows, n_scale_columns;
} scaled_rows;

/* True for whole rows that do not split a block of scales: whole matrices of a stack, or rows of one matrix that begin at a block. */
static bool cut_scales(const apr_tensor *part, int64_t first, int64_t n_elems, scaled_rows *cut)
{
    const int64_t columns = apr_tensor_columns(part), rows = apr_tensor_matrix_rows(part);
    if (columns == 0 || rows == 0 || first % columns != 0 || n_elems % columns != 0) return false;
    const int64_t scale_rows_each = apr_div_up(rows, part->scale_rows), row = first / columns % rows, matrix = first / columns / rows;

    *cut = (scaled_rows){
        .first_row = first / columns, .n_rows = n_elems / columns, .n_scale_columns = apr_div_up(columns, part->scale_columns)};
    if (apr_tensor_elems(part->scale) == 1) return true;
    if (apr_tensor_elems(part->scale) != apr_tensor_rows(part) / rows * scale_rows_each * cut->n_scale_columns) return false;
    const bool whole_matrices = row == 0 && cut->n_rows % rows == 0;
    cut->first_scale_row = matrix * scale_rows_each + row / part->scale_rows;
    cut->n_scale_rows = whole_matrices ? cut->n_rows / rows * scale_rows_each : apr_div_up(cut->n_rows, part->scale_rows);
    return whole_matrices || (row % part->scale_rows == 0 && row + cut->n_rows <= rows);
}

static bool is_scaled_view(const apr_tensor *tensor, const apr_tensor *part, int64_t first, scaled_rows *cut)
{
    if (part->scale == NULL || part->data == NULL || apr_tensor_source(part) != APR_SOURCE_IN_ORDER) return false;
    return apr_tensor_columns(tensor) == apr_tensor_columns(part) && cut_scales(part, first, apr_tensor_elems(tensor), cut);
}

static apr_status view_scaled(apr_tensor *tensor, const apr_tensor *part, const scaled_rows *cut, apr_arena *arena, apr_error *err)
{
    apr_tensor *const scale = apr_arena_alloc(arena, sizeof *scale);

    if (scale == NULL) return apr_no_memory(err, "the scales of a part");
    *scale = *part->scale;
    tensor->dtype = part->dtype;
    tensor->data = part->data + apr_row_bytes(part->dtype, cut->first_row * apr_tensor_columns(part));
    tensor->scale = scale;
    tensor->scale_rows = part->scale_rows;
    tensor->scale_columns = part->scale_columns;
    if (apr_tensor_elems(part->scale) == 1) return APR_OK;
    scale->rank = 2;
    scale->dims[0] = cut->n_scale_rows;
    scale->dims[1] = cut->n_scale_columns;
    scale->data += apr_row_bytes(scale->dtype, cut->first_scale_row * cut->n_scale_columns);
    scale->n_bytes = (uint64_t)apr_row_bytes(scale->dtype, cut->n_scale_rows * cut->n_scale_columns);
    return APR_OK;
}

/* Chooses the first possible form: see composed.h. */
static apr_status choose_form(apr_tensor *tensor, const apr_composed *composed, apr_arena *arena, apr_error *err)
{
    const apr_tensor *const part = composed->parts[0];
    const int64_t first = contiguous_from(composed);
    scaled_rows cut;
    if (first >= 0 && is_scaled_view(tensor, part, first, &cut)) return view_scaled(tensor, part, &cut, arena, err);
    const bool whole_rows = first >= 0 && apr_tensor_is_packed(part) && apr_tensor_columns(tensor) == part->packing->columns &&
                            first % part->packing->columns == 0;

    if (whole_rows) return view_packed(tensor, part, first, arena, err);
    if (first >= 0 && !composed->decodes && part->data != NULL) tensor->data = part->data + apr_row_bytes(part->dtype, first);
    else tensor->composed = composed;
    return APR_OK;
}

static void reset_to_shape(apr_tensor *tensor, const apr_shape *shape)
{
    tensor->dtype = shape->dtype;
    tensor->rank = shape->rank;
    memset(tensor->dims, 0, sizeof tensor->dims);
    memcpy(tensor->dims, shape->dims, (size_t)shape->rank * sizeof *shape->dims);
    apr_tensor_set_data(tensor, NULL);
    tensor->scale = NULL;
    tensor->scale_rows = tensor->scale_columns = 0;
}

/* A copy of the tensor as it is stored, without the pending step. */
static const apr_tensor *stored(const apr_tensor *tensor, apr_arena *arena)
{
    apr_tensor *const copy = apr_arena_alloc(arena, sizeof *copy);
    if (copy == NULL) return NULL;
    *copy = *tensor;
    copy->pending = (apr_step){0};
    return copy;
}

/* Replaces a part that has a pending step by a composed tensor. */
static apr_status compose_pending(const apr_tensor **part, apr_arena *arena, const char *where, apr_error *err)
{
    if ((*part)->pending.kind == APR_STEP_NONE) return APR_OK;
    const apr_chain chain = apr_chain_of((*part)->pending);
    const apr_tensor *const below = stored(*part, arena);
    apr_tensor *const composed = apr_arena_alloc(arena, sizeof *composed);

    if (below == NULL || composed == NULL) return apr_no_memory(err, "the parts of a tensor");
    *composed = *below;
    APR_TRY(apr_tensor_compose(composed, &below, 1, &chain, arena, where, err));
    *part = composed;
    return APR_OK;
}

apr_status apr_tensor_compose(apr_tensor *tensor, const apr_tensor *const *parts, size_t n_parts, const apr_chain *chain, apr_arena *arena,
                              const char *where, apr_error *err)
{
    apr_composed *const composed = apr_arena_alloc(arena, sizeof *composed);
    const apr_tensor **const sources = apr_arena_array(arena, n_parts, sizeof *sources);

    if (n_parts == 0) return apr_fail(err, APR_E_USAGE, "%s: tensor '%s' has no parts", where, tensor->name);
    if (composed == NULL || sources == NULL) return apr_no_memory(err, "the parts of a tensor");
    for (size_t i = 0; i < n_parts; i++) {
        sources[i] = parts[i];
        APR_TRY(compose_pending(&sources[i], arena, where, err));
    }
    *composed = (apr_composed){.parts = sources, .n_parts = n_parts, .chain = *chain};
    apr_shape shape = apr_tensor_shape(sources[0]);
    APR_TRY(plan_chain(tensor, composed, &shape, arena, where, err));
    reset_to_shape(tensor, &shape);
    APR_TRY(choose_form(tensor, composed, arena, err));
    return apr_tensor_size(tensor, where, err);
}

/* Composes the tensor from what it is now, without a pending step. */
static apr_status compose_above(apr_tensor *tensor, const apr_chain *chain, apr_arena *arena, const char *where, apr_error *err)
{
    const apr_tensor *const below = stored(tensor, arena);
    return below != NULL ? apr_tensor_compose(tensor, &below, 1, chain, arena, where, err) : apr_no_memory(err, "a tensor's steps");
}

/* Appends the steps to the tensor's chain. Composes a new tensor on top of it if the chain would be too long, or if something was
 * merged. */
static apr_status append_composed(apr_tensor *tensor, const apr_chain *chain, apr_arena *arena, const char *where, apr_error *err)
{
    const apr_composed *const composed = tensor->composed;
    apr_chain whole = composed->chain;

    if (apr_tensor_source(tensor) == APR_SOURCE_MERGED || !apr_chain_extend(&whole, chain))
        return compose_above(tensor, chain, arena, where, err);
    if (whole.n_steps > 0 || composed->n_parts != 1)
        return apr_tensor_compose(tensor, composed->parts, composed->n_parts, &whole, arena, where, err);
    const apr_tensor *const below = composed->parts[0]; /* the steps cancel: the tensor is its part again, with its scales */
    const apr_shape shape = apr_tensor_shape(below);
    reset_to_shape(tensor, &shape);
    apr_tensor_take_values(tensor, below);
    return APR_OK;
}

apr_status apr_tensor_append_steps(apr_tensor *tensor, const apr_chain *chain, apr_arena *arena, const char *where, apr_error *err)
{
    if (chain->n_steps == 0) return APR_OK;
    if (apr_tensor_is_composed(tensor)) return append_composed(tensor, chain, arena, where, err);
    apr_chain whole = apr_chain_of(tensor->pending);
    apr_shape shape = apr_tensor_shape(tensor);
    apr_move move;

    if (!apr_chain_extend(&whole, chain))
        return apr_fail(err, APR_E_UNSUPPORTED, "%s: tensor '%s' would need too many steps", where, tensor->name);
    if (whole.n_steps > 1 || (whole.n_steps == 1 && !apr_step_kinds[whole.steps[0].kind].read_in_place))
        return compose_above(tensor, &whole, arena, where, err);
    const apr_shape before = shape;
    const apr_step *const step = &whole.steps[0];
    if (!apr_step_kinds[step->kind].plan(step, &shape, &move)) return step_error(tensor, step, &before, "does not fit", where, err);
    tensor->pending = whole.steps[0];
    return APR_OK;
}

/* ---- merged ---- */

apr_status apr_tensor_merge(apr_tensor *tensor, const apr_tensor *value, const apr_merge *merge, apr_arena *arena, const char *where,
                            apr_error *err)
{
    apr_composed *const composed = apr_arena_alloc(arena, sizeof *composed);
    apr_merge *const kept = apr_arena_alloc(arena, sizeof *kept);
    apr_tensor *const below = apr_arena_alloc(arena, sizeof *below);
    const apr_tensor **const part = apr_arena_alloc(arena, sizeof *part);
    apr_shape shape = apr_tensor_shape(value);

    if (composed == NULL || kept == NULL || below == NULL || part == NULL) return apr_no_memory(err, "a merged tensor");
    *below = *value;
    *part = below;
    APR_TRY(compose_pending(part, arena, where, err));
    *kept = *merge;
    if (kept->a != NULL) APR_TRY(compose_pending(&kept->a, arena, where, err));
    if (kept->b != NULL) APR_TRY(compose_pending(&kept->b, arena, where, err));
    *composed =
        (apr_composed){.parts = part, .n_parts = 1, .dtype = APR_F32, .lowest = APR_F32, .decodes = true, .computes = true, .merge = kept};
    shape.dtype = APR_F32;
    reset_to_shape(tensor, &shape);
    tensor->composed = composed;
    return apr_tensor_size(tensor, where, err);
}

const apr_tensor *apr_merge_base(const apr_tensor *tensor)
{
    const apr_composed *const composed = tensor->composed;
    const apr_tensor *found = NULL;

    if (!apr_tensor_is_composed(tensor)) return NULL;
    if (apr_tensor_source(tensor) == APR_SOURCE_MERGED) {
        found = apr_merge_base(composed->merge->base);
        return found != NULL ? found : composed->merge->base;
    }
    for (size_t i = 0; i < composed->n_parts && found == NULL; i++) found = apr_merge_base(composed->parts[i]);
    return found;
}

static bool is_plain(const apr_tensor *t)
{
    return !apr_tensor_is_packed(t) && (t->dtype == APR_F32 || t->dtype == APR_F16 || t->dtype == APR_BF16);
}

apr_dtype apr_default_type(const apr_tensor *tensor)
{
    if (apr_merge_base(tensor) == NULL) return tensor->dtype;
    if (apr_tensor_source(tensor) == APR_SOURCE_MERGED) {
        const apr_tensor *const base = apr_merge_base(tensor);
        return is_plain(base) ? base->dtype : APR_DTYPE_COUNT;
    }
    const apr_dtype first = apr_default_type(tensor->composed->parts[0]); /* of several parts: their common type */
    for (size_t i = 1; i < tensor->composed->n_parts; i++)
        if (apr_default_type(tensor->composed->parts[i]) != first) return tensor->dtype;
    return first;
}
