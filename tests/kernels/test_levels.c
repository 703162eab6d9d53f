/* kernels/host/codecs/levels.h: every level of CPU gives the bytes and bits of the reference, for whatever values and lengths. */
#include "kernels/host/codecs/levels.h"

#include "formats/base/random.h"
#include "formats/number/half.h"
#include "kernels/out_of_range.h"
#include "tests/support/sanitizer.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/* Seven and a half groups of the widest encoder: whole groups, and a rest. */
enum { N_VALUES = 15 * 256, LARGEST_BLOCK = 256 };

static uint64_t random_state = 20260101;
static uint32_t random_bits(void) { return (uint32_t)(apr_random(&random_state) >> 32); }
static float uniform(void) { return (float)(random_bits() >> 8) * 0x1p-24f; }

/* Near enough to Gaussian: twelve uniform values. */
static float bell(void)
{
    float sum = -6.0f;
    for (int i = 0; i < 12; i++) sum += uniform();
    return sum;
}

/* ---- what is encoded ---- */

static void bells(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = 0.02f * bell();
}
static void heavy_tails(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = bell() / (0.01f + uniform());
}
static void any_bits(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = apr_f32_from_bits(random_bits());
}
static void each_block_of_its_size(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = ldexpf(bell(), (int)(i / 16 * 7 % 276) - 149);
}
static void one_sign(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = (i / 32 % 2 ? 1.0f : -1.0f) * (5.0f + uniform());
}
static void far_from_zero_and_close_together(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = ldexpf(i / 32 % 2 ? 1.0f : -1.0f, (int)(i / 64 % 30)) * (1.0f + 0x1p-20f * uniform());
}
static void ties_between_codes(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = ldexpf((float)((int)(random_bits() % 65) - 32), -1 - (int)(i / 256 % 3));
}
/* Blocks of 32 whose best step is near 1: most values are middles between two levels of IQ4_NL, or the next number on either side. */
static void middles_of_iq4(float *x, int64_t n)
{
    static const float middles[] = {-115.5f, -93.5f, -74.0f, -57.0f, -42.0f, -28.5f, -16.0f, -4.5f,
                                    7.0f,    19.0f,  31.5f,  45.5f,  61.0f,  79.0f,  101.0f};
    for (int64_t i = 0; i < n; i++) {
        const float middle = middles[random_bits() % 15], exact[] = {-127.0f, 113.0f, 1.0f, -10.0f};
        const float near[] = {middle, nextafterf(middle, 200.0f), nextafterf(middle, -200.0f)};
        x[i] = i % 32 == 0 ? -127.0f : i % 32 < 22 ? near[random_bits() % 3] : exact[random_bits() % 4];
    }
}
static void mostly_zeros(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = random_bits() % 16 ? (random_bits() % 2 ? 0.0f : -0.0f) : bell();
}

/* Every block of another kind: two alternating values, among them all that a format has trouble with. */
static void pairs_of_extremes(float *x, int64_t n)
{
    static const float odd[] = {0.0f,       -0.0f,    NAN,       INFINITY, -INFINITY, FLT_MAX,  -FLT_MAX,  FLT_MIN,   0x1p-149f,
                                -0x1p-149f, 0x1p-40f, 1e-12f,    -6e-8f,   65504.0f,  65520.0f, 1e9f,      -1e30f,    3.0f,
                                -3.0f,      448.0f,   -449.0f,   464.0f,   0x1p-6f,   0x1p-9f,  0x1p-10f,  0x1p-126f, 0x1p-127f,
                                0x1p125f,   0x1p127f, -0x1p-14f, 1e7f,     -2.1e6f,   0x1p-24f, 0x1.8p-25f};
    enum { N_ODD = sizeof odd / sizeof *odd };
    for (int64_t i = 0; i < n; i++) {
        const int64_t block = i / 16 * 2654435761 % 1000003;
        x[i] = odd[random_bits() % 8 == 0 ? block / N_ODD % N_ODD : block % N_ODD];
    }
}

