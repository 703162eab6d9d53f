/* plan.c - aprplan: prints every byte that a run would allocate, whether it fits, and what would fit if it does not. Needs no GPU. */
#include "formats/base/bytes.h"
#include "formats/packed/hf_quantization.h"
#include "tools/cli/model_paths.h"
#include "tools/engine/device/places.h"
#include "tools/engine/library/handles.h"
#include "tools/engine/plan/advice.h"
#include "tools/engine/plan/parts.h"
#include "tools/report/report.h"
#include "tools/report/terminal.h"
#include "tools/report/text.h"
#include "tools/verbs/plan/plan_grid.h"
#include "tools/verbs/plan/plan_lines.h"
#include "tools/verbs/verbs.h"

#include <stdlib.h>
#include <string.h>

typedef struct plan_options {
    apr_plan_asked asked;
    bool list_gpus, lines, table, gpus_table;
    const char *html;
    apr_page_options page;
} plan_options;

static const apr_option plan_table[] = {
    {"vram", 0, APR_OPTION_SIZE, "SIZE", NULL, "memory of the device, as in 32G", APR_TO(plan_options, asked.vram), .min = 1 << 20,
     .group = "Device"},
    {"gpu", 'g', APR_OPTION_STRING, "NAME", NULL, "a GPU by name, as in rtx5090 or h200 (--list-gpus); several, as in rtx4090,rtx3060",
     APR_TO(plan_options, asked.gpu)},
    {"host", 0, APR_OPTION_FLAG, NULL, NULL, "plan a run on the host, which is the CPU and its memory", APR_TO(plan_options, asked.host)},
    {"headroom", 0, APR_OPTION_SIZE, "SIZE", "1G", "memory to leave free on the device", APR_TO(plan_options, asked.headroom),
     .min = APR_MIN_SIZE, .or_none = true},
    {"stack", 0, APR_OPTION_INT, "BYTES", "256", "stack of each thread of the GPU, which the CUDA context reserves",
     APR_TO(plan_options, asked.stack), .min = 256, .max = 1 << 20},
    {"direct", 0, APR_OPTION_FLAG, NULL, "yes", "plan for FP16 copies of packed weights, not for kernels that read them directly",
     APR_TO(plan_options, asked.direct)},
    {"gpus", 0, APR_OPTION_STRING, "N", NULL, "split the layers over N such GPUs, with a plan for each; 0,0: two parts on one GPU",
     APR_TO(plan_options, asked.gpus)},
    {"offload", 0, APR_OPTION_STRING, APR_OFFLOAD_NAMES, NULL,
     "compute on the host: the experts (of all layers, or of N), or the first N layers", APR_TO(plan_options, asked.offload)},
    {"memory", 0, APR_OPTION_SIZE, "SIZE", NULL, "host memory for what is offloaded; without it, any amount fits",
     APR_TO(plan_options, asked.memory), .min = APR_MIN_SIZE},
    {"list-gpus", 0, APR_OPTION_FLAG, NULL, NULL, "list the GPUs known by name", APR_TO(plan_options, list_gpus)},
    {"gpus-table", 0, APR_OPTION_FLAG, NULL, NULL, "a table of all known GPUs by types, at one context", APR_TO(plan_options, gpus_table)},
    {"ctx", 'c', APR_OPTION_INT, "N", "0", "tokens of context per sequence; 0: the model's own, at most 4096",
     APR_TO(plan_options, asked.ctx), .min = 0, .max = 1e9, .group = "Run"},
    {"batch", 'b', APR_OPTION_INT, "N", "0", "prompt tokens evaluated at a time; 0: 512, or 2048 on a GPU with enough memory",
     APR_TO(plan_options, asked.batch), .min = 0, .max = 1e6},
    {"sequences", 's', APR_OPTION_INT, "N", "1", "sequences at the same time", APR_TO(plan_options, asked.sequences), .min = 1, .max = 1e6},
    {"kv", 0, APR_OPTION_CHOICE, APR_KV_NAMES, "f16", "type of the KV cache", APR_TO(plan_options, asked.kv)},
    {"lines", 0, APR_OPTION_FLAG, NULL, NULL, "every line of the plan with its reason; on a terminal the default is a summary",
     APR_TO(plan_options, lines)},
    {"dtype", 't', APR_OPTION_STRING, "TYPE", NULL, "plan as if quantized to TYPE (aprquant --list); also for a config.json alone",
     APR_TO(plan_options, asked.dtype)},
    {"table", 0, APR_OPTION_FLAG, NULL, NULL, "a table of all types by contexts, with what each takes and whether it fits",
     APR_TO(plan_options, table)},
    {"html", 0, APR_OPTION_STRING, "FILE", NULL,
     "also write the table (--table, --gpus-table) as one HTML page with a picture; replaces only an older page",
     APR_TO(plan_options, html)},
    APR_PAGE_OPTIONS(plan_options, page),
    {0},
};

