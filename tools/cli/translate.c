/* translate.c - translates options and verbs of other programs (foreign_words.h) to the tool's own, before arguments are parsed. */
#include "formats/base/text.h"
#include "tools/cli/translation.h"
#include "tools/cli/type_words.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static apr_status no_memory(const apr_translation *t) { return apr_no_memory(t->err, "the command line"); }

/* A copy of text with '%' replaced by the value and "{}" by the word as typed. */
static const char *filled(const apr_translation *t, const char *text, size_t n, const char *typed, const char *value)
{
    char all[1024];
    size_t at = 0;

    for (size_t i = 0; i < n && at + 1 < sizeof all; i++) {
        const bool is_typed = i + 1 < n && text[i] == '{' && text[i + 1] == '}';
        const char *const put = is_typed ? typed : text[i] == '%' ? (value != NULL ? value : "...") : NULL;
        if (put == NULL) all[at++] = text[i];
        else at += (size_t)snprintf(all + at, sizeof all - at, "%s", put);
        i += is_typed;
        if (at >= sizeof all) at = sizeof all - 1;
    }
    return apr_arena_copy(t->arena, all, at);
}

/* --- error messages that suggest a command --- */

/* "= aprconv show *": suggests another command; '*' stands for all arguments after the verb. If there are none, suggests its help. */
static apr_status suggest_command(apr_translation *t, const char *command, const char *typed)
{
    char text[1024];
    const bool wants_rest = strchr(command, '*') != NULL;
    const int n_left = t->typed.argc - t->at - 1;
    const char *const whole = filled(t, command, strcspn(command, "*"), typed, NULL);

    if (whole == NULL) return no_memory(t);
    const int n_whole = (int)strlen(whole) - (whole[0] != '\0' && whole[strlen(whole) - 1] == ' ');
    const size_t n = strlen(t->err->text);
    if (wants_rest && n_left == 0) snprintf(t->err->text + n, sizeof t->err->text - n, "; try '%.*s --help'", n_whole, whole);
    else if (!wants_rest) snprintf(t->err->text + n, sizeof t->err->text - n, "; try '%.*s'", n_whole, whole);
    if (!wants_rest || n_left == 0) return APR_E_USAGE;
    snprintf(text, sizeof text, "%.*s", n_whole, whole);
    const apr_typed rest = {text, n_left + 1, t->typed.argv + t->at};
    return apr_try_instead(APR_E_USAGE, &rest, NULL, 0, t->err);
}

static apr_status refuse(apr_translation *t, const apr_foreign_word *word, const char *typed, const char *value)
{
    static const char then[] = " => ";
    const char *const arrow = strstr(word->meaning, then);
    const size_t n = arrow != NULL ? (size_t)(arrow - word->meaning) : strlen(word->meaning);
    const char *const sentence = filled(t, word->meaning, n, typed, value);

    if (sentence == NULL) return no_memory(t);
    if (word->kind == APR_FOREIGN_UNSUPPORTED || arrow == NULL) return apr_fail(t->err, APR_E_USAGE, "%s", sentence);
    const char *const instead = arrow + sizeof then - 1;
    if (*instead == '=') {
        apr_fail(t->err, APR_E_USAGE, "%s", sentence);
        return suggest_command(t, instead + 2, typed);
    }
    const char *const with = filled(t, instead, strlen(instead), typed, value);
    if (with == NULL) return no_memory(t);
    return apr_translation_suggest(t, with, "%s", sentence);
}

/* --- options --- */

static const apr_option *own_long(const apr_translation *t, const char *name, size_t n)
{
    const apr_option *const own = n > 0 ? apr_option_named(t->command, name, n, 0) : NULL;
    if (own != NULL || n <= 3 || !apr_begins_with(name, "no-")) return own;
    const apr_option *const positive = apr_option_named(t->command, name + 3, n - 3, 0);
    return positive != NULL && positive->kind == APR_OPTION_FLAG ? positive : NULL;
}

