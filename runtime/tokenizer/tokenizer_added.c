/* tokenizer_added.c - finds added tokens in the text before it is split: the leftmost match, of these the longest.
 *
 * tokenizer.json flags added tokens. GGUF does not: its control, user-defined and unknown tokens are added tokens. Tokens with
 * the flag APR_ADDED_NORMALIZED are matched in normalised text, all others in the original text. */
#include "runtime/tokenizer/tokenizer_internal.h"

#include <stdlib.h>
#include <utf8proc.h>

enum { MAX_ADDED_BYTES = 1024 }; /* limits the time per position of the text */

static apr_status compose(apr_str *text, apr_arena *arena, apr_error *err)
{
    utf8proc_uint8_t *nfc = NULL;
    const utf8proc_ssize_t n =
        utf8proc_map((const utf8proc_uint8_t *)text->text, (utf8proc_ssize_t)text->n_bytes, &nfc, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    if (n == UTF8PROC_ERROR_NOMEM) return apr_no_memory(err, "the added tokens");
    if (n < 0) return APR_OK; /* not UTF-8, so no text will match it */
    char *const copy = apr_arena_copy(arena, (const char *)nfc, (size_t)n);
    free(nfc);
    if (copy == NULL) return apr_no_memory(err, "the added tokens");
    *text = (apr_str){copy, (size_t)n};
    return APR_OK;
}

static apr_status normalize_by_steps(const apr_tokenizer *tokenizer, apr_str *text, apr_arena *arena, apr_error *err)
{
    char *normalized;
    size_t n;
    bool keeps_start;

    if (!apr_str_is_utf8(*text)) return APR_OK; /* no text will match it */
    APR_TRY(apr_normalize(tokenizer, *text, &normalized, &n, &keeps_start, err));
    char *const copy = apr_arena_copy(arena, normalized, n);
    free(normalized);
    *text = (apr_str){copy, n};
    return copy != NULL ? APR_OK : apr_no_memory(err, "the added tokens");
}

/* Normalises a token's text, because it is matched in normalised text. With Prepend it gets a leading space. */
static apr_status normalize(const apr_tokenizer *tokenizer, apr_str *text, apr_arena *arena, apr_error *err)
{
    const apr_vocab *const vocab = tokenizer->vocab;

    if (tokenizer->n_normalizers > 0) return normalize_by_steps(tokenizer, text, arena, err);
    if (vocab->nfc) APR_TRY(compose(text, arena, err));
    if (!apr_spm_normalizes(vocab)) return APR_OK;
    char *const copy = apr_arena_alloc(arena, apr_spm_normalized_bytes(vocab, text->text, text->n_bytes, vocab->add_space_prefix));
    if (copy == NULL) return apr_no_memory(err, "the added tokens");
    *text = (apr_str){copy, apr_spm_normalize(vocab, text->text, text->n_bytes, vocab->add_space_prefix, copy)};
    return APR_OK;
}

apr_status apr_added_open(apr_tokenizer *tokenizer, apr_error *err)
{
    const apr_vocab *const vocab = tokenizer->vocab;
    size_t n = 0;

    for (size_t id = 0; id < vocab->n_tokens; id++) n += apr_token_is_added(vocab, id);
    tokenizer->raw.tokens = apr_arena_array(&tokenizer->arena, n, sizeof(apr_added_token));
    tokenizer->normalized.tokens = apr_arena_array(&tokenizer->arena, n, sizeof(apr_added_token));
    if (tokenizer->raw.tokens == NULL || tokenizer->normalized.tokens == NULL) return apr_no_memory(err, "the added tokens");

    for (size_t id = 0; id < vocab->n_tokens; id++) {
        if (!apr_token_is_added(vocab, id) || vocab->tokens[id].n_bytes == 0) continue;
        if (vocab->tokens[id].n_bytes > MAX_ADDED_BYTES)
            return apr_fail(err, APR_E_UNSUPPORTED, "added token %zu is %zu bytes long; at most %d are supported", id,
                            vocab->tokens[id].n_bytes, (int)MAX_ADDED_BYTES);
        const uint8_t flags = vocab->added != NULL ? vocab->added[id] : APR_ADDED;
        apr_added_token token = {.text = vocab->tokens[id], .id = (int32_t)id, .flags = flags, .control = apr_token_is_control(vocab, id)};
        const bool in_normalized =
            (vocab->nfc || tokenizer->n_normalizers > 0 || apr_spm_normalizes(vocab)) && (flags & APR_ADDED_NORMALIZED) != 0;
        if (in_normalized) APR_TRY(normalize(tokenizer, &token.text, &tokenizer->arena, err));
        if (token.text.n_bytes == 0) continue;
        apr_added_set *const set = in_normalized ? &tokenizer->normalized : &tokenizer->raw;
        set->tokens[set->n_tokens++] = token;
    }
    apr_set_index(&tokenizer->raw);
    apr_set_index(&tokenizer->normalized);
    return APR_OK;
}

/* The longest token that is a prefix of the text, or NULL. */
static const apr_added_token *longest_at(const apr_added_set *set, const char *text, size_t n_bytes, bool parse_special)
{
    const apr_added_token *best = NULL;
    size_t low = set->first[(uint8_t)text[0]], high = set->first[(uint8_t)text[0] + 1];

    for (size_t depth = 1; low < high; depth++) {
        for (; low < high && set->tokens[low].text.n_bytes == depth; low++) { /* tokens that end here; equal texts are adjacent */
            const apr_added_token *const token = &set->tokens[low];
            if ((parse_special || !token->control) && (best == NULL || best->text.n_bytes < depth)) best = token;
        }
        if (depth == n_bytes) break;
        apr_set_narrow(set, depth, (uint8_t)text[depth], &low, &high);
    }
    return best;
}

/* \w in the sense of tokenizer.json's single_word: alphabetic characters (including circled and squared letters), marks, decimal digits,
 * connectors, joiners. */
static bool is_word(utf8proc_int32_t c)
{
    const utf8proc_category_t category = utf8proc_category(c);
    const bool is_letter_sign =
        (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
    return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) || category == UTF8PROC_CATEGORY_PC || is_letter_sign ||
           c == 0x200c || c == 0x200d;
}

static bool stands_alone(const char *text, size_t n_bytes, size_t start, size_t end)
{
    size_t used;
    return (start == 0 || !is_word(apr_char_before(text, start, &used))) &&
           (end == n_bytes || !is_word(apr_char_at(text, n_bytes, end, &used)));
}

apr_added_match apr_added_next(const apr_added_set *set, const char *text, size_t n_bytes, size_t from, bool parse_special)
{
    for (size_t at = from; set->n_tokens > 0 && at < n_bytes;) {
        const apr_added_token *const token = longest_at(set, text + at, n_bytes - at, parse_special);
        if (token == NULL) {
            at++;
            continue;
        }
        apr_added_match match = {.start = at, .end = at + token->text.n_bytes, .token = token};
        if ((token->flags & APR_ADDED_SINGLE_WORD) && !stands_alone(text, n_bytes, match.start, match.end)) {
            at = match.end;
            continue;
        }
        size_t used;
        if (token->flags & APR_ADDED_LSTRIP)
            while (match.start > from && apr_is_white_space(apr_char_before(text, match.start, &used))) match.start -= used;
        if (token->flags & APR_ADDED_RSTRIP)
            while (match.end < n_bytes && apr_is_white_space(apr_char_at(text, n_bytes, match.end, &used))) match.end += used;
        return match;
    }
    return (apr_added_match){.start = n_bytes, .end = n_bytes};
}
