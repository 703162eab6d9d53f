/* made.h - a tensor that does not lie in any file as it is wanted: made of others, by a chain of steps, when it is read.
 *
 * Stacking and joining have several sources; splitting and unstacking are views of one. Nothing is copied into memory: the tensor
 * says where its elements come from, kernels/gather.h reads any piece of it, and convert/pipe streams it in constant memory.
 *
 * Three forms, and apr_tensor_follow chooses the simplest that will do:
 *     data, nothing pending      as it lies; also a part that lies in one piece
 *     data and a pending step    whole rows in another order, which kernels find where they lie (apr_step_facts.read_in_place)
 *     made, data NULL            everything else; kernels that compute do not read these */
#ifndef APR_FORMATS_MADE_H
#define APR_FORMATS_MADE_H

#include "formats/model/model.h"

/* A tensor with an adapter merged into it (formats/model/adapter.h), in float32:
 *     (value + scale * sum of b[row, k] * a[k, column], k ascending) * magnitude / length of the row
 * where there are a and b, and where there are magnitudes. */
typedef struct apr_merge {
    const apr_tensor *base; /* what the model had there: by its type the result is written, where no other is asked for */
    const apr_tensor *a;    /* [rank, columns]; NULL: another tensor takes the base's place */
    const apr_tensor *b;    /* [rows, rank] */
    float scale;
    const apr_tensor *magnitudes; /* [rows], or NULL */
} apr_merge;

typedef struct apr_made {
    const apr_tensor *const *parts; /* [n_parts]: as they lie, or made themselves; nothing pending */
    size_t n_parts;
    const int64_t *ends; /* [n_parts] of the parts' shares of a chunk, in elements: part i has [ends[i - 1], ends[i]); NULL: one part */
    apr_chain chain;     /* only the first step may take several tensors */
    apr_move moves[APR_CHAIN_STEPS];
    apr_dtype dtype;        /* of the elements that are moved; what is computed of them is float32 */
    apr_dtype lowest;       /* of the parts' elements; other than `dtype` where bytes are packed to blocks or back */
    bool decodes;           /* parts differ in type, are computed or have FP8 scales: they are read as float32 */
    bool computes;          /* some step computes values */
    const apr_merge *merge; /* not NULL: there are no steps, but this is done to the one part */
} apr_made;

/* `tensor`, whose name is set, becomes `chain` of the parts, which must live as long as it does; the rest of it (origin, name) is left
 * alone. `where` is for the sentence. APR_E_DAMAGED: a step does not fit a shape. APR_E_UNSUPPORTED: it would break blocks, or
 * the way is too long. */
apr_status apr_tensor_make(apr_tensor *tensor, const apr_tensor *const *parts, size_t n_parts, const apr_chain *chain, apr_arena *arena,
                           const char *where, apr_error *err);

/* More steps behind what the tensor is already; a step and its inverse cancel. */
apr_status apr_tensor_follow(apr_tensor *tensor, const apr_chain *chain, apr_arena *arena, const char *where, apr_error *err);

/* `tensor` becomes float32: `value` (the tensor itself, as it was, or another of its shape) with `merge` done to it. Both are copied; what
 * they point to must live as long as it does. Its record stays: to its origin it is what it was. */
apr_status apr_tensor_merge(apr_tensor *tensor, const apr_tensor *value, const apr_merge *merge, apr_arena *arena, const char *where,
                            apr_error *err);

/* The first tensor that something was merged into on the way to this one; NULL: nothing was. */
const apr_tensor *apr_merge_base(const apr_tensor *tensor);
/* The type that a tensor is written in where none is asked for: its own, and where something was merged the base's, if that is plain;
 * APR_DTYPE_COUNT: it was quantized, and nothing but a choice of the user's follows from that. */
apr_dtype apr_kept_type(const apr_tensor *tensor);

apr_shape apr_tensor_shape(const apr_tensor *tensor);

#endif
