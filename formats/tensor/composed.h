/* composed.h - composed tensors: tensors that no file stores in the wanted form, and that are computed from others by a chain of steps when
 * they are read.
 *
 * Stacking and joining have several sources; splitting and unstacking are views of one source. Nothing is copied into memory: the tensor
 * states where its elements come from. kernels/rows.h reads any range of it, and convert/pipe streams it in constant memory.
 *
 * apr_tensor_append_steps chooses the first source (apr_source) that is possible:
 *     in order     as stored in the file; also a part that is contiguous there
 *     reordered    whole rows in another order, which kernels read in place (apr_step_facts.read_in_place)
 *     composed     everything else; compute kernels do not read these */
#ifndef APR_FORMATS_COMPOSED_H
#define APR_FORMATS_COMPOSED_H

#include "formats/tensor/model.h"

/* A tensor with an adapter merged into it (formats/tensor/adapter.h), in float32:
 *     (value + scale * sum of b[row, k] * a[k, column], k ascending) * magnitude / length of the row
 * The sum applies where there are a and b, the magnitude where there are magnitudes. */
typedef struct apr_merge {
    const apr_tensor *base; /* the model's tensor; its type is the default type of the result */
    const apr_tensor *a;    /* [rank, columns]; NULL: another tensor replaces the base */
    const apr_tensor *b;    /* [rows, rank] */
    float scale;
    const apr_tensor *magnitudes; /* [rows], or NULL */
} apr_merge;

typedef struct apr_composed {
    const apr_tensor *const *parts; /* [n_parts] stored or composed tensors; none has a pending step */
    size_t n_parts;
    const int64_t *ends; /* [n_parts] in elements of a chunk: part i has the share [ends[i - 1], ends[i]); NULL: one part */
    apr_chain chain;     /* only the first step may take several tensors */
    apr_move moves[APR_CHAIN_STEPS];
    apr_dtype dtype;        /* of the elements that are moved; computed values are float32 */
    apr_dtype lowest;       /* of the parts' elements; differs from `dtype` where bytes are packed to blocks or unpacked */
    bool decodes;           /* the parts differ in type, are computed or have FP8 scales: they are read as float32 */
    bool computes;          /* some step computes values */
    const apr_merge *merge; /* not NULL: there are no steps, and this is applied to the one part */
} apr_composed;

/* Makes `tensor`, whose name is set, the result of `chain` on the parts. The parts must live as long as it does. Its other members
 * (origin, name) stay. `where` names the file in messages. APR_E_DAMAGED: a step does not fit a shape. APR_E_UNSUPPORTED: a step would
 * break blocks, or the chain is too long. */
apr_status apr_tensor_compose(apr_tensor *tensor, const apr_tensor *const *parts, size_t n_parts, const apr_chain *chain, apr_arena *arena,
                              const char *where, apr_error *err);

/* Appends steps to those that the tensor has already; a step and its inverse cancel. */
apr_status apr_tensor_append_steps(apr_tensor *tensor, const apr_chain *chain, apr_arena *arena, const char *where, apr_error *err);

/* Makes `tensor` float32: `value` (the tensor itself, or another of its shape) with `merge` applied. Both are copied; what they point to
 * must live as long as the tensor. Its provenance stays unchanged. */
apr_status apr_tensor_merge(apr_tensor *tensor, const apr_tensor *value, const apr_merge *merge, apr_arena *arena, const char *where,
                            apr_error *err);

/* The first tensor on the way to this one that something was merged into; NULL: nothing was merged. */
const apr_tensor *apr_merge_base(const apr_tensor *tensor);
/* The type that a tensor is written in by default: its own type. For a merged tensor it is the base's type, if that is plain.
 * APR_DTYPE_COUNT: the base was quantized, so the user must choose. */
apr_dtype apr_default_type(const apr_tensor *tensor);

apr_shape apr_tensor_shape(const apr_tensor *tensor);

#endif
