/* convert/checksums.h - a tensor is converted only if its bytes are those that its file states a checksum of.
 *
 * Only APR files state any. A tensor is read for its checksum just before it is converted, so that a file is read from the disk once.
 * Two threads may not check with one of these at once. */
#ifndef APR_CONVERT_CHECKSUMS_H
#define APR_CONVERT_CHECKSUMS_H

#include "formats/model/model.h"

typedef struct apr_checksums apr_checksums;

/* *checksums is NULL where the source states no checksums. The source must outlive it. APR_E_DAMAGED: what the file says of its tensors is
 * not what was written. */
apr_status apr_checksums_open(apr_checksums **checksums, const apr_model *source, apr_error *err);
/* APR_E_DAMAGED: a tensor of the source that `tensor` is read from has changed; the sentence names it. NULL checksums are fine. */
apr_status apr_checksums_check(apr_checksums *checksums, const apr_tensor *tensor, apr_error *err);
void apr_checksums_close(apr_checksums *checksums); /* NULL is fine */

#endif
