/* control_encoder.c - opens a worker a thread on the session's GPU. */
#include "runtime/check/control_encoder.h"

#include "formats/base/threads.h"
#include "runtime/session/trace.h"

#include <stdlib.h>
#include <string.h>

/* Bounds for any type: FP8 rows are as short as a vector of 16 numbers, and no encoded type is wider than float32. */
static const apr_cuda_worker_sizes sizes = {.in_bytes = APR_CONTROL_VALUES * sizeof(float),
                                            .out_bytes = APR_CONTROL_VALUES * sizeof(float),
                                            .n_elems = APR_CONTROL_VALUES,
                                            .n_rows = APR_CONTROL_VALUES / 16};

void apr_control_encoder_open(apr_control_encoder *encoder, const apr_session *session)
{
    const apr_cuda_api *cuda;
    apr_cuda_device *const device = apr_trace_device(session, &cuda);
    const int n = apr_all_threads();

    *encoder = (apr_control_encoder){0};
    if (device == NULL || cuda->codecs == NULL || cuda->codecs->check_memory(device, &sizes, n, NULL) != APR_OK) return;
    encoder->codecs = cuda->codecs;
    encoder->workers = calloc((size_t)n, sizeof *encoder->workers);
    if (encoder->workers == NULL) return;
    while (encoder->n_workers < n && encoder->codecs->open_worker(device, &sizes, &encoder->workers[encoder->n_workers], NULL) == APR_OK)
        encoder->n_workers++;
    if (encoder->n_workers < n) apr_control_encoder_close(encoder);
}

void apr_control_encoder_close(apr_control_encoder *encoder)
{
    for (int i = 0; i < encoder->n_workers; i++) encoder->codecs->close_worker(encoder->workers[i]);
    free(encoder->workers);
    *encoder = (apr_control_encoder){0};
}

bool apr_control_encoder_takes(const apr_control_encoder *encoder, const apr_tensor *tensor)
{
    const int64_t columns = apr_tensor_columns(tensor);
    const bool has_row_scales = tensor->scale != NULL; /* the GPU encodes FP8 with a scale a row */
    return encoder->n_workers > 0 && encoder->codecs->encodes(tensor->dtype) && columns >= 16 && columns <= APR_CONTROL_VALUES &&
           has_row_scales == (tensor->dtype == APR_F8_E4M3);
}

static apr_status start(const apr_control_encoder *encoder, apr_cuda_worker *worker, apr_dtype from, apr_dtype to, int64_t n_rows,
                        int64_t columns, bool saturate, apr_error *err)
{
    const apr_cuda_portion portion = {.from = from,
                                      .to = to,
                                      .n_elems = n_rows * columns,
                                      .columns = columns,
                                      .in_bytes = (size_t)apr_row_bytes(from, n_rows * columns),
                                      .range = apr_encode_range(to),
                                      .saturate = saturate};
    return encoder->codecs->start(worker, &portion, err);
}

apr_status apr_control_encoder_start(const apr_control_encoder *encoder, apr_cuda_worker *worker, apr_dtype dtype, int64_t n_rows,
                                     int64_t columns, apr_error *err)
{
    return start(encoder, worker, APR_F32, dtype, n_rows, columns, false, err);
}

apr_status apr_control_encoder_wait(const apr_control_encoder *encoder, apr_cuda_worker *worker, apr_error *err)
{
    apr_out_of_range ignored;
    return encoder->codecs->wait(worker, &ignored, err);
}

bool apr_control_encoder_recodes(const apr_control_encoder *encoder, apr_dtype own, apr_dtype to)
{
    const apr_cuda_codecs *const codecs = encoder->codecs;
    return encoder->n_workers > 0 && codecs->decodes(own) && codecs->encodes(own) && codecs->decodes(to) && codecs->encodes(to);
}

apr_status apr_control_encoder_recode(const apr_control_encoder *encoder, apr_cuda_worker *worker, apr_dtype own, apr_dtype to,
                                      int64_t n_rows, int64_t columns, apr_error *err)
{
    APR_TRY(start(encoder, worker, own, to, n_rows, columns, false, err));
    APR_TRY(apr_control_encoder_wait(encoder, worker, err));
    memcpy(worker->in, worker->out, (size_t)apr_row_bytes(to, n_rows * columns));
    APR_TRY(start(encoder, worker, to, own, n_rows, columns, true, err));
    return apr_control_encoder_wait(encoder, worker, err);
}
