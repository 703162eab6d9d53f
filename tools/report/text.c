/* text.c - formats numbers for people, makes strings from files safe to print, and measures columns. */
#include "tools/report/text.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum { MAX_DECIMALS = 9 };

char *apr_size_text(char text[APR_SMALL_TEXT], uint64_t n_bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    double size = (double)n_bytes / 1024.0;
    size_t unit = 0;

    if (n_bytes < 1024) {
        snprintf(text, APR_SMALL_TEXT, "%llu B", (unsigned long long)n_bytes);
        return text;
    }
    /* 1023.995 would be printed as 1024.00 */
    for (; size >= 1023.995 && unit + 1 < sizeof units / sizeof *units; unit++) size /= 1024.0;
    snprintf(text, APR_SMALL_TEXT, "%.2f %s", size, units[unit]);
    return text;
}

char *apr_count_text(char text[APR_SMALL_TEXT], int64_t n)
{
    char plain[APR_SMALL_TEXT];
    const int length = snprintf(plain, sizeof plain, "%lld", (long long)n), first = plain[0] == '-';
    size_t at = 0;

    for (int i = 0; i < length; i++) {
        if (i > first && (length - i) % 3 == 0) text[at++] = ',';
        text[at++] = plain[i];
    }
    text[at] = '\0';
    return text;
}

int apr_decimals_of(double value, int digits)
{
    if (!isfinite(value) || value == 0.0) return 0;
    const int decimals = digits - 1 - (int)floor(log10(fabs(value)) + 1e-9);
    return decimals < 0 ? 0 : decimals > MAX_DECIMALS ? MAX_DECIMALS : decimals;
}

char *apr_number_text(char text[APR_SMALL_TEXT], double value, int decimals)
{
    char plain[APR_SMALL_TEXT], whole[APR_SMALL_TEXT];
    const double size = fabs(value);

    if (!isfinite(value)) {
        snprintf(text, APR_SMALL_TEXT, "not finite");
    } else if (size >= 1e15 || (size > 0.0 && size < 0.001 && size < 0.5 * pow(10.0, -decimals))) {
        snprintf(text, APR_SMALL_TEXT, "%.2e", value);
    } else {
        snprintf(plain, sizeof plain, "%.*f", decimals < MAX_DECIMALS ? decimals : MAX_DECIMALS, size);
        apr_count_text(whole, (int64_t)strtoll(plain, NULL, 10));
        const char *const point = strchr(plain, '.');
        snprintf(text, APR_SMALL_TEXT, "%s%.20s%.10s", value < 0 ? "-" : "", whole, point != NULL ? point : "");
    }
    return text;
}

char *apr_magnitude_text(char text[APR_SMALL_TEXT], int64_t n)
{
    static const char *const units[] = {"K", "M", "B", "T"};
    double size = (double)n / 1e3;
    size_t unit = 0;

    if (n < 1000) return apr_count_text(text, n);
    for (; size >= 999.995 && unit + 1 < sizeof units / sizeof *units; unit++) size /= 1e3;
    snprintf(text, APR_SMALL_TEXT, "%.2f %s", size, units[unit]);
    return text;
}

/* The printable form of the character (or invalid byte) at the start of text; returns how many bytes it replaces. */
static size_t clean_character(const char *text, size_t n_bytes, char shown[8])
{
    const uint8_t first = (uint8_t)*text;
    utf8proc_int32_t code;
    const utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n_bytes, &code);

    if (n > 0 && n <= 4) {
        const utf8proc_category_t category = utf8proc_category(code);
        const bool is_hidden = category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF || category == UTF8PROC_CATEGORY_ZL ||
                               category == UTF8PROC_CATEGORY_ZP;
        if (!is_hidden) {
            memcpy(shown, text, (size_t)n);
            shown[n] = '\0';
            return (size_t)n;
        }
    }
    if (first == '\n') snprintf(shown, 8, "\\n");
    else if (first == '\t') snprintf(shown, 8, "\\t");
    else snprintf(shown, 8, "\\x%02x", first);
    return 1; /* the other bytes of a hidden character are invalid by themselves and are escaped one by one */
}

/* Cleans text until dst or max_columns is full; returns how many bytes of text were used. */
static size_t clean_within(char *dst, size_t capacity, const char *text, size_t n_bytes, int max_columns)
{
    size_t at = 0, taken = 0;
    int columns = 0;

    while (taken < n_bytes) {
        char shown[8];
        const size_t n = clean_character(text + taken, n_bytes - taken, shown), n_shown = strlen(shown);
        columns += apr_text_columns(shown);
        if (at + n_shown >= capacity || columns > max_columns) break;
        memcpy(dst + at, shown, n_shown);
        at += n_shown;
        taken += n;
    }
    dst[at] = '\0';
    return taken;
}

