/* aprkit.h - the library: opens, converts, quantizes, plans, runs and compares LLM weights (GGUF, Hugging Face safetensors, APR).
 *
 * There are four handles. An aprkit_model is a file or folder that was opened for reading. An aprkit_plan says what memory a run of a model
 * would take. An aprkit_session holds that memory: it evaluates tokens. An aprkit_report says whether two models are the same.
 *
 *     aprkit_error e;
 *     aprkit_model *m;
 *     const aprkit_convert_options o = {.size = sizeof o, .to = "q4_k_m"};
 *     if (aprkit_model_open(&m, "checkpoint/", NULL, &e) != APRKIT_OK || aprkit_convert(m, "model.gguf", &o, &e) != APRKIT_OK)
 *         fprintf(stderr, "%s\n", e.text);
 *     aprkit_model_close(m);
 *
 * Errors: a function that can fail returns a status, APRKIT_OK or one of APRKIT_E_..., and fills the aprkit_error with it and with one
 * sentence that names file, tensor and byte. The error may be NULL. After a failure the handle that was asked for is NULL. Statuses are the
 * exit codes of the tools.
 *
 * Structs: each struct begins with `size`, which the caller sets to sizeof of the struct, also where the library fills it. So a program that
 * was compiled with an older header works with a newer library. Zero is the default of every other member. A NULL pointer to options means
 * that all are default.
 *
 * Ownership: the caller closes what it has opened, and closes models last: sessions, plans and reports use them. Strings and arrays that are given
 * to the library need to live until the call returns. Those that it gives out belong to a handle and live until that is closed, unless the
 * function says otherwise; aprkit_free releases those that the caller owns. All strings are UTF-8. Sizes are in bytes.
 *
 * Threads: the library has no global state. Two threads may use the library at once, each with its own handles; one handle is for one thread at a
 * time. A model may be used by several sessions in several threads. Work inside a call uses as many threads as its options say, through OpenMP.
 *
 * The library does not print, ends no process, reads no environment variables and installs no signal handlers. */
#ifndef APRKIT_H
#define APRKIT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define APRKIT_API __attribute__((visibility("default")))
#else
#define APRKIT_API
#endif

/* The version of this header, and the number of its binary interface: the number in the name of the shared library. */
#define APRKIT_VERSION "0.2.0"
#define APRKIT_ABI     0

/* The same of the library that is linked. The version is a static string. */
APRKIT_API const char *aprkit_version(void);
APRKIT_API int aprkit_abi(void);

/* --- errors --- */

enum {
    APRKIT_OK = 0,
    APRKIT_E_NO = 1,          /* the answer is no: a plan does not fit, a context is full, a target cannot be met */
    APRKIT_E_USAGE = 2,       /* the call is wrong: an unknown name, a handle that cannot do this */
    APRKIT_E_IO = 3,          /* a file cannot be read or written, or was changed while it was being read */
    APRKIT_E_DAMAGED = 4,     /* the input is not what its format says */
    APRKIT_E_UNSUPPORTED = 5, /* the input is valid, but aprkit cannot do this with it */
    APRKIT_E_MEMORY = 6,      /* not enough memory, or not within the budget */
    APRKIT_E_DEVICE = 7,      /* the GPU, its driver or the CUDA library failed */
    APRKIT_E_CANCELLED = 8    /* the caller's function asked to stop */
};

typedef struct aprkit_error {
    int status;
    char text[1024]; /* one sentence; "" after a success */
} aprkit_error;

/* --- progress --- */

typedef struct aprkit_progress {
    size_t size;
    uint64_t done, total; /* total 0: not known */
    const char *unit;     /* "bytes" or "steps" */
    const char *what;     /* what is being worked on, as the name of a tensor; may be NULL */
} aprkit_progress;

/* Called often, by one thread at a time, which need not be the thread of the call. 0: go on. Any other value cancels: the call returns
 * APRKIT_E_CANCELLED soon, and leaves no file. `progress` is valid during this call only. */
