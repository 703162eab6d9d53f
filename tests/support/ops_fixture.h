/* ops_fixture.h - inputs of operations, and both backends on the same: for tests of kernels/ops.h. */
#ifndef APR_TESTS_OPS_FIXTURE_H
#define APR_TESTS_OPS_FIXTURE_H

#include "kernels/ops.h"

/* Uniform in [-1, 1); the same row of numbers in every run. */
float ops_noise(void);
/* n of them, of exact size, so that a sanitizer sees the end; to be freed. */
float *ops_noises(int64_t n);
/* data is to be freed. */
apr_workspace ops_workspace(size_t slice, int n_threads);
/* A float32 matrix over numbers that must stay. */
apr_tensor ops_matrix(const float *numbers, int64_t n_rows, int64_t n_columns);
/* A matrix of noise (or, where that cannot be encoded, of small random bytes); data is to be freed. */
apr_tensor ops_matrix_of(apr_dtype dtype, int64_t n_rows, int64_t n_columns);
double ops_largest(const apr_tensor *weight);

/* Runs an operation on both backends into fresh outputs of n numbers and compares; *out is where the arguments say it goes. A test
 * fails where a number is not written, or further off than bound. */
void ops_compare(apr_op_kind kind, apr_op_args *args, float **out, int64_t n, double bound, const char *what);
/* The same where *state (n_state numbers, the same for both before) must also agree afterwards. */
void ops_compare_with_state(apr_op_kind kind, apr_op_args *args, float **out, int64_t n, float **state, int64_t n_state, double bound,
                            const char *what);
void ops_expect(const float *out, const double *expected, int64_t n, double bound, const char *what);

#endif
