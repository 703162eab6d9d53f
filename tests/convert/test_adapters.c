/* convert/adapters.h: a merged model is the same model from whatever container its base came and into whatever it goes; every part of an
 * adapter finds its tensor, or a sentence names it. */
#define _XOPEN_SOURCE 700
#include "convert/convert.h"
#include "convert/naming.h"
#include "formats/number/half.h"
#include "kernels/rows.h"
#include "tests/support/conversion.h"
#include "tests/support/family_model.h"
#include "tests/support/work_folder.h"

#include <math.h>
#include <omp.h>

#define DATA "tests/data/lora/"

/* ---- helpers ---- */

typedef struct job {
    const char *mixture;
    const apr_adapter_use *uses;
    size_t n_uses;
    bool requantize;
} job;

static apr_status convert(const char *in, const char *out, const job *j, apr_error *err)
{
    const apr_convert_options options = {
        .recipe = {.mixture = j->mixture, .allow_requantize = j->requantize}, .adapters = j->uses, .n_adapters = j->n_uses};
    return try_conversion(in, out, &options, err);
}

static void must(const char *in, const char *out, const job *j)
{
    apr_error err = {0};
    if (convert(in, out, j, &err) != APR_OK) fail_msg("%s -> %s: %s", in, out, err.text);
}

static void open_adapter(apr_adapter *adapter, const char *path)
{
    apr_error err = {0};
    if (apr_adapter_open(adapter, path, &err) != APR_OK) fail_msg("%s", err.text);
}

/* The synthetic model of a family, in the work folder. */
static const char *family(const char *name)
{
    char from[200];
    apr_error err = {0};
    snprintf(from, sizeof from, "tests/data/families/%s", name);
    if (family_write(from, in_work(name), NULL, &err) != APR_OK) fail_msg("%s", err.text);
    return in_work(name);
}

/* A model's canonical view, with what it is a view of. */
typedef struct seen {
    apr_model source, view;
} seen;

static void see(seen *s, const char *path)
{
    apr_error err = {0};
    if (apr_model_open(&s->source, path, &err) != APR_OK || apr_canonical(&s->view, &s->source, &err) != APR_OK) fail_msg("%s", err.text);
}

static void unsee(seen *s)
{
    apr_model_close(&s->view);
    apr_model_close(&s->source);
}

static float *values_of(const apr_model *model, const char *name, int64_t *n)
{
    const apr_tensor *const t = apr_model_find(model, name);
    if (t == NULL) fail_msg("'%s' is missing", name);
    *n = apr_tensor_elems(t);
    float *const x = malloc((size_t)*n * sizeof *x);
    assert_non_null(x);
    apr_decode_rows(t, 0, apr_tensor_rows(t), x);
    return x;
}

/* The largest difference of two models, which have the same tensors. */
static double difference(const char *a, const char *b)
{
    seen x, y;
    double most = 0.0;

    see(&x, a);
    see(&y, b);
    assert_int_equal(x.view.n_tensors, y.view.n_tensors);
    for (size_t i = 0; i < x.view.n_tensors; i++) {
        int64_t n, m;
        float *const p = values_of(&x.view, x.view.tensors[i].name, &n), *const q = values_of(&y.view, x.view.tensors[i].name, &m);
        assert_int_equal(n, m);
        for (int64_t k = 0; k < n; k++) most = fmax(most, fabs((double)p[k] - (double)q[k]));
        free(p);
        free(q);
    }
    unsee(&x);
    unsee(&y);
    return most;
}

/* An adapter of one change, made here. */
typedef struct one {
    apr_tensor a, b, whole;
    apr_adapter_change change;
    apr_adapter adapter;
    apr_adapter_use use;
} one;

enum { MOST = 1 << 16 };
static float sixteenths[MOST]; /* -2 to 2 */

static apr_tensor ramp(int64_t rows, int64_t columns)
{
    for (int i = 0; i < MOST; i++) sixteenths[i] = (float)(i * 37 % 65 - 32) / 16.0f;
    assert_true(rows * (columns > 0 ? columns : 1) <= MOST);
    apr_tensor t = {.name = "ramp", .dtype = APR_F32, .rank = columns > 0 ? 2 : 1, .dims = {rows, columns}};
    t.data = (const uint8_t *)sixteenths;
    assert_int_equal(apr_tensor_size(&t, "test", NULL), APR_OK);
    return t;
}

static void finish(one *o, const char *name, double factor)
{
    o->change.name = name;
    o->adapter = (apr_adapter){.path = "adapter", .base = "us/base", .changes = &o->change, .n_changes = 1};
    o->use = (apr_adapter_use){&o->adapter, factor};
}

