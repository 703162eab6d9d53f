/* batch_job.h - one request of a batch on its way from its line to its answer. */
#ifndef APR_TOOLS_BATCH_JOB_H
#define APR_TOOLS_BATCH_JOB_H

#include "runtime/session/scheduler.h"
#include "tools/run/batch_request.h"
#include "tools/run/running.h"

typedef struct apr_batch_job {
    int64_t line;
    uint32_t crc;    /* of the line */
    int64_t created; /* seconds since 1970, as OpenAI's answers have it */
    apr_batch_request request;
    int32_t *prompt; /* [n_prompt] */
    size_t n_prompt;
    int32_t *ids; /* [n_ids] answered */
    size_t n_ids, capacity;
    char *text; /* [n_text] bytes of the answer so far, where strings are looked for that end it */
    size_t n_text, text_capacity;
    bool no_memory;
    struct apr_batch_job *next; /* of those under way, see batch_verb.c */
} apr_batch_job;

/* The prompt as token ids; messages by the model's chat template. A sentence for the line's answer where that cannot be done. */
apr_status apr_batch_job_encode(apr_batch_job *job, const apr_running *running, double now, bool no_bos, apr_error *err);
/* Messages end where the chat template ends a turn, too. */
apr_request apr_batch_job_request(apr_batch_job *job, const apr_running *running);
/* A token of the answer. False: one of the strings that end it is there, or memory ran out (no_memory). */
bool apr_batch_job_take(apr_batch_job *job, const apr_running *running, int32_t id, bool is_stop);
/* The answer as a line, malloc'ed, with its '\n'. NULL: no memory, or (err) ids that are no text. */
char *apr_batch_job_answer(const apr_batch_job *job, const apr_running *running, const apr_reply *reply, uint32_t terms, size_t *n_bytes,
                           apr_error *err);
/* The same of what could not be answered. */
char *apr_batch_job_refusal(const apr_batch_job *job, apr_status status, const char *sentence, uint32_t terms, size_t *n_bytes);
void apr_batch_job_free(apr_batch_job *job); /* NULL is fine */

#endif