typedef int (*aprkit_progress_fn)(void *user, const aprkit_progress *progress);

/* A sentence about something that did not fail, but should be known: what an output cannot express, what was left out. */
typedef void (*aprkit_note_fn)(void *user, const char *sentence);

/* --- models --- */

typedef struct aprkit_model aprkit_model;

typedef struct aprkit_model_options {
    size_t size;
    /* 0: what is used of the file is copied to memory while it is used: the header, one tensor at a time in a conversion, the whole file in
     * a session. If another program truncates the file meanwhile, calls return APRKIT_E_IO.
     * 1: the file is mapped, and weights stay in the page cache. If another program truncates it, the process gets SIGBUS. */
    int map;
    int header_only; /* 1: a GGUF may end after its header, as a download that has begun does. It can be planned and looked at */
    int tokenizer_only; /* 1: only the tokenizer is read; a folder or file needs nothing else. Its sessions have no context and evaluate nothing */
} aprkit_model_options;

/* Opens a GGUF (also the first of split files), an APR file, a .safetensors file, a folder with a checkpoint, or a config.json (which has no
 * tensors: it can be planned). Reads headers only. APRKIT_E_IO: it cannot be read. APRKIT_E_DAMAGED: it is not what its format says.
 * APRKIT_E_UNSUPPORTED: a format, or a feature of it, that aprkit cannot read. */
APRKIT_API int aprkit_model_open(aprkit_model **model, const char *path, const aprkit_model_options *options, aprkit_error *error);
APRKIT_API void aprkit_model_close(aprkit_model *model); /* NULL is allowed, here and below */

typedef struct aprkit_model_facts {
    size_t size;
    const char *path;
    const char *format;       /* "GGUF", "safetensors", "APR", "PyTorch" or "config.json" */
    const char *architecture; /* as in config.json: "Qwen2ForCausalLM"; NULL: not stated */
    size_t n_tensors;
    uint64_t tensor_bytes;
    uint64_t n_parameters; /* values of all tensors */
    int64_t n_layers, hidden_size, n_vocabulary;
    int64_t n_context;         /* positions that the model was trained for; 0: not stated */
    size_t n_tokens;           /* of the tokenizer; 0: there is none */
    const char *chat_template; /* NULL: none */
} aprkit_model_facts;

/* What is in the model. Strings live as long as the model. */
APRKIT_API int aprkit_model_info(const aprkit_model *model, aprkit_model_facts *facts, aprkit_error *error);

enum { APRKIT_MAX_RANK = 8 };

typedef struct aprkit_tensor_facts {
    size_t size;
    const char *name, *type; /* type: "q4_k", "bf16", ... */
    int rank;
    int64_t dims[APRKIT_MAX_RANK]; /* [rank] outermost first */
    uint64_t n_bytes;              /* as stored */
} aprkit_tensor_facts;

/* The i-th tensor, in the order of the file. Its strings live as long as the model. APRKIT_E_USAGE: there are fewer. */
APRKIT_API int aprkit_model_tensor(const aprkit_model *model, size_t i, aprkit_tensor_facts *tensor, aprkit_error *error);

/* --- conversion and quantization --- */

/* Tensors whose name matches the regular expression (PCRE2, anywhere in the name) get this type. The first rule that matches counts. */
typedef struct aprkit_rule {
    const char *regex, *type;
} aprkit_rule;

struct aprkit_tool_hooks; /* what the tools of aprkit add; its content is not public */

