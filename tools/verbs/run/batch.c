/* batch.c - `aprrun batch`: reads requests as they come, gives them to the scheduler, writes each answer when it is done. */
#include "convert/run.h"
#include "formats/base/clock.h"
#include "formats/base/crc32.h"
#include "tools/engine/requests/batch_ids.h"
#include "tools/engine/requests/batch_job.h"
#include "tools/engine/requests/batch_lines.h"
#include "tools/engine/requests/batch_output.h"
#include "tools/engine/run/sequences.h"
#include "tools/report/meter.h"
#include "tools/verbs/plan/plan_lines.h"
#include "tools/verbs/run/running.h"
#include "tools/verbs/run/sampling.h"
#include "tools/verbs/verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef struct batch_options {
    apr_run_options run;
    const char *out;
    int64_t sequences, cells, n;
    apr_sampling sampling;
    int format; /* apr_batch_format */
    bool resume, no_bos, greedy;
} batch_options;

static const apr_option batch_table[] = {
    {"output", 'o', APR_OPTION_STRING, "FILE", NULL, "write the answers here, one line each as soon as it is done; -: stdout",
     APR_TO(batch_options, out), .group = "Batch"},
    {"resume", 0, APR_OPTION_FLAG, NULL, NULL, "continue FILE: lines that it already answers are not run again",
     APR_TO(batch_options, resume)},
    {"sequences", 0, APR_OPTION_INT, "N", "0",
     "at most N requests at once; 0: 16, or fewer if memory is short; with --gpus or --offload always 1", APR_TO(batch_options, sequences),
     .min = 0, .max = 4096},
    {"cells", 0, APR_OPTION_INT, "N", "0", "positions of the KV cache, shared by all sequences; 0: --ctx for each",
     APR_TO(batch_options, cells), .min = 0, .max = 1e9},
    {"format", 0, APR_OPTION_CHOICE, "auto|aprkit|openai", "auto",
     "shape of the answers; auto: OpenAI's for lines that have custom_id and body", APR_TO(batch_options, format)},
    {"no-bos", 0, APR_OPTION_FLAG, NULL, NULL, "do not add the begin token (BOS) to prompts", APR_TO(batch_options, no_bos)},
    {"tokens", 'n', APR_OPTION_INT, "N", "256", "max_tokens of lines that do not set it", APR_TO(batch_options, n), .min = 1, .max = 1e9,
     .group = "Sampling"},
    {"temp", 0, APR_OPTION_REAL, "T", "0", "temperature of lines that do not set it", APR_TO(batch_options, sampling.temp), .min = 0,
     .max = 100},
    {"top-p", 0, APR_OPTION_REAL, "P", "1", "top_p of lines that do not set it", APR_TO(batch_options, sampling.top_p), .min = 0, .max = 1},
    {"seed", 0, APR_OPTION_INT, "N", "0", "seed of lines that do not set it", APR_TO(batch_options, sampling.seed), .min = -9e18,
     .max = 9e18},
    APR_SAMPLING_OPTIONS(batch_options, sampling, ", for lines that do not set it"),
    {"greedy", 0, APR_OPTION_FLAG, NULL, NULL, "ignore generation_config.json's sampling, the default of lines in OpenAI's shape",
     APR_TO(batch_options, greedy)},
    APR_RUN_OPTIONS(batch_options, run, "f16"),
    APR_LORA_OPTION(batch_options, run.lora, "the weights"),
    {0},
};

static const char *const batch_examples[] = {
    "aprrun batch model.apr prompts.jsonl -o answers.jsonl",
    "aprrun batch model.gguf prompts.jsonl -o answers.jsonl --resume   # after a kill, or a full disk",
    "echo '{\"id\":1,\"prompt\":\"In the beginning\",\"max_tokens\":20}' | aprrun batch model.apr - -o -",
    NULL,
};

/* The state of one run. */
typedef struct batch {
    const batch_options *asked;
    const apr_call *call;
    apr_running running;
    int input_fd;
    apr_line_reader lines;
    apr_batch_output out;
    apr_batch_ids ids;
    apr_batch_job *jobs; /* the running ones */
    apr_batch_defaults standard;
    apr_sample_options of_model; /* generation_config.json's */
    double now;
    int64_t n_lines; /* of a file that can be read twice; 0: unknown */
    int64_t n_before, n_answered, n_refused, n_tokens, n_chats;
    bool said_sampling;                  /* the note that of_model is used was printed */
    bool said_two;                       /* the warning of two begin tokens was printed */
    double first_seconds, longest_first; /* time to first token: sum and largest */
    apr_meter meter;
    apr_progress progress;
    apr_schedule_stats stats;
} batch;

