/* doctor.c - the host's memory, the CUDA library, the driver, each device with its capabilities, probes and bandwidths. */
#include "tools/verbs/verbs.h"

#include "kernels/cuda_loader.h"
#include "kernels/host/codecs/levels.h"
#include "runtime/plan/gpus.h"
#include "tools/engine/device/host_memory.h"
#include "tools/engine/device/probe.h"
#include "tools/report/text.h"

#include <string.h>

typedef struct doctor_options {
    int probe, drill; /* index, or -1 */
    int64_t ordinal;
    int fp8; /* apr_fp8_choice */
    int device;
    bool again, no_measure;
} doctor_options;

enum { DEVICE_AUTO, DEVICE_CUDA, DEVICE_HOST };

static const apr_option doctor_table[] = {
    {"device", 0, APR_OPTION_CHOICE, "auto|cuda|host", "auto",
     "what to examine; cuda: exit code 7 if no GPU can be used; host: do not look for GPUs", APR_TO(doctor_options, device)},
    {"gpu", 0, APR_OPTION_INT, "N", "-1", "only the GPU with this CUDA ordinal; -1: all", APR_TO(doctor_options, ordinal), .min = -1,
     .max = 1024},
    {"fp8", 0, APR_OPTION_CHOICE, "auto|on|off", "auto", "whether to examine matrix products in FP8; auto: where no fault of them is known",
     APR_TO(doctor_options, fp8)},
    {"again", 0, APR_OPTION_FLAG, NULL, NULL, "run the tests of the GPU again, even if their results are cached",
     APR_TO(doctor_options, again)},
    {"quick", 0, APR_OPTION_FLAG, NULL, NULL, "do not measure bandwidth", APR_TO(doctor_options, no_measure)},
    {"probe", 0, APR_OPTION_CHOICE, "fp16|fp8", NULL, "run one test of the GPU in this process; exit code 0: it passed",
     APR_TO(doctor_options, probe), .group = "Used by the child processes of probes"},
    {"drill", 0, APR_OPTION_CHOICE, "out-of-bounds|bad-gemm|hang", NULL, "cause this fault, to see how it is reported",
     APR_TO(doctor_options, drill)},
    {0},
};

static const char *const doctor_examples[] = {"aprrun doctor", "aprrun doctor --again --json", NULL};

static const apr_cuda_options small_context = {.stack_bytes = APR_DEFAULT_STACK_BYTES};

/* "13.0" */
static const char *version_text(int version, char *text, size_t n)
{
    snprintf(text, n, "%d.%d", version / 1000, version % 1000 / 10);
    return text;
}

static apr_status run_one_probe(const apr_cuda_api *cuda, int ordinal, apr_cuda_probe which, apr_error *err)
{
    apr_cuda_device *device;
    APR_TRY(cuda->open(&device, ordinal, &small_context, err));
    const apr_status status = cuda->probe(device, which, err);
    cuda->close(device);
    return status;
}

static apr_status run_one_drill(int ordinal, apr_cuda_drill which, apr_error *err)
{
    static const uint64_t workspace_bytes = (uint64_t)32 << 20;
    const apr_cuda_api *cuda;
    apr_cuda_drill_fn drill;
    apr_cuda_device *device;
    void *workspace;
    int version;

    APR_TRY(apr_cuda_load_drills(&cuda, &drill, err));
    APR_TRY(cuda->open(&device, ordinal, &small_context, err));
    apr_status status = cuda->alloc(device, workspace_bytes, "workspace", &workspace, err);
    if (status == APR_OK && which == APR_CUDA_DRILL_BAD_GEMM) status = cuda->start_blas(device, workspace, workspace_bytes, &version, err);
    if (status == APR_OK) status = drill(device, which, err);
    cuda->close(device);
    return status;
}

/* What is known of one device, gathered before anything is printed. */
typedef struct device_facts {
    apr_cuda_facts facts;
    apr_capability capability;
    apr_probe_result probed[APR_CUDA_PROBE_COUNT];
    double read, upload; /* bytes/s; 0: not measured */
    char problem[1024];
} device_facts;

static apr_status examine(const apr_cuda_api *cuda, int ordinal, const doctor_options *o, device_facts *f, apr_error *err)
{
    apr_error own = {0};
    apr_cuda_device *device;

    *f = (device_facts){0};
    APR_TRY(cuda->facts(ordinal, &f->facts, err));
    if (apr_capability_of(&f->capability, f->facts.major, f->facts.minor, cuda->architectures, &own) != APR_OK) {
        snprintf(f->problem, sizeof f->problem, "%s", own.text);
        return APR_OK;
    }
    APR_TRY(apr_probe_run(&f->facts, APR_CUDA_PROBE_FP16, o->again, &f->probed[APR_CUDA_PROBE_FP16], err));
    if (apr_capability_wants_probe(&f->capability, (apr_fp8_choice)o->fp8))
        APR_TRY(apr_probe_run(&f->facts, APR_CUDA_PROBE_FP8, o->again, &f->probed[APR_CUDA_PROBE_FP8], err));
    if (o->no_measure) return APR_OK;
    apr_status status = cuda->open(&device, ordinal, &small_context, &own);
    if (status == APR_OK) {
        status = cuda->bandwidth(device, &f->read, &f->upload, &own);
        cuda->close(device);
    }
    if (status != APR_OK) snprintf(f->problem, sizeof f->problem, "%s", own.text);
    return APR_OK;
}