static const struct {
    const char *name;
    void (*fill)(float *x, int64_t n);
    bool has_extremes; /* what can be undefined: NaN, infinity, numbers that no integer holds */
} sets[] = {{"bells", bells, false},
            {"heavy tails", heavy_tails, false},
            {"any bits", any_bits, true},
            {"each block of its size", each_block_of_its_size, true},
            {"one sign", one_sign, false},
            {"far from zero and close together", far_from_zero_and_close_together, false},
            {"ties between codes", ties_between_codes, false},
            {"middles of IQ4", middles_of_iq4, false},
            {"mostly zeros", mostly_zeros, false},
            {"pairs of extremes", pairs_of_extremes, true}};
enum { N_SETS = sizeof sets / sizeof *sets };

/* Under a sanitizer only every `step`-th of a test's combinations is checked, another one for each type. */
static bool is_taken(int combination, int step) { return !APR_HAS_SANITIZER || combination % step == 0; }

/* ---- comparing ---- */

/* NULL after the last level. Levels that this machine has not are left out. */
static const apr_host_codecs_table *next_level(int *level)
{
    while (*level < APR_CPU_LEVELS) {
        const apr_host_codecs_table *const table = apr_cpu_level_table((apr_cpu_level)(*level)++);
        if (table != NULL) return table;
    }
    return NULL;
}

/* Calls `check` with every set of values. */
static void for_each_set(void (*check)(int set, const float *x))
{
    float *const x = malloc(N_VALUES * sizeof *x);
    assert_non_null(x);
    for (int s = 0; s < N_SETS; s++) {
        sets[s].fill(x, N_VALUES);
        check(s, x);
    }
    free(x);
}

/* Calls `check` for every level that this machine has, with every set of values. */
static void for_each(void (*check)(const apr_host_codecs_table *table, int set, const float *x))
{
    float *const x = malloc(N_VALUES * sizeof *x);
    assert_non_null(x);
    for (int s = 0; s < N_SETS; s++) {
        const apr_host_codecs_table *table;
        sets[s].fill(x, N_VALUES);
        for (int level = 0; (table = next_level(&level)) != NULL;) check(table, s, x);
    }
    free(x);
}

/* w: importances, or NULL. Every level's bytes are the reference's, which are computed once. */
static void same_bytes(apr_dtype dtype, const char *set, const float *x, const float *w, int64_t n)
{
    const size_t n_bytes = (size_t)apr_row_bytes(dtype, n);
    uint8_t *const reference = malloc(n_bytes + 1), *const bytes = malloc(n_bytes + 1); /* space for a wrong byte, which is seen */
    float *const exact = malloc((size_t)n * sizeof *exact + 1);                         /* the address sanitizer guards its end */
    const apr_host_codecs_table *table;

    assert_true(reference != NULL && bytes != NULL && exact != NULL);
    if (n > 0) memcpy(exact, x, (size_t)n * sizeof *exact);
    reference[n_bytes] = 0x5a;
    if (w == NULL) apr_ref_codecs[dtype].encode(exact, reference, n);
    else apr_ref_codecs[dtype].encode_by(exact, w, reference, n);
    for (int level = 0; (table = next_level(&level)) != NULL;) {
        memset(bytes, 0xa5, n_bytes);
        bytes[n_bytes] = 0x5a;
        if (w == NULL) table->codecs[dtype].encode(exact, bytes, n);
        else table->codecs[dtype].encode_by(exact, w, bytes, n);
        for (size_t i = 0; i <= n_bytes; i++)
            if (bytes[i] != reference[i])
                fail_msg("%s%s, %s, %s, %lld values: byte %zu (block %zu) is %#x, not %#x", apr_dtypes[dtype].name,
                         w != NULL ? " by importance" : "", table->name, set, (long long)n, i,
                         i / (size_t)apr_dtypes[dtype].bytes_per_block, bytes[i], reference[i]);
    }
    free(exact);
    free(bytes);
    free(reference);
}

