/* runtime/check/facts.h - do two models compute the same? Everything but the weights: operations and what they are told.
 *
 * Compared by meaning: divisors of rotary frequencies in one file and a scaling in the other's configuration are the same when the angles
 * are; a bias of zeros is the same as none; a head of its own may be the embedding table of a tied model (its numbers are the
 * weights' business). */
#ifndef APR_RUNTIME_FACTS_H
#define APR_RUNTIME_FACTS_H

#include "runtime/session/trace.h"

/* APR_E_NO with the first fact that differs: "layer 2, rmsnorm: epsilon is 1e-06 in the reference and 1e-05 here". */
apr_status apr_facts_compare(const apr_session *truth, const apr_session *other, apr_error *err);

/* Operations, values and states have the same kinds and shapes, so that both can be run in step. */
apr_status apr_facts_same_shape(const apr_session *truth, const apr_session *other, apr_error *err);

#endif
