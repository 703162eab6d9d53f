/* chat.c - `aprrun chat`: reads what the user says and answers it, until the input ends. */
#include "tools/verbs/run/chat.h"

#include "formats/base/grow.h"
#include "tools/cli/values.h"
#include "tools/engine/requests/batch_lines.h"
#include "tools/verbs/run/chat_turn.h"
#include "tools/verbs/verbs.h"

#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- input: a line, several lines between two """, or several that end in a backslash --- */

/* Set the descriptor, its name, prompts and is_stopped; the rest begins as zeros. */
typedef struct apr_chat_input {
    apr_line_reader lines;
    FILE *prompts;            /* where "> " goes; NULL: nowhere */
    bool (*is_stopped)(void); /* called while there is nothing to read; true ends the wait; NULL: never */
    char *text;               /* [n_bytes] and a NUL */
    size_t n_bytes, capacity;
} apr_chat_input;

typedef enum { APR_CHAT_TEXT, APR_CHAT_STOPPED, APR_CHAT_END } apr_chat_what;

#define QUOTES "\"\"\""
enum { N_QUOTES = 3 };

static bool append(apr_chat_input *in, const char *bytes, size_t n)
{
    char *const text = apr_grow(in->text, &in->capacity, in->n_bytes + n + 1, 1);
    if (text == NULL) return false;
    in->text = text;
    if (n > 0) memcpy(in->text + in->n_bytes, bytes, n);
    in->n_bytes += n;
    in->text[in->n_bytes] = '\0';
    return true;
}

/* Waits for the next line. */
static apr_status next_line(apr_chat_input *in, apr_chat_what *what, apr_line *line, apr_error *err)
{
    apr_line_state state = APR_LINE_LATER;

    while (state == APR_LINE_LATER) {
        if (in->is_stopped != NULL && in->is_stopped()) {
            *what = APR_CHAT_STOPPED;
            return APR_OK;
        }
        APR_TRY(apr_line_read(&in->lines, true, &state, line, err));
    }
    *what = state == APR_LINE_HERE ? APR_CHAT_TEXT : APR_CHAT_END;
    if (state == APR_LINE_HERE && line->is_too_long)
        return apr_fail(err, APR_E_UNSUPPORTED, "%s: a line has more than %zu MiB", in->lines.name, APR_LINE_MAX_BYTES >> 20);
    return APR_OK;
}

static void prompt(const apr_chat_input *in, const char *text)
{
    if (in->prompts == NULL) return;
    fputs(text, in->prompts);
    fflush(in->prompts);
}

static bool begins_quote(const apr_line *line) { return line->n_bytes >= N_QUOTES && memcmp(line->bytes, QUOTES, N_QUOTES) == 0; }
static bool ends_quote(const char *bytes, size_t n) { return n >= N_QUOTES && memcmp(bytes + n - N_QUOTES, QUOTES, N_QUOTES) == 0; }
static bool ends_in_backslash(const char *bytes, size_t n) { return n > 0 && bytes[n - 1] == '\\'; }

/* Appends a line to the text. *more: it is not the last one. */
static bool add_line(apr_chat_input *in, const char *bytes, size_t n, bool is_quoted, bool *more)
{
    const bool ends = is_quoted && ends_quote(bytes, n), continues = !is_quoted && ends_in_backslash(bytes, n);

    *more = is_quoted ? !ends : continues;
    if (ends && n == N_QUOTES && in->n_bytes > 0 && in->text[in->n_bytes - 1] == '\n')
        in->n_bytes--; /* the quotes are alone on their line */
    if (!append(in, bytes, n - (ends ? N_QUOTES : continues ? 1 : 0))) return false;
    return !*more || append(in, "\n", 1);
}

static apr_status read_text(apr_chat_input *in, apr_chat_what *what, apr_error *err)
{
    apr_line line;
    bool more = true;

    in->n_bytes = 0;
    prompt(in, "> ");
    APR_TRY(next_line(in, what, &line, err));
    if (*what != APR_CHAT_TEXT) return APR_OK;
    const bool is_quoted = begins_quote(&line);
    const size_t skipped = is_quoted ? N_QUOTES : 0, n = line.n_bytes - skipped;
    const bool is_alone = is_quoted && n == 0;
    if (!append(in, "", 0) || (!is_alone && !add_line(in, line.bytes + skipped, n, is_quoted, &more)))
        return apr_no_memory(err, "a message");
    while (more) {
        prompt(in, ". ");
        APR_TRY(next_line(in, what, &line, err));
        if (*what == APR_CHAT_STOPPED) return APR_OK;
        if (*what == APR_CHAT_END) break;
        if (!add_line(in, line.bytes, line.n_bytes, is_quoted, &more)) return apr_no_memory(err, "a message");
    }
    *what = APR_CHAT_TEXT;
    return APR_OK;
}