static const plan_options *options_of(const apr_call *call) { return call->options; }
/* A page has a table. */
static bool has_table(const apr_call *call)
{
    return options_of(call)->table || options_of(call)->gpus_table || options_of(call)->html != NULL;
}

static bool has_gpu(const apr_call *call) { return !options_of(call)->asked.host; }

static bool has_page(const apr_call *call) { return options_of(call)->html != NULL; }

static const apr_need needs[] = {
    APR_PAGE_NEEDS("--html FILE", has_page),
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
    "aprplan --gpu rtx4090 --table --html plans.html Qwen3-32B",
    NULL,
};

static apr_status list_gpus(const apr_call *call, apr_error *err)
{
    static const apr_column columns[] = {{"name", .key = "name"},
                                         {"GPU"},
                                         {"memory", true, .key = "vram_bytes"},
                                         {"SMs", true, .drops = true, .key = "sms"},
                                         {"capability", true},
                                         {"GB/s", true, .drops = true},
                                         {"context", true, .drops = true, .key = "context_bytes"}};
    apr_report r;
    char size[APR_SMALL_TEXT];

    apr_report_start(&r, call->answer, err);
    apr_report_table(&r, "", "gpus", columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < apr_n_gpus; i++) {
        const apr_gpu *const g = &apr_gpus[i];
        const uint64_t vram = apr_gpu_vram_bytes(g), context = apr_gpu_context_bytes(g, APR_DEFAULT_STACK_BYTES);
        apr_report_row(&r);
        apr_report_cell(&r, apr_as_text(g->name), "%s", g->name);
        apr_report_cell(&r, apr_as_absent(), "%s", g->label);
        apr_report_cell(&r, apr_as_uint(vram), "%s", apr_size_text(size, vram));
        apr_report_cell(&r, apr_as_int(g->n_sms), "%d", g->n_sms);
        apr_report_member(&r, "major", apr_as_int(g->major));
        apr_report_member(&r, "minor", apr_as_int(g->minor));
        apr_report_cell(&r, apr_as_absent(), "%d.%d", g->major, g->minor);
        apr_report_cell(&r, apr_as_absent(), "%d", g->bandwidth_gbs);
        apr_report_cell(&r, apr_as_uint(context), "%s", apr_size_text(size, context));
    }
    apr_report_close(&r);
    return apr_report_end(&r);
}

/* A name that several GPUs have, as "a100": suggests the first of them. */
static apr_status name_one(const apr_call *call, const char *name, apr_status status, apr_error *err)
{
    char text[256];
    const char *const first = status != APR_OK ? apr_gpu_several(name, text, sizeof text) : NULL;

    if (first == NULL || strcmp(name, options_of(call)->asked.gpu) != 0) return status;
    return apr_try_change(status, call->typed, name, first, err);
}

/* "rtx4090,rtx3060": in the order in which the layers are split over them. */
static apr_status read_gpus(apr_plan_question *q, const apr_call *call, apr_error *err)
{
    const char *at = q->asked->gpu;
    char name[128];

    for (;;) {
        const size_t n = strcspn(at, ",");
        if (q->n_named == APR_MAX_DEVICES) return apr_fail(err, APR_E_USAGE, "--gpu names more than %d GPUs", (int)APR_MAX_DEVICES);
        snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), at);
        APR_TRY(name_one(call, name, apr_gpu_named(name, &q->gpus[q->n_named], q->labels[q->n_named], err), err));
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

