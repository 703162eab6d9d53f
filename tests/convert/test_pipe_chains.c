/* test_pipe_chains.c - tensors that are made of others, streamed: as the whole tensor made at once, through APR files and back. */
#include "convert/provenance.h"

#include "convert/naming.h"
#include "convert/pipe.h"
#include "formats/apr/apr.h"
#include "kernels/rows.h"
#include "tests/support/step_oracle.h"
#include "tests/support/work_folder.h"

#include <math.h>
#include <omp.h>

static apr_arena arena;

static int close_all(void **state)
{
    apr_arena_close(&arena);
    return remove_work(state);
}

/* A tensor of that many random elements; plain numbers are small ones. */
static apr_tensor tensor_of(const char *name, apr_dtype dtype, int rank, const int64_t *dims, uint32_t seed)
{
    apr_tensor t = {.name = name, .dtype = dtype, .rank = rank};
    memcpy(t.dims, dims, (size_t)rank * sizeof *dims);
    assert_int_equal(apr_tensor_size(&t, "test", NULL), APR_OK);
    const int64_t n = apr_tensor_elems(&t);
    float *const values = malloc((size_t)n * sizeof *values + 1);
    uint8_t *const bytes = apr_arena_alloc(&arena, t.n_bytes + 1);
    assert_true(values != NULL && bytes != NULL);
    for (int64_t i = 0; i < n; i++) values[i] = (float)oracle_random(&seed) / 0x1p23f - 1.0f;
    for (uint64_t i = 0; i < t.n_bytes; i++) bytes[i] = (uint8_t)oracle_random(&seed);
    if (apr_can_encode(dtype)) apr_ref_codecs[dtype].encode(values, bytes, n);
    t.data = bytes;
    free(values);
    return t;
}

static apr_chain chain_of(const char *text)
{
    apr_chain chain;
    if (!apr_chain_parse(&chain, text)) fail_msg("'%s' is not a chain", text);
    return chain;
}

static void follow(apr_tensor *t, const char *text)
{
    const apr_chain chain = chain_of(text);
    apr_error err = {0};
    if (apr_tensor_append_steps(t, &chain, &arena, "test", &err) != APR_OK) fail_msg("%s", err.text);
}

/* ---- a sink that keeps what it is given, and how much of it at once ---- */

typedef struct memory {
    apr_sink base;
    uint8_t *bytes;
    size_t n_bytes, most;
} memory;

static apr_status remember(apr_sink *sink, const void *bytes, size_t n_bytes, apr_error *err)
{
    memory *const m = (memory *)sink;
    (void)err;
    m->bytes = realloc(m->bytes, m->n_bytes + n_bytes + 1);
    assert_non_null(m->bytes);
    memcpy(m->bytes + m->n_bytes, bytes, n_bytes);
    m->n_bytes += n_bytes;
    if (n_bytes > m->most) m->most = n_bytes;
    return APR_OK;
}

static const apr_sink_ops memory_ops = {.put = remember};

/* What the pipe makes of the tensor, followed by the row scales for FP8. */
static memory piped(const apr_tensor *t, apr_dtype to, apr_metrics *metrics)
{
    memory m = {.base = {&memory_ops}};
    apr_pipe_item items[] = {{.from = t, .to = to}, {.from = t, .to = APR_F32, .is_scales = true}};
    const apr_pipe_options options = {.want_metrics = metrics != NULL};
    apr_error err = {0};
    if (apr_pipe_run(&m.base, items, to == APR_F8_E4M3 ? 2 : 1, &options, &err) != APR_OK) fail_msg("%s", err.text);
    if (metrics != NULL) *metrics = items[0].metrics;
    return m;
}

