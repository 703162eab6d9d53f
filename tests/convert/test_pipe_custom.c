/* convert/pipe.h: items of a custom encoder go to their place in the output, measured and checked like the others. */
#define _XOPEN_SOURCE 700
#include "convert/run.h"
#include "kernels/rows.h"
#include "tests/support/work_folder.h"

/* Makes every Q8_0 tensor of a conversion of ones, but the one that it fails at. */
typedef struct custom_encoder {
    const apr_conversion *c;
    uint8_t *bytes;
    size_t n_made;
    const char *fails_at;        /* part of a name, or NULL */
    const char *out_of_range_at; /* there it says that a value is beyond the type */
} custom_encoder;

static bool takes(void *user, size_t item) { return ((const custom_encoder *)user)->c->items[item].to == APR_Q8_0; }

static apr_status make(void *user, size_t item, const uint8_t **bytes, apr_out_of_range *out_of_range, apr_error *err)
{
    custom_encoder *const m = user;
    const apr_tensor *const from = m->c->items[item].from;
    const int64_t n = apr_tensor_elems(from);
    float *const ones = malloc((size_t)n * sizeof *ones);

    if (m->fails_at != NULL && strstr(from->name, m->fails_at) != NULL) {
        free(ones);
        return apr_fail(err, APR_E_DAMAGED, "%s cannot be made", from->name);
    }
    *out_of_range = (apr_out_of_range){0};
    if (m->out_of_range_at != NULL && strstr(from->name, m->out_of_range_at) != NULL)
        *out_of_range = (apr_out_of_range){.n_out_of_range = 1, .worst = 3e38f};
    for (int64_t i = 0; i < n; i++) ones[i] = 1.0f;
    free(m->bytes);
    m->bytes = malloc((size_t)apr_row_bytes(APR_Q8_0, n));
    apr_ref_codecs[APR_Q8_0].encode(ones, m->bytes, n);
    free(ones);
    m->n_made++;
    *bytes = m->bytes;
    return APR_OK;
}

static apr_status run(custom_encoder *m, apr_conversion *c, apr_model *source, const char *out, apr_error *err)
{
    const apr_custom_encoder made = {takes, make, m};
    const apr_convert_options options = {.format = APR_FORMAT_APR, .recipe = {.mixture = "q8_0"}, .sink = {.overwrite = true}};

    assert_int_equal(apr_model_open(source, "tests/data/tiny-qwen2", NULL), APR_OK);
    assert_int_equal(apr_conversion_plan(c, source, &options, NULL), APR_OK);
    m->c = c;
    return apr_conversion_run(c, &(apr_convert_run){.pipe = {.want_metrics = true, .custom_encoder = &made}}, out, NULL, err);
}

static void end(custom_encoder *m, apr_conversion *c, apr_model *source)
{
    free(m->bytes);
    apr_conversion_close(c);
    apr_model_close(source);
}

static void a_custom_encoders_bytes_are_at_their_tensor_and_are_measured(void **state)
{
    (void)state;
    custom_encoder m = {0};
    apr_conversion c;
    apr_model source, written;
    size_t n_taken = 0;
    float row[1024];

    assert_int_equal(run(&m, &c, &source, in_work("made.apr"), NULL), APR_OK);
    assert_int_equal(apr_model_open(&written, in_work("made.apr"), NULL), APR_OK);
    for (size_t i = 0; i < c.layout.n_tensors; i++) {
        const apr_tensor *const t = apr_model_find(&written, c.layout.tensors[i].name);
        if (!takes(&m, i)) continue;
        n_taken++;
        assert_int_equal(c.items[i].metrics.n, apr_tensor_elems(t));
        assert_true(apr_metrics_relative_error(&c.items[i].metrics) > 0.5);
        for (int64_t r = 0; r < apr_tensor_rows(t); r += 17) {
            apr_decode_rows(t, r, 1, row);
            for (int64_t j = 0; j < apr_tensor_columns(t); j++) assert_float_equal(row[j], 1.0f, 1e-3f);
        }
    }
    assert_true(n_taken > 10);
    assert_int_equal(m.n_made, n_taken);
    apr_model_close(&written);
    end(&m, &c, &source);
}

static void a_custom_encoder_that_fails_ends_the_run_and_leaves_nothing(void **state)
{
    (void)state;
    custom_encoder m = {.fails_at = "layers.1.mlp.up_proj"};
    apr_conversion c;
    apr_model source;
    apr_error err = {0};

    assert_int_equal(run(&m, &c, &source, in_work("none.apr"), &err), APR_E_DAMAGED);
    assert_non_null(strstr(err.text, "up_proj.weight cannot be made"));
    assert_int_equal(access(in_work("none.apr"), F_OK), -1);
    assert_int_equal(count_temporaries(work), 0);
    end(&m, &c, &source);
}

static void values_beyond_the_type_are_refused_as_everywhere(void **state)
{
    (void)state;
    custom_encoder m = {.out_of_range_at = "layers.0.self_attn.v_proj"};
    apr_conversion c;
    apr_model source;
    apr_error err = {0};

    assert_int_equal(run(&m, &c, &source, in_work("none.apr"), &err), APR_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "v_proj"));
    end(&m, &c, &source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_custom_encoders_bytes_are_at_their_tensor_and_are_measured),
        cmocka_unit_test(a_custom_encoder_that_fails_ends_the_run_and_leaves_nothing),
        cmocka_unit_test(values_beyond_the_type_are_refused_as_everywhere),
    };
    return cmocka_run_group_tests_name("pipe_maker", tests, make_work, remove_work);
}
