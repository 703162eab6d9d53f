/* run.c - runs a planned conversion: opens the sink and the pipe, and writes the terms that several runs must agree on. Terms are never
 * parsed, only compared; the first difference is reported. */
#include "convert/run.h"

#include "convert/naming.h"
#include "formats/base/crc32.h"
#include "formats/base/grow.h"
#include "formats/files/inputs.h"
#include "kernels/rows.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 256, SAMPLE_BYTES = 4096, HEAD_BYTES = 64 * 1024, PROBE_VALUES = 4096 };

typedef struct lines {
    char *text;
    size_t n, capacity;
    bool failed; /* out of memory */
} lines;

__attribute__((format(printf, 2, 3))) static void add(lines *l, const char *format, ...)
{
    va_list list, again;

    va_start(list, format);
    va_copy(again, list);
    const int n = vsnprintf(NULL, 0, format, list);
    va_end(list);
    char *const text = n >= 0 && !l->failed ? apr_grow(l->text, &l->capacity, l->n + (size_t)n + 1, 1) : NULL;
    l->failed |= text == NULL;
    if (text != NULL) l->text = text;
    if (!l->failed) l->n += (size_t)vsnprintf(l->text + l->n, l->capacity - l->n, format, again);
    va_end(again);
}

/* The CRC of the start, of samples throughout the file, and of the end. Another model of the same shapes differs there, and so does
 * a model in which a large tensor has changed. */
static uint32_t sample(const uint8_t *data, size_t n)
{
    uint32_t crc = apr_map_crc32(0, data, n < HEAD_BYTES ? n : HEAD_BYTES);

    for (size_t i = 1; i <= SAMPLES && n > HEAD_BYTES; i++) {
        const size_t end = i < SAMPLES ? n / SAMPLES * i : n, bytes = end < SAMPLE_BYTES ? end : SAMPLE_BYTES;
        crc = apr_map_crc32(crc, data + end - bytes, bytes);
    }
    return crc;
}

static const char *name_of(const apr_input *input)
{
    const char *const slash = strrchr(input->path, '/');
    return slash != NULL ? slash + 1 : input->path;
}

static void add_input(lines *l, const apr_input *input, bool with_time)
{
    add(l, "input %s of %lld bytes", name_of(input), (long long)input->at_open.st_size);
    if (input->data != NULL) add(l, ", %08" PRIx32 " in %d samples", sample(input->data, input->n_bytes), (int)SAMPLES);
    if (with_time) add(l, ", of %lld.%09ld", (long long)input->at_open.st_mtim.tv_sec, input->at_open.st_mtim.tv_nsec);
    add(l, "\n");
}

static int by_name(const void *a, const void *b)
{
    const apr_input *const x = *(const apr_input *const *)a, *const y = *(const apr_input *const *)b;
    const int names = strcmp(name_of(x), name_of(y));
    if (names != 0) return names;
    return x->at_open.st_size < y->at_open.st_size ? -1 : x->at_open.st_size > y->at_open.st_size;
}

/* Sorted by name, because another host may have opened them in another order. */
static apr_status add_inputs(lines *l, bool with_time, apr_error *err)
{
    size_t n = 0;

    for (const apr_input *input = apr_inputs(); input != NULL; input = input->next) n++;
    const apr_input **const all = calloc(n + 1, sizeof *all);
    if (all == NULL) return apr_no_memory(err, "the inputs");
    n = 0;
    for (const apr_input *input = apr_inputs(); input != NULL; input = input->next) all[n++] = input;
    qsort(all, n, sizeof *all, by_name);
    for (size_t i = 0; i < n; i++) add_input(l, all[i], with_time);
    free(all);
    return APR_OK;
}

/* In the order of merging. Their files are inputs also, but those lines do not say which factor belongs to which adapter. */
static void add_adapters(lines *l, const apr_adapter_use *uses, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const apr_model *const files = &uses[i].adapter->files;
        uint32_t crc = 0;
        for (size_t k = 0; k < files->n_maps; k++) crc ^= sample(files->maps[k].data, files->maps[k].n_bytes);
        add(l, "adapter %zu, %08" PRIx32 ", factor %a\n", i + 1, crc, (double)uses[i].factor);
    }
}

apr_status apr_inputs_terms(char **text, const apr_adapter_use *uses, size_t n_uses, apr_error *err)
{
    lines l = {0};
    const apr_status status = add_inputs(&l, true, err);

    add_adapters(&l, uses, n_uses);

    *text = NULL;
    if (status == APR_OK && !l.failed) *text = l.text;
    else free(l.text);
    return status == APR_OK && l.failed ? apr_no_memory(err, "the terms of a run") : status;
}

/* The CRC of what an encoder makes of values of all magnitudes: shows if another version of it gives other bytes. */
static uint32_t probe(apr_dtype to, const float *values, uint8_t *bytes)
{
    float scale = 0.0f;

    if (apr_dtypes[to].scales == APR_SCALES_SEPARATE) apr_encode_fp8_row(values, bytes, &scale, PROBE_VALUES);
    else apr_host_codecs()[to].encode(values, bytes, PROBE_VALUES);
    const uint32_t crc = apr_crc32(0, bytes, (size_t)apr_row_bytes(to, PROBE_VALUES));
    return apr_crc32(crc, &scale, sizeof scale);
}

