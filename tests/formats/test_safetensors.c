/* formats/hf/safetensors.h: checkpoints come in whole, and hostile files end in a sentence. */
#define _GNU_SOURCE /* nftw, mkdtemp */
#include "formats/hf/safetensors.h"
#include "formats/packed/fp8_scales.h"
#include "tests/support/work_folder.h"

#define BUNDLED "tests/data/tiny-qwen2"

/* --- helpers --- */

/* Length, header, n_data bytes of 0, 1, 2, ...: malloc'ed to the exact size. */
static uint8_t *make_file(const char *header, size_t n_data, size_t *n_bytes)
{
    const size_t n_header = strlen(header);
    uint8_t *const file = malloc(8 + n_header + n_data);
    assert_non_null(file);
    apr_store_le64(file, n_header);
    memcpy(file + 8, header, n_header);
    for (size_t i = 0; i < n_data; i++) file[8 + n_header + i] = (uint8_t)i;
    *n_bytes = 8 + n_header + n_data;
    return file;
}

static apr_status parse_text(const char *header, size_t n_data, apr_model *model, apr_error *err)
{
    size_t n_bytes;
    uint8_t *const file = make_file(header, n_data, &n_bytes);
    *model = (apr_model){.path = "test"};
    const apr_status status = apr_safetensors_parse(model, file, n_bytes, "test", err);
    free(file);
    return status;
}

static void write_safetensors(const char *path, const char *header, size_t n_data)
{
    size_t n_bytes;
    uint8_t *const file = make_file(header, n_data, &n_bytes);
    write_file(path, file, n_bytes);
    free(file);
}

static void open_ok(apr_model *model, const char *path)
{
    apr_error err = {0};
    if (apr_safetensors_open(model, path, &err) != APR_OK) fail_msg("%s", err.text);
}

/* --- reading --- */

static void the_bundled_checkpoint_is_read_whole(void **state)
{
    static const char *const attached[] = {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
                                           "chat_template.jinja"};
    apr_model model;

    (void)state;
    open_ok(&model, BUNDLED);
    assert_int_equal(model.format, APR_FORMAT_SAFETENSORS);
    assert_int_equal(model.origin.format, APR_FORMAT_SAFETENSORS);
    assert_int_equal(model.naming, APR_NAMING_HF);
    assert_int_equal(model.n_tensors, 26);
    assert_string_equal(model.tensors[0].name, "model.embed_tokens.weight");
    const uint8_t *at = model.tensors[0].data;
    for (size_t i = 0; i < model.n_tensors; i++) {
        assert_ptr_equal(model.tensors[i].data, at);
        at += model.tensors[i].n_bytes;
        assert_ptr_equal(apr_model_find(&model, model.tensors[i].name), &model.tensors[i]);
    }
    const apr_tensor *const down = apr_model_find(&model, "model.layers.1.mlp.down_proj.weight");
    assert_non_null(down);
    assert_int_equal(down->dtype, APR_BF16);
    assert_int_equal(down->rank, 2);
    assert_int_equal(down->dims[0], 256);
    assert_int_equal(down->dims[1], 512);
    assert_int_equal(model.kv.n_items, 1);
    assert_true(apr_str_is(model.kv.items[0].key, "format"));
    assert_true(apr_str_is(model.kv.items[0].value.string, "pt"));
    assert_int_equal(model.n_attachments, sizeof attached / sizeof *attached);
    for (size_t i = 0; i < model.n_attachments; i++) assert_non_null(apr_model_attachment(&model, attached[i]));
    assert_string_equal(model.hparams.architecture, "qwen2");
    assert_true(model.hparams.tie_word_embeddings);
    assert_int_equal(model.vocab.n_tokens, 2048);
    apr_model_close(&model);
}

static void a_single_file_brings_the_files_next_to_it(void **state)
{
    apr_model model;

    (void)state;
    open_ok(&model, BUNDLED "/model.safetensors");
    assert_int_equal(model.n_tensors, 26);
    assert_int_equal(model.n_attachments, 5);
    apr_model_close(&model);
    open_ok(&model, "tests/data/ggml-types.safetensors");
    assert_true(model.n_tensors > 0);
    assert_int_equal(model.n_attachments, 0);
    assert_string_equal(model.hparams.architecture, "");
    assert_int_equal(model.vocab.kind, APR_VOCAB_NONE);
    apr_model_close(&model);
}

