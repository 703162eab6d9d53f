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

static void the_likeliest_token_wins_and_ties_go_to_the_lowest_id(void **state)
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
        assert_int_equal(apr_greedy(cases[i].logits, 4), cases[i].want);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_likeliest_token_wins_and_ties_go_to_the_lowest_id),
        cmocka_unit_test(shares_follow_the_probabilities),
        cmocka_unit_test(a_seed_repeats_itself_and_another_does_not),
        cmocka_unit_test(senseless_options_are_refused),
    };
    return cmocka_run_group_tests_name("sample", tests, NULL, NULL);
}
