/* host_ops.h - internal declarations of the host backend. */
#ifndef APR_KERNELS_HOST_HOST_OPS_H
#define APR_KERNELS_HOST_HOST_OPS_H

#include "formats/base/threads.h"
#include "kernels/op_args.h"
#include "kernels/ops.h"

#include <omp.h>

/* The cost of a product in multiply-adds: each weight is decoded once and multiplied with every token. */
static inline double apr_host_linear_cost(const apr_linear_args *a)
{
    const double n_matrices = a->heads.n > 0 ? (double)a->heads.n : 1.0;
    return n_matrices * (double)a->n_in * (double)a->n_out * (double)(a->n_tokens + 1);
}

/* Linear layers with the same input: with rounded inputs, exactly, or with sums in float64. */
typedef void (*apr_linears_fn)(const apr_linear_args *const each[], int n);
void apr_host_linears(const apr_linear_args *const each[], int n);
void apr_host_linears_exact(const apr_linear_args *const each[], int n);
/* Weights of any type, multiplied as float32; also where each head has its own matrix (matmul_floats.c). */
void apr_host_linear_floats(const apr_linear_args *args);
void apr_host_attend(const apr_op_args *args);
/* Calls attend_to for all tokens together where they attend to all positions, else for each with its chosen positions. */
void apr_host_attend_chosen(const apr_attend_args *args, void (*attend_to)(const apr_attend_args *args));
void apr_host_index(const apr_op_args *args);
void apr_float64_index(const apr_op_args *args);
/* All experts that tokens chose, one after the other; their layers by `linears`. */
void apr_host_experts(const apr_experts_args *args, apr_linears_fn linears);
void apr_host_delta(const apr_op_args *args);
void apr_host_ssd(const apr_op_args *args);

/* Sums in float64 (float64.c). */
void apr_float64_linears(const apr_linear_args *const each[], int n);
void apr_float64_linear(const apr_op_args *args);
void apr_float64_attend(const apr_op_args *args);
void apr_float64_norm(const apr_op_args *args);
void apr_float64_rescale(const apr_op_args *args);
void apr_float64_gauss_topk(const apr_op_args *args);
void apr_float64_delta(const apr_op_args *args);
void apr_float64_ssd(const apr_op_args *args);

/* The offset of the calling thread's slice of the workspace, in floats. */
static inline size_t apr_host_slice(const apr_workspace *work) { return (size_t)omp_get_thread_num() * work->slice; }

#endif
