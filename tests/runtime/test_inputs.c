/* runtime/calibrate/inputs.h: every product's input is seen once, as the product had it. */
#include "runtime/calibrate/inputs.h"

#include "convert/naming.h"
#include "runtime/calibrate/importance_pass.h"
#include "tests/support/edited_model.h"
#include "tests/support/fake_device.h"
#include "tests/support/family_model.h"
#include "tests/support/work_folder.h"

#include <omp.h>

enum { N_IDS = 40, N_CTX = 64 };

typedef struct subject {
    apr_model source, canonical;
    edited_model made;
    apr_session *session;
    apr_layer_inputs inputs;
    int32_t ids[N_IDS];
} subject;

static void open_subject(subject *s, const char *family)
{
    char from[128];
    apr_error err = {0};

    *s = (subject){.session = NULL};
    snprintf(from, sizeof from, "tests/data/families/%s", family);
    if (family_write(from, in_work(family), NULL, &err) != APR_OK) fail_msg("%s", err.text);
    if (apr_model_open(&s->source, in_work(family), &err) != APR_OK) fail_msg("%s", err.text);
    if (apr_canonical(&s->canonical, &s->source, &err) != APR_OK) fail_msg("%s", err.text);
    edited_model_open_with(&s->made, &s->canonical, APR_F32, NULL);
    s->session = edited_model_session(&s->made.model, N_CTX);
    for (int32_t i = 0; i < N_IDS; i++) s->ids[i] = (i * 37 + i * i) % 100;
    if (apr_layer_inputs_of(&s->inputs, s->session, &err) != APR_OK) fail_msg("%s", err.text);
}

static void close_subject(subject *s)
{
    apr_layer_inputs_close(&s->inputs);
    apr_session_close(s->session);
    edited_model_close(&s->made);
    apr_model_close(&s->canonical);
    apr_model_close(&s->source);
}

/* Everything that is seen, kept. */
typedef struct seen {
    const apr_layer_inputs *inputs;
    float *rows[256][40]; /* by layer input and expert + 1 */
    int64_t n_rows[256][40];
    size_t order[4096], n_calls;
    int64_t n_until; /* calls before the visit is ended; -1: never */
} seen;

static apr_status keep(void *user, size_t input, int64_t expert, int64_t n_rows, const float *rows, apr_error *err)
{
    seen *const s = user;
    const int64_t width = s->inputs->inputs[input].width, before = s->n_rows[input][expert + 1];

    if (s->n_until >= 0 && (int64_t)s->n_calls >= s->n_until) return apr_fail(err, APR_E_IO, "enough");
    assert_true(input < 256 && expert < 39 && n_rows > 0 && s->n_calls < 4096);
    float **const to = &s->rows[input][expert + 1];
    *to = realloc(*to, (size_t)((before + n_rows) * width) * sizeof **to);
    memcpy(*to + before * width, rows, (size_t)(n_rows * width) * sizeof *rows);
    s->n_rows[input][expert + 1] += n_rows;
    s->order[s->n_calls++] = input;
    return APR_OK;
}

static seen *see(subject *s, const bool *wanted)
{
    seen *const all = calloc(1, sizeof *all);
    apr_error err = {0};

    all->inputs = &s->inputs;
    all->n_until = -1;
    const apr_pass pass = {.wanted = wanted, .visit = keep, .user = all};
    if (apr_layer_inputs_visit(&s->inputs, s->session, &pass, s->ids, N_IDS, &err) != APR_OK) fail_msg("%s", err.text);
    return all;
}

static void forget(seen *all)
{
    for (size_t i = 0; i < 256; i++)
        for (size_t e = 0; e < 40; e++) free(all->rows[i][e]);
    free(all);
}

/* A batch of the ids is run by hand; reads a value after an operation. */
static void run_until(subject *s, size_t op)
{
    apr_error err = {0};
    apr_session_reset(s->session);
    if (apr_trace_begin(s->session, s->ids, 32, &err) != APR_OK) fail_msg("%s", err.text);
    for (size_t i = 0; i <= op; i++)
        if (apr_trace_run(s->session, i, &err) != APR_OK) fail_msg("%s", err.text);
}

