/* formats/tensor/kv.h: metadata keeps its types, order and bits; hostile bytes end in a sentence. */
#include "tests/support/kv_fixture.h"

#include <math.h>

#define WHERE "test.gguf"

/* Reads from a copy of exactly n bytes, so that the sanitizer guards the end. The copy lives as long as the arena. */
static apr_status read_from(fixture *f, const uint8_t *bytes, size_t n_bytes, uint64_t n_items, bool big_endian)
{
    uint8_t *const exact = malloc(n_bytes > 0 ? n_bytes : 1);
    if (n_bytes > 0) memcpy(exact, bytes, n_bytes);
    apr_cursor cursor = {.data = exact, .n_bytes = n_bytes, .big_endian = big_endian};
    f->err = (apr_error){0};
    const apr_status status = apr_kv_read(&cursor, n_items, WHERE, &f->kv, &f->err);
    if (status == APR_OK) assert_int_equal(cursor.at, n_bytes);
    else assert_string_not_equal(f->err.text, "");
    free(exact);
    return status;
}

/* One item of each type, values at the ends of their ranges. */
static void fill(fixture *f)
{
    static const apr_str strings[] = {{"Ġthe", 5}, {"", 0}, {"a\0b", 3}};
    static const uint8_t shorts[] = {0x01, 0x00, 0xff, 0xff};
    static const uint8_t bools[] = {1, 0, 1};
    static const float floats[] = {1.5f, -0.0f};
    apr_kv_list *const l = &f->kv;

    assert_int_equal(apr_kv_set_int(l, "u8", APR_KV_U8, 255, &f->err), APR_OK);
    apr_kv_set_int(l, "i8", APR_KV_I8, -128, &f->err);
    apr_kv_set_int(l, "u16", APR_KV_U16, 65535, &f->err);
    apr_kv_set_int(l, "i16", APR_KV_I16, -32768, &f->err);
    apr_kv_set_int(l, "u32", APR_KV_U32, 4294967295, &f->err);
    apr_kv_set_int(l, "i32", APR_KV_I32, -2147483647 - 1, &f->err);
    apr_kv_set_int(l, "u64", APR_KV_U64, INT64_MAX, &f->err);
    apr_kv_set_int(l, "i64", APR_KV_I64, INT64_MIN, &f->err);
    apr_kv_set_f32(l, "f32", 1e-6f, &f->err);
    const double third = 1.0 / 3;
    apr_kv f64 = {.key = apr_str_of("f64"), .type = APR_KV_F64};
    memcpy(&f64.value.bits, &third, sizeof third);
    apr_kv_set(l, &f64, &f->err);
    apr_kv_set_bool(l, "bool", true, &f->err);
    apr_kv_set_string(l, "string", apr_str_of("qwen2"), &f->err);
    apr_kv_set(
        l,
        &(apr_kv){.key = apr_str_of("strings"), .type = APR_KV_ARRAY, .elem_type = APR_KV_STRING, .n_elems = 3, .value.strings = strings},
        &f->err);
    apr_kv_set(l,
               &(apr_kv){.key = apr_str_of("shorts"), .type = APR_KV_ARRAY, .elem_type = APR_KV_I16, .n_elems = 2, .value.numbers = shorts},
               &f->err);
    apr_kv_set(l,
               &(apr_kv){.key = apr_str_of("bools"), .type = APR_KV_ARRAY, .elem_type = APR_KV_BOOL, .n_elems = 3, .value.numbers = bools},
               &f->err);
    apr_kv_set(l,
               &(apr_kv){.key = apr_str_of("floats"), .type = APR_KV_ARRAY, .elem_type = APR_KV_F32, .n_elems = 2, .value.numbers = floats},
               &f->err);
    apr_kv_set(l, &(apr_kv){.key = apr_str_of("empty"), .type = APR_KV_ARRAY, .elem_type = APR_KV_U32}, &f->err);
    assert_string_equal(f->err.text, "");
}

static uint8_t *written(const apr_kv_list *list, size_t *n_bytes)
{
    *n_bytes = (size_t)apr_kv_bytes(list);
    uint8_t *const bytes = malloc(*n_bytes);
    apr_kv_write(list, bytes);
    return bytes;
}

