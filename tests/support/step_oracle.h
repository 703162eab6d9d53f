/* step_oracle.h - what each step of formats/tensor/step.h means, element by element on whole tensors, from its definition. */
#ifndef APR_TESTS_STEP_ORACLE_H
#define APR_TESTS_STEP_ORACLE_H

#include "formats/tensor/composed.h"

/* Numbers from a seed; the same on every machine. */
uint32_t oracle_random(uint32_t *seed);

int64_t oracle_elems(const apr_shape *shape);

enum { ORACLE_MOST = 64 * 1024 }; /* elements of a random shape */

/* A step of that kind with random parameters that fits a random shape of that type, whose last dimension is a multiple of `columns`. */
apr_step oracle_fitting_step(apr_step_kind kind, apr_dtype dtype, int64_t columns, apr_shape *shape, uint32_t *seed);
/* The same for a given shape; NONE when a hundred tries found none. */
apr_step oracle_step_for(apr_step_kind kind, const apr_shape *shape, uint32_t *seed);

/* ids[i] becomes the element that is at i after the step, and shape the shape after it. Steps that only move. The array is as large
 * as either shape needs. */
void oracle_apply(const apr_step *step, apr_shape *shape, uint32_t *ids);
/* Part number and element of it, for element i of parts joined along an axis. */
void oracle_join(const apr_step *step, const apr_shape *parts, size_t n_parts, int64_t i, size_t *part, int64_t *element);

#endif
