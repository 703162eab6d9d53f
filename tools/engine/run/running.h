/* running.h - a model ready to run: file, canonical view, tokenizer, session. */
#ifndef APR_ENGINE_RUNNING_H
#define APR_ENGINE_RUNNING_H

#include "formats/tensor/model.h"
#include "runtime/check/subject.h"
#include "runtime/template/chat.h"
#include "tools/engine/run/lora_set.h"

typedef struct apr_running {
    apr_model source, model;  /* as read; canonical view of it */
    apr_lora_set lora;        /* the adapters that are merged into `model` */
    apr_model views[2];       /* earlier views that `model` was made from and still refers to */
    apr_tokenizer *tokenizer; /* NULL: there is no vocabulary, or it was not opened */
    apr_chat_stops chat;      /* what ends an answer in the chat template; with the tokenizer */
    apr_session *session;
    bool is_borrowed;                      /* `source` is a copy of another's: it is not closed */
    uint64_t names_bytes, tokenizer_bytes; /* heap that these took, not in the plan; UINT64_MAX: not known */
} apr_running;

/* Reads the model's files. A zeroed apr_running may be closed; one that could not be opened must be. */
apr_status apr_running_read(apr_running *running, const char *path, apr_error *err);
/* The same for a model that is open, which must outlive it; source_bytes: heap that it took. */
apr_status apr_running_borrow(apr_running *running, const apr_model *source, uint64_t source_bytes, apr_error *err);
/* Says, one sentence each, what of the model's files is not used as a user may expect. */
void apr_running_notes(const apr_model *source, void (*note)(void *user, const char *sentence), void *user);
apr_status apr_running_open_tokenizer(apr_running *running, apr_error *err);
void apr_running_close(apr_running *running);

/* Local time, as seconds of UTC that show the same clock: templates print today's date with strftime_now. */
double apr_local_seconds(void);
/* The model as the checks take it (runtime/check); borrows from running. */
apr_subject apr_running_subject(const apr_running *running);

#endif
