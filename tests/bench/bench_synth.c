/* bench_synth.c - writes a checkpoint of random 16-bit weights in the shape of a config.json, for figures and for tests of size.
 *
 * usage: bench_synth CONFIG.json OUT_DIR. Bytes depend on nothing but the config, so that runs can be compared. */
#include "formats/hf/safetensors.h"
#include "formats/number/half.h"
#include "runtime/program/program.h"
#include "tools/plan/sizes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_VALUES = 1 << 23, RUN = 1 << 16 };

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

static apr_status write_checkpoint(const char *config, const char *out, apr_error *err)
{
    const apr_sink_options options = {.overwrite = true};
    apr_model source, skeleton;
    apr_program program;
    apr_sink *sink;
    uint64_t chunk = 0;
    uint16_t *const values = malloc(CHUNK_VALUES * sizeof *values);

    if (values == NULL) return apr_no_memory(err, "a chunk");
    APR_TRY(apr_model_open(&source, config, err));
    APR_TRY(apr_program_emit(&program, &source.hparams, err));
    APR_TRY(apr_skeleton_model(&skeleton, &program, &source, err));
    skeleton.attachments = source.attachments;
    skeleton.n_attachments = source.n_attachments;
    APR_TRY(apr_sink_open(&sink, APR_FORMAT_SAFETENSORS, out, &skeleton, &options, err));
    for (size_t i = 0; i < skeleton.n_tensors; i++) {
        const apr_status status = put_tensor(sink, &skeleton.tensors[i], values, &chunk, err);
        if (status == APR_OK) continue;
        apr_sink_abandon(sink);
        return status;
    }
    const apr_status status = apr_sink_finish(sink, err);
    apr_model_close(&skeleton);
    apr_program_close(&program);
    apr_model_close(&source);
    free(values);
    return status;
}

int main(int argc, char **argv)
{
    apr_error err = {0};

    if (argc != 3) {
        fprintf(stderr, "usage: bench_synth CONFIG.json OUT_DIR\n");
        return APR_E_USAGE;
    }
    const apr_status status = write_checkpoint(argv[1], argv[2], &err);
    if (status != APR_OK) fprintf(stderr, "bench_synth: %s\n", err.text);
    return (int)status;
}
