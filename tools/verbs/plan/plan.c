/* plan.c - aprplan: prints every byte that a run would allocate, whether it fits, and what would fit if it does not. Needs no GPU. */
#include "convert/naming.h"
#include "formats/open.h"
#include "formats/packed/hf_quantization.h"
#include "formats/tensor/packed_weights.h"
#include "runtime/plan/plans.h"
#include "runtime/program/admission.h"
#include "tools/cli/model_paths.h"
#include "tools/engine/device/places.h"
#include "tools/engine/plan/sizes.h"
#include "tools/report/table.h"
#include "tools/report/terminal.h"
#include "tools/report/text.h"
#include "tools/verbs/plan/plan_lines.h"
#include "tools/verbs/verbs.h"

#include <stdlib.h>
#include <string.h>

typedef struct plan_options {
    uint64_t vram, headroom, memory;
    const char *gpu, *dtype, *gpus, *offload;
    int64_t ctx, batch, sequences, stack;
    int kv;
    bool list_gpus, host, direct, lines;
} plan_options;

static const apr_option plan_table[] = {
    {"vram", 0, APR_OPTION_SIZE, "SIZE", NULL, "memory of the device, as in 32G", APR_TO(plan_options, vram), .min = 1 << 20,
     .group = "Device"},
    {"gpu", 'g', APR_OPTION_STRING, "NAME", NULL, "a GPU by name, as in rtx5090 or h200 (--list-gpus); several, as in rtx4090,rtx3060",
     APR_TO(plan_options, gpu)},
    {"host", 0, APR_OPTION_FLAG, NULL, NULL, "plan a run on the host", APR_TO(plan_options, host)},
    {"headroom", 0, APR_OPTION_SIZE, "SIZE", "1G", "memory to leave free on the device", APR_TO(plan_options, headroom),
     .min = APR_MIN_SIZE, .or_none = true},
    {"stack", 0, APR_OPTION_INT, "BYTES", "256", "stack limit of the CUDA context", APR_TO(plan_options, stack), .min = 256,
     .max = 1 << 20},
    {"direct", 0, APR_OPTION_FLAG, NULL, "yes", "plan for FP16 copies of packed weights, not for kernels that read them directly",
     APR_TO(plan_options, direct)},
    {"gpus", 0, APR_OPTION_STRING, "N", NULL, "split the layers over N such GPUs, with a plan for each; 0,0: two parts on one GPU",
     APR_TO(plan_options, gpus)},
    {"offload", 0, APR_OPTION_STRING, APR_OFFLOAD_NAMES, NULL,
     "compute on the host: the experts (of all layers, or of N), or the first N layers", APR_TO(plan_options, offload)},
    {"memory", 0, APR_OPTION_SIZE, "SIZE", NULL, "host memory for what is offloaded; without it, any amount fits",
     APR_TO(plan_options, memory), .min = APR_MIN_SIZE},
    {"list-gpus", 0, APR_OPTION_FLAG, NULL, NULL, "list the GPUs known by name", APR_TO(plan_options, list_gpus)},
    {"ctx", 'c', APR_OPTION_INT, "N", "0", "tokens of context per sequence; 0: the model's own, at most 4096", APR_TO(plan_options, ctx),
     .min = 0, .max = 1e9, .group = "Run"},
    {"batch", 'b', APR_OPTION_INT, "N", "0", "prompt tokens evaluated at a time; 0: 512, or 2048 on a GPU with enough memory",
     APR_TO(plan_options, batch), .min = 0, .max = 1e6},
    {"sequences", 's', APR_OPTION_INT, "N", "1", "sequences at the same time", APR_TO(plan_options, sequences), .min = 1, .max = 1e6},
    {"kv", 0, APR_OPTION_CHOICE, APR_KV_NAMES, "f16", "type of the KV cache", APR_TO(plan_options, kv)},
    {"lines", 0, APR_OPTION_FLAG, NULL, NULL, "every line of the plan with its reason; on a terminal the default is a summary",
     APR_TO(plan_options, lines)},
    {"dtype", 't', APR_OPTION_STRING, "TYPE", NULL, "plan as if quantized to TYPE (aprquant --list); also for a config.json alone",
     APR_TO(plan_options, dtype)},
    {0},
};

