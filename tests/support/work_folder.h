/* work_folder.h - a folder under /tmp for a test's files, made and removed by the group's setup and teardown. */
#ifndef APR_TESTS_WORK_FOLDER_H
#define APR_TESTS_WORK_FOLDER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

extern char work[64];

int make_work(void **state);
int remove_work(void **state);
/* A path in the folder; good for four more calls. */
const char *in_work(const char *name);
/* Entries of the folder that are unfinished outputs: ".NAME.aprkit-...". */
int count_temporaries(const char *folder);
/* Fails unless both hold the same bytes. */
void assert_same_file(const char *a, const char *b);
void write_file(const char *path, const void *bytes, size_t n_bytes);

#endif
