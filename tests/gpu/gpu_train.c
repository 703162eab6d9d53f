/* runtime/train on a GPU: gradients of whole dense models against the host's, the same bits again, what is planned against what the driver
 * has less, and a student whose loss falls.
 *
 * Products that give gradients by a layer's input or weight round theirs to 11 bits. The gradient of a whole model is within 1e-3 of the
 * host's, that of one tensor within 2e-3. The same with exact products holds the formulas: within 1e-5, and 5e-5 of one tensor. Those of keys'
 * biases are off the most then: they are small differences of larger numbers, because a change that all scores of a row share has no
 * effect. */
#include "kernels/cuda_loader.h"
#include "tests/support/train_check.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const apr_cuda_api *cuda;

typedef struct bounds {
    double whole, tensor, loss;
} bounds;
static const bounds ROUNDED = {1e-3, 2e-3, 1e-6}, EXACT = {1e-5, 5e-5, 1e-6};

static apr_train_device *open_device(void)
{
    apr_train_device *device;
    apr_error err = {0};
    if (apr_train_device_open(&device, cuda, 0, &err) != APR_OK) fail_msg("%s", err.text);
    return device;
}

static void compare_with_host(const train_check_model *of, apr_train_device *device, bounds most)
{
    program_model m;
    train_check_open_model(&m, of);
    apr_train *const here = train_check_open(&m.model, NULL), *const there = train_check_open(&m.model, device);
    train_gradients a = train_check_gradients(here), b = train_check_gradients(there), again = train_check_gradients(there);
    const train_distances off = train_check_distances(&a, &b);
    const double off_loss = fabs(a.loss - b.loss) / a.loss;

    printf("%s (%s): off by %.1e: the loss %.1e, the worst tensor %.1e (%s)\n", of->architecture, of->what, off.whole, off_loss, off.worst,
           off.name);
    if (!(off.whole <= most.whole && off.worst <= most.tensor && off_loss <= most.loss)) fail_msg("%s", of->architecture);
    assert_true(off.whole > 0.0); /* sums in another order: otherwise this is not a GPU's pass */
    if (!train_check_same_bits(&b, &again)) fail_msg("%s: other bits in the second pass", of->architecture);
    train_check_close(&a), train_check_close(&b), train_check_close(&again);
    apr_train_close(here), apr_train_close(there);
    program_model_close(&m);
}

static void compare_models(bool exact, bounds most)
{
    for (int i = 0; i < N_TRAIN_CHECK_MODELS; i++) {
        apr_train_device *const device = open_device();
        cuda->use_exact(device->device, exact);
        compare_with_host(&train_check_models[i], device, most);
        apr_train_device_close(device);
    }
}

static void gradients_are_those_of_the_host(void **state)
{
    (void)state;
    compare_models(false, ROUNDED);
}

static void gradients_with_exact_products_are_those_of_the_host(void **state)
{
    (void)state;
    compare_models(true, EXACT);
}

static apr_train *open_kept(const apr_model *model, apr_train_device *device)
{
    apr_train_options options = train_check_options(device);
    apr_error err = {0};
    apr_train *t;

    options.keeps_weights = true;
    if (apr_train_open(&t, model, &options, &err) != APR_OK) fail_msg("%s", err.text);
    return t;
}

static uint64_t planned_bytes(const apr_train *t, const char *key)
{
    size_t n;
    const apr_train_line *const lines = apr_train_plan(t, &n);
    for (size_t i = 0; i < n; i++)
        if (strcmp(lines[i].key, key) == 0) return lines[i].bytes;
    return 0;
}

static bool gives_same_bits(apr_train *a, apr_train *b)
{
    train_gradients of_a = train_check_gradients(a), of_b = train_check_gradients(b);
    const bool same = train_check_same_bits(&of_a, &of_b);

    train_check_close(&of_a), train_check_close(&of_b);
    return same;
}

