/* dtype.h - the one list of number formats. Enum, facts, block-size asserts, codec tables and test loops expand it.
 *
 * X(id, printed name, class, elements per block, bytes per block, scales, flat, GGUF type id or -1, APR type id,
 *   safetensors name or NULL)
 *
 * GGUF ids are ggml's. APR ids: the seven both public readers agree on (0, 1, 12, 14, 30, 128, 129), aprender's plain
 * types (3 to 7), 192 + the GGUF id for every other ggml type, and 144 upwards for types outside ggml.
 * Code must ask the columns for a type's properties. The position in the list only sets the order in which answers name types. */
#ifndef APR_FORMATS_DTYPE_H
#define APR_FORMATS_DTYPE_H

#include <stdbool.h>
#include <stdint.h>

#define APR_DTYPE_LIST(X)                                                       \
    X(F32, "f32", FLOAT, 1, 4, NONE, false, 0, 0, "F32")                        \
    X(F16, "f16", FLOAT, 1, 2, NONE, false, 1, 1, "F16")                        \
    X(BF16, "bf16", FLOAT, 1, 2, NONE, false, 30, 30, "BF16")                   \
    X(F64, "f64", FLOAT, 1, 8, NONE, false, 28, 3, "F64")                       \
    X(I8, "i8", INTEGER, 1, 1, NONE, false, 24, 6, "I8")                        \
    X(I16, "i16", INTEGER, 1, 2, NONE, false, 25, 147, "I16")                   \
    X(I32, "i32", INTEGER, 1, 4, NONE, false, 26, 4, "I32")                     \
    X(I64, "i64", INTEGER, 1, 8, NONE, false, 27, 5, "I64")                     \
    X(U8, "u8", INTEGER, 1, 1, NONE, false, -1, 7, "U8")                        \
    X(U16, "u16", INTEGER, 1, 2, NONE, false, -1, 148, "U16")                   \
    X(U32, "u32", INTEGER, 1, 4, NONE, false, -1, 149, "U32")                   \
    X(U64, "u64", INTEGER, 1, 8, NONE, false, -1, 150, "U64")                   \
    X(BOOL, "bool", OTHER, 1, 1, NONE, false, -1, 151, "BOOL")                  \
    X(C64, "c64", OTHER, 1, 8, NONE, false, -1, 152, "C64")                     \
    X(F8_E4M3, "fp8", MINIFLOAT, 1, 1, SEPARATE, false, -1, 144, "F8_E4M3")     \
    X(F8_E5M2, "f8_e5m2", MINIFLOAT, 1, 1, SEPARATE, false, -1, 145, "F8_E5M2") \
    X(E8M0, "e8m0", EXPONENT, 1, 1, NONE, false, -1, 146, "F8_E8M0")            \
    X(F4, "f4", MINIFLOAT, 2, 1, FOREIGN, false, -1, 153, "F4")                 \
    X(F6_E2M3, "f6_e2m3", MINIFLOAT, 4, 3, FOREIGN, false, -1, 154, "F6_E2M3")  \
    X(F6_E3M2, "f6_e3m2", MINIFLOAT, 4, 3, FOREIGN, false, -1, 155, "F6_E3M2")  \
    X(Q4_0, "q4_0", BLOCK, 32, 18, INSIDE, false, 2, 194, NULL)                 \
    X(Q4_1, "q4_1", BLOCK, 32, 20, INSIDE, false, 3, 195, NULL)                 \
    X(Q5_0, "q5_0", BLOCK, 32, 22, INSIDE, false, 6, 198, NULL)                 \
    X(Q5_1, "q5_1", BLOCK, 32, 24, INSIDE, false, 7, 199, NULL)                 \
    X(Q8_0, "q8_0", BLOCK, 32, 34, INSIDE, false, 8, 200, NULL)                 \
    X(Q8_1, "q8_1", BLOCK, 32, 36, INSIDE, false, 9, 201, NULL)                 \
    X(Q2_K, "q2_k", BLOCK, 256, 84, INSIDE, false, 10, 202, NULL)               \
    X(Q3_K, "q3_k", BLOCK, 256, 110, INSIDE, false, 11, 203, NULL)              \
    X(Q4_K, "q4_k", BLOCK, 256, 144, INSIDE, false, 12, 12, NULL)               \
    X(Q5_K, "q5_k", BLOCK, 256, 176, INSIDE, false, 13, 205, NULL)              \
    X(Q6_K, "q6_k", BLOCK, 256, 210, INSIDE, false, 14, 14, NULL)               \
    X(Q8_K, "q8_k", BLOCK, 256, 292, INSIDE, false, 15, 207, NULL)              \
    X(IQ2_XXS, "iq2_xxs", BLOCK, 256, 66, INSIDE, false, 16, 208, NULL)         \
    X(IQ2_XS, "iq2_xs", BLOCK, 256, 74, INSIDE, false, 17, 209, NULL)           \
    X(IQ3_XXS, "iq3_xxs", BLOCK, 256, 98, INSIDE, false, 18, 210, NULL)         \
    X(IQ1_S, "iq1_s", BLOCK, 256, 50, INSIDE, false, 19, 211, NULL)             \
    X(IQ4_NL, "iq4_nl", BLOCK, 32, 18, INSIDE, false, 20, 212, NULL)            \
    X(IQ3_S, "iq3_s", BLOCK, 256, 110, INSIDE, false, 21, 213, NULL)            \
    X(IQ2_S, "iq2_s", BLOCK, 256, 82, INSIDE, false, 22, 214, NULL)             \
    X(IQ4_XS, "iq4_xs", BLOCK, 256, 136, INSIDE, false, 23, 215, NULL)          \
    X(IQ1_M, "iq1_m", BLOCK, 256, 56, INSIDE, false, 29, 221, NULL)             \
    X(TQ1_0, "tq1_0", BLOCK, 256, 54, INSIDE, false, 34, 226, NULL)             \
    X(TQ2_0, "tq2_0", BLOCK, 256, 66, INSIDE, false, 35, 227, NULL)             \
    X(MXFP4, "mxfp4", BLOCK, 32, 17, INSIDE, false, 39, 231, NULL)              \
    X(NVFP4, "nvfp4", BLOCK, 64, 36, INSIDE, false, 40, 232, NULL)              \
    X(Q1_0, "q1_0", BLOCK, 128, 18, INSIDE, false, 41, 233, NULL)               \
    X(Q2_0, "q2_0", BLOCK, 64, 18, INSIDE, false, 42, 234, NULL)                \
    X(APR_Q4, "apr_q4", BLOCK, 32, 18, INSIDE, true, -1, 128, NULL)             \
    X(APR_Q8, "apr_q8", BLOCK, 1, 1, FIRST, true, -1, 129, NULL)