/* Does the command have the first option of a row's meaning? True for a meaning without options. */
static bool has_meaning(const apr_translation *t, const char *meaning)
{
    if (!apr_begins_with(meaning, "--")) return true;
    return own_long(t, meaning + 2, strcspn(meaning + 2, " =")) != NULL;
}

static apr_status try_value_word(apr_translation *t, const char *name, const char *value, bool *found);

/* Appends the value of the option that was appended last. If its translation is NULL, removes the option as well. */
static apr_status put_value(apr_translation *t, const char *option, const char *value)
{
    const apr_option *const own = option != NULL ? own_long(t, option + 2, strlen(option + 2)) : NULL;
    const char *text = value;
    bool found = false;

    if (own != NULL) {
        t->argc--; /* the value may be in the table, and replace the option too */
        APR_TRY(try_value_word(t, own->name, value, &found));
        if (found) return APR_OK;
        t->argc++;
        APR_TRY(apr_translate_value(t, own, &text));
    }
    if (text != NULL) return apr_translation_put(t, text);
    t->argc -= option != NULL;
    return APR_OK;
}

static void put_operand(apr_translation *t, bool at_front, const char *argument)
{
    if (argument == NULL) return;
    if (at_front) t->front[t->n_front++] = (char *)argument;
    else t->back[t->n_back++] = (char *)argument;
}

static apr_status put_meaning(apr_translation *t, const char *meaning, const char *value)
{
    const char *option = NULL;

    for (const char *at = meaning; *at != '\0';) {
        const size_t n = strcspn(at, " ");
        const bool is_operand = n == 2 && at[1] == '%' && (at[0] == '<' || at[0] == '>');
        if (is_operand) {
            put_operand(t, at[0] == '<', value);
        } else if (n == 1 && *at == '%') {
            APR_TRY(put_value(t, option, value));
        } else {
            option = memchr(at, '%', n) != NULL ? filled(t, at, n, "", value) : apr_arena_copy(t->arena, at, n);
            if (option == NULL) return no_memory(t);
            APR_TRY(apr_translation_put(t, option));
            if (!apr_begins_with(option, "--")) option = NULL;
        }
        at += n + (at[n] == ' ');
    }
    return APR_OK;
}

/* Applies a row of the table. typed: the option or verb as typed. */
static apr_status apply(apr_translation *t, const apr_foreign_word *word, const char *typed, const char *value)
{
    const bool shows_value = value != NULL && strchr(typed, '=') == NULL;

    if (word->meaning[0] == '!') return apr_translate_special(t, word->meaning + 1, typed, value);
    switch (word->kind) {
    case APR_FOREIGN_NO_EFFECT: return apr_translation_note(t, false, "%s has no effect: %s", typed, word->meaning);
    case APR_FOREIGN_SUGGESTED:
    case APR_FOREIGN_UNSUPPORTED: return refuse(t, word, typed, value);
    case APR_FOREIGN_TRANSLATED: {
        const char *const means = filled(t, word->meaning, strlen(word->meaning), typed, value);
        if (means == NULL) return no_memory(t);
        APR_TRY(apr_translation_note(t, true, "%s%s%s means %s", typed, shows_value ? " " : "", shows_value ? value : "", means));
        break;
    }
    case APR_FOREIGN_ALIAS: break;
    }
    return put_meaning(t, word->meaning, value);
}

/* The first row that applies to the tool and command. */
static const apr_foreign_word *word_for(const apr_translation *t, const char *spelling, size_t n, const char **rest)
{
    const char *const verb = t->command == NULL ? NULL : t->command->verb != NULL ? t->command->verb : "";
    const apr_foreign_word *word = apr_foreign_words;

    while ((word = apr_foreign_find(word, t->letter, verb, spelling, n, rest)) != NULL) {
        const bool translates = word->kind == APR_FOREIGN_ALIAS || word->kind == APR_FOREIGN_TRANSLATED;
        if (!translates || has_meaning(t, word->meaning)) return word;
        word++;
    }
    return NULL;
}

