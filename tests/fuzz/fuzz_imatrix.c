/* fuzz_imatrix.c - any bytes as an importance matrix: a GGUF, or a .dat. What is read is in order and within its bounds. */
#include "formats/tensor/imatrix.h"
#include "tests/fuzz/fuzz_target.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    apr_imatrix m;
    apr_error err = {0};
    double sum = 0.0;
    const apr_status status = apr_imatrix_parse(&m, "fuzz", data, n_bytes, &err);

    claim_sentence(status, err);
    if (status != APR_OK) return 0;
    claim(m.n_entries > 0);
    for (size_t i = 0; i < m.n_entries; i++) {
        const apr_imatrix_entry *const e = &m.entries[i];
        claim(i == 0 || strcmp(m.entries[i - 1].name, e->name) < 0);
        claim(apr_imatrix_find(&m, e->name) == e && e->n_matrices > 0 && e->n_columns > 0);
        for (int64_t j = 0; j < e->n_matrices * e->n_columns; j++) sum += e->sums[j] * 1e-300;
        for (int64_t j = 0; j < e->n_matrices; j++) sum += e->counts[j] * 1e-300;
    }
    claim(sum >= 0.0);
    apr_imatrix_close(&m);
    return 0;
}
