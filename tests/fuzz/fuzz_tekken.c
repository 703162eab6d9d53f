/* fuzz_tekken.c - any bytes as a tekken.json, or as a file of ranks where they begin like one: tokens, merges and special ids of what is accepted belong together. */
#include "formats/vocab/tekken.h"
#include "formats/vocab/tiktoken.h"
#include "tests/fuzz/fuzz_target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    const apr_attachment file = {"tekken.json", data, n_bytes};
    apr_vocab v = {0};
    apr_arena arena = {0};
    apr_error err = {0};

    apr_tiktoken_class class;
    const bool has_ranks = apr_is_tiktoken(&file) && apr_tiktoken_class_of(NULL, "llama", &class);
    const apr_status status =
        has_ranks ? apr_tiktoken_read(&file, &class, &v, &arena, "fuzz", &err) : apr_tekken_read(&file, &v, &arena, "fuzz", &err);
    claim_sentence(status, err);
    if (status == APR_OK) {
        claim(v.n_merges <= v.n_tokens);
        for (size_t i = 0; i < v.n_tokens; i++) claim(v.tokens[i].text != NULL && v.tokens[i].n_bytes > 0 && v.types[i] != 0);
        for (size_t i = 0; i < 2 * v.n_merges; i++) claim(v.merges[i].n_bytes > 0 && apr_str_is_utf8(v.merges[i]));
        claim(v.bos_id < (int64_t)v.n_tokens && v.eos_id < (int64_t)v.n_tokens);
    }
    apr_arena_close(&arena);
    return 0;
}
