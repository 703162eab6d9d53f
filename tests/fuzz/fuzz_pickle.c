/* fuzz_pickle.c - any bytes as the pickle of a file of torch.save's, in an archive that is in order, with two storages of 64 bytes. */
#include "formats/torch/torch.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/zip_builder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static uint8_t storage[64];
    apr_model model = {.path = "fuzz"};
    apr_error err = {0};
    zip_builder z = {0};

    if (n_bytes > ZIP_ROOM / 2) return 0;
    zip_add(&z, "a/data.pkl", data, n_bytes);
    zip_add(&z, "a/data/0", storage, sizeof storage);
    zip_add(&z, "a/data/1", storage, sizeof storage);
    zip_close(&z, 0);
    const apr_status status = apr_torch_parse(&model, z.bytes, z.n_bytes, "fuzz", &err);
    claim_sentence(status, err);
    if (status == APR_OK && apr_model_index_names(&model, &err) == APR_OK) (void)touch_model(&model);
    apr_model_close(&model);
    return 0;
}