char *apr_clean_text(char *dst, size_t capacity, const char *text, size_t n_bytes)
{
    clean_within(dst, capacity, text, n_bytes, INT32_MAX);
    return dst;
}

char *apr_short_text(char *dst, size_t capacity, const char *text, size_t n_bytes, int max_columns)
{
    if (clean_within(dst, capacity, text, n_bytes, max_columns) == n_bytes) return dst;
    clean_within(dst, capacity - 3, text, n_bytes, max_columns - 3);
    memcpy(dst + strlen(dst), "...", 4);
    return dst;
}

/* The longest end of valid UTF-8 text that fits in max_columns. */
static const char *last_columns(const char *text, int max_columns)
{
    const char *at = text + strlen(text);

    while (at > text) {
        const char *before = at - 1;
        while (before > text && ((unsigned char)*before & 0xc0) == 0x80) before--;
        if (apr_text_columns(before) > max_columns) break;
        at = before;
    }
    return at;
}

/* "model.layers.1.mlp.up_proj.weight" -> "…1.mlp.up_proj.weight"; text itself if it has no number after a '.'. */
static const char *without_front(const char *text, char *shown, size_t capacity)
{
    const char *number = text;
    while (*number != '\0' && !(number > text && number[-1] == '.' && *number >= '0' && *number <= '9')) number++;
    if (*number == '\0') return text;
    snprintf(shown, capacity, "…%s", number);
    return shown;
}

char *apr_middle_text(char *dst, size_t capacity, const char *text, int max_columns)
{
    char shown[1024];

    if (apr_text_columns(text) > max_columns) text = without_front(text, shown, sizeof shown);
    if (apr_text_columns(text) <= max_columns) {
        snprintf(dst, capacity, "%s", text);
        return dst;
    }
    const char *const tail = last_columns(text, max_columns * 3 / 5);
    clean_within(dst, capacity, text, strlen(text), max_columns - 1 - apr_text_columns(tail));
    const size_t n = strlen(dst);
    snprintf(dst + n, capacity - n, "…%s", tail);
    return dst;
}

const char *apr_printable(const char *text)
{
    static _Thread_local char copies[8][4096];
    static _Thread_local unsigned next;
    char *const copy = copies[next % 8];
    const size_t n_bytes = strlen(text);
    size_t at = 0;

    while (at < n_bytes) {
        char shown[8];
        const size_t n = clean_character(text + at, n_bytes - at, shown);
        if (strlen(shown) != n) { /* an escape is longer than the bytes that it replaces */
            next++;
            return apr_clean_text(copy, sizeof copies[0], text, n_bytes);
        }
        at += n;
    }
    return text;
}

static size_t put_byte(char *dst, unsigned char byte, bool as_is)
{
    char escape[5];

    if (as_is) {
        *dst = (char)byte;
        return 1;
    }
    snprintf(escape, sizeof escape, "\\x%02x", byte);
    memcpy(dst, escape, 4);
    return 4;
}

size_t apr_terminal_clean(apr_terminal_text *state, char *dst, const char *text, size_t n_bytes, bool is_last)
{
    size_t n = 0;

    for (size_t i = 0; i < n_bytes; i++) {
        const unsigned char byte = (unsigned char)text[i], held = (unsigned char)state->held;
        const bool is_c1 = held == 0xc2 && byte >= 0x80 && byte < 0xa0;
        state->held = 0;
        if (held != 0) n += put_byte(dst + n, held, held == '\r' ? byte == '\n' : !is_c1);
        if (byte == '\r' || byte == 0xc2) state->held = (char)byte;
        else n += put_byte(dst + n, byte, !is_c1 && byte != 0x7f && (byte >= 0x20 || byte == '\n' || byte == '\t'));
    }
    if (is_last && state->held != 0) {
        n += put_byte(dst + n, (unsigned char)state->held, state->held != '\r');
        state->held = 0;
    }
    return n;
}

int apr_text_columns(const char *text)
{
    utf8proc_ssize_t left = (utf8proc_ssize_t)strlen(text);
    int columns = 0;

    while (left > 0) {
        utf8proc_int32_t code;
        const utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)text, left, &code);
        columns += n > 0 ? utf8proc_charwidth(code) : 1;
        text += n > 0 ? n : 1;
        left -= n > 0 ? n : 1;
    }
    return columns;
}
