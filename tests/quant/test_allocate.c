/* quant/allocate.h: against every possible choice, where they can all be tried. */
#include "quant/allocate.h"

#include "formats/base/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { MENUS = 6, OFFERS = 4 };

typedef struct table {
    apr_offer offers[MENUS][OFFERS];
    apr_menu menus[MENUS];
} table;

static double fraction(uint64_t *state) { return (double)(apr_random(state) >> 11) * 0x1p-53; }

/* Types of tensors of different sizes: fewer bytes, more damage, and some noise. */
static void make(table *t, uint64_t seed)
{
    for (size_t i = 0; i < MENUS; i++) {
        const double size = floor(10.0 + 1000.0 * fraction(&seed)), weight = fraction(&seed) * fraction(&seed);
        for (size_t k = 0; k < OFFERS; k++)
            t->offers[i][k] = (apr_offer){floor(size * (double)(4 + k)), weight * exp2(-1.5 * (double)k) * (0.7 + 0.6 * fraction(&seed))};
        t->menus[i] = (apr_menu){t->offers[i], OFFERS};
    }
}

static apr_offer sum(const table *t, const size_t *chosen)
{
    apr_offer total = {0.0, 0.0};
    for (size_t i = 0; i < MENUS; i++) {
        total.cost += t->offers[i][chosen[i]].cost;
        total.value += t->offers[i][chosen[i]].value;
    }
    return total;
}

static double least_of_all(const table *t, double budget)
{
    double least = INFINITY;
    for (size_t n = 0; n < 4096; n++) { /* 4 ^ 6 */
        size_t chosen[MENUS];
        for (size_t i = 0; i < MENUS; i++) chosen[i] = n >> 2 * i & 3;
        const apr_offer total = sum(t, chosen);
        if (total.cost <= budget && total.value < least) least = total.value;
    }
    return least;
}

static double largest_step(const table *t)
{
    double largest = 0.0;
    for (size_t i = 0; i < MENUS; i++)
        for (size_t k = 0; k < OFFERS; k++)
            for (size_t l = 0; l < OFFERS; l++) largest = fmax(largest, t->offers[i][k].value - t->offers[i][l].value);
    return largest;
}

static void choices_are_within_the_budget_and_nearly_always_the_best(void **state)
{
    (void)state;
    int n_best = 0, n = 0;
    for (uint64_t seed = 0; seed < 100; seed++) {
        table t;
        make(&t, seed);
        for (double share = 0.05; share < 1.0; share += 0.15, n++) {
            size_t chosen[MENUS], cheapest[MENUS] = {0}, dearest[MENUS] = {3, 3, 3, 3, 3, 3};
            double least;
            const double from = sum(&t, cheapest).cost, budget = from + share * (sum(&t, dearest).cost - from);
            assert_int_equal(apr_allocate(t.menus, MENUS, budget, chosen, &least, NULL), APR_OK);
            const apr_offer total = sum(&t, chosen);
            const double best = least_of_all(&t, budget);
            assert_true(least == from);
            assert_true(total.cost <= budget);
            assert_true(total.value >= best - 1e-12 && total.value <= best + largest_step(&t));
            n_best += total.value <= best * (1.0 + 1e-9);
        }
    }
    assert_true(n_best * 100 >= n * 85);
}

static void a_budget_for_everything_buys_the_least_value(void **state)
{
    (void)state;
    table t;
    size_t chosen[MENUS];
    double least, best = 0.0;

    make(&t, 7);
    assert_int_equal(apr_allocate(t.menus, MENUS, 1e9, chosen, &least, NULL), APR_OK);
    for (size_t i = 0; i < MENUS; i++) {
        double lowest = INFINITY;
        for (size_t k = 0; k < OFFERS; k++) lowest = fmin(lowest, t.offers[i][k].value);
        best += lowest;
    }
    assert_true(fabs(sum(&t, chosen).value - best) < 1e-12);
}

static void a_budget_below_the_cheapest_is_refused_and_says_what_would_do(void **state)
{
    (void)state;
    table t;
    size_t chosen[MENUS], cheapest[MENUS] = {0};
    double least = 0.0;
    apr_error err = {0};

    make(&t, 3);
    const double needed = sum(&t, cheapest).cost;
    assert_int_equal(apr_allocate(t.menus, MENUS, needed - 1.0, chosen, &least, &err), APR_E_NO);
    assert_true(least == needed);
    assert_int_equal(apr_allocate(t.menus, MENUS, needed, chosen, &least, NULL), APR_OK);
    assert_true(sum(&t, chosen).cost == needed);
}

static void what_costs_more_and_is_no_better_is_never_chosen(void **state)
{
    (void)state;
    const apr_offer offers[] = {{10, 5}, {20, 6}, {20, 5}, {30, 1}, {40, 1}, {10, 7}};
    const apr_menu menu = {offers, 6};
    double least;
    size_t chosen;

    assert_int_equal(apr_allocate(&menu, 1, 29.0, &chosen, &least, NULL), APR_OK);
    assert_int_equal(chosen, 0);
    assert_int_equal(apr_allocate(&menu, 1, 1000.0, &chosen, &least, NULL), APR_OK);
    assert_int_equal(chosen, 3);
}

static void an_offer_above_the_hull_is_taken_where_nothing_else_fits(void **state)
{
    (void)state;
    const apr_offer offers[] = {{0, 10}, {5, 9}, {10, 0}};
    const apr_menu menu = {offers, 3};
    double least;
    size_t chosen;

    assert_int_equal(apr_allocate(&menu, 1, 6.0, &chosen, &least, NULL), APR_OK);
    assert_int_equal(chosen, 1);
}

static void no_menus_are_no_choice(void **state)
{
    (void)state;
    double least = 1.0;
    assert_int_equal(apr_allocate(NULL, 0, 0.0, NULL, &least, NULL), APR_OK);
    assert_true(least == 0.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choices_are_within_the_budget_and_nearly_always_the_best),
        cmocka_unit_test(a_budget_for_everything_buys_the_least_value),
        cmocka_unit_test(a_budget_below_the_cheapest_is_refused_and_says_what_would_do),
        cmocka_unit_test(what_costs_more_and_is_no_better_is_never_chosen),
        cmocka_unit_test(an_offer_above_the_hull_is_taken_where_nothing_else_fits),
        cmocka_unit_test(no_menus_are_no_choice),
    };
    return cmocka_run_group_tests_name("allocate", tests, NULL, NULL);
}
