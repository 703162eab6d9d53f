/* tokenizer_split.c - splits text into words by the vocabulary's regular expressions, which are untrusted.
 *
 * Most vocabularies have one expression with the behavior "isolated": matches, and the text between them, are words. Others have several
 * steps, each of which splits the pieces of the step before. An expression is first translated to PCRE2's syntax (tokenizer_regex.h).
 * Steps, memory and depth of a match are limited, and so is the total time: an expression from a hostile file ends with
 * APR_E_UNSUPPORTED. */
#include "formats/base/clock.h"
#include "runtime/tokenizer/tokenizer_internal.h"
#include "runtime/tokenizer/tokenizer_regex.h"

#include <stdlib.h>

enum {
    MAX_TRANSLATED_BYTES = 1 << 20,
    MIN_MATCH_STEPS = 200 * 1000,
    MATCH_STEPS_PER_BYTE = 8, /* common expressions scan a run of n spaces a few times */
    MAX_HEAP_KIB = 64 * 1024,
    JIT_STACK_BYTES = 512 * 1024
};

/* Time limit: a hundred times what common expressions take. It is checked between matches, and the steps of a match are limited. */
static const double max_seconds = 5.0, max_seconds_per_byte = 20e-6;

/* --- opening --- */

static apr_status compile(const char *translated, pcre2_compile_context *context, pcre2_code **compiled, apr_error *err)
{
    int code = 0;
    PCRE2_SIZE at = 0;
    PCRE2_UCHAR why[128] = "";

    pcre2_set_max_pattern_length(context, MAX_TRANSLATED_BYTES);
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_set_bsr(context, PCRE2_BSR_UNICODE);
    /* anchored: find_match tries each position itself, because the step limit applies to each call of pcre2_match */
    const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_ANCHORED | PCRE2_NEVER_BACKSLASH_C;
    *compiled = pcre2_compile((PCRE2_SPTR)translated, PCRE2_ZERO_TERMINATED, options, &code, &at, context);
    if (*compiled == NULL && code == PCRE2_ERROR_HEAP_FAILED) return apr_no_memory(err, "the tokenizer's pattern");
    if (*compiled == NULL) {
        pcre2_get_error_message(code, why, sizeof why);
        return apr_fail(err, APR_E_UNSUPPORTED, "the tokenizer's splitting pattern does not compile: %s", (const char *)why);
    }
    (void)pcre2_jit_compile(*compiled, PCRE2_JIT_COMPLETE); /* without JIT, matching is interpreted */
    return APR_OK;
}

apr_status apr_pattern_code(const char *pattern, pcre2_code **code, apr_error *err)
{
    char *translated;

    APR_TRY(apr_regex_translate(pattern, &translated, err));
    pcre2_compile_context *const context = pcre2_compile_context_create(NULL);
    const apr_status status = context != NULL ? compile(translated, context, code, err) : apr_no_memory(err, "the tokenizer's pattern");
    free(translated);
    pcre2_compile_context_free(context);
    return status;
}

static apr_status add_splitter(apr_tokenizer *tokenizer, const apr_split *split, apr_error *err)
{
    apr_splitter *const splitter = &tokenizer->splitters[tokenizer->n_splitters];

    if (split->letters && tokenizer->vocab->kind != APR_VOCAB_BPE)
        return apr_fail(err, APR_E_UNSUPPORTED, "the tokenizer splits bytes, but its vocabulary is not byte-level");
    *splitter = (apr_splitter){
        .behavior = split->behavior, .invert = split->invert, .letters = split->letters, .marks = split->marks, .space = split->space};
    APR_TRY(apr_pattern_code(split->pattern, &splitter->code, err));
    tokenizer->n_splitters++;
    return APR_OK;
}

apr_status apr_split_open(apr_tokenizer *tokenizer, apr_error *err)
{
    const apr_vocab *const vocab = tokenizer->vocab;

    if (vocab->n_splits > APR_MAX_SPLITS)
        return apr_fail(err, APR_E_UNSUPPORTED, "the tokenizer splits text in %zu steps; at most %d are supported", vocab->n_splits,
                        (int)APR_MAX_SPLITS);
    if (vocab->pattern != NULL) APR_TRY(add_splitter(tokenizer, &(apr_split){.pattern = vocab->pattern}, err));
    else
        for (size_t i = 0; i < vocab->n_splits; i++) APR_TRY(add_splitter(tokenizer, &vocab->splits[i], err));
    return APR_OK;
}

