/* fuzz_convert.c - any model into any container and type, and read back: what was written can be read, is what the recipe
 * says, where types are kept has the same bytes, and is finite where it was. A refusal has a sentence, which is not that the
 * reader refused what the writer made, and leaves nothing.
 *
 * The input: a letter for the output (a: APR, g: GGUF, other: safetensors), a byte for the type (0: kept, else a mixture or a layout),
 * then one file, or a bundle of files (fuzz_target.h). */
#include "convert/run.h"
#include "formats/base/bytes.h"
#include "formats/base/crc32.h"
#include "formats/tensor/composed.h"
#include "kernels/rows.h"
#include "tests/fuzz/fuzz_target.h"

#include <math.h>
#include <unistd.h>

#ifdef _OPENMP
#include <omp.h>
#else
static void omp_set_num_threads(int n) { (void)n; }
#endif

enum { MOST_WEIGHTS = 1 << 16 };

static size_t count_mixtures(void)
{
    size_t n = 0;
    while (apr_mixture_names[n].name != NULL) n++;
    return n;
}

static size_t count_layouts(void)
{
    size_t n = 0;
    while (apr_packed_layouts[n].type != NULL) n++;
    return n;
}

/* The types after the mixtures: the layouts of folders for servers, which only folders have. */
static void choose_type(size_t type, apr_packed_target *target, apr_recipe_options *recipe)
{
    const size_t n_mixtures = count_mixtures();
    apr_error err = {0};

    if (type == 0) return;
    if (type <= n_mixtures) {
        recipe->mixture = apr_mixture_names[type - 1].name;
        return;
    }
    const apr_packed_layout *const l = &apr_packed_layouts[type - n_mixtures - 1];
    claim(apr_packed_target_find(target, l->type, l->name, 0, &err) == APR_OK);
    recipe->mixture = l->type;
    if (!l->by_row) recipe->packed = target;
}

/* One file is written as "in/model"; the checksum of an APR file's header is put right: no fuzzer finds it. */
static void write_input(const uint8_t *data, size_t n_bytes, char *path)
{
    static const char head[] = "=== model\n";
    uint8_t *const bundle = malloc(sizeof head + n_bytes);

    claim(bundle != NULL);
    memcpy(bundle, head, sizeof head - 1);
    memcpy(bundle + sizeof head - 1, data, n_bytes);
    uint8_t *const file = bundle + sizeof head - 1;
    if (n_bytes >= 64 && memcmp(file, "APR", 3) == 0) apr_store_le32(file + 40, apr_crc32(apr_crc32(0, file, 40), file + 44, 20));
    const bool is_bundle = n_bytes >= 4 && memcmp(data, "=== ", 4) == 0;
    const size_t n_files = is_bundle ? scratch_unpack(data, n_bytes, path) : scratch_unpack(bundle, sizeof head - 1 + n_bytes, path);
    if (n_files > 1) strcpy(path, "in");
    free(bundle);
}

static uint64_t weights_of(const apr_model *model)
{
    uint64_t n = 0;
    for (size_t i = 0; i < model->n_tensors; i++) n += (uint64_t)apr_tensor_elems(&model->tensors[i]) + model->tensors[i].n_bytes;
    return n;
}

static void claim_same_rows(const apr_tensor *from, const apr_tensor *to)
{
    const bool elements = from->rank == 1 && from->pending.kind != APR_STEP_NONE;
    const int64_t n_rows = elements ? from->dims[0] : apr_tensor_rows(from);

    claim(from->n_bytes == to->n_bytes);
    if (from->n_bytes == 0) return;
    if (from->composed != NULL) {
        uint8_t *const bytes = malloc((size_t)from->n_bytes);
        claim(bytes != NULL);
        apr_read_bytes(from, 0, apr_tensor_elems(from), bytes);
        claim(memcmp(bytes, to->data, (size_t)from->n_bytes) == 0);
        free(bytes);
        return;
    }
    const size_t n_row = (size_t)(from->n_bytes / (uint64_t)n_rows);
    for (int64_t r = 0; r < n_rows; r++) claim(memcmp(apr_tensor_row(from, r), to->data + (size_t)r * n_row, n_row) == 0);
}

