/* runtime/check/diff.h: two models are the same, or what differs is named: a value, a type, a shape, a tensor, a token, a key. */
#include "formats/number/half.h"
#include "runtime/check/diff.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const apr_diff_options exactly = {.tolerance = NAN};

/* Two tensors, three tokens, one key, one file; every part may be changed. */
typedef struct small {
    apr_model model;
    apr_tensor tensors[3];
    float gains[4], matrix[6];
    uint16_t halves[6];
    apr_str tokens[3], merges[4];
    apr_attachment file;
    uint8_t kinds[2];
} small;

static apr_tensor tensor_of(const char *name, const void *data, apr_dtype dtype, int rank, int64_t d0, int64_t d1)
{
    apr_tensor t = {.name = name, .dtype = dtype, .rank = rank, .dims = {d0, d1}, .data = data};
    assert_int_equal(apr_tensor_size(&t, "small", NULL), APR_OK);
    return t;
}

static void make_small(small *s)
{
    static const float numbers[] = {1.0f, -2.0f, 0.5f, 3.0f, 0.25f, -4.0f};

    *s = (small){.model = {.path = "small"},
                 .tokens = {{"a", 1}, {"b", 1}, {"ab", 2}},
                 .merges = {{"a", 1}, {"b", 1}, {"b", 1}, {"a", 1}},
                 .file = {"README.md", (const uint8_t *)"read me", 7},
                 .kinds = {APR_LAYER_FULL, APR_LAYER_FULL}};
    memcpy(s->matrix, numbers, sizeof numbers);
    for (int i = 0; i < 4; i++) s->gains[i] = 1.0f;
    for (int i = 0; i < 6; i++) s->halves[i] = apr_f32_to_f16(numbers[i]);
    s->tensors[0] = tensor_of("norm", s->gains, APR_F32, 1, 4, 0);
    s->tensors[1] = tensor_of("matrix", s->matrix, APR_F32, 2, 2, 3);
    s->tensors[2] = tensor_of("extra", s->gains, APR_F32, 1, 1, 0);
    s->model.tensors = s->tensors;
    s->model.n_tensors = 2;
    s->model.hparams = (apr_hparams){.architecture = "llama", .num_layers = 2, .layer_kinds = s->kinds};
    s->model.vocab = (apr_vocab){.kind = APR_VOCAB_BPE,
                                 .n_tokens = 3,
                                 .tokens = s->tokens,
                                 .n_merges = 2,
                                 .merges = s->merges,
                                 .bos_id = 0,
                                 .eos_id = 1,
                                 .pad_id = -1,
                                 .unk_id = -1,
                                 .chat_template = "{{ x }}"};
    s->model.kv.arena = &s->model.arena;
    s->model.attachments = &s->file;
    s->model.n_attachments = 1;
    assert_int_equal(apr_kv_set_string(&s->model.kv, "general.name", apr_str_of("Small"), NULL), APR_OK);
}

static void close_small(small *s)
{
    s->model.tensors = NULL;
    apr_model_close(&s->model);
}

static void diff_small(apr_model_diff *d, small *a, small *b, const apr_diff_options *options)
{
    apr_error err = {0};

    assert_int_equal(apr_model_index_names(&a->model, NULL), APR_OK);
    assert_int_equal(apr_model_index_names(&b->model, NULL), APR_OK);
    if (apr_diff_models(d, &a->model, &b->model, options, NULL, &err) != APR_OK) fail_msg("%s", err.text);
}

/* What one change of B comes to. */
typedef struct changed {
    small a, b;
    apr_model_diff d;
} changed;

static changed *make_changed(void)
{
    changed *const c = calloc(1, sizeof *c);
    assert_non_null(c);
    make_small(&c->a);
    make_small(&c->b);
    return c;
}

static const apr_model_diff *diff_changed(changed *c, const apr_diff_options *options)
{
    apr_diff_close(&c->d);
    diff_small(&c->d, &c->a, &c->b, options);
    return &c->d;
}

