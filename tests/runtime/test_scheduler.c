/* runtime/session/scheduler.h: what a request is answered depends on nothing but the request, however many sequences there are, in whatever
 * order they come and however small the cache; a common prefix of requests is computed once; and all are answered. */
#include "runtime/session/scheduler.h"
#include "tests/support/fake_device.h"
#include "tests/support/program_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_REQUESTS = 23, N_CTX = 256, MOST = 24, VOCAB = 96, N_ALIKE = 150 };

typedef struct asked {
    int32_t prompt[N_CTX + 1];
    apr_request request;
    int32_t answer[MOST];
    int n_answer, n_done;
    apr_reply reply;
    int stop_after; /* the caller ends it there; 0: never */
} asked;

/* Those of a list, in the order of `stride`; `lazy` comes only when it is waited for, or asked for twice. */
typedef struct script {
    asked items[N_REQUESTS];
    int n, next, stride, n_asked;
    bool lazy;
    int end_after; /* tokens; 0: never */
    int n_tokens;
} script;

static int32_t id_of(int i, int position) { return (int32_t)((i * 31 + position * 37 + position * position) % VOCAB); }

/* Every third one begins as the others of its kind; lengths within a page, at its end, over it. */
static void write_script(script *s, int stride)
{
    *s = (script){.n = N_REQUESTS, .stride = stride};
    for (int i = 0; i < N_REQUESTS; i++) {
        asked *const a = &s->items[i];
        const int n = i % 3 == 0 ? N_ALIKE + i : 1 + i * 29 % 130;
        for (int p = 0; p < n; p++) a->prompt[p] = i % 3 == 0 && p < N_ALIKE ? id_of(1000, p) : id_of(i, p);
        a->request =
            (apr_request){.prompt = a->prompt,
                          .n_prompt = (size_t)n,
                          .max_tokens = 1 + i * 7 % MOST,
                          .sampling = {.temperature = i % 2 == 0 ? 0.0f : 1.5f, .top_p = i % 4 == 1 ? 0.9f : 1.0f, .seed = (uint64_t)i},
                          .tag = a};
        a->stop_after = i % 5 == 4 ? 3 : 0;
    }
}

static apr_status next(void *user, bool may_wait, apr_next *what, apr_request *request, apr_error *err)
{
    script *const s = user;
    (void)err;
    *what = s->next == s->n ? APR_NEXT_NONE : APR_NEXT_REQUEST;
    if (s->next == s->n) return APR_OK;
    if (s->lazy && !may_wait && s->n_asked++ % 2 == 0) {
        *what = APR_NEXT_LATER;
        return APR_OK;
    }
    *request = s->items[s->next++ * s->stride % s->n].request;
    return APR_OK;
}

static bool on_token(void *user, void *tag, int32_t id, bool is_stop)
{
    script *const s = user;
    asked *const a = tag;
    (void)is_stop;
    assert_true(a->n_answer < MOST && a->n_done == 0);
    a->answer[a->n_answer++] = id;
    s->n_tokens++;
    return a->stop_after == 0 || a->n_answer < a->stop_after;
}

static apr_status on_done(void *user, void *tag, const apr_reply *reply, apr_error *err)
{
    asked *const a = tag;
    (void)user, (void)err;
    a->n_done++;
    a->reply = *reply;
    return APR_OK;
}

static bool is_ended(void *user)
{
    const script *const s = user;
    return s->end_after > 0 && s->n_tokens >= s->end_after;
}

static const apr_cuda_api *cuda; /* where sessions are; NULL: the host */

static apr_schedule_stats run(script *s, const apr_model *model, int64_t n_sequences, int64_t kv_cells)
{
    const apr_schedule schedule = {.next = next, .on_token = on_token, .on_done = on_done, .is_ended = is_ended, .user = s};
    apr_session_options options = apr_session_defaults;
    apr_schedule_stats stats;
    apr_error err = {0};
    apr_session *session;
    options.n_ctx = N_CTX;
    options.n_batch = APR_PAGE_CELLS;
    options.n_threads = 2;
    options.n_sequences = n_sequences;
    options.cuda = cuda;
    options.kv_cells = kv_cells;
    if (apr_session_open(&session, model, &options, &err) != APR_OK) fail_msg("%s", err.text);
    if (apr_schedule_run(session, &schedule, &stats, &err) != APR_OK) fail_msg("%s", err.text);
    assert_int_equal(apr_session_free_pages(session), apr_session_plan(session)->n_pages); /* all given back */
    const apr_session_memory memory = apr_session_check_memory(session);
    assert_true(memory.as_planned || memory.measured == UINT64_MAX);
    apr_session_close(session);
    return stats;
}

