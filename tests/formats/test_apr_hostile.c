/* formats/apr/apr.h: damaged and hostile files end in a sentence, never in a crash, a hang or a huge allocation. */
#include "tests/support/apr_fixture.h"

#include <zstd.h>

/* Reads a copy that is exactly as long as it says. The status, and a sentence whenever it is not OK. */
static apr_status read_exactly(const uint8_t *bytes, size_t n_bytes, apr_error *err)
{
    uint8_t *const exact = malloc(n_bytes > 0 ? n_bytes : 1);
    apr_model model;

    assert_non_null(exact);
    if (n_bytes > 0) memcpy(exact, bytes, n_bytes);
    *err = (apr_error){0};
    const apr_status status = apr_apr_read(&model, exact, n_bytes, "hostile.apr", err);
    if (status == APR_OK) apr_model_close(&model);
    else assert_true(strncmp(err->text, "hostile.apr", 11) == 0);
    assert_true(status == APR_OK || status == APR_E_DAMAGED || status == APR_E_UNSUPPORTED);
    free(exact);
    return status;
}

/* --- truncation and flips --- */

static void a_file_cut_at_any_byte_is_refused(void **state)
{
    (void)state;
    apr_model m;
    apr_error err;
    size_t n_bytes;

    make_full_model(&m);
    uint8_t *const bytes = bytes_of(&m, &n_bytes);
    assert_int_equal(read_exactly(bytes, n_bytes, &err), APR_OK);
    for (size_t n = 0; n < n_bytes; n += n < 200 || n > n_bytes - 200 ? 1 : 7)
        assert_int_equal(read_exactly(bytes, n, &err), APR_E_DAMAGED);
    apr_model_close(&m);
    free(bytes);
}

static void a_plain_file_cut_before_its_last_byte_of_data_is_refused(void **state)
{
    (void)state;
    apr_model m;
    apr_error err;
    size_t n_bytes;

    make_golden_model(&m);
    uint8_t *const bytes = bytes_of(&m, &n_bytes);
    for (size_t n = 0; n < n_bytes; n++) assert_int_equal(read_exactly(bytes, n, &err), n < 448 + 32 ? APR_E_DAMAGED : APR_OK);
    apr_model_close(&m);
    free(bytes);
}

