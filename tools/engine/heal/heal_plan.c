/* heal_plan.c - see heal_plan.h. */
#include "tools/engine/heal/heal_plan.h"

#include "formats/base/machine.h"
#include "quant/heal/latents.h"
#include "runtime/check/compare.h"
#include "runtime/train/train_device.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* With a GPU gradients wait for the host's steps, in memory for so many of the largest tensor. */
enum { GRADIENTS = 2 };

static void add_line_of(apr_heal_plan *plan, apr_train_line line)
{
    if (plan->n_lines < APR_HEAL_LINES) plan->lines[plan->n_lines++] = line;
    *(line.on_device ? &plan->device_bytes : &plan->bytes) += line.bytes;
}

static void add_line(apr_heal_plan *plan, const char *key, const char *what, uint64_t bytes)
{
    add_line_of(plan, (apr_train_line){key, what, bytes, false});
}

static uint64_t source_bytes(const apr_conversion *c)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < c->source->n_tensors; i++) bytes += c->source->tensors[i].n_bytes;
    return bytes;
}

/* Latents and best blocks of all tensors of the output that can be trained. */
static void add_tensors(apr_heal_plan *plan, const apr_conversion *c)
{
    uint64_t latents = 0, best = 0, stored = 0;

    for (size_t i = 0; i < c->layout.n_tensors; i++) {
        const apr_tensor *const t = &c->layout.tensors[i];
        const bool is_float = apr_dtypes[t->dtype].class_of == APR_CLASS_FLOAT;
        stored += t->n_bytes;
        if (!apr_latents_support(t->dtype) || is_float != (t->rank == 1)) continue;
        latents += apr_latents_bytes(t->dtype, apr_tensor_elems(t));
        best += t->n_bytes;
    }
    add_line(plan, "heal.source", "the source, mapped", source_bytes(c));
    add_line(plan, "heal.file", "the quantized file, mapped", stored);
    add_line(plan, "heal.latents", "latents, with means and squares of gradients", latents);
    add_line(plan, "heal.best", "the best blocks", best);
}

static uint64_t pass_bytes(const apr_train *train, bool on_device)
{
    size_t n;
    uint64_t bytes = 0;
    const apr_train_line *const lines = apr_train_plan(train, &n);

    for (size_t i = 0; i < n; i++) bytes += lines[i].on_device == on_device ? lines[i].bytes : 0;
    return bytes;
}

/* Matrices of the output, as a pass keeps them: each at a multiple of 256 bytes, and the numbers of rows. */
static uint64_t stored_bytes(const apr_conversion *c)
{
    uint64_t bytes = 0;
    int64_t most_rows = 0;

    for (size_t i = 0; i < c->layout.n_tensors; i++) {
        const apr_tensor *const t = &c->layout.tensors[i];
        if (t->rank != 2) continue;
        bytes += (t->n_bytes + 255) / 256 * 256;
        if (t->dims[0] > most_rows) most_rows = t->dims[0];
    }
    return bytes + (uint64_t)most_rows * sizeof(int32_t);
}

/* The student's lines, and the teacher's as one. The student has the program of the source and the weights of the output. */
static apr_status add_passes(apr_heal_plan *plan, const apr_heal_needs *needs, apr_error *err)
{
    apr_train_options options = needs->student;
    apr_train *student;
    size_t n;

    options.keeps_weights = false;
    APR_TRY(apr_train_open(&student, needs->source, &options, err));
    const apr_train_line *const lines = apr_train_plan(student, &n);
    for (size_t i = 0; i < n; i++) {
        apr_train_line line = lines[i];
        if (needs->student.keeps_weights && strcmp(line.key, "train.stored") == 0) line.bytes = stored_bytes(needs->conversion);
        if (needs->student.device != NULL && strcmp(line.key, "train.floats") == 0) plan->gradient_bytes = GRADIENTS * line.bytes;
        add_line_of(plan, line);
    }
    apr_train_close(student);
    add_line(plan, "heal.teacher", "evaluating the source", pass_bytes(needs->teacher, false));
    if (needs->student.device == NULL) return APR_OK;
    add_line(plan, "heal.gradients", "gradients that wait for their step", plan->gradient_bytes);
    add_line_of(plan, needs->student.device->line);
    add_line_of(plan, (apr_train_line){"heal.teacher_device", "evaluating the source", pass_bytes(needs->teacher, true), true});
    return APR_OK;
}

