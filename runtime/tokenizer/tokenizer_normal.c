/* tokenizer_normal.c - the steps that change a text before it is split, as Hugging Face's tokenizers has them. */
#include "runtime/tokenizer/tokenizer_internal.h"
#include "runtime/tokenizer/tokenizer_regex.h"

#include <stdlib.h>
#include <utf8proc.h>

/* A text that grows. */
typedef struct growing {
    char *text;
    size_t n, capacity;
    size_t n_first; /* bytes at the begin that come of the first character of the whole text */
} growing;

static bool put(growing *g, const char *text, size_t n_bytes)
{
    char *const grown = n_bytes <= INT32_MAX - g->n ? apr_grow(g->text, &g->capacity, g->n + n_bytes + 1, 1) : NULL;
    if (grown == NULL) return false;
    g->text = grown;
    if (n_bytes > 0) memcpy(g->text + g->n, text, n_bytes);
    g->n += n_bytes;
    return true;
}

static bool put_char(growing *g, int32_t c)
{
    utf8proc_uint8_t bytes[4];
    return put(g, (const char *)bytes, (size_t)utf8proc_encode_char(c, bytes));
}

/* A step's text, and how many bytes of it come of the first character of the whole text. */
typedef struct input {
    apr_str text;
    size_t n_first;
} input;

/* --- one function a kind: `in` is UTF-8 --- */

typedef apr_status normal_step(const apr_normalizer *normalizer, input in, growing *out, apr_error *err);

static apr_status no_room(apr_error *err) { return apr_no_memory(err, "a normalised text"); }

static apr_status compose_part(apr_str in, int options, growing *out, apr_error *err)
{
    utf8proc_uint8_t *made = NULL;
    const utf8proc_ssize_t n = utf8proc_map((const utf8proc_uint8_t *)in.text, (utf8proc_ssize_t)in.n_bytes, &made,
                                            (utf8proc_option_t)(UTF8PROC_STABLE | options));

    if (n < 0) return apr_fail(err, APR_E_MEMORY, "cannot normalise %zu bytes of text: %s", in.n_bytes, utf8proc_errmsg(n));
    const bool has_room = put(out, (const char *)made, (size_t)n);
    free(made);
    return has_room ? APR_OK : no_room(err);
}

/* What stays whole is a starter that composes with nothing: text before and behind it has its own form. */
static apr_status compose_text(apr_str in, int options, growing *out, apr_error *err)
{
    size_t done = 0, used;

    for (size_t at = 0; at < in.n_bytes; at += used) {
        const int32_t c = apr_char_at(in.text, in.n_bytes, at, &used);
        if (used < 3 || !apr_char_stays_whole(c)) continue;
        APR_TRY(compose_part((apr_str){in.text + done, at - done}, options, out, err));
        if (!put(out, in.text + at, used)) return no_room(err);
        done = at + used;
    }
    return done < in.n_bytes ? compose_part((apr_str){in.text + done, in.n_bytes - done}, options, out, err) : APR_OK;
}

static apr_status compose(input in, int options, growing *out, apr_error *err)
{
    growing first = {0};

    APR_TRY(compose_text(in.text, options, out, err));
    const apr_status status = compose_text((apr_str){in.text.text, in.n_first}, options, &first, err);
    out->n_first = first.n < out->n ? first.n : out->n;
    free(first.text);
    return status;
}

static apr_status nfc(const apr_normalizer *s, input in, growing *out, apr_error *err)
{
    (void)s;
    return compose(in, UTF8PROC_COMPOSE, out, err);
}
static apr_status nfd(const apr_normalizer *s, input in, growing *out, apr_error *err)
{
    (void)s;
    return compose(in, UTF8PROC_DECOMPOSE, out, err);
}
static apr_status nfkc(const apr_normalizer *s, input in, growing *out, apr_error *err)
{
    (void)s;
    return compose(in, UTF8PROC_COMPOSE | UTF8PROC_COMPAT, out, err);
}
static apr_status nfkd(const apr_normalizer *s, input in, growing *out, apr_error *err)
{
    (void)s;
    return compose(in, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, out, err);
}

/* Calls for each character; false: no room. */
static apr_status each_char(input in, growing *out, bool (*take)(growing *out, int32_t c), apr_error *err)
{
    for (size_t at = 0; at < in.text.n_bytes;) {
        size_t used;
        const int32_t c = apr_char_at(in.text.text, in.text.n_bytes, at, &used);
        if (c < 0) return apr_fail(err, APR_E_DAMAGED, "the text is not UTF-8: its byte %zu begins no character", at);
        if (!take(out, c)) return no_room(err);
        at += used;
        if (at <= in.n_first) out->n_first = out->n;
    }
    return APR_OK;
}

