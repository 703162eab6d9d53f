/* formats/hf/safetensors.h: tokenizer.json and its companions to a vocabulary and back; what cannot be expressed is not guessed. */
#include "formats/base/json.h"
#include "formats/hf/safetensors.h"
#include "formats/vocab/hf_tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* --- helpers --- */

enum { MAX_FILES = 5 };

typedef struct files {
    const char *tokenizer, *tokenizer_config, *generation_config, *config, *template;
    int64_t vocab_size;
} files;

/* Each text in a buffer of its exact size. */
static apr_status read_files(files f, apr_vocab *vocab, apr_arena *arena, apr_error *err)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json", "generation_config.json", "config.json",
                                        "chat_template.jinja"};
    const char *const texts[] = {f.tokenizer, f.tokenizer_config, f.generation_config, f.config, f.template};
    apr_attachment attachments[MAX_FILES];
    uint8_t *copies[MAX_FILES];
    size_t n = 0;

    for (int i = 0; i < MAX_FILES; i++) {
        if (texts[i] == NULL) continue;
        const size_t n_bytes = strlen(texts[i]);
        copies[n] = malloc(n_bytes > 0 ? n_bytes : 1);
        assert_non_null(copies[n]);
        memcpy(copies[n], texts[i], n_bytes);
        attachments[n] = (apr_attachment){names[i], copies[n], n_bytes};
        n++;
    }
    const apr_model model = {.path = "test", .attachments = attachments, .n_attachments = n, .hparams.vocab_size = f.vocab_size};
    const apr_status status = apr_hf_vocab_read(&model, vocab, arena, err);
    for (size_t i = 0; i < n; i++) free(copies[i]);
    return status;
}

static void read_ok(files f, apr_vocab *vocab, apr_arena *arena)
{
    apr_error err = {0};
    if (read_files(f, vocab, arena, &err) != APR_OK) fail_msg("%s", err.text);
}

#define BYTE_LEVEL      "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}"
#define SPLIT(r)        "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" r "\"},\"behavior\":\"Isolated\",\"invert\":false}"
#define SEQUENCE(steps) "{\"type\":\"Sequence\",\"pretokenizers\":[" steps "]}"
#define MODEL           "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"<s>\":3,\"</s>\":4},\"merges\":[\"a b\"]}"
#define SPM_MODEL                                                                                                                      \
    "{\"type\":\"BPE\",\"byte_fallback\":true,\"unk_token\":\"<unk>\",\"vocab\":{\"<unk>\":0,\"<0x41>\":1,\"\xe2\x96\x81\":2,\"a\":3," \
    "\"\xe2\x96\x81"                                                                                                                   \
    "a\":4},\"merges\":[[\"\xe2\x96\x81\",\"a\"]]}"
#define STEP(type) "{\"type\":\"" type "\"}"
#define WHOLE(normalizer, pre, post, model) \
    "{\"normalizer\":" normalizer ",\"pre_tokenizer\":" pre ",\"post_processor\":" post ",\"added_tokens\":[],\"model\":" model "}"
#define BPE                WHOLE("null", SEQUENCE(SPLIT("x+") "," BYTE_LEVEL), "null", MODEL)
#define PREPEND            "{\"type\":\"Prepend\",\"prepend\":\"\xe2\x96\x81\"}"
#define REPLACE            "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\xe2\x96\x81\"}"
#define NORMALIZERS(steps) "{\"type\":\"Sequence\",\"normalizers\":[" steps "]}"
#define METASPACE(scheme, split) \
    "{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\",\"prepend_scheme\":\"" scheme "\",\"split\":" split "}"

/* --- which tokenizers are understood --- */

