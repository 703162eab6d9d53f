/* tokenizer_text.c - characters of UTF-8 text, and text in GPT-2's byte alphabet. */
#include "runtime/tokenizer/tokenizer_internal.h"

#include <utf8proc.h>

int32_t apr_char_at(const char *text, size_t n_bytes, size_t at, size_t *used)
{
    utf8proc_int32_t c;
    const utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(n_bytes - at), &c);
    *used = n > 0 ? (size_t)n : 1;
    return n > 0 ? c : -1;
}

int32_t apr_char_before(const char *text, size_t at, size_t *used)
{
    size_t start = at - 1;
    while (start > 0 && at - start < 4 && ((uint8_t)text[start] & 0xc0) == 0x80) start--;
    return apr_char_at(text, at, start, used);
}

bool apr_is_white_space(int32_t c)
{
    if ((c >= 9 && c <= 13) || c == 0x85) return true;
    const utf8proc_category_t category = utf8proc_category(c);
    return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP;
}

/* --- GPT-2's byte alphabet --- */

/* Writes a letter of the alphabet as UTF-8: one or two bytes. */
static size_t write_letter(unsigned code_point, char dst[2])
{
    if (code_point < 0x80) {
        dst[0] = (char)code_point;
        return 1;
    }
    dst[0] = (char)(0xc0 | code_point >> 6);
    dst[1] = (char)(0x80 | (code_point & 0x3f));
    return 2;
}

size_t apr_write_letters(const char *text, size_t n_bytes, char *dst)
{
    size_t n = 0;
    for (size_t i = 0; i < n_bytes; i++) n += write_letter(apr_letter_of((uint8_t)text[i]), dst + n);
    return n;
}
