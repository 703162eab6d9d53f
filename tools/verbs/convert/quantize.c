/* quantize.c - aprquant: a recipe gives each tensor a type, one pass converts, a report shows the errors and sizes. */
#include "formats/packed/packed_layouts.h"
#include "tools/cli/type_words.h"
#include "tools/cli/values.h"
#include "tools/engine/device/device.h"
#include "tools/engine/heal/heal_run.h"
#include "tools/engine/quantize/ggml_rules.h"
#include "tools/report/text.h"
#include "tools/verbs/convert/conversion.h"
#include "tools/verbs/convert/out_name.h"
#include "tools/verbs/verbs.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- operands: IN OUT; IN OUT TYPE [THREADS], as llama-quantize takes them; IN TYPE --- */

typedef struct operands_read {
    const char *to;  /* the type: --to's (set by the caller), or that of an operand, or NULL */
    const char *out; /* for "IN TYPE": a name next to IN, in the arena */
    int64_t threads; /* 0: not given */
} operands_read;

static apr_status no_memory(apr_error *err) { return apr_no_memory(err, "a path"); }

static apr_status refuse_word(const apr_call *call, const char *text, const apr_type_word *word, apr_error *err)
{
    const char *const folders = apr_packed_is_type(text) ? ", except in a folder for servers (OUT/)" : "";

    if (word->kind == APR_TYPE_AMBIGUOUS) apr_fail(err, APR_E_USAGE, "%s is not a type%s; use %s", text, folders, word->why);
    else
        apr_fail(err, APR_E_USAGE,
                 "aprkit can read %s but not write it%s ('aprquant --list'); the smallest type that it writes for any model is q2_k (2.6 "
                 "bits)",
                 text, folders);
    return apr_try_change(APR_E_USAGE, call->typed, text, word->name, err);
}

/* Reads the operand that is a type, such as "q4_k_m", into *to. */
static apr_status read_type(const char *text, const apr_call *call, const char **to, apr_error *err)
{
    const apr_type_word word = apr_type_spelled(text);

    if (*to == NULL && word.kind != APR_TYPE_IS && apr_packed_is_type(text)) {
        *to = text; /* refused later where OUT is not a folder */
        return APR_OK;
    }
    if (*to != NULL && strcmp(*to, word.name != NULL ? word.name : "") != 0)
        return apr_fail(err, APR_E_USAGE, "--to %s and %s are two types: leave one of them out", *to, text);
    if (word.kind == APR_TYPE_REPLACED) fprintf(stderr, "note: %s means %s\n", apr_printable(text), word.name);
    if (word.kind == APR_TYPE_IS || word.kind == APR_TYPE_REPLACED) *to = word.name;
    if (word.kind == APR_TYPE_AMBIGUOUS || word.kind == APR_TYPE_READ_ONLY) return refuse_word(call, text, &word, err);
    if (word.kind == APR_TYPE_KEPT) {
        char *const argv[] = {"", "convert", (char *)call->operands[0], (char *)call->operands[1]};
        apr_fail(err, APR_E_USAGE, "%s: use aprconv to convert without changing types", text);
        return apr_try_instead(APR_E_USAGE, &(apr_typed){"aprconv", 4, argv}, NULL, 0, err);
    }
    return word.kind != APR_TYPE_UNKNOWN
               ? APR_OK
               : apr_fail(err, APR_E_USAGE, "aprquant cannot write '%s' ('aprquant --list' shows the types)", text);
}

/* llama.cpp's file type numbers, which llama-quantize also accepts. */
static const char *type_of_number(const char *text)
{
    static const char *const names[][2] = {
        {"0", "f32"},     {"1", "f16"},     {"2", "q4_0"},    {"3", "q4_1"},    {"7", "q8_0"},    {"8", "q5_0"},    {"9", "q5_1"},
        {"10", "q2_k"},   {"11", "q3_k_s"}, {"12", "q3_k_m"}, {"13", "q3_k_l"}, {"14", "q4_k_s"}, {"15", "q4_k_m"}, {"16", "q5_k"},
        {"17", "q5_k_m"}, {"18", "q6_k"},   {"21", "q2_k_s"}, {"25", "iq4_nl"}, {"30", "iq4_xs"}, {"32", "bf16"},   {"36", "tq1_0"},
        {"37", "tq2_0"},  {"38", "mxfp4"},  {"39", "nvfp4"},  {"40", "q1_0"},   {"41", "q2_0"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i][0], text) == 0) return names[i][1];
    return NULL;
}

