/* groups.c - the search for the scale of one group: NVFP4 over E4M3 numbers, integers of 4 bits over ratios of the largest magnitude. */
#include "kernels/groups.h"

#include "kernels/ref/codecs.h"

/* ---- NVFP4 ---- */

/* E4M3 has 8 numbers an octave. The largest magnitude becomes code 6 at offset 0, code 4 at about +5; below 0 it is clipped. */
enum { NV_BELOW = 4, NV_ABOVE = 6, E4M3_MOST = 0x7e };

/* Nearest of 0 .5 1 1.5 2 3 4 6, ties to the lower one. */
static inline float nearest_e2m1(float a)
{
    const float below_2 = (a > 0.25f ? 0.5f : 0.0f) + (a > 0.75f ? 0.5f : 0.0f) + (a > 1.25f ? 0.5f : 0.0f) + (a > 1.75f ? 0.5f : 0.0f);
    return below_2 + (a > 2.5f ? 1.0f : 0.0f) + (a > 3.5f ? 1.0f : 0.0f) + (a > 5.0f ? 2.0f : 0.0f);
}

static uint8_t code_e2m1(float u)
{
    const float a = u < 0.0f ? -u : u;
    const int index = (a > 0.25f) + (a > 0.75f) + (a > 1.25f) + (a > 1.75f) + (a > 2.5f) + (a > 3.5f) + (a > 5.0f);
    return (uint8_t)(index + (u < 0.0f && index != 0 ? 8 : 0));
}

static float nvfp4_error(const float *restrict x, const float *restrict w, float scale)
{
    const float inverse = 1.0f / scale;
    float lane[8] = {0.0f};
    for (int j = 0; j < APR_NVFP4_GROUP; j += 8)
        for (int l = 0; l < 8; l++) {
            const float a = x[j + l] < 0.0f ? -x[j + l] : x[j + l], err = nearest_e2m1(a * inverse) * scale - a;
            lane[l] += w[j + l] * err * err;
        }
    return apr_sum8(lane);
}

static float largest(const float *x, int n)
{
    float most = 0.0f;
    for (int j = 0; j < n; j++) most = x[j] > most ? x[j] : -x[j] > most ? -x[j] : most;
    return most;
}

uint8_t apr_ref_encode_nvfp4_group(const float src[APR_NVFP4_GROUP], const float w[APR_NVFP4_GROUP], uint8_t codes[APR_NVFP4_GROUP])
{
    float x[APR_NVFP4_GROUP], least = 0.0f;
    int best = 0;

    for (int j = 0; j < APR_NVFP4_GROUP; j++) x[j] = apr_clamp_finite(src[j], 0x1p60f); /* its square is a float */
    const int middle = apr_f32_to_e4m3(apr_clamp_finite(largest(x, APR_NVFP4_GROUP) / 6.0f, 448.0f)) & 0x7f;
    for (int byte = middle - NV_BELOW; byte <= middle + NV_ABOVE; byte++) {
        if (byte < 1 || byte > E4M3_MOST) continue;
        const float err = nvfp4_error(x, w, apr_e4m3_to_f32((uint8_t)byte));
        if (best == 0 || err < least) best = byte, least = err;
    }
    const float inverse = 1.0f / apr_e4m3_to_f32((uint8_t)best);
    for (int j = 0; j < APR_NVFP4_GROUP; j++) codes[j] = code_e2m1(x[j] * inverse);
    return (uint8_t)best;
}

/* ---- integers of 4 bits ---- */

enum { MOST = 15, MIDDLE = 8, STEPS = 32 };

static float code_of(float x, float inverse, float zero)
{
    return apr_clamp(apr_round_even(apr_clamp(x * inverse, -64.0f, 64.0f)) + zero, 0.0f, (float)MOST);
}

