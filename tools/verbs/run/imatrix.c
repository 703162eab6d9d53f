/* imatrix.c - `aprrun imatrix`: runs a text in windows through a model, and sums the squares of its matrices' inputs. */
#include "tools/verbs/run/running.h"

#include "convert/run.h"
#include "formats/base/clock.h"
#include "formats/base/crc32.h"
#include "formats/base/text.h"
#include "formats/files/out.h"
#include "formats/files/resume.h"
#include "tools/engine/run/imatrix_table.h"
#include "tools/engine/text_input.h"
#include "tools/report/guard.h"
#include "tools/report/meter.h"
#include "tools/verbs/check/begin_token.h"
#include "tools/verbs/run/imatrix_print.h"
#include "tools/verbs/verbs.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct imatrix_options {
    apr_run_options run;
    const char *out;
    int64_t chunks, first, save_every;
    int format; /* 0: by the suffix */
    bool output_too, parse_special, resume, force, show;
} imatrix_options;

static const apr_option imatrix_table[] = {
    {"output", 'o', APR_OPTION_STRING, "FILE", NULL, "the imatrix to write", APR_TO(imatrix_options, out), .group = "Importance"},
    {"output-format", 0, APR_OPTION_CHOICE, "auto|gguf|dat", "auto", "format of the file; auto: dat if its name ends in .dat, else gguf",
     APR_TO(imatrix_options, format)},
    {"chunks", 0, APR_OPTION_INT, "N", "0", "at most N windows of --ctx tokens (512 without it); 0: all of the text",
     APR_TO(imatrix_options, chunks), .min = 0, .max = 1e9},
    {"chunk", 0, APR_OPTION_INT, "N", "0", "start at window N", APR_TO(imatrix_options, first), .min = 0, .max = 1e9},
    {"process-output", 0, APR_OPTION_FLAG, NULL, NULL, "also collect the inputs of the output head", APR_TO(imatrix_options, output_too)},
    {"parse-special", 0, APR_OPTION_FLAG, NULL, NULL, "parse control tokens that are written in the text",
     APR_TO(imatrix_options, parse_special)},
    {"resume", 0, APR_OPTION_FLAG, NULL, NULL, "save the sums in FILE.resume during the run, and continue from there",
     APR_TO(imatrix_options, resume)},
    {"save-frequency", 0, APR_OPTION_INT, "N", "0", "with --resume: save every N windows; 0: every 30 seconds",
     APR_TO(imatrix_options, save_every), .min = 0, .max = 1e9},
    {"force", 'f', APR_OPTION_FLAG, NULL, NULL, "replace FILE if it exists", APR_TO(imatrix_options, force)},
    {"show", 0, APR_OPTION_FLAG, NULL, NULL, "show what an imatrix holds; give it instead of MODEL and TEXT",
     APR_TO(imatrix_options, show)},
    APR_RUN_OPTIONS(imatrix_options, run, "f16"),
    APR_LORA_OPTION(imatrix_options, run.lora, "the weights"),
    {0},
};

static const char *const imatrix_examples[] = {
    "aprrun imatrix model-f16.gguf calibration.txt -o model.imatrix.gguf",
    "aprrun imatrix checkpoint/ calibration.txt -o imatrix.dat --ctx 2048 --chunks 100 --device cuda",
    "aprrun imatrix model.apr calibration.txt -o model.imatrix.gguf --resume   # continues where the same command was interrupted",
    "aprrun imatrix --show model.imatrix.gguf",
    NULL,
};

/* The state of one pass. */
typedef struct work {
    const imatrix_options *asked;
    const apr_call *call;
    apr_opened opened;
    int32_t *ids;
    size_t n_ids;
    int64_t window, n_done, n_all; /* in windows; n_done are in the sums */
    apr_layer_inputs inputs;
    apr_importance_pass pass;
    bool *wanted;
    char *terms, *kept; /* terms: what the sums depend on; kept: FILE.resume */
    double saved_at;
} work;

