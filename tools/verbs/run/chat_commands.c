/* chat_commands.c - the commands: lines that begin with a slash. */
#include "tools/cli/values.h"
#include "tools/verbs/run/chat.h"

#include <string.h>

typedef apr_status command_fn(apr_chat *chat, char *argument, apr_error *err);

/* Prints why a command was refused; the conversation continues. */
static apr_status refuse(apr_chat *chat, apr_status status, const char *sentence)
{
    apr_error why = {0};
    apr_fail(&why, status, "%s", sentence);
    apr_chat_refuse(chat, &why);
    return APR_OK;
}

static apr_status clear(apr_chat *chat, char *argument, apr_error *err)
{
    (void)argument, (void)err;
    apr_messages_clear(&chat->messages);
    chat->n_tries = 0;
    apr_chat_note("the conversation starts again%s", apr_messages_system(&chat->messages) != NULL ? " after the system message" : "");
    return APR_OK;
}

static apr_status set_system(apr_chat *chat, char *argument, apr_error *err)
{
    apr_error why = {0};
    (void)err;
    const char *const system = apr_messages_system(&chat->messages);

    if (*argument == '\0') {
        apr_chat_note("%s", system != NULL ? system : "there is no system message; /system TEXT sets one");
        return APR_OK;
    }
    if (strcmp(argument, "\"\"") == 0) argument = "";
    if (apr_messages_set_system(&chat->messages, argument, &why) != APR_OK) {
        apr_chat_refuse(chat, &why);
        return APR_OK;
    }
    apr_chat_note(*argument != '\0' ? "the system message is set" : "the system message is removed");
    return APR_OK;
}

static apr_status undo(apr_chat *chat, char *argument, apr_error *err)
{
    (void)argument, (void)err;
    if (!apr_messages_undo(&chat->messages)) return refuse(chat, APR_E_USAGE, "there is nothing to undo");
    const int n = apr_messages_count_turns(&chat->messages);
    chat->n_tries = 0;
    apr_chat_note("undone; %d question%s left", n, n == 1 ? " is" : "s are");
    return APR_OK;
}

static apr_status retry(apr_chat *chat, char *argument, apr_error *err)
{
    (void)argument;
    if (apr_messages_count_turns(&chat->messages) == 0) return refuse(chat, APR_E_USAGE, "there is nothing to answer again");
    return apr_chat_retry(chat, err);
}

static apr_status save(apr_chat *chat, char *argument, apr_error *err)
{
    apr_error why = {0};

    (void)err;
    if (*argument == '\0') return refuse(chat, APR_E_USAGE, "/save needs a file: /save FILE");
    if (apr_messages_save(&chat->messages, argument, &why) != APR_OK) apr_chat_refuse(chat, &why);
    else apr_chat_note("saved as %s", apr_printable(argument));
    return APR_OK;
}

static apr_status load(apr_chat *chat, char *argument, apr_error *err)
{
    apr_error why = {0};

    (void)err;
    if (*argument == '\0') return refuse(chat, APR_E_USAGE, "/load needs a file: /load FILE");
    if (apr_messages_load(&chat->messages, argument, &why) != APR_OK) {
        apr_chat_refuse(chat, &why);
        return APR_OK;
    }
    const int n = apr_messages_count_turns(&chat->messages);
    chat->n_tries = 0;
    apr_chat_note("loaded %d question%s%s", n, n == 1 ? "" : "s",
                  apr_messages_ends_with_question(&chat->messages) ? "; /retry answers the last one" : "");
    return APR_OK;
}

static double per_second(int64_t n, double seconds) { return seconds > 0.0 ? (double)n / seconds : 0.0; }

static apr_status stats(apr_chat *chat, char *argument, apr_error *err)
{
    const apr_chat_turn *const t = &chat->last;
    const int64_t n_read = t->n_prompt - t->n_kept;
    char of[APR_SMALL_TEXT];

    (void)argument, (void)err;
    if (chat->n_answers == 0) {
        apr_chat_note("nothing has been answered yet");
        return APR_OK;
    }
    apr_chat_note("last answer: %lld tokens reused, %lld read (%.1f/s), %lld generated (%.1f/s)", (long long)t->n_kept, (long long)n_read,
                  per_second(n_read, t->read_seconds), (long long)t->n_generated, per_second(t->n_generated, t->write_seconds));
    apr_chat_note("all %lld: %lld tokens reused, %lld read, %lld generated", (long long)chat->n_answers, (long long)chat->n_kept,
                  (long long)chat->n_read, (long long)chat->n_written);
    apr_chat_note("context: %lld of %s tokens", (long long)apr_session_position(chat->running.session),
                  apr_count_text(of, apr_session_plan(chat->running.session)->n_ctx));
    return APR_OK;
}

/* --- settings --- */

static const apr_option settable[] = {
    {"tokens", 'n', APR_OPTION_INT, "N", NULL, "", APR_TO(apr_chat_settings, n), .min = 0, .max = 1e9},
    {"temp", 0, APR_OPTION_REAL, "T", NULL, "", APR_TO(apr_chat_settings, sampling.temp), .min = 0, .max = 100},
    {"top-p", 0, APR_OPTION_REAL, "P", NULL, "", APR_TO(apr_chat_settings, sampling.top_p), .min = 0, .max = 1},
    {"seed", 0, APR_OPTION_INT, "N", NULL, "", APR_TO(apr_chat_settings, sampling.seed), .min = -9e18, .max = 9e18},
    APR_SAMPLING_OPTIONS(apr_chat_settings, sampling, ""),
    {0},
};

