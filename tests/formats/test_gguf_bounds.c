/* formats/gguf/gguf.h: what a GGUF may be asked to hold: lengths of keys, many keys, zeros between tensors. */
#include "formats/gguf/gguf.h"
#include "tests/support/work_folder.h"

#include <time.h>

/* APR files hold keys of any length; a GGUF does not, neither when it is read nor when it is written. */
static void keys_have_the_lengths_that_gguf_allows(void **state)
{
    enum { HEAD = 24, MOST = 65536 };
    uint8_t *const file = calloc(1, HEAD + 8 + MOST + 8);
    static const struct {
        size_t n_key;
        apr_status status;
    } rows[] = {{0, APR_E_DAMAGED}, {1, APR_OK}, {65535, APR_OK}, {65536, APR_E_DAMAGED}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const size_t n = rows[i].n_key;
        apr_model m;
        apr_error err;
        memcpy(file, "GGUF\3", 5);
        file[16] = 1;
        apr_store_le64(file + HEAD, n);
        memset(file + HEAD + 8, 'k', n);
        apr_store_le64(file + HEAD + 8 + n, 4); /* a u32, 0 */
        err = (apr_error){0};
        write_file(in_work("read.gguf"), file, HEAD + 8 + n + 8);
        assert_int_equal(apr_gguf_open(&m, in_work("read.gguf"), &err), rows[i].status);
        if (rows[i].status != APR_OK) assert_non_null(strstr(err.text, "bytes long; GGUF allows 1 to 65535"));
        char *const text = calloc(1, n + 1);
        memset(text, 'k', n);
        apr_kv item = {.key = {text, n}, .type = APR_KV_U32};
        m.path = "m";
        m.kv = (apr_kv_list){.items = &item, .n_items = 1, .arena = &m.arena};
        m.origin.format = APR_FORMAT_GGUF;
        apr_sink *sink = NULL;
        const apr_status written = apr_gguf_sink_open(&sink, in_work("keys.gguf"), &m, &(apr_sink_options){0}, &err);
        assert_int_equal(written, rows[i].status == APR_OK ? APR_OK : APR_E_UNSUPPORTED);
        if (sink != NULL) sink->ops->abandon(sink);
        apr_model_close(&m);
        free(text);
    }
    free(file);
}

/* 100,000 keys took 10 seconds when each was searched for among those before it, and take a few hundredths. */
static void many_keys_are_written_in_one_go(void **state)
{
    enum { N_KEYS = 100000, KEY_BYTES = 20, MOST_SECONDS = 4 };
    char *const texts = malloc((size_t)N_KEYS * KEY_BYTES);
    apr_kv *const items = calloc(N_KEYS, sizeof *items);
    apr_model m = {.path = "many", .format = APR_FORMAT_GGUF, .naming = APR_NAMING_GGML};
    apr_sink *sink;
    apr_error err = {0};

    (void)state;
    assert_true(texts != NULL && items != NULL);
    for (size_t i = 0; i < N_KEYS; i++) {
        char *const text = texts + i * KEY_BYTES;
        const int n = snprintf(text, KEY_BYTES, "general.k%06zu", i);
        items[i] = (apr_kv){.key = {text, (size_t)n}, .type = APR_KV_STRING, .value.string = {text, (size_t)n}};
    }
    m.kv = (apr_kv_list){.items = items, .n_items = N_KEYS, .arena = &m.arena};
    for (int is_checkpoint = 0; is_checkpoint < 2; is_checkpoint++) {
        m.origin.format = is_checkpoint ? APR_FORMAT_SAFETENSORS : APR_FORMAT_GGUF;
        const clock_t start = clock();
        if (apr_gguf_sink_open(&sink, in_work("many.gguf"), &m, &(apr_sink_options){0}, &err) != APR_OK) fail_msg("%s", err.text);
        assert_true(sink->ops->total_bytes(sink) > (uint64_t)N_KEYS * 2 * 14);
        sink->ops->abandon(sink);
        assert_true(clock() - start < MOST_SECONDS * CLOCKS_PER_SEC);
    }
    apr_model_close(&m);
    free(items);
    free(texts);
}

/* 32 GiB of zeros for two small tensors; and what readers' pages need is written. */
static void an_alignment_that_makes_a_file_of_zeros_is_refused(void **state)
{
    static const apr_tensor tensors[] = {{.name = "a", .dtype = APR_F32, .rank = 1, .dims = {8}, .n_bytes = 32},
                                         {.name = "b", .dtype = APR_F32, .rank = 1, .dims = {8}, .n_bytes = 32}};
    static const struct {
        uint64_t alignment;
        apr_status status;
    } rows[] = {{(uint64_t)1 << 30, APR_E_UNSUPPORTED}, {65536, APR_OK}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        apr_kv item = {.key = apr_str_of("general.alignment"), .type = APR_KV_U32, .value.bits = rows[i].alignment};
        apr_model m = {.path = "m", .tensors = (apr_tensor *)(uintptr_t)tensors, .n_tensors = 2, .origin.format = APR_FORMAT_GGUF};
        apr_error err = {0};
        apr_sink *sink = NULL;
        m.kv = (apr_kv_list){.items = &item, .n_items = 1, .arena = &m.arena};
        assert_int_equal(apr_gguf_sink_open(&sink, in_work("zeros.gguf"), &m, &(apr_sink_options){0}, &err), rows[i].status);
        if (sink != NULL) sink->ops->abandon(sink);
        else if (strstr(err.text, "most of them zeros") == NULL) fail_msg("%s", err.text);
        apr_arena_close(&m.arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_have_the_lengths_that_gguf_allows),
        cmocka_unit_test(many_keys_are_written_in_one_go),
        cmocka_unit_test(an_alignment_that_makes_a_file_of_zeros_is_refused),
    };
    return cmocka_run_group_tests(tests, make_work, remove_work);
}