static bool is_type(const char *text)
{
    const bool is_known = apr_type_spelled(text).kind != APR_TYPE_UNKNOWN || apr_packed_is_type(text);
    return strchr(text, '/') == NULL && access(text, F_OK) != 0 && is_known;
}

static apr_status set_default_out(operands_read *o, const char *in, const char *type, apr_arena *arena, apr_error *err)
{
    char *const out = apr_out_name_next_to(in, type);
    o->out = out != NULL ? apr_arena_copy(arena, out, strlen(out)) : NULL;
    free(out);
    return o->out != NULL ? APR_OK : no_memory(err);
}

/* Only IN was given: suggests an OUT if the type is known, else a type. */
static apr_status suggest_out(operands_read *o, const apr_call *call, bool has_rules, apr_arena *arena, apr_error *err)
{
    const char *const type = o->to != NULL ? o->to : "q4_k_m";

    APR_TRY(set_default_out(o, call->operands[0], type, arena, err));
    if (o->to != NULL || has_rules) {
        apr_fail(err, APR_E_USAGE, "OUT is missing");
        return apr_try_change(APR_E_USAGE, call->typed, NULL, o->out, err);
    }
    apr_fail(err, APR_E_USAGE, "a type is missing; q4_k_m is the usual choice ('aprquant --list' shows all)");
    return apr_try_change(APR_E_USAGE, call->typed, NULL, type, err);
}

/* "aprquant q4_k_m IN OUT": suggests the type as the last operand. */
static apr_status suggest_type_last(const apr_call *call, apr_error *err)
{
    const apr_change changes[] = {{.was = call->operands[0]}, {.is = call->operands[0]}};

    apr_fail(err, APR_E_USAGE, "%s is a type: give it after IN and OUT", call->operands[0]);
    return apr_try_instead(APR_E_USAGE, call->typed, changes, 2, err);
}

/* APR_E_USAGE with a suggested command if an operand is missing or unexpected. has_rules: --tensor or similar options make TYPE optional. */
static apr_status read_operands(operands_read *o, const apr_call *call, bool has_rules, apr_arena *arena, apr_error *err)
{
    const char *const *const operands = call->operands;
    const size_t n = call->n_operands;

    if (n == 0) return apr_fail(err, APR_E_USAGE, "give IN and OUT; try 'aprquant --help'");
    if (n == 1) return suggest_out(o, call, has_rules, arena, err);
    o->out = operands[1];
    if (is_type(operands[0])) return suggest_type_last(call, err);
    const bool has_threads = n == 3 && apr_parse_int(operands[2], &o->threads); /* "IN TYPE THREADS", also of llama-quantize */
    if ((n == 2 || has_threads) && o->to == NULL && !has_rules && is_type(operands[1])) {
        APR_TRY(read_type(operands[1], call, &o->to, err));
        return set_default_out(o, operands[0], o->to, arena, err);
    }
    o->threads = 0;
    if (n == 4 && (!apr_parse_int(operands[3], &o->threads) || o->threads < 0 || o->threads > 4096))
        return apr_fail(err, APR_E_USAGE, "unexpected argument '%s': only a number of threads may follow the type", operands[3]);
    const char *const by_number = n >= 3 && o->to == NULL ? type_of_number(operands[2]) : NULL;
    if (by_number != NULL) {
        fprintf(stderr, "note: %s means %s, by llama-quantize's numbers of types\n", operands[2], by_number);
        o->to = by_number;
        return APR_OK;
    }
    if (n >= 3 && apr_type_spelled(operands[2]).kind == APR_TYPE_UNKNOWN && !apr_packed_is_type(operands[2]))
        return apr_fail(err, APR_E_USAGE, "unexpected argument '%s'; try 'aprquant --help'", operands[2]);
    if (n >= 3) return read_type(operands[2], call, &o->to, err);
    if (o->to != NULL || has_rules) return APR_OK;
    apr_fail(err, APR_E_USAGE, "give a type with --to TYPE; 'aprquant --list' lists the types");
    const apr_change changes[] = {{.is = "q4_k_m"}};
    return apr_try_instead(APR_E_USAGE, call->typed, changes, 1, err);
}

