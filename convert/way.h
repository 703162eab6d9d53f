/* convert/way.h - a tensor's way under another name and shape, recorded as it is gone, and the way back from the record.
 *
 * The record (origin_name or origins, origin_chain, origin_kept of apr_tensor) is what an APR file keeps, so that the way back is
 * exact whatever a family's table says later. `where` names the file in sentences. */
#ifndef APR_CONVERT_WAY_H
#define APR_CONVERT_WAY_H

#include "formats/model/made.h"

/* The tensor under another name, `chain` behind what it is. The record becomes: its old name, and that chain. */
apr_status apr_way_go(apr_tensor *tensor, const char *name, const apr_chain *chain, apr_arena *arena, const char *where, apr_error *err);

/* The same for one more stretch of a way: the record grows, where there is one. */
apr_status apr_way_on(apr_tensor *tensor, const char *name, const apr_chain *chain, apr_arena *arena, const char *where, apr_error *err);

/* `tensor`, whose name is set, from several others, by a chain that begins with a join or a stack. They must outlive it. A part that
 * has gone a way of its own before (it has a record) is recorded with it, under its name there. */
apr_status apr_way_join(apr_tensor *tensor, const apr_tensor *const *parts, size_t n_parts, const apr_chain *chain, apr_arena *arena,
                        const char *where, apr_error *err);

/* Every tensor of the view as it was in its origin: names, shapes and orders, in parts or as a whole; a tensor without a record
 * stays. What was kept because no step leads back exactly takes its place. APR_E_DAMAGED: the parts of a tensor are not all
 * there, or do not fit together. The view's names must be indexed; index them again. The table has room for a few more. */
enum { APR_WAY_ROOM = 4 };
apr_status apr_way_back(apr_model *view, apr_error *err);

#endif
