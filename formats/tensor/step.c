/* step.c - the table of steps: how each changes a shape, what it moves, and its inverse. */
#include "formats/tensor/step.h"

#include <string.h>

/* The axis a step works on, seen as [outer][length][inner]. */
typedef struct apr_axis {
    int at; /* in dims */
    int64_t length, inner;
    int64_t whole; /* length * inner */
} apr_axis;

static bool find_axis(const apr_shape *shape, int32_t axis, apr_axis *found)
{
    if (axis < 0 || axis >= shape->rank) return false;
    *found = (apr_axis){.at = shape->rank - 1 - axis, .inner = 1};
    found->length = shape->dims[found->at];
    for (int i = found->at + 1; i < shape->rank; i++)
        if (__builtin_mul_overflow(found->inner, shape->dims[i], &found->inner)) return false; /* possible if another dimension is 0 */
    return !__builtin_mul_overflow(found->length, found->inner, &found->whole);
}

static void remove_dim(apr_shape *shape, int at)
{
    for (int i = at; i + 1 < shape->rank; i++) shape->dims[i] = shape->dims[i + 1];
    shape->rank--;
}

static bool insert_dim(apr_shape *shape, int at, int64_t length)
{
    if (shape->rank == APR_MAX_RANK) return false;
    for (int i = shape->rank; i > at; i--) shape->dims[i] = shape->dims[i - 1];
    shape->dims[at] = length;
    shape->rank++;
    return true;
}

/* ---- one function a kind ---- */

static bool plan_nothing(const apr_step *step, apr_shape *shape, apr_move *move)
{
    (void)step, (void)shape;
    *move = (apr_move){0};
    return true;
}

/* The elements of a vector count as its rows. The rows of a stack are numbered through all its matrices. */
static bool plan_rotary(const apr_step *step, apr_shape *shape, apr_move *move)
{
    const int64_t heads = step->n[0], inner = shape->rank > 1 ? shape->dims[shape->rank - 1] : 1;
    int64_t n_rows = 1;

    for (int i = 0; i < shape->rank - (shape->rank > 1); i++)
        if (__builtin_mul_overflow(n_rows, shape->dims[i], &n_rows)) return false;
    if (shape->rank == 0 || heads < 1 || n_rows % (2 * heads) != 0) return false;
    const int64_t d = n_rows / heads;
    *move = (apr_move){.kind = APR_MOVE_SWAP, .a = 2, .b = d / 2, .inner = inner};
    if (step->kind == APR_STEP_PAIRS_TO_HALVES) move->a = d / 2, move->b = 2;
    return !__builtin_mul_overflow(d, inner, &move->chunk);
}

/* The same for the first rows of each head. */
static bool plan_rotary_part(const apr_step *step, apr_shape *shape, apr_move *move)
{
    const int64_t rotated = step->n[1];
    const apr_step whole = {APR_STEP_HALVES_TO_PAIRS, {step->n[0]}};

    if (!plan_rotary(&whole, shape, move)) return false;
    if (rotated < 2 || rotated % 2 != 0 || rotated > 2 * move->b) return false;
    move->b = rotated / 2;
    if (step->kind == APR_STEP_PART_TO_HALVES) move->a = rotated / 2, move->b = 2;
    return true;
}

static bool plan_interleave(const apr_step *step, apr_shape *shape, apr_move *move)
{
    const int64_t n = step->n[1];
    apr_axis axis;

    if (!find_axis(shape, step->n[0], &axis) || n < 1 || axis.length % n != 0) return false;
    *move = (apr_move){.kind = APR_MOVE_SWAP, .chunk = axis.whole, .a = n, .b = axis.length / n, .inner = axis.inner};
    if (step->kind == APR_STEP_DEINTERLEAVE) move->a = axis.length / n, move->b = n;
    return true;
}

static bool plan_value_heads(const apr_step *step, apr_shape *shape, apr_move *move)
{
    const int64_t first = step->n[1], groups = step->n[2], each = step->n[3];
    apr_axis axis;

    if (!find_axis(shape, step->n[0], &axis) || first < 0 || first > axis.length || groups < 1 || each < 1) return false;
    if ((axis.length - first) % (groups * each) != 0) return false;
    const int64_t width = (axis.length - first) / (groups * each);
    *move = (apr_move){
        .kind = APR_MOVE_SWAP, .chunk = axis.whole, .first = first * axis.inner, .a = groups, .b = each, .inner = width * axis.inner};
    if (step->kind == APR_STEP_TILED_TO_GROUPED) move->a = each, move->b = groups;
    return true;
}

