/* generate.c - aprrun without a verb: text from a prompt. */
#include "tools/verbs/plan/plan_lines.h"
#include "tools/verbs/run/answer_stream.h"
#include "tools/verbs/run/chat.h"
#include "tools/verbs/run/prompt.h"
#include "tools/verbs/run/running.h"
#include "tools/verbs/run/sampling.h"
#include "tools/verbs/verbs.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct generate_options {
    apr_run_options run;
    const char *prompt, *file, *system;
    bool chat, interactive, special, no_bos;
    int64_t n;
    apr_sampling sampling;
} generate_options;

static const apr_option generate_table[] = {
    {"prompt", 'p', APR_OPTION_STRING, "TEXT", NULL, "the prompt; - reads stdin, as does a pipe into aprrun",
     APR_TO(generate_options, prompt), .group = "Prompt"},
    {"file", 'f', APR_OPTION_STRING, "FILE", NULL, "the prompt from a file or a pipe; - reads stdin", APR_TO(generate_options, file)},
    {"prompt-file", 0, APR_OPTION_STRING, "FILE", NULL, "the same as --file", APR_TO(generate_options, file)},
    {"chat", 0, APR_OPTION_FLAG, NULL, NULL, "send the prompt as a user message in the model's chat template",
     APR_TO(generate_options, chat)},
    {"system", 0, APR_OPTION_STRING, "TEXT", NULL, "a system message before the prompt; implies --chat", APR_TO(generate_options, system)},
    {"interactive", 'i', APR_OPTION_FLAG, NULL, NULL,
     "hold a conversation, as aprrun chat does; the default on a terminal without a prompt", APR_TO(generate_options, interactive)},
    {"no-bos", 0, APR_OPTION_FLAG, NULL, NULL, "do not add the begin token (BOS), even if the model asks for it",
     APR_TO(generate_options, no_bos)},
    {"tokens", 'n', APR_OPTION_INT, "N", "0", "generate at most N tokens; 0: 256, in a conversation until the model ends its answer",
     APR_TO(generate_options, n), .min = 0, .max = 1e9, .group = "Sampling"},
    {"temp", 0, APR_OPTION_REAL, "T", "0", "temperature; 0 takes the most likely token", APR_TO(generate_options, sampling.temp), .min = 0,
     .max = 100},
    {"top-p", 0, APR_OPTION_REAL, "P", "1", "sample from the smallest set of tokens whose probabilities add up to P",
     APR_TO(generate_options, sampling.top_p), .min = 0, .max = 1},
    {"seed", 0, APR_OPTION_INT, "N", "0", "the same seed gives the same text", APR_TO(generate_options, sampling.seed), .min = -9e18,
     .max = 9e18},
    APR_SAMPLING_OPTIONS(generate_options, sampling, ""),
    {"special", 0, APR_OPTION_FLAG, NULL, NULL, "also print control tokens, such as the one that ends a turn",
     APR_TO(generate_options, special)},
    APR_RUN_OPTIONS(generate_options, run, "f16"),
    APR_LORA_OPTION(generate_options, run.lora, "the weights"),
    {0},
};

static const char *const generate_examples[] = {
    "aprrun model.apr -p 'In the beginning'",
    "aprrun model.gguf --chat -p 'Why is the sky blue?' --temp 0.7 --top-p 0.9 --seed 1",
    "aprrun checkpoint/ -f prompt.txt -n 1000 --json",
    "aprrun model.gguf -p 'Three rhymes:' --temp 0.8 --top-k 40 --min-p 0.05 --stop '4.'",
    "git diff | aprrun model.apr --chat --system 'Review this change.'",
    NULL,
};

/* A system message needs a chat template. */
static bool is_chat(const generate_options *o) { return o->chat || o->system != NULL; }

static bool is_plain_prompt(const apr_call *call) { return !is_chat(call->options); }

static const apr_need generate_needs[] = {
    {"no-bos", "a plain prompt (a chat template writes its own begin token)", is_plain_prompt}, APR_DEVICE_NEEDS(apr_runs_on_a_gpu), {0}};

