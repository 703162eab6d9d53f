/* bench_host.c - how fast the host runs a model: prompt and decoding, in tokens/s and in GB/s of weights read.
 *
 * usage: bench_host MODEL [PROMPT_TOKENS [NEW_TOKENS]]. Each figure is the median of five runs after a warm-up. */
#include "convert/naming.h"
#include "formats/tensor/model.h"
#include "runtime/session/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { RUNS = 5 };

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Seconds for n tokens, evaluated `step` at a time from an empty context. */
static double measure(apr_session *session, const int32_t *ids, size_t n, size_t step, apr_error *err)
{
    double seconds[RUNS];
    for (int run = -1; run < RUNS; run++) {
        apr_session_reset(session);
        const double start = now_s();
        for (size_t at = 0; at < n; at += step)
            if (apr_session_eval(session, ids + at, n - at < step ? n - at : step, NULL, err) != APR_OK) return -1;
        if (run >= 0) seconds[run] = now_s() - start;
    }
    qsort(seconds, RUNS, sizeof *seconds, by_value);
    return seconds[RUNS / 2];
}

static apr_status bench(const char *path, size_t n_prompt, size_t n_new, apr_error *err)
{
    apr_session_options options = apr_session_defaults;
    apr_model source, model;
    apr_session *session;
    uint64_t weight_bytes = 0;

    APR_TRY(apr_model_open(&source, path, err));
    APR_TRY(apr_canonical(&model, &source, err));
    options.n_ctx = (int64_t)(n_prompt > n_new ? n_prompt : n_new);
    APR_TRY(apr_session_open(&session, &model, &options, err));
    int32_t *const ids = malloc((size_t)options.n_ctx * sizeof *ids);
    if (ids == NULL) return apr_no_memory(err, "a prompt");
    for (int64_t i = 0; i < options.n_ctx; i++) ids[i] = (int32_t)((i * 7919 + 13) % model.hparams.vocab_size);
    /* one token reads every matrix once; of an untied embedding it reads one row */
    for (size_t i = 0; i < model.n_tensors; i++) weight_bytes += model.tensors[i].n_bytes;
    const apr_tensor *const embedding = apr_model_find(&model, "model.embed_tokens.weight");
    if (!model.hparams.tie_word_embeddings && embedding != NULL) weight_bytes -= embedding->n_bytes;

    const double prompt = measure(session, ids, n_prompt, n_prompt, err), decode = measure(session, ids, n_new, 1, err);
    if (prompt < 0 || decode < 0) return err->status;
    printf("%-40s prompt of %zu: %8.1f tokens/s   decoding %zu: %7.2f tokens/s, %6.2f GB/s of weights\n", path, n_prompt,
           (double)n_prompt / prompt, n_new, (double)n_new / decode, (double)weight_bytes * (double)n_new / decode * 1e-9);
    free(ids);
    apr_session_close(session);
    apr_model_close(&model);
    apr_model_close(&source);
    return APR_OK;
}

int main(int argc, char **argv)
{
    apr_error err = {0};
    if (argc < 2) {
        fprintf(stderr, "usage: bench_host MODEL [PROMPT_TOKENS [NEW_TOKENS]]\n");
        return APR_E_USAGE;
    }
    const apr_status status = bench(argv[1], argc > 2 ? strtoul(argv[2], NULL, 10) : 64, argc > 3 ? strtoul(argv[3], NULL, 10) : 16, &err);
    if (status != APR_OK) fprintf(stderr, "bench_host: %s\n", err.text);
    return (int)status;
}
