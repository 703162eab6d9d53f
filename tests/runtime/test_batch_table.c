/* runtime/plan/batch_table.h: the batch table of a device has its place in the plan, to the byte, and only on a device. */
#include "runtime/plan/batch_table.h"

#include "runtime/plan/plan.h"
#include "tests/support/program_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_CTX = 1000, N_PAGES = 16, N_SEQUENCES = 5 };

static const uint8_t mixers[] = {APR_LAYER_FULL, APR_LAYER_SLIDING}, ffns[] = {APR_FFN_DENSE, APR_FFN_DENSE};

static void make(apr_program *program, apr_plan *plan, int64_t n_sequences, const apr_gpu *gpu)
{
    apr_hparams h = program_model_sizes("gemma3_text");
    apr_plan_options options = apr_plan_defaults;
    apr_error err = {0};
    h.layer_kinds = mixers;
    h.ffn_kinds = ffns;
    h.num_experts = 0;
    options.n_ctx = N_CTX;
    options.n_batch = APR_PAGE_CELLS;
    options.n_sequences = n_sequences;
    options.gpu = gpu;
    if (apr_program_emit(program, &h, &err) != APR_OK || apr_plan_make(plan, program, &options, &err) != APR_OK) fail_msg("%s", err.text);
}

static uint64_t line_bytes(const apr_plan *plan, apr_line_id id)
{
    const apr_plan_line *const line = apr_plan_line_of(plan, id);
    return line != NULL ? line->bytes : 0;
}

static const apr_line_id of_states[] = {APR_LINE_KV,        APR_LINE_KV_LATENT,  APR_LINE_KV_WINDOW,
                                        APR_LINE_RECURRENT, APR_LINE_KV_ORDERED, APR_LINE_STEP};

static uint64_t all_states(const apr_plan *plan)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof of_states / sizeof *of_states; i++) sum += line_bytes(plan, of_states[i]);
    return sum;
}

static void rows_are_contiguous_and_end_where_the_table_does(void **state)
{
    const uint64_t n_bytes = apr_batch_table_bytes(N_SEQUENCES, N_CTX);
    uint8_t *const memory = malloc(n_bytes);
    (void)state;
    const apr_batch_table t = apr_batch_table_at(memory, N_SEQUENCES, N_CTX);
    assert_int_equal(t.most, N_PAGES);
    assert_ptr_equal(t.found, memory);
    assert_ptr_equal(t.positions, t.found + N_SEQUENCES);
    assert_ptr_equal(t.ids, t.positions + N_SEQUENCES);
    assert_ptr_equal(t.slots, t.ids + N_SEQUENCES);
    assert_ptr_equal(t.pages, t.slots + N_SEQUENCES);
    const uint8_t *const end = (const uint8_t *)(t.pages + N_SEQUENCES * N_PAGES);
    assert_true(end <= memory + n_bytes && memory + n_bytes < end + 64);
    assert_int_equal(apr_batch_sent_bytes(N_SEQUENCES, N_SEQUENCES, N_CTX), end - (const uint8_t *)t.positions);
    assert_int_equal(apr_batch_sent_bytes(N_SEQUENCES, 2, N_CTX), (const uint8_t *)(t.pages + 2 * N_PAGES) - (const uint8_t *)t.positions);
    free(memory);
}

static void a_device_plans_a_batch_table_and_one_gathered_sequence(void **state)
{
    const apr_gpu *const gpu = apr_gpu_find("h200");
    apr_program program;
    apr_plan plan;
    (void)state;
    make(&program, &plan, N_SEQUENCES, gpu);
    const uint64_t of_layer = (uint64_t)N_PAGES * APR_PAGE_CELLS * 2 * 2 * 32 * 2; /* keys and values of 2 heads of 32 numbers */
    assert_int_equal(line_bytes(&plan, APR_LINE_KV_ORDERED), of_layer);
    assert_int_equal(line_bytes(&plan, APR_LINE_KV), N_SEQUENCES * of_layer); /* the other layer slides */
    assert_int_equal(apr_batch_rows(N_SEQUENCES), APR_ROWS_MAX_TOKENS);       /* prompts' tokens are also rows */
    assert_int_equal(apr_batch_rows(APR_ROWS_MAX_TOKENS + 1), APR_ROWS_MAX_TOKENS + 1);
    assert_int_equal(line_bytes(&plan, APR_LINE_STEP), apr_batch_table_bytes(apr_batch_rows(N_SEQUENCES), N_CTX));
    assert_true(line_bytes(&plan, APR_LINE_HOST_STEP) >= line_bytes(&plan, APR_LINE_STEP));
    assert_int_equal(plan.n_gathered, N_PAGES * APR_PAGE_CELLS);
    assert_int_equal(plan.step_offset, plan.ordered_offset + of_layer);
    assert_int_equal(plan.states_bytes, plan.step_offset + line_bytes(&plan, APR_LINE_STEP));
    assert_int_equal(plan.states_bytes, all_states(&plan));
    apr_plan_close(&plan);
    apr_program_close(&program);
}

static void the_host_and_a_single_sequence_have_none(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        apr_program program;
        apr_plan plan;
        make(&program, &plan, i == 0 ? N_SEQUENCES : 1, i == 0 ? NULL : apr_gpu_find("h200"));
        assert_int_equal(line_bytes(&plan, APR_LINE_KV_ORDERED), 0);
        assert_int_equal(line_bytes(&plan, APR_LINE_STEP), 0);
        assert_int_equal(line_bytes(&plan, APR_LINE_HOST_STEP), 0);
        assert_int_equal(plan.states_bytes, all_states(&plan));
        apr_plan_close(&plan);
        apr_program_close(&program);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_contiguous_and_end_where_the_table_does),
        cmocka_unit_test(a_device_plans_a_batch_table_and_one_gathered_sequence),
        cmocka_unit_test(the_host_and_a_single_sequence_have_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
