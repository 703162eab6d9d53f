/* replay_script.c - prompts and tokens in every order. */
#include "tests/support/replay_script.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* So many times so many tokens together; begins: at the first position. Windows and rings of cells are passed more than once. */
static const struct {
    int n_times, n_together;
    bool begins;
} parts[] = {{1, 9, true},  {50, 1, false}, {1, 5, false}, {12, 1, false}, {6, 1, true},
             {1, 3, false}, {40, 1, false}, {1, 12, true}, {7, 1, false}};

/* The part and the place in it. */
static size_t part_of(int step, int *within)
{
    size_t i = 0;
    for (*within = step; i < sizeof parts / sizeof *parts && *within >= parts[i].n_times; i++) *within -= parts[i].n_times;
    return i;
}

/* In turn: what a generation asks for, what a sampler does, and the logits; all must agree. */
static void evaluate(apr_session *s, const int32_t *ids, size_t n, int step, float *logits)
{
    const size_t vocab_size = (size_t)apr_session_program(s)->vocab_size;
    apr_topk best = {.n_wanted = step % 3 == 0 ? 1 : APR_TOPK_MAX, .temperature = step % 3 == 0 ? 0.0f : 0.7f};
    const apr_eval_output only_best = {.best = &best}, both = {.logits = logits, .best = &best};
    apr_error err = {0};

    if (apr_session_eval(s, ids, n, step % 4 == 1 ? NULL : step % 4 == 2 ? &both : &only_best, &err) != APR_OK) fail_msg("%s", err.text);
    if (apr_session_read_logits(s, &err) != APR_OK) fail_msg("%s", err.text);
    memcpy(logits, apr_session_logits(s), vocab_size * sizeof *logits);
    if (step % 4 == 1) return;
    apr_topk reference = best;
    apr_topk_find(&reference, logits, (int64_t)vocab_size);
    assert_int_equal(best.n, reference.n);
    assert_memory_equal(best.ids, reference.ids, (size_t)best.n * sizeof *best.ids);
    for (int i = 0; i < best.n; i++) assert_true(best.logits[i] == reference.logits[i]);
    assert_true(fabs(best.sum - reference.sum) <= APR_TOPK_SUM_ERROR * reference.sum);
}

bool replay_script_step(replay_script *at, apr_session *s, float *logits)
{
    const int32_t vocab_size = (int32_t)apr_session_program(s)->vocab_size;
    int within;
    const size_t part = part_of(at->step, &within);
    int32_t ids[16];

    if (part == sizeof parts / sizeof *parts) return false;
    if (parts[part].begins && within == 0) apr_session_reset(s);
    for (int i = 0; i < parts[part].n_together; i++) ids[i] = (at->step * 37 + i * 11 + at->step * at->step + at->salt) % vocab_size;
    evaluate(s, ids, (size_t)parts[part].n_together, at->step, logits);
    at->step++;
    return true;
}

float *replay_script_run(apr_session *s, int32_t salt)
{
    const size_t vocab_size = (size_t)apr_session_program(s)->vocab_size;
    float *const all = malloc(REPLAY_SCRIPT_STEPS * vocab_size * sizeof *all);
    replay_script at = {.salt = salt};

    assert_non_null(all);
    while (at.step < REPLAY_SCRIPT_STEPS) assert_true(replay_script_step(&at, s, all + (size_t)at.step * vocab_size));
    assert_false(replay_script_step(&at, s, all));
    return all;
}

bool replay_open_layers(program_model *m, const char *architecture, uint8_t mixer, int n_layers)
{
    static const uint8_t ffns[] = {APR_FFN_EXPERTS, APR_FFN_DENSE, APR_FFN_NONE};
    static uint8_t mixers[2], both[2];

    mixers[0] = mixers[1] = mixer;
    for (int i = 0; i < 3; i++) {
        apr_hparams h = program_model_sizes(architecture);
        both[0] = both[1] = ffns[i];
        h.num_layers = n_layers;
        h.layer_kinds = mixers;
        h.ffn_kinds = both;
        if (ffns[i] != APR_FFN_EXPERTS) h.num_experts = 0;
        if (program_model_open(m, &h, APR_BF16, NULL) == APR_OK) return true;
    }
    return false;
}

bool replay_has_host_tables(const apr_program *program)
{
    for (size_t i = 0; i < program->n_weights; i++)
        if (apr_slot_is_read_on_host(&program->weights[i])) return true;
    return false;
}
