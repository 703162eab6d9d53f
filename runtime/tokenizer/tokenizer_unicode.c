/* tokenizer_unicode.c - differences between utf8proc 2.8's Unicode tables and those of Hugging Face's tokenizers 0.23 (Unicode 8 for
 * categories, 12 for normal forms, 17 for case). The tables were found by comparing every code point. A range may also contain code points
 * outside of the class, because the class is tested separately. */
#include "runtime/tokenizer/tokenizer_internal.h"

#include <utf8proc.h>

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

bool apr_char_is_mark(int32_t c)
{
    const utf8proc_category_t category = utf8proc_category(c);
    const bool is_mark = category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC || category == UTF8PROC_CATEGORY_ME;
    return (is_mark && !IS_IN(new_marks, c)) || c == 0x1cf2 || c == 0x1cf3; /* these two were marks */
}

bool apr_char_is_nonspacing(int32_t c)
{
    return (utf8proc_category(c) == UTF8PROC_CATEGORY_MN && !IS_IN(new_nonspacing, c)) || c == 0x1734; /* U+1734 was Mn in Unicode 8 */
}

bool apr_char_is_other(int32_t c)
{
    const utf8proc_category_t category = utf8proc_category(c);
    const bool is_other = category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF || category == UTF8PROC_CATEGORY_CO;
    return is_other && !IS_IN(new_formats, c);
}

bool apr_char_never_decomposes(int32_t c) { return IS_IN(new_forms, c); }

/* The lower case of a single character. Do not call it for U+0130, which becomes two. */
int32_t apr_char_lower(int32_t c)
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
