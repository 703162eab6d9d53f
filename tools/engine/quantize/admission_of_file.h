/* admission_of_file.h - checks whether a file of any format has the tensors that its model family needs (runtime/program/admission.h). */
#ifndef APR_TOOLS_ADMIT_H
#define APR_TOOLS_ADMIT_H

#include "runtime/program/admission.h"

/* Not judged (APR_OK, is_checked false): a family without a program, a model without hyperparameters, a config.json that asks for something
 * no program supports, and matrices in a packed layout that cannot be read. */
apr_status apr_admission_of(apr_admission *admission, const apr_model *source, apr_error *err);

#endif
