/* answer.h - how a tool answers: text on stdout, or with --json exactly one JSON object, also on failure.
 *
 *     {"ok":true,"status":"ok","exit":0, ...what the command put into body...}
 *     {"ok":false,"status":"damaged input","exit":4,"error":"model.gguf: ...", ...}
 *
 * Without --json a failure is a sentence on stderr, "aprconv: model.gguf: ...". The exit code is the status. */
#ifndef APR_TOOLS_ANSWER_H
#define APR_TOOLS_ANSWER_H

#include "formats/base/json.h"
#include "formats/base/status.h"

typedef struct apr_answer {
    bool json;
    apr_json_text body; /* members of the answer's object; a command leaves no bracket open when it returns */
} apr_answer;

void apr_answer_start(apr_answer *answer, bool json);
/* Prints what is to be printed, frees the answer, and returns the exit code: the status, or APR_E_IO when stdout cannot be
 * written. */
int apr_answer_end(apr_answer *answer, const char *tool, apr_status status, const apr_error *err);

#endif
