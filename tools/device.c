/* device.c - chooses between host and GPU, and says so loudly when a GPU is given up. */
#include "tools/device.h"

#include "kernels/cuda_loader.h"

static void warn(void *user, const char *sentence)
{
    (void)user;
    fprintf(stderr, "aprrun: WARNING: %s\n", sentence);
}

static apr_status find_gpu(const apr_device_options *options, const apr_cuda_api **cuda, apr_error *err)
{
    apr_cuda_facts facts;
    APR_TRY(apr_cuda_load(cuda, err));
    return (*cuda)->facts((int)options->ordinal, &facts, err);
}

apr_status apr_device_choose(const apr_device_options *options, apr_session_options *session, apr_error *err)
{
    apr_error own = {0};
    const apr_cuda_api *cuda;

    session->on_warning = warn;
    if (options->device == APR_DEVICE_HOST) return APR_OK;
    const apr_status status = find_gpu(options, &cuda, &own);
    if (status != APR_OK && options->device == APR_DEVICE_AUTO) {
        char text[sizeof own.text + 64];
        snprintf(text, sizeof text, "running on the host: %s", own.text);
        warn(NULL, text);
        return APR_OK;
    }
    if (status != APR_OK) return apr_fail(err, status, "%s", own.text);
    session->cuda = cuda;
    session->ordinal = (int)options->ordinal;
    session->headroom_bytes = options->headroom;
    session->force = options->force;
    session->no_direct = !options->direct;
    session->fall_back = options->device == APR_DEVICE_AUTO;
    return APR_OK;
}
