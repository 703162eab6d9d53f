/* running.c - opens what a run needs, in order, and closes it in reverse. */
#include "tools/engine/run/running.h"

#include "convert/naming.h"
#include "formats/files/checkpoint_names.h"
#include "formats/shape/text_part.h"
#include "runtime/session/heap.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static uint64_t heap_growth(uint64_t before)
{
    const uint64_t now = apr_heap_in_use();
    return now == UINT64_MAX ? UINT64_MAX : now > before ? now - before : 0;
}

static apr_status read_model(apr_running *r, const char *path, apr_error *err)
{
    const uint64_t before = apr_heap_in_use();

    APR_TRY(apr_model_open(&r->source, path, err));
    r->names_bytes = heap_growth(before);
    return APR_OK;
}

/* The canonical view of what was read. */
static apr_status view(apr_running *r, apr_error *err)
{
    const uint64_t before = apr_heap_in_use();

    if (r->source.n_tensors == 0) return apr_fail(err, APR_E_USAGE, "%s has no weights to run", r->source.path);
    APR_TRY(apr_canonical(&r->model, &r->source, err));
    const uint64_t grown = heap_growth(before);
    r->names_bytes = grown == UINT64_MAX || r->names_bytes == UINT64_MAX ? UINT64_MAX : r->names_bytes + grown;
    return APR_OK;
}

apr_status apr_running_read(apr_running *r, const char *path, apr_error *err)
{
    *r = (apr_running){.names_bytes = UINT64_MAX, .tokenizer_bytes = UINT64_MAX};
    APR_TRY(read_model(r, path, err));
    return view(r, err);
}

apr_status apr_running_borrow(apr_running *r, const apr_model *source, uint64_t source_bytes, apr_error *err)
{
    *r = (apr_running){.source = *source, .is_borrowed = true, .names_bytes = source_bytes, .tokenizer_bytes = UINT64_MAX};
    return view(r, err);
}

/* An unknown field may be harmless, or change all results. */
static void note_unknown_fields(const apr_model *source, void (*note)(void *user, const char *sentence), void *user)
{
    char text[1152];

    if (source->hparams.unknown_fields == NULL) return;
    snprintf(text, sizeof text, "config.json has unknown fields, which are ignored: %s", source->hparams.unknown_fields);
    note(user, text);
}

static void note_own_head(const apr_model *source, void (*note)(void *user, const char *sentence), void *user)
{
    const apr_tensor *const head = source->overrules_tie ? apr_find_head(source) : NULL;
    char text[1152];

    if (head == NULL) return;
    snprintf(text, sizeof text, "'%s' is used as the output head: config.json ties the head to the embedding, but they differ", head->name);
    note(user, text);
}

void apr_running_notes(const apr_model *source, void (*note)(void *user, const char *sentence), void *user)
{
    note_unknown_fields(source, note, user);
    note_own_head(source, note, user);
    if (source->other_weights != NULL && strncmp(source->other_weights, APR_CHECKPOINT_INDEX, strlen(APR_CHECKPOINT_INDEX)) == 0)
        note(user,
             "the weights are read from model.safetensors; " APR_CHECKPOINT_INDEX " next to it names other files, which are not read");
}

apr_status apr_running_open_tokenizer(apr_running *r, apr_error *err)
{
    const uint64_t before = apr_heap_in_use();
    APR_TRY(apr_tokenizer_of_model(&r->tokenizer, &r->model, err));
    r->tokenizer_bytes = heap_growth(before);
    return apr_chat_stops_of(&r->model.vocab, &r->chat, err);
}

void apr_running_close(apr_running *r)
{
    apr_session_close(r->session);
    apr_tokenizer_close(r->tokenizer);
    apr_model_close(&r->model);
    for (size_t i = 0; i < sizeof r->views / sizeof *r->views; i++) apr_model_close(&r->views[i]);
    if (!r->is_borrowed) apr_model_close(&r->source);
    apr_lora_set_close(&r->lora);
    *r = (apr_running){0};
}

double apr_local_seconds(void)
{
    const time_t now = time(NULL);
    struct tm local, utc;
    if (localtime_r(&now, &local) == NULL || gmtime_r(&now, &utc) == NULL) return (double)now;
    local.tm_isdst = utc.tm_isdst = 0;
    return (double)now + difftime(mktime(&local), mktime(&utc));
}

apr_subject apr_running_subject(const apr_running *r)
{
    return (apr_subject){
        .path = r->source.path, .vocab = &r->model.vocab, .tokenizer = r->tokenizer, .session = r->session, .now = apr_local_seconds()};
}
