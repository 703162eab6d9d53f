/* begin_token.c - one line, or one key; nothing for models that ask for no begin token. */
#include "tools/conv/begin_token.h"

#include "runtime/check/subject.h"
#include "tools/cli/text.h"

void apr_begin_print(const apr_vocab *vocab, FILE *to)
{
    const int32_t begin = apr_begin_token(vocab);
    char clean[256];

    if (begin < 0) return;
    const apr_str token = vocab->tokens[begin];
    fprintf(to, "  each window begins with the begin token %d (%s)\n", (int)begin,
            apr_clean_text(clean, sizeof clean, token.text, token.n_bytes));
}

void apr_begin_json(const apr_vocab *vocab, apr_json_text *json)
{
    const int32_t begin = apr_begin_token(vocab);
    if (begin >= 0) apr_json_int(json, "begin_token", begin);
}
