/* convert/pipe.h - the bytes' way: tensors of a view, decoded, encoded and put into a sink, in constant memory.
 *
 * A tensor that keeps its type and order is copied as it is, and one that is made of others (formats/model/made.h) is put together
 * portion by portion. Everything else goes through float32 in portions of about
 * 64 Ki values, on all cores, while the portions before are being written. The bytes do not depend on the number of threads,
 * nor on whether a GPU makes them.
 *
 * A finite value that the new type cannot hold ends the run with APR_E_UNSUPPORTED and a sentence that names its tensor, unless
 * the options ask for the nearest value that it can (see kernels/misfits.h). */
#ifndef APR_CONVERT_PIPE_H
#define APR_CONVERT_PIPE_H

#include "convert/checksums.h"
#include "formats/base/progress.h"
#include "formats/model/model.h"
#include "formats/model/sink.h"
#include "kernels/cuda/api.h"
#include "kernels/metrics.h"
#include "kernels/misfits.h"

/* One tensor of the sink's layout. */
typedef struct apr_pipe_item {
    const apr_tensor *from; /* readable: data, pending step and scales as they are */
    apr_dtype to;
    bool is_scales;    /* not the weights but the FP8 row scales of the item before (f32) */
    bool same_numbers; /* of numbers that lie in several tensors: put into blocks of `to`, not computed, and compared (kernels/transcode.h)
                        */
    bool counts_cost;  /* decode again and count the values that are others (n_different) */
    apr_dtype library; /* of both: formats/model/library_type.h */
    bool is_commons;   /* not the weights but the factors beside the blocks of the item before, one a matrix (f32) */
    const float *importance; /* [matrices, columns of `from`] of its columns (kernels/rows.h); NULL: none, all count the same */

    /* filled by the run */
    apr_metrics metrics;    /* of `to` against `from`, when asked for and the types differ */
    apr_misfits misfits;    /* values met while encoding that `to` cannot hold */
    bool on_device;         /* a GPU encoded it */
    apr_tensor_state state; /* what a run before made, and found out, or another part makes, is not this run's */
    int64_t
        n_different; /* of same_numbers and counts_cost: values that are not the same after all, and by how much of their size at most */
    double worst_difference;
    int64_t n_rounded, n_off; /* of both: see kernels/transcode.h */
} apr_pipe_item;

/* Makes some items as a whole, in another way than value by value: each value's code depends on others (quant/feedback). */
typedef struct apr_pipe_maker {
    bool (*takes)(void *user, size_t item);
    /* All bytes of the item, valid until the next call; fills what of its values the type cannot hold. */
    apr_status (*make)(void *user, size_t item, const uint8_t **bytes, apr_misfits *misfits, apr_error *err);
    void *user;
} apr_pipe_maker;

typedef struct apr_pipe_options {
    apr_checksums *checksums;    /* of the source; NULL: it states none */
    const apr_pipe_maker *maker; /* NULL: nobody */
    bool saturate;               /* what `to` cannot hold becomes the nearest that it can */
    bool want_metrics;           /* decode again and compare: costs about as much as the encoding of a plain type */
    apr_progress progress;
    const apr_cuda_codecs *codecs;   /* of the library that opened `devices`; NULL: all on the host */
    apr_cuda_device *const *devices; /* [n_devices] that work together, one or more; each with workers of its own */
    int n_devices;
} apr_pipe_options;

apr_status apr_pipe_run(apr_sink *sink, apr_pipe_item *items, size_t n_items, const apr_pipe_options *options, apr_error *err);

#endif
