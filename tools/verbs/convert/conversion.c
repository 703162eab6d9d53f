/* conversion.c - one conversion, from opening the input to printing the answer. */
#include "tools/verbs/convert/conversion.h"

#include "formats/base/text.h"
#include "formats/files/out.h"
#include "formats/files/resume.h"
#include "formats/gguf/gguf.h"
#include "quant/damage_table.h"
#include "tools/cli/model_paths.h"
#include "tools/engine/convert/job.h"
#include "tools/engine/library/handles.h"
#include "tools/report/guard.h"
#include "tools/report/meter.h"
#include "tools/report/table.h"
#include "tools/report/text.h"
#include "tools/verbs/convert/out_name.h"
#include "tools/verbs/convert/packed_print.h"
#include "tools/verbs/convert/quant_report.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* --- rules of --tensor that match no tensor, or that earlier rules hide --- */

/* The length of the longest common substring. */
static size_t longest_common(const char *a, const char *b)
{
    size_t longest = 0;

    for (const char *i = a; *i != '\0'; i++)
        for (const char *j = b; *j != '\0'; j++) {
            size_t n = 0;
            while (i[n] != '\0' && i[n] == j[n]) n++;
            if (n > longest) longest = n;
        }
    return longest;
}

/* The name with the longest common substring with the expression; matrices are preferred. */
static const char *nearest_name(const apr_model *model, const char *regex)
{
    const char *nearest = NULL;
    size_t most = 0;

    for (size_t i = 0; i < model->n_tensors; i++) {
        const apr_tensor *const t = &model->tensors[i];
        const char *const names[] = {t->name, t->origin_name};
        for (size_t k = 0; k < 2; k++) {
            const size_t n = names[k] != NULL ? 2 * longest_common(names[k], regex) + (t->rank >= 2) : 0;
            if (n <= most) continue;
            most = n;
            nearest = names[k];
        }
    }
    return nearest;
}

static apr_status refuse(const apr_call *call, const apr_recipe_override *rule, const apr_model *source, apr_error *err)
{
    const char *const near = nearest_name(source, rule->regex);
    char *const argv[] = {"", "show", (char *)call->operands[0]};

    apr_fail(err, APR_E_USAGE, "--tensor '%s=%s' matches no tensor%s%s", rule->regex, apr_dtypes[rule->to].name,
             near != NULL ? "; the nearest name is " : "", near != NULL ? near : "");
    return apr_try_instead(APR_E_USAGE, &(apr_typed){"aprconv", 3, argv}, NULL, 0, err);
}

/* APR_E_USAGE: a rule matches no tensor; the message has the nearest name of a tensor of `source`. Prints a note on stderr for rules that
 * earlier rules hide completely. */
static apr_status rules_check(const apr_call *call, const apr_recipe *recipe, const apr_recipe_options *options, const apr_model *source,
                              apr_error *err)
{
    for (size_t i = 0; i < options->n_overrides; i++) {
        const apr_recipe_override *const rule = &options->overrides[i];
        if (rule->reason != NULL || recipe->uses[i].n_used > 0) continue;
        if (recipe->uses[i].n_hidden == 0) return refuse(call, rule, source, err);
        fprintf(stderr, "note: --tensor '%s=%s' has no effect: an earlier --tensor already matches all of its tensors\n",
                apr_printable(rule->regex), apr_dtypes[rule->to].name);
    }
    return APR_OK;
}

/* --- several runs: reads --resume, --part and --finish, and prints what they have made --- */

enum { MAX_PARTS = 100000 };

/* Reads a whole number of [1, most] at *text, and advances *text after it. */
static bool read_number(const char **text, long most, int *n)
{
    char *end;

    if (**text < '1' || **text > '9') return false;
    const long value = strtol(*text, &end, 10);
    *text = end;
    *n = (int)value;
    return value <= most;
}

static apr_status parse_part(const char *text, apr_resume_part *part, apr_error *err)
{
    const char *at = text;

    if (read_number(&at, MAX_PARTS, &part->part) && *at++ == '/' && read_number(&at, MAX_PARTS, &part->n_parts) && *at == '\0' &&
        part->part <= part->n_parts)
        return APR_OK;
    return apr_fail(err, APR_E_USAGE, "--part takes K/N, the K-th of N parts, as in 3/8 (N at most %d), not '%s'", (int)MAX_PARTS, text);
}

/* APR_E_USAGE: an invalid part, or several of these options. */
static apr_status runs_parse(const apr_runs_options *o, bool dry_run, apr_resume_part *part, apr_error *err)
{
    const int n = o->resume + o->finish + (o->part != NULL);

    if (n > 1) return apr_fail(err, APR_E_USAGE, "give only one of --resume, --part and --finish");
    if (n > 0 && dry_run)
        return apr_fail(err, APR_E_USAGE, "--dry-run writes nothing and cannot be combined with --resume, --part or --finish");
    if (n == 0) return APR_OK;
    *part = (apr_resume_part){.part = 0, .n_parts = o->resume ? 1 : 0};
    return o->part != NULL ? parse_part(o->part, part, err) : APR_OK;
}

