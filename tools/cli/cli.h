/* cli.h - the command line of a tool: parses arguments and prints help from the same tables of options.
 *
 * A tool is a list of commands: verbs ("show"), one command without a verb, or both. A command states its operands, options and
 * examples. apr_cli_main parses strictly, prints --help and --version, runs the command and returns its status as the exit code.
 * Options and operands may come in any order. After "--" everything is an operand. "--name=value" and "--name value" are the same;
 * "-x value", "-n4" and "-qf" are short forms. If an option is given twice, the last one wins. Every command also has the common
 * options of usage.c. Before parsing, options and verbs of other programs are translated to the tool's own (foreign_words.h).
 *
 *     static const apr_option options[] = {
 *         {"ctx", 'c', APR_OPTION_INT, "N", "4096", "tokens of context", .min = 1, .max = 1e7, APR_TO(struct plan_options, ctx)},
 *         {0},
 *     };
 */
#ifndef APR_TOOLS_CLI_H
#define APR_TOOLS_CLI_H

#include "formats/base/arena.h"
#include "formats/base/status.h"
#include "tools/cli/typed.h"
#include "tools/report/answer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Each kind: the type of the field it fills, and the field's value when the option is absent and has no default. */
typedef enum {
    APR_OPTION_FLAG,   /* bool: false. --name sets true, --no-name sets false */
    APR_OPTION_INT,    /* int64_t: 0 */
    APR_OPTION_SIZE,   /* uint64_t, bytes: 0. 512M, 1.5G, 32GiB are powers of 1024; 32GB is 32 * 10^9 */
    APR_OPTION_REAL,   /* double: NaN */
    APR_OPTION_STRING, /* const char *: NULL */
    APR_OPTION_CHOICE, /* int, index into value_name's "f16|f32|q8_0": -1 */
    APR_OPTION_LIST    /* apr_strings: none. May be given many times */
} apr_option_kind;

typedef struct apr_strings {
    const char **items;
    size_t n_items;
} apr_strings;

typedef struct apr_option {
    const char *name; /* long, without dashes; NULL ends the table */
    char letter;      /* short, or 0 */
    apr_option_kind kind;
    const char *value_name; /* "N", "FILE"; the choices of a CHOICE; NULL for a FLAG */
    const char *standard;   /* the default, parsed like a given value ("yes" for a flag); NULL: none */
    const char *help;       /* what it does, one sentence without capital and full stop */
    size_t offset;          /* of the field in the command's struct of options */
    double min, max;        /* INT, REAL: the allowed range; both 0: no limit. SIZE: at least min bytes, see APR_MIN_SIZE */
    bool or_none;           /* SIZE: 0 is also a valid value; otherwise 0 means that the option was not given */
    const char *group;      /* heading in --help; NULL: that of the previous option, or "Options" for the first */
    bool is_optional;       /* CHOICE: the value comes after '='; without a value it is the first choice */
} apr_option;

/* The smallest plausible size of a memory or of a file of weights. It catches "--vram 24", which would mean 24 bytes. */
#define APR_MIN_SIZE 65536

#define APR_TO(type, field) .offset = offsetof(type, field)

/* No limit to the number of operands. */
#define APR_ANY_OPERANDS 1000000

/* What a command gets when it runs. */
typedef struct apr_call {
    const char *const *operands;
    size_t n_operands;
    const void *options;    /* the command's struct, filled */
    bool quiet;             /* no progress */
    apr_answer *answer;     /* says whether --json was given; JSON is written to it, text to stdout */
    const char *verb;       /* of the command; NULL: it has none */
    const apr_typed *typed; /* for error messages that suggest a corrected command; NULL: no command was typed */
} apr_call;

typedef apr_status (*apr_command_fn)(const apr_call *call, apr_error *err);

/* An option that has no effect without other options. Giving it alone is a usage error. */
typedef struct apr_need {
    const char *option; /* its long name; NULL ends the table */
    const char *needs;  /* completes "--option does nothing without ..." */
    bool (*holds)(const apr_call *call);
} apr_need;

typedef struct apr_command {
    const char *verb;     /* NULL: the command without a verb; it must be last in the list */
    const char *operands; /* "FILE", "IN OUT", as printed */
    size_t min_operands, max_operands;
    const char *summary;
    const apr_option *options;   /* ends with {0}; NULL: none */
    size_t options_bytes;        /* size of the struct they fill */
    const char *const *examples; /* command lines, ends with NULL; may be NULL */
    apr_command_fn run;
    const apr_need *needs; /* ends with {0}; NULL: none */
    const char *joins;     /* extra operands become this option's value, joined by blanks; NULL: extra operands are an error */
    const char *first;     /* names of the options that -h shows, separated by blanks; NULL: the first eight */
} apr_command;

typedef struct apr_tool {
    const char *name, *summary;
    const apr_command *const *commands; /* ends with NULL */
    const struct apr_tool *const
        *toolkit; /* all tools, ends with NULL: a verb of another one is named in an error. NULL: there are no others */
} apr_tool;

/* The main function of a tool. Returns the exit code. */
int apr_cli_main(const apr_tool *tool, int argc, char **argv);

/* --- the parts of it, for tests --- */

typedef struct apr_parsed {
    const apr_command *command; /* NULL: no verb was named (help or version was asked for) */
    const char **operands;
    size_t n_operands;
    void *options;
    const char **given; /* [n_given] long names of the command's options that were typed */
    size_t n_given;
    struct {
        bool json, quiet, help, version, verbose, progress, license;
        int color;  /* index of auto|always|never, or -1 */
        bool brief; /* -h: help of one screen */
        bool words; /* "help words": the options and verbs of other programs */
    } common;
    int argc; /* the arguments after translation of other programs' options and verbs */
    char **argv;
    apr_strings notes, notes_more; /* notes about such translations; notes_more: only with --verbose */
    apr_arena arena;               /* owns all of the above */
} apr_parsed;

/* APR_E_USAGE: the message ends with a command to try. */
apr_status apr_cli_parse(const apr_tool *tool, int argc, char **argv, apr_parsed *parsed, apr_error *err);
void apr_parsed_close(apr_parsed *parsed);

/* command NULL: help for the whole tool. */
void apr_cli_usage(const apr_tool *tool, const apr_command *command, FILE *out);
/* Short help of at most 24 lines: usage, eight options, four examples. */
void apr_cli_brief_usage(const apr_tool *tool, const apr_command *command, FILE *out);

#endif