/* Reads the next text that is not blank into input->text, valid until the next call. STOPPED: is_stopped returned true, and an unfinished
 * text was dropped. A text that the end of the input cuts off is returned. */
static apr_status chat_input_read(apr_chat_input *in, apr_chat_what *what, apr_error *err)
{
    do APR_TRY(read_text(in, what, err));
    while (*what == APR_CHAT_TEXT && in->text[strspn(in->text, " \t\r\n")] == '\0' && strlen(in->text) == in->n_bytes);
    return APR_OK;
}

/* frees memory; does not close the file */
static void chat_input_close(apr_chat_input *in)
{
    apr_line_reader_close(&in->lines);
    free(in->text);
    in->text = NULL;
    in->n_bytes = in->capacity = 0;
}

/* --- the command --- */

static const apr_option chat_table[] = {
    {"system", 0, APR_OPTION_STRING, "TEXT", NULL, "a system message before the first turn", APR_TO(apr_chat_options, system),
     .group = "Conversation"},
    {"prompt", 'p', APR_OPTION_STRING, "TEXT", NULL, "the user's first message", APR_TO(apr_chat_options, prompt)},
    {"load", 0, APR_OPTION_STRING, "FILE", NULL, "continue a conversation that /save wrote, or a line of a batch",
     APR_TO(apr_chat_options, load)},
    {"tools", 0, APR_OPTION_STRING, "FILE", NULL, "a JSON list of tools, for the chat template", APR_TO(apr_chat_options, tools)},
    {"tokens", 'n', APR_OPTION_INT, "N", "0", "at most N tokens per answer; 0: until the model ends it, or the context is full",
     APR_TO(apr_chat_options, settings.n), .min = 0, .max = 1e9, .group = "Sampling"},
    {"temp", 0, APR_OPTION_REAL, "T", "0", "temperature; 0 takes the most likely token", APR_TO(apr_chat_options, settings.sampling.temp),
     .min = 0, .max = 100},
    {"top-p", 0, APR_OPTION_REAL, "P", "1", "sample from the smallest set of tokens whose probabilities add up to P",
     APR_TO(apr_chat_options, settings.sampling.top_p), .min = 0, .max = 1},
    {"seed", 0, APR_OPTION_INT, "N", "0", "the same seed gives the same text", APR_TO(apr_chat_options, settings.sampling.seed),
     .min = -9e18, .max = 9e18},
    APR_SAMPLING_OPTIONS(apr_chat_options, settings.sampling, ""),
    APR_RUN_OPTIONS(apr_chat_options, run, "f16"),
    APR_LORA_OPTION(apr_chat_options, run.lora, "the weights"),
    {0},
};

static const char *const chat_examples[] = {
    "aprrun chat model.gguf --system 'Be brief.' --temp 0.7 --top-p 0.9",
    "aprrun chat model.gguf --load yesterday.json",
    "printf 'Hello\\nAnd now in French\\n' | aprrun chat model.gguf --json",
    NULL,
};

/* A conversation. */
typedef struct apr_chat {
    const apr_call *call;
    apr_opened opened;
    apr_chat_session session;
    apr_chat_settings settings;
    apr_messages messages;
    apr_chat_input input;
    bool is_terminal;                     /* stdin is a terminal */
    bool is_ended;                        /* /exit */
    apr_chat_turn last;                   /* the last answer, for /stats */
    int64_t n_answers, n_failed, n_tries; /* n_tries: how often the last question was answered again */
    int64_t n_read, n_kept, n_written;    /* tokens of all answers: read, kept evaluated, generated */
} apr_chat;

/* --- Ctrl-C --- */

static volatile sig_atomic_t n_interrupts, wants_stop; /* Ctrl-C since the last message; one that must still be obeyed */
static struct sigaction interrupt_before;

