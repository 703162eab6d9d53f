/* runtime/session/session.h on several places: whatever runs where, the numbers are the same and each place takes what its plan says. */
#include "formats/base/bytes.h"
#include "runtime/check/backends.h"
#include "runtime/program/ability.h"
#include "runtime/session/trace.h"
#include "tests/support/fake_device.h"
#include "tests/support/program_model.h"
#include "tests/support/sanitizer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_TOKENS = 40, N_CTX = 48, N_LAYERS = 4 };

static int32_t ids[N_TOKENS];

static int make_text(void **state)
{
    (void)state;
    for (int i = 0; i < N_TOKENS; i++) ids[i] = (i * 37 + i * i) % 96;
    return 0;
}

/* The plain loops compute what is offloaded, so that what a fake device computes by the same loops is the same to the bit. */
static apr_session_options on_places(int n_devices, apr_offload offload)
{
    apr_session_options options = apr_session_defaults;
    options.n_ctx = N_CTX;
    options.n_threads = 1;
    options.n_batch = 16;
    options.n_logits = 4;
    options.kv_dtype = APR_F32;
    options.backend = &apr_ref_backend;
    options.cuda = n_devices > 0 ? fake_device() : NULL;
    options.n_devices = n_devices;
    for (int i = 0; i < n_devices; i++) options.ordinals[i] = i;
    options.offload = offload;
    return options;
}

/* [n_taps hidden states, then logits] of all tokens: a prompt, then token by token. To be freed. */
static float *outputs_of(apr_session *s, size_t *n)
{
    const apr_program *const p = apr_session_program(s);
    const size_t vocab = (size_t)p->vocab_size, taps = p->n_taps * (size_t)p->hidden_size;
    const size_t n_prompt = N_TOKENS - 5;
    apr_error err = {0};

    *n = N_TOKENS * (vocab + taps);
    float *const all = malloc(*n * sizeof *all), *const hidden = all + N_TOKENS * vocab;
    assert_non_null(all);
    const apr_eval_output prompt = {.all_logits = true, .logits = all, .hidden = hidden};
    if (apr_session_eval(s, ids, n_prompt, &prompt, &err) != APR_OK) fail_msg("%s", err.text);
    for (size_t i = n_prompt; i < N_TOKENS; i++) {
        const apr_eval_output one = {.logits = all + i * vocab, .hidden = hidden + i * taps};
        if (apr_session_eval(s, ids + i, 1, &one, &err) != APR_OK) fail_msg("%s", err.text);
    }
    return all;
}

static uint64_t line_bytes(const apr_plan *plan, apr_line_id id)
{
    const apr_plan_line *const line = apr_plan_line_of(plan, id);
    return line != NULL ? line->bytes : 0;
}

/* What a device is asked for: every line but what its driver takes for itself. */
static uint64_t asked_bytes(const apr_plan *plan)
{
    static const apr_line_id of_the_driver[] = {APR_LINE_CONTEXT, APR_LINE_CUBLAS_HANDLE, APR_LINE_RECORDED, APR_LINE_ROUNDING,
                                                APR_LINE_HEADROOM};
    uint64_t n = plan->device_bytes;
    for (size_t i = 0; i < sizeof of_the_driver / sizeof *of_the_driver; i++) n -= line_bytes(plan, of_the_driver[i]);
    return n;
}

static void check_memory(const apr_session *s, const char *what)
{
    for (int i = 0, device = 0; i < apr_session_n_places(s); i++) {
        const apr_plan *const plan = apr_session_place_plan(s, i);
        const apr_session_memory m = apr_session_place_memory(s, i);
        if (plan->judged == APR_ON_DEVICE) {
            if (fake_device_bytes_of(device) != asked_bytes(plan))
                fail_msg("%s: device %d was asked for %llu bytes and its plan says %llu", what, device,
                         (unsigned long long)fake_device_bytes_of(device), (unsigned long long)asked_bytes(plan));
            device++;
        } else if (!m.as_planned && m.measured != UINT64_MAX) {
            fail_msg("%s: the host was to take %llu bytes and took %llu", what, (unsigned long long)m.planned,
                     (unsigned long long)m.measured);
        }
    }
}

static void check_same(const apr_model *model, const apr_session_options *options, const float *reference, const char *what)
{
    apr_session *const s = must_open_session(model, options);
    size_t n;
    float *const outputs = outputs_of(s, &n);

    if (memcmp(outputs, reference, n * sizeof *reference) != 0) fail_msg("%s: other numbers", what);
    check_memory(s, what);
    free(outputs);
    apr_session_close(s);
}