/* The chain applied to the whole tensor at once, by its definition. */
static uint8_t *whole(const apr_tensor *t, const char *text, apr_shape *shape)
{
    const apr_chain chain = chain_of(text);
    const int64_t n = apr_tensor_elems(t), elems = apr_dtypes[t->dtype].elems_per_block;
    const size_t n_block = (size_t)apr_dtypes[t->dtype].bytes_per_block;
    uint32_t *const ids = malloc((size_t)n * sizeof *ids);
    uint8_t *const bytes = malloc(t->n_bytes);
    assert_true(ids != NULL && bytes != NULL);
    for (int64_t i = 0; i < n; i++) ids[i] = (uint32_t)i;
    *shape = apr_tensor_shape(t);
    for (int i = 0; i < chain.n_steps; i++) oracle_apply(&chain.steps[i], shape, ids);
    for (int64_t i = 0; i < oracle_elems(shape); i += elems)
        memcpy(bytes + (size_t)(i / elems) * n_block, t->data + (size_t)(ids[i] / elems) * n_block, n_block);
    free(ids);
    return bytes;
}

static const struct {
    apr_dtype dtype;
    int64_t dims[3];
    const char *chain;
} cases[] = {
    /* the first is larger than a window of the pipe, all are several pieces, cut within rows */
    {APR_BF16, {3, 1100, 900}, "transpose"},
    {APR_BF16, {3, 90, 1024}, "transpose deinterleave:1,2 take:1,1,512,512"},
    {APR_F32, {2, 120, 1000}, "grouped_to_tiled:0,200,4,5"},
    {APR_F32, {2, 120, 1000}, "take:1,3,10,25 fold:1,2 unfold:1,5 transpose"},
    {APR_F32, {1, 140, 1024}, "pairs_to_halves:7 squeeze:2"},
    {APR_Q8_0, {4, 60, 1024}, "deinterleave:1,2"},
    {APR_Q8_0, {4, 60, 1024}, "tiled_to_grouped:0,0,4,8 take:1,2,1,29"},
    {APR_MXFP4, {8, 30, 1056}, "interleave:1,3 take:1,2,0,14"},
};

static void the_bytes_of_a_chain_are_those_of_the_whole_tensor(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        omp_set_num_threads(1 + (int)i % 3);
        const apr_tensor source = tensor_of("t", cases[i].dtype, 3, cases[i].dims, (uint32_t)i);
        apr_tensor t = source;
        apr_shape shape;
        follow(&t, cases[i].chain);
        uint8_t *const reference = whole(&source, cases[i].chain, &shape);
        memory m = piped(&t, t.dtype, NULL);
        assert_int_equal(m.n_bytes, t.n_bytes);
        assert_memory_equal(m.bytes, reference, t.n_bytes);
        assert_true(m.most <= 8 << 20); /* however large it is */
        free(reference);
        free(m.bytes);
    }
}

static void encoding_a_chain_is_encoding_the_whole_tensor(void **state)
{
    static const apr_dtype types[] = {APR_Q8_0, APR_F32, APR_F16, APR_Q4_0, APR_F8_E4M3};
    (void)state;
    for (size_t i = 1; i < sizeof cases / sizeof *cases; i++)
        for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
            const apr_tensor source = tensor_of("t", cases[i].dtype, 3, cases[i].dims, (uint32_t)i);
            apr_tensor t = source, plain = {.name = "t"};
            apr_shape shape;
            apr_metrics of_made, of_plain;
            follow(&t, cases[i].chain);
            if (types[k] == t.dtype || apr_row_bytes(types[k], apr_tensor_columns(&t)) < 0) continue;
            plain.data = whole(&source, cases[i].chain, &shape);
            plain.dtype = shape.dtype, plain.rank = shape.rank;
            memcpy(plain.dims, shape.dims, sizeof plain.dims);
            assert_int_equal(apr_tensor_size(&plain, "test", NULL), APR_OK);
            memory m = piped(&t, types[k], &of_made), reference = piped(&plain, types[k], &of_plain);
            assert_int_equal(m.n_bytes, reference.n_bytes);
            assert_memory_equal(m.bytes, reference.bytes, m.n_bytes);
            assert_true(of_made.n == of_plain.n && of_made.sum_sq_err == of_plain.sum_sq_err);
            free((void *)plain.data);
            free(m.bytes);
            free(reference.bytes);
        }
}

