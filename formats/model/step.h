/* step.h - a tensor's way from how it lies to how it is wanted: a short chain of steps, each with its inverse.
 *
 * A step is a kind and a few whole numbers; what a kind means stands in one table (step.c) and nowhere else. Steps say how shapes
 * change and where elements go; they move no byte and compute no value: kernels/gather.h does, by the moves planned here.
 *
 * Axes are counted from the innermost one: 0 are the columns, 1 the rows of a matrix, 2 the matrices of a stack. So one step
 * fits an expert and a stack of them.
 *
 * In text, as files record it: steps behind one another, applied from left to right, with one space between them:
 *     "transpose take:1,1,0,2880"     "pairs_to_halves:32"     "join:1,4" */
#ifndef APR_FORMATS_STEP_H
#define APR_FORMATS_STEP_H

#include "formats/number/dtype.h"

#include <stddef.h>

enum { APR_MAX_RANK = 8, APR_STEP_PARAMETERS = 4, APR_CHAIN_STEPS = 6, APR_CHAIN_TEXT = 512 };

/* Rotary embedding turns pairs of rows of each head: Hugging Face keeps a pair's members half a head apart ("halves"),
 * llama.cpp's converter puts llama's next to each other ("pairs"):
 *     pairs[h*d + 2*j + s] = halves[h*d + s*d/2 + j]        h < n_heads, j < d/2, s < 2, d = rows / n_heads
 * Value heads of a delta rule lie by the key head they share ("grouped": head j*each + i belongs to key head j) or dealt out in
 * turn ("tiled": position i*groups + j). */
typedef enum {
    APR_STEP_NONE,
    APR_STEP_PAIRS_TO_HALVES, /* heads */
    APR_STEP_HALVES_TO_PAIRS,
    APR_STEP_DEINTERLEAVE, /* axis, n: 0 1 0 1 0 1 -> 0 0 0 1 1 1 for n = 2 */
    APR_STEP_INTERLEAVE,
    APR_STEP_GROUPED_TO_TILED, /* axis, first, groups, each: from `first` on to the axis' end */
    APR_STEP_TILED_TO_GROUPED,
    APR_STEP_TRANSPOSE, /* the last two axes */
    APR_STEP_SQUEEZE,   /* axis: of length 1, left out */
    APR_STEP_UNSQUEEZE,
    APR_STEP_UNFOLD, /* axis, n: [n * m] -> [n, m] */
    APR_STEP_FOLD,
    APR_STEP_TAKE, /* axis, groups, first, count: of each of the groups along the axis, [first, first + count) */
    APR_STEP_PICK, /* index: one matrix of a stack */
    APR_STEP_JOIN, /* axis, groups: several tensors, a part of each in every group; undone by one TAKE for each */
    APR_STEP_STACK,
    APR_STEP_ADD, /* number */
    APR_STEP_NEGATE_EXP,
    APR_STEP_LOG_NEGATIVE,
    APR_STEP_PACK_MXFP4, /* [.., n, 17] of bytes, scale and nibbles as checkpoints have them, -> [.., 32 n] of ggml's blocks */
    APR_STEP_UNPACK_MXFP4,
    APR_STEP_COUNT
} apr_step_kind;

typedef struct apr_step {
    apr_step_kind kind;
    int32_t n[APR_STEP_PARAMETERS]; /* as the comment of its kind names them; the rest is 0 */
} apr_step;

/* Zeroed it is empty: the tensor as it lies. */
typedef struct apr_chain {
    int n_steps;
    apr_step steps[APR_CHAIN_STEPS];
} apr_chain;

/* How far apart a step takes what lay together. Whole rows can be moved without decoding, whatever their type. */
typedef enum {
    APR_REACH_SHAPE,    /* nothing moves */
    APR_REACH_ROWS,     /* whole rows */
    APR_REACH_ELEMENTS, /* elements within rows: blocks must stay whole */
    APR_REACH_BITS,     /* within blocks: bytes become blocks, or blocks bytes */
    APR_REACH_VALUES    /* nothing moves, but float32 is computed */
} apr_reach;

typedef struct apr_shape {
    apr_dtype dtype;
    int rank;
    int64_t dims[APR_MAX_RANK]; /* outermost first */
} apr_shape;

/* What a step does to the elements of one shape, counted in elements: the tensor is a row of chunks, and in each chunk ... */
typedef enum {
    APR_MOVE_NOTHING,
    APR_MOVE_SWAP,   /* ... what lies from `first` on as [a][b][inner] becomes [b][a][inner]; the rest stays */
    APR_MOVE_CUT,    /* ... [first, first + count) is all that stays */
    APR_MOVE_JOIN,   /* ... each part has its share (apr_made.shares) */
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
    const char *parameters[APR_STEP_PARAMETERS]; /* their names; "axis" comes first where there is one */
    apr_step_kind inverse;                       /* with the same parameters, unless `negated`; NONE: not one step alone */
    bool negated;                                /* the inverse has the negative number */
    bool exact;                                  /* the inverse gives the same bits back; otherwise the original must be kept */
    bool of_several;                             /* takes several tensors: can only be a chain's first step */
    bool read_in_place;                          /* kernels find its rows where they lie: apr_tensor.pending */
    apr_reach reach;                             /* of a step along axis 0, elements, whatever stands here */
    apr_dtype takes;                             /* the one type it works on, or APR_DTYPE_COUNT: any */
    /* Changes `shape` and says what moves. False: it does not fit that shape. */
    bool (*plan)(const apr_step *step, apr_shape *shape, apr_move *move);
} apr_step_facts;

extern const apr_step_facts apr_step_kinds[APR_STEP_COUNT];

bool apr_step_equal(const apr_step *a, const apr_step *b);
/* The step that undoes this one, or NONE: a part that was taken says nothing of the rest, and a whole has several parts. */
apr_step apr_step_inverse(apr_step step);
apr_reach apr_step_reach(const apr_step *step);

/* Shape after the step and what it moves. NULL, or why not: a few words that complete "step '...' ". Blocks stay whole, or it is
 * refused. Steps of several tensors are planned by apr_made (formats/model/made.h). */
const char *apr_step_plan(const apr_step *step, apr_shape *shape, apr_move *move);

/* The row of the stored tensor where logical row r lies; for steps that kernels read in place. */
int64_t apr_step_row(apr_step step, int64_t n_rows, int64_t row);

/* --- chains --- */

/* One more step at the end; it and its inverse cancel. False: the chain is full. */
bool apr_chain_append(apr_chain *chain, apr_step step);
/* All of `more` behind `chain`. False: too long; the chain is then as it was. */
bool apr_chain_extend(apr_chain *chain, const apr_chain *more);
apr_chain apr_chain_of(apr_step step);
/* The way back, where each step has one. False: a part was taken, or several were joined. */
bool apr_chain_inverse(const apr_chain *chain, apr_chain *inverse);
bool apr_chain_equal(const apr_chain *a, const apr_chain *b);
/* Does the way back give the same bits? */
bool apr_chain_exact(const apr_chain *chain);
/* Shape after all steps; NULL or why not, *at being the step that does not fit. */
const char *apr_chain_shape(const apr_chain *chain, apr_shape *shape, int *at);

/* Into text, which holds APR_CHAIN_TEXT bytes; returns text. "" is the empty chain. */
char *apr_chain_text(const apr_chain *chain, char *text);
/* The same, read strictly: what apr_chain_text does not print is refused, and so is the empty chain. Whether it fits a shape is
 * another question. */
bool apr_chain_parse(apr_chain *chain, const char *text);

#endif
