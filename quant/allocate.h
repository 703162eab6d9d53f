/* quant/allocate.h - chooses one offer from each of several menus, so that the sum of values is minimal within a cost budget.
 *
 * It chooses a type for each tensor: either the least damage within a size (cost: bytes, value: damage), or the fewest bytes within a
 * damage bound (the other way round). It assumes that damages add up; the caller measures the result and checks that.
 *
 * Greedy on convex hulls: offers above the lower convex hull of their menu are set aside first. Starting from the cheapest choice of all
 * menus, it repeatedly takes the step with the best ratio of saved value to cost that fits the budget. At the end it changes single choices
 * and pairs, including set-aside offers, while that helps. The sum of values is at most one such step above the optimum. */
#ifndef APR_QUANT_ALLOCATE_H
#define APR_QUANT_ALLOCATE_H

#include "formats/base/status.h"

#include <stddef.h>

typedef struct apr_offer {
    double cost, value; /* finite and not negative */
} apr_offer;

typedef struct apr_menu {
    const apr_offer *offers; /* [n], in any order */
    size_t n;                /* at least 1 */
} apr_menu;

/* chosen[i] indexes menus[i].offers. APR_E_NO if even the cheapest choice exceeds the budget. *least is always set to that cost. */
apr_status apr_allocate(const apr_menu *menus, size_t n_menus, double budget, size_t *chosen, double *least, apr_error *err);

#endif
