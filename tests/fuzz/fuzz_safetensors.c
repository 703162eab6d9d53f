/* fuzz_safetensors.c - libFuzzer target: any bytes as a safetensors file. What is accepted must be inside the file. */
#include "formats/hf/safetensors.h"
#include "tests/fuzz/fuzz_target.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    apr_model model = {.path = "fuzz"};
    apr_error err = {0};

    if (apr_safetensors_parse(&model, data, n_bytes, "fuzz", &err) == APR_OK) {
        uint64_t n_data = 0;
        for (size_t i = 0; i < model.n_tensors; i++) {
            const apr_tensor *const t = &model.tensors[i];
            if (t->n_bytes > 0 && (t->data < data || t->n_bytes > (uint64_t)(data + n_bytes - t->data))) abort();
            if (apr_tensor_elems(t) < 0 || apr_tensor_rows(t) < 0) abort();
            n_data += t->n_bytes;
        }
        if (n_data > n_bytes || apr_model_index_names(&model, &err) == APR_E_DAMAGED) abort();
    } else if (err.text[0] == '\0') {
        abort(); /* a refusal without a sentence */
    }
    apr_model_close(&model);
    return 0;
}
