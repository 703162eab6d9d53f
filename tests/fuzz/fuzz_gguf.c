/* fuzz_gguf.c - any bytes as a GGUF file: a model or a sentence, and every byte of a model's tensors can be read. */
#include "formats/gguf/gguf.h"
#include "formats/shape/gguf_hparams.h"
#include "tests/fuzz/fuzz_target.h"

#include <stdlib.h>

static void touch(volatile uint8_t byte) { (void)byte; }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    apr_map map = {.data = data, .n_bytes = n_bytes};
    apr_model model = {.path = "fuzz.gguf", .maps = &map, .n_maps = 1};
    apr_error err = {0};

    const apr_status status = apr_gguf_parse(&model, &err);
    if ((status == APR_OK) != (err.text[0] == '\0')) abort();
    for (size_t i = 0; status == APR_OK && i < model.n_tensors; i++) {
        const apr_tensor *const t = &model.tensors[i];
        for (uint64_t k = 0; k < t->n_bytes; k++) touch(t->data[k]);
        if (apr_model_find(&model, t->name) != t) abort();
    }
    if (status == APR_OK) { /* what was read can be laid out again */
        uint8_t *const kv = malloc((size_t)apr_kv_bytes(&model.kv) + 1);
        if (kv != NULL) apr_kv_write(&model.kv, kv);
        free(kv);
        apr_kv_list made = {.arena = &model.arena};
        apr_gguf_keys(&model.hparams, &model.vocab, "fuzz", 0, &made, &err);
    }
    model.n_maps = 0; /* the bytes are the fuzzer's */
    apr_model_close(&model);
    return 0;
}