static bool looks_like_a_value(const char *text)
{
    return text[0] != '-' || text[1] == '\0' || isdigit((unsigned char)text[1]) || text[1] == '.';
}

static bool is_number(const char *text)
{
    text += *text == '-';
    return *text != '\0' && text[strspn(text, "0123456789.,kK")] == '\0';
}

/* The next argument if it may be a value, else NULL. */
static const char *next_value(const apr_translation *t)
{
    const char *const next = t->at + 1 < t->typed.argc ? t->typed.argv[t->at + 1] : NULL;
    return next != NULL && looks_like_a_value(next) ? next : NULL;
}

/* Translates an option that is in the table, with its value after '=' or in the next argument. *found: it is in the table. */
static apr_status try_word(apr_translation *t, const char *argument, bool *found)
{
    static const char *const switches[] = {"on", "off", "auto", "0", "1", "true", "false"};
    const char *const equals = strchr(argument, '='), *rest = NULL;
    const size_t n = equals != NULL ? (size_t)(equals - argument) : strlen(argument);
    const apr_foreign_word *word = word_for(t, argument, strlen(argument), &rest);
    const char *value = rest, *typed = argument;

    if (word == NULL && equals != NULL) {
        word = word_for(t, argument, n, &rest);
        value = equals + 1;
        typed = apr_arena_copy(t->arena, argument, n);
        if (typed == NULL) return no_memory(t);
    }
    *found = word != NULL;
    if (word == NULL) return APR_OK;
    bool takes_next = word->value == 'v' && value == NULL && next_value(t) != NULL;
    for (size_t i = 0; word->value == 'o' && value == NULL && next_value(t) != NULL && i < sizeof switches / sizeof *switches; i++)
        takes_next |= strcmp(next_value(t), switches[i]) == 0 || is_number(next_value(t));
    t->value_is_next = takes_next;
    if (takes_next) value = next_value(t);
    const bool wants = word->value == 'v' && value == NULL && (word->kind == APR_FOREIGN_ALIAS || word->kind == APR_FOREIGN_TRANSLATED);
    if (wants) return apr_fail(t->err, APR_E_USAGE, "%s needs a value; try '%s --help'", typed, t->tool->name);
    APR_TRY(apply(t, word, typed, value));
    t->at += takes_next;
    return APR_OK;
}

/* Translates a value of the tool's own option that is in the table, such as "--device" with "cpu". */
static apr_status try_value_word(apr_translation *t, const char *name, const char *value, bool *found)
{
    const char *const spelling = apr_arena_print(t->arena, "--%s=%s", name, value), *rest = NULL;

    *found = false;
    if (spelling == NULL) return no_memory(t);
    const apr_foreign_word *const word = word_for(t, spelling, strlen(spelling), &rest);
    if (word == NULL) return APR_OK;
    *found = true;
    const char *const typed = word->kind == APR_FOREIGN_TRANSLATED ? apr_arena_print(t->arena, "--%s %s", name, value) : spelling;
    if (typed == NULL) return no_memory(t);
    return word->meaning[0] == '!' ? apr_translate_special(t, word->meaning + 1, typed, value) : apply(t, word, typed, rest);
}