static void every_dtype_of_the_format_is_read(void **state)
{
    static const struct {
        const char *name;
        apr_dtype dtype;
        int n_bytes; /* of 4 elements */
    } dtypes[] = {
        {"F64", APR_F64, 32},     {"F32", APR_F32, 16}, {"F16", APR_F16, 8},         {"BF16", APR_BF16, 8},
        {"I64", APR_I64, 32},     {"I32", APR_I32, 16}, {"I16", APR_I16, 8},         {"I8", APR_I8, 4},
        {"U8", APR_U8, 4},        {"U16", APR_U16, 8},  {"U32", APR_U32, 16},        {"U64", APR_U64, 32},
        {"BOOL", APR_BOOL, 4},    {"C64", APR_C64, 32}, {"F8_E4M3", APR_F8_E4M3, 4}, {"F8_E5M2", APR_F8_E5M2, 4},
        {"F8_E8M0", APR_E8M0, 4}, {"F4", APR_F4, 2},    {"F6_E2M3", APR_F6_E2M3, 3}, {"F6_E3M2", APR_F6_E3M2, 3},
    };

    (void)state;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        char header[160];
        apr_model model;
        snprintf(header, sizeof header, "{\"t\":{\"dtype\":\"%s\",\"shape\":[4],\"data_offsets\":[0,%d]}}", dtypes[i].name,
                 dtypes[i].n_bytes);
        assert_int_equal(parse_text(header, (size_t)dtypes[i].n_bytes, &model, NULL), APR_OK);
        assert_int_equal(model.n_tensors, 1);
        assert_int_equal(model.tensors[0].dtype, dtypes[i].dtype);
        apr_model_close(&model);
    }
}

static void scalars_and_empty_tensors_are_tensors(void **state)
{
    static const char header[] = "{\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]},\"none\":{\"dtype\":\"F32\",\"shape\":["
                                 "0,5],\"data_offsets\":[4,4]},"
                                 "\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},\"end\":{\"dtype\":\"I8\",\"shape\":[3,0],"
                                 "\"data_offsets\":[12,12]}}   ";
    static const char *const names[] = {"a", "none", "b", "end"};
    apr_model model;

    (void)state;
    assert_int_equal(parse_text(header, 12, &model, NULL), APR_OK);
    assert_int_equal(model.n_tensors, 4);
    for (size_t i = 0; i < 4; i++) assert_string_equal(model.tensors[i].name, names[i]);
    assert_int_equal(model.tensors[0].rank, 0);
    assert_int_equal(apr_tensor_elems(&model.tensors[0]), 1);
    assert_int_equal(model.tensors[1].n_bytes, 0);
    assert_null(model.tensors[1].data);
    apr_model_close(&model);
}