/* A model of two layers. */
typedef struct two_layers {
    program_model m;
    uint8_t mixers[2], ffns[2];
} two_layers;

static void open_model(two_layers *t, const char *architecture, uint8_t first, uint8_t second, uint8_t ffn)
{
    apr_hparams h = program_model_sizes(architecture);
    apr_error err = {0};
    t->mixers[0] = first;
    t->mixers[1] = second;
    t->ffns[0] = t->ffns[1] = ffn;
    h.num_layers = 2;
    h.layer_kinds = t->mixers;
    h.ffn_kinds = t->ffns;
    if (ffn != APR_FFN_EXPERTS) h.num_experts = 0;
    if (program_model_open(&t->m, &h, APR_F32, &err) != APR_OK) fail_msg("%s", err.text);
}

static void compare(const script *a, const script *b, const char *what)
{
    for (int i = 0; i < N_REQUESTS; i++) {
        const asked *const x = &a->items[i], *const y = &b->items[i];
        if (x->n_done != 1 || y->n_done != 1) fail_msg("%s: request %d is answered %d times", what, i, y->n_done);
        assert_int_equal(x->reply.finish, y->reply.finish);
        assert_int_equal(x->n_answer, y->n_answer);
        assert_int_equal(x->reply.n_generated, y->reply.n_generated);
        if (memcmp(x->answer, y->answer, (size_t)x->n_answer * sizeof *x->answer) != 0)
            fail_msg("%s: request %d is answered otherwise", what, i);
    }
}

static void check_answers(size_t n_models)
{
    static const struct {
        const char *architecture;
        uint8_t mixers[2], ffn;
    } models[] = {{"llama", {APR_LAYER_FULL, APR_LAYER_FULL}, APR_FFN_DENSE},
                  {"qwen3_next", {APR_LAYER_LINEAR, APR_LAYER_FULL}, APR_FFN_EXPERTS},
                  {"gpt_oss", {APR_LAYER_SLIDING, APR_LAYER_FULL}, APR_FFN_EXPERTS},
                  {"lfm2", {APR_LAYER_CONV, APR_LAYER_FULL}, APR_FFN_DENSE},
                  {"granitemoehybrid", {APR_LAYER_MAMBA, APR_LAYER_FULL}, APR_FFN_DENSE}};
    static const struct {
        int64_t n_sequences, kv_cells;
        int stride;
        bool lazy;
    } ways[] = {{10, 0, 1, false}, {3, 0, 5, true}, {2, 0, 1, false}, {12, 512, 7, false}, {20, 0, 22, true}};
    static script alone, among;
    for (size_t k = 0; k < sizeof models / sizeof *models && k < n_models; k++) {
        two_layers t;
        open_model(&t, models[k].architecture, models[k].mixers[0], models[k].mixers[1], models[k].ffn);
        write_script(&alone, 1);
        const apr_schedule_stats one = run(&alone, &t.m.model, 1, 0);
        assert_int_equal(one.most_at_once, 1);
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            write_script(&among, ways[w].stride);
            among.lazy = ways[w].lazy;
            const apr_schedule_stats many = run(&among, &t.m.model, ways[w].n_sequences, ways[w].kv_cells);
            compare(&alone, &among, models[k].architecture);
            assert_int_equal(many.n_done, N_REQUESTS);
            assert_int_equal(many.n_generated, one.n_generated);
            assert_true(ways[w].n_sequences < 4 || many.most_at_once > 1);
        }
        program_model_close(&t.m);
    }
}

static void an_answer_depends_on_its_request_alone(void **state)
{
    (void)state;
    check_answers(SIZE_MAX);
}

/* What differs there, the pages and the rows of a step, is recorded and replayed; tokens are chosen without their logits. */
static void an_answer_on_a_device_depends_on_its_request_alone(void **state)
{
    (void)state;
    cuda = fake_device();
    const int before = fake_device_replays();
    check_answers(2);
    assert_true(fake_device_replays() > before);
    assert_int_equal(fake_device_graphs(), 0);
    cuda = NULL;
}