static apr_status choose_device(apr_plan_question *q, const apr_call *call, apr_error *err)
{
    const apr_plan_asked *const o = q->asked;

    APR_TRY(apr_offload_parse(o->offload, &q->offload, err));
    APR_TRY(apr_gpus_parse(o->gpus, &q->n_devices, q->ordinals, err));
    if (o->host && (o->offload != NULL || o->gpus != NULL))
        return apr_fail(err, APR_E_USAGE, "--host plans without a GPU: leave out %s", o->offload != NULL ? "--offload" : "--gpus");
    if (o->host) return APR_OK;
    if (q->n_devices == 0) q->n_devices = 1;
    if (o->gpu != NULL) return read_gpus(q, call, err);
    if (o->vram == 0) {
        apr_fail(err, APR_E_USAGE, "name a device: --gpu NAME, --vram SIZE or --host");
        return apr_try_change(APR_E_USAGE, call->typed, NULL, "--host", err);
    }
    q->gpu = apr_nearest_gpu(o->vram);
    q->is_guess = true;
    return APR_OK;
}

/* --- a plan. A place is a GPU or the host; each has its own --- */

static const char *place_name(apr_place on) { return on == APR_ON_DEVICE ? "device" : "host"; }

/* Every line, and in text the total. */
static void report_lines(apr_report *r, const apr_plan *plan)
{
    static const apr_column columns[] = {{"line"}, {"size", true, .key = "bytes"}, {"on", .key = "on"}, {"why", .key = "reason"}};
    char size[APR_SMALL_TEXT];

    apr_report_table(r, "", "lines", columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < plan->n_lines; i++) {
        const apr_plan_line *const line = &plan->lines[i];
        apr_report_row(r);
        apr_report_member(r, "id", apr_as_text(line->key));
        apr_report_cell(r, apr_as_absent(), "%s", line->label);
        apr_report_cell(r, apr_as_uint(line->bytes), "%s", apr_size_text(size, line->bytes));
        apr_report_cell(r, apr_as_text(place_name(line->on)), "%s", place_name(line->on));
        apr_report_cell(r, apr_as_text(line->reason), "%s", line->reason);
    }
    if (r->json == NULL) {
        apr_report_row(r);
        apr_report_cell(r, apr_as_absent(), "total");
        apr_report_cell(r, apr_as_absent(), "%s", apr_size_text(size, plan->taken_bytes));
        apr_report_cell(r, apr_as_absent(), "%s", plan->is_shared ? "shared" : place_name(plan->judged));
    }
    apr_report_close(r);
}

/* "attention 1.53 GiB, feed-forward 10.62 GiB": the lines of a part. For a single one its label, or its reason where the part's name says what
 * the label would. */
static void lines_text(const apr_plan *plan, apr_plan_part part, char *text, size_t n_bytes)
{
    static const bool with_reason[APR_PLAN_PARTS] = {
        [APR_PART_KV] = true, [APR_PART_RECURRENT] = true, [APR_PART_ACTIVATIONS] = true, [APR_PART_FREE] = true};
    const apr_plan_line *only = NULL;
    char size[APR_SMALL_TEXT];
    size_t n = 0, n_lines = 0;

    text[0] = '\0';
    for (size_t i = 0; i < plan->n_lines && n < n_bytes; i++) {
        const apr_plan_line *const line = &plan->lines[i];
        if (apr_plan_part_of(line) != part) continue;
        only = n_lines++ == 0 ? line : NULL;
        n += (size_t)snprintf(text + n, n_bytes - n, "%s%s %s", n > 0 ? ", " : "", line->label, apr_size_text(size, line->bytes));
    }
    if (only != NULL) snprintf(text, n_bytes, "%s", with_reason[part] ? only->reason : only->label);
}

/* A row for the part of the i-th line, if the line is the first of its part. */
static void report_part(apr_report *r, const apr_plan *plan, size_t i)
{
    const apr_plan_part part = apr_plan_part_of(&plan->lines[i]);
    char size[APR_SMALL_TEXT], lines[1024];
    uint64_t bytes = 0;

    for (size_t j = 0; j < plan->n_lines; j++) {
        if (apr_plan_part_of(&plan->lines[j]) != part) continue;
        if (j < i) return;
        bytes = apr_saturating_add(bytes, plan->lines[j].bytes);
    }
    lines_text(plan, part, lines, sizeof lines);
    apr_report_row(r);
    apr_report_cell(r, apr_as_absent(), "%s", apr_plan_part_names[part]);
    apr_report_cell(r, apr_as_absent(), "%s", apr_size_text(size, bytes));
    apr_report_cell(r, apr_as_absent(), "%s", lines);
}

