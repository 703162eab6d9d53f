/* test_cli.c - tools/cli/cli.h, values.h, text.h, table.h, kv_text.h: arguments in, values, sentences and tables out. */
#include "tools/cli/cli.h"
#include "tools/cli/nearest.h"
#include "tools/cli/values.h"
#include "tools/report/table.h"
#include "tools/report/text.h"
#include "tools/verbs/show/kv_text.h"

#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(table) (sizeof(table) / sizeof *(table))

struct bake_options {
    bool ice, glaze;
    int64_t layers;
    uint64_t oven_bytes;
    double heat;
    const char *name;
    int flour;
    apr_strings fruits;
};

static const apr_option bake_options[] = {
    {"ice", 'i', APR_OPTION_FLAG, NULL, NULL, "ice it", APR_TO(struct bake_options, ice)},
    {"glaze", 0, APR_OPTION_FLAG, NULL, "yes", "leave out the glaze", APR_TO(struct bake_options, glaze)},
    {"layers", 'l', APR_OPTION_INT, "N", "2", "layers of the cake", .min = 1, .max = 9, APR_TO(struct bake_options, layers)},
    {"oven", 0, APR_OPTION_SIZE, "SIZE", NULL, "size of the oven", APR_TO(struct bake_options, oven_bytes), .group = "Oven"},
    {"heat", 0, APR_OPTION_REAL, "T", NULL, "heat of the oven", APR_TO(struct bake_options, heat)},
    {"name", 'n', APR_OPTION_STRING, "TEXT", NULL, "what is written on top", APR_TO(struct bake_options, name)},
    {"flour", 0, APR_OPTION_CHOICE, "rye|wheat|oat", "wheat", "kind of flour", APR_TO(struct bake_options, flour)},
    {"fruit", 0, APR_OPTION_LIST, "FRUIT", NULL, "what goes in", APR_TO(struct bake_options, fruits)},
    {0},
};

static apr_status never_run(const apr_call *call, apr_error *err)
{
    (void)call;
    return apr_fail(err, APR_E_NO, "the tests only parse");
}

static const apr_command verbs[] = {
    {"bake", "CAKE [TIN]", 1, 2, "bake a cake", bake_options, sizeof(struct bake_options), NULL, never_run},
    {"wash", "DISH", 1, 1, "wash a dish", NULL, 0, NULL, never_run},
};
static const apr_command *const kitchen_verbs[] = {&verbs[0], &verbs[1], NULL};
static const apr_tool kitchen = {"kitchen", "what a kitchen does", kitchen_verbs, NULL};

static const apr_command plain_and_verb[] = {
    {"wash", "DISH", 1, 1, "wash a dish", NULL, 0, NULL, never_run},
    {NULL, "CAKE", 1, 1, "bake a cake", bake_options, sizeof(struct bake_options), NULL, never_run},
};
static const apr_command *const oven_verbs[] = {&plain_and_verb[0], &plain_and_verb[1], NULL};
static const apr_tool oven = {"oven", "what an oven does", oven_verbs, NULL};

/* A command line as words between single spaces. */
static apr_status parse(const apr_tool *tool, const char *line, apr_parsed *parsed, apr_error *err)
{
    static char words[512];
    char *argv[32];
    int argc = 0;

    snprintf(words, sizeof words, "%s", line);
    for (char *word = words; word != NULL && *word != '\0';) {
        char *const space = strchr(word, ' ');
        argv[argc++] = word;
        if (space != NULL) *space = '\0';
        word = space != NULL ? space + 1 : NULL;
    }
    argv[argc] = NULL;
    return apr_cli_parse(tool, argc, argv, parsed, err);
}

static void whole_numbers_are_taken_whole_or_not_at_all(void **state)
{
    static const struct {
        const char *text;
        bool good;
        int64_t value;
    } cases[] = {
        {"0", true, 0},
        {"42", true, 42},
        {"-7", true, -7},
        {"128k", true, 131072},
        {"4K", true, 4096},
        {"-1k", true, -1024},
        {"131,072", true, 131072},
        {"1,000,000", true, 1000000},
        {"1,00", false, 0},
        {"1000,000", false, 0},
        {",100", false, 0},
        {"1,000,", false, 0},
        {"k", false, 0},
        {"1kk", false, 0},
        {"9007199254740992k", false, 0},
        {"9223372036854775807", true, INT64_MAX},
        {"9223372036854775808", false, 0},
        {"", false, 0},
        {"-", false, 0},
        {"+1", false, 0},
        {" 1", false, 0},
        {"1 ", false, 0},
        {"0x10", false, 0},
        {"1e3", false, 0},
        {"1.0", false, 0},
        {"abc", false, 0},
        {"--1", false, 0},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        int64_t value = 0;
        assert_int_equal(apr_parse_int(cases[i].text, &value), cases[i].good);
        if (cases[i].good) assert_int_equal(value, cases[i].value);
    }
}