/* Appends an option of the command itself. value NULL: its value is the next argument. */
static apr_status put_own(apr_translation *t, const char *argument, const apr_option *own, const char *value)
{
    const bool takes_next = value == NULL && own->kind != APR_OPTION_FLAG && next_value(t) != NULL;
    bool found = false;

    if (own->kind == APR_OPTION_FLAG || (value == NULL && !takes_next)) return apr_translation_put(t, argument);
    t->value_is_next = takes_next;
    if (takes_next) value = next_value(t);
    if (argument[1] == 't' && own->kind == APR_OPTION_STRING && is_number(value) && apr_option_named(t->command, "threads", 7, 0) != NULL) {
        t->at += takes_next; /* -t is a type here; with a number it means threads, as in other programs */
        APR_TRY(apr_translation_put(t, "--threads"));
        return apr_translation_put(t, value);
    }
    APR_TRY(try_value_word(t, own->name, value, &found));
    if (!found) APR_TRY(apr_translate_value(t, own, &value));
    if (!found && own->kind == APR_OPTION_CHOICE && takes_next && argument[2] == '\0' && access(value, F_OK) == 0)
        return apr_translation_suggest(t, value, "%s is --%s here, one of %s; give a model without an option", argument, own->name,
                                       own->value_name);
    t->at += takes_next;
    if (found || value == NULL) return APR_OK;
    if (takes_next && (argument[1] == '-' || argument[2] == '\0')) {
        APR_TRY(apr_translation_put(t, argument));
        return apr_translation_put(t, value);
    }
    const char *const whole = apr_arena_print(t->arena, "--%s=%s", own->name, value);
    return whole != NULL ? apr_translation_put(t, whole) : no_memory(t);
}

/* --color without a value, with one of its values or those of other programs (on, off), after '=' or in the next argument. */
static apr_status put_optional(apr_translation *t, const apr_option *own, const char *value)
{
    static const char *const known[][2] = {{"auto", "auto"}, {"always", "always"}, {"never", "never"}, {"on", "always"}, {"off", "never"}};
    const char *const next = value == NULL ? next_value(t) : NULL, *const word = value != NULL ? value : next;
    const char *taken = value;

    for (size_t i = 0; word != NULL && i < sizeof known / sizeof *known; i++)
        if (strcmp(word, known[i][0]) == 0) taken = known[i][1];
    t->at += next != NULL && taken != NULL;
    const char *const whole = apr_arena_print(t->arena, "--%s=%s", own->name, taken != NULL ? taken : "auto");
    return whole != NULL ? apr_translation_put(t, whole) : no_memory(t);
}

/* "--q4_k_m" as --to q4_k_m or --dtype q4_k_m, if the command has one of them. */
static apr_status translate_type_option(apr_translation *t, const char *argument, bool *found)
{
    const bool has_to = apr_option_named(t->command, "to", 2, 0) != NULL, has_dtype = apr_option_named(t->command, "dtype", 5, 0) != NULL;
    const apr_type_word word = apr_type_spelled(argument + 2);
    char words[64];

    *found = (has_to || has_dtype) && word.kind == APR_TYPE_IS && strpbrk(argument, "0123456789") != NULL;
    if (!*found) return APR_OK;
    snprintf(words, sizeof words, "%s %s", has_to ? "--to" : "--dtype", word.name);
    return apr_translation_replace(t, argument, NULL, words);
}

static apr_status translate_long(apr_translation *t, const char *argument)
{
    if (apr_begins_with(argument, "--colour")) argument = apr_arena_print(t->arena, "--color%s", argument + 8);
    if (argument == NULL) return no_memory(t);
    const char *const name = argument + 2, *const equals = strchr(name, '=');
    const size_t n = equals != NULL ? (size_t)(equals - name) : strlen(name);
    const char *const value = equals != NULL ? equals + 1 : NULL;
    bool found;

    const apr_option *own = own_long(t, name, n);
    if (own != NULL && own->is_optional) return put_optional(t, own, value);
    if (own != NULL) return put_own(t, argument, own, value);
    APR_TRY(try_word(t, argument, &found));
    if (found) return APR_OK;
    char *const dashes = apr_arena_copy(t->arena, argument, strlen(argument));
    if (dashes == NULL) return no_memory(t);
    for (size_t i = 2; i < 2 + n; i++)
        if (dashes[i] == '_') dashes[i] = '-';
    own = own_long(t, dashes + 2, n);
    if (own != NULL) return put_own(t, dashes, own, value);
    if (strcmp(dashes, argument) != 0) APR_TRY(try_word(t, dashes, &found));
    if (!found && value == NULL) APR_TRY(translate_type_option(t, argument, &found));
    return found ? APR_OK : apr_translation_put(t, argument);
}

