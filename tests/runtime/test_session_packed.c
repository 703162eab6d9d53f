/* runtime/session/session_packed.c: models whose matrices are stored in several tensors run on the host and on a device straight from them:
 * the same logits as by definition, memory as planned, and nothing of them as FP16. */
#define _XOPEN_SOURCE 700
#include "convert/naming.h"
#include "formats/shape/family.h"
#include "runtime/session/session.h"
#include "runtime/session/trace.h"
#include "tests/support/fake_device.h"
#include "tests/support/packed_matrix.h"
#include "tests/support/program_model.h"
#include "tools/engine/plan/sizes.h"

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_TOKENS = 20, VOCABULARY = 96, LEAST_VOCABULARY = 24, MOST_MATRICES = 64, MOST_EXPERTS = 16 };

/* A model of noise whose matrices are packed: those of one slot are one stack. */
typedef struct packed_model {
    program_model plain;
    apr_model model;
    packed_matrix matrices[MOST_MATRICES];
    apr_packing packings[MOST_MATRICES][MOST_EXPERTS];
    size_t n;
    uint8_t layer_kind, ffn_kind;
} packed_model;

static bool can_be_packed(const apr_weight_slot *slot, const packed_kind *kind)
{
    if (slot->uses == APR_USE_FLOAT || slot->rank != 2 || slot->dims[0] % 32 != 0) return false;
    return slot->dims[1] * kind->bits % 32 == 0 && slot->count <= MOST_EXPERTS;
}

/* In the place of the slot's tensors, which have the names. */
static void pack_slot(packed_model *p, const apr_weight_slot *slot, packed_kind kind, apr_tensor *tensors)
{
    packed_matrix *const m = &p->matrices[p->n];

    assert_true(p->n < MOST_MATRICES);
    kind.n_matrices = slot->count;
    kind.rows = slot->dims[0];
    kind.columns = slot->dims[1];
    if (kind.n_global_scales > 0) kind.n_global_scales = (int)slot->count;
    packed_matrix_make(m, &kind);
    for (int64_t e = 0; e < slot->count; e++) {
        const char *const name = tensors[e].name;
        tensors[e] = packed_matrix_of(m, e, &p->packings[p->n][e]);
        tensors[e].name = name;
    }
    p->n++;
}

static void packed_model_open(packed_model *p, const char *architecture, uint8_t ffn, const packed_kind *kind)
{
    apr_hparams h = program_model_sizes(architecture);
    apr_error err = {0};

    p->layer_kind = APR_LAYER_FULL;
    p->ffn_kind = ffn;
    h.num_layers = 1;
    h.layer_kinds = &p->layer_kind; /* borrowed by the model as long as it lives */
    h.ffn_kinds = &p->ffn_kind;
    if (ffn != APR_FFN_EXPERTS) h.num_experts = 0;
    if (program_model_open(&p->plain, &h, APR_BF16, &err) != APR_OK) fail_msg("%s", err.text);
    p->n = 0;
    p->model = (apr_model){.path = kind->what, .naming = APR_NAMING_HF, .hparams = h, .n_tensors = p->plain.model.n_tensors};
    p->model.hparams = p->plain.model.hparams;
    p->model.tensors = apr_arena_array(&p->model.arena, p->model.n_tensors + 1, sizeof *p->model.tensors);
    assert_non_null(p->model.tensors);
    memcpy(p->model.tensors, p->plain.model.tensors, p->model.n_tensors * sizeof *p->model.tensors);
    for (size_t i = 0, at = 0; i < p->plain.program.n_weights; i++) {
        const apr_weight_slot *const slot = &p->plain.program.weights[i];
        if (strstr(slot->name, "rope_freqs") != NULL) continue;
        if (can_be_packed(slot, kind)) pack_slot(p, slot, *kind, &p->model.tensors[at]);
        at += (size_t)slot->count;
    }
    assert_true(p->n > 4);
    assert_int_equal(apr_model_index_names(&p->model, NULL), APR_OK);
}