static const job *low_rank(one *o, const char *name, int64_t rows, int64_t columns, job *j)
{
    *o = (one){.a = ramp(2, columns), .b = ramp(rows, 2)};
    o->change = (apr_adapter_change){.a = &o->a, .b = &o->b, .alpha = 1.0, .scale = 0.5};
    finish(o, name, 1.0);
    *j = (job){.uses = &o->use, .n_uses = 1};
    return j;
}

static const job *replacement(one *o, const char *name, int64_t rows, int64_t columns, job *j)
{
    *o = (one){.whole = ramp(rows, columns)};
    o->change = (apr_adapter_change){.whole = &o->whole};
    finish(o, name, 1.0);
    *j = (job){.uses = &o->use, .n_uses = 1};
    return j;
}

static void assert_refused(const char *in, const job *j, apr_status status, const char *words)
{
    apr_error err = {0};
    const apr_status answer = convert(in, in_work("refused.apr"), j, &err);
    if (answer != status || strstr(err.text, words) == NULL)
        fail_msg("status %d instead of %d, '%s' is not in '%s'", (int)answer, (int)status, words, err.text);
    assert_int_not_equal(access(in_work("refused.apr"), F_OK), 0);
}

/* ---- what comes out ---- */

/* From a checkpoint, an APR file or a GGUF, in which rows of q and k are in another order. */
static void a_merged_model_is_the_same_through_every_container(void **state)
{
    static const char *const bases[] = {"base.apr", "base.gguf", "base"}, *const outs[] = {"m.apr", "m.gguf", "m"};
    apr_adapter adapter;
    const job keep = {0}, wide = {.mixture = "f32"};

    (void)state;
    open_adapter(&adapter, DATA "llama-second");
    const apr_adapter_use use = {&adapter, 1.0};
    const job merge = {.uses = &use, .n_uses = 1}, to_f32 = {.mixture = "f32", .uses = &use, .n_uses = 1};
    const char *const source = family("llama");
    char folder[100];
    snprintf(folder, sizeof folder, "%s", source);
    must(folder, in_work("truth.apr"), &to_f32);
    for (size_t i = 0; i < 3; i++) must(folder, in_work(bases[i]), &wide);
    for (size_t i = 0; i < 3; i++)
        for (size_t k = 0; k < 3; k++) {
            must(in_work(bases[i]), in_work(outs[k]), &merge);
            assert_true(difference(in_work(outs[k]), in_work("truth.apr")) == 0.0);
        }
    assert_true(difference(in_work("truth.apr"), in_work("base.apr")) > 0.1);
    must(in_work("m.gguf"), in_work("n"), &keep); /* and goes on as any other model */
    assert_true(difference(in_work("n"), in_work("truth.apr")) == 0.0);
    apr_adapter_close(&adapter);
}

/* llama.cpp permutes the rows of q, and those of its adapter's b. Into any base, whichever naming that has. */
static void an_adapter_of_ggml_is_the_same_adapter(void **state)
{
    static const char *const bases[] = {"base.apr", "base.gguf", "base"};
    apr_adapter ours, theirs;
    char folder[100];

    (void)state;
    open_adapter(&ours, DATA "llama");
    open_adapter(&theirs, DATA "llama-adapter.gguf");
    const apr_adapter_use use = {&ours, 1.0}, other = {&theirs, 1.0};
    snprintf(folder, sizeof folder, "%s", family("llama"));
    must(folder, in_work("truth.apr"), &(job){.mixture = "f32", .uses = &use, .n_uses = 1});
    for (size_t i = 0; i < 3; i++) {
        must(folder, in_work(bases[i]), &(job){.mixture = "f32"});
        must(in_work(bases[i]), in_work("m.apr"), &(job){.uses = &other, .n_uses = 1});
        assert_true(difference(in_work("m.apr"), in_work("truth.apr")) == 0.0);
    }
    snprintf(folder, sizeof folder, "%s", family("qwen2"));
    assert_refused(folder, &(job){.uses = &other, .n_uses = 1}, APR_E_UNSUPPORTED, "the adapter is for ggml architecture 'llama'");
    apr_adapter_close(&ours);
    apr_adapter_close(&theirs);
}

static void a_merged_model_keeps_its_bases_type_rounded_once(void **state)
{
    apr_adapter adapter;
    const job half = {.mixture = "bf16"};

    (void)state;
    open_adapter(&adapter, DATA "llama");
    const apr_adapter_use use = {&adapter, 1.0};
    const job merge = {.uses = &use, .n_uses = 1}, wide = {.mixture = "f32", .uses = &use, .n_uses = 1};
    char folder[100];
    snprintf(folder, sizeof folder, "%s", family("llama"));
    must(folder, in_work("k"), &merge);
    must(folder, in_work("f.apr"), &wide);
    must(in_work("f.apr"), in_work("r"), &half);
    seen s;
    see(&s, in_work("k"));
    for (size_t i = 0; i < s.view.n_tensors; i++) assert_int_equal(s.view.tensors[i].dtype, APR_BF16);
    unsee(&s);
    assert_true(difference(in_work("k"), in_work("r")) == 0.0);
    apr_adapter_close(&adapter);
}

