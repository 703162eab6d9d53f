/* running.h - opens a model for a run by the options of a verb, and prints what the run takes. */
#ifndef APR_VERBS_RUNNING_H
#define APR_VERBS_RUNNING_H

#include "tools/cli/cli.h"
#include "tools/engine/library/handles.h"
#include "tools/engine/run/running.h"
#include "tools/verbs/convert/lora_option.h"

/* Rows of an option table; `member` is an apr_device_options. */
#define APR_DEVICE_OPTIONS(type, member)                                                                                             \
    {"device",                                                                                                                       \
     0,                                                                                                                              \
     APR_OPTION_CHOICE,                                                                                                              \
     APR_DEVICE_NAMES,                                                                                                               \
     "host",                                                                                                                         \
     "where to run; auto: on the GPU, or on the host if that fails; ref: on the host, with the plain reference code",                \
     APR_TO(type, member.device),                                                                                                    \
     .group = "Device"},                                                                                                             \
        {"gpu", 0, APR_OPTION_INT, "N", "0", "which GPU, by its CUDA ordinal", APR_TO(type, member.ordinal), .min = 0, .max = 1024}, \
        {"gpus",                                                                                                                     \
         0,                                                                                                                          \
         APR_OPTION_STRING,                                                                                                          \
         "N",                                                                                                                        \
         NULL,                                                                                                                       \
         "split the layers over N GPUs, over 'all', or over a list such as 0,2",                                                     \
         APR_TO(type, member.gpus)},                                                                                                 \
        {"offload",                                                                                                                  \
         0,                                                                                                                          \
         APR_OPTION_STRING,                                                                                                          \
         APR_OFFLOAD_NAMES,                                                                                                          \
         NULL,                                                                                                                       \
         "compute on the host: the experts (of all layers, or of N), or the first N layers (layers=all: all of them)",               \
         APR_TO(type, member.offload)},                                                                                              \
        {"direct",                                                                                                                   \
         0,                                                                                                                          \
         APR_OPTION_FLAG,                                                                                                            \
         NULL,                                                                                                                       \
         "yes",                                                                                                                      \
         "do not read packed weights directly: make FP16 copies, or decode tile by tile",                                            \
         APR_TO(type, member.direct)},                                                                                               \
        {"exact",                                                                                                                    \
         0,                                                                                                                          \
         APR_OPTION_FLAG,                                                                                                            \
         NULL,                                                                                                                       \
         NULL,                                                                                                                       \
         "do not round the inputs of matrix products: slower, for comparisons",                                                      \
         APR_TO(type, member.exact)},                                                                                                \
        {"replay",                                                                                                                   \
         0,                                                                                                                          \
         APR_OPTION_FLAG,                                                                                                            \
         NULL,                                                                                                                       \
         "yes",                                                                                                                      \
         "launch the kernels of a decoded token one by one, not as a CUDA graph",                                                    \
         APR_TO(type, member.replay)},                                                                                               \
        {"fuse",                                                                                                                     \
         0,                                                                                                                          \
         APR_OPTION_FLAG,                                                                                                            \
         NULL,                                                                                                                       \
         "yes",                                                                                                                      \
         "do not fuse the operations between matrix products into them on the GPU",                                                  \
         APR_TO(type, member.fuse)},                                                                                                 \
        {"fp8",                                                                                                                      \
         0,                                                                                                                          \
         APR_OPTION_CHOICE,                                                                                                          \
         "auto|on|off",                                                                                                              \
         "auto",                                                                                                                     \
         "on: multiply FP8 weights in FP8, which also rounds their inputs; auto, off: decode them first",                            \
         APR_TO(type, member.fp8)},                                                                                                  \
        {"headroom",                                                                                                                 \
         0,                                                                                                                          \
         APR_OPTION_SIZE,                                                                                                            \
         "SIZE",                                                                                                                     \
         "1G",                                                                                                                       \
         "memory of the GPU to leave free",                                                                                          \
         APR_TO(type, member.headroom),                                                                                              \
         .min = APR_MIN_SIZE,                                                                                                        \
         .or_none = true},                                                                                                           \
    {                                                                                                                                \
        "force", 0, APR_OPTION_FLAG, NULL, NULL, "run on the GPU even when the plan does not fit", APR_TO(type, member.force)        \
    }

/* Rows of a table of needs, for options that need a GPU. `holds` says whether the run may use one. */
#define APR_DEVICE_NEEDS(holds)                                                                                                          \
    {"gpu", "--device cuda or auto", holds}, {"direct", "--device cuda or auto", holds}, {"replay", "--device cuda or auto", holds},     \
        {"fuse", "--device cuda or auto", holds}, {"fp8", "--device cuda or auto", holds}, {"headroom", "--device cuda or auto", holds}, \
    {                                                                                                                                    \
        "force", "--device cuda or auto", holds                                                                                          \
    }