static void any_bit_of_the_header_is_covered(void **state)
{
    (void)state;
    apr_model m;
    apr_error err;
    size_t n_bytes;

    make_golden_model(&m);
    uint8_t *const bytes = bytes_of(&m, &n_bytes);
    for (size_t bit = 0; bit < 64 * 8; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_not_equal(read_exactly(bytes, n_bytes, &err), APR_OK);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    apr_model_close(&m);
    free(bytes);
}

static void flipped_bits_anywhere_do_no_harm(void **state)
{
    (void)state;
    apr_model m;
    apr_error err;
    size_t n_bytes;

    make_full_model(&m);
    uint8_t *const bytes = bytes_of(&m, &n_bytes);
    const size_t data_at = (size_t)apr_load_le64(bytes + 32);
    for (size_t at = 4; at < data_at; at += at < 64 ? 1 : 3) {
        const uint8_t good = bytes[at];
        bytes[at] ^= (uint8_t)(1u << at % 8);
        if (at < 64) fix_header_crc(bytes);
        read_exactly(bytes, n_bytes, &err);
        bytes[at] = good;
        if (at < 64) fix_header_crc(bytes);
    }
    apr_model_close(&m);
    free(bytes);
}

/* --- fields --- */

typedef struct patch {
    const char *what;
    size_t at, n_bytes;
    uint64_t value;
    apr_status expected;
    const char *sentence; /* a part of it */
} patch;

/* The golden file: metadata at 64 (189 bytes), index at 256 (entries at 256 and 288), data at 384. */
static const patch patches[] = {
    {"magic of v1", 0, 4, 0x4e525041, APR_E_UNSUPPORTED, "v1"},
    {"other magic", 0, 4, 0x46554747, APR_E_DAMAGED, "not an APR file"},
    {"magic APR2", 0, 4, 0x32525041, APR_OK, ""},
    {"newer version", 4, 1, 3, APR_E_UNSUPPORTED, "version 3.0"},
    {"LZ4", 6, 2, 0x0401, APR_E_UNSUPPORTED, "LZ4"},
    {"zstd", 6, 2, 0x0402, APR_E_UNSUPPORTED, "zstd"},
    {"encrypted", 6, 2, 0x0404, APR_E_UNSUPPORTED, "encrypted"},
    {"column-major", 6, 2, 0x0800, APR_E_UNSUPPORTED, "column by column"},
    {"no row-major flag", 6, 2, 0, APR_OK, ""},
    {"all tensors", 8, 4, 0xffffffff, APR_E_DAMAGED, "4294967295 tensors"},
    {"one tensor more", 8, 4, 3, APR_E_DAMAGED, "name of tensor 2"},
    {"metadata in the header", 12, 8, 60, APR_E_DAMAGED, "metadata at byte 60"},
    {"metadata far away", 12, 8, UINT64_MAX - 10, APR_E_DAMAGED, "metadata at byte"},
    {"metadata too long", 20, 4, 0xffffffff, APR_E_DAMAGED, "bytes of metadata"},
    {"metadata with padding", 20, 4, 190, APR_E_DAMAGED, "JSON"},
    {"metadata cut", 20, 4, 188, APR_E_DAMAGED, "JSON"},
    {"no metadata", 20, 4, 0, APR_E_DAMAGED, "JSON"},
    {"index behind the data", 24, 8, 385, APR_E_DAMAGED, "index at byte 385"},
    {"index in the header", 24, 8, 0, APR_E_DAMAGED, "index at byte 0"},
    {"data behind the file", 32, 8, 517, APR_E_DAMAGED, "data at byte 517"},
    {"data far away", 32, 8, UINT64_MAX, APR_E_DAMAGED, "data at byte"},
    {"data in the index", 32, 8, 300, APR_E_DAMAGED, "index ends"},
    {"name runs out", 256, 2, 0xffff, APR_E_DAMAGED, "index ends inside entry 0"},
    {"empty name", 256, 2, 0, APR_E_DAMAGED, "name of tensor 0"},
    {"name with a NUL", 259, 1, 0, APR_E_DAMAGED, "name of tensor 0"},
    {"name that is no UTF-8", 259, 1, 0xff, APR_E_DAMAGED, "name of tensor 0"},
    {"unsorted", 258, 1, 'z', APR_OK, ""}, /* of a file that is not aprkit's */
    {"unknown type", 262, 1, 99, APR_E_UNSUPPORTED, "'bias' has the unknown type id 99"},
    {"type of another size", 262, 1, 1, APR_E_DAMAGED, "'bias': f16 [1] takes 2 bytes, the index says 4"},
    {"block type", 262, 1, 12, APR_E_DAMAGED, "'bias'"},
    {"rank 9", 263, 1, 9, APR_E_DAMAGED, "9 dimensions"},
    {"rank 255", 263, 1, 255, APR_E_DAMAGED, "255 dimensions"},
    {"negative dimension", 264, 8, UINT64_MAX, APR_E_DAMAGED, "impossible dimension"},
    {"huge dimension", 264, 8, INT64_MAX, APR_E_DAMAGED, "'bias'"},
    {"dimension of 0", 264, 8, 0, APR_E_DAMAGED, "takes 0 bytes"},
    {"offset behind the file", 272, 8, 133, APR_E_DAMAGED, "outside the file"},
    {"offset that wraps", 272, 8, UINT64_MAX - 2, APR_E_DAMAGED, "outside the file"},
    {"size that wraps", 280, 8, UINT64_MAX, APR_E_DAMAGED, "outside the file"},
    {"other size", 280, 8, 8, APR_E_DAMAGED, "takes 4 bytes, the index says 8"},
    {"overlap", 272, 8, 66, APR_E_DAMAGED, "'weights' and 'bias' overlap"},
    {"unaligned", 272, 8, 3, APR_OK, ""},
};

static void each_field_is_checked(void **state)
{
    (void)state;
    apr_model m;
    apr_error err;
    size_t n_bytes;

    make_golden_model(&m);
    uint8_t *const good = bytes_of(&m, &n_bytes), *const bytes = malloc(n_bytes);
    for (size_t i = 0; i < COUNT(patches); i++) {
        memcpy(bytes, good, n_bytes);
        for (size_t k = 0; k < patches[i].n_bytes; k++) bytes[patches[i].at + k] = (uint8_t)(patches[i].value >> 8 * k);
        fix_header_crc(bytes);
        const apr_status status = read_exactly(bytes, n_bytes, &err);
        if (status != patches[i].expected || strstr(err.text, patches[i].sentence) == NULL)
            fail_msg("%s: status %d, \"%s\"", patches[i].what, status, err.text);
    }
    apr_model_close(&m);
    free(bytes);
    free(good);
}

static void duplicate_names_are_refused(void **state)
{
    (void)state;
    apr_model m;
    apr_error err;
    size_t n_bytes;

    make_golden_model(&m);
    m.tensors[0].name = "weightr"; /* as long as its neighbour's, so that one letter makes them the same */
    uint8_t *const bytes = bytes_of(&m, &n_bytes);
    bytes[256 + 2 + 6] = 's';
    assert_int_equal(read_exactly(bytes, n_bytes, &err), APR_E_DAMAGED);
    assert_non_null(strstr(err.text, "two tensors are called 'weights'"));
    apr_model_close(&m);
    free(bytes);
}

/* --- metadata --- */

/* One tensor "t" of two floats, a footer, and this metadata. */
static apr_status read_metadata(const char *json, apr_error *err)
{
    static const uint8_t entry[] = {1, 0, 't', 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8};
    const size_t n_json = strlen(json), index_at = 64 + (n_json + 63) / 64 * 64, n_bytes = index_at + 64 + 64 + 4;
    uint8_t *const bytes = calloc(1, n_bytes);

    assert_non_null(bytes);
    memcpy(bytes, "APR\0\2\0\0\4\1", 9);
    apr_store_le64(bytes + 12, 64);
    apr_store_le32(bytes + 20, (uint32_t)n_json);
    apr_store_le64(bytes + 24, index_at);
    apr_store_le64(bytes + 32, index_at + 64);
    fix_header_crc(bytes);
    memcpy(bytes + 64, json, n_json);
    memcpy(bytes + index_at, entry, sizeof entry);
    const apr_status status = read_exactly(bytes, n_bytes, err);
    free(bytes);
    return status;
}

#define KIT                    "\"version\":1,\"dialect\":\"hf\""
#define ZEROS(place, n)        "{\"place\":" #place ",\"bytes\":" #n ",\"encoding\":\"zeros\"}"
#define WAY(record)            "{\"aprkit\":{" KIT ",\"tensors\":[{\"name\":\"t\"," record "}]}}"
#define VOCAB(standard, rules) "{\"tokenizer.model\":\"gpt2\"," standard ",\"aprkit\":{" KIT ",\"vocab\":{" rules "}}}"

static const struct {
    const char *json;
    apr_status expected;
} documents[] = {
    {"{}", APR_OK},
    {"{\"aprkit\":{" KIT "}}", APR_OK},
    {"[]", APR_E_DAMAGED},
    {"null", APR_E_DAMAGED},
    {"{\"a\":1,\"a\":2}", APR_E_DAMAGED},
    {"{\"a\":\"\\u0000\"}", APR_E_DAMAGED},
    {"{\"a\":1}}", APR_E_DAMAGED},
    {"{\"hidden_size\":-5}", APR_E_DAMAGED},
    {"{\"hidden_size\":1.5}", APR_E_DAMAGED},
    {"{\"hidden_size\":1e300}", APR_E_DAMAGED},
    {"{\"num_layers\":1000000000}", APR_E_DAMAGED},
    {"{\"hidden_size\":\"big\",\"architecture\":5,\"tied_embeddings\":\"yes\"}", APR_OK},
    {"{\"hf_config\":{\"hidden_size\":\"x\"}}", APR_OK},
    {"{\"tokenizer.vocabulary\":7}", APR_E_DAMAGED},
    {"{\"tokenizer.vocabulary\":[\"a\",null]}", APR_E_DAMAGED},
    {"{\"tokenizer.vocabulary\":[\"a\"],\"tokenizer.token_type\":[1,1]}", APR_E_DAMAGED},
    {"{\"tokenizer.vocabulary\":[\"a\"],\"tokenizer.scores\":[]}", APR_E_DAMAGED},
    {"{\"tokenizer.vocabulary\":[\"a\"],\"tokenizer.scores\":[1e300]}", APR_E_DAMAGED},
    {"{\"aprkit\":{}}", APR_E_DAMAGED},
    {"{\"aprkit\":{\"version\":2,\"dialect\":\"hf\"}}", APR_E_UNSUPPORTED},
    {"{\"aprkit\":{\"version\":1,\"dialect\":\"x\"}}", APR_E_DAMAGED},
    {"{\"aprkit\":{" KIT ",\"origin\":{\"format\":\"elf\"}}}", APR_E_DAMAGED},
    {"{\"aprkit\":{" KIT ",\"origin\":{\"gguf_version\":4}}}", APR_E_DAMAGED},
    {"{\"aprkit\":{" KIT ",\"origin\":{\"order\":[\"t\"]}}}", APR_OK},
    {"{\"aprkit\":{" KIT ",\"origin\":{\"order\":[\"t\",\"t\"]}}}", APR_E_DAMAGED},
    {"{\"aprkit\":{" KIT ",\"origin\":{\"order\":[\"u\",\"of another naming\"]}}}", APR_OK},
    {"{\"aprkit\":{" KIT ",\"origin\":{\"order\":[\"u\",\"v\",\"u\"]}}}", APR_E_DAMAGED},
    {"{\"aprkit\":{" KIT ",\"origin\":{\"order\":[\"\"]}}}", APR_E_DAMAGED},
    {"{\"aprkit\":{" KIT ",\"origin\":{\"order\":{\"t\":\"t\"}}}}", APR_E_DAMAGED},
    {"{\"aprkit\":{" KIT ",\"origin\":{\"order\":[1]}}}", APR_E_DAMAGED},
    {"{\"aprkit\":{" KIT ",\"origin\":{\"gaps\":{\"tensors\":1,\"places\":[" ZEROS(0, 5000000) "]}}}}", APR_OK},
    {"{\"aprkit\":{" KIT ",\"origin\":{\"gaps\":{\"tensors\":1,\"places\":[" ZEROS(0, 30000000) "]}}}}", APR_E_DAMAGED},
    {"{\"aprkit\":{" KIT ",\"origin\":{\"gaps\":{\"tensors\":1,\"places\":[" ZEROS(0, 5000000) "," ZEROS(1, 5000000) "]}}}}",
     APR_E_DAMAGED},
    {"{\"aprkit\":{" KIT ",\"origin\":{\"gaps\":{\"tensors\":1,\"places\":[" ZEROS(2, 9223372036854775807) "]}}}}", APR_E_DAMAGED},
    {"{\"aprkit\":{" KIT ",\"crc32\":\"01234567\"}}", APR_OK},
    {"{\"aprkit\":{" KIT ",\"crc32\":\"0123456\"}}", APR_E_DAMAGED},
    {"{\"aprkit\":{" KIT ",\"crc32\":\"0123456g\"}}", APR_E_DAMAGED},
    {"{\"aprkit\":{" KIT ",\"crc32\":5}}", APR_E_DAMAGED},
    {"{\"aprkit\":{" KIT ",\"tensors\":[{\"name\":\"t\",\"origin\":\"o\",\"step\":\"pairs_to_halves:1\"}]}}", APR_OK},
    {"{\"aprkit\":{" KIT ",\"tensors\":[{\"name\":\"t\",\"step\":\"pairs_to_halves:2\"}]}}", APR_E_DAMAGED},
    {"{\"aprkit\":{" KIT ",\"tensors\":[{\"name\":\"t\",\"step\":\"pairs_to_halves:0\"}]}}", APR_E_DAMAGED},
    {"{\"aprkit\":{" KIT ",\"tensors\":[{\"name\":\"t\",\"step\":\"pairs_to_halves:99999999999999999999\"}]}}", APR_E_DAMAGED},
    {"{\"aprkit\":{" KIT ",\"tensors\":[{\"name\":\"t\",\"step\":\"rotate\"}]}}", APR_E_DAMAGED},
    {WAY("\"step\":\"take:0,2,5,1\",\"origin\":\"o\""), APR_OK},
    {WAY("\"step\":\"pairs_to_halves:1x\""), APR_E_DAMAGED},
    {WAY("\"step\":\"pairs_to_halves:01\""), APR_E_DAMAGED},
    {WAY("\"step\":\"transpose \""), APR_E_DAMAGED},
    {WAY("\"step\":\"\""), APR_E_DAMAGED},
    {WAY("\"step\":\"squeeze:9\""), APR_E_DAMAGED},
    {WAY("\"step\":\"stack\""), APR_E_DAMAGED},
    {WAY("\"step\":\"stack\",\"origins\":[\"a\",\"b\"]"), APR_OK},
    {WAY("\"step\":\"stack\",\"origins\":[\"a\",\"b\",\"c\"]"), APR_E_DAMAGED},
    {WAY("\"step\":\"stack\",\"origins\":[\"a\",5]"), APR_E_DAMAGED},
    {WAY("\"step\":\"stack\",\"origins\":[]"), APR_E_DAMAGED},
    {WAY("\"step\":\"stack\",\"origins\":[\"a\",\"b\"],\"lengths\":[1,1]"), APR_E_DAMAGED},
    {WAY("\"step\":\"stack\",\"origins\":[\"a\",\"b\"],\"steps\":[\"\",\"unsqueeze:0\"]"), APR_OK},
    {WAY("\"step\":\"stack\",\"origins\":[\"a\",\"b\"],\"steps\":[\"\",\"spin\"]"), APR_E_DAMAGED},
    {WAY("\"step\":\"stack\",\"origins\":[\"a\",\"b\"],\"steps\":[\"\"]"), APR_E_DAMAGED},
    {WAY("\"step\":\"join:0,1\",\"origins\":[\"a\",\"b\"],\"lengths\":[1,1]"), APR_OK},
    {WAY("\"step\":\"join:0,1\",\"origins\":[\"a\",\"b\"],\"lengths\":[1,2]"), APR_E_DAMAGED},
    {WAY("\"step\":\"join:0,1\",\"origins\":[\"a\",\"b\"],\"lengths\":[-1,3]"), APR_E_DAMAGED},
    {WAY("\"step\":\"join:0,2\",\"origins\":[\"a\",\"b\"],\"lengths\":[1,1]"), APR_E_DAMAGED},
    {WAY("\"step\":\"join:0,1\",\"origins\":[\"a\",\"b\"],\"lengths\":[2]"), APR_E_DAMAGED},
    {WAY("\"step\":\"join:0,1\",\"origins\":[\"a\",\"b\"]"), APR_E_DAMAGED},
    {WAY("\"step\":\"transpose\",\"origins\":[\"a\"]"), APR_E_DAMAGED},
    {WAY("\"origins\":[\"a\"]"), APR_E_DAMAGED},
    {WAY("\"kept\":7"), APR_E_DAMAGED},
    {WAY("\"origin\":\"o\",\"kept\":\"t\""), APR_OK},
    {"{\"aprkit\":{" KIT ",\"tensors\":[{\"name\":\"u\"}]}}", APR_E_DAMAGED},
    {"{\"aprkit\":{" KIT ",\"tensors\":[7]}}", APR_E_DAMAGED},
    {"{\"aprkit\":{" KIT ",\"tensors\":{}}}", APR_E_DAMAGED},
    {"{\"aprkit\":{" KIT ",\"tensors\":[{\"name\":\"t\",\"scale\":\"t\",\"scale_rows\":1,\"scale_columns\":1}]}}", APR_E_DAMAGED},
    {"{\"aprkit\":{" KIT ",\"hparams\":{\"layer_kinds\":\"fff\"}}}", APR_E_DAMAGED},
    {"{\"num_layers\":2,\"aprkit\":{" KIT ",\"hparams\":{\"layer_kinds\":\"fx\"}}}", APR_E_DAMAGED},
    {"{\"aprkit\":{" KIT ",\"hparams\":{\"rope\":{\"kind\":\"spiral\"}}}}", APR_E_UNSUPPORTED},
    {"{\"aprkit\":{" KIT ",\"hparams\":{\"rope\":7}}}", APR_E_DAMAGED},
    {"{\"aprkit\":{" KIT ",\"kv\":{}}}", APR_E_DAMAGED},
    {"{\"aprkit\":{" KIT ",\"kv\":{\"n_items\":1,\"bytes\":0,\"encoding\":\"text\",\"data\":\"\"}}}", APR_E_DAMAGED},
    {"{\"aprkit\":{" KIT ",\"kv\":{\"n_items\":0,\"bytes\":1,\"encoding\":\"text\",\"data\":\"x\"}}}", APR_E_DAMAGED},
    {"{\"aprkit\":{" KIT ",\"kv\":{\"n_items\":1e15,\"bytes\":3,\"encoding\":\"text\",\"data\":\"xyz\"}}}", APR_E_DAMAGED},
    {"{\"aprkit\":{" KIT ",\"files\":[{\"name\":\"a\",\"bytes\":2,\"encoding\":\"text\",\"data\":\"xy\"}]}}", APR_OK},
    {"{\"aprkit\":{" KIT ",\"files\":[{\"name\":\"a\",\"bytes\":3,\"encoding\":\"text\",\"data\":\"xy\"}]}}", APR_E_DAMAGED},
    {"{\"aprkit\":{" KIT ",\"files\":[{\"name\":\"a\",\"bytes\":-1,\"encoding\":\"text\",\"data\":\"\"}]}}", APR_E_DAMAGED},
    {"{\"aprkit\":{" KIT ",\"files\":[{\"name\":\"a\",\"bytes\":0,\"encoding\":\"rot13\",\"data\":\"\"}]}}", APR_E_UNSUPPORTED},
    {"{\"aprkit\":{" KIT ",\"files\":[{\"name\":\"../a\",\"bytes\":0,\"encoding\":\"text\",\"data\":\"\"}]}}", APR_E_DAMAGED},
    {"{\"aprkit\":{" KIT ",\"files\":[{\"name\":\"..\",\"bytes\":0,\"encoding\":\"text\",\"data\":\"\"}]}}", APR_E_DAMAGED},
    {"{\"aprkit\":{" KIT ",\"files\":[{\"name\":\"model.safetensors\",\"bytes\":0,\"encoding\":\"text\",\"data\":\"\"}]}}", APR_E_DAMAGED},
    {"{\"aprkit\":{" KIT ",\"files\":[{\"name\":\"\",\"bytes\":0,\"encoding\":\"text\",\"data\":\"\"}]}}", APR_E_DAMAGED},
    {"{\"aprkit\":{" KIT ",\"files\":[{\"bytes\":0,\"encoding\":\"text\",\"data\":\"\"}]}}", APR_E_DAMAGED},
    {"{\"aprkit\":{" KIT ",\"files\":7}}", APR_E_DAMAGED},
    {"{\"aprkit\":{" KIT ",\"files\":[{\"name\":\"a\",\"bytes\":0,\"encoding\":\"zstd+base64\",\"data\":\"\"}]}}", APR_E_DAMAGED},
    {"{\"aprkit\":{" KIT ",\"files\":[{\"name\":\"a\",\"bytes\":9,\"encoding\":\"zstd+base64\",\"data\":\"!!!!\"}]}}", APR_E_DAMAGED},
    {"{\"aprkit\":{" KIT ",\"files\":[{\"name\":\"a\",\"bytes\":9,\"encoding\":\"zstd+base64\",\"data\":\"AAAA\"}]}}", APR_E_DAMAGED},
    {"{\"tokenizer.vocabulary\":[\"a\"],\"aprkit\":{" KIT "}}", APR_E_DAMAGED},
    {VOCAB("\"tokenizer.vocabulary\":[\"a\",\"b\"]", "\"stop_ids\":[1]"), APR_OK},
    {VOCAB("\"tokenizer.vocabulary\":[\"a\",\"b\"]", "\"stop_ids\":[2]"), APR_E_DAMAGED},
    {VOCAB("\"tokenizer.vocabulary\":[\"a\"]", "\"stop_ids\":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]"), APR_E_DAMAGED},
    {VOCAB("\"tokenizer.vocabulary\":[\"a\"]", "\"added\":[0]"), APR_E_DAMAGED},
    {VOCAB("\"tokenizer.vocabulary\":[\"a\"]", "\"added\":[1,1]"), APR_E_DAMAGED},
    {VOCAB("\"tokenizer.vocabulary\":[\"a\"]", "\"added\":[0,256]"), APR_E_DAMAGED},
    {VOCAB("\"tokenizer.vocabulary\":[\"a\"]", "\"raw_tokens\":[0,\"/w==\"]"), APR_OK},
    {VOCAB("\"tokenizer.vocabulary\":[\"a\"]", "\"raw_tokens\":[0]"), APR_E_DAMAGED},
    {VOCAB("\"tokenizer.vocabulary\":[\"a\"]", "\"raw_tokens\":[1,\"/w==\"]"), APR_E_DAMAGED},
    {VOCAB("\"tokenizer.vocabulary\":[\"a\"]", "\"raw_tokens\":[0,\"/w=\"]"), APR_E_DAMAGED},
    {VOCAB("\"tokenizer.vocabulary\":[\"a\"],\"tokenizer.merges\":[\"ab\"]", ""), APR_E_DAMAGED},
    {VOCAB("\"tokenizer.vocabulary\":[\"a\"],\"tokenizer.merges\":[\"ab\"]", "\"raw_merges\":[0,\"/w==\"]"), APR_E_DAMAGED},
    {VOCAB("\"tokenizer.vocabulary\":[\"a\"],\"tokenizer.merges\":[\"ab\"]", "\"raw_merges\":[0,\"/w==\",\"/w==\"]"), APR_OK},
};

static void each_part_of_the_metadata_is_checked(void **state)
{
    (void)state;
    apr_error err;

    for (size_t i = 0; i < COUNT(documents); i++) {
        const apr_status status = read_metadata(documents[i].json, &err);
        if (status != documents[i].expected) fail_msg("%s: status %d, \"%s\"", documents[i].json, status, err.text);
    }
}

static void endless_nesting_is_refused(void **state)
{
    (void)state;
    enum { DEPTH = 1000000 };
    static const char *const openings[] = {"[", "{\"a\":"};
    apr_error err;

    for (size_t k = 0; k < COUNT(openings); k++) {
        const size_t n = strlen(openings[k]);
        char *const json = malloc(DEPTH * n + 1);
        assert_non_null(json);
        for (size_t i = 0; i < DEPTH; i++) memcpy(json + i * n, openings[k], n + 1);
        assert_int_equal(read_metadata(json, &err), APR_E_DAMAGED);
        free(json);
    }
}

/* A frame of `n_bytes` zeros, as a file that states `n_stated` bytes. */
static apr_status read_zeros(size_t n_bytes, long long n_stated, apr_error *err)
{
    static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t bound = ZSTD_compressBound(n_bytes);
    uint8_t *const zeros = calloc(1, n_bytes), *const packed = calloc(1, bound + 3);
    assert_non_null(zeros);
    assert_non_null(packed);
    size_t n_packed = ZSTD_compress(packed, bound, zeros, n_bytes, 3);
    const size_t n_json = n_packed * 2 + 300;
    char *const json = malloc(n_json);
    assert_non_null(json);
    int at = snprintf(json, n_json,
                      "{\"aprkit\":{" KIT ",\"files\":[{\"name\":\"a\",\"bytes\":%lld,\"encoding\":\"zstd+base64\",\"data\":\"", n_stated);
    for (size_t i = 0; i < n_packed; i += 3) {
        const uint32_t bits = (uint32_t)packed[i] << 16 | (uint32_t)packed[i + 1] << 8 | packed[i + 2];
        for (int k = 0; k < 4; k++) json[at++] = i + (size_t)k > n_packed ? '=' : alphabet[bits >> (18 - 6 * k) & 63];
    }
    snprintf(json + at, n_json - (size_t)at, "\"}]}}");
    const apr_status status = read_metadata(json, err);
    free(zeros);
    free(packed);
    free(json);
    return status;
}

static void bombs_are_not_unpacked(void **state)
{
    (void)state;
    apr_error err;

    assert_int_equal(read_zeros(100000, 100000, &err), APR_OK);
    assert_int_equal(read_zeros(100000, 99999, &err), APR_E_DAMAGED);
    assert_int_equal(read_zeros(100000, 1ll << 50, &err), APR_E_DAMAGED);
    assert_int_equal(read_zeros(64 << 20, 64 << 20, &err), APR_E_DAMAGED);
    assert_non_null(strstr(err.text, "more than any model file needs"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_cut_at_any_byte_is_refused),
        cmocka_unit_test(a_plain_file_cut_before_its_last_byte_of_data_is_refused),
        cmocka_unit_test(any_bit_of_the_header_is_covered),
        cmocka_unit_test(flipped_bits_anywhere_do_no_harm),
        cmocka_unit_test(each_field_is_checked),
        cmocka_unit_test(duplicate_names_are_refused),
        cmocka_unit_test(each_part_of_the_metadata_is_checked),
        cmocka_unit_test(endless_nesting_is_refused),
        cmocka_unit_test(bombs_are_not_unpacked),
    };
    return cmocka_run_group_tests_name("apr_hostile", tests, NULL, NULL);
}