static bool plan_transpose(const apr_step *step, apr_shape *shape, apr_move *move)
{
    (void)step;
    if (shape->rank < 2) return false;
    int64_t *const last = &shape->dims[shape->rank - 2], n_rows = last[0], n_columns = last[1];
    *move = (apr_move){.kind = APR_MOVE_SWAP, .a = n_rows, .b = n_columns, .inner = 1};
    last[0] = n_columns;
    last[1] = n_rows;
    return !__builtin_mul_overflow(n_rows, n_columns, &move->chunk);
}

static bool plan_squeeze(const apr_step *step, apr_shape *shape, apr_move *move)
{
    apr_axis axis;
    *move = (apr_move){0};
    if (!find_axis(shape, step->n[0], &axis) || axis.length != 1) return false;
    remove_dim(shape, axis.at);
    return true;
}

static bool plan_unsqueeze(const apr_step *step, apr_shape *shape, apr_move *move)
{
    *move = (apr_move){0};
    return step->n[0] >= 0 && step->n[0] <= shape->rank && insert_dim(shape, shape->rank - step->n[0], 1);
}

static bool plan_unfold(const apr_step *step, apr_shape *shape, apr_move *move)
{
    const int64_t n = step->n[1];
    apr_axis axis;

    *move = (apr_move){0};
    if (!find_axis(shape, step->n[0], &axis) || n < 1 || axis.length % n != 0) return false;
    shape->dims[axis.at] = axis.length / n;
    return insert_dim(shape, axis.at, n);
}

static bool plan_fold(const apr_step *step, apr_shape *shape, apr_move *move)
{
    apr_axis axis;

    *move = (apr_move){0};
    if (!find_axis(shape, step->n[0], &axis) || axis.at == 0 || step->n[1] < 1 || shape->dims[axis.at - 1] != step->n[1]) return false;
    if (__builtin_mul_overflow(shape->dims[axis.at], step->n[1], &shape->dims[axis.at])) return false;
    remove_dim(shape, axis.at - 1);
    return true;
}

static bool plan_take(const apr_step *step, apr_shape *shape, apr_move *move)
{
    const int64_t groups = step->n[1], first = step->n[2], count = step->n[3];
    apr_axis axis;

    if (!find_axis(shape, step->n[0], &axis) || groups < 1 || first < 0 || count < 1 || axis.length % groups != 0) return false;
    const int64_t width = axis.length / groups;
    if (first + count > width) return false;
    *move = (apr_move){.kind = APR_MOVE_CUT, .chunk = width * axis.inner, .first = first * axis.inner, .count = count * axis.inner};
    shape->dims[axis.at] = groups * count;
    return true;
}

static bool plan_pick(const apr_step *step, apr_shape *shape, apr_move *move)
{
    apr_axis axis;

    if (!find_axis(shape, shape->rank - 1, &axis) || step->n[0] < 0 || step->n[0] >= axis.length) return false;
    *move = (apr_move){.kind = APR_MOVE_CUT, .chunk = axis.whole, .first = step->n[0] * axis.inner, .count = axis.inner};
    remove_dim(shape, 0);
    return true;
}

/* Matrices alone have rows to repeat. */
static bool plan_pad(const apr_step *step, apr_shape *shape, apr_move *move)
{
    const int64_t rows = step->n[0], after = step->n[1];
    apr_axis axis;

    if (shape->rank != 2 || rows < 1 || after <= rows || !find_axis(shape, 1, &axis)) return false;
    if (axis.length != (step->kind == APR_STEP_PAD ? rows : after)) return false;
    *move = (apr_move){.kind = APR_MOVE_CUT, .chunk = axis.whole, .count = rows * axis.inner};
    if (step->kind == APR_STEP_PAD) *move = (apr_move){.kind = APR_MOVE_PAD, .chunk = axis.whole, .inner = axis.inner};
    shape->dims[0] = step->kind == APR_STEP_PAD ? after : rows;
    return true;
}

/* Steps of several tensors are planned by apr_composed. */
static bool plan_several(const apr_step *step, apr_shape *shape, apr_move *move) { return (void)step, (void)shape, (void)move, false; }

static bool plan_value(const apr_step *step, apr_shape *shape, apr_move *move)
{
    (void)step;
    *move = (apr_move){0};
    if (shape->dtype != APR_F32 && shape->dtype != APR_F16 && shape->dtype != APR_BF16) return false;
    shape->dtype = APR_F32;
    return true;
}

/* Zero and what is not finite would not come back. */
static bool plan_factor(const apr_step *step, apr_shape *shape, apr_move *move)
{
    const uint32_t bits = (uint32_t)step->n[0], exponent = bits >> 23 & 255;
    const int64_t first = step->n[1], count = step->n[2];

    if (exponent == 255 || (bits & 0x7fffffff) == 0 || first < 0 || count < 0 || (count == 0 && first != 0)) return false;
    if (count > 0 && (shape->rank != 2 || first + count > shape->dims[0])) return false;
    return plan_value(step, shape, move);
}

