/* mmproj.c - tables of vision towers: model types, tensor names, keys; and the plan that they make. */
#include "convert/mmproj.h"

#include "formats/base/json.h"
#include "formats/base/text.h"
#include "formats/shape/text_part.h"
#include "formats/tensor/composed.h"
#include "formats/tensor/text_config.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- tables ---- */

/* What happens to a tensor. */
typedef enum {
    AS_IS,
    SPLIT_TIME, /* [out, in, 2, h, w] -> two of [out, in, h, w]: a convolution for each of two frames */
    SPLIT_QKV,  /* three of equal height */
    ROTATED,    /* rotary halves -> pairs, of all heads */
    PLUS_ONE,   /* a norm whose gain is stored less one */
    LEFT_OUT
} change;

/* The type of a matrix. Vectors, and tensors that are not called "weight", are f32. */
typedef enum {
    WANTED,     /* the type that was asked for */
    F16_OR_F32, /* f16 if that was asked for, else f32: llama.cpp convolves in no other type */
    ALWAYS_F16, /* llama.cpp multiplies by it in f16 */
    ALWAYS_F32
} type_rule;

/* '#' is a number that both names have; '@' is the layer that config.json's deepstack_visual_indexes has at that number. What follows the
 * name (".weight", ".bias") is kept. */
typedef struct name_rule {
    const char *from, *to;
    change change;
    type_rule type;
} name_rule;

/* Qwen2-VL, Qwen2.5-VL, Qwen3-VL. The first rule that matches counts. */
static const name_rule qwen2_names[] = {{"visual.blocks.#.attn.qkv", "v.blk.#.attn_%c", SPLIT_QKV, WANTED},
                                        {"visual.merger.ln_q", "v.post_ln", AS_IS, WANTED},
                                        {"visual.merger.mlp.#", "mm.#", AS_IS, WANTED},
                                        {"visual.blocks.#.mlp.fc1", "v.blk.#.ffn_up", AS_IS, WANTED},
                                        {"visual.blocks.#.mlp.fc2", "v.blk.#.ffn_down", AS_IS, WANTED},
                                        {"visual.blocks.#.mlp.gate_proj", "v.blk.#.ffn_gate", AS_IS, WANTED},
                                        {"visual.blocks.#.mlp.up_proj", "v.blk.#.ffn_up", AS_IS, WANTED},
                                        {"visual.blocks.#.mlp.down_proj", "v.blk.#.ffn_down", AS_IS, WANTED},
                                        {"visual.blocks.#.attn.proj", "v.blk.#.attn_out", AS_IS, WANTED},
                                        {"visual.blocks.#.norm1", "v.blk.#.ln1", AS_IS, WANTED},
                                        {"visual.blocks.#.norm2", "v.blk.#.ln2", AS_IS, WANTED},
                                        {"visual.patch_embed.proj", "v.patch_embd", SPLIT_TIME, F16_OR_F32},
                                        {0}};

static const name_rule qwen3_names[] = {{"visual.blocks.#.attn.qkv", "v.blk.#.attn_qkv", AS_IS, WANTED},
                                        {"visual.merger.norm", "v.post_ln", AS_IS, WANTED},
                                        {"visual.merger.linear_fc1", "mm.0", AS_IS, WANTED},
                                        {"visual.merger.linear_fc2", "mm.2", AS_IS, WANTED},
                                        {"visual.deepstack_merger_list.@.norm", "v.deepstack.@.norm", AS_IS, WANTED},
                                        {"visual.deepstack_merger_list.@.linear_fc1", "v.deepstack.@.fc1", AS_IS, WANTED},
                                        {"visual.deepstack_merger_list.@.linear_fc2", "v.deepstack.@.fc2", AS_IS, WANTED},
                                        {"visual.blocks.#.mlp.linear_fc1", "v.blk.#.ffn_up", AS_IS, WANTED},
                                        {"visual.blocks.#.mlp.linear_fc2", "v.blk.#.ffn_down", AS_IS, WANTED},
                                        {"visual.blocks.#.attn.proj", "v.blk.#.attn_out", AS_IS, WANTED},
                                        {"visual.blocks.#.norm1", "v.blk.#.ln1", AS_IS, WANTED},
                                        {"visual.blocks.#.norm2", "v.blk.#.ln2", AS_IS, WANTED},
                                        {"visual.pos_embed", "v.position_embd", AS_IS, ALWAYS_F32},
                                        {"visual.patch_embed.proj", "v.patch_embd", SPLIT_TIME, F16_OR_F32},
                                        {0}};