/* A row for each part, in text. */
static void report_summary(apr_report *r, const apr_plan *plan)
{
    static const apr_column columns[] = {{NULL}, {NULL, true}, {NULL}};
    char size[APR_SMALL_TEXT];

    apr_report_table(r, "", NULL, columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < plan->n_lines; i++) report_part(r, plan, i);
    apr_report_row(r);
    apr_report_cell(r, apr_as_absent(), "total");
    apr_report_cell(r, apr_as_absent(), "%s", apr_size_text(size, plan->taken_bytes));
    apr_report_cell(r, apr_as_absent(), "%s",
                    plan->is_shared                 ? "of the shared memory"
                    : plan->judged == APR_ON_DEVICE ? "on the device"
                                                    : "on the host");
    apr_report_close(r);
}

static void print_verdict(apr_report *r, const apr_plan *plan)
{
    char taken[APR_SMALL_TEXT], size[APR_SMALL_TEXT], budget[APR_SMALL_TEXT], count[APR_SMALL_TEXT], own[48] = "";

    if (plan->budget_bytes == 0) return;
    apr_size_text(budget, plan->budget_bytes);
    apr_size_text(taken, plan->taken_bytes);
    if (plan->own_ctx > 0) snprintf(own, sizeof own, ", the model's own: %s", apr_count_text(count, plan->own_ctx));
    if (plan->fits)
        apr_report_print(r, "\nfits in %s (%s used); largest context that fits: %s%s\n", budget, taken,
                         plan->max_ctx >= APR_ANY_CONTEXT ? "any" : apr_count_text(count, plan->max_ctx), own);
    else
        apr_report_print(r, "\ndoes not fit: needs %s of %s (%s over, at '%s')\n", taken, budget, apr_size_text(size, plan->short_bytes),
                         plan->breaking >= 0 ? plan->lines[plan->breaking].label : "?");
}

static void put_memory(apr_report *r, const apr_plan *plan)
{
    apr_report_member(r, "budget_bytes", apr_as_uint(plan->budget_bytes));
    apr_report_member(r, "device_bytes", apr_as_uint(plan->device_bytes));
    apr_report_member(r, "host_bytes", apr_as_uint(plan->host_bytes));
    apr_report_member(r, "short_bytes", apr_as_uint(plan->short_bytes));
    apr_report_member(r, "max_ctx", apr_as_int(plan->max_ctx));
    if (plan->own_ctx > 0) apr_report_member(r, "model_ctx", apr_as_int(plan->own_ctx));
    if (plan->is_shared) apr_report_member(r, "shared_memory", apr_as_bool(true));
    if (plan->breaking >= 0) apr_report_member(r, "breaking", apr_as_text(plan->lines[plan->breaking].key));
}

/* "q4_k_m" as asked for; or "types as stored", for a config.json alone with what it says about them. */
static const char *types_text(const apr_plan_question *q, char *text, size_t n_bytes)
{
    const apr_quantization *const stated = q->source->n_tensors == 0 ? q->source->quantization : NULL;
    char scheme[96];

    if (q->asked->dtype != NULL) return q->asked->dtype;
    if (stated == NULL || stated->n_schemes == 0) return "types as stored";
    snprintf(text, n_bytes, "types as stored (%s: %s%s)", stated->method, apr_quant_text(&stated->schemes[0], scheme, sizeof scheme),
             stated->n_schemes > 1 ? ", and others" : "");
    return text;
}

/* "Qwen3_5ForConditionalGeneration": a model that also takes images or sound. */
static bool is_multimodal(const apr_plan_question *q)
{
    const char *const hf_class = q->source->hparams.hf_class;
    return hf_class != NULL && strstr(hf_class, "ForConditionalGeneration") != NULL;
}

/* What was planned: in text the title. */
static void report_run(apr_report *r, const apr_plan_question *q, const char *path, bool is_config_alone, const apr_plans *plans)
{
    const apr_plan *const plan = plans->plans;
    const char *const kv = apr_dtypes[plan->kv_dtype].name;
    char types[256];

    apr_report_print(r, "%s%s: %s, %s, context %lld, batch %lld, %lld sequence%s, %s keys and values\n\n", apr_printable(path),
                     is_config_alone ? " (the folder has no weights)" : "", apr_printable(q->program.architecture),
                     types_text(q, types, sizeof types), (long long)plan->n_ctx, (long long)plan->n_batch, (long long)plan->n_sequences,
                     plan->n_sequences == 1 ? "" : "s", kv);
    apr_report_member(r, "fits", apr_as_bool(apr_plans_fit(plans)));
    apr_report_member(r, "ctx", apr_as_int(plan->n_ctx));
    apr_report_member(r, "batch", apr_as_int(plan->n_batch));
    if (apr_plan_is_beyond_model(plan)) apr_report_member(r, "ctx_beyond_model", apr_as_bool(true));
    apr_report_member(r, "sequences", apr_as_int(plan->n_sequences));
    apr_report_member(r, "kv", apr_as_text(kv));
}

