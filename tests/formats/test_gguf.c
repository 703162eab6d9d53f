/* formats/gguf/gguf.h: what is read can be written back byte for byte, and no broken file gets through. */
#include "formats/gguf/gguf.h"

#include "tests/support/gguf_builder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define BUNDLED "tests/data/tiny-qwen2/tiny-qwen2-Q4_K_M.gguf"

/* --- helpers --- */

/* Parses a copy of exactly n bytes, so that the sanitizer guards the end. free_parsed gives it back. */
static apr_status parse(apr_model *model, const uint8_t *bytes, size_t n_bytes, apr_error *err)
{
    *model = (apr_model){.path = "small.gguf", .n_maps = 1};
    *err = (apr_error){0};
    model->maps = calloc(1, sizeof *model->maps);
    uint8_t *const exact = malloc(n_bytes > 0 ? n_bytes : 1);
    memcpy(exact, bytes, n_bytes);
    *model->maps = (apr_map){.data = exact, .n_bytes = n_bytes};
    const apr_status status = apr_gguf_parse(model, err);
    if (status != APR_OK) assert_string_not_equal(err->text, "");
    return status;
}

static void free_parsed(apr_model *model)
{
    apr_map *const maps = model->maps;
    model->n_maps = 0;
    apr_model_close(model);
    free((void *)(uintptr_t)maps->data);
    free(maps);
}

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/test_gguf.XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder); /* fails when a test left something behind */
}

static const char *in_folder(const char *name)
{
    static char paths[4][128];
    static int next;
    char *const path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void write_file(const char *path, const void *bytes, size_t n_bytes)
{
    FILE *const f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n_bytes, f), n_bytes);
    fclose(f);
}

/* Writes the model as it is. */
static void write_model(const apr_model *model, const char *path)
{
    const apr_sink_options options = {.overwrite = true};
    apr_error err = {0};
    apr_sink *sink;

    assert_int_equal(apr_gguf_sink_open(&sink, path, model, &options, &err), APR_OK);
    for (size_t i = 0; i < model->n_tensors; i++) {
        const apr_tensor *const t = &model->tensors[i];
        const size_t half = (size_t)t->n_bytes / 2; /* in two pieces: boundaries are the sink's business */
        if (t->n_bytes == 0) continue;
        assert_int_equal(sink->ops->put(sink, t->data, half, &err), APR_OK);
        assert_int_equal(sink->ops->put(sink, t->data + half, (size_t)t->n_bytes - half, &err), APR_OK);
    }
    const uint64_t n_total = sink->ops->total_bytes(sink);
    assert_int_equal(sink->ops->finish(sink, &err), APR_OK);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, n_total);
}

static void assert_file_holds(const char *path, const uint8_t *bytes, size_t n_bytes)
{
    apr_map map;
    assert_int_equal(apr_map_open(&map, path, NULL), APR_OK);
    assert_int_equal(map.n_bytes, n_bytes);
    assert_memory_equal(map.data, bytes, n_bytes);
    apr_map_close(&map);
}

static void assert_comes_back(const char *path)
{
    apr_model model;
    apr_error err = {0};
    const char *const copy = in_folder("copy.gguf");

    if (apr_gguf_open(&model, path, &err) != APR_OK) fail_msg("%s", err.text);
    write_model(&model, copy);
    assert_file_holds(copy, model.maps[0].data, model.maps[0].n_bytes);
    unlink(copy);
    apr_model_close(&model);
}

/* --- good files --- */