/* Changes what is stored of the last matrix. */
static const apr_tensor *change_a_matrix(const apr_train *t)
{
    size_t n;
    const apr_tensor *const *const tensors = apr_train_tensors(t, &n);
    while (n-- > 0)
        if (tensors[n]->rank == 2) {
            uint8_t *const bytes = (uint8_t *)(uintptr_t)tensors[n]->data; /* the test's own memory */
            bytes[tensors[n]->n_bytes / 2 + 8] ^= 0x40;
            return tensors[n];
        }
    fail();
    return NULL;
}

/* Passes that keep matrices on the device, as they are stored, give the bits of those that send them; a change counts when it is said. */
static void kept_weights_give_the_same_bits(void **state)
{
    static const apr_dtype types[] = {APR_F32, APR_F16, APR_BF16, APR_Q8_0, APR_MXFP4};
    (void)state;

    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        program_model m;
        apr_error err = {0};
        apr_train_device *const device = open_device();
        train_check_open_typed(&m, &train_check_models[i % N_TRAIN_CHECK_MODELS], types[i]);
        apr_train *const sent = train_check_open(&m.model, device), *const kept = open_kept(&m.model, device);
        assert_int_equal(planned_bytes(sent, "train.stored"), 0);
        assert_true(planned_bytes(kept, "train.stored") > 0);
        if (!gives_same_bits(sent, kept)) fail_msg("%s: other bits", apr_dtypes[types[i]].name);
        const apr_tensor *const changed = change_a_matrix(kept);
        if (gives_same_bits(sent, kept)) fail_msg("%s: the change of '%s' is not seen, or seen too early", m.model.path, changed->name);
        assert_int_equal(apr_train_renew(kept, changed, &err), APR_OK);
        if (!gives_same_bits(sent, kept)) fail_msg("%s: other bits after '%s' was renewed", apr_dtypes[types[i]].name, changed->name);
        apr_train_close(sent), apr_train_close(kept);
        apr_train_device_close(device);
        program_model_close(&m);
    }
}

/* One layer, whose feed-forward matrices are larger than 128 rows of logits, the fewest that are computed at a time. */
static void open_wide(program_model *m, apr_dtype dtype)
{
    apr_hparams h = program_model_sizes("qwen3");
    apr_error err = {0};

    h.num_layers = 1;
    h.num_experts = 0;
    h.intermediate_size = 2048;
    if (program_model_open(m, &h, dtype, &err) != APR_OK) fail_msg("%s", err.text);
}

/* The logits of one row; *floats: bytes of the host through which a teacher's numbers and matrices go. */
static void teach(const apr_model *model, apr_train_device *device, bool keeps, float *logits, uint64_t *floats)
{
    apr_train_options options = train_check_options(device);
    apr_error err = {0};
    apr_train *t;

    options.forward_only = true;
    options.n_logits = 1;
    options.keeps_weights = keeps;
    if (apr_train_open(&t, model, &options, &err) != APR_OK) fail_msg("%s", err.text);
    *floats = planned_bytes(t, "train.floats");
    if (apr_train_forward(t, NULL, train_check_ids(), &err) != APR_OK) fail_msg("%s", err.text);
    if (apr_train_logits(t, NULL, 5, 1, logits, &err) != APR_OK) fail_msg("%s", err.text);
    apr_train_close(t);
}

/* A teacher that keeps its matrices plans room for the largest as it is stored: no logits and no decoded numbers need more. */
static void a_teacher_has_room_for_its_matrices(void **state)
{
    enum { MOST_VOCABULARY = 4096 };
    static const apr_dtype types[] = {APR_F32, APR_F16};
    static float sent[MOST_VOCABULARY], kept[MOST_VOCABULARY];
    (void)state;

    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        program_model m;
        uint64_t of_sent, of_kept, largest = 0;
        apr_train_device *const device = open_device();
        open_wide(&m, types[i]);
        const int64_t vocab_size = m.model.hparams.vocab_size;
        assert_in_range(vocab_size, 1, MOST_VOCABULARY);
        for (size_t k = 0; k < m.model.n_tensors; k++)
            if (m.model.tensors[k].n_bytes > largest) largest = m.model.tensors[k].n_bytes;
        teach(&m.model, device, false, sent, &of_sent);
        teach(&m.model, device, true, kept, &of_kept);
        assert_true(largest > 128 * (uint64_t)vocab_size * sizeof *kept);
        assert_in_range(of_kept, largest, of_sent);
        assert_memory_equal(sent, kept, (size_t)vocab_size * sizeof *sent);
        apr_train_device_close(device);
        program_model_close(&m);
    }
}