/* A base in BF16, merged by merge_and_unload: the sum in float32, rounded to BF16 once. */
static void a_merge_into_bf16_is_pefts_bit_for_bit(void **state)
{
    apr_adapter adapter;
    apr_model theirs;
    seen ours;

    (void)state;
    open_adapter(&adapter, DATA "llama");
    const apr_adapter_use use = {&adapter, 1.0};
    must(family("llama"), in_work("k.apr"), &(job){.uses = &use, .n_uses = 1});
    assert_int_equal(apr_model_open(&theirs, DATA "llama/merged-bf16.safetensors", NULL), APR_OK);
    see(&ours, in_work("k.apr"));
    assert_int_equal(theirs.n_tensors, adapter.n_changes);
    for (size_t i = 0; i < theirs.n_tensors; i++) {
        const apr_tensor *const t = &theirs.tensors[i], *const u = apr_model_find(&ours.view, t->name);
        assert_non_null(u);
        assert_int_equal(u->dtype, APR_BF16);
        assert_int_equal(u->n_bytes, t->n_bytes);
        assert_memory_equal(u->data, t->data, t->n_bytes);
    }
    unsee(&ours);
    apr_model_close(&theirs);
    apr_adapter_close(&adapter);
}

/* What is quantized are the merged values themselves: as from the file that holds them in float32. */
static void quantizing_while_merging_is_quantizing_what_was_merged(void **state)
{
    static const char *const mixtures[] = {"q8_0", "q4_0", "mxfp4", "fp8", "f16"};
    apr_adapter adapter;

    (void)state;
    open_adapter(&adapter, DATA "qwen2-dora");
    const apr_adapter_use use = {&adapter, 1.0};
    const job wide = {.mixture = "f32", .uses = &use, .n_uses = 1};
    char folder[100];
    snprintf(folder, sizeof folder, "%s", family("qwen2"));
    must(folder, in_work("wide.apr"), &wide);
    for (size_t i = 0; i < sizeof mixtures / sizeof *mixtures; i++) {
        const job at_once = {.mixture = mixtures[i], .uses = &use, .n_uses = 1}, after = {.mixture = mixtures[i]};
        must(folder, in_work("a.apr"), &at_once);
        must(in_work("wide.apr"), in_work("b.apr"), &after);
        seen a, b;
        see(&a, in_work("a.apr"));
        see(&b, in_work("b.apr"));
        for (size_t k = 0; k < a.view.n_tensors; k++) {
            const apr_tensor *const t = &a.view.tensors[k], *const u = apr_model_find(&b.view, t->name);
            assert_non_null(u);
            if (!apr_dtype_is_quantized(t->dtype)) continue; /* what is kept is float32 there */
            assert_int_equal(t->dtype, u->dtype);
            assert_memory_equal(t->data, u->data, t->n_bytes);
        }
        unsee(&a);
        unsee(&b);
    }
    apr_adapter_close(&adapter);
}

static void threads_change_no_byte(void **state)
{
    static const char bundled[] = "tests/data/tiny-llama";
    const int most = omp_get_max_threads();
    one o;
    job j;

    (void)state;
    seen s;
    see(&s, bundled);
    const apr_tensor *const down = apr_model_find(&s.view, "model.layers.0.mlp.down_proj.weight");
    assert_non_null(down);
    (void)low_rank(&o, down->name, down->dims[0], down->dims[1], &j);
    omp_set_num_threads(1);
    must(bundled, in_work("one.apr"), &j);
    omp_set_num_threads(5);
    must(bundled, in_work("five.apr"), &j);
    omp_set_num_threads(most);
    assert_same_file(in_work("one.apr"), in_work("five.apr"));
    unsee(&s);
}

