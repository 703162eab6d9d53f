/* runtime/check/subject.h: prompts that are continued together get what each gets alone, and end where each ends alone. */
#include "runtime/check/subject.h"

#include "runtime/session/sample.h"
#include "tests/support/edited_model.h"
#include "tests/support/failing_host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_PROMPTS = 4, LONGEST = 70, N_CTX = 96, LIMIT = 24, N_STEPS = 8 };

/* Of different lengths: one token, a few, more than a page. */
static const size_t lengths[N_PROMPTS] = {1, 5, LONGEST, 23};

static void make_prompts(int32_t ids[N_PROMPTS][LONGEST], apr_continuation all[N_PROMPTS])
{
    for (int k = 0; k < N_PROMPTS; k++) {
        for (int i = 0; i < LONGEST; i++) ids[k][i] = (k * 211 + i * 37 + i * i * 11 + 5) % 2000;
        all[k] = (apr_continuation){.prompt = ids[k], .n_prompt = lengths[k]};
    }
}

static void must_continue(const apr_subject *s, apr_continuation *all, size_t n, size_t limit)
{
    apr_error err = {0};
    if (apr_subject_continue(s, all, n, limit, &err) != APR_OK) fail_msg("%s", err.text);
}

static void free_ids(apr_continuation *all)
{
    for (int k = 0; k < N_PROMPTS; k++) free(all[k].ids);
}

/* Together and one by one; the ids are the same. */
static void check_together(const apr_subject *s, size_t limit, apr_continuation alone[N_PROMPTS])
{
    int32_t ids[N_PROMPTS][LONGEST];
    apr_continuation together[N_PROMPTS];

    make_prompts(ids, together);
    memcpy(alone, together, sizeof together);
    apr_session_reset(s->session);
    must_continue(s, together, N_PROMPTS, limit);
    assert_int_equal(apr_session_position(s->session), 0); /* they had a session of their own */
    for (int k = 0; k < N_PROMPTS; k++) {
        must_continue(s, &alone[k], 1, limit);
        assert_int_equal(together[k].n_ids, alone[k].n_ids);
        assert_memory_equal(together[k].ids, alone[k].ids, alone[k].n_ids * sizeof *alone[k].ids);
    }
    assert_true(apr_session_position(s->session) > 0);
    free_ids(together);
}

/* The bundled model, its matrices in a type. */
typedef struct made {
    apr_model reference;
    edited_model edited;
    apr_subject subject;
} made;

static void open_made(made *m, apr_dtype dtype)
{
    apr_error err = {0};
    if (apr_model_open(&m->reference, "tests/data/tiny-qwen2", &err) != APR_OK) fail_msg("%s", err.text);
    edited_model_open(&m->edited, &m->reference, NULL, dtype, dtype, BREAK_NONE);
    m->subject = (apr_subject){.path = "made", .vocab = &m->reference.vocab, .session = edited_model_session(&m->edited.model, N_CTX)};
}

static void close_made(made *m)
{
    apr_session_close(m->subject.session);
    edited_model_close(&m->edited);
    apr_model_close(&m->reference);
}

static const apr_dtype types[] = {APR_F32, APR_F16, APR_BF16, APR_Q8_0, APR_Q4_0, APR_MXFP4};

static void prompts_continue_together_as_each_does_alone(void **state)
{
    (void)state;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        apr_continuation alone[N_PROMPTS];
        made m;
        open_made(&m, types[t]);
        check_together(&m.subject, LIMIT, alone);
        free_ids(alone);
        close_made(&m);
    }
}

/* By a stop id that another prompt does not meet, by the limit, and by the end of the context. */
static void each_ends_where_it_ends_alone(void **state)
{
    apr_continuation first[N_PROMPTS], alone[N_PROMPTS];
    apr_vocab vocab;
    bool goes_on = false;
    made m;
    (void)state;

    open_made(&m, APR_Q8_0);
    vocab = m.reference.vocab;
    vocab.n_stop_ids = 0;
    m.subject.vocab = &vocab;
    check_together(&m.subject, N_CTX, first);
    for (int k = 0; k < N_PROMPTS; k++) assert_int_equal(first[k].n_ids, N_CTX - lengths[k] + 1); /* the last one is not evaluated */
    vocab.stop_ids[0] = first[1].ids[3];
    vocab.n_stop_ids = 1;
    check_together(&m.subject, LIMIT, alone);
    assert_true(alone[1].n_ids <= 4 && alone[1].ids[alone[1].n_ids - 1] == first[1].ids[3]);
    for (int k = 0; k < N_PROMPTS; k++) goes_on |= alone[k].n_ids == LIMIT;
    assert_true(goes_on);
    free_ids(first);
    free_ids(alone);
    close_made(&m);
}