static const name_rule gemma3_names[] = {{"multi_modal_projector.mm_input_projection", "mm.input_projection", AS_IS, ALWAYS_F16},
                                         {"multi_modal_projector.mm_soft_emb_norm", "mm.soft_emb_norm", PLUS_ONE, WANTED},
                                         {"vision_tower.embeddings.patch_embedding", "v.patch_embd", AS_IS, ALWAYS_F32},
                                         {"vision_tower.embeddings.position_embedding", "v.position_embd", AS_IS, ALWAYS_F32},
                                         {"vision_tower.encoder.layers.#.self_attn.q_proj", "v.blk.#.attn_q", AS_IS, WANTED},
                                         {"vision_tower.encoder.layers.#.self_attn.k_proj", "v.blk.#.attn_k", AS_IS, WANTED},
                                         {"vision_tower.encoder.layers.#.self_attn.v_proj", "v.blk.#.attn_v", AS_IS, WANTED},
                                         {"vision_tower.encoder.layers.#.self_attn.out_proj", "v.blk.#.attn_out", AS_IS, WANTED},
                                         {"vision_tower.encoder.layers.#.layer_norm1", "v.blk.#.ln1", AS_IS, WANTED},
                                         {"vision_tower.encoder.layers.#.layer_norm2", "v.blk.#.ln2", AS_IS, WANTED},
                                         {"vision_tower.encoder.layers.#.mlp.fc1", "v.blk.#.ffn_up", AS_IS, WANTED},
                                         {"vision_tower.encoder.layers.#.mlp.fc2", "v.blk.#.ffn_down", AS_IS, WANTED},
                                         {"vision_tower.post_layernorm", "v.post_ln", AS_IS, WANTED},
                                         {"vision_tower.head", "", LEFT_OUT, WANTED}, /* SigLIP's pooling, which Gemma does not use */
                                         {0}};

static const name_rule pixtral_names[] = {{"multi_modal_projector.linear_#", "mm.#", AS_IS, WANTED},
                                          {"multi_modal_projector.norm", "mm.input_norm", AS_IS, WANTED},
                                          {"multi_modal_projector.patch_merger.merging_layer", "mm.patch_merger", AS_IS, F16_OR_F32},
                                          {"vision_tower.ln_pre", "v.pre_ln", AS_IS, WANTED},
                                          {"vision_tower.patch_conv", "v.patch_embd", AS_IS, F16_OR_F32},
                                          {"vision_tower.transformer.layers.#.attention.q_proj", "v.blk.#.attn_q", ROTATED, WANTED},
                                          {"vision_tower.transformer.layers.#.attention.k_proj", "v.blk.#.attn_k", ROTATED, WANTED},
                                          {"vision_tower.transformer.layers.#.attention.v_proj", "v.blk.#.attn_v", AS_IS, WANTED},
                                          {"vision_tower.transformer.layers.#.attention.o_proj", "v.blk.#.attn_out", AS_IS, WANTED},
                                          {"vision_tower.transformer.layers.#.attention_norm", "v.blk.#.ln1", AS_IS, WANTED},
                                          {"vision_tower.transformer.layers.#.ffn_norm", "v.blk.#.ln2", AS_IS, WANTED},
                                          {"vision_tower.transformer.layers.#.feed_forward.gate_proj", "v.blk.#.ffn_gate", AS_IS, WANTED},
                                          {"vision_tower.transformer.layers.#.feed_forward.up_proj", "v.blk.#.ffn_up", AS_IS, WANTED},
                                          {"vision_tower.transformer.layers.#.feed_forward.down_proj", "v.blk.#.ffn_down", AS_IS, WANTED},
                                          {0}};

enum { MAX_LAYERS = 4096 };

typedef struct tower tower;

typedef struct planner {
    apr_conversion *c;
    const apr_model *source;
    const tower *tower;
    cJSON *config, *preprocessor, *processor; /* the latter two may be NULL */
    const cJSON *vision, *text, *images;      /* parts of them */
    int64_t hidden, n_layers, n_heads;        /* of the tower */
    int64_t n_in_layer[MAX_LAYERS];           /* tensors of each layer */
    apr_dtype type;
    apr_kv_list kv;
    apr_error *err;
} planner;

/* Keys of vision_config. */
typedef struct size_keys {
    const char *hidden, *mlp, *layers, *heads;
} size_keys;

