/* scratch.c - the fuzz targets' folder in memory, and the look at every byte of a model. */
#define _XOPEN_SOURCE 700 /* nftw */
#include "tests/fuzz/fuzz_target.h"

#include "formats/base/crc32.h"

#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type;
    return ftw->level == 0 && strcmp(path, folder) == 0 ? 0 : remove(path);
}

void scratch_remove(const char *path) { nftw(path, remove_entry, 8, FTW_DEPTH | FTW_PHYS); }

void scratch_clear(void)
{
    if (folder[0] != '\0') scratch_remove(folder);
}

static void remove_folder(void)
{
    scratch_clear();
    rmdir(folder);
}

static void make_folder(void)
{
    snprintf(folder, sizeof folder, "%s/apr-fuzz-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    claim(mkdtemp(folder) != NULL);
    atexit(remove_folder);
}

const char *scratch_path(const char *name)
{
    static char paths[4][256];
    static int next;
    char *const path = paths[next++ % 4];

    if (folder[0] == '\0') make_folder();
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

void scratch_write(const char *name, const void *bytes, size_t n_bytes)
{
    const int fd = open(scratch_path(name), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    claim(fd >= 0);
    claim(write(fd, bytes, n_bytes) == (ssize_t)n_bytes);
    close(fd);
}

enum { MOST_FILES = 12 };

static const char mark[] = "=== ";

/* The first mark at or after `at` that begins a line, or the end. */
static size_t next_mark(const uint8_t *data, size_t at, size_t n_bytes)
{
    for (; at + sizeof mark - 1 <= n_bytes; at++)
        if (memcmp(data + at, mark, sizeof mark - 1) == 0 && (at == 0 || data[at - 1] == '\n')) return at;
    return n_bytes;
}

/* Names stay in the folder: letters, digits, '-', '_' and '.', and no dot in front. */
static bool take_name(char *name, const uint8_t *text, size_t n)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    if (n == 0 || n >= SCRATCH_NAME_BYTES - 3 || text[0] == '.') return false;
    memcpy(name, text, n);
    name[n] = '\0';
    return strspn(name, allowed) == n;
}

size_t scratch_unpack(const uint8_t *data, size_t n_bytes, char *first)
{
    char name[SCRATCH_NAME_BYTES] = "in/";
    size_t n_files = 0;

    claim(mkdir(scratch_path("in"), 0700) == 0);

    for (size_t at = next_mark(data, 0, n_bytes); at < n_bytes && n_files < MOST_FILES;) {
        const size_t begin = at + sizeof mark - 1, end = next_mark(data, begin, n_bytes);
        size_t n_name = 0;
        while (begin + n_name < end && data[begin + n_name] != '\n') n_name++;
        const size_t body = begin + n_name + 1 < end ? begin + n_name + 1 : end;
        const size_t n_body = end - body - (end < n_bytes && end > body);
        if (take_name(name + 3, data + begin, n_name)) {
            if (n_files++ == 0) strcpy(first, name);
            scratch_write(name, data + body, n_body);
        }
        at = end;
    }
    return n_files;
}

static uint32_t touch_strings(uint32_t crc, const apr_str *strings, size_t n)
{
    for (size_t i = 0; i < n; i++) crc = apr_crc32(crc, strings[i].text, strings[i].n_bytes);
    return crc;
}

static uint32_t touch_vocab(uint32_t crc, const apr_vocab *v)
{
    crc = touch_strings(touch_strings(crc, v->tokens, v->n_tokens), v->merges, 2 * v->n_merges);
    if (v->types != NULL) crc = apr_crc32(crc, v->types, v->n_tokens);
    if (v->added != NULL) crc = apr_crc32(crc, v->added, v->n_tokens);
    if (v->scores != NULL) crc = apr_crc32(crc, v->scores, v->n_tokens * sizeof *v->scores);
    return crc;
}

uint32_t touch_model(const apr_model *m)
{
    uint32_t crc = 0;

    for (size_t i = 0; i < m->n_tensors; i++) {
        const apr_tensor *const t = &m->tensors[i];
        crc = apr_crc32(apr_crc32(crc, t->data, t->n_bytes), t->name, strlen(t->name));
        if (t->origin_name != NULL) crc = apr_crc32(crc, t->origin_name, strlen(t->origin_name));
        claim(apr_model_find(m, t->name) == t);
        claim(apr_tensor_elems(t) >= 0 && apr_tensor_rows(t) >= 0);
        if (m->stated_crcs != NULL) crc ^= m->stated_crcs[i];
        char steps[APR_CHAIN_TEXT];
        crc = apr_crc32(crc, steps, strlen(apr_chain_text(&t->origin_chain, steps)));
        for (size_t o = 0; t->origins != NULL && o < t->origins->n; o++)
            crc = apr_crc32(crc, t->origins->names[o], strlen(t->origins->names[o]));
    }
    for (size_t i = 0; i < m->n_attachments; i++) crc = apr_crc32(crc, m->attachments[i].data, m->attachments[i].n_bytes);
    for (size_t i = 0; i < m->origin.n_order; i++) crc = apr_crc32(crc, m->origin.order[i], strlen(m->origin.order[i]));
    if (m->hparams.layer_kinds != NULL) crc = apr_crc32(crc, m->hparams.layer_kinds, (size_t)m->hparams.num_layers);
    return touch_vocab(crc, &m->vocab);
}