static size_t count_not_finite(const apr_tensor *t)
{
    const int64_t n = apr_tensor_elems(t);
    size_t count = 0;

    if (n == 0 || !apr_can_decode(t->dtype)) return 0;
    float *const x = malloc((size_t)n * sizeof *x);
    claim(x != NULL);
    apr_decode_rows(t, 0, apr_tensor_rows(t), x);
    for (int64_t i = 0; i < n; i++) count += !isfinite(x[i]);
    free(x);
    return count;
}

/* What is computed on the way: no more values than before are none. */
static void claim_finite(const apr_composed *made, const apr_tensor *t)
{
    size_t before = 0;
    for (size_t i = 0; i < made->n_parts; i++) before += count_not_finite(made->parts[i]);
    claim(made->merge != NULL || count_not_finite(t) <= before);
}

static void read_back(const apr_conversion *conversion, const char *path)
{
    apr_error err = {0};
    apr_model back;

    if (apr_model_open(&back, path, &err) != APR_OK) {
        fprintf(stderr, "%s\n", err.text);
        claim(!"what we wrote can be read");
    }
    (void)touch_model(&back);
    for (size_t i = 0; i < conversion->layout.n_tensors; i++) {
        const apr_tensor *const stated = &conversion->layout.tensors[i], *const t = apr_model_find(&back, stated->name);
        const apr_pipe_item *const item = &conversion->items[i];
        claim(t != NULL && t->dtype == stated->dtype && t->n_bytes == stated->n_bytes && t->rank == stated->rank);
        claim(memcmp(t->dims, stated->dims, (size_t)t->rank * sizeof *t->dims) == 0);
        if (item->packed != NULL) continue;
        if (!item->is_scales && item->to == item->from->dtype) claim_same_rows(item->from, t);
        if (!item->is_scales && item->from->composed != NULL && item->from->composed->computes) claim_finite(item->from->composed, t);
    }
    apr_model_close(&back);
}

static void convert(const apr_model *source, const apr_convert_options *options, const char *path)
{
    apr_conversion conversion = {0};
    apr_error err = {0};
    uint64_t n_file;

    apr_status status = apr_conversion_plan(&conversion, source, options, &err);
    if (status == APR_OK) status = apr_conversion_run(&conversion, &(apr_convert_run){.pipe.want_metrics = true}, path, &n_file, &err);
    claim_sentence(status, err);
    if (strstr(err.text, "a bug in aprkit") != NULL) fprintf(stderr, "%s\n", err.text);
    claim(strstr(err.text, "a bug in aprkit") == NULL); /* what is written is read back before it gets its name */
    claim((status == APR_OK) == (access(path, F_OK) == 0));
    if (status == APR_OK) read_back(&conversion, path);
    apr_conversion_close(&conversion);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    apr_convert_options options = {.format = APR_FORMAT_SAFETENSORS, .recipe.allow_requantize = true};
    const char *out = "out";
    apr_packed_target packed;
    char path[SCRATCH_NAME_BYTES] = "in";
    apr_model model;
    apr_error err = {0};

    omp_set_num_threads(1); /* the fuzzer has the other cores */
    if (n_bytes < 2) return 0;
    if (data[0] == 'a') options.format = APR_FORMAT_APR, out = "out.apr";
    if (data[0] == 'g') options.format = APR_FORMAT_GGUF, out = "out.gguf";
    choose_type(data[1] % (count_mixtures() + count_layouts() + 1), &packed, &options.recipe);
    if (options.recipe.packed != NULL) options.format = APR_FORMAT_SAFETENSORS, out = "out";
    write_input(data + 2, n_bytes - 2, path);
    const apr_status status = apr_model_open(&model, scratch_path(path), &err);
    claim_sentence(status, err);
    if (status == APR_OK) {
        if (model.format != APR_FORMAT_CONFIG && weights_of(&model) <= MOST_WEIGHTS) convert(&model, &options, scratch_path(out));
        apr_model_close(&model);
    }
    scratch_clear();
    return 0;
}
