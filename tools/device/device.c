/* device.c - chooses between host and GPU, and says so loudly when a GPU is given up. */
#include "tools/device/device.h"

#include "kernels/cuda_loader.h"
#include "runtime/program/capability.h"
#include "tools/device/probe.h"

static void warn(void *user, const char *sentence)
{
    (void)user;
    fprintf(stderr, "aprrun: WARNING: %s\n", sentence);
}

/* --fp8 on: when the table has nothing against it and the probe was right. */
static bool probe_fp8(void *user, const apr_cuda_facts *facts)
{
    apr_capability capability;
    apr_probed probed = {0};

    (void)user;
    if (apr_capability_of(&capability, facts->major, facts->minor, "", NULL) != APR_OK) return false;
    if (apr_capability_wants_probe(&capability, APR_FP8_ON)) apr_probe_ask(facts, APR_CUDA_PROBE_FP8, false, &probed, NULL);
    if (apr_capability_uses_fp8(&capability, APR_FP8_ON, probed.verdict)) return true;
    char text[600];
    snprintf(text, sizeof text, "no products in FP8 on %s: %s", facts->name,
             !capability.fp8_units     ? "it has no FP8 units"
             : probed.story[0] != '\0' ? probed.story
                                       : "the probe could not be started");
    warn(NULL, text);
    return false;
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

    if (options->exact && (!options->direct || options->fp8 == APR_FP8_ON))
        return apr_fail(err, APR_E_USAGE, "--exact rounds no input of a product, and %s does: leave one of them out",
                        !options->direct ? "--no-direct" : "--fp8 on");
    session->on_warning = warn;
    if (options->device == APR_DEVICE_REF) session->backend = &apr_ref_backend;
    if (options->device == APR_DEVICE_HOST || options->device == APR_DEVICE_REF) return APR_OK;
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
    if (options->fp8 == APR_FP8_ON) session->may_use_fp8 = probe_fp8;
    session->no_direct = !options->direct;
    session->exact = options->exact;
    session->fall_back = options->device == APR_DEVICE_AUTO;
    return APR_OK;
}
