/* decode_blocks.cu - blocks with one scale: Q4_0 to Q8_1, MXFP4, NVFP4, Q1_0, Q2_0, the ternary types and aprender's Q4. */
#include "kernels/cuda/codecs/decode.cuh"

/* Code j of 32: byte j % 16, the low nibble for the first 16. */
static __device__ __forceinline__ int nibble(const uint8_t *qs, int j) { return qs[j & 15] >> (j >> 4) * 4 & 0x0f; }

VALUE_AT(Q4_0) { return (float)(nibble(block.qs, j) - 8) * apr_f16_to_f32(block.d); }
VALUE_AT(Q4_1) { return (float)nibble(block.qs, j) * apr_f16_to_f32(block.d) + apr_f16_to_f32(block.m); }
VALUE_AT(Q5_0) { return (float)((nibble(block.qs, j) | (int)(block.qh >> j & 1) << 4) - 16) * apr_f16_to_f32(block.d); }
VALUE_AT(Q5_1) { return (float)(nibble(block.qs, j) | (int)(block.qh >> j & 1) << 4) * apr_f16_to_f32(block.d) + apr_f16_to_f32(block.m); }
VALUE_AT(Q8_0) { return (float)block.qs[j] * apr_f16_to_f32(block.d); }
VALUE_AT(Q8_1) { return (float)block.qs[j] * apr_f16_to_f32(block.d); }
VALUE_AT(APR_Q4) { return (float)((block.qs[j / 2] >> j % 2 * 4 & 0x0f) - 8) * apr_f16_to_f32(block.d); }

/* E2M1 doubled: the codes 0 1 2 3 4 6 8 12, four bits each; the upper eight are negative, and -0 reads as 0. */
static __device__ __forceinline__ float e2m1_doubled(int code)
{
    const int magnitude = (int)(0xC8643210u >> (code & 7) * 4 & 0x0f);
    return (float)(code & 8 ? -magnitude : magnitude);
}

VALUE_AT(MXFP4)
{
    const uint32_t e = block.e; /* 2^(e-128), half of the byte's meaning, since values are doubled */
    return e2m1_doubled(nibble(block.qs, j)) * apr_f32_from_bits(e < 2 ? 0x00200000u << e : (e - 1) << 23);
}

VALUE_AT(NVFP4)
{
    const uint8_t byte = block.d[j >> 4];
    const float d = byte == 0x7f ? 0.0f : apr_e4m3_to_f32(byte & 0x7f) * 0.5f;
    return d * e2m1_doubled(block.qs[(j >> 4) * 8 + (j & 7)] >> (j >> 3 & 1) * 4 & 0x0f);
}

VALUE_AT(Q1_0)
{
    const float d = apr_f16_to_f32(block.d);
    return block.qs[j / 8] >> j % 8 & 1 ? d : -d;
}
VALUE_AT(Q2_0) { return (float)((block.qs[j / 4] >> j % 4 * 2 & 3) - 1) * apr_f16_to_f32(block.d); }
VALUE_AT(TQ2_0) { return (float)((block.qs[j / 128 * 32 + j % 32] >> j / 32 % 4 * 2 & 3) - 1) * apr_f16_to_f32(block.d); }

/* 160 elements in 5 digits of 32 bytes, 80 in 5 of 16, 16 in 4 of 4: digit n is the integer part of (byte * 3^n % 256) * 3 / 256. */
VALUE_AT(TQ1_0)
{
    const int digit = j < 160 ? j / 32 : j < 240 ? (j - 160) / 16 : (j - 240) / 4;
    const unsigned byte = j < 160 ? block.qs[j % 32] : j < 240 ? block.qs[32 + j % 16] : block.qh[j % 4];
    const unsigned power = digit == 0 ? 1 : digit == 1 ? 3 : digit == 2 ? 9 : digit == 3 ? 27 : 81;
    return (float)((int)((byte * power & 0xff) * 3 >> 8) - 1) * apr_f16_to_f32(block.d);
}

launch_decode_fn decoder_of_blocks(apr_dtype dtype)
{
    switch (dtype) {
        DECODER_CASE(Q4_0)
        DECODER_CASE(Q4_1)
        DECODER_CASE(Q5_0)
        DECODER_CASE(Q5_1)
        DECODER_CASE(Q8_0)
        DECODER_CASE(Q8_1)
        DECODER_CASE(APR_Q4)
        DECODER_CASE(MXFP4)
        DECODER_CASE(NVFP4)
        DECODER_CASE(Q1_0)
        DECODER_CASE(Q2_0)
        DECODER_CASE(TQ1_0)
        DECODER_CASE(TQ2_0)
    default: return nullptr;
    }
}
