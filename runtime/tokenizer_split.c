/* tokenizer_split.c - text is cut into words by the vocabulary's own regular expression, which is not trusted.
 *
 * Matches and what lies between them are words ("isolated" in tokenizer.json). PCRE2 with UTF and UCP reads \s, \p{L} and
 * (?i:...) as tokenizer.json's engine does, but for U+180E, a space here and not there. Steps, memory and depth of one match
 * are limited, and so is the time of all, so that an expression from a hostile file ends in APR_E_UNSUPPORTED and not never. */
#include "runtime/tokenizer_internal.h"

#include <time.h>

enum {
    MAX_PATTERN_BYTES = 16 * 1024,
    MIN_MATCH_STEPS = 200 * 1000,
    MATCH_STEPS_PER_BYTE = 8, /* a run of n spaces is walked a few times before the expression settles */
    MAX_HEAP_KIB = 64 * 1024,
    JIT_STACK_BYTES = 512 * 1024
};

/* A hundred times what the expressions in use take. The steps of one match bound how far this is overshot. */
static const double max_seconds = 5.0, max_seconds_per_byte = 20e-6;

static double seconds_now(void)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

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
    /* anchored: the steps of a match are counted anew from each position, so the positions are walked here */
    const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED | PCRE2_NEVER_BACKSLASH_C;
    tokenizer->pattern = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, options, &code, &at, context);
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
    work->split_until = seconds_now() + max_seconds;
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

static size_t next_char(const char *text, size_t n_bytes, size_t at)
{
    do at++;
    while (at < n_bytes && ((uint8_t)text[at] & 0xc0) == 0x80);
    return at;
}

apr_status apr_split(const apr_tokenizer *tokenizer, apr_token_work *work, const char *text, size_t n_bytes, apr_encode_step *step)
{
    size_t done = 0, from = 0; /* handed out, and where to look next */

    if (n_bytes == 0) return APR_OK;
    if (tokenizer->pattern == NULL) return step(tokenizer, work, text, n_bytes);
    APR_TRY(open_work(tokenizer, work));
    const size_t steps = MIN_MATCH_STEPS + MATCH_STEPS_PER_BYTE * n_bytes;
    pcre2_set_match_limit(work->match_context, steps < UINT32_MAX ? (uint32_t)steps : UINT32_MAX);

    work->split_until += max_seconds_per_byte * (double)n_bytes;
    while (from < n_bytes) {
        if (seconds_now() > work->split_until)
            return apr_fail(work->err, APR_E_UNSUPPORTED, "the tokenizer's splitting pattern takes too long for %zu bytes of text",
                            n_bytes);
        const int code =
            pcre2_match(tokenizer->pattern, (PCRE2_SPTR)text, n_bytes, from, PCRE2_NO_UTF_CHECK, work->match_data, work->match_context);
        if (code < 0 && code != PCRE2_ERROR_NOMATCH) return match_failed(work, code, from);
        const PCRE2_SIZE *const span = pcre2_get_ovector_pointer(work->match_data);
        if (code >= 0 && (span[0] != from || span[1] < from || span[1] > n_bytes)) /* \K can do that */
            return apr_fail(work->err, APR_E_UNSUPPORTED, "the tokenizer's splitting pattern moves the start of its matches");

        const size_t end = code >= 0 ? span[1] : from;
        if (code >= 0 && from > done) APR_TRY(step(tokenizer, work, text + done, from - done));
        if (end > from) APR_TRY(step(tokenizer, work, text + from, end - from));
        if (code >= 0) done = end;
        from = end > from ? end : next_char(text, n_bytes, from); /* an empty match cuts here; none does not */
    }
    return done < n_bytes ? step(tokenizer, work, text + done, n_bytes - done) : APR_OK;
}
