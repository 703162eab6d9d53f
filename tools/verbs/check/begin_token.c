/* begin_token.c - one line or one key; nothing for models that ask for no begin token. */
#include "tools/verbs/check/begin_token.h"

#include "runtime/check/subject.h"
#include "tools/report/text.h"

static void report_of(apr_report *r, const apr_vocab *vocab, const char *whose, const char *key)
{
    const int32_t begin = apr_begin_token(vocab);
    const apr_str token = begin >= 0 ? vocab->tokens[begin] : (apr_str){0};
    char clean[256];

    if (begin < 0) {
        apr_report_print(r, "  each window%s begins with the text itself\n", whose);
        return;
    }
    apr_report_print(r, "  each window%s begins with the begin token %d (%s)\n", whose, (int)begin,
                     apr_clean_text(clean, sizeof clean, token.text, token.n_bytes));
    apr_report_member(r, key, apr_as_int(begin));
}

void apr_begin_report(apr_report *r, const apr_vocab *vocab)
{
    if (apr_begin_token(vocab) >= 0) report_of(r, vocab, "", "begin_token");
}

void apr_begin_report_both(apr_report *r, const apr_vocab *vocab, const apr_vocab *reference)
{
    if (r->json == NULL && apr_begin_token(vocab) == apr_begin_token(reference)) {
        apr_begin_report(r, vocab);
        return;
    }
    report_of(r, vocab, " of the model", "begin_token");
    report_of(r, reference, " of the reference", "begin_token_ref");
}
