/* A prompt in steps on a device gives the bits that its operations give one by one: every family, several types of weights and caches, one
 * sequence or several; and a watcher sees operations. But for q, k and v as one product, which cuBLAS may add in another order than
 * three, and for gate and up as FP16 (gpu_prompt.cu compares the bits of that): so prompts are also evaluated with gate and up as floats.
 *
 * usage: gpu_prompt_steps [TEST]: one of them, by its name, in which * stands for anything. */
#include "kernels/cuda_loader.h"
#include "runtime/program/ability.h"
#include "runtime/session/session_internal.h"
#include "tests/support/program_model.h"
#include "tests/support/replay_script.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_CTX = 320, N_BATCH = 130, ONE_BATCH = N_BATCH + 2, TWO_BATCHES = 2 * N_BATCH + 2 }; /* in steps, and two tokens */

static const apr_cuda_api *cuda;

typedef struct way {
    bool fused, watched, in_floats; /* gate and up */
    apr_dtype kv_dtype;
    int64_t n_sequences;
    size_t n_ids; /* of the prompt */
} way;

static apr_status see(void *user, apr_session *s, const apr_op *op, apr_error *err)
{
    (void)s, (void)op, (void)err;
    ++*(int *)user;
    return APR_OK;
}

/* The logits after the prompt, and after one more token, whose attention reads what was kept; *n: how many numbers. */
static float *evaluate(const program_model *m, const way *w, size_t *n, size_t *n_steps, size_t *n_glus)
{
    apr_session_options options = apr_session_defaults;
    const size_t width = (size_t)m->program.vocab_size;
    int32_t ids[TWO_BATCHES];
    int n_seen = 0;
    apr_error err = {0};

    options.n_ctx = N_CTX;
    options.n_batch = N_BATCH;
    options.kv_dtype = w->kv_dtype;
    options.n_sequences = w->n_sequences;
    options.cuda = cuda;
    options.no_replay = true; /* a token's operations are the same in both ways */
    options.no_fusion = !w->fused;
    apr_session *const s = must_open_session(&m->model, &options);
    for (size_t i = 0; i < w->n_ids; i++) ids[i] = (int32_t)((i * i + 7 * i) % width);
    *n = 2 * width;
    *n_steps = *n_glus = 0;
    for (size_t i = 0; i < s->places[0].prompt.n_steps; i++) {
        apr_fused *const step = &s->places[0].prompt.steps[i];
        *n_steps += step->kind == APR_FUSED_PROMPT;
        *n_glus += step->glu >= 0;
        if (w->in_floats) step->row_sums[0] = step->row_sums[1] = INFINITY;
    }
    float *const logits = malloc(*n * sizeof *logits);
    assert_non_null(logits);
    if (w->watched) apr_trace_watch(s, APR_OP_COUNT, see, &n_seen);
    for (int k = 0; k < 2; k++) {
        if (apr_session_eval(s, k == 0 ? ids : &ids[4], k == 0 ? w->n_ids : 1, NULL, &err) != APR_OK) fail_msg("%s", err.text);
        if (apr_session_read_logits(s, &err) != APR_OK) fail_msg("%s", err.text);
        memcpy(logits + (size_t)k * width, apr_session_logits(s), width * sizeof *logits);
    }
    if (w->watched) assert_int_equal(n_seen, 4 * m->program.n_ops - 2); /* of the first two batches no logits */
    apr_session_close(s);
    return logits;
}

/* As most models are: without the biases that a family may have where outputs are added or gated. */
static void drop_biases(program_model *m)
{
    static const char *const ends[] = {"o_proj.bias", "gate_proj.bias", "up_proj.bias", "down_proj.bias"};
    size_t n = 0;
    for (size_t i = 0; i < m->model.n_tensors; i++) {
        const char *const name = m->model.tensors[i].name;
        bool is_dropped = false;
        for (size_t k = 0; k < sizeof ends / sizeof *ends; k++) {
            const size_t length = strlen(ends[k]);
            is_dropped |= strlen(name) >= length && strcmp(name + strlen(name) - length, ends[k]) == 0;
        }
        if (!is_dropped) m->model.tensors[n++] = m->model.tensors[i];
    }
    m->model.n_tensors = n;
    assert_int_equal(apr_model_index_names(&m->model, NULL), APR_OK);
}

/* What numbers may be off by, of the largest: where sums are added in another order, 2^-22 of q, k and v, which round some of the cache's
 * numbers otherwise; and where gate and up have 11 bits, as inputs of products have. */
#define IN_ANOTHER_ORDER 1e-3
#define OF_11_BITS       3e-3

static void compare(const float *a, const float *b, size_t n, double bound, const char *what)
{
    double most = 0, off = 0;
    if (memcmp(a, b, n * sizeof *a) == 0) return;
    if (bound == 0) fail_msg("%s: other numbers", what);
    for (size_t i = 0; i < n; i++) {
        most = fmax(most, fabs((double)a[i]));
        off = isfinite(b[i]) ? fmax(off, fabs((double)a[i] - (double)b[i])) : INFINITY;
    }
    print_message("%s: rounded otherwise, %g of the largest\n", what, off / most);
    if (!(off <= bound * most)) fail_msg("%s: other numbers: %g of the largest", what, off / most);
}