/* The same with importance: the magnitude of each value. */
static uint32_t probe_by(apr_dtype to, const float *values, uint8_t *bytes)
{
    float importance[PROBE_VALUES];

    for (int i = 0; i < PROBE_VALUES; i++) importance[i] = values[i] < 0.0f ? -values[i] : values[i];
    apr_host_codecs()[to].encode_by(values, importance, bytes, PROBE_VALUES);
    return apr_crc32(0, bytes, (size_t)apr_row_bytes(to, PROBE_VALUES));
}

static void add_encoders(lines *l, const apr_conversion *c)
{
    float values[PROBE_VALUES];
    uint8_t bytes[8 * PROBE_VALUES];
    bool is_used[APR_DTYPE_COUNT] = {0};
    uint32_t x = 1;

    for (int i = 0; i < PROBE_VALUES; i++) {
        x = x * 1664525u + 1013904223u;
        const float unit = (float)(int32_t)x * 0x1p-31f; /* some sub-blocks of 32 are near zero, some have one large value */
        values[i] = unit * (float)(1 + i / 32 % 7) * ((x >> 9) % 37 == 0 ? 4.0f : 0.25f);
    }
    for (size_t i = 0; i < c->layout.n_tensors; i++)
        is_used[c->items[i].to] |= c->items[i].to != c->items[i].from->dtype && apr_can_encode(c->items[i].to);
    for (int to = 0; to < APR_DTYPE_COUNT; to++) {
        if (!is_used[to]) continue;
        add(l, "encoder %s gives %08" PRIx32 "\n", apr_dtypes[to].name, probe((apr_dtype)to, values, bytes));
        if (c->options.imatrix == NULL || apr_host_codecs()[to].encode_by == NULL) continue;
        add(l, "encoder %s by importance gives %08" PRIx32 "\n", apr_dtypes[to].name, probe_by((apr_dtype)to, values, bytes));
    }
}

static void add_recipe(lines *l, const apr_conversion *c, const apr_convert_run *options)
{
    add(l, "saturate %s\n", options->pipe.saturate ? "yes" : "no");
    if (options->maker_terms != NULL) add(l, "method %s\n", options->maker_terms);
    if (c->options.imatrix != NULL)
        add(l, "importance of %zu tensors, %08" PRIx32 "\n", c->options.imatrix->n_entries, apr_imatrix_sum(c->options.imatrix));
    add_adapters(l, c->options.adapters, c->options.n_adapters);
    for (size_t i = 0; i < c->layout.n_tensors; i++)
        add(l, "tensor '%s' %s -> %s\n", c->layout.tensors[i].name, apr_dtypes[c->items[i].from->dtype].name,
            apr_dtypes[c->items[i].to].name);
}

/* Sets work->terms and work->continues; both live in the layout's arena. */
static apr_status make_terms(apr_sink_work *work, apr_conversion *c, const apr_convert_run *options, apr_error *err)
{
    lines l = {0};
    bool *const continues = apr_arena_array(&c->layout.arena, c->layout.n_tensors + 1, sizeof *continues);

    if (continues == NULL) return apr_no_memory(err, "the terms of a run");
    for (size_t i = 0; i < c->layout.n_tensors; i++) continues[i] = c->items[i].is_scales;
    work->continues = continues;
    const bool is_alone = work->part.n_parts == 1 && work->part.part == 0;
    APR_TRY(add_inputs(&l, is_alone, err));
    add_recipe(&l, c, options);
    add_encoders(&l, c);
    work->terms = l.failed ? NULL : apr_arena_copy(&c->layout.arena, l.text, l.n);
    free(l.text);
    return work->terms != NULL ? APR_OK : apr_no_memory(err, "the terms of a run");
}

static apr_status run_pipe(apr_conversion *c, const apr_convert_run *run, apr_sink *sink, apr_error *err)
{
    apr_pipe_options pipe = run->pipe;

    pipe.source = c->source;
    const apr_status status = apr_pipe_run(sink, c->items, c->layout.n_tensors, &pipe, err);
    if (status == APR_OK) {
        c->progress = apr_sink_progress_of(sink);
        if (c->progress.folder != NULL) c->progress.folder = apr_arena_print(&c->layout.arena, "%s", c->progress.folder);
        return apr_sink_finish(sink, err);
    }
    apr_sink_abandon(sink);
    return status;
}

/* Reads the output as every later reader will: opens it and makes the canonical view. */
static apr_status read_canonical(const char *path, apr_error *err)
{
    apr_model model, view = {0};

    APR_TRY(apr_model_open(&model, path, err));
    const apr_status status = apr_canonical(&view, &model, err);
    apr_model_close(&view);
    apr_model_close(&model);
    return status;
}

apr_status apr_conversion_run(apr_conversion *c, const apr_convert_run *run, const char *path, uint64_t *file_bytes, apr_error *err)
{
    apr_sink_options options = c->options.sink;
    apr_sink_work work = {0};
    apr_sink *sink;

    options.reader = read_canonical;
    if (run->part != NULL) {
        work.part = *run->part;
        APR_TRY(make_terms(&work, c, run, err));
        options.work = &work;
    }
    if (c->source->stated_crcs != NULL) APR_TRY(apr_model_check_head(c->source, err));
    APR_TRY(apr_sink_open(&sink, c->options.format, path, &c->layout, &options, err));
    if (file_bytes != NULL) *file_bytes = apr_sink_total_bytes(sink);
    return run_pipe(c, run, sink, err);
}
