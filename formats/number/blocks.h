/* blocks.h - the bytes of one block of every dtype, in the order of the file.
 *
 * All structs are packed: a block may start at any address. Multi-byte fields are little-endian, as on the machines this runs
 * on. "f16" fields hold the bits of a half (apr_f16_to_f32). The meaning of the codes is explained at each decoder in kernels/ref. */
#ifndef APR_FORMATS_BLOCKS_H
#define APR_FORMATS_BLOCKS_H

#include "formats/number/dtype.h"

#include <assert.h>

#define APR_PACKED __attribute__((packed))

/* Plain arrays and the small floats: a block is the bytes of one element (of 2 or 4 for F4 and F6). */
typedef uint8_t apr_block_F32[4], apr_block_F16[2], apr_block_BF16[2], apr_block_F64[8], apr_block_C64[8];
typedef uint8_t apr_block_I8[1], apr_block_I16[2], apr_block_I32[4], apr_block_I64[8];
typedef uint8_t apr_block_U8[1], apr_block_U16[2], apr_block_U32[4], apr_block_U64[8], apr_block_BOOL[1];
typedef uint8_t apr_block_F8_E4M3[1], apr_block_F8_E5M2[1], apr_block_E8M0[1], apr_block_F4[1], apr_block_F6_E2M3[3], apr_block_F6_E3M2[3];
typedef int8_t apr_block_APR_Q8[1]; /* after one f32 scale at the start of the tensor */

/* clang-format off */
/* 32 elements: byte j holds element j in its low nibble and j + 16 in its high one. qh: the fifth bits, bit i of element i. */
typedef struct APR_PACKED { uint16_t d; uint8_t qs[16]; } apr_block_Q4_0;
typedef struct APR_PACKED { uint16_t d, m; uint8_t qs[16]; } apr_block_Q4_1;
typedef struct APR_PACKED { uint16_t d; uint32_t qh; uint8_t qs[16]; } apr_block_Q5_0;
typedef struct APR_PACKED { uint16_t d, m; uint32_t qh; uint8_t qs[16]; } apr_block_Q5_1;
typedef struct APR_PACKED { uint16_t d; int8_t qs[32]; } apr_block_Q8_0;
typedef struct APR_PACKED { uint16_t d, s; int8_t qs[32]; } apr_block_Q8_1; /* s = d * sum of qs */
typedef struct APR_PACKED { uint16_t d; uint8_t qs[16]; } apr_block_IQ4_NL;
typedef struct APR_PACKED { uint8_t e; uint8_t qs[16]; } apr_block_MXFP4;   /* e: 2^(e-127) */
typedef struct APR_PACKED { uint16_t d; uint8_t qs[16]; } apr_block_APR_Q4; /* element 2k low, 2k + 1 high in byte k */

/* 64: four sub-blocks of 16 with an unsigned E4M3 scale each; 8 bytes a sub-block, j low and j + 8 high in byte j. */
typedef struct APR_PACKED { uint8_t d[4]; uint8_t qs[32]; } apr_block_NVFP4;
typedef struct APR_PACKED { uint16_t d; uint8_t qs[16]; } apr_block_Q2_0; /* 64: element 4k + i in bits 2i of byte k */
typedef struct APR_PACKED { uint16_t d; uint8_t qs[16]; } apr_block_Q1_0; /* 128: element 8k + i in bit i of byte k */

/* 256 elements in sub-blocks of 16 or 32. */
typedef struct APR_PACKED { uint8_t scales[16]; uint8_t qs[64]; uint16_t d, dmin; } apr_block_Q2_K;
typedef struct APR_PACKED { uint8_t hmask[32]; uint8_t qs[64]; uint8_t scales[12]; uint16_t d; } apr_block_Q3_K;
typedef struct APR_PACKED { uint16_t d, dmin; uint8_t scales[12]; uint8_t qs[128]; } apr_block_Q4_K;
typedef struct APR_PACKED { uint16_t d, dmin; uint8_t scales[12]; uint8_t qh[32]; uint8_t qs[128]; } apr_block_Q5_K;
typedef struct APR_PACKED { uint8_t ql[128]; uint8_t qh[64]; int8_t scales[16]; uint16_t d; } apr_block_Q6_K;
typedef struct APR_PACKED { float d; int8_t qs[256]; int16_t bsums[16]; } apr_block_Q8_K;

typedef struct APR_PACKED { uint16_t d; uint32_t qs[8][2]; } apr_block_IQ2_XXS;
typedef struct APR_PACKED { uint16_t d; uint16_t qs[32]; uint8_t scales[8]; } apr_block_IQ2_XS;
typedef struct APR_PACKED { uint16_t d; uint8_t qs[32]; uint8_t signs[32]; uint8_t qh[8]; uint8_t scales[8]; } apr_block_IQ2_S;
typedef struct APR_PACKED { uint16_t d; uint8_t qs[64]; uint32_t scales_signs[8]; } apr_block_IQ3_XXS;
typedef struct APR_PACKED { uint16_t d; uint8_t qs[64]; uint8_t qh[8]; uint8_t signs[32]; uint8_t scales[4]; } apr_block_IQ3_S;
typedef struct APR_PACKED { uint16_t d; uint8_t qs[32]; uint16_t qh[8]; } apr_block_IQ1_S;
typedef struct APR_PACKED { uint8_t qs[32]; uint8_t qh[16]; uint16_t scales[4]; } apr_block_IQ1_M;
typedef struct APR_PACKED { uint16_t d, scales_h; uint8_t scales_l[4]; uint8_t qs[128]; } apr_block_IQ4_XS;
typedef struct APR_PACKED { uint8_t qs[48]; uint8_t qh[4]; uint16_t d; } apr_block_TQ1_0;
typedef struct APR_PACKED { uint8_t qs[64]; uint16_t d; } apr_block_TQ2_0;
/* clang-format on */

#define X(id, name, class_of, elems, bytes, ...) static_assert(sizeof(apr_block_##id) == (bytes), name);
APR_DTYPE_LIST(X)
#undef X

#endif
