/* fuzz_target.h - what fuzz targets share: the entry that libFuzzer calls, claims, and a folder in memory for files.
 *
 * A target states what must hold for any bytes. A claim that does not hold says where and aborts: that is a find. */
#ifndef APR_TESTS_FUZZ_TARGET_H
#define APR_TESTS_FUZZ_TARGET_H

#include "formats/tensor/model.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);
int LLVMFuzzerInitialize(int *argc, char ***argv); /* fuzz_dispatch.c */

#define claim(condition)                                                               \
    do {                                                                               \
        if (condition) break;                                                          \
        fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
        abort();                                                                       \
    } while (0)

/* A refusal has a sentence, an answer has none. */
#define claim_sentence(status, err) claim(((status) == APR_OK) == ((err).text[0] == '\0'))

/* Reads every byte that a model points to, so that the sanitizer sees a wrong pointer; returns something of them all. */
uint32_t touch_model(const apr_model *model);

/* A path in this process's folder, which is in memory where the machine has /dev/shm, and is removed at exit. Good for
 * three more calls. */
const char *scratch_path(const char *name);
void scratch_write(const char *name, const void *bytes, size_t n_bytes);
/* A bundle is some files as text: a line "=== NAME" begins a file, which goes on to the next such line (the line end before
 * that is not part of it). They are written into the new folder "in"; returns how many, and the first one's path in the
 * scratch folder. */
enum { SCRATCH_NAME_BYTES = 64 };
size_t scratch_unpack(const uint8_t *data, size_t n_bytes, char *first);
/* Removes everything in the folder, or the file or folder of that path. */
void scratch_clear(void);
void scratch_remove(const char *path);

#endif
