/* encoder.c - chooses the GPU for a conversion. */
#include "tools/conv/encoder.h"

#include "kernels/cuda_loader.h"
#include "tools/device/device.h"

#include <stdio.h>

/* Values below which starting a GPU takes longer than the host's encoding. */
static const int64_t FEW_VALUES = 300 * 1000 * 1000;

static int64_t values_that_change(const apr_conversion *c)
{
    int64_t n = 0;
    for (size_t i = 0; i < c->layout.n_tensors; i++)
        if (!c->items[i].is_scales && c->items[i].to != c->items[i].from->dtype) n += apr_tensor_elems(c->items[i].from);
    return n;
}

static apr_status open_device(apr_encoder *encoder, int ordinal, apr_error *err)
{
    /* the kernels need no stack, and a small one makes a small context */
    const apr_cuda_options options = {.stack_bytes = 256};
    apr_cuda_facts facts;

    APR_TRY(apr_cuda_load(&encoder->cuda, err));
    APR_TRY(encoder->cuda->facts(ordinal, &facts, err));
    snprintf(encoder->name, sizeof encoder->name, "%s", facts.name);
    return encoder->cuda->open(&encoder->device, ordinal, &options, err);
}

apr_status apr_encoder_open(apr_encoder *encoder, const apr_encoder_options *options, apr_conversion *conversion, apr_error *err)
{
    apr_error own = {0};

    *encoder = (apr_encoder){.may_fall_back = options->device == APR_DEVICE_AUTO};
    if (options->device == APR_DEVICE_HOST) return APR_OK;
    if (encoder->may_fall_back && values_that_change(conversion) < FEW_VALUES) return APR_OK;
    const apr_status status = open_device(encoder, (int)options->ordinal, &own);
    if (status != APR_OK) {
        encoder->cuda = NULL;
        if (!encoder->may_fall_back) return apr_fail(err, status, "%s", own.text);
        if (*encoder->name != '\0') fprintf(stderr, "WARNING: encoding on the host: %s\n", own.text); /* a GPU there is */
        *encoder->name = '\0';
        return APR_OK;
    }
    conversion->options.codecs = encoder->cuda->codecs;
    conversion->options.device = encoder->device;
    return APR_OK;
}

void apr_encoder_close(apr_encoder *encoder, apr_conversion *conversion)
{
    if (encoder->cuda != NULL) encoder->cuda->close(encoder->device);
    encoder->cuda = NULL;
    encoder->device = NULL;
    conversion->options.codecs = NULL;
    conversion->options.device = NULL;
}
