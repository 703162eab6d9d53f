/* pipe_internal.h - how tensors are cut into portions, and what the host path and the device path share. */
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
    apr_tensor array; /* the tensor, or its flat view of rank 1; a composed one is unchanged */
    bool whole_rows;
    int64_t n_units, units_per_portion; /* a unit is a row, or one value of the array */
    int64_t unit_elems;
} apr_cut;

apr_cut apr_cut_tensor(const apr_pipe_item *item);
int64_t apr_cut_portions(const apr_cut *c);
int64_t apr_cut_units(const apr_cut *c, int64_t portion); /* of one portion */

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
} apr_pipe;

/* Does options->maker encode that item? */
bool apr_pipe_is_custom(const apr_pipe *p, size_t item);
void apr_pipe_progress(apr_pipe *p, const apr_tensor *tensor, uint64_t more_bytes);
/* Allocates row_scales for an FP8 tensor. */
apr_status apr_pipe_reserve_scales(apr_pipe *p, const apr_cut *c, const apr_pipe_item *item, apr_error *err);
/* The extent of the item in the output, if the sink knows it (apr_sink_extent). */
apr_status apr_pipe_find_extent(apr_pipe *p, const apr_pipe_item *item, apr_extent *extent, bool *is_there, apr_error *err);
/* Measures encoded portions [first, first + n), whose bytes are contiguous, and adds the result to item->metrics. All cores. */
apr_status apr_pipe_measure(apr_pipe *p, const apr_cut *c, apr_pipe_item *item, int64_t first, int64_t n, const uint8_t *bytes,
                            apr_error *err);

/* --- pipe_note.c --- */

/* Prints the results that a run filled into an item as one line for a journal, and reads them back. A malformed line changes nothing. */
void apr_pipe_write_note(const apr_pipe_item *item, char note[APR_NOTE_BYTES]);
void apr_pipe_read_note(apr_pipe_item *item, const char *note);

/* --- pipe_device.c --- */

typedef struct apr_pipe_device apr_pipe_device;

/* Opens workers on the options' devices and starts threads that fill them, in the order of the items. */
apr_status apr_pipe_device_start(apr_pipe_device **device, apr_pipe *p, apr_pipe_item *items, size_t n_items, apr_error *err);
/* Does the device convert that item? If so, call apr_pipe_device_item for it, in the order of the items. */
bool apr_pipe_device_takes(const apr_pipe_device *device, size_t item);
apr_status apr_pipe_device_item(apr_pipe_device *device, size_t item, apr_error *err);
void apr_pipe_device_stop(apr_pipe_device *device); /* NULL is fine */

#endif
