/* tensor_names.c - names without a multimodal model's prefix; their rules, the family's own first, then those of its shared sets. */
#include "formats/shape/tensor_names.h"
#include "formats/base/text.h"
#include "formats/number/half.h"

#include <string.h>

/* ---- names of the text model ---- */

/* Prefixes of the text model's names in multimodal models, alone or after "model.". */
static const char *const prefixes[] = {"language_model.", "text_model.", "thinker.", "llm.", "language."};

static const char *after_model(const char *name) { return apr_text_after(name, "model."); }

/* Length of the prefix that `name` begins with; 0: none. */
static size_t prefix_of(const char *name)
{
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (apr_begins_with(name, prefixes[i])) return strlen(prefixes[i]);
    return 0;
}

apr_text_name apr_text_name_of(const char *name)
{
    const char *rest = name;

    for (size_t n; (n = prefix_of(after_model(rest))) > 0;) rest = after_model(rest) + n;
    if (apr_begins_with(after_model(rest), "lm_head.")) return (apr_text_name){"", after_model(rest)};
    if (rest == name) return (apr_text_name){"", name};
    if (apr_begins_with(rest, "backbone.")) return (apr_text_name){"", rest};
    return (apr_text_name){"model.", after_model(rest)};
}

const char *apr_text_name_print(const char *name, apr_arena *arena)
{
    const apr_text_name text = apr_text_name_of(name);
    return text.rest == name ? name : apr_arena_print(arena, "%s%s", text.root, text.rest);
}

/* ---- patterns ---- */

/* A name with its first number replaced by "{}" and its second by "*", as in rules. */
typedef struct plain_name {
    char text[256];
    int64_t numbers[2]; /* -1: there is none */
} plain_name;

/* Length of a name component that is a decimal number without leading zeros; 0: it is not one. */
static size_t number_length(const char *part)
{
    const size_t n = strspn(part, "0123456789");
    const bool is_whole = part[n] == '.' || part[n] == '\0';
    return !is_whole || n > 6 || (part[0] == '0' && n > 1) ? 0 : n;
}

static int64_t number_of(const char *digits, size_t n)
{
    int64_t value = 0;
    for (size_t i = 0; i < n; i++) value = value * 10 + (digits[i] - '0');
    return value;
}

/* `root` is put before the name. False: no rule can match, because the name is too long or contains "{", "}" or "*". */
static bool make_plain(plain_name *plain, const char *root, const char *name)
{
    size_t n = strlen(root);
    int n_numbers = 0;

    plain->numbers[0] = plain->numbers[1] = -1;
    if (strpbrk(name, "{}*") != NULL) return false;
    memcpy(plain->text, root, n);
    for (bool starts_part = true; *name != '\0'; starts_part = *name++ == '.') {
        const size_t n_digits = starts_part && n_numbers < 2 ? number_length(name) : 0;
        if (n + 3 > sizeof plain->text) return false;
        if (n_digits == 0) {
            plain->text[n++] = *name;
            continue;
        }
        memcpy(plain->text + n, n_numbers == 0 ? "{}" : "*", 2);
        n += n_numbers == 0 ? 2 : 1;
        plain->numbers[n_numbers++] = number_of(name, n_digits);
        name += n_digits - 1;
    }
    plain->text[n] = '\0';
    return true;
}

/* Has the pattern a "*" without a layer? Then it is the name's first number. */
static bool is_outside_layers(const char *pattern) { return strchr(pattern, '*') != NULL && strstr(pattern, "{}") == NULL; }

static bool is_plain(const char *pattern, const plain_name *plain)
{
    if (pattern == NULL || pattern[0] != plain->text[0]) return false;
    if (strcmp(pattern, plain->text) == 0) return true;
    const char *const hole = strstr(plain->text, "{}"), *const star = strchr(pattern, '*');
    if (hole == NULL || !is_outside_layers(pattern) || star - pattern != hole - plain->text) return false;
    return memcmp(pattern, plain->text, (size_t)(star - pattern)) == 0 && strcmp(star + 1, hole + 2) == 0;
}

/* ---- the rules of a family ---- */

/* Set 0 is the family's own rules, the others are its shared sets; false after the last one. */
static bool set_at(const apr_family *family, size_t i, apr_tensor_set *set)
{
    if (i == 0) {
        *set = (apr_tensor_set){family->tensors, family->n_tensors, family->forms, family->n_forms};
        return true;
    }
    if (i > APR_MAX_SETS || family->sets[i - 1] == NULL) return false;
    *set = *family->sets[i - 1];
    return true;
}

