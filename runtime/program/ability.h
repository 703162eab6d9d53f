/* runtime/program/ability.h - what can be done with a model of a family: nothing, a plan, or a run.
 *
 * Found out, not written down: a small program of the family is emitted, and the backend asked for its operations. */
#ifndef APR_RUNTIME_ABILITY_H
#define APR_RUNTIME_ABILITY_H

#include "formats/model/family.h"
#include "kernels/ops.h"

typedef enum { APR_ABLE_NOTHING, APR_ABLE_PLAN, APR_ABLE_RUN } apr_ability;

apr_ability apr_family_ability(const apr_family *family, const apr_backend *backend);

#endif
