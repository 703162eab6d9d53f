/* answer.h - how a tool answers: text on stdout, or with --json exactly one JSON object, even on failure.
 *
 *     {"ok":true,"status":"ok","exit":0, ...what the command put into body...}
 *     {"ok":false,"status":"damaged input","exit":4,"error":"model.gguf: ...", ...}
 *
 * Without --json a failure is one message on stderr, "aprconv: model.gguf: ...". The exit code is the status. */
#ifndef APR_TOOLS_ANSWER_H
#define APR_TOOLS_ANSWER_H

#include "formats/base/json.h"
#include "formats/base/status.h"
#include "formats/files/out.h"

typedef struct apr_answer {
    bool json;
    apr_json_text body; /* members of the answer's object; a command closes every bracket that it opens */
} apr_answer;

void apr_answer_start(apr_answer *answer, bool json);
/* The object that --json prints, malloc'ed; NULL: no memory. `body` was opened by apr_answer_start, and is used up. */
char *apr_answer_document(apr_json_text *body, apr_status status, const apr_error *err);
/* Writes a JSON text that is complete, and `end` after it; uses the text up. what: for "out of memory". */
apr_status apr_json_write(apr_json_text *json, const char *end, apr_out *out, const char *what, apr_error *err);
/* Prints the answer or the error, frees the answer, and returns the exit code: the status, or APR_E_IO if stdout cannot be written. */
int apr_answer_end(apr_answer *answer, const char *tool, apr_status status, const apr_error *err);

#endif