/* The second one has the effect that it had before catch_interrupts. */
static void on_interrupt(int number)
{
    wants_stop = 1;
    if (n_interrupts++ == 0) return;
    sigaction(SIGINT, &interrupt_before, NULL);
    raise(number);
}

static bool is_stopped(void) { return wants_stop != 0; }

static void catch_interrupts(void)
{
    const struct sigaction catch = {.sa_handler = on_interrupt};
    if (sigaction(SIGINT, NULL, &interrupt_before) == 0 && interrupt_before.sa_handler != SIG_IGN) sigaction(SIGINT, &catch, NULL);
}

static void restore_interrupts(void)
{
    if (interrupt_before.sa_handler != SIG_IGN) sigaction(SIGINT, &interrupt_before, NULL);
}

/* --- output --- */

static void chat_note(const char *format, ...)
{
    va_list args;

    fflush(stdout);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
}

static void print_object(apr_json_text *json)
{
    size_t n;

    apr_json_close(json, '}');
    char *const text = apr_json_text_take(json, &n);
    if (text != NULL) fwrite(text, 1, n, stdout);
    putchar('\n');
    fflush(stdout);
    free(text);
}

static void put_text(apr_json_text *json, const char *key, const char *text) { apr_json_string(json, key, text, strlen(text)); }

/* Prints why something could not be done; with --json as an object on stdout. */
static void chat_refuse(apr_chat *chat, const apr_error *why)
{
    apr_json_text json = {0};

    chat->n_failed++;
    if (!chat->call->answer->json) {
        fflush(stdout);
        fprintf(stderr, "%s%s\n", chat->is_terminal ? "" : "aprrun: ", why->text);
        return;
    }
    apr_json_open(&json, NULL, '{');
    put_text(&json, "error", why->text);
    put_text(&json, "status", apr_status_text(why->status));
    print_object(&json);
}

static void print_turn(const apr_chat *chat, const apr_chat_turn *t)
{
    const apr_finish finish = t->at_stop_text ? APR_FINISH_STOP : t->finish;
    apr_json_text json = {0};

    if (!chat->call->answer->json) {
        fputs(chat->is_terminal ? "\n\n" : "\n", stdout);
        fflush(stdout);
        return;
    }
    apr_json_open(&json, NULL, '{');
    apr_json_int(&json, "turn", apr_messages_count_turns(&chat->messages));
    apr_json_string(&json, "text", t->text, t->n_text);
    put_text(&json, "finish", apr_finish_name(finish));
    apr_json_int(&json, "prompt_tokens", t->n_prompt);
    apr_json_int(&json, "kept_tokens", t->n_kept);
    apr_json_int(&json, "read_tokens", t->n_prompt - t->n_kept);
    apr_json_int(&json, "tokens", t->n_generated);
    apr_json_open(&json, "ids", '[');
    for (int64_t i = 0; i < t->n_generated; i++) apr_json_int(&json, NULL, t->ids[i]);
    apr_json_close(&json, ']');
    print_object(&json);
}

/* --- a turn --- */

static apr_status take_answer(apr_chat *chat, const apr_chat_turn *t, apr_error *err)
{
    apr_error full = {0};

    chat->n_answers++;
    chat->n_kept += t->n_kept;
    chat->n_read += t->n_prompt - t->n_kept;
    chat->n_written += t->n_generated;
    APR_TRY(apr_messages_add(&chat->messages, "assistant", t->text, t->n_text, err));
    print_turn(chat, t);
    if (t->finish != APR_FINISH_CONTEXT) return APR_OK;
    apr_chat_fail_full(&chat->session, &full);
    chat_note("%s", full.text);
    return APR_OK;
}

/* *done: the answer is part of the conversation. Else the reason was printed. */
static apr_status answer(apr_chat *chat, bool *done, apr_error *err)
{
    apr_chat_turn t = {0};
    apr_error own = {0};

    *done = false;
    chat->session.before = chat->is_terminal || chat->call->answer->json || chat->n_answers == 0 ? NULL : "\n";
    apr_status status = apr_chat_answer(&chat->session, &chat->messages, &chat->settings, chat->n_tries, &t, &own);
    if (status == APR_OK && t.n_generated == 0 && is_stopped()) status = apr_fail(&own, APR_E_NO, "stopped before the answer began");
    wants_stop = 0;
    if (status == APR_OK) {
        apr_chat_turn_close(&chat->last);
        chat->last = t;
        *done = true;
        return take_answer(chat, &chat->last, err);
    }
    apr_chat_turn_close(&t);
    if (status == APR_E_MEMORY || status == APR_E_DEVICE || status == APR_E_IO) return apr_fail(err, status, "%s", own.text);
    chat_refuse(chat, &own);
    return APR_OK;
}