typedef struct aprkit_convert_options {
    size_t size;
    const char *format; /* "gguf", "apr" or "safetensors" (a folder); NULL: by the ending of the output's name */
    const char *to;     /* a type or a mixture: "q8_0", "q4_k_m", "mxfp4", "f16", ... as `aprquant --list` shows; NULL: types are kept */
    const aprkit_rule *rules;
    size_t n_rules;
    const char *imatrix;         /* a file with the importance of columns; NULL: none */
    const char *const *adapters; /* [n_adapters] LoRA adapters to merge: "FOLDER" or "FOLDER:FACTOR" */
    size_t n_adapters;
    int overwrite;            /* replace the output if it exists, never another file */
    int allow_loss;           /* write also what the format cannot express; on_note says what that is */
    int allow_incomplete;     /* accept tensors that are missing or have other shapes than the model's family says */
    int allow_requantize;     /* convert one quantized type to another */
    int saturate;             /* values out of a type's range become its largest value; otherwise they are APRKIT_E_UNSUPPORTED */
    const char *profile;      /* APR only: "aprender" writes what aprender and realizar can load; NULL: default */
    uint64_t max_shard_bytes; /* of a checkpoint's .safetensors files; 0: 5 GB */
    /* resume: finished work is kept in OUT.resume if the call does not end, and used by the next call with the same options. part, n_parts:
     * this call makes one of several parts in OUT.resume, the first is 1; the call with `finish` completes the output. At most one of the three. */
    int resume, finish;
    int part, n_parts;
    const char *device; /* where to encode: "host", "cuda" or "auto"; NULL: "host". The bytes are the same */
    const char *gpus;   /* "0", "0,1" or "all"; NULL: the first */
    int threads;        /* 0: as many as OpenMP says */
    aprkit_progress_fn progress;
    aprkit_note_fn on_note;
    void *user;                            /* passed to both */
    const struct aprkit_tool_hooks *hooks; /* NULL */
} aprkit_convert_options;

/* Writes the model to `out`. The output appears whole or not at all. Weights are quantized when `to` or `rules` say so. The bytes depend
 * neither on the machine nor on the number of threads. APRKIT_E_USAGE: an option is wrong, or the output is one of the inputs. APRKIT_E_IO: the
 * output exists or cannot be written, or an input was changed meanwhile. APRKIT_E_UNSUPPORTED: the format cannot express the model, or a type
 * its values. APRKIT_E_CANCELLED: by `progress`, whose unit is "bytes". */
APRKIT_API int aprkit_convert(aprkit_model *model, const char *out, const aprkit_convert_options *options, aprkit_error *error);

/* --- plans --- */

typedef struct aprkit_plan aprkit_plan;

struct aprkit_plan_hooks; /* what the tools of aprkit add; its content is not public */

typedef struct aprkit_plan_options {
    size_t size;
    const char *gpu;     /* as nvidia-smi or `aprplan --list-gpus` name it: "rtx4090". It need not be here. NULL with vram 0: the host */
    uint64_t vram;       /* memory of the device; 0: what that GPU has. Without `gpu` a GPU of about that size is assumed */
    uint64_t memory;     /* budget on the host; 0: not checked */
    uint64_t headroom;   /* to leave free on the device; 0: 1 GiB */
    const char *to;      /* plan for this type or mixture; NULL: types as stored */
    const char *kv;      /* type of keys and values: "f16", "f32", "q8_0" or "fp8"; NULL: "f16" */
    int64_t n_context;   /* 0: the model's own, at most 4096 */
    int64_t n_batch;     /* tokens of a prompt that are evaluated at a time; 0: as many as fit */
    int64_t n_sequences; /* 0: 1 */
    const struct aprkit_plan_hooks *hooks; /* NULL */
} aprkit_plan_options;

/* Plans a run of the model on that device, without reading weights. A plan is also made if it does not fit: see aprkit_plan_fits. The model
 * must outlive it. APRKIT_E_USAGE: an option is wrong, as the name of a GPU. APRKIT_E_UNSUPPORTED: a run would refuse the model, or its rows
 * cannot have that type. */
APRKIT_API int aprkit_plan_make(aprkit_plan **plan, const aprkit_model *model, const aprkit_plan_options *options, aprkit_error *error);
APRKIT_API void aprkit_plan_close(aprkit_plan *plan);

typedef struct aprkit_plan_part {
    size_t size;
    const char *key, *label; /* "kv", "keys and values" */
    uint64_t n_bytes;
    int on_device;
    const char *reason; /* how the number is computed */
} aprkit_plan_part;

