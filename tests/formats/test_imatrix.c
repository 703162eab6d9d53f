/* formats/tensor/imatrix.h: files of llama-imatrix come back byte for byte, and nothing else is taken for one. */
#include "formats/tensor/imatrix.h"

#include "formats/base/bytes.h"
#include "formats/files/map.h"
#include "tests/support/work_folder.h"

#include <math.h>

static const char gguf[] = "tests/data/imatrix/llama.gguf", dat[] = "tests/data/imatrix/llama.dat",
                  experts[] = "tests/data/imatrix/experts.gguf";

static apr_imatrix open_one(const char *path)
{
    apr_imatrix m;
    apr_error err = {0};
    if (apr_imatrix_open(&m, path, false, &err) != APR_OK) fail_msg("%s", err.text);
    return m;
}

static void write_one(const apr_imatrix *m, const char *path, apr_imatrix_out how)
{
    apr_error err = {0};
    if (apr_imatrix_write(m, path, &how, &err) != APR_OK) fail_msg("%s", err.text);
}

static void what_llama_cpp_wrote_is_understood(void **state)
{
    (void)state;
    apr_imatrix m = open_one(gguf);

    assert_int_equal(m.n_entries, 14);
    assert_int_equal(m.chunk_count, 4);
    assert_int_equal(m.chunk_size, 64);
    assert_int_equal(m.n_datasets, 1);
    assert_string_equal(m.datasets[0], "t.txt");
    assert_true(!m.is_legacy && m.terms == NULL);
    const apr_imatrix_entry *const e = apr_imatrix_find(&m, "blk.1.ffn_down.weight");
    assert_non_null(e);
    assert_true(e->n_columns == 512 && e->n_matrices == 1 && e->counts[0] == 256.0);
    assert_null(apr_imatrix_find(&m, "output.weight"));
    apr_imatrix_close(&m);
}

static void experts_have_counts_of_their_own(void **state)
{
    (void)state;
    apr_imatrix m = open_one(experts);
    const apr_imatrix_entry *const e = apr_imatrix_find(&m, "blk.2.ffn_down_exps.weight");
    double tokens = 0.0;
    int n_unseen = 0;

    assert_non_null(e);
    assert_int_equal(e->n_matrices, 8);
    for (int i = 0; i < 8; i++) tokens += e->counts[i], n_unseen += e->counts[i] == 0.0;
    assert_true(tokens == 2.0 * 256.0);
    assert_int_equal(n_unseen, 3);
    for (int64_t j = 0; j < e->n_columns; j++) assert_true(e->sums[j] == 0.0); /* of expert 0, the first of them */
    apr_imatrix_close(&m);
}

static void a_gguf_comes_back_byte_for_byte(void **state)
{
    (void)state;
    const char *const paths[] = {gguf, experts};
    for (int i = 0; i < 2; i++) {
        apr_imatrix m = open_one(paths[i]);
        write_one(&m, in_work("again.gguf"), (apr_imatrix_out){.overwrite = true});
        assert_same_file(in_work("again.gguf"), paths[i]);
        apr_imatrix_close(&m);
    }
}

static void a_dat_comes_back_byte_for_byte(void **state)
{
    (void)state;
    apr_imatrix m = open_one(dat);

    assert_true(m.is_legacy && m.chunk_count == 4 && m.n_datasets == 1);
    write_one(&m, in_work("again.dat"), (apr_imatrix_out){.as_dat = true});
    assert_same_file(in_work("again.dat"), dat);
    apr_imatrix_close(&m);
}

static void the_dat_of_a_gguf_is_llama_cpps(void **state)
{
    (void)state;
    apr_imatrix m = open_one(gguf);

    write_one(&m, in_work("made.dat"), (apr_imatrix_out){.as_dat = true});
    assert_same_file(in_work("made.dat"), dat);
    apr_imatrix_close(&m);
}

static void an_unfinished_one_keeps_every_bit(void **state)
{
    (void)state;
    apr_imatrix m;
    apr_error err = {0};

    assert_int_equal(apr_imatrix_start(&m, "x", 1, &err), APR_OK);
    apr_imatrix_entry *const e = apr_imatrix_add(&m, "feed.1", 2, 3);
    for (int i = 0; i < 6; i++) e->sums[i] = exp(0.1 * i) / 3.0;
    e->counts[0] = 1e15 + 1.0;
    m.chunk_count = 7;
    write_one(&m, in_work("x.resume"), (apr_imatrix_out){.overwrite = true, .terms = "a\nb\n"});
    apr_imatrix_close(&m);
    if (apr_imatrix_open(&m, in_work("x.resume"), true, &err) != APR_OK) fail_msg("%s", err.text);
    assert_string_equal(m.terms, "a\nb\n");
    for (int i = 0; i < 6; i++) assert_true(m.entries[0].sums[i] == exp(0.1 * i) / 3.0);
    assert_true(m.entries[0].counts[0] == 1e15 + 1.0 && m.entries[0].counts[1] == 0.0 && m.chunk_count == 7);
    apr_imatrix_close(&m);
}

