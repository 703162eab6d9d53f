/* tokenizer_normalize.c - normalizers: steps that change a text before it is split, as in Hugging Face's tokenizers; and the spaces of
 * SentencePiece.
 *
 * Each step also tracks n_first, the bytes at the start that come from the first character of the whole text. It decides whether a
 * leading space is added later. */
#include "runtime/tokenizer/tokenizer_internal.h"

#include <stdlib.h>
#include <utf8proc.h>

/* --- character classes: differences between utf8proc 2.8's Unicode tables and those of Hugging Face's tokenizers 0.23 ---
 *
 * Those have Unicode 8 for categories, 12 for normal forms, 17 for case. The tables were found by comparing every code point. A range may
 * also contain code points outside of the class, because the class is tested separately. */

typedef struct range {
    int32_t first, last;
} range;

static bool is_in(const range *ranges, size_t n, int32_t c)
{
    size_t low = 0, high = n;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (ranges[middle].last < c) low = middle + 1;
        else high = middle;
    }
    return low < n && ranges[low].first <= c;
}
#define IS_IN(ranges, c) is_in(ranges, sizeof(ranges) / sizeof *(ranges), c)

/* Newer marks, which StripAccents keeps. */
static const range new_marks[] = {{0x7fd, 0x7fd},     {0x898, 0x8d3},     {0x9fe, 0x9fe},     {0xafa, 0xaff},     {0xb55, 0xb55},
                                  {0xc04, 0xc3c},     {0xcf3, 0xd00},     {0xd3b, 0xd3c},     {0xd81, 0xd81},     {0xeba, 0xeba},
                                  {0xece, 0xece},     {0x1715, 0x1715},   {0x180f, 0x180f},   {0x1abf, 0x1ace},   {0x1cf7, 0x1cf7},
                                  {0x1df6, 0x1dfa},   {0xa82c, 0xa82c},   {0xa8ff, 0xa8ff},   {0x10d24, 0x10f85}, {0x11070, 0x11074},
                                  {0x110c2, 0x110c2}, {0x11145, 0x11146}, {0x111c9, 0x111c9}, {0x111ce, 0x111cf}, {0x11241, 0x11241},
                                  {0x1133b, 0x1133b}, {0x1145e, 0x1145e}, {0x1182c, 0x11a99}, {0x11d31, 0x13455}, {0x16f4f, 0x16f4f},
                                  {0x16f7f, 0x16f87}, {0x16fe4, 0x16ff1}, {0x1cf00, 0x1cf46}, {0x1e08f, 0x1e4ef}};

/* Characters that became Mn later, which BertNormalizer keeps. */
static const range new_nonspacing[] = {{0x7fd, 0x7fd},     {0x898, 0x8e1},     {0x9fe, 0x9fe},     {0xafa, 0xaff},     {0xb55, 0xb55},
                                       {0xc04, 0xc3c},     {0xd00, 0xd00},     {0xd3b, 0xd3c},     {0xd81, 0xd81},     {0xeba, 0xeba},
                                       {0xece, 0xece},     {0x180f, 0x1886},   {0x1abf, 0x1ace},   {0x1df6, 0x1dfb},   {0xa82c, 0xa82c},
                                       {0xa8c5, 0xa8c5},   {0xa8ff, 0xa8ff},   {0xa9bd, 0xa9bd},   {0x10d24, 0x10f85}, {0x11070, 0x11074},
                                       {0x110c2, 0x110c2}, {0x111c9, 0x111c9}, {0x111cf, 0x111cf}, {0x1123e, 0x11241}, {0x1133b, 0x1133b},
                                       {0x11438, 0x1145e}, {0x1182f, 0x13455}, {0x16f4f, 0x16f4f}, {0x16fe4, 0x16fe4}, {0x1cf00, 0x1cf46},
                                       {0x1e000, 0x1e4ef}, {0x1e944, 0x1e94a}};

/* Newer format characters, which BertNormalizer keeps. */
static const range new_formats[] = {{0x890, 0x8e2}, {0x110cd, 0x1343f}};

/* Characters that got a decomposition later. */
static const range new_forms[] = {{0x32ff, 0x32ff},   {0xa7f2, 0xa7f4},   {0xab69, 0xab69},   {0x10781, 0x107ba},
                                  {0x11938, 0x11938}, {0x1e030, 0x1e06d}, {0x1f16c, 0x1f16c}, {0x1fbf0, 0x1fbf9}};