static void packed_model_close(packed_model *p)
{
    for (size_t i = 0; i < p->n; i++) packed_matrix_free(&p->matrices[i]);
    apr_model_close(&p->model);
    program_model_close(&p->plain);
}

static apr_session *open_session(const apr_model *model, const apr_backend *backend, const apr_cuda_api *cuda, bool no_direct)
{
    apr_session_options options = apr_session_defaults;
    apr_error err = {0};
    apr_session *s;
    options.n_ctx = 2 * N_TOKENS;
    options.n_threads = 2;
    options.kv_dtype = APR_F32;
    options.backend = backend;
    options.cuda = cuda;
    options.no_direct = no_direct;
    if (apr_session_open(&s, model, &options, &err) != APR_OK) fail_msg("%s: %s", model->path, err.text);
    return s;
}

static float *logits_of(apr_session *s)
{
    float *const logits = malloc((size_t)N_TOKENS * VOCABULARY * sizeof *logits);
    const apr_eval_output out = {.all_logits = true, .logits = logits};
    int32_t ids[N_TOKENS];
    apr_error err = {0};

    assert_non_null(logits);
    for (int i = 0; i < N_TOKENS; i++) ids[i] = (i * 37 + i * i) % LEAST_VOCABULARY;
    if (apr_session_eval(s, ids, N_TOKENS, &out, &err) != APR_OK) fail_msg("%s", err.text);
    return logits;
}

static double distance(const float *a, const float *b)
{
    double most = 1e-30, off = 0.0;
    for (int i = 0; i < N_TOKENS * VOCABULARY; i++) {
        assert_true(isfinite(a[i]) && isfinite(b[i]));
        most = fmax(most, fabs((double)b[i]));
        off = fmax(off, fabs((double)a[i] - (double)b[i]));
    }
    return off / most;
}

static uint64_t line_bytes(const apr_session *s, apr_line_id id)
{
    const apr_plan_line *const line = apr_plan_line_of(apr_session_plan(s), id);
    return line != NULL ? line->bytes : 0;
}

static uint64_t all_weights(const apr_session *s)
{
    uint64_t n = 0;
    for (int role = 0; role < APR_ROLE_COUNT; role++) n += line_bytes(s, (apr_line_id)(APR_LINE_WEIGHTS_EMBEDDING + role));
    return n;
}

static uint64_t device_lines(const apr_session *s)
{
    static const apr_line_id lines[] = {APR_LINE_CUBLAS_WORKSPACE, APR_LINE_FILLED, APR_LINE_COPIES,   APR_LINE_F32_VECTORS,
                                        APR_LINE_ACTIVATIONS,      APR_LINE_LOGITS, APR_LINE_WORKSPACE};
    uint64_t n = all_weights(s) + apr_session_plan(s)->states_bytes;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) n += line_bytes(s, lines[i]);
    return n;
}

static bool some_reason_says(const apr_session *s, const char *what)
{
    for (size_t i = 0; i < apr_session_plan(s)->n_lines; i++)
        if (strstr(apr_session_plan(s)->lines[i].reason, what) != NULL) return true;
    return false;
}

/* What aprplan counts for that model, whose tensors it sees. */
static uint64_t planned_weights(const packed_model *p, bool on_device)
{
    const size_t n = p->plain.program.n_weights;
    apr_weight_size *const sizes = calloc(n + 1, sizeof *sizes);
    apr_error err = {0};
    uint64_t sum = 0;

    assert_non_null(sizes);
    if (apr_weight_sizes(&p->model, &p->plain.program, NULL, on_device, sizes, &err) != APR_OK) fail_msg("%s", err.text);
    for (size_t i = 0; i < n; i++)
        if (!on_device || p->plain.program.weights[i].uses != APR_USE_FLOAT) sum += sizes[i].bytes;
    free(sizes);
    return sum;
}

typedef void (*model_check)(packed_model *p, const packed_kind *kind);

