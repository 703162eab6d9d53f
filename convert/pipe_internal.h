/* pipe_internal.h - shared by pipe.c, which puts one tensor after another, and its two ways to convert one: on the host in portions, and on
 * a device. */
#ifndef APR_CONVERT_PIPE_INTERNAL_H
#define APR_CONVERT_PIPE_INTERNAL_H

#include "convert/pipe.h"

enum {
    APR_PORTION_ELEMS = 64 * 1024, /* a multiple of every block; 256 KiB of floats stay in a core's cache */
    APR_WINDOW_PORTIONS = 32,      /* measured or gathered at a time */
    APR_PORTION_BUFFERS = 3        /* for each thread: decoded source, decoded result, importance */
};

/* How a tensor is cut. A plain tensor is one long array, and portions may cross rows. If rows move, have scales or a flat
 * type, a portion is whole rows. */
typedef struct apr_cut {
    const apr_tensor *tensor;
    bool whole_rows;
    int64_t n_units, units_per_portion; /* a unit is a row, or one value */
    int64_t unit_elems;
} apr_cut;

apr_cut apr_cut_tensor(const apr_pipe_item *item);
int64_t apr_cut_portions(const apr_cut *c);

typedef struct apr_pipe {
    apr_sink *sink;
    const apr_pipe_options *options;
    uint64_t done_bytes, total_bytes; /* of source data, for the progress line */
    uint8_t *slots;                   /* encoded bytes of portions, or one buffer for each thread */
    size_t slot_bytes, n_slots;
    float *values;        /* [threads][APR_PORTION_BUFFERS][portion_elems] */
    size_t portion_elems; /* capacity of `values` */
    float *row_scales;    /* of the FP8 tensor just written */
    size_t n_row_scales;
    struct apr_packed_bytes *packed; /* of the packed matrix just encoded */
} apr_pipe;

/* Does options->custom_encoder encode that item? */
static inline bool apr_pipe_is_custom(const apr_pipe *p, size_t item)
{
    const apr_custom_encoder *const custom_encoder = p->options->custom_encoder;
    return custom_encoder != NULL && custom_encoder->takes(custom_encoder->user, item);
}

/* --- pipe_portions.c --- */

void apr_pipe_progress(apr_pipe *p, const apr_tensor *tensor, uint64_t more_bytes);
/* APR_E_NO: the caller has cancelled the run. */
apr_status apr_pipe_check_cancelled(const apr_pipe *p, apr_error *err);
/* Measures encoded portions [first, first + n), whose bytes are contiguous, and adds the result to item->metrics. All cores. */
apr_status apr_pipe_measure(apr_pipe *p, const apr_cut *c, apr_pipe_item *item, int64_t first, int64_t n, const uint8_t *bytes,
                            apr_error *err);

/* Converts a tensor that is not empty, all cores. extent: where its bytes are in the output; NULL: they are put in order. row_scales is
 * allocated. */
apr_status apr_pipe_convert(apr_pipe *p, apr_pipe_item *item, const apr_extent *extent, apr_error *err);

/* --- pipe_device.c --- */

typedef struct apr_pipe_device apr_pipe_device;

/* Opens workers on the options' devices, and starts threads that fill them with the items that a device can convert (on_device). */
apr_status apr_pipe_device_start(apr_pipe_device **device, apr_pipe *p, apr_pipe_item *items, size_t n_items, apr_error *err);
/* As apr_pipe_convert, for each of those items in their order. */
apr_status apr_pipe_device_item(apr_pipe_device *device, size_t item, const apr_extent *extent, apr_error *err);
void apr_pipe_device_stop(apr_pipe_device *device); /* NULL is fine */

#endif