static bool has_gpu(const apr_call *call) { return !((const plan_options *)call->options)->host; }

static const apr_need needs[] = {
    {"stack", "a GPU", has_gpu},
    {"direct", "a GPU", has_gpu},
    {"gpu", "a GPU (--host plans without one)", has_gpu},
    {0},
};

static const char *const examples[] = {
    "aprplan --gpu rtx5090 --ctx 32768 model.apr",
    "aprplan --vram 32G --dtype mxfp4 --kv q8_0 config.json     # before the download",
    "aprplan --gpu h200 --json --ctx 131072 --sequences 4 Llama-3.1-70B",
    "aprplan --vram 12G --offload experts --dtype q4_k_m Qwen3-30B-A3B",
    "aprplan --gpu h100 --gpus 2 --dtype f16 Llama-3.1-70B",
    "aprplan --gpu rtx4090,rtx3060 --dtype q4_k_m Qwen2.5-32B",
    NULL,
};

/* What was asked, and what the answer needs. */
typedef struct question {
    const plan_options *asked;
    const apr_typed *typed;
    const apr_gpu *gpu;
    bool is_whole;           /* the file has all tensors, not only its header */
    bool is_config_alone;    /* the operand is a folder that has no weights, only a config.json */
    bool is_guess;           /* --vram without --gpu: `gpu` is a known one of about that size */
    apr_model source, model; /* model: its canonical view, or a skeleton when there is only a config.json */
    apr_model skeleton;      /* for --dtype where the weights are in a layout that is not read; else empty */
    apr_program program;
    apr_offload offload;
    int n_devices, ordinals[APR_MAX_DEVICES];
    apr_gpu gpus[APR_MAX_DEVICES]; /* [n_named] as --gpu names them */
    char labels[APR_MAX_DEVICES][APR_GPU_LABEL];
    int n_named;
    bool no_largest; /* plans need not find the largest context */
    /* [program.n_weights] sizes: what each weight takes; bytes, dtypes, notes: the same as the planner's arrays. host_bytes: on the host,
     * when a part is offloaded. made: of weights that are composed of others. filled: of the padding of experts' rows. */
    apr_weight_size *sizes;
    uint64_t *bytes, *host_bytes, *made, *filled;
    apr_dtype *dtypes;
    apr_weight_note *notes;
} question;

static apr_status list_gpus(const apr_call *call, apr_error *err)
{
    static const apr_column columns[] = {{"name", false},
                                         {"GPU", false},
                                         {"memory", true},
                                         {"SMs", true, .drops = true},
                                         {"capability", true},
                                         {"GB/s", true, .drops = true},
                                         {"context", true, .drops = true}};
    apr_json_text *const json = &call->answer->body;
    apr_table table;
    char size[APR_SMALL_TEXT];

    if (call->answer->json) {
        apr_json_open(json, "gpus", '[');
        for (size_t i = 0; i < apr_n_gpus; i++) {
            const apr_gpu *const g = &apr_gpus[i];
            apr_json_open(json, NULL, '{');
            apr_json_string(json, "name", g->name, strlen(g->name));
            apr_json_uint(json, "vram_bytes", apr_gpu_vram_bytes(g));
            apr_json_int(json, "sms", g->n_sms);
            apr_json_int(json, "major", g->major);
            apr_json_int(json, "minor", g->minor);
            apr_json_uint(json, "context_bytes", apr_gpu_context_bytes(g, APR_DEFAULT_STACK_BYTES));
            apr_json_close(json, '}');
        }
        apr_json_close(json, ']');
        return APR_OK;
    }
    apr_table_start(&table, columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < apr_n_gpus; i++) {
        const apr_gpu *const g = &apr_gpus[i];
        apr_table_cell(&table, "%s", g->name);
        apr_table_cell(&table, "%s", g->label);
        apr_table_cell(&table, "%s", apr_size_text(size, apr_gpu_vram_bytes(g)));
        apr_table_cell(&table, "%d", g->n_sms);
        apr_table_cell(&table, "%d.%d", g->major, g->minor);
        apr_table_cell(&table, "%d", g->bandwidth_gbs);
        apr_table_cell(&table, "%s", apr_size_text(size, apr_gpu_context_bytes(g, APR_DEFAULT_STACK_BYTES)));
    }
    return apr_table_print(&table, stdout, 2, err);
}

