/* aprplan.c - does it fit? Every byte of a run on a GPU that need not be here, and what would fit if it does not. */
#include "convert/dialect.h"
#include "formats/hf/hf_quantization.h"
#include "formats/model/packed_weights.h"
#include "runtime/plan/plan.h"
#include "tools/cli/cli.h"
#include "tools/cli/table.h"
#include "tools/cli/text.h"
#include "tools/plan/sizes.h"

#include <stdlib.h>
#include <string.h>

typedef struct plan_options {
    uint64_t vram, headroom;
    const char *gpu, *dtype;
    int64_t ctx, batch, sequences, stack;
    int kv;
    bool list_gpus, host, direct;
} plan_options;

static const apr_option options[] = {
    {"vram", 0, APR_OPTION_SIZE, "SIZE", NULL, "memory of the device, as in 32G", APR_TO(plan_options, vram), .min = 1 << 20,
     .group = "Device"},
    {"gpu", 'g', APR_OPTION_STRING, "NAME", NULL, "a GPU by name, as in rtx5090 or h200 (--list-gpus); counts its CUDA context",
     APR_TO(plan_options, gpu)},
    {"host", 0, APR_OPTION_FLAG, NULL, NULL, "plan a run on the host", APR_TO(plan_options, host)},
    {"headroom", 0, APR_OPTION_SIZE, "SIZE", "1G", "memory to leave free on the device", APR_TO(plan_options, headroom),
     .min = APR_LEAST_SIZE},
    {"stack", 0, APR_OPTION_INT, "BYTES", "256", "stack limit of the CUDA context", APR_TO(plan_options, stack), .min = 256,
     .max = 1 << 20},
    {"direct", 0, APR_OPTION_FLAG, NULL, "yes", "packed weights are read directly; --no-direct: a run that needs FP16 copies of them",
     APR_TO(plan_options, direct)},
    {"list-gpus", 0, APR_OPTION_FLAG, NULL, NULL, "list the GPUs known by name", APR_TO(plan_options, list_gpus)},
    {"ctx", 'c', APR_OPTION_INT, "N", "0", "tokens of context a sequence; 0: the model's own, at most 4096", APR_TO(plan_options, ctx),
     .min = 0, .max = 1e9, .group = "Run"},
    {"batch", 'b', APR_OPTION_INT, "N", "512", "tokens of a prompt evaluated at a time", APR_TO(plan_options, batch), .min = 1, .max = 1e6},
    {"sequences", 's', APR_OPTION_INT, "N", "1", "sequences side by side", APR_TO(plan_options, sequences), .min = 1, .max = 1e6},
    {"kv", 0, APR_OPTION_CHOICE, APR_KV_NAMES, "f16", "type of keys and values", APR_TO(plan_options, kv)},
    {"dtype", 't', APR_OPTION_STRING, "TYPE", NULL, "plan as if quantized to TYPE (aprquant --list); for a bare config.json too",
     APR_TO(plan_options, dtype)},
    {0},
};

static const char *const examples[] = {
    "aprplan --gpu rtx5090 --ctx 32768 model.apr",
    "aprplan --vram 32G --dtype mxfp4 --kv q8_0 config.json     # before the download",
    "aprplan --gpu h200 --json --ctx 131072 --sequences 4 Llama-3.1-70B",
    NULL,
};

/* All that one question needs. */
typedef struct question {
    const plan_options *asked;
    const apr_gpu *gpu;
    bool is_guess;           /* --vram without --gpu: the GPU of that size stands in */
    apr_model source, model; /* model: its canonical view, or a skeleton when there is only a config.json */
    apr_model skeleton;      /* for types of one's own where the weights are in a layout that is not read; else empty */
    apr_program program;
    /* [program.n_weights] of each weight: how much it takes; bytes and type as plans want them; bytes of those made of others */
    apr_weight_size *sizes;
    uint64_t *bytes, *made;
    apr_dtype *dtypes;
    apr_weight_note *notes;
} question;

