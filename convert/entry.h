/* convert/entry.h - a family's tensors into canonical names and pieces, and out of them into a dialect.
 *
 * Entering cuts what the source has in one piece (experts stacked, gate and up in one) into views of it, and records the way of each
 * piece. Leaving writes down, for each canonical tensor, how the other dialect would have had it, and goes that way back: so there
 * is one way, in the family's rules, and it is gone in either direction. */
#ifndef APR_CONVERT_ENTRY_H
#define APR_CONVERT_ENTRY_H

#include "formats/model/tensor_names.h"

/* `view` is a copy of `source` by apr_view_copy; its tensors become canonical, its names are not indexed yet. Value heads stay in
 * their order and what ggml has split stays split: the view's hyperparameters say so. as_they_are: NULL, or for each tensor of the
 * view whether it is only carried. */
apr_status apr_enter(apr_model *view, const apr_model *source, const apr_family *family, const bool *as_they_are, apr_error *err);

/* The other way, for a model that did not come from `dialect`. `view` holds canonical tensors, indexed by name. */
apr_status apr_leave(apr_model *view, const apr_family *family, apr_dialect dialect, apr_error *err);

/* Drops scales of `old`, the table that the view was cut from, whose matrices all have been cut or joined: each piece has its own share of them
 * (formats/model/made.h), and no name for the whole. */
apr_status apr_drop_spent_scales(apr_model *view, const apr_tensor *old, size_t n_old, apr_error *err);

/* apr_way_back, and where matrices have been joined (experts stacked), the same: none of their scales is written beside the whole. Scales
 * of what has another name now are called as it is. */
apr_status apr_way_back_without_scales(apr_model *view, apr_error *err);

/* Of no use to the text model that is run: layers that predict several tokens, towers for images and sound. They travel to APR files
 * and back, and stay behind on the way to another dialect. */
bool apr_is_left_out(const apr_model *model, const char *name);

#endif
