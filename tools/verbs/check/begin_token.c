/* begin_token.c - prints one line or one key; nothing for models that ask for no begin token. */
#include "tools/verbs/check/begin_token.h"

#include "runtime/check/subject.h"
#include "tools/report/text.h"

static void print_of(const apr_vocab *vocab, const char *whose, FILE *to)
{
    const int32_t begin = apr_begin_token(vocab);
    char clean[256];

    fprintf(to, "  each window%s begins with ", whose);
    if (begin < 0) {
        fputs("the text itself\n", to);
        return;
    }
    const apr_str token = vocab->tokens[begin];
    fprintf(to, "the begin token %d (%s)\n", (int)begin, apr_clean_text(clean, sizeof clean, token.text, token.n_bytes));
}

void apr_begin_print(const apr_vocab *vocab, FILE *to)
{
    if (apr_begin_token(vocab) >= 0) print_of(vocab, "", to);
}

void apr_begin_print_both(const apr_vocab *vocab, const apr_vocab *reference, FILE *to)
{
    if (apr_begin_token(vocab) == apr_begin_token(reference)) {
        apr_begin_print(vocab, to);
        return;
    }
    print_of(vocab, " of the model", to);
    print_of(reference, " of the reference", to);
}

static void put(const apr_vocab *vocab, const char *key, apr_json_text *json)
{
    const int32_t begin = apr_begin_token(vocab);
    if (begin >= 0) apr_json_int(json, key, begin);
}

void apr_begin_json(const apr_vocab *vocab, apr_json_text *json) { put(vocab, "begin_token", json); }

void apr_begin_json_both(const apr_vocab *vocab, const apr_vocab *reference, apr_json_text *json)
{
    put(vocab, "begin_token", json);
    put(reference, "begin_token_ref", json);
}
