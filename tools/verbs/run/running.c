/* running.c - opens what a run needs, with warnings, and prints what it took. */
#include "tools/verbs/run/running.h"

#include "tools/engine/device/process.h"
#include "tools/report/text.h"
#include "tools/verbs/plan/plan_lines.h"
#include "tools/verbs/run/memory_print.h"

#include <string.h>

bool apr_runs_on_a_gpu(const apr_call *call) { return apr_device_is_gpu(&((const apr_run_options *)call->options)->where); }

const apr_need apr_run_needs[] = {APR_DEVICE_NEEDS(apr_runs_on_a_gpu), {0}};

void apr_show_note(void *user, const char *sentence)
{
    (void)user;
    fprintf(stderr, "warning: %s\n", apr_printable(sentence));
}

static void show_warning(void *user, const char *sentence)
{
    (void)user;
    fprintf(stderr, "aprrun: WARNING: %s\n", apr_printable(sentence));
}

static void show_adapters(void *user, const apr_lora_set *adapters)
{
    (void)user;
    apr_lora_set_print(adapters, stderr);
}

aprkit_run_hooks apr_run_hooks(const apr_run_options *o, int64_t n_logits)
{
    return (aprkit_run_hooks){.where = &o->where,
                              .kv = o->kv,
                              .n_logits = n_logits,
                              .shorter_ctx = o->shorter_ctx,
                              .warn = show_warning,
                              .merging = show_adapters};
}

aprkit_session_options apr_run_session(const apr_run_options *o, const aprkit_run_hooks *hooks)
{
    return (aprkit_session_options){.size = sizeof(aprkit_session_options),
                                    .n_context = o->ctx,
                                    .n_batch = o->batch,
                                    .memory = o->memory,
                                    .threads = (int)o->threads,
                                    .on_note = apr_show_note,
                                    .adapters = o->lora.items,
                                    .n_adapters = o->lora.n_items,
                                    .hooks = hooks};
}

apr_status apr_running_options(const apr_run_options *options, int64_t n_logits, apr_session_options *session, apr_error *err)
{
    static const apr_device_warnings warnings = {.show = show_warning};

    *session = apr_session_defaults;
    session->n_ctx = options->ctx;
    session->shorter_ctx = options->shorter_ctx;
    session->n_batch = options->batch;
    session->n_logits = n_logits;
    session->kv_dtype = apr_kv_dtypes[options->kv];
    session->n_threads = (int)options->threads;
    session->budget_bytes = options->memory;
    return apr_device_choose(&options->where, &warnings, session, err);
}

apr_status apr_running_open_files(apr_running *r, const char *path, apr_error *err)
{
    APR_TRY(apr_running_read(r, path, err));
    apr_running_notes(&r->source, apr_show_note, NULL);
    return APR_OK;
}

apr_status apr_running_merge(apr_running *r, const apr_strings *lora, apr_error *err)
{
    if (lora->n_items == 0) return APR_OK;
    APR_TRY(apr_lora_set_open(&r->lora, lora->items, lora->n_items, err));
    apr_lora_set_print(&r->lora, stderr);
    return apr_merge_adapters(&r->model, r->lora.uses, r->lora.n, err);
}

static void show_plan(void *user, const apr_plan *plan)
{
    (void)user;
    apr_plan_warn_of_context(plan);
}

apr_status apr_opened_weights(apr_opened *o, const char *path, const apr_run_options *options, int64_t n_logits, apr_error *err)
{
    const aprkit_model_options mapped = {.size = sizeof mapped, .map = 1}; /* tools/report/guard.h handles SIGBUS */
    aprkit_run_hooks hooks = apr_run_hooks(options, n_logits);
    const aprkit_session_options run = apr_run_session(options, &hooks);
    aprkit_error error;

    hooks.planned = show_plan;
    if (aprkit_model_open(&o->model, path, &mapped, &error) != APRKIT_OK) return apr_library_failed(&error, err);
    if (aprkit_session_open(&o->session, o->model, &run, &error) != APRKIT_OK) return apr_library_failed(&error, err);
    o->running = &o->session->running;
    return APR_OK;
}

apr_status apr_opened_all(apr_opened *o, const char *path, const apr_run_options *options, int64_t n_logits, apr_error *err)
{
    APR_TRY(apr_opened_weights(o, path, options, n_logits, err));
    return o->running->tokenizer != NULL ? APR_OK : apr_running_open_tokenizer(o->running, err); /* says what is missing */
}

void apr_opened_close(apr_opened *o)
{
    aprkit_session_close(o->session);
    aprkit_model_close(o->model);
    *o = (apr_opened){0};
}

void apr_note_turn_end(const apr_running *r, FILE *to)
{
    char clean[256];

    if (r->chat.added < 0) return;
    const apr_str token = r->model.vocab.tokens[r->chat.added];
    fprintf(to, "note: the chat template ends turns with token %d (%s), which is not a stop id of the model; answers also end there\n",
            (int)r->chat.added, apr_clean_text(clean, sizeof clean, token.text, token.n_bytes));
}

bool apr_warn_two_bos(const apr_running *r, const int32_t *ids, size_t n_ids, FILE *to)
{
    const int32_t begin = apr_begin_token(&r->model.vocab);
    char clean[256];

    if (begin < 0 || n_ids < 2 || ids[0] != begin || ids[1] != begin) return false;
    const apr_str token = r->model.vocab.tokens[begin];
    fprintf(to,
            "warning: the prompt begins with the begin token (%s) and the tokenizer adds one: the model sees two; leave it out of the "
            "prompt, or give --no-bos\n",
            apr_clean_text(clean, sizeof clean, token.text, token.n_bytes));
    return true;
}