/* Adds a message of the user and answers it. If that is not possible, prints why and removes the message (n_failed). Returns only errors
 * that end the conversation. */
static apr_status chat_ask(apr_chat *chat, const char *text, size_t n_bytes, apr_error *err)
{
    apr_error own = {0};
    bool done = false;

    chat->n_tries = 0;
    const apr_status status = apr_messages_add(&chat->messages, "user", text, n_bytes, &own);
    if (status == APR_E_MEMORY) return apr_fail(err, status, "%s", own.text);
    if (status != APR_OK) {
        chat_refuse(chat, &own);
        return APR_OK;
    }
    APR_TRY(answer(chat, &done, err));
    if (done) return APR_OK;
    apr_messages_undo(&chat->messages);
    chat_note("the last message was removed from the conversation");
    return APR_OK;
}

/* Answers the last question again. */
static apr_status chat_retry(apr_chat *chat, apr_error *err)
{
    cJSON *const before = cJSON_Duplicate(chat->messages.list, true);
    const bool had_answer = !apr_messages_ends_with_question(&chat->messages);
    bool done = false;

    if (before == NULL) return apr_no_memory(err, "the conversation");
    apr_messages_drop_answer(&chat->messages);
    chat->n_tries += had_answer;
    const apr_status status = answer(chat, &done, err);
    if (done || status != APR_OK) {
        cJSON_Delete(before);
        return status;
    }
    cJSON_Delete(chat->messages.list); /* restores it */
    chat->messages.list = before;
    return APR_OK;
}

/* --- commands: lines that begin with a slash --- */

typedef apr_status command_fn(apr_chat *chat, char *argument, apr_error *err);

/* Prints why a command was refused; the conversation continues. */
static apr_status refuse(apr_chat *chat, apr_status status, const char *sentence)
{
    apr_error why = {0};
    apr_fail(&why, status, "%s", sentence);
    chat_refuse(chat, &why);
    return APR_OK;
}

static apr_status clear(apr_chat *chat, char *argument, apr_error *err)
{
    (void)argument, (void)err;
    apr_messages_clear(&chat->messages);
    chat->n_tries = 0;
    chat_note("the conversation starts again%s", apr_messages_system(&chat->messages) != NULL ? " after the system message" : "");
    return APR_OK;
}

static apr_status set_system(apr_chat *chat, char *argument, apr_error *err)
{
    apr_error why = {0};
    (void)err;
    const char *const system = apr_messages_system(&chat->messages);

    if (*argument == '\0') {
        chat_note("%s", system != NULL ? system : "there is no system message; /system TEXT sets one");
        return APR_OK;
    }
    if (strcmp(argument, "\"\"") == 0) argument = "";
    if (apr_messages_set_system(&chat->messages, argument, &why) != APR_OK) {
        chat_refuse(chat, &why);
        return APR_OK;
    }
    chat_note(*argument != '\0' ? "the system message is set" : "the system message is removed");
    return APR_OK;
}

static apr_status undo(apr_chat *chat, char *argument, apr_error *err)
{
    (void)argument, (void)err;
    if (!apr_messages_undo(&chat->messages)) return refuse(chat, APR_E_USAGE, "there is nothing to undo");
    const int n = apr_messages_count_turns(&chat->messages);
    chat->n_tries = 0;
    chat_note("undone; %d question%s left", n, n == 1 ? " is" : "s are");
    return APR_OK;
}

static apr_status retry(apr_chat *chat, char *argument, apr_error *err)
{
    (void)argument;
    if (apr_messages_count_turns(&chat->messages) == 0) return refuse(chat, APR_E_USAGE, "there is nothing to answer again");
    return chat_retry(chat, err);
}

static apr_status save(apr_chat *chat, char *argument, apr_error *err)
{
    apr_error why = {0};

    (void)err;
    if (*argument == '\0') return refuse(chat, APR_E_USAGE, "/save needs a file: /save FILE");
    if (apr_messages_save(&chat->messages, argument, &why) != APR_OK) chat_refuse(chat, &why);
    else chat_note("saved as %s", apr_printable(argument));
    return APR_OK;
}

