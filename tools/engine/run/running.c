/* running.c - opens what a run needs, in order, and closes it in reverse. */
#include "tools/engine/run/running.h"

#include "convert/naming.h"
#include "runtime/session/heap.h"

#include <time.h>

static uint64_t heap_growth(uint64_t before)
{
    const uint64_t now = apr_heap_in_use();
    return now == UINT64_MAX ? UINT64_MAX : now > before ? now - before : 0;
}

apr_status apr_running_read(apr_running *r, const char *path, apr_error *err)
{
    const uint64_t before = apr_heap_in_use();

    *r = (apr_running){.names_bytes = UINT64_MAX, .tokenizer_bytes = UINT64_MAX};
    APR_TRY(apr_model_open(&r->source, path, err));
    if (r->source.n_tensors == 0) return apr_fail(err, APR_E_USAGE, "%s has no weights to run", path);
    APR_TRY(apr_canonical(&r->model, &r->source, err));
    r->names_bytes = heap_growth(before);
    return APR_OK;
}

apr_status apr_running_open_tokenizer(apr_running *r, apr_error *err)
{
    const uint64_t before = apr_heap_in_use();
    APR_TRY(apr_tokenizer_open(&r->tokenizer, &r->model.vocab, err));
    r->tokenizer_bytes = heap_growth(before);
    return apr_chat_stops_of(&r->model.vocab, &r->chat, err);
}

void apr_running_close(apr_running *r)
{
    apr_session_close(r->session);
    apr_tokenizer_close(r->tokenizer);
    apr_model_close(&r->model);
    for (size_t i = 0; i < sizeof r->views / sizeof *r->views; i++) apr_model_close(&r->views[i]);
    apr_model_close(&r->source);
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
