/* tokenizer.c - encodes text (added tokens, normalisation, then the algorithm of the vocabulary's kind) and decodes ids. */
#include "runtime/tokenizer/tokenizer_internal.h"

#include <stdlib.h>
#include <utf8proc.h>

static const apr_algorithm *const algorithms[] = {[APR_VOCAB_BPE] = &apr_algorithm_bpe,
                                                  [APR_VOCAB_SPM] = &apr_algorithm_spm,
                                                  [APR_VOCAB_WPM] = &apr_algorithm_wpm,
                                                  [APR_VOCAB_UGM] = &apr_algorithm_ugm};

static apr_status open_tables(apr_tokenizer *tokenizer, apr_error *err)
{
    const apr_vocab *const vocab = tokenizer->vocab;

    APR_TRY(apr_token_table_open(&tokenizer->tokens, vocab, &tokenizer->arena, err));
    APR_TRY(apr_normal_open(tokenizer, err));
    APR_TRY(apr_added_open(tokenizer, err));
    APR_TRY(apr_split_open(tokenizer, err));
    return algorithms[vocab->kind]->open(tokenizer, err);
}

#define UNSUPPORTED "the tokenizer has %s, which is not supported; text cannot be encoded"

apr_status apr_tokenizer_open(apr_tokenizer **tokenizer, const apr_vocab *vocab, apr_error *err)
{
    *tokenizer = NULL;
    if (vocab != NULL && vocab->kind == APR_VOCAB_NONE && vocab->unsupported != NULL)
        return apr_fail(err, APR_E_UNSUPPORTED, UNSUPPORTED, vocab->unsupported);
    if (vocab == NULL || vocab->kind == APR_VOCAB_NONE || vocab->n_tokens == 0)
        return apr_fail(err, APR_E_UNSUPPORTED, "the model has no vocabulary of a known kind; text cannot be encoded");
    if (vocab->n_tokens > INT32_MAX / 4 || vocab->tokens == NULL)
        return apr_fail(err, APR_E_DAMAGED, "the vocabulary states %zu tokens, which is not possible", vocab->n_tokens);
    if (vocab->kind == APR_VOCAB_BPE && vocab->pattern == NULL && vocab->n_splits == 0 && vocab->pre != NULL)
        return apr_fail(err, APR_E_UNSUPPORTED,
                        "the vocabulary's splitting rule \"%s\" is unknown; use the model with its tokenizer.json, which states it",
                        vocab->pre);

    apr_tokenizer *const opened = calloc(1, sizeof *opened);
    if (opened == NULL) return apr_no_memory(err, "the tokenizer");
    opened->vocab = vocab;
    const apr_status status = open_tables(opened, err);
    if (status != APR_OK) apr_tokenizer_close(opened);
    else *tokenizer = opened;
    return status;
}

apr_status apr_tokenizer_need(const apr_model *model, apr_error *err)
{
    const apr_vocab *const vocab = &model->vocab;
    const bool is_one_file = model->format == APR_FORMAT_GGUF || model->format == APR_FORMAT_APR;

    if (vocab->kind != APR_VOCAB_NONE && vocab->n_tokens > 0) return APR_OK;
    if (vocab->unsupported != NULL) return apr_fail(err, APR_E_UNSUPPORTED, "%s: " UNSUPPORTED, model->path, vocab->unsupported);
    return apr_fail(err, APR_E_UNSUPPORTED, "%s has no tokenizer: %s tokenizer.json, tokenizer.model or tekken.json%s", model->path,
                    is_one_file ? "convert the model again from a folder with its" : "put the model's",
                    is_one_file ? "" : " next to its weights");
}

apr_status apr_tokenizer_of_model(apr_tokenizer **tokenizer, const apr_model *model, apr_error *err)
{
    apr_error own = {0};

    *tokenizer = NULL;
    APR_TRY(apr_tokenizer_need(model, err));
    const apr_status status = apr_tokenizer_open(tokenizer, &model->vocab, &own);
    return status == APR_OK ? APR_OK : apr_fail(err, status, "%s: %s", model->path, own.text);
}

void apr_tokenizer_close(apr_tokenizer *tokenizer)
{
    if (tokenizer == NULL) return;
    for (size_t i = 0; i < tokenizer->n_splitters; i++) pcre2_code_free(tokenizer->splitters[i].code);
    for (size_t i = 0; i < tokenizer->n_normalizers; i++) pcre2_code_free(tokenizer->normalizers[i].code);
    apr_arena_close(&tokenizer->arena);
    free(tokenizer);
}

/* ---- encoding ---- */

static bool is_special_id(const apr_vocab *vocab, int32_t id) { return id >= 0 && (size_t)id < vocab->n_tokens; }

static apr_status encode_text(const apr_tokenizer *tokenizer, apr_token_work *work, const char *text, size_t n_bytes, bool at_start)
{
    const apr_algorithm *const algorithm = algorithms[tokenizer->vocab->kind];

    if (algorithm->encode != NULL) return algorithm->encode(tokenizer, work, text, n_bytes, at_start);
    work->at_start = at_start;
    return apr_split_text(tokenizer, work, text, n_bytes, algorithm->encode_word);
}