/* --- the command --- */

typedef struct quant_options {
    apr_output_options output;
    const char *to;
    apr_strings tensors;
    bool allow_requantize;
    bool list;
    const char *calibration;
    int64_t window;
    apr_allocate_request allocate;
    int method;
    int64_t n_rounds;
    apr_feedback_request feedback;
    bool heal;
    const char *judge, *heal_text;
    apr_heal_request healing;
    const char *head_type, *embedding_type;
    bool pure, leaves_head;
    const char *layout;
    int64_t group;
} quant_options;

enum { METHOD_SEARCH, METHOD_LDLQ };

static const apr_option quant_table[] = {
    {"to", 't', APR_OPTION_STRING, "TYPE", NULL, "a type or mixture: q4_k_m, q4_k, q6_k, q8_0, mxfp4, fp8, f16, bf16, f32, ... (--list)",
     APR_TO(quant_options, to), .group = "What"},
    {"tensor", 0, APR_OPTION_LIST, "REGEX=TYPE", NULL, "this type for tensors whose name matches; the first match counts",
     APR_TO(quant_options, tensors)},
    {"layout", 0, APR_OPTION_STRING, "NAME", NULL,
     "tensors and config.json of a folder as servers load them: compressed-tensors, modelopt, fp8, gptq or awq (--list)",
     APR_TO(quant_options, layout)},
    {"group", 0, APR_OPTION_INT, "N", "0", "with --to int4: 128, 64 or 32 columns share a scale; 0: 128", APR_TO(quant_options, group),
     .min = 0, .max = 4096},
    {"allow-requantize", 0, APR_OPTION_FLAG, NULL, NULL, "also convert one quantized type to another; the errors of both add up",
     APR_TO(quant_options, allow_requantize)},
    APR_IMATRIX_OPTION(quant_options, output.imatrix),
    {"list", 0, APR_OPTION_FLAG, NULL, NULL, "list the types and mixtures", APR_TO(quant_options, list)},
    {"target-bpw", 0, APR_OPTION_REAL, "BITS", NULL, "choose each tensor's type so that weights take at most BITS bits on average",
     APR_TO(quant_options, allocate.bpw), .min = 1.0, .max = 32.0, .group = "Types by KL divergence"},
    {"target-size", 0, APR_OPTION_SIZE, "SIZE", NULL, "choose each tensor's type so that all tensors together take at most SIZE",
     APR_TO(quant_options, allocate.size), .min = 1},
    {"target-kld", 0, APR_OPTION_REAL, "X", NULL,
     "choose the smallest types whose predictions differ from the original's by a KL divergence of at most X",
     APR_TO(quant_options, allocate.kld), .min = 1e-9, .max = 1e3},
    {"target-tokens", 0, APR_OPTION_INT, "N", "4096",
     "try each type of each tensor on N tokens of the calibration text; as many more measure the result",
     APR_TO(quant_options, allocate.n_tokens), .min = 2, .max = 1e9},
    {"state", 0, APR_OPTION_STRING, "FILE", NULL, "keep the results of these trials in FILE, and reuse them in later runs",
     APR_TO(quant_options, allocate.state)},
    {"method", 'm', APR_OPTION_CHOICE, "search|ldlq", "search",
     "search: round each block on its own; ldlq: feed rounding errors forward, as GPTQ does, so that a matrix's outputs change least",
     APR_TO(quant_options, method), .group = "Method"},
    {"calibration", 0, APR_OPTION_STRING, "TEXT", NULL,
     "a text like those that the model will see, for targets and ldlq; without it, ldlq lets the model write one",
     APR_TO(quant_options, calibration)},
    {"window", 0, APR_OPTION_INT, "N", "0",
     "tokens of the calibration text per window; each starts with an empty context; 0: 512, with a target 256",
     APR_TO(quant_options, window), .min = 0, .max = 1e6},
    {"tokens", 0, APR_OPTION_INT, "N", "0", "use at most N tokens of the calibration text; 0: all, or 32768 of the model's own",
     APR_TO(quant_options, feedback.n_tokens), .min = 0, .max = 1e12},
    {"sequential", 0, APR_OPTION_FLAG, NULL, NULL,
     "calibrate each layer with the layers before it already quantized; takes one pass per layer",
     APR_TO(quant_options, feedback.sequential)},
    {"loss-weighted", 0, APR_OPTION_FLAG, NULL, NULL,
     "ldlq, an experiment: each token of the calibration text counts by how much the loss depends on it; one backward pass on the CPU",
     APR_TO(quant_options, feedback.loss_weighted)},
    {"calibration-memory", 0, APR_OPTION_SIZE, "SIZE", NULL,
     "memory for sums of inputs; more memory means fewer passes over the text; without it 2 GiB, on a GPU all that is free",
     APR_TO(quant_options, feedback.memory_bytes), .min = APR_MIN_SIZE},
    {"damping", 0, APR_OPTION_REAL, "X", "0.01", "added to the diagonal of the Hessian (sums of inputs), as a share of its mean",
     APR_TO(quant_options, feedback.options.damping), .min = 1e-6, .max = 10},
    {"rounds", 0, APR_OPTION_INT, "N", "4", "ldlq: rounds that improve codes and scales once more after the error feedback",
     APR_TO(quant_options, n_rounds), .min = 0, .max = 100},
    {"heal", 0, APR_OPTION_FLAG, NULL, NULL,
     "after ldlq, train codes, scales, gains and biases on the divergence from IN, in the same bytes; exit 1 and no change if it does not "
     "help",
     APR_TO(quant_options, heal), .group = "Healing"},
    {"judge", 0, APR_OPTION_STRING, "TEXT", NULL,
     "heal: a text of another kind than the calibration's, on which the result must be better; without it the model writes one",
     APR_TO(quant_options, judge)},
    {"heal-text", 0, APR_OPTION_STRING, "TEXT", NULL,
     "heal: a text to train on, in turn with one that the model writes; without it that of --calibration",
     APR_TO(quant_options, heal_text)},
    {"heal-steps", 0, APR_OPTION_INT, "N", "200", "heal: steps of training", APR_TO(quant_options, healing.n_steps), .min = 1, .max = 1e6},
    {"heal-tokens", 0, APR_OPTION_INT, "N", "0", "heal: tokens of a step, in windows of --window (256 without it); 0: 512, on a GPU 16384",
     APR_TO(quant_options, healing.n_tokens), .min = 0, .max = 1e8},
    {"heal-rate", 0, APR_OPTION_REAL, "X", "1", "heal: multiplies the learning rates", APR_TO(quant_options, healing.rate), .min = 1e-6,
     .max = 1e35},
    {"pure", 0, APR_OPTION_FLAG, NULL, NULL, "all matrices but the head in one type: q4_k for q4_k_m", APR_TO(quant_options, pure),
     .group = "As in llama-quantize"},
    {"output-tensor-type", 0, APR_OPTION_STRING, "TYPE", NULL, "type of the output head, or of an embedding that is also the head",
     APR_TO(quant_options, head_type)},
    {"token-embedding-type", 0, APR_OPTION_STRING, "TYPE", NULL, "type of the token embeddings", APR_TO(quant_options, embedding_type)},
    {"leave-output-tensor", 0, APR_OPTION_FLAG, NULL, NULL, "keep the type of the output head", APR_TO(quant_options, leaves_head)},
    APR_LORA_OPTION(quant_options, output.lora, "the weights"),
    APR_OUTPUT_OPTIONS(quant_options, output),
    APR_RUNS_OPTIONS(quant_options, output.runs),
    {"device", 0, APR_OPTION_CHOICE, "host|cuda|auto", "auto",
     "where to encode; auto: on a GPU if there is one and the model is large enough; the result is the same; cuda: targets also try types "
     "there, and --heal evaluates there",
     APR_TO(quant_options, output.encoder.device), .group = "Device"},
    {"gpu", 0, APR_OPTION_STRING, "N,...|all", "0",
     "GPUs to encode on, by CUDA's numbers; a GPU that is given twice gets twice the workers", APR_TO(quant_options, output.encoder.gpus)},
    {0},
};