static bool is_mark(int32_t c)
{
    const utf8proc_category_t category = utf8proc_category(c);
    const bool is_mark = category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC || category == UTF8PROC_CATEGORY_ME;
    return (is_mark && !IS_IN(new_marks, c)) || c == 0x1cf2 || c == 0x1cf3; /* these two were marks */
}

static bool is_nonspacing(int32_t c)
{
    return (utf8proc_category(c) == UTF8PROC_CATEGORY_MN && !IS_IN(new_nonspacing, c)) || c == 0x1734; /* U+1734 was Mn in Unicode 8 */
}

static bool is_other(int32_t c)
{
    const utf8proc_category_t category = utf8proc_category(c);
    const bool is_other = category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF || category == UTF8PROC_CATEGORY_CO;
    return is_other && !IS_IN(new_formats, c);
}

static bool stays_whole(int32_t c) { return IS_IN(new_forms, c); }

/* The lower case of a single character. Do not call it for U+0130, which becomes two. */
static int32_t lower_char(int32_t c)
{
    static const struct {
        int32_t first, last, by;
    } newer[] = {{0x1c89, 0x1c89, 1},      {0xa7cb, 0xa7cb, 0x264 - 0xa7cb},
                 {0xa7cc, 0xa7cc, 1},      {0xa7ce, 0xa7ce, 1},
                 {0xa7d2, 0xa7d2, 1},      {0xa7d4, 0xa7d4, 1},
                 {0xa7da, 0xa7da, 1},      {0xa7dc, 0xa7dc, 0x19b - 0xa7dc},
                 {0x10d50, 0x10d65, 0x20}, {0x16ea0, 0x16eb8, 0x1b}};

    for (size_t i = 0; i < sizeof newer / sizeof *newer; i++)
        if (c >= newer[i].first && c <= newer[i].last) return c + newer[i].by;
    return utf8proc_tolower(c);
}

/* --- texts of the steps --- */

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

