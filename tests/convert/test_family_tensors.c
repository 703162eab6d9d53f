/* What happened to tensors of these families elsewhere, on the way into a GGUF and out of it: a norm's one added twice or never,
 * rotary divisors that half precision cannot hold, scales along the wrong side of transposed experts. */
#define _XOPEN_SOURCE 700
#include "convert/convert.h"
#include "convert/naming.h"
#include "kernels/rows.h"
#include "tests/support/conversion.h"
#include "tests/support/family_model.h"
#include "tests/support/work_folder.h"

#include <dirent.h>
#include <math.h>

/* ---- helpers ---- */

static void make(const char *name, const char *out, const family_edit *edit)
{
    char dir[256];
    apr_error err = {0};
    snprintf(dir, sizeof dir, "tests/data/families/%s", name);
    if (family_write(dir, out, edit, &err) != APR_OK) fail_msg("%s", err.text);
}

static apr_model open_model(const char *path)
{
    apr_model m;
    apr_error err = {0};
    if (apr_model_open(&m, path, &err) != APR_OK) fail_msg("%s", err.text);
    return m;
}

static const apr_tensor *tensor_of(const apr_model *m, const char *name)
{
    const apr_tensor *const t = apr_model_find(m, name);
    if (t == NULL) fail_msg("%s: no tensor '%s'", m->path, name);
    return t;
}

/* ---- a GGUF to a checkpoint and back ---- */

static void assert_same_tensors(const char *family, const char *first, const char *second)
{
    apr_model a = open_model(first), b = open_model(second);
    assert_int_equal(a.n_tensors, b.n_tensors);
    for (size_t i = 0; i < a.n_tensors; i++) {
        const apr_tensor *const x = &a.tensors[i], *const y = tensor_of(&b, x->name);
        if (y->dtype != x->dtype || y->rank != x->rank || memcmp(y->dims, x->dims, sizeof x->dims) != 0)
            fail_msg("%s: '%s' has another type or shape", family, x->name);
        if (memcmp(y->data, x->data, (size_t)x->n_bytes) != 0) fail_msg("%s: '%s' has other bytes", family, x->name);
    }
    apr_model_close(&a);
    apr_model_close(&b);
}

/* What was added on the way in is taken away on the way out, once each. */
static void a_gguf_comes_back_from_a_checkpoint_byte_for_byte(void **state)
{
    DIR *const dir = opendir("tests/data/families");
    int n = 0;
    (void)state;
    assert_non_null(dir);
    for (const struct dirent *e; (e = readdir(dir)) != NULL;) {
        char from[512];
        snprintf(from, sizeof from, "tests/data/families/%s", e->d_name);
        if (strchr(e->d_name, '.') != NULL || !family_is_in_gguf(from)) continue;
        make(e->d_name, in_work("ck"), NULL);
        convert_as(in_work("ck"), in_work("m.gguf"), NULL);
        convert_as(in_work("m.gguf"), in_work("back"), NULL);
        convert_as(in_work("back"), in_work("m2.gguf"), NULL);
        assert_same_tensors(e->d_name, in_work("m.gguf"), in_work("m2.gguf"));
        n++;
    }
    closedir(dir);
    assert_true(n >= 60); /* all but opt and bailing_hybrid */
}

/* ---- rotary divisors ---- */

/* 1e30 for dimensions that do not turn: no half has it. */
static void rotary_divisors_stay_float32_in_every_mixture(void **state)
{
    static const char *const mixtures[] = {"f16", "bf16", "q8_0", "q4_k_m"};
    (void)state;
    make("gemma4", in_work("gemma4"), NULL);
    for (size_t i = 0; i < sizeof mixtures / sizeof *mixtures; i++) {
        convert_as(in_work("gemma4"), in_work("g.gguf"), mixtures[i]);
        apr_model m = open_model(in_work("g.gguf"));
        const apr_tensor *const divisors = tensor_of(&m, "rope_freqs.weight");
        float numbers[64];
        assert_int_equal(divisors->dtype, APR_F32);
        assert_true(apr_tensor_elems(divisors) <= 64 && apr_tensor_elems(divisors) > 4);
        apr_decode_rows(divisors, 0, 1, numbers);
        assert_true(numbers[0] == 1.0f && numbers[apr_tensor_elems(divisors) - 1] == 1e30f);
        apr_model_close(&m);
    }
}