/* The i-th line: what a run allocates. Its strings live as long as the plan. APRKIT_E_USAGE: there are fewer. */
APRKIT_API int aprkit_plan_line(const aprkit_plan *plan, size_t i, aprkit_plan_part *line, aprkit_error *error);
APRKIT_API size_t aprkit_plan_n_lines(const aprkit_plan *plan);
APRKIT_API uint64_t aprkit_plan_total(const aprkit_plan *plan);  /* bytes that count against the budget */
APRKIT_API uint64_t aprkit_plan_budget(const aprkit_plan *plan); /* 0: not checked */
APRKIT_API int aprkit_plan_fits(const aprkit_plan *plan);
APRKIT_API int64_t aprkit_plan_max_ctx(const aprkit_plan *plan); /* the largest context that fits, in tokens; 0: none does */

/* The GPUs that are known by name. NULL: i is past the last one. The string is static. */
APRKIT_API const char *aprkit_gpu_name(size_t i);

/* --- sessions --- */

typedef struct aprkit_session aprkit_session;

struct aprkit_run_hooks; /* what the tools of aprkit add; its content is not public */

typedef struct aprkit_session_options {
    size_t size;
    int64_t n_context;  /* 0: the model's own, at most 4096 */
    int64_t n_batch;    /* tokens of a prompt that are evaluated at a time; 0: as many as fit */
    const char *kv;     /* type of keys and values: "f16", "f32", "q8_0" or "fp8"; NULL: "f16" */
    const char *device; /* "host", "cuda", or "auto": the host if the GPU fails. NULL: "host" */
    int gpu;            /* its CUDA ordinal */
    uint64_t headroom;  /* to leave free on the device; 0: 1 GiB */
    uint64_t memory;    /* budget on the host; 0: not checked */
    int threads;        /* 0: as many as OpenMP says */
    aprkit_note_fn on_note;
    void *user;                  /* passed to it; both must live as long as the session */
    const char *const *adapters; /* [n_adapters] LoRA adapters to run the model with: "FOLDER" or "FOLDER:FACTOR" */
    size_t n_adapters;
    const struct aprkit_run_hooks *hooks; /* NULL */
} aprkit_session_options;

/* Plans, and allocates what the plan says. The model must outlive the session. on_note hears what of the files is not used as one may expect,
 * and of a GPU that is not used. APRKIT_E_MEMORY: it does not fit. APRKIT_E_UNSUPPORTED: the model cannot be run. APRKIT_E_DEVICE: the GPU
 * cannot be used. APRKIT_E_IO: a file was changed since it was opened. */
APRKIT_API int aprkit_session_open(aprkit_session **session, aprkit_model *model, const aprkit_session_options *options,
                                   aprkit_error *error);
APRKIT_API void aprkit_session_close(aprkit_session *session);

APRKIT_API int64_t aprkit_session_n_context(const aprkit_session *session);
APRKIT_API int64_t aprkit_session_n_vocabulary(const aprkit_session *session); /* length of a row of logits */
APRKIT_API int64_t aprkit_session_position(const aprkit_session *session);     /* tokens evaluated so far */
APRKIT_API void aprkit_session_reset(aprkit_session *session);                 /* forgets them */

/* What becomes of control tokens. Of a text: they are neither added nor recognized; those that the model asks for are added at its ends, and
 * those that are written in it are recognized; they are only recognized, as in a text that a chat template has made. */
enum { APRKIT_NO_SPECIAL = 0, APRKIT_ALL_SPECIAL = 1, APRKIT_PARSE_SPECIAL = 2 };

/* The ids of a text: *ids has *n_ids of them; release it with aprkit_free. special: one of the three above. The text need not end with NUL;
 * n_bytes SIZE_MAX: it does. APRKIT_E_DAMAGED: it is not UTF-8. APRKIT_E_UNSUPPORTED: the model has no tokenizer. */