static void factors_scale_and_adapters_add_up(void **state)
{
    const char *const name = "model.layers.1.self_attn.v_proj.weight";
    one o;
    job j;
    char folder[100];

    (void)state;
    snprintf(folder, sizeof folder, "%s", family("llama"));
    (void)low_rank(&o, name, 24, 32, &j);
    j.mixture = "f32";
    const apr_adapter_use twice[] = {{&o.adapter, 0.75}, {&o.adapter, 0.25}}, undone[] = {{&o.adapter, 1.0}, {&o.adapter, -1.0}},
                          nothing = {&o.adapter, 0.0};
    must(folder, in_work("whole.apr"), &j);
    must(folder, in_work("parts.apr"), &(job){.mixture = "f32", .uses = twice, .n_uses = 2});
    must(folder, in_work("undone.apr"), &(job){.mixture = "f32", .uses = undone, .n_uses = 2});
    must(folder, in_work("nothing.apr"), &(job){.mixture = "f32", .uses = &nothing, .n_uses = 1});
    must(folder, in_work("base.apr"), &(job){.mixture = "f32"});
    assert_true(difference(in_work("whole.apr"), in_work("parts.apr")) < 1e-6);
    assert_true(difference(in_work("base.apr"), in_work("undone.apr")) < 1e-6);
    assert_true(difference(in_work("base.apr"), in_work("nothing.apr")) == 0.0);
    assert_true(difference(in_work("base.apr"), in_work("whole.apr")) > 0.1);
}

static void the_file_says_what_was_merged(void **state)
{
    static const char *const outs[] = {"said.apr", "said.gguf", "said", "again.gguf", "again.apr"};
    one o;
    job j;
    char folder[100];

    (void)state;
    snprintf(folder, sizeof folder, "%s", family("llama"));
    (void)low_rank(&o, "model.layers.1.self_attn.v_proj.weight", 24, 32, &j);
    for (int i = 0; i < 5; i++) {
        apr_model m;
        apr_str text;
        must(i < 3 ? folder : in_work(outs[i - 1]), in_work(outs[i]), i < 3 ? &j : &(job){0});
        assert_int_equal(apr_model_open(&m, in_work(outs[i]), NULL), APR_OK);
        assert_true(apr_kv_get_string(&m.kv, "aprkit.lora.0", &text));
        assert_true(apr_str_is(text, "rank 2, alpha 1, scale 0.5, 1 target (v_proj in 1 layer), trained on us/base"));
        apr_model_close(&m);
    }
    apr_model m;
    apr_str text;
    o.use.factor = 2.0;
    must(in_work("said.apr"), in_work("more.apr"), &j);
    assert_int_equal(apr_model_open(&m, in_work("more.apr"), NULL), APR_OK);
    assert_true(apr_kv_get_string(&m.kv, "aprkit.lora.0", &text));
    assert_true(apr_kv_get_string(&m.kv, "aprkit.lora.1", &text));
    assert_true(apr_str_is(text, "rank 2, alpha 1, scale 0.5 times 2, 1 target (v_proj in 1 layer), trained on us/base"));
    apr_model_close(&m);
}

static void a_tensor_that_is_replaced_is_what_the_adapter_has(void **state)
{
    const char *const names[] = {"model.norm.weight", "lm_head.weight"};
    one o;
    job j;

    (void)state;
    char folder[100];
    snprintf(folder, sizeof folder, "%s", family("llama"));
    must(folder, in_work("wide.apr"), &(job){.mixture = "f32"});
    for (size_t i = 0; i < 2; i++)
        for (int wide = 0; wide < 2; wide++) { /* of another type than the base, and of its own */
            seen s;
            int64_t n;
            must(wide ? in_work("wide.apr") : folder, in_work("replaced.apr"),
                 replacement(&o, names[i], i == 0 ? 32 : 148, i == 0 ? 0 : 32, &j));
            see(&s, in_work("replaced.apr"));
            assert_int_equal(apr_model_find(&s.view, names[i])->dtype, wide ? APR_F32 : APR_BF16);
            float *const x = values_of(&s.view, names[i], &n); /* sixteenths are exact in both */
            assert_memory_equal(x, sixteenths, (size_t)n * sizeof *x);
            free(x);
            unsee(&s);
        }
}

/* The first number of a tensor in a GGUF becomes another one. */
static void patch(const char *path, const char *tensor, float value)
{
    apr_model m;
    assert_int_equal(apr_model_open(&m, path, NULL), APR_OK);
    const apr_tensor *const t = apr_model_find(&m, tensor);
    assert_non_null(t);
    const long at = (long)(t->data - m.maps[0].data);
    apr_model_close(&m);
    FILE *const file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    assert_int_equal(fwrite(&value, sizeof value, 1, file), 1);
    fclose(file);
}

/* gemma's norms are 1 + w in a GGUF. An original that does not come back exactly is kept, but not where an adapter has changed it. */
static void a_replaced_norm_takes_its_original_with_it(void **state)
{
    const char *const name = "model.layers.0.input_layernorm.weight";
    one o;
    job j;
    seen s;
    int64_t n;

    (void)state;
    must(family("gemma2"), in_work("g.gguf"), &(job){0});
    patch(in_work("g.gguf"), "blk.0.attn_norm.weight", 1e-9f);
    must(in_work("g.gguf"), in_work("g.apr"), &(job){0});
    see(&s, in_work("g.apr"));
    assert_non_null(apr_model_find(&s.view, name)->origin_kept);
    unsee(&s);
    must(in_work("g.apr"), in_work("g1.apr"), replacement(&o, name, 32, 0, &j));
    must(in_work("g1.apr"), in_work("g2.gguf"), &(job){0});
    see(&s, in_work("g2.gguf"));
    float *const x = values_of(&s.view, name, &n);
    assert_int_equal(n, 32);
    assert_memory_equal(x, sixteenths, (size_t)n * sizeof *x);
    free(x);
    unsee(&s);
}