static void memory_json(apr_json_text *json, const apr_running *r, const apr_session_memory *m)
{
    const apr_process_memory process = apr_process_memory_now();

    apr_json_uint(json, "predicted_bytes", m->planned);
    if (m->measured != UINT64_MAX) apr_json_uint(json, "measured_bytes", m->measured);
    apr_json_bool(json, "as_planned", m->as_planned);
    if (m->on == APR_ON_HOST) {
        apr_json_uint(json, "mapped_bytes", m->mapped);
        apr_json_uint(json, "tables_bytes", m->tables);
        if (r->names_bytes != UINT64_MAX) apr_json_uint(json, "names_bytes", r->names_bytes);
        if (r->tokenizer_bytes != UINT64_MAX) apr_json_uint(json, "tokenizer_bytes", r->tokenizer_bytes);
    }
    if (!process.known) return;
    apr_json_open(json, "process", '{');
    apr_json_uint(json, "anonymous_bytes", process.anonymous);
    apr_json_uint(json, "file_bytes", process.file);
    apr_json_uint(json, "peak_bytes", process.peak);
    apr_json_close(json, '}');
}

static void put_stats(apr_report *s, const apr_running *r, const apr_session_memory *memory)
{
    apr_json_text *const json = s->json;
    const char *const backend = apr_session_backend_name(r->session);
    const int n_places = apr_session_n_places(r->session);
    char name[32];

    apr_json_string(json, "backend", backend, strlen(backend));
    apr_json_open(json, "memory", '{');
    memory_json(json, r, memory);
    apr_json_open(json, "lines", '[');
    for (int k = 0; k < n_places; k++) {
        const apr_plan *const plan = apr_session_place_plan(r->session, k);
        apr_place_text(r->session, k, name);
        for (size_t i = 0; i < plan->n_lines; i++) {
            apr_json_open(json, NULL, '{');
            apr_json_string(json, "id", plan->lines[i].key, strlen(plan->lines[i].key));
            if (n_places > 1) apr_json_string(json, "place", name, strlen(name));
            apr_json_uint(json, "bytes", plan->lines[i].bytes);
            apr_json_close(json, '}');
        }
    }
    apr_json_close(json, ']');
    if (n_places > 1) apr_link_report(s, r->session);
    apr_json_close(json, '}');
}

/* Predicted memory against what the heap or the driver measures. */
static void print_verdict(const apr_session_memory *m)
{
    const bool on_host = m->on == APR_ON_HOST, known = m->measured != UINT64_MAX;
    char predicted[APR_SMALL_TEXT], measured[APR_SMALL_TEXT], mapped[APR_SMALL_TEXT];

    apr_size_text(predicted, m->planned);
    apr_size_text(measured, m->measured);
    fprintf(stderr, "  memory%s: predicted %s (without %s%s), ", on_host ? "" : " of the GPU", predicted,
            on_host ? apr_size_text(mapped, m->mapped) : "the headroom", on_host ? " mapped from the file" : "");
    if (!known) fprintf(stderr, "not measured: the %s does not say\n", on_host ? "C library" : "driver");
    else fprintf(stderr, "the %s says %s%s\n", on_host ? "heap" : "driver", measured, m->as_planned ? "" : ": NOT AS PLANNED");
}

/* The verdict of one place; with its name if there are several. */
static void print_place(const apr_session *session, int place)
{
    const apr_session_memory m = apr_session_place_memory(session, place);
    char name[32];

    if (apr_session_n_places(session) > 1) fprintf(stderr, "  %s:", apr_place_text(session, place, name));
    print_verdict(&m);
}

/* Memory that is not in the plan, and the kernel's figures of the process. */
static void print_process(const apr_running *r, const apr_session_memory *m)
{
    const apr_process_memory process = apr_process_memory_now();
    char text[3][APR_SMALL_TEXT];

    if (m->on == APR_ON_HOST && r->names_bytes != UINT64_MAX)
        fprintf(stderr, "  not in the plan: names and metadata %s, tokenizer %s\n", apr_size_text(text[0], r->names_bytes),
                r->tokenizer_bytes != UINT64_MAX ? apr_size_text(text[1], r->tokenizer_bytes) : "none");
    if (process.known)
        fprintf(stderr, "  process: %s private and %s of files resident, peak %s\n", apr_size_text(text[0], process.anonymous),
                apr_size_text(text[1], process.file), apr_size_text(text[2], process.peak));
}

void apr_print_stats(const apr_running *r, const apr_call *call)
{
    const apr_session_memory memory = apr_session_check_memory(r->session);
    const int n_places = apr_session_n_places(r->session);
    char size[APR_SMALL_TEXT];
    apr_report s;

    apr_report_start(&s, call->answer, NULL);
    s.out = stderr;
    if (s.json != NULL) {
        put_stats(&s, r, &memory);
        return;
    }
    apr_session_lines_print(r->session, s.out);
    if (n_places > 1) apr_link_report(&s, r->session);
    if (memory.on == APR_ON_HOST) fprintf(stderr, "  %-32s %12s\n", "program, plan and bindings", apr_size_text(size, memory.tables));
    for (int k = 0; k < n_places; k++) print_place(r->session, k);
    print_process(r, &memory);
}