/* Opens the model: its weights, or the shapes that its hyperparameters imply. */
static apr_status open_question(question *q, const char *path, apr_error *err)
{
    APR_TRY(apr_model_open_head(&q->source, path, &q->is_whole, err));
    const bool has_tensors = q->source.n_tensors > 0;
    if (has_tensors) APR_TRY(apr_canonical(&q->model, &q->source, err));
    /* tensors stay in parts where their blocks cannot be joined; only the canonical view says so */
    APR_TRY(apr_program_emit(&q->program, has_tensors ? &q->model.hparams : &q->source.hparams, err));
    if (!has_tensors) APR_TRY(apr_skeleton_model(&q->model, &q->program, &q->source, err));
    const char *layout;
    const bool is_packed = apr_find_packed(&q->source, &layout) != NULL;
    if (is_packed) APR_TRY(apr_skeleton_model(&q->skeleton, &q->program, &q->source, err));
    /* what a run would refuse is not planned; with --dtype the plan is for a model that is still to be made */
    if (has_tensors && (!is_packed || q->asked->dtype == NULL)) APR_TRY(apr_admission_to_run(&q->program, &q->model, err));
    q->bytes = calloc(q->program.n_weights + 1, sizeof *q->bytes);
    q->host_bytes = calloc(q->program.n_weights + 1, sizeof *q->host_bytes);
    q->made = calloc(q->program.n_weights + 1, sizeof *q->made);
    q->filled = calloc(q->program.n_weights + 1, sizeof *q->filled);
    q->sizes = calloc(q->program.n_weights + 1, sizeof *q->sizes);
    q->dtypes = calloc(q->program.n_weights + 1, sizeof *q->dtypes);
    q->notes = calloc(q->program.n_weights + 1, sizeof *q->notes);
    const bool has_bytes = q->bytes != NULL && q->host_bytes != NULL && q->made != NULL && q->filled != NULL;
    if (!has_bytes || q->sizes == NULL || q->dtypes == NULL || q->notes == NULL) return apr_no_memory(err, "the sizes of the weights");
    if (q->source.n_tensors > 0) apr_plan_composed_weights(&q->program, &q->model, q->made);
    return APR_OK;
}

static uint64_t distance_of(const apr_gpu *gpu, uint64_t vram)
{
    const uint64_t has = apr_gpu_vram_bytes(gpu);
    return has > vram ? has - vram : vram - has;
}

/* For --vram alone: of the GPUs whose memory is nearest to it (within vram / 64), the one with the largest CUDA context. */
static const apr_gpu *nearest_gpu(uint64_t vram)
{
    const apr_gpu *nearest = NULL;
    uint64_t least = UINT64_MAX;

    for (size_t i = 0; i < apr_n_gpus; i++)
        if (!apr_gpus[i].is_integrated && distance_of(&apr_gpus[i], vram) < least) least = distance_of(&apr_gpus[i], vram);
    for (size_t i = 0; i < apr_n_gpus; i++) {
        const apr_gpu *const gpu = &apr_gpus[i];
        const bool is_near = !gpu->is_integrated && distance_of(gpu, vram) <= least + vram / 64;
        if (is_near && (nearest == NULL || apr_gpu_context_bytes(gpu, 0) > apr_gpu_context_bytes(nearest, 0))) nearest = gpu;
    }
    return nearest;
}

/* A name that several GPUs have, as "a100": suggests the first of them. */
static apr_status name_one(const question *q, const char *name, apr_status status, apr_error *err)
{
    char text[256];
    const char *const first = status != APR_OK ? apr_gpu_several(name, text, sizeof text) : NULL;

    if (first == NULL || strcmp(name, q->asked->gpu) != 0) return status;
    return apr_try_change(status, q->typed, name, first, err);
}

