/* fuzz_apr.c - any bytes as an APR file: read, touched everywhere, and its metadata written again and parsed. */
#include "formats/apr/apr.h"
#include "formats/apr/apr_meta.h"
#include "formats/base/bytes.h"
#include "formats/base/crc32.h"
#include "tests/fuzz/fuzz_target.h"

/* What was accepted can be written, and what is written is JSON. */
static void write_again(const apr_model *m)
{
    char *text;
    size_t n_bytes, crc_at;
    cJSON *json;

    if (apr_meta_write(m, &text, &n_bytes, &crc_at, NULL) != APR_OK) return;
    if (apr_json_parse(&json, text, n_bytes, "again", NULL) != APR_OK) abort();
    cJSON_Delete(json);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    apr_error err = {0};
    apr_model model;
    uint8_t *const bytes = malloc(n_bytes > 0 ? n_bytes : 1);

    if (bytes == NULL) return 0;
    if (n_bytes > 0) memcpy(bytes, data, n_bytes);
    if (n_bytes >= 64) apr_store_le32(bytes + 40, apr_crc32(apr_crc32(0, bytes, 40), bytes + 44, 20)); /* no fuzzer finds a CRC */
    if (apr_apr_read(&model, bytes, n_bytes, "fuzz", &err) == APR_OK) {
        (void)touch_model(&model);
        write_again(&model);
        apr_model_close(&model);
    } else if (err.text[0] == '\0') {
        abort(); /* every refusal has a sentence */
    }
    free(bytes);
    return 0;
}