static void real_numbers_are_decimal_and_finite(void **state)
{
    static const struct {
        const char *text;
        bool good;
        double value;
    } cases[] = {
        {"0.5", true, 0.5},  {"-2", true, -2.0}, {".25", true, 0.25}, {"3.", true, 3.0}, {"1e-3", true, 1e-3}, {"1E+2", true, 100.0},
        {"", false, 0},      {".", false, 0},    {"nan", false, 0},   {"inf", false, 0}, {"0x1p3", false, 0},  {"1e", false, 0},
        {"1e999", false, 0}, {"1,5", false, 0},  {"1.2.3", false, 0}, {" 1", false, 0},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        double value = 0.0;
        assert_int_equal(apr_parse_real(cases[i].text, &value), cases[i].good);
        if (cases[i].good) assert_true(value == cases[i].value);
    }
}

static void sizes_know_their_units(void **state)
{
    static const struct {
        const char *text;
        bool good;
        uint64_t bytes;
    } cases[] = {
        {"4096", true, 4096},
        {"32G", true, (uint64_t)32 << 30},
        {"1.5G", true, 3u << 29},
        {"512M", true, 512u << 20},
        {"32GiB", true, (uint64_t)32 << 30},
        {"80GB", true, 80000000000},
        {"2k", true, 2048},
        {"1T", true, (uint64_t)1 << 40},
        {"7B", true, 7},
        {"0", true, 0},
        {"", false, 0},
        {"G", false, 0},
        {"-1G", false, 0},
        {"1Q", false, 0},
        {"1 G", true, (uint64_t)1 << 30},
        {"32 GB", true, 32000000000},
        {"32 ", false, 0},
        {" 32G", false, 0},
        {"8388607T", true, (uint64_t)8388607 << 40},
        {"8388608T", false, 0},
        {"9007199254740993", true, 9007199254740993}, /* 2^53 + 1: no double */
        {"9223372036854775807", true, INT64_MAX},
        {"9223372036854775808", false, 0},
        {"99999999999999999999", false, 0},
        {"1GG", false, 0},
        {"1e3", false, 0},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        uint64_t bytes = 0;
        assert_int_equal(apr_parse_size(cases[i].text, &bytes), cases[i].good);
        if (cases[i].good) assert_int_equal(bytes, cases[i].bytes);
    }
}

static void choices_match_whole_words(void **state)
{
    (void)state;
    assert_int_equal(apr_parse_choice("f16", "f16|f32|q8_0"), 0);
    assert_int_equal(apr_parse_choice("q8_0", "f16|f32|q8_0"), 2);
    assert_int_equal(apr_parse_choice("f1", "f16|f32|q8_0"), -1);
    assert_int_equal(apr_parse_choice("f16|f32", "f16|f32|q8_0"), -1);
    assert_int_equal(apr_parse_choice("", "f16|f32|q8_0"), -1);
}

static void options_absent_hold_their_defaults(void **state)
{
    apr_parsed parsed;
    apr_error err = {0};

    (void)state;
    assert_int_equal(parse(&kitchen, "kitchen bake lemon", &parsed, &err), APR_OK);
    const struct bake_options *const o = parsed.options;
    assert_false(o->ice);
    assert_true(o->glaze);
    assert_int_equal(o->layers, 2);
    assert_int_equal(o->oven_bytes, 0);
    assert_true(isnan(o->heat));
    assert_null(o->name);
    assert_int_equal(o->flour, 1);
    assert_int_equal(o->fruits.n_items, 0);
    apr_parsed_close(&parsed);
}

