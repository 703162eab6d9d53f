/* bytes.h - unaligned little-endian loads and stores, and a cursor that a hostile file cannot push past its end.
 *
 * The cursor's error is sticky: after the first failed read every read answers 0 and `failed` stays true, so a parser
 * reads a whole record and checks once. `at` is then the byte where the first read failed. */
#ifndef APR_FORMATS_BYTES_H
#define APR_FORMATS_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint16_t apr_load_le16(const void *p)
{
    const uint8_t *b = (const uint8_t *)p;
    return (uint16_t)(b[0] | b[1] << 8);
}
static inline uint32_t apr_load_le32(const void *p)
{
    const uint8_t *b = (const uint8_t *)p;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}
static inline uint64_t apr_load_le64(const void *p)
{
    const uint8_t *b = (const uint8_t *)p;
    return (uint64_t)apr_load_le32(b) | (uint64_t)apr_load_le32(b + 4) << 32;
}
static inline void apr_store_le16(void *p, uint16_t v)
{
    uint8_t *b = (uint8_t *)p;
    b[0] = (uint8_t)v;
    b[1] = (uint8_t)(v >> 8);
}
static inline void apr_store_le32(void *p, uint32_t v)
{
    apr_store_le16(p, (uint16_t)v);
    apr_store_le16((uint8_t *)p + 2, (uint16_t)(v >> 16));
}
static inline void apr_store_le64(void *p, uint64_t v)
{
    apr_store_le32(p, (uint32_t)v);
    apr_store_le32((uint8_t *)p + 4, (uint32_t)(v >> 32));
}

typedef struct apr_cursor {
    const uint8_t *data;
    size_t n_bytes, at;
    bool big_endian, failed;
} apr_cursor;

static inline size_t apr_cursor_left(const apr_cursor *c) { return c->n_bytes - c->at; }

/* The next n bytes, or NULL (and failed) when fewer are left. */
static inline const uint8_t *apr_cursor_take(apr_cursor *c, uint64_t n)
{
    if (c->failed || n > apr_cursor_left(c)) {
        c->failed = true;
        return NULL;
    }
    const uint8_t *const p = c->data + c->at;
    c->at += (size_t)n;
    return p;
}

static inline uint8_t apr_cursor_u8(apr_cursor *c)
{
    const uint8_t *const p = apr_cursor_take(c, 1);
    return p ? *p : 0;
}
static inline uint16_t apr_cursor_u16(apr_cursor *c)
{
    const uint8_t *const p = apr_cursor_take(c, 2);
    return !p ? 0 : c->big_endian ? __builtin_bswap16(apr_load_le16(p)) : apr_load_le16(p);
}
static inline uint32_t apr_cursor_u32(apr_cursor *c)
{
    const uint8_t *const p = apr_cursor_take(c, 4);
    return !p ? 0 : c->big_endian ? __builtin_bswap32(apr_load_le32(p)) : apr_load_le32(p);
}
static inline uint64_t apr_cursor_u64(apr_cursor *c)
{
    const uint8_t *const p = apr_cursor_take(c, 8);
    return !p ? 0 : c->big_endian ? __builtin_bswap64(apr_load_le64(p)) : apr_load_le64(p);
}

/* n / each, rounded up. */
static inline int64_t apr_div_up(int64_t n, int64_t each) { return n / each + (n % each != 0); }
/* Rounds up to a multiple of `alignment` (a power of two); callers bound n first. */
static inline uint64_t apr_align_up(uint64_t n, uint64_t alignment) { return (n + alignment - 1) & ~(alignment - 1); }

/* For sizes without a known bound: UINT64_MAX stands for any result that does not fit. */
static inline uint64_t apr_saturating_mul(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}
static inline uint64_t apr_saturating_add(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}
static inline uint64_t apr_pad64(uint64_t n_bytes) { return n_bytes > UINT64_MAX - 63 ? UINT64_MAX : apr_align_up(n_bytes, 64); }

#endif
