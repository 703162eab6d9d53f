/* feedback_links.h - which inputs of a model's products belong to which tensors of an output.
 *
 * A conversion's tensors may have other names, orders and pieces than those that a program runs: rows in pairs, experts in a stack, gate
 * and up in one. So what is run is the canonical view of what will be written, and each of its tensors has a record of the way there.
 * Rows may move on it, columns not: only then is column j of the output what number j of an input is multiplied with. */
#ifndef APR_TOOLS_FEEDBACK_LINKS_H
#define APR_TOOLS_FEEDBACK_LINKS_H

#include "convert/convert.h"
#include "runtime/calibrate/inputs.h"

/* Matrix `matrix` of an item (0 but in stacks) reads a feed; of experts, that of one of them. */
typedef struct apr_feedback_link {
    size_t item; /* of the conversion */
    int64_t matrix;
    size_t feed;
    int64_t expert; /* 0 where the feed is not routed */
} apr_feedback_link;

typedef struct apr_feedback_links {
    apr_feedback_link *links; /* in the order of items, matrices, feeds */
    size_t n_links;
} apr_feedback_links;

/* session: of apr_canonical of a copy of conversion->view without records (see apr_feedback_between). */
apr_status apr_feedback_links_of(apr_feedback_links *links, const apr_conversion *conversion, const apr_session *session,
                                 const apr_feeds *feeds, apr_error *err);
void apr_feedback_links_close(apr_feedback_links *links);

/* A copy of the conversion's view that forgets where its tensors came from; to be made canonical again. */
apr_status apr_feedback_between(apr_model *between, const apr_conversion *conversion, apr_error *err);

/* Those of one item: *first and how many. */
size_t apr_feedback_links_of_item(const apr_feedback_links *links, size_t item, size_t *first);

/* Matrices of a tensor, and the rows of each. */
int64_t apr_feedback_matrices(const apr_tensor *tensor);

#endif