static void ids_json(apr_json_text *json, const char *key, const int32_t *ids, size_t n)
{
    apr_json_open(json, key, '[');
    for (size_t i = 0; i < n; i++) apr_json_int(json, NULL, ids[i]);
    apr_json_close(json, ']');
}

static apr_status answer_generated(const apr_call *call, const apr_running *r, const apr_answer_stream *s, const int32_t *prompt,
                                   const apr_generation *g, apr_error *err)
{
    const generate_options *const o = call->options;
    apr_json_text *const json = &call->answer->body;
    const bool stopped = g->finish == APR_FINISH_STOP;
    const char *const finish = apr_finish_name(s->text.is_stopped ? APR_FINISH_STOP : g->finish);
    char *text;
    size_t n;

    if (call->answer->json) {
        APR_TRY(
            apr_tokenizer_decode(r->tokenizer, s->ids, s->n_ids - (stopped && !o->special && s->n_ids > 0), o->special, &text, &n, err));
        apr_json_string(json, "text", text, apr_find_stop_text(s->text.stops, s->text.n_stops, text, 0, n));
        free(text);
        apr_json_string(json, "finish", finish, strlen(finish));
        if (apr_plan_is_beyond_model(apr_session_plan(r->session))) apr_json_bool(json, "ctx_beyond_model", true);
        ids_json(json, "prompt_ids", prompt, (size_t)g->n_prompt);
        ids_json(json, "ids", s->ids, s->n_ids);
        apr_json_real(json, "prompt_tokens_per_second", (double)g->n_prompt / g->prompt_seconds);
        apr_json_real(json, "tokens_per_second", g->generate_seconds > 0 ? (double)g->n_generated / g->generate_seconds : 0);
    } else {
        putchar('\n');
    }
    if (!o->run.stats) return APR_OK;
    apr_print_stats(r, call);
    if (!call->answer->json)
        fprintf(stderr, "  prompt: %lld tokens, %.1f/s; generated: %lld tokens, %.1f/s; ended by %s\n", (long long)g->n_prompt,
                (double)g->n_prompt / g->prompt_seconds, (long long)g->n_generated,
                g->generate_seconds > 0 ? (double)g->n_generated / g->generate_seconds : 0.0, finish);
    return APR_OK;
}

typedef struct prompt_text {
    char *bytes;
    size_t n_bytes;
} prompt_text;

/* An answer while it is made. */
typedef struct generated {
    const apr_call *call;
    const apr_running *running;
    apr_answer_stream stream;
} generated;

/* The prompt in the model's chat template. */
static apr_status render(const apr_running *r, const generate_options *o, const prompt_text *prompt, prompt_text *rendered, apr_error *err)
{
    const apr_subject subject = apr_running_subject(r);

    if (strlen(prompt->bytes) != prompt->n_bytes)
        return apr_fail(err, APR_E_UNSUPPORTED, "the prompt has a NUL at byte %zu, which no chat template takes", strlen(prompt->bytes));
    if (r->model.vocab.chat_template == NULL)
        return apr_fail(err, APR_E_UNSUPPORTED, "%s has no chat template; run without --chat", r->source.path);
    return apr_subject_chat(&subject, o->system, prompt->bytes, &rendered->bytes, &rendered->n_bytes, err);
}

/* --- the hooks of aprkit_generate --- */

static void begin(void *user, const int32_t *prompt, size_t n_prompt)
{
    const generated *const g = user;
    const generate_options *const o = g->call->options;

    if (g->call->quiet) return;
    if (is_chat(o)) apr_note_turn_end(g->running, stderr);
    else if (!o->no_bos) apr_warn_two_bos(g->running, prompt, n_prompt, stderr);
}

static bool take_token(void *user, int32_t id, bool is_stop) { return apr_answer_stream_take(&((generated *)user)->stream, id, is_stop); }

static apr_status end(void *user, const int32_t *prompt, const apr_generation *generation, apr_error *err)
{
    generated *const g = user;

    if (g->stream.failed) return apr_no_memory(err, "the text");
    (void)apr_answer_stream_end(&g->stream); /* stdout is checked at the end */
    return answer_generated(g->call, g->running, &g->stream, prompt, generation, err);
}

