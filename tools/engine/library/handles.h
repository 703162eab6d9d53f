/* handles.h - what is behind the handles of aprkit.h, and what its functions share: options of other versions, owners of inputs, threads,
 * errors, notes and progress. */
#ifndef APR_ENGINE_LIBRARY_HANDLES_H
#define APR_ENGINE_LIBRARY_HANDLES_H

#include "formats/base/progress.h"
#include "formats/files/inputs.h"
#include "formats/tensor/model.h"
#include "tools/engine/aprkit.h"

#include <pthread.h>
#include <stdatomic.h>

struct aprkit_model {
    apr_model model;
    apr_input_owner owner;
    pthread_mutex_t lock; /* held by calls that change the owner's inputs */
};

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

/* The caller's functions. */
typedef struct apr_library_listener {
    aprkit_progress_fn progress;
    aprkit_note_fn on_note;
    void *user;
    const char *unit;
    atomic_bool is_cancelled; /* set by a report: the caller's function asked to stop */
} apr_library_listener;

/* Reports to it; user of apr_progress. */
apr_progress apr_library_progress(apr_library_listener *listener);
void apr_library_note(const apr_library_listener *listener, const char *sentence);

#endif
