/* kv_copy.h - appends metadata without the key search of apr_kv_set, which is too slow for files with 100,000 keys. */
#ifndef APR_FORMATS_KV_COPY_H
#define APR_FORMATS_KV_COPY_H

#include "formats/tensor/kv.h"

/* Appends an item whose key the list does not have. Borrows like apr_kv_set. Fails with APR_E_MEMORY only. */
apr_status apr_kv_append(apr_kv_list *list, const apr_kv *item, apr_error *err);
/* Appends all items of a list. */
apr_status apr_kv_append_all(apr_kv_list *list, const apr_kv_list *from, apr_error *err);

#endif
