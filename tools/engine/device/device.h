/* device.h - the options --device host|cuda|auto|ref and its like: where a session runs, and how. */
#ifndef APR_TOOLS_DEVICE_H
#define APR_TOOLS_DEVICE_H

#include "runtime/session/session.h"
#include "tools/cli/cli.h"
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

#define APR_DEVICE_OPTIONS(type, member)                                                                                             \
    {"device",                                                                                                                       \
     0,                                                                                                                              \
     APR_OPTION_CHOICE,                                                                                                              \
     APR_DEVICE_NAMES,                                                                                                               \
     "host",                                                                                                                         \
     "where to run; auto: on the GPU, or on the host if that fails; ref: on the host, with the plain reference code",                \
     APR_TO(type, member.device),                                                                                                    \
     .group = "Device"},                                                                                                             \
        {"gpu", 0, APR_OPTION_INT, "N", "0", "which GPU, by its CUDA ordinal", APR_TO(type, member.ordinal), .min = 0, .max = 1024}, \
        {"gpus",                                                                                                                     \
         0,                                                                                                                          \
         APR_OPTION_STRING,                                                                                                          \
         "N",                                                                                                                        \
         NULL,                                                                                                                       \
         "split the layers over N GPUs, over 'all', or over a list such as 0,2",                                                     \
         APR_TO(type, member.gpus)},                                                                                                 \
        {"offload",                                                                                                                  \
         0,                                                                                                                          \
         APR_OPTION_STRING,                                                                                                          \
         APR_OFFLOAD_NAMES,                                                                                                          \
         NULL,                                                                                                                       \
         "compute on the host: the experts (of all layers, or of N), or the first N layers (layers=all: all of them)",               \
         APR_TO(type, member.offload)},                                                                                              \
        {"direct",                                                                                                                   \
         0,                                                                                                                          \
         APR_OPTION_FLAG,                                                                                                            \
         NULL,                                                                                                                       \
         "yes",                                                                                                                      \
         "do not read packed weights directly: make FP16 copies, or decode tile by tile",                                            \
         APR_TO(type, member.direct)},                                                                                               \
        {"exact",                                                                                                                    \
         0,                                                                                                                          \
         APR_OPTION_FLAG,                                                                                                            \
         NULL,                                                                                                                       \
         NULL,                                                                                                                       \
         "do not round the inputs of matrix products: slower, for comparisons",                                                      \
         APR_TO(type, member.exact)},                                                                                                \
        {"replay",                                                                                                                   \
         0,                                                                                                                          \
         APR_OPTION_FLAG,                                                                                                            \
         NULL,                                                                                                                       \
         "yes",                                                                                                                      \
         "launch the kernels of a decoded token one by one, not as a CUDA graph",                                                    \
         APR_TO(type, member.replay)},                                                                                               \
        {"fuse",                                                                                                                     \
         0,                                                                                                                          \
         APR_OPTION_FLAG,                                                                                                            \
         NULL,                                                                                                                       \
         "yes",                                                                                                                      \
         "do not fuse the operations between matrix products into them on the GPU",                                                  \
         APR_TO(type, member.fuse)},                                                                                                 \
        {"fp8",                                                                                                                      \
         0,                                                                                                                          \
         APR_OPTION_CHOICE,                                                                                                          \
         "auto|on|off",                                                                                                              \
         "auto",                                                                                                                     \
         "on: multiply FP8 weights in FP8, which also rounds their inputs; auto, off: decode them first",                            \
         APR_TO(type, member.fp8)},                                                                                                  \
        {"headroom",                                                                                                                 \
         0,                                                                                                                          \
         APR_OPTION_SIZE,                                                                                                            \
         "SIZE",                                                                                                                     \
         "1G",                                                                                                                       \
         "memory of the GPU to leave free",                                                                                          \
         APR_TO(type, member.headroom),                                                                                              \
         .min = APR_MIN_SIZE,                                                                                                      \
         .or_none = true},                                                                                                           \
    {                                                                                                                                \
        "force", 0, APR_OPTION_FLAG, NULL, NULL, "run on the GPU even when the plan does not fit", APR_TO(type, member.force)        \
    }

/* Rows of a table of needs, for options that need a GPU. `holds` says whether the run may use one. */
#define APR_DEVICE_NEEDS(holds)                                                                                                          \
    {"gpu", "--device cuda or auto", holds}, {"direct", "--device cuda or auto", holds}, {"replay", "--device cuda or auto", holds},     \
        {"fuse", "--device cuda or auto", holds}, {"fp8", "--device cuda or auto", holds}, {"headroom", "--device cuda or auto", holds}, \
    {                                                                                                                                    \
        "force", "--device cuda or auto", holds                                                                                          \
    }
static inline bool apr_device_is_gpu(const apr_device_options *o) { return o->device == APR_DEVICE_CUDA || o->device == APR_DEVICE_AUTO; }

/* Sets the session's options for that device. With auto and no usable GPU it falls back to the host, with a warning on stderr. */
apr_status apr_device_choose(const apr_device_options *options, apr_session_options *session, apr_error *err);

#endif