static apr_status load(apr_chat *chat, char *argument, apr_error *err)
{
    apr_error why = {0};

    (void)err;
    if (*argument == '\0') return refuse(chat, APR_E_USAGE, "/load needs a file: /load FILE");
    if (apr_messages_load(&chat->messages, argument, &why) != APR_OK) {
        chat_refuse(chat, &why);
        return APR_OK;
    }
    const int n = apr_messages_count_turns(&chat->messages);
    chat->n_tries = 0;
    chat_note("loaded %d question%s%s", n, n == 1 ? "" : "s",
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
        chat_note("nothing has been answered yet");
        return APR_OK;
    }
    chat_note("last answer: %lld tokens reused, %lld read (%.1f/s), %lld generated (%.1f/s)", (long long)t->n_kept, (long long)n_read,
              per_second(n_read, t->read_seconds), (long long)t->n_generated, per_second(t->n_generated, t->write_seconds));
    chat_note("all %lld: %lld tokens reused, %lld read, %lld generated", (long long)chat->n_answers, (long long)chat->n_kept,
              (long long)chat->n_read, (long long)chat->n_written);
    chat_note("context: %lld of %s tokens", (long long)apr_session_position(chat->opened.running->session),
              apr_count_text(of, apr_session_plan(chat->opened.running->session)->n_ctx));
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
        if (o->kind == APR_OPTION_INT) chat_note("%-18s %lld", o->name, (long long)*(const int64_t *)field);
        if (o->kind == APR_OPTION_REAL) chat_note("%-18s %g", o->name, *(const double *)field);
    }
    for (size_t i = 0; i < chat->settings.sampling.stop.n_items; i++)
        chat_note("%-18s %s", "stop", apr_printable(chat->settings.sampling.stop.items[i]));
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
        chat_refuse(chat, &why);
        return APR_OK;
    }
    if (o->kind == APR_OPTION_INT) *(int64_t *)((char *)&chat->settings + o->offset) = integer;
    else *(double *)((char *)&chat->settings + o->offset) = real;
    chat_note("%s is %.12g", o->name, real);
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
            chat_note("/%s %-*s %s", commands[i].name, 17 - (int)strlen(commands[i].name), commands[i].argument, commands[i].says);
    chat_note("%-19s %s", "\"\"\"", "begins and ends a text of several lines; a backslash at the end of a line continues it");
    chat_note("%-19s %s", "Ctrl-C", "stops an answer; twice it ends the program");
    return APR_OK;
}

/* chat_commands.c: is the text a command ("/undo")? Then chat_run_command runs it, and may change the text. */
static bool chat_is_command(const char *text, size_t n_bytes) { return text[0] == '/' && memchr(text, '\n', n_bytes) == NULL; }

/* chat_commands.c: is the text a command ("/undo")? Then chat_run_command runs it, and may change the text. */
static apr_status chat_run_command(apr_chat *chat, char *text, apr_error *err)
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
    chat_refuse(chat, &why);
    return APR_OK;
}

/* --- the conversation --- */

static apr_status take_text(apr_chat *chat, apr_error *err)
{
    char *const text = chat->input.text;

    n_interrupts = wants_stop = 0;
    return chat_is_command(text, chat->input.n_bytes) ? chat_run_command(chat, text, err) : chat_ask(chat, text, chat->input.n_bytes, err);
}

static apr_status talk(apr_chat *chat, apr_error *err)
{
    while (!chat->is_ended) {
        apr_chat_what what;
        APR_TRY(chat_input_read(&chat->input, &what, err));
        if (what == APR_CHAT_STOPPED) {
            wants_stop = 0;
            chat_note("\npress Ctrl-C again to end, or Ctrl-D; or type /bye");
        } else if (what == APR_CHAT_END) {
            if (chat->is_terminal) fputc('\n', chat->input.prompts);
            break;
        } else {
            APR_TRY(take_text(chat, err));
        }
    }
    return APR_OK;
}