static void print_folder(const apr_sink_progress *p, const apr_resume_part *part)
{
    const size_t n = p->n_there + p->n_done;

    if (part->part > 0)
        printf("  part %d/%d in %s: %zu of %zu tensors", part->part, p->n_parts, apr_printable(p->folder), n, n + p->n_elsewhere);
    else printf("  made in %s", apr_printable(p->folder));
    if (part->n_parts > 0) printf(", %zu tensors reused from earlier runs", p->n_there);
    printf("\n");
}

/* Prints what was reused and what is left; nothing for a single run. quiet: only problems. */
static void runs_print(const apr_sink_progress *p, const apr_resume_part *part, bool quiet)
{
    if (p->folder == NULL) return;
    if (!quiet) print_folder(p, part);
    if (p->n_damaged > 0)
        printf("  note: %zu tensors of earlier runs had changed since they were written, and were made again\n", p->n_damaged);
    if (part->part == 0 && access(p->folder, F_OK) == 0) /* the output is complete */
        printf("  note: %s could not be removed; it is no longer needed\n", apr_printable(p->folder));
    if (part->part > 0 && !quiet) printf("  when all parts are done, run the same command with --finish instead of --part\n");
}

static void runs_json(apr_json_text *json, const apr_sink_progress *p, const apr_resume_part *part)
{
    if (p->folder == NULL) return;
    apr_json_open(json, "resumed", '{');
    apr_json_string(json, "folder", p->folder, strlen(p->folder));
    if (part->part > 0) apr_json_int(json, "part", part->part);
    apr_json_int(json, "parts", p->n_parts);
    apr_json_uint(json, "taken_over", p->n_there);
    apr_json_uint(json, "made", p->n_done);
    apr_json_uint(json, "made_anew", p->n_damaged);
    apr_json_uint(json, "of_other_parts", p->n_elsewhere);
    apr_json_bool(json, "complete", part->part == 0);
    apr_json_close(json, '}');
}

/* --- the outcome, as JSON and as text --- */

typedef struct outcome {
    const apr_call *call;
    const char *in, *out;
    const apr_model *source;
    const apr_output_options *output;
    const apr_recipe_options *recipe;
    /* borrowed from the job when it is done */
    const apr_conversion *conversion;
    apr_lora_set lora;
    const apr_conversion *tower;  /* of output->mmproj; NULL: none */
    uint64_t tower_bytes;         /* of the file; 0 in a dry run */
    apr_feedback_run *feedback;   /* NULL: no error feedback */
    apr_heal_run *heal;           /* NULL: no healing */
    apr_error refusal;            /* of the healing; text empty: none */
    apr_allocation allocation;    /* of types, if a target was given */
    uint64_t bytes_in, bytes_out; /* tensor data */
    uint64_t file_bytes;          /* 0 in a dry run */
    double seconds;
    const char *device; /* the GPUs that encoded; empty: the host */
    bool dry_run;
    bool makes_folder;     /* OUT becomes a folder because its name has no extension */
    apr_out *report;       /* NULL: no report */
    apr_resume_part part;  /* with --resume, --part or --finish */
    bool is_kept;          /* finished work is kept if the run is interrupted */
    apr_listener listener; /* shows passes over a text with `passes` */
    apr_meter passes, meter;
} outcome;

static apr_progress begin_passes(void *user)
{
    outcome *const o = user;
    return apr_meter_start_counting(&o->passes, o->call->quiet);
}

static void end_passes(void *user) { apr_meter_end(&((outcome *)user)->passes); }

static void show_kept(void *user, uint64_t done, uint64_t total)
{
    (void)user;
    apr_guard_kept(done, total);
}