static const size_keys qwen2_sizes = {"embed_dim", "hidden_size", "depth", "num_heads"},
                       qwen_sizes = {"hidden_size", "intermediate_size", "depth", "num_heads"},
                       other_sizes = {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"};

struct tower {
    const char *model_type, *vision_type; /* vision_type NULL: any */
    const char *projector;
    const name_rule *names;
    const size_keys *sizes;
    apr_status (*find_image_size)(planner *p, int64_t *size);
    apr_status (*add_keys)(planner *p);
};

/* ---- config.json ---- */

static apr_status lacks(const planner *p, const char *file, const char *key)
{
    return apr_fail(p->err, APR_E_DAMAGED, "%s: %s has no usable '%s', which the file of the vision tower states", p->source->path, file,
                    key);
}

static apr_status need_int(const planner *p, const cJSON *part, const char *key, int64_t *value)
{
    if (apr_json_get_int(part, key, value) && *value > 0 && *value <= INT32_MAX) return APR_OK;
    return lacks(p, part == p->vision ? "vision_config of config.json" : "config.json", key);
}

/* A number that may be absent; *value then stays. */
static apr_status may_int(const planner *p, const cJSON *part, const char *key, int64_t *value)
{
    return apr_json_get(part, key) != NULL ? need_int(p, part, key, value) : APR_OK;
}

static double real_or(const cJSON *part, const char *key, double otherwise)
{
    double value;
    return apr_json_get_real(part, key, &value) ? value : otherwise;
}

static apr_status stated_size(planner *p, int64_t *size) { return need_int(p, p->vision, "image_size", size); }

/* Qwen2-VL scales images itself: llama.cpp takes this size where none is stated. */
static apr_status size_or_560(planner *p, int64_t *size)
{
    *size = 560;
    return may_int(p, p->vision, "image_size", size);
}

/* Qwen3-VL has learned positions for a square of patches. */
static apr_status size_of_positions(planner *p, int64_t *size)
{
    int64_t patch, n_positions = 2304;

    *size = 0;
    APR_TRY(may_int(p, p->vision, "image_size", size));
    APR_TRY(need_int(p, p->vision, "patch_size", &patch));
    APR_TRY(may_int(p, p->vision, "num_position_embeddings", &n_positions));
    if (*size == 0) *size = (int64_t)(sqrt((double)n_positions) * (double)patch);
    return *size <= INT32_MAX ? APR_OK : lacks(p, "vision_config of config.json", "num_position_embeddings");
}

/* ---- keys ---- */

static apr_status put_int(planner *p, const char *key, int64_t value) { return apr_kv_set_int(&p->kv, key, APR_KV_U32, value, p->err); }

static apr_status put_f32(planner *p, const char *key, double value)
{
    return fabs(value) <= FLT_MAX ? apr_kv_set_f32(&p->kv, key, (float)value, p->err) : lacks(p, "config.json", "epsilon");
}

static apr_status put_text(planner *p, const char *key, const char *text)
{
    return apr_kv_set_string(&p->kv, key, apr_str_of(text), p->err);
}

/* Numbers of the preprocessor, as an array of f32. */
static apr_status put_numbers(planner *p, const char *key, const char *name)
{
    const cJSON *const in_images = apr_json_get(p->images, name), *const outside = apr_json_get(p->processor, name),
                       *const list = in_images != NULL ? in_images
                                     : outside != NULL ? outside
                                                       : apr_json_get(p->preprocessor, name);
    const int n = cJSON_IsArray(list) ? cJSON_GetArraySize(list) : 0;
    uint8_t *const bytes = apr_arena_alloc(p->kv.arena, 4 * (size_t)n + 1);

    if (bytes == NULL) return apr_no_memory(p->err, "the keys of a file");
    if (n == 0) return lacks(p, "preprocessor_config.json", name);
    for (int i = 0; i < n; i++) {
        const cJSON *const item = cJSON_GetArrayItem(list, i);
        uint32_t bits;
        if (!cJSON_IsNumber(item) || !(fabs(item->valuedouble) <= FLT_MAX)) return lacks(p, "preprocessor_config.json", name);
        const float value = (float)item->valuedouble;
        memcpy(&bits, &value, sizeof bits);
        apr_store_le32(bytes + 4 * i, bits);
    }
    const apr_kv kv = {
        .key = apr_str_of(key), .type = APR_KV_ARRAY, .elem_type = APR_KV_F32, .n_elems = (uint64_t)n, .value.numbers = bytes};
    return apr_kv_set(&p->kv, &kv, p->err);
}

/* Every so-many-th layer attends to the whole image, the others to windows. */
static apr_status put_window_pattern(planner *p)
{
    const cJSON *const full = apr_json_get(p->vision, "fullatt_block_indexes");
    const int n = cJSON_IsArray(full) ? cJSON_GetArraySize(full) : 0;
    int64_t every = 0, at;

    for (int i = 0; i < n; i++) {
        if (!apr_json_as_int(cJSON_GetArrayItem(full, i), &at) || at < 0 || at >= MAX_LAYERS) return lacks(p, "config.json", full->string);
        if (i == 0) every = at + 1;
        if (at + 1 != (i + 1) * every)
            return apr_fail(p->err, APR_E_UNSUPPORTED,
                            "%s: fullatt_block_indexes of config.json are not every %lld-th layer, and llama.cpp has no key for others",
                            p->source->path, (long long)every);
    }
    return n > 0 ? put_int(p, "clip.vision.n_wa_pattern", every) : lacks(p, "config.json", "fullatt_block_indexes");
}

static apr_status add_qwen2_keys(planner *p)
{
    return put_f32(p, "clip.vision.attention.layer_norm_epsilon", real_or(p->config, "rms_norm_eps", 1e-6));
}

static apr_status add_qwen25_keys(planner *p)
{
    APR_TRY(apr_kv_set_bool(&p->kv, "clip.use_silu", true, p->err));
    APR_TRY(put_window_pattern(p));
    return add_qwen2_keys(p);
}

/* The layer whose output the n-th deepstack merger takes; -1: config.json has none. */
static int64_t deepstack_layer(const planner *p, int64_t n)
{
    const cJSON *const list = apr_json_get(p->vision, "deepstack_visual_indexes");
    int64_t layer;

    if (!cJSON_IsArray(list) || n < 0 || n >= cJSON_GetArraySize(list)) return -1;
    if (!apr_json_as_int(cJSON_GetArrayItem(list, (int)n), &layer) || layer < 0 || layer >= p->n_layers) return -1;
    return layer;
}

static apr_status put_deepstack_layers(planner *p)
{
    uint8_t *const flags = apr_arena_alloc(p->kv.arena, (size_t)p->n_layers);

    if (flags == NULL) return apr_no_memory(p->err, "the keys of a file");
    memset(flags, 0, (size_t)p->n_layers);
    for (int64_t i = 0; deepstack_layer(p, i) >= 0; i++) flags[deepstack_layer(p, i)] = 1;
    const apr_kv kv = {.key = apr_str_of("clip.vision.is_deepstack_layers"),
                       .type = APR_KV_ARRAY,
                       .elem_type = APR_KV_BOOL,
                       .n_elems = (uint64_t)p->n_layers,
                       .value.numbers = flags};
    return apr_kv_set(&p->kv, &kv, p->err);
}

static apr_status add_qwen3_keys(planner *p)
{
    int64_t merge = 0;

    APR_TRY(apr_kv_set_bool(&p->kv, "clip.use_gelu", true, p->err));
    APR_TRY(may_int(p, p->vision, "spatial_merge_size", &merge));
    if (merge > 0) APR_TRY(put_int(p, "clip.vision.spatial_merge_size", merge));
    APR_TRY(put_f32(p, "clip.vision.attention.layer_norm_epsilon", real_or(apr_json_get(p->config, "text_config"), "rms_norm_eps", 1e-6)));
    return put_deepstack_layers(p);
}

static apr_status add_gemma3_keys(planner *p)
{
    int64_t image, patch, n_tokens = 256;

    APR_TRY(put_f32(p, "clip.vision.attention.layer_norm_epsilon", real_or(p->vision, "layer_norm_eps", 1e-6)));
    APR_TRY(apr_kv_set_bool(&p->kv, "clip.use_gelu", true, p->err));
    APR_TRY(need_int(p, p->vision, "image_size", &image));
    APR_TRY(need_int(p, p->vision, "patch_size", &patch));
    if (!apr_json_get_int(p->images, "image_seq_length", &n_tokens)) (void)apr_json_get_int(p->preprocessor, "image_seq_length", &n_tokens);
    const int64_t side = n_tokens > 0 ? (int64_t)sqrt((double)n_tokens) : 0, factor = side > 0 ? image / patch / side : 0;
    return factor > 0 && factor != 4 ? put_int(p, "clip.vision.projector.scale_factor", factor) : APR_OK; /* 4 is llama.cpp's default */
}

static apr_status add_pixtral_keys(planner *p)
{
    const char *const act = apr_json_get_string(p->vision, "hidden_act");
    int64_t merge = 0;

    APR_TRY(put_f32(p, "clip.vision.attention.layer_norm_epsilon", real_or(p->vision, "layer_norm_eps", 1e-5)));
    if (act == NULL || (strcmp(act, "silu") != 0 && strcmp(act, "gelu") != 0))
        return apr_fail(p->err, APR_E_UNSUPPORTED, "%s: hidden_act of vision_config in config.json is %s, llama.cpp has only silu and gelu",
                        p->source->path, act != NULL ? act : "missing");
    APR_TRY(apr_kv_set_bool(&p->kv, *act == 's' ? "clip.use_silu" : "clip.use_gelu", true, p->err));
    APR_TRY(may_int(p, p->config, "spatial_merge_size", &merge));
    return merge > 0 ? put_int(p, "clip.vision.spatial_merge_size", merge) : APR_OK;
}

static const tower towers[] = {
    {"qwen2_vl", NULL, "qwen2vl_merger", qwen2_names, &qwen2_sizes, size_or_560, add_qwen2_keys},
    {"qwen2_5_vl", NULL, "qwen2.5vl_merger", qwen2_names, &qwen_sizes, size_or_560, add_qwen25_keys},
    {"qwen3_vl", NULL, "qwen3vl_merger", qwen3_names, &qwen_sizes, size_of_positions, add_qwen3_keys},
    {"qwen3_vl_moe", NULL, "qwen3vl_merger", qwen3_names, &qwen_sizes, size_of_positions, add_qwen3_keys},
    {"qwen3_5", NULL, "qwen3vl_merger", qwen3_names, &qwen_sizes, size_of_positions, add_qwen3_keys},
    {"qwen3_5_moe", NULL, "qwen3vl_merger", qwen3_names, &qwen_sizes, size_of_positions, add_qwen3_keys},
    {"gemma3", NULL, "gemma3", gemma3_names, &other_sizes, stated_size, add_gemma3_keys},
    {"mistral3", "pixtral", "pixtral", pixtral_names, &other_sizes, stated_size, add_pixtral_keys},
    {"llava", "pixtral", "pixtral", pixtral_names, &other_sizes, stated_size, add_pixtral_keys},
};

/* "path/to/Qwen2.5-VL-7B/" is called "Qwen2.5-VL-7B", as in the text part's file. */
static const char *name_of(const char *path, apr_arena *arena)
{
    size_t end = strlen(path), begin_at;

    while (end > 1 && path[end - 1] == '/') end--;
    for (begin_at = end; begin_at > 0 && path[begin_at - 1] != '/';) begin_at--;
    if (end - begin_at > 4 && memcmp(path + end - 4, ".apr", 4) == 0) end -= 4;
    return apr_arena_copy(arena, path + begin_at, end - begin_at);
}

static apr_status add_general_keys(planner *p)
{
    const char *const name = name_of(p->source->path != NULL ? p->source->path : "", p->kv.arena);

    if (name == NULL) return apr_no_memory(p->err, "the name of the model");
    APR_TRY(put_text(p, "general.architecture", "clip"));
    APR_TRY(put_text(p, "general.type", "mmproj"));
    APR_TRY(put_text(p, "general.name", name));
    return put_int(p, "general.file_type", p->type == APR_F32 ? 0 : p->type == APR_F16 ? 1 : 32); /* llama.cpp's numbers */
}

/* In the order in which llama.cpp's converter writes them. */
static apr_status add_keys(planner *p)
{
    int64_t text_width, image, patch, mlp;

    APR_TRY(add_general_keys(p));
    APR_TRY(need_int(p, apr_json_get(p->text, "hidden_size") != NULL ? p->text : p->config, "hidden_size", &text_width));
    APR_TRY(p->tower->find_image_size(p, &image));
    APR_TRY(need_int(p, p->vision, "patch_size", &patch));
    APR_TRY(need_int(p, p->vision, p->tower->sizes->mlp, &mlp));
    APR_TRY(apr_kv_set_bool(&p->kv, "clip.has_vision_encoder", true, p->err));
    APR_TRY(put_int(p, "clip.vision.projection_dim", text_width));
    APR_TRY(put_int(p, "clip.vision.image_size", image));
    APR_TRY(put_int(p, "clip.vision.patch_size", patch));
    APR_TRY(put_int(p, "clip.vision.embedding_length", p->hidden));
    APR_TRY(put_int(p, "clip.vision.feed_forward_length", mlp));
    APR_TRY(put_int(p, "clip.vision.block_count", p->n_layers));
    APR_TRY(put_int(p, "clip.vision.attention.head_count", p->n_heads));
    APR_TRY(put_numbers(p, "clip.vision.image_mean", "image_mean"));
    APR_TRY(put_numbers(p, "clip.vision.image_std", "image_std"));
    APR_TRY(put_text(p, "clip.projector_type", p->tower->projector));
    APR_TRY(p->tower->add_keys(p));
    return put_int(p, "general.quantization_version", 2);
}

/* ---- tensors ---- */

/* The tower's name without what only some versions of transformers write. NULL: out of memory. */
static const char *plain_name(const char *name, apr_arena *arena)
{
    static const char old[] = "vision_tower.vision_model.", tail[] = "_weight";

    if (apr_begins_with(name, "model.")) name += strlen("model.");
    if (apr_begins_with(name, old)) return apr_arena_print(arena, "vision_tower.%s", name + sizeof old - 1);
    const size_t stem = apr_stem_of(name, tail); /* Gemma's projection is a bare parameter */
    return stem > 0 ? apr_arena_print(arena, "%.*s.weight", (int)stem, name) : name;
}

static bool is_of_tower(const char *name)
{
    static const char *const roots[] = {"visual.", "vision_tower.", "multi_modal_projector."};
    if (apr_begins_with(name, "model.")) name += strlen("model.");
    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++)
        if (apr_begins_with(name, roots[i])) return true;
    return false;
}