static const char *const examples[] = {
    "aprquant Qwen3-8B/ qwen3-8b.gguf q4_k_m                 # or, next to the folder: aprquant Qwen3-8B/ q4_k_m",
    "aprquant --to q4_k_m Qwen2.5-7B-Instruct qwen.apr       # a checkpoint to quantized APR in one pass",
    "aprquant --to mxfp4 model.gguf model-mxfp4.gguf",
    "aprquant --to q4_k_m --tensor 'down_proj=q6_k' model.apr better.apr",
    "aprquant --to fp8 --dry-run checkpoint/ out.apr         # shows types and sizes, writes nothing",
    "aprquant --to q4_k_m --imatrix model.imatrix.gguf model-f16.gguf out.gguf   # made by aprrun imatrix",
    "aprquant --to nvfp4 --layout compressed-tensors checkpoint/ out/ # a folder that vLLM and SGLang load",
    "aprquant --to q8_0 --lora adapter/ checkpoint/ out.gguf # with a LoRA adapter merged in",
    "aprquant --target-bpw 4.8 --calibration text.txt --state damages.json checkpoint/ out.gguf # each tensor's type by its measured "
    "effect",
    "aprquant --to q4_k_m --method ldlq --calibration text.txt checkpoint/ out.gguf # with error feedback, as GPTQ",
    "aprquant --to q4_k_m --method ldlq checkpoint/ out.gguf # the same, calibrated on the model's own text",
    "aprquant --to q4_k_m --method ldlq --heal --heal-text text.txt --judge other.txt checkpoint/ out.gguf # then trained in the same "
    "bytes",
    "aprquant --to q4_k_m --resume checkpoint/ out.gguf      # continues where the same command was interrupted",
    "aprquant --to q4_k_m --part 3/8 checkpoint/ out.gguf    # one of 8 runs, on any host; then once with --finish",
    NULL,
};