/* Ten prompts of so many tokens, eight tokens each; answers how many steps that took. */
static int64_t steps_of_ten(int64_t n_prompt)
{
    static script s;
    two_layers t;
    open_model(&t, "llama", APR_LAYER_FULL, APR_LAYER_FULL, APR_FFN_DENSE);
    write_script(&s, 1);
    s.n = 10;
    for (int i = 0; i < s.n; i++) {
        s.items[i].request.n_prompt = (size_t)n_prompt;
        s.items[i].request.max_tokens = 8;
        s.items[i].stop_after = 0;
    }
    const apr_schedule_stats stats = run(&s, &t.m.model, 12, 0);
    assert_int_equal(stats.n_done, 10);
    assert_int_equal(stats.n_generated, 80);
    program_model_close(&t.m);
    return stats.n_steps;
}

/* A prompt leaves its first token, and seven steps give the others, also of those who join last. */
static void short_prompts_join_several_at_a_time(void **state)
{
    (void)state;
    assert_int_equal(APR_PAGE_CELLS, 64);
    assert_int_equal(steps_of_ten(5), 7);  /* all at once */
    assert_int_equal(steps_of_ten(10), 8); /* seven and three */
    assert_int_equal(steps_of_ten(20), 9); /* four, four and two */
}

/* The equal ones follow one another; the others come between where they are in order. */
static void a_common_prefix_of_consecutive_requests_is_computed_once(void **state)
{
    static script s;
    two_layers t;
    (void)state;
    open_model(&t, "llama", APR_LAYER_FULL, APR_LAYER_FULL, APR_FFN_DENSE);
    write_script(&s, 3); /* 0, 3, 6, ... */
    const apr_schedule_stats stats = run(&s, &t.m.model, 6, 0);
    assert_true(stats.n_shared >= 6 * 128);
    assert_int_equal(s.items[3].reply.n_shared, 128);
    assert_int_equal(s.items[1].reply.n_shared, 0);
    program_model_close(&t.m);
}

static void what_cannot_be_answered_is_said_and_the_rest_goes_on(void **state)
{
    static script s;
    two_layers t;
    (void)state;
    open_model(&t, "llama", APR_LAYER_FULL, APR_LAYER_FULL, APR_FFN_DENSE);
    write_script(&s, 1);
    s.items[2].request.n_prompt = 0;
    for (int p = 0; p <= N_CTX; p++) s.items[5].prompt[p] = 1;
    s.items[5].request.n_prompt = N_CTX + 1;
    s.items[7].prompt[0] = VOCAB;
    s.items[8].request.max_tokens = 0;
    s.items[9].request.sampling.temperature = -1.0f;
    for (int p = 0; p < N_CTX; p++) s.items[11].prompt[p] = 1;
    s.items[11].request.n_prompt = N_CTX;
    s.items[11].request.max_tokens = MOST;
    s.items[11].stop_after = 0;
    run(&s, &t.m.model, 5, 0);
    for (int i = 0; i < N_REQUESTS; i++) {
        const bool is_bad = i == 2 || i == 5 || i == 7 || i == 8 || i == 9;
        assert_int_equal(s.items[i].n_done, 1);
        assert_int_equal(s.items[i].reply.status != APR_OK, is_bad);
        assert_int_equal(s.items[i].reply.error.text[0] != '\0', is_bad);
    }
    assert_non_null(strstr(s.items[5].reply.error.text, "the prompt has 257 tokens, more than the context of 256"));
    assert_int_equal(s.items[11].reply.finish, APR_FINISH_CONTEXT);
    assert_int_equal(s.items[11].n_answer, 1);
    program_model_close(&t.m);
}

static void a_run_that_is_ended_gives_up_what_is_under_way(void **state)
{
    static script s;
    two_layers t;
    int n_done = 0;
    (void)state;
    open_model(&t, "llama", APR_LAYER_FULL, APR_LAYER_FULL, APR_FFN_DENSE);
    write_script(&s, 1);
    s.end_after = 40;
    const apr_schedule_stats stats = run(&s, &t.m.model, 5, 0);
    for (int i = 0; i < N_REQUESTS; i++) n_done += s.items[i].n_done;
    assert_int_equal(n_done, stats.n_done);
    assert_true(n_done > 0 && n_done < N_REQUESTS);
    program_model_close(&t.m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_depends_on_its_request_alone),
        cmocka_unit_test(an_answer_on_a_device_depends_on_its_request_alone),
        cmocka_unit_test(short_prompts_join_several_at_a_time),
        cmocka_unit_test(a_common_prefix_of_consecutive_requests_is_computed_once),
        cmocka_unit_test(what_cannot_be_answered_is_said_and_the_rest_goes_on),
        cmocka_unit_test(a_run_that_is_ended_gives_up_what_is_under_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
