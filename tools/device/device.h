/* device.h - --device host|cuda|auto|ref: where a session is to run, and the words for what is given up. */
#ifndef APR_TOOLS_DEVICE_H
#define APR_TOOLS_DEVICE_H

#include "runtime/session/session.h"
#include "tools/cli/cli.h"
#include "tools/device/places.h"

/* An option's choices, in the order of the enum. */
#define APR_DEVICE_NAMES "host|cuda|auto|ref"
typedef enum { APR_DEVICE_HOST, APR_DEVICE_CUDA, APR_DEVICE_AUTO, APR_DEVICE_REF } apr_device_choice;

typedef struct apr_device_options {
    int device; /* apr_device_choice */
    int64_t ordinal;
    uint64_t headroom;
    int fp8; /* apr_fp8_choice */
    bool force, direct, exact, replay, fuse;
    const char *offload, *gpus; /* see places.h; NULL: nothing, and the one */
} apr_device_options;

#define APR_DEVICE_OPTIONS(type, member)                                                                                              \
    {"device",                                                                                                                        \
     0,                                                                                                                               \
     APR_OPTION_CHOICE,                                                                                                               \
     APR_DEVICE_NAMES,                                                                                                                \
     "host",                                                                                                                          \
     "where to run; auto: on the GPU, and on the host when that fails; ref: on the host, in the plain loops that others are held to", \
     APR_TO(type, member.device),                                                                                                     \
     .group = "Device"},                                                                                                              \
        {"gpu", 0, APR_OPTION_INT, "N", "0", "which GPU, as CUDA counts them", APR_TO(type, member.ordinal), .min = 0, .max = 1024},  \
        {"gpus",                                                                                                                      \
         0,                                                                                                                           \
         APR_OPTION_STRING,                                                                                                           \
         "N",                                                                                                                         \
         NULL,                                                                                                                        \
         "split the layers over N GPUs, or all; or over those, as in 0,2",                                                            \
         APR_TO(type, member.gpus)},                                                                                                  \
        {"offload",                                                                                                                   \
         0,                                                                                                                           \
         APR_OPTION_STRING,                                                                                                           \
         APR_OFFLOAD_NAMES,                                                                                                           \
         NULL,                                                                                                                        \
         "compute a part on the host: a mixture's experts (or of N layers), or the first N layers (layers=all: all)",                 \
         APR_TO(type, member.offload)},                                                                                               \
        {"direct",                                                                                                                    \
         0,                                                                                                                           \
         APR_OPTION_FLAG,                                                                                                             \
         NULL,                                                                                                                        \
         "yes",                                                                                                                       \
         "read packed weights directly; --no-direct: as FP16 copies, or tile by tile",                                                \
         APR_TO(type, member.direct)},                                                                                                \
        {"exact", 0, APR_OPTION_FLAG, NULL, NULL, "no product rounds its inputs: slower, for proofs", APR_TO(type, member.exact)},    \
        {"replay",                                                                                                                    \
         0,                                                                                                                           \
         APR_OPTION_FLAG,                                                                                                             \
         NULL,                                                                                                                        \
         "yes",                                                                                                                       \
         "record a decoded token's operations on the GPU and run them at once; --no-replay: one by one",                              \
         APR_TO(type, member.replay)},                                                                                                \
        {"fuse",                                                                                                                      \
         0,                                                                                                                           \
         APR_OPTION_FLAG,                                                                                                             \
         NULL,                                                                                                                        \
         "yes",                                                                                                                       \
         "what stands between products is done with them on the GPU; --no-fuse: by itself",                                           \
         APR_TO(type, member.fuse)},                                                                                                  \
        {"fp8",                                                                                                                       \
         0,                                                                                                                           \
         APR_OPTION_CHOICE,                                                                                                           \
         "auto|on|off",                                                                                                               \
         "auto",                                                                                                                      \
         "products of FP8 weights in FP8: on rounds what is multiplied with them, too; auto: as exact as others",                     \
         APR_TO(type, member.fp8)},                                                                                                   \
        {"headroom",                                                                                                                  \
         0,                                                                                                                           \
         APR_OPTION_SIZE,                                                                                                             \
         "SIZE",                                                                                                                      \
         "1G",                                                                                                                        \
         "memory of the GPU to leave free",                                                                                           \
         APR_TO(type, member.headroom),                                                                                               \
         .min = APR_LEAST_SIZE,                                                                                                       \
         .or_none = true},                                                                                                            \
    {                                                                                                                                 \
        "force", 0, APR_OPTION_FLAG, NULL, NULL, "run on the GPU even when the plan does not fit", APR_TO(type, member.force)         \
    }

/* Rows of a table of needs: options that are about a GPU. `holds` says whether one may be used. */
#define APR_DEVICE_NEEDS(holds)                                                                                                          \
    {"gpu", "--device cuda or auto", holds}, {"direct", "--device cuda or auto", holds}, {"replay", "--device cuda or auto", holds},     \
        {"fuse", "--device cuda or auto", holds}, {"fp8", "--device cuda or auto", holds}, {"headroom", "--device cuda or auto", holds}, \
    {                                                                                                                                    \
        "force", "--device cuda or auto", holds                                                                                          \
    }
static inline bool apr_device_is_gpu(const apr_device_options *o) { return o->device == APR_DEVICE_CUDA || o->device == APR_DEVICE_AUTO; }

/* Sets what a session must know to run there. With auto and no usable GPU it stays on the host, and says so on stderr. */
apr_status apr_device_choose(const apr_device_options *options, apr_session_options *session, apr_error *err);

#endif