/* "REGEX=TYPE": the type is after the last '='. */
static apr_status parse_override(const apr_call *call, const char *text, apr_recipe_override *override, apr_arena *arena, apr_error *err)
{
    const char *const equals = strrchr(text, '=');
    if (equals == NULL || equals == text) {
        char better[256];
        snprintf(better, sizeof better, "%s=q6_k", text + (equals == text));
        apr_fail(err, APR_E_USAGE, "--tensor '%s': give REGEX=TYPE, as in 'down_proj=q6_k'", text);
        return apr_try_change(APR_E_USAGE, call->typed, text, better, err);
    }
    override->to = apr_dtype_by_name(equals + 1);
    if (override->to == APR_DTYPE_COUNT)
        return apr_fail(err, APR_E_USAGE, "--tensor '%s': '%s' is not a tensor type ('aprquant --list' shows them)", text, equals + 1);
    override->regex = apr_arena_copy(arena, text, (size_t)(equals - text));
    return override->regex != NULL ? APR_OK : apr_no_memory(err, "an option");
}

/* Lists types that are not also the name of a mixture. is_written: those that can be encoded; else those that can only be decoded. */
static void list_dtypes(const apr_call *call, const char *key, const char *title, bool is_written)
{
    apr_json_text *const json = &call->answer->body;
    int n = 0;

    if (call->answer->json) apr_json_open(json, key, '[');
    else printf("\n  %s:", title);
    for (int d = 0; d < APR_DTYPE_COUNT; d++) {
        const char *const name = apr_dtypes[d].name;
        const apr_mixture_name *m = apr_mixture_names;
        while (m->name != NULL && strcmp(m->name, name) != 0) m++;
        if (m->name != NULL || !apr_dtype_is_weights((apr_dtype)d) || !apr_can_decode((apr_dtype)d)) continue;
        if (apr_can_encode((apr_dtype)d) != is_written) continue;
        if (call->answer->json) apr_json_string(json, NULL, name, strlen(name));
        else printf("%s%s", n++ == 0 ? " " : ", ", name);
    }
    if (call->answer->json) apr_json_close(json, ']');
    else printf("\n");
}