static void options_and_operands_come_in_any_order(void **state)
{
    apr_parsed parsed;
    apr_error err = {0};

    (void)state;
    assert_int_equal(
        parse(&kitchen, "kitchen --json bake --fruit=fig lemon -l 3 --no-glaze --oven 2G --fruit kiwi -i --heat -1.5 --flour oat -- --tin",
              &parsed, &err),
        APR_OK);
    const struct bake_options *const o = parsed.options;
    assert_string_equal(parsed.command->verb, "bake");
    assert_true(parsed.common.json);
    assert_true(o->ice);
    assert_false(o->glaze);
    assert_int_equal(o->layers, 3);
    assert_int_equal(o->oven_bytes, 2147483648u);
    assert_true(o->heat == -1.5);
    assert_int_equal(o->flour, 2);
    assert_int_equal(o->fruits.n_items, 2);
    assert_string_equal(o->fruits.items[0], "fig");
    assert_string_equal(o->fruits.items[1], "kiwi");
    assert_int_equal(parsed.n_operands, 2);
    assert_string_equal(parsed.operands[0], "lemon");
    assert_string_equal(parsed.operands[1], "--tin");
    apr_parsed_close(&parsed);
}

static void bad_usage_gets_a_sentence_that_says_what_to_try(void **state)
{
    static const struct {
        const char *line, *sentence;
    } cases[] = {
        {"kitchen", "no verb was given; try 'kitchen --help'"},
        {"kitchen fry egg", "unknown verb 'fry'; try 'kitchen --help'"},
        {"kitchen bake", "CAKE [TIN] is missing; try 'kitchen bake --help'"},
        {"kitchen bake a b c", "unexpected argument 'c'; try 'kitchen bake --help'"},
        {"kitchen bake a --sugar", "unknown option '--sugar'; try 'kitchen bake --help'"},
        {"kitchen bake a --lay 3", "unknown option '--lay'; try 'kitchen bake --help'"}, /* too short to be near to anything */
        {"kitchen bake a --laye 3", "unknown option '--laye', the nearest is '--layers'; try 'kitchen bake --help'"},
        {"kitchen bake a --laeyrs 3", "unknown option '--laeyrs', the nearest is '--layers'; try 'kitchen bake --help'"},
        {"kitchen bake a -ix", "unknown option '-ix'; try 'kitchen bake --help'"},
        {"kitchen bake a -il", "--layers needs a value: N; try 'kitchen bake --help'"},
        {"kitchen bake a --layers", "--layers needs a value: N; try 'kitchen bake --help'"},
        {"kitchen bake a --layers --ice", "--layers needs a value: N; try 'kitchen bake --help'"},
        {"kitchen bake a --layers=2x", "--layers: '2x' is not a whole number; try 'kitchen bake --help'"},
        {"kitchen bake a --layers=", "--layers: '' is not a whole number; try 'kitchen bake --help'"},
        {"kitchen bake a --layers 12", "--layers: 12 is not between 1 and 9; try 'kitchen bake --help'"},
        {"kitchen bake a --heat hot", "--heat: 'hot' is not a number; try 'kitchen bake --help'"},
        {"kitchen bake a --oven big", "--oven: 'big' is not a size such as 512M, 1.5G or 32GiB; try 'kitchen bake --help'"},
        {"kitchen bake a --oven 0", "--oven: 0 is not allowed; leave the option out; try 'kitchen bake --help'"},
        {"kitchen bake a --flour corn", "--flour: 'corn' is not one of rye|wheat|oat; try 'kitchen bake --help'"},
        {"kitchen bake a --ice=yes", "--ice takes no value; try 'kitchen bake --help'"},
        {"kitchen bake a --no-layers", "unknown option '--no-layers'; try 'kitchen bake --help'"},
        {"kitchen wash --ice a", "unknown option '--ice'; try 'kitchen wash --help'"},
        {"kitchen bkae egg", "unknown verb 'bkae'; try 'kitchen --help'"},
        {"kitchen wish --help", "unknown verb 'wish'; try 'kitchen --help'"},
        {"kitchen quantize", "quantize: not a verb of this tool; use 'aprquant'; try 'aprquant --help'"},
        {"kitchen help hlep", "unknown verb 'hlep'; try 'kitchen --help'"},
        {"kitchen help bake wash", "unexpected argument 'wash'; try 'kitchen --help'"},
        {"kitchen help --ice", "unknown option '--ice'; try 'kitchen --help'"},
        {"kitchen bake a --flour=rye --fruits=fig", "unknown option '--fruits=fig', the nearest is '--fruit'; try 'kitchen bake --help'"},
        {"oven washs plate", "unknown verb 'washs', the nearest is 'wash'; try 'oven --help'"},
        {"oven washs", "unknown verb 'washs', the nearest is 'wash'; try 'oven --help'"},
        {"oven lemon tin", "unknown verb 'lemon'; try 'oven --help'"},
        {"oven tests tin", "unexpected argument 'tin'; try 'oven --help'"},
        {"oven ./lemon tin", "unexpected argument 'tin'; try 'oven --help'"},
        {"oven -- lemon tin", "unexpected argument 'tin'; try 'oven --help'"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        apr_parsed parsed;
        apr_error err = {0};
        assert_int_equal(parse(strncmp(cases[i].line, "oven", 4) == 0 ? &oven : &kitchen, cases[i].line, &parsed, &err), APR_E_USAGE);
        assert_string_equal(err.text, cases[i].sentence);
        apr_parsed_close(&parsed);
    }
}

static void a_tool_may_work_without_a_verb(void **state)
{
    static const struct {
        const char *line, *verb, *operand;
    } cases[] = {
        {"oven lemon", NULL, "lemon"},
        {"oven wash plate", "wash", "plate"},
        {"oven -n wash lemon", NULL, "lemon"},
        {"oven -- wash", NULL, "wash"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        apr_parsed parsed;
        apr_error err = {0};
        assert_int_equal(parse(&oven, cases[i].line, &parsed, &err), APR_OK);
        if (cases[i].verb == NULL) assert_null(parsed.command->verb);
        else assert_string_equal(parsed.command->verb, cases[i].verb);
        assert_string_equal(parsed.operands[0], cases[i].operand);
        apr_parsed_close(&parsed);
    }
}

static void asking_for_help_excuses_missing_operands(void **state)
{
    static const char *const lines[] = {"kitchen --help", "kitchen bake -h",   "kitchen --version", "oven --help",
                                        "kitchen help",   "kitchen help bake", "kitchen help help", "oven help wash"};
    (void)state;
    for (size_t i = 0; i < COUNT(lines); i++) {
        apr_parsed parsed;
        apr_error err = {0};
        assert_int_equal(parse(strncmp(lines[i], "oven", 4) == 0 ? &oven : &kitchen, lines[i], &parsed, &err), APR_OK);
        assert_true(parsed.common.help || parsed.common.version);
        apr_parsed_close(&parsed);
    }
}

static void help_is_a_verb_of_every_tool(void **state)
{
    static const struct {
        const apr_tool *tool;
        const char *line;
        const apr_command *command; /* whose page */
        bool help;
    } cases[] = {
        {&kitchen, "kitchen help", NULL, true},
        {&kitchen, "kitchen help wash", &verbs[1], true},
        {&kitchen, "kitchen --json help wash", &verbs[1], true},
        {&oven, "oven help", &plain_and_verb[1], true},
        {&oven, "oven help wash", &plain_and_verb[0], true},
        {&oven, "oven -- help", &plain_and_verb[1], false}, /* a cake of that name */
        {&oven, "oven -i help", &plain_and_verb[1], false},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        apr_parsed parsed;
        apr_error err = {0};
        assert_int_equal(parse(cases[i].tool, cases[i].line, &parsed, &err), APR_OK);
        assert_ptr_equal(parsed.command, cases[i].command);
        assert_int_equal(parsed.common.help, cases[i].help);
        apr_parsed_close(&parsed);
    }
}

static void edits_are_counted_and_only_near_words_are_named(void **state)
{
    static const struct {
        const char *a, *b;
        int edits;
    } cases[] = {{"", "", 0},      {"", "abc", 3},     {"abc", "abc", 0},   {"abc", "abd", 1},         {"abc", "acb", 1},
                 {"abc", "ab", 1}, {"abc", "xabc", 1}, {"show", "shwo", 1}, {"convert", "covnret", 2}, {"kitten", "sitting", 3},
                 {"ca", "abc", 3}};
    static const char *const words[] = {"convert", "check", "diff", "top-p", "max-shard"};
    char long_word[APR_NEAREST_MAX + 2];

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_int_equal(apr_edit_distance(cases[i].a, cases[i].b), cases[i].edits);
        assert_int_equal(apr_edit_distance(cases[i].b, cases[i].a), cases[i].edits);
    }
    assert_string_equal(apr_nearest("conv", words, 3), "convert");
    assert_string_equal(apr_nearest("chekc", words, 3), "check");
    assert_null(apr_nearest("dif", words, 3)); /* short words are near to much that is not meant */
    assert_null(apr_nearest("top-k", words, 5));
    assert_string_equal(apr_nearest("maxshards", words, 5), "max-shard"); /* 9 letters: two edits */
    assert_null(apr_nearest("chkcc", words, 3));                          /* 5 letters: one */
    assert_null(apr_nearest("bake", words, 3));
    assert_null(apr_nearest("", words, 3));
    memset(long_word, 'c', sizeof long_word - 1);
    long_word[sizeof long_word - 1] = '\0';
    assert_null(apr_nearest(long_word, words, 3));
    assert_int_equal(apr_edit_distance(long_word, "c"), INT_MAX);
}

/* What print writes, as one string. */
static char *printed(void (*print)(FILE *))
{
    static char text[4096];
    FILE *const f = tmpfile();
    assert_non_null(f);
    print(f);
    rewind(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    return text;
}

static void print_usage(FILE *out) { apr_cli_usage(&kitchen, &verbs[0], out); }

static void help_is_grouped_aligned_and_names_the_defaults(void **state)
{
    (void)state;
    assert_string_equal(printed(print_usage),
                        "kitchen bake - bake a cake\n"
                        "\nUsage\n  kitchen bake [options] CAKE [TIN]\n"
                        "\nOptions\n"
                        "  -i, --ice                  ice it\n"
                        "      --no-glaze             leave out the glaze\n"
                        "  -l, --layers N             layers of the cake (default 2)\n"
                        "\nOven\n"
                        "      --oven SIZE            size of the oven\n"
                        "      --heat T               heat of the oven\n"
                        "  -n, --name TEXT            what is written on top\n"
                        "      --flour rye|wheat|oat  kind of flour (default wheat)\n"
                        "      --fruit FRUIT          what goes in (may be repeated)\n"
                        "\nCommon\n"
                        "      --json                 print one JSON object on stdout, even on failure\n"
                        "  -q, --quiet                no progress and no summary; losses are still reported\n"
                        "  -v, --verbose              print more notes, also about options without effect\n"
                        "      --progress             progress lines on stderr even if it is not a terminal\n"
                        "      --color[=auto|always|never]\n"
                        "                             colors and bold text; auto: on a terminal, unless NO_COLOR is set\n"
                        "  -h, --help                 this help; -h: a short version of it\n"
                        "  -V, --version              version and build information\n"
                        "      --license              the license\n");
}

static void sizes_and_counts_read_well(void **state)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } sizes[] = {{0, "0 B"},
                 {1023, "1023 B"},
                 {1024, "1.00 KiB"},
                 {1536, "1.50 KiB"},
                 {1048575, "1.00 MiB"},
                 {(uint64_t)16 << 30, "16.00 GiB"},
                 {UINT64_MAX, "16777216.00 TiB"}};
    static const struct {
        int64_t n;
        const char *count, *magnitude;
    } counts[] = {{0, "0", "0"},
                  {999, "999", "999"},
                  {1000, "1,000", "1.00 K"},
                  {1712896, "1,712,896", "1.71 M"},
                  {7615616512, "7,615,616,512", "7.62 B"},
                  {-1234, "-1,234", "-1,234"}};
    char text[APR_SMALL_TEXT];

    (void)state;
    for (size_t i = 0; i < COUNT(sizes); i++) assert_string_equal(apr_size_text(text, sizes[i].bytes), sizes[i].text);
    for (size_t i = 0; i < COUNT(counts); i++) {
        assert_string_equal(apr_count_text(text, counts[i].n), counts[i].count);
        assert_string_equal(apr_magnitude_text(text, counts[i].n), counts[i].magnitude);
    }
}

