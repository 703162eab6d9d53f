/* answer_text.c - holds back bytes that may begin a stop text, and incomplete characters. */
#define _GNU_SOURCE /* memmem */
#include "tools/engine/requests/answer_text.h"
#include "formats/base/grow.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

size_t apr_find_stop_text(const char *const *stops, size_t n_stops, const char *bytes, size_t from, size_t n)
{
    size_t first = n;
    for (size_t i = 0; i < n_stops; i++) {
        const size_t n_stop = strlen(stops[i]), begin = from > n_stop ? from - n_stop : 0;
        const char *const at = n > begin ? memmem(bytes + begin, n - begin, stops[i], n_stop) : NULL;
        if (at != NULL && (size_t)(at - bytes) < first) first = (size_t)(at - bytes);
    }
    return first;
}

/* Number of bytes at the end that may begin a stop text. */
static size_t count_begun_stop(const apr_answer_text *t)
{
    size_t most = 0;
    for (size_t i = 0; i < t->n_stops; i++) {
        const size_t n_stop = strlen(t->stops[i]);
        for (size_t n = n_stop - 1 < t->n_bytes ? n_stop - 1 : t->n_bytes; n > most; n--)
            if (memcmp(t->bytes + t->n_bytes - n, t->stops[i], n) == 0) most = n;
    }
    return most;
}

/* Number of bytes at the end of bytes[n] that are an incomplete character. */
static size_t count_incomplete(const char *bytes, size_t n)
{
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        const uint8_t byte = (uint8_t)bytes[n - back];
        if ((byte & 0xc0) == 0x80) continue;
        const size_t whole = byte >= 0xf0 && byte < 0xf8 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
        return byte < 0xf8 && back < whole ? back : 0;
    }
    return 0;
}

bool apr_answer_text_add(apr_answer_text *t, const char *bytes, size_t n)
{
    if (t->is_stopped || n == 0) return true;
    char *const grown = apr_grow(t->bytes, &t->capacity, t->n_bytes + n, 1);
    if (grown == NULL) return false;
    t->bytes = grown;
    memcpy(t->bytes + t->n_bytes, bytes, n);
    const size_t end = t->n_bytes + n, at = apr_find_stop_text(t->stops, t->n_stops, t->bytes, t->n_bytes, end);
    t->is_stopped = at < end;
    t->n_bytes = at;
    return true;
}

const char *apr_answer_text_show(apr_answer_text *t, bool is_last, size_t *n)
{
    size_t end = t->n_bytes;

    if (!is_last && !t->is_stopped) {
        end -= count_begun_stop(t);
        if (t->whole_characters) end -= count_incomplete(t->bytes, end);
    }
    *n = end > t->n_shown ? end - t->n_shown : 0;
    const char *const shown = t->bytes != NULL ? t->bytes + t->n_shown : "";
    t->n_shown += *n;
    return shown;
}

/* Length of the UTF-8 character that begins here; 0: it is invalid. */
static size_t character_bytes(const char *text, size_t n_bytes)
{
    const unsigned char *const b = (const unsigned char *)text;
    const size_t n = b[0] < 0x80 ? 1 : b[0] < 0xc2 ? 0 : b[0] < 0xe0 ? 2 : b[0] < 0xf0 ? 3 : b[0] < 0xf5 ? 4 : 0;

    if (n == 0 || n > n_bytes || b[0] == 0) return 0;
    for (size_t i = 1; i < n; i++)
        if ((b[i] & 0xc0) != 0x80) return 0;
    const bool is_overlong = (b[0] == 0xe0 && b[1] < 0xa0) || (b[0] == 0xf0 && b[1] < 0x90);
    const bool is_surrogate = b[0] == 0xed && b[1] > 0x9f, is_beyond = b[0] == 0xf4 && b[1] > 0x8f;
    return is_overlong || is_surrogate || is_beyond ? 0 : n;
}

size_t apr_valid_text(char *dst, const char *bytes, size_t n_bytes)
{
    size_t n = 0;

    for (size_t i = 0; i < n_bytes;) {
        const size_t length = character_bytes(bytes + i, n_bytes - i);
        memcpy(dst + n, length > 0 ? bytes + i : "\xef\xbf\xbd", length > 0 ? length : 3);
        n += length > 0 ? length : 3;
        i += length > 0 ? length : 1;
    }
    return n;
}

size_t apr_first_invalid(const char *bytes, size_t n_bytes)
{
    size_t i = 0, length;
    while (i < n_bytes && (length = character_bytes(bytes + i, n_bytes - i)) > 0) i += length;
    return i;
}

void apr_answer_text_close(apr_answer_text *t)
{
    free(t->bytes);
    t->bytes = NULL;
    t->n_bytes = t->n_shown = t->capacity = 0;
}
