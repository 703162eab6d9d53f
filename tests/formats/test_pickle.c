/* formats/torch/pickle.h: pickles of weights are described, and whatever else a pickle asks for is refused by its name. */
#include "formats/torch/pickle.h"
#include "tests/support/work_folder.h"

/* --- helpers --- */

static bool may_name(apr_str name) { return apr_str_is(name, "torch FloatStorage") || apr_str_is(name, "torch._utils rebuild"); }
static bool may_call(apr_str name) { return apr_str_is(name, "torch._utils rebuild"); }
static const apr_pickle_rules rules = {may_name, may_call};

/* A pickle's text: a literal without its last zero. */
#define PICKLE(text) text, sizeof text - 1

static apr_status read_pickle(const char *bytes, size_t n_bytes, apr_pickle *p, apr_arena *arena, apr_error *err)
{
    uint8_t *const copy = apr_arena_alloc(arena, n_bytes);
    apr_cursor in = {.data = copy, .n_bytes = n_bytes};

    memcpy(copy, bytes, n_bytes);
    *err = (apr_error){0};
    return apr_pickle_read(p, &in, &rules, "test", arena, err);
}

static void assert_refused(const char *bytes, size_t n_bytes, apr_status wanted, const char *words)
{
    apr_arena arena = {0};
    apr_error err;
    apr_pickle p;

    const apr_status status = read_pickle(bytes, n_bytes, &p, &arena, &err);
    if (strstr(err.text, words) == NULL) fail_msg("'%s' does not say '%s'", err.text, words);
    assert_int_equal(status, wanted);
    apr_arena_close(&arena);
}

static const apr_pickle_node *read_ok(const char *bytes, size_t n_bytes, apr_arena *arena)
{
    apr_error err;
    apr_pickle p;

    if (read_pickle(bytes, n_bytes, &p, arena, &err) != APR_OK) fail_msg("%s", err.text);
    return p.root;
}

/* --- what weights need --- */

static void plain_values_are_read(void **state)
{
    apr_arena arena = {0};
    /* [None, True, 7, 258, -2, -3, 1.5, "ab", 10 ** 20] as Python's pickle.dumps(.., 2) writes it, but for -3, here a LONG1 */
    const apr_pickle_node *const list =
        read_ok(PICKLE("\x80\x02]q\x00(N\x88K\x07M\x02\x01J\xfe\xff\xff\xff\x8a\x01\xfdG?\xf8\x00\x00\x00\x00\x00\x00X\x02\x00\x00\x00"
                       "abq\x01\x8a\x09\x00\x00\x10"
                       "c-^\xc7k\x05"
                       "e."),
                &arena);

    (void)state;
    assert_int_equal(list->kind, APR_PICKLE_LIST);
    assert_int_equal(list->n_items, 9);
    assert_int_equal(list->items[0]->kind, APR_PICKLE_NONE);
    assert_int_equal(list->items[1]->kind, APR_PICKLE_BOOL);
    assert_int_equal(list->items[1]->integer, 1);
    assert_int_equal(list->items[2]->integer, 7);
    assert_int_equal(list->items[3]->integer, 258);
    assert_int_equal(list->items[4]->integer, -2);
    assert_int_equal(list->items[5]->integer, -3);
    assert_true(list->items[6]->real == 1.5);
    assert_true(apr_pickle_is_text(list->items[7], "ab"));
    assert_int_equal(list->items[8]->kind, APR_PICKLE_BIG);
    apr_arena_close(&arena);
}

static void tuples_keep_the_order_of_their_parts(void **state)
{
    apr_arena arena = {0};
    const apr_pickle_node *const t = read_ok(PICKLE("\x80\x02(K\x01K\x02K\x03K\x04tK\x05\x86."), &arena);

    (void)state;
    assert_int_equal(t->n_items, 2);
    assert_int_equal(t->items[0]->n_items, 4);
    for (int i = 0; i < 4; i++) assert_int_equal(t->items[0]->items[i]->integer, i + 1);
    assert_int_equal(t->items[1]->integer, 5);
    apr_arena_close(&arena);
}

static void an_ordered_dict_is_a_dict_and_loses_its_notes(void **state)
{
    apr_arena arena = {0};
    /* OrderedDict(), "k": 1, then a state {"_metadata": 2}, of protocol 4 */
    const apr_pickle_node *const d =
        read_ok(PICKLE("\x80\x04\x95\x30\x00\x00\x00\x00\x00\x00\x00\x8c\x0b"
                       "collections\x94\x8c\x0bOrderedDict\x94\x93\x94)R\x94\x8c\x01kK\x01s}\x8c\x09_metadataK\x02sb."),
                &arena);

    (void)state;
    assert_int_equal(d->kind, APR_PICKLE_DICT);
    assert_int_equal(d->n_items, 2);
    assert_true(apr_pickle_is_text(d->items[0], "k"));
    assert_int_equal(d->items[1]->integer, 1);
    apr_arena_close(&arena);
}