void apr_split_close(apr_tokenizer *tokenizer)
{
    for (size_t i = 0; i < tokenizer->n_splitters; i++) pcre2_code_free(tokenizer->splitters[i].code);
}

static apr_status open_work(const apr_tokenizer *tokenizer, apr_token_work *work)
{
    if (work->match_context != NULL) return APR_OK;
    work->split_until = apr_seconds_now() + max_seconds;
    work->match_context = pcre2_match_context_create(NULL);
    work->jit_stack = pcre2_jit_stack_create(32 * 1024, JIT_STACK_BYTES, NULL); /* NULL without JIT; matching works without it */
    if (work->match_context == NULL) return apr_no_memory(work->err, "splitting the text");
    pcre2_set_heap_limit(work->match_context, MAX_HEAP_KIB);
    if (work->jit_stack != NULL) pcre2_jit_stack_assign(work->match_context, NULL, work->jit_stack);
    for (size_t i = 0; i < tokenizer->n_splitters; i++) {
        work->splits[i].match_data = pcre2_match_data_create_from_pattern(tokenizer->splitters[i].code, NULL);
        if (work->splits[i].match_data == NULL) return apr_no_memory(work->err, "splitting the text");
    }
    return APR_OK;
}

void apr_split_close_work(apr_token_work *work)
{
    for (size_t i = 0; i < APR_MAX_SPLITS; i++) {
        pcre2_match_data_free(work->splits[i].match_data);
        free(work->splits[i].spans);
        free(work->splits[i].letters);
        free(work->splits[i].marked);
    }
    pcre2_jit_stack_free(work->jit_stack);
    pcre2_match_context_free(work->match_context);
}

/* --- matches --- */

static apr_status match_failed(apr_token_work *work, int code, size_t at)
{
    PCRE2_UCHAR why[128] = "";
    if (code == PCRE2_ERROR_NOMEMORY) return apr_no_memory(work->err, "splitting the text");
    pcre2_get_error_message(code, why, sizeof why);
    return apr_fail(work->err, APR_E_UNSUPPORTED, "the tokenizer's splitting pattern failed at byte %zu of the text: %s", at,
                    (const char *)why);
}

static size_t next_char(const char *text, size_t n_bytes, size_t at)
{
    do at++;
    while (at < n_bytes && ((uint8_t)text[at] & 0xc0) == 0x80);
    return at;
}

static apr_status push_span(apr_token_work *work, apr_split_work *split, size_t start, size_t end, bool is_match)
{
    apr_span *const spans = apr_grow(split->spans, &split->capacity, split->n_spans + 1, sizeof split->spans[0]);
    if (spans == NULL) return apr_no_memory(work->err, "splitting the text");
    split->spans = spans;
    spans[split->n_spans++] = (apr_span){(uint32_t)start, (uint32_t)end, is_match};
    return APR_OK;
}

/* The first match that begins at `from` or later; start = n_bytes + 1: none. */
static apr_status find_match(const apr_splitter *splitter, apr_token_work *work, apr_split_work *split, const char *text, size_t n_bytes,
                             size_t from, apr_span *found)
{
    for (size_t at = from; at <= n_bytes; at = next_char(text, n_bytes, at)) {
        if (apr_seconds_now() > work->split_until)
            return apr_fail(work->err, APR_E_UNSUPPORTED, "the tokenizer's splitting pattern takes too long for %zu bytes of text",
                            n_bytes);
        const int code =
            pcre2_match(splitter->code, (PCRE2_SPTR)text, n_bytes, at, PCRE2_NO_UTF_CHECK, split->match_data, work->match_context);
        if (code == PCRE2_ERROR_NOMATCH) continue;
        if (code < 0) return match_failed(work, code, at);
        const PCRE2_SIZE *const span = pcre2_get_ovector_pointer(split->match_data);
        *found = (apr_span){(uint32_t)span[0], (uint32_t)span[1], true};
        return APR_OK;
    }
    *found = (apr_span){.start = (uint32_t)n_bytes + 1};
    return APR_OK;
}

