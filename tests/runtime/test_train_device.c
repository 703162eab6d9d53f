/* runtime/train/train_device.h on a device that is none: what a pass and a student compute there is what they compute on the host, bit for
 * bit; what they allocate is what their plans say; and what cannot be done there is refused. */
#include "tests/support/fake_device.h"
#include "tests/support/train_check.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static apr_train_device *open_device(void)
{
    apr_train_device *device;
    assert_int_equal(apr_train_device_open(&device, fake_device(), 0, NULL), APR_OK);
    return device;
}

static void gradients_have_the_bits_of_the_host(void **state)
{
    (void)state;
    for (int i = 0; i < N_TRAIN_CHECK_MODELS; i++) {
        program_model m;
        apr_train_device *const device = open_device();
        train_check_open_model(&m, &train_check_models[i]);
        apr_train *const here = train_check_open(&m.model, NULL), *const there = train_check_open(&m.model, device);
        train_gradients a = train_check_gradients(here), b = train_check_gradients(there), again = train_check_gradients(there);
        if (!train_check_same_bits(&a, &b)) fail_msg("%s: %s", train_check_models[i].architecture, train_check_models[i].what);
        assert_true(train_check_same_bits(&a, &again)); /* from memory that was used */
        train_check_close(&a), train_check_close(&b), train_check_close(&again);
        apr_train_close(here), apr_train_close(there);
        apr_train_device_close(device);
        program_model_close(&m);
    }
}

static uint64_t bytes_of_lines(const apr_train_line *lines, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += lines[i].on_device ? lines[i].bytes : 0;
    return sum;
}

static uint64_t bytes_of_pass(const apr_train *t)
{
    size_t n;
    const apr_train_line *const lines = apr_train_plan(t, &n);
    return bytes_of_lines(lines, n);
}

static uint64_t bytes_of_student(const apr_student *s)
{
    size_t n;
    const apr_train_line *const lines = apr_student_plan(s, &n);
    return bytes_of_lines(lines, n);
}

static void what_is_planned_is_allocated(void **state)
{
    (void)state;
    program_model m;
    double loss;
    apr_error err = {0};
    apr_student *student;
    apr_train_device *const device = open_device();
    const apr_train_options options = train_check_options(device);

    train_check_open_model(&m, &train_check_models[0]);
    apr_train *const t = train_check_open(&m.model, device);
    assert_int_equal(apr_student_open(&student, &m.model, &options, &err), APR_OK);
    assert_true(fake_device_bytes() == device->line.bytes); /* nothing before the first run */
    uint64_t planned = device->line.bytes + bytes_of_pass(t);
    train_gradients g = train_check_gradients(t);
    assert_true(fake_device_bytes() == planned);
    planned += bytes_of_student(student);
    assert_int_equal(apr_student_step(student, train_check_ids(), &train_check_teacher, (apr_student_rate){1e-3, 0.1}, &loss, &err),
                     APR_OK);
    assert_true(fake_device_bytes() == planned);
    train_check_close(&g);
    apr_student_close(student);
    apr_train_close(t);
    assert_true(fake_device_bytes() == device->line.bytes);
    apr_train_device_close(device);
    program_model_close(&m);
}

/* Logits do not leave the device. */
static void a_teacher_may_be_there(void **state)
{
    (void)state;
    program_model m;
    double loss = 1.0;
    apr_error err = {0};
    apr_train_device *const device = open_device();

    train_check_open_model(&m, &train_check_models[2]);
    apr_train *const there = train_check_open(&m.model, device), *const other = train_check_open(&m.model, device),
                     *const here = train_check_open(&m.model, NULL);
    apr_train_model model = {.train = other};
    const apr_train_teacher teacher = apr_train_teacher_of(&model);
    assert_int_equal(apr_train_forward(other, NULL, train_check_ids(), &err), APR_OK);
    assert_int_equal(apr_train_loss(there, NULL, train_check_ids(), &teacher, &loss, NULL, &err), APR_OK);
    assert_true(loss == 0.0);
    assert_int_equal(apr_train_loss(here, NULL, train_check_ids(), &teacher, &loss, NULL, &err), APR_E_USAGE);
    apr_train_close(there), apr_train_close(other), apr_train_close(here);
    apr_train_device_close(device);
    program_model_close(&m);
}