static volatile sig_atomic_t ended_by;

/* A second signal ends the process at once (SA_RESETHAND). */
static void on_signal(int number) { ended_by = number; }

static void catch_signals(void)
{
    const struct sigaction catch = {.sa_handler = on_signal, .sa_flags = SA_RESETHAND};
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction before;

    ended_by = 0;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN) sigaction(numbers[i], &catch, NULL);
}

static bool is_ended(void *user)
{
    (void)user;
    return ended_by != 0;
}

/* --- lines in and out --- */

static apr_status write_line(batch *b, char *line, size_t n_bytes, apr_error *err)
{
    if (line == NULL) return apr_no_memory(err, "an answer");
    const apr_status status = apr_batch_output_write(&b->out, line, n_bytes, err);
    free(line);
    return status;
}

static apr_status refuse(batch *b, const apr_batch_job *job, apr_status status, const char *sentence, apr_error *err)
{
    size_t n = 0;
    char *const line = apr_batch_job_refusal(job, status, sentence, b->out.terms, &n);

    APR_TRY(write_line(b, line, n, err));
    b->n_refused++;
    return APR_OK;
}

/* Ids must be unique, so that answers can be told apart. */
static apr_status check_id(batch *b, const apr_batch_job *job, apr_error *err)
{
    if (job->request.id == NULL) return APR_OK;
    const int64_t before = apr_batch_ids_add(&b->ids, job->request.id, job->line);
    if (before < 0) return apr_no_memory(err, "the ids");
    return before == 0 ? APR_OK
                       : apr_fail(err, APR_E_USAGE, "the id %.60s is already that of line %lld", job->request.id, (long long)before);
}

/* Makes a job of a line that is not answered yet. Errors of the line go into `own`. */
static apr_status read_job(batch *b, const apr_line *line, apr_batch_job *job, apr_error *own)
{
    job->request.is_openai = b->standard.format == APR_BATCH_OPENAI;
    if (line->is_too_long) return apr_fail(own, APR_E_UNSUPPORTED, "the line has more than %zu MiB", APR_LINE_MAX_BYTES >> 20);
    const apr_status status = apr_batch_request_read(&job->request, line->bytes, line->n_bytes, &b->standard, own);
    APR_TRY(check_id(b, job, own));
    APR_TRY(status);
    return apr_batch_job_encode(job, &b->running, b->now, b->asked->no_bos, own);
}

static apr_status other_input(const batch *b, int64_t number, apr_error *err)
{
    return apr_fail(err, APR_E_IO, "%s answers another input: its line %lld is different; give the same input again, or another output",
                    b->out.path, (long long)number);
}

static uint32_t crc_of(const apr_line *line) { return line->is_too_long ? 0 : apr_crc32(0, line->bytes, line->n_bytes); }

/* A line that an earlier run answered: only records its id. */
static apr_status skip_answered(batch *b, const apr_line *line, const apr_done_line *done, apr_error *err)
{
    apr_batch_job job = {.line = line->number};
    apr_error ignored = {0};

    if (done->crc != crc_of(line)) return other_input(b, line->number, err);
    if (!line->is_too_long) (void)apr_batch_request_read(&job.request, line->bytes, line->n_bytes, &b->standard, &ignored);
    const bool has_memory = job.request.id == NULL || apr_batch_ids_add(&b->ids, job.request.id, job.line) >= 0;
    apr_batch_request_close(&job.request);
    b->n_before++;
    return has_memory ? APR_OK : apr_no_memory(err, "the ids");
}

static void say_sampling(batch *b)
{
    b->said_sampling = true;
    if (b->call->quiet) return;
    fprintf(stderr,
            "note: lines without a temperature are sampled as generation_config.json says (temperature %g, top_p %g); --greedy "
            "turns that off\n",
            (double)b->of_model.temperature, (double)b->of_model.top_p);
}