#define T(name, dtype, shape, offsets) "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void a_false_header_is_refused_with_a_sentence(void **state)
{
    static const struct {
        const char *header;
        size_t n_data;
        apr_status status;
        const char *part_of_sentence;
    } cases[] = {
        {"", 0, APR_E_DAMAGED, "no value"},
        {"[]", 0, APR_E_DAMAGED, "not a JSON object"},
        {"{\"t\":1}", 0, APR_E_DAMAGED, "no data_offsets"},
        {"{\"t\":{}}", 0, APR_E_DAMAGED, "no data_offsets"},
        {"{\"t\":{\"data_offsets\":[0,0],\"shape\":[0]}}", 0, APR_E_DAMAGED, "no dtype"},
        {"{\"t\":{\"data_offsets\":[0,0],\"dtype\":\"F32\"}}", 0, APR_E_DAMAGED, "no shape"},
        {"{" T("t", "F33", "[1]", "[0,4]") "}", 4, APR_E_UNSUPPORTED, "F33"},
        {"{" T("t", "f32", "[1]", "[0,4]") "}", 4, APR_E_UNSUPPORTED, "f32"},
        {"{" T("t", "F32", "[1]", "[0,4,8]") "}", 4, APR_E_DAMAGED, "no data_offsets"},
        {"{" T("t", "F32", "[1]", "[0]") "}", 4, APR_E_DAMAGED, "no data_offsets"},
        {"{" T("t", "F32", "[1]", "[0.5,4]") "}", 4, APR_E_DAMAGED, "no data_offsets"},
        {"{" T("t", "F32", "[1]", "[-4,0]") "}", 4, APR_E_DAMAGED, "is at bytes"},
        {"{" T("t", "F32", "[1]", "[4,0]") "}", 4, APR_E_DAMAGED, "is at bytes"},
        {"{" T("t", "F32", "[1]", "[0,5]") "}", 4, APR_E_DAMAGED, "of 4 bytes of data: 1 bytes are missing"},
        {"{" T("t", "F32", "[1]", "[0,9007199254740992]") "}", 4, APR_E_DAMAGED, "bytes are missing"},
        {"{" T("t", "F32", "[1]", "[0,1e300]") "}", 4, APR_E_DAMAGED, "no data_offsets"},
        {"{" T("t", "F32", "[2]", "[0,4]") "}", 4, APR_E_DAMAGED, "needs 8 bytes"},
        {"{" T("t", "F32", "[-1]", "[0,4]") "}", 4, APR_E_DAMAGED, "not a valid size"},
        {"{" T("t", "F32", "[1.5]", "[0,4]") "}", 4, APR_E_DAMAGED, "not a valid size"},
        {"{" T("t", "F32", "[\"1\"]", "[0,4]") "}", 4, APR_E_DAMAGED, "not a valid size"},
        {"{" T("t", "F32", "[4294967296,4294967296,4294967296]", "[0,4]") "}", 4, APR_E_DAMAGED, "impossible shape"},
        {"{" T("t", "F64", "[9007199254740992,512]", "[0,0]") "}", 0, APR_E_DAMAGED, "t"},
        {"{" T("t", "F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]") "}", 4, APR_E_UNSUPPORTED, "dimensions"},
        {"{" T("t", "F4", "[3]", "[0,2]") "}", 2, APR_E_DAMAGED, "blocks"},
        {"{" T("a", "F32", "[1]", "[0,4]") "," T("b", "F32", "[1]", "[2,6]") "}", 6, APR_E_DAMAGED, "begins at byte 2"},
        {"{" T("a", "F32", "[1]", "[0,4]") "," T("b", "F32", "[1]", "[8,12]") "}", 12, APR_E_DAMAGED, "begins at byte 8"},
        {"{" T("a", "F32", "[1]", "[0,4]") "," T("b", "F32", "[1]", "[0,4]") "}", 4, APR_E_DAMAGED, "begins at byte 0"},
        {"{" T("a", "F32", "[1]", "[4,8]") "}", 8, APR_E_DAMAGED, "begins at byte 4"},
        {"{" T("a", "F32", "[1]", "[0,4]") "," T("e", "F32", "[0]", "[2,2]") "}", 4, APR_E_DAMAGED, "begins at byte 2"},
        {"{" T("a", "F32", "[1]", "[0,4]") "}", 5, APR_E_DAMAGED, "end at byte 4"},
        {"{}", 1, APR_E_DAMAGED, "end at byte 0"},
        {"{" T("a", "F32", "[1]", "[0,4]") "," T("a", "F32", "[1]", "[4,8]") "}", 8, APR_E_DAMAGED, "twice"},
        {"{\"__metadata__\":[]}", 0, APR_E_DAMAGED, "__metadata__"},
        {"{\"__metadata__\":{\"a\":1}}", 0, APR_E_DAMAGED, "'a' is not a string"},
        {"{\"t\\u0000\":{}}", 0, APR_E_DAMAGED, "u0000"},
        {"{}{}", 0, APR_E_DAMAGED, "after its end"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_error err = {0};
        apr_model model;
        const apr_status status = parse_text(cases[i].header, cases[i].n_data, &model, &err);
        if (status != cases[i].status || strstr(err.text, cases[i].part_of_sentence) == NULL)
            fail_msg("%s gave %d: %s", cases[i].header, status, err.text);
        apr_model_close(&model);
    }
}

static const char small_header[] =
    "{\"__metadata__\":{\"format\":\"pt\"}," T("a", "F32", "[2,2]", "[0,16]") "," T("b.weight", "BF16", "[3]", "[16,22]") "}";

static void a_file_cut_anywhere_is_refused(void **state)
{
    size_t n_bytes;
    uint8_t *const file = make_file(small_header, 22, &n_bytes);

    (void)state;
    for (size_t n = 0; n <= n_bytes; n++) {
        apr_model model = {.path = "test"};
        uint8_t *const cut = malloc(n > 0 ? n : 1);
        assert_non_null(cut);
        memcpy(cut, file, n);
        assert_int_equal(apr_safetensors_parse(&model, cut, n, "test", NULL), n < n_bytes ? APR_E_DAMAGED : APR_OK);
        apr_model_close(&model);
        free(cut);
    }
    free(file);
}

static void flipped_bits_never_lead_out_of_the_file(void **state)
{
    size_t n_bytes;
    uint8_t *const file = make_file(small_header, 22, &n_bytes);

    (void)state;
    for (size_t at = 0; at < 8 + strlen(small_header); at++) {
        for (int bit = 0; bit < 8; bit++) {
            apr_model model = {.path = "test"};
            file[at] ^= (uint8_t)(1 << bit);
            if (apr_safetensors_parse(&model, file, n_bytes, "test", NULL) == APR_OK)
                for (size_t i = 0; i < model.n_tensors; i++) {
                    const apr_tensor *const t = &model.tensors[i];
                    assert_true(t->n_bytes == 0 || (t->data >= file && t->n_bytes <= (size_t)(file + n_bytes - t->data)));
                }
            apr_model_close(&model);
            file[at] ^= (uint8_t)(1 << bit);
        }
    }
    free(file);
}

static void a_huge_header_length_allocates_nothing(void **state)
{
    static const uint64_t lengths[] = {UINT64_MAX, UINT64_MAX - 7, 1ull << 63, 100000001, 4096};
    uint8_t file[64] = {0};

    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        apr_model model = {.path = "test"};
        apr_store_le64(file, lengths[i]);
        assert_int_equal(apr_safetensors_parse(&model, file, sizeof file, "test", NULL), APR_E_DAMAGED);
        assert_int_equal(model.arena.total_bytes, 0);
        apr_model_close(&model);
    }
}