/* "rtx4090,rtx3060": in the order in which the layers are split over them. */
static apr_status read_gpus(question *q, apr_error *err)
{
    const char *at = q->asked->gpu;
    char name[128];

    for (;;) {
        const size_t n = strcspn(at, ",");
        if (q->n_named == APR_MAX_DEVICES) return apr_fail(err, APR_E_USAGE, "--gpu names more than %d GPUs", (int)APR_MAX_DEVICES);
        snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), at);
        APR_TRY(name_one(q, name, apr_gpu_named(name, &q->gpus[q->n_named], q->labels[q->n_named], err), err));
        q->n_named++;
        if (at[n] == '\0') break;
        at += n + 1;
    }
    q->gpu = &q->gpus[0];
    if (q->n_named == 1) return APR_OK;
    if (q->asked->gpus != NULL)
        return apr_fail(err, APR_E_USAGE, "--gpu %s already says how many GPUs there are: leave --gpus out", q->asked->gpu);
    q->n_devices = q->n_named;
    for (int i = 0; i < q->n_devices; i++) q->ordinals[i] = i;
    return APR_OK;
}

static apr_status choose_device(question *q, apr_error *err)
{
    const plan_options *const o = q->asked;

    APR_TRY(apr_offload_parse(o->offload, &q->offload, err));
    APR_TRY(apr_gpus_parse(o->gpus, &q->n_devices, q->ordinals, err));
    if (o->host && (o->offload != NULL || o->gpus != NULL))
        return apr_fail(err, APR_E_USAGE, "--host plans without a GPU: leave out %s", o->offload != NULL ? "--offload" : "--gpus");
    if (o->host) return APR_OK;
    if (q->n_devices == 0) q->n_devices = 1;
    if (o->gpu != NULL) return read_gpus(q, err);
    if (o->vram == 0) {
        apr_fail(err, APR_E_USAGE, "name a device: --gpu NAME, --vram SIZE or --host");
        return apr_try_change(APR_E_USAGE, q->typed, NULL, "--host", err);
    }
    q->gpu = nearest_gpu(o->vram);
    q->is_guess = true;
    return APR_OK;
}

/* Sizes of all weights by the recipe: on the device and, if a part is offloaded, on the host. */
static apr_status size_weights(question *q, const char *dtype, bool offloads, apr_error *err)
{
    const apr_model *const sized = dtype != NULL && q->skeleton.tensors != NULL ? &q->skeleton : &q->model;

    if (offloads) APR_TRY(apr_weight_sizes(sized, &q->program, dtype, false, q->sizes, err));
    for (size_t i = 0; i < q->program.n_weights; i++) q->host_bytes[i] = q->sizes[i].bytes;
    APR_TRY(apr_weight_sizes(sized, &q->program, dtype, q->gpu != NULL, q->sizes, err));
    for (size_t i = 0; i < q->program.n_weights; i++) {
        q->bytes[i] = q->sizes[i].bytes;
        q->notes[i] = q->sizes[i].note;
        q->dtypes[i] = q->sizes[i].dtype;
    }
    apr_plan_padded_weights(&q->program, q->dtypes, q->filled);
    for (size_t i = 0; i < q->program.n_weights; i++)
        q->dtypes[i] = q->sizes[i].is_f16 ? APR_F16 : APR_BF16; /* the planner only asks whether the type must be decoded */
    return APR_OK;
}

/* Fills the sizes in q, and options that point at them. */
static apr_status set_options(question *q, const char *dtype, bool direct, bool offloads, apr_plans_options *o, apr_error *err)
{
    APR_TRY(size_weights(q, dtype, offloads, err));
    *o = (apr_plans_options){.each = apr_plan_defaults,
                             .n_devices = q->n_devices,
                             .offload = q->offload,
                             .host_weight_bytes = q->host_bytes,
                             .host_budget_bytes = q->asked->memory};
    o->each.n_ctx = q->asked->ctx;
    o->each.n_batch = q->asked->batch;
    o->each.n_sequences = q->asked->sequences;
    o->each.kv_dtype = apr_kv_dtypes[q->asked->kv];
    o->each.headroom_bytes = q->asked->headroom;
    o->each.stack_bytes = (uint64_t)q->asked->stack;
    o->each.gpu = q->gpu;
    o->each.budget_bytes = q->asked->vram;
    o->each.system_bytes = q->gpu != NULL && q->asked->vram == 0 ? apr_gpu_system_bytes(q->gpu) : 0;
    o->each.weight_bytes = q->bytes;
    o->each.no_largest = q->no_largest;
    o->each.copies = !direct && q->gpu != NULL;
    o->each.weight_dtypes = q->gpu != NULL ? q->dtypes : NULL;
    o->each.weight_notes = q->notes;
    o->each.padding_bytes = q->gpu != NULL && direct ? q->filled : NULL;
    o->each.made_bytes = dtype == NULL ? q->made : NULL; /* aprquant writes these weights as a run needs them */
    for (int i = 0; i < q->n_named; i++) o->gpus[i] = q->n_named > 1 ? &q->gpus[i] : NULL;
    for (int i = 1; i < q->n_devices; i++) o->shares_card[i] = q->ordinals[i] == q->ordinals[i - 1];
    return APR_OK;
}

