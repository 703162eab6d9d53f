/* op_route.c - which experts a token goes to, and with what weights. Can be planned; no backend has it. */
#include "runtime/program/ops/parts.h"

const apr_op_card apr_card_route = {
    .kind = APR_OP_ROUTE,
    .n_inputs = 1,
    .weights = {{"matrix", APR_USE_MULTIPLIED}, {"bias", APR_USE_FLOAT, .optional = true}},
    .bound = {1e-3, 1e-4, "float32 sums in another order"},
    .host_floats = apr_products_floats,
    .device_bytes = apr_products_bytes,
};