/* Does the name begin with the pattern? Then *rest is what follows, and *number what '#' or '@' stands for (-1: the pattern has none). */
static bool matches(const char *pattern, const char *name, int64_t *number, const char **rest)
{
    *number = -1;
    for (; *pattern != '\0'; pattern++) {
        if (*pattern != '#' && *pattern != '@') {
            if (*pattern != *name++) return false;
            continue;
        }
        const size_t n = strspn(name, "0123456789");
        if (n == 0 || n > 6) return false;
        *number = strtoll(name, NULL, 10);
        name += n;
    }
    *rest = name;
    return *name == '.';
}

static const name_rule *find_rule(const tower *of, const char *name, int64_t *number, const char **rest)
{
    for (const name_rule *rule = of->names; rule->from != NULL; rule++)
        if (matches(rule->from, name, number, rest)) return rule;
    return NULL;
}

/* The rule's name with its number and what follows; %c becomes `letter`. NULL: out of memory. */
static const char *new_name(const char *pattern, int64_t number, char letter, const char *rest, apr_arena *arena)
{
    const char *const at = strpbrk(pattern, "#@"), *const c = strstr(pattern, "%c");

    if (at == NULL) return apr_arena_print(arena, "%s%s", pattern, rest);
    const int head = (int)(at - pattern), middle = c != NULL ? (int)(c - at) - 1 : (int)strlen(at + 1);
    const char one[2] = {c != NULL ? letter : '\0', '\0'};
    return apr_arena_print(arena, "%.*s%lld%.*s%s%s", head, pattern, (long long)number, middle, at + 1, one, rest);
}

