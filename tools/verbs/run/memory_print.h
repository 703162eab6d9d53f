/* memory_print.h - prints the memory of sessions. */
#ifndef APR_VERBS_MEMORY_PRINT_H
#define APR_VERBS_MEMORY_PRINT_H

#include "tools/engine/plan/footprint.h"
#include "tools/report/report.h"

#include <stdio.h>

/* One line; an object "memory". */
void apr_footprint_report(apr_report *r, const apr_footprint *footprint);
/* Prints the lines of the session's plans; with several places under the name of each. */
void apr_session_lines_print(const apr_session *session, FILE *out);
/* Bytes per token that move between the session's places, and that the host reads: one line; an object "link". */
void apr_link_report(apr_report *r, const apr_session *session);
/* "GPU 1", "host". Returns text. */
char *apr_place_text(const apr_session *session, int place, char text[32]);

#endif