static void tensor_json(apr_json_text *json, const apr_recipe *recipe, const apr_recipe_line *line, const apr_pipe_item *item)
{
    const bool measured = item->metrics.n > 0;
    const char *const to = apr_recipe_type_name(recipe, line);

    apr_json_open(json, NULL, '{');
    apr_json_string(json, "name", line->tensor->name, strlen(line->tensor->name));
    apr_json_string(json, "from", apr_dtypes[line->tensor->dtype].name, strlen(apr_dtypes[line->tensor->dtype].name));
    apr_json_string(json, "to", to, strlen(to));
    apr_json_string(json, "reason", line->reason, strlen(line->reason));
    apr_json_bool(json, "fell_back", line->fell_back);
    apr_json_open(json, "shape", '[');
    for (int i = 0; i < line->tensor->rank; i++) apr_json_int(json, NULL, line->tensor->dims[i]);
    apr_json_close(json, ']');
    apr_json_uint(json, "bytes", apr_recipe_line_bytes(recipe, line));
    if (item->state == APR_TENSOR_DONE_BEFORE) apr_json_bool(json, "taken_over", true);
    if (item->state == APR_TENSOR_ELSEWHERE) apr_json_bool(json, "of_other_part", true);
    if (item->out_of_range.n_nonfinite > 0) apr_json_int(json, "nan_or_infinite", item->out_of_range.n_nonfinite);
    if (item->out_of_range.n_out_of_range > 0) {
        apr_json_int(json, "beyond_range", item->out_of_range.n_out_of_range);
        apr_json_real(json, "worst_beyond_range", (double)item->out_of_range.worst);
        apr_json_real(json, "saturated_at", (double)apr_encode_bound(item->to, item->out_of_range.worst));
    }
    if (measured) {
        apr_json_real(json, "rmse", apr_metrics_rmse(&item->metrics));
        apr_json_real(json, "relative_error", apr_metrics_relative_error(&item->metrics));
        apr_json_real(json, "max_error", (double)item->metrics.max_error);
        apr_json_real(json, "snr_db", apr_metrics_snr_db(&item->metrics));
        apr_json_real(json, "cosine", apr_metrics_cosine(&item->metrics));
    }
    apr_json_close(json, '}');
}

/* The JSON key and the printed word of each apr_loss_kind. */
static const struct {
    const char *key, *word;
} loss_names[] = {[APR_LOST] = {"lost", "lost"},
                  [APR_LOST_TO_OTHERS] = {"lost_to_others", "WARNING: kept for aprkit only"},
                  [APR_NOTE] = {"notes", "note"}};

static void losses_json(apr_json_text *json, const apr_losses *losses, apr_loss_kind kind)
{
    apr_json_open(json, loss_names[kind].key, '[');
    for (size_t i = 0; i < losses->n_items; i++)
        if (losses->items[i].kind == kind) apr_json_string(json, NULL, losses->items[i].text, strlen(losses->items[i].text));
    apr_json_close(json, ']');
}

/* Unusual padding of a GGUF: bytes between and after its tensors beyond the usual alignment. */
static uint64_t gap_bytes(const outcome *o)
{
    return o->conversion->options.format == APR_FORMAT_GGUF ? apr_gguf_gap_bytes(&o->conversion->layout) : 0;
}

static void layout_json(apr_json_text *json, const apr_packed_target *packed)
{
    apr_json_open(json, "layout", '{');
    apr_json_string(json, "type", packed->layout->type, strlen(packed->layout->type));
    apr_json_string(json, "name", packed->layout->name, strlen(packed->layout->name));
    apr_json_int(json, "group", packed->group);
    apr_json_close(json, '}');
}

static uint64_t tensor_bytes(const apr_model *model)
{
    uint64_t n = 0;
    for (size_t i = 0; i < model->n_tensors; i++) n += model->tensors[i].n_bytes;
    return n;
}

static void tower_json(apr_json_text *json, const outcome *o)
{
    apr_json_open(json, "mmproj", '{');
    apr_json_string(json, "output", o->output->mmproj, strlen(o->output->mmproj));
    apr_json_uint(json, "tensors", o->tower->layout.n_tensors);
    apr_json_uint(json, "tensor_bytes", tensor_bytes(&o->tower->layout));
    if (o->tower_bytes > 0) apr_json_uint(json, "file_bytes", o->tower_bytes);
    apr_json_close(json, '}');
}

static void facts_json(apr_json_text *json, const outcome *o)
{
    const apr_conversion *const c = o->conversion;
    apr_report as_json = {.json = json};

    apr_json_string(json, "input", o->in, strlen(o->in));
    apr_json_string(json, "input_format", apr_format_name(o->source->format), strlen(apr_format_name(o->source->format)));
    apr_json_string(json, "output", o->out, strlen(o->out));
    apr_json_string(json, "output_format", apr_format_name(c->options.format), strlen(apr_format_name(c->options.format)));
    apr_json_bool(json, "dry_run", o->dry_run);
    apr_json_uint(json, "tensor_bytes_in", o->bytes_in);
    apr_json_uint(json, "tensor_bytes_out", o->bytes_out);
    if (o->file_bytes > 0) apr_json_uint(json, "file_bytes", o->file_bytes);
    if (gap_bytes(o) > 0) apr_json_uint(json, "padding_bytes", gap_bytes(o));
    if (c->recipe.packed != NULL) layout_json(json, c->recipe.packed);
    apr_json_uint(json, "n_matrices", c->recipe.n_matrices);
    if (c->recipe.mixture[0] != '\0') apr_json_uint(json, "n_quantized", c->recipe.n_quantized);
    apr_json_real(json, "bits_per_weight", c->recipe.n_elems > 0 ? 8.0 * (double)c->recipe.n_bytes / (double)c->recipe.n_elems : 0.0);
    apr_json_real(json, "seconds", o->seconds);
    apr_json_string(json, "device", *o->device != '\0' ? o->device : "host", strlen(*o->device != '\0' ? o->device : "host"));
    runs_json(json, &c->progress, &o->part);
    apr_lora_set_json(json, &o->lora);
    if (o->tower != NULL) tower_json(json, o);
    if (o->feedback != NULL) apr_feedback_report(&as_json, o->feedback, o->heal, o->dry_run);
    apr_importance_report(&as_json, c);
    for (int kind = APR_LOST; kind <= APR_NOTE; kind++) losses_json(json, &c->losses, (apr_loss_kind)kind);
    apr_packed_report(&as_json, c, o->dry_run);
    if (o->allocation.n_groups > 0) apr_allocation_report(&as_json, &o->allocation);
}

