/* groups.h - encodes one group of numbers that share a scale, as packed layouts store it (kernels/pack.h): the scale is searched for the
 * least weighted squared error. Codes are one byte each; n is a multiple of 8. */
#ifndef APR_KERNELS_GROUPS_H
#define APR_KERNELS_GROUPS_H

#include "formats/number/dtype.h"

enum { APR_NVFP4_GROUP = 16 };

/* The E4M3 byte (1 to 0x7e) of a group's scale, and the codes of E2M1 (never -0). x is in units of the global scale. Values that are not
 * finite are clamped. */
uint8_t apr_ref_encode_nvfp4_group(const float x[APR_NVFP4_GROUP], const float weight[APR_NVFP4_GROUP], uint8_t codes[APR_NVFP4_GROUP]);

/* Four bits: value = (code - zero) * scale. The scale is positive and a number of scale_dtype (APR_F16 or APR_BF16). */
typedef struct apr_int4_group {
    float scale;
    int zero; /* 0 to 15 */
} apr_int4_group;

/* Symmetric: the zero point is 8. */
apr_int4_group apr_ref_encode_int4_group(const float *x, const float *weight, int n, apr_dtype scale_dtype, uint8_t *codes);
/* The zero point is searched as well. */
apr_int4_group apr_ref_encode_uint4_group(const float *x, const float *weight, int n, apr_dtype scale_dtype, uint8_t *codes);

#endif