static void check_encoders(int set, const float *x)
{
    for (int d = 0; d < APR_DTYPE_COUNT; d++) {
        const apr_host_codecs_table *table;
        for (int level = 0; (table = next_level(&level)) != NULL;)
            assert_int_equal(table->codecs[d].encode != NULL, apr_can_encode((apr_dtype)d));
        if (apr_can_encode((apr_dtype)d) && (sets[set].has_extremes || is_taken(set + d, 3)))
            same_bytes((apr_dtype)d, sets[set].name, x, NULL, N_VALUES);
    }
}

static void every_level_encodes_to_the_bytes_of_the_reference(void **state)
{
    (void)state;
    for_each_set(check_encoders);
}

/* ---- by importance ---- */

static void spread_evenly(float *w, int64_t n)
{
    for (int64_t i = 0; i < n; i++) w[i] = 0.3f;
}
static void of_all_sizes(float *w, int64_t n)
{
    for (int64_t i = 0; i < n; i++) w[i] = ldexpf(uniform(), (int)(random_bits() % 40) - 20);
}
static void one_matters(float *w, int64_t n)
{
    for (int64_t i = 0; i < n; i++) w[i] = i % 64 == 5 ? 1.0f : 0.0f;
}
static void some_sub_blocks_have_none(float *w, int64_t n)
{
    for (int64_t i = 0; i < n; i++) w[i] = i / 32 % 3 == 0 ? 0.0f : uniform();
}
static void no_importances(float *w, int64_t n)
{
    static const float odd[] = {NAN, -1.0f, INFINITY, 0x1p-149f, FLT_MAX, 0.0f, 1.0f};
    for (int64_t i = 0; i < n; i++) w[i] = odd[random_bits() % 7];
}

static const struct {
    void (*fill)(float *w, int64_t n);
    bool has_extremes;
} importances[] = {
    {spread_evenly, false}, {of_all_sizes, true}, {one_matters, false}, {some_sub_blocks_have_none, false}, {no_importances, true}};
enum { N_IMPORTANCES = sizeof importances / sizeof *importances };

static void check_encoders_by(int set, const float *x)
{
    float w[N_VALUES];

    for (int d = 0; d < APR_DTYPE_COUNT; d++) {
        const apr_host_codecs_table *table;
        for (int level = 0; (table = next_level(&level)) != NULL;)
            assert_int_equal(table->codecs[d].encode_by != NULL, apr_ref_codecs[d].encode_by != NULL);
        if (apr_ref_codecs[d].encode_by == NULL) continue;
        for (int k = 0; k < N_IMPORTANCES; k++) {
            importances[k].fill(w, N_VALUES);
            if (!(sets[set].has_extremes && importances[k].has_extremes) && !is_taken(set + d + k, 3)) continue;
            same_bytes((apr_dtype)d, sets[set].name, x, w, N_VALUES);
            same_bytes((apr_dtype)d, sets[set].name, x, w, apr_dtypes[d].elems_per_block);
        }
    }
}

static void every_level_encodes_by_importance_to_the_bytes_of_the_reference(void **state)
{
    (void)state;
    for_each_set(check_encoders_by);
}

static void check_equal_importances(const apr_host_codecs_table *table, int set, const float *x)
{
    static const float equal[] = {1.0f, 0.3f, 0.0f, 1e-38f, 7e20f};
    float w[N_VALUES];
    uint8_t plain[4 * N_VALUES], by[4 * N_VALUES];

    for (int d = 0; d < APR_DTYPE_COUNT; d++) {
        if (table->codecs[d].encode_by == NULL || !is_taken(set + d, 3)) continue;
        table->codecs[d].encode(x, plain, N_VALUES);
        for (size_t k = 0; k < sizeof equal / sizeof *equal; k++) {
            for (int64_t i = 0; i < N_VALUES; i++) w[i] = equal[k];
            table->codecs[d].encode_by(x, w, by, N_VALUES);
            if (memcmp(by, plain, (size_t)apr_row_bytes((apr_dtype)d, N_VALUES)) != 0)
                fail_msg("%s, %s, %s: importances of %g change its bytes", apr_dtypes[d].name, table->name, sets[set].name,
                         (double)equal[k]);
        }
    }
}

