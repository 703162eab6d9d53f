/* handles.c - see handles.h. */
#include "tools/engine/library/handles.h"

#include "formats/base/json.h"
#include "runtime/plan/plan.h"

#include <omp.h>
#include <stdio.h>
#include <string.h>

const char *aprkit_version(void) { return APRKIT_VERSION; }
int aprkit_abi(void) { return APRKIT_ABI; }

/* --- structs of other versions --- */

static size_t size_of(const void *sized)
{
    size_t n;
    memcpy(&n, sized, sizeof n);
    return n;
}

apr_status apr_take_options(void *to, size_t n_bytes, const void *options, const char *what, apr_error *err)
{
    memset(to, 0, n_bytes);
    if (options == NULL) return APR_OK;
    const size_t n = size_of(options);
    if (n < sizeof n) return apr_fail(err, APR_E_USAGE, "the size of %s is not set: set it to sizeof of the struct", what);
    for (size_t i = n_bytes; i < n; i++)
        if (((const unsigned char *)options)[i] != 0)
            return apr_fail(err, APR_E_UNSUPPORTED, "%s has members that aprkit %s does not know: the program needs a newer library", what,
                            APRKIT_VERSION);
    memcpy(to, options, n < n_bytes ? n : n_bytes);
    return APR_OK;
}

apr_status apr_give_facts(void *facts, size_t n_bytes, const void *from, const char *what, apr_error *err)
{
    const size_t n = size_of(facts), own = sizeof n;

    if (n < own) return apr_fail(err, APR_E_USAGE, "the size of %s is not set: set it to sizeof of the struct", what);
    memset((unsigned char *)facts + own, 0, n - own);
    memcpy((unsigned char *)facts + own, (const unsigned char *)from + own, (n < n_bytes ? n : n_bytes) - own);
    return APR_OK;
}

/* --- models --- */

apr_status apr_library_need_weights(const aprkit_model *model, apr_error *err)
{
    if (model->is_tokenizer) return apr_fail(err, APR_E_USAGE, "%s was opened for its tokenizer only", model->model.path);
    return model->is_whole ? APR_OK : apr_fail(err, APR_E_USAGE, "%s is cut off: it can be planned, but not read", model->model.path);
}

/* --- words --- */

int apr_word_index(const char *word, const char *words)
{
    const size_t n = strlen(word);
    int i = 0;

    for (const char *at = words;; at += strcspn(at, "|") + 1, i++) {
        if (n > 0 && strcspn(at, "|") == n && strncmp(at, word, n) == 0) return i;
        if (strchr(at, '|') == NULL) return -1;
    }
}

apr_status apr_kv_of_word(const char *word, int *index, apr_error *err)
{
    *index = word != NULL ? apr_word_index(word, APR_KV_NAMES) : 0;
    return *index >= 0 ? APR_OK : apr_fail(err, APR_E_USAGE, "keys and values cannot be '%s': give one of %s", word, APR_KV_NAMES);
}

/* --- calls --- */

apr_library_call apr_library_enter(apr_input_owner *owner, int threads)
{
    const apr_library_call call = {.owner_before = apr_inputs_own(NULL), .threads_before = omp_get_max_threads()};

    if (!apr_inputs_are_kept()) { /* the caller is not a tool */
        apr_inputs_own(owner);
        apr_json_leave_hooks();
    }
    if (threads > 0) omp_set_num_threads(threads);
    return call;
}

int apr_library_leave(const apr_library_call *call, apr_status status, const apr_error *err, aprkit_error *error)
{
    omp_set_num_threads(call->threads_before);
    apr_inputs_own(call->owner_before);
    return apr_library_result(status, err, error);
}

int apr_library_result(apr_status status, const apr_error *err, aprkit_error *error)
{
    if (error != NULL) {
        error->status = (int)status;
        snprintf(error->text, sizeof error->text, "%s", status == APR_OK ? "" : err->text);
    }
    return (int)status;
}

int apr_library_cancelled(aprkit_error *error)
{
    if (error != NULL) *error = (aprkit_error){.status = APRKIT_E_CANCELLED, .text = "cancelled by the caller"};
    return APRKIT_E_CANCELLED;
}

/* --- the caller's functions --- */

static void report(void *user, uint64_t done, uint64_t total, const char *what)
{
    apr_library_listener *const listener = user;
    const aprkit_progress progress = {.size = sizeof progress, .done = done, .total = total, .unit = listener->unit, .what = what};

    if (listener->progress(listener->user, &progress) != 0) atomic_store(&listener->is_cancelled, true);
}

apr_progress apr_library_progress(apr_library_listener *listener)
{
    return listener->progress != NULL ? (apr_progress){report, listener} : (apr_progress){0};
}

void apr_library_note(const apr_library_listener *listener, const char *sentence)
{
    if (listener->on_note != NULL) listener->on_note(listener->user, sentence);
}
