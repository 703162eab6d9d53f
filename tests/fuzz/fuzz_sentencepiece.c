/* fuzz_sentencepiece.c - any bytes as a tokenizer.model: what is accepted has a text, a type and a finite score for each token. */
#include "formats/vocab/sentencepiece.h"
#include "tests/fuzz/fuzz_target.h"

#include <math.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    const apr_attachment file = {"tokenizer.model", data, n_bytes};
    apr_vocab v = {0};
    apr_arena arena = {0};
    apr_error err = {0};

    const apr_status status = apr_sentencepiece_read(&file, &v, &arena, "fuzz", &err);
    claim_sentence(status, err);
    if (status == APR_OK) {
        claim((v.kind == APR_VOCAB_NONE) == (v.unsupported != NULL));
        for (size_t i = 0; v.kind != APR_VOCAB_NONE && i < v.n_tokens; i++)
            claim(v.tokens[i].n_bytes > 0 && apr_str_is_utf8(v.tokens[i]) && v.types[i] != 0 && isfinite(v.scores[i]));
        claim(v.kind == APR_VOCAB_NONE ||
              (v.bos_id < (int64_t)v.n_tokens && v.eos_id < (int64_t)v.n_tokens && v.unk_id < (int64_t)v.n_tokens));
    }
    apr_arena_close(&arena);
    return 0;
}
