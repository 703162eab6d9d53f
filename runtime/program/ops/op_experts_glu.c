/* op_experts_glu.c - silu(gate) * up of each chosen expert. Can be planned; no backend has it. */
#include "runtime/program/ops/parts.h"

const apr_op_card apr_card_experts_glu = {
    .kind = APR_OP_EXPERTS_GLU,
    .n_inputs = 2, /* the rows, their routes */
    .weights = {{"gate", APR_USE_MULTIPLIED},
                {"up", APR_USE_MULTIPLIED, .optional = true}, /* without: both are in gate */
                {"biases", APR_USE_FLOAT, .optional = true}},
    .bound = {1e-3, 1e-4, "float32 sums in another order"},
    .host_floats = apr_products_floats,
    .device_bytes = apr_products_bytes,
};