static void what_is_written_reads_back_byte_for_byte(void **state)
{
    fixture *const f = *state;
    size_t n, n_again;
    fill(f);
    uint8_t *const bytes = written(&f->kv, &n);

    apr_cursor cursor = {.data = bytes, .n_bytes = n};
    apr_kv_list back = {.arena = &f->arena};
    assert_int_equal(apr_kv_read(&cursor, f->kv.n_items, WHERE, &back, &f->err), APR_OK);
    assert_int_equal(back.n_items, f->kv.n_items);
    uint8_t *const again = written(&back, &n_again);
    assert_int_equal(n, n_again);
    assert_memory_equal(bytes, again, n);

    static const struct {
        const char *key;
        int64_t value;
    } ints[] = {{"u8", 255},         {"i8", -128},         {"u16", 65535},     {"i16", -32768},
                {"u32", 4294967295}, {"i32", -2147483648}, {"u64", INT64_MAX}, {"i64", INT64_MIN}};
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) {
        int64_t value = 7;
        assert_true(apr_kv_get_int(&back, ints[i].key, &value));
        assert_true(value == ints[i].value);
    }
    double real;
    assert_true(apr_kv_get_real(&back, "f32", &real) && real == (double)1e-6f);
    assert_true(apr_kv_get_real(&back, "f64", &real) && real == 1.0 / 3);
    assert_true(apr_kv_get_real(&back, "i8", &real) && real == -128.0);
    const apr_kv *const strings = apr_kv_find(&back, "strings");
    assert_int_equal(strings->value.strings[2].n_bytes, 3);
    assert_memory_equal(strings->value.strings[2].text, "a\0b", 3);
    assert_int_equal(apr_kv_elem_int(apr_kv_find(&back, "shorts"), 1), -1);
    assert_int_equal(apr_kv_elem_int(apr_kv_find(&back, "bools"), 0), 1);
    assert_true(apr_kv_elem_real(apr_kv_find(&back, "floats"), 0) == 1.5);
    free(again);
    free(bytes);
}

static void a_number_is_only_what_it_is(void **state)
{
    fixture *const f = *state;
    fill(f);
    int64_t i = 5;
    double r = 5;
    bool b;
    apr_str s;
    assert_false(apr_kv_get_int(&f->kv, "absent", &i));
    assert_false(apr_kv_get_int(&f->kv, "f32", &i));
    assert_false(apr_kv_get_int(&f->kv, "bool", &i));
    assert_false(apr_kv_get_int(&f->kv, "string", &i));
    assert_false(apr_kv_get_int(&f->kv, "shorts", &i));
    assert_false(apr_kv_get_real(&f->kv, "bool", &r));
    assert_false(apr_kv_get_bool(&f->kv, "u8", &b));
    assert_false(apr_kv_get_string(&f->kv, "strings", &s));
    assert_int_equal(i, 5);
    apr_kv_set_int(&f->kv, "u64", APR_KV_U64, -1, &f->err); /* 2^64 - 1: no int64_t, but a real number */
    assert_false(apr_kv_get_int(&f->kv, "u64", &i));
    assert_true(apr_kv_get_real(&f->kv, "u64", &r) && r == 0x1p64);
    assert_int_equal(apr_kv_elem_int(apr_kv_find(&f->kv, "shorts"), 2), 0);
    assert_int_equal(apr_kv_elem_int(apr_kv_find(&f->kv, "strings"), 0), 0);
    assert_int_equal(apr_kv_elem_int(apr_kv_find(&f->kv, "u8"), 0), 0);
}

static void setting_replaces_in_place_and_removing_closes_the_gap(void **state)
{
    fixture *const f = *state;
    fill(f);
    const size_t n = f->kv.n_items;
    apr_kv_set_string(&f->kv, "i8", apr_str_of("now text"), &f->err);
    assert_int_equal(f->kv.n_items, n);
    assert_true(apr_str_is(f->kv.items[1].key, "i8"));
    assert_int_equal(f->kv.items[1].type, APR_KV_STRING);
    apr_kv_remove(&f->kv, "i8");
    apr_kv_remove(&f->kv, "absent");
    assert_int_equal(f->kv.n_items, n - 1);
    assert_true(apr_str_is(f->kv.items[1].key, "u16"));
    assert_null(apr_kv_find(&f->kv, "i8"));
    for (int i = 0; i < 200; i++) { /* grows past every capacity on the way; one source is in the list itself */
        apr_kv copy = f->kv.items[0];
        copy.key = apr_str_of(apr_arena_print(&f->arena, "key.%d", i));
        assert_int_equal(apr_kv_set(&f->kv, &copy, &f->err), APR_OK);
    }
    assert_int_equal(f->kv.n_items, n - 1 + 200);
    assert_non_null(apr_kv_find(&f->kv, "key.199"));
}

static void every_cut_is_damage(void **state)
{
    fixture *const f = *state;
    size_t n;
    fill(f);
    uint8_t *const bytes = written(&f->kv, &n);
    const size_t n_items = f->kv.n_items;
    for (size_t cut = 0; cut < n; cut++) assert_int_equal(read_from(f, bytes, cut, n_items, false), APR_E_DAMAGED);
    assert_int_equal(read_from(f, bytes, n, n_items, false), APR_OK);
    free(bytes);
}

#define KEY(letter) 1, 0, 0, 0, 0, 0, 0, 0, letter