/* "GPU 0", "host": begins one place's plan where there are several. */
static void open_place(apr_report *r, const apr_plan_question *q, const apr_plans *plans, int place)
{
    const bool on_device = plans->partition.on[place] == APR_ON_DEVICE;

    if (!on_device) apr_report_print(r, "\nhost (offloaded part):\n");
    else
        apr_report_print(r, "%sGPU %d%s%s:\n", place > 0 ? "\n" : "", q->ordinals[place], q->n_named > 1 ? ", " : "",
                         q->n_named > 1 ? q->gpus[place].label : "");
    apr_report_open(r, NULL, '{');
    apr_report_member(r, "on", apr_as_text(place_name(plans->plans[place].judged)));
    apr_report_member(r, "fits", apr_as_bool(plans->plans[place].fits));
}

static void report_places(apr_report *r, const apr_plan_question *q, const apr_plans *plans, bool is_short)
{
    const bool is_split = plans->partition.n_places > 1;

    if (is_split) apr_report_open(r, "places", '[');
    for (int i = 0; i < plans->partition.n_places; i++) {
        const apr_plan *const plan = &plans->plans[i];
        if (is_split) open_place(r, q, plans, i);
        put_memory(r, plan);
        if (is_short) report_summary(r, plan);
        else report_lines(r, plan);
        if (!is_split) continue;
        print_verdict(r, plan);
        apr_report_shut(r, '}');
    }
    if (is_split) apr_report_shut(r, ']');
}

static void report_notes(apr_report *r, const apr_plan_question *q)
{
    if (!q->is_whole) apr_report_print(r, "\n  the file is cut off: the plan uses what its header says\n");
    if (is_multimodal(q)) apr_report_print(r, "\n  only the language model is planned: encoders for images or sound are not counted\n");
    if (q->is_guess)
        apr_report_print(r, "\n  the CUDA context is that of %s, a GPU of about this size; name yours with --gpu\n", q->gpu->label);
}

/* What a token costs where there are several places. */
static void report_link(apr_report *r, const apr_plan_question *q, const apr_plans *plans)
{
    const apr_partition_cost each = apr_partition_cost_of(&plans->partition, &q->program, q->host_bytes);
    char cost[256];

    apr_report_print(r, "\n%s: %s\n", apr_plans_fit(plans) ? "everything fits" : "not everything fits",
                     apr_cost_text(&each, cost, sizeof cost));
    apr_report_open(r, "link", '{');
    apr_report_cost(r, &each);
    apr_report_shut(r, '}');
}

/* is_config_alone: the operand is a folder that has no weights, only a config.json */
static void report_plan(apr_report *r, const apr_plan_question *q, bool all_lines, bool is_config_alone, const char *path,
                        const apr_plans *plans)
{
    const bool is_short = r->json == NULL && apr_is_terminal(stdout) && !all_lines;

    report_run(r, q, path, is_config_alone, plans);
    report_places(r, q, plans, is_short);
    report_notes(r, q);
    if (plans->partition.n_places == 1) print_verdict(r, plans->plans);
    else report_link(r, q, plans);
    if (is_short) apr_report_print(r, "%s--lines shows every line with its reason%s\n", apr_dim(stdout), apr_plain(stdout));
}

/* --- what would fit instead --- */