static const apr_tensor_rule *rule_of(const apr_family *family, const plain_name *plain, bool by_hf, bool by_ggml)
{
    apr_tensor_set set;
    for (size_t s = 0; set_at(family, s, &set); s++)
        for (size_t i = 0; i < set.n_rules; i++)
            if ((by_hf && is_plain(set.rules[i].hf, plain)) || (by_ggml && is_plain(set.rules[i].ggml, plain))) return &set.rules[i];
    return NULL;
}

const apr_tensor_rule *apr_rule_of_pattern(const apr_family *family, const char *canonical)
{
    apr_tensor_set set;
    for (size_t s = 0; set_at(family, s, &set); s++)
        for (size_t i = 0; i < set.n_rules; i++)
            if (set.rules[i].hf != NULL && strcmp(set.rules[i].hf, canonical) == 0) return &set.rules[i];
    return NULL;
}

/* The form of that name, or of its scales' name. */
static const apr_tensor_form *form_of(const apr_family *family, const plain_name *plain)
{
    apr_tensor_set set;
    for (size_t s = 0; set_at(family, s, &set); s++)
        for (size_t i = 0; i < set.n_forms; i++) {
            const apr_tensor_form *const form = &set.forms[i];
            if (form->use != APR_FORM_WHOLE && (is_plain(form->name, plain) || is_plain(form->scales, plain))) return form;
        }
    return NULL;
}

/* Prefixes that a Hugging Face name may lack: a model saved without its head has "layers.0..." instead of "model.layers.0...". */
static const char *const roots[] = {"", "model.", "backbone.", "gpt_neox.", "transformer."};
enum { N_ROOTS = sizeof roots / sizeof *roots };

/* The name without a multimodal model's prefix, with roots[i] before it; false: no rule can match. */
static bool make_plain_text(plain_name *plain, const char *name, size_t i)
{
    const apr_text_name text = apr_text_name_of(name);
    return (i == 0 || text.root[0] == '\0') && make_plain(plain, i == 0 ? text.root : roots[i], text.rest);
}

const apr_tensor_rule *apr_family_rule(const apr_family *family, const char *name)
{
    plain_name plain;

    for (size_t i = 0; i < N_ROOTS; i++) {
        if (!make_plain_text(&plain, name, i)) continue;
        const apr_tensor_rule *const rule = rule_of(family, &plain, true, i == 0);
        if (rule != NULL) return rule;
        const apr_tensor_form *const form = form_of(family, &plain);
        if (form != NULL && (i == 0 || form->naming == APR_NAMING_HF)) return apr_rule_of_pattern(family, form->parts[0].name);
    }
    return NULL;
}

/* `canonical` is the name's pattern, or NULL. */
static void take_numbers(apr_name_match *match, const plain_name *plain, const char *canonical)
{
    const bool is_outside = canonical != NULL && is_outside_layers(canonical);
    match->layer = is_outside ? -1 : plain->numbers[0];
    match->expert = plain->numbers[is_outside ? 0 : 1];
}

bool apr_match_tensor(const apr_family *family, apr_naming naming, const char *name, apr_name_match *match)
{
    const bool is_ggml = naming == APR_NAMING_GGML;
    plain_name plain;

    for (size_t i = 0; i < (is_ggml ? 1 : N_ROOTS); i++) {
        *match = (apr_name_match){0};
        if (!(is_ggml ? make_plain(&plain, "", name) : make_plain_text(&plain, name, i))) continue;
        match->root = is_ggml ? "" : roots[i];
        const apr_tensor_form *const form = form_of(family, &plain);
        if (form != NULL && form->naming == naming) match->form = form;
        else match->rule = rule_of(family, &plain, !is_ggml, is_ggml);
        take_numbers(match, &plain, match->rule != NULL && !is_ggml ? match->rule->hf : NULL);
        if (match->form != NULL || match->rule != NULL) return true;
    }
    *match = (apr_name_match){.root = ""};
    return false;
}

/* Index of the part with that name, or -1. */
static int part_of(const apr_tensor_form *form, const plain_name *plain)
{
    for (int i = 0; i < APR_FORM_PARTS && form->parts[i].name != NULL; i++)
        if (is_plain(form->parts[i].name, plain)) return i;
    return -1;
}

static bool find_holder(const apr_family *family, apr_naming naming, const plain_name *plain, bool is_mxfp4, apr_name_match *match)
{
    apr_tensor_set set;
    for (size_t s = 0; set_at(family, s, &set); s++)
        for (size_t i = 0; i < set.n_forms; i++) {
            const apr_tensor_form *const form = &set.forms[i];
            if (form->naming != naming || form->use == APR_FORM_READ || (form->scales != NULL && !is_mxfp4)) continue;
            match->part = part_of(form, plain);
            if (match->part < 0) continue;
            match->form = form;
            return true;
        }
    return false;
}

