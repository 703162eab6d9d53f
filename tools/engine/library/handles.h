/* handles.h - what is behind the handles of aprkit.h, and what its functions share: options of other versions, owners of inputs, threads,
 * errors, notes and progress. */
#ifndef APR_ENGINE_LIBRARY_HANDLES_H
#define APR_ENGINE_LIBRARY_HANDLES_H

#include "formats/base/progress.h"
#include "formats/files/inputs.h"
#include "formats/tensor/model.h"
#include "runtime/session/generate.h"
#include "tools/engine/aprkit.h"
#include "tools/engine/device/device.h"
#include "tools/engine/plan/question.h"
#include "tools/engine/run/running.h"
#include "tools/report/verify/verify.h"

#include <pthread.h>
#include <stdatomic.h>

struct aprkit_model {
    apr_model model;
    bool is_whole;        /* not only its header is there */
    bool is_tokenizer;    /* nothing else was read */
    uint64_t names_bytes; /* heap that it took; UINT64_MAX: not known */
    apr_input_owner owner;
    pthread_mutex_t lock; /* held by calls that change the owner's inputs */
};

/* The caller's functions. */
typedef struct apr_library_listener {
    aprkit_progress_fn progress;
    aprkit_note_fn on_note;
    void *user;
    const char *unit;
    atomic_bool is_cancelled; /* set by a report: the caller's function asked to stop */
} apr_library_listener;

struct aprkit_session {
    aprkit_model *model;
    const apr_vocab *vocab;
    apr_running running;   /* borrows from it */
    apr_input_owner owner; /* of its adapters */
    apr_library_listener listener;
    apr_device_warnings warnings;
    int threads;
};

struct aprkit_plan {
    apr_plan_asked asked;
    apr_plan_question question; /* borrows from the model */
    apr_plans plans;
};

/* What the tools add to an answer. */
typedef struct aprkit_generate_hooks {
    const apr_sample_options *sampling;                                /* instead of the options' */
    bool is_rendered;                                                  /* the text is a conversation in the model's chat template */
    bool no_begin;                                                     /* a plain text gets no begin and end tokens */
    void (*begin)(void *user, const int32_t *prompt, size_t n_prompt); /* before it is evaluated */
    bool (*on_token)(void *user, int32_t id, bool is_stop);            /* as in apr_generate_options, instead of the caller's function */
    apr_status (*end)(void *user, const int32_t *prompt, const apr_generation *generation, apr_error *err);
    void *user;
} aprkit_generate_hooks;

/* What the tools add to a plan. */
typedef struct aprkit_plan_hooks {
    const apr_plan_question *question; /* what is asked, and the devices, instead of the options; `asked` must outlive the plan */
    bool is_left_open;                 /* the question is opened, and no plan is made */
} aprkit_plan_hooks;

struct aprkit_report {
    apr_running reference, other; /* borrow from their models */
    apr_input_owner owner;        /* of its adapters */
    apr_library_listener listener;
    apr_device_warnings warnings[2];
    char *text, *text_name; /* of the options */
    apr_verify_input input;
    apr_verify_report checks;
    apr_verify_shown shown; /* all of the above, for printers */
    /* what facts point at */
    apr_verify_graded grade;
    apr_verify_line lines[APR_VERIFY_MAX_CHECKS];
    char types[2][256]; /* of the model, of the reference */
    apr_error failure;
};

/* What the tools add to a run; they print what is said to them. */
typedef struct aprkit_run_hooks {
    const apr_device_options *where;                           /* instead of the options' device, gpu and headroom */
    int kv;                                                    /* of APR_KV_NAMES, instead of the options' kv */
    int64_t n_logits;                                          /* rows of logits that are kept at a time */
    bool shorter_ctx;                                          /* see apr_session_options */
    void (*warn)(void *user, const char *sentence);            /* of the device */
    void (*planned)(void *user, const apr_plan *plan);         /* the session is open; NULL: not said */
    void (*merging)(void *user, const apr_lora_set *adapters); /* before adapters are merged; NULL: not said */
    void *user;
} aprkit_run_hooks;

/* Copies the members that the caller's header has; the others are zero. APR_E_USAGE: size is not set. APR_E_UNSUPPORTED: the caller's header is
 * newer, and one of its own members is set. Options NULL: all are zero. */
apr_status apr_take_options(void *to, size_t n_bytes, const void *options, const char *what, apr_error *err);
/* The reverse, for a struct that the library fills. from's size is ignored. */
apr_status apr_give_facts(void *facts, size_t n_bytes, const void *from, const char *what, apr_error *err);

/* The index of a word among "a|b|c"; -1: it is none of them. */
int apr_word_index(const char *word, const char *words);
/* For "f16|f32|..." (APR_KV_NAMES); NULL: the first. */
apr_status apr_kv_of_word(const char *word, int *index, apr_error *err);

/* What a call sets for its thread, and puts back. */
typedef struct apr_library_call {
    apr_input_owner *owner_before;
    int threads_before;
} apr_library_call;

/* Inputs that are opened belong to the owner, or to the process if a tool has called apr_inputs_start. threads 0: as before. */
apr_library_call apr_library_enter(apr_input_owner *owner, int threads);
/* Ends it. Fills the caller's error, and returns the status. */
int apr_library_leave(const apr_library_call *call, apr_status status, const apr_error *err, aprkit_error *error);
/* The same for calls that set nothing. */
int apr_library_result(apr_status status, const apr_error *err, aprkit_error *error);

/* Fills the error of a call that the caller's function has cancelled, and returns the status. */
int apr_library_cancelled(aprkit_error *error);

/* What a session's options become. listener and warnings live as long as the session. */
apr_status apr_library_session_options(const aprkit_session_options *from, const aprkit_model *model, const apr_library_listener *listener,
                                       apr_device_warnings *warnings, apr_session_options *options, apr_error *err);
/* The canonical view of a model that is to be run, with its notes; borrows from the model. */
apr_status apr_library_view(apr_running *running, const aprkit_model *model, const apr_library_listener *listener, apr_error *err);
apr_status apr_library_merge(apr_running *running, const char *const *adapters, size_t n_adapters, const aprkit_run_hooks *hooks,
                             apr_error *err);
/* APR_E_USAGE: the model was opened for less than its weights. */
apr_status apr_library_need_weights(const aprkit_model *model, apr_error *err);
/* Where inputs are copied, all weights are in memory from here on. */
apr_status apr_library_load(aprkit_model *model, apr_error *err);

/* Reports to it; user of apr_progress. */
apr_progress apr_library_progress(apr_library_listener *listener);
void apr_library_note(const apr_library_listener *listener, const char *sentence);

/* The library's failure as the tools state it. */
static inline apr_status apr_library_failed(const aprkit_error *error, apr_error *err)
{
    return apr_fail(err, (apr_status)error->status, "%s", error->text);
}

#endif
