/* kv_copy.h - metadata taken over key by key, without the search that apr_kv_set makes for each: files may have 100,000 keys. */
#ifndef APR_FORMATS_KV_COPY_H
#define APR_FORMATS_KV_COPY_H

#include "formats/model/kv.h"

/* Appends an item whose key the list does not have. Borrows as apr_kv_set does. APR_E_MEMORY only. */
apr_status apr_kv_append(apr_kv_list *list, const apr_kv *item, apr_error *err);
/* The same of all items of a list. */
apr_status apr_kv_append_all(apr_kv_list *list, const apr_kv_list *from, apr_error *err);

#endif