static apr_status list_gpus(const apr_call *call, apr_error *err)
{
    static const apr_column columns[] = {{"name", false},      {"GPU", false}, {"memory", true}, {"SMs", true},
                                         {"capability", true}, {"GB/s", true}, {"context", true}};
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

/* Weights of the model, or the shapes that its hyperparameters imply. */
static apr_status open_question(question *q, const char *path, apr_error *err)
{
    APR_TRY(apr_model_open(&q->source, path, err));
    APR_TRY(apr_program_emit(&q->program, &q->source.hparams, err));
    const char *layout;
    if (q->source.n_tensors > 0) APR_TRY(apr_canonical(&q->model, &q->source, err));
    else APR_TRY(apr_skeleton_model(&q->model, &q->program, &q->source, err));
    if (apr_find_packed(&q->source, &layout) != NULL) APR_TRY(apr_skeleton_model(&q->skeleton, &q->program, &q->source, err));
    q->bytes = calloc(q->program.n_weights + 1, sizeof *q->bytes);
    q->made = calloc(q->program.n_weights + 1, sizeof *q->made);
    q->sizes = calloc(q->program.n_weights + 1, sizeof *q->sizes);
    q->dtypes = calloc(q->program.n_weights + 1, sizeof *q->dtypes);
    q->notes = calloc(q->program.n_weights + 1, sizeof *q->notes);
    if (q->bytes == NULL || q->made == NULL || q->sizes == NULL || q->dtypes == NULL || q->notes == NULL)
        return apr_no_memory(err, "the sizes of the weights");
    if (q->source.n_tensors > 0) apr_plan_made_weights(&q->program, &q->model, q->made);
    return APR_OK;
}

/* The GPU whose memory is nearest to that: its context is the best guess for a card that was not named. */
static const apr_gpu *nearest_gpu(uint64_t vram)
{
    const apr_gpu *nearest = &apr_gpus[0];
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < apr_n_gpus; i++) {
        const uint64_t has = apr_gpu_vram_bytes(&apr_gpus[i]), off = has > vram ? has - vram : vram - has;
        if (off >= least) continue;
        least = off;
        nearest = &apr_gpus[i];
    }
    return nearest;
}

static apr_status choose_device(question *q, apr_error *err)
{
    const plan_options *const o = q->asked;

    if (o->host) return APR_OK;
    if (o->gpu != NULL) {
        q->gpu = apr_gpu_find(o->gpu);
        if (q->gpu == NULL)
            return apr_fail(err, APR_E_USAGE, "no GPU called '%s' is known here; --list-gpus lists them, --vram SIZE plans for any",
                            o->gpu);
        return APR_OK;
    }
    if (o->vram == 0) return apr_fail(err, APR_E_USAGE, "say for what: --gpu NAME, --vram SIZE or --host");
    q->gpu = nearest_gpu(o->vram);
    q->is_guess = true;
    return APR_OK;
}

static apr_status make_plan(question *q, const char *dtype, bool direct, apr_plan *plan, apr_error *err)
{
    apr_plan_options o = apr_plan_defaults;

    o.n_ctx = q->asked->ctx;
    o.n_batch = q->asked->batch;
    o.n_sequences = q->asked->sequences;
    o.kv_dtype = apr_kv_dtypes[q->asked->kv];
    o.headroom_bytes = q->asked->headroom;
    o.stack_bytes = (uint64_t)q->asked->stack;
    o.gpu = q->gpu;
    o.budget_bytes = q->asked->vram;
    o.weight_bytes = q->bytes;
    o.copies = !direct && q->gpu != NULL;
    const apr_model *const sized = dtype != NULL && q->skeleton.tensors != NULL ? &q->skeleton : &q->model;
    APR_TRY(apr_weight_sizes(sized, &q->program, dtype, q->gpu != NULL, q->sizes, err));
    for (size_t i = 0; i < q->program.n_weights; i++) {
        q->bytes[i] = q->sizes[i].bytes;
        q->notes[i] = q->sizes[i].note;
        q->dtypes[i] = q->sizes[i].is_f16 ? APR_F16 : APR_BF16; /* only whether it must be decoded matters */
    }
    o.weight_dtypes = q->gpu != NULL ? q->dtypes : NULL;
    o.weight_notes = q->notes;
    o.made_bytes = dtype == NULL ? q->made : NULL; /* what a recipe writes lies as it is wanted */
    return apr_plan_make(plan, &q->program, &o, err);
}

