/* lora_option.c - prints what adapters are. */
#include "tools/verbs/convert/lora_option.h"

#include "tools/report/text.h"

#include <string.h>

void apr_lora_set_print(const apr_lora_set *set, FILE *out)
{
    char path[1024], text[2048];
    for (size_t i = 0; i < set->n; i++)
        fprintf(out, "  LoRA %s: %s\n", apr_clean_text(path, sizeof path, set->adapters[i].path, strlen(set->adapters[i].path)),
                apr_clean_text(text, sizeof text, set->texts[i], strlen(set->texts[i])));
}

static void range_json(apr_json_text *json, const char *key, double least, double most)
{
    char other[40];

    apr_json_real(json, key, least);
    if (least == most) return;
    snprintf(other, sizeof other, "%s_most", key);
    apr_json_real(json, other, most);
}

void apr_adapter_json(apr_json_text *json, const apr_adapter *adapter, double factor)
{
    const apr_adapter_range r = apr_adapter_ranges(adapter);
    apr_arena arena = {0};
    const char *const targets = apr_adapter_targets(adapter, &arena);

    apr_json_string(json, "path", adapter->path, strlen(adapter->path));
    if (adapter->base != NULL) apr_json_string(json, "base_model", adapter->base, strlen(adapter->base));
    if (r.n_low_rank > 0) {
        apr_json_int(json, "rank", r.least_rank);
        if (r.most_rank > r.least_rank) apr_json_int(json, "rank_most", r.most_rank);
        range_json(json, "alpha", r.least_alpha, r.most_alpha);
        range_json(json, "scale", r.least_scale, r.most_scale);
    }
    apr_json_real(json, "factor", factor);
    apr_json_bool(json, "dora", r.n_magnitudes > 0);
    apr_json_uint(json, "n_targets", r.n_low_rank);
    apr_json_uint(json, "n_replaced", r.n_whole);
    if (targets != NULL) apr_json_string(json, "targets", targets, strlen(targets));
    apr_arena_close(&arena);
}

void apr_lora_set_json(apr_json_text *json, const apr_lora_set *set)
{
    if (set->n == 0) return;
    apr_json_open(json, "adapters", '[');
    for (size_t i = 0; i < set->n; i++) {
        apr_json_open(json, NULL, '{');
        apr_adapter_json(json, set->uses[i].adapter, set->uses[i].factor);
        apr_json_close(json, '}');
    }
    apr_json_close(json, ']');
}
