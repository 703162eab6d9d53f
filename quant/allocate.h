/* quant/allocate.h - one choice from each of several menus, so that their values add up to the least that a budget of costs allows.
 *
 * Which type each tensor gets is that: of bytes within a size the least damage (cost: bytes, value: damage), or of damage within a bound
 * the fewest bytes (the other way round). What damages do together is taken to be their sum; who measures them checks that.
 *
 * Choices that no price makes worth while (above the lower convex hull of their menu) are set aside, then from the cheapest choice of all
 * the step is taken that saves the most value for its cost, again and again, while there is room. At the end single choices and pairs of
 * choices, set-aside ones among them, are changed while that helps. The sum of values is at most one such step above the least possible. */
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

/* chosen[i]: of menus[i].offers. APR_E_NO when even the cheapest of all cost more than the budget; *least is what they cost, always. */
apr_status apr_allocate(const apr_menu *menus, size_t n_menus, double budget, size_t *chosen, double *least, apr_error *err);

#endif
