/* convert/pipe.h - reads the tensors of a view, decodes and encodes them, and puts them into a sink, in constant memory.
 *
 * A tensor that keeps its type and order is copied, and a composed one (formats/tensor/composed.h) is gathered portion by portion.
 * Everything else goes through float32 in portions of about 64 Ki values, on all cores, while earlier portions are written.
 * The bytes do not depend on the number of threads, nor on whether a GPU encodes them.
 *
 * A finite value that is out of the new type's range ends the run with APR_E_UNSUPPORTED and a message that names the tensor, unless
 * options.saturate asks for the nearest value in range (see kernels/out_of_range.h). */
#ifndef APR_CONVERT_PIPE_H
#define APR_CONVERT_PIPE_H

#include "formats/base/progress.h"
#include "formats/packed/packed_layouts.h"
#include "formats/tensor/model.h"
#include "formats/tensor/sink.h"
#include "kernels/cuda/api.h"
#include "kernels/metrics.h"
#include "kernels/out_of_range.h"

#include <stdatomic.h>

/* A matrix that becomes several tensors (formats/packed/packed_layouts.h), one item each. The first item encodes all of them; the others
 * have is_scales. */
typedef struct apr_pipe_packed {
    apr_packed_matrix matrix;
    bool same_codes;                 /* codes and scales are copied */
    const apr_tensor *const *shares; /* [n_shares] matrices that have one global scale together with this one, itself included */
    size_t n_shares;
} apr_pipe_packed;

/* One tensor of the sink's layout. */
typedef struct apr_pipe_item {
    const apr_tensor *from; /* the source: its data, pending step and scales */
    apr_dtype to;
    bool is_scales;                /* the FP8 row scales of the item before, f32; or a further tensor of its packed matrix */
    const apr_pipe_packed *packed; /* NULL: one tensor */
    int packed_part;               /* index of this item's tensor in packed->matrix.parts */
    bool same_numbers;             /* packed weights, repacked into blocks of `to` without computing, and compared (kernels/transcode.h) */
    bool counts_cost;              /* decode again and count the values that differ (n_different) */
    apr_dtype library;             /* for same_numbers and counts_cost: formats/tensor/library_type.h */
    bool is_commons;               /* the global scales of the item before, one for each matrix, f32 */
    const float *importance;       /* [matrices, columns of `from`] (kernels/rows.h); NULL: all columns count the same */

    /* filled by the run */
    apr_metrics metrics;           /* compares `to` with `from`, if requested and the types differ */
    apr_out_of_range out_of_range; /* values that are out of the range of `to` */
    bool on_device;                /* a GPU encodes it */
    apr_tensor_state state;        /* done by an earlier run (with its results), by this run, or by another part */
    int64_t n_different; /* same_numbers and counts_cost: number of values that differ; worst_difference: the largest relative difference */
    double worst_difference;
    int64_t n_rounded, n_off; /* same_numbers and counts_cost: see kernels/transcode.h */
} apr_pipe_item;

/* Encodes some items as a whole instead of value by value, because each code depends on other values (quant/feedback). */
typedef struct apr_custom_encoder {
    bool (*takes)(void *user, size_t item);
    /* Returns all bytes of the item, valid until the next call, and counts the values that are out of range. */
    apr_status (*make)(void *user, size_t item, const uint8_t **bytes, apr_out_of_range *out_of_range, apr_error *err);
    void *user;
} apr_custom_encoder;

typedef struct apr_pipe_options {
    const apr_model *source;                  /* its tensors are checked against the checksums that it states; NULL: no checks */
    const apr_custom_encoder *custom_encoder; /* NULL: none */
    bool saturate;                            /* values out of the range of `to` become the nearest value in range */
    bool want_metrics;                        /* decode again and compare: costs about as much as encoding a plain type */
    apr_progress progress;
    const atomic_bool *is_cancelled; /* true: the run ends soon with APR_E_NO; NULL: it is not cancelled */
    const apr_cuda_codecs *codecs;   /* of the library that opened `devices`; NULL: encode on the host */
    apr_cuda_device *const *devices; /* [n_devices] one or more devices used together; each has its own workers */
    int n_devices;
} apr_pipe_options;

apr_status apr_pipe_run(apr_sink *sink, apr_pipe_item *items, size_t n_items, const apr_pipe_options *options, apr_error *err);

/* Prints the results that a run filled into an item as one line for a journal, and reads them back. A malformed line changes nothing. */
void apr_pipe_write_note(const apr_pipe_item *item, char note[APR_NOTE_BYTES]);
void apr_pipe_read_note(apr_pipe_item *item, const char *note);

#endif
