/* test_half.c - the small floats, value by value, against their definition in powers of two. */
#include "formats/number/half.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

typedef struct format {
    const char *name;
    int exponent_bits, mantissa_bits, bias;
    uint32_t infinity; /* code of the first value that is not finite */
    float (*decode)(uint32_t code);
    uint32_t (*encode)(float value);
} format;

static float decode_f16(uint32_t code) { return apr_f16_to_f32((uint16_t)code); }
static float decode_bf16(uint32_t code) { return apr_bf16_to_f32((uint16_t)code); }
static float decode_e4m3(uint32_t code) { return apr_e4m3_to_f32((uint8_t)code); }
static float decode_e5m2(uint32_t code) { return apr_e5m2_to_f32((uint8_t)code); }
static uint32_t encode_f16(float value) { return apr_f32_to_f16(value); }
static uint32_t encode_bf16(float value) { return apr_f32_to_bf16(value); }
static uint32_t encode_e4m3(float value) { return apr_f32_to_e4m3(value); }
static uint32_t encode_e5m2(float value) { return apr_f32_to_e5m2(value); }

static const format formats[] = {
    {"f16", 5, 10, 15, 0x7c00, decode_f16, encode_f16},
    {"bf16", 8, 7, 127, 0x7f80, decode_bf16, encode_bf16},
    {"e4m3", 4, 3, 7, 0x7f, decode_e4m3, encode_e4m3}, /* no infinity: the only such code is NaN */
    {"e5m2", 5, 2, 15, 0x7c, decode_e5m2, encode_e5m2},
};
enum { N_FORMATS = sizeof formats / sizeof *formats };

static uint32_t sign_bit(const format *f) { return 1u << (f->exponent_bits + f->mantissa_bits); }

/* Sign * mantissa * 2^exponent, in double, which holds every value of every format. */
static double by_definition(const format *f, uint32_t code)
{
    const uint32_t mantissa = code & ((1u << f->mantissa_bits) - 1), exponent = (code & (sign_bit(f) - 1)) >> f->mantissa_bits;
    const double magnitude = exponent == 0 ? ldexp(mantissa, 1 - f->bias - f->mantissa_bits)
                                           : ldexp(mantissa + (1u << f->mantissa_bits), (int)exponent - f->bias - f->mantissa_bits);
    return code & sign_bit(f) ? -magnitude : magnitude;
}

static void every_finite_code_decodes_to_its_definition_and_back(void **state)
{
    (void)state;
    for (const format *f = formats; f < formats + N_FORMATS; f++)
        for (uint32_t code = 0; code < 2 * sign_bit(f); code++) {
            if ((code & (sign_bit(f) - 1)) >= f->infinity) continue;
            const float value = f->decode(code);
            if ((double)value != by_definition(f, code) || !!signbit(value) != !!(code & sign_bit(f)))
                fail_msg("%s %#x decodes to %a", f->name, (unsigned)code, (double)value);
            if (f->encode(value) != code) fail_msg("%s %#x comes back as %#x", f->name, (unsigned)code, (unsigned)f->encode(value));
        }
}

static void infinities_and_nans_keep_their_kind(void **state)
{
    (void)state;
    for (const format *f = formats; f < formats + N_FORMATS; f++)
        for (uint32_t code = 0; code < 2 * sign_bit(f); code++) {
            const uint32_t magnitude = code & (sign_bit(f) - 1);
            if (magnitude < f->infinity) continue;
            const float value = f->decode(code);
            const int is_infinity = magnitude == f->infinity && f->encode != encode_e4m3;
            if (is_infinity ? !isinf(value) : !isnan(value)) fail_msg("%s %#x decodes to %a", f->name, (unsigned)code, (double)value);
            const uint32_t back = f->encode(value);
            if (is_infinity ? back != code : !isnan(f->decode(back)))
                fail_msg("%s %#x comes back as %#x", f->name, (unsigned)code, (unsigned)back);
        }
}

/* Between neighbours: the middle goes to the even code, its float neighbours to the nearer code. */
static void values_between_codes_round_to_nearest_and_ties_to_even(void **state)
{
    (void)state;
    for (const format *f = formats; f < formats + N_FORMATS; f++)
        for (uint32_t code = 0; code + 1 < f->infinity; code++) {
            const float middle = (float)((by_definition(f, code) + by_definition(f, code + 1)) / 2);
            const uint32_t even = code + (code & 1);
            for (int negative = 0; negative < 2; negative++) {
                const uint32_t sign = negative ? sign_bit(f) : 0;
                const float side = negative ? -1.0f : 1.0f;
                const uint32_t tie = f->encode(side * middle), below = f->encode(side * nextafterf(middle, 0.0f)),
                               above = f->encode(side * nextafterf(middle, INFINITY));
                if (tie != (sign | even) || below != (sign | code) || above != (sign | (code + 1)))
                    fail_msg("%s between %#x and %#x: %#x %#x %#x", f->name, (unsigned)code, (unsigned)code + 1, (unsigned)below,
                             (unsigned)tie, (unsigned)above);
            }
        }
}

static void large_values_overflow_as_each_format_says(void **state)
{
    (void)state;
    static const struct {
        uint32_t (*encode)(float);
        float value;
        uint32_t code;
    } table[] = {
        {encode_f16, 65504.0f, 0x7bff},      {encode_f16, 0x1.ffdffep15f, 0x7bff},   {encode_f16, 65520.0f, 0x7c00},
        {encode_f16, -3.0e38f, 0xfc00},      {encode_f16, -INFINITY, 0xfc00},        {encode_bf16, 0x1.fefffep127f, 0x7f7f},
        {encode_bf16, 0x1.ffp127f, 0x7f80},  {encode_bf16, 0x1.fffffep127f, 0x7f80}, {encode_e4m3, 448.0f, 0x7e},
        {encode_e4m3, 449.0f, 0x7e},         {encode_e4m3, 1.0e30f, 0x7e},           {encode_e4m3, -INFINITY, 0xfe},
        {encode_e5m2, 0x1.dffffep15f, 0x7b}, {encode_e5m2, 61440.0f, 0x7c},          {encode_e5m2, -1.0e30f, 0xfc},
        {encode_f16, 0x1p-25f, 0},           {encode_f16, 0x1.000002p-25f, 1},       {encode_f16, 1.0e-45f, 0},
        {encode_e4m3, -0x1p-10f, 0x80},      {encode_e4m3, 0x1.000002p-10f, 1},      {encode_e5m2, 1.0e-40f, 0},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) assert_int_equal(table[i].encode(table[i].value), table[i].code);
}

static void e8m0_is_a_power_of_two(void **state)
{
    (void)state;
    for (int e = 0; e < 255; e++) assert_true((double)apr_e8m0_to_f32((uint8_t)e) == ldexp(1.0, e - 127));
    assert_true(isnan(apr_e8m0_to_f32(255)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_finite_code_decodes_to_its_definition_and_back),
        cmocka_unit_test(infinities_and_nans_keep_their_kind),
        cmocka_unit_test(values_between_codes_round_to_nearest_and_ties_to_even),
        cmocka_unit_test(large_values_overflow_as_each_format_says),
        cmocka_unit_test(e8m0_is_a_power_of_two),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
