/* runtime/session/sample.h: greedy ties, what top-p leaves, and that a seed is a promise. */
#include "runtime/session/sample.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static apr_sampler sampler_of(int64_t vocab_size, float temperature, float top_p, uint64_t seed)
{
    apr_sampler s;
    apr_error err = {0};
    const apr_sample_options options = {.temperature = temperature, .top_p = top_p, .seed = seed};
    if (apr_sampler_open(&s, vocab_size, &options, &err) != APR_OK) fail_msg("%s", err.text);
    return s;
}

static void the_argmax_wins_and_ties_go_to_the_lowest_id(void **state)
{
    (void)state;
    static const struct {
        float logits[4];
        int32_t want;
    } cases[] = {
        {{1, 2, 3, 0}, 2},     {{5, 5, 5, 5}, 0},         {{-3, -1, -1, -2}, 1},
        {{NAN, 1, NAN, 2}, 3}, {{NAN, NAN, NAN, NAN}, 0}, {{-INFINITY, 0, 1, INFINITY}, 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_sampler s = sampler_of(4, 0, 0, 0);
        assert_int_equal(apr_argmax(cases[i].logits, 4), cases[i].want);
        assert_int_equal(apr_sample(&s, cases[i].logits), cases[i].want);
        apr_sampler_close(&s);
    }
}

/* 20,000 draws from softmax(log p): each share within four standard deviations. */
static void shares_follow_the_probabilities(void **state)
{
    (void)state;
    static const struct {
        float temperature, top_p;
        double want[4];
    } cases[] = {
        {1, 1, {0.5, 0.3, 0.15, 0.05}},
        {1, 0, {0.5, 0.3, 0.15, 0.05}},
        {1, 0.79f, {0.625, 0.375, 0, 0}},
        {1, 0.3f, {1, 0, 0, 0}},
        {0.5f, 1, {0.25 / 0.365, 0.09 / 0.365, 0.0225 / 0.365, 0.0025 / 0.365}},
    };
    const float logits[4] = {logf(0.5f), logf(0.3f), logf(0.15f), logf(0.05f)};
    enum { DRAWS = 20000 };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_sampler s = sampler_of(4, cases[i].temperature, cases[i].top_p, 7);
        int counts[4] = {0};
        for (int n = 0; n < DRAWS; n++) counts[apr_sample(&s, logits)]++;
        for (int id = 0; id < 4; id++) {
            const double p = cases[i].want[id], deviation = sqrt(p * (1 - p) / DRAWS);
            if (fabs((double)counts[id] / DRAWS - p) > 4 * deviation + 1e-6)
                fail_msg("case %zu: id %d was drawn %d times", i, id, counts[id]);
        }
        apr_sampler_close(&s);
    }
}

static void a_seed_repeats_itself_and_another_does_not(void **state)
{
    (void)state;
    enum { VOCAB = 1000, DRAWS = 50 };
    float logits[VOCAB];
    int same = 0;
    for (int i = 0; i < VOCAB; i++) logits[i] = sinf((float)i);
    apr_sampler a = sampler_of(VOCAB, 1, 0.9f, 1), b = sampler_of(VOCAB, 1, 0.9f, 1), c = sampler_of(VOCAB, 1, 0.9f, 2);
    for (int n = 0; n < DRAWS; n++) {
        const int32_t id = apr_sample(&a, logits);
        assert_int_equal(id, apr_sample(&b, logits));
        same += id == apr_sample(&c, logits);
    }
    assert_true(same < DRAWS / 2);
    apr_sampler_close(&a);
    apr_sampler_close(&b);
    apr_sampler_close(&c);
}

static void senseless_options_are_refused(void **state)
{
    (void)state;
    static const apr_sample_options cases[] = {
        {.temperature = -1}, {.temperature = NAN}, {.temperature = INFINITY}, {.temperature = 1, .top_p = 1.5f}, {.top_p = -0.1f}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_sampler s;
        assert_int_equal(apr_sampler_open(&s, 10, &cases[i], NULL), APR_E_USAGE);
        apr_sampler_close(&s);
    }
    /* nothing finite to choose from: still a token */
    const float logits[3] = {NAN, NAN, NAN};
    apr_sampler s = sampler_of(3, 1, 0.5f, 0);
    assert_in_range(apr_sample(&s, logits), 0, 2);
    apr_sampler_close(&s);
}

