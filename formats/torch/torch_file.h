/* torch_file.h - parses a file of torch.save: the pickle of the saved object, and the bytes of each storage that it mentions. */
#ifndef APR_FORMATS_TORCH_FILE_H
#define APR_FORMATS_TORCH_FILE_H

#include "formats/number/dtype.h"
#include "formats/torch/pickle.h"

typedef struct apr_torch_storage {
    apr_str key;     /* "0", or an address of the process that saved it */
    apr_dtype dtype; /* APR_DTYPE_COUNT: bytes without a type */
    int64_t n_elems; /* bytes, if there is no type */
    const uint8_t *data;
} apr_torch_storage;

typedef struct apr_torch_file {
    const apr_pickle_node *root;
    apr_torch_storage *storages; /* [n_storages] sorted by key, no duplicates; checked to be inside the file */
    size_t n_storages;
} apr_torch_file;

/* `data` is borrowed; tables live in the arena. */
apr_status apr_torch_file_read(apr_torch_file *file, const uint8_t *data, size_t n_bytes, const char *where, apr_arena *arena,
                                apr_error *err);

/* The storage of a node of kind APR_PICKLE_PERSISTENT. */
apr_status apr_torch_storage_of(const apr_torch_file *file, const apr_pickle_node *stored, const apr_torch_storage **storage,
                                const char *where, apr_error *err);

/* The dtype for a type's name in a pickle ("torch float8_e4m3fn"); APR_DTYPE_COUNT: not a type, or not supported. */
apr_dtype apr_torch_dtype(apr_str name);

#endif