/* "--kv q8_0": the changed option. */
static void option_text(const apr_remedy *r, apr_remedy_kind kind, char *text, size_t n_bytes)
{
    switch (kind) {
    case APR_REMEDY_DIRECT: snprintf(text, n_bytes, "--direct"); break;
    case APR_REMEDY_HEADROOM:
        if (r->asked.headroom == 0) snprintf(text, n_bytes, "--headroom 0");
        else snprintf(text, n_bytes, "--headroom %lluM", (unsigned long long)(r->asked.headroom >> 20));
        break;
    case APR_REMEDY_KV: snprintf(text, n_bytes, "--kv %s", apr_dtypes[apr_kv_dtypes[r->asked.kv]].name); break;
    case APR_REMEDY_CONTEXT: snprintf(text, n_bytes, "--ctx %lld", (long long)r->asked.ctx); break;
    case APR_REMEDY_TYPE: snprintf(text, n_bytes, "--dtype %s", r->asked.dtype); break;
    case APR_REMEDY_OFFLOAD: {
        /* one word for the experts of some layers, so that a reader does not take it for all experts */
        const size_t n = (size_t)snprintf(text, n_bytes, "--offload%c", r->offload.n_expert_layers > 0 ? '=' : ' ');
        apr_offload_text(&r->offload, text + n, n_bytes - n);
        break;
    }
    case APR_REMEDIES: break;
    }
}

static void cost_text(const apr_plan_asked *asked, const apr_plans *plans, const apr_remedy *r, apr_remedy_kind kind, char *text,
                      size_t n_bytes)
{
    char was[APR_SMALL_TEXT];

    switch (kind) {
    case APR_REMEDY_DIRECT: snprintf(text, n_bytes, "kernels that read packed weights, or decoding tile by tile"); break;
    case APR_REMEDY_HEADROOM:
        snprintf(text, n_bytes, "leaves less memory free than the %s asked for", apr_size_text(was, asked->headroom));
        break;
    case APR_REMEDY_KV:
        snprintf(text, n_bytes, "keys and values are stored as %s instead of %s", apr_dtypes[apr_kv_dtypes[r->asked.kv]].name,
                 apr_dtypes[apr_kv_dtypes[asked->kv]].name);
        break;
    case APR_REMEDY_CONTEXT:
        snprintf(text, n_bytes, "the largest context that fits, instead of %lld", (long long)plans->plans[0].n_ctx);
        break;
    case APR_REMEDY_TYPE: snprintf(text, n_bytes, "the weights are quantized to this type"); break;
    case APR_REMEDY_OFFLOAD: apr_cost_text(&r->cost, text, n_bytes); break;
    case APR_REMEDIES: break;
    }
}

static void put_advice(apr_report *r, const apr_advice *a)
{
    const apr_remedy *const of = a->of, *const offload = &of[APR_REMEDY_OFFLOAD];
    char text[64];

    if (of[APR_REMEDY_DIRECT].was_tried) apr_report_member(r, "fits_without_copies", apr_as_bool(of[APR_REMEDY_DIRECT].fits));
    if (of[APR_REMEDY_HEADROOM].fits) apr_report_member(r, "fitting_headroom_bytes", apr_as_uint(of[APR_REMEDY_HEADROOM].asked.headroom));
    apr_report_member(r, "best_kv",
                      apr_as_text_or_null(of[APR_REMEDY_KV].fits ? apr_dtypes[apr_kv_dtypes[of[APR_REMEDY_KV].asked.kv]].name : NULL));
    apr_report_member(r, "best_type", apr_as_text_or_null(of[APR_REMEDY_TYPE].fits ? of[APR_REMEDY_TYPE].asked.dtype : NULL));
    if (offload->was_tried && !offload->fits) apr_report_member(r, "smallest_offload", apr_as_null());
    if (!offload->fits) return;
    apr_report_open(r, "smallest_offload", '{');
    apr_report_member(r, "offload", apr_as_text(apr_offload_text(&offload->offload, text, sizeof text)));
    apr_report_member(r, "host_bytes", apr_as_uint(offload->offloaded_bytes));
    apr_report_cost(r, &offload->cost);
    apr_report_shut(r, '}');
}

