/* device.c - chooses between host and GPU, and falls back to the host. */
#include "tools/engine/device/device.h"

#include "formats/base/machine.h"
#include "kernels/cuda_loader.h"
#include "runtime/plan/capability.h"
#include "tools/engine/device/probe.h"

#include <stdio.h>
#include <string.h>

static void warn(void *user, const char *sentence)
{
    const apr_device_warnings *const warnings = user;
    warnings->show(warnings->user, sentence);
}

/* --fp8 on: true if the table of capabilities allows FP8 and the probe passed. */
static bool probe_fp8(void *user, const apr_cuda_facts *facts)
{
    apr_capability capability;
    apr_probe_result probed = {0};

    if (apr_capability_of(&capability, facts->major, facts->minor, "", NULL) != APR_OK) return false;
    if (apr_capability_wants_probe(&capability, APR_FP8_ON)) apr_probe_run(facts, APR_CUDA_PROBE_FP8, false, &probed, NULL);
    if (apr_capability_uses_fp8(&capability, APR_FP8_ON, probed.verdict)) return true;
    char text[600];
    snprintf(text, sizeof text, "FP8 products are not used on %s: %s", facts->name,
             !capability.fp8_units      ? "it has no FP8 units"
             : probed.detail[0] != '\0' ? probed.detail
                                        : "the probe could not be started");
    warn(user, text);
    return false;
}

/* Every GPU that is named must exist. */
static apr_status find_gpus(const apr_session_options *session, const apr_cuda_api **cuda, apr_error *err)
{
    apr_cuda_facts facts;
    APR_TRY(apr_cuda_load(cuda, err));
    APR_TRY((*cuda)->facts(session->ordinal, &facts, err));
    for (int i = 0; i < session->n_devices; i++) APR_TRY((*cuda)->facts(session->ordinals[i], &facts, err));
    return APR_OK;
}

/* "all": every GPU. If there is none, asks for the first one, so that opening it reports what is missing. */
static apr_status parse_gpus(const apr_device_options *options, apr_session_options *session, apr_error *err)
{
    const apr_cuda_api *cuda;
    int n = 1;

    if (options->gpus == NULL || strcmp(options->gpus, "all") != 0)
        return apr_gpus_parse(options->gpus, &session->n_devices, session->ordinals, err);
    if (apr_cuda_load(&cuda, NULL) != APR_OK || cuda->count(&n, NULL) != APR_OK || n < 1) n = 1;
    session->n_devices = n < APR_MAX_DEVICES ? n : APR_MAX_DEVICES;
    for (int i = 0; i < session->n_devices; i++) session->ordinals[i] = i;
    return APR_OK;
}

/* Sets which part runs where. Without --memory the offloaded part may take what the kernel calls available. */
static apr_status choose_places(const apr_device_options *options, apr_session_options *session, apr_error *err)
{
    const bool on_host = options->device == APR_DEVICE_HOST || options->device == APR_DEVICE_REF;

    APR_TRY(apr_offload_parse(options->offload, &session->offload, err));
    APR_TRY(parse_gpus(options, session, err));
    if (on_host && (options->offload != NULL || options->gpus != NULL))
        return apr_fail(err, APR_E_USAGE, "%s needs a GPU: add --device cuda or --device auto",
                        options->offload != NULL ? "--offload" : "--gpus");
    session->ordinal = session->n_devices > 0 ? session->ordinals[0] : (int)options->ordinal;
    if (options->offload != NULL && session->budget_bytes == 0) session->budget_bytes = apr_machine_available();
    return APR_OK;
}

apr_status apr_device_choose(const apr_device_options *options, const apr_device_warnings *warnings, apr_session_options *session,
                             apr_error *err)
{
    apr_error own = {0};
    const apr_cuda_api *cuda;

    if (options->exact && (!options->direct || options->fp8 == APR_FP8_ON))
        return apr_fail(err, APR_E_USAGE, "--exact does not round the inputs of products, but %s does: leave one of them out",
                        !options->direct ? "--no-direct" : "--fp8 on");
    session->on_warning = warn;
    session->user = (void *)warnings;
    session->exact = options->exact;
    APR_TRY(choose_places(options, session, err));
    if (options->device == APR_DEVICE_REF) session->backend = &apr_ref_backend;
    if (options->device == APR_DEVICE_HOST || options->device == APR_DEVICE_REF) return APR_OK;
    const apr_status status = find_gpus(session, &cuda, &own);
    if (status != APR_OK && options->device == APR_DEVICE_AUTO) {
        char text[sizeof own.text + 64];
        snprintf(text, sizeof text, "running on the host: %s", own.text);
        warn(session->user, text);
        return APR_OK;
    }
    if (status != APR_OK) return apr_fail(err, status, "%s", own.text);
    session->cuda = cuda;
    session->headroom_bytes = options->headroom;
    session->available = apr_machine_available;
    session->force = options->force;
    if (options->fp8 == APR_FP8_ON) session->may_use_fp8 = probe_fp8;
    session->no_direct = !options->direct;
    session->no_replay = !options->replay;
    session->no_fusion = !options->fuse;
    session->fall_back = options->device == APR_DEVICE_AUTO;
    return APR_OK;
}
