/* out_of_range.c - the ranges of types, and the values outside of them. */
#include "kernels/out_of_range.h"

#include "kernels/host/codecs/levels.h"
#include "kernels/ref/codecs.h"

/* The largest float32 that rounds to 65504, and to bf16's largest: half a step above rounds to infinity. */
#define F16_LAST  0x1.ffdffep15f
#define BF16_LAST 0x1.fefffep127f

/* Largest scale times largest code. In a block with a minimum, values below 0 come from the minimum: an FP16 number, in K-quants times a
 * 6-bit number. */
static const struct {
    apr_dtype dtype;
    apr_range range;
} narrow[] = {
    {APR_F16, {-F16_LAST, F16_LAST, true}},
    {APR_BF16, {-BF16_LAST, BF16_LAST, true}},
    {APR_Q4_0, {-APR_F16_MAX * 8.0f, APR_F16_MAX * 8.0f, false}},
    {APR_Q5_0, {-APR_F16_MAX * 16.0f, APR_F16_MAX * 16.0f, false}},
    {APR_Q8_0, {-APR_F16_MAX * 127.0f, APR_F16_MAX * 127.0f, false}},
    {APR_Q4_1, {-APR_F16_MAX, APR_F16_MAX * 14.0f, false}},
    {APR_Q5_1, {-APR_F16_MAX, APR_F16_MAX * 30.0f, false}},
    {APR_Q4_K, {-APR_F16_MAX * 63.0f, APR_F16_MAX * 63.0f * 15.0f, false}},
    {APR_Q5_K, {-APR_F16_MAX * 63.0f, APR_F16_MAX * 63.0f * 31.0f, false}},
    {APR_Q6_K, {-APR_F16_MAX * 127.0f * 31.0f, APR_F16_MAX * 127.0f * 31.0f, false}},
    {APR_Q2_K, {-APR_F16_MAX * 15.0f, APR_F16_MAX * 15.0f * 3.0f, false}},
    {APR_Q3_K, {-APR_F16_MAX * 32.0f * 4.0f, APR_F16_MAX * 32.0f * 4.0f, false}},
    {APR_IQ4_XS, {-APR_F16_MAX * 32.0f * 127.0f, APR_F16_MAX * 32.0f * 127.0f, false}},
    {APR_IQ4_NL, {-APR_F16_MAX * 127.0f, APR_F16_MAX * 127.0f, false}},
    {APR_TQ1_0, {-APR_F16_MAX, APR_F16_MAX, false}},
    {APR_TQ2_0, {-APR_F16_MAX, APR_F16_MAX, false}},
    {APR_Q1_0, {-APR_F16_MAX, APR_F16_MAX, false}},
    {APR_Q2_0, {-APR_F16_MAX * 2.0f, APR_F16_MAX * 2.0f, false}},
    {APR_NVFP4, {-6.0f * 448.0f, 6.0f * 448.0f, false}},
    {APR_IQ1_S, {-APR_F16_MAX * 15.0f * 1.125f, APR_F16_MAX * 15.0f * 1.125f, false}},
    {APR_IQ1_M, {-APR_F16_MAX * 15.0f * 1.125f, APR_F16_MAX * 15.0f * 1.125f, false}},
    {APR_IQ2_XXS, {-APR_F16_MAX * 3.875f * 43.0f, APR_F16_MAX * 3.875f * 43.0f, false}},
    {APR_IQ2_XS, {-APR_F16_MAX * 3.875f * 43.0f, APR_F16_MAX * 3.875f * 43.0f, false}},
    {APR_IQ2_S, {-APR_F16_MAX * 3.875f * 43.0f, APR_F16_MAX * 3.875f * 43.0f, false}},
    {APR_IQ3_XXS, {-APR_F16_MAX * 7.75f * 62.0f, APR_F16_MAX * 7.75f * 62.0f, false}},
    {APR_IQ3_S, {-APR_F16_MAX * 31.0f * 15.0f, APR_F16_MAX * 31.0f * 15.0f, false}},
    {APR_MXFP4, {-6.0f * 0x1p125f, 6.0f * 0x1p125f, false}},
};

apr_range apr_encode_range(apr_dtype dtype)
{
    for (size_t i = 0; i < sizeof narrow / sizeof *narrow; i++)
        if (narrow[i].dtype == dtype) return narrow[i].range;
    return (apr_range){-FLT_MAX, FLT_MAX, false};
}

float apr_encode_bound(apr_dtype dtype, float x)
{
    const apr_range range = apr_encode_range(dtype);
    float bound = x < 0.0f ? range.low : range.high;

    if (range.overflows) {
        uint16_t half;
        apr_ref_codecs[dtype].encode(&bound, &half, 1);
        apr_ref_codecs[dtype].decode(&half, &bound, 1);
    }
    return bound;
}

static bool is_beyond(float x, apr_range range) { return (x > range.high || x < range.low) && x <= FLT_MAX && x >= -FLT_MAX; }

static bool is_worse(float x, float than)
{
    const float magnitude = x < 0.0f ? -x : x, other = than < 0.0f ? -than : than;
    return magnitude > other || (magnitude == other && x > than);
}

int64_t apr_count_nonfinite(const float *x, int64_t n_elems)
{
    int64_t n = 0;
    for (int64_t i = 0; i < n_elems; i++) n += (apr_f32_bits(x[i]) & 0x7f800000) == 0x7f800000; /* NaN and infinities */
    return n;
}

apr_out_of_range apr_find_out_of_range(const float *x, int64_t n_elems, apr_dtype to)
{
    const apr_range range = apr_encode_range(to);
    if (apr_host_table()->all_within(x, n_elems, range.low, range.high)) return (apr_out_of_range){0}; /* the usual case */

    apr_out_of_range m = {.n_nonfinite = apr_count_nonfinite(x, n_elems)};
    for (int64_t i = 0; i < n_elems; i++) /* without branches, so that it vectorizes */
        m.n_out_of_range += ((x[i] > range.high) | (x[i] < range.low)) & (x[i] <= FLT_MAX) & (x[i] >= -FLT_MAX);
    for (int64_t i = 0; i < n_elems && m.n_out_of_range > 0; i++)
        if (is_beyond(x[i], range) && is_worse(x[i], m.worst)) m.worst = x[i];
    return m;
}

void apr_out_of_range_merge(apr_out_of_range *m, const apr_out_of_range *later)
{
    m->n_nonfinite += later->n_nonfinite;
    m->n_out_of_range += later->n_out_of_range;
    if (is_worse(later->worst, m->worst)) m->worst = later->worst;
}

void apr_saturate(const float *src, float *dst, int64_t n_elems, apr_dtype to)
{
    const apr_range range = apr_encode_range(to);
    for (int64_t i = 0; i < n_elems; i++) dst[i] = !is_beyond(src[i], range) ? src[i] : src[i] < 0.0f ? range.low : range.high;
}

int64_t apr_count_beyond_f32(const void *doubles, int64_t n_elems, double *worst)
{
    const uint8_t *const bytes = doubles;
    int64_t n = 0;

    *worst = 0.0;
    for (int64_t i = 0; i < n_elems; i++) {
        double x;
        memcpy(&x, bytes + i * (int64_t)sizeof x, sizeof x);
        const double magnitude = x < 0.0 ? -x : x, most = *worst < 0.0 ? -*worst : *worst;
        if (!(magnitude >= 0x1.ffffffp127 && magnitude <= DBL_MAX)) continue; /* half a step above FLT_MAX rounds to infinity */
        n++;
        if (magnitude > most || (magnitude == most && x > *worst)) *worst = x;
    }
    return n;
}
