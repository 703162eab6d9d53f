/* bench_synth.c - writes a model of random weights in the shape of a config.json, for figures and for tests of size.
 *
 * usage: bench_synth CONFIG.json OUT_DIR: a checkpoint of 16-bit weights.
 *        bench_synth CONFIG.json OUT.apr TYPE: the model of `aprrun bench --synthetic --dtype TYPE`, with all experts.
 *        bench_synth CONFIG.json OUT.gguf TYPE: one of 16-bit weights, quantized: what is split or scaled on the way to GGUF cannot be
 *        quantized before. Neither has a tokenizer.
 * Bytes depend on nothing but the arguments, so that runs can be compared. */
#include "convert/run.h"
#include "formats/hf/safetensors.h"
#include "formats/number/half.h"
#include "runtime/program/program.h"
#include "tools/engine/bench/synthetic.h"
#include "tools/engine/plan/sizes.h"

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

static apr_status put_tensors(apr_sink *sink, const apr_model *model, apr_error *err)
{
    uint16_t *const values = malloc(CHUNK_VALUES * sizeof *values);
    apr_status status = values != NULL ? APR_OK : apr_no_memory(err, "a chunk");
    uint64_t chunk = 0;

    for (size_t i = 0; i < model->n_tensors && status == APR_OK; i++) status = put_tensor(sink, &model->tensors[i], values, &chunk, err);
    free(values);
    return status;
}

static apr_status write_checkpoint(const char *config, const char *out, apr_error *err)
{
    const apr_sink_options options = {.overwrite = true};
    apr_model source, skeleton;
    apr_program program;
    apr_sink *sink;

    APR_TRY(apr_model_open(&source, config, err));
    APR_TRY(apr_program_emit(&program, &source.hparams, err));
    APR_TRY(apr_skeleton_model(&skeleton, &program, &source, err));
    skeleton.attachments = source.attachments;
    skeleton.n_attachments = source.n_attachments;
    APR_TRY(apr_sink_open(&sink, APR_FORMAT_SAFETENSORS, out, &skeleton, &options, err));
    apr_status status = put_tensors(sink, &skeleton, err);
    if (status == APR_OK) status = apr_sink_finish(sink, err);
    else apr_sink_abandon(sink);
    apr_model_close(&skeleton);
    apr_program_close(&program);
    apr_model_close(&source);
    return status;
}

/* ---- quantized files ---- */

/* Checkpoints have some weights in more dimensions than programs: the steps to GGUF ask for these. 0: what is left. */
static const struct shape {
    const char *family, *end; /* end of the name; family NULL: any */
    int rank;
    int64_t dims[APR_MAX_RANK];
} shapes[] = {
    {NULL, "conv1d.weight", 3, {0, 1, 4}},
    {NULL, "altup.correction_coefs.weight", 2, {4, 4}},
    {NULL, "altup.prediction_coefs.weight", 2, {16, 4}},
    {"kimi_linear", "A_log", 4, {1, 1, 0, 1}},
};

static void give_shape(const char *family, apr_tensor *t)
{
    const size_t n = strlen(t->name);

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const size_t n_end = strlen(shapes[i].end);
        if (n < n_end || strcmp(t->name + n - n_end, shapes[i].end) != 0) continue;
        if (shapes[i].family != NULL && strcmp(shapes[i].family, family) != 0) continue;
        int64_t left = apr_tensor_elems(t);
        t->rank = shapes[i].rank;
        memcpy(t->dims, shapes[i].dims, sizeof t->dims);
        for (int d = 0; d < t->rank; d++) left /= t->dims[d] != 0 ? t->dims[d] : 1;
        for (int d = 0; d < t->rank; d++)
            if (t->dims[d] == 0) t->dims[d] = left;
    }
}

/* Layers that use the keys and values of earlier ones have weights of their own in checkpoints, which are not read. */
static apr_status add_unread(apr_synthetic *s, apr_error *err)
{
    static const char *const parts[] = {"k_proj.weight", "v_proj.weight", "k_norm.weight"};
    static const char first_layer[] = "model.layers.0.self_attn.";
    const apr_hparams *const h = &s->model.hparams;
    char name[128];

    for (int64_t layer = h->num_layers - h->num_kv_shared_layers; layer < h->num_layers; layer++)
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
            snprintf(name, sizeof name, "%s%s", first_layer, parts[i]);
            const apr_tensor *const like = apr_model_find(&s->model, name);
            if (like == NULL) continue;
            snprintf(name, sizeof name, "model.layers.%lld.self_attn.%s", (long long)layer, parts[i]);
            s->pool_of[s->model.n_tensors] = s->pool_of[like - s->model.tensors];
            apr_tensor *const added = &s->model.tensors[s->model.n_tensors++]; /* the tables have room for twice as many */
            *added = *like;
            added->name = apr_arena_copy(&s->model.arena, name, strlen(name));
            if (added->name == NULL) return apr_no_memory(err, "a name");
        }
    return apr_model_index_names(&s->model, err);
}

/* mixture: NULL: types stay. */
static apr_status convert(const apr_synthetic *s, apr_format format, const char *out, const char *mixture, apr_error *err)
{
    const apr_convert_options options = {.format = format, .sink = {.overwrite = true, .allow_loss = true}, .recipe = {.mixture = mixture}};
    const apr_convert_run once = {0};
    apr_conversion conversion = {0};

    apr_status status = apr_conversion_plan(&conversion, &s->model, &options, err);
    if (status == APR_OK) status = apr_conversion_run(&conversion, &once, out, NULL, err);
    apr_conversion_close(&conversion);
    return status;
}

static apr_status write_quantized(const char *config, const char *out, const char *type, apr_error *err)
{
    const char *const dot = strrchr(out, '.');
    const bool is_gguf = dot != NULL && strcmp(dot, ".gguf") == 0;
    apr_synthetic s;

    apr_status status = apr_synthetic_open(&s, config, is_gguf ? "bf16" : type, true, err);
    if (status == APR_OK && is_gguf) status = add_unread(&s, err);
    for (size_t i = 0; i < s.model.n_tensors && is_gguf; i++) give_shape(s.model.hparams.architecture, &s.model.tensors[i]);
    if (status == APR_OK) status = apr_synthetic_fill(&s, 1, NULL, err);
    if (status == APR_OK) status = convert(&s, is_gguf ? APR_FORMAT_GGUF : APR_FORMAT_APR, out, is_gguf ? type : NULL, err);
    apr_synthetic_close(&s);
    return status;
}

int main(int argc, char **argv)
{
    apr_error err = {0};

    if (argc != 3 && argc != 4) {
        fprintf(stderr, "usage: bench_synth CONFIG.json OUT_DIR, or CONFIG.json OUT.apr|OUT.gguf TYPE\n");
        return APR_E_USAGE;
    }
    const apr_status status = argc == 3 ? write_checkpoint(argv[1], argv[2], &err) : write_quantized(argv[1], argv[2], argv[3], &err);
    if (status != APR_OK) fprintf(stderr, "bench_synth: %s\n", err.text);
    return (int)status;
}
