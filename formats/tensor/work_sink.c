/* work_sink.c - the sink of one of several runs. Tensors are written to their final offsets in the data of NAME.resume. Each gets a record
 * in the journal once it is on the disk. The run that completes the output reads the records and lets the format's own sink write the rest.
 *
 * A part is a run of adjacent tensors; the parts have about equal bytes. The layout alone decides, so every host computes the same
 * parts. */
#include "formats/base/clock.h"
#include "formats/base/crc32.h"
#include "formats/base/threads.h"
#include "formats/files/map.h"
#include "formats/tensor/sink.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { READ_BYTES = 1 << 20 };
static const double max_unsaved_s = 5.0; /* of work that a kill may lose */

typedef struct entry {
    const char *note;
    uint32_t crc;
    int part;         /* from 1 */
    bool is_recorded; /* an earlier run recorded it */
    bool is_there;    /* it was recorded, and its bytes are correct */
    bool is_done;     /* made by this run */
    bool is_damaged;  /* it was recorded, but its bytes have changed */
} entry;

typedef struct work_sink {
    apr_sink base;
    const apr_model *layout;
    apr_sink_options options;
    apr_sink_open_fn open;
    char *path;
    apr_offsets offsets;
    apr_resume *resume;
    entry *entries; /* [n_tensors] */
    int part;       /* the part that this run makes; 0: all parts, or none */
    bool makes_none;
    size_t at; /* the tensor that is being put; n_put and crc are its bytes so far */
    uint64_t n_put;
    uint32_t crc;
    int fd; /* of file i_file */
    size_t i_file;
    apr_record *pending; /* [n_tensors] records of finished tensors that are not on the disk yet */
    size_t n_pending;
    double saved_s, cost_s; /* when the journal was last written, and how long that took */
    apr_arena arena;
} work_sink;

apr_status apr_offsets_make(apr_offsets *offsets, size_t n_files, size_t n_tensors, apr_error *err)
{
    offsets->files = apr_arena_array(&offsets->arena, n_files + 1, sizeof *offsets->files);
    offsets->tensors = apr_arena_array(&offsets->arena, n_tensors + 1, sizeof *offsets->tensors);
    offsets->n_files = n_files;
    return offsets->files != NULL && offsets->tensors != NULL ? APR_OK : apr_no_memory(err, "the offsets of the tensors");
}

/* --- parts --- */

static bool continues(const work_sink *w, size_t i) { return w->options.work->continues != NULL && w->options.work->continues[i]; }

/* Each tensor goes to the part that contains its middle; tensors that continue it go with it. */
static void assign_parts(work_sink *w, int n_parts)
{
    const apr_model *const l = w->layout;
    uint64_t total = 0, at = 0;

    for (size_t i = 0; i < l->n_tensors; i++) total += l->tensors[i].n_bytes;
    const uint64_t step = total / (uint64_t)n_parts + 1;
    for (size_t i = 0, end; i < l->n_tensors; i = end) {
        uint64_t n = l->tensors[i].n_bytes;
        for (end = i + 1; end < l->n_tensors && continues(w, end); end++) n += l->tensors[end].n_bytes;
        for (size_t k = i; k < end; k++) w->entries[k].part = 1 + (int)((at + n / 2) / step);
        at += n;
    }
}

static bool in_this_run(const work_sink *w, size_t i) { return !w->makes_none && (w->part == 0 || w->entries[i].part == w->part); }

/* --- what earlier runs made --- */

static apr_status apply_records(work_sink *w, apr_error *err)
{
    const apr_records *const records = apr_resume_records(w->resume);
    const apr_model *const l = w->layout;

    for (size_t i = 0; i < records->n_items; i++) {
        const apr_record *const r = &records->items[i];
        if (r->tensor >= l->n_tensors || r->n_bytes != l->tensors[r->tensor].n_bytes)
            return apr_fail(err, APR_E_DAMAGED,
                            "%s: a journal names tensor %" PRIu64 " with %" PRIu64
                            " bytes, which the output does not have; remove the folder to start over",
                            apr_resume_path(w->resume), r->tensor, r->n_bytes);
        w->entries[r->tensor].is_recorded = true;
    }
    return APR_OK;
}

