/* kept.c - the kept text: lines of terms, the number of complete windows, token ids in decimal, "end". */
#include "tools/engine/quantize/kept.h"

#include "convert/run.h"
#include "formats/base/crc32.h"
#include "formats/files/resume.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TOKENS_BETWEEN = 1024, ID_BYTES = 12 };

static apr_status make_terms(apr_kept_text *kept, apr_error *err)
{
    const apr_own_text *const how = kept->how;
    char *inputs;

    APR_TRY(apr_inputs_terms(&inputs, NULL, 0, err));
    const size_t n = strlen(inputs) + 256;
    kept->terms = malloc(n);
    if (kept->terms != NULL)
        snprintf(kept->terms, n, "aprkit text 2\n%stext of %" PRId64 " windows of %" PRId64 ", seed %" PRIu64 ", begin %" PRId32 "\n",
                 inputs, how->n_windows, how->window, how->seed, how->has_begin ? how->begin : -1);
    free(inputs);
    return kept->terms != NULL ? APR_OK : apr_no_memory(err, "a text that is kept");
}

static apr_status save(apr_kept_text *kept, int64_t n_windows, apr_error *err)
{
    const int64_t n_ids = n_windows * kept->how->window;
    const size_t n_terms = strlen(kept->terms), capacity = n_terms + 96 + (size_t)n_ids * ID_BYTES;
    char *const text = malloc(capacity);

    if (text == NULL) return apr_no_memory(err, "a text that is kept");
    size_t n = (size_t)snprintf(text, capacity, "%s%" PRId64 "\n", kept->terms, n_windows);
    for (int64_t i = 0; i < n_ids; i++) n += (size_t)snprintf(text + n, capacity - n, "%" PRId32 "\n", kept->ids[i]);
    snprintf(text + n, capacity - n, "end\n");
    const apr_status status = apr_resume_keep_text(kept->target, text, err);
    free(text);
    kept->n_saved = n_ids;
    apr_listener_kept(kept->listener, (uint64_t)n_windows, (uint64_t)kept->how->n_windows);
    return status;
}

static apr_status on_windows(void *user, int64_t n_windows, apr_error *err)
{
    apr_kept_text *const kept = user;
    const bool is_last = n_windows == kept->how->n_windows;

    if (!is_last && n_windows * kept->how->window - kept->n_saved < TOKENS_BETWEEN) return APR_OK;
    return save(kept, n_windows, err);
}

/* False: the file is incomplete, has ids that are not in the vocabulary, or belongs to another model. */
static bool read_ids(const apr_kept_text *kept, const char *text, int64_t *n_windows)
{
    const size_t n_terms = strlen(kept->terms);
    int n_read = 0;

    if (strncmp(text, kept->terms, n_terms) != 0) return false;
    if (sscanf(text + n_terms, "%" SCNd64 "\n%n", n_windows, &n_read) != 1 || n_read == 0) return false;
    if (*n_windows < 0 || *n_windows > kept->how->n_windows) return false;
    const char *at = text + n_terms + n_read;
    for (int64_t i = 0; i < *n_windows * kept->how->window; i++) {
        char *end;
        const long id = strtol(at, &end, 10);
        if (end == at || *end != '\n' || id < 0 || id > INT32_MAX) return false;
        if (kept->how->n_tokens_known > 0 && id >= kept->how->n_tokens_known) return false;
        kept->ids[i] = (int32_t)id;
        at = end + 1;
    }
    return strcmp(at, "end\n") == 0;
}

apr_status apr_kept_text_open(apr_kept_text *kept, apr_own_text *how, apr_error *err)
{
    int64_t n_windows;

    APR_TRY(make_terms(kept, err));
    char *const text = apr_resume_kept_text(kept->target);
    if (text != NULL && read_ids(kept, text, &n_windows)) how->n_before = n_windows;
    free(text);
    kept->n_saved = how->n_before * how->window;
    how->on_windows = on_windows;
    how->user = kept;
    return how->n_before > 0 ? APR_OK : save(kept, 0, err); /* creates the folder at the start */
}

void apr_kept_text_close(apr_kept_text *kept)
{
    free(kept->terms);
    kept->terms = NULL;
}

/* --- a file of OUT.resume --- */

static char *path_of(const char *out, const char *name, const char *suffix)
{
    char *const folder = apr_resume_path_for(out);
    const size_t n = folder != NULL ? strlen(folder) + strlen(name) + strlen(suffix) + 2 : 0;
    char *const path = n > 0 ? malloc(n) : NULL;

    if (path != NULL) snprintf(path, n, "%s/%s%s", folder, name, suffix);
    free(folder);
    return path;
}

