/* base64.h - binary in JSON: RFC 4648's base64, with padding, without line breaks. */
#ifndef APR_FORMATS_BASE64_H
#define APR_FORMATS_BASE64_H

#include <stdbool.h>
#include <stddef.h>

/* Characters that n bytes become (no NUL): 4 for every 3, the last group padded with '='. n is at most SIZE_MAX / 2. */
size_t apr_base64_chars(size_t n_bytes);
void apr_base64_encode(const void *bytes, size_t n_bytes, char *text);

/* Bytes that the text holds by its length and padding; the text itself is checked by the decoder. */
size_t apr_base64_bytes(const char *text, size_t n_chars);
/* False unless the text is exactly what apr_base64_encode writes for some bytes: whole groups, padding only at the end and
 * with zero bits, no blanks. `bytes` holds apr_base64_bytes. */
bool apr_base64_decode(const char *text, size_t n_chars, void *bytes);

#endif