/* Is the argument a cluster of short options, such as "-n4" or "-qf"? Only the last one may have a value. */
static bool is_cluster(const apr_translation *t, const char *argument)
{
    const char *at = argument + 1;
    for (; *at != '\0'; at++) {
        const apr_option *const own = apr_option_named(t->command, NULL, 0, *at);
        if (own == NULL) return false;
        if (own->kind != APR_OPTION_FLAG)
            return at[1] == '\0' || ((own->kind == APR_OPTION_INT || own->kind == APR_OPTION_REAL) && is_number(at + 1));
    }
    return true;
}

static apr_status translate_cluster(apr_translation *t, const char *argument)
{
    for (const char *at = argument + 1; *at != '\0'; at++) {
        const apr_option *const own = apr_option_named(t->command, NULL, 0, *at);
        const char *const letter = apr_arena_print(t->arena, "-%c", *at);
        if (letter == NULL) return no_memory(t);
        if (own->kind != APR_OPTION_FLAG) return put_own(t, letter, own, at[1] != '\0' ? at + 1 : NULL);
        APR_TRY(apr_translation_put(t, letter));
    }
    return APR_OK;
}

static apr_status translate_short(apr_translation *t, const char *argument)
{
    const bool is_long = argument[2] != '\0';
    const apr_option *const own = !is_long ? apr_option_named(t->command, NULL, 0, argument[1]) : NULL;
    bool found;

    if (own != NULL) return put_own(t, argument, own, NULL);
    APR_TRY(try_word(t, argument, &found));
    if (found || !is_long) return found ? APR_OK : apr_translation_put(t, argument);
    const size_t n = strcspn(argument + 1, "=");
    const apr_option *const by_name = n >= 3 ? own_long(t, argument + 1, n) : NULL;
    if (by_name != NULL) {
        const char *const with_dashes = apr_arena_print(t->arena, "-%s", argument);
        return with_dashes != NULL ? translate_long(t, with_dashes) : no_memory(t);
    }
    return is_cluster(t, argument) ? translate_cluster(t, argument) : apr_translation_put(t, argument);
}

/* --- the verb --- */

/* Does an option of any of the tool's commands take the next argument as its value? */
static bool takes_next(const apr_translation *t, const char *argument)
{
    const bool is_long = apr_begins_with(argument, "--");
    const char *rest = NULL;

    if (strchr(argument, '=') != NULL) return false;
    for (const apr_command *const *at = t->tool->commands; *at != NULL; at++) {
        const apr_command *const c = *at;
        const apr_option *const own = is_long               ? apr_option_named(c, argument + 2, strlen(argument + 2), 0)
                                      : argument[2] == '\0' ? apr_option_named(c, NULL, 0, argument[1])
                                                            : NULL;
        if (own != NULL) return own->kind != APR_OPTION_FLAG && !own->is_optional;
    }
    const apr_foreign_word *const word = apr_foreign_find(apr_foreign_words, t->letter, NULL, argument, strlen(argument), &rest);
    return word != NULL && word->value == 'v';
}

/* The first argument that is neither an option nor an option's value; 0: none. */
static int first_operand(const apr_translation *t)
{
    for (int i = 1; i < t->typed.argc && strcmp(t->typed.argv[i], "--") != 0; i++) {
        const char *const argument = t->typed.argv[i];
        if (argument[0] != '-' || argument[1] == '\0') return i;
        i += takes_next(t, argument) && i + 1 < t->typed.argc && looks_like_a_value(t->typed.argv[i + 1]);
    }
    return 0;
}

/* Is a word a path? It exists as a file, or has a '.' or '/'. */
static bool is_path(const char *word) { return strpbrk(word, "./") != NULL || strcmp(word, "-") == 0 || access(word, F_OK) == 0; }

static apr_status put_verb(apr_translation *t, const char *verb)
{
    t->command = apr_command_named(t->tool, verb);
    t->verb_at = t->argc;
    return apr_translation_put(t, verb);
}

