/* pipe_fixture.h - what tests of the way through a device share: a device whose workers are really the host, a sink that remembers, and
 * tensors of every kind. */
#ifndef APR_TESTS_PIPE_FIXTURE_H
#define APR_TESTS_PIPE_FIXTURE_H

#include "convert/pipe.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- a device made of the reference codecs ---- */

extern const apr_cuda_codecs fake_codecs;

typedef struct fake_codecs_state {
    int n_devices;                 /* that pipe_fixture_run has: 1 to 4 */
    bool all_must_start;           /* the first portion of each device waits for those of the others */
    int fail_at;                   /* the portion whose start fails; 0: none */
    int workers_free;              /* memory for so many on the device */
    int n_open, n_most, n_started; /* workers now, and at most; portions */
} fake_codecs_state;

extern fake_codecs_state fake_codecs_is;

/* Four devices, that have done nothing yet. */
apr_cuda_device *const *fake_codecs_devices(void);
int fake_codecs_open_on(int device); /* workers */

/* ---- a sink that remembers ---- */

typedef struct memory_sink {
    apr_sink base;
    uint8_t *bytes;
    size_t n, room;
    size_t fail_after; /* bytes; 0: never */
} memory_sink;

/* Its bytes are the caller's to free. */
memory_sink memory_sink_new(size_t room);

/* ---- tensors ---- */

/* Random bytes; those of floats get exponents that are of this world. */
apr_tensor pipe_tensor(const char *name, apr_dtype dtype, int64_t rows, int64_t columns);

typedef struct pipe_fixture {
    apr_tensor tensors[8], scale;
    apr_pipe_item items[12];
    size_t n_items;
} pipe_fixture;

/* Plain, moved, scaled, flat and small tensors; one that is copied, and one of a type that this device does not read. */
void pipe_fixture_make(pipe_fixture *f);
void pipe_fixture_close(pipe_fixture *f);
/* One item more, or two: FP8 has scales. */
void pipe_fixture_add(pipe_fixture *f, size_t tensor, apr_dtype to);

/* All items, by the host or by fake_codecs_is.n_devices devices. */
apr_status pipe_fixture_run_into(pipe_fixture *f, apr_sink *sink, bool device, bool metrics, apr_error *err);
apr_status pipe_fixture_run(pipe_fixture *f, memory_sink *sink, bool device, bool metrics, apr_error *err);

#endif