/* The CRC of a range of the file; false: the file is shorter, or cannot be read. */
static bool read_crc(int fd, uint64_t at, uint64_t n_bytes, uint8_t *buffer, uint32_t *crc)
{
    *crc = 0;
    while (n_bytes > 0) {
        const ssize_t n = pread(fd, buffer, n_bytes < READ_BYTES ? (size_t)n_bytes : READ_BYTES, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        *crc = apr_crc32(*crc, buffer, (size_t)n);
        at += (uint64_t)n;
        n_bytes -= (uint64_t)n;
    }
    return true;
}

static void check_entry(work_sink *w, size_t i, int fd, uint8_t *buffer)
{
    entry *const p = &w->entries[i];

    if (!read_crc(fd, w->offsets.tensors[i].offset, w->layout->tensors[i].n_bytes, buffer, &p->crc)) return;
    const apr_record *const r = apr_records_find(apr_resume_records(w->resume), i, p->crc);
    p->is_there = r != NULL;
    p->note = r != NULL ? r->note : NULL;
}

/* Verifies the recorded tensors of one file, with all threads. */
static apr_status check_file(work_sink *w, size_t file, apr_error *err)
{
    bool no_memory = false;
    int fd;

    APR_TRY(apr_resume_data(w->resume, w->offsets.files[file].name, 0, &fd, err));
    if (fd < 0) return APR_OK;
    double n_bytes = 0.0;
    for (size_t i = 0; i < w->layout->n_tensors; i++)
        n_bytes += w->offsets.tensors[i].file == file ? (double)w->layout->tensors[i].n_bytes : 0.0;
#pragma omp parallel num_threads(apr_threads(apr_all_threads(), (int64_t)w->layout->n_tensors, n_bytes))
    {
        uint8_t *const buffer = malloc(READ_BYTES);
#pragma omp for schedule(dynamic)
        for (size_t i = 0; i < w->layout->n_tensors; i++) {
            const bool is_relevant = w->makes_none || in_this_run(w, i);
            if (w->offsets.tensors[i].file != file || !w->entries[i].is_recorded || !is_relevant) continue;
            if (buffer != NULL) check_entry(w, i, fd, buffer);
            else no_memory = true;
        }
        free(buffer);
    }
    close(fd);
    return no_memory ? apr_no_memory(err, "a buffer") : APR_OK;
}

/* Tensors that are made together count as present only if all of them are. */
static void merge_groups(work_sink *w)
{
    for (size_t i = 0, end; i < w->layout->n_tensors; i = end) {
        bool all = w->entries[i].is_there;
        for (end = i + 1; end < w->layout->n_tensors && continues(w, end); end++) all = all && w->entries[end].is_there;
        for (size_t k = i; k < end; k++) {
            w->entries[k].is_damaged = w->entries[k].is_recorded && !w->entries[k].is_there && in_this_run(w, k);
            w->entries[k].is_there = all;
        }
    }
}

static apr_status verify_existing(work_sink *w, apr_error *err)
{
    APR_TRY(apply_records(w, err));
    for (size_t i = 0; apr_resume_is_final(w->resume) && i < w->layout->n_tensors; i++) w->entries[i].is_there = true;
    if (apr_resume_is_final(w->resume)) return APR_OK;
    for (size_t file = 0; file < w->offsets.n_files; file++) APR_TRY(check_file(w, file, err));
    merge_groups(w);
    return APR_OK;
}

/* --- tensors --- */

static apr_status open_file(work_sink *w, size_t file, apr_error *err)
{
    if (w->fd >= 0 && w->i_file == file) return APR_OK;
    if (w->fd >= 0 && fdatasync(w->fd) != 0)
        return apr_fail(err, APR_E_IO, "%s: writing failed: %s", apr_resume_path(w->resume), strerror(errno));
    if (w->fd >= 0) close(w->fd);
    w->i_file = file;
    return apr_resume_data(w->resume, w->offsets.files[file].name, w->offsets.files[file].n_bytes, &w->fd, err);
}

/* Advances to the first tensor, from the current one on, that is wanted and has bytes. */
static void advance(work_sink *w)
{
    while (w->at < w->layout->n_tensors &&
           (w->entries[w->at].is_there || !in_this_run(w, w->at) || w->n_put == w->layout->tensors[w->at].n_bytes)) {
        if (w->n_put > 0) w->entries[w->at].crc = w->crc;
        w->n_put = 0;
        w->crc = 0;
        w->at++;
    }
}

/* The extent of the next tensor. */
static apr_status extent_of(apr_sink *sink, apr_extent *extent, apr_error *err)
{
    work_sink *const w = (work_sink *)sink;

    advance(w);
    if (w->at == w->layout->n_tensors) return apr_fail(err, APR_E_USAGE, "%s: more bytes than the layout has", w->path);
    APR_TRY(open_file(w, w->offsets.tensors[w->at].file, err));
    *extent = (apr_extent){.fd = w->fd,
                           .offset = w->offsets.tensors[w->at].offset,
                           .n_bytes = w->layout->tensors[w->at].n_bytes,
                           .path = apr_resume_path(w->resume),
                           .advice = "; finished tensors are kept, and the next run continues",
                           .wants_crc = true};
    return APR_OK;
}

static apr_status pass(apr_sink *sink, uint32_t crc, apr_error *err)
{
    work_sink *const w = (work_sink *)sink;

    advance(w);
    if (w->at == w->layout->n_tensors) return apr_fail(err, APR_E_USAGE, "%s: more tensors than the layout has", w->path);
    w->n_put = w->layout->tensors[w->at].n_bytes;
    w->crc = crc;
    return APR_OK;
}

static apr_status put(apr_sink *sink, const void *bytes, size_t n_bytes, apr_error *err)
{
    work_sink *const w = (work_sink *)sink;
    const uint8_t *p = bytes;
    apr_extent extent;

    while (n_bytes > 0) {
        APR_TRY(extent_of(sink, &extent, err));
        const uint64_t n_left = extent.n_bytes - w->n_put;
        const size_t n = n_bytes < n_left ? n_bytes : (size_t)n_left;
        APR_TRY(apr_extent_put(&extent, w->n_put, p, n, err));
        w->crc = apr_crc32(w->crc, p, n);
        w->n_put += n;
        p += n;
        n_bytes -= n;
    }
    return APR_OK;
}

static apr_tensor_state state_of(const apr_sink *sink, size_t i)
{
    const work_sink *const w = (const work_sink *)sink;
    if (w->makes_none || w->entries[i].is_there) return w->makes_none || in_this_run(w, i) ? APR_TENSOR_DONE_BEFORE : APR_TENSOR_ELSEWHERE;
    return in_this_run(w, i) ? APR_TENSOR_WANTED : APR_TENSOR_ELSEWHERE;
}

static const char *remark_of(const apr_sink *sink, size_t i)
{
    const char *const note = ((const work_sink *)sink)->entries[i].note;
    return note != NULL ? note : "";
}

/* --- the journal --- */

/* Makes the data durable before the journal that refers to it. Writes neither if an input has changed meanwhile. */
static apr_status write_journal(work_sink *w, apr_error *err)
{
    const double start = apr_seconds_now();

    if (w->n_pending == 0) return APR_OK;
    APR_TRY(apr_inputs_check(err));
    if (w->fd >= 0 && fdatasync(w->fd) != 0)
        return apr_fail(err, APR_E_IO, "%s: writing failed: %s", apr_resume_path(w->resume), strerror(errno));
    APR_TRY(apr_resume_note(w->resume, w->pending, w->n_pending, err));
    w->n_pending = 0;
    w->saved_s = apr_seconds_now();
    w->cost_s = w->saved_s - start;
    return APR_OK;
}

static apr_status done(apr_sink *sink, size_t i, const char *note, apr_error *err)
{
    work_sink *const w = (work_sink *)sink;
    entry *const p = &w->entries[i];

    advance(w);
    if (w->at <= i) return apr_fail(err, APR_E_USAGE, "%s: tensor '%s' is not complete", w->path, w->layout->tensors[i].name);
    p->note = apr_arena_copy(&w->arena, note, strlen(note));
    if (p->note == NULL) return apr_no_memory(err, "a journal");
    p->is_done = true;
    w->pending[w->n_pending++] = (apr_record){i, w->layout->tensors[i].n_bytes, p->crc, p->note};
    /* Syncing may take a tenth of the time. On a slow disk at most max_unsaved_s seconds of work are at risk. */
    const double since_s = apr_seconds_now() - w->saved_s;
    return since_s >= 10.0 * w->cost_s || since_s >= max_unsaved_s ? write_journal(w, err) : APR_OK;
}

static apr_sink_progress progress_of(const apr_sink *sink)
{
    const work_sink *const w = (const work_sink *)sink;
    apr_sink_progress p = {.folder = apr_resume_path(w->resume), .n_parts = apr_resume_n_parts(w->resume)};

    for (size_t i = 0; i < w->layout->n_tensors; i++) {
        const bool is_relevant = w->makes_none || in_this_run(w, i);
        p.n_there += is_relevant && w->entries[i].is_there;
        p.n_done += w->entries[i].is_done;
        p.n_elsewhere += !is_relevant;
        p.n_damaged += w->entries[i].is_damaged;
    }
    return p;
}

/* --- the end --- */

static void close_work(work_sink *w)
{
    if (w->fd >= 0) close(w->fd);
    apr_resume_close(w->resume);
    apr_arena_close(&w->offsets.arena);
    apr_arena_close(&w->arena);
    free(w->entries);
    free(w->pending);
    free(w->path);
    free(w);
}

/* Finished tensors are recorded, so that they are not lost. */
static void abandon(apr_sink *sink)
{
    work_sink *const w = (work_sink *)sink;
    if (w->resume != NULL) (void)write_journal(w, NULL);
    close_work(w);
}

/* "2/4, 3/4": the first of the parts that lack tensors. */
static void list_parts(const work_sink *w, int n_parts, char *text, size_t n_bytes)
{
    size_t at = 0;
    int before = 0;

    text[0] = '\0';
    for (size_t i = 0; i < w->layout->n_tensors; i++) {
        const entry *const p = &w->entries[i];
        if (p->is_there || p->part == before) continue;
        if (at + 40 > n_bytes) {
            snprintf(text + at, n_bytes - at, ", ...");
            return;
        }
        at += (size_t)snprintf(text + at, n_bytes - at, "%s%d/%d", at > 0 ? ", " : "", p->part, n_parts);
        before = p->part;
    }
}

/* APR_E_NO when parts are missing. */
static apr_status refuse_missing(const work_sink *w, apr_error *err)
{
    const int n_parts = apr_resume_n_parts(w->resume);
    size_t n_missing = 0, n_damaged = 0;
    char parts[300], damaged[100] = "";

    for (size_t i = 0; i < w->layout->n_tensors; i++) {
        n_missing += !w->entries[i].is_there;
        n_damaged += !w->entries[i].is_there && w->entries[i].is_recorded;
    }
    if (n_missing == 0) return APR_OK;
    list_parts(w, n_parts, parts, sizeof parts);
    if (n_damaged > 0) snprintf(damaged, sizeof damaged, " (%zu of them were written, but have changed since)", n_damaged);
    return apr_fail(err, APR_E_NO, "%s: %zu of %zu tensors are missing%s; run these parts: %s", apr_resume_path(w->resume), n_missing,
                    w->layout->n_tensors, damaged, parts);
}

/* The format's own sink is passed over all tensors; it writes everything else and renames the output. */
static apr_status complete(work_sink *w, apr_error *err)
{
    apr_sink_options options = w->options;
    apr_sink *inner;

    options.work = NULL;
    options.resume_from = w->resume;
    if (w->fd >= 0) close(w->fd);
    w->fd = -1;
    APR_TRY(apr_resume_set_final(w->resume, err));
    APR_TRY(w->open(&inner, w->path, w->layout, &options, err));
    for (size_t i = 0; i < w->layout->n_tensors; i++) {
        if (w->layout->tensors[i].n_bytes == 0) continue;
        const apr_status status = inner->ops->pass(inner, w->entries[i].crc, err);
        if (status == APR_OK) continue;
        inner->ops->abandon(inner);
        return status;
    }
    return inner->ops->finish(inner, err);
}

static apr_status end_run(work_sink *w, apr_error *err)
{
    for (size_t i = 0; i < w->layout->n_tensors; i++)
        if (in_this_run(w, i) && !w->entries[i].is_there && !w->entries[i].is_done)
            return apr_fail(err, APR_E_USAGE, "%s: tensor '%s' was not written completely", w->path, w->layout->tensors[i].name);
    APR_TRY(write_journal(w, err));
    if (w->part != 0) return APR_OK;
    if (!apr_resume_is_final(w->resume)) APR_TRY(complete(w, err));
    apr_resume_remove(w->resume);
    return APR_OK;
}

static apr_status finish(apr_sink *sink, apr_error *err)
{
    work_sink *const w = (work_sink *)sink;
    const apr_status status = end_run(w, err);
    close_work(w);
    return status;
}

static uint64_t total_bytes(const apr_sink *sink) { return ((const work_sink *)sink)->offsets.total_bytes; }

/* --- the start --- */

/* The caller's lines, and the size and head of the output. */
static char *make_terms(work_sink *w)
{
    return apr_arena_print(&w->arena, "%soutput of %" PRIu64 " bytes in %zu file%s, head %08" PRIx32 "\n", w->options.work->terms,
                           w->offsets.total_bytes, w->offsets.n_files, w->offsets.n_files == 1 ? "" : "s", w->offsets.head_crc);
}

static apr_status preallocate(work_sink *w, apr_error *err)
{
    for (size_t i = 0; i < w->offsets.n_files; i++) {
        int fd;
        APR_TRY(apr_resume_data(w->resume, w->offsets.files[i].name, w->offsets.files[i].n_bytes, &fd, err));
        close(fd);
    }
    return APR_OK;
}

static apr_status begin(work_sink *w, apr_offsets_fn offsets, bool is_folder, apr_error *err)
{
    const size_t n = w->layout->n_tensors;
    const apr_sink_work *const work = w->options.work;

    w->entries = calloc(n + 1, sizeof *w->entries);
    w->pending = calloc(n + 1, sizeof *w->pending);
    if (w->path == NULL || w->entries == NULL || w->pending == NULL) return apr_no_memory(err, "the tensors of an output");
    APR_TRY(offsets(&w->offsets, w->path, w->layout, &w->options, err));
    const char *const terms = make_terms(w);
    if (terms == NULL) return apr_no_memory(err, "the terms of a run");
    APR_TRY(apr_resume_open(&w->resume, w->path, is_folder, w->options.overwrite, work->part, terms, err));
    assign_parts(w, apr_resume_n_parts(w->resume));
    APR_TRY(verify_existing(w, err));
    if (w->makes_none) return refuse_missing(w, err);
    return apr_resume_is_final(w->resume) ? APR_OK : preallocate(w, err);
}

apr_status apr_work_sink_open(apr_sink **sink, apr_sink_open_fn open, apr_offsets_fn offsets, bool is_folder, const char *path,
                              const apr_model *layout, const apr_sink_options *options, apr_error *err)
{
    static const apr_sink_ops ops = {.put = put,
                                     .finish = finish,
                                     .abandon = abandon,
                                     .total_bytes = total_bytes,
                                     .extent = extent_of,
                                     .pass = pass,
                                     .state = state_of,
                                     .note = remark_of,
                                     .done = done,
                                     .progress = progress_of};

    *sink = NULL;
    work_sink *const w = calloc(1, sizeof *w);
    if (w == NULL) return apr_no_memory(err, "an output file");
    *w = (work_sink){.base = {&ops}, .layout = layout, .options = *options, .open = open, .path = strdup(path), .fd = -1};
    w->part = options->work->part.part;
    w->makes_none = options->work->part.n_parts == 0;
    const apr_status status = begin(w, offsets, is_folder, err);
    if (status == APR_OK) *sink = &w->base;
    else close_work(w);
    return status;
}