/* Encodes normalised text between added tokens of the raw text. The leading space is added before it (at_start), and after an added token
 * that is found here (after_added). */
static apr_status encode_normalized(const apr_tokenizer *tokenizer, apr_token_work *work, const char *text, size_t n_bytes, bool at_start,
                                    bool after_added)
{
    for (size_t done = 0; done < n_bytes;) {
        const apr_added_match match = apr_added_next(&tokenizer->normalized, text, n_bytes, done, work->options->parse_special);
        if (match.start > done) APR_TRY(encode_text(tokenizer, work, text + done, match.start - done, done == 0 ? at_start : after_added));
        if (match.token != NULL) APR_TRY(apr_push_id(work, match.token->id));
        done = match.end;
    }
    return APR_OK;
}

/* The normalizer replaces spaces here only if added tokens are matched in its output; else the algorithm of SentencePiece does. */
static apr_status encode_composed(const apr_tokenizer *tokenizer, apr_token_work *work, const char *text, size_t n_bytes, bool at_start)
{
    const apr_vocab *const vocab = tokenizer->vocab;

    if (tokenizer->normalized.n_tokens == 0 || !apr_spm_normalizes(vocab))
        return encode_normalized(tokenizer, work, text, n_bytes, at_start, vocab->space_after_added);
    const bool has_prefix = vocab->add_space_prefix && at_start;
    char *const normalized = malloc(apr_spm_normalized_bytes(vocab, text, n_bytes, has_prefix) + 1);
    if (normalized == NULL) return apr_no_memory(work->err, "a normalised text");
    const size_t n = apr_spm_normalize(vocab, text, n_bytes, has_prefix, normalized);
    const apr_status status = encode_normalized(tokenizer, work, normalized, n, false, false);
    free(normalized);
    return status;
}

/* True if all characters are below U+0300 (UTF-8 lead byte 0xcc), where nothing composes; a quick test. */
static bool is_surely_nfc(const char *text, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++)
        if ((uint8_t)text[i] >= 0xcc) return false;
    return true;
}

static apr_status encode_by_steps(const apr_tokenizer *tokenizer, apr_token_work *work, const char *text, size_t n_bytes, bool at_start)
{
    char *normalized;
    size_t n;
    bool keeps_start;

    APR_TRY(apr_normalize(tokenizer, (apr_str){text, n_bytes}, &normalized, &n, &keeps_start, work->err));
    const apr_status status = encode_normalized(tokenizer, work, normalized, n, at_start && keeps_start, false);
    free(normalized);
    return status;
}

static apr_status encode_raw(const apr_tokenizer *tokenizer, apr_token_work *work, const char *text, size_t n_bytes, bool at_start)
{
    if (tokenizer->n_normalizers > 0) return encode_by_steps(tokenizer, work, text, n_bytes, at_start);
    if (!tokenizer->vocab->nfc || is_surely_nfc(text, n_bytes)) return encode_composed(tokenizer, work, text, n_bytes, at_start);

    utf8proc_uint8_t *nfc = NULL;
    const utf8proc_ssize_t n =
        utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n_bytes, &nfc, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    if (n < 0) return apr_fail(work->err, APR_E_MEMORY, "cannot normalise %zu bytes of text: %s", n_bytes, utf8proc_errmsg(n));
    const apr_status status = encode_composed(tokenizer, work, (const char *)nfc, (size_t)n, at_start);
    free(nfc);
    return status;
}

static apr_status check_text(const char *text, size_t n_bytes, apr_error *err)
{
    if (n_bytes > INT32_MAX / 8)
        return apr_fail(err, APR_E_UNSUPPORTED, "the text has %zu bytes; at most %d can be encoded at once", n_bytes, INT32_MAX / 8);
    for (size_t at = 0; at < n_bytes;) {
        utf8proc_int32_t c;
        const utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(n_bytes - at), &c);
        if (n <= 0) return apr_fail(err, APR_E_DAMAGED, "the text is not UTF-8: no character begins at byte %zu", at);
        at += (size_t)n;
    }
    return APR_OK;
}

static apr_status encode_all(const apr_tokenizer *tokenizer, apr_token_work *work, const char *text, size_t n_bytes)
{
    const apr_vocab *const vocab = tokenizer->vocab;
    const bool add_special = work->options->add_special;

    APR_TRY(check_text(text, n_bytes, work->err));
    if (add_special && vocab->add_bos && is_special_id(vocab, vocab->bos_id)) APR_TRY(apr_push_id(work, vocab->bos_id));
    for (size_t done = 0; done < n_bytes;) {
        const apr_added_match match = apr_added_next(&tokenizer->raw, text, n_bytes, done, work->options->parse_special);
        if (match.start > done)
            APR_TRY(encode_raw(tokenizer, work, text + done, match.start - done, done == 0 || vocab->space_after_added));
        if (match.token != NULL) APR_TRY(apr_push_id(work, match.token->id));
        done = match.end;
    }
    if (add_special && vocab->add_eos && is_special_id(vocab, vocab->eos_id)) APR_TRY(apr_push_id(work, vocab->eos_id));
    return APR_OK;
}