static bool plan_pack_mxfp4(const apr_step *step, apr_shape *shape, apr_move *move)
{
    (void)step;
    *move = (apr_move){.kind = APR_MOVE_PACK};
    if (shape->rank < 2 || shape->dims[shape->rank - 1] != 17) return false;
    shape->rank--;
    shape->dtype = APR_MXFP4;
    return !__builtin_mul_overflow(shape->dims[shape->rank - 1], 32, &shape->dims[shape->rank - 1]);
}

static bool plan_unpack_mxfp4(const apr_step *step, apr_shape *shape, apr_move *move)
{
    (void)step;
    *move = (apr_move){.kind = APR_MOVE_UNPACK};
    if (shape->rank < 1 || shape->dims[shape->rank - 1] % 32 != 0 || !insert_dim(shape, shape->rank, 17)) return false;
    shape->dims[shape->rank - 2] /= 32;
    shape->dtype = APR_U8;
    return true;
}

/* ---- the table ---- */

/* The columns: name, number of parameters, is the first an axis, inverse, reach, type that it works on, plan. */
#define ANY APR_DTYPE_COUNT
const apr_step_facts apr_step_kinds[APR_STEP_COUNT] = {
    [APR_STEP_NONE] = {"none", 0, false, APR_STEP_NONE, APR_REACH_SHAPE, ANY, plan_nothing, .read_in_place = true},
    [APR_STEP_PAIRS_TO_HALVES] = {"pairs_to_halves", 1, false, APR_STEP_HALVES_TO_PAIRS, APR_REACH_ROWS, ANY, plan_rotary,
                                  .read_in_place = true},
    [APR_STEP_HALVES_TO_PAIRS] = {"halves_to_pairs", 1, false, APR_STEP_PAIRS_TO_HALVES, APR_REACH_ROWS, ANY, plan_rotary,
                                  .read_in_place = true},
    [APR_STEP_PART_TO_HALVES] = {"part_to_halves", 2, false, APR_STEP_PART_TO_PAIRS, APR_REACH_ROWS, ANY, plan_rotary_part},
    [APR_STEP_PART_TO_PAIRS] = {"part_to_pairs", 2, false, APR_STEP_PART_TO_HALVES, APR_REACH_ROWS, ANY, plan_rotary_part},
    [APR_STEP_DEINTERLEAVE] = {"deinterleave", 2, true, APR_STEP_INTERLEAVE, APR_REACH_ROWS, ANY, plan_interleave},
    [APR_STEP_INTERLEAVE] = {"interleave", 2, true, APR_STEP_DEINTERLEAVE, APR_REACH_ROWS, ANY, plan_interleave},
    [APR_STEP_GROUPED_TO_TILED] = {"grouped_to_tiled", 4, true, APR_STEP_TILED_TO_GROUPED, APR_REACH_ROWS, ANY, plan_value_heads},
    [APR_STEP_TILED_TO_GROUPED] = {"tiled_to_grouped", 4, true, APR_STEP_GROUPED_TO_TILED, APR_REACH_ROWS, ANY, plan_value_heads},
    [APR_STEP_TRANSPOSE] = {"transpose", 0, false, APR_STEP_TRANSPOSE, APR_REACH_ELEMENTS, ANY, plan_transpose},
    [APR_STEP_SQUEEZE] = {"squeeze", 1, true, APR_STEP_UNSQUEEZE, APR_REACH_SHAPE, ANY, plan_squeeze},
    [APR_STEP_UNSQUEEZE] = {"unsqueeze", 1, true, APR_STEP_SQUEEZE, APR_REACH_SHAPE, ANY, plan_unsqueeze},
    [APR_STEP_UNFOLD] = {"unfold", 2, true, APR_STEP_FOLD, APR_REACH_SHAPE, ANY, plan_unfold},
    [APR_STEP_FOLD] = {"fold", 2, true, APR_STEP_UNFOLD, APR_REACH_SHAPE, ANY, plan_fold},
    [APR_STEP_TAKE] = {"take", 4, true, APR_STEP_NONE, APR_REACH_ROWS, ANY, plan_take},
    [APR_STEP_PICK] = {"pick", 1, false, APR_STEP_NONE, APR_REACH_ROWS, ANY, plan_pick},
    [APR_STEP_JOIN] = {"join", 2, true, APR_STEP_NONE, APR_REACH_ROWS, ANY, plan_several, .of_several = true},
    [APR_STEP_STACK] = {"stack", 0, false, APR_STEP_NONE, APR_REACH_ROWS, ANY, plan_several, .of_several = true},
    [APR_STEP_PAD] = {"pad", 2, false, APR_STEP_CROP, APR_REACH_ROWS, ANY, plan_pad},
    [APR_STEP_CROP] = {"crop", 2, false, APR_STEP_PAD, APR_REACH_ROWS, ANY, plan_pad},
    [APR_STEP_ADD] = {"add", 1, false, APR_STEP_ADD, APR_REACH_VALUES, ANY, plan_value, .negated = true},
    [APR_STEP_MULTIPLY] = {"multiply", 3, false, APR_STEP_DIVIDE, APR_REACH_VALUES, ANY, plan_factor},
    [APR_STEP_DIVIDE] = {"divide", 3, false, APR_STEP_MULTIPLY, APR_REACH_VALUES, ANY, plan_factor},
    [APR_STEP_NEGATE_EXP] = {"negate_exp", 0, false, APR_STEP_LOG_NEGATIVE, APR_REACH_VALUES, ANY, plan_value},
    [APR_STEP_LOG_NEGATIVE] = {"log_negative", 0, false, APR_STEP_NEGATE_EXP, APR_REACH_VALUES, ANY, plan_value},
    [APR_STEP_PACK_MXFP4] = {"pack_mxfp4", 0, false, APR_STEP_UNPACK_MXFP4, APR_REACH_BITS, APR_U8, plan_pack_mxfp4},
    [APR_STEP_UNPACK_MXFP4] = {"unpack_mxfp4", 0, false, APR_STEP_PACK_MXFP4, APR_REACH_BITS, APR_MXFP4, plan_unpack_mxfp4},
};

