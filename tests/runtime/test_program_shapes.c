/* runtime/program, runtime/plan: whatever a model says of its shape, it is planned or refused in a sentence, and nothing overflows. */
#include "formats/base/random.h"
#include "runtime/plan/plan.h"
#include "runtime/program/families.h"
#include "tests/support/program_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { N_SHAPES = 400, N_CHANGED = 4, N_LAYERS = 4 };

/* Nothing, the usual, what does not divide, what is too much. */
static int64_t any_size(uint64_t *seed)
{
    static const int64_t sizes[] = {0, 1, 2, 3, 8, 31, 64, 1000, 4097, 65537, (int64_t)1 << 28, (int64_t)1 << 31, (int64_t)1 << 40};
    return sizes[apr_random(seed) % (sizeof sizes / sizeof *sizes)];
}

static double any_number(uint64_t *seed)
{
    static const double numbers[] = {0.0, 1e-30, 0.5, 1.0, 30.0, 1e9, 9e17};
    return numbers[apr_random(seed) % (sizeof numbers / sizeof *numbers)];
}

static void change_a_field(apr_hparams *h, uint64_t *seed)
{
    const apr_hparam_field *const field = &apr_hparam_fields[apr_random(seed) % apr_n_hparam_fields];

    if (strcmp(field->name, "num_layers") == 0) return; /* each has its kind */
    if (field->is_int) *apr_hparam_int(h, field) = any_size(seed);
    else *apr_hparam_real(h, field) = any_number(seed);
}

static apr_hparams any_shape(const apr_family *family, uint8_t *mixers, uint8_t *ffns, uint64_t *seed)
{
    apr_hparams h = program_model_sizes(family->types[0].name);
    const uint8_t ffn = (uint8_t)(apr_random(seed) % APR_N_FFN_KINDS);
    const uint8_t mixer = apr_random(seed) % 2 == 0 ? APR_LAYER_FULL : (uint8_t)(apr_random(seed) % APR_N_LAYER_KINDS);

    h.num_layers = N_LAYERS;
    for (int i = 0; i < N_LAYERS; i++) {
        mixers[i] = i < N_LAYERS - 1 ? mixer : (uint8_t)(apr_random(seed) % 8 == 0 ? apr_random(seed) % APR_N_LAYER_KINDS : mixer);
        ffns[i] = ffn;
    }
    h.layer_kinds = mixers;
    h.ffn_kinds = ffns;
    if (ffn != APR_FFN_EXPERTS) h.num_experts = 0;
    if (apr_random(seed) % 4 == 0)
        h.rope = (apr_rope_scaling){.kind = (apr_rope_kind)(apr_random(seed) % APR_N_ROPE_KINDS),
                                    .factor = any_number(seed),
                                    .original_context = any_size(seed),
                                    .alpha = any_number(seed),
                                    .low_freq_factor = any_number(seed),
                                    .high_freq_factor = any_number(seed),
                                    .partial_rotary_factor = any_number(seed)};
    for (size_t i = 0; i < apr_n_hflag_fields; i++) *apr_hflag(&h, &apr_hflag_fields[i]) = apr_random(seed) % 2 == 0;
    for (uint64_t n = apr_random(seed) % (N_CHANGED + 1); n > 0; n--) change_a_field(&h, seed);
    return h;
}

static void refused_in_a_sentence(apr_status status, const apr_error *err)
{
    assert_true(status == APR_E_DAMAGED || status == APR_E_UNSUPPORTED);
    assert_true(strlen(err->text) > 10);
    assert_null(strchr(err->text, '\n'));
}

/* Bytes that did not wrap around: no value is wider than the activations that it is one of. */
static void check_plan(const apr_program *program, const apr_plan_options *options)
{
    apr_error err = {0};
    apr_plan plan;
    const apr_status status = apr_plan_make(&plan, program, options, &err);

    if (status != APR_OK) {
        refused_in_a_sentence(status, &err);
        return;
    }
    const apr_plan_line *const activations = apr_plan_line_of(&plan, APR_LINE_ACTIVATIONS);
    assert_non_null(activations);
    for (size_t i = 0; i < program->n_values; i++)
        assert_true(program->values[i].is_logits || activations->bytes / 4 / (uint64_t)plan.n_batch >= (uint64_t)program->values[i].width);
    apr_plan_close(&plan);
}

static bool check_shape(const apr_hparams *shape)
{
    apr_plan_options options = apr_plan_defaults;
    apr_hparams h = *shape;
    apr_arena arena = {0};
    apr_error err = {0};
    apr_program program;

    options.n_ctx = options.n_batch = options.n_logits = (int64_t)1 << 31;
    apr_status status = apr_hparams_complete(&h, &arena, "a test", &err);
    if (status == APR_OK) status = apr_program_emit(&program, &h, &err);
    if (status == APR_OK) {
        for (size_t i = 0; i < program.n_values; i++) assert_in_range(program.values[i].width, 1, APR_MAX_ROW);
        for (size_t i = 0; i < program.n_weights; i++) assert_true(apr_slot_elems(&program.weights[i]) > 0);
        check_plan(&program, &options);
        options.gpu = &apr_gpus[0];
        check_plan(&program, &options);
        apr_program_close(&program);
    } else refused_in_a_sentence(status, &err);
    apr_arena_close(&arena);
    return status == APR_OK;
}

static void every_shape_of_every_family_is_planned_or_refused(void **state)
{
    (void)state;
    for (size_t f = 0; f < apr_n_families; f++) {
        uint8_t mixers[N_LAYERS], ffns[N_LAYERS];
        uint64_t seed = f;
        int n_planned = 0;

        if (apr_family_program_of(apr_families[f]) == NULL) continue;
        for (int i = 0; i < N_SHAPES; i++) {
            const apr_hparams h = any_shape(apr_families[f], mixers, ffns, &seed);
            n_planned += check_shape(&h);
        }
        if (n_planned == 0) fail_msg("none of the shapes of %s is planned: they test nothing", apr_families[f]->name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shape_of_every_family_is_planned_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
