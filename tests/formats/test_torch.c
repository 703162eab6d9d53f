/* formats/torch/torch.h: files that torch made are read as torch reads them, and others end in a sentence. */
#define _GNU_SOURCE /* nftw, mkdtemp */
#include "formats/files/map.h"
#include "formats/number/half.h"
#include "formats/torch/torch.h"
#include "kernels/rows.h"
#include "tests/support/work_folder.h"
#include "tests/support/zip_builder.h"

#define ODD "tests/data/containers/odd/"

/* --- helpers --- */

static void read_file_ok(apr_model *model, apr_map *map, const char *path)
{
    apr_error err = {0};

    *model = (apr_model){.path = path};
    if (apr_map_open(map, path, &err) != APR_OK || apr_torch_parse(model, map->data, map->n_bytes, path, &err) != APR_OK ||
        apr_model_index_names(model, &err) != APR_OK)
        fail_msg("%s", err.text);
}

static const apr_tensor *find(const apr_model *model, const char *name, apr_dtype dtype, int rank)
{
    const apr_tensor *const t = apr_model_find(model, name);
    if (t == NULL) fail_msg("there is no '%s'", name);
    assert_int_equal(t->dtype, dtype);
    assert_int_equal(t->rank, rank);
    return t;
}

static float bf16_at(const apr_tensor *t, int64_t i)
{
    uint8_t bytes[64];
    if (t->composed != NULL) apr_read_bytes(t, 0, apr_tensor_elems(t), bytes);
    else memcpy(bytes, t->data, t->n_bytes);
    return apr_bf16_to_f32(apr_load_le16(bytes + 2 * i));
}

/* A file of torch.save's, around this pickle and eight bytes of storage "0". */
static apr_status parse(const char *pickle, size_t n_pickle, const char *extra, const char *extra_bytes, apr_model *model, apr_error *err)
{
    zip_builder z = {0};

    zip_add(&z, "x/data.pkl", pickle, n_pickle);
    if (extra != NULL) zip_add(&z, extra, extra_bytes, strlen(extra_bytes));
    zip_add(&z, "x/data/0", "\0\0\x80\x3f\0\0\0\x40", 8);
    zip_close(&z, 0);
    *model = (apr_model){.path = "test"};
    *err = (apr_error){0};
    uint8_t *const copy = apr_arena_alloc(&model->arena, z.n_bytes);
    memcpy(copy, z.bytes, z.n_bytes);
    return apr_torch_parse(model, copy, z.n_bytes, "test", err);
}

static void assert_refused(const char *pickle, size_t n_pickle, apr_status wanted, const char *words)
{
    apr_error err;
    apr_model model;
    const apr_status status = parse(pickle, n_pickle, NULL, NULL, &model, &err);

    if (strstr(err.text, words) == NULL) fail_msg("'%s' does not say '%s'", err.text, words);
    assert_int_equal(status, wanted);
    apr_model_close(&model);
}

/* {"w": a tensor of the storage with this type, key, number of elements; offset, dims, strides} */
#define STORAGE(type, key, n) "(U\7storagectorch\n" type "\nU\1" key "U\3cpu" n "tQ"
#define TENSOR(storage, rest) "\x80\2}U\1wctorch._utils\n_rebuild_tensor_v2\n(" storage rest "\x89}tRs."
#define TEXT(literal)         literal, sizeof literal - 1

/* --- what torch wrote --- */

/* The three layouts hold the same. */
static void files_of_torch_are_read(void **state)
{
    static const char *const files[] = {ODD "new.pt", ODD "protocol4.pt", ODD "old.pt"};

    (void)state;
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        apr_model m;
        apr_map map;
        read_file_ok(&m, &map, files[f]);
        assert_int_equal(m.n_tensors, 12);
        for (int i = 0; i < 12; i++) assert_true(bf16_at(find(&m, "plain", APR_BF16, 2), i) == (float)i);
        for (int i = 0; i < 8; i++) assert_true(bf16_at(find(&m, "part", APR_BF16, 2), i) == (float)(i + 4));
        for (int i = 0; i < 3; i++) assert_true(bf16_at(find(&m, "one_column", APR_BF16, 2), i) == (float)(4 * i + 1));
        const apr_tensor *const parameter = find(&m, "parameter", APR_F32, 2);
        float value;
        memcpy(&value, parameter->data + 4 * 11, sizeof value);
        assert_true(value == 11);
        assert_int_equal(find(&m, "fp8", APR_F8_E4M3, 2)->data[1], 0x38); /* 1 */
        assert_int_equal(apr_load_le16(find(&m, "u16", APR_U16, 1)->data + 4), 2);
        assert_int_equal(find(&m, "truth", APR_BOOL, 1)->data[0], 1);
        assert_int_equal(apr_load_le16(find(&m, "scalar", APR_F16, 0)->data), 0x3e00); /* 1.5 */
        assert_int_equal(find(&m, "empty", APR_F32, 2)->n_bytes, 0);
        assert_int_equal(find(&m, "double", APR_F64, 1)->n_bytes, 8);
        apr_model_close(&m);
        apr_map_close(&map);
    }
}