static void set_limit(apr_token_work *work, size_t n_bytes)
{
    const size_t steps = MIN_MATCH_STEPS + MATCH_STEPS_PER_BYTE * n_bytes;
    pcre2_set_match_limit(work->match_context, steps < UINT32_MAX ? (uint32_t)steps : UINT32_MAX);
}

/* Lists the matches and the text between them, in order. An empty match counts, except directly after another match. */
static apr_status find_spans(const apr_splitter *splitter, apr_token_work *work, apr_split_work *split, const char *text, size_t n_bytes)
{
    size_t done = 0, from = 0;
    bool after_match = false; /* a match ended at `from` */

    split->n_spans = 0;
    while (from <= n_bytes) {
        apr_span found = {0};
        APR_TRY(find_match(splitter, work, split, text, n_bytes, from, &found));
        if (found.start > n_bytes) break;
        if (found.end == found.start && after_match && found.end == done) {
            from = from < n_bytes ? next_char(text, n_bytes, from) : n_bytes + 1;
            continue;
        }
        if (found.start > done) APR_TRY(push_span(work, split, done, found.start, false));
        APR_TRY(push_span(work, split, found.start, found.end, true));
        done = from = found.end;
        after_match = true;
    }
    return done < n_bytes ? push_span(work, split, done, n_bytes, false) : APR_OK;
}

apr_status apr_find_matches(pcre2_code *code, const char *text, size_t n_bytes, apr_span **spans, size_t *n_spans, apr_error *err)
{
    apr_tokenizer alone = {.splitters = {{.code = code}}, .n_splitters = 1};
    apr_token_work work = {.err = err};
    size_t n = 0;

    apr_status status = open_work(&alone, &work);
    work.split_until += max_seconds_per_byte * (double)n_bytes;
    if (status == APR_OK) {
        set_limit(&work, n_bytes);
        status = find_spans(&alone.splitters[0], &work, &work.splits[0], text, n_bytes);
    }
    if (status == APR_OK) {
        for (size_t i = 0; i < work.splits[0].n_spans; i++)
            if (work.splits[0].spans[i].is_match) work.splits[0].spans[n++] = work.splits[0].spans[i];
        *spans = work.splits[0].spans;
        *n_spans = n;
        work.splits[0].spans = NULL;
    }
    apr_split_close_work(&work);
    return status;
}

/* --- behaviors --- */

/* Applies the step's behavior: joins spans in place. Removed and joined spans become empty. */
static void join_spans(apr_split_work *split, const apr_splitter *splitter)
{
    const size_t n = split->n_spans;
    const bool backwards = splitter->behavior == APR_SPLIT_MERGED_WITH_NEXT;
    apr_span *last = NULL; /* the piece that the next span may join */
    bool previous = false;

    for (size_t k = 0; k < n; k++) {
        apr_span *const span = &split->spans[backwards ? n - 1 - k : k];
        const bool is_match = span->is_match != splitter->invert;
        const bool joins = splitter->behavior == APR_SPLIT_CONTIGUOUS ? is_match == previous
                           : splitter->behavior == APR_SPLIT_ISOLATED ? false
                                                                      : is_match && !previous;
        previous = is_match;
        if (splitter->behavior == APR_SPLIT_REMOVED) {
            if (is_match) span->end = span->start;
        } else if (joins && last != NULL) {
            if (backwards) last->start = span->start;
            else last->end = span->end;
            span->end = span->start;
        } else {
            last = span;
        }
    }
}

/* --- all steps --- */

/* The arguments of apr_split_text. */
typedef struct splitting {
    const apr_tokenizer *tokenizer;
    apr_token_work *work;
    apr_encode_step *step;
} splitting;

