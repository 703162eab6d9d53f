/* convert/checksums.h - compares a tensor's bytes with the checksum that its file states, before the tensor is converted.
 *
 * Only APR files state checksums. A tensor is checked just before it is converted, so the file is read from the disk once.
 * Not thread-safe: only one thread may check with the same apr_checksums at a time. */
#ifndef APR_CONVERT_CHECKSUMS_H
#define APR_CONVERT_CHECKSUMS_H

#include "formats/tensor/model.h"

typedef struct apr_checksums apr_checksums;

/* *checksums is NULL if the source states no checksums. The source must outlive it. APR_E_DAMAGED: the header, metadata or index of the
 * file has changed since it was written. */
apr_status apr_checksums_open(apr_checksums **checksums, const apr_model *source, apr_error *err);
/* APR_E_DAMAGED: a source tensor that `tensor` is read from has changed; the message names it. NULL checksums are fine. */
apr_status apr_checksums_check(apr_checksums *checksums, const apr_tensor *tensor, apr_error *err);
void apr_checksums_close(apr_checksums *checksums); /* NULL is fine */

#endif