static void tensors_json(apr_json_text *json, const apr_conversion *c)
{
    size_t item = SIZE_MAX;

    apr_json_open(json, "tensors", '[');
    for (size_t i = 0; i < c->recipe.n_lines; i++) {
        item = apr_quant_next_item(c, item);
        tensor_json(json, &c->recipe, &c->recipe.lines[i], &c->items[item]);
    }
    apr_json_close(json, ']');
}

static void outcome_json(apr_json_text *json, const outcome *o)
{
    facts_json(json, o);
    tensors_json(json, o->conversion);
}

/* The first bytes of a JSON report. A report may replace an older report, but no other file. */
static const char report_mark[] = "{\"input\":\"";

static bool is_page(const char *path)
{
    static const char suffix[] = ".html";
    return strlen(path) >= sizeof suffix && apr_ends_with_any_case(path, suffix);
}

static apr_status write_json(const outcome *o, const apr_quant_sums *sums, apr_out *out, apr_error *err)
{
    apr_json_text json = {0};

    apr_json_open(&json, NULL, '{');
    outcome_json(&json, o);
    apr_quant_sums_json(&json, sums);
    apr_json_close(&json, '}');
    return apr_json_write(&json, "\n", out, "the report", err);
}

enum { MOST_TENSORS_OF_A_PAGE = 4000 }; /* whose JSON a page has; of more it would be several MB */

/* The page, with the answer that --json gives. */
static apr_status write_page(const outcome *o, const apr_quant_sums *sums, const apr_page_options *options, apr_error *err)
{
    const apr_error none = {0};
    char command[APR_PAGE_COMMAND];
    apr_page_about about = {.command = apr_page_command(o->call, command),
                            .options = options,
                            .answer_is_short = o->conversion->recipe.n_lines > MOST_TENSORS_OF_A_PAGE};
    const apr_quant_shown shown = {.in = o->in,
                                   .out = o->out,
                                   .conversion = o->conversion,
                                   .sums = sums,
                                   .feedback = o->dry_run ? NULL : o->feedback,
                                   .heal = o->dry_run ? NULL : o->heal,
                                   .about = &about,
                                   .allocation = o->allocation.n_groups > 0 ? &o->allocation : NULL};
    apr_model made = {0}; /* not there in a dry run, and after a part of several */
    const bool is_made = !o->dry_run && apr_model_open(&made, o->out, NULL) == APR_OK;
    const apr_page_model models[] = {{"source", o->source}, {"output", &made}};
    apr_answer as_json;

    apr_answer_start(&as_json, true);
    facts_json(&as_json.body, o);
    if (!about.answer_is_short) tensors_json(&as_json.body, o->conversion);
    about.models = models;
    about.n_models = is_made ? 2 : 1;
    about.answer = apr_answer_document(&as_json.body, APR_OK, &none);
    const apr_status status = apr_quant_html(&shown, o->report, err);
    free(about.answer);
    if (is_made) apr_model_close(&made);
    return status;
}

static apr_status write_report(const outcome *o, const apr_output_options *output, apr_error *err)
{
    apr_quant_sums sums;

    apr_status status = apr_quant_sums_of(&sums, o->conversion, err);
    if (status == APR_OK)
        status = is_page(output->report) ? write_page(o, &sums, &output->page, err) : write_json(o, &sums, o->report, err);
    apr_quant_sums_close(&sums);
    return status;
}

static size_t count_packed(const apr_recipe *recipe)
{
    size_t n = 0;
    for (size_t i = 0; i < recipe->n_lines; i++) n += recipe->lines[i].is_packed;
    return n;
}