/* From the end of the list of tensors on, any number of bytes is a head: the same names, types and sizes. Before it, none is. */
static void a_head_is_enough_for_names_and_sizes(void **state)
{
    const char *const path = in_folder("head.gguf");
    apr_model whole, head;
    apr_error err = {0};
    bool was_head = false, is_whole;
    (void)state;

    assert_int_equal(apr_gguf_open(&whole, BUNDLED, &err), APR_OK);
    const size_t n_file = whole.maps[0].n_bytes, n_head = (size_t)(whole.tensors[0].data - whole.maps[0].data);
    for (size_t n = 0; n < n_file; n += n < 4096 ? 97 : n + 64 < n_head ? 4093 : n < n_head + 64 ? 1 : n_file / 7) {
        FILE *const f = fopen(path, "wb");
        assert_true(f != NULL && fwrite(whole.maps[0].data, 1, n, f) == n && fclose(f) == 0);
        const apr_status status = apr_gguf_open_head(&head, path, &is_whole, &err);
        if (was_head || n >= n_head) assert_int_equal(status, APR_OK);
        assert_true(status == APR_OK || status == APR_E_DAMAGED || n == 0);
        bool all_there = true;
        was_head = status == APR_OK;
        if (!was_head) continue;
        assert_int_equal(head.n_tensors, whole.n_tensors);
        for (size_t i = 0; i < head.n_tensors; i++) {
            const apr_tensor *const a = &head.tensors[i], *const b = &whole.tensors[i];
            const bool is_there = (size_t)(b->data - whole.maps[0].data) + b->n_bytes <= n;
            all_there &= is_there;
            assert_string_equal(a->name, b->name);
            assert_true(a->dtype == b->dtype && a->n_bytes == b->n_bytes);
            if (is_there) assert_memory_equal(a->data, b->data, b->n_bytes);
            else assert_true(a->data[0] == 0 && a->data[b->n_bytes - 1] == 0);
        }
        assert_int_equal(is_whole, all_there);
        apr_model_close(&head);
        assert_int_equal(apr_gguf_open(&head, path, &err), APR_E_DAMAGED); /* reading values is refused */
    }
    assert_true(was_head);
    unlink(path);
    apr_model_close(&whole);
}

static void the_bundled_model_comes_back_byte_for_byte(void **state)
{
    (void)state;
    assert_comes_back(BUNDLED);
}

/* Metadata of other families (experts, windows, recurrent layers) and one tensor of each type that they have. */
static void models_of_other_families_come_back_byte_for_byte(void **state)
{
    (void)state;
    assert_comes_back("tests/data/gguf/qwen3.gguf");
    assert_comes_back("tests/data/gguf/gpt_oss.gguf");
    assert_comes_back("tests/data/gguf/qwen35.gguf");
}

static void a_small_file_reads_as_it_was_built(void **state)
{
    const spec s = good_spec();
    const built b = build(&s);
    apr_model m;
    apr_error err;
    double third;

    (void)state;
    assert_int_equal(parse(&m, b.bytes, b.n_bytes, &err), APR_OK);
    assert_int_equal(m.format, APR_FORMAT_GGUF);
    assert_int_equal(m.naming, APR_NAMING_GGML);
    assert_int_equal(m.origin.format, APR_FORMAT_GGUF);
    assert_int_equal(m.origin.gguf_version, 3);
    assert_null(m.origin.order);
    assert_int_equal(m.kv.n_items, 8);
    assert_int_equal(m.n_tensors, 2);
    const apr_tensor *const t = apr_model_find(&m, "blk.0.attn_q.weight");
    assert_ptr_equal(t, &m.tensors[0]);
    assert_int_equal(t->rank, 2);
    assert_int_equal(t->dims[0], 2); /* [out, in]: the file says 4, 2 */
    assert_int_equal(t->dims[1], 4);
    assert_int_equal(t->n_bytes, 32);
    assert_int_equal(t->data - m.maps[0].data, b.data_at);
    assert_string_equal(m.hparams.architecture, "llama");
    assert_int_equal(m.hparams.num_layers, 1);
    assert_int_equal(m.vocab.kind, APR_VOCAB_NONE);
    assert_int_equal(m.vocab.eos_id, -1);
    assert_true(apr_kv_get_real(&m.kv, "some.f64", &third) && third == 1.0 / 3);
    free_parsed(&m);
}

