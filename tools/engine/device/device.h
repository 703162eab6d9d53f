/* device.h - where a session runs, and how: host, GPU, or the plain reference code. */
#ifndef APR_ENGINE_DEVICE_H
#define APR_ENGINE_DEVICE_H

#include "runtime/session/session.h"
#include "tools/engine/device/places.h"

/* An option's choices, in the order of the enum. */
#define APR_DEVICE_NAMES "host|cuda|auto|ref"
typedef enum { APR_DEVICE_HOST, APR_DEVICE_CUDA, APR_DEVICE_AUTO, APR_DEVICE_REF } apr_device_choice;

typedef struct apr_device_options {
    int device; /* apr_device_choice */
    int64_t ordinal;
    uint64_t headroom;
    int fp8; /* apr_fp8_choice */
    bool force, direct, exact, replay, fuse;
    const char *offload, *gpus; /* see places.h; NULL: nothing is offloaded; one GPU */
} apr_device_options;

static inline bool apr_device_is_gpu(const apr_device_options *o) { return o->device == APR_DEVICE_CUDA || o->device == APR_DEVICE_AUTO; }

/* Where warnings go; lives as long as the session. */
typedef struct apr_device_warnings {
    void (*show)(void *user, const char *sentence);
    void *user;
} apr_device_warnings;

/* Sets the session's options for that device. With auto and no usable GPU it falls back to the host, with a warning. */
apr_status apr_device_choose(const apr_device_options *options, const apr_device_warnings *warnings, apr_session_options *session,
                             apr_error *err);

#endif