static apr_status make_plans(question *q, const char *dtype, bool direct, apr_plans *plans, apr_error *err)
{
    apr_plans_options asked;
    APR_TRY(set_options(q, dtype, direct, apr_offload_is_some(&q->offload), &asked, err));
    return apr_plans_make(plans, &q->program, &asked, err);
}

/* "q4_k_m" as asked for; or "types as stored", for a config.json alone with what it says about them. */
static const char *types_text(const question *q, char *text, size_t n_bytes)
{
    const apr_quantization *const stated = q->source.n_tensors == 0 ? q->source.quantization : NULL;
    char scheme[96];

    if (q->asked->dtype != NULL) return q->asked->dtype;
    if (stated == NULL || stated->n_schemes == 0) return "types as stored";
    snprintf(text, n_bytes, "types as stored (%s: %s%s)", stated->method, apr_quant_text(&stated->schemes[0], scheme, sizeof scheme),
             stated->n_schemes > 1 ? ", and others" : "");
    return text;
}

/* "Qwen3_5ForConditionalGeneration": a model that also takes images or sound. */
static bool is_multimodal(const question *q)
{
    const char *const hf_class = q->source.hparams.hf_class;
    return hf_class != NULL && strstr(hf_class, "ForConditionalGeneration") != NULL;
}

/* "GPU 0", "host": the heading of one place's plan when there are several. */
static void print_heading(const question *q, const apr_plans *plans, int place)
{
    if (plans->partition.n_places == 1) return;
    if (plans->partition.on[place] == APR_ON_DEVICE)
        printf("%sGPU %d%s%s:\n", place > 0 ? "\n" : "", q->ordinals[place], q->n_named > 1 ? ", " : "",
               q->n_named > 1 ? q->gpus[place].label : "");
    else printf("\nhost (offloaded part):\n");
}

static apr_status plan_text(const question *q, const char *path, const apr_plans *plans, apr_error *err)
{
    const apr_plan *const plan = plans->plans;
    const bool is_short = apr_is_terminal(stdout) && !q->asked->lines;
    char types[256], cost[256];

    printf("%s%s: %s, %s, context %lld, batch %lld, %lld sequence%s, %s keys and values\n\n", apr_printable(path),
           q->is_config_alone ? " (the folder has no weights)" : "", apr_printable(q->program.architecture),
           types_text(q, types, sizeof types), (long long)plan->n_ctx, (long long)plan->n_batch, (long long)plan->n_sequences,
           plan->n_sequences == 1 ? "" : "s", apr_dtypes[plan->kv_dtype].name);
    for (int i = 0; i < plans->partition.n_places; i++) {
        print_heading(q, plans, i);
        APR_TRY(is_short ? apr_plan_summary(&plans->plans[i], err) : apr_plan_table(&plans->plans[i], err));
        if (plans->partition.n_places > 1) apr_plan_verdict(&plans->plans[i]);
    }
    if (!q->is_whole) printf("\n  the file is cut off: the plan uses what its header says\n");
    if (is_multimodal(q)) printf("\n  only the language model is planned: encoders for images or sound are not counted\n");
    if (q->program.lacks != NULL)
        printf("\n  aprrun cannot run a %s model yet: it needs the operation '%s'\n", apr_printable(q->program.architecture),
               q->program.lacks);
    if (q->is_guess) printf("\n  the CUDA context is that of %s, a GPU of about this size; name yours with --gpu\n", q->gpu->label);
    if (plans->partition.n_places == 1) apr_plan_verdict(plan);
    else {
        const apr_partition_cost each = apr_partition_cost_of(&plans->partition, &q->program, q->host_bytes);
        printf("\n%s: %s\n", apr_plans_fit(plans) ? "everything fits" : "not everything fits", apr_cost_text(&each, cost, sizeof cost));
    }
    if (is_short) printf("%s--lines shows every line with its reason%s\n", apr_dim(stdout), apr_plain(stdout));
    return APR_OK;
}

