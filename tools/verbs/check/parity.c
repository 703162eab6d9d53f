/* parity.c - `aprrun parity`: options and JSON lines. runtime/check/parity.h says what is compared, and how. */
#include "tools/verbs/verbs.h"

#include "formats/base/random.h"
#include "runtime/check/backends.h"
#include "runtime/check/verify.h"
#include "tools/engine/bench/synthetic.h"
#include "tools/engine/run/parity_dump.h"
#include "tools/engine/text_input.h"
#include "tools/report/meter.h"
#include "tools/report/terminal.h"
#include "tools/report/text.h"
#include "tools/verbs/run/running.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct parity_options {
    apr_run_options run;
    const char *prompt, *positions, *dump, *op, *text, *synthetic, *dtype;
    int64_t layer, tokens, seed;
    double sample;
    bool full;
} parity_options;

/* Those that the model does not have are left out; asked for, they are refused. */
static const char default_positions[] = "0,100,1000,4100";

static const apr_option parity_table[] = {
    {"prompt", 'p', APR_OPTION_STRING, "TEXT", NULL, "the text to compare on, repeated if it is short; the default is a built-in one",
     APR_TO(parity_options, prompt), .group = "Comparison"},
    {"synthetic", 0, APR_OPTION_STRING, "CONFIG", NULL,
     "instead of MODEL: random weights for this config.json, made in memory (with --dtype)", APR_TO(parity_options, synthetic)},
    {"dtype", 0, APR_OPTION_STRING, "TYPE", NULL,
     "types of the random weights, as aprquant --to TYPE would choose them; also a type that is only read (aprquant --list)",
     APR_TO(parity_options, dtype)},
    {"seed", 0, APR_OPTION_INT, "N", "0", "seed of the random weights and tokens", APR_TO(parity_options, seed), .min = -9e18, .max = 9e18},
    {"positions", 0, APR_OPTION_STRING, "LIST", default_positions, "positions to compare at, separated by commas",
     APR_TO(parity_options, positions)},
    {"tokens", 'n', APR_OPTION_INT, "N", "16", "tokens evaluated together at each position, at most --batch; then one more alone",
     APR_TO(parity_options, tokens), .min = 1, .max = 4096},
    {"layer", 'l', APR_OPTION_INT, "N", "-2", "only this layer; -1: embeddings and head; -2: all", APR_TO(parity_options, layer), .min = -2,
     .max = APR_MAX_LAYERS},
    {"op", 0, APR_OPTION_STRING, "NAME", NULL, "only this operation: a kind such as 'linear', or an output such as 'gate' or 'q.rotated'",
     APR_TO(parity_options, op)},
    {"sample", 0, APR_OPTION_REAL, "X", "1", "share of each matrix's rows to compare, at least 512: 0.1 for a quick look",
     APR_TO(parity_options, sample), .min = 1e-4, .max = 1},
    {"full", 0, APR_OPTION_FLAG, NULL, NULL, "compare every row in float64, as without --sample", APR_TO(parity_options, full)},
    {"dump", 0, APR_OPTION_STRING, "DIR", NULL,
     "write both backends' values, one .safetensors file per layer and position; replaces only older ones", APR_TO(parity_options, dump)},
    {"text", 0, APR_OPTION_STRING, "FILE", NULL, "also compare the logits after each token of this text, in windows of 256",
     APR_TO(parity_options, text)},
    APR_RUN_OPTIONS(parity_options, run, "f16"),
    APR_LORA_OPTION(parity_options, run.lora, "the weights"),
    {0},
};

static const char *const parity_examples[] = {
    "aprrun parity model.apr",
    "aprrun parity --positions 0,4100,16000 model.apr | grep '\"passed\":false'",
    "aprrun parity --device cuda --text heldout.txt model.apr",
    "aprrun parity --layer 12 --op attend --dump seen/ model.apr",
    "aprrun parity --synthetic config.json --dtype mxfp4 --device cuda     # before the download",
    NULL,
};

/* --- JSON lines --- */

typedef struct output {
    const apr_call *call;
    const char *backend;
    const apr_session *session;
    apr_parity_dump dump;
    apr_meter meter;
    apr_progress progress;
    uint64_t n_done;
} output;

static void crc_json(apr_json_text *json, const char *key, uint32_t crc)
{
    char text[16];
    snprintf(text, sizeof text, "%08x", (unsigned)crc);
    apr_json_cstring(json, key, text);
}

static void shape_json(apr_json_text *json, const char *key, int rank, const int64_t *dims)
{
    apr_json_open(json, key, '[');
    for (int i = 0; i < rank; i++) apr_json_int(json, NULL, dims[i]);
    apr_json_close(json, ']');
}