/* "339 tensors: 169 q4_k, 29 q6_k, 141 f32" */
static void print_types(const apr_recipe *recipe)
{
    const size_t n_packed = count_packed(recipe);
    const char *separator = ": ";
    printf("  %zu tensors", recipe->n_lines);
    for (int d = 0; d < APR_DTYPE_COUNT; d++) {
        size_t n = 0;
        for (size_t i = 0; i < recipe->n_lines; i++) n += !recipe->lines[i].is_packed && recipe->lines[i].to == (apr_dtype)d;
        if (n == 0) continue;
        printf("%s%zu %s", separator, n, apr_dtypes[d].name);
        separator = ", ";
    }
    if (n_packed > 0) printf("%s%zu %s", separator, n_packed, recipe->packed->layout->type);
    printf(", %.2f bits per weight\n", recipe->n_elems > 0 ? 8.0 * (double)recipe->n_bytes / (double)recipe->n_elems : 0.0);
}

static apr_status print_recipe(const apr_recipe *recipe, apr_error *err)
{
    static const apr_column columns[] = {{"tensor", false}, {"shape", false}, {"from", false},
                                         {"to", false},     {"size", true},   {"why", false}};
    apr_table table;
    char dims[128], size[APR_SMALL_TEXT];

    apr_table_start(&table, columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < recipe->n_lines; i++) {
        const apr_recipe_line *const line = &recipe->lines[i];
        apr_table_cell(&table, "%s", line->tensor->name);
        apr_table_cell(&table, "%s", apr_dims_text(line->tensor, dims, sizeof dims));
        apr_table_cell(&table, "%s", apr_dtypes[line->tensor->dtype].name);
        apr_table_cell(&table, "%s", apr_recipe_type_name(recipe, line));
        apr_table_cell(&table, "%s", apr_size_text(size, apr_recipe_line_bytes(recipe, line)));
        apr_table_cell(&table, "%s", line->reason);
    }
    return apr_table_print(&table, stdout, 2, err);
}

/* "layout     int4 as compressed-tensors, groups of 128" */
static void print_layout(const apr_packed_target *packed)
{
    const apr_packed_layout *const l = packed->layout;

    printf("  layout     %s as %s, ", l->type, l->name);
    if (l->packing.scale_rows > 1) printf("blocks of %lld x %d\n", (long long)l->packing.scale_rows, packed->group);
    else printf("groups of %d\n", packed->group);
}

/* How many tensors the GPU encoded, and how many were left to the host. */
static void print_device(const outcome *o)
{
    const apr_conversion *const c = o->conversion;
    size_t n_device = 0, n_host = 0;
    const char *example = NULL;

    if (*o->device == '\0') return;
    for (size_t i = 0; i < c->layout.n_tensors; i++) {
        const apr_pipe_item *const item = &c->items[i];
        if (item->is_scales || item->is_commons || item->to == item->from->dtype || item->state == APR_TENSOR_ELSEWHERE) continue;
        n_device += item->on_device;
        if (item->on_device) continue;
        n_host++;
        example = item->from->name;
    }
    printf("  encoded on %s: %zu tensors", o->device, n_device);
    if (n_host > 0)
        printf("; on the host: %zu (small ones, or in types that only the host decodes or encodes; for example %s)", n_host, example);
    printf("\n");
}

/* Warnings for tensors with values that their new type cannot hold. */
static void print_out_of_range(const apr_conversion *c)
{
    enum { MAX_NAMED = 20 };
    size_t n_named = 0, n_more = 0;

    for (size_t i = 0; i < c->layout.n_tensors; i++) {
        const apr_pipe_item *const item = &c->items[i];
        const apr_out_of_range *const m = &item->out_of_range;
        const char *const name = apr_printable(item->from->name), *const type = apr_dtypes[item->to].name;
        if (m->n_nonfinite + m->n_out_of_range == 0) continue;
        if (n_named == MAX_NAMED) {
            n_more++;
            continue;
        }
        n_named++;
        if (m->n_nonfinite > 0)
            printf("  warning: tensor '%s' has %lld NaN or infinite values; formats/README.md says how they are converted\n", name,
                   (long long)m->n_nonfinite);
        if (m->n_out_of_range > 0)
            printf("  warning: tensor '%s' has %lld values too large for %s (the largest is %g); --saturate clamped them to %g\n", name,
                   (long long)m->n_out_of_range, type, (double)m->worst, (double)apr_encode_bound(item->to, m->worst));
    }
    if (n_more > 0) printf("  warning: the same applies to %zu more tensors; --report lists them all\n", n_more);
}

/* Explains why a file is larger than its tensors and header. */
static void print_padding(const outcome *o)
{
    const uint64_t padding = gap_bytes(o);
    char size[APR_SMALL_TEXT], file[APR_SMALL_TEXT];

    if (padding == 0) return;
    printf("  padding    %s between and after the tensors, as in the original file: the file %s %s\n", apr_size_text(size, padding),
           o->file_bytes > 0 ? "has" : "will have at least",
           apr_size_text(file, o->file_bytes > 0 ? o->file_bytes : o->bytes_out + padding));
}