apr_status apr_tokenizer_encode(const apr_tokenizer *tokenizer, const char *text, size_t n_bytes, const apr_encode_options *options,
                                int32_t **ids, size_t *n_ids, apr_error *err)
{
    apr_token_work work = {.options = options, .err = err};

    *ids = NULL;
    *n_ids = 0;
    apr_status status = encode_all(tokenizer, &work, text, n_bytes);
    if (status == APR_OK && work.ids == NULL && (work.ids = malloc(sizeof work.ids[0])) == NULL)
        status = apr_no_memory(err, "the tokens of a text"); /* never NULL, even without ids */
    if (status == APR_OK) {
        *ids = work.ids;
        *n_ids = work.n_ids;
    } else {
        free(work.ids);
    }
    free(work.symbols);
    free(work.heap);
    free(work.escaped);
    free(work.paths);
    apr_split_close_work(&work);
    return status;
}

/* ---- decoding ---- */

size_t apr_tokenizer_token_bytes(const apr_tokenizer *tokenizer, int32_t id, bool show_special, char *dst, size_t capacity)
{
    const apr_vocab *const vocab = tokenizer->vocab;

    if (id < 0 || (size_t)id >= vocab->n_tokens) return 0;
    if (vocab->types != NULL && vocab->types[id] == APR_TOKEN_UNUSED) return 0;
    if (apr_token_is_control(vocab, (size_t)id) && !show_special) return 0;
    const bool is_text = !apr_token_is_added(vocab, (size_t)id) && !apr_token_is_control(vocab, (size_t)id);
    if (is_text || vocab->kind == APR_VOCAB_WPM) /* WordPiece separates all tokens by spaces */
        return algorithms[vocab->kind]->bytes(tokenizer, id, dst, capacity);
    const apr_str token = vocab->tokens[id];
    const size_t n = token.n_bytes < capacity ? token.n_bytes : capacity;
    if (n > 0) memcpy(dst, token.text, n);
    return token.n_bytes;
}

/* True if encoding adds a leading space, which decoding removes. */
static bool drops_space(const apr_vocab *vocab)
{
    bool has_space = vocab->n_normals > 0 && vocab->normals[0].kind == APR_NORMAL_PREPEND;

    if (vocab->kind == APR_VOCAB_SPM) return vocab->add_space_prefix;
    for (size_t i = 0; i < vocab->n_splits; i++) has_space = has_space || vocab->splits[i].space != APR_SPACE_NEVER;
    return vocab->kind == APR_VOCAB_WPM || (vocab->kind == APR_VOCAB_UGM && has_space);
}

/* The length of WordPiece's prefix if the first token has it: it is kept at the start of a text. */
static size_t first_prefix(const apr_vocab *vocab, const int32_t *ids, size_t n_ids)
{
    if (vocab->kind != APR_VOCAB_WPM || n_ids == 0 || ids[0] < 0 || (size_t)ids[0] >= vocab->n_tokens) return 0;
    const size_t n = strlen(vocab->word_prefix);
    const apr_str token = vocab->tokens[ids[0]];
    return token.n_bytes >= n && memcmp(token.text, vocab->word_prefix, n) == 0 ? n : 0;
}

apr_status apr_tokenizer_decode(const apr_tokenizer *tokenizer, const int32_t *ids, size_t n_ids, bool show_special, char **text,
                                size_t *n_bytes, apr_error *err)
{
    const apr_vocab *const vocab = tokenizer->vocab;
    const size_t n_prefix = first_prefix(vocab, ids, n_ids);
    size_t n_total = n_prefix, at = n_prefix;

    *text = NULL;
    *n_bytes = 0;
    for (size_t i = 0; i < n_ids; i++)
        if (__builtin_add_overflow(n_total, apr_tokenizer_token_bytes(tokenizer, ids[i], show_special, NULL, 0), &n_total))
            return apr_no_memory(err, "the text of the tokens");
    char *const out = n_total < SIZE_MAX ? malloc(n_total + 1) : NULL;
    if (out == NULL) return apr_no_memory(err, "the text of the tokens");
    if (n_prefix > 0) memcpy(out, vocab->word_prefix, n_prefix);
    for (size_t i = 0; i < n_ids; i++) at += apr_tokenizer_token_bytes(tokenizer, ids[i], show_special, out + at, n_total - at);
    if (drops_space(vocab) && at > 0 && out[0] == ' ') memmove(out, out + 1, --at);
    out[at] = '\0';
    *text = out;
    *n_bytes = at;
    return APR_OK;
}

bool apr_tokenizer_is_stop(const apr_tokenizer *tokenizer, int32_t id)
{
    const apr_vocab *const vocab = tokenizer->vocab;
    if (id < 0) return false;
    for (size_t i = 0; i < vocab->n_stop_ids; i++)
        if (vocab->stop_ids[i] == id) return true;
    return id == vocab->eos_id;
}