/* Of one character by itself: U+0130 is the only one that becomes two. */
static bool take_lower(growing *out, int32_t c)
{
    if (c == 0x130) return put(out, "i\xcc\x87", 3);
    return put_char(out, apr_char_lower(c));
}

static bool take_unaccented(growing *out, int32_t c) { return apr_char_is_mark(c) || put_char(out, c); }
static bool take_spacing(growing *out, int32_t c) { return apr_char_is_nonspacing(c) || put_char(out, c); }

static bool take_nmt(growing *out, int32_t c)
{
    const bool goes = (c >= 0x01 && c <= 0x08) || c == 0x0b || (c >= 0x0e && c <= 0x1f) || c == 0x7f || c == 0x8f || c == 0x9f;
    const bool is_space = c == 0x09 || c == 0x0a || c == 0x0c || c == 0x0d || c == 0x1680 || (c >= 0x200b && c <= 0x200f) || c == 0x2028 ||
                          c == 0x2029 || c == 0x2581 || c == 0xfeff || c == 0xfffd;
    return goes || put_char(out, is_space ? ' ' : c);
}

static bool take_clean(growing *out, int32_t c)
{
    const bool is_break = c == '\t' || c == '\n' || c == '\r';

    if (c == 0 || c == 0xfffd || (!is_break && apr_char_is_other(c))) return true;
    return put_char(out, is_break || apr_is_white_space(c) ? ' ' : c);
}

static bool take_chinese(growing *out, int32_t c)
{
    static const int32_t ranges[][2] = {{0x4e00, 0x9fff},   {0x3400, 0x4dbf},   {0x20000, 0x2a6df}, {0x2a700, 0x2b73f},
                                        {0x2b740, 0x2b81f}, {0x2b920, 0x2ceaf}, {0xf900, 0xfaff},   {0x2f800, 0x2fa1f}};
    bool is_chinese = false;

    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) is_chinese = is_chinese || (c >= ranges[i][0] && c <= ranges[i][1]);
    return is_chinese ? put(out, " ", 1) && put_char(out, c) && put(out, " ", 1) : put_char(out, c);
}

static apr_status lowercase(const apr_normalizer *s, input in, growing *out, apr_error *err)
{
    (void)s;
    return each_char(in, out, take_lower, err);
}
static apr_status strip_accents(const apr_normalizer *s, input in, growing *out, apr_error *err)
{
    (void)s;
    return each_char(in, out, take_unaccented, err);
}
static apr_status nmt(const apr_normalizer *s, input in, growing *out, apr_error *err)
{
    (void)s;
    return each_char(in, out, take_nmt, err);
}

static apr_status take_accents_away(input in, growing *out, apr_error *err)
{
    growing apart = {0};
    apr_status status = compose(in, UTF8PROC_DECOMPOSE, &apart, err);
    if (status == APR_OK) status = each_char((input){{apart.text, apart.n}, apart.n_first}, out, take_spacing, err);
    free(apart.text);
    return status;
}

/* Its parts in their order, each on what the one before made. */
static apr_status bert(const apr_normalizer *s, input in, growing *out, apr_error *err)
{
    const struct {
        unsigned flag;
        bool (*take)(growing *out, int32_t c);
    } parts[] = {
        {APR_BERT_CLEAN, take_clean}, {APR_BERT_CHINESE, take_chinese}, {APR_BERT_ACCENTS, NULL}, {APR_BERT_LOWERCASE, take_lower}};
    growing now = {.n_first = in.n_first};
    apr_status status = put(&now, in.text.text, in.text.n_bytes) ? APR_OK : no_room(err);

    for (size_t i = 0; i < sizeof parts / sizeof *parts && status == APR_OK; i++) {
        growing next = {0};
        if ((s->step->flags & parts[i].flag) == 0) continue;
        const input text = {{now.text, now.n}, now.n_first};
        status = parts[i].take != NULL ? each_char(text, &next, parts[i].take, err) : take_accents_away(text, &next, err);
        free(now.text);
        now = next;
    }
    if (status == APR_OK && !put(out, now.text, now.n)) status = no_room(err);
    out->n_first = now.n_first;
    free(now.text);
    return status;
}

static apr_status strip(const apr_normalizer *s, input in, growing *out, apr_error *err)
{
    const char *const text = in.text.text;
    size_t start = 0, end = in.text.n_bytes, used;

    while ((s->step->flags & APR_STRIP_LEFT) != 0 && start < end && apr_is_white_space(apr_char_at(text, end, start, &used))) start += used;
    while ((s->step->flags & APR_STRIP_RIGHT) != 0 && end > start && apr_is_white_space(apr_char_before(text, end, &used))) end -= used;
    out->n_first = in.n_first > start ? in.n_first - start : 0;
    return put(out, text + start, end - start) ? APR_OK : no_room(err);
}