/* --- what would fit instead --- */

/* A changed option with which everything fits. */
typedef struct remedy {
    char option[64], cost[256];
    uint64_t device_bytes, host_bytes;
} remedy;

enum { MOST_REMEDIES = 6 };

typedef struct advice {
    remedy list[MOST_REMEDIES];
    int n;
} advice;

static remedy *add_remedy(advice *a, const apr_plans *plans)
{
    remedy *const r = &a->list[a->n++];
    *r = (remedy){{0}, {0}, 0, 0};
    for (int i = 0; i < plans->partition.n_places; i++) {
        r->device_bytes = apr_saturating_add(r->device_bytes, plans->plans[i].device_bytes);
        r->host_bytes = apr_saturating_add(r->host_bytes, plans->plans[i].host_bytes);
    }
    return r;
}

/* Plans with the changed options. Adds a remedy if everything fits; else NULL. */
static remedy *try_change(question *q, const plan_options *changed, advice *a)
{
    const plan_options *const asked = q->asked;
    apr_plans plans;
    remedy *r = NULL;

    q->asked = changed;
    q->no_largest = true;
    if (make_plans(q, changed->dtype, changed->direct, &plans, NULL) == APR_OK) {
        if (apr_plans_fit(&plans)) r = add_remedy(a, &plans);
        apr_plans_close(&plans);
    }
    q->asked = asked;
    q->no_largest = false;
    return r;
}

static int64_t largest_context(const apr_plans *plans)
{
    int64_t least = INT64_MAX;
    for (int i = 0; i < plans->partition.n_places; i++)
        if (plans->plans[i].max_ctx < least) least = plans->plans[i].max_ctx;
    return least;
}

static void advise_copies(question *q, const apr_call *call, advice *a)
{
    plan_options changed = *q->asked;
    if (changed.direct) return;
    changed.direct = true;
    remedy *const r = try_change(q, &changed, a);
    if (call->answer->json) apr_json_bool(&call->answer->body, "fits_without_copies", r != NULL);
    if (r == NULL) return;
    snprintf(r->option, sizeof r->option, "--direct");
    snprintf(r->cost, sizeof r->cost, "kernels that read packed weights, or decoding tile by tile");
}

/* A smaller headroom, in whole MiB. */
static void advise_headroom(question *q, const apr_call *call, const apr_plans *plans, advice *a)
{
    plan_options changed = *q->asked;
    uint64_t missing = 0;
    remedy *r = NULL;
    char was[APR_SMALL_TEXT];

    for (int i = 0; i < plans->partition.n_places; i++)
        if (plans->plans[i].short_bytes > missing) missing = plans->plans[i].short_bytes;
    if (q->gpu != NULL && missing <= changed.headroom) {
        changed.headroom = (changed.headroom - missing) >> 20 << 20;
        r = try_change(q, &changed, a);
    }
    if (call->answer->json && r != NULL) apr_json_uint(&call->answer->body, "fitting_headroom_bytes", changed.headroom);
    if (r == NULL) return;
    if (changed.headroom == 0) snprintf(r->option, sizeof r->option, "--headroom 0");
    else snprintf(r->option, sizeof r->option, "--headroom %lluM", (unsigned long long)(changed.headroom >> 20));
    snprintf(r->cost, sizeof r->cost, "leaves less memory free than the %s asked for", apr_size_text(was, q->asked->headroom));
}

