/* verify_internal.h - internal to verify: each function runs some checks and adds them to the report. An error status means that a check
 * could not run. */
#ifndef APR_RUNTIME_VERIFY_PARTS_H
#define APR_RUNTIME_VERIFY_PARTS_H

#include "runtime/check/verify/verify.h"

/* Append a check to the list: one that is only noted, or one with a verdict. */
apr_verify_check *apr_verify_add_note(apr_verify_report *report, apr_verify_kind kind);
void apr_verify_add_verdict(apr_verify_report *report, apr_verify_kind kind, bool passed);

/* The reference's ids of a text, malloc'ed. APR_E_USAGE: the text is empty. */
apr_status apr_verify_encode(const apr_verify_report *report, const char *text, size_t n_bytes, int32_t **ids, size_t *n, apr_error *err);

apr_status apr_verify_vocabularies(apr_verify_report *report, apr_error *err); /* verify_vocabulary.c */
apr_status apr_verify_divergence(apr_verify_report *report, apr_error *err);   /* verify_divergence.c */
apr_status apr_verify_answers(apr_verify_report *report, apr_error *err);      /* verify_answers.c */
void apr_verify_memory(apr_verify_report *report);                             /* verify_memory.c */

#endif