static void many_sources_stream_into_one_tensor(void **state)
{
    enum { N = 24 };
    static const int64_t dims[] = {40, 640};
    apr_tensor experts[N], stack = {.name = "stack"}, turned;
    const apr_tensor *parts[N];
    (void)state;
    for (int e = 0; e < N; e++) {
        experts[e] = tensor_of("e", APR_BF16, 2, dims, (uint32_t)e);
        parts[e] = &experts[e];
    }
    const apr_chain chain = chain_of("stack");
    assert_int_equal(apr_tensor_compose(&stack, parts, N, &chain, &arena, "test", NULL), APR_OK);
    memory m = piped(&stack, APR_BF16, NULL), q = piped(&stack, APR_Q8_0, NULL);
    turned = stack;
    follow(&turned, "transpose");
    memory w = piped(&turned, APR_BF16, NULL);
    for (int e = 0; e < N; e++) {
        const size_t n = (size_t)experts[e].n_bytes;
        memory one = piped(&experts[e], APR_Q8_0, NULL);
        assert_memory_equal(m.bytes + (size_t)e * n, experts[e].data, n);
        assert_memory_equal(q.bytes + (size_t)e * one.n_bytes, one.bytes, one.n_bytes);
        for (size_t i = 0; i < n / 2; i++)
            assert_memory_equal(w.bytes + (size_t)e * n + 2 * i, experts[e].data + 2 * (i % 40 * 640 + i / 40), 2);
        free(one.bytes);
    }
    free(m.bytes);
    free(q.bytes);
    free(w.bytes);
}

static void doubles_beyond_float32_are_found_in_every_source(void **state)
{
    (void)state;
    static const double small[] = {1.0, 2.0}, large[] = {1e300, -3e300};
    const apr_tensor a = {.name = "a", .dtype = APR_F64, .rank = 1, .dims = {2}, .data = (const uint8_t *)small, .n_bytes = 16};
    const apr_tensor b = {.name = "b", .dtype = APR_F64, .rank = 1, .dims = {2}, .data = (const uint8_t *)large, .n_bytes = 16};
    const apr_tensor *const parts[] = {&a, &b};
    const apr_chain chain = chain_of("stack");
    const apr_pipe_options options = {0};
    apr_tensor t = {.name = "t"};
    memory m = {.base = {&memory_ops}};
    apr_error err = {0};
    assert_int_equal(apr_tensor_compose(&t, parts, 2, &chain, &arena, "test", NULL), APR_OK);
    apr_pipe_item item = {.from = &t, .to = APR_F32};
    assert_int_equal(apr_pipe_run(&m.base, &item, 1, &options, &err), APR_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "tensor 't': 2 of its 4 values are out of the range of float32 (the largest is -3e+300)"));
}

/* ---- through a file and back ---- */

/* Writes the view to an APR file and opens that. */
static void write_and_open(apr_model *opened, const apr_model *view, const char *path)
{
    apr_model layout = *view;
    apr_pipe_item items[32];
    const apr_pipe_options pipe = {0};
    const apr_sink_options options = {.overwrite = true};
    apr_sink *sink;
    apr_error err = {0};
    layout.tensors = apr_arena_array(&arena, view->n_tensors, sizeof *layout.tensors);
    for (size_t i = 0; i < view->n_tensors; i++) {
        layout.tensors[i] = view->tensors[i];
        layout.tensors[i].data = NULL;
        layout.tensors[i].composed = NULL;
        layout.tensors[i].pending = (apr_step){0};
        items[i] = (apr_pipe_item){.from = &view->tensors[i], .to = view->tensors[i].dtype};
    }
    if (apr_sink_open(&sink, APR_FORMAT_APR, path, &layout, &options, &err) != APR_OK) fail_msg("%s", err.text);
    if (apr_pipe_run(sink, items, view->n_tensors, &pipe, &err) != APR_OK) fail_msg("%s", err.text);
    if (apr_sink_finish(sink, &err) != APR_OK) fail_msg("%s", err.text);
    if (apr_model_open(opened, path, &err) != APR_OK) fail_msg("%s", err.text);
}