/* A smaller type of keys and values, the widest first. */
static void advise_kv(question *q, const apr_call *call, advice *a)
{
    static const apr_dtype smaller[] = {APR_F16, APR_Q8_0};
    apr_json_text *const json = &call->answer->body;
    plan_options changed = *q->asked;
    const apr_dtype asked = apr_kv_dtypes[changed.kv];
    remedy *r = NULL;

    for (size_t i = 0; i < sizeof smaller / sizeof *smaller && r == NULL; i++) {
        if (apr_kv_row_bytes(smaller[i], 32) >= apr_kv_row_bytes(asked, 32)) continue;
        for (changed.kv = 0; apr_kv_dtypes[changed.kv] != smaller[i];) changed.kv++;
        r = try_change(q, &changed, a);
    }
    const char *const name = apr_dtypes[apr_kv_dtypes[changed.kv]].name;
    if (call->answer->json && r != NULL) apr_json_string(json, "best_kv", name, strlen(name));
    else if (call->answer->json) apr_json_null(json, "best_kv");
    if (r == NULL) return;
    snprintf(r->option, sizeof r->option, "--kv %s", name);
    snprintf(r->cost, sizeof r->cost, "keys and values are stored as %s instead of %s", name, apr_dtypes[asked].name);
}

static void advise_context(question *q, const apr_plans *plans, advice *a)
{
    plan_options changed = *q->asked;
    changed.ctx = largest_context(plans);
    remedy *const r = changed.ctx > 0 ? try_change(q, &changed, a) : NULL;
    if (r == NULL) return;
    snprintf(r->option, sizeof r->option, "--ctx %lld", (long long)changed.ctx);
    snprintf(r->cost, sizeof r->cost, "the largest context that fits, instead of %lld", (long long)plans->plans[0].n_ctx);
}

/* Memory of all devices; a GPU with two parts counts twice. */
static uint64_t all_memory(const question *q)
{
    uint64_t sum = 0;
    for (int i = 0; i < q->n_devices; i++) {
        const apr_gpu *const gpu = q->n_named > 1 ? &q->gpus[i] : q->gpu;
        sum = apr_saturating_add(sum, q->asked->vram > 0 ? q->asked->vram : apr_gpu_vram_bytes(gpu));
    }
    return sum;
}

/* The types tried, from the best down, when the one asked for does not fit. */
static const char *const ladder[] = {"bf16", "q8_0", "q6_k", "q5_k_m", "q4_k_m", "q4_k_s", "mxfp4"};

static void advise_type(question *q, const apr_call *call, advice *a)
{
    apr_json_text *const json = &call->answer->body;
    plan_options changed = *q->asked;
    remedy *r = NULL;

    for (size_t i = 0; i < sizeof ladder / sizeof *ladder && r == NULL; i++) {
        changed.dtype = ladder[i];
        if (q->gpu != NULL && apr_weight_bytes_lower_bound(&q->program, ladder[i]) > all_memory(q)) continue;
        r = try_change(q, &changed, a);
    }
    if (call->answer->json && r != NULL) apr_json_string(json, "best_type", changed.dtype, strlen(changed.dtype));
    else if (call->answer->json) apr_json_null(json, "best_type");
    if (r == NULL) return;
    snprintf(r->option, sizeof r->option, "--dtype %s", changed.dtype);
    snprintf(r->cost, sizeof r->cost, "the weights are quantized to this type");
}

/* The part whose move to the host costs least per token, and that cost. */
static void advise_offload(question *q, const apr_call *call, advice *a)
{
    apr_json_text *const json = &call->answer->body;
    apr_plans_options asked;
    apr_offload offload;
    apr_plans plans;

    if (q->gpu == NULL || set_options(q, q->asked->dtype, q->asked->direct, true, &asked, NULL) != APR_OK) return;
    if (apr_plans_smallest(&plans, &offload, &q->program, &asked, NULL) != APR_OK) {
        if (call->answer->json) apr_json_null(json, "smallest_offload");
        return;
    }
    const apr_partition_cost each = apr_partition_cost_of(&plans.partition, &q->program, q->host_bytes);
    remedy *const r = add_remedy(a, &plans);
    /* one word for the experts of some layers, so that a reader does not take it for all experts */
    const size_t n = (size_t)snprintf(r->option, sizeof r->option, "--offload%c", offload.n_expert_layers > 0 ? '=' : ' ');
    apr_offload_text(&offload, r->option + n, sizeof r->option - n);
    apr_cost_text(&each, r->cost, sizeof r->cost);
    if (call->answer->json) {
        apr_json_open(json, "smallest_offload", '{');
        apr_json_string(json, "offload", r->option + n, strlen(r->option + n));
        apr_json_uint(json, "host_bytes", plans.plans[plans.partition.n_places - 1].host_bytes);
        apr_cost_json(json, &each);
        apr_json_close(json, '}');
    }
    apr_plans_close(&plans);
}

