/* ref_ops.h - the reference operations by name: other backends use them where there is nothing to gain. */
#ifndef APR_KERNELS_REF_REF_OPS_H
#define APR_KERNELS_REF_REF_OPS_H

#include "kernels/ops.h"

void apr_ref_embed(const apr_op_args *args);
void apr_ref_angles(const apr_op_args *args);
void apr_ref_rmsnorm(const apr_op_args *args);
void apr_ref_linear(const apr_op_args *args);
void apr_ref_rope(const apr_op_args *args);
void apr_ref_kv_store(const apr_op_args *args);
void apr_ref_attend(const apr_op_args *args);
void apr_ref_glu(const apr_op_args *args);
void apr_ref_add(const apr_op_args *args);

#endif
