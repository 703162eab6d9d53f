/* convert/dialect.h - canonical in the middle: any model as Hugging Face names and orders, and out again in either dialect.
 *
 * Nothing is copied: the result is a view whose tensors borrow the source's bytes, with a pending step where rows must move, or are
 * made of others (formats/model/made.h) where more is needed. The source must outlive the view; close the view with
 * apr_model_close. Each tensor records its way (convert/way.h), which an APR file keeps, so that the way back is exact whatever
 * these tables say later. */
#ifndef APR_CONVERT_DIALECT_H
#define APR_CONVERT_DIALECT_H

#include "formats/model/model.h"

/* A family without a table keeps its names, orders and dialect. A matrix whose numbers lie in several tensors (formats/model/packing.h)
 * takes their place. */
apr_status apr_canonical(apr_model *view, const apr_model *source, apr_error *err);
/* The same for whoever writes them as they are: the several tensors stay. */
apr_status apr_canonical_in_parts(apr_model *view, const apr_model *source, apr_error *err);

/* Gives every tensor the name and order it must have in `dialect`, in the origin's order where the origin was of that
 * dialect. APR_E_UNSUPPORTED when the family's steps into that dialect are not known. `view` starts as apr_canonical's
 * result is copied by apr_view_copy; tensors may since have changed their dtype. */
apr_status apr_translate(apr_model *view, const apr_model *canonical, apr_dialect dialect, apr_error *err);

/* A canonical view, in which what a GGUF has in its dialect's way (value heads in turn, latents split) is as a checkpoint has it, to be
 * compared with one. It forgets where its tensors came from. APR_E_UNSUPPORTED: blocks would break. */
apr_status apr_without_dialect(apr_model *view, apr_error *err);

/* The other way round: a canonical view of what a GGUF of this model would hold, in that dialect's way. `between` holds ggml's names for
 * it and must outlive it; both must be closed, whatever the status. APR_E_UNSUPPORTED: the steps are not known, or blocks would break. */
apr_status apr_with_dialect(apr_model *view, apr_model *between, const apr_model *canonical, apr_error *err);

/* An output head of its own in a model whose config.json ties it to the embedding: transformers computes with the embedding,
 * so this one travels within checkpoints and APR files, and stays out of GGUF, whose readers would compute with it. */
bool apr_is_idle_head(const apr_model *model, const apr_tensor *tensor);

/* A view with its own tensor table (room for n_extra more) that borrows everything else. Scale pointers point into the new table. */
apr_status apr_view_copy(apr_model *view, const apr_model *source, size_t n_extra, apr_error *err);

#endif