APRKIT_API int aprkit_tokenize(const aprkit_session *session, const char *text, size_t n_bytes, int special, int32_t **ids, size_t *n_ids,
                               aprkit_error *error);
/* The text of ids, which ends with NUL and has *n_bytes bytes before it; release it with aprkit_free. special: 1 shows control tokens. APRKIT_E_UNSUPPORTED: the model has no tokenizer. */
APRKIT_API int aprkit_detokenize(const aprkit_session *session, const int32_t *ids, size_t n_ids, int special, char **text, size_t *n_bytes,
                                 aprkit_error *error);
/* Releases what the functions say; NULL is allowed. */
APRKIT_API void aprkit_free(void *p);

/* Evaluates the next tokens. logits: the caller's buffer for the row of the last token, of aprkit_session_n_vocabulary numbers, or NULL.
 * APRKIT_E_NO: the context is too small for them, and nothing was evaluated. APRKIT_E_USAGE: an id is outside the vocabulary.
 * APRKIT_E_DEVICE: the GPU has failed. */
APRKIT_API int aprkit_eval(aprkit_session *session, const int32_t *ids, size_t n_ids, float *logits, aprkit_error *error);

struct aprkit_generate_hooks; /* what the tools of aprkit add; its content is not public */

typedef struct aprkit_message {
    const char *role, *content; /* "system", "user" or "assistant" */
} aprkit_message;

typedef struct aprkit_generate_options {
    size_t size;
    const aprkit_message *messages; /* [n_messages] a conversation, in the model's chat template; or */
    size_t n_messages;
    const char *text;         /* a plain prompt. Give one of the two */
    int64_t max_tokens;       /* 0: 256 */
    float temperature;        /* 0: the most likely token */
    float top_p, min_p;       /* 0: all tokens */
    int64_t top_k;            /* 0: all tokens */
    float repeat_penalty;     /* 0 or 1: none; for the last 64 tokens */
    uint64_t seed;            /* the same seed gives the same text */
    const char *const *stops; /* [n_stops] the answer ends before these texts; at most 16 */
    size_t n_stops;
    size_t n_text;                             /* bytes of `text`, which may have NULs; 0: it ends with one */
    const struct aprkit_generate_hooks *hooks; /* NULL */
} aprkit_generate_options;

/* Part of an answer, as it comes: whole UTF-8 characters, not ended by NUL. Another result than 0 ends the answer: aprkit_generate then
 * returns APRKIT_E_CANCELLED, and the session can be used on. */
typedef int (*aprkit_text_fn)(void *user, const char *text, size_t n_bytes);

/* Continues a conversation or a text from an empty context: what the session had evaluated is forgotten. The answer ends where the model ends
 * it, before a stop text, after max_tokens or where the context is full. on_text may be NULL. APRKIT_E_NO: the prompt fills the context.
 * APRKIT_E_UNSUPPORTED: messages are given, and the model has no chat template; or it has no tokenizer. APRKIT_E_CANCELLED: by on_text. */
APRKIT_API int aprkit_generate(aprkit_session *session, const aprkit_generate_options *options, aprkit_text_fn on_text, void *user,
                               aprkit_error *error);

/* --- verification --- */

typedef struct aprkit_report aprkit_report;

typedef struct aprkit_verify_options {
    size_t size;
    const char *text;      /* also compare predictions on this text, n_text bytes of UTF-8 (SIZE_MAX: it ends with NUL); NULL: only on */
    size_t n_text;         /* one that the library has */
    const char *text_name; /* of the text in the report; NULL: "text" */
    int64_t window;        /* tokens of a text that are evaluated from an empty context; at least 2; 0: 256 */
    int64_t max_tokens;    /* of a greedy answer; 0: 48 */
    uint64_t
        control_bytes; /* memory for a control: the reference quantized to the model's types, whose divergence sets the bound; 0: 8 GiB */
    int no_control;    /* 1: without one, the divergence of quantized weights is shown but not checked */
    int no_parity;     /* 1: the backend is not compared with reference code, operation by operation */
    /* How both models run; NULL: all default. Adapters are merged into the reference. Its on_note and user are not used. n_context 0: enough
     * for every check, at least 4352, but at most the positions that the model has. */
    const aprkit_session_options *run;
    aprkit_progress_fn progress; /* unit "steps"; `done` starts again at each check */
    aprkit_note_fn on_note;
    void *user;    /* passed to both */
    double sample; /* share of each matrix's rows for which the backend is compared with reference code; 0: all */
} aprkit_verify_options;

