/* fuzz_quantization.c - libFuzzer target: any bytes as a config.json's quantization; what is read is asked about modules and sizes. */
#include "formats/packed/hf_quantization.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void ask(const apr_quantization *q, const char *module, apr_module_kind kind)
{
    static const int64_t sizes[] = {0, 1, 31, 2880, (int64_t)1 << 31};
    const apr_quant_scheme *const s = apr_quantization_of(q, module, kind);
    char text[96];

    if (s == NULL) return;
    if (s->bits < 1 && q->problem == NULL) abort();
    if (q->problem != NULL) return; /* no plan is made of what is not understood */
    if (strlen(apr_quant_text(s, text, sizeof text)) == 0) abort();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t j = 0; j < sizeof sizes / sizeof *sizes; j++)
            if (apr_quant_bytes(s, 1 + (int64_t)i, sizes[i], sizes[j]) < apr_quant_bytes(s, 1, sizes[i], sizes[j])) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static const char *const names[] = {"config.json", "hf_quant_config.json"};
    for (int i = 0; i < 2; i++) {
        const apr_attachment file = {names[i], data, n_bytes};
        const apr_model model = {.path = "fuzz", .attachments = &file, .n_attachments = 1};
        const apr_quantization *q;
        apr_arena arena = {0};
        apr_error err = {0};

        if (apr_quantization_read(&model, &arena, &q, &err) != APR_OK) abort(); /* it has no other reason than memory */
        if (q != NULL && q->method == NULL) abort();
        if (q != NULL) {
            ask(q, "model.layers.0.self_attn.q_proj", APR_MODULE_LINEAR);
            ask(q, "model.layers.11.mlp.experts.down_proj", APR_MODULE_EXPERTS);
            ask(q, "lm_head", APR_MODULE_HEAD);
        }
        apr_arena_close(&arena);
    }
    return 0;
}