/* Files that are unusual but right, and that come back byte for byte. */
static void unusual_files_come_back_byte_for_byte(void **state)
{
    static const struct {
        const char *what;
        size_t field[3];
        uint64_t value[3];
    } rows[] = {
        {"version 2", {offsetof(spec, version)}, {2}},
        {"alignment 8", {offsetof(spec, alignment), offsetof(spec, padding)}, {8, 8}},
        {"no tensors", {offsetof(spec, last), offsetof(spec, n_data)}, {0, 0}},
        {"a tensor without elements", {offsetof(spec, tensor[1].dims[0]), offsetof(spec, n_data)}, {0, 32}},
        {"a scalar", {offsetof(spec, tensor[1].rank)}, {0}},
        {"listed out of order", {offsetof(spec, tensor[0].offset), offsetof(spec, tensor[1].offset)}, {32, 0}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        spec s = good_spec();
        for (int f = 0; f < 3 && (f == 0 || rows[i].field[f] != 0); f++)
            memcpy((char *)&s + rows[i].field[f], &rows[i].value[f], sizeof(uint64_t));
        if (s.alignment == 8) s.n_data = 56; /* 20 bytes padded to 24 */
        const built b = build(&s);
        const char *const copy = in_folder("unusual.gguf");
        apr_model m;
        apr_error err;
        if (parse(&m, b.bytes, b.n_bytes, &err) != APR_OK) fail_msg("%s: %s", rows[i].what, err.text);
        assert_int_equal(m.origin.gguf_version, s.version);
        write_model(&m, copy);
        assert_file_holds(copy, b.bytes, b.n_bytes);
        unlink(copy);
        free_parsed(&m);
    }
}

static void tensors_are_in_the_order_of_their_data(void **state)
{
    spec s = good_spec();
    apr_model m;
    apr_error err;

    (void)state;
    s.tensor[0].offset = 32;
    s.tensor[1].offset = 0;
    const built b = build(&s);
    assert_int_equal(parse(&m, b.bytes, b.n_bytes, &err), APR_OK);
    assert_string_equal(m.tensors[0].name, built_names[1].text);
    assert_string_equal(m.tensors[1].name, built_names[0].text);
    assert_int_equal(m.tensors[1].data - m.tensors[0].data, 32);
    assert_int_equal(m.origin.n_order, 2);
    assert_string_equal(m.origin.order[0], built_names[0].text);
    assert_string_equal(m.origin.order[1], built_names[1].text);
    free_parsed(&m);
}

static void gaps_between_tensors_are_read_over(void **state)
{
    spec s = good_spec();
    apr_model m;
    apr_error err;

    (void)state;
    s.tensor[1].offset = 96;
    s.n_data = 128;
    const built b = build(&s);
    assert_int_equal(parse(&m, b.bytes, b.n_bytes, &err), APR_OK);
    assert_int_equal(m.tensors[1].data - m.tensors[0].data, 96);
    free_parsed(&m);
}

static void every_type_of_ggml_has_its_size(void **state)
{
    int n_types = 0;

    (void)state;
    for (int d = 0; d < APR_DTYPE_COUNT; d++) {
        const apr_dtype_facts *const facts = &apr_dtypes[d];
        spec s = good_spec();
        apr_model m;
        apr_error err;
        if (facts->ggml_id < 0) continue;
        s.first = 1;
        s.tensor[1] =
            (built_tensor){.name = 1, .rank = 2, .dims = {(uint64_t)facts->elems_per_block * 2, 3}, .type = (uint64_t)facts->ggml_id};
        s.n_data = 6 * (uint64_t)facts->bytes_per_block;
        const built b = build(&s);
        assert_int_equal(parse(&m, b.bytes, b.n_bytes, &err), APR_OK);
        assert_int_equal(m.tensors[0].dtype, d);
        assert_int_equal(m.tensors[0].n_bytes, s.n_data);
        free_parsed(&m);
        assert_int_equal(parse(&m, b.bytes, b.n_bytes - 1, &err), APR_E_DAMAGED);
        free_parsed(&m);
        n_types++;
    }
    assert_int_equal(n_types, 35); /* ids 0 to 42 without the eight that ggml removed */
}

static void a_big_endian_copy_reads_equal(void **state)
{
    static const uint64_t plain[] = {0, 1, 24, 25, 26, 27, 28, 30}; /* f32 f16 i8 i16 i32 i64 f64 bf16 */
    (void)state;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        spec s = good_spec();
        apr_model le, be;
        apr_error err;
        s.tensor[1].type = plain[i];
        s.n_data = 96;
        const built little = build(&s);
        s.big_endian = 1;
        const built big = build(&s);
        assert_int_equal(parse(&le, little.bytes, little.n_bytes, &err), APR_OK);
        assert_int_equal(parse(&be, big.bytes, big.n_bytes, &err), APR_OK);
        const size_t n = (size_t)apr_kv_bytes(&le.kv);
        uint8_t *const a = malloc(n), *const b = malloc(n);
        assert_int_equal(apr_kv_bytes(&be.kv), n);
        apr_kv_write(&le.kv, a);
        apr_kv_write(&be.kv, b);
        assert_memory_equal(a, b, n);
        for (size_t t = 0; t < 2; t++) {
            assert_int_equal(le.tensors[t].n_bytes, be.tensors[t].n_bytes);
            assert_memory_equal(le.tensors[t].data, be.tensors[t].data, le.tensors[t].n_bytes);
        }
        free(a);
        free(b);
        free_parsed(&le);
        free_parsed(&be);
    }
}