/* Each kind in models with experts, with dense layers, and with heads that have matrices; unless all, in one of them in turn. */
static void with_models(model_check check, bool all)
{
    static const struct {
        const char *architecture;
        uint8_t ffn;
    } models[] = {{"qwen3_moe", APR_FFN_EXPERTS}, {"llama", APR_FFN_DENSE}, {"deepseek_v2", APR_FFN_EXPERTS}};
    packed_model *const p = malloc(sizeof *p);

    assert_non_null(p);
    for (const packed_kind *kind = packed_kinds; kind->what != NULL; kind++)
        for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
            if (!all && (size_t)(kind - packed_kinds) % (sizeof models / sizeof *models) != i) continue;
            packed_model_open(p, models[i].architecture, models[i].ffn, kind);
            check(p, kind);
            packed_model_close(p);
        }
    free(p);
}

static void check_host(packed_model *p, const packed_kind *kind)
{
    apr_session *const ref = open_session(&p->model, &apr_ref_backend, NULL, false), *const host =
                                                                                         open_session(&p->model, NULL, NULL, false);
    float *const reference = logits_of(ref), *const logits = logits_of(host);
    uint64_t stored = 0;

    if (!(distance(logits, reference) < 1e-4)) fail_msg("%s: the host is off by %g", kind->what, distance(logits, reference));
    assert_int_equal(apr_session_used(host).weights, all_weights(host));
    assert_true(apr_session_check_memory(host).as_planned || apr_session_check_memory(host).measured == UINT64_MAX);
    assert_true(some_reason_says(host, kind->what));
    assert_int_equal(planned_weights(p, false), all_weights(host));
    for (size_t i = 0; i < p->n; i++) stored += apr_packing_bytes(&p->matrices[i].packing, p->matrices[i].packing.rows);
    assert_true(all_weights(host) >= stored);
    free(reference);
    free(logits);
    apr_session_close(ref);
    apr_session_close(host);
}

static void the_host_reads_packed_matrices_in_place(void **state)
{
    (void)state;
    with_models(check_host, false);
}

static void check_device(packed_model *p, const packed_kind *kind)
{
    apr_session *const ref = open_session(&p->model, &apr_ref_backend, NULL, false);
    apr_session *const s = open_session(&p->model, NULL, fake_device(), false);
    float *const reference = logits_of(ref), *const logits = logits_of(s);

    if (memcmp(reference, logits, (size_t)N_TOKENS * VOCABULARY * sizeof *reference) != 0)
        fail_msg("%s: the device has other weights", kind->what);
    assert_int_equal(fake_device_bytes(), device_lines(s));
    assert_int_equal(planned_weights(p, true), all_weights(s));
    assert_true(some_reason_says(s, kind->what));
    assert_false(some_reason_says(s, "decoded to FP16"));
    free(reference);
    free(logits);
    apr_session_close(s);
    apr_session_close(ref);
}

static void a_device_gets_them_in_the_canonical_layout(void **state)
{
    (void)state;
    with_models(check_device, true);
}

static void check_decoded(packed_model *p, const packed_kind *kind)
{
    apr_session *const ref = open_session(&p->model, &apr_ref_backend, NULL, false);
    fake_device_takes_packed(false);
    apr_session *const s = open_session(&p->model, NULL, fake_device(), false);
    fake_device_takes_packed(true);
    float *const reference = logits_of(ref), *const logits = logits_of(s);

    if (!(distance(logits, reference) <= 0.02)) fail_msg("%s: off by %g as FP16", kind->what, distance(logits, reference));
    assert_int_equal(fake_device_bytes(), device_lines(s));
    assert_true(some_reason_says(s, "decoded to FP16"));
    free(reference);
    free(logits);
    apr_session_close(s);
    apr_session_close(ref);
}

static void a_device_that_cannot_read_it_gets_fp16_and_the_plan_says_so(void **state)
{
    (void)state;
    with_models(check_decoded, false);
}

