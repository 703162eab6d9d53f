/* feedback_parts.h - a run of error feedback from inside, for feedback_run.c, feedback_open.c and feedback_print.c. */
#ifndef APR_TOOLS_FEEDBACK_PARTS_H
#define APR_TOOLS_FEEDBACK_PARTS_H

#include "quant/feedback/feedback_device.h"
#include "tools/conv/feedback_links.h"
#include "tools/conv/feedback_run.h"

/* Of each item of the conversion. */
typedef struct apr_feedback_fact {
    bool is_wanted; /* its type has a grid, and its values change */
    bool is_taken;  /* and a product reads it */
    bool is_made;
    int64_t n_tokens; /* of the matrix that saw the fewest */
    int64_t n_unseen; /* matrices that saw none */
    apr_feedback_errors errors;
    apr_misfits misfits;
} apr_feedback_fact;

struct apr_feedback_run {
    apr_feedback_request request;
    const apr_conversion *conversion;
    apr_pipe_maker maker;
    char terms[192];
    apr_model between, model; /* the view without records, and canonical again */
    struct apr_tokenizer *tokenizer;
    apr_session *session;
    int32_t *ids;
    int64_t n_ids;     /* whole windows */
    uint32_t text_crc; /* of the text, or of the ids of the model's own */
    double write_seconds;
    apr_feeds feeds;
    apr_feedback_links links;
    apr_feedback_fact *facts; /* [items] */
    apr_hessian *sums;        /* of each feed its experts', from first_sum[feed] on */
    size_t *first_sum;        /* [n_feeds] */
    bool *is_summed;          /* [n_feeds] */
    apr_feedback prepared;    /* of the sums at prepared_from, while they are there */
    const double *prepared_from;
    const float *prepared_there;     /* the same of a GPU */
    apr_feedback_plan plan;          /* of a GPU's memory */
    uint64_t largest_sums, all_sums; /* of one tensor, of all: bytes there */
    const apr_cuda_api *cuda;        /* NULL: on the host */
    int ordinal;
    apr_feedback_device *gpu;     /* NULL: on the host */
    apr_device_sums *device_sums; /* as `sums`, where there is a GPU */
    uint64_t session_bytes;       /* of the model there */
    const char *solver;           /* in words */
    const char *feed_name;        /* for sentences: a tensor that reads it */
    uint8_t **made;               /* [items] of a sequential run */
    uint8_t *last;                /* the bytes that the pipe has now */
    int n_passes;
    double pass_seconds;
    bool quiet;
};

uint64_t apr_feedback_run_memory(const apr_feedback_run *run); /* of sums at a time */
/* Forgets the sums of all feeds. */
void apr_feedback_run_drop_sums(apr_feedback_run *run);
/* What the calibration text is called. */
const char *apr_feedback_text_name(const apr_feedback_run *run);

/* Opens the session anew, on what `between` has become. */
apr_status apr_feedback_run_reopen(apr_feedback_run *run, apr_error *err);

#endif
