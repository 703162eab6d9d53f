/* grid.c - the table of types that have the form of grid.h, and what may change in them. */
#include "quant/feedback/grid.h"

#include "formats/number/half.h"

#include <stddef.h>

#define CODEC(id)   .unpack = apr_grid_unpack_##id, .pack = apr_grid_pack_##id
#define PLAIN(id)   .elems = 32, .sub_elems = 32, .steps = APR_GRID_HALF, .scale_low = 1, .scale_high = 1, CODEC(id)
#define SHIFTED(id) PLAIN(id), .min_low = -1, .min_high = -1, .fits_min = true, .min_is_signed = true
#define WITH_MINS(id) \
    .elems = 256, .sub_elems = 32, .steps = APR_GRID_SUB_SCALE, .scale_high = 63, .min_high = 63, .fits_min = true, CODEC(id)

static const apr_grid grids[APR_DTYPE_COUNT] = {
    [APR_Q4_0] = {.low = -8.0f, .high = 7.0f, PLAIN(q4_0)},
    [APR_Q5_0] = {.low = -16.0f, .high = 15.0f, PLAIN(q5_0)},
    [APR_Q8_0] = {.low = -127.0f, .high = 127.0f, PLAIN(q8_0)},
    [APR_Q4_1] = {.high = 15.0f, SHIFTED(q4_1)},
    [APR_Q5_1] = {.high = 31.0f, SHIFTED(q5_1)},
    [APR_Q4_K] = {.high = 15.0f, WITH_MINS(q4_k)},
    [APR_Q5_K] = {.high = 31.0f, WITH_MINS(q5_k)},
    [APR_Q6_K] = {.elems = 256,
                  .sub_elems = 16,
                  .low = -32.0f,
                  .high = 31.0f,
                  .steps = APR_GRID_SUB_SCALE,
                  .scale_low = -128,
                  .scale_high = 127,
                  CODEC(q6_k)},
    [APR_MXFP4] = {.elems = 32,
                   .sub_elems = 32,
                   .is_e2m1 = true,
                   .low = -12.0f,
                   .high = 12.0f,
                   .steps = APR_GRID_EXPONENT,
                   .scale_high = 252, /* 6 * 2^(252-127) is finite */
                   CODEC(mxfp4)},
};

const apr_grid *apr_grid_of(apr_dtype dtype)
{
    return dtype >= 0 && dtype < APR_DTYPE_COUNT && grids[dtype].elems > 0 ? &grids[dtype] : NULL;
}

/* MXFP4: 2^(e-128), half of the byte's exponent value, because codes are doubled. */
float apr_grid_step(const apr_grid *grid, uint16_t d, int scale)
{
    if (grid->steps == APR_GRID_EXPONENT) return apr_f32_from_bits(scale < 2 ? 0x00200000u << scale : (uint32_t)(scale - 1) << 23);
    return apr_f16_to_f32(d) * (float)scale;
}

float apr_grid_offset(uint16_t dmin, int min) { return min != 0 ? apr_f16_to_f32(dmin) * (float)min : 0.0f; }
