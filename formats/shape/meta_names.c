/* meta_names.c - a table of module names, and a table of the tensors of a module. */
#include "formats/shape/meta_names.h"

#include <string.h>

typedef enum { PLAIN, ROTATES_HEADS, ROTATES_KV_HEADS } row_order;

/* "{}" and "*" stand for a number. */
static const struct {
    const char *meta, *canonical;
    row_order order;
} modules[] = {
    {"tok_embeddings", "model.embed_tokens"},
    {"norm", "model.norm"},
    {"output", "lm_head"},
    {"layers.{}.attention_norm", "model.layers.{}.input_layernorm"},
    {"layers.{}.attention.wq", "model.layers.{}.self_attn.q_proj", ROTATES_HEADS},
    {"layers.{}.attention.wk", "model.layers.{}.self_attn.k_proj", ROTATES_KV_HEADS},
    {"layers.{}.attention.wv", "model.layers.{}.self_attn.v_proj"},
    {"layers.{}.attention.wo", "model.layers.{}.self_attn.o_proj"},
    {"layers.{}.ffn_norm", "model.layers.{}.post_attention_layernorm"},
    {"layers.{}.feed_forward.w1", "model.layers.{}.mlp.gate_proj"},
    {"layers.{}.feed_forward.w2", "model.layers.{}.mlp.down_proj"},
    {"layers.{}.feed_forward.w3", "model.layers.{}.mlp.up_proj"},
    {"layers.{}.feed_forward.gate", "model.layers.{}.block_sparse_moe.gate"},
    {"layers.{}.feed_forward.experts.*.w1", "model.layers.{}.block_sparse_moe.experts.*.w1"},
    {"layers.{}.feed_forward.experts.*.w2", "model.layers.{}.block_sparse_moe.experts.*.w2"},
    {"layers.{}.feed_forward.experts.*.w3", "model.layers.{}.block_sparse_moe.experts.*.w3"},
    {"layers.{}.block_sparse_moe.gate", "model.layers.{}.block_sparse_moe.gate"},
    {"layers.{}.block_sparse_moe.experts.*.w1", "model.layers.{}.block_sparse_moe.experts.*.w1"},
    {"layers.{}.block_sparse_moe.experts.*.w2", "model.layers.{}.block_sparse_moe.experts.*.w2"},
    {"layers.{}.block_sparse_moe.experts.*.w3", "model.layers.{}.block_sparse_moe.experts.*.w3"},
};

/* FP8 scales are one per tensor: they have no rows to permute. */
static const struct {
    const char *meta, *canonical;
    bool has_rows;
} members[] = {
    {".weight", ".weight", true},
    {".bias", ".bias", true},
    {".qscale_weight", ".weight_scale_inv", false},
    {".qscale_act", ".activation_scale", false},
};

typedef struct match {
    const char *numbers[2]; /* in the name */
    size_t n_digits[2];
} match;

/* Does the module's name match `pattern` and end where `member` begins? */
static bool fits(const char *name, const char *member, const char *pattern, match *m)
{
    size_t n = 0;

    while (*pattern != '\0') {
        const bool is_number = *pattern == '*' || (pattern[0] == '{' && pattern[1] == '}');
        if (!is_number && *pattern++ != *name++) return false;
        if (!is_number) continue;
        m->numbers[n] = name;
        m->n_digits[n] = strspn(name, "0123456789");
        if (m->n_digits[n] == 0) return false;
        name += m->n_digits[n++];
        pattern += *pattern == '*' ? 1 : 2;
    }
    return name == member;
}

static const char *fill(const char *pattern, const match *m, const char *member, apr_arena *arena)
{
    const char *const brace = strstr(pattern, "{}"), *const star = strchr(pattern, '*');

    if (brace == NULL) return apr_arena_print(arena, "%s%s", pattern, member);
    if (star == NULL)
        return apr_arena_print(arena, "%.*s%.*s%s%s", (int)(brace - pattern), pattern, (int)m->n_digits[0], m->numbers[0], brace + 2,
                               member);
    return apr_arena_print(arena, "%.*s%.*s%.*s%.*s%s%s", (int)(brace - pattern), pattern, (int)m->n_digits[0], m->numbers[0],
                           (int)(star - brace - 2), brace + 2, (int)m->n_digits[1], m->numbers[1], star + 1, member);
}

static apr_chain steps_of(row_order order, const apr_hparams *hparams)
{
    const int64_t heads = order == ROTATES_HEADS ? hparams->num_heads : hparams->num_kv_heads;
    const bool moves = order != PLAIN && heads > 0 && heads <= INT32_MAX;
    return moves ? apr_chain_of((apr_step){APR_STEP_PAIRS_TO_HALVES, {(int32_t)heads}}) : (apr_chain){0};
}

const char *apr_meta_to_canonical(const char *name, const apr_hparams *hparams, apr_chain *chain, apr_arena *arena)
{
    const char *const member = strrchr(name, '.');
    match m;

    *chain = (apr_chain){0};
    for (size_t i = 0; member != NULL && i < sizeof members / sizeof *members; i++) {
        if (strcmp(member, members[i].meta) != 0) continue;
        for (size_t j = 0; j < sizeof modules / sizeof *modules; j++) {
            if (!fits(name, member, modules[j].meta, &m)) continue;
            if (members[i].has_rows) *chain = steps_of(modules[j].order, hparams);
            return fill(modules[j].canonical, &m, members[i].canonical, arena);
        }
    }
    return name;
}

bool apr_has_meta_names(const apr_model *model)
{
    for (size_t i = 0; i < model->n_tensors; i++)
        if (strcmp(model->tensors[i].name, "layers.0.attention.wq.weight") == 0) return true;
    return false;
}
