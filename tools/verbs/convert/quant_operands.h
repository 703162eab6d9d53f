/* quant_operands.h - aprquant's operands: IN OUT; IN OUT TYPE [THREADS], as llama-quantize takes them; IN TYPE. */
#ifndef APR_TOOLS_QUANT_OPERANDS_H
#define APR_TOOLS_QUANT_OPERANDS_H

#include "tools/cli/cli.h"

typedef struct apr_quant_operands {
    const char *to;  /* the type: --to's (set by the caller), or that of an operand, or NULL */
    const char *out; /* for "IN TYPE": a name next to IN, in the arena */
    int64_t threads; /* 0: not given */
} apr_quant_operands;

/* APR_E_USAGE with a suggested command if an operand is missing or unexpected. has_rules: --tensor or similar options make TYPE optional. */
apr_status apr_quant_operands_read(apr_quant_operands *o, const apr_call *call, bool has_rules, apr_arena *arena, apr_error *err);

#endif
