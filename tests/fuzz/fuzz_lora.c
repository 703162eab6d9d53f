/* fuzz_lora.c - any files in a folder as an adapter of PEFT (adapter_config.json and adapter_model.safetensors), and the first one alone,
 * which may be a GGUF.
 *
 * The input is a bundle (fuzz_target.h). What is read is described in words, and each pair of matrices merged into zeros and decoded. */
#include "formats/tensor/adapter.h"
#include "formats/tensor/composed.h"
#include "kernels/rows.h"
#include "tests/fuzz/fuzz_target.h"

enum { MOST_ELEMS = 1 << 14, MOST_RANK = 64 };

static void merge(const apr_adapter_change *c, apr_arena *arena)
{
    static const float zeros[MOST_ELEMS];
    static float values[MOST_ELEMS];
    const int64_t rows = c->b->dims[0], columns = c->a->dims[1], rank = c->a->dims[0];

    claim(c->b->dims[1] == rank && rank > 0 && rows > 0 && columns > 0);
    if (rows > MOST_ELEMS || columns > MOST_ELEMS || rows * columns > MOST_ELEMS || rank > MOST_RANK) return;
    const apr_tensor base = {.name = c->name,
                             .dtype = APR_F32,
                             .rank = 2,
                             .dims = {rows, columns},
                             .data = (const uint8_t *)zeros,
                             .n_bytes = (uint64_t)(rows * columns) * 4};
    const apr_merge how = {.base = &base, .a = c->a, .b = c->b, .scale = (float)c->scale, .magnitudes = c->magnitudes};
    apr_tensor t = base;
    claim(apr_tensor_merge(&t, &base, &how, arena, "fuzz", NULL) == APR_OK);
    apr_decode_rows(&t, 0, rows, values);
}

static void use(const apr_adapter *adapter)
{
    apr_arena arena = {0};
    const apr_adapter_range r = apr_adapter_ranges(adapter);

    claim(r.n_low_rank + r.n_whole == adapter->n_changes && adapter->n_changes > 0);
    claim(apr_adapter_text(adapter, 0.5, &arena) != NULL);
    for (size_t i = 0; i < adapter->n_changes; i++) {
        const apr_adapter_change *const c = &adapter->changes[i];
        claim((c->whole != NULL) == (c->a == NULL) && (c->a == NULL) == (c->b == NULL));
        claim(i == 0 || strcmp(adapter->changes[i - 1].name, c->name) <= 0);
        if (c->a != NULL) merge(c, &arena);
    }
    apr_arena_close(&arena);
    (void)touch_model(&adapter->files);
}

static void open_and_use(const char *path)
{
    apr_adapter adapter;
    apr_error err = {0};
    const apr_status status = apr_adapter_open(&adapter, path, &err);

    claim_sentence(status, err);
    if (status != APR_OK) return;
    use(&adapter);
    apr_adapter_close(&adapter);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    char first[SCRATCH_NAME_BYTES];

    if (scratch_unpack(data, n_bytes, first) > 0) {
        open_and_use(scratch_path("in"));
        open_and_use(scratch_path(first));
    }
    scratch_clear();
    return 0;
}