/* Answers a bad line with its error, or makes a request for the scheduler. */
static apr_status take_line(batch *b, const apr_line *line, apr_next *what, apr_request *request, apr_error *err)
{
    apr_error own = {0};
    apr_batch_job *const job = calloc(1, sizeof *job);

    if (job == NULL) return apr_no_memory(err, "a request");
    job->line = line->number;
    job->crc = crc_of(line);
    job->created = (int64_t)time(NULL);
    apr_status status = read_job(b, line, job, &own);
    if (status == APR_OK) {
        *request = apr_batch_job_request(job, &b->running);
        if (job->request.messages != NULL && b->n_chats++ == 0 && !b->call->quiet) apr_note_turn_end(&b->running, stderr);
        if (job->request.messages == NULL && !b->asked->no_bos && !b->said_two && !b->call->quiet)
            b->said_two = apr_warn_two_bos(&b->running, job->prompt, job->n_prompt, stderr);
        if (b->standard.of_model != NULL && job->request.is_openai && !job->request.says_sampling && !b->said_sampling) say_sampling(b);
        job->next = b->jobs;
        b->jobs = job;
        *what = APR_NEXT_REQUEST;
        return APR_OK;
    }
    if (status == APR_E_MEMORY) apr_fail(err, status, "%s", own.text);
    else status = refuse(b, job, status, own.text, err);
    apr_batch_job_free(job);
    return status;
}

static apr_status next(void *user, bool may_wait, apr_next *what, apr_request *request, apr_error *err)
{
    batch *const b = user;
    apr_line_state state;
    apr_line line;

    for (*what = APR_NEXT_LATER; ended_by == 0;) {
        APR_TRY(apr_line_read(&b->lines, may_wait, &state, &line, err));
        if (state != APR_LINE_HERE) {
            *what = state == APR_LINE_NONE ? APR_NEXT_NONE : APR_NEXT_LATER;
            return APR_OK;
        }
        if (apr_line_is_blank(&line)) continue;
        const apr_done_line *const done = apr_batch_output_find(&b->out, line.number);
        if (done != NULL) APR_TRY(skip_answered(b, &line, done, err));
        else APR_TRY(take_line(b, &line, what, request, err));
        if (*what == APR_NEXT_REQUEST) return APR_OK;
    }
    return APR_OK;
}

static void report(batch *b)
{
    const int64_t n = b->n_before + b->n_answered + b->n_refused;
    const double seconds = apr_seconds_now() - b->meter.started_s;
    char what[64];

    snprintf(what, sizeof what, "answers, %.0f tokens/s,", seconds > 0.0 ? (double)b->n_tokens / seconds : 0.0);
    apr_progress_report(&b->progress, (uint64_t)n, (uint64_t)(b->n_lines > 0 ? b->n_lines : n), what);
}

static void end_job(batch *b, apr_batch_job *job)
{
    apr_batch_job **at = &b->jobs;
    while (*at != job) at = &(*at)->next;
    *at = job->next;
    apr_batch_job_free(job);
}

static bool on_token(void *user, void *tag, int32_t id, bool is_stop)
{
    batch *const b = user;
    b->n_tokens++;
    report(b);
    return apr_batch_job_take(tag, &b->running, id, is_stop);
}

static apr_status on_done(void *user, void *tag, const apr_reply *reply, apr_error *err)
{
    batch *const b = user;
    apr_batch_job *const job = tag;
    apr_error own = {0};
    apr_status status;
    size_t n = 0;

    if (job->no_memory) status = apr_no_memory(err, "an answer");
    else if (reply->status != APR_OK) status = refuse(b, job, reply->status, reply->error.text, err);
    else {
        char *const line = apr_batch_job_answer(job, &b->running, reply, b->out.terms, &n, &own);
        status = line == NULL && own.text[0] != '\0' ? apr_fail(err, APR_E_MEMORY, "%s", own.text) : write_line(b, line, n, err);
        b->n_answered += status == APR_OK;
        b->first_seconds += reply->first_seconds;
        if (reply->first_seconds > b->longest_first) b->longest_first = reply->first_seconds;
    }
    end_job(b, job);
    return status;
}

/* --- opening --- */