static apr_dtype type_of(const planner *p, const apr_tensor *t, type_rule rule)
{
    if (t->rank <= 1 || strstr(t->name, ".weight") == NULL) return APR_F32;
    switch (rule) {
    case F16_OR_F32: return p->type == APR_F16 ? APR_F16 : APR_F32;
    case ALWAYS_F16: return APR_F16;
    case ALWAYS_F32: return APR_F32;
    default: return p->type;
    }
}

/* Adds one tensor of the file: `from` after the steps. */
static apr_status add(planner *p, const apr_tensor *from, const char *name, const apr_chain *chain, type_rule type)
{
    apr_model *const view = &p->c->view, *const layout = &p->c->layout;
    apr_tensor *const t = &view->tensors[view->n_tensors++], *const to = &layout->tensors[layout->n_tensors];

    if (name == NULL) return apr_no_memory(p->err, "a tensor's name");
    *t = *from;
    if (chain->n_steps > 0) APR_TRY(apr_tensor_append_steps(t, chain, &view->arena, p->source->path, p->err));
    t->name = name;
    *to = *t;
    to->dtype = type_of(p, t, type);
    to->scale = NULL;
    to->packing = NULL;
    apr_tensor_set_data(to, NULL);
    p->c->items[layout->n_tensors++] = (apr_pipe_item){.from = t, .to = to->dtype};
    return apr_tensor_size(to, p->source->path, p->err);
}