static apr_status read_text(work *w, const char *path, apr_error *err)
{
    const apr_vocab *const vocab = &w->opened.running->model.vocab;
    const apr_encode_options how = {.add_special = true, .parse_special = w->asked->parse_special};
    apr_text_input text;

    APR_TRY(apr_text_input_open(&text, path, err));
    const apr_status status = apr_tokenizer_encode(w->opened.running->tokenizer, text.bytes, text.n_bytes, &how, &w->ids, &w->n_ids, err);
    apr_text_input_close(&text);
    APR_TRY(status);
    w->window = apr_session_plan(w->opened.running->session)->n_ctx;
    w->n_all = (int64_t)w->n_ids / w->window - w->asked->first;
    if (w->asked->chunks > 0 && w->n_all > w->asked->chunks) w->n_all = w->asked->chunks;
    if (w->n_all < 1)
        return apr_fail(err, APR_E_USAGE,
                        "%s has %zu tokens: too few for windows of %lld from window %lld on; give more text, or a smaller --ctx", path,
                        w->n_ids, (long long)w->window, (long long)w->asked->first);
    apr_set_window_bos(vocab, w->ids, w->n_ids, w->window);
    return APR_OK;
}

/* --- saved sums --- */

/* inputs: the terms of the model's files. The text is identified by its tokens, not by its file. */
static apr_status make_terms(work *w, const char *inputs, apr_error *err)
{
    const uint32_t crc = apr_crc32(0, w->ids, w->n_ids * sizeof *w->ids);
    const char *const backend = apr_session_backend_name(w->opened.running->session);
    const size_t n_terms = strlen(inputs) + strlen(backend) + 512;

    w->terms = malloc(n_terms);
    if (w->terms == NULL) return apr_no_memory(err, "the terms of a run");
    snprintf(w->terms, n_terms,
             "%stext of %zu tokens, %08" PRIx32 "\nwindows of %lld from %lld on\noutput head %s\nbackend %s%s\nkeys and values %s\n",
             inputs, w->n_ids, crc, (long long)w->window, (long long)w->asked->first, w->asked->output_too ? "yes" : "no", backend,
             apr_session_is_exact(w->opened.running->session) ? ", exact" : "",
             apr_dtypes[apr_session_plan(w->opened.running->session)->kv_dtype].name);
    return APR_OK;
}

/* Reads the text and makes the terms: a run continues only one with the same terms. */
static apr_status read_inputs(work *w, apr_error *err)
{
    char *inputs;

    /* before the text is read, which would count as an input */
    APR_TRY(apr_inputs_terms(&inputs, w->opened.running->lora.uses, w->opened.running->lora.n, err));
    apr_status status = read_text(w, w->call->operands[1], err);
    if (status == APR_OK) status = make_terms(w, inputs, err);
    free(inputs);
    return status;
}

/* Fails with the first line of the terms that differs. */
static apr_status refuse_terms(const work *w, const char *theirs, apr_error *err)
{
    const char *ours = w->terms;
    while (*ours != '\0' && *ours == *theirs) ours++, theirs++;
    while (ours > w->terms && ours[-1] != '\n') ours--, theirs--;
    return apr_fail(err, APR_E_IO, "%s was started with '%.*s', but this run has '%.*s': use what it was started with, or remove it",
                    w->kept, (int)strcspn(theirs, "\n"), theirs, (int)strcspn(ours, "\n"), ours);
}

