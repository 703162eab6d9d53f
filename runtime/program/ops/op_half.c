/* op_half.c - the first or the second half of every head. Can be planned; no backend has it. */
#include "runtime/program/op_card.h"

const apr_op_card apr_card_half = {
    .kind = APR_OP_HALF,
    .n_inputs = 1,
    .bound = {0.0, 0.0, "a copy"},
};
