/* fuzz_params.c - any bytes as a params.json, next to an embedding and a matrix of queries under Meta's names. */
#include "formats/shape/hparams.h"
#include "formats/shape/meta_names.h"
#include "formats/shape/meta_params.h"
#include "tests/fuzz/fuzz_target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    apr_tensor tensors[] = {{.name = "tok_embeddings.weight", .rank = 2, .dims = {1000, 64}},
                            {.name = "layers.0.attention.wq.weight", .rank = 2, .dims = {64, 64}}};
    apr_model model = {.path = "fuzz", .tensors = tensors, .n_tensors = 2};
    const apr_attachment file = {"params.json", data, n_bytes};
    apr_error err = {0};
    apr_chain chain;

    const apr_status status = apr_params_read(&file, &model, &model.hparams, &model.arena, "fuzz", &err);
    claim_sentence(status, err);
    if (status == APR_OK) {
        claim(model.hparams.hidden_size > 0 && model.hparams.num_layers > 0 && model.hparams.num_heads > 0);
        claim(apr_meta_to_canonical(tensors[1].name, &model.hparams, &chain, &model.arena) != NULL);
        const apr_status complete = apr_hparams_complete(&model.hparams, &model.arena, "fuzz", &err);
        claim_sentence(complete, err);
    }
    model.tensors = NULL;
    model.n_tensors = 0;
    apr_model_close(&model);
    return 0;
}
