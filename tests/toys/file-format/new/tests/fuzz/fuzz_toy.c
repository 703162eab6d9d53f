/* fuzz_toy.c - any bytes as a toy file: read, and touched everywhere. */
#include "formats/toy/toy.h"
#include "tests/fuzz/fuzz_target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    apr_error err = {0};
    apr_model model;
    const apr_status status = apr_toy_read(&model, data, n_bytes, "fuzz", &err);

    claim_sentence(status, err);
    if (status != APR_OK) return 0;
    (void)touch_model(&model);
    apr_model_close(&model);
    return 0;
}