static float *read_value(const subject *s, int value)
{
    float *const to = malloc((size_t)(32 * apr_session_program(s->session)->values[value].width) * sizeof *to);
    apr_error err = {0};
    if (apr_trace_read(s->session, value, to, &err) != APR_OK) fail_msg("%s", err.text);
    return to;
}

/* --- dense layers --- */

static void every_matrix_has_one_layer_input_and_q_k_v_share_theirs(void **state)
{
    (void)state;
    subject s;
    open_subject(&s, "qwen3");
    const apr_program *const program = apr_session_program(s.session);
    size_t n_matrices = 0, input_of_q = SIZE_MAX, n_sharing = 0;

    for (size_t i = 0; i < program->n_weights; i++) n_matrices += (program->weights[i].uses & APR_USE_MULTIPLIED) != 0;
    assert_int_equal(s.inputs.n_readers, n_matrices);
    for (size_t i = 0; i < s.inputs.n_readers; i++)
        if (strcmp(program->weights[s.inputs.readers[i].slot].name, "model.layers.0.self_attn.q_proj.weight") == 0)
            input_of_q = s.inputs.readers[i].input;
    for (size_t i = 0; i < s.inputs.n_readers; i++) n_sharing += s.inputs.readers[i].input == input_of_q;
    assert_int_equal(n_sharing, 3);
    for (size_t i = 0; i < s.inputs.n_readers; i++) {
        const apr_weight_slot *const slot = &program->weights[s.inputs.readers[i].slot];
        assert_int_equal(slot->dims[slot->rank - 1], s.inputs.inputs[s.inputs.readers[i].input].width);
    }
    close_subject(&s);
}

static void rows_are_those_that_the_product_had(void **state)
{
    (void)state;
    subject s;
    open_subject(&s, "qwen3");
    seen *const all = see(&s, NULL);

    for (size_t i = 0; i < s.inputs.n_inputs; i++) {
        const apr_layer_input *const f = &s.inputs.inputs[i];
        assert_int_equal(all->n_rows[i][0], N_IDS);
        run_until(&s, f->op);
        float *const there = read_value(&s, f->value);
        for (int64_t k = 0; k < 32 * f->width; k++) assert_float_equal(all->rows[i][0][k], there[k], 1e-4f);
        free(there);
    }
    forget(all);
    close_subject(&s);
}

static void layer_inputs_come_in_the_order_of_the_operations(void **state)
{
    (void)state;
    subject s;
    open_subject(&s, "qwen3");
    seen *const all = see(&s, NULL);

    for (size_t i = 1; i < s.inputs.n_inputs; i++) assert_true(all->order[i - 1] < all->order[i]);
    forget(all);
    close_subject(&s);
}

static void what_is_not_wanted_is_not_seen(void **state)
{
    (void)state;
    subject s;
    open_subject(&s, "qwen3");
    bool wanted[256] = {false};
    wanted[2] = wanted[3] = true;
    seen *const all = see(&s, wanted);

    for (size_t i = 0; i < s.inputs.n_inputs; i++) assert_int_equal(all->n_rows[i][0], wanted[i] ? N_IDS : 0);
    assert_int_equal(apr_session_position(s.session), 0);
    forget(all);
    close_subject(&s);
}

static void a_visitor_that_fails_ends_the_visit_with_its_sentence(void **state)
{
    (void)state;
    subject s;
    open_subject(&s, "qwen3");
    seen *const all = calloc(1, sizeof *all);
    apr_error err = {0};

    all->inputs = &s.inputs;
    all->n_until = 3;
    const apr_pass pass = {.visit = keep, .user = all};
    assert_int_equal(apr_layer_inputs_visit(&s.inputs, s.session, &pass, s.ids, N_IDS, &err), APR_E_IO);
    assert_string_equal(err.text, "enough");
    assert_int_equal(all->n_calls, 3);
    forget(all);
    close_subject(&s);
}

/* --- tokens of rows --- */

typedef struct token_rows {
    const apr_layer_inputs *inputs;
    int64_t tokens[N_IDS * 8];
    float *rows; /* of the value that experts read, as another operation reads it: [N_IDS] */
    int value;
    int64_t n_of_experts, n_seen;
} token_rows;

