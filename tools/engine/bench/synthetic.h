/* synthetic.h - a model with random weights, made in memory from a config.json alone, to measure speed and memory.
 *
 * The program says which weights there are. A recipe gives each its type, as aprquant would (one tensor of a slot decides for the whole
 * slot). The bytes are valid blocks, made by each type's encoder from random numbers of a usual size, so that activations stay finite.
 * The same seed makes the same bytes with any number of threads.
 *
 * On the host each weight has its own memory, as in a file. For a device, which copies the weights, tensors of a type overlap in memory
 * that is as large as the largest of them, so that the host does not hold the model a second time. */
#ifndef APR_TOOLS_SYNTHETIC_H
#define APR_TOOLS_SYNTHETIC_H

#include "formats/base/progress.h"
#include "formats/tensor/model.h"

typedef struct apr_synthetic {
    apr_model source, model; /* as read from config.json; canonical, with tensors */
    struct apr_synthetic_pool *pools;
    size_t n_pools;
    bool shared;            /* weights overlap */
    size_t *pool_of;        /* [model.n_tensors] */
    uint8_t *memory;        /* of all pools, anonymous; NULL: not filled yet */
    uint64_t memory_bytes;  /* asked for */
    uint64_t heap_bytes;    /* by the C library's count; UINT64_MAX: it does not count */
    uint64_t weights_bytes; /* of all tensors, each padded to 64 */
    int64_t n_elems;
} apr_synthetic;

/* Makes names, shapes and types, which is enough for a plan; allocates nothing for the weights yet. mixture: a name of aprquant --list, or
 * any other type that can be decoded, for the matrices; embedding and head are then q8_0. Close it also after a failure. */
apr_status apr_synthetic_open(apr_synthetic *synthetic, const char *config, const char *mixture, bool shared, apr_error *err);
/* Allocates the weights and fills them; call it once. APR_E_MEMORY: not enough memory. */
apr_status apr_synthetic_fill(apr_synthetic *synthetic, uint64_t seed, const apr_progress *progress, apr_error *err);
void apr_synthetic_close(apr_synthetic *synthetic);

#endif
