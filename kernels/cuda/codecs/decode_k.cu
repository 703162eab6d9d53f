/* decode_k.cu - Q2_K to Q6_K and Q8_K: 256 values, scales of sub-blocks. The layouts are described in kernels/ref. */
#include "kernels/cuda/codecs/decode.cuh"

/* Elements 128*h + 32*s + l of Q2_K and Q3_K: bits 2s of byte 32*h + l. */
static __device__ __forceinline__ int code_2_bits(const uint8_t *qs, int j) { return qs[j / 128 * 32 + j % 32] >> j / 32 % 4 * 2 & 3; }

VALUE_AT(Q2_K)
{
    const int byte = block.scales[j / 16];
    const float scale = apr_f16_to_f32(block.d) * (float)(byte & 0x0f), min = apr_f16_to_f32(block.dmin) * (float)(byte >> 4);
    return scale * (float)code_2_bits(block.qs, j) - min;
}

VALUE_AT(Q3_K)
{
    const int sub = j / 16, low = block.scales[sub % 8] >> sub / 8 * 4 & 0x0f, high = block.scales[8 + sub % 4] >> sub / 4 * 2 & 3;
    const int offset = block.hmask[j % 32] >> j / 32 & 1 ? 0 : 4;
    return apr_f16_to_f32(block.d) * (float)((low | high << 4) - 32) * (float)(code_2_bits(block.qs, j) - offset);
}

/* 6-bit scale and minimum of sub-block s out of 12 bytes, as floats. */
static __device__ __forceinline__ void scale_and_min(const uint8_t *bytes, int s, float *scale, float *min)
{
    const int i = s & 3, low = bytes[i], middle = bytes[4 + i], high = bytes[8 + i];
    *scale = (float)(s < 4 ? low & 63 : (high & 0x0f) | low >> 6 << 4);
    *min = (float)(s < 4 ? middle & 63 : high >> 4 | middle >> 6 << 4);
}

VALUE_AT(Q4_K)
{
    const int sub = j / 32;
    float scale, min;
    scale_and_min(block.scales, sub, &scale, &min);
    const float step = apr_f16_to_f32(block.d) * scale, offset = apr_f16_to_f32(block.dmin) * min;
    return step * (float)(block.qs[sub / 2 * 32 + j % 32] >> sub % 2 * 4 & 0x0f) - offset;
}

VALUE_AT(Q5_K)
{
    const int sub = j / 32, l = j % 32;
    float scale, min;
    scale_and_min(block.scales, sub, &scale, &min);
    const float step = apr_f16_to_f32(block.d) * scale, offset = apr_f16_to_f32(block.dmin) * min;
    return step * (float)((block.qs[sub / 2 * 32 + l] >> sub % 2 * 4 & 0x0f) | (block.qh[l] >> sub & 1) << 4) - offset;
}

VALUE_AT(Q6_K)
{
    const int half = j / 128, k = j / 32 % 4, l = j % 32;
    const float step = apr_f16_to_f32(block.d) * (float)block.scales[j / 16];
    const int low = block.ql[64 * half + k % 2 * 32 + l] >> k / 2 * 4 & 0x0f, high = block.qh[32 * half + l] >> 2 * k & 3;
    return step * (float)((low | high << 4) - 32);
}

VALUE_AT(Q8_K) { return block.d * (float)block.qs[j]; }

launch_decode_fn decoder_of_k(apr_dtype dtype)
{
    switch (dtype) {
        DECODER_CASE(Q2_K)
        DECODER_CASE(Q3_K)
        DECODER_CASE(Q4_K)
        DECODER_CASE(Q5_K)
        DECODER_CASE(Q6_K)
        DECODER_CASE(Q8_K)
    default: return nullptr;
    }
}
