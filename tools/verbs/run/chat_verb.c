/* chat_verb.c - reads what the user says and answers it, until the input ends. */
#include "tools/verbs/run/chat_verb.h"

#include "tools/verbs/run/chat.h"
#include "tools/verbs/verbs.h"

#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const apr_option chat_table[] = {
    {"system", 0, APR_OPTION_STRING, "TEXT", NULL, "a system message", APR_TO(apr_chat_options, system), .group = "Conversation"},
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

void apr_chat_note(const char *format, ...)
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

void apr_chat_refuse(apr_chat *chat, const apr_error *why)
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
    apr_chat_note("%s", full.text);
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
    apr_chat_refuse(chat, &own);
    return APR_OK;
}

apr_status apr_chat_ask(apr_chat *chat, const char *text, size_t n_bytes, apr_error *err)
{
    apr_error own = {0};
    bool done = false;

    chat->n_tries = 0;
    const apr_status status = apr_messages_add(&chat->messages, "user", text, n_bytes, &own);
    if (status == APR_E_MEMORY) return apr_fail(err, status, "%s", own.text);
    if (status != APR_OK) {
        apr_chat_refuse(chat, &own);
        return APR_OK;
    }
    APR_TRY(answer(chat, &done, err));
    if (done) return APR_OK;
    apr_messages_undo(&chat->messages);
    apr_chat_note("the last message was removed from the conversation");
    return APR_OK;
}

apr_status apr_chat_retry(apr_chat *chat, apr_error *err)
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

/* --- the conversation --- */

static apr_status take_text(apr_chat *chat, apr_error *err)
{
    char *const text = chat->input.text;

    n_interrupts = wants_stop = 0;
    return apr_chat_is_command(text, chat->input.n_bytes) ? apr_chat_run_command(chat, text, err)
                                                          : apr_chat_ask(chat, text, chat->input.n_bytes, err);
}

static apr_status talk(apr_chat *chat, apr_error *err)
{
    while (!chat->is_ended) {
        apr_chat_what what;
        APR_TRY(apr_chat_input_read(&chat->input, &what, err));
        if (what == APR_CHAT_STOPPED) {
            wants_stop = 0;
            apr_chat_note("\npress Ctrl-C again to end, or Ctrl-D; or type /bye");
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

    APR_TRY(apr_running_open(&chat->running, path, &o->run, 1, err));
    if (chat->running.model.vocab.chat_template == NULL)
        return apr_fail(err, APR_E_UNSUPPORTED, "%s has no chat template, so it cannot chat; aprrun MODEL -p TEXT continues a text", path);
    if (!chat->call->quiet) apr_note_turn_end(&chat->running, stderr);
    return apr_chat_session_open(&chat->session, &chat->running, err);
}

static void greet(const apr_chat *chat)
{
    const int n = apr_messages_count_turns(&chat->messages);
    char context[APR_SMALL_TEXT];

    if (!chat->is_terminal || chat->call->quiet) return;
    apr_chat_note("%s on %s, context %s; /help lists the commands, Ctrl-D ends", apr_printable(chat->call->operands[0]),
                  apr_session_backend_name(chat->running.session), apr_count_text(context, apr_session_plan(chat->running.session)->n_ctx));
    if (n > 0)
        apr_chat_note("%d question%s loaded%s", n, n == 1 ? " is" : "s are",
                      apr_messages_ends_with_question(&chat->messages) ? "; /retry answers the last one" : "");
}

static apr_status conclude(apr_chat *chat, const apr_chat_options *o, apr_error *err)
{
    apr_answer *const answer = chat->call->answer;

    if (o->run.stats && !answer->json) apr_print_stats(&chat->running, chat->call);
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
    apr_status status = o->prompt != NULL ? apr_chat_ask(chat, o->prompt, strlen(o->prompt), err) : APR_OK;
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
    apr_chat_input_close(&chat.input);
    apr_messages_close(&chat.messages);
    apr_chat_session_close(&chat.session);
    apr_running_close(&chat.running);
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