/* Reads do_sample, temperature and top_p, with the defaults of transformers. */
static apr_status read_sampling(batch *b, apr_error *err)
{
    const apr_attachment *const file = apr_model_attachment(&b->running.source, "generation_config.json");
    double temperature = 1.0, top_p = 1.0;
    bool samples = false;
    cJSON *json = NULL;

    if (file == NULL || b->asked->greedy || b->asked->sampling.temp > 0.0) return APR_OK;
    APR_TRY(apr_json_parse(&json, file->data, file->n_bytes, "generation_config.json", err));
    apr_json_get_bool(json, "do_sample", &samples);
    apr_json_get_real(json, "temperature", &temperature);
    apr_json_get_real(json, "top_p", &top_p);
    cJSON_Delete(json);
    if (!samples || !(temperature >= 0.0 && temperature <= 100.0) || !(top_p >= 0.0 && top_p <= 1.0)) return APR_OK;
    b->of_model = (apr_sample_options){.temperature = (float)temperature, .top_p = (float)top_p};
    b->standard.of_model = &b->of_model;
    return APR_OK;
}

static apr_status open_model(batch *b, apr_error *err)
{
    apr_session_options options;

    APR_TRY(apr_running_open_files(&b->running, b->call->operands[0], err));
    APR_TRY(read_sampling(b, err));
    APR_TRY(apr_running_merge(&b->running, &b->asked->run.lora, err));
    APR_TRY(apr_running_open_tokenizer(&b->running, err));
    APR_TRY(apr_running_options(&b->asked->run, 16, &options, err));
    if (options.cuda != NULL && b->asked->sequences > 1 && apr_session_is_split(&options))
        return apr_fail(err, APR_E_UNSUPPORTED, "--gpus and --offload run sequences one after another: leave --sequences out");
    options.fall_back = false; /* one file must not mix the answers of two backends */
    APR_TRY(apr_set_sequences(&options, &b->running.model, b->asked->sequences, b->asked->cells, err));
    APR_TRY(apr_session_open(&b->running.session, &b->running.model, &options, err));
    apr_plan_warn_of_context(apr_session_plan(b->running.session));
    return APR_OK;
}

/* Options that earlier versions did not have count only if they are used, so that outputs of those versions can be resumed. */
static uint32_t more_terms(const apr_sampling *o, uint32_t crc)
{
    const bool penalizes = o->repeat != 1.0 || o->presence != 0.0 || o->frequency != 0.0 || o->repeat_last != 64;
    char text[256];

    const int n = snprintf(text, sizeof text, "chain %lld %.17g %.17g %.17g %.17g %lld\n", (long long)o->top_k, o->min_p, o->repeat,
                           o->presence, o->frequency, (long long)o->repeat_last);
    if (penalizes || o->top_k > 0 || o->min_p > 0.0) crc = apr_crc32(crc, text, (size_t)n);
    for (size_t i = 0; i < o->stop.n_items; i++) crc = apr_crc32(crc, o->stop.items[i], strlen(o->stop.items[i]) + 1);
    return crc;
}

/* A CRC of all that answers depend on, besides their lines. The number of sequences is not part of it. */
static apr_status make_terms(const batch *b, uint32_t *crc, apr_error *err)
{
    const batch_options *const o = b->asked;
    const apr_plan *const plan = apr_session_plan(b->running.session);
    char *inputs, text[512];

    APR_TRY(apr_inputs_terms(&inputs, b->running.lora.uses, b->running.lora.n, err));
    const int n = snprintf(
        text, sizeof text, "batch 1\n%s\ncontext %lld\nkeys and values %s\nbegin token %s\nexact %d\ntokens %lld\n%.17g %.17g %lld\n%s%s%s",
        apr_session_backend_name(b->running.session), (long long)plan->n_ctx, apr_dtypes[plan->kv_dtype].name, o->no_bos ? "no" : "yes",
        apr_session_is_exact(b->running.session), (long long)o->n, o->sampling.temp, o->sampling.top_p, (long long)o->sampling.seed,
        apr_session_place_ordinal(b->running.session, 0) >= 0 && plan->n_sequences > 1 ? "apart\n" : "",
        o->format == APR_BATCH_AUTO     ? ""
        : o->format == APR_BATCH_OPENAI ? "openai\n"
                                        : "aprkit\n",
        o->greedy ? "greedy\n" : "");
    *crc = more_terms(&o->sampling, apr_crc32(apr_crc32(0, inputs, strlen(inputs)), text, (size_t)n));
    free(inputs);
    return APR_OK;
}