static void check_copies(packed_model *p, const packed_kind *kind)
{
    apr_session *const ref = open_session(&p->model, &apr_ref_backend, NULL, false);
    apr_session *const s = open_session(&p->model, NULL, fake_device(), true);
    float *const reference = logits_of(ref), *const logits = logits_of(s);

    assert_true(line_bytes(s, APR_LINE_COPIES) > 0);
    if (!(distance(logits, reference) <= 0.02)) fail_msg("%s: off by %g in copies", kind->what, distance(logits, reference));
    assert_int_equal(fake_device_bytes(), device_lines(s));
    free(reference);
    free(logits);
    apr_session_close(s);
    apr_session_close(ref);
}

static void copies_are_made_only_when_they_are_asked_for(void **state)
{
    (void)state;
    with_models(check_copies, false);
}

/* --- as they are published --- */

/* Weights of a plan from the tensors, or from config.json alone. */
static uint64_t counted(const apr_model *model, const apr_model *source, const apr_program *program)
{
    apr_weight_size *const sizes = calloc(program->n_weights + 1, sizeof *sizes);
    apr_model skeleton = {0};
    apr_error err = {0};
    uint64_t sum = 0;

    assert_non_null(sizes);
    if (model == NULL) assert_int_equal(apr_skeleton_model(&skeleton, program, source, NULL), APR_OK);
    if (apr_weight_sizes(model != NULL ? model : &skeleton, program, NULL, true, sizes, &err) != APR_OK) fail_msg("%s", err.text);
    for (size_t i = 0; i < program->n_weights; i++)
        if (program->weights[i].uses != APR_USE_FLOAT) sum += sizes[i].bytes;
    free(sizes);
    apr_model_close(&skeleton);
    return sum;
}

static void check_published(const apr_model *source)
{
    apr_model model;
    assert_int_equal(apr_canonical(&model, source, NULL), APR_OK);
    apr_session *const ref = open_session(&model, &apr_ref_backend, NULL, false), *const s =
                                                                                      open_session(&model, NULL, fake_device(), false);
    float *const reference = logits_of(ref), *const logits = logits_of(s);
    const apr_program *const program = apr_session_program(s);

    if (memcmp(reference, logits, N_TOKENS * (size_t)program->vocab_size * sizeof *reference) != 0)
        fail_msg("%s: other weights", source->path);
    assert_int_equal(fake_device_bytes(), device_lines(s));
    if (some_reason_says(s, "decoded to FP16")) fail_msg("%s: some of it is FP16", source->path);
    assert_int_equal(counted(&model, source, program), all_weights(s));
    /* what config.json does not say of these: types of scales, indices */
    const uint64_t stated = counted(NULL, source, program), has = all_weights(s);
    if (stated > has + 4096 || has > stated + 4096) fail_msg("%s: config.json says %lld bytes", source->path, (long long)stated);
    free(reference);
    free(logits);
    apr_session_close(ref);
    apr_session_close(s);
    apr_model_close(&model);
}

static void published_layouts_run_on_a_device_as_they_are_stored(void **state)
{
    (void)state;
    static const char folder[] = "tests/data/packed";
    int n = 0;
    DIR *const dir = opendir(folder);
    assert_non_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        char path[512];
        apr_model source;
        if (strchr(entry->d_name, '.') != NULL) continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        assert_int_equal(apr_model_open(&source, path, NULL), APR_OK);
        const bool is_known = apr_family_find(source.hparams.architecture) != NULL;
        if (is_known) check_published(&source);
        apr_model_close(&source);
        n += is_known;
    }
    closedir(dir);
    assert_true(n >= 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_host_reads_packed_matrices_in_place),
        cmocka_unit_test(a_device_gets_them_in_the_canonical_layout),
        cmocka_unit_test(a_device_that_cannot_read_it_gets_fp16_and_the_plan_says_so),
        cmocka_unit_test(published_layouts_run_on_a_device_as_they_are_stored),
        cmocka_unit_test(copies_are_made_only_when_they_are_asked_for),
    };
    return cmocka_run_group_tests_name("session_packed", tests, NULL, NULL);
}
