/* fuzz_journal.c - any bytes as a journal: what is read of it can be written again, and is then read as the same. */
#include "formats/files/resume.h"
#include "tests/fuzz/fuzz_target.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    const uint32_t terms_crc = 0x5f0c2a91;
    char line[APR_JOURNAL_LINE_BYTES];
    apr_records records = {0}, again = {0};
    apr_error err = {0};

    const apr_status status = apr_journal_read(&records, (const char *)data, n_bytes, terms_crc, "fuzz", &err);
    claim_sentence(status, err);
    apr_records_sort(&records);
    for (size_t i = 0; i < records.n_items; i++) {
        const apr_record *const r = &records.items[i];
        claim(apr_records_find(&records, r->tensor, r->crc) != NULL);
        if (strlen(r->note) >= APR_NOTE_BYTES) continue;
        char text[2 * APR_JOURNAL_LINE_BYTES];
        const size_t head = apr_journal_head(text, terms_crc), n = apr_journal_line(line, r);
        memcpy(text + head, line, n);
        claim(apr_journal_read(&again, text, head + n, terms_crc, "again", NULL) == APR_OK);
        const apr_record *const same = &again.items[again.n_items - 1];
        claim(same->tensor == r->tensor && same->n_bytes == r->n_bytes && same->crc == r->crc && strcmp(same->note, r->note) == 0);
    }
    apr_records_close(&records);
    apr_records_close(&again);
    return 0;
}