/* The scale that fits the codes of a trial scale best. *gain: by how much it lowers the error of all zeros. */
static float refit(const float *restrict x, const float *restrict w, int n, float scale, float zero, float *gain)
{
    const float inverse = 1.0f / scale;
    float xq[8] = {0.0f}, qq[8] = {0.0f};

    for (int j = 0; j < n; j += 8)
        for (int l = 0; l < 8; l++) {
            const float q = code_of(x[j + l], inverse, zero) - zero;
            xq[l] += w[j + l] * x[j + l] * q;
            qq[l] += w[j + l] * q * q;
        }
    const float a = apr_sum8(xq), b = apr_sum8(qq);
    *gain = a > 0.0f && b > 0.0f ? a * (a / b) : 0.0f;
    return a > 0.0f && b > 0.0f ? a / b : scale;
}

/* The nearest positive number of the type. */
static float round_scale(float scale, apr_dtype type)
{
    const float least = type == APR_F16 ? 0x1p-24f : 0x1p-126f, x = apr_clamp(scale, least, type == APR_F16 ? APR_F16_MAX : 0x1p120f);
    return type == APR_F16 ? apr_f16_to_f32(apr_f32_to_f16(x)) : apr_bf16_to_f32(apr_f32_to_bf16(x));
}

static float error_of(const float *restrict x, const float *restrict w, int n, apr_int4_group g)
{
    const float inverse = 1.0f / g.scale, zero = (float)g.zero;
    float lane[8] = {0.0f};
    for (int j = 0; j < n; j += 8)
        for (int l = 0; l < 8; l++) {
            const float err = (code_of(x[j + l], inverse, zero) - zero) * g.scale - x[j + l];
            lane[l] += w[j + l] * err * err;
        }
    return apr_sum8(lane);
}

/* Rounds the fitted scale and the trial scale to the type; the better one encodes the group. */
static apr_int4_group finish(const float *x, const float *w, int n, apr_dtype type, float fitted, float trial, int zero, uint8_t *codes)
{
    const apr_int4_group a = {round_scale(fitted, type), zero}, b = {round_scale(trial, type), zero};
    const apr_int4_group g = error_of(x, w, n, b) < error_of(x, w, n, a) ? b : a;
    const float inverse = 1.0f / g.scale;

    for (int j = 0; j < n; j++) codes[j] = (uint8_t)code_of(x[j], inverse, (float)g.zero);
    return g;
}

apr_int4_group apr_ref_encode_int4_group(const float *x, const float *w, int n, apr_dtype type, uint8_t *codes)
{
    const float most = largest(x, n);
    float fitted = most / 7.5f, trial = fitted, best = 0.0f, gain;

    for (int i = 0; i < STEPS && most > 0.0f; i++) { /* the largest magnitude becomes 6.5 to 10.4 steps: codes end at -8 and 7 */
        const float scale = most / (6.5f + 0.125f * (float)i), fit = refit(x, w, n, scale, (float)MIDDLE, &gain);
        if (gain > best) best = gain, fitted = fit, trial = scale;
    }
    return finish(x, w, n, type, fitted, trial, MIDDLE, codes);
}

apr_int4_group apr_ref_encode_uint4_group(const float *x, const float *w, int n, apr_dtype type, uint8_t *codes)
{
    float low = 0.0f, high = 0.0f, best = 0.0f, gain;
    int best_zero = MIDDLE;

    for (int j = 0; j < n; j++) {
        low = x[j] < low ? x[j] : low;
        high = x[j] > high ? x[j] : high;
    }
    const float range = (high - low) / (float)MOST;
    float fitted = range, trial = range;
    for (int i = 0; i < STEPS && range > 0.0f; i++) {
        const float scale = range * (1.0625f - 0.015625f * (float)i);
        const int zero = (int)apr_clamp(apr_round_even(apr_clamp(-low / scale, 0.0f, 64.0f)), 0.0f, (float)MOST);
        for (int z = zero > 0 ? zero - 1 : 0; z <= zero + 1 && z <= MOST; z++) {
            const float fit = refit(x, w, n, scale, (float)z, &gain);
            if (gain > best) best = gain, fitted = fit, trial = scale, best_zero = z;
        }
    }
    return finish(x, w, n, type, fitted, trial, best_zero, codes);
}
