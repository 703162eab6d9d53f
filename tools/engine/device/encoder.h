/* encoder.h - opens the GPUs that encode the tensors of a conversion. */
#ifndef APR_ENGINE_ENCODER_H
#define APR_ENGINE_ENCODER_H

#include "convert/convert.h"
#include "tools/engine/device/places.h"

typedef struct apr_encoder_options {
    int device;       /* apr_device_choice of tools/engine/device/device.h */
    const char *gpus; /* see apr_gpu_list_parse */
} apr_encoder_options;

typedef struct apr_encoder {
    const apr_cuda_api *cuda; /* NULL: the host encodes */
    apr_cuda_device *devices[APR_MAX_DEVICES];
    int ordinals[APR_MAX_DEVICES]; /* their CUDA ordinals */
    int n_devices;
    char name[512];                               /* "NVIDIA L4", "2 x NVIDIA L4", "NVIDIA L4, NVIDIA T4" */
    bool may_fall_back;                           /* --device auto */
    char problem[sizeof(((apr_error *)0)->text)]; /* why the host encodes although there is a GPU; empty: it does not */
} apr_encoder;

/* Gives the pipe of a planned conversion the devices that the options choose. With auto, a missing GPU is not an error. */
apr_status apr_encoder_open(apr_encoder *encoder, const apr_encoder_options *options, const apr_conversion *conversion,
                            apr_pipe_options *pipe, apr_error *err);
/* Takes the devices away again; the host encodes from here on. */
void apr_encoder_close(apr_encoder *encoder, apr_pipe_options *pipe);

#endif
