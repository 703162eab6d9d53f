/* make_wrapper.c - usage: make_wrapper DIR STYLE OUT. Makes OUT, the checkpoint DIR as hubs have it: its tensors under the names of a
 * larger model, with a vision tower that has biases, an audio tower, a projector, and one layer of multi-token prediction after the last.
 * The layer is a copy of the last one, the rest is zeros: the logits of text stay those of DIR. DIR may be in a quantized layout.
 *
 * STYLE says what stands for "model.X":
 *     model       model.X                  lm_model  language_model.model.X   lm        language_model.X
 *     model_lm    model.language_model.X   thinker   thinker.model.X          llm       llm.model.X
 *     text_model  model.text_model.X       language  language.model.X         base      X, as a model saved without its head */
#include "formats/base/bytes.h"
#include "formats/base/json.h"
#include "formats/files/map.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct style {
    const char *name, *root, *head; /* what stands for "model." and before "lm_head." */
} style;

static const style styles[] = {{"model", "model.", ""},
                               {"lm_model", "language_model.model.", "language_model."},
                               {"lm", "language_model.", ""},
                               {"model_lm", "model.language_model.", ""},
                               {"text_model", "model.text_model.", ""},
                               {"thinker", "thinker.model.", "thinker."},
                               {"llm", "llm.model.", "llm."},
                               {"language", "language.model.", "language."},
                               {"base", "", ""}};

static const char *const towers[] = {
    "vision_tower.vision_model.encoder.layers.0.self_attn.q_proj.weight",
    "vision_tower.vision_model.encoder.layers.0.self_attn.q_proj.bias",
    "vision_model.model.layers.0.self_attn.q_proj.bias",
    "model.visual.blocks.0.attn.qkv.bias",
    "model.audio_tower.layers.0.self_attn.k_proj.bias",
    "model.embed_vision.embedding_projection.weight",
    "multi_modal_projector.linear_1.weight",
    "mm_projector.proj.0.bias",
};

enum { MOST_ADDED = 4096 };
#define NOWHERE UINT64_MAX

typedef struct wrapper {
    const style *style;
    const cJSON *header; /* of DIR's model.safetensors */
    int64_t n_layers;
    cJSON *out; /* the new header */
    uint64_t n_data, n_added;
    struct {
        uint64_t at, n; /* bytes of DIR's data; at NOWHERE: zeros */
    } added[MOST_ADDED];
    size_t n_tensors_added;
} wrapper;

static void *must(void *pointer)
{
    if (pointer == NULL) exit(APR_E_MEMORY);
    return pointer;
}

static bool begins_with(const char *text, const char *head) { return strncmp(text, head, strlen(head)) == 0; }

static void count_layers(wrapper *w)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, w->header)
    {
        const char *const layers = strstr(item->string, ".layers.");
        const int64_t layer = layers != NULL ? strtoll(layers + strlen(".layers."), NULL, 10) : -1;
        if (layer >= w->n_layers) w->n_layers = layer + 1;
    }
}

/* A tensor's name in the larger model. */
static void rename_text(const wrapper *w, const char *name, char text[300])
{
    const bool is_base = strcmp(w->style->name, "base") == 0;

    if (begins_with(name, "model.")) snprintf(text, 300, "%s%s", w->style->root, name + strlen("model."));
    else if (begins_with(name, "backbone.") && is_base) snprintf(text, 300, "%s", name + strlen("backbone."));
    else if (begins_with(name, "backbone."))
        snprintf(text, 300, "%s%s", strcmp(w->style->name, "model") == 0 ? "" : "language_model.", name);
    else snprintf(text, 300, "%s%s", w->style->head, name);
}

/* A copy of `like` after all other data; NULL: eight zeros. */
static void add_tensor(wrapper *w, const char *name, const cJSON *like)
{
    static const int eight[] = {8};
    const uint64_t begin = w->n_data + w->n_added;
    const cJSON *const offsets = cJSON_GetObjectItemCaseSensitive(like, "data_offsets");
    const uint64_t at = like == NULL ? NOWHERE : (uint64_t)cJSON_GetArrayItem(offsets, 0)->valuedouble;
    const uint64_t n = like == NULL ? 16 : (uint64_t)cJSON_GetArrayItem(offsets, 1)->valuedouble - at;
    const double range[] = {(double)begin, (double)(begin + n)};
    cJSON *const tensor = must(cJSON_CreateObject());

    if (like == NULL) {
        cJSON_AddStringToObject(tensor, "dtype", "BF16");
        cJSON_AddItemToObject(tensor, "shape", must(cJSON_CreateIntArray(eight, 1)));
    } else {
        cJSON_AddItemToObject(tensor, "dtype", must(cJSON_Duplicate(cJSON_GetObjectItemCaseSensitive(like, "dtype"), true)));
        cJSON_AddItemToObject(tensor, "shape", must(cJSON_Duplicate(cJSON_GetObjectItemCaseSensitive(like, "shape"), true)));
    }
    cJSON_AddItemToObject(tensor, "data_offsets", must(cJSON_CreateDoubleArray(range, 2)));
    cJSON_AddItemToObject(w->out, name, tensor);
    if (w->n_tensors_added == MOST_ADDED) exit(APR_E_MEMORY);
    w->added[w->n_tensors_added].at = at;
    w->added[w->n_tensors_added++].n = n;
    w->n_added += n;
}