static void assert_is(const apr_model *model, const apr_tensor *origin)
{
    const apr_tensor *const t = apr_model_find(model, origin->name);
    if (t == NULL) fail_msg("'%s' did not come back", origin->name);
    assert_int_equal(t->dtype, origin->dtype);
    assert_int_equal(t->rank, origin->rank);
    assert_memory_equal(t->dims, origin->dims, (size_t)t->rank * sizeof *t->dims);
    memory m = piped(t, t->dtype, NULL);
    assert_int_equal(m.n_bytes, origin->n_bytes);
    assert_memory_equal(m.bytes, origin->data, origin->n_bytes);
    free(m.bytes);
}

/* The view as an APR file, and back: every origin must be there again, and nothing else. */
static void assert_comes_back(apr_model *view, const apr_tensor *origins, size_t n_origins)
{
    apr_model opened, back;
    apr_error err = {0};
    write_and_open(&opened, view, in_work("way.apr"));
    assert_int_equal(apr_view_copy(&back, &opened, 0, &err), APR_OK);
    if (apr_provenance_undo(&back, &err) != APR_OK || apr_model_index_names(&back, &err) != APR_OK) fail_msg("%s", err.text);
    assert_int_equal(back.n_tensors, n_origins);
    for (size_t i = 0; i < n_origins; i++) assert_is(&back, &origins[i]);
    apr_model_close(&back);
    apr_model_close(&opened);
}

static void every_step_alone_is_undone_from_its_record(void **state)
{
    static const struct {
        const char *chain;
        apr_dtype dtype;
        int rank;
        int64_t dims[4];
    } ways[] = {
        {"pairs_to_halves:2", APR_Q8_0, 2, {8, 64}},
        {"halves_to_pairs:2", APR_BF16, 1, {8}},
        {"deinterleave:1,2", APR_MXFP4, 3, {3, 8, 64}},
        {"interleave:0,2", APR_F32, 2, {3, 8}},
        {"grouped_to_tiled:1,2,2,3", APR_F16, 2, {14, 5}},
        {"tiled_to_grouped:0,0,2,3", APR_Q8_0, 2, {4, 192}},
        {"transpose", APR_BF16, 3, {3, 5, 7}},
        {"squeeze:1", APR_F32, 3, {9, 1, 4}},
        {"unsqueeze:1", APR_F32, 1, {9}},
        {"unfold:1,4", APR_Q8_0, 2, {12, 32}},
        {"fold:1,4", APR_U8, 3, {4, 3, 5}},
        {"pack_mxfp4", APR_U8, 3, {4, 3, 17}},
        {"unpack_mxfp4", APR_MXFP4, 2, {4, 96}},
        {"take:1,1,0,6", APR_F32, 2, {6, 3}},
        {"deinterleave:1,2 transpose unfold:0,2", APR_BF16, 3, {3, 8, 6}},
    };
    enum { N = sizeof ways / sizeof *ways };
    apr_tensor origins[N];
    apr_model view = {.path = "toy", .n_tensors = N, .tensors = apr_arena_array(&arena, N, sizeof(apr_tensor))};
    (void)state;
    for (size_t i = 0; i < N; i++) {
        const apr_chain chain = chain_of(ways[i].chain);
        apr_error err = {0};
        origins[i] = tensor_of(apr_arena_print(&arena, "origin.%zu", i), ways[i].dtype, ways[i].rank, ways[i].dims, (uint32_t)i);
        view.tensors[i] = origins[i];
        if (apr_provenance_begin(&view.tensors[i], apr_arena_print(&arena, "tensor.%zu", i), &chain, &arena, "toy", &err) != APR_OK)
            fail_msg("%s", err.text);
    }
    assert_comes_back(&view, origins, N);
}

