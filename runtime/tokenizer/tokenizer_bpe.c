/* tokenizer_bpe.c - byte-level BPE: bytes are letters of GPT-2's printable byte alphabet, which merges combine. */
#include "runtime/tokenizer/tokenizer_internal.h"

#include <utf8proc.h>

static apr_status open_vocabulary(apr_tokenizer *tokenizer, apr_error *err)
{
    for (int byte = 0; byte < 256; byte++) {
        char letter[2];
        const size_t n = apr_write_letters(&(char){(char)byte}, 1, letter);
        tokenizer->byte_ids[byte] = apr_token_table_find(&tokenizer->tokens, tokenizer->vocab, letter, n);
    }
    return apr_merge_table_open(&tokenizer->merges, tokenizer->vocab, &tokenizer->tokens, &tokenizer->arena, err);
}

/* ignore_merges: a word that is a token is encoded as that token, without merges. *id = -1: it is not a token. */
static apr_status find_whole(const apr_tokenizer *tokenizer, apr_token_work *work, const char *text, size_t n_bytes, int32_t *id)
{
    *id = -1;
    if (n_bytes > tokenizer->tokens.max_bytes) return APR_OK;
    APR_TRY(apr_grow_escaped(work, 2 * n_bytes));
    const size_t n = apr_write_letters(text, n_bytes, work->escaped);
    *id = apr_token_table_find(&tokenizer->tokens, tokenizer->vocab, work->escaped, n);
    if (*id >= 0 && apr_token_is_added(tokenizer->vocab, (size_t)*id)) *id = -1;
    return APR_OK;
}

static apr_status encode_word(const apr_tokenizer *tokenizer, apr_token_work *work, const char *text, size_t n_bytes)
{
    const apr_vocab *const vocab = tokenizer->vocab;

    if (vocab->ignore_merges) {
        int32_t whole;
        APR_TRY(find_whole(tokenizer, work, text, n_bytes, &whole));
        if (whole >= 0) return apr_push_id(work, whole);
    }
    work->n_symbols = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        const int32_t byte_id = tokenizer->byte_ids[(uint8_t)text[i]];
        const int32_t id = byte_id >= 0 ? byte_id : vocab->unk_id;
        if (id < 0)
            return apr_fail(work->err, APR_E_DAMAGED, "the vocabulary has no token for byte 0x%02x and none for unknown text",
                            (unsigned)(uint8_t)text[i]);
        APR_TRY(apr_push_symbol(work, id, i, 1));
    }
    APR_TRY(apr_merge_symbols(tokenizer, work, text));
    for (int32_t i = 0; i >= 0; i = work->symbols[i].next) APR_TRY(apr_push_id(work, work->symbols[i].id));
    return APR_OK;
}

/* Maps letters back to bytes. A token with a character outside the alphabet gives its own bytes. */
static size_t token_bytes(const apr_tokenizer *tokenizer, int32_t id, char *dst, size_t capacity)
{
    const apr_str token = tokenizer->vocab->tokens[id];
    size_t n = 0;

    for (size_t at = 0; at < token.n_bytes;) {
        utf8proc_int32_t c;
        const size_t left = token.n_bytes - at;
        const utf8proc_ssize_t used =
            utf8proc_iterate((const utf8proc_uint8_t *)token.text + at, left < 4 ? (utf8proc_ssize_t)left : 4, &c);
        const int byte = used > 0 ? apr_byte_of_letter(c) : -1;
        if (byte < 0) {
            if (capacity > 0) memcpy(dst, token.text, token.n_bytes < capacity ? token.n_bytes : capacity);
            return token.n_bytes;
        }
        if (n < capacity) dst[n] = (char)byte;
        n++;
        at += (size_t)used;
    }
    return n;
}

const apr_algorithm apr_algorithm_bpe = {open_vocabulary, NULL, encode_word, token_bytes};
