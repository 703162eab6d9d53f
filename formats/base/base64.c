/* base64.c - three bytes to four characters and back, through two tables. */
#include "formats/base/base64.h"

#include <stdint.h>

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* A character's six bits + 1; 0: not a character of the alphabet. */
static const uint8_t values[256] = {
    ['A'] = 1,  ['B'] = 2,  ['C'] = 3,  ['D'] = 4,  ['E'] = 5,  ['F'] = 6,  ['G'] = 7,  ['H'] = 8,  ['I'] = 9,  ['J'] = 10, ['K'] = 11,
    ['L'] = 12, ['M'] = 13, ['N'] = 14, ['O'] = 15, ['P'] = 16, ['Q'] = 17, ['R'] = 18, ['S'] = 19, ['T'] = 20, ['U'] = 21, ['V'] = 22,
    ['W'] = 23, ['X'] = 24, ['Y'] = 25, ['Z'] = 26, ['a'] = 27, ['b'] = 28, ['c'] = 29, ['d'] = 30, ['e'] = 31, ['f'] = 32, ['g'] = 33,
    ['h'] = 34, ['i'] = 35, ['j'] = 36, ['k'] = 37, ['l'] = 38, ['m'] = 39, ['n'] = 40, ['o'] = 41, ['p'] = 42, ['q'] = 43, ['r'] = 44,
    ['s'] = 45, ['t'] = 46, ['u'] = 47, ['v'] = 48, ['w'] = 49, ['x'] = 50, ['y'] = 51, ['z'] = 52, ['0'] = 53, ['1'] = 54, ['2'] = 55,
    ['3'] = 56, ['4'] = 57, ['5'] = 58, ['6'] = 59, ['7'] = 60, ['8'] = 61, ['9'] = 62, ['+'] = 63, ['/'] = 64,
};

size_t apr_base64_chars(size_t n_bytes) { return n_bytes / 3 * 4 + (n_bytes % 3 != 0 ? 4 : 0); }

void apr_base64_encode(const void *bytes, size_t n_bytes, char *text)
{
    const uint8_t *b = bytes;

    for (; n_bytes >= 3; n_bytes -= 3, b += 3) {
        const uint32_t bits = (uint32_t)b[0] << 16 | (uint32_t)b[1] << 8 | b[2];
        *text++ = alphabet[bits >> 18];
        *text++ = alphabet[bits >> 12 & 63];
        *text++ = alphabet[bits >> 6 & 63];
        *text++ = alphabet[bits & 63];
    }
    if (n_bytes == 0) return;
    const uint32_t bits = (uint32_t)b[0] << 16 | (n_bytes == 2 ? (uint32_t)b[1] << 8 : 0);
    *text++ = alphabet[bits >> 18];
    *text++ = alphabet[bits >> 12 & 63];
    *text++ = n_bytes == 2 ? alphabet[bits >> 6 & 63] : '=';
    *text = '=';
}

size_t apr_base64_bytes(const char *text, size_t n_chars)
{
    if (n_chars < 4) return 0;
    return n_chars / 4 * 3 - (text[n_chars - 1] == '=') - (text[n_chars - 1] == '=' && text[n_chars - 2] == '=');
}

/* The group that may be padded. */
static bool decode_last(const uint8_t *c, size_t n_bytes, uint8_t *b)
{
    const uint32_t v0 = values[c[0]], v1 = values[c[1]], v2 = values[c[2]], v3 = values[c[3]];

    if (v0 == 0 || v1 == 0 || (n_bytes >= 2 && v2 == 0) || (n_bytes == 3 && v3 == 0)) return false;
    const uint32_t bits = (v0 - 1) << 18 | (v1 - 1) << 12 | (n_bytes >= 2 ? (v2 - 1) << 6 : 0) | (n_bytes == 3 ? v3 - 1 : 0);
    if ((n_bytes == 1 && (bits & 0xffff) != 0) || (n_bytes == 2 && (bits & 0xff) != 0)) return false;
    b[0] = (uint8_t)(bits >> 16);
    if (n_bytes >= 2) b[1] = (uint8_t)(bits >> 8);
    if (n_bytes == 3) b[2] = (uint8_t)bits;
    return true;
}

bool apr_base64_decode(const char *text, size_t n_chars, void *bytes)
{
    const uint8_t *c = (const uint8_t *)text;
    uint8_t *b = bytes;

    if (n_chars % 4 != 0) return false;
    if (n_chars == 0) return true;
    for (size_t group = n_chars / 4 - 1; group > 0; group--, c += 4, b += 3) {
        const uint32_t v0 = values[c[0]], v1 = values[c[1]], v2 = values[c[2]], v3 = values[c[3]];
        if (v0 == 0 || v1 == 0 || v2 == 0 || v3 == 0) return false;
        const uint32_t bits = (v0 - 1) << 18 | (v1 - 1) << 12 | (v2 - 1) << 6 | (v3 - 1);
        b[0] = (uint8_t)(bits >> 16);
        b[1] = (uint8_t)(bits >> 8);
        b[2] = (uint8_t)bits;
    }
    return decode_last(c, c[3] != '=' ? 3 : c[2] != '=' ? 2 : 1, b);
}
