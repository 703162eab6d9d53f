/* host_ops.h - what the files of the host backend share. */
#ifndef APR_KERNELS_HOST_HOST_OPS_H
#define APR_KERNELS_HOST_HOST_OPS_H

#include "kernels/op_args.h"
#include "kernels/ops.h"

#include <omp.h>

void apr_host_linear(const apr_op_args *args);
void apr_host_linear_exact(const apr_op_args *args);
void apr_host_linear_heads(const apr_linear_args *args);
void apr_host_kv_store(const apr_op_args *args);
void apr_host_attend(const apr_op_args *args);

void apr_host_route(const apr_op_args *args);
void apr_host_experts(const apr_op_args *args);
void apr_host_experts_exact(const apr_op_args *args);
void apr_host_delta(const apr_op_args *args);
void apr_host_ssd(const apr_op_args *args);
void apr_host_conv(const apr_op_args *args);

/* Where the calling thread's slice of the workspace begins, in floats. */
static inline size_t apr_host_slice(const apr_workspace *work) { return (size_t)omp_get_thread_num() * work->slice; }

#endif
