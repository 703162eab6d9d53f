/* resume.h - the folder NAME.resume next to an output that several runs make, one after another or concurrently, on one host or many.
 *
 *     terms       the number of parts, and the inputs and options of the output: every run must have the same lines
 *     lock        byte K - 1 is locked by the run that makes part K; all bytes by a run that makes or completes the whole
 *     *.journal   one for each run: the tensors whose bytes are on the disk (below)
 *     data        the output itself, a file or a folder of files, at full size from the start
 *     text        a text that a caller keeps for itself (apr_resume_keep_text)
 *     sums        the accumulated sums of an error feedback run
 *     heal        the state of a healing (tools/engine/heal), which outlasts apr_resume_remove
 *     final       which data took the final name: written just before it does
 *
 * Correctness does not depend on locks. Every run writes its own journal, made with O_EXCL; `terms` is put in place by link(); and two
 * runs that make the same tensor write the same bytes. So NFS works, also without locks. With locks, a second run does not repeat the
 * same work, and an NFS client does not write back more of a page than was written.
 *
 * After a kill, a signal or an error the folder stays. Only apr_resume_remove empties it, and it removes only its own names. */
#ifndef APR_FORMATS_RESUME_H
#define APR_FORMATS_RESUME_H

#include "formats/base/arena.h"
#include "formats/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- journals --- */

/* A journal is an append-only text: which tensors are on the disk, and their checksums.
 *
 *     aprkit journal 1 5f0c2a91 #d1b8e2a4              format version, CRC-32 of the run's terms
 *     12 1048576 3fa1b2c4 0 0 0x0p+0 #77a01c55         tensor, bytes, their CRC-32, a note of the writer
 *
 * Every line ends with the CRC-32 of the text before " #". The last line may be cut off by a kill or a full disk; it is then
 * ignored. Any other line whose checksum does not match is APR_E_DAMAGED. */
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

/* --- the folder --- */

typedef struct apr_resume apr_resume;

/* Which part this run makes. */
typedef struct apr_resume_part {
    int part;    /* from 1; 0: the whole output */
    int n_parts; /* 0: as many as `terms` says */
} apr_resume_part;

/* target: the final name. Makes the folder if it is missing (n_parts > 0), and joins it if the terms are the same. APR_E_IO: the target
 * exists (and !overwrite), the terms differ (the message names a line), another process works there, no folder. APR_E_DAMAGED: a damaged
 * journal. */
apr_status apr_resume_open(apr_resume **resume, const char *target, bool is_folder, bool overwrite, apr_resume_part part, const char *terms,
                           apr_error *err);
void apr_resume_close(apr_resume *resume); /* NULL is fine */

/* The name of the resume folder of `target`, malloc'ed; NULL: no memory. */
char *apr_resume_path_for(const char *target);
const char *apr_resume_path(const apr_resume *resume);
int apr_resume_n_parts(const apr_resume *resume);
const apr_records *apr_resume_records(const apr_resume *resume); /* of all runs so far, sorted */
/* True: an earlier run gave the output its final name but ended before it removed the folder. */
bool apr_resume_is_final(const apr_resume *resume);

/* Opens a file of the data for reading and writing ("" if the data is one file). With n_bytes > 0 it is created at that size: APR_E_IO when
 * the disk has too little space. *fd is -1 if the file does not exist and n_bytes is 0. */
apr_status apr_resume_data(const apr_resume *resume, const char *name, uint64_t n_bytes, int *fd, apr_error *err);
/* Appends to this run's journal and syncs it to the disk. The tensors of the records must be on the disk before. */
apr_status apr_resume_note(apr_resume *resume, const apr_record *records, size_t n, apr_error *err);

/* Keeps a text, replacing the one before; it is on the disk when the call returns. The folder is made if it is missing; no terms are
 * needed. The text is removed with the folder. apr_resume_kept_text: malloc'ed; NULL: there is none. */
apr_status apr_resume_keep_text(const char *target, const char *text, apr_error *err);
char *apr_resume_kept_text(const char *target);

/* Call this before apr_out_resume or apr_folder_resume gives the data its final name. */
apr_status apr_resume_set_final(apr_resume *resume, apr_error *err);
void apr_resume_remove(apr_resume *resume);
/* The descriptor of the folder, for apr_out_resume and apr_folder_resume. */
int apr_resume_folder(const apr_resume *resume);

#endif
