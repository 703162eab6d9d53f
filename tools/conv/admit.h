/* admit.h - the admission (runtime/program/admission.h) of a model as a file holds it, whatever its format. */
#ifndef APR_TOOLS_ADMIT_H
#define APR_TOOLS_ADMIT_H

#include "runtime/program/admission.h"

/* A family without a program, a model without hyperparameters, one whose config.json asks for what no program does, and one whose matrices
 * are in a layout that nothing here reads are not judged. */
apr_status apr_admission_of(apr_admission *admission, const apr_model *source, apr_error *err);

#endif
