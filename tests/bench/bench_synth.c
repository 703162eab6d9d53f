/* bench_synth.c - writes a model of random weights in the shape of a config.json, for figures and for tests of size.
 *
 * usage: bench_synth CONFIG.json OUT_DIR: a checkpoint of 16-bit weights.
 *        bench_synth CONFIG.json OUT.apr TYPE: matrices of that type of blocks, also one that nothing here encodes; they are random
 *        bytes, drawn anew where they stand for something as large as 100.
 * Bytes depend on nothing but the arguments, so that runs can be compared. */
#include "formats/base/random.h"
#include "formats/hf/safetensors.h"
#include "formats/number/half.h"
#include "kernels/rows.h"
#include "runtime/program/program.h"
#include "tools/engine/plan/sizes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { CHUNK_VALUES = 1 << 23, RUN = 1 << 16, PATTERN_BLOCKS = 4093 /* a prime: rows do not repeat in step with it */ };

/* Four bytes of noise summed up: near enough to a normal distribution of standard deviation 0.02. */
static void fill(uint16_t *values, size_t n, apr_dtype dtype, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        const uint32_t r = (uint32_t)(seed >> 32);
        const int sum = (int)(r & 255) + (int)(r >> 8 & 255) + (int)(r >> 16 & 255) + (int)(r >> 24) - 510;
        const float x = (float)sum * (0.02f / 147.8f);
        values[i] = dtype == APR_F16 ? apr_f32_to_f16(x) : (uint16_t)(apr_f32_bits(x) >> 16);
    }
}

/* On all cores; `chunk` counts through the whole checkpoint. */
static void fill_chunk(uint16_t *values, size_t n, apr_dtype dtype, uint64_t chunk)
{
#pragma omp parallel for
    for (size_t at = 0; at < n; at += RUN) {
        const uint64_t seed = 88172645463325252u + (chunk * CHUNK_VALUES + at) * 0x9e3779b97f4a7c15u;
        fill(values + at, n - at < RUN ? n - at : RUN, dtype, seed != 0 ? seed : 1);
    }
}

/* ---- blocks ---- */

static bool is_usual(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!(x[i] < 100.0f && x[i] > -100.0f)) return false; /* NaN too */
    return true;
}

/* PATTERN_BLOCKS blocks. Half of the scales that random bits make are small. */
static void draw_blocks(uint8_t *pattern, apr_dtype dtype)
{
    const size_t n_bytes = (size_t)apr_dtypes[dtype].bytes_per_block;
    uint64_t state = 1;
    float x[256];

    for (int b = 0; b < PATTERN_BLOCKS; b++) {
        uint8_t *const block = pattern + (size_t)b * n_bytes;
        do {
            for (size_t i = 0; i < n_bytes; i++) block[i] = (uint8_t)(apr_random(&state) >> 56);
            apr_ref_codecs[dtype].decode(block, x, apr_dtypes[dtype].elems_per_block);
        } while (!is_usual(x, apr_dtypes[dtype].elems_per_block));
    }
}

static apr_status put_blocks(apr_sink *sink, const apr_tensor *tensor, const uint8_t *pattern, apr_error *err)
{
    const size_t most = PATTERN_BLOCKS * (size_t)apr_dtypes[tensor->dtype].bytes_per_block;
    for (uint64_t left = tensor->n_bytes; left > 0;) {
        const size_t n = left < most ? (size_t)left : most;
        APR_TRY(apr_sink_put(sink, pattern, n, err));
        left -= n;
    }
    return APR_OK;
}

/* Matrices whose rows are whole blocks. */
static apr_status make_blocks(apr_model *model, apr_dtype dtype, apr_error *err)
{
    for (size_t i = 0; i < model->n_tensors; i++) {
        apr_tensor *const t = &model->tensors[i];
        if (t->rank < 2 || apr_tensor_columns(t) % apr_dtypes[dtype].elems_per_block != 0) continue;
        t->dtype = dtype;
        APR_TRY(apr_tensor_size(t, model->path, err));
    }
    return APR_OK;
}

/* ---- 16-bit numbers ---- */