static const char *verdict_name(const apr_probe_result *p)
{
    static const char *const names[] = {[APR_PROBE_UNKNOWN] = "not tried", [APR_PROBE_RIGHT] = "right", [APR_PROBE_WRONG] = "wrong"};
    return names[p->verdict];
}

static void device_json(apr_json_text *json, const device_facts *f, const doctor_options *o)
{
    apr_json_open(json, NULL, '{');
    apr_json_cstring(json, "name", f->facts.name);
    apr_json_int(json, "ordinal", f->facts.ordinal);
    apr_json_int(json, "major", f->facts.major);
    apr_json_int(json, "minor", f->facts.minor);
    apr_json_int(json, "sms", f->facts.n_sms);
    apr_json_uint(json, "memory_bytes", f->facts.total_bytes);
    if (f->facts.is_integrated) apr_json_bool(json, "shared_memory", true);
    if (f->facts.used_bytes != UINT64_MAX) apr_json_uint(json, "memory_used_bytes", f->facts.used_bytes);
    apr_json_cstring(json, "driver", f->facts.driver);
    if (f->problem[0] != '\0') apr_json_cstring(json, "error", f->problem);
    if (f->capability.family != NULL) {
        apr_json_cstring(json, "family", f->capability.family);
        apr_json_cstring(json, "code", f->capability.code == APR_CODE_NATIVE ? "native" : "ptx");
        apr_json_bool(json, "fp8_units", f->capability.fp8_units);
        apr_json_bool(json, "fp4_units", f->capability.fp4_units);
    }
    apr_json_bool(json, "fp8_used", apr_capability_uses_fp8(&f->capability, (apr_fp8_choice)o->fp8, f->probed[APR_CUDA_PROBE_FP8].verdict));
    apr_json_open(json, "probes", '{');
    for (int i = 0; i < APR_CUDA_PROBE_COUNT; i++) apr_json_cstring(json, apr_probe_names[i], verdict_name(&f->probed[i]));
    apr_json_close(json, '}');
    if (f->read > 0) apr_json_real(json, "read_bytes_per_second", f->read);
    if (f->upload > 0) apr_json_real(json, "upload_bytes_per_second", f->upload);
    apr_json_close(json, '}');
}

static void line(const char *label, const char *text) { printf("  %-14s %s\n", label, text); }

static void device_text(const device_facts *f, const doctor_options *o)
{
    static const char *const labels[APR_CUDA_PROBE_COUNT] = {"FP16 probe", "FP8 probe"};
    char text[600], size[2][APR_SMALL_TEXT];

    printf("GPU %d: %s\n", f->facts.ordinal, f->facts.name);
    snprintf(text, sizeof text, "%d.%d, %s%s", f->facts.major, f->facts.minor,
             f->capability.family != NULL ? f->capability.family : "unknown",
             f->capability.code == APR_CODE_PTX ? ", from PTX: the driver compiles it at the first start" : ", native code");
    line("capability", text);
    snprintf(text, sizeof text, "%s%s%s%s, %d SMs", apr_size_text(size[0], f->facts.total_bytes),
             f->facts.is_integrated ? " shared with the host" : "", f->facts.used_bytes != UINT64_MAX ? ", in use " : "",
             f->facts.used_bytes != UINT64_MAX ? apr_size_text(size[1], f->facts.used_bytes) : "", f->facts.n_sms);
    line("memory", text);
    if (f->read > 0) {
        snprintf(text, sizeof text, "read %.0f GB/s, from pinned host memory %.1f GB/s", f->read / 1e9, f->upload / 1e9);
        line("bandwidth", text);
    }
    for (int i = 0; i < APR_CUDA_PROBE_COUNT; i++) {
        const apr_probe_result *const p = &f->probed[i];
        snprintf(text, sizeof text, "%s%s%s%s", verdict_name(p), p->detail[0] != '\0' ? ": " : "", p->detail,
                 p->from_cache ? " (cached)" : "");
        line(labels[i], text);
    }
    snprintf(text, sizeof text, "units: %s; FP4 units: %s; %s", f->capability.fp8_units ? "yes" : "no",
             f->capability.fp4_units ? "yes" : "no",
             apr_capability_uses_fp8(&f->capability, (apr_fp8_choice)o->fp8, f->probed[APR_CUDA_PROBE_FP8].verdict)
                 ? "may be used, with --fp8 on"
             : f->capability.fp8_fault != NULL && o->fp8 == APR_FP8_AUTO ? f->capability.fp8_fault
                                                                         : "weights of FP8 are decoded");
    line("FP8", text);
    if (f->problem[0] != '\0') line("problem", f->problem);
}

