/* encoder.h - aprquant --device host|cuda|auto: opens the GPUs that encode. */
#ifndef APR_TOOLS_ENCODER_H
#define APR_TOOLS_ENCODER_H

#include "convert/convert.h"
#include "tools/cli/cli.h"
#include "tools/engine/device/places.h"

typedef struct apr_encoder_options {
    int device;       /* apr_device_choice of tools/engine/device/device.h */
    const char *gpus; /* see apr_gpu_list_parse */
} apr_encoder_options;

#define APR_ENCODER_OPTIONS(type, member)                                                                                       \
    {"device",                                                                                                                  \
     0,                                                                                                                         \
     APR_OPTION_CHOICE,                                                                                                         \
     "host|cuda|auto",                                                                                                          \
     "auto",                                                                                                                    \
     "where to encode; auto: on a GPU if there is one and the model is large enough; the result is the same",                   \
     APR_TO(type, member.device),                                                                                               \
     .group = "Device"},                                                                                                        \
    {                                                                                                                           \
        "gpu", 0, APR_OPTION_STRING, "N,...|all", "0",                                                                          \
            "GPUs to encode on, by CUDA's numbers; a GPU that is given twice gets twice the workers", APR_TO(type, member.gpus) \
    }

typedef struct apr_encoder {
    const apr_cuda_api *cuda; /* NULL: the host encodes */
    apr_cuda_device *devices[APR_MAX_DEVICES];
    int ordinals[APR_MAX_DEVICES]; /* their CUDA ordinals */
    int n_devices;
    char name[512];     /* "NVIDIA L4", "2 x NVIDIA L4", "NVIDIA L4, NVIDIA T4" */
    bool may_fall_back; /* --device auto */
} apr_encoder;

/* Gives a planned conversion the devices that the options choose. With auto, a missing GPU is not an error. */
apr_status apr_encoder_open(apr_encoder *encoder, const apr_encoder_options *options, apr_conversion *conversion, apr_error *err);
/* Takes the devices away again; the host encodes from here on. */
void apr_encoder_close(apr_encoder *encoder, apr_conversion *conversion);

#endif