/* "top_p" and "--top-p" are top-p; "temperature" is temp, "n" is tokens. */
static const apr_option *find_setting(char *name)
{
    while (*name == '-') name++;
    for (char *p = name; *p != '\0'; p++)
        if (*p == '_') *p = '-';
    if (strcmp(name, "temperature") == 0) name = "temp";
    for (const apr_option *o = settable; o->name != NULL; o++)
        if (strcmp(o->name, name) == 0 || (o->letter != 0 && name[0] == o->letter && name[1] == '\0')) return o;
    return NULL;
}

static void show_settings(const apr_chat *chat)
{
    for (const apr_option *o = settable; o->name != NULL; o++) {
        const char *const field = (const char *)&chat->settings + o->offset;
        if (o->kind == APR_OPTION_INT) apr_chat_note("%-18s %lld", o->name, (long long)*(const int64_t *)field);
        if (o->kind == APR_OPTION_REAL) apr_chat_note("%-18s %g", o->name, *(const double *)field);
    }
    for (size_t i = 0; i < chat->settings.sampling.stop.n_items; i++)
        apr_chat_note("%-18s %s", "stop", apr_printable(chat->settings.sampling.stop.items[i]));
}

static apr_status set(apr_chat *chat, char *argument, apr_error *err)
{
    apr_error why = {0};
    double real = 0.0;
    int64_t integer = 0;

    (void)err;
    if (*argument == '\0') {
        show_settings(chat);
        return APR_OK;
    }
    char *const value = argument + strcspn(argument, " =");
    const bool has_value = *value != '\0';
    if (has_value) *value = '\0';
    const char *const text = has_value ? value + 1 + strspn(value + 1, " =") : "";
    const apr_option *const o = find_setting(argument);
    if (o == NULL || o->kind == APR_OPTION_LIST) return refuse(chat, APR_E_USAGE, "this cannot be set; /set alone shows what can");
    const bool is_good = o->kind == APR_OPTION_INT ? apr_parse_int(text, &integer) : apr_parse_real(text, &real);
    if (o->kind == APR_OPTION_INT) real = (double)integer;
    if (!is_good || real < o->min || real > o->max) {
        apr_fail(&why, APR_E_USAGE, "%s must be between %.12g and %.12g", o->name, o->min, o->max);
        apr_chat_refuse(chat, &why);
        return APR_OK;
    }
    if (o->kind == APR_OPTION_INT) *(int64_t *)((char *)&chat->settings + o->offset) = integer;
    else *(double *)((char *)&chat->settings + o->offset) = real;
    apr_chat_note("%s is %.12g", o->name, real);
    return APR_OK;
}

static apr_status end_chat(apr_chat *chat, char *argument, apr_error *err)
{
    (void)argument, (void)err;
    chat->is_ended = true;
    return APR_OK;
}

static command_fn help;

static const struct {
    const char *name, *argument, *says;
    command_fn *run;
} commands[] = {
    {"help", "", "this list", help},
    {"clear", "", "forget the conversation; the system message stays", clear},
    {"system", "TEXT", "set the system message; \"\" removes it, without TEXT it is shown", set_system},
    {"undo", "", "remove the last question and its answer", undo},
    {"retry", "", "answer the last question again; with sampling, by another seed", retry},
    {"save", "FILE", "save the conversation as a line that aprrun batch reads", save},
    {"load", "FILE", "continue a saved conversation", load},
    {"stats", "", "how many tokens were reused, read and generated", stats},
    {"set", "NAME VALUE", "change temp, top-p, top-k, seed, tokens, ...; alone it shows them", set},
    {"exit", "", "end; so do /bye and Ctrl-D", end_chat},
    {"bye", "", NULL, end_chat},
    {"quit", "", NULL, end_chat},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static apr_status help(apr_chat *chat, char *argument, apr_error *err)
{
    (void)chat, (void)argument, (void)err;
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (commands[i].says != NULL)
            apr_chat_note("/%s %-*s %s", commands[i].name, 17 - (int)strlen(commands[i].name), commands[i].argument, commands[i].says);
    apr_chat_note("%-19s %s", "\"\"\"", "begins and ends a text of several lines; a backslash at the end of a line continues it");
    apr_chat_note("%-19s %s", "Ctrl-C", "stops an answer; twice it ends the program");
    return APR_OK;
}

bool apr_chat_is_command(const char *text, size_t n_bytes) { return text[0] == '/' && memchr(text, '\n', n_bytes) == NULL; }

apr_status apr_chat_run_command(apr_chat *chat, char *text, apr_error *err)
{
    char *const name = text + 1, *const blank = name + strcspn(name, " \t");
    apr_error why = {0};
    char *argument = blank + strspn(blank, " \t"), *end = argument + strlen(argument);

    while (end > argument && (end[-1] == ' ' || end[-1] == '\t')) *--end = '\0';
    *blank = '\0';
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0) return commands[i].run(chat, argument, err);
    apr_fail(&why, APR_E_USAGE, "'/%.40s' is not a command; /help lists them; put a blank before a text that begins with a slash",
             apr_printable(name));
    apr_chat_refuse(chat, &why);
    return APR_OK;
}