/* Prints input, output and what was done; left out with --quiet. */
static apr_status print_summary(const outcome *o, apr_error *err)
{
    const apr_conversion *const c = o->conversion;
    apr_report r = {.out = stdout, .err = err};
    char in[APR_SMALL_TEXT], out[APR_SMALL_TEXT];

    printf("%s (%s, %s of tensors) -> %s (%s, %s of tensors%s)%s\n", apr_printable(o->in), apr_format_name(o->source->format),
           apr_size_text(in, o->bytes_in), apr_printable(o->out), apr_format_name(c->options.format), apr_size_text(out, o->bytes_out),
           o->dry_run ? ", not written" : "", o->makes_folder ? " (a folder, because the name has no extension)" : "");
    print_types(&c->recipe);
    if (c->recipe.packed != NULL) print_layout(c->recipe.packed);
    print_padding(o);
    if (c->recipe.mixture[0] != '\0') printf("  quantized  %zu of %zu matrices\n", c->recipe.n_quantized, c->recipe.n_matrices);
    apr_lora_set_print(&o->lora, stdout);
    if (o->tower != NULL)
        printf("  mmproj     %s: %zu tensors of the vision tower, %s\n", apr_printable(o->output->mmproj), o->tower->layout.n_tensors,
               apr_size_text(out, tensor_bytes(&o->tower->layout)));
    apr_importance_report(&r, c);
    apr_packed_report(&r, c, o->dry_run);
    if (o->feedback != NULL) apr_feedback_report(&r, o->feedback, o->heal, o->dry_run);
    if (o->allocation.n_groups > 0) apr_allocation_report(&r, &o->allocation);
    return apr_report_end(&r);
}

static apr_status outcome_text(const outcome *o, apr_error *err)
{
    const apr_conversion *const c = o->conversion;
    const bool quiet = o->call->quiet;
    char rate[APR_SMALL_TEXT], clean[4096];

    if (!quiet) APR_TRY(print_summary(o, err));
    for (size_t i = 0; i < c->losses.n_items; i++)
        printf("  %s: %s\n", loss_names[c->losses.items[i].kind].word,
               apr_clean_text(clean, sizeof clean, c->losses.items[i].text, strlen(c->losses.items[i].text)));
    if (o->dry_run) return print_recipe(&c->recipe, err);
    for (size_t i = 0; i < c->recipe.n_lines; i++) /* printed even with --quiet */
        if (c->recipe.lines[i].fell_back) printf("  %s: %s\n", apr_printable(c->recipe.lines[i].tensor->name), c->recipe.lines[i].reason);
    print_out_of_range(c);
    runs_print(&c->progress, &o->part, quiet);
    if (quiet) return APR_OK;
    print_device(o);
    if (c->progress.folder != NULL) printf("  %.2f s\n", o->seconds);
    else printf("  %.2f s, %s/s\n", o->seconds, apr_size_text(rate, o->seconds > 0 ? (uint64_t)((double)o->bytes_in / o->seconds) : 0));
    return APR_OK;
}

/* --- the run --- */

static void show_warning(void *user, const char *sentence)
{
    (void)user;
    fprintf(stderr, "WARNING: %s\n", apr_printable(sentence));
}

/* OUT would be a folder because its name has no extension, but safetensors cannot hold the result: suggests OUT.gguf. */
static apr_status suggest_file(const outcome *o, apr_status status, apr_error *err)
{
    char *better = NULL;

    if (status != APR_E_UNSUPPORTED || !o->makes_folder || strstr(err->text, "has no place in safetensors") == NULL) return status;
    const size_t n = strlen(err->text), n_better = strlen(o->out) + sizeof ".gguf";
    snprintf(err->text + n, sizeof err->text - n, "; %s is taken as a folder because its name has no extension", o->out);
    better = malloc(n_better);
    if (better == NULL) return status;
    snprintf(better, n_better, "%s.gguf", o->out);
    apr_try_change(status, o->call->typed, o->out, better, err);
    free(better);
    return status;
}

/* Prepares the message that is printed if the run is interrupted. */
static apr_status prepare_guard(const outcome *o, apr_error *err)
{
    char *const path = o->is_kept ? apr_resume_path_for(o->out) : NULL;

    apr_guard_writes();
    if (o->is_kept && path == NULL) return apr_no_memory(err, "a path");
    if (path != NULL) apr_guard_protects(path);
    free(path);
    return APR_OK;
}

/* IN is a config.json. If its folder has weights, suggests the folder. */
static apr_status refuse_config(const apr_call *call, const char *in, apr_error *err)
{
    char text[4096], folder[4096];
    const char *const slash = strrchr(in, '/');

    snprintf(folder, sizeof folder, "%.*s", slash != NULL ? (int)(slash - in) : 1, slash != NULL ? in : ".");
    apr_fail(err, APR_E_USAGE, "%s is a config.json: it has no weights to convert", in);
    if (*folder == '\0' || apr_config_only_path(folder, text, sizeof text) != NULL) return APR_E_USAGE;
    return apr_try_change(APR_E_USAGE, call->typed, in, folder, err);
}