/* The router reads what experts read, before them. An expert's row is that of its token. */
static apr_status compare_tokens(void *user, size_t input, int64_t expert, int64_t n_rows, const float *rows, apr_error *err)
{
    token_rows *const t = user;
    const apr_layer_input *const f = &t->inputs->inputs[input];
    (void)err;

    if (expert < 0) {
        t->rows = realloc(t->rows, (size_t)(N_IDS * f->width) * sizeof *t->rows);
        t->value = f->value;
        for (int64_t r = 0; r < n_rows; r++, t->n_seen++) {
            assert_true(t->tokens[r] >= 0 && t->tokens[r] < N_IDS);
            memcpy(t->rows + t->tokens[r] * f->width, rows + r * f->width, (size_t)f->width * sizeof *rows);
        }
    }
    if (expert < 0 || f->is_expert_hidden || f->value != t->value) return APR_OK;
    for (int64_t r = 0; r < n_rows; r++, t->n_of_experts++)
        assert_memory_equal(rows + r * f->width, t->rows + t->tokens[r] * f->width, (size_t)f->width * sizeof *rows);
    return APR_OK;
}

static void each_row_comes_with_its_token(void **state)
{
    (void)state;
    subject s;
    apr_error err = {0};
    open_subject(&s, "qwen3_moe");
    token_rows *const t = calloc(1, sizeof *t);
    t->inputs = &s.inputs;
    const apr_pass pass = {.visit = compare_tokens, .tokens = t->tokens, .user = t};
    if (apr_layer_inputs_visit(&s.inputs, s.session, &pass, s.ids, N_IDS, &err) != APR_OK) fail_msg("%s", err.text);
    assert_true(t->n_seen > 0 && t->n_of_experts > N_IDS);
    free(t->rows);
    free(t);
    close_subject(&s);
}

/* --- experts --- */

/* out[r] += weight * (row r of expert e's matrix * x + bias[e][r]) */
static void add_product(const apr_tensor *matrix, const apr_tensor *bias, int64_t e, const float *x, float weight, float *out)
{
    const int64_t n_in = matrix->dims[1];
    float *const row = malloc((size_t)n_in * sizeof *row), *const offset = calloc((size_t)matrix->dims[0], sizeof *offset);

    if (bias != NULL) apr_decode_rows(bias, e, 1, offset); /* of all experts in one tensor */
    for (int64_t r = 0; r < matrix->dims[0]; r++) {
        float sum = offset[r];
        apr_decode_rows(matrix, r, 1, row);
        for (int64_t i = 0; i < n_in; i++) sum += row[i] * x[i];
        out[r] += weight * sum;
    }
    free(row);
    free(offset);
}

/* Of one layer: what the middles of all experts give, weighed by the routes, is what the operation gave. */
static void expect_outputs(subject *s, const seen *all, size_t given, size_t middle)
{
    const apr_program *const program = apr_session_program(s->session);
    const apr_op *const op = &program->ops[s->inputs.inputs[middle].op];
    const apr_experts_args *const a = &op->args.experts;
    int64_t taken[40] = {0}, n_down;
    run_until(s, s->inputs.inputs[middle].op);
    float *const routes = read_value(s, op->in[1]), *const there = read_value(s, op->out), *const inputs = read_value(s, op->in[0]);
    const apr_tensor *const down = apr_trace_tensors(s->session, op->weight[2], &n_down);
    const apr_tensor *const bias = apr_trace_tensor(s->session, op->weight[5]);

    for (int64_t t = 0; t < 32; t++) {
        const float *const route = routes + t * apr_route_row(a->n_used);
        float *const out = calloc((size_t)a->n_out, sizeof *out);
        for (int64_t k = 0; k < a->n_used; k++) {
            const int64_t e = (int64_t)route[k], i = taken[e]++;
            const float *const x = all->rows[given][e + 1] + i * a->n_in;
            for (int64_t j = 0; j < a->n_in; j++) assert_float_equal(x[j], inputs[t * a->n_in + j], 1e-4f);
            add_product(&down[e], bias, e, all->rows[middle][e + 1] + i * a->n_mid, route[a->n_used + k], out);
        }
        for (int64_t r = 0; r < a->n_out; r++) assert_float_equal(out[r], there[t * a->n_out + r], 1e-3f);
        free(out);
    }
    free(routes);
    free(there);
    free(inputs);
}