static void drop_changed(changed *c)
{
    apr_diff_close(&c->d);
    close_small(&c->a);
    close_small(&c->b);
    free(c);
}

/* --- tensors --- */

static void equal_models_are_the_same(void **state)
{
    (void)state;
    changed *const c = make_changed();
    const apr_model_diff *const d = diff_changed(c, &exactly);
    assert_true(apr_diff_is_same(d) && d->n_facts == 0 && d->n_tensors == 2 && d->n_same_bytes == 2 && d->n_differing == 0);
    assert_false(d->tensors[0].differs || d->tensors[0].has_metrics);
    drop_changed(c);
}

static void one_other_value_is_found_where_it_is(void **state)
{
    (void)state;
    changed *const c = make_changed();
    c->b.matrix[4] += 0.125f;
    const apr_model_diff *d = diff_changed(c, &exactly);
    assert_true(!apr_diff_is_same(d) && d->n_differing == 1 && d->n_same_bytes == 1);
    assert_string_equal(d->tensors[1].a->name, "matrix");
    assert_true(d->tensors[1].differs && d->tensors[1].has_metrics && !d->tensors[0].differs);
    assert_true(d->tensors[1].metrics.max_at == 4 && d->tensors[1].metrics.max_error == 0.125f);

    /* root mean square of the reference: sqrt((1 + 4 + 1/4 + 9 + 1/16 + 16) / 6) */
    const double off = 0.125 / sqrt(30.3125 / 6.0);
    assert_true(fabs(apr_diff_relative_max(&d->tensors[1].metrics) - off) < 1e-12);
    d = diff_changed(c, &(apr_diff_options){.tolerance = off * 1.001});
    assert_true(apr_diff_is_same(d) && d->n_close == 1 && d->n_differing == 0);
    d = diff_changed(c, &(apr_diff_options){.tolerance = off * 0.999});
    assert_true(!apr_diff_is_same(d) && d->n_differing == 1);
    drop_changed(c);
}

static void another_type_with_the_same_values_is_distinguished_from_other_values(void **state)
{
    (void)state;
    changed *const c = make_changed();
    c->b.tensors[1] = tensor_of("matrix", c->b.halves, APR_F16, 2, 2, 3);
    const apr_model_diff *d = diff_changed(c, &exactly);
    assert_true(!apr_diff_is_same(d) && d->n_same_values == 1 && d->n_differing == 1 && d->tensors[1].metrics.max_at == -1);
    d = diff_changed(c, &(apr_diff_options){.tolerance = 0.0});
    assert_true(apr_diff_is_same(d) && d->n_same_values == 1 && d->n_close == 0);
    drop_changed(c);
}

static void a_nan_is_within_no_tolerance(void **state)
{
    (void)state;
    changed *const c = make_changed();
    c->b.matrix[2] = NAN;
    const apr_model_diff *d = diff_changed(c, &(apr_diff_options){.tolerance = 1e30});
    assert_true(!apr_diff_is_same(d) && d->tensors[1].differs && d->tensors[1].metrics.n_nonfinite == 1);
    c->a.matrix[2] = NAN; /* the same bytes are the same, whatever they mean */
    d = diff_changed(c, &exactly);
    assert_true(apr_diff_is_same(d) && d->n_same_bytes == 2);
    drop_changed(c);
}