static void an_ordered_dict_of_pairs_is_a_dict(void **state)
{
    apr_arena arena = {0};
    /* OrderedDict([["a", 1], ["b", 2]]), as Python 2 wrote it */
    const apr_pickle_node *const d = read_ok(PICKLE("\x80\x02"
                                                    "ccollections\nOrderedDict\n](](U\x01"
                                                    "aK\x01"
                                                    "e](U\x01"
                                                    "bK\x02"
                                                    "ee\x85R."),
                                             &arena);

    (void)state;
    assert_int_equal(d->kind, APR_PICKLE_DICT);
    assert_int_equal(d->n_items, 4);
    assert_true(apr_pickle_is_text(d->items[2], "b"));
    assert_int_equal(d->items[3]->integer, 2);
    apr_arena_close(&arena);
}

static void a_call_that_is_allowed_becomes_a_node(void **state)
{
    apr_arena arena = {0};
    apr_error err;
    apr_pickle p;

    (void)state;
    assert_int_equal(read_pickle(PICKLE("\x80\x02"
                                        "ctorch._utils\nrebuild\nq\x00(U\x01xQK\x07tR."),
                                 &p, &arena, &err),
                     APR_OK);
    assert_int_equal(p.root->kind, APR_PICKLE_CALL);
    assert_true(apr_str_is(p.root->text, "torch._utils rebuild"));
    assert_int_equal(p.root->n_items, 2);
    assert_int_equal(p.n_stored, 1);
    assert_ptr_equal(p.root->items[0], p.stored[0]);
    assert_true(apr_pickle_is_text(p.stored[0]->items[0], "x"));
    apr_arena_close(&arena);
}

static void what_was_remembered_is_shared(void **state)
{
    apr_arena arena = {0};
    const apr_pickle_node *const t = read_ok(PICKLE("\x80\x04]\x94h\x00r\x05\x00\x00\x00j\x05\x00\x00\x00\x87."), &arena);

    (void)state;
    assert_ptr_equal(t->items[0], t->items[1]);
    assert_ptr_equal(t->items[1], t->items[2]);
    apr_arena_close(&arena);
}

/* --- what is refused --- */

static void code_is_refused_by_its_name(void **state)
{
    (void)state;
    assert_refused(PICKLE("\x80\x02"
                          "cos\nsystem\nU\x02ls\x85R."),
                   APR_E_UNSUPPORTED, "asks to import os.system, which weights do not need; refused: nothing is executed");
    assert_refused(PICKLE("\x80\x04\x8c\x05posix\x94\x8c\x06system\x94\x93\x8c\x02ls\x85R."), APR_E_UNSUPPORTED, "import posix.system");
    assert_refused(PICKLE("\x80\x02"
                          "cbuiltins\neval\n."),
                   APR_E_UNSUPPORTED, "import builtins.eval");
    assert_refused(PICKLE("\x80\x02"
                          "ctorch\nFloatStorage\n)R."),
                   APR_E_UNSUPPORTED, "call torch.FloatStorage");
    assert_refused(PICKLE("\x80\x02(ios\nsystem\n."), APR_E_UNSUPPORTED, "asks to make an object (INST at byte 3)");
    assert_refused(PICKLE("\x80\x02"
                          "ctorch\nFloatStorage\n)\x81."),
                   APR_E_UNSUPPORTED, "asks to make an object (NEWOBJ");
    assert_refused(PICKLE("\x80\x02"
                          "ctorch._utils\nrebuild\n)R}b."),
                   APR_E_UNSUPPORTED, "set the state of torch._utils.rebuild");
    assert_refused(PICKLE("\x80\x02\x82\x01."), APR_E_UNSUPPORTED, "EXT1");
}

static void other_protocols_and_operations_are_named(void **state)
{
    (void)state;
    assert_refused(PICKLE("\x80\x06N."), APR_E_UNSUPPORTED, "protocol 6; supported are 2 to 5");
    assert_refused(PICKLE("I1\n."), APR_E_DAMAGED, "has 0x49 at byte 0");
    assert_refused(PICKLE("\x80\x02\xff."), APR_E_DAMAGED, "has 0xff at byte 2");
}

