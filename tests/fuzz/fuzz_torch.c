/* fuzz_torch.c - any bytes as a file of torch.save's. What is accepted must be inside the file; the rest is refused in a sentence. */
#include "formats/tensor/composed.h"
#include "formats/torch/torch.h"
#include "tests/fuzz/fuzz_target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    apr_model model = {.path = "fuzz"};
    apr_error err = {0};

    const apr_status status = apr_torch_parse(&model, data, n_bytes, "fuzz", &err);
    claim_sentence(status, err);
    if (status == APR_OK && apr_model_index_names(&model, &err) == APR_OK) {
        for (size_t i = 0; i < model.n_tensors; i++) {
            const apr_tensor *const t = &model.tensors[i];
            const uint8_t *const bytes = t->composed != NULL ? t->composed->parts[0]->data : t->data;
            if (t->n_bytes > 0) claim(bytes >= data && t->n_bytes <= (uint64_t)(data + n_bytes - bytes));
        }
        (void)touch_model(&model);
    }
    apr_model_close(&model);
    return 0;
}