static bool find_target(const apr_family *family, apr_naming naming, const char *canonical, bool is_mxfp4, bool has_experts,
                        apr_name_match *match)
{
    const apr_when other = has_experts ? APR_WITHOUT_EXPERTS : APR_WITH_EXPERTS;
    apr_tensor_set set;
    plain_name plain;

    *match = (apr_name_match){0};
    if (!make_plain(&plain, "", canonical)) return false;
    take_numbers(match, &plain, NULL);
    for (size_t s = 0; naming == APR_NAMING_GGML && set_at(family, s, &set); s++)
        for (size_t i = 0; i < set.n_rules; i++) {
            const apr_tensor_rule *const rule = &set.rules[i];
            if (rule->ggml == NULL || rule->when == other || !is_plain(rule->hf, &plain)) continue;
            match->rule = rule;
            take_numbers(match, &plain, rule->hf);
            return true;
        }
    return find_holder(family, naming, &plain, is_mxfp4, match);
}

bool apr_match_target(const apr_family *family, apr_naming naming, const char *canonical, bool is_mxfp4, bool has_experts,
                      apr_name_match *match)
{
    if (!find_target(family, naming, canonical, is_mxfp4, has_experts, match)) return false;
    const apr_tensor_form *const form = match->form;
    const bool is_whole = form != NULL && form->use == APR_FORM_WHOLE && naming == APR_NAMING_GGML; /* its rule may have ggml's name */
    const apr_tensor_rule *const rule = is_whole ? apr_rule_of_pattern(family, form->name) : match->rule;

    match->holder = rule != NULL && rule->ggml != NULL ? rule->ggml : form->name;
    match->canonical = form != NULL ? form->parts[match->part].name : rule->hf;
    match->is_stack = apr_is_stack_of(match->holder, match->canonical);
    return true;
}

const apr_tensor_form *apr_match_whole(const apr_family *family, apr_naming target, const char *canonical, apr_name_match *match)
{
    apr_tensor_set set;
    plain_name plain;

    *match = (apr_name_match){0};
    if (!make_plain(&plain, "", canonical)) return NULL;
    take_numbers(match, &plain, NULL);
    for (size_t s = 0; set_at(family, s, &set); s++)
        for (size_t i = 0; i < set.n_forms; i++)
            if (set.forms[i].use == APR_FORM_WHOLE && set.forms[i].naming != target && is_plain(set.forms[i].name, &plain))
                return &set.forms[i];
    return NULL;
}

/* ---- names ---- */

const char *apr_fill_name(const char *pattern, const apr_name_match *match, int64_t expert, apr_arena *arena)
{
    const char *const hole = strstr(pattern, "{}"), *const star = strchr(pattern, '*');
    const long long layer = match->layer, number = expert;

    if (hole == NULL && star == NULL) return apr_arena_copy(arena, pattern, strlen(pattern));
    if (hole == NULL) return apr_arena_print(arena, "%.*s%lld%s", (int)(star - pattern), pattern, number, star + 1);
    if (star == NULL) return apr_arena_print(arena, "%.*s%lld%s", (int)(hole - pattern), pattern, layer, hole + 2);
    return apr_arena_print(arena, "%.*s%lld%.*s%lld%s", (int)(hole - pattern), pattern, layer, (int)(star - hole - 2), hole + 2, number,
                           star + 1);
}

bool apr_is_stack_of(const char *whole, const char *part) { return strchr(whole, '*') == NULL && strchr(part, '*') != NULL; }

int64_t apr_stack_length(const apr_hparams *h, const char *part)
{
    if (!is_outside_layers(part)) return h->num_experts;
    return h->altup_num_inputs > 0 ? h->altup_num_inputs - 1 : 0;
}

/* ---- steps ---- */

static int64_t times(int64_t a, int64_t b)
{
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? 0 : product; /* no tensor has a dimension of 0 */
}

static int64_t values_each(const apr_hparams *h)
{
    return h->linear_num_key_heads > 0 ? h->linear_num_value_heads / h->linear_num_key_heads : 0;
}
static int64_t values_width(const apr_hparams *h) { return times(values_each(h), h->linear_value_head_dim); }