static apr_status load_saved(work *w, apr_error *err)
{
    apr_imatrix before;

    if (!w->asked->resume || access(w->kept, F_OK) != 0) return APR_OK;
    APR_TRY(apr_imatrix_open(&before, w->kept, true, err));
    apr_status status = APR_OK;
    if (before.terms == NULL) status = apr_fail(err, APR_E_IO, "%s is not an unfinished imatrix of aprrun; it was not changed", w->kept);
    else if (strcmp(before.terms, w->terms) != 0) status = refuse_terms(w, before.terms, err);
    else if (before.chunk_count > w->n_all)
        status = apr_fail(err, APR_E_IO, "%s holds %lld windows, more than the %lld that are asked for", w->kept,
                          (long long)before.chunk_count, (long long)w->n_all);
    if (status == APR_OK) status = apr_imatrix_load_pass(&w->pass, &before, err);
    if (status == APR_OK) w->n_done = before.chunk_count;
    apr_imatrix_close(&before);
    return status;
}

static apr_status save(work *w, apr_error *err)
{
    const apr_imatrix_out how = {.overwrite = true, .terms = w->terms};
    apr_imatrix now;

    apr_status status = apr_imatrix_save_pass(&now, w->kept, &w->pass, err);
    now.chunk_count = w->n_done;
    now.chunk_size = w->window;
    if (status == APR_OK) status = apr_imatrix_write(&now, w->kept, &how, err);
    if (status == APR_OK) apr_guard_kept((uint64_t)w->n_done, (uint64_t)w->n_all);
    apr_imatrix_close(&now);
    w->saved_at = apr_seconds_now();
    return status;
}

static bool is_time_to_save(const work *w)
{
    if (!w->asked->resume) return false;
    if (w->asked->save_every > 0) return w->n_done % w->asked->save_every == 0;
    return apr_seconds_now() - w->saved_at > 30.0;
}

/* --- the pass --- */

/* On a GPU several, up to the next one after which the sums are saved; on the host one, which may take a while. */
static int64_t windows_at_once(const work *w)
{
    enum { MOST = 16 };
    const int64_t left = w->n_all - w->n_done, most = left < MOST ? left : MOST, every = w->asked->resume ? w->asked->save_every : 0;
    const int64_t until = every > 0 ? every - w->n_done % every : most;
    const apr_cuda_api *cuda;

    if (apr_trace_device(w->opened.running->session, &cuda) == NULL) return 1;
    return until < most ? until : most;
}

static apr_status add_windows(work *w, apr_error *err)
{
    apr_meter meter;
    apr_progress progress = apr_meter_start_counting(&meter, w->call->quiet);
    apr_status status = APR_OK;

    w->saved_at = apr_seconds_now();
    if (w->n_done > 0) apr_progress_report(&progress, (uint64_t)w->n_done, (uint64_t)w->n_all, NULL);
    while (w->n_done < w->n_all && status == APR_OK) {
        const int32_t *const ids = w->ids + (w->asked->first + w->n_done) * w->window;
        const int64_t n = windows_at_once(w);
        status = apr_importance_pass_add(&w->pass, w->opened.running->session, w->wanted, ids, w->window, n, err);
        if (status != APR_OK) break;
        w->n_done += n;
        apr_progress_report(&progress, (uint64_t)w->n_done, (uint64_t)w->n_all, "windows");
        if (w->n_done < w->n_all && is_time_to_save(w)) status = save(w, err);
    }
    apr_meter_end(&meter);
    return status;
}

static bool writes_dat(const imatrix_options *o) { return o->format == 2 || (o->format == 0 && apr_stem_of(o->out, ".dat") > 0); }

static apr_status write_and_answer(work *w, double seconds, apr_error *err)
{
    const apr_imatrix_out how = {.as_dat = writes_dat(w->asked), .overwrite = w->asked->force};
    const char *text = w->call->operands[1];
    apr_imatrix all = {0};
    size_t n_nameless = 0;
    apr_report r;

    apr_status status = apr_imatrix_of_pass(&all, w->asked->out, &w->pass, w->opened.running->session, w->wanted, &n_nameless, err);
    all.datasets = &text;
    all.n_datasets = 1;
    all.chunk_count = w->n_done;
    all.chunk_size = w->window;
    if (status == APR_OK) status = apr_imatrix_write(&all, w->asked->out, &how, err);
    if (status == APR_OK && w->asked->resume) unlink(w->kept); /* its terms were checked, or it is this run's */
    if (status == APR_OK) status = apr_imatrix_answer(w->call, &all, n_nameless, seconds, err);
    apr_report_start(&r, w->call->answer, err);
    if (status == APR_OK) apr_begin_report(&r, &w->opened.running->model.vocab);
    apr_imatrix_close(&all);
    return status;
}

