/* op_name.c - the names of operations in messages: in a file of its own, because the CUDA library has it as well. */
#include "kernels/ops.h"

const char *apr_op_name(apr_op_kind kind)
{
    static const char *const names[] = {
#define X(ID, id, name) name,
        APR_OP_LIST(X)
#undef X
    };
    return names[kind];
}
