/* template_case.c - upper, lower and title case as in Python's str. One letter may become several (sharp s is SS), and a sigma at the end
 * of a word has its own lower case. */
#include "runtime/template/template_internal.h"

#include <string.h>
#include <utf8proc.h>

static uint32_t char_at(apr_tpl_text text, size_t at)
{
    utf8proc_int32_t c = 0;
    if (at < text.n_bytes)
        utf8proc_iterate((const utf8proc_uint8_t *)text.bytes + at, (utf8proc_ssize_t)apr_tpl_char_bytes(text.bytes + at), &c);
    return (uint32_t)c;
}

bool apr_tpl_is_cased(uint32_t c)
{
    const utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT;
}

enum { MAX_FOLDED = 8 };

static size_t fold(uint32_t c, utf8proc_int32_t folded[MAX_FOLDED])
{
    int boundary = 0;
    const utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)c, folded, MAX_FOLDED, UTF8PROC_CASEFOLD, &boundary);
    return n > 0 && n <= MAX_FOLDED ? (size_t)n : 0;
}

/* A lower-case letter that folds to several (sharp s, ligatures, Greek with iota) becomes these letters in upper case. In title case only
 * the first one is upper case. */
static apr_status put_upper(apr_tpl_vm *vm, uint32_t c, bool title)
{
    utf8proc_int32_t folded[MAX_FOLDED];
    const utf8proc_int32_t as_title = utf8proc_totitle((utf8proc_int32_t)c);
    const bool is_upper = utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_LU;
    const size_t n = fold(c, folded);

    if (title && (is_upper || n < 2 || utf8proc_category(as_title) == UTF8PROC_CATEGORY_LT))
        return apr_tpl_put_char(vm, (uint32_t)as_title);
    if (is_upper || n < 2) return apr_tpl_put_char(vm, (uint32_t)utf8proc_toupper((utf8proc_int32_t)c));
    for (size_t i = 0; i < n; i++)
        APR_TRY(apr_tpl_put_char(vm, (uint32_t)(i > 0 && title && folded[0] != 0x2bc ? folded[i] : utf8proc_toupper(folded[i]))));
    return APR_OK;
}

static apr_status put_lower(apr_tpl_vm *vm, apr_tpl_text text, size_t at, uint32_t before)
{
    enum { SIGMA = 0x3a3, FINAL_SIGMA = 0x3c2, DOTTED_I = 0x130, DOT = 0x307 };
    const uint32_t c = char_at(text, at);

    if (c == SIGMA && apr_tpl_is_cased(before) && !apr_tpl_is_cased(char_at(text, at + 2))) return apr_tpl_put_char(vm, FINAL_SIGMA);
    APR_TRY(apr_tpl_put_char(vm, c == DOTTED_I ? 'i' : (uint32_t)utf8proc_tolower((utf8proc_int32_t)c)));
    return c == DOTTED_I ? apr_tpl_put_char(vm, DOT) : APR_OK;
}

static apr_status put_folded(apr_tpl_vm *vm, uint32_t c)
{
    utf8proc_int32_t folded[MAX_FOLDED];
    const size_t n = fold(c, folded);
    for (size_t i = 0; i < n; i++) APR_TRY(apr_tpl_put_char(vm, (uint32_t)folded[i]));
    return n > 0 ? APR_OK : apr_tpl_put_char(vm, c);
}

/* True if a word starts after this character, for Jinja's title filter: white space, hyphens and opening brackets. */
static bool ends_word(apr_tpl_text text, size_t at, uint32_t c)
{
    return c == '-' || (c != 0 && c < 128 && strchr("({[<", (int)c) != NULL) ||
           apr_tpl_is_space(text.bytes + at, apr_tpl_char_bytes(text.bytes + at));
}

apr_status apr_tpl_change_case(apr_tpl_vm *vm, apr_tpl_text text, apr_tpl_case how, apr_tpl_value *out)
{
    const size_t mark = vm->out.n_bytes;
    bool starts_word = true;
    uint32_t before = 0;

    APR_TRY(apr_tpl_steps(vm, text.n_bytes / 16));
    for (size_t at = 0; at < text.n_bytes; at += apr_tpl_char_bytes(text.bytes + at)) {
        const uint32_t c = char_at(text, at);
        const bool is_upper = utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_LU;
        const bool up = how == CASE_UPPER || (how == CASE_SWAP ? !is_upper : how != CASE_LOWER && starts_word);
        const bool is_title = utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_LT;
        if (how == CASE_FOLD) APR_TRY(put_folded(vm, c));
        else if (how == CASE_SWAP && is_title) APR_TRY(apr_tpl_put_char(vm, c));
        else if (up) APR_TRY(put_upper(vm, c, how == CASE_TITLE || how == CASE_CAPITALIZE));
        else APR_TRY(put_lower(vm, text, at, before));
        before = c;
        starts_word = how == CASE_TITLE_FILTER ? ends_word(text, at, c) : how == CASE_TITLE && !apr_tpl_is_cased(c);
    }
    return apr_tpl_take(vm, mark, out);
}
