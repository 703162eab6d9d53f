/* runtime/session/session.h: memory is what was planned, by the C library's count; and whatever no line of the plan names is found. */
#include "runtime/session/heap.h"
#include "runtime/session/session_internal.h"
#include "tests/support/golden_model.h"
#include "tests/support/sanitizer.h"

#include <errno.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_TOKENS = 48, HIDDEN_BYTES = 1 << 20, BUFFER_BYTES = 16384 };

/* --- allocations of this program, counted where they are made --- */

/* Of BUFFER_BYTES and more: OpenMP makes a team for each parallel region, of 2 or 3 KiB for two threads. */
static int64_t n_buffers;

static void count_allocation(size_t n) { __atomic_add_fetch(&n_buffers, n >= BUFFER_BYTES, __ATOMIC_RELAXED); }

/* A sanitizer takes the place of the C library's allocator. */
#if APR_HAS_SANITIZER

int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void *, size_t), void (*on_free)(const volatile void *));

static void on_malloc(const volatile void *p, size_t n) { (void)p, count_allocation(n); }
static void on_free(const volatile void *p) { (void)p; }
static void count_from_now(void) { __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free); }

#else

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t alignment, size_t n);

void *malloc(size_t n)
{
    count_allocation(n);
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    count_allocation(n * size);
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    count_allocation(n);
    return __libc_realloc(p, n);
}

void *aligned_alloc(size_t alignment, size_t n)
{
    count_allocation(n);
    return __libc_memalign(alignment, n);
}

void *memalign(size_t alignment, size_t n)
{
    count_allocation(n);
    return __libc_memalign(alignment, n);
}

int posix_memalign(void **p, size_t alignment, size_t n)
{
    count_allocation(n);
    *p = __libc_memalign(alignment, n);
    return *p != NULL ? 0 : ENOMEM;
}

static void count_from_now(void) {}

#endif

/* --- sessions --- */

static golden g;
static int32_t ids[N_TOKENS];

static int open_golden(void **state)
{
    (void)state;
    count_from_now();
    return golden_open(&g, "tests/data/tiny-qwen2", NULL) != APR_OK || !golden_text(&g, ids, N_TOKENS);
}

static int close_golden(void **state)
{
    (void)state;
    golden_close(&g);
    return 0;
}

static apr_session *open_with(const apr_backend *backend, int64_t n_ctx, int64_t n_batch, apr_dtype kv_dtype)
{
    apr_session_options options = apr_session_defaults;
    apr_error err = {0};
    apr_session *s;
    options.backend = backend;
    options.n_ctx = n_ctx;
    options.n_batch = n_batch;
    options.kv_dtype = kv_dtype;
    options.n_threads = 2;
    if (apr_session_open(&s, &g.model, &options, &err) != APR_OK) fail_msg("%s", err.text);
    return s;
}

static void evaluate(apr_session *s) { assert_int_equal(apr_session_eval(s, ids, N_TOKENS, NULL, NULL), APR_OK); }

static void what_is_allocated_is_what_was_planned(void **state)
{
    static const struct {
        int64_t n_ctx, n_batch;
        apr_dtype kv;
    } cases[] = {{64, 8, APR_F16}, {1024, 512, APR_F16}, {1024, 512, APR_F32}, {1024, 64, APR_Q8_0}, {96, 1, APR_F8_E4M3}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_session *const s = open_with(NULL, cases[i].n_ctx, cases[i].n_batch, cases[i].kv);
        const apr_session_memory opened = apr_session_check_memory(s);
        evaluate(s);
        const apr_session_memory m = apr_session_check_memory(s);
        print_message("context %4lld, batch %3lld, cache %-4s: planned %7.1f KiB, the heap grew by %7.1f KiB, after a run %7.1f\n",
                      (long long)cases[i].n_ctx, (long long)cases[i].n_batch, apr_dtypes[cases[i].kv].name, (double)m.planned / 1024,
                      (double)opened.measured / 1024, (double)m.measured / 1024);
        assert_int_equal(m.on, APR_ON_HOST);
        assert_true(opened.as_planned && m.as_planned);
        assert_true(m.measured > 0 && m.planned > m.tables);
        assert_int_equal(m.planned - m.tables + m.mapped, apr_session_plan(s)->host_bytes);
        apr_session_close(s);
    }
}

/* --- faults that must be found --- */

static void *hidden;

static void store_and_keep_a_buffer(const apr_op_args *args)
{
    if (hidden == NULL) hidden = malloc(HIDDEN_BYTES);
    apr_host_backend.ops[APR_OP_KV_STORE](args);
}

static void a_buffer_that_no_line_names_is_found(void **state)
{
    apr_backend backend = apr_host_backend;
    (void)state;
    backend.ops[APR_OP_KV_STORE] = store_and_keep_a_buffer;
    apr_session *const s = open_with(&backend, 1024, 512, APR_F16);
    assert_true(apr_session_check_memory(s).as_planned);
    evaluate(s);
    const apr_session_memory m = apr_session_check_memory(s);
    assert_false(m.as_planned);
    assert_true(m.measured >= m.planned + HIDDEN_BYTES - APR_HOST_SLACK_BYTES);
    apr_session_close(s);
    free(hidden);
    hidden = NULL;
}

