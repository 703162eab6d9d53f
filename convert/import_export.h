/* convert/import_export.h - converts a family's tensors to canonical names and pieces (import), and from them to another naming (export).
 *
 * Import cuts a tensor that holds several canonical ones (stacked experts, gate and up in one) into views, and records the provenance of
 * each. Export writes for each canonical tensor the provenance that it would have in the other naming, and then restores that form. So the
 * family's rules state each conversion once, for both directions. */
#ifndef APR_CONVERT_ENTRY_H
#define APR_CONVERT_ENTRY_H

#include "formats/shape/tensor_names.h"

/* `view` is a copy of `source` by apr_view_copy; its tensors become canonical, its names are not indexed yet. Value heads keep
 * their order, and tensors that ggml splits stay split; the view's hyperparameters record that. keep_unchanged: NULL, or for each
 * tensor of the view whether it is only copied. */
apr_status apr_import_tensors(apr_model *view, const apr_model *source, const apr_family *family, const bool *keep_unchanged, apr_error *err);

/* Export, for a model that did not come from `naming`. `view` holds canonical tensors, indexed by name. */
apr_status apr_export_tensors(apr_model *view, const apr_family *family, apr_naming naming, apr_error *err);

/* Drops scales of `old`, the table before the view was cut, if all their matrices were cut or joined: each piece then has its own part of
 * the scales (formats/tensor/composed.h), and the whole scale tensor is not written. */
apr_status apr_drop_unused_scales(apr_model *view, const apr_tensor *old, size_t n_old, apr_error *err);

/* apr_provenance_undo, followed by apr_drop_unused_scales: scales of joined matrices (stacked experts) are not written separately. Scales of
 * renamed weights are renamed with them. */
apr_status apr_provenance_undo_without_scales(apr_model *view, apr_error *err);

/* True for tensors that the text model does not run: multi-token prediction layers, image and audio towers. They are copied to APR
 * files and back, but not to another naming. */
bool apr_is_omitted(const apr_model *model, const char *name);

#endif