/* ---- transposed experts ---- */

/* Columns of a transposed expert are rows of outputs; each gets another size, so that a scale along the wrong side crushes most. */
static void size_outputs(void *user, const char *name, const int64_t *dims, int rank, float *values)
{
    (void)user;
    if (strstr(name, ".experts.") == NULL || rank != 3) return;
    for (int64_t i = 0; i < dims[0] * dims[1] * dims[2]; i++) values[i] = ldexpf(values[i], (int)(i % dims[2] % 9) * 3 - 12);
}

static double row_error(const float *a, const float *b, int64_t n)
{
    double error = 0.0, power = 1e-30;
    for (int64_t i = 0; i < n; i++) {
        error += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        power += (double)a[i] * (double)a[i];
    }
    return sqrt(error / power);
}

static void assert_rows_survive(const apr_tensor *x, const apr_tensor *y, double bound)
{
    const int64_t width = x->dims[x->rank - 1];
    float a[256], b[256];
    assert_true(width <= 256 && apr_tensor_rows(x) == apr_tensor_rows(y));
    for (int64_t r = 0; r < apr_tensor_rows(x); r++) {
        apr_decode_rows(x, r, 1, a);
        apr_decode_rows(y, r, 1, b);
        if (!(row_error(a, b, width) < bound)) fail_msg("'%s', row %lld: off by %g", x->name, (long long)r, row_error(a, b, width));
    }
}

/* The width of llama4's experts here is 32 or 20, where FP8 has a scale for each row, and Q8_0 blocks only for the former. */
static void scales_of_transposed_experts_are_of_their_outputs(void **state)
{
    static const struct {
        const char *mixture, *file;
        apr_dtype dtype;
    } rows[] = {{"fp8", "l.apr", APR_F8_E4M3}, {"q8_0", "l8.apr", APR_Q8_0}, {"q8_0", "l.gguf", APR_Q8_0}};
    static const char *const experts[] = {"gate_proj", "up_proj", "down_proj"};
    const family_edit edit = {.tensor = size_outputs};
    (void)state;
    make("llama4", in_work("llama4"), &edit);
    convert_as(in_work("llama4"), in_work("plain.apr"), NULL); /* put in order: [out, in] */
    apr_model plain = open_model(in_work("plain.apr"));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        convert_as(in_work("llama4"), in_work(rows[i].file), rows[i].mixture);
        apr_model other = open_model(in_work(rows[i].file)), view;
        assert_int_equal(apr_canonical(&view, &other, NULL), APR_OK);
        assert_int_equal(tensor_of(&view, "model.layers.1.feed_forward.experts.0.up_proj.weight")->dtype, rows[i].dtype);
        for (int e = 0; e < 6 * 3; e++) {
            char name[128];
            snprintf(name, sizeof name, "model.layers.1.feed_forward.experts.%d.%s.weight", e / 3, experts[e % 3]);
            assert_rows_survive(tensor_of(&plain, name), tensor_of(&view, name), 0.05);
        }
        apr_model_close(&view);
        apr_model_close(&other);
    }
    apr_model_close(&plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gguf_comes_back_from_a_checkpoint_byte_for_byte),
        cmocka_unit_test(rotary_divisors_stay_float32_in_every_mixture),
        cmocka_unit_test(scales_of_transposed_experts_are_of_their_outputs),
    };
    return cmocka_run_group_tests_name("family_tensors", tests, make_work, remove_work);
}