/* --- broken files --- */

static void every_cut_is_damage_except_in_the_last_padding(void **state)
{
    (void)state;
    for (uint64_t big_endian = 0; big_endian < 2; big_endian++) {
        spec s = good_spec();
        s.big_endian = big_endian;
        const built b = build(&s);
        for (size_t cut = 0; cut <= b.n_bytes; cut++) {
            apr_model m;
            apr_error err;
            assert_int_equal(parse(&m, b.bytes, cut, &err), cut < b.data_at + 32 + 20 ? APR_E_DAMAGED : APR_OK);
            free_parsed(&m);
        }
    }
}

#define T0(field) offsetof(spec, tensor[0].field)
#define T1(field) offsetof(spec, tensor[1].field)

static void wrong_fields_are_refused_with_a_sentence(void **state)
{
    static const struct {
        size_t field;
        uint64_t value;
        apr_status status;
        const char *says;
    } rows[] = {
        {offsetof(spec, version), 0, APR_E_DAMAGED, "version 0"},
        {offsetof(spec, version), 1, APR_E_UNSUPPORTED, "version 1 (of August 2023)"},
        {offsetof(spec, version), 4, APR_E_UNSUPPORTED, "version 4"},
        {offsetof(spec, version), 0x03000000, APR_E_DAMAGED, "cannot be in"}, /* claims to be big-endian */
        {offsetof(spec, n_kv), UINT64_MAX, APR_E_DAMAGED, "keys cannot be in"},
        {offsetof(spec, n_kv), 9, APR_E_DAMAGED, "small.gguf"},
        {offsetof(spec, n_kv), 7, APR_E_DAMAGED, "'some.strings' has 9 dimensions"},
        {offsetof(spec, n_tensors), UINT64_MAX, APR_E_DAMAGED, "tensors do not fit in"},
        {offsetof(spec, n_tensors), (uint64_t)1 << 62, APR_E_DAMAGED, "tensors do not fit in"},
        {offsetof(spec, n_tensors), 3, APR_E_DAMAGED, "small.gguf"},
        {offsetof(spec, alignment), 0, APR_E_DAMAGED, "power of two"},
        {offsetof(spec, alignment), 48, APR_E_DAMAGED, "power of two"},
        {offsetof(spec, alignment), 64, APR_E_DAMAGED, "not a multiple of the alignment 64"},
        {offsetof(spec, alignment_type), 5, APR_E_DAMAGED, "general.alignment is i32"},
        {offsetof(spec, alignment_type), 6, APR_E_DAMAGED, "general.alignment is f32"},
        {T1(name), 0, APR_E_DAMAGED, "two tensors are called 'blk.0.attn_q.weight'"},
        {T1(name), 2, APR_E_DAMAGED, "has 0 bytes"},
        {T1(name), 3, APR_E_DAMAGED, "not UTF-8"},
        {T1(name), 4, APR_E_DAMAGED, "not UTF-8"},
        {T1(rank), 5, APR_E_DAMAGED, "5 dimensions"},
        {T1(rank), UINT32_MAX, APR_E_DAMAGED, "4294967295 dimensions"},
        {T1(dims[0]), 17, APR_E_DAMAGED, "needs 68 bytes at offset 32"},
        {T1(dims[0]), (uint64_t)1 << 63, APR_E_DAMAGED, "a dimension of 9223372036854775808"},
        {T1(dims[0]), INT64_MAX, APR_E_DAMAGED, "'output_norm.weight' [9223372036854775807]"},
        {T0(dims[1]), (uint64_t)1 << 62, APR_E_DAMAGED, "impossible shape"},
        {T0(dims[1]), (uint64_t)1 << 60, APR_E_DAMAGED, "impossible shape"}, /* 4 x 2^60 elements of 4 bytes wrap to 0 */
        {T0(dims[1]), 3, APR_E_DAMAGED, "overlap"},
        {T1(type), 12, APR_E_DAMAGED, "not a whole number of q4_k blocks of 256"},
        {T1(type), 4, APR_E_UNSUPPORTED, "has type 4: Q4_2/Q4_3, removed"},
        {T1(type), 31, APR_E_UNSUPPORTED, "Q4_0_4_4"},
        {T1(type), 36, APR_E_UNSUPPORTED, "I2_S"},
        {T1(type), 140, APR_E_UNSUPPORTED, "IQ2_K to IQ6_K of ik_llama.cpp"},
        {T1(type), 43, APR_E_UNSUPPORTED, "has type 43: not a type of ggml"},
        {T1(type), UINT32_MAX, APR_E_UNSUPPORTED, "has type 4294967295"},
        {T1(offset), 33, APR_E_DAMAGED, "not a multiple of the alignment"},
        {T1(offset), 0, APR_E_DAMAGED, "'blk.0.attn_q.weight' and 'output_norm.weight' overlap"},
        {T1(offset), 64, APR_E_DAMAGED, "needs 20 bytes at offset 64"},
        {T1(offset), UINT64_MAX - 31, APR_E_DAMAGED, "at offset 18446744073709551584"}, /* offset + size would wrap */
        {offsetof(spec, split_count), 2, APR_E_IO, "shard 1 of 2"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        spec s = good_spec();
        apr_model m;
        apr_error err;
        memcpy((char *)&s + rows[i].field, &rows[i].value, sizeof(uint64_t));
        const built b = build(&s);
        const apr_status status = parse(&m, b.bytes, b.n_bytes, &err);
        if (status != rows[i].status || strstr(err.text, rows[i].says) == NULL)
            fail_msg("row %zu: status %d, '%s' does not say '%s'", i, status, err.text, rows[i].says);
        assert_non_null(strstr(err.text, "small.gguf"));
        free_parsed(&m);
    }
}

static void blocks_in_a_big_endian_file_are_refused(void **state)
{
    spec s = good_spec();
    apr_model m;
    apr_error err;

    (void)state;
    s.big_endian = 1;
    s.tensor[1] = (built_tensor){.name = 1, .rank = 1, .dims = {256}, .type = 12, .offset = 32};
    s.n_data = 192;
    const built b = build(&s);
    assert_int_equal(parse(&m, b.bytes, b.n_bytes, &err), APR_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "big-endian q4_k blocks"));
    free_parsed(&m);
}

