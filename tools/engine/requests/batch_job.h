/* batch_job.h - one request of a batch, from its line to its answer. */
#ifndef APR_TOOLS_BATCH_JOB_H
#define APR_TOOLS_BATCH_JOB_H

#include "runtime/session/scheduler.h"
#include "tools/engine/requests/batch_request.h"
#include "tools/engine/run/running.h"

typedef struct apr_batch_job {
    int64_t line;
    uint32_t crc;    /* of the line */
    int64_t created; /* seconds since 1970, as OpenAI's answers have it */
    apr_batch_request request;
    int32_t *prompt; /* [n_prompt] */
    size_t n_prompt;
    int32_t *ids; /* [n_ids] of the answer so far */
    size_t n_ids, capacity;
    char *text; /* [n_text] bytes of the answer so far; kept only if the request has stop strings */
    size_t n_text, text_capacity;
    bool no_memory;
    struct apr_batch_job *next; /* the list of running jobs, see batch.c of the verbs */
} apr_batch_job;

/* Makes the prompt's token ids; messages go through the model's chat template. On failure err has the sentence for the answer. */
apr_status apr_batch_job_encode(apr_batch_job *job, const apr_running *running, double now, bool no_bos, apr_error *err);
/* The job as a request to the scheduler. An answer to messages also ends where the chat template ends a turn. */
apr_request apr_batch_job_request(apr_batch_job *job, const apr_running *running);
/* Takes a token of the answer. False ends the answer: a stop string has come, or there is no memory (no_memory). */
bool apr_batch_job_take(apr_batch_job *job, const apr_running *running, int32_t id, bool is_stop);
/* The answer as a line, malloc'ed, with its '\n'. NULL: no memory, or (err) ids that cannot be decoded. */
char *apr_batch_job_answer(const apr_batch_job *job, const apr_running *running, const apr_reply *reply, uint32_t terms, size_t *n_bytes,
                           apr_error *err);
/* The same for a request that could not be answered. */
char *apr_batch_job_refusal(const apr_batch_job *job, apr_status status, const char *sentence, uint32_t terms, size_t *n_bytes);
void apr_batch_job_free(apr_batch_job *job); /* NULL is fine */

#endif
