/* pipe_internal.h - how tensors are cut into portions, and what the host's way and the device's share. */
#ifndef APR_CONVERT_PIPE_INTERNAL_H
#define APR_CONVERT_PIPE_INTERNAL_H

#include "convert/pipe.h"

enum {
    APR_PORTION_ELEMS = 64 * 1024, /* a multiple of every block; 256 KiB of floats stay in a core's cache */
    APR_WINDOW_PORTIONS = 32,      /* measured, or put together, at a time */
    APR_PORTION_BUFFERS = 3        /* of a thread: decoded source, decoded result, importances */
};

/* How a tensor is cut. A plain tensor is one long array and portions may cross rows; where rows move, have scales or a flat
 * type, a portion is whole rows. */
typedef struct apr_cut {
    apr_tensor array; /* the tensor, or its flat view of rank 1; one that is made stays as it is */
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
    uint8_t *slots;                   /* encoded bytes of portions, or buffers of the threads */
    size_t slot_bytes, n_slots;
    float *values;        /* [threads][APR_PORTION_BUFFERS][portion_elems] */
    size_t portion_elems; /* capacity of `values` */
    float *row_scales;    /* of the FP8 tensor just written */
    size_t n_row_scales;
} apr_pipe;

/* Does the options' maker make that item? */
bool apr_pipe_is_made(const apr_pipe *p, size_t item);
void apr_pipe_progress(apr_pipe *p, const apr_tensor *tensor, uint64_t more_bytes);
/* Room for row_scales of an FP8 tensor. */
apr_status apr_pipe_reserve_scales(apr_pipe *p, const apr_cut *c, const apr_pipe_item *item, apr_error *err);
/* Where the item's bytes go, if the sink knows that (apr_sink_extent). */
apr_status apr_pipe_find_extent(apr_pipe *p, const apr_pipe_item *item, apr_extent *extent, bool *is_there, apr_error *err);
/* Adds to item->metrics what encoding cost portions [first, first + n), whose bytes lie one after another; all cores. */
apr_status apr_pipe_measure(apr_pipe *p, const apr_cut *c, apr_pipe_item *item, int64_t first, int64_t n, const uint8_t *bytes,
                            apr_error *err);

/* --- pipe_remark.c --- */

/* What the run has filled in of an item, as one line for a journal, and back. Another line leaves the item as it was. */
void apr_pipe_remark(const apr_pipe_item *item, char remark[APR_REMARK_BYTES]);
void apr_pipe_recall(apr_pipe_item *item, const char *remark);

/* --- pipe_device.c --- */

typedef struct apr_pipe_device apr_pipe_device;

/* Opens workers on the options' device and starts threads that fill them, in the order of the items. */
apr_status apr_pipe_device_start(apr_pipe_device **device, apr_pipe *p, apr_pipe_item *items, size_t n_items, apr_error *err);
/* Does the device convert that item? Then the next call for it must be apr_pipe_device_item, in the order of the items. */
bool apr_pipe_device_takes(const apr_pipe_device *device, size_t item);
apr_status apr_pipe_device_item(apr_pipe_device *device, size_t item, apr_error *err);
void apr_pipe_device_stop(apr_pipe_device *device); /* NULL is fine */

#endif