/* --- every family --- */

/* Layers in turn: each kind of mixing that the family has, with experts and dense alternating where it has both. */
static bool open_layers(program_model *m, const char *architecture, uint8_t mixer, apr_dtype dtype)
{
    static const uint8_t orders[3][2] = {
        {APR_FFN_EXPERTS, APR_FFN_DENSE}, {APR_FFN_EXPERTS, APR_FFN_EXPERTS}, {APR_FFN_DENSE, APR_FFN_DENSE}};
    static uint8_t mixers[N_LAYERS], ffns[N_LAYERS]; /* the model refers to them */

    for (int order = 0; order < 3; order++) {
        apr_hparams h = program_model_sizes(architecture);
        for (int i = 0; i < N_LAYERS; i++) mixers[i] = mixer, ffns[i] = orders[order][i % 2];
        h.num_layers = N_LAYERS;
        h.layer_kinds = mixers;
        h.ffn_kinds = ffns;
        if (order == 2) h.num_experts = 0;
        if (program_model_open(m, &h, dtype, NULL) == APR_OK) return true;
    }
    return false;
}

static bool has_experts(const apr_program *program)
{
    for (size_t i = 0; i < program->n_ops; i++)
        if (program->ops[i].kind == APR_OP_EXPERTS) return true;
    return false;
}

static void check_partition(const program_model *m, const float *reference, int n_devices, int64_t n_layers, bool experts)
{
    const apr_session_options options = on_places(n_devices, (apr_offload){experts, n_layers == N_LAYERS ? INT64_MAX : n_layers});
    char what[128];

    if (n_devices > 1 && N_LAYERS - n_layers < n_devices) return;
    if (experts && !has_experts(&m->program)) return;
    snprintf(what, sizeof what, "%s on %d devices, %d layers%s offloaded", m->model.hparams.architecture, n_devices, (int)n_layers,
             experts ? " and the experts" : "");
    check_same(&m->model, &options, reference, what);
}

static float *reference_of(const program_model *m)
{
    const apr_session_options alone = on_places(0, (apr_offload){0});
    apr_session *const ref = must_open_session(&m->model, &alone);
    size_t n;
    float *const reference = outputs_of(ref, &n);

    apr_session_close(ref);
    return reference;
}

/* How many devices, layers on the host, experts there. */
static void some_partitions_of_every_family_give_the_same_numbers(void **state)
{
    static const int some[][3] = {{1, 1, 0}, {1, N_LAYERS, 0}, {1, 0, 1}, {2, 0, 0}, {2, 1, 1}, {3, 0, 0}};
    int n_families = 0;

    (void)state;
    for (size_t i = 0; i < apr_n_families; i++) {
        const char *const name = apr_families[i]->types[0].name;
        program_model m;
        uint8_t mixer = 0;
        if (apr_family_ability(apr_families[i], &apr_ref_backend) != APR_ABLE_RUN) continue;
        while (mixer <= APR_LAYER_NONE && !open_layers(&m, name, mixer, APR_BF16)) mixer++;
        if (mixer > APR_LAYER_NONE) fail_msg("%s: no layers at all", name);
        float *const reference = reference_of(&m);
        /* under a sanitizer two of the six, others for the next family */
        for (size_t j = 0; j < sizeof some / sizeof *some; j++)
            if (!APR_HAS_SANITIZER || (i + j) % 3 == 0) check_partition(&m, reference, some[j][0], some[j][1], some[j][2] != 0);
        free(reference);
        program_model_close(&m);
        n_families++;
    }
    assert_true(n_families >= 30);
}

/* And all of some. */
static void every_partition_gives_the_same_numbers(void **state)
{
    static const struct {
        const char *architecture;
        uint8_t mixer;
    } families[] = {{"qwen3_moe", APR_LAYER_FULL}, {"qwen3_next", APR_LAYER_LINEAR}};

    (void)state;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        program_model m;
        assert_true(open_layers(&m, families[i].architecture, families[i].mixer, APR_BF16));
        float *const reference = reference_of(&m);
        for (int devices = 1; devices <= 3; devices++)
            for (int layers = 0; layers <= N_LAYERS; layers++)
                for (int experts = 0; experts < 2; experts++) check_partition(&m, reference, devices, layers, experts != 0);
        free(reference);
        program_model_close(&m);
    }
}

