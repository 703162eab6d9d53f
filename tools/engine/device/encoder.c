/* encoder.c - chooses and opens the GPUs for a conversion. */
#include "tools/engine/device/encoder.h"

#include "kernels/cuda_loader.h"
#include "tools/engine/device/device.h"

#include <stdio.h>
#include <string.h>

/* With fewer values than this, starting a GPU takes longer than encoding on the host. */
static const int64_t FEW_VALUES = 300 * 1000 * 1000;

static int64_t values_that_change(const apr_conversion *c)
{
    int64_t n = 0;
    for (size_t i = 0; i < c->layout.n_tensors; i++)
        if (!c->items[i].is_scales && c->items[i].packed == NULL && c->items[i].to != c->items[i].from->dtype)
            n += apr_tensor_elems(c->items[i].from);
    return n;
}

/* Appends a name to a list, as "2 x NAME" if it occurs several times in a row. */
static void add_name(char *list, size_t n_bytes, const char *name, int times)
{
    const size_t at = strlen(list);
    if (times > 1) snprintf(list + at, n_bytes - at, "%s%d x %s", at > 0 ? ", " : "", times, name);
    else snprintf(list + at, n_bytes - at, "%s%s", at > 0 ? ", " : "", name);
}

static apr_status name_devices(apr_encoder *encoder, const int *ordinals, int n, apr_error *err)
{
    apr_cuda_facts facts, before = {0};
    int times = 0;

    for (int i = 0; i < n; i++, times++) {
        APR_TRY(encoder->cuda->facts(ordinals[i], &facts, err));
        if (times > 0 && strcmp(facts.name, before.name) != 0) {
            add_name(encoder->name, sizeof encoder->name, before.name, times);
            times = 0;
        }
        before = facts;
    }
    add_name(encoder->name, sizeof encoder->name, before.name, times);
    return APR_OK;
}

/* n 0: opens all GPUs and fills ordinals. */
static apr_status open_devices(apr_encoder *encoder, int *ordinals, int n, apr_error *err)
{
    /* the kernels need no stack, and a small stack makes the CUDA context small */
    const apr_cuda_options options = {.stack_bytes = 256};
    apr_status statuses[APR_MAX_DEVICES];
    apr_error errors[APR_MAX_DEVICES] = {0};

    APR_TRY(apr_cuda_load(&encoder->cuda, err));
    if (n == 0) {
        APR_TRY(encoder->cuda->count(&n, err));
        if (n > APR_MAX_DEVICES) n = APR_MAX_DEVICES;
        for (int i = 0; i < n; i++) ordinals[i] = i;
    }
    APR_TRY(name_devices(encoder, ordinals, n, err));
    encoder->n_devices = n;
    memcpy(encoder->ordinals, ordinals, (size_t)n * sizeof *ordinals);
#pragma omp parallel for num_threads(n) /* making a context takes as long as encoding a small model */
    for (int i = 0; i < n; i++) statuses[i] = encoder->cuda->open(&encoder->devices[i], ordinals[i], &options, &errors[i]);
    for (int i = 0; i < n; i++)
        if (statuses[i] != APR_OK) return apr_fail(err, statuses[i], "%s", errors[i].text);
    return APR_OK;
}

static void close_devices(apr_encoder *encoder)
{
    for (int i = 0; i < encoder->n_devices; i++) encoder->cuda->close(encoder->devices[i]);
    encoder->n_devices = 0;
    encoder->cuda = NULL;
}

apr_status apr_encoder_open(apr_encoder *encoder, const apr_encoder_options *options, const apr_conversion *conversion,
                            apr_pipe_options *pipe, apr_error *err)
{
    apr_error own = {0};
    int n, ordinals[APR_MAX_DEVICES];

    *encoder = (apr_encoder){.may_fall_back = options->device == APR_DEVICE_AUTO};
    if (options->device == APR_DEVICE_HOST) return APR_OK;
    APR_TRY(apr_gpu_list_parse(options->gpus, &n, ordinals, err));
    if (encoder->may_fall_back && values_that_change(conversion) < FEW_VALUES) return APR_OK;
    const apr_status status = open_devices(encoder, ordinals, n, &own);
    if (status != APR_OK) {
        close_devices(encoder);
        if (!encoder->may_fall_back) return apr_fail(err, status, "%s", own.text);
        if (*encoder->name != '\0') snprintf(encoder->problem, sizeof encoder->problem, "%s", own.text); /* silent if there is no GPU */
        *encoder->name = '\0';
        return APR_OK;
    }
    pipe->codecs = encoder->cuda->codecs;
    pipe->devices = encoder->devices;
    pipe->n_devices = encoder->n_devices;
    return APR_OK;
}

void apr_encoder_close(apr_encoder *encoder, apr_pipe_options *pipe)
{
    if (encoder->cuda != NULL) close_devices(encoder);
    pipe->codecs = NULL;
    pipe->devices = NULL;
    pipe->n_devices = 0;
}
