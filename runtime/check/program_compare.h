/* runtime/check/program_compare.h - compares the programs of two models without their weights: operations and their parameters.
 *
 * The comparison is by meaning. Rotary frequency divisors in one file equal a scaling rule in the other's configuration if the angles are
 * equal. A bias of zeros equals no bias. A separate output head may correspond to the embedding table of a tied model; weights.h
 * compares the numbers. */
#ifndef APR_RUNTIME_FACTS_H
#define APR_RUNTIME_FACTS_H

#include "runtime/session/trace.h"

/* APR_E_NO with the first parameter that differs: "layer 2, rmsnorm: epsilon is 1e-06 in the reference and 1e-05 here". */
apr_status apr_programs_compare(const apr_session *reference, const apr_session *other, apr_error *err);

/* APR_OK if operations, values and states have the same kinds and shapes, so that both programs can run in lockstep; else APR_E_NO. */
apr_status apr_programs_same_shape(const apr_session *reference, const apr_session *other, apr_error *err);

#endif