/* Layers that share an index read what another place has chosen. */
static void a_shared_index_crosses_places(void **state)
{
    static const uint8_t ffns[N_LAYERS] = {0}, shares[N_LAYERS] = {0, 1, 1, 1};
    apr_hparams h = program_model_sizes("glm_moe_dsa");
    program_model m;

    (void)state;
    h.num_layers = N_LAYERS;
    h.ffn_kinds = ffns;
    h.num_experts = 0;
    h.shares_index = shares;
    assert_int_equal(program_model_open(&m, &h, APR_BF16, NULL), APR_OK);
    size_t n_indexes = 0;
    for (size_t i = 0; i < m.program.n_ops; i++) n_indexes += m.program.ops[i].kind == APR_OP_INDEX;
    assert_int_equal(n_indexes, 1);
    float *const reference = reference_of(&m);
    for (int devices = 1; devices <= 3; devices++)
        for (int layers = 0; layers <= N_LAYERS; layers++) check_partition(&m, reference, devices, layers, false);
    free(reference);
    program_model_close(&m);
}

/* --- one GPU twice --- */

static void two_parts_may_share_a_gpu(void **state)
{
    (void)state;
    program_model m;
    assert_true(open_layers(&m, "qwen3", APR_LAYER_FULL, APR_BF16));
    const apr_session_options alone = on_places(0, (apr_offload){0});
    apr_session_options twice = on_places(2, (apr_offload){0});
    apr_session *const ref = must_open_session(&m.model, &alone);
    size_t n;
    float *const reference = outputs_of(ref, &n);

    twice.ordinals[0] = twice.ordinals[1] = 0;
    check_same(&m.model, &twice, reference, "a card twice");
    apr_session *const s = must_open_session(&m.model, &twice);
    assert_int_equal(apr_session_n_places(s), 2);
    const apr_plan *const first = apr_session_place_plan(s, 0), *const second = apr_session_place_plan(s, 1);
    assert_true(line_bytes(first, APR_LINE_CONTEXT) > 0 && line_bytes(first, APR_LINE_HEADROOM) > 0);
    assert_int_equal(line_bytes(second, APR_LINE_CONTEXT), 0); /* one context a GPU, and one headroom */
    assert_int_equal(line_bytes(second, APR_LINE_HEADROOM), 0);
    assert_int_equal(second->budget_bytes, first->budget_bytes - first->device_bytes);
    free(reference);
    apr_session_close(s);
    apr_session_close(ref);
    program_model_close(&m);
}

/* --- what is where --- */

static void what_is_offloaded_is_not_on_the_device(void **state)
{
    (void)state;
    program_model m;
    assert_true(open_layers(&m, "qwen3_moe", APR_LAYER_FULL, APR_BF16));
    const apr_session_options whole = on_places(1, (apr_offload){0}), experts = on_places(1, (apr_offload){.experts = true}),
                              layers = on_places(1, (apr_offload){.n_layers = N_LAYERS});
    apr_session *const s = must_open_session(&m.model, &whole);
    const uint64_t expert_bytes = line_bytes(apr_session_plan(s), APR_LINE_WEIGHTS_EXPERTS);
    assert_int_equal(apr_session_n_places(s), 1);
    assert_true(expert_bytes > 0);
    assert_int_equal(apr_session_cost(s).to_devices, 0);
    apr_session_close(s);

    apr_session *const e = must_open_session(&m.model, &experts);
    assert_int_equal(apr_session_n_places(e), 2);
    assert_string_equal(apr_session_backend_name(e), "cuda and host");
    const uint64_t routers = line_bytes(apr_session_place_plan(e, 0), APR_LINE_WEIGHTS_EXPERTS);
    assert_true(routers < expert_bytes / 16);
    assert_int_equal(line_bytes(apr_session_place_plan(e, 1), APR_LINE_WEIGHTS_EXPERTS), expert_bytes - routers);
    assert_int_equal(apr_session_place_plan(e, 1)->states_bytes, 0);
    apr_session_close(e);

    apr_session *const l = must_open_session(&m.model, &layers);
    assert_int_equal(apr_session_place_plan(l, 0)->states_bytes, 0); /* keys and values are where the layers are */
    assert_true(apr_session_place_plan(l, 1)->states_bytes > 0);
    assert_true(line_bytes(apr_session_place_plan(l, 0), APR_LINE_LOGITS) > 0); /* the head stays */
    assert_int_equal(line_bytes(apr_session_place_plan(l, 1), APR_LINE_LOGITS), 0);
    apr_session_close(l);
    program_model_close(&m);
}