static void equal_importances_change_nothing(void **state)
{
    (void)state;
    for_each(check_equal_importances);
}

/* The sum of w * (decoded - x)^2. */
static double weighed_error(apr_dtype dtype, const uint8_t *bytes, const float *x, const float *w)
{
    float y[N_VALUES];
    double sum = 0.0;

    apr_ref_codecs[dtype].decode(bytes, y, N_VALUES);
    for (int64_t i = 0; i < N_VALUES; i++) sum += (double)w[i] * ((double)y[i] - (double)x[i]) * ((double)y[i] - (double)x[i]);
    return sum;
}

/* With a tenth of the columns that matter ten times as much. */
static void what_matters_has_less_error(void **state)
{
    float x[N_VALUES], w[N_VALUES];
    uint8_t plain[4 * N_VALUES], by[4 * N_VALUES];
    (void)state;

    random_state = 1; /* the same values, whatever types the tests before had */
    bells(x, N_VALUES);
    for (int64_t i = 0; i < N_VALUES; i++) w[i] = random_bits() % 10 == 0 ? 10.0f : 0.1f + 0.9f * uniform();
    for (int d = 0; d < APR_DTYPE_COUNT; d++) {
        if (apr_ref_codecs[d].encode_by == NULL) continue;
        apr_host_codecs()[d].encode(x, plain, N_VALUES);
        apr_host_codecs()[d].encode_by(x, w, by, N_VALUES);
        const double before = weighed_error((apr_dtype)d, plain, x, w), after = weighed_error((apr_dtype)d, by, x, w);
        if (!(after < 0.999 * before)) fail_msg("%s: weighed error %g, and %g without importance", apr_dtypes[d].name, after, before);
    }
}

static void check_lengths(int set, const float *x)
{
    for (int d = 0; d < APR_DTYPE_COUNT; d++) {
        const int64_t elems = apr_dtypes[d].elems_per_block, most = elems == 1 ? 70 : 20 * elems < N_VALUES ? 20 * elems : N_VALUES / 2;
        if (!apr_can_encode((apr_dtype)d) || !is_taken(set + d, 5)) continue;
        for (int64_t n = 0; n <= most; n += elems) same_bytes((apr_dtype)d, sets[set].name, x + (N_VALUES - most), NULL, n);
    }
}

static void a_last_group_that_is_not_whole_is_encoded_as_well(void **state)
{
    (void)state;
    for_each_set(check_lengths);
}

static void check_addresses(int set, const float *x)
{
    uint8_t reference[4 * LARGEST_BLOCK * 8 + 8], bytes[4 * LARGEST_BLOCK * 8 + 8];
    float values[4 * LARGEST_BLOCK], again[4 * LARGEST_BLOCK];

    for (int d = 0; d < APR_DTYPE_COUNT; d++) {
        const int64_t n = 4 * LARGEST_BLOCK;
        const apr_host_codecs_table *table;
        if (!apr_can_encode((apr_dtype)d) || !is_taken(set + d, 5)) continue;
        apr_ref_codecs[d].encode(x, reference, n);
        apr_ref_codecs[d].decode(reference, values, n);
        for (int level = 0; (table = next_level(&level)) != NULL;) {
            table->codecs[d].encode(x, bytes + 1, n);
            assert_memory_equal(bytes + 1, reference, (size_t)apr_row_bytes((apr_dtype)d, n));
            table->codecs[d].decode(bytes + 1, again, n);
            assert_memory_equal(again, values, sizeof values);
        }
    }
}

static void blocks_may_be_at_any_address(void **state)
{
    (void)state;
    for_each_set(check_addresses);
}