static void foreign_text_cannot_move_the_cursor(void **state)
{
    static const struct {
        const char *raw, *clean;
        int columns;
    } cases[] = {
        {"plain", "plain", 5},
        {"a\nb\tc", "a\\nb\\tc", 7},
        {"\033[31mred", "\\x1b[31mred", 11},
        {"\xff\xfe", "\\xff\\xfe", 8},
        {"caf\xc3\xa9", "caf\xc3\xa9", 4},                           /* é */
        {"\xe6\xa8\xa1\xe5\x9e\x8b", "\xe6\xa8\xa1\xe5\x9e\x8b", 4}, /* two wide characters */
        {"\xe2\x80\xae"
         "abc",
         "\\xe2\\x80\\xae"
         "abc",
         15},                          /* right-to-left override */
        {"\xe6\xa8", "\\xe6\\xa8", 8}, /* cut off inside a character */
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char clean[64];
        apr_clean_text(clean, sizeof clean, cases[i].raw, strlen(cases[i].raw));
        assert_string_equal(clean, cases[i].clean);
        assert_int_equal(apr_text_columns(clean), cases[i].columns);
    }
}

static void arguments_of_a_printf_are_cleaned(void **state)
{
    static const char safe[] = "model \xc3\xa4.gguf";
    char many[5000];
    (void)state;
    assert_ptr_equal(apr_printable(safe), safe);
    const char *const first = apr_printable("d\033[31m"), *const second = apr_printable("d\n");
    assert_string_equal(first, "d\\x1b[31m");
    assert_string_equal(second, "d\\n");
    memset(many, '\033', sizeof many - 1);
    many[sizeof many - 1] = '\0';
    assert_true(strlen(apr_printable(many)) < 4096);
    assert_null(strchr(apr_printable(many), '\033'));
}

