/* imatrix_table.c - turns sums by layer input into entries by ggml's tensors. */
#include "tools/engine/run/imatrix_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void apr_imatrix_select_inputs(const apr_layer_inputs *inputs, const apr_session *session, bool has_output, bool *wanted)
{
    const apr_program *const program = apr_session_program(session);

    for (size_t i = 0; i < inputs->n_inputs; i++) wanted[i] = false;
    for (size_t i = 0; i < inputs->n_readers; i++) {
        const apr_weight_slot *const slot = &program->weights[inputs->readers[i].slot];
        const bool is_head = program->values[program->ops[inputs->inputs[inputs->readers[i].input].op].out].is_logits;
        wanted[inputs->readers[i].input] |= is_head ? has_output : slot->rank == 2;
    }
}

/* --- ggml's tensors --- */

/* A sum that was added to an entry's matrix. It is added once, even if several tensors of the model are in that matrix. */
typedef struct addition {
    size_t entry, input;
    int64_t matrix, expert;
} addition;

typedef struct table {
    apr_imatrix *imatrix;
    const apr_importance_pass *pass;
    addition *done;
    size_t n_done;
} table;

static apr_imatrix_entry *entry_of(const table *t, const char *name, int64_t n_matrices, int64_t n_columns)
{
    for (size_t i = 0; i < t->imatrix->n_entries; i++)
        if (strcmp(t->imatrix->entries[i].name, name) == 0) return &t->imatrix->entries[i];
    return apr_imatrix_add(t->imatrix, name, n_matrices, n_columns);
}

static bool was_added(table *t, addition p)
{
    for (size_t i = t->n_done; i-- > 0;) {
        const addition *const q = &t->done[i];
        if (q->entry == p.entry && q->input == p.input && q->matrix == p.matrix && q->expert == p.expert) return true;
        if (q->entry != p.entry) break; /* those of an entry are consecutive, except for a tied tensor */
    }
    t->done[t->n_done++] = p;
    return false;
}

/* Adds the sums of one input's matrix to one of an entry's, columns in the entry's order. */
static void add_sums(const table *t, apr_imatrix_entry *e, addition p, const int64_t *order)
{
    const apr_layer_input_sums *const from = &t->pass->of[p.input];
    const int64_t width = e->n_columns;

    for (int64_t j = 0; j < width; j++) e->sums[p.matrix * width + j] += from->sums[p.expert * width + order[j]];
    e->counts[p.matrix] += from->counts[p.expert];
}

/* Adds the sums of tensor `index` of a slot. *is_named: ggml has such a tensor. */
static apr_status add_tensor(table *t, const apr_session *session, const apr_layer_input_reader *reader, int64_t index, bool *is_named,
                             apr_error *err)
{
    const apr_weight_slot *const slot = &apr_session_program(session)->weights[reader->slot];
    const int64_t width = t->pass->inputs->inputs[reader->input].width;
    char name[256];
    apr_ggml_location place;

    APR_TRY(apr_ggml_location_of(&place, apr_trace_model(session), apr_slot_name(slot, index, name, sizeof name), &t->imatrix->arena, err));
    *is_named = place.name != NULL;
    if (place.name == NULL) return APR_OK;
    apr_imatrix_entry *const e = entry_of(t, place.name, place.matrix >= 0 ? slot->count : 1, width);
    int64_t *const order = malloc((size_t)width * sizeof *order);
    apr_status status = e != NULL && order != NULL ? apr_ggml_columns(&place, width, order, err) : apr_no_memory(err, "an imatrix");
    if (status == APR_OK) {
        const addition p = {.entry = (size_t)(e - t->imatrix->entries),
                            .input = reader->input,
                            .matrix = place.matrix >= 0 ? place.matrix : 0,
                            .expert = t->pass->of[reader->input].n_matrices > 1 ? index : 0};
        if (e->n_columns != width || p.matrix >= e->n_matrices)
            status = apr_fail(err, APR_E_UNSUPPORTED, "'%s' would hold matrices of different sizes", place.name);
        else if (!was_added(t, p)) add_sums(t, e, p, order);
    }
    free(order);
    return status;
}

static size_t most_tensors(const apr_layer_inputs *inputs, const apr_program *program)
{
    size_t n = 0;
    for (size_t i = 0; i < inputs->n_readers; i++) n += (size_t)program->weights[inputs->readers[i].slot].count;
    return n;
}

apr_status apr_imatrix_of_pass(apr_imatrix *imatrix, const char *path, const apr_importance_pass *pass, const apr_session *session,
                               const bool *wanted, size_t *n_nameless, apr_error *err)
{
    const apr_program *const program = apr_session_program(session);
    const apr_layer_inputs *const inputs = pass->inputs;
    const size_t n = most_tensors(inputs, program);
    table t = {.imatrix = imatrix, .pass = pass, .done = calloc(n + 1, sizeof *t.done)};
    apr_status status = apr_imatrix_start(imatrix, path, n, err);
    bool is_named;

    *n_nameless = 0;
    if (status == APR_OK && t.done == NULL) status = apr_no_memory(err, "an imatrix");
    for (size_t i = 0; i < inputs->n_readers && status == APR_OK; i++) {
        if (!wanted[inputs->readers[i].input]) continue;
        for (int64_t k = 0; k < program->weights[inputs->readers[i].slot].count && status == APR_OK; k++) {
            status = add_tensor(&t, session, &inputs->readers[i], k, &is_named, err);
            *n_nameless += status == APR_OK && !is_named;
        }
    }
    free(t.done);
    return status == APR_OK ? apr_imatrix_sort(imatrix, err) : status;
}

/* --- unfinished passes --- */

static char *input_name(char *text, size_t n_bytes, size_t input)
{
    snprintf(text, n_bytes, "feed.%08zu", input);
    return text;
}

apr_status apr_imatrix_save_pass(apr_imatrix *imatrix, const char *path, const apr_importance_pass *pass, apr_error *err)
{
    char name[32];

    APR_TRY(apr_imatrix_start(imatrix, path, pass->inputs->n_inputs, err));
    for (size_t i = 0; i < pass->inputs->n_inputs; i++) {
        const apr_layer_input_sums *const from = &pass->of[i];
        const int64_t width = pass->inputs->inputs[i].width;
        apr_imatrix_entry *const e = apr_imatrix_add(imatrix, input_name(name, sizeof name, i), from->n_matrices, width);
        if (e == NULL) return apr_no_memory(err, "an imatrix");
        memcpy(e->sums, from->sums, (size_t)(from->n_matrices * width) * sizeof *e->sums);
        memcpy(e->counts, from->counts, (size_t)from->n_matrices * sizeof *e->counts);
    }
    return APR_OK;
}

apr_status apr_imatrix_load_pass(apr_importance_pass *pass, const apr_imatrix *imatrix, apr_error *err)
{
    char name[32];

    for (size_t i = 0; i < pass->inputs->n_inputs; i++) {
        const apr_imatrix_entry *const e = apr_imatrix_find(imatrix, input_name(name, sizeof name, i));
        apr_layer_input_sums *const to = &pass->of[i];
        const int64_t width = pass->inputs->inputs[i].width;
        if (e == NULL || e->n_columns != width || e->n_matrices != to->n_matrices)
            return apr_fail(err, APR_E_DAMAGED, "%s: '%s' is missing or belongs to another model: remove the file to start again",
                            imatrix->path, name);
        memcpy(to->sums, e->sums, (size_t)(to->n_matrices * width) * sizeof *e->sums);
        memcpy(to->counts, e->counts, (size_t)to->n_matrices * sizeof *e->counts);
    }
    return APR_OK;
}
