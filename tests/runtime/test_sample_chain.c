/* runtime/session/sample.h: the steps before the draw leave what an independent program says (tests/sampling_reference.py), and the
 * likeliest tokens alone, which a device gives, choose what the whole row does. */
#include "formats/base/json.h"
#include "runtime/check/golden.h"
#include "runtime/session/sample.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { DRAWS = 1000 };

static cJSON *read_cases(void)
{
    static char text[1 << 16];
    apr_error err = {0};
    cJSON *json = NULL;
    FILE *const in = fopen("tests/data/sampling/cases.json", "rb");

    assert_non_null(in);
    const size_t n = fread(text, 1, sizeof text, in);
    fclose(in);
    if (apr_json_parse(&json, text, n, "cases.json", &err) != APR_OK) fail_msg("%s", err.text);
    return json;
}

static double real_of(const cJSON *options, const char *key, double standard)
{
    apr_json_get_real(options, key, &standard);
    return standard;
}

static apr_sample_options options_of(const cJSON *c)
{
    const cJSON *const o = apr_json_get(c, "options");
    return (apr_sample_options){.temperature = (float)real_of(o, "temperature", 1.0),
                                .top_p = (float)real_of(o, "top_p", 1.0),
                                .seed = 11,
                                .top_k = (int64_t)real_of(o, "top_k", 0.0),
                                .min_p = (float)real_of(o, "min_p", 0.0),
                                .repeat_penalty = (float)real_of(o, "repeat_penalty", 1.0),
                                .presence_penalty = (float)real_of(o, "presence_penalty", 0.0),
                                .frequency_penalty = (float)real_of(o, "frequency_penalty", 0.0),
                                .repeat_last = (int64_t)real_of(o, "repeat_last", 64.0)};
}

/* Tokens drawn: each draw has the case's history before it. */
static void draw(const cJSON *c, const apr_sample_options *options, const float *logits, int64_t n_logits, int n_draws, int *counts)
{
    const cJSON *id;
    apr_sampler s;
    apr_error err = {0};
    uint64_t state = options->seed;

    memset(counts, 0, (size_t)n_logits * sizeof *counts);
    for (int i = 0; i < n_draws; i++) {
        if (apr_sampler_open(&s, n_logits, options, &err) != APR_OK) fail_msg("%s", err.text);
        cJSON_ArrayForEach(id, apr_json_get(c, "history")) apr_sampler_take(&s, &(int32_t){id->valueint}, 1);
        s.state = state;
        counts[apr_sample(&s, logits)]++;
        state = s.state;
        apr_sampler_close(&s);
    }
}

/* Temperature comes last, so that a high one draws evenly from what is left: all of it comes, and nothing else. */
static void check_left(int number, const cJSON *c, const float *logits, int64_t n_logits, int *counts)
{
    const cJSON *const ids = apr_json_get(c, "ids"), *id;
    apr_sample_options options = options_of(c);
    const int n_ids = cJSON_GetArraySize(ids);
    int n_drawn = 0, n_told = 0;

    options.temperature = 1e5f;
    draw(c, &options, logits, n_logits, 25 * n_ids, counts);
    for (int64_t i = 0; i < n_logits; i++) n_drawn += counts[i] > 0;
    cJSON_ArrayForEach(id, ids) n_told += counts[id->valueint] > 0;
    if (n_drawn != n_ids || n_told != n_ids)
        fail_msg("case %d: %d tokens are left, %d of the %d that should be", number, n_drawn, n_told, n_ids);
}

static void check_shares(int number, const cJSON *c, const float *logits, int64_t n_logits, int *counts)
{
    const cJSON *const ids = apr_json_get(c, "ids"), *const shares = apr_json_get(c, "p");
    const apr_sample_options options = options_of(c);
    double squares = 0.0;
    int n = 0, n_kept = 0;

    draw(c, &options, logits, n_logits, DRAWS, counts);
    for (const cJSON *id = ids->child, *p = shares->child; id != NULL; id = id->next, p = p->next) {
        const double wanted = DRAWS * p->valuedouble, difference = counts[id->valueint] - wanted;
        n_kept += counts[id->valueint];
        if (wanted < 5.0) continue;
        squares += difference * difference / wanted;
        n++;
    }
    assert_int_equal(n_kept, DRAWS);
    if (squares > n + 5.0 * sqrt(2.0 * n) + 5.0) fail_msg("case %d: chi-squared %.1f of %d tokens", number, squares, n);
}

static void the_chain_leaves_what_an_independent_program_leaves(void **state)
{
    apr_golden_arrays arrays;
    apr_error err = {0};
    const cJSON *c;
    int number = 0, *counts;

    (void)state;
    if (apr_golden_open(&arrays, "tests/data/tiny-qwen2/golden.safetensors", &err) != APR_OK) fail_msg("%s", err.text);
    cJSON *const cases = read_cases();
    counts = calloc((size_t)arrays.vocab_size, sizeof *counts);
    assert_non_null(counts);
    cJSON_ArrayForEach(c, cases)
    {
        const float *const logits = arrays.logits + (int64_t)real_of(c, "row", 0.0) * arrays.vocab_size;
        check_left(number, c, logits, arrays.vocab_size, counts);
        check_shares(number++, c, logits, arrays.vocab_size, counts);
    }
    assert_true(number >= 20);
    free(counts);
    cJSON_Delete(cases);
    apr_golden_close(&arrays);
}

