/* sha256.h - SHA-256 (FIPS 180-4), for the identity of files on pages. */
#ifndef APR_TOOLS_SHA256_H
#define APR_TOOLS_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { APR_SHA256_TEXT = 65 }; /* 64 hexadecimal digits and NUL */

typedef struct apr_sha256 {
    uint32_t state[8];
    uint64_t n_bytes;
    uint8_t block[64]; /* the bytes that do not fill a block yet */
} apr_sha256;

void apr_sha256_start(apr_sha256 *hash);
void apr_sha256_add(apr_sha256 *hash, const void *bytes, size_t n_bytes);
/* Returns text. The hash is used up. */
char *apr_sha256_text(apr_sha256 *hash, char text[APR_SHA256_TEXT]);

#endif