/* A character of stays_whole is a starter that composes with nothing, so the text before and after it is composed separately. */
static apr_status compose_text(apr_str in, int options, buffer *out, apr_error *err)
{
    size_t done = 0, used;

    for (size_t at = 0; at < in.n_bytes; at += used) {
        const int32_t c = apr_char_at(in.text, in.n_bytes, at, &used);
        if (used < 3 || !stays_whole(c)) continue;
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
    return put_char(out, lower_char(c));
}

static bool take_unaccented(buffer *out, int32_t c) { return is_mark(c) || put_char(out, c); }
static bool take_spacing(buffer *out, int32_t c) { return is_nonspacing(c) || put_char(out, c); }

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

    if (c == 0 || c == 0xfffd || (!is_break && is_other(c))) return true;
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

/* Appends `to` in place of in.text[start, end), or that text itself if `to` is NULL. The tokenizers library aligns a replacement with the
 * last replaced character. */
static bool put_replaced(buffer *out, input in, size_t start, size_t end, const apr_str *to)
{
    const char *const text = in.text.text;
    const size_t n = out->n;
    size_t last = end;

    if (!(to != NULL ? put(out, to->text, to->n_bytes) : put(out, text + start, end - start))) return false;
    while (last > start && ((uint8_t)text[--last] & 0xc0) == 0x80) {
    }
    if (to != NULL && last < end && last < in.n_first) out->n_first = out->n;
    if (to == NULL && start < in.n_first) out->n_first = n + (end < in.n_first ? end : in.n_first) - start;
    return true;
}

static apr_status replace(const apr_normalizer *s, input in, buffer *out, apr_error *err)
{
    const apr_str from = s->step->from;

    for (size_t at = 0, n; at < in.text.n_bytes; at += n) {
        const bool is_match = in.text.n_bytes - at >= from.n_bytes && memcmp(in.text.text + at, from.text, from.n_bytes) == 0;
        n = is_match ? from.n_bytes : 1;
        if (!put_replaced(out, in, at, at + n, is_match ? &s->step->to : NULL)) return no_memory(err);
    }
    return APR_OK;
}

static apr_status replace_matches(const apr_normalizer *s, input in, buffer *out, apr_error *err)
{
    apr_matcher matcher = {0};
    apr_matches found = {0};
    bool has_memory = true;

    apr_status status = apr_matcher_open(&matcher, in.text.n_bytes, err);
    if (status == APR_OK) status = apr_matches_find(&found, &matcher, s->code, in.text.text, in.text.n_bytes, in.text.n_bytes, err);
    for (size_t i = 0; status == APR_OK && i < found.n_spans && has_memory; i++)
        has_memory = put_replaced(out, in, found.spans[i].start, found.spans[i].end, found.spans[i].is_match ? &s->step->to : NULL);
    if (status == APR_OK && !has_memory) status = no_memory(err);
    apr_matches_close(&found);
    apr_matcher_close(&matcher);
    return status;
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

/* The number of bytes of the first n characters. */
static size_t bytes_of_chars(apr_str text, size_t n)
{
    size_t at = 0, used;
    for (; at < text.n_bytes && n > 0; at += used, n--) (void)apr_char_at(text.text, text.n_bytes, at, &used);
    return at;
}

/* Appends `to` in place of n_from characters. n_left: how many characters of the input still come from the text's first one. The tokenizers
 * library aligns characters one by one, and those that are added with the last. Characters deleted at the start leave their place to the
 * next ones. */
static bool put_mapped(buffer *out, size_t n_from, apr_str to, size_t *n_left)
{
    const size_t n = out->n;

    if (!put(out, to.text, to.n_bytes)) return false;
    if (*n_left == 0 || out->n == 0) return true;
    out->n_first = n + (n_from <= *n_left ? to.n_bytes : bytes_of_chars(to, *n_left));
    *n_left -= n_from < *n_left ? n_from : *n_left;
    return true;
}

/* Replaces a short grapheme as a whole if the map has it, else character by character. */
static apr_status map_chars(const apr_normalizer *s, input in, buffer *out, apr_error *err)
{
    enum { WHOLE_BYTES = 6 };
    const charsmap m = open_charsmap(s->step->from);
    const char *const text = in.text.text;
    size_t n_left = apr_count_chars(text, in.n_first);

    for (size_t at = 0, n; at < in.text.n_bytes; at += n) {
        size_t n_mapped = 0;
        n = grapheme_bytes(in.text, at);
        const char *const whole = n < WHOLE_BYTES ? mapped(&m, text + at, n, &n_mapped) : NULL;
        bool has_memory = whole == NULL || put_mapped(out, apr_count_chars(text + at, n), (apr_str){whole, n_mapped}, &n_left);
        for (size_t i = at, used; whole == NULL && i < at + n && has_memory; i += used) {
            (void)apr_char_at(text, at + n, i, &used);
            const char *const one = mapped(&m, text + i, used, &n_mapped);
            has_memory = put_mapped(out, 1, one != NULL ? (apr_str){one, n_mapped} : (apr_str){text + i, used}, &n_left);
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
        if (n->step->kind == APR_NORMAL_PATTERN) APR_TRY(apr_regex_compile(n->step->from.text, &n->code, err));
        tokenizer->n_normalizers++;
    }
    return APR_OK;
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
        if (next.n_first > next.n) next.n_first = next.n; /* the step removed the first character and more */
        /* a character that a step composed of the first one and of others counts as the first */
        while (next.n_first < next.n && ((uint8_t)next.text[next.n_first] & 0xc0) == 0x80) next.n_first++;
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

/* --- SentencePiece's spaces --- */

bool apr_spm_normalizes(const apr_vocab *vocab)
{
    const bool is_metaspace = vocab->add_space_prefix && (!vocab->space_after_added || vocab->prefix_unless_space);
    return vocab->kind == APR_VOCAB_SPM && !is_metaspace && (vocab->add_space_prefix || vocab->escape_spaces);
}

size_t apr_spm_normalized_bytes(const apr_vocab *vocab, const char *text, size_t n_bytes, bool has_prefix)
{
    size_t n_spaces = has_prefix;
    for (size_t i = 0; i < n_bytes; i++) n_spaces += text[i] == ' ';
    return n_bytes + has_prefix + (vocab->escape_spaces ? n_spaces * (APR_MARK_BYTES - 1) : 0);
}

size_t apr_spm_normalize(const apr_vocab *vocab, const char *text, size_t n_bytes, bool has_prefix, char *to)
{
    const char *const space = vocab->escape_spaces ? apr_space_mark : " ";
    const size_t space_bytes = vocab->escape_spaces ? APR_MARK_BYTES : 1;
    size_t n = 0;

    if (has_prefix) {
        memcpy(to, space, space_bytes);
        n = space_bytes;
    }
    for (size_t i = 0; i < n_bytes; i++) {
        const bool is_space = text[i] == ' ';
        memcpy(to + n, is_space ? space : text + i, is_space ? space_bytes : 1);
        n += is_space ? space_bytes : 1;
    }
    return n;
}
