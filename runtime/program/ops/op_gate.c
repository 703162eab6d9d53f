/* op_gate.c - x * sigmoid(gate). Can be planned; no backend has it. */
#include "runtime/program/op_card.h"

const apr_op_card apr_card_gate = {
    .kind = APR_OP_GATE,
    .n_inputs = 2, /* x, gate */
    .bound = {1e-4, 1e-5, "expf to a few units in the last place"},
};
