/* begin_token.h - says with which token the windows of an evaluated text begin, where the model asks for one. */
#ifndef APR_TOOLS_BEGIN_TOKEN_H
#define APR_TOOLS_BEGIN_TOKEN_H

#include "formats/base/json.h"
#include "formats/model/vocab.h"

#include <stdio.h>

void apr_begin_print(const apr_vocab *vocab, FILE *to);
void apr_begin_json(const apr_vocab *vocab, apr_json_text *json); /* "begin_token": 2 */

#endif