/* --- shards --- */

static void make_shards(const char *index)
{
    mkdir(in_work("sharded"), 0777);
    write_safetensors(in_work("sharded/model-1.safetensors"), "{" T("a", "I8", "[4]", "[0,4]") "}", 4);
    write_safetensors(in_work("sharded/model-2.safetensors"), "{" T("b", "I8", "[2]", "[0,2]") "," T("c", "I8", "[1]", "[2,3]") "}", 3);
    write_file(in_work("sharded/model.safetensors.index.json"), index, strlen(index));
}

static void shards_are_one_model(void **state)
{
    apr_model model;

    (void)state;
    make_shards("{\"metadata\":{\"total_size\":7},\"weight_map\":{\"b\":\"model-2.safetensors\",\"a\":\"model-1.safetensors\",\"c\":"
                "\"model-2.safetensors\"}}");
    open_ok(&model, in_work("sharded/"));
    assert_int_equal(model.n_tensors, 3);
    assert_string_equal(model.tensors[0].name, "a");
    assert_string_equal(model.tensors[2].name, "c");
    assert_int_equal(model.tensors[2].data[0], 2);
    assert_int_equal(model.n_attachments, 0); /* the index is made anew when it is written */
    apr_model_close(&model);
}

static void a_false_index_is_refused_with_a_sentence(void **state)
{
    static const struct {
        const char *index;
        apr_status status;
        const char *part_of_sentence;
    } cases[] = {
        {"{}", APR_E_DAMAGED, "weight_map"},
        {"{\"weight_map\":[]}", APR_E_DAMAGED, "weight_map"},
        {"{\"weight_map\":{\"a\":1}}", APR_E_DAMAGED, "not the name of a file"},
        {"{\"weight_map\":{\"a\":\"\"}}", APR_E_DAMAGED, "not the name of a file"},
        {"{\"weight_map\":{\"a\":\"../model-1.safetensors\"}}", APR_E_DAMAGED, "not the name of a file"},
        {"{\"weight_map\":{\"a\":\"..\"}}", APR_E_DAMAGED, "not the name of a file"},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", APR_E_DAMAGED, "not the name of a file"},
        {"{\"weight_map\":{\"a\":\"x/model-1.safetensors\"}}", APR_E_DAMAGED, "not the name of a file"},
        {"{\"weight_map\":{\"a\":\"model-1.safetensors\",\"d\":\"model-3.safetensors\"}}", APR_E_IO,
         "model-3.safetensors: the file is missing"},
        {"{\"weight_map\":{\"a\":\"model-2.safetensors\",\"b\":\"model-1.safetensors\"}}", APR_E_DAMAGED,
         "'a' should be in model-2.safetensors"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_error err = {0};
        apr_model model;
        make_shards(cases[i].index);
        const apr_status status = apr_safetensors_open(&model, in_work("sharded"), &err);
        if (status != cases[i].status || strstr(err.text, cases[i].part_of_sentence) == NULL)
            fail_msg("%s gave %d: %s", cases[i].index, status, err.text);
    }
}

/* An overlay is written into a shard of its own; the old shard keeps its copy. */
static void the_index_says_which_copy_counts(void **state)
{
    static const char two_copies[] = "{" T("b", "I8", "[2]", "[0,2]") "," T("a", "I8", "[1]", "[2,3]") "}";
    apr_error err = {0};
    apr_model model;

    (void)state;
    make_shards("{\"weight_map\":{\"a\":\"model-1.safetensors\",\"b\":\"model-2.safetensors\"}}"); /* a: 4 elements there, 1 in the other */
    write_safetensors(in_work("sharded/model-2.safetensors"), two_copies, 3);
    if (apr_safetensors_open(&model, in_work("sharded"), &err) != APR_OK) fail_msg("%s", err.text);
    assert_int_equal(model.n_tensors, 2);
    assert_int_equal(apr_model_find(&model, "a")->dims[0], 4);
    apr_model_close(&model);
    make_shards("{\"weight_map\":{\"a\":\"model-2.safetensors\",\"b\":\"model-2.safetensors\",\"c\":\"model-1.safetensors\"}}");
    write_safetensors(in_work("sharded/model-1.safetensors"), "{" T("a", "I8", "[2]", "[0,2]") "," T("c", "I8", "[1]", "[2,3]") "}", 3);
    write_safetensors(in_work("sharded/model-2.safetensors"), two_copies, 3);
    if (apr_safetensors_open(&model, in_work("sharded"), &err) != APR_OK) fail_msg("%s", err.text);
    assert_int_equal(model.n_tensors, 3);
    assert_int_equal(apr_model_find(&model, "a")->dims[0], 1);
    apr_model_close(&model);
    /* copies that the index says nothing of are two tensors of one name */
    make_shards("{\"weight_map\":{\"c\":\"model-1.safetensors\",\"b\":\"model-2.safetensors\"}}");
    write_safetensors(in_work("sharded/model-1.safetensors"), "{" T("a", "I8", "[2]", "[0,2]") "," T("c", "I8", "[1]", "[2,3]") "}", 3);
    write_safetensors(in_work("sharded/model-2.safetensors"), two_copies, 3);
    assert_int_equal(apr_safetensors_open(&model, in_work("sharded"), &err), APR_E_DAMAGED);
    assert_non_null(strstr(err.text, "two tensors are called 'a'"));
}

static void a_name_that_no_shard_has_is_a_note(void **state)
{
    apr_error err = {0};
    apr_model model;

    (void)state;
    make_shards("{\"weight_map\":{\"a\":\"model-1.safetensors\",\"d\":\"model-2.safetensors\"}}");
    if (apr_safetensors_open(&model, in_work("sharded"), &err) != APR_OK) fail_msg("%s", err.text);
    assert_non_null(strstr(model.not_copied, "1 name in the index that no file has (d)"));
    apr_model_close(&model);
}

static void shards_without_an_index_are_read_by_their_numbers(void **state)
{
    apr_error err = {0};
    apr_model model;

    (void)state;
    mkdir(in_work("numbered"), 0777);
    write_safetensors(in_work("numbered/model-00001-of-00002.safetensors"), "{" T("a", "I8", "[2]", "[0,2]") "}", 2);
    assert_int_equal(apr_safetensors_open(&model, in_work("numbered"), &err), APR_E_IO);
    assert_non_null(strstr(err.text, "model-00002-of-00002.safetensors: the file is missing"));
    write_safetensors(in_work("numbered/model-00002-of-00002.safetensors"), "{" T("b", "I8", "[3]", "[0,3]") "}", 3);
    if (apr_safetensors_open(&model, in_work("numbered"), &err) != APR_OK) fail_msg("%s", err.text);
    assert_int_equal(model.n_tensors, 2);
    assert_true(apr_model_find(&model, "a") != NULL && apr_model_find(&model, "b") != NULL && model.not_copied == NULL);
    apr_model_close(&model);
    err = (apr_error){0};
    write_safetensors(in_work("numbered/model-00001-of-00003.safetensors"), "{" T("a", "I8", "[2]", "[0,2]") "}", 2);
    assert_int_equal(apr_safetensors_open(&model, in_work("numbered"), &err), APR_E_USAGE);
    assert_non_null(strstr(err.text, "two sets of shards"));
}

static void an_index_next_to_the_one_file_is_named(void **state)
{
    apr_error err = {0};
    apr_model model;

    (void)state;
    make_shards("{\"weight_map\":{\"a\":\"model-1.safetensors\"}}");
    write_safetensors(in_work("sharded/model.safetensors"), "{" T("a", "I8", "[3]", "[0,3]") "}", 3);
    if (apr_safetensors_open(&model, in_work("sharded"), &err) != APR_OK) fail_msg("%s", err.text);
    assert_int_equal(model.tensors[0].dims[0], 3);
    assert_string_equal(model.other_weights, "model.safetensors.index.json");
    apr_model_close(&model);
    make_shards("{\"weight_map\":{\"a\":\"model.safetensors\"}}"); /* the same, said twice */
    if (apr_safetensors_open(&model, in_work("sharded"), &err) != APR_OK) fail_msg("%s", err.text);
    assert_null(model.other_weights);
    apr_model_close(&model);
    unlink(in_work("sharded/model.safetensors"));
}

static void a_folder_without_weights_says_so(void **state)
{
    apr_error err = {0};
    apr_model model;

    (void)state;
    mkdir(in_work("empty"), 0777);
    assert_int_equal(apr_safetensors_open(&model, in_work("empty"), &err), APR_E_IO);
    assert_non_null(strstr(err.text, "there are no weights in this folder"));
}

/* --- FP8 scales --- */

static void fp8_weights_find_what_one_scale_covers(void **state)
{
    static const char block_config[] = "{\"quantization_config\":{\"quant_method\":\"fp8\",\"weight_block_size\":[2,4]}}";
    static const char group_config[] = "{\"quantization_config\":{\"config_groups\":{\"g\":{\"weights\":{\"block_structure\":[2,4]}}}}}";
    static const struct {
        const char *config, *weight_shape, *scale_name, *scale_shape, *scale_dtype;
        apr_status status;
        int rows, columns; /* of one scale */
    } cases[] = {
        {block_config, "[5,8]", "w.weight_scale_inv", "[3,2]", "F32", APR_OK, 2, 4},
        {block_config, "[5,8]", "w.weight_scale_inv", "[3,2]", "BF16", APR_OK, 2, 4},
        {block_config, "[5,8]", "w.weight_scale_inv", "[3,2]", "F8_E8M0", APR_OK, 2, 4},
        {group_config, "[5,8]", "w.weight_scale", "[3,2]", "F32", APR_OK, 2, 4},
        {"{}", "[5,8]", "w.weight_scale", "[5,1]", "F32", APR_OK, 1, 8},
        {NULL, "[5,8]", "w.weight_scale", "[5]", "F32", APR_OK, 1, 8},
        {"{}", "[5,8]", "w.weight_scale", "[]", "F32", APR_OK, 5, 8},
        {"{}", "[5,8]", "w.weight_scale", "[1]", "F32", APR_OK, 5, 8},
        {"{}", "[3,5,8]", "w.weight_scale", "[3]", "F32", APR_OK, 5, 8},
        {"{}", "[3,5,8]", "w.weight_scale", "[3,5,1]", "F32", APR_OK, 1, 8},
        {block_config, "[3,4,8]", "w.weight_scale_inv", "[3,2,2]", "F32", APR_OK, 2, 4},
        {block_config, "[3,5,8]", "w.weight_scale_inv", "[3,3,2]", "F32", APR_OK, 2, 4}, /* each matrix begins with a block */
        {block_config, "[5,8]", "w.weight_scale", "[3,1,2,1]", "F32", APR_OK, 2, 4},
        {"{}", "[5,8]", "w.qscale_weight", "[]", "F32", APR_OK, 5, 8},
        {"{}", "[5,8]", "w.weight_scale_inv", "[3,2]", "F32", APR_E_DAMAGED, 0, 0},
        {block_config, "[5,8]", "w.weight_scale_inv", "[2,2]", "F32", APR_E_DAMAGED, 0, 0},
        {block_config, "[5,8]", "w.weight_scale_inv", "[3,2]", "I32", APR_E_UNSUPPORTED, 0, 0},
        {"{\"quantization_config\":{\"weight_block_size\":[0,4]}}", "[5,8]", "w.weight_scale_inv", "[3,2]", "F32", APR_E_DAMAGED, 0, 0},
        {"{\"quantization_config\":{\"weight_block_size\":[128]}}", "[5,8]", "w.weight_scale_inv", "[3,2]", "F32", APR_E_DAMAGED, 0, 0},
        {"{}", "[8]", "w.weight_scale", "[8]", "F32", APR_E_DAMAGED, 0, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_error err = {0};
        apr_tensor tensors[2] = {{.name = "w.weight", .dtype = APR_F8_E4M3}, {.name = cases[i].scale_name}};
        apr_model model = {.path = "test", .tensors = tensors, .n_tensors = 2};
        const char *const shapes[] = {cases[i].weight_shape, cases[i].scale_shape};

        tensors[1].dtype = apr_dtype_by_safetensors_name(cases[i].scale_dtype);
        for (int t = 0; t < 2; t++)
            for (const char *p = shapes[t] + 1; *p >= '0' && *p <= '9'; p += *p == ',')
                tensors[t].dims[tensors[t].rank++] = strtol(p, (char **)&p, 10);
        assert_int_equal(apr_model_index_names(&model, NULL), APR_OK);
        const apr_attachment config = {"config.json", (const uint8_t *)cases[i].config,
                                       cases[i].config != NULL ? strlen(cases[i].config) : 0};
        const apr_status status = apr_bind_scales(&model, cases[i].config != NULL ? &config : NULL, &err);
        if (status != cases[i].status) fail_msg("case %zu gave %d: %s", i, status, err.text);
        if (status == APR_OK) {
            assert_ptr_equal(tensors[0].scale, &tensors[1]);
            assert_int_equal(tensors[0].scale_rows, cases[i].rows);
            assert_int_equal(tensors[0].scale_columns, cases[i].columns);
        }
        apr_arena_close(&model.arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bundled_checkpoint_is_read_whole),
        cmocka_unit_test(a_single_file_brings_the_files_next_to_it),
        cmocka_unit_test(every_dtype_of_the_format_is_read),
        cmocka_unit_test(scalars_and_empty_tensors_are_tensors),
        cmocka_unit_test(a_false_header_is_refused_with_a_sentence),
        cmocka_unit_test(a_file_cut_anywhere_is_refused),
        cmocka_unit_test(flipped_bits_never_lead_out_of_the_file),
        cmocka_unit_test(a_huge_header_length_allocates_nothing),
        cmocka_unit_test(shards_are_one_model),
        cmocka_unit_test(a_false_index_is_refused_with_a_sentence),
        cmocka_unit_test(the_index_says_which_copy_counts),
        cmocka_unit_test(a_name_that_no_shard_has_is_a_note),
        cmocka_unit_test(shards_without_an_index_are_read_by_their_numbers),
        cmocka_unit_test(an_index_next_to_the_one_file_is_named),
        cmocka_unit_test(a_folder_without_weights_says_so),
        cmocka_unit_test(fp8_weights_find_what_one_scale_covers),
    };
    return cmocka_run_group_tests_name("safetensors", tests, make_work, remove_work);
}
