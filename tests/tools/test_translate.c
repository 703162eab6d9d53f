/* test_translate.c - tools/cli/translate.c, foreign_words.c, translate_special.c, hub_ids.c: what people bring becomes the tool's own, or
 * is named. */
#include "tools/cli/model_paths.h"
#include "tools/cli/translation.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNT(table) (sizeof(table) / sizeof *(table))

/* A tool of that name with some of its options, so that rows of the table apply. */
typedef struct options {
    const char *prompt, *to;
    int64_t n, threads, seed, ctx, batch;
    double temp, top_p;
    int device, kv;
    int64_t gpu;
    const char *gpus, *offload, *ref;
    bool chat, quick;
    apr_strings rules;
} options;

static const apr_option table[] = {
    {"prompt", 'p', APR_OPTION_STRING, "TEXT", NULL, "", APR_TO(options, prompt)},
    {"to", 0, APR_OPTION_STRING, "TYPE", NULL, "", APR_TO(options, to)},
    {"tensor", 0, APR_OPTION_LIST, "REGEX=TYPE", NULL, "", APR_TO(options, rules)},
    {"tokens", 'n', APR_OPTION_INT, "N", "256", "", APR_TO(options, n), .min = 1, .max = 1e9},
    {"threads", 't', APR_OPTION_INT, "N", "0", "", APR_TO(options, threads), .min = 0, .max = 4096},
    {"seed", 0, APR_OPTION_INT, "N", "0", "", APR_TO(options, seed), .min = -9e18, .max = 9e18},
    {"ctx", 'c', APR_OPTION_INT, "N", "0", "", APR_TO(options, ctx), .min = 0, .max = 1e9},
    {"batch", 'b', APR_OPTION_INT, "N", "0", "", APR_TO(options, batch), .min = 0, .max = 1e6},
    {"temp", 0, APR_OPTION_REAL, "T", "0", "", APR_TO(options, temp), .min = 0, .max = 100},
    {"top-p", 0, APR_OPTION_REAL, "P", "1", "", APR_TO(options, top_p), .min = 0, .max = 1},
    {"device", 0, APR_OPTION_CHOICE, "host|cuda|auto|ref", "host", "", APR_TO(options, device)},
    {"gpu", 0, APR_OPTION_INT, "N", "0", "", APR_TO(options, gpu), .min = 0, .max = 1024},
    {"gpus", 0, APR_OPTION_STRING, "N", NULL, "", APR_TO(options, gpus)},
    {"offload", 0, APR_OPTION_STRING, "WHAT", NULL, "", APR_TO(options, offload)},
    {"kv", 0, APR_OPTION_CHOICE, "f16|f32|q8_0", "f16", "", APR_TO(options, kv)},
    {"chat", 0, APR_OPTION_FLAG, NULL, NULL, "", APR_TO(options, chat)},
    {"quick", 'k', APR_OPTION_FLAG, NULL, NULL, "", APR_TO(options, quick)},
    {0},
};

static apr_status never_run(const apr_call *call, apr_error *err)
{
    (void)call;
    return apr_fail(err, APR_E_NO, "the tests only parse");
}

static const apr_command commands[] = {
    {"ppl", "MODEL FILE", 2, 2, "", table, sizeof(options), NULL, never_run},
    {.operands = "MODEL [TEXT...]",
     .min_operands = 1,
     .max_operands = 1,
     .joins = "prompt",
     .options = table,
     .options_bytes = sizeof(options),
     .run = never_run},
};
static const apr_command *const verbs[] = {&commands[0], &commands[1], NULL};
static const apr_command show = {"show", "FILE", 1, 1, "", NULL, 0, NULL, never_run},
                         families = {"families", "", 0, 0, "", NULL, 0, NULL, never_run};
static const apr_command *const verbs_of_another[] = {&show, &families, NULL};
static const apr_tool another = {"aprconv", "", verbs_of_another, NULL};
static const apr_tool aprrun = {"aprrun", "", verbs, (const apr_tool *const[]){&another, &aprrun, NULL}};

