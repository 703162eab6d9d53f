/* op_conv.c - each channel mixed over the last few tokens. Can be planned; no backend has it. */
#include "runtime/program/op_card.h"

const apr_op_card apr_card_conv = {
    .kind = APR_OP_CONV,
    .n_inputs = 1,
    .state = APR_STATE_READ_AND_WRITTEN,
    .weights = {{"taps", APR_USE_ROWS}}, /* a row a channel */
    .bound = {1e-3, 1e-4, "float32 sums in another order"},
};
