/* convert_verbs.c - several names for one conversion; each fixes the input and output formats. */
#include "tools/verbs/convert/conversion.h"
#include "tools/verbs/verbs.h"

typedef struct verb_options {
    apr_output_options output;
    const char *to;
} verb_options;

static const apr_option options[] = {{"to", 0, APR_OPTION_STRING, "TYPE", NULL,
                                      "convert to another type ('aprquant --list' shows them); default: keep types",
                                      APR_TO(verb_options, to)},
                                     APR_LORA_OPTION(verb_options, output.lora, "the weights"),
                                     APR_OUTPUT_OPTIONS(verb_options, output),
                                     APR_RUNS_OPTIONS(verb_options, output.runs),
                                     {0}};

static apr_status run(const apr_call *call, apr_format expect, apr_format produce, apr_error *err)
{
    const verb_options *const o = call->options;
    const apr_recipe_options recipe = {.mixture = o->to}; /* NULL: keep types */
    return apr_run_conversion(call, call->operands[0], call->operands[1], expect, produce, &o->output, &recipe, err);
}

static const apr_need needs[] = {{"max-shard", "a folder as OUT", apr_writes_a_folder},
                                 {"mmproj", "a .gguf as OUT", apr_writes_a_gguf},
                                 APR_PAGE_NEEDS("--report FILE.html", apr_reports_as_a_page),
                                 {0}};

/* X(verb, input format, output format, operands, summary, first example) */
#define VERB_LIST(X)                                                                                                                     \
    X(gguf2apr, GGUF, APR, "IN.gguf OUT.apr", "GGUF to APR; of a split GGUF, give the first file",                                       \
      "aprconv gguf2apr model-Q4_K_M.gguf model.apr")                                                                                    \
    X(st2apr, SAFETENSORS, APR, "DIR OUT.apr", "a Hugging Face checkpoint to APR", "aprconv st2apr Qwen2.5-7B-Instruct model.apr")       \
    X(apr2gguf, APR, GGUF, "IN.apr OUT.gguf", "APR to GGUF; restores a converted GGUF byte for byte",                                    \
      "aprconv apr2gguf model.apr model.gguf")                                                                                           \
    X(apr2st, APR, SAFETENSORS, "IN.apr DIR", "APR to a Hugging Face checkpoint", "aprconv apr2st model.apr Qwen2.5-7B-Instruct")        \
    X(st2gguf, SAFETENSORS, GGUF, "DIR OUT.gguf", "a Hugging Face checkpoint to GGUF", "aprconv st2gguf Qwen2.5-7B-Instruct model.gguf") \
    X(gguf2st, GGUF, SAFETENSORS, "IN.gguf DIR", "GGUF to a Hugging Face checkpoint", "aprconv gguf2st model.gguf checkpoint/")          \
    X(gguf2gguf, GGUF, GGUF, "IN.gguf OUT.gguf", "GGUF to GGUF: join split files, or convert with --to",                                 \
      "aprconv gguf2gguf a-00001-of-00002.gguf a.gguf")                                                                                  \
    X(apr2apr, APR, APR, "IN.apr OUT.apr", "APR to APR", "aprconv apr2apr model.apr other.apr --to q8_0")                                \
    X(st2st, SAFETENSORS, SAFETENSORS, "DIR OUT", "a checkpoint to a checkpoint: change shards, or convert with --to",                   \
      "aprconv st2st --max-shard 2GB in/ out/")                                                                                          \
    X(convert, NONE, NONE, "IN OUT", "any format to any format; OUT's name decides its format", "aprconv convert model.gguf checkpoint/")

#define X(id, takes, makes, words, about, example)                                                                                      \
    static apr_status run_##id(const apr_call *call, apr_error *err) { return run(call, APR_FORMAT_##takes, APR_FORMAT_##makes, err); } \
    static const char *const examples_##id[] = {example, NULL};                                                                         \
    const apr_command apr_##id##_command = {.verb = #id,                                                                                \
                                            .operands = words,                                                                          \
                                            .min_operands = 2,                                                                          \
                                            .max_operands = 2,                                                                          \
                                            .summary = about,                                                                           \
                                            .options = options,                                                                         \
                                            .options_bytes = sizeof(verb_options),                                                      \
                                            .examples = examples_##id,                                                                  \
                                            .run = run_##id,                                                                            \
                                            .needs = needs};
VERB_LIST(X)
#undef X