/* Is the model still the one that it was made from? Both are run: their tokenizers, programs, weights, operations, predictions and memory are
 * compared. The report is also made if a check fails: see is_same. It holds the memory of two sessions until it is closed. Both models must
 * outlive it. No file is written. What the host's heap says of memory is not checked, because other threads may use it. APRKIT_E_USAGE: an
 * option is wrong, or the context is too small for a window. APRKIT_E_MEMORY: two sessions do not fit. APRKIT_E_UNSUPPORTED: one of the models
 * cannot be run. APRKIT_E_CANCELLED: by `progress`, between two tensors, operations or batches of tokens. */
APRKIT_API int aprkit_verify(aprkit_report **report, aprkit_model *model, aprkit_model *reference, const aprkit_verify_options *options,
                             aprkit_error *error);
APRKIT_API void aprkit_report_close(aprkit_report *report);

/* Strings of these two structs live as long as the report. */

typedef struct aprkit_report_facts {
    size_t size;
    int is_same;            /* no check has failed */
    const char *grade;      /* "identical", "same_values", "as_good_as_types_allow", "worse_than_types_explain", "not_the_same_model" */
    const char *grade_text; /* the same in words: "as good as q4_k allows" */
    const char *sentence;   /* why, in plain words */
    const char *failure;    /* the first check that failed, what was found, and where; NULL: none */
    const char *types, *reference_types; /* of the matrices, with their share of the parameters: "q4_k 71 %, q6_k 29 %" */
    const char *backend;                 /* that ran both */
    size_t n_checks;
} aprkit_report_facts;

/* What was found, in short. */
APRKIT_API int aprkit_report_info(const aprkit_report *report, aprkit_report_facts *facts, aprkit_error *error);

enum { APRKIT_NOTE = 0, APRKIT_PASS = 1, APRKIT_FAIL = 2 }; /* a note has no limit: it neither passes nor fails */

typedef struct aprkit_check {
    size_t size;
    const char *id, *title; /* "kl", "KL divergence" */
    int verdict;            /* APRKIT_NOTE, APRKIT_PASS or APRKIT_FAIL */
    const char *found;
    const char *limit; /* "": none is stated */
    const char *where; /* tensor, operation or token of the first failure, or "" */
} aprkit_check;

/* The i-th check, in the order in which they were made. APRKIT_E_USAGE: there are fewer. */
APRKIT_API int aprkit_report_check(const aprkit_report *report, size_t i, aprkit_check *check, aprkit_error *error);

/* The report as one JSON object, which is what `aprrun verify --json` prints. It ends with NUL and has *n_bytes bytes before it; release it
 * with aprkit_free. */
APRKIT_API int aprkit_report_json(const aprkit_report *report, char **json, size_t *n_bytes, aprkit_error *error);

typedef struct aprkit_page_options {
    size_t size;
    const char *command; /* shown as the command that made the page; NULL: none */
    int no_stamp;        /* 1: the page does not say when, where and by which build it was made, so that pages can be compared */
    int hash;            /* 1: it says the SHA-256 of whole files, which are read for it */
} aprkit_page_options;

/* The same as one HTML page with pictures, without external files. It ends with NUL and has *n_bytes bytes before it; release it with
 * aprkit_free. */
APRKIT_API int aprkit_report_html(const aprkit_report *report, const aprkit_page_options *options, char **html, size_t *n_bytes,
                                  aprkit_error *error);

#ifdef __cplusplus
}
#endif

#endif