static void every_level_decodes_any_bytes_to_the_bits_of_the_reference(void **state)
{
    (void)state;
    for (int d = 0; d < APR_DTYPE_COUNT; d++) {
        const bool is_single = apr_dtypes[d].elems_per_block == 1;
        const int64_t n = is_single ? 1000 : apr_dtypes[d].flat ? N_VALUES - 5 : N_VALUES; /* flat: ends within a block */
        const size_t n_bytes = (size_t)apr_row_bytes((apr_dtype)d, is_single ? n : N_VALUES);
        if (!apr_can_decode((apr_dtype)d)) continue;
        uint8_t *const bytes = malloc(n_bytes);
        float *const reference = malloc((size_t)n * sizeof *reference), *const values = malloc((size_t)n * sizeof *values);
        for (int level = 0; level < APR_CPU_LEVELS; level++) {
            const apr_host_codecs_table *const table = apr_cpu_level_table((apr_cpu_level)level);
            if (table == NULL) continue;
            for (size_t i = 0; i < n_bytes; i++) bytes[i] = (uint8_t)random_bits();
            apr_ref_codecs[d].decode(bytes, reference, n);
            table->codecs[d].decode(bytes, values, n);
            if (memcmp(values, reference, (size_t)n * sizeof *reference) != 0) fail_msg("%s, %s", apr_dtypes[d].name, table->name);
        }
        free(values);
        free(reference);
        free(bytes);
    }
}

/* All 2^16 FP16 numbers, NaN with every payload among them, and all bytes of FP8. */
static void small_floats_keep_every_bit(void **state)
{
    static const apr_dtype types[] = {APR_F16, APR_BF16, APR_F8_E4M3, APR_F8_E5M2};
    enum { N = 1 << 16 };
    uint16_t *const halves = malloc(N * sizeof *halves);
    float *const reference = malloc(N * sizeof *reference), *const values = malloc(N * sizeof *values);

    (void)state;
    assert_true(halves != NULL && reference != NULL && values != NULL);
    for (int i = 0; i < N; i++) halves[i] = (uint16_t)i;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        const apr_host_codecs_table *table;
        apr_ref_codecs[types[t]].decode(halves, reference, N);
        for (int level = 0; (table = next_level(&level)) != NULL;) {
            table->codecs[types[t]].decode(halves, values, N);
            assert_memory_equal(values, reference, N * sizeof *reference);
        }
        if (apr_can_encode(types[t])) same_bytes(types[t], "its own values", reference, NULL, N);
    }
    free(values);
    free(reference);
    free(halves);
}

/* Half a step between two neighbours, and the two floats next to it. */
static void small_floats_round_at_every_tie_as_the_reference_does(void **state)
{
    static const apr_dtype types[] = {APR_F16, APR_BF16, APR_F8_E4M3};
    (void)state;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        enum { N = 3 * 0x7c00 };
        float *const x = malloc(N * sizeof *x);
        assert_non_null(x);
        for (int i = 0; i < N; i++) {
            const uint16_t code = (uint16_t)(i / 3), next = (uint16_t)(code + 1);
            float low, high;
            const uint8_t byte = (uint8_t)(code % 0x7e), next_byte = (uint8_t)(byte + 1);
            apr_ref_codecs[types[t]].decode(types[t] == APR_F8_E4M3 ? (const void *)&byte : &code, &low, 1);
            apr_ref_codecs[types[t]].decode(types[t] == APR_F8_E4M3 ? (const void *)&next_byte : &next, &high, 1);
            const float tie = low + 0.5f * (high - low);
            x[i] = i % 3 == 0 ? tie : nextafterf(tie, i % 3 == 1 ? low : high);
            if (i % 2) x[i] = -x[i];
        }
        same_bytes(types[t], "ties", x, NULL, N);
        free(x);
    }
}