/* Called before anything is read, and again when the inputs are known. */
static apr_status check_outputs(const work *w, apr_error *err)
{
    const apr_out_request all[] = {{.path = w->asked->out, .overwrite = w->asked->force}, {.path = w->kept, .overwrite = true}};
    return apr_outs_check(all, w->asked->resume ? 2 : 1, err);
}

static apr_status make(work *w, apr_error *err)
{
    const double start = apr_seconds_now();
    apr_run_options run = w->asked->run;

    if (run.ctx == 0) run.ctx = 512;
    w->kept = apr_resume_path_for(w->asked->out);
    if (w->kept == NULL) return apr_no_memory(err, "a path");
    apr_guard_writes();
    if (w->asked->resume) apr_guard_protects(w->kept);
    APR_TRY(check_outputs(w, err));
    APR_TRY(apr_opened_all(&w->opened, w->call->operands[0], &run, 16, err));
    APR_TRY(read_inputs(w, err));
    APR_TRY(check_outputs(w, err));
    APR_TRY(apr_layer_inputs_of(&w->inputs, w->opened.running->session, err));
    APR_TRY(apr_importance_pass_open(&w->pass, &w->inputs, err));
    w->wanted = calloc(w->inputs.n_inputs + 1, sizeof *w->wanted);
    if (w->wanted == NULL) return apr_no_memory(err, "the inputs of a model");
    apr_imatrix_select_inputs(&w->inputs, w->opened.running->session, w->asked->output_too, w->wanted);
    APR_TRY(load_saved(w, err));
    APR_TRY(add_windows(w, err));
    APR_TRY(write_and_answer(w, apr_seconds_now() - start, err));
    if (w->asked->run.stats) apr_print_stats(w->opened.running, w->call);
    return APR_OK;
}

static apr_status show(const apr_call *call, apr_error *err)
{
    apr_imatrix m;

    if (call->n_operands != 1) return apr_fail(err, APR_E_USAGE, "--show takes one file: an imatrix");
    APR_TRY(apr_imatrix_open(&m, call->operands[0], false, err));
    const apr_status status = apr_imatrix_show(call, &m, NULL, err);
    apr_imatrix_close(&m);
    return status;
}

static apr_status run_imatrix(const apr_call *call, apr_error *err)
{
    work w = {.asked = call->options, .call = call};

    if (w.asked->show) return show(call, err);
    if (call->n_operands != 2) return apr_fail(err, APR_E_USAGE, "give MODEL and TEXT; try 'aprrun imatrix --help'");
    if (w.asked->out == NULL) {
        static const apr_change with_out[] = {{.is = "-o"}, {.is = "model.imatrix.gguf"}};
        apr_fail(err, APR_E_USAGE, "say which file to write: -o FILE");
        return apr_try_instead(APR_E_USAGE, call->typed, with_out, 2, err);
    }
    const apr_status status = make(&w, err);
    apr_importance_pass_close(&w.pass);
    apr_layer_inputs_close(&w.inputs);
    free(w.wanted);
    free(w.terms);
    free(w.kept);
    free(w.ids);
    apr_opened_close(&w.opened);
    return status;
}

const apr_command apr_imatrix_command = {.verb = "imatrix",
                                         .operands = "MODEL TEXT",
                                         .min_operands = 1,
                                         .max_operands = 2,
                                         .summary = "importance matrix: how much each input column of each matrix matters on a text",
                                         .options = imatrix_table,
                                         .options_bytes = sizeof(imatrix_options),
                                         .examples = imatrix_examples,
                                         .run = run_imatrix};