/* Splits the piece in GPT-2's byte alphabet, then maps the spans back to bytes (one letter is one byte). */
static apr_status split_letters(const splitting *s, size_t i, const char *text, size_t n_bytes)
{
    apr_split_work *const split = &s->work->splits[i];
    char *const letters = apr_grow(split->letters, &split->letters_capacity, 2 * n_bytes + 1, 1);
    size_t byte = 0, at = 0;

    if (letters == NULL) return apr_no_memory(s->work->err, "splitting the text");
    split->letters = letters;
    const size_t n = apr_bpe_write_letters(s->tokenizer, text, n_bytes, letters);
    APR_TRY(find_spans(&s->tokenizer->splitters[i], s->work, split, letters, n));
    for (size_t k = 0; k < split->n_spans; k++) { /* the spans cover all letters in order */
        apr_span *const span = &split->spans[k];
        span->start = (uint32_t)byte;
        for (const size_t end = span->end; at < end; byte++) at += (uint8_t)letters[at] < 0x80 ? 1 : 2;
        span->end = (uint32_t)byte;
    }
    return APR_OK;
}

/* Copies the piece to the step's buffer with a leading space, and with U+2581 for spaces, as the step requires. */
static apr_status put_space(const splitting *s, size_t i, const char **text, size_t *n_bytes, bool is_first)
{
    static const char mark[] = "\xe2\x96\x81";
    enum { MARK_BYTES = 3 };
    const apr_splitter *const splitter = &s->tokenizer->splitters[i];
    apr_split_work *const split = &s->work->splits[i];
    const bool has_space = **text == ' ' || (splitter->marks && *n_bytes >= MARK_BYTES && memcmp(*text, mark, MARK_BYTES) == 0);
    const bool adds_space = splitter->space == APR_SPACE_ALWAYS || (splitter->space == APR_SPACE_AT_START && is_first);
    const char *const space = splitter->marks ? mark : " ";
    const size_t n_space = splitter->marks ? MARK_BYTES : 1;
    size_t n = 0;

    char *const marked = apr_grow(split->marked, &split->marked_capacity, n_space * (*n_bytes + 1), 1);
    if (marked == NULL) return apr_no_memory(s->work->err, "splitting the text");
    split->marked = marked;
    if (adds_space && !has_space) memcpy(marked, space, n = n_space);
    for (size_t k = 0; k < *n_bytes; k++) {
        const bool is_space = (*text)[k] == ' ';
        memcpy(marked + n, is_space ? space : *text + k, is_space ? n_space : 1);
        n += is_space ? n_space : 1;
    }
    *text = marked;
    *n_bytes = n;
    return APR_OK;
}

static apr_status split_piece(const splitting *s, size_t i, const char *text, size_t n_bytes, bool is_first)
{
    if (n_bytes == 0) return APR_OK;
    if (i == s->tokenizer->n_splitters) return s->step(s->tokenizer, s->work, text, n_bytes);

    const apr_splitter *const splitter = &s->tokenizer->splitters[i];
    apr_split_work *const split = &s->work->splits[i];
    if (splitter->marks || splitter->space != APR_SPACE_NEVER) APR_TRY(put_space(s, i, &text, &n_bytes, is_first));
    set_limit(s->work, n_bytes);
    APR_TRY(splitter->letters ? split_letters(s, i, text, n_bytes) : find_spans(splitter, s->work, split, text, n_bytes));
    join_spans(split, splitter);
    for (size_t k = 0; k < split->n_spans; k++) {
        const apr_span span = split->spans[k];
        APR_TRY(split_piece(s, i + 1, text + span.start, span.end - span.start, is_first && span.start == 0));
    }
    return APR_OK;
}

apr_status apr_split_text(const apr_tokenizer *tokenizer, apr_token_work *work, const char *text, size_t n_bytes, apr_encode_step *step)
{
    if (n_bytes == 0) return APR_OK;
    if (tokenizer->n_splitters == 0) return step(tokenizer, work, text, n_bytes);
    APR_TRY(open_work(tokenizer, work));
    work->split_until += max_seconds_per_byte * (double)n_bytes;
    return split_piece(&(splitting){tokenizer, work, step}, 0, text, n_bytes, work->at_start);
}