static void a_missing_tensor_or_another_shape_differs_under_any_tolerance(void **state)
{
    (void)state;
    static const apr_diff_options lenient = {.tolerance = 1e30};
    changed *const c = make_changed();
    c->a.model.n_tensors = 3;
    const apr_model_diff *d = diff_changed(c, &lenient);
    assert_true(!apr_diff_is_same(d) && d->n_only_a == 1 && d->n_only_b == 0 && d->n_differing == 1);
    assert_true(d->tensors[2].b == NULL && strcmp(d->tensors[2].a->name, "extra") == 0);
    drop_changed(c);

    changed *const e = make_changed();
    e->b.model.n_tensors = 3;
    e->b.tensors[1] = tensor_of("matrix", e->b.matrix, APR_F32, 2, 3, 2);
    d = diff_changed(e, &lenient);
    assert_true(d->n_only_b == 1 && d->tensors[2].a == NULL && d->n_differing == 2);
    assert_true(!d->tensors[1].same_dims && !d->tensors[1].has_metrics && d->tensors[1].differs);
    drop_changed(e);
}

static void zeros_that_became_something_are_infinitely_far_off(void **state)
{
    (void)state;
    const float zeros[2] = {0, 0}, some[2] = {0, 1e-30f};
    apr_metrics m = apr_metrics_empty();
    apr_metrics_add(&m, zeros, zeros, 2);
    assert_true(apr_diff_relative_max(&m) == 0.0);
    apr_metrics_add(&m, zeros, some, 2);
    assert_true(isinf(apr_diff_relative_max(&m)));
}

/* --- facts --- */

static const apr_fact_diff *only_fact(const apr_model_diff *d, apr_diff_topic topic, const char *name)
{
    if (d->n_facts != 1) fail_msg("%zu facts differ, not only %s", d->n_facts, name);
    assert_int_equal(d->facts[0].topic, topic);
    if (d->facts[0].name.n_bytes != strlen(name) || memcmp(d->facts[0].name.text, name, strlen(name)) != 0)
        fail_msg("'%.*s' instead of '%s'", (int)d->facts[0].name.n_bytes, d->facts[0].name.text, name);
    assert_false(apr_diff_is_same(d));
    return &d->facts[0];
}

static void each_hyperparameter_is_compared_where_both_state_it(void **state)
{
    (void)state;
    for (size_t i = 0; i < apr_n_hparam_fields; i++) {
        const apr_hparam_field *const field = &apr_hparam_fields[i];
        changed *const c = make_changed();
        c->a.model.hparams.layer_kinds = NULL; /* which need the same number of layers */
        if (field->is_int) *apr_hparam_int(&c->a.model.hparams, field) = 6, *apr_hparam_int(&c->b.model.hparams, field) = 7;
        else *apr_hparam_real(&c->a.model.hparams, field) = 1.00001e-5, *apr_hparam_real(&c->b.model.hparams, field) = 1.00002e-5;
        const apr_fact_diff *const f = only_fact(diff_changed(c, &exactly), APR_DIFF_HYPERPARAMETER, field->name);
        if (field->is_int) assert_true(f->a.kind == APR_FACT_COUNT && f->a.number == 6 && f->b.number == 7);
        else assert_true(f->a.kind == APR_FACT_REAL && f->a.real == 1.00001e-5 && f->b.real == 1.00002e-5);

        if (field->is_int) *apr_hparam_int(&c->b.model.hparams, field) = 0;            /* not stated */
        else *apr_hparam_real(&c->b.model.hparams, field) = (double)(float)1.00001e-5; /* as GGUF keeps it */
        assert_true(apr_diff_is_same(diff_changed(c, &exactly)));
        drop_changed(c);
    }
}