static int64_t size_THREE(const apr_hparams *h) { return (void)h, 3; }
static int64_t size_HEADS(const apr_hparams *h) { return h->num_heads; }
static int64_t size_KV_HEADS(const apr_hparams *h) { return h->num_kv_heads; }
static int64_t size_KEY_HEADS(const apr_hparams *h) { return h->linear_num_key_heads; }
static int64_t size_VALUES_EACH(const apr_hparams *h) { return values_each(h); }
static int64_t size_KEYS(const apr_hparams *h) { return times(h->linear_num_key_heads, h->linear_key_head_dim); }
static int64_t size_TWICE_KEYS(const apr_hparams *h) { return times(2, size_KEYS(h)); }
static int64_t size_VALUES(const apr_hparams *h) { return times(h->linear_num_value_heads, h->linear_value_head_dim); }
static int64_t size_KEY_WIDTH(const apr_hparams *h) { return h->linear_key_head_dim; }
static int64_t size_TWICE_WIDTH(const apr_hparams *h) { return times(2, h->linear_key_head_dim); }
static int64_t size_VALUES_WIDTH(const apr_hparams *h) { return values_width(h); }
static int64_t size_GATE_PLACE(const apr_hparams *h)
{
    int64_t sum;
    return __builtin_add_overflow(size_TWICE_WIDTH(h), values_width(h), &sum) ? 0 : sum;
}
static int64_t size_LAYER_VOCAB(const apr_hparams *h) { return h->per_layer_vocab_size; }
static int64_t size_VOCAB(const apr_hparams *h) { return h->vocab_size; }
static int64_t size_NOPE_WIDTH(const apr_hparams *h) { return h->qk_nope_head_dim; }
static int64_t size_V_WIDTH(const apr_hparams *h) { return h->v_head_dim; }

/* Mamba's in_proj has the rows of z, x, B, C and the time steps. */
static int64_t plus(int64_t a, int64_t b)
{
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? 0 : sum;
}
static int64_t size_ROTARY(const apr_hparams *h) { return h->rotary_dim; }
static int64_t size_VALUE_HEADS(const apr_hparams *h) { return h->linear_num_value_heads; }
static int64_t size_TWICE_VALUES(const apr_hparams *h) { return times(2, size_VALUES(h)); }
static int64_t size_C_PLACE(const apr_hparams *h) { return plus(size_TWICE_VALUES(h), size_KEYS(h)); }
static int64_t size_DT_PLACE(const apr_hparams *h) { return plus(size_C_PLACE(h), size_KEYS(h)); }

/* A multiplier that is not stated is 1. One that is not above 0 gives 0, which no step takes. */
static int64_t factor_bits(double multiplier)
{
    return multiplier == 0.0 ? (int64_t)apr_f32_bits(1.0f) : multiplier > 0.0 ? (int64_t)apr_f32_bits((float)multiplier) : 0;
}
static int64_t size_EMBEDDING_FACTOR(const apr_hparams *h) { return factor_bits(h->embedding_multiplier); }
static int64_t size_LOGIT_FACTOR(const apr_hparams *h) { return factor_bits(h->logit_scale); }
static int64_t size_ATTENTION_IN_FACTOR(const apr_hparams *h) { return factor_bits(h->attention_in_multiplier); }
static int64_t size_ATTENTION_OUT_FACTOR(const apr_hparams *h) { return factor_bits(h->attention_out_multiplier); }
static int64_t size_KEY_FACTOR(const apr_hparams *h) { return factor_bits(h->key_multiplier); }
static int64_t size_SSM_IN_FACTOR(const apr_hparams *h) { return factor_bits(h->ssm_in_multiplier); }
static int64_t size_SSM_OUT_FACTOR(const apr_hparams *h) { return factor_bits(h->ssm_out_multiplier); }
static int64_t size_Z_FACTOR(const apr_hparams *h) { return factor_bits(h->ssm_z_multiplier); }
static int64_t size_X_FACTOR(const apr_hparams *h) { return factor_bits(h->ssm_x_multiplier); }
static int64_t size_B_FACTOR(const apr_hparams *h) { return factor_bits(h->ssm_b_multiplier); }
static int64_t size_C_FACTOR(const apr_hparams *h) { return factor_bits(h->ssm_c_multiplier); }
static int64_t size_DT_FACTOR(const apr_hparams *h) { return factor_bits(h->ssm_dt_multiplier); }
static int64_t size_GATE_FACTOR(const apr_hparams *h) { return factor_bits(h->mlp_gate_multiplier); }
static int64_t size_DOWN_FACTOR(const apr_hparams *h) { return factor_bits(h->mlp_down_multiplier); }

/* APR_OF_HALF depends on the tensor, not on the model. */
static int64_t size_HALF(const apr_hparams *h) { return (void)h, 0; }

