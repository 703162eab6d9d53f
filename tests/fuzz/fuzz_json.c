/* fuzz_json.c - libFuzzer target: any bytes as JSON, as a config.json and as a tokenizer.json. */
#include "formats/base/json.h"
#include "formats/hf/safetensors.h"
#include "formats/shape/hf_config.h"
#include "formats/vocab/hf_tokenizer.h"
#include "tests/fuzz/fuzz_target.h"

#include <stdlib.h>

static void read_config(const apr_attachment *file)
{
    apr_arena arena = {0};
    apr_hparams hparams;
    apr_error err = {0};

    apr_status status = apr_hf_config_read(file, &hparams, &arena, "fuzz", &err);
    if (status == APR_OK) status = apr_hparams_complete(&hparams, &arena, "fuzz", &err);
    if (status == APR_OK) free(apr_hf_config_write(&hparams, NULL));
    else if (err.text[0] == '\0') abort();
    apr_arena_close(&arena);
}

static void read_tokenizer(apr_attachment file)
{
    file.name = "tokenizer.json";
    const apr_model model = {.path = "fuzz", .attachments = &file, .n_attachments = 1};
    apr_arena arena = {0};
    apr_vocab vocab;
    apr_error err = {0};

    if (apr_hf_vocab_read(&model, &vocab, &arena, &err) != APR_OK) {
        if (err.text[0] == '\0') abort();
    } else if (vocab.kind != APR_VOCAB_NONE) {
        free(apr_hf_tokenizer_write(&vocab));
    }
    apr_arena_close(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    const apr_attachment file = {"config.json", data, n_bytes};
    apr_error err = {0};
    cJSON *json;

    if (apr_json_parse(&json, data, n_bytes, "fuzz", &err) != APR_OK) {
        if (json != NULL || err.text[0] == '\0') abort();
        return 0;
    }
    cJSON_Delete(json);
    read_config(&file);
    read_tokenizer(file);
    return 0;
}
