/* control_encoder.h - encodes rows of the control (weights.h) on the GPU of a session: the same bytes as on the host. Encoding is most of
 * the work of a comparison, and each thread hands its block of rows to the GPU while it decodes the other model's. */
#ifndef APR_RUNTIME_CONTROL_ENCODER_H
#define APR_RUNTIME_CONTROL_ENCODER_H

#include "runtime/session/session.h"

/* The largest block, in values. */
enum { APR_CONTROL_VALUES = 1 << 18 };

typedef struct apr_control_encoder {
    const apr_cuda_codecs *codecs;
    apr_cuda_worker **workers; /* [n_workers] one a thread; `in` takes the reference's values as float32 */
    int n_workers;             /* 0: the host encodes */
} apr_control_encoder;

/* Opens the workers on the session's GPU. None if it has no GPU, or no memory left on it: then the host encodes. */
void apr_control_encoder_open(apr_control_encoder *encoder, const apr_session *session);
void apr_control_encoder_close(apr_control_encoder *encoder);

/* Can it encode blocks of rows of this tensor's type and width? */
bool apr_control_encoder_takes(const apr_control_encoder *encoder, const apr_tensor *tensor);
/* Encodes n_rows rows of `columns` values in worker->in to worker->out, and the scales of FP8 rows to worker->row_scales. */
apr_status apr_control_encoder_start(const apr_control_encoder *encoder, apr_cuda_worker *worker, apr_dtype dtype, int64_t n_rows,
                                     int64_t columns, apr_error *err);
/* For n_rows rows in worker->in: encodes them from type `own` to type `to`, and stores the decoded values as `own` again, in worker->out.
 * Values out of its range are clamped. Waits. */
bool apr_control_encoder_recodes(const apr_control_encoder *encoder, apr_dtype own, apr_dtype to);
apr_status apr_control_encoder_recode(const apr_control_encoder *encoder, apr_cuda_worker *worker, apr_dtype own, apr_dtype to,
                                      int64_t n_rows, int64_t columns, apr_error *err);
apr_status apr_control_encoder_wait(const apr_control_encoder *encoder, apr_cuda_worker *worker, apr_error *err);

#endif
