/* tokenizer_ugm.c - Unigram: the most probable sequence of tokens of a word (Viterbi), as in Hugging Face's tokenizers: scores are double,
 * and of equal paths the first one is used. A character without a token gets the lowest score minus ten. */
#include "runtime/tokenizer/tokenizer_internal.h"

#include <math.h>

static const double unknown_penalty = 10.0;

/* False also for added tokens without a score, which are not in the Unigram model. */
static bool is_piece(const apr_vocab *vocab, size_t id)
{
    return !isnan(vocab->log_probs[id]) && vocab->tokens[id].n_bytes > 0 && vocab->types[id] != APR_TOKEN_UNUSED &&
           vocab->types[id] != APR_TOKEN_CONTROL;
}

static apr_status open_vocabulary(apr_tokenizer *tokenizer, apr_error *err)
{
    const apr_vocab *const vocab = tokenizer->vocab;
    apr_added_set *const set = &tokenizer->pieces;
    double least = INFINITY;

    if (vocab->log_probs == NULL || vocab->types == NULL) return apr_fail(err, APR_E_DAMAGED, "the Unigram vocabulary has no scores");
    apr_find_byte_ids(tokenizer);
    set->tokens = apr_arena_array(&tokenizer->arena, vocab->n_tokens, sizeof *set->tokens);
    if (set->tokens == NULL) return apr_no_memory(err, "the tokenizer's vocabulary");
    for (size_t id = 0; id < vocab->n_tokens; id++) {
        if (vocab->log_probs[id] < least) least = vocab->log_probs[id];
        if (is_piece(vocab, id)) set->tokens[set->n_tokens++] = (apr_added_token){.text = vocab->tokens[id], .id = (int32_t)id};
    }
    apr_set_index(set);
    tokenizer->unknown_score = least - unknown_penalty;
    return APR_OK;
}

/* Keeps the better of the path so far and the given one. */
static void update_path(apr_best_path *path, double score, size_t from, int32_t id)
{
    if (path->from < 0 || score > path->score) *path = (apr_best_path){score, (int32_t)from, id};
}

/* Extends the path at `from` by all tokens that are a prefix of text[from, n_bytes). True: one of them is exactly the first character. */
static bool extend_paths(const apr_tokenizer *tokenizer, apr_best_path *paths, const char *text, size_t from, size_t n_bytes)
{
    const apr_added_set *const set = &tokenizer->pieces;
    const uint8_t first = (uint8_t)text[from];
    const size_t n_char = apr_char_bytes(text + from);
    size_t low = set->first[first], high = set->first[first + 1u];
    bool has_char = false;

    for (size_t depth = 1; low < high; depth++) {
        int32_t id = -1;
        for (; low < high && set->tokens[low].text.n_bytes == depth; low++) id = set->tokens[low].id; /* of equal texts, the last is used */
        if (id >= 0) {
            update_path(&paths[from + depth], tokenizer->vocab->log_probs[id] + paths[from].score, from, id);
            has_char = has_char || depth == n_char;
        }
        if (from + depth == n_bytes) break;
        apr_set_narrow(set, depth, (uint8_t)text[from + depth], &low, &high);
    }
    return has_char;
}

/* The token with exactly this text; -1: none. */
static int32_t find_piece(const apr_tokenizer *tokenizer, const char *text, size_t n_bytes)
{
    const apr_added_set *const set = &tokenizer->pieces;
    size_t low = set->first[(uint8_t)text[0]], high = set->first[(uint8_t)text[0] + 1u];
    int32_t id = -1;

    for (size_t depth = 1; low < high && depth <= n_bytes; depth++) {
        for (; low < high && set->tokens[low].text.n_bytes == depth; low++)
            if (depth == n_bytes) id = set->tokens[low].id;
        if (depth < n_bytes) apr_set_narrow(set, depth, (uint8_t)text[depth], &low, &high);
    }
    return id;
}

/* Encodes a run of unknown characters: as one token with this text, as byte tokens, or as the unknown token. */
static apr_status push_run(const apr_tokenizer *tokenizer, apr_token_work *work, const char *text, size_t n_bytes)
{
    const int32_t id = find_piece(tokenizer, text, n_bytes);
    bool has_bytes = false;

    if (id >= 0) return apr_push_id(work, id);
    if (tokenizer->vocab->byte_fallback) APR_TRY(apr_push_bytes(tokenizer, work, text, n_bytes, &has_bytes));
    return has_bytes ? APR_OK : apr_push_id(work, tokenizer->vocab->unk_id);
}

/* Reverses the best path, which is linked from its end to its start: afterwards paths[start] has the id of the token at `start`, and
 * `from` is the token's end. */
static void reverse_path(apr_best_path *paths, size_t n_bytes)
{
    int32_t at = (int32_t)n_bytes, next = -1, id = -1;
    while (at >= 0) {
        const apr_best_path here = paths[at];
        paths[at] = (apr_best_path){0, next, id};
        id = here.id;
        next = at;
        at = at > 0 ? here.from : -1;
    }
}

static apr_status encode_word(const apr_tokenizer *tokenizer, apr_token_work *work, const char *text, size_t n_bytes)
{
    const int32_t unk = tokenizer->vocab->unk_id;
    apr_best_path *const paths = apr_grow(work->paths, &work->paths_capacity, n_bytes + 1, sizeof *paths);

    if (paths == NULL) return apr_no_memory(work->err, "the tokens of a text");
    work->paths = paths;
    for (size_t i = 0; i <= n_bytes; i++) paths[i] = (apr_best_path){.from = -1};
    for (size_t at = 0; at < n_bytes; at += apr_char_bytes(text + at)) {
        if (extend_paths(tokenizer, paths, text, at, n_bytes)) continue;
        if (unk < 0) return apr_fail(work->err, APR_E_DAMAGED, "the vocabulary has no token for unknown characters");
        update_path(&paths[at + apr_char_bytes(text + at)], tokenizer->unknown_score + paths[at].score, at, unk);
    }
    reverse_path(paths, n_bytes);
    for (size_t at = 0; at < n_bytes;) {
        size_t end = (size_t)paths[at].from;
        if (paths[at].id != unk) {
            APR_TRY(apr_push_id(work, paths[at].id));
        } else {
            while (end < n_bytes && paths[end].id == unk) end = (size_t)paths[end].from;
            APR_TRY(push_run(tokenizer, work, text + at, end - at));
        }
        at = end;
    }
    return APR_OK;
}

/* Writes U+2581 as a space, and a byte token as its byte. */
static size_t token_bytes(const apr_tokenizer *tokenizer, int32_t id, char *dst, size_t capacity)
{
    const apr_str token = tokenizer->vocab->tokens[id];
    size_t n = 0;

    for (int byte = 0; tokenizer->vocab->byte_fallback && byte < 256; byte++) {
        if (tokenizer->byte_ids[byte] != id) continue;
        if (capacity > 0) dst[0] = (char)byte;
        return 1;
    }
    for (size_t at = 0; at < token.n_bytes; n++) {
        const bool is_mark = token.n_bytes - at >= APR_MARK_BYTES && memcmp(token.text + at, apr_space_mark, APR_MARK_BYTES) == 0;
        if (n < capacity) dst[n] = is_mark ? ' ' : token.text[at];
        at += is_mark ? APR_MARK_BYTES : 1;
    }
    return n;
}

const apr_algorithm apr_algorithm_ugm = {open_vocabulary, NULL, encode_word, token_bytes};
