/* values.c - strict parsers for values of options: all of the text must be the value. */
#include "tools/cli/values.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char digits[] = "0123456789";

/* "131,072" -> "131072". Commas are allowed only between groups of three digits. */
static bool without_commas(const char *text, char *plain, size_t capacity)
{
    size_t n = 0, n_group = strcspn(text, ",");

    if (n_group == 0 || n_group > 3 || text[n_group] == '\0') return false;
    for (;; text++) {
        if (n + 1 >= capacity) return false;
        memcpy(plain + n, text, n_group < capacity - n - 1 ? n_group : capacity - n - 1);
        n += n_group;
        text += n_group;
        if (*text != ',') break;
        n_group = strspn(text + 1, digits);
        if (n_group != 3) return false;
    }
    if (n + strlen(text) >= capacity) return false;
    memcpy(plain + n, text, strlen(text) + 1);
    return true;
}

bool apr_parse_int(const char *text, int64_t *value)
{
    const bool is_negative = *text == '-';
    const char *first = text + is_negative;
    char plain[32];

    if (strchr(first, ',') != NULL) {
        if (!without_commas(first, plain, sizeof plain)) return false;
        first = plain;
    }
    const size_t n = strspn(first, digits);
    const bool is_thousand = n > 0 && (first[n] == 'k' || first[n] == 'K') && first[n + 1] == '\0';
    if (n == 0 || (first[n] != '\0' && !is_thousand)) return false;
    errno = 0;
    char with_sign[40];
    if (n + 2 > sizeof with_sign) return false;
    snprintf(with_sign, sizeof with_sign, "%s%.*s", is_negative ? "-" : "", (int)n, first);
    const long long number = strtoll(with_sign, NULL, 10);
    if (errno != 0) return false;
    *value = number;
    return !is_thousand || !__builtin_mul_overflow(*value, (int64_t)1024, value);
}

/* The length of "12", "12.5", ".5" or "12." at the start of text; 0 when there is no digit. */
static size_t decimal_length(const char *text)
{
    const size_t n_whole = strspn(text, digits);
    const bool has_point = text[n_whole] == '.';
    const size_t n_fraction = has_point ? strspn(text + n_whole + 1, digits) : 0;
    return n_whole + n_fraction == 0 ? 0 : n_whole + has_point + n_fraction;
}

bool apr_parse_real(const char *text, double *value)
{
    const char *const number = text + (*text == '-');
    const size_t n = decimal_length(number);
    const char *exponent = number + n;

    if (n == 0) return false;
    if (*exponent == 'e' || *exponent == 'E') {
        exponent++;
        exponent += *exponent == '-' || *exponent == '+';
        const size_t n_digits = strspn(exponent, digits);
        if (n_digits == 0) return false;
        exponent += n_digits;
    }
    if (*exponent != '\0') return false;
    *value = strtod(text, NULL);
    return isfinite(*value);
}

/* A whole number of units is computed exactly, a fraction in double, which is precise enough for the digits that people type. */
static bool scale_size(const char *text, size_t n_number, uint64_t unit, uint64_t *value)
{
    if (strspn(text, digits) >= n_number) {
        errno = 0;
        const unsigned long long number = strtoull(text, NULL, 10);
        return errno == 0 && !__builtin_mul_overflow((uint64_t)number, unit, value) && *value <= INT64_MAX;
    }
    const double bytes = strtod(text, NULL) * (double)unit;
    if (!(bytes < 0x1p63)) return false;
    *value = (uint64_t)llround(bytes);
    return true;
}

bool apr_parse_size(const char *text, uint64_t *value)
{
    static const struct {
        const char *suffix;
        uint64_t bytes;
    } units[] = {
        {"", 1},
        {"B", 1},
        {"K", (uint64_t)1 << 10},
        {"KiB", (uint64_t)1 << 10},
        {"M", (uint64_t)1 << 20},
        {"MiB", (uint64_t)1 << 20},
        {"G", (uint64_t)1 << 30},
        {"GiB", (uint64_t)1 << 30},
        {"T", (uint64_t)1 << 40},
        {"TiB", (uint64_t)1 << 40},
        {"KB", 1000},
        {"MB", 1000000},
        {"GB", 1000000000},
        {"TB", 1000000000000},
    };
    const size_t n = decimal_length(text), n_blanks = n > 0 ? strspn(text + n, " ") : 0;
    if (n == 0 || (n_blanks > 0 && text[n + n_blanks] == '\0')) return false;

    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcasecmp(text + n + n_blanks, units[i].suffix) == 0) return scale_size(text, n, units[i].bytes, value);
    return false;
}

int apr_parse_choice(const char *text, const char *choices)
{
    const size_t n = strlen(text);
    for (int i = 0;; i++) {
        const size_t n_choice = strcspn(choices, "|");
        if (n_choice == n && strncmp(text, choices, n) == 0) return i;
        if (choices[n_choice] == '\0') return -1;
        choices += n_choice + 1;
    }
}
