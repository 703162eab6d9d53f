/* tokenizer_wpm.c - WordPiece: greedy longest match from the left. Tokens inside a word have the prefix `word_prefix` ("##"). A word that
 * cannot be covered by tokens is one unknown token. */
#include "runtime/tokenizer/tokenizer_internal.h"

enum { MOST_WORD_CHARS = 1000 }; /* limits the time per word */

static apr_status open_vocabulary(apr_tokenizer *tokenizer, apr_error *err)
{
    const apr_vocab *const vocab = tokenizer->vocab;

    if (vocab->word_prefix == NULL) return apr_fail(err, APR_E_DAMAGED, "the WordPiece vocabulary has no prefix for tokens within a word");
    if (vocab->max_word_chars > MOST_WORD_CHARS)
        return apr_fail(err, APR_E_UNSUPPORTED, "the WordPiece vocabulary has words of up to %zu characters; at most %d are supported",
                        vocab->max_word_chars, (int)MOST_WORD_CHARS);
    return APR_OK;
}

/* The longest token that is a prefix of text[start, n_bytes), after the n_prefix bytes that work->escaped already holds. *end: its end. */
static int32_t longest_token(const apr_tokenizer *tokenizer, apr_token_work *work, size_t n_prefix, const char *text, size_t start,
                             size_t n_bytes, size_t *end)
{
    const apr_vocab *const vocab = tokenizer->vocab;
    const size_t max_bytes = tokenizer->tokens.max_bytes > n_prefix ? tokenizer->tokens.max_bytes - n_prefix : 0;
    size_t n = n_bytes - start < max_bytes ? n_bytes - start : max_bytes;

    memcpy(work->escaped + n_prefix, text + start, n);
    for (; n > 0; n--) {
        const bool is_whole = start + n == n_bytes || ((uint8_t)text[start + n] & 0xc0) != 0x80;
        const int32_t id = is_whole ? apr_token_table_find(&tokenizer->tokens, vocab, work->escaped, n_prefix + n) : -1;
        if (id < 0 || apr_token_is_control(vocab, (size_t)id)) continue;
        *end = start + n;
        return id;
    }
    return -1;
}

static apr_status encode_word(const apr_tokenizer *tokenizer, apr_token_work *work, const char *text, size_t n_bytes)
{
    const apr_vocab *const vocab = tokenizer->vocab;
    const size_t n_before = work->n_ids, n_prefix = strlen(vocab->word_prefix);
    bool is_known = apr_count_chars(text, n_bytes) <= vocab->max_word_chars;

    APR_TRY(apr_grow_escaped(work, n_prefix + n_bytes));
    memcpy(work->escaped, vocab->word_prefix, n_prefix);
    for (size_t at = 0, end = 0; at < n_bytes && is_known; at = end) {
        const int32_t id = longest_token(tokenizer, work, at > 0 ? n_prefix : 0, text, at, n_bytes, &end);
        is_known = id >= 0;
        if (is_known) APR_TRY(apr_push_id(work, id));
        if (at == 0) memcpy(work->escaped, vocab->word_prefix, n_prefix);
    }
    if (is_known) return APR_OK;
    work->n_ids = n_before;
    if (vocab->unk_id < 0) return apr_fail(work->err, APR_E_DAMAGED, "the vocabulary has no token for unknown words");
    return apr_push_id(work, vocab->unk_id);
}

/* True for punctuation and endings that the decoder of tokenizer.json joins to the word before (its cleanup). */
static bool joins_left(const char *text, size_t n_bytes)
{
    static const char *const signs[] = {".", "?", "!", ","}, *const suffixes[] = {"n't", "'m", "'s", "'ve", "'re"};

    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (n_bytes > 0 && text[0] == signs[i][0]) return true;
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        const size_t n = strlen(suffixes[i]);
        if (n_bytes >= n && memcmp(text, suffixes[i], n) == 0) return true;
    }
    return false;
}

/* A token inside a word is written without its prefix, any other token after a space. */
static size_t token_bytes(const apr_tokenizer *tokenizer, int32_t id, char *dst, size_t capacity)
{
    const apr_str token = tokenizer->vocab->tokens[id];
    const size_t n_prefix = strlen(tokenizer->vocab->word_prefix);
    const bool is_within = n_prefix > 0 && token.n_bytes >= n_prefix && memcmp(token.text, tokenizer->vocab->word_prefix, n_prefix) == 0;
    const size_t n_space = is_within || joins_left(token.text, token.n_bytes) ? 0 : 1, skipped = is_within ? n_prefix : 0;

    if (n_space > 0 && capacity > 0) dst[0] = ' ';
    for (size_t i = 0; i < token.n_bytes - skipped; i++)
        if (n_space + i < capacity) dst[n_space + i] = token.text[skipped + i];
    return n_space + token.n_bytes - skipped;
}

const apr_algorithm apr_algorithm_wpm = {open_vocabulary, NULL, encode_word, token_bytes};
