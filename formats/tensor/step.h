/* step.h - how a tensor gets from its stored form to its wanted form: a short chain of steps, each with an inverse.
 *
 * A step is a kind and a few integers. One table (step.c) defines what each kind means. Steps state how shapes change and where elements
 * go. They move no bytes and compute no values: kernels/rows.h does that, by the moves planned here.
 *
 * Axes count from the innermost one: 0 is columns, 1 is the rows of a matrix, 2 the matrices of a stack. So the same step fits an expert
 * and a stack of experts.
 *
 * In text, as files record it, steps are applied from left to right and separated by one space:
 *     "transpose take:1,1,0,2880"     "pairs_to_halves:32"     "join:1,4" */
#ifndef APR_FORMATS_STEP_H
#define APR_FORMATS_STEP_H

#include "formats/number/dtype.h"

#include <stddef.h>

enum { APR_MAX_RANK = 8, APR_STEP_PARAMETERS = 4, APR_CHAIN_STEPS = 6, APR_CHAIN_TEXT = 512 };

/* Rotary embedding rotates pairs of rows of each head. Hugging Face stores the members of a pair half a head apart ("halves"), llama.cpp's
 * converter stores llama's next to each other ("pairs"):
 *     pairs[h*d + 2*j + s] = halves[h*d + s*d/2 + j]        h < n_heads, j < d/2, s < 2, d = rows / n_heads
 * Of a head that is rotated in part only the first rows are reordered: with r rows for d in d/2, and j < r/2.
 * Value heads of a delta rule are gathered by the key head they share ("grouped": head j*each + i belongs to key head j), or interleaved
 * over the key heads ("tiled": position i*groups + j). */
typedef enum {
    APR_STEP_NONE,
    APR_STEP_PAIRS_TO_HALVES, /* heads */
    APR_STEP_HALVES_TO_PAIRS,
    APR_STEP_PART_TO_HALVES, /* heads, rows of each head that are rotated */
    APR_STEP_PART_TO_PAIRS,
    APR_STEP_DEINTERLEAVE, /* axis, n: 0 1 0 1 0 1 -> 0 0 0 1 1 1 for n = 2 */
    APR_STEP_INTERLEAVE,
    APR_STEP_GROUPED_TO_TILED, /* axis, first, groups, each: permutes [first, end of the axis) */
    APR_STEP_TILED_TO_GROUPED,
    APR_STEP_TRANSPOSE, /* the last two axes */
    APR_STEP_SQUEEZE,   /* axis: an axis of length 1, removed */
    APR_STEP_UNSQUEEZE,
    APR_STEP_UNFOLD, /* axis, n: [n * m] -> [n, m] */
    APR_STEP_FOLD,
    APR_STEP_TAKE, /* axis, groups, first, count: keeps [first, first + count) of each of the groups along the axis */
    APR_STEP_PICK, /* index: one matrix of a stack */
    APR_STEP_JOIN, /* axis, groups: concatenates tensors, each group holding a share of every tensor; one TAKE per tensor undoes it */
    APR_STEP_STACK,
    APR_STEP_PAD,      /* rows, rows after: row 0 of a matrix is repeated at its end */
    APR_STEP_CROP,     /* the same numbers: the rows before PAD */
    APR_STEP_ADD,      /* number */
    APR_STEP_MULTIPLY, /* the bits of a float32, first, count: rows [first, first + count) of a matrix; count 0: all numbers */
    APR_STEP_DIVIDE,
    APR_STEP_NEGATE_EXP,
    APR_STEP_LOG_NEGATIVE,
    APR_STEP_PACK_MXFP4, /* [.., n, 17] bytes (scale, then nibbles, as in checkpoints) -> [.., 32 n] in ggml's blocks */
    APR_STEP_UNPACK_MXFP4,
    APR_STEP_COUNT
} apr_step_kind;

typedef struct apr_step {
    apr_step_kind kind;
    int32_t n[APR_STEP_PARAMETERS]; /* as the comment of its kind names them; unused ones are 0 */
} apr_step;

/* A zeroed chain is empty: the tensor as stored. */
typedef struct apr_chain {
    int n_steps;
    apr_step steps[APR_CHAIN_STEPS];
} apr_chain;

/* The granularity at which a step moves data. Whole rows can be moved without decoding, whatever their type. */
typedef enum {
    APR_REACH_SHAPE,    /* nothing moves */
    APR_REACH_ROWS,     /* whole rows */
    APR_REACH_ELEMENTS, /* elements within rows: blocks must not be split */
    APR_REACH_BITS,     /* within blocks: bytes become blocks, or blocks become bytes */
    APR_REACH_VALUES    /* nothing moves, but float32 values are computed: the inverse may not restore the same bits */
} apr_reach;

