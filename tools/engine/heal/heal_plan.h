/* heal_plan.h - the memory that a healing takes on the host, and on a GPU if there is one, line by line. */
#ifndef APR_ENGINE_HEAL_PLAN_H
#define APR_ENGINE_HEAL_PLAN_H

#include "convert/convert.h"
#include "runtime/calibrate/own_text.h"
#include "runtime/train/train.h"

enum { APR_HEAL_LINES = 32 };

/* What is allocated, and what is mapped. */
typedef struct apr_heal_plan {
    apr_train_line lines[APR_HEAL_LINES];
    size_t n_lines;
    uint64_t bytes, device_bytes; /* sums: of the host's lines, and of the GPU's */
    apr_own_text_plan writer;     /* of the source while it writes text; zeros: it does not */
    bool writes_on_device;        /* false: on the host */
    uint64_t gradient_bytes;      /* of gradients that wait for their step; 0: each is taken at once */
} apr_heal_plan;

/* What is planned for. */
typedef struct apr_heal_needs {
    const apr_conversion *conversion;
    const apr_model *source;  /* canonical */
    const apr_train *teacher; /* opened on it */
    apr_train_options student;
    apr_session_options session; /* of both sessions that judge; on a GPU passes judge */
    const apr_own_text *text;    /* the longest one that the source writes, before passes and judges take their memory; NULL: none */
    apr_session_options writer;  /* of the session that writes it: on the GPU, if there is one */
} apr_heal_needs;

/* APR_E_MEMORY: more than this machine has, or than its GPU has free; the message has all lines. APR_E_UNSUPPORTED: an operation has no backward pass. */
apr_status apr_heal_plan_make(apr_heal_plan *plan, const apr_heal_needs *needs, apr_error *err);

#endif