static apr_status put_tensor(apr_sink *sink, const apr_tensor *tensor, uint16_t *values, uint64_t *chunk, apr_error *err)
{
    const bool is_norm = strstr(tensor->name, "norm") != NULL;
    for (uint64_t left = tensor->n_bytes / 2; left > 0;) {
        const size_t n = left < CHUNK_VALUES ? (size_t)left : CHUNK_VALUES;
        if (is_norm)
            for (size_t i = 0; i < n; i++) values[i] = tensor->dtype == APR_F16 ? 0x3c00 : 0x3f80; /* 1.0 */
        else fill_chunk(values, n, tensor->dtype, (*chunk)++);
        APR_TRY(apr_sink_put(sink, values, 2 * n, err));
        left -= n;
    }
    return APR_OK;
}

/* pattern: of the tensors that are `blocks`. */
static apr_status put_tensors(apr_sink *sink, const apr_model *model, const uint8_t *pattern, apr_dtype blocks, apr_error *err)
{
    uint16_t *const values = malloc(CHUNK_VALUES * sizeof *values);
    apr_status status = values != NULL ? APR_OK : apr_no_memory(err, "a chunk");
    uint64_t chunk = 0;

    for (size_t i = 0; i < model->n_tensors && status == APR_OK; i++) {
        const apr_tensor *const t = &model->tensors[i];
        status = pattern != NULL && t->dtype == blocks ? put_blocks(sink, t, pattern, err) : put_tensor(sink, t, values, &chunk, err);
    }
    free(values);
    return status;
}

/* blocks: NULL for a checkpoint. */
static apr_status write_model(const char *config, const char *out, const apr_dtype *blocks, apr_error *err)
{
    const apr_sink_options options = {.overwrite = true};
    apr_model source, skeleton;
    apr_program program;
    apr_sink *sink;
    uint8_t *const pattern = blocks != NULL ? malloc(PATTERN_BLOCKS * (size_t)apr_dtypes[*blocks].bytes_per_block) : NULL;

    if (blocks != NULL && pattern == NULL) return apr_no_memory(err, "random blocks");
    if (blocks != NULL) draw_blocks(pattern, *blocks);
    APR_TRY(apr_model_open(&source, config, err));
    APR_TRY(apr_program_emit(&program, &source.hparams, err));
    APR_TRY(apr_skeleton_model(&skeleton, &program, &source, err));
    skeleton.attachments = source.attachments;
    skeleton.n_attachments = source.n_attachments;
    if (blocks != NULL) APR_TRY(make_blocks(&skeleton, *blocks, err));
    APR_TRY(apr_sink_open(&sink, blocks != NULL ? APR_FORMAT_APR : APR_FORMAT_SAFETENSORS, out, &skeleton, &options, err));
    apr_status status = put_tensors(sink, &skeleton, pattern, blocks != NULL ? *blocks : APR_F32, err);
    if (status == APR_OK) status = apr_sink_finish(sink, err);
    else apr_sink_abandon(sink);
    apr_model_close(&skeleton);
    apr_program_close(&program);
    apr_model_close(&source);
    free(pattern);
    return status;
}

/* Of blocks with scales of their own, whole rows at a time. */
static bool find_blocks(const char *name, apr_dtype *dtype)
{
    for (int d = 0; d < APR_DTYPE_COUNT; d++) {
        const apr_dtype_facts *const facts = &apr_dtypes[d];
        if (strcasecmp(name, facts->name) != 0 || facts->scales != APR_SCALES_INSIDE || facts->flat) continue;
        *dtype = (apr_dtype)d;
        return apr_can_decode(*dtype);
    }
    return false;
}

int main(int argc, char **argv)
{
    apr_error err = {0};
    apr_dtype blocks;

    if ((argc != 3 && argc != 4) || (argc == 4 && !find_blocks(argv[3], &blocks))) {
        fprintf(stderr, "usage: bench_synth CONFIG.json OUT_DIR, or CONFIG.json OUT.apr TYPE (one of blocks with scales, as iq2_xs)\n");
        return APR_E_USAGE;
    }
    const apr_status status = write_model(argv[1], argv[2], argc == 4 ? &blocks : NULL, &err);
    if (status != APR_OK) fprintf(stderr, "bench_synth: %s\n", err.text);
    return (int)status;
}