static void check_fp8_rows(const apr_host_codecs_table *table, int set, const float *x)
{
    for (int64_t n = 1; n < 300; n += 1 + n / 9) {
        uint8_t reference[300], bytes[300];
        float scale, true_scale;
        apr_ref_encode_fp8_row(x + 7, reference, &true_scale, n);
        table->encode_fp8_row(x + 7, bytes, &scale, n);
        if (scale != true_scale || memcmp(bytes, reference, (size_t)n) != 0)
            fail_msg("%s, %s, %lld values: scale %a, not %a", table->name, sets[set].name, (long long)n, (double)scale, (double)true_scale);
    }
}

static void rows_of_fp8_get_the_scale_and_the_codes_of_the_reference(void **state)
{
    (void)state;
    for_each(check_fp8_rows);
}

/* One value outside, at any place of any length, is found; NaN is outside. */
static void check_ranges(const apr_host_codecs_table *table, int set, const float *values)
{
    static const float outside[] = {NAN, INFINITY, -INFINITY, 2.0f, -3.0f, 0x1.000002p0f};
    float x[200];

    (void)set, (void)values;
    for (int64_t n = 0; n <= 200; n += 1 + n / 7) {
        for (int64_t i = 0; i < n; i++) x[i] = i % 3 == 0 ? 1.0f : -2.0f * uniform();
        assert_true(table->all_within(x, n, -2.0f, 1.0f));
        for (int64_t i = 0; i < n; i++) {
            const float was = x[i];
            x[i] = outside[i % 6];
            if (table->all_within(x, n, -2.0f, 1.0f))
                fail_msg("%s: %a at %lld of %lld", table->name, (double)x[i], (long long)i, (long long)n);
            x[i] = was;
        }
    }
}

static void a_value_out_of_range_is_found_wherever_it_is(void **state)
{
    (void)state;
    for_each(check_ranges);
}

/* ---- choosing ---- */

static void the_cpu_level_is_chosen_by_what_the_machine_has(void **state)
{
    apr_error err = {0};
    const apr_host_codecs_table *const best = apr_host_table();
    (void)state;
    assert_non_null(apr_cpu_level_table(APR_CPU_PLAIN));
    assert_null(apr_cpu_level_table(APR_CPU_LEVELS));
    for (int level = 0; level < APR_CPU_LEVELS; level++) {
        const apr_host_codecs_table *const table = apr_cpu_level_table((apr_cpu_level)level);
        const apr_status status = apr_use_cpu_level((apr_cpu_level)level, &err);
        assert_int_equal(status, table != NULL ? APR_OK : APR_E_UNSUPPORTED);
        if (table != NULL) assert_ptr_equal(apr_host_codecs(), table->codecs);
        else assert_non_null(strstr(err.text, "this CPU has no "));
        err = (apr_error){0};
    }
    for (int level = 0; level < APR_CPU_LEVELS; level++)
        if (apr_cpu_level_table((apr_cpu_level)level) == best) assert_int_equal(apr_use_cpu_level((apr_cpu_level)level, &err), APR_OK);
    assert_ptr_equal(apr_host_table(), best);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_level_encodes_to_the_bytes_of_the_reference),
        cmocka_unit_test(every_level_encodes_by_importance_to_the_bytes_of_the_reference),
        cmocka_unit_test(equal_importances_change_nothing),
        cmocka_unit_test(what_matters_has_less_error),
        cmocka_unit_test(a_last_group_that_is_not_whole_is_encoded_as_well),
        cmocka_unit_test(blocks_may_be_at_any_address),
        cmocka_unit_test(every_level_decodes_any_bytes_to_the_bits_of_the_reference),
        cmocka_unit_test(small_floats_keep_every_bit),
        cmocka_unit_test(small_floats_round_at_every_tie_as_the_reference_does),
        cmocka_unit_test(rows_of_fp8_get_the_scale_and_the_codes_of_the_reference),
        cmocka_unit_test(a_value_out_of_range_is_found_wherever_it_is),
        cmocka_unit_test(the_cpu_level_is_chosen_by_what_the_machine_has),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