static apr_status start_messages(apr_chat *chat, const apr_chat_options *o, apr_error *err)
{
    if (o->load != NULL) APR_TRY(apr_messages_load(&chat->messages, o->load, err));
    if (o->tools != NULL) APR_TRY(apr_messages_load_tools(&chat->messages, o->tools, err));
    return o->system != NULL ? apr_messages_set_system(&chat->messages, o->system, err) : APR_OK;
}

static apr_status open_model(apr_chat *chat, const apr_chat_options *o, apr_error *err)
{
    const char *const path = chat->call->operands[0];

    APR_TRY(apr_opened_all(&chat->opened, path, &o->run, 1, err));
    if (chat->opened.running->model.vocab.chat_template == NULL)
        return apr_fail(err, APR_E_UNSUPPORTED, "%s has no chat template, so it cannot chat; aprrun MODEL -p TEXT continues a text", path);
    if (!chat->call->quiet) apr_note_turn_end(chat->opened.running, stderr);
    return apr_chat_session_open(&chat->session, chat->opened.running, err);
}

static void greet(const apr_chat *chat)
{
    const int n = apr_messages_count_turns(&chat->messages);
    char context[APR_SMALL_TEXT];

    if (!chat->is_terminal || chat->call->quiet) return;
    chat_note("%s on %s, context %s; /help lists the commands, Ctrl-D ends", apr_printable(chat->call->operands[0]),
              apr_session_backend_name(chat->opened.running->session),
              apr_count_text(context, apr_session_plan(chat->opened.running->session)->n_ctx));
    if (n > 0)
        chat_note("%d question%s loaded%s", n, n == 1 ? " is" : "s are",
                  apr_messages_ends_with_question(&chat->messages) ? "; /retry answers the last one" : "");
}

static apr_status conclude(apr_chat *chat, const apr_chat_options *o, apr_error *err)
{
    apr_answer *const answer = chat->call->answer;

    if (o->run.stats && !answer->json) apr_print_stats(chat->opened.running, chat->call);
    answer->json = false; /* each turn has printed its own object */
    if (chat->n_failed == 0 || chat->is_terminal) return APR_OK;
    return apr_fail(err, APR_E_NO, "%lld line%s could not be answered", (long long)chat->n_failed, chat->n_failed == 1 ? "" : "s");
}

static apr_status run(apr_chat *chat, const apr_chat_options *o, apr_error *err)
{
    APR_TRY(apr_check_stop_texts(&o->settings.sampling.stop, err));
    APR_TRY(start_messages(chat, o, err));
    APR_TRY(open_model(chat, o, err));
    chat->session.print = !chat->call->answer->json;
    chat->session.is_terminal = isatty(STDOUT_FILENO);
    chat->session.is_stopped = is_stopped;
    greet(chat);
    if (chat->is_terminal) catch_interrupts();
    apr_status status = o->prompt != NULL ? chat_ask(chat, o->prompt, strlen(o->prompt), err) : APR_OK;
    if (status == APR_OK) status = talk(chat, err);
    if (chat->is_terminal) restore_interrupts();
    return status == APR_OK ? conclude(chat, o, err) : status;
}

apr_status apr_chat_with(const apr_call *call, const apr_chat_options *o, apr_error *err)
{
    apr_chat chat = {.call = call, .settings = o->settings, .is_terminal = isatty(STDIN_FILENO)};

    n_interrupts = wants_stop = 0;
    chat.input = (apr_chat_input){.lines = {.fd = STDIN_FILENO, .name = "stdin"}, .is_stopped = is_stopped};
    if (chat.is_terminal) chat.input.prompts = isatty(STDOUT_FILENO) && !call->answer->json ? stdout : stderr;
    const apr_status status = run(&chat, o, err);
    apr_chat_turn_close(&chat.last);
    chat_input_close(&chat.input);
    apr_messages_close(&chat.messages);
    apr_chat_session_close(&chat.session);
    apr_opened_close(&chat.opened);
    return status;
}

static apr_status run_chat(const apr_call *call, apr_error *err) { return apr_chat_with(call, call->options, err); }

const apr_command apr_chat_command = {.verb = "chat",
                                      .operands = "MODEL",
                                      .min_operands = 1,
                                      .max_operands = 1,
                                      .summary = "a conversation; if stdin is not a terminal, each line is one turn",
                                      .options = chat_table,
                                      .options_bytes = sizeof(apr_chat_options),
                                      .examples = chat_examples,
                                      .run = run_chat,
                                      .needs = apr_run_needs};
