/* simd_transpose.h - transposed blocks: element j of every block in one vector, one block or sub-block a lane. */
#ifndef APR_KERNELS_HOST_SIMD_TRANSPOSE_H
#define APR_KERNELS_HOST_SIMD_TRANSPOSE_H

#include "kernels/host/codecs/simd.h"

/* Transposes a square of WIDE rows, `stride` floats apart: lane r of x[j] becomes element j of row r. */
#if defined(__AVX512F__)

WIDE_INLINE void wide_transpose_square(const float *rows, int stride, wide *x)
{
    __m512 a[16], b[16];
    for (int i = 0; i < 16; i++) a[i] = _mm512_loadu_ps(rows + i * stride);
    for (int i = 0; i < 16; i += 2) { /* in each 128 bits: pairs of two rows */
        b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) /* fours of four rows: a[i + k] has element 4 * part + k */
        for (int k = 0; k < 4; k++) {
            const __m512d low = _mm512_castps_pd(b[i + k / 2]), high = _mm512_castps_pd(b[i + 2 + k / 2]);
            a[i + k] = _mm512_castpd_ps(k % 2 == 0 ? _mm512_unpacklo_pd(low, high) : _mm512_unpackhi_pd(low, high));
        }
    for (int k = 0; k < 4; k++) { /* moves the 128-bit parts: 0x88 takes parts 0 and 2 of both, 0xdd parts 1 and 3 */
        const __m512 even_01 = _mm512_shuffle_f32x4(a[k], a[4 + k], 0x88), odd_01 = _mm512_shuffle_f32x4(a[k], a[4 + k], 0xdd);
        const __m512 even_23 = _mm512_shuffle_f32x4(a[8 + k], a[12 + k], 0x88), odd_23 = _mm512_shuffle_f32x4(a[8 + k], a[12 + k], 0xdd);
        x[k] = _mm512_shuffle_f32x4(even_01, even_23, 0x88);
        x[4 + k] = _mm512_shuffle_f32x4(odd_01, odd_23, 0x88);
        x[8 + k] = _mm512_shuffle_f32x4(even_01, even_23, 0xdd);
        x[12 + k] = _mm512_shuffle_f32x4(odd_01, odd_23, 0xdd);
    }
}

#elif defined(__AVX2__)

WIDE_INLINE void wide_transpose_square(const float *rows, int stride, wide *x)
{
    __m256 a[8], b[8];
    for (int i = 0; i < 8; i++) a[i] = _mm256_loadu_ps(rows + i * stride);
    for (int i = 0; i < 8; i += 2) {
        b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        a[i] = _mm256_shuffle_ps(b[i], b[i + 2], 0x44);
        a[i + 1] = _mm256_shuffle_ps(b[i], b[i + 2], 0xee);
        a[i + 2] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0x44);
        a[i + 3] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0xee);
    }
    for (int k = 0; k < 4; k++) {
        x[k] = _mm256_permute2f128_ps(a[k], a[4 + k], 0x20);
        x[4 + k] = _mm256_permute2f128_ps(a[k], a[4 + k], 0x31);
    }
}

#else

WIDE_INLINE void wide_transpose_square(const float *rows, int stride, wide *x)
{
    for (int j = 0; j < WIDE; j++) {
        float lane[WIDE];
        for (int i = 0; i < WIDE; i++) lane[i] = rows[i * stride + j];
        x[j] = wide_load(lane);
    }
}

#endif

/* Clamps WIDE consecutive blocks of n_elems (wide_tame). Stores them in order in `flat` and transposed in x. */
WIDE_INLINE void wide_transpose_blocks(const float *src, int n_elems, float limit, float *flat, wide *x)
{
    for (int i = 0; i < WIDE * n_elems; i += WIDE) wide_store(flat + i, wide_tame(wide_load(src + i), limit));
    for (int j = 0; j < n_elems; j += WIDE) wide_transpose_square(flat + j, n_elems, x + j);
}

/* Transposes the weights of WIDE blocks or sub-blocks of n_elems from `flat`. */
WIDE_INLINE void wide_transpose_weights(const float *flat, int n_elems, wide *w)
{
    for (int j = 0; j < n_elems; j += WIDE) wide_transpose_square(flat + j, n_elems, w + j);
}

/* Encodes n_elems in groups of blocks. Blocks are independent, so a last partial group is padded with zeros. */
typedef void (*wide_group_fn)(const float *src, uint8_t *dst);

enum { WIDE_GROUP_ELEMS = 512, WIDE_GROUP_BYTES = 1024 }; /* at most */

WIDE_INLINE void wide_encode_groups(const float *src, void *dst, int64_t n_elems, int group_elems, int block_elems, int block_bytes,
                                    wide_group_fn encode_group)
{
    const int group_bytes = group_elems / block_elems * block_bytes;
    uint8_t *to = dst;

    for (; n_elems >= group_elems; n_elems -= group_elems, src += group_elems, to += group_bytes) encode_group(src, to);
    if (n_elems <= 0) return;
    float filled[WIDE_GROUP_ELEMS] = {0};
    uint8_t bytes[WIDE_GROUP_BYTES];
    memcpy(filled, src, (size_t)n_elems * sizeof *src);
    encode_group(filled, bytes);
    memcpy(to, bytes, (size_t)(n_elems / block_elems * block_bytes));
}

/* The same by importance. */
typedef void (*wide_group_by_fn)(const float *src, const float *importance, uint8_t *dst);

WIDE_INLINE void wide_encode_groups_by(const float *src, const float *importance, void *dst, int64_t n_elems, int group_elems,
                                       int block_elems, int block_bytes, wide_group_by_fn encode_group)
{
    const int group_bytes = group_elems / block_elems * block_bytes;
    uint8_t *to = dst;

    for (; n_elems >= group_elems; n_elems -= group_elems, src += group_elems, importance += group_elems, to += group_bytes)
        encode_group(src, importance, to);
    if (n_elems <= 0) return;
    float filled[WIDE_GROUP_ELEMS] = {0}, weighed[WIDE_GROUP_ELEMS] = {0};
    uint8_t bytes[WIDE_GROUP_BYTES];
    memcpy(filled, src, (size_t)n_elems * sizeof *src);
    memcpy(weighed, importance, (size_t)n_elems * sizeof *importance);
    encode_group(filled, weighed, bytes);
    memcpy(to, bytes, (size_t)(n_elems / block_elems * block_bytes));
}

#endif