/* The types tried, from the best down, when the asked one does not fit. */
static const char *const ladder[] = {"bf16", "q8_0", "q6_k", "q5_k_m", "q4_k_m", "q4_k_s", "mxfp4"};

static const char *best_fitting_type(question *q, apr_plan *plan)
{
    for (size_t i = 0; i < sizeof ladder / sizeof *ladder; i++) {
        if (make_plan(q, ladder[i], q->asked->direct, plan, NULL) != APR_OK) continue;
        if (plan->fits) return ladder[i];
        apr_plan_close(plan);
    }
    return NULL;
}

static bool fits_directly(question *q)
{
    apr_plan plan;
    if (make_plan(q, q->asked->dtype, true, &plan, NULL) != APR_OK) return false;
    const bool fits = plan.fits;
    apr_plan_close(&plan);
    return fits;
}

static void plan_json(apr_json_text *json, const apr_plan *plan)
{
    apr_json_bool(json, "fits", plan->fits);
    apr_json_int(json, "ctx", plan->n_ctx);
    apr_json_int(json, "batch", plan->n_batch);
    apr_json_int(json, "sequences", plan->n_sequences);
    apr_json_string(json, "kv", apr_dtypes[plan->kv_dtype].name, strlen(apr_dtypes[plan->kv_dtype].name));
    apr_json_uint(json, "budget_bytes", plan->budget_bytes);
    apr_json_uint(json, "device_bytes", plan->device_bytes);
    apr_json_uint(json, "host_bytes", plan->host_bytes);
    apr_json_uint(json, "short_bytes", plan->short_bytes);
    apr_json_int(json, "max_ctx", plan->max_ctx);
    if (plan->breaking >= 0) apr_json_string(json, "breaking", plan->lines[plan->breaking].key, strlen(plan->lines[plan->breaking].key));
    apr_json_open(json, "lines", '[');
    for (size_t i = 0; i < plan->n_lines; i++) {
        const apr_plan_line *const line = &plan->lines[i];
        apr_json_open(json, NULL, '{');
        apr_json_string(json, "id", line->key, strlen(line->key));
        apr_json_uint(json, "bytes", line->bytes);
        apr_json_string(json, "on", line->on == APR_ON_DEVICE ? "device" : "host", line->on == APR_ON_DEVICE ? 6 : 4);
        apr_json_string(json, "reason", line->reason, strlen(line->reason));
        apr_json_close(json, '}');
    }
    apr_json_close(json, ']');
}

/* "q4_k_m" as asked for; "types as stored", with what config.json says about them where nothing else does. */
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

/* "Qwen3_5ForConditionalGeneration": a language model with eyes or ears. */
static bool is_multimodal(const question *q)
{
    const char *const hf_class = q->source.hparams.hf_class;
    return hf_class != NULL && strstr(hf_class, "ForConditionalGeneration") != NULL;
}