typedef struct apr_run_options {
    int64_t ctx, batch, threads;
    bool shorter_ctx; /* see apr_session_options; for a context that a verb chose */
    int kv;           /* index of APR_KV_NAMES */
    uint64_t memory;  /* budget in bytes, 0: unlimited */
    bool stats;
    apr_device_options where;
    apr_strings lora; /* of verbs that have APR_LORA_OPTION in their tables */
} apr_run_options;

/* A verb's table has APR_RUN_OPTIONS, or its parts if --batch has another meaning as well. */
#define APR_RUN_OPTIONS(type, member, kv_default) \
    APR_CONTEXT_OPTION(type, member), APR_BATCH_OPTION(type, member), APR_RUN_MORE_OPTIONS(type, member, kv_default)
#define APR_CONTEXT_OPTION(type, member)                                                                                       \
    {                                                                                                                          \
        "ctx", 'c', APR_OPTION_INT, "N", "0", "tokens of context; 0: the model's own, at most 4096", APR_TO(type, member.ctx), \
            .min = 0, .max = 1e9, .group = "Run"                                                                               \
    }
#define APR_BATCH_HELP "prompt tokens evaluated at a time; 0: 512, or 2048 on a GPU with enough memory"
#define APR_BATCH_OPTION(type, member)                                                                                      \
    {                                                                                                                       \
        "batch", 'b', APR_OPTION_INT, "N", "0", APR_BATCH_HELP, APR_TO(type, member.batch), .min = 0, .max = APR_MOST_BATCH \
    }
#define APR_MOST_BATCH 1000000
#define APR_RUN_MORE_OPTIONS(type, member, kv_default)                                                                                \
    {"kv", 0, APR_OPTION_CHOICE, APR_KV_NAMES, kv_default, "type of the KV cache", APR_TO(type, member.kv)},                          \
        {"threads", 't', APR_OPTION_INT, "N", "0", "threads; 0: all", APR_TO(type, member.threads), .min = 0, .max = 4096},           \
        {"memory",           0, APR_OPTION_SIZE, "SIZE", NULL, "refuse to start if the plan needs more", APR_TO(type, member.memory), \
         .min = APR_MIN_SIZE},                                                                                                        \
        {"stats",                                                                                                                     \
         0,                                                                                                                           \
         APR_OPTION_FLAG,                                                                                                             \
         NULL,                                                                                                                        \
         NULL,                                                                                                                        \
         "print the plan, predicted and measured memory, and the speed",                                                              \
         APR_TO(type, member.stats)},                                                                                                 \
        APR_DEVICE_OPTIONS(type, member.where)

/* For commands whose options begin with an apr_run_options: will it run on a GPU? And the needs of these options. */
bool apr_runs_on_a_gpu(const apr_call *call);
extern const apr_need apr_run_needs[];

/* The same options for aprkit.h; hooks add what is not public there. */
aprkit_run_hooks apr_run_hooks(const apr_run_options *options, int64_t n_logits);
aprkit_session_options apr_run_session(const apr_run_options *options, const aprkit_run_hooks *hooks);
/* An aprkit_note_fn: prints a warning on stderr. */
void apr_show_note(void *user, const char *sentence);

/* A model with its session, through aprkit.h. Zeros may be closed, and what could not be opened must be. */
typedef struct apr_opened {
    aprkit_model *model;
    aprkit_session *session;
    apr_running *running; /* of the session; NULL: it is not open */
} apr_opened;

/* n_logits: rows of logits kept at a time. */
apr_status apr_opened_all(apr_opened *opened, const char *path, const apr_run_options *options, int64_t n_logits, apr_error *err);
/* For callers that use token ids: the model need not have a tokenizer. */
apr_status apr_opened_weights(apr_opened *opened, const char *path, const apr_run_options *options, int64_t n_logits, apr_error *err);
void apr_opened_close(apr_opened *opened);

/* For callers that do something in between, in this order: apr_running_open_files (may print warnings on stderr), apr_running_merge,
 * apr_running_open_tokenizer, apr_running_options. The session comes last (apr_session_open with running->model). */
apr_status apr_running_open_files(apr_running *running, const char *path, apr_error *err);
/* Merges adapters into running->model, and prints them on stderr. Computes nothing yet: the session gets the sums when it reads weights. */
apr_status apr_running_merge(apr_running *running, const apr_strings *lora, apr_error *err);
/* May warn on stderr that there is no GPU. */
apr_status apr_running_options(const apr_run_options *options, int64_t n_logits, apr_session_options *session, apr_error *err);

/* Prints one line if the template ends its turns with a token that is not among the model's stop ids. */
void apr_note_turn_end(const apr_running *running, FILE *to);
/* Prints one line, and returns true, if the prompt has two begin tokens: one in its text, and one that the tokenizer adds. */
bool apr_warn_two_bos(const apr_running *running, const int32_t *ids, size_t n_ids, FILE *to);
/* --stats: plan lines, predicted against measured. JSON goes into the answer, text to stderr. */
void apr_print_stats(const apr_running *running, const apr_call *call);

#endif