/* If the argument `at` is a verb of another tool: fails with the command to type. */
static apr_status refuse_verb_of_another(apr_translation *t, int at)
{
    const char *const word = t->typed.argv[at];

    for (const apr_tool *const *tool = t->tool->toolkit; tool != NULL && *tool != NULL; tool++) {
        const apr_command *const command = *tool != t->tool && !is_path(word) ? apr_command_named(*tool, word) : NULL;
        if (command == NULL) continue;
        t->at = at;
        apr_fail(t->err, APR_E_USAGE, "%s: not a verb of this tool; use '%s %s'", word, (*tool)->name, word);
        const char *const instead = apr_arena_print(t->arena, "%s %s%s", (*tool)->name, word, command->max_operands > 0 ? " *" : "");
        return instead != NULL ? suggest_command(t, instead, word) : no_memory(t);
    }
    return APR_OK;
}

/* Translates the argument `at`, which is not a verb of the tool, if it is a verb of another program. *is_taken: it was replaced. */
static apr_status translate_verb(apr_translation *t, int at, bool *is_taken)
{
    const char *const word = t->typed.argv[at], *rest = NULL;
    const apr_foreign_word *row = !is_path(word) ? apr_foreign_find(apr_foreign_words, t->letter, NULL, word, strlen(word), &rest) : NULL;

    *is_taken = false;
    if (strcmp(word, "version") == 0 && !is_path(word)) {
        *is_taken = true;
        return apr_translation_put(t, "--version");
    }
    if (row != NULL && row->kind == APR_FOREIGN_ALIAS && row->meaning[0] != '!' && apr_command_named(t->tool, row->meaning) == NULL)
        row = NULL;
    if (row != NULL) {
        *is_taken = true;
        t->at = at;
        if (row->meaning[0] == '!') return apr_translate_special(t, row->meaning + 1, word, NULL);
        if (row->kind == APR_FOREIGN_ALIAS) return put_verb(t, row->meaning);
        return refuse(t, row, word, NULL);
    }
    APR_TRY(refuse_verb_of_another(t, at));
    const bool converts = apr_command_named(t->tool, NULL) == NULL && apr_command_named(t->tool, "convert") != NULL && is_path(word);
    return converts ? put_verb(t, "convert") : APR_OK;
}

/* "aprconv -i IN -o OUT": does an option give the first operand? */
static bool names_input(const apr_translation *t)
{
    const char *rest = NULL;

    if (t->command != NULL || apr_command_named(t->tool, "convert") == NULL) return false;
    for (int i = 1; i < t->typed.argc && strcmp(t->typed.argv[i], "--") != 0; i++) {
        const char *const argument = t->typed.argv[i];
        const apr_foreign_word *const word = apr_foreign_find(apr_foreign_words, t->letter, NULL, argument, strcspn(argument, "="), &rest);
        if (argument[0] == '-' && word != NULL && strcmp(word->meaning, "<%") == 0) return true;
    }
    return false;
}

/* Finds the command; *skip: the index of the argument that named it, or 0. */
static apr_status find_command(apr_translation *t, int *skip)
{
    const int at = first_operand(t);
    const char *const word = at > 0 ? t->typed.argv[at] : NULL;
    bool is_taken = false;

    *skip = 0;
    t->command = apr_command_named(t->tool, NULL);
    if (word == NULL) return names_input(t) ? put_verb(t, "convert") : APR_OK;
    t->wants_help = strcmp(word, APR_HELP_VERB) == 0 && (t->command == NULL || at == 1);
    if (t->wants_help || (apr_command_named(t->tool, word) != NULL && (t->command == NULL || at == 1 || !is_path(word)))) {
        *skip = at;
        if (t->wants_help) t->command = NULL;
        return t->wants_help ? APR_OK : put_verb(t, word);
    }
    APR_TRY(translate_verb(t, at, &is_taken));
    if (is_taken) *skip = at;
    return APR_OK;
}

/* --- all arguments --- */

