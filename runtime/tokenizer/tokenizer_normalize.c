/* tokenizer_normalize.c - normalizers: steps that change a text before it is split, as in Hugging Face's tokenizers.
 *
 * Each step also tracks n_first, the bytes at the start that come from the first character of the whole text. It decides whether a
 * leading space is added later. */
#include "runtime/tokenizer/tokenizer_internal.h"
#include "runtime/tokenizer/tokenizer_regex.h"

#include <stdlib.h>
#include <utf8proc.h>

/* A growable text. */
typedef struct buffer {
    char *text;
    size_t n, capacity;
    size_t n_first; /* bytes at the start that come from the first character of the whole text */
} buffer;

static bool put(buffer *g, const char *text, size_t n_bytes)
{
    char *const grown = n_bytes <= INT32_MAX - g->n ? apr_grow(g->text, &g->capacity, g->n + n_bytes + 1, 1) : NULL;
    if (grown == NULL) return false;
    g->text = grown;
    if (n_bytes > 0) memcpy(g->text + g->n, text, n_bytes);
    g->n += n_bytes;
    return true;
}

static bool put_char(buffer *g, int32_t c)
{
    utf8proc_uint8_t bytes[4];
    return put(g, (const char *)bytes, (size_t)utf8proc_encode_char(c, bytes));
}

/* The input of a step, and the number of its bytes that come from the first character of the whole text. */
typedef struct input {
    apr_str text;
    size_t n_first;
} input;

/* --- one function per kind of step; `in` is UTF-8 --- */

typedef apr_status normal_step(const apr_normalizer *normalizer, input in, buffer *out, apr_error *err);

static apr_status no_memory(apr_error *err) { return apr_no_memory(err, "a normalised text"); }

static apr_status compose_part(apr_str in, int options, buffer *out, apr_error *err)
{
    utf8proc_uint8_t *composed = NULL;
    const utf8proc_ssize_t n = utf8proc_map((const utf8proc_uint8_t *)in.text, (utf8proc_ssize_t)in.n_bytes, &composed,
                                            (utf8proc_option_t)(UTF8PROC_STABLE | options));

    if (n < 0) return apr_fail(err, APR_E_MEMORY, "cannot normalise %zu bytes of text: %s", in.n_bytes, utf8proc_errmsg(n));
    const bool has_memory = put(out, (const char *)composed, (size_t)n);
    free(composed);
    return has_memory ? APR_OK : no_memory(err);
}

/* A character of apr_char_never_decomposes is a starter that composes with nothing, so the text before and after it is composed separately. */
static apr_status compose_text(apr_str in, int options, buffer *out, apr_error *err)
{
    size_t done = 0, used;

    for (size_t at = 0; at < in.n_bytes; at += used) {
        const int32_t c = apr_char_at(in.text, in.n_bytes, at, &used);
        if (used < 3 || !apr_char_never_decomposes(c)) continue;
        APR_TRY(compose_part((apr_str){in.text + done, at - done}, options, out, err));
        if (!put(out, in.text + at, used)) return no_memory(err);
        done = at + used;
    }
    return done < in.n_bytes ? compose_part((apr_str){in.text + done, in.n_bytes - done}, options, out, err) : APR_OK;
}

static apr_status compose(input in, int options, buffer *out, apr_error *err)
{
    buffer first = {0};

    APR_TRY(compose_text(in.text, options, out, err));
    const apr_status status = compose_text((apr_str){in.text.text, in.n_first}, options, &first, err);
    out->n_first = first.n < out->n ? first.n : out->n;
    free(first.text);
    return status;
}

static apr_status nfc(const apr_normalizer *s, input in, buffer *out, apr_error *err)
{
    (void)s;
    return compose(in, UTF8PROC_COMPOSE, out, err);
}
static apr_status nfd(const apr_normalizer *s, input in, buffer *out, apr_error *err)
{
    (void)s;
    return compose(in, UTF8PROC_DECOMPOSE, out, err);
}
static apr_status nfkc(const apr_normalizer *s, input in, buffer *out, apr_error *err)
{
    (void)s;
    return compose(in, UTF8PROC_COMPOSE | UTF8PROC_COMPAT, out, err);
}
static apr_status nfkd(const apr_normalizer *s, input in, buffer *out, apr_error *err)
{
    (void)s;
    return compose(in, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, out, err);
}