/* OUT's name has been checked before. */
static apr_status check_formats(const apr_call *call, const apr_model *source, const char *in, const char *out, apr_format expect,
                                apr_format *format, apr_error *err)
{
    *format = apr_format_of_path(out);
    if (expect != APR_FORMAT_NONE && source->format != expect) {
        apr_fail(err, APR_E_USAGE, "%s is %s, not %s; 'aprconv convert IN OUT' accepts any format", in, apr_format_name(source->format),
                 apr_format_name(expect));
        return apr_try_change(APR_E_USAGE, call->typed, call->verb, "convert", err);
    }
    return source->format == APR_FORMAT_CONFIG ? refuse_config(call, in, err) : APR_OK;
}

static const char *mark_of_report(const char *path) { return is_page(path) ? APR_QUANT_HTML_MARK : report_mark; }

/* Checks all outputs before the work starts. An existing state file may be only read, so it is checked as in a dry run. */
static apr_status check_outputs(const outcome *o, const apr_convert_job *job, apr_error *err)
{
    const char *const state = o->output->allocate != NULL ? o->output->allocate->state : NULL, *const report = o->output->report;
    apr_out_request others[3];
    size_t n = 0;

    if (job->mmproj != NULL) others[n++] = (apr_out_request){.path = job->mmproj, .overwrite = o->output->force, .is_dry = job->dry_run};
    if (report != NULL) others[n++] = (apr_out_request){.path = report, .mark = mark_of_report(report)};
    if (state != NULL) others[n++] = (apr_out_request){.path = state, .mark = APR_DAMAGE_MARK, .is_dry = access(state, F_OK) == 0};
    return apr_convert_job_check_outputs(job, others, n, err);
}

/* OUT is the same file as IN: suggests another name. */
static apr_status suggest_other_name(const outcome *o, const apr_recipe_options *recipe, apr_status status, apr_error *err)
{
    if (status != APR_E_USAGE || strstr(err->text, "is the same file as the input") == NULL) return status;
    char *const better = apr_out_name_next_to(o->in, recipe->mixture != NULL ? recipe->mixture : "new");
    if (better != NULL) apr_try_change(status, o->call->typed, o->out, better, err);
    free(better);
    return status;
}

static apr_status open_outputs(outcome *o, const apr_convert_job *job, apr_error *err)
{
    APR_TRY(suggest_other_name(o, o->recipe, check_outputs(o, job, err), err));
    if (o->output->report == NULL) return APR_OK;
    return apr_out_open_marked(&o->report, o->output->report, mark_of_report(o->output->report), err);
}

/* --- the hooks of aprkit_convert --- */

static apr_status prepare(void *user, apr_convert_job *job, apr_error *err)
{
    outcome *const o = user;

    job->options.recipe = *o->recipe;
    job->encoder = o->output->encoder;
    job->dry_run = o->output->dry_run;
    job->allocate = o->output->allocate;
    job->feedback = o->output->feedback;
    job->mmproj = o->output->mmproj;
    job->heal = o->output->heal;
    job->listener = &o->listener;
    job->warn = show_warning;
    job->run.pipe.want_metrics = o->output->report != NULL;
    o->is_kept = apr_convert_job_is_kept(job);
    APR_TRY(open_outputs(o, job, err));
    return prepare_guard(o, err);
}

static apr_status check_plan(void *user, const apr_convert_job *job, apr_error *err)
{
    const outcome *const o = user;
    return rules_check(o->call, &job->conversion.recipe, &job->options.recipe, job->source, err);
}

static apr_progress begin(void *user)
{
    outcome *const o = user;
    const apr_progress progress = apr_meter_start(&o->meter, o->call->quiet);
    o->meter.keeps = o->is_kept;
    return progress;
}

static void end(void *user)
{
    outcome *const o = user;
    char what[4200];

    apr_meter_end(&o->meter);
    if (o->output->heal == NULL) return;
    snprintf(what, sizeof what, "%.4000s is the file that ldlq made, without healing", o->out);
    apr_guard_wrote(what);
}

static apr_status show(void *user, const apr_convert_job *job, apr_error *err)
{
    outcome *const o = user;

    o->conversion = &job->conversion;
    o->lora = job->lora;
    o->tower = job->mmproj != NULL ? &job->tower : NULL;
    o->tower_bytes = job->tower_bytes;
    o->feedback = job->feedback_run;
    o->heal = job->heal_run;
    if (o->heal != NULL) o->refusal = apr_heal_run_figures(o->heal)->refusal;
    o->allocation = job->allocation;
    o->file_bytes = job->file_bytes;
    o->seconds = job->seconds;
    o->device = job->device;
    o->dry_run = job->dry_run;
    o->bytes_in = tensor_bytes(job->source);
    o->bytes_out = tensor_bytes(&job->conversion.layout);
    if (o->report != NULL) APR_TRY(write_report(o, o->output, err));
    if (!o->call->answer->json) return outcome_text(o, err);
    outcome_json(&o->call->answer->body, o);
    return APR_OK;
}

