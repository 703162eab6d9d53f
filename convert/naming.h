/* convert/naming.h - converts between naming schemes (import.c, export.c), with Hugging Face's names and order as the canonical form in between.
 *
 * Nothing is copied. The result is a view whose tensors borrow the source's bytes. A tensor has a pending step if its rows must move, or
 * is composed of others (formats/tensor/composed.h) if more is needed. The source must outlive the view; close the view with
 * apr_model_close. Each tensor records its provenance (convert/provenance.h). An APR file keeps that record, so the original can be restored
 * exactly even if these tables change later. */
#ifndef APR_CONVERT_NAMING_H
#define APR_CONVERT_NAMING_H

#include "formats/shape/text_part.h"
#include "formats/tensor/model.h"

/* A family without a table keeps its names, order and naming scheme. A matrix stored in several tensors (formats/tensor/packing.h)
 * becomes one tensor. */
apr_status apr_canonical(apr_model *view, const apr_model *source, apr_error *err);
/* The same for callers that write packed matrices unchanged: the several tensors stay. */
apr_status apr_canonical_packed(apr_model *view, const apr_model *source, apr_error *err);

/* Gives every tensor the name and order that it has in `naming`; in the origin's order if the origin used that naming.
 * APR_E_UNSUPPORTED if the family has no rules for it. `canonical` is apr_canonical's result; the dtypes of its tensors may have
 * changed since. `view` borrows from it as with apr_view_copy. */
apr_status apr_translate(apr_model *view, const apr_model *canonical, apr_naming naming, apr_error *err);

/* Changes a canonical view so that it can be compared with a checkpoint: what a GGUF stores differently (tiled value heads, split
 * latents) is brought to the checkpoint's form. Provenance is lost. APR_E_UNSUPPORTED: quantization blocks would break. */
apr_status apr_view_as_checkpoint(apr_model *view, apr_error *err);

/* The reverse: a canonical view of the tensors that a GGUF of this model would hold, in ggml's form. `between` holds ggml's names for
 * it and must outlive it; close both, whatever the status. APR_E_UNSUPPORTED: no rules, or quantization blocks would break. */
apr_status apr_view_as_gguf(apr_model *view, apr_model *between, const apr_model *canonical, apr_error *err);

/* An output head in a model whose config.json ties the head to the embedding. transformers computes with the embedding, so the
 * head is kept in checkpoints and APR files, but not in GGUF, whose readers would compute with it. */
bool apr_is_unused_head(const apr_model *model, const apr_tensor *tensor);

/* True for tensors that the text model does not run: multi-token prediction layers, image and audio towers. They are copied to APR
 * files and back, but not to another naming. */
static inline bool apr_is_omitted(const apr_model *model, const char *name)
{
    const apr_model_part part = apr_part_of(model, name);
    return part == APR_PART_TOWER || part == APR_PART_MTP;
}

/* A view with its own tensor table (capacity for n_extra more) that borrows everything else. Scale pointers point into the new table. */
apr_status apr_view_copy(apr_model *view, const apr_model *source, size_t n_extra, apr_error *err);

/* A copy without provenance: what is translated from it takes no original's name or bytes. */
apr_status apr_view_without_provenance(apr_model *view, const apr_model *source, apr_error *err);

#endif