/* Flips each bit of the header in turn: whatever comes of it, it is a status and a sentence. */
static void no_flipped_bit_gets_further_than_a_status(void **state)
{
    const spec s = good_spec();
    const built b = build(&s);

    (void)state;
    for (size_t bit = 0; bit < 8 * b.data_at; bit++) {
        built flipped = b;
        apr_model m;
        apr_error err;
        flipped.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        const apr_status status = parse(&m, flipped.bytes, flipped.n_bytes, &err);
        assert_true(status == APR_OK || status == APR_E_DAMAGED || status == APR_E_UNSUPPORTED);
        free_parsed(&m);
    }
}

static void other_files_are_distinguished(void **state)
{
    apr_model m;
    apr_error err = {0};

    (void)state;
    assert_int_equal(parse(&m, (const uint8_t *)"GGML\3\0\0\0", 8, &err), APR_E_DAMAGED);
    assert_non_null(strstr(err.text, "does not begin with \"GGUF\""));
    free_parsed(&m);
    err = (apr_error){0};
    assert_int_equal(apr_gguf_open(&m, in_folder("absent.gguf"), &err), APR_E_IO);
    assert_non_null(strstr(err.text, "absent.gguf"));
    apr_model_close(&m); /* allowed after a failure */
}

/* --- split files --- */