static apr_status close_report(outcome *o, apr_status status, apr_error *err)
{
    if (o->report != NULL && status == APR_OK) return apr_out_finish(o->report, err);
    apr_out_abandon(o->report);
    return status;
}

static void show_note(void *user, const char *sentence)
{
    (void)user;
    fprintf(stderr, "warning: %s\n", apr_printable(sentence));
}

static apr_status convert(outcome *o, aprkit_model *model, apr_format format, apr_error *err)
{
    const apr_output_options *const output = o->output;
    const char *const suffix = apr_format_suffix(format); /* NULL: a folder */
    const aprkit_tool_hooks hooks = {prepare, check_plan, begin, end, show, o};
    const aprkit_convert_options options = {.size = sizeof options,
                                            .format = suffix != NULL ? suffix + 1 : "safetensors",
                                            .imatrix = output->imatrix,
                                            .adapters = output->lora.items,
                                            .n_adapters = output->lora.n_items,
                                            .overwrite = output->force,
                                            .allow_loss = output->allow_loss,
                                            .allow_incomplete = output->allow_incomplete,
                                            .saturate = output->saturate,
                                            .profile = output->profile == APR_PROFILE_APRENDER ? "aprender" : NULL,
                                            .max_shard_bytes = output->shard_bytes,
                                            .resume = output->runs.resume,
                                            .finish = output->runs.finish,
                                            .part = o->part.part,
                                            .n_parts = o->part.part > 0 ? o->part.n_parts : 0,
                                            .on_note = show_note,
                                            .hooks = &hooks};
    aprkit_error error;

    if (aprkit_convert(model, o->out, &options, &error) == APRKIT_OK) return APR_OK;
    return suggest_file(o, apr_fail(err, (apr_status)error.status, "%s", error.text), err);
}

apr_status apr_run_conversion(const apr_call *call, const char *in, const char *out, apr_format expect, apr_format produce,
                              const apr_output_options *output, const apr_recipe_options *recipe, apr_error *err)
{
    const aprkit_model_options mapped = {.size = sizeof mapped, .map = 1}; /* tools/report/guard.h handles SIGBUS */
    outcome o = {.call = call,
                 .in = in,
                 .out = out,
                 .output = output,
                 .recipe = recipe,
                 .makes_folder = apr_out_name_makes_a_folder(out),
                 .listener = {begin_passes, end_passes, show_kept, &o}};
    aprkit_model *model;
    aprkit_error error;
    apr_format format;

    if (output->threads > 0) omp_set_num_threads((int)output->threads);
    if (output->cpu > 0) APR_TRY(apr_use_cpu_level((apr_cpu_level)(output->cpu - 1), err));
    APR_TRY(runs_parse(&output->runs, output->dry_run, &o.part, err));
    if (output->mmproj != NULL && (output->runs.resume || output->runs.finish || output->runs.part != NULL))
        return apr_fail(err, APR_E_USAGE, "--mmproj is written in one run: leave out --resume, --part and --finish");
    if (output->mmproj != NULL && apr_format_of_path(output->mmproj) != APR_FORMAT_GGUF)
        return apr_fail(err, APR_E_USAGE, "--mmproj %s: the vision tower is written as a GGUF, give a name that ends in .gguf",
                        output->mmproj);
    APR_TRY(apr_out_name_check(call, in, out, produce, err));
    if (aprkit_model_open(&model, in, &mapped, &error) != APRKIT_OK) return apr_fail(err, (apr_status)error.status, "%s", error.text);
    o.source = &model->model;
    apr_status status = check_formats(call, o.source, in, out, expect, &format, err);
    if (status == APR_OK) status = close_report(&o, convert(&o, model, format, err), err);
    if (status == APR_OK && o.refusal.text[0] != '\0') status = apr_fail(err, APR_E_NO, "%s", o.refusal.text);
    aprkit_model_close(model);
    return status;
}

bool apr_writes_a_folder(const apr_call *call)
{
    return call->n_operands < 2 || apr_format_of_path(call->operands[1]) == APR_FORMAT_SAFETENSORS;
}

bool apr_writes_a_gguf(const apr_call *call) { return call->n_operands == 2 && apr_format_of_path(call->operands[1]) == APR_FORMAT_GGUF; }

bool apr_reports_as_a_page(const apr_call *call)
{
    const char *const report = ((const apr_output_options *)call->options)->report;
    return report != NULL && is_page(report);
}

bool apr_encodes_on_a_gpu(const apr_call *call) { return ((const apr_output_options *)call->options)->encoder.device != 0; }
