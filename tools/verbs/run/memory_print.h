/* memory_print.h - prints the memory of sessions. */
#ifndef APR_VERBS_MEMORY_PRINT_H
#define APR_VERBS_MEMORY_PRINT_H

#include "formats/base/json.h"
#include "tools/engine/plan/footprint.h"

#include <stdio.h>

void apr_footprint_json(const apr_footprint *footprint, apr_json_text *json);
/* One line. */
void apr_footprint_print(const apr_footprint *footprint, FILE *out);
/* Prints the lines of the session's plans; with several places under the name of each. */
void apr_session_lines_print(const apr_session *session, FILE *out);
/* Bytes per token that move between the session's places, and that the host reads: as one line; as an object "link". */
void apr_link_print(const apr_session *session, FILE *out);
void apr_link_json(const apr_session *session, apr_json_text *json);
/* "GPU 1", "host". Returns text. */
char *apr_place_text(const apr_session *session, int place, char text[32]);

#endif
