/* begin_token.h - reports the begin token that each window of an evaluated text starts with, if the model asks for one. */
#ifndef APR_TOOLS_BEGIN_TOKEN_H
#define APR_TOOLS_BEGIN_TOKEN_H

#include "formats/vocab/vocab.h"
#include "tools/report/report.h"

/* A line; "begin_token": 2. */
void apr_begin_report(apr_report *r, const apr_vocab *vocab);
/* For a model and its reference: one line if both have the same begin token, else one line each; "begin_token" and "begin_token_ref". */
void apr_begin_report_both(apr_report *r, const apr_vocab *vocab, const apr_vocab *reference);

#endif
