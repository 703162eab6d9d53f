/* quant_operands.h - aprquant's operands: IN OUT, IN OUT TYPE [THREADS] as llama-quantize has them, and IN TYPE. */
#ifndef APR_TOOLS_QUANT_OPERANDS_H
#define APR_TOOLS_QUANT_OPERANDS_H

#include "tools/cli/cli.h"

typedef struct apr_quant_operands {
    const char *to;  /* of --to, or NULL; then that of an operand */
    const char *out; /* of "IN TYPE": next to IN, in the arena */
    int64_t threads; /* 0: not said */
} apr_quant_operands;

/* APR_E_USAGE, with the command to type: what is missing, or too much. has_rules: something else says what is to become of the tensors. */
apr_status apr_quant_operands_read(apr_quant_operands *o, const apr_call *call, bool has_rules, apr_arena *arena, apr_error *err);

#endif