static apr_status open_input(batch *b, const char *path, apr_error *err)
{
    const bool is_stdin = strcmp(path, "-") == 0;
    struct stat now;

    b->input_fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (b->input_fd < 0 || fstat(b->input_fd, &now) != 0) return apr_fail(err, APR_E_IO, "%s: %s", path, strerror(errno));
    if (S_ISDIR(now.st_mode)) return apr_fail(err, APR_E_IO, "%s is a folder", path);
    b->lines = (apr_line_reader){.fd = b->input_fd, .name = is_stdin ? "stdin" : path};
    return APR_OK;
}

/* Reads a file once in advance: counts its lines, and checks that existing answers belong to them. */
static apr_status look_ahead(batch *b, apr_error *err)
{
    apr_line_state state = APR_LINE_HERE;
    struct stat now;
    apr_line line;
    size_t n_met = 0;

    if (fstat(b->input_fd, &now) != 0 || !S_ISREG(now.st_mode) || lseek(b->input_fd, 0, SEEK_CUR) != 0) return APR_OK;
    while (state != APR_LINE_NONE) {
        APR_TRY(apr_line_read(&b->lines, true, &state, &line, err));
        if (state != APR_LINE_HERE || apr_line_is_blank(&line)) continue;
        const apr_done_line *const done = apr_batch_output_find(&b->out, line.number);
        if (done != NULL && done->crc != crc_of(&line)) return other_input(b, line.number, err);
        n_met += done != NULL;
        b->n_lines++;
    }
    for (size_t i = 0; i < b->out.n_done && n_met < b->out.n_done; i++)
        if (b->out.done[i].number > b->lines.n_lines || i + 1 == b->out.n_done) return other_input(b, b->out.done[i].number, err);
    return apr_line_rewind(&b->lines) ? APR_OK : apr_fail(err, APR_E_IO, "%s: cannot be read again", b->lines.name);
}

/* --- the run --- */

static void say(const batch *b, FILE *to)
{
    const apr_schedule_stats *const s = &b->stats;
    const double seconds = s->seconds > 0.0 ? s->seconds : 1e-9;

    fprintf(to, "%lld answered", (long long)b->n_answered);
    if (b->n_refused > 0) fprintf(to, ", %lld failed (see their \"error\")", (long long)b->n_refused);
    if (b->n_before > 0) fprintf(to, ", %lld by earlier runs", (long long)b->n_before);
    fprintf(to, "; %lld tokens in %.2f s, %.1f/s; prompts of %lld tokens, %lld of them shared; at most %lld sequences at once\n",
            (long long)s->n_generated, s->seconds, (double)s->n_generated / seconds, (long long)s->n_prompt, (long long)s->n_shared,
            (long long)s->most_at_once);
}

static void say_json(const batch *b, apr_json_text *json)
{
    const apr_schedule_stats *const s = &b->stats;

    apr_json_int(json, "answered", b->n_answered);
    apr_json_int(json, "refused", b->n_refused);
    apr_json_int(json, "before", b->n_before);
    apr_json_int(json, "prompt_tokens", s->n_prompt);
    apr_json_int(json, "shared_tokens", s->n_shared);
    apr_json_int(json, "tokens", s->n_generated);
    apr_json_real(json, "seconds", s->seconds);
    apr_json_real(json, "tokens_per_second", s->seconds > 0.0 ? (double)s->n_generated / s->seconds : 0.0);
    apr_json_real(json, "mean_first_token_seconds", b->n_answered > 0 ? b->first_seconds / (double)b->n_answered : 0.0);
    apr_json_real(json, "longest_first_token_seconds", b->longest_first);
    apr_json_int(json, "sequences", apr_schedule_width(b->running.session));
    apr_json_int(json, "most_at_once", s->most_at_once);
}