/* A line's words between single spaces; '_' in a word of a line stands for itself. */
static apr_status parse(const char *line, apr_parsed *parsed, apr_error *err)
{
    static char words[1024];
    static char *argv[64];
    int argc = 0;

    snprintf(words, sizeof words, "%s", line);
    for (char *word = words; word != NULL && *word != '\0';) {
        char *const space = strchr(word, ' ');
        argv[argc++] = word;
        if (space != NULL) *space = '\0';
        word = space != NULL ? space + 1 : NULL;
    }
    argv[argc] = NULL;
    return apr_cli_parse(&aprrun, argc, argv, parsed, err);
}

/* The arguments that are parsed in the end, joined by blanks. */
static const char *turned(const apr_parsed *parsed)
{
    static char text[1024];
    size_t n = 0;
    for (int i = 1; i < parsed->argc; i++) n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", i > 1 ? " " : "", parsed->argv[i]);
    return text;
}

static void options_of_other_programs_become_the_tools_own(void **state)
{
    static const struct {
        const char *line, *turned;
        size_t n_notes;
    } cases[] = {
        {"aprrun -m ./m.gguf -p hi", "./m.gguf -p hi", 0},
        {"aprrun -p hi -m ./m.gguf", "./m.gguf -p hi", 0},
        {"aprrun ./m.gguf --n-predict 4", "./m.gguf --tokens 4", 0},
        {"aprrun ./m.gguf --n-predict=4", "./m.gguf --tokens 4", 0},
        {"aprrun ./m.gguf --n_predict 4", "./m.gguf --tokens 4", 0},
        {"aprrun ./m.gguf -n4", "./m.gguf --tokens=4", 0},
        {"aprrun ./m.gguf -kn 4", "./m.gguf -k -n 4", 0},
        {"aprrun ./m.gguf -n -1", "./m.gguf -n 1000000000", 0},
        {"aprrun ./m.gguf --top_p 0.9", "./m.gguf --top-p 0.9", 0},
        {"aprrun ./m.gguf -temp 0.7", "./m.gguf --temp 0.7", 0},
        {"aprrun ./m.gguf -t -1", "./m.gguf -t 0", 0},
        {"aprrun ./m.gguf --type Q4KM", "./m.gguf --to q4_k_m", 0},
        {"aprrun ./m.gguf --to auto", "./m.gguf", 0},
        {"aprrun ./m.gguf --outtype auto -k", "./m.gguf -k", 0},
        {"aprrun ./m.gguf --tensor down=FP16", "./m.gguf --tensor down=f16", 0},
        {"aprrun ./m.gguf --kv Q8-0", "./m.gguf --kv q8_0", 0},
        {"aprrun ./m.gguf --device CPU", "./m.gguf --device host", 0},
        {"aprrun ./m.gguf --device cuda:1", "./m.gguf --device cuda --gpu 1", 0},
        {"aprrun ./m.gguf --device gpu", "./m.gguf --device cuda", 0},
        {"aprrun ./m.gguf --device cuda", "./m.gguf --device cuda", 0},
        {"aprrun ./m.gguf --cpu", "./m.gguf --device host", 0},
        {"aprrun ./m.gguf -ngl 99", "./m.gguf --device cuda", 1},
        {"aprrun ./m.gguf -ngl 0", "./m.gguf --device host", 1},
        {"aprrun ./m.gguf --gpu all", "./m.gguf --device cuda --gpus all", 1},
        {"aprrun ./m.gguf --gpu 1", "./m.gguf --gpu 1", 0},
        {"aprrun ./m.gguf -ctk q8_0 -ctv Q8_0", "./m.gguf --kv q8_0", 1},
        {"aprrun ./m.gguf -fa 1 --no-mmap --mlock", "./m.gguf", 0},
        {"aprrun ./m.gguf -fa -k", "./m.gguf -k", 0},
        {"aprrun run ./m.gguf hello there", "./m.gguf --prompt=hello there", 0},
        {"aprrun ./m.gguf hello -k there", "./m.gguf -k --prompt=hello there", 0},
        {"aprrun hello -m ./m.gguf", "./m.gguf --prompt=hello", 0},
        {"aprrun -- ./m.gguf -x y", "--prompt=-x y -- ./m.gguf", 0},
        {"aprrun perplexity -m ./m.gguf -f ./t.txt", "ppl ./m.gguf ./t.txt", 0},
        {"aprrun -k ppl ./m.gguf ./t.txt", "ppl -k ./m.gguf ./t.txt", 0},
        {"aprrun ./m.gguf --color", "./m.gguf --color=auto", 0},
        {"aprrun ./m.gguf --color always -k", "./m.gguf --color=always -k", 0},
        {"aprrun ./m.gguf --colour=never", "./m.gguf --color=never", 0},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        apr_parsed parsed;
        apr_error err = {0};
        const apr_status status = parse(cases[i].line, &parsed, &err);
        if (status != APR_OK) fail_msg("%s: %s", cases[i].line, err.text);
        if (strcmp(turned(&parsed), cases[i].turned) != 0) fail_msg("%s became %s", cases[i].line, turned(&parsed));
        assert_int_equal(parsed.notes.n_items, cases[i].n_notes);
        apr_parsed_close(&parsed);
    }
}