static void architecture_scaling_and_kinds_of_layers_are_facts(void **state)
{
    (void)state;
    changed *c = make_changed();
    c->b.model.hparams.architecture = "qwen2";
    const apr_fact_diff *f = only_fact(diff_changed(c, &exactly), APR_DIFF_HYPERPARAMETER, "architecture");
    assert_true(f->b.kind == APR_FACT_TEXT && f->b.text.n_bytes == 5);
    c->b.model.hparams.architecture = NULL;
    assert_int_equal(only_fact(diff_changed(c, &exactly), APR_DIFF_HYPERPARAMETER, "architecture")->b.kind, APR_FACT_NONE);
    drop_changed(c);

    c = make_changed();
    c->b.model.hparams.rope.kind = APR_ROPE_LINEAR;
    f = only_fact(diff_changed(c, &exactly), APR_DIFF_HYPERPARAMETER, "rope_scaling");
    assert_true(f->a.kind == APR_FACT_ROPE && f->a.number == APR_ROPE_PLAIN && f->b.number == APR_ROPE_LINEAR);
    c->a.model.hparams.rope = (apr_rope_scaling){.kind = APR_ROPE_LINEAR, .factor = 4.0};
    c->b.model.hparams.rope.factor = 8.0;
    only_fact(diff_changed(c, &exactly), APR_DIFF_HYPERPARAMETER, "rope_scaling factor");
    drop_changed(c);

    c = make_changed();
    c->b.kinds[1] = APR_LAYER_SLIDING;
    f = only_fact(diff_changed(c, &exactly), APR_DIFF_HYPERPARAMETER, "kind of layer 1");
    assert_true(f->a.number == APR_LAYER_FULL && f->b.number == APR_LAYER_SLIDING);
    drop_changed(c);
}

static void feed_forwards_positions_and_sliding_layers_ropes_are_facts(void **state)
{
    static const uint8_t some[] = {APR_FFN_DENSE, APR_FFN_EXPERTS}, all[] = {APR_FFN_EXPERTS, APR_FFN_EXPERTS}, last[] = {0, 1},
                         none[] = {0, 0};
    static const double halves[] = {1.0, 2.0}, thirds[] = {1.0, 3.0};
    changed *const c = make_changed();
    apr_hparams *const a = &c->a.model.hparams, *const b = &c->b.model.hparams;

    (void)state;
    a->ffn_kinds = some;
    assert_true(apr_diff_is_same(diff_changed(c, &exactly))); /* the other does not say */
    b->ffn_kinds = all;
    const apr_fact_diff *f = only_fact(diff_changed(c, &exactly), APR_DIFF_HYPERPARAMETER, "feed-forward of layer 0");
    assert_true(f->a.kind == APR_FACT_TEXT && f->a.text.n_bytes == strlen("dense") && f->b.text.n_bytes == strlen("experts"));
    b->ffn_kinds = some;
    a->no_rope = last;
    b->no_rope = none;
    only_fact(diff_changed(c, &exactly), APR_DIFF_HYPERPARAMETER, "positions of layer 1");
    b->no_rope = last;
    a->shares_index = last;
    b->shares_index = none;
    only_fact(diff_changed(c, &exactly), APR_DIFF_HYPERPARAMETER, "index of layer 1");
    b->shares_index = last;

    a->rope_theta_local = b->rope_theta_local = 1e4;
    a->rope_local = (apr_rope_scaling){.kind = APR_ROPE_YARN, .factor = 4, .mscale = 1};
    b->rope_local = (apr_rope_scaling){.kind = APR_ROPE_YARN, .factor = 4, .mscale = 2};
    only_fact(diff_changed(c, &exactly), APR_DIFF_HYPERPARAMETER, "rope_scaling of sliding layers mscale");
    b->rope_local.mscale = 0; /* not stated */
    assert_true(apr_diff_is_same(diff_changed(c, &exactly)));

    a->rope = (apr_rope_scaling){.kind = APR_ROPE_LONGROPE, .short_factor = halves, .long_factor = halves, .n_factors = 2};
    b->rope = (apr_rope_scaling){.kind = APR_ROPE_LONGROPE, .short_factor = halves, .long_factor = thirds, .n_factors = 2};
    only_fact(diff_changed(c, &exactly), APR_DIFF_HYPERPARAMETER, "long rotary factor 1");
    b->rope.n_factors = 0; /* as a GGUF, which has them as tensors */
    assert_true(apr_diff_is_same(diff_changed(c, &exactly)));
    drop_changed(c);
}