static void only_what_can_be_expressed_has_a_kind(void **state)
{
    static const struct {
        const char *text;
        apr_vocab_kind kind;
        const char *pattern;
        bool nfc, prefix, after_added, escape;
    } cases[] = {
        {BPE, APR_VOCAB_BPE, "x+", false, false, false, false},
        {WHOLE("{\"type\":\"NFC\"}", BYTE_LEVEL, "null", MODEL), APR_VOCAB_BPE, NULL, true, false, false, false},
        {WHOLE(NORMALIZERS("{\"type\":\"NFC\"}"), BYTE_LEVEL, "null", MODEL), APR_VOCAB_BPE, NULL, true, false, false, false},
        {WHOLE("null", "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}", "null", MODEL), APR_VOCAB_BPE,
         "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", false, false, false, false},
        {WHOLE(NORMALIZERS(PREPEND "," REPLACE), "null", "null", SPM_MODEL), APR_VOCAB_SPM, NULL, false, true, true, true},
        {WHOLE(REPLACE, "null", "null", SPM_MODEL), APR_VOCAB_SPM, NULL, false, false, false, true},
        {WHOLE("null", METASPACE("always", "false"), "null", SPM_MODEL), APR_VOCAB_SPM, NULL, false, true, true, true},
        {WHOLE("null", METASPACE("first", "false"), "null", SPM_MODEL), APR_VOCAB_SPM, NULL, false, true, false, true},
        {WHOLE("null", METASPACE("never", "false"), "null", SPM_MODEL), APR_VOCAB_SPM, NULL, false, false, false, true},
        {WHOLE("null", "{\"type\":\"ByteLevel\"}", "null", MODEL), APR_VOCAB_BPE, NULL, false, false, false,
         false}, /* prefix space is the default */
        {WHOLE("{\"type\":\"Lowercase\"}", BYTE_LEVEL, "null", MODEL), APR_VOCAB_BPE, NULL, false, false, false, false},
        {WHOLE("{\"type\":\"Lowercase\"}", "null", "null", SPM_MODEL), APR_VOCAB_NONE, NULL, false, false, false, false},
        {WHOLE("null", STEP("BertPreTokenizer"), "null", "{\"type\":\"WordPiece\",\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"d\":3,\"e\":4}}"),
         APR_VOCAB_WPM, NULL, false, false, false, false},
        {WHOLE("null", METASPACE("always", "true"), "null",
               "{\"type\":\"Unigram\",\"vocab\":[[\"a\",0.0],[\"b\",-1],[\"c\",-2],[\"d\",-3],[\"e\",-4]]}"),
         APR_VOCAB_UGM, NULL, false, false, false, false},
        {WHOLE("null", BYTE_LEVEL, "{\"type\":\"BertProcessing\"}", MODEL), APR_VOCAB_NONE, NULL, false, false, false, false},
        {WHOLE("null", "null", "null", MODEL), APR_VOCAB_NONE, NULL, false, false, false, false},
        {WHOLE("null", BYTE_LEVEL, "null", "{\"type\":\"Unigram\",\"vocab\":[[\"a\",0.0]]}"), APR_VOCAB_NONE, NULL, false, false, false,
         false},
        {WHOLE("null", BYTE_LEVEL, "null", "{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}}"), APR_VOCAB_NONE, NULL, false, false, false,
         false},
        {WHOLE("null", BYTE_LEVEL, "null", "{\"type\":\"BPE\",\"end_of_word_suffix\":\"</w>\",\"vocab\":{\"a\":0},\"merges\":[]}"),
         APR_VOCAB_NONE, NULL, false, false, false, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_arena arena = {0};
        apr_vocab v;
        read_ok((files){.tokenizer = cases[i].text}, &v, &arena);
        if (v.kind != cases[i].kind) fail_msg("%s gave kind %d", cases[i].text, v.kind);
        assert_int_equal(v.nfc, cases[i].nfc);
        assert_int_equal(v.add_space_prefix, cases[i].prefix);
        assert_int_equal(v.space_after_added, cases[i].after_added);
        assert_int_equal(v.escape_spaces, cases[i].escape);
        if (cases[i].pattern == NULL) assert_null(v.pattern);
        else assert_string_equal(v.pattern, cases[i].pattern);
        assert_int_equal(v.n_tokens, v.kind != APR_VOCAB_NONE ? 5 : 0);
        apr_arena_close(&arena);
    }
}

#define PUNCTUATION                                                                                                         \
    "(?![\\x{61d}\\x{9fd}-\\x{a76}\\x{c77}-\\x{c84}\\x{1b7d}-\\x{1b7e}\\x{2e43}-\\x{2e5d}\\x{10ead}-\\x{10f89}\\x{1144b}-"  \
    "\\x{1145d}\\x{11660}-\\x{116b9}\\x{1183b}-\\x{11fff}\\x{12ff1}-\\x{12ff2}\\x{16e97}-\\x{16fe2}\\x{1e95e}-\\x{1e95f}])" \
    "[\\p{P}\\x{166d}\\x{111c9}$+<=>^`|~]"
#define WORD_CHARS "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}"
#define GPT2       "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define WORDS      "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}"

static void several_steps_are_kept_in_order(void **state)
{
    static const struct {
        const char *pre_tokenizer, *model, *lines;
    } cases[] = {
        {SEQUENCE(SPLIT("x+") "," SPLIT("y+") "," BYTE_LEVEL), MODEL, "isolated x+\nisolated y+\n"},
        {SEQUENCE(SPLIT("x+") "," WORDS), MODEL, "isolated x+\nisolated " GPT2 "\n"},
        {SEQUENCE(BYTE_LEVEL "," SPLIT("x+")), MODEL, "isolated,letters x+\n"},
        {SEQUENCE("{\"type\":\"Split\",\"pattern\":{\"String\":\"a.b\"},\"behavior\":\"MergedWithPrevious\",\"invert\":true}," BYTE_LEVEL),
         MODEL, "merged_with_previous,inverted a\\.b\n"},
        {SEQUENCE("{\"type\":\"Punctuation\",\"behavior\":\"Contiguous\"}," WORDS ",{\"type\":\"Digits\"}," SPLIT("[0-9]{3}")), MODEL,
         "contiguous " PUNCTUATION "\nisolated " GPT2 "\ncontiguous,letters \\p{N}\nisolated,letters [0-9]{3}\n"},
        {SEQUENCE(STEP("WhitespaceSplit") ",{\"type\":\"CharDelimiterSplit\",\"delimiter\":\"|\"}," STEP("Whitespace") "," BYTE_LEVEL),
         MODEL, "removed \\s\nremoved \\|\nremoved,inverted [" WORD_CHARS "]+|[^" WORD_CHARS "\\s]+\n"},
        {"{\"type\":\"Split\",\"pattern\":{\"Regex\":\"x\"},\"behavior\":\"Removed\",\"invert\":false}", SPM_MODEL, "removed x\n"},
        {METASPACE("never", "true"), SPM_MODEL, "merged_with_next \\x{2581}\n"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1000], lines[2000] = "";
        apr_arena arena = {0};
        apr_vocab v;
        snprintf(text, sizeof text, WHOLE("null", "%s", "null", "%s"), cases[i].pre_tokenizer, cases[i].model);
        read_ok((files){.tokenizer = text}, &v, &arena);
        assert_int_not_equal(v.kind, APR_VOCAB_NONE);
        assert_null(v.pattern);
        for (size_t k = 0; k < v.n_splits; k++) {
            const size_t n = strlen(lines);
            snprintf(lines + n, sizeof lines - n, "%s\n", apr_split_print(&v.splits[k], &arena));
        }
        assert_string_equal(lines, cases[i].lines);
        apr_arena_close(&arena);
    }
}

/* GGUF's names are also found for steps, whether a line break is written or escaped. */
static void steps_that_have_a_name_get_it(void **state)
{
    apr_arena arena = {0};
    apr_vocab v;

    (void)state;
    read_ok((files){.tokenizer = WHOLE("null",
                                       SEQUENCE(SPLIT("[\\r\\n]") "," SPLIT("\\\\s?\\\\p{L}+") "," SPLIT("\\\\s?\\\\p{P}+") "," SPLIT(
                                           "[一-龥ࠀ-一가-퟿]+") ",{\"type\":\"Digits\",\"individual_digits\":true}," BYTE_LEVEL),
                                       "null", MODEL)},
            &v, &arena);
    assert_int_equal(v.n_splits, 5);
    assert_string_equal(v.pre, "deepseek-coder");
    apr_arena_close(&arena);
}

/* Metaspace puts no space before a text that begins with one; Prepend does. */
static void metaspace_and_prepend_differ(void **state)
{
    static const struct {
        const char *text;
        bool unless_space, after_added;
    } cases[] = {{WHOLE("null", METASPACE("always", "false"), "null", SPM_MODEL), true, true},
                 {WHOLE("null", METASPACE("first", "false"), "null", SPM_MODEL), true, false},
                 {WHOLE(NORMALIZERS(PREPEND "," REPLACE), "null", "null", SPM_MODEL), false, true}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_arena arena = {0};
        apr_vocab v;
        read_ok((files){.tokenizer = cases[i].text}, &v, &arena);
        assert_true(v.add_space_prefix);
        assert_int_equal(v.prefix_unless_space, cases[i].unless_space);
        assert_int_equal(v.space_after_added, cases[i].after_added);
        apr_arena_close(&arena);
    }
}

static void what_cannot_be_expressed_is_named(void **state)
{
    static const struct {
        const char *text, *name;
    } cases[] = {
        {WHOLE("{\"type\":\"Lowercase\"}", "null", "null", SPM_MODEL), "the normalizer Lowercase"},
        {WHOLE("{\"type\":\"ByteLevel\"}", BYTE_LEVEL, "null", MODEL), "the normalizer ByteLevel"},
        {WHOLE("null", STEP("UnicodeScripts"), "null", MODEL), "the pre-tokenizer UnicodeScripts"},
        {WHOLE("null", BYTE_LEVEL, STEP("BertProcessing"), MODEL), "the post-processor BertProcessing"},
        {WHOLE("null", BYTE_LEVEL, "null", "{\"type\":\"WordLevel\"}"), "the model WordLevel"},
        {WHOLE("null", BYTE_LEVEL, "null", "{\"type\":\"Unigram\"}"), "ByteLevel before Unigram"},
        {WHOLE("null", SEQUENCE(SPLIT("x") "," METASPACE("first", "false")), "null", SPM_MODEL), "Metaspace after another pre-tokenizer"},
        {WHOLE("null", "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"x\"},\"behavior\":\"Odd\"}", "null", SPM_MODEL), "a known behavior"},
        {WHOLE("null", "null", "null", MODEL), "neither ByteLevel nor"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_arena arena = {0};
        apr_vocab v;
        read_ok((files){.tokenizer = cases[i].text}, &v, &arena);
        assert_int_equal(v.kind, APR_VOCAB_NONE);
        if (v.unsupported == NULL || strstr(v.unsupported, cases[i].name) == NULL)
            fail_msg("%s: expected \"%s\", got \"%s\"", cases[i].text, cases[i].name, v.unsupported != NULL ? v.unsupported : "");
        apr_arena_close(&arena);
    }
}

static void a_damaged_tokenizer_is_refused_with_a_sentence(void **state)
{
    static const struct {
        const char *text, *part_of_sentence;
    } cases[] = {
        {"{", "not valid JSON"},
        {WHOLE("null", BYTE_LEVEL, "null", "{\"type\":\"BPE\",\"merges\":[]}"), "model.vocab is missing"},
        {WHOLE("null", BYTE_LEVEL, "null", "{\"type\":\"BPE\",\"vocab\":{\"a\":0}}"), "the list model.merges is missing"},
        {WHOLE("null", BYTE_LEVEL, "null", "{\"type\":\"BPE\",\"vocab\":{\"a\":\"0\"},\"merges\":[]}"), "'a' has no id"},
        {WHOLE("null", BYTE_LEVEL, "null", "{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}"), "'a' has no id"},
        {WHOLE("null", BYTE_LEVEL, "null", "{\"type\":\"BPE\",\"vocab\":{\"a\":4000000000},\"merges\":[]}"), "only 1 tokens"},
        {WHOLE("null", BYTE_LEVEL, "null", "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}"), "the same id 0"},
        {WHOLE("null", BYTE_LEVEL, "null", "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]}"), "twice"},
        {WHOLE("null", BYTE_LEVEL, "null", "{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a\"]}"), "merge 0"},
        {WHOLE("null", BYTE_LEVEL, "null", "{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a b c\"]}"), "merge 0"},
        {WHOLE("null", BYTE_LEVEL, "null", "{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\" a\"]}"), "merge 0"},
        {WHOLE("null", BYTE_LEVEL, "null", "{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a a\",[\"a\"]]}"), "merge 1"},
        {WHOLE("null", BYTE_LEVEL, "null", "{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[[\"a\",\"a\",\"a\"]]}"), "merge 0"},
        {WHOLE("null", BYTE_LEVEL, "null", "{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[[\"a\",1]]}"), "merge 0"},
        {"{\"pre_tokenizer\":" BYTE_LEVEL ",\"added_tokens\":[{\"id\":7}],\"model\":" MODEL "}", "no content"},
        {"{\"pre_tokenizer\":" BYTE_LEVEL ",\"added_tokens\":[{\"content\":\"x\"}],\"model\":" MODEL "}", "'x' has no id"},
        {"{\"pre_tokenizer\":" BYTE_LEVEL ",\"added_tokens\":[{\"id\":0,\"content\":\"x\"}],\"model\":" MODEL "}", "the same id 0"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_arena arena = {0};
        apr_error err = {0};
        apr_vocab v;
        const apr_status status = read_files((files){.tokenizer = cases[i].text}, &v, &arena, &err);
        if (status != APR_E_DAMAGED || strstr(err.text, cases[i].part_of_sentence) == NULL)
            fail_msg("%s gave %d: %s", cases[i].text, status, err.text);
        apr_arena_close(&arena);
    }
}

static void a_vocab_size_beyond_reason_is_refused(void **state)
{
    apr_arena arena = {0};
    apr_vocab v;

    (void)state;
    assert_int_equal(read_files((files){.tokenizer = BPE, .vocab_size = (int64_t)1 << 40}, &v, &arena, NULL), APR_E_DAMAGED);
    apr_arena_close(&arena);
}

/* --- tokens --- */

static void tokens_have_types_flags_and_fillers(void **state)
{
    static const char text[] =
        "{\"pre_tokenizer\":null,\"normalizer\":" REPLACE ",\"added_tokens\":["
        "{\"id\":0,\"content\":\"<unk>\",\"special\":true},"
        "{\"id\":6,\"content\":\"<end>\",\"special\":true,\"lstrip\":true,\"normalized\":false},"
        "{\"id\":7,\"content\":\"<tool>\",\"special\":false,\"rstrip\":true,\"single_word\":true,\"normalized\":true}],\"model\":" SPM_MODEL
        "}";
    static const struct {
        const char *token;
        uint8_t type, added;
    } expected[] = {
        {"<unk>", APR_TOKEN_UNKNOWN, APR_ADDED},
        {"<0x41>", APR_TOKEN_BYTE, 0},
        {"\xe2\x96\x81", APR_TOKEN_NORMAL, 0},
        {"a", APR_TOKEN_NORMAL, 0},
        {"\xe2\x96\x81"
         "a",
         APR_TOKEN_NORMAL, 0},
        {"[PAD5]", APR_TOKEN_UNUSED, 0},
        {"<end>", APR_TOKEN_CONTROL, APR_ADDED | APR_ADDED_LSTRIP},
        {"<tool>", APR_TOKEN_USER, APR_ADDED | APR_ADDED_RSTRIP | APR_ADDED_SINGLE_WORD | APR_ADDED_NORMALIZED},
        {"[PAD8]", APR_TOKEN_UNUSED, 0},
    };
    apr_arena arena = {0};
    apr_vocab v;

    (void)state;
    read_ok((files){.tokenizer = text, .vocab_size = 9}, &v, &arena);
    assert_int_equal(v.n_tokens, sizeof expected / sizeof *expected);
    for (size_t i = 0; i < v.n_tokens; i++) {
        assert_true(apr_str_is(v.tokens[i], expected[i].token));
        assert_int_equal(v.types[i], expected[i].type);
        assert_int_equal(v.added[i], expected[i].added);
    }
    assert_int_equal(v.n_merges, 1);
    assert_true(apr_str_is(v.merges[0], "\xe2\x96\x81") && apr_str_is(v.merges[1], "a"));
    assert_true(v.byte_fallback);
    assert_int_equal(v.unk_id, 0);
    assert_int_equal(v.bos_id, -1);
    apr_arena_close(&arena);
}

static void special_ids_come_from_wherever_they_are_stated(void **state)
{
    static const struct {
        files files;
        int bos, eos;
        int n_stops, stops[3];
    } cases[] = {
        {{.tokenizer = BPE}, -1, -1, 0, {0}},
        {{.tokenizer = BPE, .tokenizer_config = "{\"bos_token\":\"<s>\",\"eos_token\":{\"content\":\"</s>\"}}"}, 3, 4, 1, {4}},
        {{.tokenizer = BPE, .tokenizer_config = "{\"bos_token\":null,\"eos_token\":\"not there\"}"}, -1, -1, 0, {0}},
        {{.tokenizer = BPE, .config = "{\"bos_token_id\":3,\"eos_token_id\":[4,2]}"}, 3, 4, 2, {4, 2}},
        {{.tokenizer = BPE, .config = "{\"eos_token_id\":4}", .generation_config = "{\"eos_token_id\":[1,4,99,-1,\"x\"]}"},
         -1,
         4,
         2,
         {4, 1}},
        {{.tokenizer = BPE, .tokenizer_config = "{\"eos_token\":\"</s>\"}", .generation_config = "{\"eos_token_id\":2}"}, -1, 4, 2, {4, 2}},
        {{.tokenizer = BPE, .config = "{\"text_config\":{\"eos_token_id\":4}}"}, -1, -1, 1, {4}},
        /* padding is an end only where it is listed, and is never the one end among several */
        {{.tokenizer = BPE, .tokenizer_config = "{\"pad_token\":\"</s>\"}"}, -1, -1, 0, {0}},
        {{.tokenizer = BPE, .config = "{\"pad_token_id\":4}", .generation_config = "{\"eos_token_id\":[4,3]}"}, -1, 3, 2, {3, 4}},
        {{.tokenizer = BPE, .config = "{\"pad_token_id\":4}", .generation_config = "{\"eos_token_id\":[4]}"}, -1, 4, 1, {4}},
        /* eos_token null: there is none, though there are stop ids */
        {{.tokenizer = BPE, .tokenizer_config = "{\"eos_token\":null}", .generation_config = "{\"eos_token_id\":[4,3]}"},
         -1,
         -1,
         2,
         {4, 3}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_arena arena = {0};
        apr_vocab v;
        read_ok(cases[i].files, &v, &arena);
        assert_int_equal(v.bos_id, cases[i].bos);
        assert_int_equal(v.eos_id, cases[i].eos);
        assert_int_equal(v.n_stop_ids, cases[i].n_stops);
        for (size_t s = 0; s < v.n_stop_ids; s++) assert_int_equal(v.stop_ids[s], cases[i].stops[s]);
        apr_arena_close(&arena);
    }
}

#define SPECIAL(id)     "{\"SpecialToken\":{\"id\":\"" id "\",\"type_id\":0}}"
#define TEXT_A          "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}"
#define TEMPLATE(parts) "{\"type\":\"TemplateProcessing\",\"single\":[" parts "]}"
#define WITH_POST(post) WHOLE("null", BYTE_LEVEL, post, MODEL)

static void the_template_says_what_surrounds_a_text(void **state)
{
    static const struct {
        const char *text, *config;
        apr_vocab_kind kind;
        bool bos, eos;
    } cases[] = {
        {WITH_POST(TEMPLATE(SPECIAL("<s>") "," TEXT_A)), NULL, APR_VOCAB_BPE, true, false},
        {WITH_POST(TEMPLATE(SPECIAL("<s>") "," TEXT_A "," SPECIAL("</s>"))), NULL, APR_VOCAB_BPE, true, true},
        {WITH_POST(TEMPLATE(TEXT_A)), "{\"add_bos_token\":true,\"bos_token\":\"<s>\"}", APR_VOCAB_BPE, false, false},
        {WITH_POST("{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"}," TEMPLATE(SPECIAL("<s>") "," TEXT_A) "]}"), NULL,
         APR_VOCAB_BPE, true, false},
        {WITH_POST("null"), "{\"add_bos_token\":true,\"bos_token\":\"<s>\"}", APR_VOCAB_BPE, true, false},
        {WITH_POST("null"), "{\"add_bos_token\":true}", APR_VOCAB_BPE, false, false},
        {WITH_POST(TEMPLATE(SPECIAL("<s>") "," SPECIAL("</s>") "," TEXT_A)), NULL, APR_VOCAB_NONE, false, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_arena arena = {0};
        apr_vocab v;
        read_ok((files){.tokenizer = cases[i].text, .tokenizer_config = cases[i].config}, &v, &arena);
        assert_int_equal(v.kind, cases[i].kind);
        assert_int_equal(v.add_bos, cases[i].bos);
        assert_int_equal(v.add_eos, cases[i].eos);
        if (v.add_bos) assert_int_equal(v.bos_id, 3);
        if (v.add_eos) assert_int_equal(v.eos_id, 4);
        apr_arena_close(&arena);
    }
}

static void the_chat_template_is_found_in_all_its_places(void **state)
{
    static const struct {
        files files;
        const char *expected;
    } cases[] = {
        {{.tokenizer_config = "{\"chat_template\":\"old\"}"}, "old"},
        {{.tokenizer_config = "{\"chat_template\":\"old\"}", .template = "{{ new }}\n"}, "{{ new }}\n"},
        {{.tokenizer_config = "{\"chat_template\":[{\"name\":\"rag\",\"template\":\"r\"},{\"name\":\"default\",\"template\":\"d\"}]}"},
         "d"},
        {{.tokenizer_config = "{\"chat_template\":[{\"name\":\"rag\",\"template\":\"r\"}]}"}, NULL},
        {{.tokenizer_config = "{}"}, NULL},
        {{.template = ""}, ""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_arena arena = {0};
        apr_vocab v;
        read_ok(cases[i].files, &v, &arena);
        if (cases[i].expected == NULL) assert_null(v.chat_template);
        else assert_string_equal(v.chat_template, cases[i].expected);
        apr_arena_close(&arena);
    }
}

/* --- there and back --- */

static void assert_same_vocab(const apr_vocab *a, const apr_vocab *b)
{
    assert_int_equal(a->kind, b->kind);
    assert_int_equal(a->n_tokens, b->n_tokens);
    for (size_t i = 0; i < a->n_tokens; i++) {
        assert_int_equal(a->tokens[i].n_bytes, b->tokens[i].n_bytes);
        assert_memory_equal(a->tokens[i].text, b->tokens[i].text, a->tokens[i].n_bytes);
        assert_int_equal(a->types[i], b->types[i]);
        assert_int_equal(a->added[i], b->added[i]);
    }
    assert_int_equal(a->n_merges, b->n_merges);
    for (size_t i = 0; i < 2 * a->n_merges; i++) {
        assert_int_equal(a->merges[i].n_bytes, b->merges[i].n_bytes);
        assert_memory_equal(a->merges[i].text, b->merges[i].text, a->merges[i].n_bytes);
    }
    assert_int_equal(a->pattern != NULL, b->pattern != NULL);
    if (a->pattern != NULL) assert_string_equal(a->pattern, b->pattern);
    assert_int_equal(a->n_splits, b->n_splits);
    for (size_t i = 0; i < a->n_splits; i++) {
        assert_string_equal(a->splits[i].pattern, b->splits[i].pattern);
        assert_int_equal(a->splits[i].behavior, b->splits[i].behavior);
        assert_true(a->splits[i].invert == b->splits[i].invert && a->splits[i].letters == b->splits[i].letters);
    }
    assert_int_equal(a->prefix_unless_space, b->prefix_unless_space);
    const bool flags[] = {a->nfc, a->ignore_merges, a->byte_fallback, a->add_space_prefix, a->escape_spaces, a->add_bos, a->add_eos,
                          b->nfc, b->ignore_merges, b->byte_fallback, b->add_space_prefix, b->escape_spaces, b->add_bos, b->add_eos};
    for (size_t i = 0; i < 7; i++) assert_int_equal(flags[i], flags[i + 7]);
    assert_int_equal(a->space_after_added, b->space_after_added);
    const int32_t ids[] = {a->bos_id, a->eos_id, a->pad_id, a->unk_id, b->bos_id, b->eos_id, b->pad_id, b->unk_id};
    for (size_t i = 0; i < 4; i++) assert_int_equal(ids[i], ids[i + 4]);
    assert_int_equal(a->n_stop_ids, b->n_stop_ids);
    for (size_t i = 0; i < a->n_stop_ids; i++) assert_int_equal(a->stop_ids[i], b->stop_ids[i]);
    assert_int_equal(a->chat_template != NULL, b->chat_template != NULL);
    if (a->chat_template != NULL) assert_string_equal(a->chat_template, b->chat_template);
}

static void assert_back(const apr_vocab *vocab)
{
    apr_arena arena = {0};
    apr_vocab back;
    char *const tokenizer = apr_hf_tokenizer_write(vocab), *const config = apr_hf_tokenizer_config_write(vocab);
    char *const generation = apr_hf_generation_config_write(vocab);

    assert_true(tokenizer != NULL && config != NULL && generation != NULL);
    const files f = {
        .tokenizer = tokenizer, .tokenizer_config = config, .generation_config = generation, .vocab_size = (int64_t)vocab->n_tokens};
    read_ok(f, &back, &arena);
    assert_same_vocab(vocab, &back);
    apr_arena_close(&arena);
    free(tokenizer);
    free(config);
    free(generation);
}

static void what_is_written_reads_back_the_same(void **state)
{
    static const char added[] =
        ",\"added_tokens\":[{\"id\":3,\"content\":\"<s>\",\"special\":true},{\"id\":4,\"content\":\"</s>\",\"special\":true},"
        "{\"id\":9,\"content\":\"<t "
        "\\\"\\n>\",\"special\":false,\"lstrip\":true,\"rstrip\":true,\"single_word\":true,\"normalized\":true}]";
    static const char *const starts[] = {
        "{\"pre_tokenizer\":" SEQUENCE(SPLIT("x+") "," BYTE_LEVEL) ",\"normalizer\":{\"type\":\"NFC\"},\"model\":" MODEL,
        "{\"pre_tokenizer\":" BYTE_LEVEL ",\"post_processor\":" TEMPLATE(SPECIAL("<s>") "," TEXT_A "," SPECIAL("</s>")) ",\"model\":" MODEL,
        "{\"normalizer\":" NORMALIZERS(
            PREPEND "," REPLACE) ",\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"unk_token\":\"<unk>\",\"vocab\":{\"<unk>\":0,"
                                 "\"<0x41>\":1,\"a\":2,\"<s>\":3,\"</s>\":4},\"merges\":[]}",
        "{\"pre_tokenizer\":" METASPACE(
            "first", "false") ",\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"vocab\":{\"<s>\":3,\"</s>\":4},\"merges\":[]}",
        "{\"pre_tokenizer\":" METASPACE(
            "always", "true") ",\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"vocab\":{\"<s>\":3,\"</s>\":4},\"merges\":[]}",
        "{\"pre_tokenizer\":" SEQUENCE("{\"type\":\"Punctuation\",\"behavior\":\"MergedWithNext\"}," BYTE_LEVEL
                                       "," SPLIT("x+")) ",\"model\":" MODEL,
        "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"x\"},\"behavior\":\"Removed\",\"invert\":true},\"model\":{"
        "\"type\":\"BPE\","
        "\"byte_fallback\":true,\"vocab\":{\"<s>\":3,\"</s>\":4},\"merges\":[]}",
    };

    (void)state;
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        char text[2048];
        apr_arena arena = {0};
        apr_vocab v;
        snprintf(text, sizeof text, "%s%s}", starts[i], added);
        read_ok((files){.tokenizer = text,
                        .tokenizer_config = "{\"eos_token\":\"</s>\",\"chat_template\":\"{{ '\\n' }}\"}",
                        .generation_config = "{\"eos_token_id\":[4,3]}"},
                &v, &arena);
        assert_int_not_equal(v.kind, APR_VOCAB_NONE);
        assert_int_equal(v.n_tokens, 10);
        assert_back(&v);
        apr_arena_close(&arena);
    }
}

static void the_bundled_tokenizer_reads_back_the_same(void **state)
{
    apr_model model;
    apr_error err = {0};

    (void)state;
    if (apr_safetensors_open(&model, "tests/data/tiny-qwen2", &err) != APR_OK) fail_msg("%s", err.text);
    assert_int_equal(model.vocab.kind, APR_VOCAB_BPE);
    assert_true(model.vocab.nfc);
    assert_string_equal(model.vocab.pre, "qwen2");
    assert_int_equal(model.vocab.n_merges, 1789);
    assert_int_equal(model.vocab.eos_id, 2046);
    assert_int_equal(model.vocab.pad_id, 2045);
    assert_int_equal(model.vocab.types[2047], APR_TOKEN_CONTROL);
    assert_back(&model.vocab);
    apr_model_close(&model);
}

static void scores_become_merges_the_best_first(void **state)
{
    static const apr_str tokens[] = {{"<unk>", 5},
                                     {"a", 1},
                                     {"b", 1},
                                     {"\xc3\xa9", 2},
                                     {"ab", 2},
                                     {"aba", 3},
                                     {"\xc3\xa9"
                                      "a",
                                      3}};
    static const uint8_t types[] = {APR_TOKEN_UNKNOWN, APR_TOKEN_NORMAL, APR_TOKEN_NORMAL, APR_TOKEN_NORMAL,
                                    APR_TOKEN_NORMAL,  APR_TOKEN_NORMAL, APR_TOKEN_NORMAL};
    static const float scores[] = {0, -5, -6, -7, -2, -3, -1};
    const apr_vocab v = {
        .kind = APR_VOCAB_SPM, .n_tokens = 7, .tokens = tokens, .types = types, .scores = scores, .bos_id = -1, .eos_id = -1, .pad_id = -1};
    char *const text = apr_hf_tokenizer_write(&v);

    (void)state;
    assert_non_null(text);
    assert_non_null(strstr(text, "\"merges\":[[\"\xc3\xa9\",\"a\"],[\"a\",\"b\"],[\"ab\",\"a\"]]"));
    assert_non_null(strstr(text, "\"unk_token\":\"<unk>\""));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_can_be_expressed_has_a_kind),
        cmocka_unit_test(several_steps_are_kept_in_order),
        cmocka_unit_test(steps_that_have_a_name_get_it),
        cmocka_unit_test(metaspace_and_prepend_differ),
        cmocka_unit_test(what_cannot_be_expressed_is_named),
        cmocka_unit_test(a_damaged_tokenizer_is_refused_with_a_sentence),
        cmocka_unit_test(a_vocab_size_beyond_reason_is_refused),
        cmocka_unit_test(tokens_have_types_flags_and_fillers),
        cmocka_unit_test(special_ids_come_from_wherever_they_are_stated),
        cmocka_unit_test(the_template_says_what_surrounds_a_text),
        cmocka_unit_test(the_chat_template_is_found_in_all_its_places),
        cmocka_unit_test(what_is_written_reads_back_the_same),
        cmocka_unit_test(the_bundled_tokenizer_reads_back_the_same),
        cmocka_unit_test(scores_become_merges_the_best_first),
    };
    return cmocka_run_group_tests_name("hf_tokenizer", tests, NULL, NULL);
}