/* The host's memory read rate is the upper bound of decoding there. */
static void show_host(const apr_call *call)
{
    const doctor_options *const o = call->options;
    const char *const level = apr_host_table()->name;
    const double read = o->no_measure ? 0.0 : apr_host_read_rate(0);
    apr_json_text *const json = &call->answer->body;

    if (!call->answer->json) {
        printf("host             %s instructions", level);
        if (read > 0.0) printf(", memory read %.0f GB/s", read / 1e9);
        putchar('\n');
        return;
    }
    apr_json_open(json, "host", '{');
    apr_json_cstring(json, "level", level);
    if (read > 0.0) apr_json_real(json, "read_bytes_per_second", read);
    apr_json_close(json, '}');
}

static apr_status examine_all(const apr_call *call, const apr_cuda_api *cuda, apr_error *err)
{
    const doctor_options *const o = call->options;
    apr_json_text *const json = &call->answer->body;
    char versions[2][16], text[200];
    device_facts f;
    int n;

    APR_TRY(cuda->count(&n, err));
    const int first = o->ordinal >= 0 ? (int)o->ordinal : 0, end = o->ordinal >= 0 ? (int)o->ordinal + 1 : n;
    if (call->answer->json) {
        apr_json_cstring(json, "architectures", cuda->architectures);
        apr_json_open(json, "devices", '[');
    }
    apr_status status = APR_OK;
    for (int i = first; i < end && status == APR_OK; i++) {
        status = examine(cuda, i, o, &f, err);
        if (status != APR_OK) break;
        if (i == first && !call->answer->json) {
            snprintf(text, sizeof text, "%s, supports CUDA %s; linked with CUDA %s", f.facts.driver[0] != '\0' ? f.facts.driver : "unknown",
                     version_text(f.facts.driver_version, versions[0], sizeof versions[0]),
                     version_text(f.facts.runtime_version, versions[1], sizeof versions[1]));
            const char *const newest = strrchr(cuda->architectures, ' ');
            printf("driver           %s\nnative code for  %s; as PTX: %s\n", text, cuda->architectures,
                   newest != NULL ? newest + 1 : cuda->architectures);
        }
        if (call->answer->json) device_json(json, &f, o);
        else device_text(&f, o);
    }
    if (call->answer->json) apr_json_close(json, ']');
    return status;
}

/* Without a GPU the answer has the host's figures, and the reason why there is no GPU. */
static apr_status say_no_gpu(const apr_call *call, apr_status status, const apr_error *why, apr_error *err)
{
    const doctor_options *const o = call->options;

    if (o->device == DEVICE_CUDA || status != APR_E_DEVICE) return apr_fail(err, status, "%s", why->text);
    if (call->answer->json) apr_json_cstring(&call->answer->body, "no_gpu", why->text);
    else printf("GPU              none: %s\n", apr_printable(why->text));
    return APR_OK;
}

static apr_status run_doctor(const apr_call *call, apr_error *err)
{
    const doctor_options *const o = call->options;
    const int ordinal = o->ordinal >= 0 ? (int)o->ordinal : 0;
    const apr_cuda_api *cuda;
    apr_error why = {0};
    int n;

    if (o->drill >= 0) return run_one_drill(ordinal, (apr_cuda_drill)o->drill, err);
    if (o->probe < 0) show_host(call);
    if (o->device == DEVICE_HOST) return APR_OK;
    apr_status status = apr_cuda_load(&cuda, &why);
    if (status == APR_OK && o->probe < 0) status = cuda->count(&n, &why);
    if (status != APR_OK) return o->probe >= 0 ? apr_fail(err, status, "%s", why.text) : say_no_gpu(call, status, &why, err);
    if (o->probe >= 0) return run_one_probe(cuda, ordinal, (apr_cuda_probe)o->probe, err);
    return examine_all(call, cuda, err);
}

const apr_command apr_doctor_command = {.verb = "doctor",
                                        .operands = "",
                                        .min_operands = 0,
                                        .max_operands = 0,
                                        .summary = "GPUs and driver: what they can do, tested on this machine",
                                        .options = doctor_table,
                                        .options_bytes = sizeof(doctor_options),
                                        .examples = doctor_examples,
                                        .run = run_doctor};