apr_reach apr_step_reach(const apr_step *step)
{
    const apr_step_facts *const facts = &apr_step_kinds[step->kind];
    return facts->reach == APR_REACH_ROWS && facts->has_axis && step->n[0] == 0 ? APR_REACH_ELEMENTS : facts->reach;
}

bool apr_step_keeps_columns(const apr_step *step)
{
    const apr_reach reach = apr_step_reach(step);
    const bool multiplies = step->kind == APR_STEP_MULTIPLY || step->kind == APR_STEP_DIVIDE;
    return reach == APR_REACH_ROWS || (reach == APR_REACH_SHAPE && step->n[0] > 0) || multiplies;
}

bool apr_step_equal(const apr_step *a, const apr_step *b)
{
    return a->kind == b->kind && memcmp(a->n, b->n, (size_t)apr_step_kinds[a->kind].n_parameters * sizeof *a->n) == 0;
}

apr_step apr_step_inverse(apr_step step)
{
    const apr_step_facts *const facts = &apr_step_kinds[step.kind];
    if (facts->inverse == APR_STEP_NONE) return (apr_step){0};
    step.kind = facts->inverse;
    if (facts->negated) step.n[0] = -step.n[0];
    return step;
}

/* Does the move keep blocks whole? The flat types (APR_Q4, APR_Q8) have blocks across rows, so nothing in them may move. */
static bool keeps_blocks(const apr_shape *before, const apr_shape *after, const apr_move *move)
{
    const int64_t elems = apr_dtypes[before->dtype].elems_per_block;
    const bool is_flat = before->dtype == APR_APR_Q4 || before->dtype == APR_APR_Q8;

    if (move->kind == APR_MOVE_PACK || move->kind == APR_MOVE_UNPACK) return true;
    if (is_flat) return move->kind == APR_MOVE_NOTHING;
    if (after->rank > 0 && after->dims[after->rank - 1] % elems != 0) return false;
    return move->chunk % elems == 0 && move->first % elems == 0 && move->inner % elems == 0 && move->count % elems == 0;
}

const char *apr_step_plan(const apr_step *step, apr_shape *shape, apr_move *move)
{
    const apr_step_facts *const facts = &apr_step_kinds[step->kind];
    const apr_shape before = *shape;

    if (facts->of_several) return "takes several tensors, and can only come first";
    if (facts->takes != APR_DTYPE_COUNT && facts->takes != shape->dtype) return "does not work on this type";
    if (!facts->plan(step, shape, move)) return "does not fit";
    if (!keeps_blocks(&before, shape, move)) return "would break the blocks of its type";
    return NULL;
}

int64_t apr_step_row(apr_step step, int64_t n_rows, int64_t row)
{
    if (step.kind == APR_STEP_NONE) return row;
    const int64_t d = n_rows / step.n[0], head = row / d, r = row % d;
    /* the formula of step.h, solved for the stored row */
    const int64_t stored = step.kind == APR_STEP_PAIRS_TO_HALVES ? 2 * (r % (d / 2)) + r / (d / 2) : r % 2 * (d / 2) + r / 2;
    return head * d + stored;
}