static void flags_are_facts_within_a_format(void **state)
{
    (void)state;
    for (size_t i = 0; i < apr_n_hflag_fields; i++) {
        changed *const c = make_changed();
        *apr_hflag(&c->b.model.hparams, &apr_hflag_fields[i]) = true;
        const apr_fact_diff *const f = only_fact(diff_changed(c, &exactly), APR_DIFF_HYPERPARAMETER, apr_hflag_fields[i].name);
        assert_true(f->a.kind == APR_FACT_BOOL && f->a.number == 0 && f->b.number == 1);
        c->b.model.format = APR_FORMAT_GGUF; /* which leaves it to its reader */
        assert_true(apr_diff_is_same(diff_changed(c, &exactly)));
        drop_changed(c);
    }
}

static void change_token(apr_vocab *v, small *s) { (void)v, s->tokens[2] = (apr_str){"aB", 2}; }
static void change_merge(apr_vocab *v, small *s) { (void)v, s->merges[3] = (apr_str){"c", 1}; }
static void lose_token(apr_vocab *v, small *s) { (void)s, v->n_tokens = 2; }
static void lose_merge(apr_vocab *v, small *s) { (void)s, v->n_merges = 1; }
static void other_bos(apr_vocab *v, small *s) { (void)s, v->bos_id = 2; }
static void lose_eos(apr_vocab *v, small *s) { (void)s, v->eos_id = -1; }
static void other_nothing(apr_vocab *v, small *s) { (void)s, v->pad_id = -7; } /* is not an id, like -1 */
static void add_bos(apr_vocab *v, small *s) { (void)s, v->add_bos = true; }
static void other_template(apr_vocab *v, small *s) { (void)s, v->chat_template = "{{ y }}"; }
static void other_kind(apr_vocab *v, small *s) { (void)s, v->kind = APR_VOCAB_SPM; }