/* ---- quantized bases ---- */

static void a_quantized_base_needs_a_type(void **state)
{
    const char *const name = "model.layers.1.self_attn.v_proj.weight";
    one o;
    job j, asked;
    seen s;
    char folder[100];

    (void)state;
    snprintf(folder, sizeof folder, "%s", family("llama"));
    must(folder, in_work("q.apr"), &(job){.mixture = "q8_0"});
    assert_refused(in_work("q.apr"), low_rank(&o, name, 24, 32, &j), APR_E_UNSUPPORTED,
                   "is q8_0 and must be encoded again with the adapter merged in");
    asked = j;
    asked.mixture = "q4_0";
    assert_refused(in_work("q.apr"), &asked, APR_E_UNSUPPORTED, "is already q8_0");
    asked.mixture = "f16";
    must(in_work("q.apr"), in_work("h.apr"), &asked);
    must(in_work("q.apr"), in_work("w.apr"), &(job){.mixture = "f32", .uses = j.uses, .n_uses = 1});
    assert_true(difference(in_work("h.apr"), in_work("w.apr")) < 0.01);

    must(folder, in_work("f8.apr"), &(job){.mixture = "fp8"}); /* with scales next to it: they are dropped */
    assert_refused(in_work("f8.apr"), &j, APR_E_UNSUPPORTED, "is fp8 and must be encoded again with the adapter merged in");
    asked.mixture = "bf16";
    must(in_work("f8.apr"), in_work("b.apr"), &asked);
    see(&s, in_work("b.apr"));
    for (size_t i = 0; i < s.view.n_tensors; i++) assert_int_equal(s.view.tensors[i].dtype, APR_BF16);
    unsee(&s);
}

/* Scales that two weights share stay as long as one of the two has them. */
static void shared_scales_stay(void **state)
{
    const char *const kept = "model.layers.0.self_attn.v_proj.weight", *const changed = "model.layers.1.self_attn.v_proj.weight";
    const apr_recipe_override override = {changed, APR_BF16};
    const apr_recipe_options options = {.overrides = &override, .n_overrides = 1};
    apr_recipe recipe;
    apr_error err = {0};
    one o;
    job j;
    seen s;
    char folder[100];
    size_t n_found = 0;

    (void)state;
    snprintf(folder, sizeof folder, "%s", family("llama"));
    must(folder, in_work("f8.apr"), &(job){.mixture = "fp8"});
    see(&s, in_work("f8.apr"));
    const apr_tensor *const shared = apr_model_find(&s.view, changed)->scale;
    const char *const name = shared->name;
    s.view.tensors[apr_model_find(&s.view, kept) - s.view.tensors].scale = shared;

    if (apr_recipe_make(&recipe, &s.view, &options, &err) != APR_OK) fail_msg("%s", err.text);
    for (size_t i = 0; i < recipe.n_lines; i++) n_found += recipe.lines[i].tensor == shared;
    assert_int_equal(n_found, 1);
    apr_recipe_close(&recipe);

    (void)low_rank(&o, changed, 24, 32, &j);
    if (apr_merge_adapters(&s.view, j.uses, j.n_uses, &err) != APR_OK) fail_msg("%s", err.text);
    assert_non_null(apr_model_find(&s.view, name));
    assert_ptr_equal(apr_model_find(&s.view, kept)->scale, apr_model_find(&s.view, name));
    unsee(&s);
}