static void hostile_items_are_refused_with_a_sentence(void **state)
{
    static const struct {
        const char *what; /* what the sentence must say */
        uint64_t n_items;
        apr_status status;
        size_t n_bytes;
        uint8_t bytes[64];
    } rows[] = {
        {"twice", 2, APR_E_DAMAGED, 28, {KEY('a'), 0, 0, 0, 0, 1, KEY('a'), 0, 0, 0, 0, 2}},
        {"bool 2", 1, APR_E_DAMAGED, 14, {KEY('a'), 7, 0, 0, 0, 2}},
        {"bool 255", 1, APR_E_DAMAGED, 27, {KEY('a'), 9, 0, 0, 0, 7, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1, 255}},
        {"unknown type 13", 1, APR_E_DAMAGED, 14, {KEY('a'), 13, 0, 0, 0, 0}},
        {"unknown type 16777216", 1, APR_E_DAMAGED, 14, {KEY('a'), 0, 0, 0, 1, 0}},
        {"array of arrays", 1, APR_E_UNSUPPORTED, 29, {KEY('a'), 9, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0}},
        {"unknown type 99", 1, APR_E_DAMAGED, 29, {KEY('a'), 9, 0, 0, 0, 99, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0}},
        {"ends early", 1, APR_E_DAMAGED, 33, {KEY('a'), 9, 0, 0, 0, 12, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0x20}}, /* 8 * 2^61 wraps to 8 */
        {"ends early", 1, APR_E_DAMAGED, 29, {KEY('a'), 9, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10}},
        {"ends early", 1, APR_E_DAMAGED, 29, {KEY('a'), 8, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255}},
        {"ends early", 1, APR_E_DAMAGED, 14, {255, 255, 255, 255, 255, 255, 255, 255, 'a'}},
        {"not UTF-8", 1, APR_E_DAMAGED, 14, {KEY(0xff), 0, 0, 0, 0, 1}},
        {"not UTF-8", 1, APR_E_DAMAGED, 14, {KEY(0), 0, 0, 0, 0, 1}},
        {"cannot be in", UINT64_MAX, APR_E_DAMAGED, 14, {KEY('a'), 0, 0, 0, 0, 1}},
        {"cannot be in", 2, APR_E_DAMAGED, 14, {KEY('a'), 0, 0, 0, 0, 1}},
    };

    fixture *const f = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(read_from(f, rows[i].bytes, rows[i].n_bytes, rows[i].n_items, false), rows[i].status);
        if (strstr(f->err.text, rows[i].what) == NULL) fail_msg("row %zu: '%s' does not say '%s'", i, f->err.text, rows[i].what);
        assert_non_null(strstr(f->err.text, WHERE));
    }
}

static void big_endian_numbers_are_swapped(void **state)
{
    static const uint8_t bytes[] = {0, 0, 0, 0, 0, 0, 0, 1, 'a',  0,    0,    0,    4, 0x12, 0x34, 0x56, 0x78, /* u32 */
                                    0, 0, 0, 0, 0, 0, 0, 1, 'b',  0,    0,    0,    9, 0,    0,    0,    3,    /* array of i16 */
                                    0, 0, 0, 0, 0, 0, 0, 2, 0xff, 0xfe, 0x01, 0x00,                            /* -2, 256 */
                                    0, 0, 0, 0, 0, 0, 0, 1, 'c',  0,    0,    0,    6, 0x3f, 0x80, 0,    0};   /* 1.0f */
    fixture *const f = *state;
    int64_t i;
    double r;
    assert_int_equal(read_from(f, bytes, sizeof bytes, 3, true), APR_OK);
    assert_true(apr_kv_get_int(&f->kv, "a", &i) && i == 0x12345678);
    assert_int_equal(apr_kv_elem_int(apr_kv_find(&f->kv, "b"), 0), -2);
    assert_int_equal(apr_kv_elem_int(apr_kv_find(&f->kv, "b"), 1), 256);
    assert_true(apr_kv_get_real(&f->kv, "c", &r) && r == 1.0);
}

static void utf8_is_distinguished_from_bytes(void **state)
{
    static const struct {
        apr_str s;
        bool is_utf8;
    } rows[] = {
        {{"", 0}, true},
        {{"plain", 5}, true},
        {{"\xc4\xa0", 2}, true},
        {{"\xe2\x96\x81", 3}, true},
        {{"\xf0\x9f\x98\x80", 4}, true},
        {{"\xc4", 1}, false},
        {{"\xe2\x96", 2}, false},
        {{"\x80", 1}, false},
        {{"\xc0\x80", 2}, false},
        {{"\xe0\x80\x80", 3}, false},
        {{"\xed\xa0\x80", 3}, false},
        {{"\xf4\x90\x80\x80", 4}, false},
        {{"\xf8\x88\x80\x80\x80", 5}, false},
        {{"\xff", 1}, false},
        {{"a\xc4z", 3}, false},
        {{"\xf4\x8f\xbf\xbf", 4}, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) assert_int_equal(apr_str_is_utf8(rows[i].s), rows[i].is_utf8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_written_reads_back_byte_for_byte, setup, teardown),
        cmocka_unit_test_setup_teardown(a_number_is_only_what_it_is, setup, teardown),
        cmocka_unit_test_setup_teardown(setting_replaces_in_place_and_removing_closes_the_gap, setup, teardown),
        cmocka_unit_test_setup_teardown(every_cut_is_damage, setup, teardown),
        cmocka_unit_test_setup_teardown(hostile_items_are_refused_with_a_sentence, setup, teardown),
        cmocka_unit_test_setup_teardown(big_endian_numbers_are_swapped, setup, teardown),
        cmocka_unit_test(utf8_is_distinguished_from_bytes),
    };
    return cmocka_run_group_tests_name("kv", tests, NULL, NULL);
}