/* Single changes; with each of them everything fits. In text a table. */
static void report_advice(apr_report *r, const apr_plan_asked *asked, const apr_plans *plans, const apr_advice *a)
{
    static const apr_column columns[] = {{"what fits"}, {"device", true}, {"host", true}, {"what it costs"}};
    char option[64], cost[256], size[APR_SMALL_TEXT];
    int n = 0;

    put_advice(r, a);
    for (int kind = 0; kind < APR_REMEDIES; kind++) n += a->of[kind].fits;
    if (n == 0) {
        apr_report_print(r, "  no single change makes it fit: not smaller keys and values, a smaller context or type, nor --offload\n");
        return;
    }
    apr_report_print(r, "\n");
    apr_report_table(r, "", NULL, columns, sizeof columns / sizeof *columns);
    for (int kind = 0; kind < APR_REMEDIES; kind++) {
        const apr_remedy *const of = &a->of[kind];
        if (!of->fits) continue;
        option_text(of, (apr_remedy_kind)kind, option, sizeof option);
        cost_text(asked, plans, of, (apr_remedy_kind)kind, cost, sizeof cost);
        apr_report_row(r);
        apr_report_cell(r, apr_as_absent(), "%s", option);
        apr_report_cell(r, apr_as_absent(), "%s", apr_size_text(size, of->device_bytes));
        apr_report_cell(r, apr_as_absent(), "%s", apr_size_text(size, of->host_bytes));
        apr_report_cell(r, apr_as_absent(), "%s", cost);
    }
    apr_report_close(r);
}

static apr_status answer(aprkit_plan *plan, const apr_call *call, const char *path, apr_error *err)
{
    apr_plan_question *const q = &plan->question;
    const apr_plans *const plans = &plan->plans;
    const bool is_config_alone = path != call->operands[0], fits = aprkit_plan_fits(plan);
    apr_advice advice;
    apr_report r;

    apr_report_start(&r, call->answer, err);
    report_plan(&r, q, options_of(call)->lines, is_config_alone, path, plans);
    apr_plan_warn_of_context(plans->plans);
    if (!fits) {
        apr_question_advise(q, plans, &advice);
        report_advice(&r, q->asked, plans, &advice);
    }
    APR_TRY(apr_report_end(&r));
    return fits ? APR_OK : APR_E_NO;
}

/* Many plans in a table. */
static apr_status answer_table(aprkit_plan *plan, const apr_call *call, const char *path, apr_error *err)
{
    const plan_options *const o = options_of(call);
    const apr_plan_grid_asked asked = {.by_gpu = o->gpus_table, .html = o->html, .page = &o->page, .path = path};
    return apr_plan_grid_answer(&plan->question, &asked, call, err);
}

/* The devices. A table of GPUs needs none to be named. */
static apr_status choose_devices(apr_plan_question *q, const apr_call *call, apr_error *err)
{
    const plan_options *const o = options_of(call);
    const apr_plan_asked *const a = q->asked;

    if (o->table && o->gpus_table) return apr_fail(err, APR_E_USAGE, "give --table or --gpus-table, not both");
    if (o->gpus_table && (a->gpu != NULL || a->vram != 0 || a->host || a->gpus != NULL))
        return apr_fail(err, APR_E_USAGE, "--gpus-table plans for each known GPU: leave out --gpu, --gpus, --vram and --host");
    return o->gpus_table ? apr_offload_parse(a->offload, &q->offload, err) : choose_device(q, call, err);
}

static apr_status plan_model(const aprkit_model *model, const apr_plan_question *q, const apr_call *call, const char *path, apr_error *err)
{
    const aprkit_plan_hooks hooks = {.question = q, .is_left_open = has_table(call)};
    const aprkit_plan_options options = {.size = sizeof options, .hooks = &hooks};
    aprkit_plan *plan;
    aprkit_error error;

    if (aprkit_plan_make(&plan, model, &options, &error) != APRKIT_OK) return apr_library_failed(&error, err);
    const apr_status status = has_table(call) ? answer_table(plan, call, path, err) : answer(plan, call, path, err);
    aprkit_plan_close(plan);
    return status;
}

static apr_status run(const apr_call *call, apr_error *err)
{
    const aprkit_model_options head = {.size = sizeof head, .map = 1, .header_only = 1}; /* tools/report/guard.h handles SIGBUS */
    const plan_options *const o = call->options;
    apr_plan_question q = {.asked = &o->asked};
    char text[4096];
    aprkit_model *model;
    aprkit_error error;

    if (o->list_gpus) return list_gpus(call, err);
    if (call->n_operands != 1) return apr_fail(err, APR_E_USAGE, "name one MODEL: weights or a config.json; try 'aprplan --help'");
    const char *const config = apr_config_only_path(call->operands[0], text, sizeof text);
    const char *const path = config != NULL ? config : call->operands[0];
    APR_TRY(choose_devices(&q, call, err));
    if (aprkit_model_open(&model, path, &head, &error) != APRKIT_OK) return apr_library_failed(&error, err);
    const apr_status status = plan_model(model, &q, call, path, err);
    aprkit_model_close(model);
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
