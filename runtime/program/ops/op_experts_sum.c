/* op_experts_sum.c - the chosen experts' down projections, summed by weight. Can be planned; no backend has it. */
#include "runtime/program/ops/parts.h"

const apr_op_card apr_card_experts_sum = {
    .kind = APR_OP_EXPERTS_SUM,
    .n_inputs = 2, /* what the experts made, their routes */
    .weights = {{"down", APR_USE_MULTIPLIED}, {"biases", APR_USE_FLOAT, .optional = true}},
    .bound = {1e-3, 1e-4, "float32 sums in another order"},
    .host_floats = apr_products_floats,
    .device_bytes = apr_products_bytes,
};
