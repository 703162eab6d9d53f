/* feedback_links.h - maps the layer inputs of a model's matrix products to the tensors of an output.
 *
 * A conversion's tensors may differ from those that a program runs in name, row order and grouping: rotary rows in pairs, experts in a
 * stack, gate and up in one tensor. Therefore the program runs the canonical view of the output, and the provenance of each tensor of
 * that view leads back to the output's tensor. Its steps may move rows but not columns. Only then is column j of the output multiplied with
 * element j of the layer input. */
#ifndef APR_TOOLS_FEEDBACK_LINKS_H
#define APR_TOOLS_FEEDBACK_LINKS_H

#include "convert/convert.h"
#include "runtime/calibrate/inputs.h"

/* A matrix of an item is multiplied with a layer input; with routed experts, with the input of one expert. */
typedef struct apr_feedback_link {
    size_t item;    /* of the conversion */
    int64_t matrix; /* in a stack of matrices; else 0 */
    size_t input;   /* the layer input, an index of apr_layer_inputs */
    int64_t expert; /* 0 if the input is not routed */
} apr_feedback_link;

typedef struct apr_feedback_links {
    apr_feedback_link *links; /* sorted by item, matrix, input */
    size_t n_links;
} apr_feedback_links;

/* session: runs the canonical view of apr_view_without_provenance's copy of the conversion's. */
apr_status apr_feedback_links_of(apr_feedback_links *links, const apr_conversion *conversion, const apr_session *session,
                                 const apr_layer_inputs *inputs, apr_error *err);
void apr_feedback_links_close(apr_feedback_links *links);

/* The links of one item: *first, and their number as the result. */
size_t apr_feedback_links_of_item(const apr_feedback_links *links, size_t item, size_t *first);

/* The number of matrices of a tensor: dims[0] of a stack (rank 3), else 1. */
int64_t apr_feedback_matrices(const apr_tensor *tensor);

#endif
