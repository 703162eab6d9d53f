/* regular.c - offsets in the canonical layout; sums saturate at UINT64_MAX. */
#include "formats/model/regular.h"

#include "formats/base/bytes.h"

int apr_regular_bits(int bits) { return bits <= 4 ? 4 : 8; }

void apr_regular_offsets(const apr_regular *r, uint64_t offsets[APR_REGULAR_PIECES + 1])
{
    const uint64_t row_bytes = r->bits == 8 ? r->columns : r->columns / 2 + r->columns % 2;
    const uint64_t sizes[APR_REGULAR_PIECES] = {
        [APR_REGULAR_CODES] = apr_saturating_mul(r->rows, row_bytes),
        [APR_REGULAR_SCALES] = apr_saturating_mul(r->n_scales, r->scale_bytes),
        [APR_REGULAR_ZEROS] = r->n_zeros,
        [APR_REGULAR_COMMONS] = apr_saturating_mul(r->n_commons, 4),
        [APR_REGULAR_GROUPS] = apr_saturating_mul(r->n_groups, 4),
    };
    offsets[0] = 0;
    for (int i = 0; i < APR_REGULAR_PIECES; i++) offsets[i + 1] = apr_saturating_add(offsets[i], apr_pad64(sizes[i]));
}