/* Prints a table of single changes; with each of them everything fits. */
static apr_status advise(question *q, const apr_call *call, const apr_plans *plans, apr_error *err)
{
    static const apr_column columns[] = {{"what fits", false}, {"device", true}, {"host", true}, {"what it costs", false}};
    advice a = {.n = 0};
    apr_table table;
    char size[APR_SMALL_TEXT];

    advise_copies(q, call, &a);
    advise_headroom(q, call, plans, &a);
    advise_kv(q, call, &a);
    advise_context(q, plans, &a);
    advise_type(q, call, &a);
    advise_offload(q, call, &a);
    if (call->answer->json) return APR_OK;
    if (a.n == 0) {
        printf("  no single change makes it fit: not smaller keys and values, a smaller context or type, nor --offload\n");
        return APR_OK;
    }
    printf("\n");
    apr_table_start(&table, columns, sizeof columns / sizeof *columns);
    for (int i = 0; i < a.n; i++) {
        apr_table_cell(&table, "%s", a.list[i].option);
        apr_table_cell(&table, "%s", apr_size_text(size, a.list[i].device_bytes));
        apr_table_cell(&table, "%s", apr_size_text(size, a.list[i].host_bytes));
        apr_table_cell(&table, "%s", a.list[i].cost);
    }
    return apr_table_print(&table, stdout, 2, err);
}

static void answer_json(const question *q, apr_json_text *json, const apr_plans *plans)
{
    apr_plans_json(json, plans);
    if (q->program.lacks != NULL) apr_json_string(json, "lacks", q->program.lacks, strlen(q->program.lacks));
    if (plans->partition.n_places == 1) return;
    const apr_partition_cost each = apr_partition_cost_of(&plans->partition, &q->program, q->host_bytes);
    apr_json_open(json, "link", '{');
    apr_cost_json(json, &each);
    apr_json_close(json, '}');
}

static apr_status answer(question *q, const apr_call *call, apr_error *err)
{
    char text[4096];
    const char *const config = apr_config_only_path(call->operands[0], text, sizeof text);
    const char *const path = config != NULL ? config : call->operands[0];
    apr_plans plans;

    APR_TRY(choose_device(q, err));
    q->is_config_alone = config != NULL;
    APR_TRY(open_question(q, path, err));
    APR_TRY(make_plans(q, q->asked->dtype, q->asked->direct, &plans, err));
    apr_status status = APR_OK;
    if (call->answer->json) answer_json(q, &call->answer->body, &plans);
    else status = plan_text(q, path, &plans, err);
    if (status == APR_OK) apr_plan_warn_of_context(plans.plans);
    if (status == APR_OK && !apr_plans_fit(&plans)) {
        status = advise(q, call, &plans, err);
        if (status == APR_OK) status = APR_E_NO;
    }
    apr_plans_close(&plans);
    return status;
}

static apr_status run(const apr_call *call, apr_error *err)
{
    question q = {.asked = call->options, .typed = call->typed};

    if (q.asked->list_gpus) return list_gpus(call, err);
    if (call->n_operands != 1) return apr_fail(err, APR_E_USAGE, "name one MODEL: weights or a config.json; try 'aprplan --help'");
    const apr_status status = answer(&q, call, err);
    free(q.bytes);
    free(q.host_bytes);
    free(q.filled);
    free(q.made);
    free(q.sizes);
    free(q.dtypes);
    free(q.notes);
    apr_program_close(&q.program);
    apr_model_close(&q.skeleton);
    apr_model_close(&q.model);
    apr_model_close(&q.source);
    return status;
}

const apr_command apr_plan_command = {.operands = "MODEL",
                                      .max_operands = 1,
                                      .options = plan_table,
                                      .options_bytes = sizeof(plan_options),
                                      .examples = examples,
                                      .run = run,
                                      .needs = needs,
                                      .first = "vram gpu gpus ctx sequences kv dtype list-gpus",
                                      .summary =
                                          "every byte a run will allocate, and whether it fits (exit code 0: it fits, 1: it does not)"};
