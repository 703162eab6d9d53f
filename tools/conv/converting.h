/* converting.h - what aprconv's verbs and aprquant share: options of the output, one run, its answer. */
#ifndef APR_TOOLS_CONVERTING_H
#define APR_TOOLS_CONVERTING_H

#include "convert/convert.h"
#include "kernels/host/codecs/levels.h"
#include "tools/cli/cli.h"
#include "tools/conv/allocating.h"
#include "tools/conv/encoder.h"
#include "tools/conv/lora_option.h"
#include "tools/conv/runs_option.h"

typedef struct apr_output_options {
    bool force, allow_loss, allow_incomplete;
    int profile;     /* apr_profile */
    int64_t threads; /* 0: all */
    int cpu;         /* 0: the best level that there is; otherwise 1 + apr_cpu_level */
    uint64_t shard_bytes;
    bool dry_run;
    bool saturate;
    const char *report;  /* path of a report: .html a page, else JSON; or NULL */
    const char *imatrix; /* path of one, or NULL: of verbs that have APR_IMATRIX_OPTION in their tables */
    apr_runs_options runs;
    apr_encoder_options encoder;
    apr_strings lora;
    const apr_allocate_request *allocate;        /* NULL: the recipe decides types */
    const struct apr_feedback_request *feedback; /* NULL: value by value. No option: whoever has it sets it */
} apr_output_options;

/* Rows of an option table; `type` is the command's struct and `member` its apr_output_options. */
#define APR_OUTPUT_OPTIONS(type, member)                                                                                                   \
    {"force",          'f', APR_OPTION_FLAG, NULL, NULL, "replace OUT where it exists (no other file)", APR_TO(type, member.force),        \
     .group = "Output"},                                                                                                                   \
        {"allow-loss",                                                                                                                     \
         0,                                                                                                                                \
         APR_OPTION_FLAG,                                                                                                                  \
         NULL,                                                                                                                             \
         NULL,                                                                                                                             \
         "write what OUT's format cannot say completely, too, and list what is lost",                                                      \
         APR_TO(type, member.allow_loss)},                                                                                                 \
        {"allow-incomplete",                                                                                                               \
         0,                                                                                                                                \
         APR_OPTION_FLAG,                                                                                                                  \
         NULL,                                                                                                                             \
         NULL,                                                                                                                             \
         "go on, with a warning, where tensors are missing or have other shapes than config.json says",                                    \
         APR_TO(type, member.allow_incomplete)},                                                                                           \
        {"profile",                                                                                                                        \
         0,                                                                                                                                \
         APR_OPTION_CHOICE,                                                                                                                \
         "default|aprender",                                                                                                               \
         "default",                                                                                                                        \
         "aprender: only what aprender and realizar load (.apr)",                                                                          \
         APR_TO(type, member.profile)},                                                                                                    \
        {"max-shard",                                                                                                                      \
         0,                                                                                                                                \
         APR_OPTION_SIZE,                                                                                                                  \
         "SIZE",                                                                                                                           \
         "5GB",                                                                                                                            \
         "largest .safetensors file of a directory",                                                                                       \
         APR_TO(type, member.shard_bytes),                                                                                                 \
         .min = APR_LEAST_SIZE},                                                                                                           \
        {"saturate",                                                                                                                       \
         0,                                                                                                                                \
         APR_OPTION_FLAG,                                                                                                                  \
         NULL,                                                                                                                             \
         NULL,                                                                                                                             \
         "values that the new type cannot hold become the largest that it can",                                                            \
         APR_TO(type, member.saturate)},                                                                                                   \
        {"dry-run", 'n', APR_OPTION_FLAG, NULL, NULL, "say what would be written, write nothing", APR_TO(type, member.dry_run)},           \
        {"report",                                                                                                                         \
         0,                                                                                                                                \
         APR_OPTION_STRING,                                                                                                                \
         "FILE",                                                                                                                           \
         NULL,                                                                                                                             \
         "write type, reason and error of every tensor as JSON, or as a page with pictures (.html); takes the place of an older report "   \
         "only",                                                                                                                           \
         APR_TO(type, member.report)},                                                                                                     \
        {"threads", 0, APR_OPTION_INT, "N", "0", "threads; 0: all", APR_TO(type, member.threads), .min = 0, .max = 4096, .group = "Host"}, \
    {                                                                                                                                      \
        "cpu", 0, APR_OPTION_CHOICE, "auto|" APR_CPU_LEVEL_NAMES, "auto",                                                                  \
            "the instructions to encode with on the host; auto: the best that it has; the bytes are the same", APR_TO(type, member.cpu),   \
            .group = "Host"                                                                                                                \
    }

#define APR_IMATRIX_OPTION(type, member)                                                                                              \
    {                                                                                                                                 \
        "imatrix", 0, APR_OPTION_STRING, "FILE", NULL,                                                                                \
            "importance of columns, as 'aprrun imatrix' or llama-imatrix makes it: encoders spare what matters", APR_TO(type, member) \
    }

/* What options of a table need: the last operand makes a folder; a device other than the host. For commands whose struct begins with an
 * apr_output_options. */
bool apr_writes_a_folder(const apr_call *call);
bool apr_encodes_on_a_gpu(const apr_call *call);

/* Opens IN, converts it to OUT (whose name decides the format), answers. expect: the format IN must have, or NONE. */
apr_status apr_run_conversion(const apr_call *call, const char *in, const char *out, apr_format expect, apr_format produce,
                              const apr_output_options *output, const apr_recipe_options *recipe, apr_error *err);

#endif