static void transposed_tensors_become_a_step(void **state)
{
    apr_model m;
    apr_map map;
    uint8_t bytes[96];

    (void)state;
    read_file_ok(&m, &map, ODD "new.pt");
    const apr_tensor *const turned = find(&m, "turned", APR_BF16, 2), *const stack = find(&m, "stack_turned", APR_I32, 3);
    assert_non_null(turned->composed);
    assert_int_equal(turned->dims[0], 4);
    assert_int_equal(turned->dims[1], 3);
    for (int r = 0; r < 4; r++)
        for (int c = 0; c < 3; c++) assert_true(bf16_at(turned, 3 * r + c) == (float)(4 * c + r));
    assert_int_equal(stack->dims[1], 4);
    apr_read_bytes(stack, 0, 24, bytes);
    for (uint32_t i = 0; i < 2; i++)
        for (uint32_t r = 0; r < 4; r++)
            for (uint32_t c = 0; c < 3; c++) assert_int_equal(apr_load_le32(bytes + 4 * (12 * i + 3 * r + c)), 12 * i + 4 * c + r);
    apr_model_close(&m);
    apr_map_close(&map);
}

static void what_was_saved_next_to_the_weights_is_named(void **state)
{
    apr_model m;
    apr_map map;

    (void)state;
    read_file_ok(&m, &map, ODD "new.pt");
    assert_string_equal(m.not_copied, "epoch, lr of new.pt");
    apr_model_close(&m);
    apr_map_close(&map);
}

static void two_names_may_share_a_storage(void **state)
{
    apr_model m;
    apr_error err;

    (void)state;
    assert_int_equal(parse(TEXT("\x80\2}(U\1actorch._utils\n_rebuild_tensor_v2\n(" STORAGE("FloatStorage", "0",
                                                                                           "K\2") "K\0K\2\x85K\1\x85\x89}tRq\0U\1bh\0u."),
                           NULL, NULL, &m, &err),
                     APR_OK);
    assert_int_equal(m.n_tensors, 2);
    assert_ptr_equal(m.tensors[0].data, m.tensors[1].data);
    apr_model_close(&m);
}

/* --- what torch would not write --- */

static void strides_that_no_step_undoes_are_refused_by_name(void **state)
{
    apr_model m = {.path = "test"};
    apr_error err = {0};
    apr_map map;

    (void)state;
    assert_int_equal(apr_map_open(&map, ODD "expanded.pt", &err), APR_OK);
    assert_int_equal(apr_torch_parse(&m, map.data, map.n_bytes, "test", &err), APR_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "tensor 'again' [5, 4] has strides [0, 1]"));
    apr_model_close(&m);
    apr_map_close(&map);
    assert_refused(TEXT(TENSOR(STORAGE("FloatStorage", "0", "K\2"), "K\0K\1\x85K\2\x85")), APR_OK, ""); /* one element: any stride */
    assert_refused(TEXT(TENSOR(STORAGE("FloatStorage", "0", "K\2"), "K\0K\2\x85K\0\x85")), APR_E_UNSUPPORTED, "has strides [0]");
}

static void a_whole_module_is_refused(void **state)
{
    apr_model m = {.path = "test"};
    apr_error err = {0};
    apr_map map;

    (void)state;
    assert_int_equal(apr_map_open(&map, ODD "module.pt", &err), APR_OK);
    assert_int_equal(apr_torch_parse(&m, map.data, map.n_bytes, "test", &err), APR_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "import torch.nn.modules.linear.Linear"));
    apr_model_close(&m);
    apr_map_close(&map);
}