static apr_student *taught(const apr_model *model, apr_train_device *device, double *losses, int n)
{
    const apr_train_options options = train_check_options(device);
    apr_error err = {0};
    apr_student *s;

    assert_int_equal(apr_student_open(&s, model, &options, &err), APR_OK);
    for (int i = 0; i < n; i++)
        if (apr_student_step(s, train_check_ids(), &train_check_teacher, (apr_student_rate){3e-3, 0.1}, &losses[i], &err) != APR_OK)
            fail_msg("%s", err.text);
    assert_int_equal(apr_student_finish(s, &err), APR_OK);
    return s;
}

static void a_student_learns_the_same(void **state)
{
    (void)state;
    enum { STEPS = 8 };
    program_model m;
    size_t n;
    double here[STEPS], there[STEPS];
    apr_train_device *const device = open_device();

    train_check_open_model(&m, &train_check_models[0]);
    apr_student *const a = taught(&m.model, NULL, here, STEPS), *const b = taught(&m.model, device, there, STEPS);
    assert_memory_equal(here, there, sizeof here);
    assert_true(here[STEPS - 1] < here[0]);
    const apr_tensor *const *const tensors = apr_student_tensors(a, &n);
    for (size_t i = 0; i < n; i++)
        assert_memory_equal(apr_student_bytes(a, i), apr_student_bytes(b, i),
                            (size_t)apr_tensor_elems(tensors[i]) * apr_dtypes[tensors[i]->dtype].bytes_per_block);
    apr_student_close(a), apr_student_close(b);
    apr_train_device_close(device);
    program_model_close(&m);
}

static void an_operation_that_is_not_there_is_named(void **state)
{
    (void)state;
    static const uint8_t mixer = APR_LAYER_FULL, ffn = APR_FFN_EXPERTS;
    program_model m;
    apr_train *t;
    apr_error err = {0};
    apr_train_device *const device = open_device();
    apr_train_options options = train_check_options(device);
    apr_hparams h = program_model_sizes("qwen3_moe");

    h.num_layers = 1;
    h.layer_kinds = &mixer;
    h.ffn_kinds = &ffn;
    assert_int_equal(program_model_open(&m, &h, APR_F32, &err), APR_OK);
    assert_int_equal(apr_train_open(&t, &m.model, &options, &err), APR_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "the operation 'route' (layer 0) has no backward pass on a GPU"));
    options.float64 = true;
    assert_int_equal(apr_train_open(&t, &m.model, &options, &err), APR_E_USAGE);
    apr_train_device_close(device);
    program_model_close(&m);
}

/* Whichever allocation fails, the run ends with an error, and everything is given back. */
static void any_allocation_may_fail(void **state)
{
    (void)state;
    program_model m;
    apr_error err = {0};
    double loss;
    int n_failed = 0;

    train_check_open_model(&m, &train_check_models[0]);
    for (int nth = 1; nth < 40; nth++) {
        apr_train_device *const device = open_device();
        const apr_train_options options = train_check_options(device);
        apr_student *s;
        assert_int_equal(apr_student_open(&s, &m.model, &options, &err), APR_OK);
        fake_device_fail_allocation(nth);
        n_failed +=
            apr_student_step(s, train_check_ids(), &train_check_teacher, (apr_student_rate){1e-3, 0.1}, &loss, &err) == APR_E_DEVICE;
        fake_device_fail_allocation(0);
        apr_student_close(s);
        assert_true(fake_device_bytes() == device->line.bytes);
        apr_train_device_close(device);
    }
    assert_int_equal(n_failed, 13); /* the lines of a student's own and of its pass */
    program_model_close(&m);
}

static void what_does_not_fit_is_said(void **state)
{
    (void)state;
    apr_error err = {0};
    apr_train_device *const device = open_device();

    fake_device_has_memory((uint64_t)1 << 30);
    assert_int_equal(apr_train_device_check(device, 512 << 20, "training", "use --device host", &err), APR_OK);
    assert_int_equal(apr_train_device_check(device, (uint64_t)1 << 30, "training", "use --device host", &err), APR_E_MEMORY);
    assert_non_null(
        strstr(err.text, "training needs 1.25 GiB of GPU memory with what the driver takes, 0.28 GiB more than a fake has free"));
    fake_device_has_memory((uint64_t)1 << 34);
    apr_train_device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_have_the_bits_of_the_host),
        cmocka_unit_test(what_is_planned_is_allocated),
        cmocka_unit_test(a_teacher_may_be_there),
        cmocka_unit_test(a_student_learns_the_same),
        cmocka_unit_test(an_operation_that_is_not_there_is_named),
        cmocka_unit_test(any_allocation_may_fail),
        cmocka_unit_test(what_does_not_fit_is_said),
    };
    return cmocka_run_group_tests_name("train_device", tests, NULL, NULL);
}