static void record_json(apr_json_text *json, const output *o, const apr_parity_record *r)
{
    const apr_difference *const d = &r->difference;
    const char *const stored = r->op->state >= 0 ? apr_dtypes[apr_session_plan(o->session)->kv_dtype].name : NULL;

    apr_json_open(json, NULL, '{');
    apr_json_cstring(json, "op", apr_op_name(r->op->kind));
    apr_json_int(json, "layer", r->op->layer);
    apr_json_cstring(json, "name", r->name);
    apr_json_int(json, "position", r->position);
    apr_json_int(json, "tokens", r->n_tokens);
    shape_json(json, "shape", 2, (const int64_t[]){r->n_rows, r->width});
    apr_json_open(json, "types", '{');
    apr_json_cstring(json, "values", "f32");
    if (r->weight != NULL) apr_json_cstring(json, "weight", apr_dtypes[r->weight->dtype].name);
    if (stored != NULL) apr_json_cstring(json, "cache", stored);
    apr_json_close(json, '}');
    if (r->weight != NULL) shape_json(json, "weight_shape", r->weight->rank, r->weight->dims);
    apr_json_open(json, "crc32", '{');
    crc_json(json, "ref", d->crc_reference);
    crc_json(json, o->backend, d->crc_other);
    apr_json_close(json, '}');
    apr_json_real(json, "cosine", d->cosine);
    apr_json_real(json, "largest_error", d->largest);
    apr_json_int(json, "largest_at", d->largest_at);
    apr_json_real(json, "peak", d->peak);
    apr_json_real(json, "relative", d->relative);
    apr_json_bool(json, "finite", d->finite);
    apr_json_real(json, "peak_bound", r->bound.peak);
    apr_json_real(json, "relative_bound", r->bound.relative);
    apr_json_bool(json, "passed", r->passed);
    apr_json_close(json, '}');
}

/* On a terminal: one line, in which the name gets the columns that are left. */
static void print_record(const apr_parity_record *r)
{
    char name[256], clean[512];
    const int columns = apr_terminal_columns(stdout) - 50;

    apr_clean_text(clean, sizeof clean, r->name, strlen(r->name));
    printf("  %s%s%s  %5lld  %-13s  %.1e of %.1e  %s\n", r->passed ? apr_green(stdout) : apr_red(stdout), r->passed ? "pass" : "FAIL",
           apr_plain(stdout), (long long)r->position, apr_op_name(r->op->kind), r->difference.relative, r->bound.relative,
           apr_middle_text(name, sizeof name, clean, columns > 8 ? columns : 8));
}

static apr_status on_record(void *user, const apr_parity_record *r, apr_error *err)
{
    output *const o = user;

    APR_TRY(apr_parity_dump_add(&o->dump, r, o->backend, err));
    if (o->call->answer->json) {
        record_json(&o->call->answer->body, o, r);
    } else if (apr_is_terminal(stdout)) {
        print_record(r);
    } else {
        apr_json_text json = {0};
        record_json(&json, o, r);
        char *const line = apr_json_text_take(&json, NULL);
        if (line == NULL) return apr_no_memory(err, "a line of JSON");
        puts(line);
        free(line);
    }
    apr_progress_report(&o->progress, ++o->n_done, 0, "operations");
    return APR_OK;
}

/* --- the command --- */

static apr_status parse_positions(const char *list, int64_t positions[64], size_t *n, apr_error *err)
{
    *n = 0;
    for (const char *at = list;; at++) {
        char *end;
        errno = 0;
        const long long value = strtoll(at, &end, 10);
        if (end == at || (*end != ',' && *end != '\0') || errno != 0 || value < 0 || value > 1000000000 || *n == 64 ||
            (*n > 0 && value <= positions[*n - 1]))
            return apr_fail(err, APR_E_USAGE, "--positions: '%s' is not a list of at most 64 ascending positions, as in 0,100,4100", list);
        positions[(*n)++] = value;
        if (*end == '\0') return APR_OK;
        at = end;
    }
}

static void summary(const output *o, const apr_parity_result *result)
{
    apr_json_text *const json = &o->call->answer->body;
    char extent[160];

    if (o->call->answer->json) {
        apr_json_cstring(json, "backend", o->backend);
        apr_json_int(json, "judged", result->n_checked);
        apr_json_int(json, "passed", result->n_passed);
        apr_json_int(json, "positions", result->n_positions);
        apr_json_int(json, "last_position", result->last_position);
        apr_json_real(json, "float64_share", result->share);
        return;
    }
    fprintf(stderr, "parity: %lld of %lld operations on %s within their bounds, at %lld position%s up to %s\n", (long long)result->n_passed,
            (long long)result->n_checked, o->backend, (long long)result->n_positions, result->n_positions == 1 ? "" : "s",
            apr_parity_extent_text(extent, sizeof extent, result));
}