static apr_status conclude(const batch *b, apr_error *err)
{
    if (b->call->answer->json) say_json(b, &b->call->answer->body);
    else if (!b->call->quiet) say(b, b->out.is_stdout ? stderr : stdout);
    if (b->asked->run.stats) apr_print_stats(&b->running, b->call);
    if (ended_by != 0)
        return apr_fail(err, APR_E_NO, "ended by signal %d: %lld lines are answered%s", (int)ended_by,
                        (long long)(b->n_before + b->n_answered + b->n_refused), b->out.is_file ? "; give --resume to continue" : "");
    const int64_t n_refused = b->out.n_refused + b->n_refused; /* a resumed run has the exit code of an uninterrupted one */
    if (n_refused > 0)
        return apr_fail(err, APR_E_NO, "%lld line%s could not be answered; the reason is in %s", (long long)n_refused,
                        n_refused == 1 ? "" : "s", n_refused == 1 ? "its answer" : "their answers");
    return APR_OK;
}

static apr_status run(batch *b, apr_error *err)
{
    const apr_schedule schedule = {.next = next, .on_token = on_token, .on_done = on_done, .is_ended = is_ended, .user = b};
    uint32_t terms;

    APR_TRY(open_input(b, b->call->operands[1], err));
    APR_TRY(open_model(b, err));
    APR_TRY(make_terms(b, &terms, err));
    APR_TRY(apr_batch_output_open(&b->out, b->asked->out, b->asked->resume, b->input_fd, terms, err));
    APR_TRY(look_ahead(b, err));
    b->now = apr_running_subject(&b->running).now;
    catch_signals();
    b->progress = apr_meter_start_counting(&b->meter, b->call->quiet);
    if (b->out.n_done > 0) apr_progress_report(&b->progress, b->out.n_done, (uint64_t)b->n_lines, NULL);
    const apr_status status = apr_schedule_run(b->running.session, &schedule, &b->stats, err);
    apr_meter_end(&b->meter);
    APR_TRY(status);
    APR_TRY(apr_batch_output_finish(&b->out, err));
    return conclude(b, err);
}

static apr_status check_asked(const apr_call *call, apr_error *err)
{
    static const apr_change with_out[] = {{.is = "-o"}, {.is = "answers.jsonl"}};
    const batch_options *const o = call->options;
    const bool json = call->answer->json;

    if (o->out == NULL) {
        apr_fail(err, APR_E_USAGE, "say where the answers go: -o FILE, or -o - for stdout");
        return apr_try_instead(APR_E_USAGE, call->typed, with_out, 2, err);
    }
    if (strcmp(o->out, "-") == 0 && json)
        return apr_fail(err, APR_E_USAGE, "--json and the answers cannot both go to stdout: give -o FILE");
    if (strcmp(o->out, "-") == 0 && o->resume) return apr_fail(err, APR_E_USAGE, "--resume continues a file: give -o FILE");
    if (o->run.batch > 0)
        return apr_fail(err, APR_E_USAGE, "prompts of a batch are evaluated %d tokens at a time: leave --batch out", APR_PAGE_CELLS);
    return apr_check_stop_texts(&o->sampling.stop, err);
}

static apr_status run_batch(const apr_call *call, apr_error *err)
{
    batch *const b = calloc(1, sizeof *b);

    if (b == NULL) return apr_no_memory(err, "the batch");
    b->asked = call->options;
    b->call = call;
    b->input_fd = b->out.fd = -1;
    b->standard = (apr_batch_defaults){.max_tokens = b->asked->n,
                                       .format = (apr_batch_format)b->asked->format,
                                       .sampling = apr_sampling_options(&b->asked->sampling),
                                       .stops = b->asked->sampling.stop.items,
                                       .n_stops = b->asked->sampling.stop.n_items};
    apr_status status = check_asked(call, err);
    if (status == APR_OK) status = run(b, err);
    if (b->input_fd > STDERR_FILENO) close(b->input_fd);
    apr_line_reader_close(&b->lines);
    while (b->jobs != NULL) end_job(b, b->jobs); /* left by a run that was interrupted */
    apr_batch_output_close(&b->out);
    apr_batch_ids_close(&b->ids);
    apr_running_close(&b->running);
    free(b);
    return status;
}

const apr_command apr_batch_command = {.verb = "batch",
                                       .operands = "MODEL REQUESTS",
                                       .min_operands = 2,
                                       .max_operands = 2,
                                       .summary = "answers a file of prompts, one JSON object per line, many at once",
                                       .options = batch_table,
                                       .options_bytes = sizeof(batch_options),
                                       .examples = batch_examples,
                                       .run = run_batch,
                                       .needs = apr_run_needs};