static void experts_are_stacked_and_unstacked_from_the_record(void **state)
{
    enum { N = 6 };
    static const int64_t dims[] = {8, 64};
    const apr_chain chain = chain_of("stack deinterleave:1,2 transpose");
    apr_tensor origins[N + 1];
    const apr_tensor *parts[N];
    apr_model view = {.path = "toy", .n_tensors = 2, .tensors = apr_arena_array(&arena, 2, sizeof(apr_tensor))};
    (void)state;
    for (int e = 0; e < N; e++) {
        origins[e] = tensor_of(apr_arena_print(&arena, "experts.%d.gate_up", e), APR_BF16, 2, dims, (uint32_t)e);
        parts[e] = &origins[e];
    }
    origins[N] = tensor_of("bystander", APR_F32, 1, dims, 9);
    view.tensors[0] = (apr_tensor){.name = "experts.gate_up"};
    view.tensors[1] = origins[N];
    assert_int_equal(apr_provenance_join(&view.tensors[0], parts, N, &chain, &arena, "toy", NULL), APR_OK);
    assert_comes_back(&view, origins, N + 1);
}

static void fused_matrices_are_split_and_joined_from_the_record(void **state)
{
    static const char *const chains[] = {
        "take:1,2,0,6", "take:1,2,6,2", "take:1,2,8,2 transpose", "transpose pick:0", "transpose pick:2 unsqueeze:1", "transpose pick:1"};
    static const int64_t qkv[] = {20, 32}, stacked[] = {3, 5, 7};
    const apr_tensor origins[] = {tensor_of("qkv", APR_BF16, 2, qkv, 1), tensor_of("experts", APR_F32, 3, stacked, 2)};
    apr_model view = {.path = "toy", .n_tensors = 6, .tensors = apr_arena_array(&arena, 6, sizeof(apr_tensor))};
    (void)state;
    for (int i = 0; i < 6; i++) {
        const apr_chain chain = chain_of(chains[i]);
        view.tensors[i] = origins[i / 3];
        assert_int_equal(apr_provenance_begin(&view.tensors[i], apr_arena_print(&arena, "part.%d", i), &chain, &arena, "toy", NULL),
                         APR_OK);
    }
    assert_comes_back(&view, origins, 2);

    view.n_tensors = 2; /* without the last third of qkv: nothing says what it was, but where a part before it is missing, something does */
    view.tensors[0] = view.tensors[2];
    apr_model opened, back;
    apr_error err = {0};
    write_and_open(&opened, &view, in_work("parts.apr"));
    assert_int_equal(apr_view_copy(&back, &opened, 0, NULL), APR_OK);
    assert_int_equal(apr_provenance_undo(&back, &err), APR_E_DAMAGED);
    assert_non_null(strstr(err.text, "tensor 'part.1' cannot be restored to its original form: other parts of its origin are missing"));
    apr_model_close(&back);
    apr_model_close(&opened);
}

