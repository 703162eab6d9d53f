/* journal.h - an append-only text: which tensors are on the disk, and their checksums.
 *
 *     aprkit journal 1 5f0c2a91 #d1b8e2a4              format version, CRC-32 of the run's terms (formats/files/resume.h)
 *     12 1048576 3fa1b2c4 0 0 0x0p+0 #77a01c55         tensor, bytes, their CRC-32, a note of the writer
 *
 * Every line ends with the CRC-32 of the text before " #". The last line may be cut off by a kill or a full disk; it is then
 * ignored. Any other line whose checksum does not match is APR_E_DAMAGED. */
#ifndef APR_FORMATS_JOURNAL_H
#define APR_FORMATS_JOURNAL_H

#include "formats/base/arena.h"
#include "formats/base/status.h"

#include <stddef.h>
#include <stdint.h>

enum { APR_NOTE_BYTES = 512, APR_JOURNAL_LINE_BYTES = APR_NOTE_BYTES + 80 };

typedef struct apr_record {
    uint64_t tensor, n_bytes;
    uint32_t crc;
    const char *note; /* one line without '#', shorter than APR_NOTE_BYTES */
} apr_record;

/* The records of several journals; their notes live in the arena. */
typedef struct apr_records {
    apr_record *items;
    size_t n_items, capacity;
    apr_arena arena;
} apr_records;

/* Adds the records of one journal; `path` is for messages. */
apr_status apr_journal_read(apr_records *records, const char *text, size_t n_bytes, uint32_t terms_crc, const char *path, apr_error *err);
/* Sorts by tensor and checksum; apr_records_find needs it and returns a record of that tensor with that checksum, or NULL. */
void apr_records_sort(apr_records *records);
const apr_record *apr_records_find(const apr_records *records, uint64_t tensor, uint32_t crc);
void apr_records_close(apr_records *records);

/* Print the first line, or a record's line, each with its '\n'. Return its length in bytes. */
size_t apr_journal_head(char line[APR_JOURNAL_LINE_BYTES], uint32_t terms_crc);
size_t apr_journal_line(char line[APR_JOURNAL_LINE_BYTES], const apr_record *record);

#endif
