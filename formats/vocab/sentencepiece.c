/* sentencepiece.c - reads tokenizer.model: protobuf's wire types, and the fields of SentencePiece's messages. */
#include "formats/vocab/sentencepiece.h"
#include "formats/vocab/special_tokens.h"

#include "formats/base/bytes.h"

#include <math.h>
#include <string.h>

enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

typedef struct field {
    uint64_t number;
    uint64_t value;     /* VARINT, FIXED32 */
    apr_cursor message; /* BYTES */
} field;

/* The fields of training and normalizer, with SentencePiece's defaults. */
typedef struct rules {
    int64_t model_type, ids[APR_N_SPECIALS];
    bool byte_fallback, suffix, has_table, dummy_prefix, removes_spaces, escapes_spaces;
} rules;

/* --- protobuf --- */

static uint64_t read_varint(apr_cursor *c)
{
    uint64_t value = 0;

    for (int shift = 0; shift < 70; shift += 7) {
        const uint8_t byte = apr_cursor_u8(c);
        if (shift < 64) value |= (uint64_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) return value;
    }
    c->failed = true;
    return 0;
}

static void take_message(apr_cursor *c, field *f)
{
    const uint64_t n = read_varint(c);
    const uint8_t *const bytes = apr_cursor_take(c, n);
    f->message = (apr_cursor){.data = bytes, .n_bytes = bytes != NULL ? (size_t)n : 0};
}

/* Reads the next field; false at the end, or if the cursor failed. */
static bool next_field(apr_cursor *c, field *f)
{
    if (c->failed || apr_cursor_left(c) == 0) return false;
    const uint64_t key = read_varint(c);
    *f = (field){.number = key >> 3};
    const uint64_t wire = key & 7;
    if (wire == WIRE_VARINT) f->value = read_varint(c);
    else if (wire == WIRE_FIXED64) f->value = apr_cursor_u64(c);
    else if (wire == WIRE_FIXED32) f->value = apr_cursor_u32(c);
    else if (wire == WIRE_BYTES) take_message(c, f);
    else c->failed = true;
    return !c->failed;
}

/* --- training and normalizer --- */

static const size_t roles[APR_N_SPECIALS] = {APR_SPECIAL_UNK, APR_SPECIAL_BOS, APR_SPECIAL_EOS, APR_SPECIAL_PAD}; /* of fields 40 to 43 */

static bool read_training(apr_cursor message, rules *r)
{
    field f;
    while (next_field(&message, &f)) {
        if (f.number == 3) r->model_type = (int64_t)f.value;
        if (f.number == 24) r->suffix = f.value != 0;
        if (f.number == 35) r->byte_fallback = f.value != 0;
        if (f.number >= 40 && f.number < 40 + APR_N_SPECIALS) r->ids[roles[f.number - 40]] = (int32_t)f.value;
    }
    return !message.failed;
}

static bool read_normalizer(apr_cursor message, rules *r)
{
    field f;
    while (next_field(&message, &f)) {
        if (f.number == 2) r->has_table = f.message.n_bytes > 0;
        if (f.number == 3) r->dummy_prefix = f.value != 0;
        if (f.number == 4) r->removes_spaces = f.value != 0;
        if (f.number == 5) r->escapes_spaces = f.value != 0;
    }
    return !message.failed;
}

static const char *obstacle(const rules *r)
{
    return r->model_type != 2  ? "a SentencePiece model of another kind than BPE"
           : r->suffix         ? "SentencePiece's spaces after words"
           : r->has_table      ? "SentencePiece's table of characters"
           : r->removes_spaces ? "SentencePiece's removal of spaces"
           : r->escapes_spaces ? NULL
                               : "SentencePiece's unescaped spaces";
}

/* --- pieces --- */

