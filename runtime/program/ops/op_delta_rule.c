/* op_delta_rule.c - the gated delta-net's matrix of state, updated and read. Can be planned; no backend has it. */
#include "runtime/program/op_card.h"

const apr_op_card apr_card_delta_rule = {
    .kind = APR_OP_DELTA_RULE,
    .n_inputs = 3, /* queries, keys and values; decays; rates */
    .state = APR_STATE_READ_AND_WRITTEN,
    .weights = {{"decays", APR_USE_FLOAT}, {"time steps", APR_USE_FLOAT}},
    .bound = {1e-3, 1e-4, "float32 sums in another order"},
};
