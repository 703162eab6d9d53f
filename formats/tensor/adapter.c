/* adapter.c - counts and the one-line description of an adapter; the readers are elsewhere. */
#include "formats/tensor/adapter.h"
#include "formats/tensor/composed.h"

#include <stdio.h>
#include <string.h>

void apr_adapter_close(apr_adapter *adapter)
{
    apr_model_close(&adapter->files);
    *adapter = (apr_adapter){0};
}

static void widen(double value, bool is_first, double *least, double *most)
{
    if (is_first || value < *least) *least = value;
    if (is_first || value > *most) *most = value;
}

apr_adapter_range apr_adapter_ranges(const apr_adapter *adapter)
{
    apr_adapter_range r = {0};

    for (size_t i = 0; i < adapter->n_changes; i++) {
        const apr_adapter_change *const c = &adapter->changes[i];
        r.n_whole += c->whole != NULL;
        r.n_magnitudes += c->magnitudes != NULL;
        if (c->a == NULL) continue;
        const bool is_first = r.n_low_rank++ == 0;
        const int64_t rank = c->a->dims[0];
        if (is_first || rank < r.least_rank) r.least_rank = rank;
        if (is_first || rank > r.most_rank) r.most_rank = rank;
        widen(c->alpha, is_first, &r.least_alpha, &r.most_alpha);
        widen(c->scale, is_first, &r.least_scale, &r.most_scale);
    }
    return r;
}

/* ---- names ---- */

/* The module in a tensor's name: "q_proj" of "model.layers.0.self_attn.q_proj.weight". Returns its start; *n is its length. */
static const char *module_of(const char *name, size_t *n)
{
    const char *const dot = strrchr(name, '.'), *const end = dot != NULL ? dot : name + strlen(name);
    const char *begin = end;

    while (begin > name && begin[-1] != '.') begin--;
    *n = (size_t)(end - begin);
    return begin;
}

/* Does a change before `at` name the same module? */
static bool is_named(const apr_adapter *adapter, size_t at, bool wholes)
{
    size_t n, n_other;
    const char *const module = module_of(adapter->changes[at].name, &n);

    for (size_t i = 0; i < at; i++) {
        const char *const other = module_of(adapter->changes[i].name, &n_other);
        if ((adapter->changes[i].whole != NULL) == wholes && n == n_other && memcmp(module, other, n) == 0) return true;
    }
    return false;
}

const char *apr_adapter_targets(const apr_adapter *adapter, apr_arena *arena)
{
    enum { MOST = 24 };
    const char *text = "";
    size_t n = 0;

    for (size_t i = 0; i < adapter->n_changes && text != NULL; i++) {
        size_t n_module;
        const char *const module = module_of(adapter->changes[i].name, &n_module);
        if (adapter->changes[i].a == NULL || is_named(adapter, i, false)) continue;
        if (n == MOST) return apr_arena_print(arena, "%s, ...", text);
        text = apr_arena_print(arena, "%s%s%.*s", text, n++ > 0 ? ", " : "", (int)n_module, module);
    }
    return text;
}

/* The number in the first ".N." of a name, or -1. */
static int64_t layer_of(const char *name)
{
    for (const char *dot = strchr(name, '.'); dot != NULL; dot = strchr(dot + 1, '.')) {
        const size_t n = strspn(dot + 1, "0123456789");
        int64_t layer = 0;
        if (n == 0 || n > 9 || dot[1 + n] != '.') continue;
        for (size_t i = 1; i <= n; i++) layer = 10 * layer + (dot[i] - '0');
        return layer;
    }
    return -1;
}

/* The number of layers with changed matrices. Names are sorted as text, so the changes of a layer need not be adjacent. */
static size_t count_layers(const apr_adapter *adapter)
{
    size_t n = 0;
    for (size_t i = 0; i < adapter->n_changes; i++) {
        const int64_t layer = layer_of(adapter->changes[i].name);
        bool is_new = layer >= 0 && adapter->changes[i].a != NULL;
        for (size_t j = 0; j < i && is_new; j++) is_new = adapter->changes[j].a == NULL || layer_of(adapter->changes[j].name) != layer;
        n += is_new;
    }
    return n;
}

/* ---- the description ---- */

static const char *range_text(const char *what, double least, double most, apr_arena *arena)
{
    return least == most ? apr_arena_print(arena, "%s %.6g", what, least) : apr_arena_print(arena, "%s %.6g to %.6g", what, least, most);
}

static const char *low_rank_text(const apr_adapter *adapter, const apr_adapter_range *r, double factor, apr_arena *arena)
{
    const char *const rank = range_text("rank", (double)r->least_rank, (double)r->most_rank, arena),
                      *const alpha = range_text("alpha", r->least_alpha, r->most_alpha, arena),
                      *const scale = range_text("scale", r->least_scale, r->most_scale, arena),
                      *const targets = apr_adapter_targets(adapter, arena);
    const size_t n_layers = count_layers(adapter);
    char times[40] = "", layers[40] = "";

    if (rank == NULL || alpha == NULL || scale == NULL || targets == NULL) return NULL;
    if (factor != 1.0) snprintf(times, sizeof times, " times %.6g", factor);
    if (n_layers > 0) snprintf(layers, sizeof layers, " in %zu layer%s", n_layers, n_layers == 1 ? "" : "s");
    return apr_arena_print(arena, "%s, %s, %s%s, %zu target%s (%s%s)%s", rank, alpha, scale, times, r->n_low_rank,
                           r->n_low_rank == 1 ? "" : "s", targets, layers, r->n_magnitudes > 0 ? ", magnitudes (DoRA)" : "");
}

static const char *whole_text(const apr_adapter *adapter, const apr_adapter_range *r, apr_arena *arena)
{
    const char *first = "";
    for (size_t i = adapter->n_changes; i-- > 0;)
        if (adapter->changes[i].whole != NULL) first = adapter->changes[i].name;
    return apr_arena_print(arena, "%zu tensor%s replaced (%s%s)", r->n_whole, r->n_whole == 1 ? "" : "s", first,
                           r->n_whole == 1 ? "" : ", ...");
}

const char *apr_adapter_text(const apr_adapter *adapter, double factor, apr_arena *arena)
{
    const apr_adapter_range r = apr_adapter_ranges(adapter);
    const char *const low_rank = r.n_low_rank > 0 ? low_rank_text(adapter, &r, factor, arena) : "", *const whole =
                                                                                                        r.n_whole > 0
                                                                                                            ? whole_text(adapter, &r, arena)
                                                                                                            : "";

    if (low_rank == NULL || whole == NULL) return NULL;
    return apr_arena_print(arena, "%s%s%s", low_rank, *low_rank != '\0' && *whole != '\0' ? ", " : "", whole);
}

apr_status apr_adapter_transpose(apr_adapter *adapter, const apr_tensor **matrix, apr_error *err)
{
    const apr_chain chain = apr_chain_of((apr_step){.kind = APR_STEP_TRANSPOSE});
    apr_tensor *const transposed = apr_arena_alloc(&adapter->files.arena, sizeof *transposed);

    if (transposed == NULL) return apr_no_memory(err, "a matrix of an adapter");
    *transposed = **matrix;
    APR_TRY(apr_tensor_append_steps(transposed, &chain, &adapter->files.arena, adapter->path, err));
    *matrix = transposed;
    return APR_OK;
}