/* Reads text, score and type of a piece. False: the text is empty, has a NUL or is not UTF-8, or a number is invalid. */
static bool read_piece(apr_cursor piece, apr_str *text, float *score, uint8_t *type)
{
    field f;

    *text = (apr_str){"", 0};
    *score = 0;
    *type = APR_TOKEN_NORMAL;
    while (next_field(&piece, &f)) {
        const uint32_t bits = (uint32_t)f.value;
        if (f.number == 1) *text = (apr_str){(const char *)f.message.data, f.message.n_bytes};
        if (f.number == 2) memcpy(score, &bits, sizeof bits);
        if (f.number == 3) *type = f.value >= APR_TOKEN_NORMAL && f.value <= APR_TOKEN_BYTE ? (uint8_t)f.value : 0;
    }
    return !piece.failed && text->n_bytes > 0 && apr_str_is_utf8(*text) && memchr(text->text, '\0', text->n_bytes) == NULL &&
           isfinite(*score) && *type != 0;
}

static size_t count_pieces(apr_cursor c)
{
    field f;
    size_t n = 0;
    while (next_field(&c, &f)) n += f.number == 1;
    return n;
}

static apr_status read_pieces(apr_cursor c, apr_vocab *v, apr_arena *arena, const char *where, apr_error *err)
{
    const size_t n = count_pieces(c);
    apr_str *const tokens = apr_arena_array(arena, n, sizeof *tokens);
    float *const scores = apr_arena_array(arena, n, sizeof *scores);
    uint8_t *const types = apr_arena_array(arena, n, 1);
    field f;
    size_t id = 0;

    if (tokens == NULL || scores == NULL || types == NULL) return apr_no_memory(err, "the tokens");
    while (next_field(&c, &f)) {
        if (f.number != 1) continue;
        if (!read_piece(f.message, &tokens[id], &scores[id], &types[id]))
            return apr_fail(err, APR_E_DAMAGED, "%s: piece %zu has no text, score or type", where, id);
        id++;
    }
    v->tokens = tokens;
    v->scores = scores;
    v->types = types;
    v->n_tokens = n;
    return APR_OK;
}

/* --- the whole --- */

static apr_status check_id(const apr_vocab *v, int64_t id, int32_t *to, const char *where, apr_error *err)
{
    *to = apr_vocab_has_id(v, id) ? (int32_t)id : -1;
    return id < (int64_t)v->n_tokens ? APR_OK
                                     : apr_fail(err, APR_E_DAMAGED, "%s: token id %lld is outside of the vocabulary", where, (long long)id);
}

static apr_status read_rules(apr_cursor c, rules *r, const char *where, apr_error *err)
{
    field f;
    bool all_read = true;

    while (next_field(&c, &f)) {
        if (f.number == 2) all_read = all_read && read_training(f.message, r);
        if (f.number == 3) all_read = all_read && read_normalizer(f.message, r);
    }
    return all_read && !c.failed ? APR_OK : apr_fail(err, APR_E_DAMAGED, "%s: not a SentencePiece model, or truncated", where);
}

apr_status apr_sentencepiece_read(const apr_attachment *file, apr_vocab *v, apr_arena *arena, const char *where, apr_error *err)
{
    const apr_cursor c = {.data = file->data, .n_bytes = file->n_bytes};
    rules r = {.model_type = 1,
               .ids = {[APR_SPECIAL_BOS] = 1, [APR_SPECIAL_EOS] = 2, [APR_SPECIAL_UNK] = 0, [APR_SPECIAL_PAD] = -1},
               .dummy_prefix = true,
               .removes_spaces = true,
               .escapes_spaces = true};

    APR_TRY(read_rules(c, &r, where, err));
    v->unsupported = obstacle(&r);
    if (v->unsupported != NULL) return APR_OK;
    APR_TRY(read_pieces(c, v, arena, where, err));
    for (size_t i = 0; i < APR_N_SPECIALS; i++) APR_TRY(check_id(v, r.ids[roles[i]], apr_special_id(v, roles[i]), where, err));
    v->kind = APR_VOCAB_SPM;
    v->byte_fallback = r.byte_fallback;
    v->escape_spaces = true;
    v->add_space_prefix = r.dummy_prefix;
    v->space_after_added = r.dummy_prefix; /* loaders encode each piece between special tokens separately */
    v->add_bos = v->bos_id >= 0;
    apr_vocab_add_stop(v, v->eos_id);
    return APR_OK;
}