/* The layouts that a folder's matrices can have, as "TYPE as LAYOUT". */
static void list_layouts(const apr_call *call)
{
    apr_json_text *const json = &call->answer->body;

    if (call->answer->json) apr_json_open(json, "layouts", '[');
    else printf("\n  in folders, with --to TYPE --layout NAME; the first of a type is its usual one:\n");
    for (const apr_packed_layout *l = apr_packed_layouts; l->type != NULL; l++) {
        if (!call->answer->json) {
            printf("  %-8s %-18s %s\n", l->type, l->name, l->about);
            continue;
        }
        apr_json_open(json, NULL, '{');
        apr_json_cstring(json, "type", l->type);
        apr_json_cstring(json, "layout", l->name);
        apr_json_cstring(json, "about", l->about);
        apr_json_close(json, '}');
    }
    if (call->answer->json) apr_json_close(json, ']');
}

static apr_status list_types(const apr_call *call)
{
    apr_json_text *const json = &call->answer->body;
    if (call->answer->json) apr_json_open(json, "types", '{');
    for (const apr_mixture_name *m = apr_mixture_names; m->name != NULL; m++) {
        if (call->answer->json) apr_json_string(json, m->name, m->about, strlen(m->about));
        else printf("  %-8s %s\n", m->name, m->about);
    }
    if (call->answer->json) apr_json_close(json, '}');
    list_layouts(call);
    list_dtypes(call, "written", "also written, with --tensor", true);
    list_dtypes(call, "read_only", "read, not written", false);
    return APR_OK;
}

/* An option of one method is refused with the other, where it would have no effect. */
static apr_status check_method(const quant_options *o, apr_error *err)
{
    if (o->method != METHOD_LDLQ && o->feedback.sequential) return apr_fail(err, APR_E_USAGE, "--sequential is for --method ldlq");
    if (o->method != METHOD_LDLQ && o->calibration != NULL && !apr_allocate_is_asked(&o->allocate))
        return apr_fail(err, APR_E_USAGE, "--calibration is for --method ldlq, --target-bpw, --target-size or --target-kld");
    if (o->feedback.sequential && (o->output.runs.resume || o->output.runs.part != NULL || o->output.runs.finish))
        return apr_fail(err, APR_E_USAGE,
                        "--sequential converts all tensors in one run, layer by layer: leave out --resume, --part and --finish");
    if (o->feedback.loss_weighted && o->output.encoder.device == APR_DEVICE_CUDA)
        return apr_fail(err, APR_E_USAGE, "--loss-weighted runs on the CPU: leave out --device cuda");
    return APR_OK;
}

static bool heals(const apr_call *call) { return ((const quant_options *)call->options)->heal; }
static bool has_feedback(const apr_call *call) { return ((const quant_options *)call->options)->method == METHOD_LDLQ; }
static bool has_target(const apr_call *call) { return apr_allocate_is_asked(&((const quant_options *)call->options)->allocate); }
static bool reads_a_text(const apr_call *call) { return has_feedback(call) || has_target(call); }

static const apr_need needs[] = {
    APR_PAGE_NEEDS("--report FILE.html", apr_reports_as_a_page),
    {"window", "--method ldlq, --target-bpw, --target-size or --target-kld", reads_a_text},
    {"tokens", "--method ldlq", has_feedback},
    {"calibration-memory", "--method ldlq", has_feedback},
    {"damping", "--method ldlq", has_feedback},
    {"loss-weighted", "--method ldlq", has_feedback},
    {"rounds", "--method ldlq", has_feedback},
    {"heal", "--method ldlq", has_feedback},
    {"judge", "--heal", heals},
    {"heal-text", "--heal", heals},
    {"heal-steps", "--heal", heals},
    {"heal-tokens", "--heal", heals},
    {"heal-rate", "--heal", heals},
    {"target-tokens", "--target-bpw, --target-size or --target-kld", has_target},
    {"max-shard", "a folder for OUT", apr_writes_a_folder},
    {"mmproj", "a .gguf for OUT", apr_writes_a_gguf},
    {"layout", "a folder for OUT", apr_writes_a_folder},
    {"group", "a folder for OUT", apr_writes_a_folder},
    {"gpu", "--device cuda or auto", apr_encodes_on_a_gpu},
    {0},
};

