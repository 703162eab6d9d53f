/* tokenizer_spm.c - SentencePiece BPE: spaces are U+2581, merges are chosen by score (or rank), with byte fallback. */
#include "runtime/tokenizer/tokenizer_internal.h"

static apr_status open_vocabulary(apr_tokenizer *tokenizer, apr_error *err)
{
    const apr_vocab *const vocab = tokenizer->vocab;

    apr_find_byte_ids(tokenizer);
    if (vocab->scores == NULL && vocab->n_merges == 0)
        return apr_fail(err, APR_E_UNSUPPORTED, "the SentencePiece vocabulary has neither scores nor merges");
    return apr_merge_table_open(&tokenizer->merges, vocab, &tokenizer->tokens, &tokenizer->arena, err);
}

/* Encodes text without a token: as byte tokens, or as one unknown token per run of such text. */
static apr_status push_unknown(const apr_tokenizer *tokenizer, apr_token_work *work, const char *text, size_t n_bytes, bool after_unknown)
{
    const int32_t unk = tokenizer->vocab->unk_id;
    bool has_bytes;

    APR_TRY(apr_push_bytes(tokenizer, work, text, n_bytes, &has_bytes));
    if (has_bytes) return APR_OK;
    if (unk < 0)
        return apr_fail(work->err, APR_E_DAMAGED, "the vocabulary has no token for \"%.*s\" and none for unknown text",
                        n_bytes < 80 ? (int)n_bytes : 80, text);
    return after_unknown && work->n_ids > 0 && work->ids[work->n_ids - 1] == unk ? APR_OK : apr_push_id(work, unk);
}

static apr_status encode_word(const apr_tokenizer *tokenizer, apr_token_work *work, const char *text, size_t n_bytes)
{
    const apr_vocab *const vocab = tokenizer->vocab;

    work->n_symbols = 0;
    for (size_t i = 0; i < n_bytes; i += apr_char_bytes(text + i)) {
        const size_t n = apr_char_bytes(text + i);
        const int32_t id = apr_token_table_find(&tokenizer->tokens, vocab, text + i, n);
        APR_TRY(apr_push_symbol(work, id >= 0 && !apr_token_is_control(vocab, (size_t)id) ? id : -1, i, n));
    }
    APR_TRY(apr_merge_symbols(tokenizer, work, text));
    for (int32_t i = 0; i >= 0; i = work->symbols[i].next) {
        const apr_symbol *const symbol = &work->symbols[i];
        const bool after_unknown = symbol->prev >= 0 && work->symbols[symbol->prev].id < 0;
        if (symbol->id >= 0) APR_TRY(apr_push_id(work, symbol->id));
        else APR_TRY(push_unknown(tokenizer, work, text + symbol->start, symbol->n_bytes, after_unknown));
    }
    return APR_OK;
}

static apr_status encode(const apr_tokenizer *tokenizer, apr_token_work *work, const char *text, size_t n_bytes, bool at_start)
{
    const apr_vocab *const vocab = tokenizer->vocab;
    const bool begins_with_space =
        n_bytes > 0 && (text[0] == ' ' || (n_bytes >= APR_MARK_BYTES && memcmp(text, apr_space_mark, APR_MARK_BYTES) == 0));
    const bool has_prefix = vocab->add_space_prefix && at_start && !(vocab->prefix_unless_space && begins_with_space);

    APR_TRY(apr_grow_escaped(work, apr_spm_normalized_bytes(vocab, text, n_bytes, has_prefix)));
    const size_t n = apr_spm_normalize(vocab, text, n_bytes, has_prefix, work->escaped);
    return apr_split_text(tokenizer, work, work->escaped, n, encode_word);
}

/* "<0xNN>" -> the byte, or -1. */
static int parse_byte_token(apr_str token)
{
    static const char digits[] = "0123456789ABCDEF";
    if (token.n_bytes != 6 || memcmp(token.text, "<0x", 3) != 0 || token.text[5] != '>') return -1;
    const char *const high = memchr(digits, token.text[3], 16), *const low = memchr(digits, token.text[4], 16);
    return high != NULL && low != NULL ? (int)(high - digits) * 16 + (int)(low - digits) : -1;
}

static size_t token_bytes(const apr_tokenizer *tokenizer, int32_t id, char *dst, size_t capacity)
{
    const apr_vocab *const vocab = tokenizer->vocab;
    const apr_str token = vocab->tokens[id];
    const int byte = vocab->byte_fallback ? parse_byte_token(token) : -1;
    size_t n = 0;

    if (byte >= 0) {
        if (capacity > 0) dst[0] = (char)byte;
        return 1;
    }
    for (size_t at = 0; at < token.n_bytes; n++) {
        const bool is_mark =
            vocab->escape_spaces && token.n_bytes - at >= APR_MARK_BYTES && memcmp(token.text + at, apr_space_mark, APR_MARK_BYTES) == 0;
        if (n < capacity) dst[n] = is_mark ? ' ' : token.text[at];
        at += is_mark ? APR_MARK_BYTES : 1;
    }
    return n;
}

const apr_algorithm apr_algorithm_spm = {open_vocabulary, encode, NULL, token_bytes};
