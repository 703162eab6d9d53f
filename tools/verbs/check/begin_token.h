/* begin_token.h - prints the begin token that each window of an evaluated text starts with, if the model asks for one. */
#ifndef APR_TOOLS_BEGIN_TOKEN_H
#define APR_TOOLS_BEGIN_TOKEN_H

#include "formats/base/json.h"
#include "formats/vocab/vocab.h"

#include <stdio.h>

void apr_begin_print(const apr_vocab *vocab, FILE *to);
void apr_begin_json(const apr_vocab *vocab, apr_json_text *json); /* "begin_token": 2 */
/* For a model and its reference: one line if both have the same begin token, else one line each; "begin_token" and "begin_token_ref". */
void apr_begin_print_both(const apr_vocab *vocab, const apr_vocab *reference, FILE *to);
void apr_begin_json_both(const apr_vocab *vocab, const apr_vocab *reference, apr_json_text *json);

#endif