/* Has a step q, k and v that are decoded, and so one product? */
static bool has_joined(const program_model *m)
{
    for (size_t i = 0; i < m->model.n_tensors; i++)
        if (strstr(m->model.tensors[i].name, "k_proj.weight") != NULL && m->model.tensors[i].dtype != APR_F16) return true;
    return false;
}

/* How many steps there are. Of several sequences the prompt's numbers alone are compared: a token after it is a row of a batch, which uses
 * other kernels where it is fused (gpu_rows.c). */
static size_t check(const program_model *m, apr_dtype kv_dtype, int64_t n_sequences, size_t n_ids, const char *what)
{
    size_t n, n_steps, n_separate_rows, n_glus;
    float *const apart = evaluate(m, &(way){false, false, false, kv_dtype, n_sequences, n_ids}, &n, &n_separate_rows, &n_glus);
    float *const floats = evaluate(m, &(way){true, false, true, kv_dtype, n_sequences, n_ids}, &n, &n_steps, &n_glus);
    float *const fused = n_glus > 0 ? evaluate(m, &(way){true, false, false, kv_dtype, n_sequences, n_ids}, &n, &n_steps, &n_glus) : NULL;
    assert_int_equal(n_separate_rows, 0);
    for (size_t i = 0; i < n; i++)
        if (!isfinite(apart[i])) fail_msg("%s: logit %zu is %g", what, i, (double)apart[i]);
    compare(apart, floats, n_sequences > 1 ? n / 2 : n, has_joined(m) ? IN_ANOTHER_ORDER : 0, what);
    if (fused != NULL) compare(apart, fused, n_sequences > 1 ? n / 2 : n, OF_11_BITS, what);
    free(apart);
    free(floats);
    free(fused);
    return n_steps;
}

static void every_family_gives_the_same_bits(void **state)
{
    (void)state;
    int n_layers = 0;
    for (size_t i = 0; i < apr_n_families; i++) {
        const char *const name = apr_families[i]->types[0].name;
        if (apr_family_ability(apr_families[i], cuda->backend) != APR_ABLE_RUN) continue;
        for (uint8_t mixer = 0; mixer <= APR_LAYER_NONE; mixer++) {
            program_model m;
            char what[96];
            if (!replay_open_layers(&m, name, mixer, 2)) continue;
            snprintf(what, sizeof what, "%s, layers of kind %d", name, mixer);
            n_layers += check(&m, APR_F16, 1, ONE_BATCH, what) > 0;
            program_model_close(&m);
        }
    }
    print_message("%d kinds of layers\n", n_layers);
    assert_true(n_layers >= 20);
}

static apr_hparams dense_sizes(const char *family)
{
    static uint8_t mixers[2] = {APR_LAYER_FULL, APR_LAYER_FULL}, ffns[2] = {APR_FFN_DENSE, APR_FFN_DENSE};
    apr_hparams h = program_model_sizes(family);
    h.layer_kinds = mixers;
    h.ffn_kinds = ffns;
    h.num_experts = 0;
    h.hidden_size = 256;
    h.intermediate_size = 512;
    h.num_heads = 8;
    return h;
}

static void every_type_of_weights_and_cache_gives_the_same_bits(void **state)
{
    static const apr_dtype weights[] = {APR_F16, APR_BF16, APR_Q8_0, APR_Q4_K, APR_MXFP4};
    static const char *const families[] = {"llama", "qwen2", "qwen3"};
    (void)state;
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        const apr_hparams h = dense_sizes(families[f]);
        for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) {
            program_model m;
            assert_int_equal(program_model_open(&m, &h, weights[i], NULL), APR_OK);
            drop_biases(&m);
            const apr_dtype kv_dtype = apr_kv_dtypes[i % APR_KV_DTYPES];
            assert_int_equal(check(&m, kv_dtype, 1, TWO_BATCHES, apr_dtypes[weights[i]].name),
                             8); /* those of a layer: products and their surroundings */
            if (i < 2) check(&m, kv_dtype, 2, N_BATCH, "several sequences");
            program_model_close(&m);
        }
    }
}

/* The same numbers also where each operation is watched. */
static void a_watcher_sees_every_operation(void **state)
{
    const apr_hparams h = dense_sizes("qwen2");
    program_model m;
    size_t n, n_steps, n_glus;
    (void)state;
    assert_int_equal(program_model_open(&m, &h, APR_Q8_0, NULL), APR_OK);
    drop_biases(&m);
    float *const steps = evaluate(&m, &(way){true, false, true, APR_F16, 1, TWO_BATCHES}, &n, &n_steps, &n_glus);
    float *const seen = evaluate(&m, &(way){true, true, false, APR_F16, 1, TWO_BATCHES}, &n, &n_steps, &n_glus);
    compare(seen, steps, n, has_joined(&m) ? IN_ANOTHER_ORDER : 0, "watched");
    free(seen);
    free(steps);
    program_model_close(&m);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_gives_the_same_bits),
        cmocka_unit_test(every_type_of_weights_and_cache_gives_the_same_bits),
        cmocka_unit_test(a_watcher_sees_every_operation),
    };
    apr_error err = {0};
    int n;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    if (apr_cuda_load(&cuda, &err) != APR_OK || cuda->count(&n, &err) != APR_OK) {
        printf("skipped: no device (%s)\n", err.text);
        return 77;
    }
    return cmocka_run_group_tests_name("gpu_prompt_steps", tests, NULL, NULL);
}