/* All gradients of a pass, one behind the other; and how many were handed out from another place than they were asked for. */
typedef struct own_memory {
    float *numbers;
    const float *asked;
    int64_t n, most;
    int n_given, n_elsewhere;
} own_memory;

static apr_status give_room(void *user, const apr_tensor *tensor, float **to, apr_error *err)
{
    own_memory *const own = user;

    (void)err;
    assert_true(own->n + apr_tensor_elems(tensor) <= own->most);
    own->asked = *to = own->numbers + own->n;
    return APR_OK;
}

static apr_status take_own(void *user, const apr_tensor *tensor, const float *gradient, apr_error *err)
{
    own_memory *const own = user;
    const int64_t n = apr_tensor_elems(tensor);

    (void)err;
    assert_true(own->n + n <= own->most);
    own->n_given++;
    own->n_elsewhere += gradient != own->asked;
    if (gradient != own->numbers + own->n) memcpy(own->numbers + own->n, gradient, (size_t)n * sizeof *gradient);
    own->n += n;
    return APR_OK;
}

static own_memory own_gradients(const apr_model *model, apr_train_device *device, bool has_room)
{
    const apr_train_options options = train_check_options(device);
    own_memory own = {0};
    const apr_train_weights weights = {.gradient = take_own, .room = has_room ? give_room : NULL, .user = &own};
    apr_error err = {0};
    size_t n_tensors;
    double loss;
    apr_train *t;

    if (apr_train_open(&t, model, &options, &err) != APR_OK) fail_msg("%s", err.text);
    const apr_tensor *const *const tensors = apr_train_tensors(t, &n_tensors);
    for (size_t i = 0; i < n_tensors; i++) own.most += apr_tensor_elems(tensors[i]);
    own.numbers = calloc((size_t)own.most + 1, sizeof *own.numbers);
    assert_non_null(own.numbers);
    if (apr_train_gradient(t, &weights, train_check_ids(), &train_check_teacher, &loss, &err) != APR_OK) fail_msg("%s", err.text);
    apr_train_close(t);
    return own;
}

/* They are there until the pass has ended, with the numbers that a pass hands out in its own memory. */
static void gradients_are_put_where_a_caller_wants_them(void **state)
{
    (void)state;
    for (int i = 0; i < N_TRAIN_CHECK_MODELS; i++) {
        program_model m;
        apr_train_device *const device = open_device();
        train_check_open_model(&m, &train_check_models[i]);
        const own_memory there = own_gradients(&m.model, device, true), passed = own_gradients(&m.model, device, false);
        assert_int_equal(there.n_elsewhere, 0);
        assert_true(there.n_given > 1);
        assert_int_equal(there.n_given, passed.n_given);
        assert_int_equal(passed.n_elsewhere, passed.n_given);
        assert_memory_equal(there.numbers, passed.numbers, (size_t)there.n * sizeof *there.numbers);
        free(there.numbers), free(passed.numbers);
        apr_train_device_close(device);
        program_model_close(&m);
    }
}