/* Rows of every steepness, with ties, NaN and infinities. */
static void make_row(float *logits, int n, int round)
{
    const float steep = round % 3 == 0 ? 20.0f : round % 3 == 1 ? 6.0f : 0.1f;
    for (int i = 0; i < n; i++) {
        logits[i] = steep * ((float)(rand() % 10000) / 10000.0f - 0.5f);
        if (round % 4 == 1) logits[i] = floorf(logits[i]);
        if (round % 7 == 6 && rand() % 4 == 0) logits[i] = rand() % 2 ? NAN : -INFINITY;
        if (round % 13 == 12) logits[i] = NAN;
        if (round % 17 == 16 && i == n / 2) logits[i] = INFINITY;
    }
}

static apr_sample_options some_options(int round)
{
    static const float temperatures[] = {0.0f, 0.1f, 0.7f, 1.0f, 3.0f}, top_ps[] = {0.0f, 0.05f, 0.5f, 0.9f, 0.999f},
                       min_ps[] = {0.0f, 0.02f, 0.5f, 1.0f};
    static const int top_ks[] = {0, 1, 5, 63, 64, 65, 4999, 6000};

    return (apr_sample_options){.temperature = temperatures[round % 5],
                                .top_p = top_ps[round / 5 % 5],
                                .min_p = min_ps[round / 25 % 4],
                                .top_k = top_ks[rand() % 8],
                                .presence_penalty = round % 11 == 0 ? 1.5f : 0.0f,
                                .repeat_last = 3,
                                .seed = (uint64_t)round};
}

static void the_top_k_choose_what_the_whole_row_does(void **state)
{
    enum { MOST = 5000 };
    static float logits[MOST];
    static const int lengths[] = {1, 33, 64, 65, MOST};
    int n_told[2] = {0, 0};

    (void)state;
    srand(9);
    for (int round = 0; round < 4000; round++) {
        const apr_sample_options options = some_options(round);
        const int n = lengths[rand() % 5];
        const int32_t before[] = {0, 0};
        apr_sampler whole, alone;
        int32_t id = -1;

        assert_int_equal(apr_sampler_open(&whole, n, &options, NULL), APR_OK);
        assert_int_equal(apr_sampler_open(&alone, n, &options, NULL), APR_OK);
        apr_sampler_take(&alone, before, 2);
        apr_sampler_take(&whole, before, 2);
        apr_topk best = apr_sampler_topk_request(&alone);
        make_row(logits, n, round);
        apr_topk_find(&best, logits, n);
        best.sum *= round % 2 ? 1.0 + 0.9 * APR_TOPK_SUM_ERROR : 1.0 - 0.9 * APR_TOPK_SUM_ERROR; /* a device's, at its worst */
        const bool told = apr_sample_topk(&alone, &best, &id);
        if (!told) assert_true(alone.state == (uint64_t)round); /* nothing was drawn */
        else if (id != apr_sample(&whole, logits)) fail_msg("round %d: %d", round, id);
        if (told) assert_true(alone.state == whole.state);
        n_told[told]++;
        apr_sampler_close(&whole);
        apr_sampler_close(&alone);
    }
    assert_true(n_told[0] > 300 && n_told[1] > 2000);
}

/* What is drawn is counted by itself; what is too long ago is not. */
static void penalties_look_back_as_far_as_they_are_told(void **state)
{
    static const struct {
        int64_t repeat_last;
        int32_t want[6];
    } cases[] = {{0, {0, 0, 0, 0, 0, 0}}, {1, {0, 1, 0, 1, 0, 1}}, {2, {0, 1, 2, 0, 1, 2}}, {-1, {0, 1, 2, 3, 0, 1}}};
    const float logits[4] = {9, 8, 7, 6};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_sampler s;
        const apr_sample_options options = {.frequency_penalty = 50.0f, .repeat_last = cases[i].repeat_last};
        assert_int_equal(apr_sampler_open(&s, 4, &options, NULL), APR_OK);
        for (int n = 0; n < 6; n++) assert_int_equal(apr_sample(&s, logits), cases[i].want[n]);
        apr_sampler_close(&s);
    }
}

static void senseless_steps_are_refused(void **state)
{
    static const apr_sample_options cases[] = {{.top_k = -1},
                                               {.min_p = 1.5f},
                                               {.min_p = NAN},
                                               {.repeat_penalty = -1.0f},
                                               {.repeat_penalty = INFINITY},
                                               {.presence_penalty = NAN},
                                               {.frequency_penalty = INFINITY},
                                               {.repeat_last = -2},
                                               {.repeat_last = APR_MOST_REPEAT_LAST + 1}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_sampler s;
        assert_int_equal(apr_sampler_open(&s, 10, &cases[i], NULL), APR_E_USAGE);
        apr_sampler_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_chain_leaves_what_an_independent_program_leaves),
        cmocka_unit_test(the_top_k_choose_what_the_whole_row_does),
        cmocka_unit_test(penalties_look_back_as_far_as_they_are_told),
        cmocka_unit_test(senseless_steps_are_refused),
    };
    return cmocka_run_group_tests_name("sample chain", tests, NULL, NULL);
}
