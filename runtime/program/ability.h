/* runtime/program/ability.h - what a backend can do with models of a family: nothing, a plan, or a run.
 *
 * It is derived, not listed: small programs of the family are emitted, and the backend is asked for their operations. */
#ifndef APR_RUNTIME_ABILITY_H
#define APR_RUNTIME_ABILITY_H

#include "formats/shape/family.h"
#include "kernels/ops.h"

typedef enum { APR_ABLE_NOTHING, APR_ABLE_PLAN, APR_ABLE_RUN } apr_ability;

apr_ability apr_family_ability(const apr_family *family, const apr_backend *backend);

#endif