static void every_part_of_a_tokenizer_is_a_fact(void **state)
{
    (void)state;
    static const struct {
        void (*change)(apr_vocab *v, small *s);
        const char *name; /* NULL: the same */
    } cases[] = {
        {change_token, "token 2"}, {change_merge, "merge 1"},
        {lose_token, "tokens"},    {lose_merge, "merges"},
        {other_bos, "bos id"},     {lose_eos, "eos id"},
        {other_nothing, NULL},     {add_bos, "adds bos"},
        {other_kind, "kind"},      {other_template, "chat template"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        changed *const c = make_changed();
        cases[i].change(&c->b.model.vocab, &c->b);
        const apr_model_diff *const d = diff_changed(c, &exactly);
        if (cases[i].name != NULL) only_fact(d, APR_DIFF_TOKENIZER, cases[i].name);
        else assert_true(apr_diff_is_same(d));
        drop_changed(c);
    }
}

/* A checkpoint's __metadata__ against a GGUF, which has keys of its own for it. */
static void texts_of_a_checkpoint_are_found_under_the_keys_of_gguf(void **state)
{
    static const struct {
        const char *key, *gguf_key, *gguf_text; /* of a text "x"; NULL: not there */
        const char *differs, *same;
    } rows[] = {
        {"recipe", "aprkit.metadata.recipe", "x", NULL, "general.name, recipe"},
        {"license", "general.license", "x", NULL, "general.name, license"},
        {"license", "general.license", "y", "license", "general.name"},
        {"recipe", NULL, NULL, "recipe", "general.name"},
        {"format", NULL, NULL, NULL, "general.name"}, /* what wrote the file */
        {NULL, "aprkit.metadata.recipe", "x", "aprkit.metadata.recipe", "general.name"},
        {NULL, "general.license", "x", NULL, "general.name"}, /* of the GGUF's own */
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int turned = 0; turned < 2; turned++) {
            changed *const c = make_changed();
            apr_model *const hf = turned ? &c->b.model : &c->a.model, *const gguf = turned ? &c->a.model : &c->b.model;
            hf->format = hf->origin.format = APR_FORMAT_SAFETENSORS;
            gguf->format = gguf->origin.format = APR_FORMAT_GGUF;
            if (rows[i].key != NULL) assert_int_equal(apr_kv_set_string(&hf->kv, rows[i].key, apr_str_of("x"), NULL), APR_OK);
            if (rows[i].gguf_key != NULL)
                assert_int_equal(apr_kv_set_string(&gguf->kv, rows[i].gguf_key, apr_str_of(rows[i].gguf_text), NULL), APR_OK);
            const apr_model_diff *const d = diff_changed(c, &exactly);
            assert_int_equal(d->n_facts, rows[i].differs != NULL);
            if (rows[i].differs != NULL) assert_int_equal(d->facts[0].topic, APR_DIFF_METADATA);
            if (!turned && rows[i].differs != NULL) assert_true(apr_str_is(d->facts[0].name, rows[i].differs));
            if (!turned) assert_string_equal(d->same_metadata, rows[i].same);
            drop_changed(c);
        }
}

static void metadata_and_files_are_compared_within_one_format_when_asked_for(void **state)
{
    (void)state;
    changed *c = make_changed();
    assert_int_equal(apr_kv_set_bool(&c->b.model.kv, "added", true, NULL), APR_OK);
    const apr_fact_diff *f = only_fact(diff_changed(c, &exactly), APR_DIFF_METADATA, "added");
    assert_true(f->a.kind == APR_FACT_NONE && f->b.kind == APR_FACT_KV);
    assert_true(apr_diff_is_same(diff_changed(c, &(apr_diff_options){.no_metadata = true, .tolerance = NAN})));
    c->b.model.format = APR_FORMAT_APR;
    c->a.model.format = APR_FORMAT_GGUF;
    assert_true(apr_diff_is_same(diff_changed(c, &exactly)));
    drop_changed(c);

    c = make_changed();
    assert_int_equal(apr_kv_set_string(&c->b.model.kv, "general.name", apr_str_of("smalL"), NULL), APR_OK);
    f = only_fact(diff_changed(c, &exactly), APR_DIFF_METADATA, "general.name");
    assert_true(f->a.kind == APR_FACT_KV && f->b.kind == APR_FACT_KV);
    drop_changed(c);

    c = make_changed();
    c->b.file.n_bytes = 6;
    f = only_fact(diff_changed(c, &exactly), APR_DIFF_FILE, "README.md");
    assert_true(f->a.kind == APR_FACT_BYTES && f->a.number == 7 && f->b.number == 6);
    c->b.model.n_attachments = 0;
    assert_int_equal(only_fact(diff_changed(c, &exactly), APR_DIFF_FILE, "README.md")->b.kind, APR_FACT_NONE);
    drop_changed(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_models_are_the_same),
        cmocka_unit_test(one_other_value_is_found_where_it_is),
        cmocka_unit_test(another_type_with_the_same_values_is_distinguished_from_other_values),
        cmocka_unit_test(a_nan_is_within_no_tolerance),
        cmocka_unit_test(a_missing_tensor_or_another_shape_differs_under_any_tolerance),
        cmocka_unit_test(zeros_that_became_something_are_infinitely_far_off),
        cmocka_unit_test(each_hyperparameter_is_compared_where_both_state_it),
        cmocka_unit_test(architecture_scaling_and_kinds_of_layers_are_facts),
        cmocka_unit_test(feed_forwards_positions_and_sliding_layers_ropes_are_facts),
        cmocka_unit_test(flags_are_facts_within_a_format),
        cmocka_unit_test(every_part_of_a_tokenizer_is_a_fact),
        cmocka_unit_test(metadata_and_files_are_compared_within_one_format_when_asked_for),
        cmocka_unit_test(texts_of_a_checkpoint_are_found_under_the_keys_of_gguf),
    };
    return cmocka_run_group_tests_name("diff", tests, NULL, NULL);
}