static void a_senseless_pickle_is_damage(void **state)
{
    (void)state;
    assert_refused(PICKLE("\x80\x02."), APR_E_DAMAGED, "leaves more or less than one object");
    assert_refused(PICKLE("\x80\x02NN."), APR_E_DAMAGED, "leaves more or less than one object");
    assert_refused(PICKLE("\x80\x02(N."), APR_E_DAMAGED, "leaves more or less than one object");
    assert_refused(PICKLE("\x80\x02N\x86."), APR_E_DAMAGED, "pops more than its stack holds");
    assert_refused(PICKLE("\x80\x02]N(a."), APR_E_DAMAGED, "pops more than its stack holds"); /* under the mark */
    assert_refused(PICKLE("\x80\x02t."), APR_E_DAMAGED, "uses a mark that it did not set");
    assert_refused(PICKLE("(t(t."), APR_E_DAMAGED, "leaves more or less than one object");
    assert_refused(PICKLE("\x80\x02h\x00."), APR_E_DAMAGED, "reads a memo entry that was not set");
    assert_refused(PICKLE("\x80\x02q\x00."), APR_E_DAMAGED, "pops more than its stack holds");
    assert_refused(PICKLE("\x80\x02Nr\xff\xff\xff\x7f."), APR_E_DAMAGED, "has a memo index larger than its length");
    assert_refused(PICKLE("\x80\x02}(Nu."), APR_E_DAMAGED, "a key without a value");
    assert_refused(PICKLE("\x80\x02NNa."), APR_E_DAMAGED, "adds to something that is not a list or dict");
    assert_refused(PICKLE("\x80\x02NNR."), APR_E_DAMAGED, "calls something that is not a function");
    assert_refused(PICKLE("\x80\x02NN\x93."), APR_E_DAMAGED, "has a name that is not a text");
    assert_refused(PICKLE("\x80\x02X\xff\xff\xff\xff"
                          "abc."),
                   APR_E_DAMAGED, "is cut off");
    assert_refused(PICKLE("\x80\x02\x8d\xff\xff\xff\xff\xff\xff\xff\xff"
                          "abc."),
                   APR_E_DAMAGED, "is cut off");
    assert_refused(PICKLE("\x80\x02"
                          "ccollections"),
                   APR_E_DAMAGED, "is cut off");
    assert_refused(PICKLE("\x80\x02"), APR_E_DAMAGED, "is cut off");
    assert_refused(PICKLE("\x80\x02"
                          "ctorch\0\nFloatStorage\n."),
                   APR_E_DAMAGED, "with a zero byte");
}

/* Each of 20,000 lists in the next: nothing here recurses. */
static void depth_costs_no_stack(void **state)
{
    enum { DEPTH = 20000 };
    char *const bytes = malloc(2 * DEPTH + 3);
    apr_arena arena = {0};
    size_t n = 0;

    (void)state;
    bytes[n++] = '\x80', bytes[n++] = 2;
    for (int i = 0; i < DEPTH; i++) bytes[n++] = ']';
    for (int i = 0; i < DEPTH - 1; i++) bytes[n++] = 'a';
    bytes[n++] = '.';
    assert_int_equal(read_ok(bytes, n, &arena)->n_items, 1);
    apr_arena_close(&arena);
    free(bytes);
}

/* A list of 1,000 pairs, made a dict of 1,000 times, by five bytes each. */
static void one_list_does_not_become_many_dicts(void **state)
{
    char bytes[20000];
    size_t n = 0;

    (void)state;
    n += (size_t)sprintf(bytes + n, "\x80\x02%s", "ccollections\nOrderedDict\nq");
    bytes[n++] = 0, bytes[n++] = '(', bytes[n++] = 'N', bytes[n++] = 'N', bytes[n++] = 't', bytes[n++] = 'q', bytes[n++] = 1;
    bytes[n++] = '(';
    for (int i = 0; i < 1000; i++) bytes[n++] = 'h', bytes[n++] = 1;
    bytes[n++] = 't', bytes[n++] = '\x85', bytes[n++] = 'q', bytes[n++] = 2;
    for (int i = 0; i < 1000; i++) memcpy(bytes + n, "h\0h\2R", 5), n += 5;
    bytes[n++] = '.';
    assert_refused(bytes, n, APR_E_DAMAGED, "copies one list into too many dicts");
}

static void a_pickle_cut_anywhere_is_damaged(void **state)
{
    static const char whole[] = "\x80\x02"
                                "ccollections\nOrderedDict\nq\x00)R(X\x01\x00\x00\x00wctorch._utils\nrebuild\n(U\x01xQJ\x01\x00\x00\x00t"
                                "R\x8a\x01\x02G?\xf8\x00\x00\x00\x00\x00\x00u";
    (void)state;
    for (size_t n = 0; n < sizeof whole - 1; n++) assert_refused(whole, n, APR_E_DAMAGED, "is cut off");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_values_are_read),
        cmocka_unit_test(tuples_keep_the_order_of_their_parts),
        cmocka_unit_test(an_ordered_dict_is_a_dict_and_loses_its_notes),
        cmocka_unit_test(an_ordered_dict_of_pairs_is_a_dict),
        cmocka_unit_test(a_call_that_is_allowed_becomes_a_node),
        cmocka_unit_test(what_was_remembered_is_shared),
        cmocka_unit_test(code_is_refused_by_its_name),
        cmocka_unit_test(other_protocols_and_operations_are_named),
        cmocka_unit_test(a_senseless_pickle_is_damage),
        cmocka_unit_test(depth_costs_no_stack),
        cmocka_unit_test(one_list_does_not_become_many_dicts),
        cmocka_unit_test(a_pickle_cut_anywhere_is_damaged),
    };
    return cmocka_run_group_tests_name("pickle", tests, NULL, NULL);
}