static apr_status add_three(planner *p, const apr_tensor *from, const name_rule *rule, int64_t number, const char *rest)
{
    const int64_t rows = from->rank > 0 ? from->dims[0] : 0;

    if (rows % 3 != 0 || rows <= 0 || rows > INT32_MAX || from->rank > 2)
        return apr_fail(p->err, APR_E_DAMAGED, "%s: the rows of tensor '%s' are not those of queries, keys and values", p->source->path,
                        from->name);
    for (int i = 0; i < 3; i++) {
        const apr_chain part = apr_chain_of((apr_step){APR_STEP_TAKE, {from->rank - 1, 1, (int32_t)(i * (rows / 3)), (int32_t)(rows / 3)}});
        APR_TRY(add(p, from, new_name(rule->to, number, "qkv"[i], rest, &p -> c -> view.arena), &part, rule->type));
    }
    return APR_OK;
}

/* The bias is as it is; of the weight, a convolution for each frame. */
static apr_status add_frames(planner *p, const apr_tensor *from, const name_rule *rule, const char *rest)
{
    static const char *const suffixes[] = {"", ".1"};

    if (from->rank == 1) return add(p, from, new_name(rule->to, -1, 0, rest, &p->c->view.arena), &(apr_chain){0}, rule->type);
    if (from->rank != 5 || from->dims[2] != 2)
        return apr_fail(p->err, APR_E_UNSUPPORTED, "%s: tensor '%s' is not a convolution over two frames", p->source->path, from->name);
    for (int i = 0; i < 2; i++) {
        apr_chain part = apr_chain_of((apr_step){APR_STEP_TAKE, {2, 1, i, 1}});
        apr_chain_append(&part, (apr_step){APR_STEP_SQUEEZE, {2}});
        APR_TRY(add(p, from, apr_arena_print(&p->c->view.arena, "%s%s%s", rule->to, rest, suffixes[i]), &part, rule->type));
    }
    return APR_OK;
}

