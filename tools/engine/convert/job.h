/* job.h - one conversion of an opened model: plan, choice of types, error feedback, run on a device or the host. What aprkit_convert does.
 *
 * The tools call aprkit_convert with hooks, through which they add what is not public (targets, error feedback), watch the steps, and show the
 * outcome before it is closed. */
#ifndef APR_ENGINE_CONVERT_JOB_H
#define APR_ENGINE_CONVERT_JOB_H

#include "convert/convert.h"
#include "convert/run.h"
#include "tools/engine/device/encoder.h"
#include "tools/engine/heal/heal_run.h"
#include "tools/engine/quantize/allocate.h"
#include "tools/engine/quantize/feedback_run.h"
#include "tools/engine/run/lora_set.h"

struct aprkit_tool_hooks;

typedef struct apr_convert_job {
    /* set by the caller */
    const apr_model *source;
    const char *out;
    apr_lora_set lora; /* adapters and imatrix of the options; closed by apr_convert_job_close */
    apr_imatrix imatrix;
    apr_convert_options options;
    apr_convert_run run;
    apr_encoder_options encoder;
    const struct aprkit_tool_hooks *hooks;          /* NULL: none */
    void (*warn)(void *user, const char *sentence); /* the run goes on otherwise than asked; NULL: not said */
    void *user;
    const char *mmproj;                   /* another file, for the vision tower (convert/mmproj.h); NULL: not written */
    bool dry_run;                         /* plan only */
    const apr_allocate_request *allocate; /* NULL: the recipe decides types */
    const apr_feedback_request *feedback; /* NULL: no error feedback */
    const apr_heal_request *heal;         /* after error feedback; NULL: none */
    const apr_listener *listener;         /* of passes over a text; NULL: none */

    /* filled */
    apr_conversion conversion;
    apr_conversion tower;           /* of mmproj */
    uint64_t tower_bytes;           /* of its file */
    apr_feedback_run *feedback_run; /* NULL: no error feedback */
    apr_heal_run *heal_run;         /* NULL: no healing. It may have refused, and `out` is then what error feedback made */
    apr_allocation allocation;
    uint64_t file_bytes; /* 0 in a dry run */
    char device[512];    /* the GPUs that encoded; empty: the host */
    double seconds;
} apr_convert_job;

/* Each may be NULL. */
typedef struct aprkit_tool_hooks {
    apr_status (*prepare)(void *user, apr_convert_job *job, apr_error *err); /* before the plan; checks the outputs itself */
    apr_status (*check_plan)(void *user, const apr_convert_job *job, apr_error *err);
    apr_progress (*begin)(void *user);                                          /* the run begins */
    void (*end)(void *user);                                                    /* and ends */
    apr_status (*show)(void *user, const apr_convert_job *job, apr_error *err); /* the outcome */
    void *user;
} aprkit_tool_hooks;

/* Is finished work kept so that another run can continue? */
bool apr_convert_job_is_kept(const apr_convert_job *job);
/* Checks, before the work starts, that the output can be written and would not replace another file; together with n further ones. An existing
 * output is allowed if OUT.resume exists or with a run that completes it, which check it themselves. */
apr_status apr_convert_job_check_outputs(const apr_convert_job *job, const apr_out_request *others, size_t n, apr_error *err);
/* APR_E_DAMAGED and the like: the source has not all tensors that its family needs, or in other shapes. allowed: then the message is only written
 * into `why`, which is empty otherwise. Without this check such a model would be written as if it were complete. */
apr_status apr_convert_admit(const apr_model *source, bool allowed, apr_error *why, apr_error *err);

/* Close it whatever the status. */
apr_status apr_convert_job_run(apr_convert_job *job, apr_error *err);
void apr_convert_job_close(apr_convert_job *job);

#endif