/* Calls `take` for each character; take returns false if memory runs out. */
static apr_status each_char(input in, buffer *out, bool (*take)(buffer *out, int32_t c), apr_error *err)
{
    for (size_t at = 0; at < in.text.n_bytes;) {
        size_t used;
        const int32_t c = apr_char_at(in.text.text, in.text.n_bytes, at, &used);
        if (c < 0) return apr_fail(err, APR_E_DAMAGED, "the text is not UTF-8: no character begins at byte %zu", at);
        if (!take(out, c)) return no_memory(err);
        at += used;
        if (at <= in.n_first) out->n_first = out->n;
    }
    return APR_OK;
}

/* The lower case of a single character; only U+0130 becomes two. */
static bool take_lower(buffer *out, int32_t c)
{
    if (c == 0x130) return put(out, "i\xcc\x87", 3);
    return put_char(out, apr_char_lower(c));
}

static bool take_unaccented(buffer *out, int32_t c) { return apr_char_is_mark(c) || put_char(out, c); }
static bool take_spacing(buffer *out, int32_t c) { return apr_char_is_nonspacing(c) || put_char(out, c); }

static bool take_nmt(buffer *out, int32_t c)
{
    const bool is_removed = (c >= 0x01 && c <= 0x08) || c == 0x0b || (c >= 0x0e && c <= 0x1f) || c == 0x7f || c == 0x8f || c == 0x9f;
    const bool is_space = c == 0x09 || c == 0x0a || c == 0x0c || c == 0x0d || c == 0x1680 || (c >= 0x200b && c <= 0x200f) || c == 0x2028 ||
                          c == 0x2029 || c == 0x2581 || c == 0xfeff || c == 0xfffd;
    return is_removed || put_char(out, is_space ? ' ' : c);
}

static bool take_clean(buffer *out, int32_t c)
{
    const bool is_break = c == '\t' || c == '\n' || c == '\r';

    if (c == 0 || c == 0xfffd || (!is_break && apr_char_is_other(c))) return true;
    return put_char(out, is_break || apr_is_white_space(c) ? ' ' : c);
}

static bool take_chinese(buffer *out, int32_t c)
{
    static const int32_t ranges[][2] = {{0x4e00, 0x9fff},   {0x3400, 0x4dbf},   {0x20000, 0x2a6df}, {0x2a700, 0x2b73f},
                                        {0x2b740, 0x2b81f}, {0x2b920, 0x2ceaf}, {0xf900, 0xfaff},   {0x2f800, 0x2fa1f}};
    bool is_chinese = false;

    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) is_chinese = is_chinese || (c >= ranges[i][0] && c <= ranges[i][1]);
    return is_chinese ? put(out, " ", 1) && put_char(out, c) && put(out, " ", 1) : put_char(out, c);
}

static apr_status lowercase(const apr_normalizer *s, input in, buffer *out, apr_error *err)
{
    (void)s;
    return each_char(in, out, take_lower, err);
}
static apr_status strip_accents(const apr_normalizer *s, input in, buffer *out, apr_error *err)
{
    (void)s;
    return each_char(in, out, take_unaccented, err);
}
static apr_status nmt(const apr_normalizer *s, input in, buffer *out, apr_error *err)
{
    (void)s;
    return each_char(in, out, take_nmt, err);
}

static apr_status remove_accents(input in, buffer *out, apr_error *err)
{
    buffer decomposed = {0};
    apr_status status = compose(in, UTF8PROC_DECOMPOSE, &decomposed, err);
    if (status == APR_OK) status = each_char((input){{decomposed.text, decomposed.n}, decomposed.n_first}, out, take_spacing, err);
    free(decomposed.text);
    return status;
}