static int64_t (*const sizes[])(const apr_hparams *) = {
#define X(name) size_##name,
    APR_SIZE_LIST(X)
#undef X
};

/* Values for the numbers that a rule does not spell out. */
typedef struct step_values {
    const apr_hparams *hparams;
    int64_t half;
} step_values;

static int32_t number(int16_t n, const step_values *f)
{
    if (n >= 0) return n;
    const int64_t value = n == APR_OF_HALF ? f->half : sizes[n - APR_OF_FIRST - 1](f->hparams);
    return value >= 0 && value <= INT32_MAX ? (int32_t)value : 0; /* no tensor has a dimension of 0 */
}

static apr_step fill_step(const apr_rule_step *step, const step_values *f)
{
    apr_step result = {.kind = step->kind};
    for (int i = 0; i < APR_STEP_PARAMETERS; i++) result.n[i] = number(step->n[i], f);
    return result;
}

/* Families share rules; the spec states which steps apply. */
static bool applies(const apr_family *family, const apr_step *step, bool keeps_tiles)
{
    if (step->kind == APR_STEP_HALVES_TO_PAIRS) return family->gguf.rotates_pairs;
    if (step->kind == APR_STEP_ADD) return family->norms_add_one;
    if (step->kind == APR_STEP_MULTIPLY) return step->n[0] != (int32_t)apr_f32_bits(1.0f);
    if (step->kind == APR_STEP_PAD) return step->n[0] > 0;
    return step->kind != APR_STEP_GROUPED_TO_TILED || (family->tiles_value_heads && step->n[3] > 1 && !keeps_tiles);
}

bool apr_rule_to_ggml(const apr_tensor_rule *rule, const apr_family *family, const apr_hparams *hparams, bool keeps_tiles, apr_chain *chain)
{
    const step_values f = {.hparams = hparams};

    *chain = (apr_chain){0};
    for (int i = 0; i < APR_RULE_STEPS && rule->to_ggml[i].kind != APR_STEP_NONE; i++) {
        const apr_step step = fill_step(&rule->to_ggml[i], &f);
        if (applies(family, &step, keeps_tiles) && !apr_chain_append(chain, step)) return false;
    }
    return true;
}

bool apr_rule_from_ggml(const apr_tensor_rule *rule, const apr_family *family, const apr_hparams *hparams, bool keeps_tiles, int64_t expert,
                        apr_chain *chain)
{
    apr_chain to_ggml, back;

    if (!apr_rule_to_ggml(rule, family, hparams, keeps_tiles, &to_ggml) || !apr_chain_inverse(&to_ggml, &back)) return false;
    *chain = expert >= 0 ? apr_chain_of((apr_step){APR_STEP_PICK, {(int32_t)expert}}) : (apr_chain){0};
    return apr_chain_extend(chain, &back);
}

apr_chain apr_whole_chain(const apr_tensor_form *form)
{
    static const apr_chain one = {0}, mxfp4 = {2, {{APR_STEP_JOIN, {0, 1}}, {.kind = APR_STEP_PACK_MXFP4}}};
    return form->scales != NULL ? mxfp4 : one;
}

/* Half of the whole's axis, which is the whole axis of the part. */
static int64_t half_of(const apr_rule_step *step, const apr_shape *shape, bool from_whole)
{
    const int at = shape->rank - 1 - step->n[0];
    if (step->kind != APR_STEP_TAKE || step->n[0] < 0 || at < 0) return 0;
    return from_whole ? shape->dims[at] / 2 : shape->dims[at];
}

bool apr_part_chain(const apr_tensor_form *form, int part, const apr_hparams *hparams, const apr_shape *shape, bool from_whole,
                    int64_t expert, apr_chain *chain)
{
    const apr_rule_step *const steps = form->parts[part].steps;
    apr_shape at = *shape;
    apr_move move;

    *chain = apr_whole_chain(form);
    if (expert >= 0) {
        const apr_step pick = {.kind = APR_STEP_PICK, .n = {(int32_t)expert}};
        if (from_whole && apr_step_plan(&pick, &at, &move) != NULL) return false;
        if (!apr_chain_append(chain, pick)) return false;
    }
    for (int i = 0; i < APR_FORM_STEPS && steps[i].kind != APR_STEP_NONE; i++) {
        const step_values f = {.hparams = hparams, .half = half_of(&steps[i], &at, from_whole)};
        const apr_step step = fill_step(&steps[i], &f);
        if (from_whole && apr_step_plan(&step, &at, &move) != NULL) return false;
        if (!apr_chain_append(chain, step)) return false;
    }
    return true;
}
