/* feedback_internal.h - the internals of an apr_feedback_run, shared by feedback_run.c, kept.c and the printers. */
#ifndef APR_ENGINE_FEEDBACK_PARTS_H
#define APR_ENGINE_FEEDBACK_PARTS_H

#include "quant/feedback/feedback_device.h"
#include "runtime/calibrate/loss_weights.h"
#include "runtime/calibrate/own_text.h"
#include "tools/engine/quantize/feedback_links.h"
#include "tools/engine/quantize/feedback_run.h"

/* The state of one item of the conversion. */
typedef struct apr_feedback_fact {
    bool is_wanted;   /* its type supports error feedback, and its values change */
    bool is_taken;    /* is_wanted, and a matrix product reads it */
    bool is_encoded;  /* it has been encoded */
    int64_t n_tokens; /* of its matrix that received the fewest */
    int64_t n_unseen; /* matrices that received none */
    apr_feedback_errors errors;
    apr_out_of_range out_of_range;
} apr_feedback_fact;

struct apr_feedback_run {
    apr_feedback_request request;
    const apr_conversion *conversion;
    apr_custom_encoder custom_encoder; /* hands the encoded tensors to the conversion's pipe */
    char terms[192];                   /* what the result depends on, as text */
    apr_model between, model;          /* the view without provenance, and its canonical view */
    struct apr_tokenizer *tokenizer;
    apr_session *session;
    int32_t *ids;
    int64_t n_ids;            /* whole windows */
    uint32_t text_crc;        /* of the text, or of the token ids of a generated text */
    double write_seconds;     /* for generating the text */
    apr_own_text_plan writer; /* of a generated text, before anything else is allocated */
    apr_layer_inputs inputs;
    apr_feedback_links links;
    apr_feedback_fact *facts;  /* [items] */
    apr_loss_weights *weights; /* of tokens; NULL: all count alike */
    int64_t window_at;         /* first token of the window that is evaluated */
    double weights_seconds;    /* for computing them */
    int64_t *row_tokens;       /* of the rows that are visited: their tokens in the window, */
    float *row_weights;        /* and their weights */
    apr_hessian *sums;         /* sums x x^T: for each layer input, one per expert, from first_sum[input] on */
    size_t *first_sum;         /* [n_inputs] */
    bool *is_summed;           /* [n_inputs] its sums are complete */
    apr_feedback prepared;     /* factors of the sums at prepared_from, while those exist */
    const double *prepared_from;
    const float *prepared_there;     /* the same on a GPU */
    int group_there;                 /* columns that stay together in those factors */
    apr_feedback_plan plan;          /* of a GPU's memory */
    uint64_t largest_sums, all_sums; /* bytes on a GPU: sums of one tensor, of all */
    const apr_cuda_api *cuda;        /* NULL: on the host */
    int ordinal;
    apr_feedback_device *gpu;     /* NULL: on the host */
    apr_device_sums *device_sums; /* like `sums`, on a GPU */
    uint64_t session_bytes;       /* of the model on the GPU */
    const char *solver;           /* name of the factorization on the GPU */
    const char *reader_name;      /* for messages: a tensor that reads the input */
    uint8_t **encoded;            /* [items] encoded tensors of a sequential run */
    uint8_t *last;                /* the tensor that the pipe currently holds */
    float *values;                /* rows that are encoded, decoded; kept for the next tensor */
    int64_t n_values;             /* at most */
    int n_passes;
    double pass_seconds;
    const apr_listener *listener;
};

uint64_t apr_feedback_run_memory(const apr_feedback_run *run); /* most bytes of sums at a time */
/* The name of the calibration text. */
const char *apr_feedback_text_name(const apr_feedback_run *run);

#endif
