/* decode_plain.cu - arrays of plain numbers as float32: floats of 8 to 64 bits, integers, booleans. */
#include "kernels/cuda/codecs/decode.cuh"

/* Pieces of a tensor start at whole elements, so these loads are aligned. */
template <class T> static __device__ __forceinline__ T number(const uint8_t *bytes) { return *(const T *)bytes; }

/* A NaN keeps the upper bits of its payload and becomes quiet, as on the host. */
static __device__ float float_of_double(double x)
{
    const uint64_t bits = (uint64_t)__double_as_longlong(x);
    if (x == x) return (float)x;
    return apr_f32_from_bits((uint32_t)(bits >> 32 & 0x80000000u) | 0x7fc00000u | (uint32_t)(bits >> 29 & 0x3fffff));
}

VALUE_AT(F32) { return number<float>(block); }
VALUE_AT(F16) { return apr_f16_to_f32(number<uint16_t>(block)); }
VALUE_AT(BF16) { return apr_bf16_to_f32(number<uint16_t>(block)); }
VALUE_AT(F64) { return float_of_double(number<double>(block)); }
VALUE_AT(I8) { return (float)number<int8_t>(block); }
VALUE_AT(I16) { return (float)number<int16_t>(block); }
VALUE_AT(I32) { return (float)number<int32_t>(block); }
VALUE_AT(I64) { return (float)number<int64_t>(block); }
VALUE_AT(U8) { return (float)block[0]; }
VALUE_AT(U16) { return (float)number<uint16_t>(block); }
VALUE_AT(U32) { return (float)number<uint32_t>(block); }
VALUE_AT(U64) { return (float)number<uint64_t>(block); }
VALUE_AT(BOOL) { return block[0] != 0 ? 1.0f : 0.0f; }
VALUE_AT(F8_E4M3) { return apr_e4m3_to_f32(block[0]); }
VALUE_AT(F8_E5M2) { return apr_e5m2_to_f32(block[0]); }
VALUE_AT(E8M0) { return apr_e8m0_to_f32(block[0]); }
VALUE_AT(APR_Q8) { return (float)block[0]; } /* times the tensor's single factor */

launch_decode_fn decoder_of_plain(apr_dtype dtype)
{
    switch (dtype) {
        DECODER_CASE(F32)
        DECODER_CASE(F16)
        DECODER_CASE(BF16)
        DECODER_CASE(F64)
        DECODER_CASE(I8)
        DECODER_CASE(I16)
        DECODER_CASE(I32)
        DECODER_CASE(I64)
        DECODER_CASE(U8)
        DECODER_CASE(U16)
        DECODER_CASE(U32)
        DECODER_CASE(U64)
        DECODER_CASE(BOOL)
        DECODER_CASE(F8_E4M3)
        DECODER_CASE(F8_E5M2)
        DECODER_CASE(E8M0)
        DECODER_CASE(APR_Q8)
    default: return nullptr;
    }
}