/* The model of `folder` with one matrix as INT8 with a scale for each row, as two tensors. */
static void write_packed(const char *folder, const char *name, const char *out)
{
    static int8_t codes[1 << 12];
    static uint16_t scales[64];
    const apr_sink_options options = {.overwrite = true};
    apr_model source, m;
    apr_error err = {0};
    apr_sink *sink;

    for (int i = 0; i < 1 << 12; i++) codes[i] = (int8_t)(i * 29 % 255 - 127);
    for (int i = 0; i < 64; i++) scales[i] = apr_f32_to_bf16(0.001f * (float)(i + 1));
    assert_int_equal(apr_model_open(&source, folder, &err), APR_OK);
    m = source;
    m.index = NULL;
    m.arena = (apr_arena){0};
    m.tensors = apr_arena_array(&m.arena, source.n_tensors + 1, sizeof *m.tensors);
    memcpy(m.tensors, source.tensors, source.n_tensors * sizeof *m.tensors);
    apr_tensor *const weight = &m.tensors[apr_model_find(&source, name) - source.tensors], *const scale = &m.tensors[m.n_tensors++];
    *scale = (apr_tensor){.name = apr_arena_print(&m.arena, "%s_scale", name), .dtype = APR_BF16, .rank = 2, .dims = {weight->dims[0], 1}};
    scale->data = (const uint8_t *)scales;
    weight->dtype = APR_I8;
    weight->data = (const uint8_t *)codes;
    assert_int_equal(apr_tensor_size(weight, "test", NULL), APR_OK);
    assert_int_equal(apr_tensor_size(scale, "test", NULL), APR_OK);
    if (apr_sink_open(&sink, APR_FORMAT_SAFETENSORS, out, &m, &options, &err) != APR_OK) fail_msg("%s", err.text);
    for (size_t i = 0; i < m.n_tensors; i++)
        assert_int_equal(apr_sink_put(sink, m.tensors[i].data, (size_t)m.tensors[i].n_bytes, &err), APR_OK);
    assert_int_equal(apr_sink_finish(sink, &err), APR_OK);
    apr_arena_close(&m.arena);
    apr_model_close(&source);
}

/* Numbers stored in several tensors are decoded, and the adapter is added to the result. */
static void a_packed_base_is_merged_as_what_it_decodes_to(void **state)
{
    const char *const name = "model.layers.1.self_attn.v_proj.weight";
    one o;
    job j;
    char folder[100], packed[100];

    (void)state;
    snprintf(folder, sizeof folder, "%s", family("llama"));
    snprintf(packed, sizeof packed, "%s", in_work("packed"));
    write_packed(folder, name, packed);
    assert_refused(packed, low_rank(&o, name, 24, 32, &j), APR_E_UNSUPPORTED, "must be encoded again with the adapter merged in");
    must(packed, in_work("decoded.apr"), &(job){.mixture = "f32"});
    must(in_work("decoded.apr"), in_work("truth.apr"), &j);
    must(packed, in_work("m.apr"), &(job){.mixture = "f32", .uses = j.uses, .n_uses = 1});
    assert_true(difference(in_work("m.apr"), in_work("truth.apr")) == 0.0);
    assert_true(difference(in_work("m.apr"), in_work("decoded.apr")) > 0.1);
}

/* ---- what does not fit ---- */

static void every_part_of_an_adapter_must_find_its_tensor(void **state)
{
    one o;
    job j;
    char llama[100], phi3[100], hybrid[100];

    (void)state;
    snprintf(llama, sizeof llama, "%s", family("llama"));
    snprintf(phi3, sizeof phi3, "%s", family("phi3"));
    snprintf(hybrid, sizeof hybrid, "%s", family("qwen3_5"));
    assert_refused(llama, low_rank(&o, "model.layers.9.mlp.up_proj.weight", 56, 32, &j), APR_E_UNSUPPORTED,
                   "'model.layers.9.mlp.up_proj.weight', which is not in");
    assert_refused(llama, &j, APR_E_UNSUPPORTED, "was it trained on us/base?");
    assert_refused(llama, low_rank(&o, "model.layers.0.mlp.up_proj.weight", 32, 56, &j), APR_E_UNSUPPORTED, "is [32, 56], but in");
    assert_refused(llama, low_rank(&o, "model.norm.weight", 32, 1, &j), APR_E_UNSUPPORTED, "is [32, 1], but in");
    assert_refused(llama, replacement(&o, "lm_head.weight", 150, 32, &j), APR_E_UNSUPPORTED, "is [150, 32], but in");
    assert_refused(llama, low_rank(&o, "model.layers.0.self_attn.qkv_proj.weight", 96, 32, &j), APR_E_UNSUPPORTED,
                   "which is several tensors");
    assert_refused(phi3, low_rank(&o, "model.layers.0.self_attn.q_proj.weight", 32, 32, &j), APR_E_UNSUPPORTED,
                   "which is a part of 'model.layers.0.self_attn.qkv_proj.weight'");
    must(hybrid, in_work("hybrid.gguf"), &(job){0});
    assert_refused(in_work("hybrid.gguf"), low_rank(&o, "model.layers.0.linear_attn.out_proj.weight", 32, 32, &j), APR_E_UNSUPPORTED,
                   "rows are in another order in a GGUF");
}