static bool make_folder(const char *out)
{
    char *const folder = apr_resume_path_for(out);
    const bool good = folder != NULL && (mkdir(folder, 0777) == 0 || errno == EEXIST);

    free(folder);
    return good;
}

apr_status apr_kept_write(const char *out, const char *name, const char *terms, size_t n_terms, bool (*write)(void *user, FILE *file),
                          void *user, apr_error *err)
{
    char *const path = path_of(out, name, ""), *const unfinished = path_of(out, name, ".new");
    apr_status status = path != NULL && unfinished != NULL ? APR_OK : apr_no_memory(err, "a path");
    FILE *const file = status == APR_OK && make_folder(out) ? fopen(unfinished, "we") : NULL;
    bool good = file != NULL && fwrite(terms, 1, n_terms, file) == n_terms && write(user, file);

    good = good && fflush(file) == 0 && fsync(fileno(file)) == 0;
    if (file != NULL && fclose(file) != 0) good = false;
    if (good) good = rename(unfinished, path) == 0;
    if (status == APR_OK && !good) {
        status = apr_fail(err, APR_E_IO, "%s: cannot be written: %s", path, strerror(errno));
        unlink(unfinished);
    }
    free(path);
    free(unfinished);
    return status;
}

bool apr_kept_exists(const char *out, const char *name)
{
    char *const path = path_of(out, name, "");
    const bool is_there = path != NULL && access(path, R_OK) == 0;

    free(path);
    return is_there;
}

static bool has_terms(FILE *file, const char *terms, size_t n)
{
    char *const theirs = malloc(n + 1);
    const bool same = theirs != NULL && fread(theirs, 1, n, file) == n && memcmp(theirs, terms, n) == 0;

    free(theirs);
    return same;
}

FILE *apr_kept_open(const char *out, const char *name, const char *terms, size_t n_terms)
{
    char *const path = path_of(out, name, "");
    FILE *const file = path != NULL ? fopen(path, "re") : NULL;

    free(path);
    if (file == NULL || has_terms(file, terms, n_terms)) return file;
    fclose(file);
    return NULL;
}

void apr_kept_remove(const char *out, const char *name)
{
    char *const path = path_of(out, name, ""), *const unfinished = path_of(out, name, ".new"), *const folder = apr_resume_path_for(out);

    if (path != NULL) unlink(path);
    if (unfinished != NULL) unlink(unfinished);
    if (folder != NULL) rmdir(folder);
    free(path);
    free(unfinished);
    free(folder);
}

/* --- the file OUT.resume/sums: text lines that identify the run (terms), then a record for each layer input and expert.
 *
 *     int64   input, expert, n, tokens; n is the width, or 0 if no token was seen
 *     double  n * (n + 1) / 2 sums: the lower triangle, row by row
 *     uint32  CRC-32 of these doubles
 *
 * Numbers are in native byte order. The last line of the terms differs on a machine with another byte order, so its file is ignored. */

enum { HEAD = 4 };

/* malloc'ed; NULL: no memory. The last line is the first byte of the integer 1, which shows the byte order. */
static char *terms_of(const apr_feedback_run *run, size_t *n, apr_error *err)
{
    static const uint64_t one = 1;
    char *inputs;

    if (apr_inputs_terms(&inputs, NULL, 0, err) != APR_OK) return NULL;
    const size_t capacity = strlen(inputs) + sizeof run->terms + 64;
    char *const terms = malloc(capacity);
    if (terms != NULL)
        *n = (size_t)snprintf(terms, capacity, "aprkit sums 1\n%s%s\n%02x\n", inputs, run->terms, *(const unsigned char *)&one);
    free(inputs);
    if (terms == NULL) apr_no_memory(err, "the sums of a pass");
    return terms;
}

static bool write_sum(FILE *file, size_t input, int64_t expert, const apr_hessian *h)
{
    const int64_t n = h->sum != NULL ? h->n : 0, head[HEAD] = {(int64_t)input, expert, n, h->n_tokens};
    uint32_t crc = 0;
    bool good = fwrite(head, sizeof head, 1, file) == 1;

    for (int64_t i = 0; i < n && good; i++) {
        const size_t n_bytes = (size_t)(i + 1) * sizeof *h->sum;
        crc = apr_crc32(crc, h->sum + i * n, n_bytes);
        good = fwrite(h->sum + i * n, n_bytes, 1, file) == 1;
    }
    return good && fwrite(&crc, sizeof crc, 1, file) == 1;
}