/* Runs the enabled steps of BertNormalizer in order, each on the output of the one before. */
static apr_status bert(const apr_normalizer *s, input in, buffer *out, apr_error *err)
{
    const struct {
        unsigned flag;
        bool (*take)(buffer *out, int32_t c);
    } parts[] = {
        {APR_BERT_CLEAN, take_clean}, {APR_BERT_CHINESE, take_chinese}, {APR_BERT_ACCENTS, NULL}, {APR_BERT_LOWERCASE, take_lower}};
    buffer now = {.n_first = in.n_first};
    apr_status status = put(&now, in.text.text, in.text.n_bytes) ? APR_OK : no_memory(err);

    for (size_t i = 0; i < sizeof parts / sizeof *parts && status == APR_OK; i++) {
        buffer next = {0};
        if ((s->step->flags & parts[i].flag) == 0) continue;
        const input text = {{now.text, now.n}, now.n_first};
        status = parts[i].take != NULL ? each_char(text, &next, parts[i].take, err) : remove_accents(text, &next, err);
        free(now.text);
        now = next;
    }
    if (status == APR_OK && !put(out, now.text, now.n)) status = no_memory(err);
    out->n_first = now.n_first;
    free(now.text);
    return status;
}

static apr_status strip(const apr_normalizer *s, input in, buffer *out, apr_error *err)
{
    const char *const text = in.text.text;
    size_t start = 0, end = in.text.n_bytes, used;

    while ((s->step->flags & APR_STRIP_LEFT) != 0 && start < end && apr_is_white_space(apr_char_at(text, end, start, &used))) start += used;
    while ((s->step->flags & APR_STRIP_RIGHT) != 0 && end > start && apr_is_white_space(apr_char_before(text, end, &used))) end -= used;
    out->n_first = in.n_first > start ? in.n_first - start : 0;
    return put(out, text + start, end - start) ? APR_OK : no_memory(err);
}

static apr_status prepend(const apr_normalizer *s, input in, buffer *out, apr_error *err)
{
    const size_t n = in.text.n_bytes > 0 ? s->step->to.n_bytes : 0;

    out->n_first = in.n_first > 0 ? n + in.n_first : 0;
    return put(out, s->step->to.text, n) && put(out, in.text.text, in.text.n_bytes) ? APR_OK : no_memory(err);
}

/* n_first after the first n bytes are replaced by `to`. The tokenizers library aligns a replacement with the last replaced character. */
static size_t first_of_replaced(input in, size_t n, apr_str to)
{
    size_t last = 0, used;

    for (size_t at = 0; at < n; at += used) {
        last = at;
        (void)apr_char_at(in.text.text, n, at, &used);
    }
    return last < in.n_first ? to.n_bytes : 0;
}

static apr_status replace(const apr_normalizer *s, input in, buffer *out, apr_error *err)
{
    const apr_str from = s->step->from, to = s->step->to;
    const char *const text = in.text.text;
    bool at_start = false;

    for (size_t at = 0; at < in.text.n_bytes;) {
        const bool is_match = in.text.n_bytes - at >= from.n_bytes && memcmp(text + at, from.text, from.n_bytes) == 0;
        if (!(is_match ? put(out, to.text, to.n_bytes) : put(out, text + at, 1))) return no_memory(err);
        at_start = at_start || (at == 0 && is_match);
        at += is_match ? from.n_bytes : 1;
    }
    out->n_first = at_start ? first_of_replaced(in, from.n_bytes, to) : in.n_first;
    return APR_OK;
}