/* Experts out of a stack, and gate and up out of each; listed in another order than they are stored. */
static void what_was_cut_twice_is_joined_twice_from_the_record(void **state)
{
    static const char *const chains[] = {"pick:1 take:1,1,4,4", "pick:0 take:1,1,0,4", "pick:2 take:1,1,2,4", "pick:1 take:1,1,0,4",
                                         "pick:0 take:1,1,4,4"};
    static const int64_t stacked[] = {2, 8, 5}, whole[] = {3, 8, 5};
    const apr_tensor origins[] = {tensor_of("gate_up", APR_BF16, 3, stacked, 1)}, other = tensor_of("other", APR_BF16, 3, whole, 2);
    apr_model view = {.path = "toy", .n_tensors = 4, .tensors = apr_arena_array(&arena, 5, sizeof(apr_tensor))};
    apr_model opened, back;
    apr_error err = {0};
    (void)state;
    for (int i = 0, n = 0; i < 5; i++) {
        const apr_chain chain = chain_of(chains[i]);
        if (i == 2) continue;
        view.tensors[n] = origins[0];
        assert_int_equal(apr_provenance_begin(&view.tensors[n++], apr_arena_print(&arena, "part.%d", i), &chain, &arena, "toy", NULL),
                         APR_OK);
    }
    assert_comes_back(&view, origins, 1);

    view.tensors[4] = view.tensors[0]; /* the same piece once more */
    view.tensors[4].name = "part.again";
    view.n_tensors = 5;
    write_and_open(&opened, &view, in_work("twice.apr"));
    assert_int_equal(apr_view_copy(&back, &opened, 0, NULL), APR_OK);
    assert_int_equal(apr_provenance_undo(&back, &err), APR_E_DAMAGED);
    assert_non_null(strstr(err.text, "another tensor is the same part of its origin"));
    apr_model_close(&back);
    apr_model_close(&opened);

    const apr_chain chain = chain_of(chains[2]); /* without what was before it */
    view.tensors[4] = other;
    view.tensors[4].name = origins[0].name;
    assert_int_equal(apr_provenance_begin(&view.tensors[4], "part.2", &chain, &arena, "toy", NULL), APR_OK);
    write_and_open(&opened, &view, in_work("twice.apr"));
    assert_int_equal(apr_view_copy(&back, &opened, 0, NULL), APR_OK);
    assert_int_equal(apr_provenance_undo(&back, &err), APR_E_DAMAGED);
    apr_model_close(&back);
    apr_model_close(&opened);
}

static void joined_matrices_are_split_by_the_record(void **state)
{
    static const int64_t q[] = {12, 32}, k[] = {4, 32}, bias[] = {12}, bias_k[] = {4};
    const apr_tensor origins[] = {tensor_of("q", APR_Q8_0, 2, q, 1), tensor_of("k", APR_Q8_0, 2, k, 2), tensor_of("v", APR_Q8_0, 2, k, 3),
                                  tensor_of("q.bias", APR_F32, 1, bias, 4), tensor_of("k.bias", APR_F32, 1, bias_k, 5)};
    const apr_tensor *const parts[] = {&origins[0], &origins[1], &origins[2], &origins[3], &origins[4]};
    const apr_chain by_groups = chain_of("join:1,4"), biases = chain_of("join:0,1 interleave:0,2");
    apr_model view = {.path = "toy", .n_tensors = 2, .tensors = apr_arena_array(&arena, 2, sizeof(apr_tensor))};
    (void)state;
    view.tensors[0] = (apr_tensor){.name = "qkv"};
    view.tensors[1] = (apr_tensor){.name = "qk.bias"};
    assert_int_equal(apr_provenance_join(&view.tensors[0], parts, 3, &by_groups, &arena, "toy", NULL), APR_OK);
    assert_int_equal(apr_provenance_join(&view.tensors[1], parts + 3, 2, &biases, &arena, "toy", NULL), APR_OK);
    assert_comes_back(&view, origins, 5);
}

static void gpt_oss_blocks_and_scales_come_back_from_mxfp4(void **state)
{
    static const int64_t block_dims[] = {2, 6, 3, 16}, scale_dims[] = {2, 6, 3};
    const apr_tensor origins[] = {tensor_of("w_scales", APR_U8, 3, scale_dims, 1), tensor_of("w_blocks", APR_U8, 4, block_dims, 2)};
    const apr_chain chain = chain_of("join:0,1 pack_mxfp4 deinterleave:1,2");
    const apr_chain own = chain_of("unsqueeze:0");
    apr_tensor column = origins[0];
    apr_model view = {.path = "toy", .n_tensors = 1, .tensors = apr_arena_array(&arena, 1, sizeof(apr_tensor))};
    const apr_tensor *const parts[] = {&column, &origins[1]};
    (void)state;
    assert_int_equal(apr_provenance_begin(&column, "column", &own, &arena, "toy", NULL), APR_OK);
    view.tensors[0] = (apr_tensor){.name = "w"};
    assert_int_equal(apr_provenance_join(&view.tensors[0], parts, 2, &chain, &arena, "toy", NULL), APR_OK);
    assert_int_equal(view.tensors[0].dtype, APR_MXFP4);
    assert_comes_back(&view, origins, 2);
}

