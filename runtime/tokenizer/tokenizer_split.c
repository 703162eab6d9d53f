/* tokenizer_split.c - splits text into words by the vocabulary's regular expressions.
 *
 * Most vocabularies have one expression with the behavior "isolated": matches, and the text between them, are words. Others have several
 * steps, each of which splits the pieces of the step before. The expressions are
 * untrusted; tokenizer_regex.h states their limits. */
#include "runtime/tokenizer/tokenizer_internal.h"

#include <stdlib.h>

static apr_status add_splitter(apr_tokenizer *tokenizer, const apr_split *split, apr_error *err)
{
    apr_splitter *const splitter = &tokenizer->splitters[tokenizer->n_splitters];

    if (split->letters && tokenizer->vocab->kind != APR_VOCAB_BPE)
        return apr_fail(err, APR_E_UNSUPPORTED, "the tokenizer splits bytes, but its vocabulary is not byte-level");
    if (!split->letters && tokenizer->n_splitters > 0 && splitter[-1].letters) /* a piece may be a part of a character */
        return apr_fail(err, APR_E_UNSUPPORTED, "the tokenizer splits characters after it has split bytes");
    *splitter = (apr_splitter){
        .behavior = split->behavior, .invert = split->invert, .letters = split->letters, .marks = split->marks, .space = split->space};
    APR_TRY(apr_regex_compile(split->pattern, &splitter->code, err));
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

void apr_split_close_work(apr_token_work *work)
{
    for (size_t i = 0; i < APR_MAX_SPLITS; i++) {
        apr_matches_close(&work->splits[i].found);
        free(work->splits[i].letters);
        free(work->splits[i].marked);
    }
    apr_matcher_close(&work->matcher);
}

/* --- behaviors --- */

/* Applies the step's behavior: joins spans in place. Removed and joined spans become empty. */
static void join_spans(apr_matches *found, const apr_splitter *splitter)
{
    const size_t n = found->n_spans;
    const bool backwards = splitter->behavior == APR_SPLIT_MERGED_WITH_NEXT;
    apr_span *last = NULL; /* the piece that the next span may join */
    bool previous = false;

    for (size_t k = 0; k < n; k++) {
        apr_span *const span = &found->spans[backwards ? n - 1 - k : k];
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
    const size_t n = apr_write_letters(text, n_bytes, letters);
    APR_TRY(apr_matches_find(&split->found, &s->work->matcher, s->tokenizer->splitters[i].code, letters, n, n_bytes, s->work->err));
    for (size_t k = 0; k < split->found.n_spans; k++) { /* the spans cover all letters in order */
        apr_span *const span = &split->found.spans[k];
        span->start = (uint32_t)byte;
        for (const size_t end = span->end; at < end; byte++) at += (uint8_t)letters[at] < 0x80 ? 1 : 2;
        span->end = (uint32_t)byte;
    }
    return APR_OK;
}

/* Copies the piece to the step's buffer with a leading space, and with U+2581 for spaces, as the step requires. */
static apr_status put_space(const splitting *s, size_t i, const char **text, size_t *n_bytes, bool is_first)
{
    const apr_splitter *const splitter = &s->tokenizer->splitters[i];
    apr_split_work *const split = &s->work->splits[i];
    const bool has_space =
        **text == ' ' || (splitter->marks && *n_bytes >= APR_MARK_BYTES && memcmp(*text, apr_space_mark, APR_MARK_BYTES) == 0);
    const bool adds_space = splitter->space == APR_SPACE_ALWAYS || (splitter->space == APR_SPACE_AT_START && is_first);
    const char *const space = splitter->marks ? apr_space_mark : " ";
    const size_t n_space = splitter->marks ? APR_MARK_BYTES : 1;
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
    APR_TRY(splitter->letters ? split_letters(s, i, text, n_bytes)
                              : apr_matches_find(&split->found, &s->work->matcher, splitter->code, text, n_bytes, n_bytes, s->work->err));
    join_spans(&split->found, splitter);
    for (size_t k = 0; k < split->found.n_spans; k++) {
        const apr_span span = split->found.spans[k];
        APR_TRY(split_piece(s, i + 1, text + span.start, span.end - span.start, is_first && span.start == 0));
    }
    return APR_OK;
}

apr_status apr_split_text(const apr_tokenizer *tokenizer, apr_token_work *work, const char *text, size_t n_bytes, apr_encode_step *step)
{
    if (n_bytes == 0) return APR_OK;
    if (tokenizer->n_splitters == 0) return step(tokenizer, work, text, n_bytes);
    APR_TRY(apr_matcher_open(&work->matcher, n_bytes, work->err));
    return split_piece(&(splitting){tokenizer, work, step}, 0, text, n_bytes, work->at_start);
}
