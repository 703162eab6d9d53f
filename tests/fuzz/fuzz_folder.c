/* fuzz_folder.c - any files in a folder as a model: index and shards, split GGUFs, the small files next to the weights.
 *
 * The input is a bundle (fuzz_target.h). The folder is opened, and then the first file alone. */
#include "tests/fuzz/fuzz_target.h"

static void open_and_touch(const char *path)
{
    apr_model model;
    apr_error err = {0};

    const apr_status status = apr_model_open(&model, path, &err);
    claim_sentence(status, err);
    if (status != APR_OK) return;
    (void)touch_model(&model);
    apr_model_close(&model);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    char first[SCRATCH_NAME_BYTES];

    if (scratch_unpack(data, n_bytes, first) > 0) {
        open_and_touch(scratch_path("in"));
        open_and_touch(scratch_path(first));
    }
    scratch_clear();
    return 0;
}