static void a_line_that_is_not_allocated_is_found(void **state)
{
    (void)state;
    apr_session *const s = open_with(NULL, 1024, 512, APR_F16);
    s->places[0].plan.host_bytes += HIDDEN_BYTES;
    assert_false(apr_session_check_memory(s).as_planned);
    s->places[0].plan.host_bytes -= HIDDEN_BYTES;
    assert_true(apr_session_check_memory(s).as_planned);
    apr_session_close(s);
}

static void store_with_a_passing_buffer(const apr_op_args *args)
{
    void *volatile passing = malloc(BUFFER_BYTES);
    free(passing);
    apr_host_backend.ops[APR_OP_KV_STORE](args);
}

/* A buffer that is freed again leaves no trace in the heap's count, but in that of allocations. */
static void evaluating_takes_no_buffers(void **state)
{
    apr_backend backend = apr_host_backend;
    (void)state;
    for (int i = 0; i < 2; i++) {
        if (i == 1) backend.ops[APR_OP_KV_STORE] = store_with_a_passing_buffer;
        apr_session *const s = open_with(&backend, 1024, 16, APR_F16);
        evaluate(s); /* OpenMP starts its threads */
        const int64_t before = n_buffers;
        evaluate(s);
        for (int t = 0; t < 4; t++) assert_int_equal(apr_session_eval(s, ids + t, 1, NULL, NULL), APR_OK);
        const int64_t n = n_buffers - before;
        print_message("%s: %lld buffers taken in 3 batches and 4 tokens\n", i == 0 ? "the host's operations" : "with a passing buffer",
                      (long long)n);
        if (i == 0) assert_int_equal(n, 0);
        else assert_int_equal(n, 7 * g.model.hparams.num_layers);
        apr_session_close(s);
    }
}

static apr_status allocate_as_a_caller(void *user, int64_t first, int64_t n_rows, const float *logits, apr_error *err)
{
    void **const kept = user;
    (void)first, (void)n_rows, (void)logits, (void)err;
    if (*kept == NULL) *kept = malloc(HIDDEN_BYTES);
    return APR_OK;
}

static void what_a_caller_allocates_is_its_own(void **state)
{
    void *kept = NULL;
    const apr_eval_output out = {.on_logits = allocate_as_a_caller, .user = &kept};
    (void)state;
    apr_session *const s = open_with(NULL, 1024, 512, APR_F16);
    assert_int_equal(apr_session_eval(s, ids, N_TOKENS, &out, NULL), APR_OK);
    assert_non_null(kept);
    assert_true(apr_session_check_memory(s).as_planned);
    apr_session_close(s);
    free(kept);
}

/* Four sessions, one after another; what the heap grew by. */
static int64_t grown_by_sessions(void)
{
    const uint64_t before = apr_heap_in_use();
    for (int i = 0; i < 4; i++) {
        apr_session *const s = open_with(NULL, 256, 32, APR_F16);
        evaluate(s);
        apr_session_close(s);
    }
    return (int64_t)(apr_heap_in_use() - before);
}

/* The C library keeps small blocks at hand for each thread, as many as its threads happened to free; what a session keeps is missing
 * every time. */
static void closing_gives_everything_back(void **state)
{
    int64_t least = INT64_MAX;
    (void)state;
    for (int i = 0; i < 12 && least > 0; i++) {
        const int64_t grown = grown_by_sessions();
        print_message("the heap grew by %lld bytes\n", (long long)grown);
        if (grown < least) least = grown;
    }
    assert_true(least <= 0);
}

static void a_forecast_is_the_plan_that_opening_makes(void **state)
{
    (void)state;
    apr_session *const s = open_with(NULL, 1024, 64, APR_F32);
    const apr_plan *const made = apr_session_plan(s);
    apr_session_options options = apr_session_defaults;
    apr_plan plan;
    options.n_ctx = 1024, options.n_batch = 64, options.kv_dtype = APR_F32;
    options.n_logits = made->n_logits;
    options.n_threads = 2;
    const uint64_t before = apr_heap_in_use();
    assert_int_equal(apr_session_forecast(&plan, &g.model, &options, NULL), APR_OK);
    assert_int_equal(plan.n_lines, made->n_lines);
    for (size_t i = 0; i < plan.n_lines; i++) {
        assert_int_equal(plan.lines[i].id, made->lines[i].id);
        assert_int_equal(plan.lines[i].bytes, made->lines[i].bytes);
        assert_string_equal(plan.lines[i].reason, made->lines[i].reason);
    }
    apr_plan_close(&plan);
    assert_true(apr_heap_in_use() <= before + 4096);

    options.budget_bytes = made->host_bytes - 1; /* what does not fit is reported, not refused */
    assert_int_equal(apr_session_forecast(&plan, &g.model, &options, NULL), APR_OK);
    assert_true(!plan.fits && plan.short_bytes == 1);
    apr_plan_close(&plan);
    apr_session_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_allocated_is_what_was_planned),     cmocka_unit_test(a_buffer_that_no_line_names_is_found),
        cmocka_unit_test(a_line_that_is_not_allocated_is_found),     cmocka_unit_test(evaluating_takes_no_buffers),
        cmocka_unit_test(what_a_caller_allocates_is_its_own),        cmocka_unit_test(closing_gives_everything_back),
        cmocka_unit_test(a_forecast_is_the_plan_that_opening_makes),
    };
    return cmocka_run_group_tests_name("session_memory", tests, open_golden, close_golden);
}