static apr_status plan_text(const question *q, const char *path, const apr_plan *plan, apr_error *err)
{
    static const apr_column columns[] = {{"line", false}, {"size", true}, {"on", false}, {"why", false}};
    apr_table table;
    char size[APR_SMALL_TEXT], budget[APR_SMALL_TEXT], types[256];

    printf("%s: %s, %s, context %lld, batch %lld, %lld sequence%s, %s keys and values\n\n", path, q->program.architecture,
           types_text(q, types, sizeof types), (long long)plan->n_ctx, (long long)plan->n_batch, (long long)plan->n_sequences,
           plan->n_sequences == 1 ? "" : "s", apr_dtypes[plan->kv_dtype].name);
    apr_table_start(&table, columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < plan->n_lines; i++) {
        const apr_plan_line *const line = &plan->lines[i];
        apr_table_cell(&table, "%s", line->label);
        apr_table_cell(&table, "%s", apr_size_text(size, line->bytes));
        apr_table_cell(&table, "%s", line->on == APR_ON_DEVICE ? "device" : "host");
        apr_table_cell(&table, "%s", line->reason);
    }
    apr_table_cell(&table, "total");
    apr_table_cell(&table, "%s", apr_size_text(size, plan->judged == APR_ON_DEVICE ? plan->device_bytes : plan->host_bytes));
    apr_table_cell(&table, "%s", plan->judged == APR_ON_DEVICE ? "device" : "host");
    APR_TRY(apr_table_print(&table, stdout, 2, err));
    if (is_multimodal(q)) printf("\n  the plan is of the text part alone: towers for images or sound are not counted\n");
    if (q->is_guess) printf("\n  the context is that of %s, the card nearest in size; name yours with --gpu\n", q->gpu->label);
    if (plan->budget_bytes == 0) return APR_OK;
    apr_size_text(budget, plan->budget_bytes);
    if (plan->fits) printf("\nfits %s; the largest context that does: %lld\n", budget, (long long)plan->max_ctx);
    else
        printf("\ndoes not fit %s: %s too much, at '%s'\n", budget, apr_size_text(size, plan->short_bytes),
               plan->breaking >= 0 ? plan->lines[plan->breaking].label : "?");
    return APR_OK;
}

/* What would fit instead. */
static void advise(question *q, const apr_call *call, const apr_plan *plan)
{
    apr_json_text *const json = &call->answer->body;
    apr_plan other;
    const char *const type = best_fitting_type(q, &other);
    const bool without_copies = !q->asked->direct && fits_directly(q);

    if (call->answer->json) {
        if (type != NULL) apr_json_string(json, "best_type", type, strlen(type));
        else apr_json_null(json, "best_type");
        if (!q->asked->direct) apr_json_bool(json, "fits_without_copies", without_copies);
    } else {
        if (without_copies) printf("  without the FP16 copies it fits: with kernels that read packed weights, or decoding tile by tile\n");
        if (plan->max_ctx > 0) printf("  at this type, a context of %lld fits\n", (long long)plan->max_ctx);
        if (type != NULL) printf("  at this context, --dtype %s fits\n", type);
        if (plan->max_ctx == 0 && type == NULL && !without_copies)
            printf("  nothing here does: no context at this type, no type at this context\n");
    }
    if (type != NULL) apr_plan_close(&other);
}

static apr_status answer(question *q, const apr_call *call, apr_error *err)
{
    const char *const path = call->operands[0];
    apr_plan plan;

    APR_TRY(choose_device(q, err));
    APR_TRY(open_question(q, path, err));
    APR_TRY(make_plan(q, q->asked->dtype, q->asked->direct, &plan, err));
    apr_status status = APR_OK;
    if (call->answer->json) plan_json(&call->answer->body, &plan);
    else status = plan_text(q, path, &plan, err);
    if (status == APR_OK && !plan.fits) {
        advise(q, call, &plan);
        status = APR_E_NO;
    }
    apr_plan_close(&plan);
    return status;
}

static apr_status run(const apr_call *call, apr_error *err)
{
    question q = {.asked = call->options};

    if (q.asked->list_gpus) return list_gpus(call, err);
    if (call->n_operands != 1) return apr_fail(err, APR_E_USAGE, "name one MODEL: weights or a config.json; try 'aprplan --help'");
    const apr_status status = answer(&q, call, err);
    free(q.bytes);
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

int main(int argc, char **argv)
{
    static const apr_command commands[] = {
        {.operands = "MODEL",
         .max_operands = 1,
         .options = options,
         .options_bytes = sizeof(plan_options),
         .examples = examples,
         .run = run,
         .summary = "every byte a run will allocate, and whether it fits: exit 0 it does, 1 it does not"},
        {0},
    };
    static const apr_tool tool = {"aprplan", "plans memory for a model and a GPU, neither of which need be here", commands};
    return apr_cli_main(&tool, argc, argv);
}