static apr_status add_ggml_rules(const quant_options *o, const char *path, apr_recipe_options *recipe, apr_recipe_override *overrides,
                                 apr_arena *arena, apr_error *err)
{
    const apr_ggml_rules rules = {o->head_type, o->embedding_type, o->pure, o->leaves_head};
    apr_ggml_notes notes = {.n = 0};

    const apr_status status = apr_ggml_rules_add(&rules, path, recipe, overrides, &notes, arena, err);
    for (size_t i = 0; i < notes.n; i++) fprintf(stderr, "note: %s\n", apr_printable(notes.texts[i]));
    return status;
}

/* --layout, or the usual layout of a type where OUT is a folder. recipe->packed points to *target, or stays NULL. */
static apr_status choose_layout(const apr_call *call, apr_recipe_options *recipe, apr_packed_target *target, apr_error *err)
{
    const quant_options *const o = call->options;
    const char *const to = recipe->mixture;
    const bool is_type = to != NULL && apr_packed_is_type(to);

    if (o->layout != NULL && to == NULL)
        return apr_fail(err, APR_E_USAGE, "--layout %s: give its type with --to ('aprquant --list')", o->layout);
    const apr_type_word word = is_type ? apr_type_spelled(to) : (apr_type_word){0};
    if ((word.kind == APR_TYPE_AMBIGUOUS || word.kind == APR_TYPE_READ_ONLY) && !apr_writes_a_folder(call))
        return refuse_word(call, to, &word, err);
    if (o->group != 0 && !is_type) return apr_fail(err, APR_E_USAGE, "--group does nothing without --to int4");
    if (o->layout == NULL && (!is_type || !apr_writes_a_folder(call))) return APR_OK;
    APR_TRY(apr_packed_target_find(target, to, o->layout, o->group, err));
    if (target->layout->by_row) return APR_OK;
    if (o->method == METHOD_LDLQ || has_target(call))
        return apr_fail(err, APR_E_USAGE, "%s as %s rounds each group on its own: leave out --method ldlq and --target-*", to,
                        target->layout->name);
    recipe->packed = target;
    return APR_OK;
}

/* Healing changes a finished file as a whole. */
static apr_status check_heal(const apr_call *call, apr_error *err)
{
    const quant_options *const o = call->options;

    if (!o->heal) return APR_OK;
    if (o->output.runs.part != NULL || o->output.runs.finish)
        return apr_fail(err, APR_E_USAGE,
                        "--heal trains all tensors in one run: leave out --part and --finish (--resume continues an interrupted run)");
    if (apr_writes_a_folder(call)) return apr_fail(err, APR_E_USAGE, "--heal writes one file: give an OUT that ends in .gguf or .apr");
    return APR_OK;
}

/* The texts of options: of the calibration; of a healing, to train on and to judge by. */
enum { CALIBRATION, HEALING, JUDGE, N_TEXTS };

/* NULL where the option was not given. */
static const apr_text_input *text_of(const apr_text_input *texts, int i) { return texts[i].path != NULL ? &texts[i] : NULL; }

/* A model gets better on the text that it is trained on, and this says little about others. */
static apr_status check_judge(const apr_text_input *texts, apr_error *err)
{
    const apr_text_input *const judge = &texts[JUDGE];

    for (int i = 0; i < JUDGE && judge->path != NULL; i++)
        if (texts[i].path != NULL && texts[i].n_bytes == judge->n_bytes && memcmp(texts[i].bytes, judge->bytes, judge->n_bytes) == 0)
            return apr_fail(err, APR_E_USAGE, "--judge %s is the same text as %s: give a text from another source", judge->path,
                            i == HEALING ? "--heal-text" : "--calibration");
    return APR_OK;
}

