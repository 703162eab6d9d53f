/* tokenizer_split.c - text is cut into words by the vocabulary's own regular expression, which is not trusted.
 *
 * Matches and what lies between them are words ("isolated" in tokenizer.json). PCRE2 with UTF and UCP reads \s, \p{L} and
 * (?i:...) as tokenizer.json's engine does, but for U+180E, a space here and not there. Steps, memory and depth of one match
 * are limited, so that an expression from a hostile file ends in APR_E_UNSUPPORTED and not never. */
#include "runtime/tokenizer_internal.h"

enum {
    MAX_PATTERN_BYTES = 16 * 1024,
    MIN_MATCH_STEPS = 200 * 1000,
    MATCH_STEPS_PER_BYTE = 8, /* a run of n spaces is walked a few times before the expression settles */
    MAX_HEAP_KIB = 64 * 1024,
    JIT_STACK_BYTES = 512 * 1024
};

apr_status apr_split_open(apr_tokenizer *tokenizer, apr_error *err)
{
    const char *const pattern = tokenizer->vocab->pattern;
    apr_status status = APR_OK;
    int code = 0;
    PCRE2_SIZE at = 0;

    if (pattern == NULL) return APR_OK;
    pcre2_compile_context *const context = pcre2_compile_context_create(NULL);
    if (context == NULL) return apr_no_memory(err, "the tokenizer's pattern");
    pcre2_set_max_pattern_length(context, MAX_PATTERN_BYTES);
    tokenizer->pattern =
        pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &code, &at, context);
    if (tokenizer->pattern == NULL) {
        PCRE2_UCHAR why[128] = "";
        pcre2_get_error_message(code, why, sizeof why);
        status = apr_fail(err, APR_E_UNSUPPORTED, "the tokenizer's splitting pattern is not understood at its byte %zu: %s", (size_t)at,
                          (const char *)why);
    } else {
        (void)pcre2_jit_compile(tokenizer->pattern, PCRE2_JIT_COMPLETE); /* where there is none, matching is interpreted */
    }
    pcre2_compile_context_free(context);
    return status;
}

static apr_status open_work(const apr_tokenizer *tokenizer, apr_token_work *work)
{
    if (work->match_data != NULL) return APR_OK;
    work->match_data = pcre2_match_data_create_from_pattern(tokenizer->pattern, NULL);
    work->match_context = pcre2_match_context_create(NULL);
    work->jit_stack = pcre2_jit_stack_create(32 * 1024, JIT_STACK_BYTES, NULL); /* NULL without JIT, which is fine */
    if (work->match_data == NULL || work->match_context == NULL) return apr_no_memory(work->err, "splitting the text");
    pcre2_set_heap_limit(work->match_context, MAX_HEAP_KIB);
    if (work->jit_stack != NULL) pcre2_jit_stack_assign(work->match_context, NULL, work->jit_stack);
    return APR_OK;
}

void apr_split_close_work(apr_token_work *work)
{
    pcre2_jit_stack_free(work->jit_stack);
    pcre2_match_context_free(work->match_context);
    pcre2_match_data_free(work->match_data);
}

static apr_status match_failed(apr_token_work *work, int code, size_t at)
{
    PCRE2_UCHAR why[128] = "";
    if (code == PCRE2_ERROR_NOMEMORY) return apr_no_memory(work->err, "splitting the text");
    pcre2_get_error_message(code, why, sizeof why);
    return apr_fail(work->err, APR_E_UNSUPPORTED, "the tokenizer's splitting pattern gave up at byte %zu of the text: %s", at,
                    (const char *)why);
}

apr_status apr_split(const apr_tokenizer *tokenizer, apr_token_work *work, const char *text, size_t n_bytes, apr_encode_step *step)
{
    size_t done = 0, from = 0; /* handed out, and where to look next: they differ after an empty match */

    if (n_bytes == 0) return APR_OK;
    if (tokenizer->pattern == NULL) return step(tokenizer, work, text, n_bytes);
    APR_TRY(open_work(tokenizer, work));
    const size_t steps = MIN_MATCH_STEPS + MATCH_STEPS_PER_BYTE * n_bytes;
    pcre2_set_match_limit(work->match_context, steps < UINT32_MAX ? (uint32_t)steps : UINT32_MAX);

    while (from < n_bytes) {
        const int code =
            pcre2_match(tokenizer->pattern, (PCRE2_SPTR)text, n_bytes, from, PCRE2_NO_UTF_CHECK, work->match_data, work->match_context);
        if (code == PCRE2_ERROR_NOMATCH) break;
        if (code < 0) return match_failed(work, code, from);
        const PCRE2_SIZE *const span = pcre2_get_ovector_pointer(work->match_data);
        if (span[0] < from || span[1] < span[0] || span[1] > n_bytes)
            return apr_fail(work->err, APR_E_UNSUPPORTED, "the tokenizer's splitting pattern matches backwards");

        if (span[0] > done) APR_TRY(step(tokenizer, work, text + done, span[0] - done));
        if (span[1] > span[0]) APR_TRY(step(tokenizer, work, text + span[0], span[1] - span[0]));
        done = from = span[1];
        if (span[1] == span[0]) /* an empty match cuts; the next one begins a character later */
            do from++;
            while (from < n_bytes && ((uint8_t)text[from] & 0xc0) == 0x80);
    }
    return done < n_bytes ? step(tokenizer, work, text + done, n_bytes - done) : APR_OK;
}
