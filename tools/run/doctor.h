/* doctor.h - `aprrun doctor`: which GPUs are here, what they can do, and the results of probes. */
#ifndef APR_TOOLS_DOCTOR_H
#define APR_TOOLS_DOCTOR_H

#include "tools/cli/cli.h"

extern const apr_option apr_doctor_options[];
extern const size_t apr_doctor_options_bytes;
extern const char *const apr_doctor_examples[];

apr_status apr_run_doctor(const apr_call *call, apr_error *err);

#endif
