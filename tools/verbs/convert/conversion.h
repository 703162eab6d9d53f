/* conversion.h - one conversion, for aprconv's verbs and aprquant: output options, the run, its answer. */
#ifndef APR_VERBS_CONVERSION_H
#define APR_VERBS_CONVERSION_H

#include "convert/convert.h"
#include "kernels/host/codecs/levels.h"
#include "tools/cli/cli.h"
#include "tools/engine/device/encoder.h"
#include "tools/engine/quantize/allocate.h"
#include "tools/verbs/convert/lora_option.h"
#include "tools/verbs/page.h"

/* An output that is made by several runs (formats/files/resume.h). */
typedef struct apr_runs_options {
    bool resume, finish;
    const char *part; /* "K/N", or NULL */
} apr_runs_options;

#define APR_RUNS_OPTIONS(type, member)                                                                                           \
    {"resume",                                                                                                                   \
     0,                                                                                                                          \
     APR_OPTION_FLAG,                                                                                                            \
     NULL,                                                                                                                       \
     NULL,                                                                                                                       \
     "keep finished work in OUT.resume if the run is interrupted, and continue from it",                                         \
     APR_TO(type, member.resume),                                                                                                \
     .group = "Several runs"},                                                                                                   \
        {"part",                                                                                                                 \
         0,                                                                                                                      \
         APR_OPTION_STRING,                                                                                                      \
         "K/N",                                                                                                                  \
         NULL,                                                                                                                   \
         "make the K-th of N parts in OUT.resume, on any host that shares the folder; can be resumed",                           \
         APR_TO(type, member.part)},                                                                                             \
    {                                                                                                                            \
        "finish", 0, APR_OPTION_FLAG, NULL, NULL, "check that all parts are there and complete OUT", APR_TO(type, member.finish) \
    }

typedef struct apr_output_options {
    bool force, allow_loss, allow_incomplete;
    int profile;     /* apr_profile */
    int64_t threads; /* 0: all */
    int cpu;         /* 0: the best level of this CPU; otherwise 1 + apr_cpu_level */
    uint64_t shard_bytes;
    bool dry_run;
    bool saturate;
    const char *report; /* path of a report: HTML if it ends in .html, else JSON; or NULL */
    apr_page_options page;
    const char *imatrix; /* path, or NULL; only of commands with APR_IMATRIX_OPTION */
    const char *mmproj;  /* path of the file for the vision tower, or NULL */
    apr_runs_options runs;
    apr_encoder_options encoder;
    apr_strings lora;
    const apr_allocate_request *allocate;        /* NULL: the recipe decides types */
    const struct apr_feedback_request *feedback; /* NULL: no error feedback. Not filled by an option; the command sets it */
    const struct apr_heal_request *heal;         /* NULL: no healing. The same */
} apr_output_options;

/* Rows of an option table; `type` is the command's struct and `member` its apr_output_options. */
#define APR_OUTPUT_OPTIONS(type, member)                                                                                                \
    {"force",          'f', APR_OPTION_FLAG, NULL, NULL, "replace OUT if it exists (never another file)", APR_TO(type, member.force),   \
     .group = "Output"},                                                                                                                \
        {"allow-loss",                                                                                                                  \
         0,                                                                                                                             \
         APR_OPTION_FLAG,                                                                                                               \
         NULL,                                                                                                                          \
         NULL,                                                                                                                          \
         "convert even if OUT's format cannot hold everything, and list what is lost",                                                  \
         APR_TO(type, member.allow_loss)},                                                                                              \
        {"allow-incomplete",                                                                                                            \
         0,                                                                                                                             \
         APR_OPTION_FLAG,                                                                                                               \
         NULL,                                                                                                                          \
         NULL,                                                                                                                          \
         "only warn if tensors are missing or have other shapes than config.json says",                                                 \
         APR_TO(type, member.allow_incomplete)},                                                                                        \
        {"profile",                                                                                                                     \
         0,                                                                                                                             \
         APR_OPTION_CHOICE,                                                                                                             \
         "default|aprender",                                                                                                            \
         "default",                                                                                                                     \
         "aprender: write only what aprender and realizar can load (.apr)",                                                             \
         APR_TO(type, member.profile)},                                                                                                 \
        {"max-shard",                                                                                                                   \
         0,                                                                                                                             \
         APR_OPTION_SIZE,                                                                                                               \
         "SIZE",                                                                                                                        \
         "5GB",                                                                                                                         \
         "maximum size of each .safetensors file of a checkpoint",                                                                      \
         APR_TO(type, member.shard_bytes),                                                                                              \
         .min = APR_MIN_SIZE},                                                                                                          \
        {"mmproj",                                                                                                                      \
         0,                                                                                                                             \
         APR_OPTION_STRING,                                                                                                             \
         "FILE.gguf",                                                                                                                   \
         NULL,                                                                                                                          \
         "also write the vision tower, to FILE.gguf: the second file that llama.cpp reads images with",                                 \
         APR_TO(type, member.mmproj)},                                                                                                  \
        {"saturate",                                                                                                                    \
         0,                                                                                                                             \
         APR_OPTION_FLAG,                                                                                                               \
         NULL,                                                                                                                          \
         NULL,                                                                                                                          \
         "clamp values that are too large for the new type to its largest value",                                                       \
         APR_TO(type, member.saturate)},                                                                                                \
        {"dry-run", 'n', APR_OPTION_FLAG, NULL, NULL, "show what would be written, write nothing", APR_TO(type, member.dry_run)},       \
        {"report",                                                                                                                      \
         0,                                                                                                                             \
         APR_OPTION_STRING,                                                                                                             \
         "FILE",                                                                                                                        \
         NULL,                                                                                                                          \
         "write type, reason and error of every tensor to FILE, as JSON or as HTML with charts (.html); replaces only an older report", \
         APR_TO(type, member.report)},                                                                                                  \
        APR_PAGE_OPTIONS(type, member.page),                                                                                            \
        {"threads", 0,           APR_OPTION_INT, "N", "0", "CPU threads; 0: all", APR_TO(type, member.threads),                         \
         .min = 0,  .max = 4096, .group = "Host"},                                                                                      \
    {                                                                                                                                   \
        "cpu", 0, APR_OPTION_CHOICE, "auto|" APR_CPU_LEVEL_NAMES, "auto",                                                               \
            "instruction set for encoding on the host; auto: the best available; the result is the same", APR_TO(type, member.cpu),     \
            .group = "Host"                                                                                                             \
    }

#define APR_IMATRIX_OPTION(type, member)                                                                                                 \
    {                                                                                                                                    \
        "imatrix", 0, APR_OPTION_STRING, "FILE", NULL,                                                                                   \
            "importance of columns, made by 'aprrun imatrix' or llama-imatrix: reduces the error where it matters", APR_TO(type, member) \
    }

/* Conditions for apr_need: OUT is a folder, or a GGUF; the device is not the host; --report is a page. For commands whose options begin with an apr_output_options. */
bool apr_writes_a_folder(const apr_call *call);
bool apr_writes_a_gguf(const apr_call *call);
bool apr_encodes_on_a_gpu(const apr_call *call);
bool apr_reports_as_a_page(const apr_call *call);

/* Opens IN, converts it to OUT, and prints the answer. OUT's name decides its format. expect, produce: the format that IN must have and
 * that OUT must get, or NONE for any. */
apr_status apr_run_conversion(const apr_call *call, const char *in, const char *out, apr_format expect, apr_format produce,
                              const apr_output_options *output, const apr_recipe_options *recipe, apr_error *err);

#endif