/* A copy of the last layer, and what every published layer that predicts ahead has besides. */
static void add_mtp_layer(wrapper *w)
{
    static const char *const own[] = {"enorm.weight", "hnorm.weight", "eh_proj.weight", "shared_head.norm.weight"};
    char last[64], name[300], mtp[200];
    const cJSON *item;
    const char *root = NULL;

    cJSON_ArrayForEach(item, w->header)
    {
        for (int i = 0; i < 2; i++) {
            snprintf(last, sizeof last, "%s.layers.%lld.", i == 0 ? "model" : "backbone", (long long)w->n_layers - 1);
            if (!begins_with(item->string, last)) continue;
            root = i == 0 ? "model" : "backbone";
            snprintf(mtp, sizeof mtp, "%s.layers.%lld.%s", root, (long long)w->n_layers, item->string + strlen(last));
            rename_text(w, mtp, name);
            add_tensor(w, name, item);
        }
    }
    for (size_t i = 0; root != NULL && i < sizeof own / sizeof *own; i++) {
        snprintf(mtp, sizeof mtp, "%s.layers.%lld.%s", root, (long long)w->n_layers, own[i]);
        rename_text(w, mtp, name);
        add_tensor(w, name, NULL);
    }
}

static void make_header(wrapper *w)
{
    const cJSON *item;
    char name[300];

    cJSON_ArrayForEach(item, w->header)
    {
        if (strcmp(item->string, "__metadata__") == 0) continue;
        rename_text(w, item->string, name);
        cJSON_AddItemToObject(w->out, name, must(cJSON_Duplicate(item, true)));
    }
    for (size_t i = 0; i < sizeof towers / sizeof *towers; i++) add_tensor(w, towers[i], NULL);
    add_mtp_layer(w);
}

static void write_weights(const wrapper *w, const uint8_t *data, const char *path)
{
    char *const text = must(cJSON_PrintUnformatted(w->out));
    const size_t n = strlen(text), n_padded = (n + 7) / 8 * 8;
    FILE *const out = fopen(path, "wb");

    if (out == NULL) exit(APR_E_IO);
    for (int i = 0; i < 8; i++) fputc((int)((uint64_t)n_padded >> 8 * i & 255), out);
    fprintf(out, "%s%*s", text, (int)(n_padded - n), "");
    if (fwrite(data, 1, w->n_data, out) != w->n_data) exit(APR_E_IO);
    for (size_t i = 0; i < w->n_tensors_added; i++)
        for (uint64_t k = 0; k < w->added[i].n; k++) fputc(w->added[i].at == NOWHERE ? 0 : data[w->added[i].at + k], out);
    if (ferror(out) != 0 || fclose(out) != 0) exit(APR_E_IO);
    free(text);
}

/* The text part's config.json inside that of the larger model; of a model without its head it stays as it is. */
static void write_config(const wrapper *w, cJSON *config, const char *path)
{
    cJSON *const outer = must(cJSON_CreateObject());
    const bool is_base = strcmp(w->style->name, "base") == 0;

    cJSON_AddStringToObject(outer, "model_type", "a_larger_model");
    cJSON_AddItemToObject(outer, "vision_config", must(cJSON_Parse("{\"hidden_size\":8,\"num_hidden_layers\":1}")));
    cJSON_AddItemReferenceToObject(outer, "text_config", config);
    char *const text = must(cJSON_Print(is_base ? config : outer));
    FILE *const out = fopen(path, "wb");
    if (out == NULL || fputs(text, out) < 0 || fclose(out) != 0) exit(APR_E_IO);
    free(text);
    cJSON_Delete(outer);
}

static cJSON *parse(const uint8_t *data, size_t n)
{
    cJSON *json = NULL;
    apr_error err = {0};
    if (apr_json_parse(&json, data, n, "make_wrapper", &err) != APR_OK) exit(APR_E_DAMAGED);
    return json;
}

int main(int argc, char **argv)
{
    char path[512];
    apr_map weights, config;
    static wrapper w;

    for (size_t i = 0; argc == 4 && i < sizeof styles / sizeof *styles; i++)
        if (strcmp(styles[i].name, argv[2]) == 0) w.style = &styles[i];
    if (w.style == NULL) {
        fprintf(stderr, "usage: make_wrapper DIR STYLE OUT; STYLE is one of:");
        for (size_t i = 0; i < sizeof styles / sizeof *styles; i++) fprintf(stderr, " %s", styles[i].name);
        fprintf(stderr, "\n");
        return APR_E_USAGE;
    }
    snprintf(path, sizeof path, "%s/model.safetensors", argv[1]);
    if (apr_map_open(&weights, path, NULL) != APR_OK) return APR_E_IO;
    snprintf(path, sizeof path, "%s/config.json", argv[1]);
    if (apr_map_open(&config, path, NULL) != APR_OK) return APR_E_IO;
    const uint64_t n_header = apr_load_le64(weights.data);
    cJSON *const header = parse(weights.data + 8, n_header), *const text = parse(config.data, config.n_bytes);
    w.header = header;
    w.out = must(cJSON_CreateObject());
    w.n_data = weights.n_bytes - 8 - n_header;
    count_layers(&w);
    make_header(&w);
    if (mkdir(argv[3], 0777) != 0) return APR_E_IO;
    snprintf(path, sizeof path, "%s/model.safetensors", argv[3]);
    write_weights(&w, weights.data + 8 + n_header, path);
    snprintf(path, sizeof path, "%s/config.json", argv[3]);
    write_config(&w, text, path);
    cJSON_Delete(w.out);
    cJSON_Delete(text);
    cJSON_Delete(header);
    apr_map_close(&config);
    apr_map_close(&weights);
    return APR_OK;
}