static apr_status add_by_rule(planner *p, const apr_tensor *from, const name_rule *rule, int64_t number, const char *rest)
{
    apr_chain chain = {0};

    switch (rule->change) {
    case LEFT_OUT: return APR_OK;
    case SPLIT_QKV: return add_three(p, from, rule, number, rest);
    case SPLIT_TIME: return add_frames(p, from, rule, rest);
    case ROTATED: chain = apr_chain_of((apr_step){APR_STEP_HALVES_TO_PAIRS, {(int32_t)p->n_heads}}); break;
    case PLUS_ONE: chain = apr_chain_of((apr_step){APR_STEP_ADD, {1}}); break;
    default: break;
    }
    return add(p, from, new_name(rule->to, number, 0, rest, &p->c->view.arena), &chain, rule->type);
}

static apr_status count_in_layer(planner *p, const apr_tensor *from, const name_rule *rule, int64_t number)
{
    if (!apr_begins_with(rule->to, "v.blk.")) return APR_OK;
    if (number < p->n_layers) {
        p->n_in_layer[number]++;
        return APR_OK;
    }
    return apr_fail(p->err, APR_E_DAMAGED, "%s: tensor '%s' is of a layer that the vision_config of config.json does not have (%s %lld)",
                    p->source->path, from->name, p->tower->sizes->layers, (long long)p->n_layers);
}

static apr_status add_tensor(planner *p, const apr_tensor *from)
{
    const char *const name = plain_name(from->name, &p->c->view.arena), *rest;
    int64_t number;

    if (name == NULL) return apr_no_memory(p->err, "a tensor's name");
    const name_rule *const rule = find_rule(p->tower, name, &number, &rest);
    if (rule == NULL || apr_dtypes[from->dtype].elems_per_block != 1)
        return apr_fail(p->err, APR_E_UNSUPPORTED, "%s: tensor '%s' of the vision tower has no place in llama.cpp's file of a %s tower",
                        p->source->path, from->name, p->tower->projector);
    APR_TRY(count_in_layer(p, from, rule, number));
    if (strchr(rule->from, '@') != NULL) {
        number = deepstack_layer(p, number);
        if (number < 0) return lacks(p, "config.json", "deepstack_visual_indexes");
    }
    return add_by_rule(p, from, rule, number, rest);
}

/* llama.cpp puts Mistral's [IMG_BREAK] between rows of patches, and takes its embedding from this file. */
static apr_status add_row_break(planner *p)
{
    const apr_tensor *const embedding = apr_find_embedding(p->source);
    const apr_vocab *const v = &p->source->vocab;

    for (size_t id = 0; id < v->n_tokens && p->tower->names == pixtral_names && embedding != NULL; id++) {
        if (!apr_str_is(v->tokens[id], "[IMG_BREAK]")) continue;
        if (embedding->rank != 2 || (int64_t)id >= embedding->dims[0] || id > INT32_MAX) return APR_OK;
        apr_chain row = apr_chain_of((apr_step){APR_STEP_TAKE, {1, 1, (int32_t)id, 1}});
        apr_chain_append(&row, (apr_step){APR_STEP_SQUEEZE, {1}});
        return add(p, embedding, "v.token_embd.img_break", &row, WANTED);
    }
    return APR_OK;
}

static apr_status check_complete(const planner *p)
{
    if (apr_model_find(&p->c->layout, "v.patch_embd.weight") == NULL)
        return apr_fail(p->err, APR_E_DAMAGED, "%s: the vision tower has no tensor for its patches", p->source->path);
    for (int64_t i = 0; i < p->n_layers; i++)
        if (p->n_in_layer[i] != p->n_in_layer[0] || p->n_in_layer[i] == 0)
            return apr_fail(p->err, APR_E_DAMAGED, "%s: layer %lld of the vision tower has %lld tensors, and layer 0 has %lld",
                            p->source->path, (long long)i, (long long)p->n_in_layer[i], (long long)p->n_in_layer[0]);
    return APR_OK;
}

static apr_status add_tensors(planner *p)
{
    apr_model *const view = &p->c->view, *const layout = &p->c->layout;
    const size_t n_most = 3 * p->source->n_tensors + 1;

    view->tensors = apr_arena_array(&view->arena, n_most, sizeof *view->tensors);
    layout->tensors = apr_arena_array(&layout->arena, n_most, sizeof *layout->tensors);
    p->c->items = apr_arena_array(&layout->arena, n_most, sizeof *p->c->items);
    if (view->tensors == NULL || layout->tensors == NULL || p->c->items == NULL) return apr_no_memory(p->err, "the tensors of a file");
    for (size_t i = 0; i < p->source->n_tensors; i++)
        if (is_of_tower(p->source->tensors[i].name)) APR_TRY(add_tensor(p, &p->source->tensors[i]));
    APR_TRY(add_row_break(p));
    APR_TRY(apr_model_index_names(layout, p->err));
    return check_complete(p);
}