static void experts_see_the_tokens_that_chose_them(void **state)
{
    static const char *const families[] = {"gpt_oss", "qwen3_moe"};
    (void)state;

    for (size_t f = 0; f < 2; f++) {
        subject s;
        open_subject(&s, families[f]);
        seen *const all = see(&s, NULL);
        size_t n_layers = 0;
        for (size_t i = 0; i + 1 < s.inputs.n_inputs; i++) {
            if (s.inputs.inputs[i].n_experts == 0 || s.inputs.inputs[i].is_expert_hidden) continue;
            assert_true(s.inputs.inputs[i + 1].is_expert_hidden);
            expect_outputs(&s, all, i, i + 1);
            n_layers++;
        }
        assert_true(n_layers > 0);
        forget(all);
        close_subject(&s);
    }
}

/* --- importance: sums of squares of these rows --- */

/* The sums of two windows, on the session of a backend or of a device. */
static void sum_windows(const subject *s, const apr_backend *backend, const apr_cuda_api *cuda, apr_importance_pass *pass,
                        apr_layer_inputs *inputs)
{
    apr_session_options options = apr_session_defaults;
    apr_session *session;
    apr_error err = {0};
    options.n_ctx = N_CTX;
    options.kv_dtype = APR_F32;
    options.backend = backend;
    options.cuda = cuda;
    if (apr_session_open(&session, &s->made.model, &options, &err) != APR_OK) fail_msg("%s", err.text);
    if (apr_layer_inputs_of(inputs, session, &err) != APR_OK) fail_msg("%s", err.text);
    assert_int_equal(apr_importance_pass_open(pass, inputs, &err), APR_OK);
    const int at_once = cuda != NULL ? 2 : 1;
    for (int window = 0; window < 2; window += at_once)
        if (apr_importance_pass_add(pass, session, NULL, s->ids + 20 * window, 20, at_once, &err) != APR_OK) fail_msg("%s", err.text);
    apr_session_close(session);
}

static void a_gpu_adds_the_same_squares(void **state)
{
    static const char *const families[] = {"llama", "gpt_oss", "qwen3_next"};
    (void)state;

    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        subject s;
        apr_importance_pass host, gpu;
        apr_layer_inputs inputs, gpu_inputs;
        open_subject(&s, families[f]);
        sum_windows(&s, &apr_ref_backend, NULL, &host, &inputs);
        sum_windows(&s, NULL, fake_device(), &gpu, &gpu_inputs);
        assert_int_equal(gpu_inputs.n_inputs, inputs.n_inputs);
        for (size_t i = 0; i < inputs.n_inputs; i++) {
            const size_t n = (size_t)(host.of[i].n_matrices * inputs.inputs[i].width);
            assert_memory_equal(host.of[i].sums, gpu.of[i].sums, n * sizeof(double));
            assert_memory_equal(host.of[i].counts, gpu.of[i].counts, (size_t)host.of[i].n_matrices * sizeof(double));
            if (inputs.inputs[i].n_experts == 0) assert_true(host.of[i].sums[0] > 0.0 && host.of[i].counts[0] >= 40.0);
        }
        apr_importance_pass_close(&host);
        apr_importance_pass_close(&gpu);
        apr_layer_inputs_close(&inputs);
        apr_layer_inputs_close(&gpu_inputs);
        close_subject(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gpu_adds_the_same_squares),         cmocka_unit_test(every_matrix_has_one_layer_input_and_q_k_v_share_theirs),
        cmocka_unit_test(rows_are_those_that_the_product_had), cmocka_unit_test(layer_inputs_come_in_the_order_of_the_operations),
        cmocka_unit_test(what_is_not_wanted_is_not_seen),      cmocka_unit_test(a_visitor_that_fails_ends_the_visit_with_its_sentence),
        cmocka_unit_test(each_row_comes_with_its_token),       cmocka_unit_test(experts_see_the_tokens_that_chose_them),
    };
    omp_set_num_threads(1);
    return cmocka_run_group_tests_name("inputs", tests, make_work, remove_work);
}