static void tensors_stay_inside_their_storages(void **state)
{
    (void)state;
    assert_refused(TEXT(TENSOR(STORAGE("FloatStorage", "0", "K\2"), "K\0K\2\x85K\1\x85")), APR_OK, "");
    assert_refused(TEXT(TENSOR(STORAGE("FloatStorage", "0", "K\2"), "K\1K\2\x85K\1\x85")), APR_E_DAMAGED,
                   "extends past the end of its storage");
    assert_refused(TEXT(TENSOR(STORAGE("FloatStorage", "0", "K\2"), "J\xff\xff\xff\xffK\2\x85K\1\x85")), APR_E_DAMAGED,
                   "described in a way that torch.save");
    assert_refused(TEXT(TENSOR(STORAGE("FloatStorage", "0", "K\2"), "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7fK\2\x85K\1\x85")),
                   APR_E_DAMAGED, "extends past the end");
    assert_refused(TEXT(TENSOR(STORAGE("FloatStorage", "0", "K\2"), "K\0J\xfe\xff\xff\xff\x85K\1\x85")), APR_E_DAMAGED, "an invalid size");
    assert_refused(TEXT(TENSOR(STORAGE("FloatStorage", "0", "K\2"),
                               "K\0\x8a\x08\0\0\0\0\0\0\0\x40\x8a\x08\0\0\0\0\0\0\0\x40\x86\x8a\x08\0\0\0\0\0\0\0\x40K\1\x86")),
                   APR_E_UNSUPPORTED, "has strides [4611686018427387904, 1]");
    assert_refused(TEXT(TENSOR(STORAGE("FloatStorage", "0", "K\2"), "K\0K\2\x85K\1K\1\x86")), APR_E_DAMAGED,
                   "a different number of strides and sizes");
    assert_refused(TEXT(TENSOR(STORAGE("FloatStorage", "0", "K\2"), "K\0(K\1K\1K\1K\1K\1K\1K\1K\1K\1tK\1\x85")), APR_E_UNSUPPORTED,
                   "more than 8 dimensions");
}

static void storages_are_as_large_as_they_say(void **state)
{
    (void)state;
    assert_refused(TEXT(TENSOR(STORAGE("FloatStorage", "0", "K\3"), "K\0K\2\x85K\1\x85")), APR_E_DAMAGED,
                   "the storage '0' in it should have 3 elements of 4 bytes, but has 8 bytes");
    assert_refused(TEXT(TENSOR(STORAGE("FloatStorage", "7", "K\2"), "K\0K\2\x85K\1\x85")), APR_E_DAMAGED, "but has 0 bytes");
    assert_refused(TEXT(TENSOR(STORAGE("FloatStorage", "0", "J\xff\xff\xff\xff"), "K\0K\2\x85K\1\x85")), APR_E_DAMAGED, "has -1 elements");
    assert_refused(TEXT(TENSOR(STORAGE("FloatStorage", "0", "\x8a\x08\0\0\0\0\0\0\0\x40"), "K\0K\2\x85K\1\x85")), APR_E_DAMAGED,
                   "elements");
    assert_refused(TEXT(TENSOR("U\1xQ", "K\0K\2\x85K\1\x85")), APR_E_DAMAGED, "describes a storage in a way that torch.save does not");
    assert_refused(TEXT(TENSOR("(U\7storagectorch\nFloatStorage\nK\0U\3cpuK\2tQ", "K\0K\2\x85K\1\x85")), APR_E_DAMAGED,
                   "describes a storage");
    assert_refused(TEXT(TENSOR(STORAGE("UntypedStorage", "0", "K\x08"), "K\0K\2\x85K\1\x85")), APR_E_DAMAGED, "has no type");
    assert_refused(TEXT(TENSOR("(U\7storagectorch\nFloatStorage\nU\1"
                               "0U\3cpuK\2U\1xtQ",
                               "K\0K\2\x85K\1\x85")),
                   APR_E_UNSUPPORTED, "is a part of another one");
}

static void names_are_text(void **state)
{
    (void)state;
    assert_refused(TEXT("\x80\2}K\1ctorch._utils\n_rebuild_tensor_v2\n(" STORAGE("FloatStorage", "0", "K\2") "K\0K\2\x85K\1\x85\x89}tRs."),
                   APR_E_DAMAGED, "no name, or a name that is not a text");
    assert_refused(
        TEXT("\x80\2}U\2a\0ctorch._utils\n_rebuild_tensor_v2\n(" STORAGE("FloatStorage", "0", "K\2") "K\0K\2\x85K\1\x85\x89}tRs."),
        APR_E_DAMAGED, "no name, or a name that is not a text");
}

