/* synthetic.h - a model of a real shape with random weights, made in memory from a config.json alone: to be measured, not to be asked.
 *
 * The program says which weights there are, a recipe which type each has, as aprquant would give it (one tensor of a slot decides
 * for all of it). Bytes are valid blocks of their type: each type's own encoder made them of random numbers of a usual size, so that
 * activations stay finite. The same seed makes the same bytes, whatever the threads.
 *
 * On the host each weight has memory of its own, as a file's would. For a device, which copies them, tensors of a type lie upon each
 * other in memory for the largest of them: a model need not be there twice. */
#ifndef APR_TOOLS_SYNTHETIC_H
#define APR_TOOLS_SYNTHETIC_H

#include "formats/base/progress.h"
#include "formats/model/model.h"

typedef struct apr_synthetic {
    apr_model source, model; /* as read from config.json; canonical, with tensors */
    struct apr_synthetic_pool *pools;
    size_t n_pools;
    bool shared;            /* weights lie upon each other */
    size_t *pool_of;        /* [model.n_tensors] */
    uint8_t *memory;        /* all pools', anonymous; NULL: not filled yet */
    uint64_t memory_bytes;  /* asked for */
    uint64_t heap_bytes;    /* by the C library's count; UINT64_MAX: it does not count */
    uint64_t weights_bytes; /* of all tensors, each padded to 64 */
    int64_t n_elems;
} apr_synthetic;

/* Names, shapes and types: enough for a forecast, as nothing is allocated for the weights yet. mixture: a name of aprquant --list, or of any
 * other type that is read, for the matrices; embedding and head are then q8_0. A failed open must be closed. */
apr_status apr_synthetic_open(apr_synthetic *synthetic, const char *config, const char *mixture, bool shared, apr_error *err);
/* Memory and bytes, once. APR_E_MEMORY: there is no such memory. */
apr_status apr_synthetic_fill(apr_synthetic *synthetic, uint64_t seed, const apr_progress *progress, apr_error *err);
void apr_synthetic_close(apr_synthetic *synthetic);

#endif