typedef enum {
#define X(id, ...) APR_##id,
    APR_DTYPE_LIST(X)
#undef X
        APR_DTYPE_COUNT
} apr_dtype;

/* What an element is. */
typedef enum {
    APR_CLASS_FLOAT,     /* a float of at least 16 bits, not quantized */
    APR_CLASS_INTEGER,   /* a whole number */
    APR_CLASS_OTHER,     /* not a real number: a bool, a complex number */
    APR_CLASS_EXPONENT,  /* a power of two: a scale, never a weight */
    APR_CLASS_MINIFLOAT, /* a quantized float of at most 8 bits */
    APR_CLASS_BLOCK      /* a quantized code, decoded with its block */
} apr_dtype_class;

/* Where the scales of a type's values are stored. */
typedef enum {
    APR_SCALES_NONE,     /* no scale */
    APR_SCALES_INSIDE,   /* in each block */
    APR_SCALES_FIRST,    /* one f32 before the tensor's first code */
    APR_SCALES_SEPARATE, /* in a separate tensor, if any: apr_tensor's `scale`; encoders write one scale for each row */
    APR_SCALES_FOREIGN   /* separate, in the producer's own scheme: such weights are only copied */
} apr_dtype_scales;

typedef struct apr_dtype_facts {
    const char *name;
    apr_dtype_class class_of;
    int elems_per_block;
    int bytes_per_block;
    apr_dtype_scales scales;
    bool flat;   /* blocks run over the whole tensor; otherwise a row, the last dimension, is whole blocks */
    int ggml_id; /* -1: not a ggml type */
    int apr_id;
    const char *safetensors_name; /* NULL: safetensors has no such type */
} apr_dtype_facts;

extern const apr_dtype_facts apr_dtypes[APR_DTYPE_COUNT];

/* Lookups answer APR_DTYPE_COUNT when there is no such type. Names are matched without regard to case. */
apr_dtype apr_dtype_by_name(const char *name);
apr_dtype apr_dtype_by_ggml_id(uint32_t id);
apr_dtype apr_dtype_by_apr_id(uint32_t id);
apr_dtype apr_dtype_by_safetensors_name(const char *name);

/* Why a GGUF type id is refused that is not in the list: removed from ggml, from ik_llama.cpp, or unknown. Never NULL. */
const char *apr_ggml_id_reason(uint32_t id);

/* Bytes of one row of n_elems, or -1 when n_elems is not a whole number of blocks (or the size overflows). For the flat
 * types this is the size of a tensor with n_elems elements. */
int64_t apr_row_bytes(apr_dtype dtype, int64_t n_elems);

/* A plain array of floating-point numbers: f32, f16, bf16, f64. */
bool apr_dtype_is_float(apr_dtype dtype);
/* Block formats and FP8/FP6/FP4: quantized numbers. */
bool apr_dtype_is_quantized(apr_dtype dtype);
/* Weights of either kind; false for integers, bools and the like, and for APR_DTYPE_COUNT. */
bool apr_dtype_is_weights(apr_dtype dtype);
/* Bits per weight as stored, including the scales inside the block. */
double apr_dtype_bits(apr_dtype dtype);

/* Which of two equally frequent types to name: plain numbers before blocks, then the smaller ggml id, then the smaller APR id. */
bool apr_dtype_precedes(apr_dtype a, apr_dtype b);
/* The type of most elements (ties: apr_dtype_precedes); APR_DTYPE_COUNT when there are no elements. */
apr_dtype apr_dtype_most_common(const int64_t n_elems[APR_DTYPE_COUNT]);

#endif