static void a_file_without_weights_is_named(void **state)
{
    (void)state;
    assert_refused(TEXT("\x80\2}U\1aK\1s."), APR_E_UNSUPPORTED, "no dict of names and tensors");
    assert_refused(TEXT("\x80\2]."), APR_E_UNSUPPORTED, "no dict of names and tensors");
    assert_refused(TEXT("\x80\2}q\0U\5modelh\0s."), APR_E_UNSUPPORTED, "no dict of names and tensors"); /* a circle */
    assert_refused(TEXT("\x80\2cos\nsystem\nU\2ls\x85R."), APR_E_UNSUPPORTED, "import os.system");
    assert_refused(TEXT("\x80\2ctorch._utils\n_rebuild_sparse_tensor\n)R."), APR_E_UNSUPPORTED,
                   "import torch._utils._rebuild_sparse_tensor");
}

static void conjugated_views_are_refused(void **state)
{
    (void)state;
    assert_refused(TEXT("\x80\2}U\1wctorch._utils\n_rebuild_tensor_v2\n(" STORAGE("FloatStorage", "0",
                                                                                  "K\2") "K\0K\2\x85K\1\x85\x89}}U\3neg\x88stRs."),
                   APR_E_UNSUPPORTED, "tensor 'w' is a conjugated or negated view");
}

static void other_archives_are_named(void **state)
{
    static const char good[] = TENSOR(STORAGE("FloatStorage", "0", "K\2"), "K\0K\2\x85K\1\x85");
    apr_error err;
    apr_model m;

    (void)state;
    assert_int_equal(parse(TEXT(good), "x/byteorder", "little", &m, &err), APR_OK);
    apr_model_close(&m);
    assert_int_equal(parse(TEXT(good), "x/byteorder", "big", &m, &err), APR_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "the other byte order"));
    apr_model_close(&m);
    assert_int_equal(parse(TEXT(good), "x/constants.pkl", "", &m, &err), APR_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "TorchScript"));
    apr_model_close(&m);
    assert_int_equal(parse(TEXT(good), "y/data.pkl", "", &m, &err), APR_E_DAMAGED);
    assert_non_null(strstr(err.text, "2 files called data.pkl"));
    apr_model_close(&m);
}

static void a_pickle_of_another_kind_is_refused(void **state)
{
    apr_model m = {.path = "test"};
    apr_error err = {0};

    (void)state;
    assert_int_equal(apr_torch_parse(&m, (const uint8_t *)"\x80\4N.", 4, "test", &err), APR_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "not one of torch.save"));
    apr_model_close(&m);
}

/* The old layout, cut everywhere: every byte of it is needed. */
static void an_old_file_cut_anywhere_is_damaged(void **state)
{
    apr_error err = {0};
    apr_map map;

    (void)state;
    assert_int_equal(apr_map_open(&map, ODD "old.pt", &err), APR_OK);
    for (size_t n = 15; n < map.n_bytes; n++) {
        apr_model m = {.path = "test"};
        uint8_t *const copy = malloc(n);
        memcpy(copy, map.data, n);
        err = (apr_error){0};
        const apr_status status = apr_torch_parse(&m, copy, n, "test", &err);
        if (status != APR_E_DAMAGED) fail_msg("cut to %zu bytes: %d %s", n, (int)status, err.text);
        apr_model_close(&m);
        free(copy);
    }
    apr_map_close(&map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_of_torch_are_read),
        cmocka_unit_test(transposed_tensors_become_a_step),
        cmocka_unit_test(what_was_saved_next_to_the_weights_is_named),
        cmocka_unit_test(two_names_may_share_a_storage),
        cmocka_unit_test(strides_that_no_step_undoes_are_refused_by_name),
        cmocka_unit_test(a_whole_module_is_refused),
        cmocka_unit_test(tensors_stay_inside_their_storages),
        cmocka_unit_test(storages_are_as_large_as_they_say),
        cmocka_unit_test(names_are_text),
        cmocka_unit_test(a_file_without_weights_is_named),
        cmocka_unit_test(conjugated_views_are_refused),
        cmocka_unit_test(other_archives_are_named),
        cmocka_unit_test(a_pickle_of_another_kind_is_refused),
        cmocka_unit_test(an_old_file_cut_anywhere_is_damaged),
    };
    return cmocka_run_group_tests_name("torch", tests, NULL, NULL);
}