/* The text's ids, malloc'ed; of random weights, which have no tokenizer, random ones. */
static apr_status encode(const apr_running *r, const parity_options *o, int32_t **ids, size_t *n_ids, apr_error *err)
{
    enum { RANDOM_IDS = 256 };
    const apr_subject subject = apr_running_subject(r);
    const char *const text = o->prompt != NULL ? o->prompt : apr_verify_text;
    uint64_t state = (uint64_t)o->seed;

    if (o->synthetic == NULL) return apr_subject_encode(&subject, text, strlen(text), true, ids, n_ids, err);
    *n_ids = RANDOM_IDS;
    *ids = malloc(RANDOM_IDS * sizeof **ids);
    if (*ids == NULL) return apr_no_memory(err, "the tokens of a text");
    for (size_t i = 0; i < RANDOM_IDS; i++)
        (*ids)[i] = (int32_t)(apr_random(&state) % (uint64_t)apr_session_program(r->session)->vocab_size);
    return APR_OK;
}

static apr_status compare(const apr_running *r, const apr_call *call, const int64_t *positions, size_t n_positions, apr_error *err)
{
    const parity_options *const o = call->options;
    output out = {.call = call, .backend = apr_session_backend_name(r->session), .session = r->session, .dump = {.dir = o->dump}};
    apr_parity_options options = {.positions = positions,
                                  .n_positions = n_positions,
                                  .n_batch = o->tokens,
                                  .layer = (int)o->layer,
                                  .op = o->op,
                                  .sample = o->sample,
                                  .on_record = on_record,
                                  .user = &out};
    apr_parity_result result = {0};
    char sentence[512];
    int32_t *ids;
    size_t n_ids;

    APR_TRY(apr_parity_dump_check(o->dump, err));
    APR_TRY(encode(r, o, &ids, &n_ids, err));
    out.progress = apr_meter_start_counting(&out.meter, call->quiet || (!call->answer->json && apr_is_terminal(stdout)));
    if (call->answer->json) apr_json_open(&call->answer->body, "operations", '[');
    apr_status status = apr_backends_parity(r->session, ids, (int64_t)n_ids, &options, &result, err);
    if (call->answer->json) apr_json_close(&call->answer->body, ']');
    apr_meter_end(&out.meter);
    if (status == APR_OK) status = apr_parity_dump_flush(&out.dump, err);
    if (status == APR_OK) summary(&out, &result);
    if (status == APR_OK && result.failed) status = apr_fail(err, APR_E_NO, "%s", apr_parity_sentence(sentence, sizeof sentence, &result));
    apr_parity_result_close(&result);
    apr_parity_dump_close(&out.dump);
    free(ids);
    return status;
}

/* --- logits on a text: the whole program, so that errors add up as in a run --- */

static void on_rows(void *user, int64_t n_done, int64_t n_rows)
{
    apr_progress_report(user, (uint64_t)n_done, (uint64_t)n_rows, "tokens compared");
}

static apr_status check_text(const apr_call *call, const apr_divergence *d, const char *backend, apr_error *err)
{
    apr_json_text line = {0}, *const json = call->answer->json ? &call->answer->body : &line;
    const bool passed = apr_backends_agree(d);

    apr_json_open(json, call->answer->json ? "text" : NULL, '{');
    apr_json_int(json, "text_positions", d->n_rows);
    apr_json_real(json, "kl_mean", d->mean);
    apr_json_real(json, "kl_max", d->largest);
    apr_json_real(json, "same_top", d->same_top);
    apr_json_real(json, "perplexity", d->perplexity_other);
    apr_json_real(json, "perplexity_ref", d->perplexity_reference);
    apr_json_bool(json, "passed", passed);
    apr_json_close(json, '}');
    if (!call->answer->json) {
        char *const text = apr_json_text_take(&line, NULL);
        if (text == NULL) return apr_no_memory(err, "a line of JSON");
        puts(text);
        free(text);
    }
    if (passed) return APR_OK;
    return apr_fail(
        err, APR_E_NO,
        "on the text, %s and the reference diverge by %.3g (at most %.0e) and agree on %.2f %% of the tokens (at least %.1f %%)", backend,
        d->mean, apr_backends_max_kl, 100.0 * d->same_top, 100.0 * apr_backends_min_same_top);
}