static apr_status generate_with(aprkit_session *session, const apr_call *call, const prompt_text *text, apr_error *err)
{
    const generate_options *const o = call->options;
    const apr_sample_options sampling = apr_sampling_options(&o->sampling);
    generated g = {.call = call,
                   .running = &session->running,
                   .stream = {.running = &session->running,
                              .show_special = o->special,
                              .print = !call->answer->json,
                              .is_terminal = isatty(STDOUT_FILENO),
                              .text = {.stops = o->sampling.stop.items, .n_stops = o->sampling.stop.n_items}}};
    const aprkit_generate_hooks hooks = {.sampling = &sampling,
                                         .is_rendered = is_chat(o),
                                         .no_begin = o->no_bos,
                                         .begin = begin,
                                         .on_token = take_token,
                                         .end = end,
                                         .user = &g};
    prompt_text rendered = {0};
    aprkit_error error = {0};

    if (is_chat(o)) APR_TRY(render(g.running, o, text, &rendered, err));
    const prompt_text *const prompt = is_chat(o) ? &rendered : text;
    const aprkit_generate_options options = {
        .size = sizeof options, .text = prompt->bytes, .n_text = prompt->n_bytes, .max_tokens = o->n, .hooks = &hooks};
    const int result = aprkit_generate(session, &options, NULL, NULL, &error);
    if (result != APRKIT_OK) (void)apr_answer_stream_end(&g.stream);
    apr_answer_stream_close(&g.stream);
    free(rendered.bytes);
    return result == APRKIT_OK ? APR_OK : apr_fail(err, (apr_status)error.status, "%s", error.text);
}

/* A conversation with the same options. */
static apr_status talk(const apr_call *call, const generate_options *o, apr_error *err)
{
    const apr_chat_options chat = {
        .run = o->run, .prompt = o->prompt, .system = o->system, .settings = {.n = o->n, .sampling = o->sampling}};
    const char *const idle = o->file != NULL ? "--file" : o->no_bos ? "--no-bos" : o->special ? "--special" : NULL;

    if (idle != NULL) return apr_fail(err, APR_E_USAGE, "%s has no effect in a conversation; leave it out, or give a prompt", idle);
    return apr_chat_with(call, &chat, err);
}

/* If no prompt was given, suggests the command with one. */
static apr_status name_prompt(const apr_call *call, apr_status status, apr_error *err)
{
    const generate_options *const o = call->options;
    const apr_change changes[] = {{.is = "-p"}, {.is = "In the beginning"}};
    if (status != APR_E_USAGE || o->prompt != NULL || o->file != NULL) return status;
    return apr_try_instead(status, call->typed, changes, 2, err);
}

static apr_status run_generate(const apr_call *call, apr_error *err)
{
    const generate_options *const o = call->options;
    prompt_text prompt = {0};
    apr_opened opened = {0};

    if (o->interactive || (o->prompt == NULL && o->file == NULL && isatty(STDIN_FILENO))) return talk(call, o, err);
    APR_TRY(apr_check_stop_texts(&o->sampling.stop, err));
    apr_status status = apr_read_prompt(o->prompt, o->file, &prompt.bytes, &prompt.n_bytes, err); /* before the work */
    if (status != APR_OK) return name_prompt(call, status, err);
    status = apr_opened_all(&opened, call->operands[0], &o->run, 1, err);
    if (status == APR_OK) status = generate_with(opened.session, call, &prompt, err);
    apr_opened_close(&opened);
    free(prompt.bytes);
    return status;
}

const apr_command apr_generate_command = {.operands = "MODEL [TEXT...]",
                                          .min_operands = 1,
                                          .max_operands = 1,
                                          .joins = "prompt",
                                          .first = "prompt file chat system tokens temp ctx device",
                                          .options = generate_table,
                                          .options_bytes = sizeof(generate_options),
                                          .examples = generate_examples,
                                          .run = run_generate,
                                          .needs = generate_needs,
                                          .summary = "text from a prompt"};
