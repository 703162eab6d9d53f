/* runtime/check/weights.h - the weights of two models, paired by what they do: weight i of operation j in the one and in the other.
 *
 * Names and slots may differ (a tied head is the embedding table), so nothing is compared by name. Each pair is scanned once. While
 * they are, the control is made: the reference with its own weights brought to the other's types by our encoders. How far the control
 * goes astray is what these types cost this model. */
#ifndef APR_RUNTIME_WEIGHTS_H
#define APR_RUNTIME_WEIGHTS_H

#include "formats/base/progress.h"
#include "runtime/check/tensor_scan.h"
#include "runtime/session/trace.h"

typedef struct apr_weight_pair {
    const apr_tensor *truth, *other; /* of the same shape */
    apr_tensor_scan scan;
    int64_t n_parts;       /* pairs of the same slot from this one on: 1, or those of its experts */
    unsigned uses;         /* apr_weight_use, of the truth's slot */
    double *column_errors; /* [columns] sums of squares, of a matrix that is multiplied and differs; else NULL */
} apr_weight_pair;

typedef struct apr_weights {
    apr_weight_pair *pairs;
    size_t n_pairs;
    int64_t *pair_of; /* [n_ops * APR_OP_MAX_WEIGHTS] of an operation's weights, of experts the first one's; -1: not in both */
    bool unchanged;   /* every number is the same */

    size_t n_missing, n_damaged, n_far;        /* not in both (and not zero); not finite or lost; further off than the type needs */
    char missing[320], damaged[320], far[512]; /* a sentence about the first of each, or empty */
    const apr_weight_pair *worst;              /* with the largest excess; NULL: none differs */

    bool has_control;
    uint64_t control_bytes; /* that it takes, or would take */
    apr_model control;      /* tensors of the reference, with what was changed in its place; hyperparameters are the reference's */
    void **buffers;         /* [n_buffers] its numbers */
    size_t n_buffers;
} apr_weights;

/* control_limit: memory for the control at most; 0: none is made. Both sessions must have the same shape (see facts.h) and outlive
 * the result. A failed result must be closed, too. */
apr_status apr_weights_compare(apr_weights *weights, const apr_session *truth, const apr_session *other, uint64_t control_limit,
                               const apr_progress *progress, apr_error *err);
void apr_weights_close(apr_weights *weights);

/* The pair of weight `which` of operation `op`, or NULL; of experts, whose pairs follow one another, the first. */
const apr_weight_pair *apr_weights_pair(const apr_weights *weights, size_t op, int which);
/* What the numbers of a weight differ by, relative to their size: the largest of all experts. 0: it is in neither. */
double apr_weights_relative(const apr_weights *weights, size_t op, int which);

#endif