static void what_cannot_be_translated_is_named(void **state)
{
    static const struct {
        const char *line, *sentence;
    } cases[] = {
        {"aprrun ./m.gguf -ub 256", "there is only one batch size, --batch N; try: aprrun ./m.gguf --batch 256"},
        {"aprrun ./m.gguf --to q4",
         "--to: q4 is not a type; use q4_k_m (4.8 bits, the usual choice) or q4_0; try: aprrun ./m.gguf --to q4_k_m"},
        {"aprrun ./m.gguf -ctk q8_0 -k", "-ctk q8_0: keys and values must have the same type; try: aprrun ./m.gguf --kv q8_0 -k"},
        {"aprrun ./m.gguf --grammar x",
         "--grammar: grammars are not supported; llama-server reads the GGUFs that aprconv writes, vLLM reads the checkpoints"},
        {"aprrun ./m.gguf -hf a/b", "aprkit downloads nothing; run hf download a/b, then aprrun a/b"},
        {"aprrun ./m.gguf --device mps",
         "--device=mps: aprkit runs on CPUs and NVIDIA GPUs; llama.cpp supports this device and reads the GGUFs that aprconv writes"},
        {"aprrun ./m.gguf --n-predict", "--n-predict needs a value; try 'aprrun --help'"},
        {"aprrun show ./m.gguf", "show: not a verb of this tool; use 'aprconv show'; try: aprconv show ./m.gguf"},
        {"aprrun families x", "families: not a verb of this tool; use 'aprconv families'; try 'aprconv families'"},
        {"aprrun quantize", "quantize: not a verb of this tool; use 'aprquant'; try 'aprquant --help'"},
        {"aprrun list", "list: no such file or verb; try 'aprrun --help'"},
        {"aprrun pppl ./m.gguf", "pppl: no such file or verb; try 'aprrun --help'"},
        {"aprrun ./m.gguf --top-k 40", "unknown option '--top-k'; try 'aprrun --help'"}, /* not --top-p, which is something else */
        {"aprrun ./m.gguf -kx", "unknown option '-kx'; try 'aprrun --help'"},
        {"aprrun ./m.gguf -n4x", "unknown option '-n4x'; try 'aprrun --help'"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        apr_parsed parsed;
        apr_error err = {0};
        assert_int_equal(parse(cases[i].line, &parsed, &err), APR_E_USAGE);
        assert_string_equal(err.text, cases[i].sentence);
        apr_parsed_close(&parsed);
    }
}

/* Options with their dashes, verbs without; no value where none is taken; each spelling is found. */
static void every_row_of_the_table_is_well_formed(void **state)
{
    (void)state;
    for (const apr_foreign_word *w = apr_foreign_words; w->spellings != NULL; w++) {
        const bool is_option = w->spellings[0] == '-';
        assert_true(w->tools[0] == '*' || strspn(w->tools, "cqpr") == strlen(w->tools));
        assert_true(w->meaning[0] != '\0' && w->spellings[0] != '\0');
        if (w->value == 0 && (w->kind == APR_FOREIGN_ALIAS || w->kind == APR_FOREIGN_TRANSLATED) && strchr(w->spellings, '*') == NULL)
            assert_null(strchr(w->meaning, '%'));
        for (const char *at = w->spellings; *at != '\0';) {
            const size_t n = strcspn(at, "|");
            const char *rest = NULL;
            assert_true(n > (is_option ? 1u : 0u));
            assert_true((at[0] == '-') == is_option);
            if (w->verbs == NULL) assert_ptr_equal(apr_foreign_find(w, w->tools[0] == '*' ? '?' : w->tools[0], NULL, at, n, &rest), w);
            at += n + (at[n] == '|');
        }
    }
}

static void put_file(const char *path, const char *text)
{
    FILE *const file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void ids_are_looked_up_in_the_caches(void **state)
{
    char folder[] = "/tmp/aprkit-hub-XXXXXX", command[256];
    static const struct {
        const char *text, *path; /* after the folder; NULL: it is not there */
    } cases[] = {
        {"Org/Name", "/hub/models--Org--Name/snapshots/aaa1"},
        {"Org/Name@main", "/hub/models--Org--Name/snapshots/aaa1"},
        {"Org/Name@v2", "/hub/models--Org--Name/snapshots/bbb2"},
        {"Org/Name@bbb", "/hub/models--Org--Name/snapshots/bbb2"},
        {"Org/Ggufs", "/hub/models--Org--Ggufs/snapshots/c"},
        {"Org/Ggufs:q4_k_m", "/hub/models--Org--Ggufs/snapshots/c/x-Q4_K_M.gguf"},
        {"Org/Other", NULL},
        {"Org/Name@v3", NULL},
    };
    apr_arena arena = {0};
    const char *path;

    (void)state;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chdir(folder), 0);
    snprintf(command, sizeof command,
             "mkdir -p hub/models--Org--Name/refs hub/models--Org--Name/snapshots/aaa1 hub/models--Org--Name/snapshots/bbb2 "
             "hub/models--Org--Ggufs/snapshots/c here");
    assert_int_equal(system(command), 0);
    put_file("hub/models--Org--Name/refs/main", "aaa1");
    put_file("hub/models--Org--Name/refs/v2", "bbb2\n");
    put_file("hub/models--Org--Ggufs/snapshots/c/x-Q4_K_M.gguf", "");
    put_file("hub/models--Org--Ggufs/snapshots/c/x-Q8_0.gguf", "");
    assert_int_equal(setenv("HF_HOME", folder, 1), 0);
    unsetenv("HF_HUB_CACHE");
    unsetenv("HUGGINGFACE_HUB_CACHE");
    for (size_t i = 0; i < COUNT(cases); i++) {
        apr_error err = {0};
        const apr_status status = apr_hub_id_resolve(cases[i].text, &path, &arena, &err);
        assert_int_equal(status, cases[i].path != NULL ? APR_OK : APR_E_IO);
        if (cases[i].path != NULL) assert_string_equal(path + strlen(folder), cases[i].path);
        else assert_non_null(strstr(err.text, "fetch it: hf download Org/"));
    }
    /* anything but an id, and a path below what is here, is left to the caller that opens it */
    static const char *const others[] = {"a/b/c", "./a/b", "m.gguf", "Org/file.gguf", "here/nothing", "/Org/Name", "~/x", "Org/", "-x/y"};
    for (size_t i = 0; i < COUNT(others); i++) {
        assert_int_equal(apr_hub_id_resolve(others[i], &path, &arena, NULL), APR_OK);
        assert_ptr_equal(path, others[i]);
    }
    apr_arena_close(&arena);
    assert_int_equal(chdir("/"), 0);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_of_other_programs_become_the_tools_own),
        cmocka_unit_test(what_cannot_be_translated_is_named),
        cmocka_unit_test(every_row_of_the_table_is_well_formed),
        cmocka_unit_test(ids_are_looked_up_in_the_caches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
