/* convert/provenance.h - provenance: records how a tensor was renamed and transformed, and restores the original from the record.
 *
 * The record is origin_name or origins, origin_chain and origin_kept of apr_tensor. An APR file keeps it, so the original can be
 * restored exactly even if a family's table changes later. `where` names the file in messages. */
#ifndef APR_CONVERT_PROVENANCE_H
#define APR_CONVERT_PROVENANCE_H

#include "formats/tensor/composed.h"

/* Renames the tensor and applies `chain` to it. The new record is its old name and that chain. */
apr_status apr_provenance_begin(apr_tensor *tensor, const char *name, const apr_chain *chain, apr_arena *arena, const char *where,
                                apr_error *err);

/* Makes `tensor`, whose name is set, from several others by a chain that begins with a join or a stack. They must outlive it. A part
 * that already has a record keeps it: the new record holds the part's original name and chain. */
apr_status apr_provenance_join(apr_tensor *tensor, const apr_tensor *const *parts, size_t n_parts, const apr_chain *chain, apr_arena *arena,
                               const char *where, apr_error *err);

/* Restores every tensor of the view to its form in the origin: names, shapes and orders, cut or joined; a tensor without a record
 * stays. A kept original replaces a tensor whose chain has no exact inverse. APR_E_DAMAGED: parts of a tensor are missing
 * or do not fit together. The view's names must be indexed; index them again afterwards. The table gets APR_PROVENANCE_SPARE spare entries. */
enum { APR_PROVENANCE_SPARE = 4 };
apr_status apr_provenance_undo(apr_model *view, apr_error *err);

/* Drops scales of `old`, the table before the view was cut, if all their matrices were cut or joined: each piece then has its own part of
 * the scales (formats/tensor/composed.h), and the whole scale tensor is not written. */
apr_status apr_drop_unused_scales(apr_model *view, const apr_tensor *old, size_t n_old, apr_error *err);

#endif