static void an_unfinished_one_that_changed_is_refused(void **state)
{
    const double first = 1.0 / 3.0;
    apr_map map;
    apr_imatrix m;
    apr_error err = {0};

    an_unfinished_one_keeps_every_bit(state);
    assert_int_equal(apr_map_open(&map, in_work("x.resume"), &err), APR_OK);
    uint8_t *const copy = malloc(map.n_bytes);
    size_t at = 0;
    while (at + 48 <= map.n_bytes && memcmp(map.data + at, &first, sizeof first) != 0) at++;
    assert_true(at + 48 <= map.n_bytes);
    for (size_t i = 0; i < 6 * sizeof(double); i++) {
        memcpy(copy, map.data, map.n_bytes);
        copy[at + i] ^= 1;
        assert_int_equal(apr_imatrix_parse(&m, "file", copy, map.n_bytes, &err), APR_E_DAMAGED);
        assert_non_null(strstr(err.text, "imatrix is damaged"));
    }
    free(copy);
    apr_map_close(&map);
}

/* ---- what is none ---- */

/* The file with bytes changed at a place that is found by what stands before it. */
static void refuse(const char *path, const char *behind, size_t skip, const void *bytes, size_t n, const char *sentence)
{
    apr_map map;
    apr_error err = {0};
    apr_imatrix m;
    assert_int_equal(apr_map_open(&map, path, &err), APR_OK);
    uint8_t *const copy = malloc(map.n_bytes);
    size_t at = 0;

    memcpy(copy, map.data, map.n_bytes);
    while (at + strlen(behind) < map.n_bytes && memcmp(copy + at, behind, strlen(behind)) != 0) at++;
    at += strlen(behind) + skip;
    assert_true(at + n <= map.n_bytes);
    memcpy(copy + at, bytes, n);
    assert_int_equal(apr_imatrix_parse(&m, "file", copy, map.n_bytes, &err), APR_E_DAMAGED);
    if (strstr(err.text, sentence) == NULL) fail_msg("'%s' is not said, but: %s", sentence, err.text);
    free(copy);
    apr_map_close(&map);
}

static void what_is_not_an_imatrix_is_refused_with_a_reason(void **state)
{
    static const float not_a_number = NAN, below = -1.0f;
    (void)state;

    refuse(gguf, "general.type", 4 + 8, "imatrux", 7, "its general.type is not \"imatrix\"");
    refuse(gguf, "blk.0.attn_k.weight.count", 0, "z", 1, "has sums and no counts");
    refuse(gguf, "blk.0.attn_k.weight.in_sum", 0, "3", 1, "has counts and no sums");
    refuse(dat, "blk.0.attn_k.weight", 4 + 4, &not_a_number, 4, "is not a mean of squares");
    refuse(dat, "blk.0.attn_k.weight", 4 + 4, &below, 4, "is not a mean of squares");
    refuse(dat, "blk.0.attn_k.weight", 4, "\0\0\0\0", 4, "has 0 values");
    refuse(dat, "", 0, "\xff\xff\xff\xff", 4, "neither a GGUF file nor a .dat");
    refuse(dat, "", 0, "\x0f\0\0\0", 4, "ends within entry 14");
}

static void an_imatrix_that_was_cut_off_is_refused(void **state)
{
    const char *const paths[] = {gguf, dat};
    (void)state;

    for (int i = 0; i < 2; i++) {
        apr_map map;
        apr_error err = {0};
        apr_imatrix m;
        assert_int_equal(apr_map_open(&map, paths[i], &err), APR_OK);
        for (size_t n = 0; n < map.n_bytes - 64; n += 61) {
            uint8_t *const copy = malloc(n + 1); /* the address sanitizer guards its end */
            memcpy(copy, map.data, n);
            assert_int_not_equal(apr_imatrix_parse(&m, "file", copy, n, &err), APR_OK);
            free(copy);
        }
        apr_map_close(&map);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_llama_cpp_wrote_is_understood),        cmocka_unit_test(experts_have_counts_of_their_own),
        cmocka_unit_test(a_gguf_comes_back_byte_for_byte),           cmocka_unit_test(a_dat_comes_back_byte_for_byte),
        cmocka_unit_test(the_dat_of_a_gguf_is_llama_cpps),           cmocka_unit_test(an_unfinished_one_keeps_every_bit),
        cmocka_unit_test(an_unfinished_one_that_changed_is_refused), cmocka_unit_test(what_is_not_an_imatrix_is_refused_with_a_reason),
        cmocka_unit_test(an_imatrix_that_was_cut_off_is_refused),
    };
    return cmocka_run_group_tests_name("imatrix", tests, make_work, remove_work);
}
