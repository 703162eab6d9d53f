/* crc32.h - the CRC-32 of zlib and IEEE 802.3, and the CRC of two concatenated pieces from the CRC of each.
 *
 * Reflected polynomial 0xEDB88320, initial value and final XOR 0xffffffff; "123456789" gives 0xcbf43926. */
#ifndef APR_FORMATS_CRC32_H
#define APR_FORMATS_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* Continues a CRC: `crc` is the result for the bytes before these (0 at the start). */
uint32_t apr_crc32(uint32_t crc, const void *bytes, size_t n_bytes);

/* The CRC of a large buffer, computed by all cores. */
uint32_t apr_crc32_of(const void *bytes, uint64_t n_bytes);

/* CRC of A followed by B from crc(A), crc(B) and the length of B: a file can be checksummed in pieces, in any order. */
uint32_t apr_crc32_combine(uint32_t crc_a, uint32_t crc_b, uint64_t n_bytes_b);

#endif
