/* fuzz_apr.c - any bytes as an APR file: read, touched everywhere, and its metadata written again and parsed. */
#include "formats/apr.h"
#include "formats/apr_meta.h"
#include "formats/bytes.h"
#include "formats/crc32.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static uint32_t touch_strings(uint32_t crc, const apr_str *strings, size_t n)
{
    for (size_t i = 0; i < n; i++) crc = apr_crc32(crc, strings[i].text, strings[i].n_bytes);
    return crc;
}

/* Every byte that the model points to is read: a wrong pointer is a find. */
static uint32_t touch(const apr_model *m)
{
    uint32_t crc = 0;
    for (size_t i = 0; i < m->n_tensors; i++) {
        const apr_tensor *const t = &m->tensors[i];
        crc = apr_crc32(apr_crc32(crc, t->data, t->n_bytes), t->name, strlen(t->name));
        if (t->origin_name != NULL) crc = apr_crc32(crc, t->origin_name, strlen(t->origin_name));
        if (apr_model_find(m, t->name) != t) abort();
        if (m->stated_crcs != NULL) crc ^= m->stated_crcs[i];
        const int64_t n_rows = t->rank == 1 ? t->dims[0] : apr_tensor_rows(t);
        if (t->n_bytes > 0) crc ^= (uint32_t)apr_step_row(t->origin_step, n_rows, n_rows - 1);
    }
    for (size_t i = 0; i < m->n_attachments; i++) crc = apr_crc32(crc, m->attachments[i].data, m->attachments[i].n_bytes);
    for (size_t i = 0; i < m->origin.n_order; i++) crc = apr_crc32(crc, m->origin.order[i], strlen(m->origin.order[i]));
    const apr_vocab *const v = &m->vocab;
    crc = touch_strings(touch_strings(crc, v->tokens, v->n_tokens), v->merges, 2 * v->n_merges);
    if (v->types != NULL) crc = apr_crc32(crc, v->types, v->n_tokens);
    if (v->added != NULL) crc = apr_crc32(crc, v->added, v->n_tokens);
    if (v->scores != NULL) crc = apr_crc32(crc, v->scores, v->n_tokens * sizeof *v->scores);
    if (m->hparams.layer_kinds != NULL) crc = apr_crc32(crc, m->hparams.layer_kinds, (size_t)m->hparams.num_layers);
    return crc;
}

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
        (void)touch(&model);
        write_again(&model);
        apr_model_close(&model);
    } else if (err.text[0] == '\0') {
        abort(); /* every refusal has a sentence */
    }
    free(bytes);
    return 0;
}