static void names_of_larger_models_find_the_text_model(void **state)
{
    one o;
    job j;
    char folder[100];

    (void)state;
    snprintf(folder, sizeof folder, "%s", family("llama"));
    must(folder, in_work("x.apr"), low_rank(&o, "model.layers.0.mlp.up_proj.weight", 56, 32, &j));
    must(folder, in_work("y.apr"), low_rank(&o, "model.language_model.layers.0.mlp.up_proj.weight", 56, 32, &j));
    assert_true(difference(in_work("x.apr"), in_work("y.apr")) == 0.0);
    must(folder, in_work("y.apr"), low_rank(&o, "language_model.model.layers.0.mlp.up_proj.weight", 56, 32, &j));
    assert_true(difference(in_work("x.apr"), in_work("y.apr")) == 0.0);
    must(folder, in_work("x.apr"), low_rank(&o, "lm_head.weight", 148, 32, &j));
    must(folder, in_work("y.apr"), low_rank(&o, "language_model.lm_head.weight", 148, 32, &j));
    assert_true(difference(in_work("x.apr"), in_work("y.apr")) == 0.0);

    snprintf(folder, sizeof folder, "%s", family("mixtral")); /* and under the name that newer classes have for it */
    must(folder, in_work("x.apr"), low_rank(&o, "model.layers.0.block_sparse_moe.gate.weight", 6, 32, &j));
    must(folder, in_work("y.apr"), low_rank(&o, "model.layers.0.mlp.gate.weight", 6, 32, &j));
    assert_true(difference(in_work("x.apr"), in_work("y.apr")) == 0.0);
    must(folder, in_work("y.apr"), low_rank(&o, "model.layers.0.block_sparse_moe.experts.1.w1.weight", 20, 32, &j)); /* one of a stack */
    assert_true(difference(in_work("x.apr"), in_work("y.apr")) > 0.1);
    must(in_work("y.apr"), in_work("y.gguf"), &(job){0});
    must(folder, in_work("z.gguf"), &j);
    assert_true(difference(in_work("y.gguf"), in_work("z.gguf")) == 0.0);
}

/* With one matrix for both, a change of the embedding would be one of the output, which the adapter was not trained with. */
static void a_tied_output_is_not_changed_in_passing(void **state)
{
    static const char tied[] = "tests/data/tiny-qwen2";
    one o, both;
    job j;
    seen s;

    (void)state;
    see(&s, tied);
    assert_true(s.view.hparams.tie_word_embeddings);
    const int64_t tokens = s.view.hparams.vocab_size, width = s.view.hparams.hidden_size;
    unsee(&s);
    (void)low_rank(&o, "model.embed_tokens.weight", tokens / 100, width, &j);
    o.b.dims[0] = tokens;
    assert_refused(tied, &j, APR_E_UNSUPPORTED, "is tied to its embedding");
    (void)low_rank(&o, "lm_head.weight", tokens / 100, width, &j);
    assert_refused(tied, &j, APR_E_UNSUPPORTED, "is tied to its embedding");

    float *const x = calloc((size_t)(tokens * width), sizeof *x); /* both replaced, by the same: one of them is enough */
    apr_adapter_change changes[] = {{.name = "lm_head.weight", .whole = &both.whole},
                                    {.name = "model.embed_tokens.weight", .whole = &both.whole}};
    both = (one){.whole = {.name = "x", .dtype = APR_F32, .rank = 2, .dims = {tokens, width}, .data = (const uint8_t *)x}};
    assert_int_equal(apr_tensor_size(&both.whole, "test", NULL), APR_OK);
    finish(&both, "", 1.0);
    both.adapter.changes = changes;
    both.adapter.n_changes = 2;
    must(tied, in_work("both.apr"), &(job){.uses = &both.use, .n_uses = 1});
    both.adapter.changes = changes + 1;
    both.adapter.n_changes = 1;
    assert_refused(tied, &(job){.uses = &both.use, .n_uses = 1}, APR_E_UNSUPPORTED, "is tied to its embedding");
    both.adapter.ties_output = true;
    must(tied, in_work("both.apr"), &(job){.uses = &both.use, .n_uses = 1});
    free(x);
}