static apr_status replace_matches(const apr_normalizer *s, input in, buffer *out, apr_error *err)
{
    const apr_str to = s->step->to;
    const char *const text = in.text.text;
    size_t done = 0, n_spans;
    apr_span *spans;

    APR_TRY(apr_find_matches(s->code, text, in.text.n_bytes, &spans, &n_spans, err));
    bool has_memory = true;
    out->n_first = n_spans > 0 && spans[0].start == 0 && spans[0].end > 0 ? first_of_replaced(in, spans[0].end, to) : in.n_first;
    for (size_t i = 0; i < n_spans && has_memory; i++) {
        has_memory = put(out, text + done, spans[i].start - done) && put(out, to.text, to.n_bytes);
        done = spans[i].end;
    }
    free(spans);
    return has_memory && put(out, text + done, in.text.n_bytes - done) ? APR_OK : no_memory(err);
}

/* --- SentencePiece's precompiled charsmap: a double-array trie of 32-bit units over bytes, then the replacement texts ---
 *
 *     u32 size of the trie in bytes | trie | NUL-terminated texts
 *     unit: bits 0..7 label, bit 8 has a value, bit 9 offset is shifted by 8, bits 10..31 offset; a value unit has bit 31 set */

typedef struct charsmap {
    const uint8_t *units;
    size_t n_units;
    const char *texts; /* NUL-terminated */
    size_t n_texts;
} charsmap;

static charsmap open_charsmap(apr_str bytes)
{
    charsmap m = {0};
    const uint8_t *const p = (const uint8_t *)bytes.text;
    const size_t n_trie = bytes.n_bytes >= 4 ? apr_load_le32(p) : 0;

    if (n_trie == 0 || n_trie % 4 != 0 || n_trie > bytes.n_bytes - 4) return m;
    return (charsmap){p + 4, n_trie / 4, bytes.text + 4 + n_trie, bytes.n_bytes - 4 - n_trie};
}

static uint32_t unit_at(const charsmap *m, size_t i) { return i < m->n_units ? apr_load_le32(m->units + 4 * i) : 0; }

static size_t offset_of(uint32_t unit) { return (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6); }

/* The replacement of the shortest key that is a prefix of the bytes; NULL: none. */
static const char *mapped(const charsmap *m, const char *text, size_t n_bytes, size_t *n_mapped)
{
    size_t node = offset_of(unit_at(m, 0));

    for (size_t i = 0; i < n_bytes && text[i] != '\0'; i++) {
        node ^= (uint8_t)text[i];
        const uint32_t unit = unit_at(m, node);
        if ((unit & (1u << 31 | 0xff)) != (uint8_t)text[i]) return NULL;
        node ^= offset_of(unit);
        if ((unit >> 8 & 1) == 0) continue;
        const size_t at = unit_at(m, node) & 0x7fffffff;
        const char *const end = at < m->n_texts ? memchr(m->texts + at, '\0', m->n_texts - at) : NULL;
        *n_mapped = at >= m->n_texts ? 0 : end != NULL ? (size_t)(end - (m->texts + at)) : m->n_texts - at;
        return at < m->n_texts ? m->texts + at : "";
    }
    return NULL;
}

/* The number of bytes of the grapheme at `from`. */
static size_t grapheme_bytes(apr_str in, size_t from)
{
    utf8proc_int32_t before, c, state = 0;
    utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)in.text + from, (utf8proc_ssize_t)(in.n_bytes - from), &before);
    size_t at = from;

    for (at += n > 0 ? (size_t)n : 1; at < in.n_bytes; at += (size_t)n) {
        n = utf8proc_iterate((const utf8proc_uint8_t *)in.text + at, (utf8proc_ssize_t)(in.n_bytes - at), &c);
        if (n <= 0 || utf8proc_grapheme_break_stateful(before, c, &state)) break;
        before = c;
    }
    return at - from;
}

