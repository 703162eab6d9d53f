/* journal.h - a text of lines that grows while work is done: which tensors are on the disk, and their checksums.
 *
 *     aprkit journal 1 5f0c2a91 #d1b8e2a4              of what terms (their CRC-32) it tells
 *     12 1048576 3fa1b2c4 0 0 0x0p+0 #77a01c55         tensor, bytes, their CRC-32, a remark of whoever made it
 *
 * Every line ends in the CRC-32 of what stands before " #". The last line may have been cut off by a kill or a full disk, and is then
 * none; any other line that is not as it was written is APR_E_DAMAGED. */
#ifndef APR_FORMATS_JOURNAL_H
#define APR_FORMATS_JOURNAL_H

#include "formats/base/arena.h"
#include "formats/base/status.h"

#include <stddef.h>
#include <stdint.h>

enum { APR_REMARK_BYTES = 512, APR_JOURNAL_LINE_BYTES = APR_REMARK_BYTES + 80 };

typedef struct apr_record {
    uint64_t tensor, n_bytes;
    uint32_t crc;
    const char *remark; /* one line without '#', shorter than APR_REMARK_BYTES */
} apr_record;

/* Of several journals; remarks live in the arena. */
typedef struct apr_records {
    apr_record *items;
    size_t n_items, capacity;
    apr_arena arena;
} apr_records;

/* Adds what a journal says; `path` is for sentences. */
apr_status apr_journal_read(apr_records *records, const char *text, size_t n_bytes, uint32_t terms_crc, const char *path, apr_error *err);
/* By tensor, for finding; and one of a tensor with that checksum, or NULL. */
void apr_records_sort(apr_records *records);
const apr_record *apr_records_find(const apr_records *records, uint64_t tensor, uint32_t crc);
void apr_records_close(apr_records *records);

/* The first line, and one for a record, each with its '\n'. Return its bytes. */
size_t apr_journal_head(char line[APR_JOURNAL_LINE_BYTES], uint32_t terms_crc);
size_t apr_journal_line(char line[APR_JOURNAL_LINE_BYTES], const apr_record *record);

#endif
