/* begin_token.h - says with which token the windows of an evaluated text begin, where the model asks for one. */
#ifndef APR_TOOLS_BEGIN_TOKEN_H
#define APR_TOOLS_BEGIN_TOKEN_H

#include "formats/base/json.h"
#include "formats/model/vocab.h"

#include <stdio.h>

void apr_begin_print(const apr_vocab *vocab, FILE *to);
void apr_begin_json(const apr_vocab *vocab, apr_json_text *json); /* "begin_token": 2 */
/* Of two models that are compared: one line where both begin alike, else a line for each; "begin_token" and "begin_token_ref". */
void apr_begin_print_both(const apr_vocab *vocab, const apr_vocab *reference, FILE *to);
void apr_begin_json_both(const apr_vocab *vocab, const apr_vocab *reference, apr_json_text *json);

#endif