/* ---- the plan ---- */

static apr_status parse(planner *p, const char *name, cJSON **json)
{
    const apr_attachment *const file = apr_model_attachment(p->source, name);
    return file != NULL ? apr_json_parse(json, file->data, file->n_bytes, name, p->err) : APR_OK;
}

static const tower *find_tower(const char *model_type, const char *vision_type)
{
    for (size_t i = 0; i < sizeof towers / sizeof *towers; i++)
        if (strcmp(towers[i].model_type, model_type) == 0 &&
            (towers[i].vision_type == NULL || strcmp(towers[i].vision_type, vision_type) == 0))
            return &towers[i];
    return NULL;
}

static apr_status read_config(planner *p)
{
    APR_TRY(parse(p, "config.json", &p->config));
    APR_TRY(parse(p, "preprocessor_config.json", &p->preprocessor));
    APR_TRY(parse(p, "processor_config.json", &p->processor));
    const char *const type = apr_json_get_string(p->config, "model_type");
    const cJSON *const text = apr_config_text_part(p->config);
    p->vision = apr_json_get(p->config, "vision_config");
    p->images = apr_json_get(p->processor, "image_processor");
    p->text = text != NULL ? text : p->config;
    const char *const vision_type = apr_json_get_string(p->vision, "model_type");
    if (p->vision == NULL || type == NULL)
        return apr_fail(p->err, APR_E_UNSUPPORTED, "%s has no vision tower that --mmproj could write: %s", p->source->path,
                        p->config != NULL ? "its config.json has no vision_config" : "it has no config.json");
    p->tower = find_tower(type, vision_type != NULL ? vision_type : "");
    if (p->tower == NULL)
        return apr_fail(p->err, APR_E_UNSUPPORTED,
                        "%s: --mmproj cannot write the vision tower of model_type %s%s%s yet; it can for Qwen2-VL, Qwen2.5-VL, Qwen3-VL, "
                        "Qwen3.5, Gemma 3 and Mistral 3 (pixtral)",
                        p->source->path, type, vision_type != NULL ? " with " : "", vision_type != NULL ? vision_type : "");
    APR_TRY(need_int(p, p->vision, p->tower->sizes->hidden, &p->hidden));
    APR_TRY(need_int(p, p->vision, p->tower->sizes->layers, &p->n_layers));
    APR_TRY(need_int(p, p->vision, p->tower->sizes->heads, &p->n_heads));
    return p->n_layers <= MAX_LAYERS ? APR_OK : lacks(p, "config.json", p->tower->sizes->layers);
}

static apr_dtype choose_type(const apr_model *source, const char *asked)
{
    static const apr_dtype floats[] = {APR_F32, APR_F16, APR_BF16};
    int64_t elems[APR_DTYPE_COUNT] = {0};

    for (size_t i = 0; i < source->n_tensors; i++)
        if (is_of_tower(source->tensors[i].name)) elems[source->tensors[i].dtype] += apr_tensor_elems(&source->tensors[i]);
    const apr_dtype most = apr_dtype_most_common(elems);
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        if (asked != NULL && strcasecmp(asked, apr_dtypes[floats[i]].name) == 0) return floats[i];
    return most == APR_F32 || most == APR_BF16 ? most : APR_F16;
}

static apr_status plan(planner *p)
{
    APR_TRY(read_config(p));
    APR_TRY(add_tensors(p));
    APR_TRY(add_keys(p));
    p->c->layout.kv = p->kv;
    return APR_OK;
}

apr_status apr_mmproj_plan(apr_conversion *c, const apr_model *source, const char *type, apr_error *err)
{
    planner *const p = calloc(1, sizeof *p);

    *c = (apr_conversion){.options.format = APR_FORMAT_GGUF, .source = source};
    if (p == NULL) return apr_no_memory(err, "the plan of a file");
    c->layout.path = c->view.path = source->path;
    c->layout.format = APR_FORMAT_GGUF;
    c->layout.naming = APR_NAMING_GGML;
    p->c = c;
    p->source = source;
    p->type = choose_type(source, type);
    p->kv.arena = &c->layout.arena;
    p->err = err;
    const apr_status status = plan(p);
    cJSON_Delete(p->config);
    cJSON_Delete(p->preprocessor);
    cJSON_Delete(p->processor);
    free(p);
    return status;
}
