/* pack.h - encodes rows of numbers as a packed matrix (formats/tensor/packing.h), the other direction of kernels/unpack.h.
 *
 * The packing says where codes, scales and zero points go; its tensors need no data, the caller gives the memory. What can be written:
 *
 *     level, scale                                numbers
 *     E2M1, E4M3 for 16 and a global scale        NVFP4: the scale of a group is searched
 *     E2M1, E8M0 for 32                           MXFP4: as the codec of blocks (kernels/ref/fp4.c)
 *     E4M3, F32 for a block of rows and columns   FP8: the largest magnitude becomes 448
 *     4 bits unsigned, F16 or BF16 for a group    integers: scale and zero point are searched
 *
 * Rows are encoded in units, which threads may do at once: no two units share a byte. */
#ifndef APR_KERNELS_PACK_H
#define APR_KERNELS_PACK_H

#include "formats/tensor/packing.h"

typedef struct apr_pack_target {
    const apr_packing *packing;      /* of one matrix, without act order */
    uint8_t *codes, *scales, *zeros; /* of the sizes of the packing's tensors; zeros NULL: none are stored */
    float global_scale;              /* NVFP4: a multiplier; else 1 */
} apr_pack_target;

/* Rows of a unit; the last unit may have fewer. */
int64_t apr_pack_unit(const apr_packing *packing);

/* Encodes the n rows of a unit from `row` on. importance: [columns] weights of squared errors, or NULL. codes: a buffer for [n, columns].
 * NaN counts as 0, infinities as the largest number of their sign. */
void apr_pack_rows(const apr_pack_target *to, int64_t row, int64_t n, const float *values, const float *importance, uint8_t *codes);

/* Does `from` have codes and scales that can be written as they are: blocks of the same type, or another layout of it? Only NVFP4 and
 * MXFP4. */
bool apr_pack_can_copy(const apr_packing *packing, const apr_tensor *from);
/* Writes them. codes: as above. */
void apr_pack_copy_rows(const apr_pack_target *to, const apr_tensor *from, int64_t row, int64_t n, uint8_t *codes);
/* The global scale of such a tensor as the packing stores it: a multiplier or a divisor; 1 if it has none. */
float apr_pack_copied_global_scale(const apr_packing *packing, const apr_tensor *from);
/* 1 / scale, changed by a last bit if only then its own reciprocal is `scale` again. */
float apr_pack_reciprocal(float scale);

/* The global scale of NVFP4 for a largest magnitude: amax / (6 * 448), changed by a last bit where its reciprocal's reciprocal would be
 * another number. So the layouts that store a divisor and those that store a multiplier have the same one. */
float apr_pack_nvfp4_global_scale(float largest);

#endif
