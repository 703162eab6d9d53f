/* updates.h: steps taken by another thread give the bytes of those taken one after another, and no gradient is overwritten before its step. */
#include "kernels/rows.h"
#include "quant/heal/updates.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TENSORS = 9, ROWS = 8, MOST_COLUMNS = 640, STEPS = 12 };

static uint32_t seed = 1;

static float noise(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (float)(seed >> 8) / 8388608.0f - 1.0f;
}

/* Matrices of different widths, so that gradients meet the end of the ring at different places. */
typedef struct model {
    apr_tensor tensors[TENSORS];
    uint8_t *bytes[TENSORS];
    apr_trained trained;
} model;

static void open_model(model *m)
{
    static float weights[ROWS * MOST_COLUMNS];
    bool wanted[TENSORS];
    apr_error err = {0};

    seed = 7;
    for (int i = 0; i < TENSORS; i++) {
        const int64_t columns = 32 + 64 * i, n = ROWS * columns;
        for (int64_t k = 0; k < n; k++) weights[k] = noise();
        const size_t n_bytes = (size_t)apr_row_bytes(APR_Q8_0, n);
        m->bytes[i] = malloc(n_bytes);
        assert_non_null(m->bytes[i]);
        apr_host_codecs()[APR_Q8_0].encode(weights, m->bytes[i], n);
        m->tensors[i] =
            (apr_tensor){.name = "matrix", .dtype = APR_Q8_0, .rank = 2, .dims = {ROWS, columns}, .data = m->bytes[i], .n_bytes = n_bytes};
        wanted[i] = true;
    }
    if (apr_trained_open(&m->trained, m->tensors, TENSORS, wanted, &err) != APR_OK) fail_msg("%s", err.text);
}

static void close_model(model *m)
{
    apr_trained_close(&m->trained);
    for (int i = 0; i < TENSORS; i++) free(m->bytes[i]);
}

static const apr_latent_rates rates = {0.3f, 0.0f, 1e-3f, 0.0f};

static void fill(float *to, int64_t n)
{
    for (int64_t k = 0; k < n; k++) to[k] = noise();
}

static void train_directly(model *m)
{
    static float gradient[ROWS * MOST_COLUMNS];

    seed = 11;
    for (int step = 1; step <= STEPS; step++)
        for (int i = 0; i < TENSORS; i++) {
            fill(gradient, apr_tensor_elems(&m->tensors[i]));
            apr_trained_step(&m->trained, &m->tensors[i], gradient, &rates, step);
        }
}

/* Returns how many tensors were given back before the end of a step. */
static int train_by_updates(model *m, int64_t n_numbers)
{
    float *const memory = malloc((size_t)n_numbers * sizeof *memory);
    int early = 0, n_back = 0;
    apr_updates *u;
    apr_error err = {0};

    assert_non_null(memory);
    if (apr_updates_open(&u, &m->trained, memory, n_numbers, TENSORS, &err) != APR_OK) fail_msg("%s", err.text);
    seed = 11;
    for (int step = 1; step <= STEPS; step++) {
        const apr_tensor *back;
        int at = 0;
        for (int i = 0; i < TENSORS; i++) {
            const int64_t n = apr_tensor_elems(&m->tensors[i]);
            while ((back = apr_updates_ended(u)) != NULL) assert_ptr_equal(back, &m->tensors[at++]), early++;
            float *const room = apr_updates_room(u, n);
            assert_true(room >= memory && room + n <= memory + n_numbers);
            fill(room, n);
            apr_updates_add(u, &m->tensors[i], room, &rates, step);
        }
        while ((back = apr_updates_last(u)) != NULL) assert_ptr_equal(back, &m->tensors[at++]);
        assert_int_equal(at, TENSORS);
        n_back += at;
    }
    assert_int_equal(n_back, TENSORS * STEPS);
    apr_updates_close(u);
    free(memory);
    return early;
}

static void test_the_bytes_of_steps_taken_directly(void **state)
{
    static const int64_t largest = ROWS * (32 + 64 * (TENSORS - 1));
    (void)state;

    model direct;
    open_model(&direct);
    train_directly(&direct);
    for (int extra = 0; extra < 4; extra++) { /* from one gradient at a time to all of a step */
        model m;
        open_model(&m);
        const int early = train_by_updates(&m, largest + extra * extra * 1000);
        if (extra == 0) assert_true(early > 0); /* room for one: the one before has ended */
        for (int i = 0; i < TENSORS; i++) {
            assert_memory_equal(m.tensors[i].data, direct.tensors[i].data, m.tensors[i].n_bytes);
            assert_memory_not_equal(m.tensors[i].data, m.bytes[i], m.tensors[i].n_bytes);
        }
        close_model(&m);
    }
    close_model(&direct);
}

/* What was added is taken also where its end is not waited for. */
static void test_closing_takes_what_is_left(void **state)
{
    float memory[ROWS * 32];
    model m;
    apr_updates *u;
    apr_error err = {0};
    (void)state;

    open_model(&m);
    if (apr_updates_open(&u, &m.trained, memory, ROWS * 32, TENSORS, &err) != APR_OK) fail_msg("%s", err.text);
    assert_null(apr_updates_ended(u));
    assert_null(apr_updates_last(u));
    fill(apr_updates_room(u, ROWS * 32), ROWS * 32);
    apr_updates_add(u, &m.tensors[0], memory, &(apr_latent_rates){.code = 2.0f}, 1);
    apr_updates_close(u);
    assert_memory_not_equal(m.tensors[0].data, m.bytes[0], m.tensors[0].n_bytes);
    apr_updates_close(NULL);
    close_model(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_bytes_of_steps_taken_directly),
        cmocka_unit_test(test_closing_takes_what_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