static apr_status prepend(const apr_normalizer *s, input in, growing *out, apr_error *err)
{
    const size_t n = in.text.n_bytes > 0 ? s->step->to.n_bytes : 0;

    out->n_first = in.n_first > 0 ? n + in.n_first : 0;
    return put(out, s->step->to.text, n) && put(out, in.text.text, in.text.n_bytes) ? APR_OK : no_room(err);
}

/* What takes the place of the first n bytes counts as the last of their characters, as tokenizers aligns it. */
static size_t first_of_replaced(input in, size_t n, apr_str to)
{
    size_t last = 0, used;

    for (size_t at = 0; at < n; at += used) {
        last = at;
        (void)apr_char_at(in.text.text, n, at, &used);
    }
    return last < in.n_first ? to.n_bytes : 0;
}

static apr_status replace(const apr_normalizer *s, input in, growing *out, apr_error *err)
{
    const apr_str from = s->step->from, to = s->step->to;
    const char *const text = in.text.text;
    bool at_begin = false;

    for (size_t at = 0; at < in.text.n_bytes;) {
        const bool is_there = in.text.n_bytes - at >= from.n_bytes && memcmp(text + at, from.text, from.n_bytes) == 0;
        if (!(is_there ? put(out, to.text, to.n_bytes) : put(out, text + at, 1))) return no_room(err);
        at_begin = at_begin || (at == 0 && is_there);
        at += is_there ? from.n_bytes : 1;
    }
    out->n_first = at_begin ? first_of_replaced(in, from.n_bytes, to) : in.n_first;
    return APR_OK;
}

static apr_status replace_matches(const apr_normalizer *s, input in, growing *out, apr_error *err)
{
    const apr_str to = s->step->to;
    const char *const text = in.text.text;
    size_t done = 0, n_spans;
    apr_span *spans;

    APR_TRY(apr_find_matches(s->code, text, in.text.n_bytes, &spans, &n_spans, err));
    bool has_room = true;
    out->n_first = n_spans > 0 && spans[0].start == 0 && spans[0].end > 0 ? first_of_replaced(in, spans[0].end, to) : in.n_first;
    for (size_t i = 0; i < n_spans && has_room; i++) {
        has_room = put(out, text + done, spans[i].start - done) && put(out, to.text, to.n_bytes);
        done = spans[i].end;
    }
    free(spans);
    return has_room && put(out, text + done, in.text.n_bytes - done) ? APR_OK : no_room(err);
}

/* --- SentencePiece's compiled map: a double array of 32-bit units over bytes, and the texts that it leads to --- */

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

/* The text of the shortest key that the bytes begin with; NULL: none. */
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

/* Bytes of the grapheme that begins there. */
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

/* A short grapheme as a whole where the map has it, else character by character. */
static apr_status map_chars(const apr_normalizer *s, input in, growing *out, apr_error *err)
{
    enum { WHOLE_BYTES = 6 };
    const charsmap m = open_charsmap(s->step->from);
    const apr_str whole_text = in.text;

    out->n_first = in.n_first; /* what it deletes at the begin leaves its place to what follows */
    for (size_t at = 0, n; at < whole_text.n_bytes; at += n) {
        size_t n_mapped = 0;
        n = grapheme_bytes(whole_text, at);
        const char *const whole = n < WHOLE_BYTES ? mapped(&m, whole_text.text + at, n, &n_mapped) : NULL;
        bool has_room = whole == NULL || put(out, whole, n_mapped);
        for (size_t i = at, used; whole == NULL && i < at + n && has_room; i += used) {
            (void)apr_char_at(whole_text.text, at + n, i, &used);
            const char *const one = mapped(&m, whole_text.text + i, used, &n_mapped);
            has_room = one != NULL ? put(out, one, n_mapped) : put(out, whole_text.text + i, used);
        }
        if (!has_room) return no_room(err);
    }
    return APR_OK;
}

/* --- all of them --- */

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
    growing now = {0};

    (void)apr_char_at(text.text, text.n_bytes, 0, &now.n_first);
    apr_status status = put(&now, text.text, text.n_bytes) ? APR_OK : no_room(err);

    for (size_t i = 0; i < tokenizer->n_normalizers && status == APR_OK; i++) {
        const apr_normalizer *const n = &tokenizer->normalizers[i];
        growing next = {0};
        status = steps[n->step->kind](n, (input){{now.text, now.n}, now.n_first}, &next, err);
        if (status == APR_OK && next.text == NULL && !put(&next, "", 0)) status = no_room(err);
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