/* Logits of a step in such a session, and of the same tokens in the session that it is like. */
static void a_sequence_has_the_logits_of_the_session_that_it_is_like(void **state)
{
    (void)state;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        int32_t ids[N_PROMPTS][LONGEST], next[N_PROMPTS];
        apr_continuation all[N_PROMPTS];
        apr_session *together;
        apr_error err = {0};
        made m;
        open_made(&m, types[t]);
        make_prompts(ids, all);
        const size_t width = (size_t)apr_session_program(m.subject.session)->vocab_size;
        float *const rows = malloc(N_PROMPTS * width * sizeof *rows);
        assert_non_null(rows);
        if (apr_session_open_sequences_like(&together, m.subject.session, N_PROMPTS, 5 * APR_PAGE_CELLS, &err) != APR_OK)
            fail_msg("%s", err.text);
        assert_int_equal(apr_session_plan(together)->n_pages, 5);
        for (int k = 0; k < N_PROMPTS; k++) {
            apr_session_use(together, k);
            assert_int_equal(apr_session_eval(together, ids[k], lengths[k], NULL, &err), APR_OK);
            memcpy(rows + (size_t)k * width, apr_session_logits(together), width * sizeof *rows);
        }
        for (int step = 0; step < N_STEPS; step++) {
            apr_sequence_token tokens[N_PROMPTS];
            for (int k = 0; k < N_PROMPTS; k++) {
                next[k] = (ids[k][0] + step * 97) % 2000;
                tokens[k] = (apr_sequence_token){k, next[k]};
            }
            assert_int_equal(apr_session_step(together, tokens, N_PROMPTS, &(apr_eval_output){.logits = rows}, &err), APR_OK);
        }
        for (int k = 0; k < N_PROMPTS; k++) {
            apr_session_reset(m.subject.session);
            assert_int_equal(apr_session_eval(m.subject.session, ids[k], lengths[k], NULL, &err), APR_OK);
            for (int step = 0; step < N_STEPS; step++) {
                next[k] = (ids[k][0] + step * 97) % 2000;
                assert_int_equal(apr_session_eval(m.subject.session, &next[k], 1, NULL, &err), APR_OK);
            }
            assert_memory_equal(apr_session_logits(m.subject.session), rows + (size_t)k * width, width * sizeof *rows);
        }
        free(rows);
        apr_session_close(together);
        close_made(&m);
    }
}

/* The first allocations are for the ids and the rows of a step, the next is the session's. */
static void without_memory_for_a_session_prompts_continue_one_after_another(void **state)
{
    int32_t ids[N_PROMPTS][LONGEST];
    apr_continuation all[N_PROMPTS], alone[N_PROMPTS];
    apr_error err = {0};
    made m;
    (void)state;

    open_made(&m, APR_Q8_0);
    check_together(&m.subject, LIMIT, alone);
    make_prompts(ids, all);
    apr_session_reset(m.subject.session);
    failing_host_allocation(N_PROMPTS + 2);
    const apr_status status = apr_subject_continue(&m.subject, all, N_PROMPTS, LIMIT, &err);
    failing_host_allocation(0);
    assert_int_equal(status, APR_OK);
    assert_true(apr_session_position(m.subject.session) > 0); /* they had no other */
    for (int k = 0; k < N_PROMPTS; k++) {
        assert_int_equal(all[k].n_ids, alone[k].n_ids);
        assert_memory_equal(all[k].ids, alone[k].ids, alone[k].n_ids * sizeof *alone[k].ids);
    }
    free_ids(all);
    free_ids(alone);
    for (int nth = 1; nth < N_PROMPTS + 1; nth++) {
        make_prompts(ids, all);
        failing_host_allocation(nth);
        const apr_status failure = apr_subject_continue(&m.subject, all, N_PROMPTS, LIMIT, &err);
        failing_host_allocation(0);
        assert_int_equal(failure, APR_E_MEMORY);
        free_ids(all);
    }
    close_made(&m);
}

/* An empty prompt, or one beyond the context, is refused as alone. */
static void what_cannot_be_continued_is_refused(void **state)
{
    int32_t ids[N_PROMPTS][LONGEST];
    apr_continuation all[N_PROMPTS];
    apr_error err = {0};
    made m;
    (void)state;

    open_made(&m, APR_F32);
    make_prompts(ids, all);
    all[2].n_prompt = 0;
    assert_int_equal(apr_subject_continue(&m.subject, all, N_PROMPTS, LIMIT, &err), APR_E_USAGE);
    assert_non_null(strstr(err.text, "the prompt is empty"));
    free_ids(all);
    make_prompts(ids, all);
    ids[3][0] = -1;
    err = (apr_error){0};
    assert_int_equal(apr_subject_continue(&m.subject, all, N_PROMPTS, LIMIT, &err), APR_E_USAGE);
    assert_non_null(strstr(err.text, "outside the vocabulary"));
    free_ids(all);
    close_made(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_continue_together_as_each_does_alone),
        cmocka_unit_test(each_ends_where_it_ends_alone),
        cmocka_unit_test(a_sequence_has_the_logits_of_the_session_that_it_is_like),
        cmocka_unit_test(without_memory_for_a_session_prompts_continue_one_after_another),
        cmocka_unit_test(what_cannot_be_continued_is_refused),
    };
    return cmocka_run_group_tests_name("subject", tests, NULL, NULL);
}