static apr_status quantize(const apr_call *call, const char *to, const apr_text_input *texts, apr_arena *arena, apr_error *err)
{
    const quant_options *const o = call->options;
    apr_recipe_options recipe = {.mixture = to, .n_overrides = o->tensors.n_items, .allow_requantize = o->allow_requantize};
    apr_recipe_override *const overrides = apr_arena_array(arena, o->tensors.n_items + APR_GGML_RULES, sizeof *overrides);

    if (overrides == NULL) return apr_no_memory(err, "the options");
    for (size_t i = 0; i < o->tensors.n_items; i++) APR_TRY(parse_override(call, o->tensors.items[i], &overrides[i], arena, err));
    recipe.overrides = overrides;
    APR_TRY(add_ggml_rules(o, call->operands[0], &recipe, overrides, arena, err));
    apr_packed_target packed;
    APR_TRY(choose_layout(call, &recipe, &packed, err));
    apr_output_options output = o->output;
    apr_allocate_request allocate = o->allocate;
    if (apr_allocate_is_asked(&allocate)) {
        allocate.text = text_of(texts, CALIBRATION);
        allocate.window = o->window > 0 ? o->window : 256;
        output.allocate = &allocate;
        if (recipe.mixture == NULL) recipe.mixture = "q4_k_m"; /* for tensors whose type is not chosen */
    }
    apr_feedback_request feedback = o->feedback;
    feedback.calibration = text_of(texts, CALIBRATION);
    feedback.plan_only = o->output.dry_run;
    feedback.window = o->window > 0 ? o->window : 512;
    feedback.options.rounds = o->n_rounds > 0 ? (int)o->n_rounds : -1;
    if (o->method == METHOD_LDLQ) output.feedback = &feedback;
    if (feedback.loss_weighted) output.encoder.device = APR_DEVICE_HOST;
    apr_heal_request healing = o->healing;
    healing.text = text_of(texts, HEALING);
    healing.judge = text_of(texts, JUDGE);
    healing.window = o->window > 0 ? o->window : 256;
    if (o->heal) output.heal = &healing;
    APR_TRY(check_heal(call, err));
    APR_TRY(check_judge(texts, err));
    return apr_run_conversion(call, call->operands[0], call->operands[1], APR_FORMAT_NONE, APR_FORMAT_NONE, &output, &recipe, err);
}

static apr_status run_named(const apr_call *call, const operands_read *named, apr_arena *arena, apr_error *err)
{
    const quant_options *const o = call->options;
    const char *const operands[] = {call->operands[0], named->out};
    apr_call now = *call;
    const char *const paths[N_TEXTS] = {o->calibration, o->heal_text, o->judge};
    apr_text_input texts[N_TEXTS] = {0};
    apr_status status = APR_OK;

    if (named->threads > 0) omp_set_num_threads((int)named->threads);
    now.operands = operands;
    now.n_operands = 2;
    for (int i = 0; i < N_TEXTS && status == APR_OK; i++)
        if (paths[i] != NULL) status = apr_text_input_open(&texts[i], paths[i], err);
    if (status == APR_OK) status = quantize(&now, named->to, texts, arena, err);
    for (int i = 0; i < N_TEXTS; i++) apr_text_input_close(&texts[i]);
    return status;
}

static apr_status run(const apr_call *call, apr_error *err)
{
    const quant_options *const o = call->options;
    const bool has_rules = o->tensors.n_items > 0 || o->head_type != NULL || o->embedding_type != NULL || has_target(call);
    operands_read named = {.to = o->to};
    apr_arena arena = {0};

    if (o->list) return list_types(call);
    APR_TRY(apr_allocate_check(&o->allocate, o->calibration != NULL, err));
    apr_status status = read_operands(&named, call, has_rules, &arena, err);
    if (status == APR_OK) status = check_method(o, err);
    if (status == APR_OK) status = run_named(call, &named, &arena, err);
    apr_arena_close(&arena);
    return status;
}

const apr_command apr_quantize_command = {.operands = "IN OUT [TYPE [THREADS]]",
                                          .max_operands = 4,
                                          .first = "to tensor imatrix method resume force dry-run list",
                                          .options = quant_table,
                                          .options_bytes = sizeof(quant_options),
                                          .examples = examples,
                                          .run = run,
                                          .needs = needs,
                                          .summary = "quantize or dequantize a model: GGUF, safetensors or APR in, any of them out"};
