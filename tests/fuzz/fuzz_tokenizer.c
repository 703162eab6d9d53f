/* fuzz_tokenizer.c - any tokenizer.json and any text: ids of the vocabulary or a sentence, and ids become text again.
 *
 * The input is the tokenizer.json; after the bytes 01 02, where they occur, the text. */
#include "formats/hf/safetensors.h"
#include "formats/vocab/hf_tokenizer.h"
#include "runtime/tokenizer/tokenizer.h"
#include "tests/fuzz/fuzz_target.h"

/* "<s>" and "don't" ask for what splitting expressions and added tokens get wrong */
static const char standard_text[] = "Hello <s> don't 123 \xc3\xa9\n\n x";

static void encode_and_decode(const apr_tokenizer *tokenizer, const apr_vocab *vocab, const char *text, size_t n_text,
                              const apr_encode_options *options)
{
    apr_error err = {0};
    int32_t *ids = NULL;
    size_t n_ids = 0, n_back = 0;
    char *back = NULL;

    const apr_status status = apr_tokenizer_encode(tokenizer, text, n_text, options, &ids, &n_ids, &err);
    claim_sentence(status, err);
    if (status != APR_OK) return;
    for (size_t i = 0; i < n_ids; i++) claim(ids[i] >= 0 && (size_t)ids[i] < vocab->n_tokens);
    claim(apr_tokenizer_decode(tokenizer, ids, n_ids, true, &back, &n_back, &err) == APR_OK);
    claim(strlen(back) <= n_back);
    free(back);
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static const uint8_t mark[] = {1, 2};
    const uint8_t *behind = NULL;
    for (size_t i = 0; i + 1 < n_bytes && behind == NULL; i++)
        if (memcmp(data + i, mark, sizeof mark) == 0) behind = data + i + sizeof mark;
    const size_t n_text = behind != NULL ? (size_t)(data + n_bytes - behind) : sizeof standard_text - 1;
    const char *const text = behind != NULL ? (const char *)behind : standard_text;
    const apr_attachment file = {"tokenizer.json", data, behind != NULL ? n_bytes - n_text - sizeof mark : n_bytes};
    const apr_model model = {.path = "fuzz", .attachments = &file, .n_attachments = 1};
    apr_arena arena = {0};
    apr_vocab vocab;
    apr_tokenizer *tokenizer = NULL;
    apr_error err = {0};

    apr_status status = apr_hf_vocab_read(&model, &vocab, &arena, &err);
    if (status == APR_OK && vocab.kind != APR_VOCAB_NONE) {
        status = apr_tokenizer_open(&tokenizer, &vocab, &err);
        if (status == APR_OK) {
            encode_and_decode(tokenizer, &vocab, text, n_text, &(apr_encode_options){true, true});
            encode_and_decode(tokenizer, &vocab, text, n_text, &(apr_encode_options){false, false});
            apr_tokenizer_close(tokenizer);
        }
    }
    claim_sentence(status, err);
    apr_arena_close(&arena);
    return 0;
}