/* --- held against the reference, operation by operation --- */

/* Values, keys and states are read and written where they are. */
static void parity_finds_every_value_at_its_place(void **state)
{
    static const int64_t positions[] = {0, 20};
    static const struct {
        const char *architecture;
        uint8_t mixer;
        apr_offload offload;
    } cases[] = {{"qwen3_moe", APR_LAYER_FULL, {.experts = true}},
                 {"qwen3_moe", APR_LAYER_FULL, {.experts = true, .n_expert_layers = 2}},
                 {"qwen3_moe", APR_LAYER_FULL, {.n_layers = 1}},
                 {"qwen3_next", APR_LAYER_LINEAR, {.experts = true, .n_layers = 1}}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_parity_options options = {.positions = positions, .n_positions = 2, .n_batch = 4, .layer = APR_PARITY_ALL_LAYERS};
        apr_parity_result result;
        apr_error err = {0};
        char text[512];
        program_model m;
        assert_true(open_layers(&m, cases[i].architecture, cases[i].mixer, APR_BF16));
        apr_session_options places = on_places(2, cases[i].offload);
        places.backend = NULL; /* the host's own kernels for what is offloaded */
        apr_session *const s = must_open_session(&m.model, &places);
        if (apr_backends_parity(s, ids, N_TOKENS, &options, &result, &err) != APR_OK) fail_msg("%s", err.text);
        if (result.failed) fail_msg("%s", apr_parity_sentence(text, sizeof text, &result));
        assert_true(result.n_passed == result.n_checked && result.n_checked >= (int64_t)m.program.n_ops);
        apr_parity_result_close(&result);
        apr_session_close(s);
        program_model_close(&m);
    }
}

/* --- refusals --- */

static void what_cannot_be_divided_is_refused(void **state)
{
    (void)state;
    program_model m;
    apr_error err = {0};
    apr_session *s;
    assert_true(open_layers(&m, "qwen3", APR_LAYER_FULL, APR_BF16));
    const apr_session_options experts = on_places(1, (apr_offload){.experts = true}), many = on_places(N_LAYERS + 1, (apr_offload){0});
    assert_int_equal(apr_session_open(&s, &m.model, &experts, &err), APR_E_USAGE);
    assert_non_null(strstr(err.text, "cannot offload experts"));
    err = (apr_error){0};
    assert_int_equal(apr_session_open(&s, &m.model, &many, &err), APR_E_USAGE);
    assert_non_null(strstr(err.text, "4 layers cannot be split over 5 GPUs"));
    program_model mixture;
    assert_true(open_layers(&mixture, "qwen3_moe", APR_LAYER_FULL, APR_BF16));
    const apr_session_options some = on_places(1, (apr_offload){.experts = true, .n_expert_layers = 1});
    apr_session *const e = must_open_session(&mixture.model, &some);
    const uint64_t on_host = line_bytes(apr_session_place_plan(e, 1), APR_LINE_WEIGHTS_EXPERTS);
    const uint64_t on_device = line_bytes(apr_session_place_plan(e, 0), APR_LINE_WEIGHTS_EXPERTS);
    assert_true(on_host > 0 && on_device > on_host); /* of the first layer alone */
    apr_session_close(e);
    program_model_close(&mixture);
    apr_session_options little = on_places(1, (apr_offload){.n_layers = 1});
    little.budget_bytes = 4096;
    err = (apr_error){0};
    assert_int_equal(apr_session_open(&s, &m.model, &little, &err), APR_E_MEMORY);
    assert_non_null(strstr(err.text, "on the host for what is offloaded"));
    program_model_close(&m);
}

/* --- one memory of host and device --- */

static uint64_t available_bytes;
static uint64_t available(void) { return available_bytes; }

