/* encoder.h - aprquant --device host|cuda|auto: the GPU that encodes, or none. */
#ifndef APR_TOOLS_ENCODER_H
#define APR_TOOLS_ENCODER_H

#include "convert/convert.h"
#include "tools/cli/cli.h"

typedef struct apr_encoder_options {
    int device; /* apr_device_choice of tools/device/device.h */
    int64_t ordinal;
} apr_encoder_options;

#define APR_ENCODER_OPTIONS(type, member)                                                                                         \
    {"device",                                                                                                                    \
     0,                                                                                                                           \
     APR_OPTION_CHOICE,                                                                                                           \
     "host|cuda|auto",                                                                                                            \
     "auto",                                                                                                                      \
     "where to encode; auto: on a GPU where there is one and the model is large enough; the bytes are the same",                  \
     APR_TO(type, member.device),                                                                                                 \
     .group = "Device"},                                                                                                          \
    {                                                                                                                             \
        "gpu", 0, APR_OPTION_INT, "N", "0", "which GPU, as CUDA counts them", APR_TO(type, member.ordinal), .min = 0, .max = 1024 \
    }

typedef struct apr_encoder {
    const apr_cuda_api *cuda; /* NULL: the host encodes */
    apr_cuda_device *device;
    char name[256];
    bool may_fall_back; /* --device auto */
} apr_encoder;

/* For a conversion that has been planned: gives it the device that the options choose. With auto, no GPU is no error. */
apr_status apr_encoder_open(apr_encoder *encoder, const apr_encoder_options *options, apr_conversion *conversion, apr_error *err);
/* The host goes on. */
void apr_encoder_close(apr_encoder *encoder, apr_conversion *conversion);

#endif