typedef struct apr_shape {
    apr_dtype dtype;
    int rank;
    int64_t dims[APR_MAX_RANK]; /* outermost first */
} apr_shape;

/* What a step does to the elements of a shape. The tensor is a sequence of chunks; offsets and counts are in elements of a chunk. */
typedef enum {
    APR_MOVE_NOTHING,
    APR_MOVE_SWAP,   /* [a][b][inner] starting at `first` becomes [b][a][inner]; the rest stays */
    APR_MOVE_CUT,    /* [first, first + count) is kept */
    APR_MOVE_JOIN,   /* each part has its share (apr_composed.ends) */
    APR_MOVE_PAD,    /* the chunk, followed by copies of its first `inner` elements */
    APR_MOVE_PACK,   /* 17 bytes become 32 elements */
    APR_MOVE_UNPACK, /* 32 elements become 17 bytes */
    APR_MOVE_COUNT
} apr_move_kind;

typedef struct apr_move {
    apr_move_kind kind;
    int64_t chunk, first;
    int64_t a, b, inner; /* SWAP */
    int64_t count;       /* CUT */
} apr_move;

typedef struct apr_step_facts {
    const char *name; /* as in text */
    int n_parameters;
    bool has_axis;         /* the first parameter is an axis */
    apr_step_kind inverse; /* with the same parameters, unless `negated`; NONE: no single step undoes it */
    apr_reach reach;       /* a step along axis 0 moves elements, whatever this says */
    apr_dtype takes;       /* the only type it works on, or APR_DTYPE_COUNT: any */
    /* Changes `shape` and sets `move`. False: the step does not fit the shape. */
    bool (*plan)(const apr_step *step, apr_shape *shape, apr_move *move);
    bool negated;       /* the inverse takes the negated number */
    bool of_several;    /* takes several tensors: only as the first step of a chain */
    bool read_in_place; /* kernels can read the rows in stored order: apr_tensor.pending */
} apr_step_facts;

extern const apr_step_facts apr_step_kinds[APR_STEP_COUNT];

bool apr_step_equal(const apr_step *a, const apr_step *b);
/* The step that undoes this one, or NONE: TAKE and PICK lose the rest of the tensor, and JOIN and STACK have several sources. */
apr_step apr_step_inverse(apr_step step);
apr_reach apr_step_reach(const apr_step *step);
/* Do the numbers of each row stay together, in their order? The step moves whole rows, changes axes other than the columns, or
 * multiplies rows by a factor. */
bool apr_step_keeps_columns(const apr_step *step);

/* Computes the shape after the step, and the move. Returns NULL, or the reason why not: words that complete "step '...' ". A step that
 * would split blocks is refused. Steps that take several tensors are planned by apr_composed (formats/tensor/composed.h). */
const char *apr_step_plan(const apr_step *step, apr_shape *shape, apr_move *move);

/* The stored row of logical row r, for steps that kernels read in place. */
int64_t apr_step_row(apr_step step, int64_t n_rows, int64_t row);

/* --- chains --- */

/* Appends a step; a step and its inverse cancel. False: the chain is full. */
bool apr_chain_append(apr_chain *chain, apr_step step);
/* Appends all steps of `more`. False: too long; the chain is unchanged. */
bool apr_chain_extend(apr_chain *chain, const apr_chain *more);
apr_chain apr_chain_of(apr_step step);
/* The chain that undoes this one. False: some step has no inverse (a part was taken, or several tensors were joined). */
bool apr_chain_inverse(const apr_chain *chain, apr_chain *inverse);
bool apr_chain_equal(const apr_chain *a, const apr_chain *b);
/* Does the inverse restore the same bits? */
bool apr_chain_exact(const apr_chain *chain);
/* Computes the shape after all steps. Returns NULL, or the reason why not; *at is the step that does not fit. */
const char *apr_chain_shape(const apr_chain *chain, apr_shape *shape, int *at);

/* Prints into `text`, which has APR_CHAIN_TEXT bytes; returns text. "" is the empty chain. */
char *apr_chain_text(const apr_chain *chain, char *text);
/* Parses strictly: refuses everything that apr_chain_text does not print, and also the empty chain. Does not check whether the chain
 * fits a shape. */
bool apr_chain_parse(apr_chain *chain, const char *text);

#endif