static apr_status compare_on_text(const apr_running *r, const apr_call *call, const char *path, apr_error *err)
{
    const apr_subject subject = apr_running_subject(r);
    apr_divergence d = {0};
    int32_t *ids = NULL;
    apr_meter meter;
    apr_text_input text;
    size_t n_ids;

    APR_TRY(apr_text_input_open(&text, path, err));
    apr_status status = apr_subject_encode(&subject, text.bytes, text.n_bytes, false, &ids, &n_ids, err);
    apr_text_input_close(&text);
    APR_TRY(status);
    apr_progress progress = apr_meter_start_counting(&meter, call->quiet);
    status = apr_backends_on_text(r->session, ids, (int64_t)n_ids, on_rows, &progress, &d, err);
    apr_meter_end(&meter);
    if (status == APR_OK) status = check_text(call, &d, apr_session_backend_name(r->session), err);
    apr_divergence_close(&d);
    free(ids);
    return status;
}

static apr_status check_asked(const parity_options *o, size_t n_operands, apr_error *err)
{
    if ((o->synthetic != NULL) == (n_operands > 0))
        return apr_fail(err, APR_E_USAGE, "name what to compare: MODEL, or --synthetic CONFIG; try 'aprrun parity --help'");
    if ((o->synthetic != NULL) != (o->dtype != NULL))
        return apr_fail(err, APR_E_USAGE, "--synthetic CONFIG and --dtype TYPE go together; a MODEL has its own types");
    if (o->full && o->sample < 1.0) return apr_fail(err, APR_E_USAGE, "--full compares every row, --sample some of them: give one");
    if (o->synthetic != NULL && (o->prompt != NULL || o->text != NULL || o->run.lora.n_items > 0))
        return apr_fail(err, APR_E_USAGE, "random weights have no tokenizer and no adapter: leave out --prompt, --text and --lora");
    return APR_OK;
}

/* Opens a session on random weights, which are read by both backends. */
static apr_status open_synthetic(apr_running *r, apr_synthetic *synthetic, const apr_call *call, const apr_run_options *run, apr_error *err)
{
    const parity_options *const o = call->options;
    apr_session_options options;
    apr_meter meter;

    APR_TRY(apr_synthetic_open(synthetic, o->synthetic, o->dtype, true, err));
    const apr_progress progress = apr_meter_start(&meter, call->quiet);
    const apr_status status = apr_synthetic_fill(synthetic, (uint64_t)o->seed, &progress, err);
    apr_meter_end(&meter);
    APR_TRY(status);
    APR_TRY(apr_running_options(run, o->tokens, &options, err));
    options.weights_location = "in anonymous memory";
    return apr_session_open(&r->session, &synthetic->model, &options, err);
}

static apr_status run_parity(const apr_call *call, apr_error *err)
{
    const parity_options *const o = call->options;
    apr_run_options run = o->run;
    apr_opened opened = {0};
    apr_running made = {0}, *r = &made;
    apr_synthetic synthetic = {0};
    int64_t positions[64];
    size_t n_positions;

    APR_TRY(check_asked(o, call->n_operands, err));
    APR_TRY(parse_positions(o->positions, positions, &n_positions, err));
    if (run.where.device == APR_DEVICE_REF)
        return apr_fail(err, APR_E_USAGE, "parity compares a backend with the reference: choose --device host, cuda or auto");
    /* the context must hold the last position; operations can be compared beyond the model's own context */
    run.shorter_ctx = run.ctx == 0 && strcmp(o->positions, default_positions) == 0;
    if (run.ctx == 0) run.ctx = positions[n_positions - 1] + o->tokens + 1;
    if (o->text != NULL && run.ctx < 256) run.ctx = 256;
    if (run.batch == 0 && o->tokens > 512) run.batch = o->tokens; /* 0 is at least 512 */
    apr_status status = o->synthetic != NULL ? open_synthetic(r, &synthetic, call, &run, err)
                                             : apr_opened_all(&opened, call->operands[0], &run, o->tokens, err);
    if (opened.running != NULL) r = opened.running;
    if (status == APR_OK) status = compare(r, call, positions, n_positions, err);
    if (status == APR_OK && o->text != NULL) status = compare_on_text(r, call, o->text, err);
    if (status <= APR_E_NO && run.stats && r->session != NULL) apr_print_stats(r, call);
    apr_running_close(&made);
    apr_opened_close(&opened);
    apr_synthetic_close(&synthetic);
    return status;
}

const apr_command apr_parity_command = {.verb = "parity",
                                        .operands = "MODEL",
                                        .min_operands = 0,
                                        .max_operands = 1,
                                        .summary = "each operation on the reference and on another backend, from the same input",
                                        .options = parity_table,
                                        .options_bytes = sizeof(parity_options),
                                        .examples = parity_examples,
                                        .run = run_parity,
                                        .needs = apr_run_needs};
