/* config_facts.c - hyperparameters held against one line of text, field by field. */
#include "tests/support/config_facts.h"

#include "formats/files/map.h"
#include "formats/hf/safetensors.h"
#include "formats/shape/hf_config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct facts {
    const char *text, *where;
    size_t n_found;
} facts;

/* Behind "NAME=", or at the end of a flag's name; NULL: not said. */
static const char *find_fact(facts *f, const char *prefix, const char *name)
{
    const size_t n_prefix = strlen(prefix), n = strlen(name);

    for (const char *at = f->text; at != NULL && *at != '\0'; at = strchr(at, ' ')) {
        at += strspn(at, " ");
        if (strncmp(at, prefix, n_prefix) != 0 || strncmp(at + n_prefix, name, n) != 0) continue;
        const char end = at[n_prefix + n];
        if (end != '=' && end != ' ' && end != '\0') continue;
        f->n_found++;
        return at + n_prefix + n + (end == '=');
    }
    return NULL;
}

static void assert_number(facts *f, const char *prefix, const char *name, double value)
{
    const char *const text = find_fact(f, prefix, name);
    const double stated = text != NULL ? strtod(text, NULL) : 0;
    if (fabs(value - stated) > 1e-12 * fabs(stated)) fail_msg("%s: %s%s is %.17g, not %.17g", f->where, prefix, name, value, stated);
}

static void assert_letters(facts *f, const char *name, const uint8_t *kinds, int64_t n, const char *letters)
{
    const char *const text = find_fact(f, "", name);

    if ((text == NULL) != (kinds == NULL)) fail_msg("%s: %s %s", f->where, name, kinds != NULL ? "are not expected" : "are missing");
    for (int64_t i = 0; kinds != NULL && i < n; i++)
        if (letters[kinds[i]] != text[i]) fail_msg("%s: of %s, layer %lld is '%c'", f->where, name, (long long)i, letters[kinds[i]]);
}

static void assert_factors(facts *f, const char *name, const double *factors, int64_t n)
{
    const char *text = find_fact(f, "", name);

    for (int64_t i = 0; text != NULL && i < n; i++) {
        char *end;
        assert_true(strtod(text, &end) == factors[i]);
        text = end + 1;
    }
    if ((text == NULL) != (n == 0)) fail_msg("%s: %s", f->where, name);
}

static void assert_rope(facts *f, const char *prefix, const apr_rope_scaling *s)
{
    const char *const kind = find_fact(f, prefix, "rope"), *const name = s->kind != APR_ROPE_PLAIN ? apr_rope_names[s->kind] : "";

    if (strncmp(kind != NULL ? kind : "", name, strlen(name)) != 0 || (kind != NULL) != (s->kind != APR_ROPE_PLAIN))
        fail_msg("%s: the rotary scaling is \"%s\"", f->where, name);
    for (size_t i = 0; i < apr_n_rope_fields; i++) {
        double value;
        memcpy(&value, (const char *)s + apr_rope_fields[i].offset, sizeof value);
        assert_number(f, prefix, apr_rope_fields[i].name, value);
    }
    assert_number(f, prefix, "original_context", (double)s->original_context);
    assert_int_equal(find_fact(f, prefix, "no_truncate") != NULL, s->no_truncate);
}

void assert_facts(apr_hparams h, const char *text, const char *where)
{
    facts f = {text, where, 0};
    size_t n_words = 0;

    for (size_t i = 0; i < apr_n_hparam_fields; i++) {
        const apr_hparam_field *const field = &apr_hparam_fields[i];
        assert_number(&f, "", field->name, field->is_int ? (double)*apr_hparam_int(&h, field) : *apr_hparam_real(&h, field));
    }
    for (size_t i = 0; i < apr_n_hflag_fields; i++)
        if ((find_fact(&f, "", apr_hflag_fields[i].name) != NULL) != *apr_hflag(&h, &apr_hflag_fields[i]))
            fail_msg("%s: %s is %s", where, apr_hflag_fields[i].name, *apr_hflag(&h, &apr_hflag_fields[i]) ? "true" : "false");
    assert_rope(&f, "", &h.rope);
    assert_rope(&f, "local_", &h.rope_local);
    assert_factors(&f, "short_factor", h.rope.short_factor, h.rope.n_factors);
    assert_factors(&f, "long_factor", h.rope.long_factor, h.rope.n_factors);
    assert_letters(&f, "layers", h.layer_kinds, h.num_layers, apr_layer_letters);
    assert_letters(&f, "ffn", h.ffn_kinds, h.num_layers, apr_ffn_letters);
    assert_letters(&f, "no_rope", h.no_rope, h.num_layers, "01");
    assert_letters(&f, "shares_index", h.shares_index, h.num_layers, "01");
    for (const char *at = text; *at != '\0'; at += strcspn(at, " "), at += strspn(at, " ")) n_words++;
    if (n_words != f.n_found) fail_msg("%s: %zu of %zu expected facts have no field", where, n_words - f.n_found, n_words);
}

void read_fact_config(const char *text, const char *where, apr_hparams *h, apr_arena *arena)
{
    const apr_attachment config = {"config.json", (const uint8_t *)text, strlen(text)};
    apr_error err = {0};

    apr_status status = apr_hf_config_read(&config, h, arena, "config.json", &err);
    if (status == APR_OK) status = apr_hparams_complete(h, arena, "config.json", &err);
    if (status != APR_OK) fail_msg("%s: %s", where, err.text);
    if (h->refusal != NULL) fail_msg("%s: %s", where, h->refusal);
}

cJSON *fact_configs(void)
{
    apr_map map;
    apr_error err = {0};
    cJSON *all;

    if (apr_map_open(&map, "tests/data/configs.json", &err) != APR_OK) fail_msg("%s", err.text);
    if (apr_json_parse(&all, map.data, map.n_bytes, "configs.json", &err) != APR_OK) fail_msg("%s", err.text);
    apr_map_close(&map);
    return all;
}