/* Replaces a short grapheme as a whole if the map has it, else character by character. */
static apr_status map_chars(const apr_normalizer *s, input in, buffer *out, apr_error *err)
{
    enum { WHOLE_BYTES = 6 };
    const charsmap m = open_charsmap(s->step->from);
    const apr_str whole_text = in.text;

    out->n_first = in.n_first; /* if the first character is deleted, the next one takes its place */
    for (size_t at = 0, n; at < whole_text.n_bytes; at += n) {
        size_t n_mapped = 0;
        n = grapheme_bytes(whole_text, at);
        const char *const whole = n < WHOLE_BYTES ? mapped(&m, whole_text.text + at, n, &n_mapped) : NULL;
        bool has_memory = whole == NULL || put(out, whole, n_mapped);
        for (size_t i = at, used; whole == NULL && i < at + n && has_memory; i += used) {
            (void)apr_char_at(whole_text.text, at + n, i, &used);
            const char *const one = mapped(&m, whole_text.text + i, used, &n_mapped);
            has_memory = one != NULL ? put(out, one, n_mapped) : put(out, whole_text.text + i, used);
        }
        if (!has_memory) return no_memory(err);
    }
    return APR_OK;
}

/* --- all steps --- */

static normal_step *const steps[] = {
    [APR_NORMAL_NFC] = nfc,
    [APR_NORMAL_NFD] = nfd,
    [APR_NORMAL_NFKC] = nfkc,
    [APR_NORMAL_NFKD] = nfkd,
    [APR_NORMAL_LOWERCASE] = lowercase,
    [APR_NORMAL_STRIP_ACCENTS] = strip_accents,
    [APR_NORMAL_NMT] = nmt,
    [APR_NORMAL_BERT] = bert,
    [APR_NORMAL_STRIP] = strip,
    [APR_NORMAL_PREPEND] = prepend,
    [APR_NORMAL_REPLACE] = replace,
    [APR_NORMAL_PATTERN] = replace_matches,
    [APR_NORMAL_CHARSMAP] = map_chars,
};

apr_status apr_normal_open(apr_tokenizer *tokenizer, apr_error *err)
{
    const apr_vocab *const vocab = tokenizer->vocab;

    if (vocab->n_normals > APR_MAX_NORMALS)
        return apr_fail(err, APR_E_UNSUPPORTED, "the tokenizer normalises text in %zu steps; at most %d are supported", vocab->n_normals,
                        (int)APR_MAX_NORMALS);
    for (size_t i = 0; i < vocab->n_normals; i++) {
        apr_normalizer *const n = &tokenizer->normalizers[tokenizer->n_normalizers];
        *n = (apr_normalizer){.step = &vocab->normals[i]};
        if (n->step->kind == APR_NORMAL_PATTERN) APR_TRY(apr_pattern_code(n->step->from.text, &n->code, err));
        tokenizer->n_normalizers++;
    }
    return APR_OK;
}

void apr_normal_close(apr_tokenizer *tokenizer)
{
    for (size_t i = 0; i < tokenizer->n_normalizers; i++) pcre2_code_free(tokenizer->normalizers[i].code);
}

apr_status apr_normalize(const apr_tokenizer *tokenizer, apr_str text, char **normalized, size_t *n_bytes, bool *keeps_start,
                         apr_error *err)
{
    buffer now = {0};

    (void)apr_char_at(text.text, text.n_bytes, 0, &now.n_first);
    apr_status status = put(&now, text.text, text.n_bytes) ? APR_OK : no_memory(err);

    for (size_t i = 0; i < tokenizer->n_normalizers && status == APR_OK; i++) {
        const apr_normalizer *const n = &tokenizer->normalizers[i];
        buffer next = {0};
        status = steps[n->step->kind](n, (input){{now.text, now.n}, now.n_first}, &next, err);
        if (status == APR_OK && next.text == NULL && !put(&next, "", 0)) status = no_memory(err);
        free(now.text);
        now = next;
    }
    if (status == APR_OK && now.n > INT32_MAX / 8)
        status =
            apr_fail(err, APR_E_UNSUPPORTED, "the normalised text has %zu bytes; at most %d can be encoded at once", now.n, INT32_MAX / 8);
    if (status != APR_OK) {
        free(now.text);
        return status;
    }
    *normalized = now.text;
    *n_bytes = now.n;
    *keeps_start = now.n_first > 0;
    return APR_OK;
}