/* However the text is cut into pieces. */
static void a_models_text_cannot_move_the_cursor(void **state)
{
    static const struct {
        const char *raw, *clean;
    } cases[] = {
        {"plain\n\ttext", "plain\n\ttext"},
        {"\033[2J\a\x7f", "\\x1b[2J\\x07\\x7f"},
        {"a\r\nb\rc\r", "a\r\nb\\x0dc\\x0d"},
        {"\r\r\n", "\\x0d\r\n"},
        {"\xc2\x9b"
         "31m",
         "\\xc2\\x9b31m"},
        {"\xc2\xa0\xc3\xa4\xe6\xa8\xa1", "\xc2\xa0\xc3\xa4\xe6\xa8\xa1"},
        {"\xc2\xc2\x85\xc2", "\xc2\\xc2\\x85\xc2"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        const size_t n = strlen(cases[i].raw);
        for (size_t step = 1; step <= n; step++) {
            apr_terminal_text terminal = {0};
            char clean[256];
            size_t at = 0;
            for (size_t from = 0; from < n; from += step)
                at += apr_terminal_clean(&terminal, clean + at, cases[i].raw + from, n - from < step ? n - from : step, false);
            at += apr_terminal_clean(&terminal, clean + at, "", 0, true);
            assert_int_equal(at, strlen(cases[i].clean));
            assert_memory_equal(clean, cases[i].clean, at);
        }
    }
}

static void long_text_is_shortened_between_characters(void **state)
{
    char *const small = malloc(8); /* exact: the sanitizer guards the end */
    char text[64];

    (void)state;
    assert_string_equal(apr_short_text(text, sizeof text, "abcdefgh", 8, 8), "abcdefgh");
    assert_string_equal(apr_short_text(text, sizeof text, "abcdefghi", 9, 8), "abcde...");
    assert_string_equal(apr_short_text(text, sizeof text, "\xe6\xa8\xa1\xe5\x9e\x8b\xe6\xa8\xa1", 9, 5), "\xe6\xa8\xa1...");
    assert_string_equal(apr_clean_text(small, 8, "\xe6\xa8\xa1\xe5\x9e\x8b\xe6\xa8\xa1", 9), "\xe6\xa8\xa1\xe5\x9e\x8b");
    assert_string_equal(apr_short_text(small, 8, "abcdefghi", 9, 100), "abcd...");
    free(small);
}

static void print_table(FILE *out)
{
    static const apr_column columns[] = {{"name", false}, {"size", true}, {"note", false}};
    apr_table table;

    apr_table_start(&table, columns, COUNT(columns));
    static const char *const cells[] = {"\xe6\xa8\xa1", "12", "wide", "plain", "7", "", "x\n", "100"};
    for (size_t i = 0; i < COUNT(cells); i++) apr_table_cell(&table, "%s", cells[i]);
    assert_int_equal(apr_table_print(&table, out, 2, NULL), APR_OK);
}

static void tables_are_aligned_by_terminal_columns(void **state)
{
    (void)state;
    assert_string_equal(printed(print_table), "  name   size  note\n"
                                              "  \xe6\xa8\xa1       12  wide\n"
                                              "  plain     7\n"
                                              "  x\\n     100\n");
}

static void metadata_is_shortened_for_people_and_whole_for_programs(void **state)
{
    static const uint16_t small[] = {1, 2, 65535};
    static const uint64_t large[] = {UINT64_MAX};
    static const apr_str words[] = {{"a b", 3}, {"\xff\"", 2}};
    static const apr_str long_word = {"0123456789012345678901234567890123456789012345678901234567890123456789", 70};
    const struct {
        apr_kv kv;
        const char *type, *text, *json;
    } cases[] = {
        {{.type = APR_KV_U32, .value.bits = 7}, "u32", "7", "7"},
        {{.type = APR_KV_I32, .value.bits = 0xffffffff}, "i32", "-1", "-1"},
        {{.type = APR_KV_U64, .value.bits = UINT64_MAX}, "u64", "18446744073709551615", "18446744073709551615"},
        {{.type = APR_KV_F32, .value.bits = 0x3f000000}, "f32", "0.5", "0.5"},
        {{.type = APR_KV_BOOL, .value.bits = 1}, "bool", "true", "true"},
        {{.type = APR_KV_STRING, .value.string = {"x\033", 2}}, "string", "x\\x1b", "\"x\\u001b\""},
        {{.type = APR_KV_STRING, .value.string = long_word},
         "string",
         "012345678901234567890123456789012345678901234...",
         "\"0123456789012345678901234567890123456789012345678901234567890123456789\""},
        {{.type = APR_KV_ARRAY, .elem_type = APR_KV_U16, .n_elems = 3, .value.numbers = small}, "u16[3]", "1 2 65535", "[1,2,65535]"},
        {{.type = APR_KV_ARRAY, .elem_type = APR_KV_U64, .n_elems = 1, .value.numbers = large},
         "u64[1]",
         "18446744073709551615",
         "[18446744073709551615]"},
        {{.type = APR_KV_ARRAY, .elem_type = APR_KV_STRING, .n_elems = 2, .value.strings = words},
         "string[2]",
         "\"a b\" \"\\xff\"\"",
         "[\"a b\",\"\xef\xbf\xbd\\\"\"]"},
        {{.type = APR_KV_ARRAY, .elem_type = APR_KV_U8}, "u8[0]", "", "[]"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        apr_json_text out = {0};
        char text[APR_KV_TEXT];

        assert_string_equal(apr_kv_type_text(&cases[i].kv, text, sizeof text), cases[i].type);
        assert_string_equal(apr_kv_text(&cases[i].kv, text), cases[i].text);
        apr_kv_json(&out, NULL, &cases[i].kv);
        char *const json = apr_json_text_take(&out, NULL);
        assert_non_null(json);
        assert_string_equal(json, cases[i].json);
        free(json);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_numbers_are_taken_whole_or_not_at_all),
        cmocka_unit_test(real_numbers_are_decimal_and_finite),
        cmocka_unit_test(sizes_know_their_units),
        cmocka_unit_test(choices_match_whole_words),
        cmocka_unit_test(options_absent_hold_their_defaults),
        cmocka_unit_test(options_and_operands_come_in_any_order),
        cmocka_unit_test(bad_usage_gets_a_sentence_that_says_what_to_try),
        cmocka_unit_test(a_tool_may_work_without_a_verb),
        cmocka_unit_test(asking_for_help_excuses_missing_operands),
        cmocka_unit_test(help_is_a_verb_of_every_tool),
        cmocka_unit_test(edits_are_counted_and_only_near_words_are_named),
        cmocka_unit_test(help_is_grouped_aligned_and_names_the_defaults),
        cmocka_unit_test(sizes_and_counts_read_well),
        cmocka_unit_test(foreign_text_cannot_move_the_cursor),
        cmocka_unit_test(arguments_of_a_printf_are_cleaned),
        cmocka_unit_test(a_models_text_cannot_move_the_cursor),
        cmocka_unit_test(long_text_is_shortened_between_characters),
        cmocka_unit_test(tables_are_aligned_by_terminal_columns),
        cmocka_unit_test(metadata_is_shortened_for_people_and_whole_for_programs),
    };
    return cmocka_run_group_tests_name("cli", tests, NULL, NULL);
}
