/* quant/heal/latents.h - the trainable form of a stored tensor: a real number (latent) for each number that its blocks store.
 *
 *     stored        latent                                            stored again as
 *     code          a real number near it                             the nearest level of the type
 *     sub-scale     the same (types that have integers for them)      the nearest integer in range
 *     d, dmin       the logarithm of the magnitude; the sign stays    the nearest half
 *     float         itself, as F32 (gains and biases)                 rounded to the tensor's type
 *
 * The blocks always hold what the latents round to, so the ordinary decoder gives the values that training uses. Gradients pass the
 * rounding as if it were not there (straight-through), but not where a latent is beyond its range and would be pushed further out. The
 * numbers are updated by Adam. Each block is updated on its own, so bytes do not depend on the number of threads.
 *
 * A latent takes 8 bytes: itself as F32, and the mean of its gradients and that of their squares as BF16. A model's latents are most of
 * what healing needs of the host's memory, and all of them are read and written in each step. BF16's 8 bits are enough for both means:
 * a step changes them by a tenth and a fiftieth of what is new in a gradient, and rounds to 1/256. */
#ifndef APR_QUANT_LATENTS_H
#define APR_QUANT_LATENTS_H

#include "formats/tensor/model.h"

#include <stdio.h>

/* Learning rates of one step. 0: that part keeps its values. */
typedef struct apr_latent_rates {
    float code, sub_scale, scale, plain; /* codes; sub-scales and sub-minimums; ln d and ln dmin; floats */
} apr_latent_rates;

typedef struct apr_latents {
    apr_dtype dtype;
    const struct apr_grid *grid; /* NULL: floats, each a block of its own */
    int64_t n_blocks;
    int elems, n_subs, n_latents; /* of a block */
    size_t block_bytes;
    uint8_t *blocks;        /* what the latents stand for; owned */
    float *latents;         /* [n_blocks, n_latents] */
    uint16_t *mean, *power; /* of each: mean of its gradients, mean of their squares; BF16 */
} apr_latents;

/* Can tensors of this type be trained? matrix: in blocks; else as floats. */
bool apr_latents_support(apr_dtype dtype);

/* Bytes that n_elems numbers need. */
uint64_t apr_latents_bytes(apr_dtype dtype, int64_t n_elems);

/* Latents of stored blocks, which are copied. Codes are at the middle of their cells. A zeroed struct may be closed. */
apr_status apr_latents_open(apr_latents *l, apr_dtype dtype, int64_t n_elems, const void *blocks, apr_error *err);
void apr_latents_close(apr_latents *l);

/* Moves the latents of codes towards the original weights, within the cells of the stored codes: the share `hold` (0 to 1) of the way.
 * original: [n * elems] the values of blocks [first, first + n). */
void apr_latents_start(apr_latents *l, int64_t first, int64_t n, const float *original, float hold);

/* The gradient of each latent of one block from that of its values. of: [n_latents] codes, sub-scales, sub-minimums, ln d, ln dmin. */
void apr_latents_gradient(const apr_latents *l, int64_t block, const float *of_values, float *of);

/* Adam's step number `step` (from 1) for blocks [first, first + n), whose bytes follow. gradients: [n * elems] of the values. */
void apr_latents_step(apr_latents *l, int64_t first, int64_t n, const float *gradients, const apr_latent_rates *rates, int64_t step);

/* What differs from the blocks that training started with. */
typedef struct apr_latent_changes {
    int64_t n_codes, n_turned; /* codes, and those that are another level now */
    double largest_d;          /* largest relative change of a d */
} apr_latent_changes;

void apr_latents_compare(const apr_latents *l, const void *start, apr_latent_changes *sum);

/* --- the tensors of a model that are trained --- */

typedef struct apr_trained_tensor {
    size_t tensor; /* in the table of stored tensors */
    apr_latents latents;
    uint8_t *best; /* the blocks that were kept last */
} apr_trained_tensor;

typedef struct apr_trained {
    apr_trained_tensor *items;
    size_t n;
} apr_trained;

/* The tensor of a table whose data hold all rows of `view` as whole blocks, so that a gradient of the view is one of the tensor; SIZE_MAX:
 * none does, or its type cannot be trained. Matrices are trained in blocks, vectors as floats. */
size_t apr_trained_find(const apr_tensor *table, size_t n, const apr_tensor *view);

/* Takes the marked tensors of a table, whose data become the blocks of latents. A zeroed set may be closed; then the table must not be
 * used any more. */
apr_status apr_trained_open(apr_trained *trained, apr_tensor *table, size_t n, const bool *wanted, apr_error *err);
void apr_trained_close(apr_trained *trained);

/* Both take one row after another in the order of the view, on all threads. `view`: one that apr_trained_find has found in that table.
 * original: of the view's shape, in any type that can be decoded. */
apr_status apr_trained_start(apr_trained *trained, const apr_tensor *view, const apr_tensor *original, apr_error *err);
void apr_trained_step(apr_trained *trained, const apr_tensor *view, const float *gradient, const apr_latent_rates *rates, int64_t step);

/* Keeps all blocks as they are now, or puts those back that were kept. Latents stay as they are. */
void apr_trained_keep(apr_trained *trained);
void apr_trained_put_back(apr_trained *trained);

/* The numbers of all tensors, for a run that continues later on the same machine. read: false: they are cut off or damaged; the set is then
 * of no further use. */
bool apr_trained_write(const apr_trained *trained, FILE *file);
bool apr_trained_read(apr_trained *trained, FILE *file);

#endif
