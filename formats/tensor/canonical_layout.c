/* canonical_layout.c - offsets in the canonical layout; sums saturate at UINT64_MAX. */
#include "formats/tensor/canonical_layout.h"

#include "formats/base/bytes.h"

int apr_canonical_bits(int bits) { return bits <= 4 ? 4 : 8; }

void apr_canonical_offsets(const apr_canonical_layout *r, uint64_t offsets[APR_CANONICAL_SECTIONS + 1])
{
    const uint64_t row_bytes = r->bits == 8 ? r->columns : r->columns / 2 + r->columns % 2;
    const uint64_t sizes[APR_CANONICAL_SECTIONS] = {
        [APR_CANONICAL_CODES] = apr_saturating_mul(r->rows, row_bytes),
        [APR_CANONICAL_SCALES] = apr_saturating_mul(r->n_scales, r->scale_bytes),
        [APR_CANONICAL_ZEROS] = r->n_zeros,
        [APR_CANONICAL_GLOBAL_SCALES] = apr_saturating_mul(r->n_global_scales, 4),
        [APR_CANONICAL_GROUPS] = apr_saturating_mul(r->n_groups, 4),
    };
    offsets[0] = 0;
    for (int i = 0; i < APR_CANONICAL_SECTIONS; i++) offsets[i + 1] = apr_saturating_add(offsets[i], apr_pad64(sizes[i]));
}