static void adapters_that_do_not_add_up_are_refused(void **state)
{
    const char *const name = "model.layers.1.self_attn.v_proj.weight";
    apr_tensor lengths = ramp(24, 0);
    one plain, dora, whole;
    job j;
    char folder[100];

    (void)state;
    snprintf(folder, sizeof folder, "%s", family("llama"));
    (void)low_rank(&plain, name, 24, 32, &j);
    (void)low_rank(&dora, name, 24, 32, &j);
    dora.change.magnitudes = &lengths;
    (void)replacement(&whole, name, 24, 32, &j);
    const apr_adapter_use dora_last[] = {plain.use, dora.use}, dora_first[] = {dora.use, plain.use}, whole_last[] = {plain.use, whole.use},
                          whole_first[] = {whole.use, plain.use}, whole_twice[] = {whole.use, whole.use}, half = {&whole.adapter, 0.5};
    assert_refused(folder, &(job){.uses = dora_last, .n_uses = 2}, APR_E_UNSUPPORTED, "changes with DoRA magnitudes cannot be added");
    assert_refused(folder, &(job){.uses = dora_first, .n_uses = 2}, APR_E_UNSUPPORTED, "changes with DoRA magnitudes cannot be added");
    assert_refused(folder, &(job){.uses = whole_last, .n_uses = 2}, APR_E_UNSUPPORTED, "another adapter has changed already");
    assert_refused(folder, &(job){.uses = whole_first, .n_uses = 2}, APR_E_UNSUPPORTED, "another adapter has replaced already");
    assert_refused(folder, &(job){.uses = whole_twice, .n_uses = 2}, APR_E_UNSUPPORTED, "another adapter has changed already");
    assert_refused(folder, &(job){.uses = &half, .n_uses = 1}, APR_E_USAGE, "with a factor of 0.5");
    plain.use.factor = 1e300;
    assert_refused(folder, &(job){.uses = &plain.use, .n_uses = 1}, APR_E_UNSUPPORTED, "scale beyond float32");
}

/* An F16 base and an adapter that goes beyond it. */
static void what_the_bases_type_cannot_hold_is_reported(void **state)
{
    one o;
    job j;
    char folder[100];

    (void)state;
    snprintf(folder, sizeof folder, "%s", family("llama"));
    must(folder, in_work("h.apr"), &(job){.mixture = "f16"});
    (void)low_rank(&o, "model.layers.1.self_attn.v_proj.weight", 24, 32, &j);
    o.use.factor = 1e6;
    assert_refused(in_work("h.apr"), &j, APR_E_UNSUPPORTED, "out of the range of f16");
}

/* A number of the adapter that is none, finite ones whose product is beyond float32, a row's length. */
static void what_has_no_finite_result_is_damage(void **state)
{
    static float a[64], whole[24 * 32], lengths[24] = {1, INFINITY};
    apr_tensor magnitudes = {.name = "m", .rank = 1, .dims = {24}, .data = (const uint8_t *)lengths, .n_bytes = sizeof lengths};
    one o;
    job j;

    (void)state, (void)low_rank(&o, "model.layers.1.self_attn.v_proj.weight", 24, 32, &j);
    o.a.data = (const uint8_t *)a;
    a[40] = NAN;
    assert_refused(family("llama"), &j, APR_E_DAMAGED, "1 of the 64 values of 'ramp'");
    a[40] = 3e38f;
    assert_refused(in_work("llama"), &j, APR_E_DAMAGED, "merging into 'model.layers.1.self_attn.v_proj.weight' makes");
    a[40] = 3e29f; /* large, and still a number */
    o.change.magnitudes = &magnitudes;
    assert_refused(in_work("llama"), &j, APR_E_DAMAGED, "1 of the 24 values of 'm' are not finite (the first at index 1)");
    (void)replacement(&o, o.change.name, 24, 32, &j);
    o.whole.data = (const uint8_t *)whole;
    whole[700] = -INFINITY;
    assert_refused(in_work("llama"), &j, APR_E_DAMAGED, "at index 700");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_merged_model_is_the_same_through_every_container),
        cmocka_unit_test(an_adapter_of_ggml_is_the_same_adapter),
        cmocka_unit_test(a_merged_model_keeps_its_bases_type_rounded_once),
        cmocka_unit_test(a_merge_into_bf16_is_pefts_bit_for_bit),
        cmocka_unit_test(quantizing_while_merging_is_quantizing_what_was_merged),
        cmocka_unit_test(threads_change_no_byte),
        cmocka_unit_test(factors_scale_and_adapters_add_up),
        cmocka_unit_test(the_file_says_what_was_merged),
        cmocka_unit_test(a_tensor_that_is_replaced_is_what_the_adapter_has),
        cmocka_unit_test(a_replaced_norm_takes_its_original_with_it),
        cmocka_unit_test(a_quantized_base_needs_a_type),
        cmocka_unit_test(shared_scales_stay),
        cmocka_unit_test(a_packed_base_is_merged_as_what_it_decodes_to),
        cmocka_unit_test(every_part_of_an_adapter_must_find_its_tensor),
        cmocka_unit_test(names_of_larger_models_find_the_text_model),
        cmocka_unit_test(a_tied_output_is_not_changed_in_passing),
        cmocka_unit_test(adapters_that_do_not_add_up_are_refused),
        cmocka_unit_test(what_the_bases_type_cannot_hold_is_reported),
        cmocka_unit_test(what_has_no_finite_result_is_damage),
    };
    return cmocka_run_group_tests(tests, make_work, remove_work);
}