static const char *const shard_names[] = {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"};

/* Three shards: keys only, then a tensor each. */
static void write_shards(uint64_t stated_tensors, uint64_t no_of_last)
{
    for (uint64_t i = 0; i < 3; i++) {
        spec s = good_spec();
        s.first = i == 2 ? 1 : 0;
        s.last = i;
        s.tensor[1].offset = 0;
        s.split_no = i == 2 ? no_of_last : i;
        s.split_count = 3;
        s.split_tensors = stated_tensors;
        s.n_data = i == 0 ? 0 : 32;
        const built b = build(&s);
        write_file(in_folder(shard_names[i]), b.bytes, b.n_bytes);
    }
}

static void remove_shards(void)
{
    for (int i = 0; i < 3; i++) unlink(in_folder(shard_names[i]));
}

static void any_shard_opens_them_all(void **state)
{
    (void)state;
    write_shards(2, 2);
    for (int i = 0; i < 3; i++) {
        apr_model m;
        apr_error err = {0};
        if (apr_gguf_open(&m, in_folder(shard_names[i]), &err) != APR_OK) fail_msg("%s", err.text);
        assert_int_equal(m.n_maps, 3);
        assert_int_equal(m.n_tensors, 2);
        assert_string_equal(m.tensors[0].name, built_names[0].text);
        assert_string_equal(m.tensors[1].name, built_names[1].text);
        assert_int_equal(m.tensors[1].n_bytes, 20);
        assert_int_equal(m.tensors[1].data[0], 0x08);
        assert_int_equal(m.kv.n_items, 8);
        assert_null(apr_kv_find(&m.kv, "split.count"));
        apr_model_close(&m);
    }
    remove_shards();
}

static void no_shard_of_what_is_read_is_written_over(void **state)
{
    apr_model m;
    (void)state;
    write_shards(2, 2);
    assert_int_equal(apr_gguf_open(&m, in_folder(shard_names[0]), NULL), APR_OK);
    for (int i = 0; i < 3; i++) {
        const apr_sink_options options = {.overwrite = true};
        apr_error err = {0};
        apr_sink *sink;
        assert_int_equal(apr_gguf_sink_open(&sink, in_folder(shard_names[i]), &m, &options, &err), APR_E_USAGE);
        assert_non_null(strstr(err.text, "is the same file as the input"));
    }
    apr_model_close(&m);
    remove_shards();
}

static void shards_that_do_not_belong_together_are_refused(void **state)
{
    apr_model m;
    apr_error err = {0};

    (void)state;
    write_shards(2, 2);
    unlink(in_folder(shard_names[2]));
    assert_int_equal(apr_gguf_open(&m, in_folder(shard_names[0]), &err), APR_E_IO);
    assert_non_null(strstr(err.text, shard_names[2]));

    write_shards(2, 1);
    err = (apr_error){0};
    assert_int_equal(apr_gguf_open(&m, in_folder(shard_names[0]), &err), APR_E_DAMAGED);
    assert_non_null(strstr(err.text, "says it is shard 2 of 3; its name says 3 of 3"));

    write_shards(5, 2);
    err = (apr_error){0};
    assert_int_equal(apr_gguf_open(&m, in_folder(shard_names[0]), &err), APR_E_DAMAGED);
    assert_non_null(strstr(err.text, "split.tensors.count says 5"));

    assert_int_equal(rename(in_folder(shard_names[1]), in_folder("renamed.gguf")), 0);
    err = (apr_error){0};
    assert_int_equal(apr_gguf_open(&m, in_folder("renamed.gguf"), &err), APR_E_IO);
    assert_non_null(strstr(err.text, "PREFIX-00002-of-00003.gguf"));
    unlink(in_folder("renamed.gguf"));
    remove_shards();
}

static void a_whole_file_with_the_name_of_a_shard_is_whole(void **state)
{
    const spec s = good_spec();
    const built b = build(&s);
    const char *const path = in_folder(shard_names[0]);
    apr_model m;
    apr_error err = {0};

    (void)state;
    write_file(path, b.bytes, b.n_bytes);
    assert_int_equal(apr_gguf_open(&m, path, &err), APR_OK);
    assert_int_equal(m.n_tensors, 2);
    apr_model_close(&m);
    unlink(path);
}

/* --- the sink --- */

static void what_gguf_cannot_hold_is_refused_before_anything_is_written(void **state)
{
    static const struct {
        apr_dtype dtype;
        int rank;
        const char *says;
    } rows[] = {
        {APR_F8_E4M3, 2, "tensor 'w' is fp8, which has no place in GGUF; quantize it: --to q8_0 is nearest"},
        {APR_U8, 2, "tensor 'w' is u8, which has no place in GGUF; write an .apr file"},
        {APR_F32, 5, "5 dimensions"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        apr_tensor t = {.name = "w", .dtype = rows[i].dtype, .rank = rows[i].rank, .dims = {1, 1, 1, 1, 1}, .n_bytes = 4};
        const apr_model layout = {.tensors = &t, .n_tensors = 1};
        const apr_sink_options options = {0};
        apr_error err = {0};
        apr_sink *sink;
        assert_int_equal(apr_gguf_sink_open(&sink, in_folder("refused.gguf"), &layout, &options, &err), APR_E_UNSUPPORTED);
        if (strstr(err.text, rows[i].says) == NULL) fail_msg("'%s' does not say '%s'", err.text, rows[i].says);
        assert_null(sink);
    }
    assert_int_not_equal(access(in_folder("refused.gguf"), F_OK), 0);
}

static void a_sink_takes_exactly_the_bytes_of_its_layout(void **state)
{
    apr_tensor t = {.name = "w", .dtype = APR_F32, .rank = 1, .dims = {3}, .n_bytes = 12};
    const apr_model layout = {.tensors = &t, .n_tensors = 1};
    const apr_sink_options options = {0};
    static const uint8_t bytes[13];
    const char *const path = in_folder("exact.gguf");
    apr_error err = {0};
    apr_sink *sink;

    (void)state;
    assert_int_equal(apr_gguf_sink_open(&sink, path, &layout, &options, &err), APR_OK);
    assert_int_equal(sink->ops->put(sink, bytes, 13, &err), APR_E_USAGE);
    sink->ops->abandon(sink);
    err = (apr_error){0};
    assert_int_equal(apr_gguf_sink_open(&sink, path, &layout, &options, &err), APR_OK);
    assert_int_equal(sink->ops->put(sink, bytes, 11, &err), APR_OK);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_equal(sink->ops->finish(sink, &err), APR_E_USAGE);
    assert_int_not_equal(access(path, F_OK), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bundled_model_comes_back_byte_for_byte),
        cmocka_unit_test(a_head_is_enough_for_names_and_sizes),
        cmocka_unit_test(models_of_other_families_come_back_byte_for_byte),
        cmocka_unit_test(a_small_file_reads_as_it_was_built),
        cmocka_unit_test(unusual_files_come_back_byte_for_byte),
        cmocka_unit_test(tensors_are_in_the_order_of_their_data),
        cmocka_unit_test(gaps_between_tensors_are_read_over),
        cmocka_unit_test(every_type_of_ggml_has_its_size),
        cmocka_unit_test(a_big_endian_copy_reads_equal),
        cmocka_unit_test(every_cut_is_damage_except_in_the_last_padding),
        cmocka_unit_test(wrong_fields_are_refused_with_a_sentence),
        cmocka_unit_test(blocks_in_a_big_endian_file_are_refused),
        cmocka_unit_test(no_flipped_bit_gets_further_than_a_status),
        cmocka_unit_test(other_files_are_distinguished),
        cmocka_unit_test(any_shard_opens_them_all),
        cmocka_unit_test(no_shard_of_what_is_read_is_written_over),
        cmocka_unit_test(shards_that_do_not_belong_together_are_refused),
        cmocka_unit_test(a_whole_file_with_the_name_of_a_shard_is_whole),
        cmocka_unit_test(what_gguf_cannot_hold_is_refused_before_anything_is_written),
        cmocka_unit_test(a_sink_takes_exactly_the_bytes_of_its_layout),
    };
    return cmocka_run_group_tests_name("gguf", tests, make_folder, remove_folder);
}
