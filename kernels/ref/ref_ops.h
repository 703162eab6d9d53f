/* ref_ops.h - the reference operations by name. Other backends use them where a faster version does not help. */
#ifndef APR_KERNELS_REF_REF_OPS_H
#define APR_KERNELS_REF_REF_OPS_H

#include "kernels/ops.h"

void apr_ref_embed(const apr_op_args *args);
void apr_ref_positions(const apr_op_args *args);
void apr_ref_angles(const apr_op_args *args);
void apr_ref_linear(const apr_op_args *args);
void apr_ref_rope(const apr_op_args *args);
void apr_ref_kv_store(const apr_op_args *args);
void apr_ref_index(const apr_op_args *args);
void apr_ref_attend(const apr_op_args *args);
void apr_ref_glu(const apr_op_args *args);
void apr_ref_add(const apr_op_args *args);
void apr_ref_norm(const apr_op_args *args);
void apr_ref_slice(const apr_op_args *args);
void apr_ref_join(const apr_op_args *args);
void apr_ref_scale(const apr_op_args *args);
void apr_ref_mul(const apr_op_args *args);
void apr_ref_softcap(const apr_op_args *args);
void apr_ref_altup(const apr_op_args *args);
void apr_ref_rescale(const apr_op_args *args);
void apr_ref_gauss_topk(const apr_op_args *args);
void apr_ref_gate(const apr_op_args *args);
void apr_ref_route(const apr_op_args *args);
void apr_ref_experts(const apr_op_args *args);
void apr_ref_conv(const apr_op_args *args);
void apr_ref_delta(const apr_op_args *args);
void apr_ref_ssd(const apr_op_args *args);

/* Parts that other backends call for each token or head. */

/* Routes one token; `work` has apr_route_slice floats. */
void apr_ref_route_one(const apr_route_args *args, int64_t token, float *work);
/* All tokens of one head, whose state it updates; `work` has apr_delta_slice floats. */
void apr_ref_delta_head(const apr_delta_args *args, int64_t head, float *work);
void apr_ref_ssd_head(const apr_ssd_args *args, int64_t head);
/* Updates the state with the call's tokens. */
void apr_ref_conv_remember(const apr_conv_args *args);

#endif