/* On a GPU, if one window fits there. On the host in what `tensors` leave, except the source: the writing session counts it as well. */
static apr_status plan_writer(apr_heal_plan *plan, const apr_heal_needs *needs, uint64_t tensors, apr_error *err)
{
    const uint64_t has = apr_machine_bytes(), held = tensors - source_bytes(needs->conversion);
    apr_session_options options = needs->writer;

    if (needs->text == NULL) return APR_OK;
    options.budget_bytes = has > held ? has - held : 1;
    APR_TRY(apr_own_text_forecast(&plan->writer, needs->text, needs->source, &options, 0, err));
    plan->writes_on_device = options.cuda != NULL && plan->writer.fits;
    if (options.cuda == NULL || plan->writer.fits) return APR_OK;
    options.cuda = NULL;
    return apr_own_text_forecast(&plan->writer, needs->text, needs->source, &options, 0, err);
}

/* What the writing session takes in addition to what comes later: it is closed before passes and judges take their memory. */
static void add_writer(apr_heal_plan *plan, const apr_heal_needs *needs, uint64_t tensors)
{
    static const char what[] = "more, while the source writes text";
    const uint64_t host = plan->writer.host_bytes, host_later = plan->bytes - tensors;

    add_line(plan, "heal.writer", what, host > host_later ? host - host_later : 0);
    if (!plan->writes_on_device) return;
    const uint64_t device = plan->writer.device_bytes, device_later = plan->device_bytes - needs->student.device->line.bytes;
    add_line_of(plan, (apr_train_line){"heal.writer_device", what, device > device_later ? device - device_later : 0, true});
}

/* What judging sessions allocate besides their weights, which are in the files. */
static apr_status add_judges(apr_heal_plan *plan, const apr_heal_needs *needs, apr_error *err)
{
    const int64_t vocab_size = apr_train_program(needs->teacher)->vocab_size;
    uint64_t bytes = 0;
    apr_plan session;

    APR_TRY(apr_session_forecast(&session, needs->source, &needs->session, err));
    for (size_t i = 0; i < session.n_lines; i++) bytes += session.lines[i].id >= APR_LINE_CONTEXT ? session.lines[i].bytes : 0;
    apr_plan_close(&session);
    add_line(plan, "heal.judge", "two sessions to judge with", 2 * bytes);
    add_line(plan, "heal.logits", "logits of the source while judging", apr_compare_bytes(vocab_size, needs->session.n_ctx, 0));
    return APR_OK;
}

static apr_status refuse_memory(const apr_heal_plan *plan, apr_error *err)
{
    const uint64_t has = apr_machine_bytes(), mib = 1 << 20;
    char lines[640] = "";

    if (has == 0 || plan->bytes <= has) return APR_OK;
    for (size_t i = 0, n = 0; i < plan->n_lines && n < sizeof lines; i++)
        n += (size_t)snprintf(lines + n, sizeof lines - n, "%s%s %" PRIu64, i > 0 ? ", " : "", plan->lines[i].what,
                              plan->lines[i].bytes / mib);
    return apr_fail(err, APR_E_MEMORY,
                    "--heal needs %" PRIu64 " MiB: %s; this machine, or its container, has %" PRIu64 " MiB; leave out --heal",
                    plan->bytes / mib, lines, has / mib);
}

apr_status apr_heal_plan_make(apr_heal_plan *plan, const apr_heal_needs *needs, apr_error *err)
{
    *plan = (apr_heal_plan){0};
    add_tensors(plan, needs->conversion);
    const uint64_t tensors = plan->bytes;
    APR_TRY(plan_writer(plan, needs, tensors, err));
    APR_TRY(add_passes(plan, needs, err));
    if (needs->student.device == NULL) APR_TRY(add_judges(plan, needs, err));
    add_writer(plan, needs, tensors);
    APR_TRY(refuse_memory(plan, err));
    if (needs->student.device == NULL) return APR_OK;
    return apr_train_device_check(needs->student.device, plan->device_bytes - needs->student.device->line.bytes, "--heal",
                                  "use fewer --heal-tokens, a smaller --window, or --device host", err);
}