/* Rows of every steepness, some with ties, NaN or infinities. */
static void make_row(float *logits, int n, int round)
{
    const float steep = round % 3 == 0 ? 20.0f : round % 3 == 1 ? 6.0f : 0.1f;
    for (int i = 0; i < n; i++) {
        logits[i] = steep * (float)(rand() % 10000) / 10000.0f;
        if (round % 4 == 1) logits[i] = floorf(logits[i]); /* ties */
        if (round % 7 == 6 && rand() % 4 == 0) logits[i] = rand() % 2 ? NAN : -INFINITY;
        if (round % 13 == 12) logits[i] = NAN;
        if (round % 17 == 16 && i == n / 2) logits[i] = INFINITY;
    }
}

static void the_top_k_choose_what_the_whole_row_does_or_say_that_they_cannot(void **state)
{
    (void)state;
    enum { MOST = 5000 };
    static float logits[MOST];
    static const float temperatures[] = {0.0f, 0.1f, 0.7f, 1.0f, 3.0f}, top_ps[] = {0.0f, 0.05f, 0.5f, 0.9f, 0.999f, 1.0f};
    static const int lengths[] = {1, 33, 64, 65, MOST};
    int n_told[2] = {0, 0};

    srand(9);
    for (int round = 0; round < 3000; round++) {
        const float temperature = temperatures[round % 5], top_p = top_ps[round / 5 % 6];
        const int n = lengths[round / 30 % 5];
        apr_sampler whole = sampler_of(n, temperature, top_p, (uint64_t)round), alone = sampler_of(n, temperature, top_p, (uint64_t)round);
        apr_topk best = apr_sampler_topk_request(&alone);
        int32_t id = -1;
        make_row(logits, n, round);
        apr_topk_find(&best, logits, n);
        best.sum *= round % 2 ? 1.0 + 0.9 * APR_TOPK_SUM_ERROR : 1.0 - 0.9 * APR_TOPK_SUM_ERROR; /* a device's, at its worst */
        const bool told = apr_sample_topk(&alone, &best, &id);
        if (!told) assert_true(alone.state == (uint64_t)round); /* nothing was drawn */
        else assert_int_equal(id, apr_sample(&whole, logits));
        if (told) assert_true(alone.state == whole.state);
        assert_true(told || temperature > 0.0f);
        n_told[told]++;
        apr_sampler_close(&whole);
        apr_sampler_close(&alone);
    }
    assert_true(n_told[0] > 100 && n_told[1] > 1000);
}

static void a_part_of_the_row_chooses_what_all_of_it_does_or_says_that_it_cannot(void **state)
{
    (void)state;
    enum { MOST = 20000 };
    static float logits[MOST];
    static const float temperatures[] = {0.1f, 0.7f, 1.0f, 3.0f};
    static const int lengths[] = {1, 4095, 4096, 4097, 9000, MOST};
    int n_told[2] = {0, 0};

    srand(11);
    for (int round = 0; round < 1500; round++) {
        const int n = lengths[round / 20 % 6];
        apr_sampler whole = sampler_of(n, temperatures[round % 4], 1.0f, (uint64_t)round), alone = whole;
        apr_topk best = apr_sampler_topk_request(&alone);
        int32_t id = -1;
        make_row(logits, n, round);
        apr_topk_find(&best, logits, n);
        assert_int_equal(best.n_parts, (n + 4095) / 4096);
        best.sum = 0.0;
        for (int i = 0; i < best.n_parts; i++) { /* a device's, at its worst */
            best.parts[i] *= rand() % 2 ? 1.0 + 0.9 * APR_TOPK_SUM_ERROR : 1.0 - 0.9 * APR_TOPK_SUM_ERROR;
            best.sum += best.parts[i];
        }
        assert_false(apr_sample_topk(&alone, &best, &id));
        const int part = apr_sample_part(&alone, &best), first = part * APR_TOPK_PART;
        const int n_within = n - first < APR_TOPK_PART ? n - first : APR_TOPK_PART;
        const bool told = part >= 0 && apr_sample_within(&alone, &best, part, logits + first, n_within, &id);
        if (!told) assert_true(alone.state == (uint64_t)round); /* nothing was drawn */
        else assert_int_equal(id, apr_sample(&whole, logits));
        if (told) assert_true(alone.state == whole.state);
        n_told[told]++;
        apr_sampler_close(&whole);
    }
    assert_true(n_told[0] > 20 && n_told[1] > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_argmax_wins_and_ties_go_to_the_lowest_id),
        cmocka_unit_test(shares_follow_the_probabilities),
        cmocka_unit_test(a_seed_repeats_itself_and_another_does_not),
        cmocka_unit_test(senseless_options_are_refused),
        cmocka_unit_test(the_top_k_choose_what_the_whole_row_does_or_say_that_they_cannot),
        cmocka_unit_test(a_part_of_the_row_chooses_what_all_of_it_does_or_says_that_it_cannot),
    };
    return cmocka_run_group_tests_name("sample", tests, NULL, NULL);
}