typedef struct sums_written {
    const apr_feedback_run *run;
    const bool *wanted;
} sums_written;

static bool write_sums(void *user, FILE *file)
{
    const sums_written *const w = user;
    const apr_feedback_run *const run = w->run;
    bool good = true;

    for (size_t input = 0; input < run->inputs.n_inputs && good; input++)
        for (int64_t e = 0; w->wanted[input] && good && e < apr_layer_input_matrices(&run->inputs.inputs[input]); e++)
            good = write_sum(file, input, e, &run->sums[run->first_sum[input] + (size_t)e]);
    return good;
}

apr_status apr_kept_sums_write(const apr_feedback_run *run, const bool *wanted, apr_error *err)
{
    sums_written w = {run, wanted};
    size_t n_terms;
    char *const terms = terms_of(run, &n_terms, err);
    const apr_status status = terms != NULL ? apr_kept_write(run->request.kept, "sums", terms, n_terms, write_sums, &w, err) : APR_E_MEMORY;

    free(terms);
    return status;
}

/* Reads one record's sums into an empty apr_hessian; into NULL: skips them. False: the file is cut off or damaged. */
static bool read_sum(FILE *file, apr_hessian *into, int64_t n, int64_t n_tokens)
{
    uint32_t crc = 0, stated;

    if (into == NULL) return fseeko(file, (off_t)(n * (n + 1) / 2) * (off_t)sizeof(double) + (off_t)sizeof stated, SEEK_CUR) == 0;
    if (n > 0 && apr_hessian_open(into, n, NULL) != APR_OK) return false;
    for (int64_t i = 0; i < n; i++) {
        const size_t n_bytes = (size_t)(i + 1) * sizeof *into->sum;
        if (fread(into->sum + i * n, n_bytes, 1, file) != 1) return false;
        crc = apr_crc32(crc, into->sum + i * n, n_bytes);
    }
    if (n > 0) into->n_tokens = n_tokens;
    return fread(&stated, sizeof stated, 1, file) == 1 && stated == crc;
}

/* Reads the records of all experts of a layer input. *is_taken: they were wanted and are complete. */
static bool read_input(FILE *file, apr_feedback_run *run, const bool *wanted, const int64_t first[HEAD], bool *is_taken)
{
    const size_t input = (size_t)first[0];
    const apr_layer_input *const f = &run->inputs.inputs[input];
    const bool takes = wanted[input] && !run->is_summed[input];
    int64_t head[HEAD];

    memcpy(head, first, sizeof head);
    for (int64_t e = 0; e < apr_layer_input_matrices(f); e++) {
        const bool is_next = e == 0 || fread(head, sizeof head, 1, file) == 1;
        const bool fits = is_next && head[0] == first[0] && head[1] == e && (head[2] == 0 || head[2] == f->width) && head[3] >= 0;
        if (!fits || !read_sum(file, takes ? &run->sums[run->first_sum[input] + (size_t)e] : NULL, head[2], head[3])) return false;
    }
    *is_taken = takes;
    return true;
}

static void forget(apr_feedback_run *run, size_t input)
{
    for (int64_t e = 0; e < apr_layer_input_matrices(&run->inputs.inputs[input]); e++)
        apr_hessian_close(&run->sums[run->first_sum[input] + (size_t)e]);
}

static void read_all(FILE *file, apr_feedback_run *run, const bool *wanted)
{
    int64_t head[HEAD];

    while (fread(head, sizeof head, 1, file) == 1) {
        bool is_taken = false;
        if (head[0] < 0 || (uint64_t)head[0] >= run->inputs.n_inputs || head[1] != 0) return;
        const bool was_summed = run->is_summed[head[0]], good = read_input(file, run, wanted, head, &is_taken);
        if (!good && wanted[head[0]] && !was_summed) forget(run, (size_t)head[0]);
        if (!good) return;
        run->is_summed[head[0]] |= is_taken;
    }
}

apr_status apr_kept_sums_read(apr_feedback_run *run, const bool *wanted, apr_error *err)
{
    size_t n_terms;

    if (!apr_kept_exists(run->request.kept, "sums")) return APR_OK;
    char *const terms = terms_of(run, &n_terms, err);
    if (terms == NULL) return APR_E_MEMORY;
    FILE *const file = apr_kept_open(run->request.kept, "sums", terms, n_terms);
    free(terms);
    if (file == NULL) return APR_OK;
    read_all(file, run, wanted);
    fclose(file);
    return APR_OK;
}
