/* torch_file.h - a file of torch.save's taken apart: the pickle of what was saved, and the bytes of each storage it mentions. */
#ifndef APR_FORMATS_TORCH_FILE_H
#define APR_FORMATS_TORCH_FILE_H

#include "formats/number/dtype.h"
#include "formats/torch/pickle.h"

typedef struct apr_torch_storage {
    apr_str key;     /* "0", or an address of long ago */
    apr_dtype dtype; /* APR_DTYPE_COUNT: bytes without a type */
    int64_t n_elems; /* bytes, where there is no type */
    const uint8_t *data;
} apr_torch_storage;

typedef struct apr_torch_file {
    const apr_pickle_node *root;
    apr_torch_storage *storages; /* [n_storages] by key, each once; all of it lies in the file */
    size_t n_storages;
} apr_torch_file;

/* `data` is borrowed, tables live in the arena. */
apr_status apr_torch_take_apart(apr_torch_file *file, const uint8_t *data, size_t n_bytes, const char *where, apr_arena *arena,
                                apr_error *err);

/* Of a node of kind APR_PICKLE_STORED. */
apr_status apr_torch_storage_of(const apr_torch_file *file, const apr_pickle_node *stored, const apr_torch_storage **storage,
                                const char *where, apr_error *err);

/* What a pickle calls a type ("torch float8_e4m3fn"); APR_DTYPE_COUNT: it is none, or none that we have. */
apr_dtype apr_torch_dtype(apr_str name);

#endif