/* The student's bytes after n steps, and the loss of each. */
static apr_student *taught(const apr_model *model, apr_train_device *device, double *losses, int n)
{
    const apr_train_options options = train_check_options(device);
    apr_error err = {0};
    apr_student *s;

    if (apr_student_open(&s, model, &options, &err) != APR_OK) fail_msg("%s", err.text);
    for (int i = 0; i < n; i++)
        if (apr_student_step(s, train_check_ids(), &train_check_teacher, (apr_student_rate){3e-3, 0.01}, &losses[i], &err) != APR_OK)
            fail_msg("%s", err.text);
    if (apr_student_finish(s, &err) != APR_OK) fail_msg("%s", err.text);
    return s;
}

static void a_loss_falls_in_twenty_steps(void **state)
{
    enum { STEPS = 20 };
    program_model m;
    size_t n;
    double here[STEPS], there[STEPS], again[STEPS];
    (void)state;
    apr_train_device *const device = open_device();

    train_check_open_model(&m, &train_check_models[0]);
    apr_student *const a = taught(&m.model, NULL, here, STEPS), *const b = taught(&m.model, device, there, STEPS),
                       *const c = taught(&m.model, device, again, STEPS);
    printf("the loss falls from %.4f to %.4f, on the host to %.4f\n", there[0], there[STEPS - 1], here[STEPS - 1]);
    assert_true(there[STEPS - 1] < 0.9 * there[0]);
    assert_true(fabs(there[STEPS - 1] - here[STEPS - 1]) < 0.01 * here[0]);
    assert_memory_equal(there, again, sizeof there);
    const apr_tensor *const *const tensors = apr_student_tensors(b, &n);
    for (size_t i = 0; i < n; i++)
        assert_memory_equal(apr_student_bytes(b, i), apr_student_bytes(c, i),
                            (size_t)apr_tensor_elems(tensors[i]) * apr_dtypes[tensors[i]->dtype].bytes_per_block);
    apr_student_close(a), apr_student_close(b), apr_student_close(c);
    apr_train_device_close(device);
    program_model_close(&m);
}

/* The driver gives whole blocks: at least what is planned, and not a block more for each line. */
static void the_driver_has_as_much_less(void **state)
{
    program_model m;
    uint64_t before, after, total, planned = 0;
    size_t n;
    apr_error err = {0};
    (void)state;
    apr_train_device *const device = open_device();

    train_check_open_model(&m, &train_check_models[1]);
    apr_train *const t = train_check_open(&m.model, device);
    const apr_train_line *const lines = apr_train_plan(t, &n);
    for (size_t i = 0; i < n; i++) planned += lines[i].on_device ? lines[i].bytes : 0;
    assert_int_equal(cuda->memory(device->device, &before, &total, &err), APR_OK);
    assert_int_equal(apr_train_device_check(device, total, "training", "use --device host", &err), APR_E_MEMORY);
    assert_int_equal(apr_train_device_check(device, planned, "training", "use --device host", &err), APR_OK);
    train_gradients g = train_check_gradients(t);
    assert_int_equal(cuda->memory(device->device, &after, &total, &err), APR_OK);
    printf("planned: %llu bytes; the driver has %llu less\n", (unsigned long long)planned, (unsigned long long)(before - after));
    assert_true(before - after <= planned + APR_TRAIN_RESERVE);
    train_check_close(&g);
    apr_train_close(t);
    apr_train_device_close(device);
    program_model_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_those_of_the_host),
        cmocka_unit_test(gradients_with_exact_products_are_those_of_the_host),
        cmocka_unit_test(kept_weights_give_the_same_bits),
        cmocka_unit_test(a_teacher_has_room_for_its_matrices),
        cmocka_unit_test(gradients_are_put_where_a_caller_wants_them),
        cmocka_unit_test(a_loss_falls_in_twenty_steps),
        cmocka_unit_test(the_driver_has_as_much_less),
    };
    apr_error err = {0};
    int n;

    if (apr_cuda_load(&cuda, &err) != APR_OK || cuda->count(&n, &err) != APR_OK) {
        printf("skipped: no device (%s)\n", err.text);
        return 77;
    }
    return cmocka_run_group_tests_name("gpu_train", tests, NULL, NULL);
}
