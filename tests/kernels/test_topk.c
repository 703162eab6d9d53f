/* kernels/topk.h: the order of logits is the greedy sampler's, whatever is among them. */
#include "kernels/topk.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static void a_larger_logit_has_a_larger_key_and_so_has_a_lower_id_among_equals(void **state)
{
    (void)state;
    static const float rising[] = {NAN, -INFINITY, -3e38f, -1.0f, -1e-40f, 0.0f, 1e-45f, 1e-40f, 0.5f, 1.0f, 3e38f, INFINITY};
    enum { N = sizeof rising / sizeof *rising };
    for (int i = 0; i < N; i++) {
        assert_true(apr_topk_key(rising[i], 7) > apr_topk_key(rising[i], 8));
        assert_int_equal(apr_topk_id(apr_topk_key(rising[i], 123456)), 123456);
        const float back = apr_topk_logit(apr_topk_key(rising[i], 1));
        assert_true(isnan(rising[i]) ? isnan(back) : back == rising[i]);
        for (int j = 0; j < i; j++) assert_true(apr_topk_key(rising[i], INT32_MAX) > apr_topk_key(rising[j], 0));
    }
    assert_true(apr_topk_key(-0.0f, 3) == apr_topk_key(0.0f, 3));
    assert_true(apr_topk_key(-NAN, 3) == apr_topk_key(NAN, 3));
    assert_true(apr_topk_key(NAN, INT32_MAX) > 0);
}

typedef struct candidate {
    float logit;
    int32_t id;
} candidate;

/* As a reader would say it: numbers before NaN, larger before smaller, lower ids before higher. */
static int by_rank(const void *a, const void *b)
{
    const candidate *const x = a, *const y = b;
    if (isnan(x->logit) != isnan(y->logit)) return isnan(x->logit) ? 1 : -1;
    if (!isnan(x->logit) && x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static void what_is_found_is_what_sorting_everything_puts_first(void **state)
{
    (void)state;
    enum { MOST = 3000 };
    static float logits[MOST];
    static candidate all[MOST];
    static const int lengths[] = {1, 2, 31, 32, 33, 63, 64, 65, 1000, MOST};
    srand(5);
    for (int round = 0; round < 200; round++) {
        const int n = lengths[round % 10], n_values = round % 7 == 0 ? 1 : round % 7 == 1 ? 3 : 100000;
        apr_topk best = {.n_wanted = 1 + round % APR_TOPK_MAX, .temperature = round % 2 ? 0.5f : 0.0f};
        for (int i = 0; i < n; i++) {
            logits[i] = (float)(rand() % n_values) / 100.0f - 3.0f;
            if (round % 5 == 3 && rand() % 3 == 0) logits[i] = rand() % 2 ? NAN : -INFINITY;
            if (round % 11 == 10) logits[i] = NAN;
            all[i] = (candidate){logits[i], i};
        }
        qsort(all, (size_t)n, sizeof *all, by_rank);
        apr_topk_find(&best, logits, n);
        assert_int_equal(best.n, n < best.n_wanted ? n : best.n_wanted);
        double sum = 0.0;
        for (int i = 0; i < best.n; i++) {
            assert_int_equal(best.ids[i], all[i].id);
            assert_true(best.logits[i] == all[i].logit || (isnan(best.logits[i]) && isnan(all[i].logit)));
        }
        for (int i = 0; i < n; i++) {
            const double weight = exp(((double)logits[i] - (double)best.logits[0]) / 0.5);
            sum += isnan(weight) ? 0.0 : weight;
        }
        assert_true(round % 2 ? fabs(best.sum - sum) <= 1e-6 * sum : best.sum == 0.0);
        assert_int_equal(best.n_parts, round % 2 ? 1 : 0);
        assert_true(round % 2 == 0 || best.parts[0] == best.sum);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_larger_logit_has_a_larger_key_and_so_has_a_lower_id_among_equals),
        cmocka_unit_test(what_is_found_is_what_sorting_everything_puts_first),
    };
    return cmocka_run_group_tests_name("best", tests, NULL, NULL);
}