static apr_status translate_argument(apr_translation *t)
{
    const char *const argument = t->typed.argv[t->at];

    if (!t->only_operands && strcmp(argument, "--") == 0) {
        t->only_operands = true;
        return apr_translation_put(t, argument);
    }
    if (!t->only_operands && apr_begins_with(argument, "--")) return translate_long(t, argument);
    if (!t->only_operands && argument[0] == '-' && argument[1] != '\0') return translate_short(t, argument);
    t->operand_at[t->n_operands++] = t->argc;
    return apr_translation_put(t, argument);
}

/* "aprrun verfy m.gguf": if the first operand is not a file, the next ones are not a prompt. The parser reports the first. */
static bool looks_like_no_model(const apr_translation *t)
{
    const char *const first = t->n_front == 0 && t->n_operands > 0 ? t->argv[t->operand_at[0]] : NULL;
    return first != NULL && !is_path(first);
}

/* "aprrun MODEL In the beginning": joins operands beyond the maximum to the value of one option. */
static apr_status join_operands(apr_translation *t)
{
    const char *const option = t->command != NULL && !t->wants_help ? t->command->joins : NULL;
    const int most = option != NULL ? (int)t->command->max_operands - t->n_front : 0, first = most > 0 ? most : 0;
    const char *text = NULL;
    int n_gone = 0;

    if (option == NULL || t->n_operands <= first || looks_like_no_model(t)) return APR_OK;
    for (int i = first; i < t->n_operands; i++) {
        const int at = t->operand_at[i] - n_gone++;
        text = text == NULL ? t->argv[at] : apr_arena_print(t->arena, "%s %s", text, t->argv[at]);
        if (text == NULL) return no_memory(t);
        for (int k = at; k + 1 < t->argc; k++) t->argv[k] = t->argv[k + 1];
        t->argc--;
    }
    const char *const whole = apr_arena_print(t->arena, "--%s=%s", option, text);
    if (whole == NULL) return no_memory(t);
    for (int i = 1; i < t->argc; i++) { /* if there is a "--", insert before it */
        if (strcmp(t->argv[i], "--") != 0) continue;
        APR_TRY(apr_translation_put(t, t->argv[t->argc - 1]));
        for (int k = t->argc - 1; k > i; k--) t->argv[k] = t->argv[k - 1];
        t->argv[i] = (char *)whole;
        return APR_OK;
    }
    return apr_translation_put(t, whole);
}

/* Inserts operands that options gave: the front ones after the verb, the back ones at the end. */
static apr_status put_operands(apr_translation *t)
{
    const int first = t->verb_at > 0 ? t->verb_at + 1 : 1;

    for (int i = 0; i < t->n_front; i++) APR_TRY(apr_translation_put(t, t->front[i]));
    for (int i = 0; i < t->n_front; i++) {
        for (int k = t->argc - 1; k > first + i; k--) t->argv[k] = t->argv[k - 1];
        t->argv[first + i] = t->front[i];
    }
    for (int i = 0; i < t->n_back; i++) APR_TRY(apr_translation_put(t, t->back[i]));
    return APR_OK;
}

apr_status apr_translate_arguments(apr_translation *t, apr_error *err)
{
    int skip;

    t->err = err;
    t->letter = apr_foreign_tool_letter(t->tool->name);
    t->front = apr_arena_array(t->arena, (size_t)t->typed.argc + 1, sizeof *t->front);
    t->back = apr_arena_array(t->arena, (size_t)t->typed.argc + 1, sizeof *t->back);
    t->operand_at = apr_arena_array(t->arena, (size_t)t->typed.argc + 1, sizeof *t->operand_at);
    if (t->front == NULL || t->back == NULL || t->operand_at == NULL) return no_memory(t);
    APR_TRY(apr_translation_put(t, t->typed.argc > 0 ? t->typed.argv[0] : ""));
    APR_TRY(find_command(t, &skip));
    for (t->at = 1; t->at < t->typed.argc; t->at++)
        if (t->at != skip) APR_TRY(translate_argument(t));
    APR_TRY(join_operands(t));
    return put_operands(t);
}
