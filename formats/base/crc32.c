/* crc32.c - libdeflate's CRC, and the combination of two by arithmetic on polynomials over GF(2). */
#include "formats/base/crc32.h"

#include "formats/base/threads.h"

#include <libdeflate.h>

uint32_t apr_crc32(uint32_t crc, const void *bytes, size_t n_bytes) { return libdeflate_crc32(crc, bytes, n_bytes); }

/* a(x) * b(x) modulo the CRC polynomial. Bit 31 is x^0 (the reflected order of the CRC). */
static uint32_t multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (uint32_t bit = 1u << 31; bit != 0; bit >>= 1) {
        if (a & bit) product ^= b;
        b = b & 1 ? b >> 1 ^ 0xedb88320u : b >> 1; /* b * x */
    }
    return product;
}

uint32_t apr_crc32_combine(uint32_t crc_a, uint32_t crc_b, uint64_t n_bytes_b)
{
    uint32_t power = 1u << 23; /* x^8: one byte of shift */
    uint32_t shift = 1u << 31; /* x^0 */

    for (; n_bytes_b != 0; n_bytes_b >>= 1) {
        if (n_bytes_b & 1) shift = multiply(shift, power);
        power = multiply(power, power);
    }
    return multiply(shift, crc_a) ^ crc_b;
}

/* Computes the CRCs of the pieces in parallel and combines them. */
uint32_t apr_crc32_of(const void *bytes, uint64_t n_bytes)
{
    enum { MOST_PIECES = 256, PIECE_BYTES = 4 << 20 };
    const uint64_t share = n_bytes / MOST_PIECES + 1, piece = share > PIECE_BYTES ? share : PIECE_BYTES;
    const int n_pieces = (int)((n_bytes + piece - 1) / piece);
    uint32_t crcs[MOST_PIECES], crc = 0;

#pragma omp parallel for schedule(dynamic) num_threads(apr_threads(apr_all_threads(), n_pieces, (double)n_bytes))
    for (int i = 0; i < n_pieces; i++) {
        const uint64_t left = n_bytes - (uint64_t)i * piece;
        crcs[i] = apr_crc32(0, (const uint8_t *)bytes + (uint64_t)i * piece, left < piece ? left : piece);
    }
    for (int i = 0; i < n_pieces; i++) {
        const uint64_t left = n_bytes - (uint64_t)i * piece;
        crc = apr_crc32_combine(crc, crcs[i], left < piece ? left : piece);
    }
    return crc;
}