static void what_was_computed_comes_back_from_the_original_that_was_kept(void **state)
{
    static const int64_t dims[] = {300};
    apr_tensor origin = tensor_of("ssm_a", APR_F32, 1, dims, 1);
    const apr_chain chain = chain_of("log_negative");
    apr_model view = {.path = "toy", .n_tensors = 2, .tensors = apr_arena_array(&arena, 2, sizeof(apr_tensor))}, opened;
    (void)state;
    for (int i = 0; i < 300; i++) ((uint8_t *)origin.data)[4 * i + 3] |= 0x80; /* all negative */
    view.tensors[0] = view.tensors[1] = origin;
    view.tensors[1].name = "A_log.original";
    assert_false(apr_chain_exact(&chain));
    assert_int_equal(apr_provenance_begin(&view.tensors[0], "A_log", &chain, &arena, "toy", NULL), APR_OK);
    view.tensors[0].origin_kept = "A_log.original";
    assert_comes_back(&view, &origin, 1);

    write_and_open(&opened, &view, in_work("kept.apr"));
    const apr_tensor *const logs = apr_model_find(&opened, "A_log");
    for (int i = 0; i < 300; i++) {
        float before, after;
        memcpy(&before, origin.data + 4 * (size_t)i, 4);
        memcpy(&after, logs->data + 4 * (size_t)i, 4);
        assert_true(after == (float)log(-(double)before));
    }
    apr_model_close(&opened);
}

static void added_ones_are_taken_off_again(void **state)
{
    static const int64_t dims[] = {5000};
    const apr_tensor norm = tensor_of("norm", APR_BF16, 1, dims, 3);
    const apr_chain chain = chain_of("add:1");
    apr_model view = {.path = "toy", .n_tensors = 1, .tensors = apr_arena_array(&arena, 1, sizeof(apr_tensor))}, opened, back;
    (void)state;
    view.tensors[0] = norm;
    assert_int_equal(apr_provenance_begin(&view.tensors[0], "norm_plus_one", &chain, &arena, "toy", NULL), APR_OK);
    write_and_open(&opened, &view, in_work("norm.apr"));
    assert_int_equal(apr_view_copy(&back, &opened, 0, NULL), APR_OK);
    assert_int_equal(apr_provenance_undo(&back, NULL), APR_OK);
    memory m = piped(&back.tensors[0], APR_BF16, NULL); /* f32 on the way, the same bf16 at its end */
    assert_memory_equal(m.bytes, norm.data, norm.n_bytes);
    free(m.bytes);
    apr_model_close(&back);
    apr_model_close(&opened);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bytes_of_a_chain_are_those_of_the_whole_tensor),
        cmocka_unit_test(encoding_a_chain_is_encoding_the_whole_tensor),
        cmocka_unit_test(many_sources_stream_into_one_tensor),
        cmocka_unit_test(doubles_beyond_float32_are_found_in_every_source),
        cmocka_unit_test(every_step_alone_is_undone_from_its_record),
        cmocka_unit_test(experts_are_stacked_and_unstacked_from_the_record),
        cmocka_unit_test(fused_matrices_are_split_and_joined_from_the_record),
        cmocka_unit_test(what_was_cut_twice_is_joined_twice_from_the_record),
        cmocka_unit_test(joined_matrices_are_split_by_the_record),
        cmocka_unit_test(gpt_oss_blocks_and_scales_come_back_from_mxfp4),
        cmocka_unit_test(what_was_computed_comes_back_from_the_original_that_was_kept),
        cmocka_unit_test(added_ones_are_taken_off_again),
    };
    return cmocka_run_group_tests_name("chains through the pipe", tests, make_work, close_all);
}
