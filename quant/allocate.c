/* allocate.c - lower convex hulls, then greedy steps within the budget, then changes of one choice or two. */
#include "quant/allocate.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

/* The offers of one menu on its lower hull, by rising cost and falling value. */
typedef struct hull {
    size_t *at; /* [n] indices into the menu's offers */
    size_t n, now;
} hull;

typedef struct allocation {
    const apr_menu *menus;
    size_t n;
    hull *hulls;
    size_t *hull_indices; /* the indices of all hulls, one after the other */
    size_t *chosen;
    double budget_left; /* the rest of the budget; never negative */
} allocation;

static const apr_offer *offer(const allocation *a, size_t menu, size_t i) { return &a->menus[menu].offers[i]; }

/* By cost, then by value. */
static bool precedes(const apr_offer *a, const apr_offer *b) { return a->cost != b->cost ? a->cost < b->cost : a->value < b->value; }

static void sort_by_cost(const apr_menu *menu, size_t *at)
{
    for (size_t i = 0; i < menu->n; i++) {
        size_t j = i;
        for (; j > 0 && precedes(&menu->offers[i], &menu->offers[at[j - 1]]); j--) at[j] = at[j - 1];
        at[j] = i;
    }
}

/* Value saved for each unit of cost. */
static double slope(const apr_offer *from, const apr_offer *to) { return (from->value - to->value) / (to->cost - from->cost); }

static void make_hull(const apr_menu *menu, hull *h)
{
    const size_t *const sorted = h->at; /* the same array: each entry is read before it is overwritten */

    sort_by_cost(menu, h->at);
    for (size_t i = 0; i < menu->n; i++) {
        const size_t k = sorted[i];
        const apr_offer *const next = &menu->offers[k];
        if (h->n > 0 && next->value >= menu->offers[h->at[h->n - 1]].value) continue; /* not better, although it costs more */
        while (h->n > 1 &&
               slope(&menu->offers[h->at[h->n - 2]], &menu->offers[h->at[h->n - 1]]) <= slope(&menu->offers[h->at[h->n - 1]], next))
            h->n--;
        h->at[h->n++] = k;
    }
}

static double start(allocation *a)
{
    double cost = 0.0;
    size_t *at = a->hull_indices;

    for (size_t i = 0; i < a->n; at += a->menus[i].n, i++) {
        a->hulls[i] = (hull){.at = at};
        make_hull(&a->menus[i], &a->hulls[i]);
        a->chosen[i] = a->hulls[i].at[0];
        cost += offer(a, i, a->chosen[i])->cost;
    }
    return cost;
}

/* The menu whose next step saves most for its cost and fits; n if there is none. */
static size_t steepest(const allocation *a)
{
    size_t best = a->n;
    double best_slope = 0.0;

    for (size_t i = 0; i < a->n; i++) {
        const hull *const h = &a->hulls[i];
        if (h->now + 1 >= h->n) continue;
        const apr_offer *const from = offer(a, i, h->at[h->now]), *const to = offer(a, i, h->at[h->now + 1]);
        if (to->cost - from->cost > a->budget_left || slope(from, to) <= best_slope) continue;
        best = i;
        best_slope = slope(from, to);
    }
    return best;
}

static void take_steps(allocation *a)
{
    for (size_t i; (i = steepest(a)) < a->n;) {
        hull *const h = &a->hulls[i];
        a->budget_left -= offer(a, i, h->at[h->now + 1])->cost - offer(a, i, h->at[h->now])->cost;
        a->chosen[i] = h->at[++h->now];
    }
}

/* The cost and value that changing menu i's choice to k adds. */
static apr_offer change(const allocation *a, size_t i, size_t k)
{
    const apr_offer *const from = offer(a, i, a->chosen[i]), *const to = offer(a, i, k);
    return (apr_offer){to->cost - from->cost, to->value - from->value};
}

typedef struct move {
    size_t menu[2], to[2]; /* menu[1] == n: a single change */
    double value;          /* change of the sum of values, below 0 */
    double cost;
} move;

static void try_second(const allocation *a, size_t i, size_t k, apr_offer first, move *best)
{
    for (size_t j = 0; j < a->n; j++) {
        for (size_t l = 0; j != i && l < a->menus[j].n; l++) {
            const apr_offer second = change(a, j, l);
            const double cost = first.cost + second.cost, value = first.value + second.value;
            if (cost <= a->budget_left && value < best->value) *best = (move){{i, j}, {k, l}, value, cost};
        }
    }
}

/* The change of one choice, or of two, that lowers the value most. */
static move best_move(const allocation *a, bool pairs)
{
    move best = {{a->n, a->n}, {0, 0}, -1e-15, 0.0}; /* a bound below 0, so that rounding errors cannot cause cycles */

    for (size_t i = 0; i < a->n; i++) {
        for (size_t k = 0; k < a->menus[i].n; k++) {
            const apr_offer first = change(a, i, k);
            if (first.cost <= a->budget_left && first.value < best.value) best = (move){{i, a->n}, {k, 0}, first.value, first.cost};
            if (pairs && first.value < 0.0) try_second(a, i, k, first, &best);
        }
    }
    return best;
}

/* Pairs are tried only for few offers. Each change lowers the value, and MOST_CHANGES bounds their number. */
static void improve(allocation *a)
{
    enum { MOST_CHANGES = 200, MOST_OFFERS = 6000 };
    size_t n_offers = 0;

    for (size_t i = 0; i < a->n; i++) n_offers += a->menus[i].n;
    for (int n = 0; n < MOST_CHANGES; n++) {
        const move m = best_move(a, n_offers <= MOST_OFFERS);
        if (m.menu[0] == a->n) return;
        for (int k = 0; k < 2; k++)
            if (m.menu[k] < a->n) a->chosen[m.menu[k]] = m.to[k];
        a->budget_left -= m.cost;
    }
}

apr_status apr_allocate(const apr_menu *menus, size_t n_menus, double budget, size_t *chosen, double *least, apr_error *err)
{
    allocation a = {.menus = menus, .n = n_menus, .chosen = chosen};
    size_t n_offers = 0;
    apr_status status = APR_OK;

    for (size_t i = 0; i < n_menus; i++) n_offers += menus[i].n;
    a.hulls = calloc(n_menus + 1, sizeof *a.hulls);
    a.hull_indices = calloc(n_offers + 1, sizeof *a.hull_indices);
    if (a.hulls == NULL || a.hull_indices == NULL) status = apr_no_memory(err, "an allocation");
    if (status == APR_OK) {
        *least = start(&a);
        a.budget_left = budget - *least;
        if (a.budget_left < 0.0) status = apr_fail(err, APR_E_NO, "the budget is %g, but the least possible is %g", budget, *least);
    }
    if (status == APR_OK) take_steps(&a), improve(&a);
    free(a.hulls);
    free(a.hull_indices);
    return status;
}