/* The driver counts the page cache as taken; the kernel's number decides. What the plan has on the host counts as well. */
static void a_device_that_has_the_host_s_memory_is_planned_by_what_the_kernel_says(void **state)
{
    (void)state;
    program_model m;
    apr_error err = {0};
    apr_session *s;
    assert_true(open_layers(&m, "qwen3_moe", APR_LAYER_FULL, APR_BF16));
    apr_session_options options = on_places(1, (apr_offload){0});
    options.available = available;
    available_bytes = (uint64_t)1 << 31;
    fake_device_is_integrated(true);
    fake_device_has_memory(4096); /* as good as nothing is free, says the driver */
    fake_device_has_in_use(((uint64_t)1 << 34) - 4096);
    apr_plan plan;
    if (apr_session_forecast(&plan, &m.model, &options, &err) != APR_OK) fail_msg("%s", err.text);
    const uint64_t needed = plan.taken_bytes;
    assert_true(plan.fits && plan.is_shared && plan.host_bytes > 0 && needed == plan.host_bytes + plan.device_bytes);
    assert_int_equal(plan.budget_bytes, available_bytes);
    apr_plan_close(&plan);
    available_bytes = needed; /* at the fastest pace */
    assert_int_equal(apr_session_forecast(&plan, &m.model, &options, NULL), APR_OK);
    assert_true(plan.fits && plan.taken_bytes == needed);
    apr_plan_close(&plan);
    available_bytes = 4096;
    assert_int_equal(apr_session_open(&s, &m.model, &options, &err), APR_E_MEMORY);
    assert_non_null(strstr(err.text, "of the memory that host and device share"));
    assert_null(strstr(err.text, "--headroom"));
    available_bytes = (uint64_t)1 << 28; /* less than the headroom of 1 GiB, and enough without it */
    err = (apr_error){0};
    assert_int_equal(apr_session_open(&s, &m.model, &options, &err), APR_E_MEMORY);
    assert_non_null(strstr(err.text, "--headroom"));
    assert_non_null(strstr(err.text, "M instead of 1024M it fits"));
    available_bytes = (uint64_t)1 << 31;
    options.offload.experts = true;
    err = (apr_error){0};
    assert_int_equal(apr_session_open(&s, &m.model, &options, &err), APR_E_USAGE);
    assert_non_null(strstr(err.text, "shares its memory with the host"));
    fake_device_is_integrated(false);
    fake_device_has_memory((uint64_t)1 << 34);
    fake_device_has_in_use(UINT64_MAX);
    program_model_close(&m);
}

/* --- a device that fails --- */

static void when_a_device_fails_everything_goes_on_on_the_host(void **state)
{
    static const apr_offload offloads[] = {{0}, {.experts = true}, {.n_layers = 1}};
    (void)state;
    program_model m;
    apr_model view;
    assert_true(open_layers(&m, "qwen3_moe", APR_LAYER_FULL, APR_BF16));
    assert_int_equal(program_model_transposed(&view, &m, NULL), APR_OK); /* what the host put in order is put in order again */
    const apr_session_options alone = on_places(0, (apr_offload){0});
    apr_session *const ref = must_open_session(&m.model, &alone);
    size_t n;
    float *const reference = outputs_of(ref, &n);

    for (size_t i = 0; i < sizeof offloads / sizeof *offloads; i++) {
        apr_session_options options = on_places(2, offloads[i]);
        options.fall_back = true;
        apr_session *const s = must_open_session(&view, &options);
        fake_device_fail_after(3 * (int64_t)m.program.n_ops / 2);
        float *const outputs = outputs_of(s, &n);
        fake_device_fail_after(-1);
        assert_string_equal(apr_session_backend_name(s), "host");
        assert_int_equal(apr_session_n_places(s), 1);
        for (size_t j = 0; j < N_TOKENS * 96; j++)
            if (!(fabs((double)outputs[j] - (double)reference[j]) < 1e-3))
                fail_msg("number %zu: %g, not %g", j, (double)outputs[j], (double)reference[j]);
        free(outputs);
        apr_session_close(s);
    }
    free(reference);
    apr_session_close(ref);
    apr_model_close(&view);
    program_model_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(some_partitions_of_every_family_give_the_same_numbers),
        cmocka_unit_test(every_partition_gives_the_same_numbers),
        cmocka_unit_test(a_shared_index_crosses_places),
        cmocka_unit_test(two_parts_may_share_a_gpu),
        cmocka_unit_test(what_is_offloaded_is_not_on_the_device),
        cmocka_unit_test(parity_finds_every_value_at_its_place),
        cmocka_unit_test(what_cannot_be_divided_is_refused),
        cmocka_unit_test(a_device_that_has_the_host_s_memory_is_planned_by_what_the_kernel_says),
        cmocka_unit_test(when_a_device_fails_everything_goes_on_on_the_host),
    };
    return cmocka_run_group_tests_name("session_places", tests, make_text, NULL);
}
