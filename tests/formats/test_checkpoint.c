/* What a checkpoint asks for is computed, in all three containers, or refused by name; the files next to it are kept or named. */
#define _XOPEN_SOURCE 700
#include "convert/naming.h"
#include "convert/run.h"
#include "formats/base/bytes.h"
#include "formats/base/json.h"
#include "formats/number/half.h"
#include "runtime/session/session.h"
#include "tests/support/golden_model.h"
#include "tests/support/work_folder.h"

#include <math.h>

/* --- small checkpoints, made up --- */

enum { VOCAB = 40, HIDDEN = 24, WIDTH = 28, LAYERS = 3, HEADS = 4, KV_HEADS = 2, HEAD_DIM = 8, N_IDS = 14, MAX_TENSORS = 64 };

#define SIZES                                                                                                          \
    "\"vocab_size\":40,\"hidden_size\":24,\"intermediate_size\":28,\"num_hidden_layers\":3,\"num_attention_heads\":4," \
    "\"num_key_value_heads\":2,\"head_dim\":8,\"max_position_embeddings\":64,\"rms_norm_eps\":1e-6,\"rope_theta\":10000.0"

/* Good until the next call. */
static const char *inside(const char *folder, const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* Number i of a tensor: FNV-1a of the name, splitmix64, the four low bytes added up; the same everywhere. */
static float number_of(const char *name, uint64_t i, double mean, double deviation)
{
    uint64_t z = 0xcbf29ce484222325u;
    for (; *name != '\0'; name++) z = (z ^ (uint8_t)*name) * 0x100000001b3u;
    z += 7 + (i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    const int t = (int)((z & 255) + (z >> 8 & 255) + (z >> 16 & 255) + (z >> 24 & 255)) - 510;
    return (float)(mean + deviation * ((double)t / 147.8));
}

typedef struct entry {
    char name[64];
    int64_t rows, columns; /* rows 0: a vector */
    double mean, deviation;
} entry;

typedef struct checkpoint {
    entry entries[MAX_TENSORS];
    size_t n;
} checkpoint;

static void add(checkpoint *c, const char *name, int64_t rows, int64_t columns, double mean, double deviation)
{
    entry *const e = &c->entries[c->n++];
    assert_true(c->n <= MAX_TENSORS);
    *e = (entry){.rows = rows, .columns = columns, .mean = mean, .deviation = deviation};
    snprintf(e->name, sizeof e->name, "%s", name);
}

static void add_linear(checkpoint *c, int layer, const char *which, int64_t rows, int64_t columns, bool bias)
{
    char name[64];
    snprintf(name, sizeof name, "model.layers.%d.%s_proj.weight", layer, which);
    add(c, name, rows, columns, 0, 0.3);
    snprintf(name, sizeof name, "model.layers.%d.%s_proj.bias", layer, which);
    if (bias) add(c, name, 0, rows, 0, 0.3);
}

static checkpoint tensors_of(bool qkv_bias, bool o_bias, bool mlp_bias)
{
    checkpoint c = {.n = 0};
    char name[64];

    add(&c, "model.embed_tokens.weight", VOCAB, HIDDEN, 0, 1);
    add(&c, "model.norm.weight", 0, HIDDEN, 1, 0.1);
    for (int i = 0; i < LAYERS; i++) {
        snprintf(name, sizeof name, "model.layers.%d.input_layernorm.weight", i);
        add(&c, name, 0, HIDDEN, 1, 0.1);
        snprintf(name, sizeof name, "model.layers.%d.post_attention_layernorm.weight", i);
        add(&c, name, 0, HIDDEN, 1, 0.1);
        add_linear(&c, i, "self_attn.q", HEADS * HEAD_DIM, HIDDEN, qkv_bias);
        add_linear(&c, i, "self_attn.k", KV_HEADS * HEAD_DIM, HIDDEN, qkv_bias);
        add_linear(&c, i, "self_attn.v", KV_HEADS * HEAD_DIM, HIDDEN, qkv_bias);
        add_linear(&c, i, "self_attn.o", HIDDEN, HEADS * HEAD_DIM, o_bias);
        add_linear(&c, i, "mlp.gate", WIDTH, HIDDEN, mlp_bias);
        add_linear(&c, i, "mlp.up", WIDTH, HIDDEN, mlp_bias);
        add_linear(&c, i, "mlp.down", HIDDEN, WIDTH, mlp_bias);
    }
    return c;
}

static int64_t n_elems(const entry *e) { return (e->rows > 0 ? e->rows : 1) * e->columns; }

static char *header_of(const checkpoint *c, size_t *n_bytes)
{
    apr_json_text out = {0};
    int64_t at = 0;

    apr_json_open(&out, NULL, '{');
    for (size_t i = 0; i < c->n; i++) {
        const entry *const e = &c->entries[i];
        apr_json_open(&out, e->name, '{');
        apr_json_string(&out, "dtype", "F32", 3);
        apr_json_open(&out, "shape", '[');
        if (e->rows > 0) apr_json_int(&out, NULL, e->rows);
        apr_json_int(&out, NULL, e->columns);
        apr_json_close(&out, ']');
        apr_json_open(&out, "data_offsets", '[');
        apr_json_int(&out, NULL, at);
        apr_json_int(&out, NULL, at += 4 * n_elems(e));
        apr_json_close(&out, ']');
        apr_json_close(&out, '}');
    }
    apr_json_close(&out, '}');
    return apr_json_text_take(&out, n_bytes);
}

/* Weights of that list and this config.json, in a new folder. */
static void make_checkpoint(const char *folder, const checkpoint *c, const char *config)
{
    uint8_t length[8], number[4];
    size_t n_header;
    char *const header = header_of(c, &n_header);

    assert_non_null(header);
    mkdir(in_work(folder), 0777);
    FILE *const f = fopen(in_work(inside(folder, "model.safetensors")), "wb");
    assert_non_null(f);
    apr_store_le64(length, (n_header + 7) / 8 * 8);
    fwrite(length, 1, sizeof length, f);
    fprintf(f, "%-*s", (int)((n_header + 7) / 8 * 8), header);
    for (size_t t = 0; t < c->n; t++)
        for (int64_t i = 0; i < n_elems(&c->entries[t]); i++) {
            const entry *const e = &c->entries[t];
            apr_store_le32(number, apr_f32_bits(number_of(e->name, (uint64_t)i, e->mean, e->deviation)));
            fwrite(number, 1, sizeof number, f);
        }
    assert_int_equal(fclose(f), 0);
    free(header);
    write_file(in_work(inside(folder, "config.json")), config, strlen(config));
}

/* --- opening, converting, computing --- */

static apr_status convert_with(const char *in, const char *out, apr_profile profile, char *notes, size_t n_notes, apr_error *err)
{
    const apr_convert_options options = {.format = apr_format_of_path(out), .sink = {.overwrite = true, .profile = profile}};
    apr_model source;
    apr_conversion c = {0};
    apr_status status = apr_model_open(&source, in, err);

    if (status == APR_OK) status = apr_conversion_plan(&c, &source, &options, err);
    if (notes != NULL) *notes = '\0';
    for (size_t i = 0; notes != NULL && i < c.losses.n_items; i++)
        snprintf(notes + strlen(notes), n_notes - strlen(notes), "%s\n", c.losses.items[i].text);
    if (status == APR_OK) status = apr_conversion_run(&c, &(apr_convert_run){0}, out, NULL, err);
    apr_conversion_close(&c);
    apr_model_close(&source);
    return status;
}

static void must_convert(const char *in, const char *out, char *notes, size_t n_notes)
{
    apr_error err = {0};
    char from[128];
    snprintf(from, sizeof from, "%s", in_work(in));
    if (convert_with(from, in_work(out), APR_PROFILE_DEFAULT, notes, n_notes, &err) != APR_OK) fail_msg("%s", err.text);
}

/* Logits of the last of the ids, or the failure. */
static apr_status logits_of(const char *name, float *logits, apr_error *err)
{
    apr_session_options options = apr_session_defaults;
    apr_model source = {0}, model = {0};
    apr_session *session = NULL;
    int32_t ids[N_IDS];

    for (int i = 0; i < N_IDS; i++) ids[i] = (7 * i * i + 3 * i + 1) % VOCAB;
    options.kv_dtype = APR_F32;
    apr_status status = apr_model_open(&source, in_work(name), err);
    if (status == APR_OK) status = apr_canonical(&model, &source, err);
    if (status == APR_OK) status = apr_session_open(&session, &model, &options, err);
    if (status == APR_OK) status = apr_session_eval(session, ids, N_IDS, NULL, err);
    if (status == APR_OK) memcpy(logits, apr_session_logits(session), VOCAB * sizeof *logits);
    apr_session_close(session);
    apr_model_close(&model);
    apr_model_close(&source);
    return status;
}

static void assert_logits(const char *name, const float *wanted)
{
    float logits[VOCAB];
    apr_error err = {0};
    double largest = 0;

    if (logits_of(name, logits, &err) != APR_OK) fail_msg("%s", err.text);
    for (int i = 0; i < VOCAB; i++) largest = fmax(largest, fabs((double)wanted[i]));
    const double off = largest_difference(logits, wanted, VOCAB);
    if (!(off <= 5e-5 * largest)) fail_msg("%s: logits off by %g of %g", name, off, largest);
}

static void assert_refused_as(const char *name, const char *part, apr_status wanted)
{
    float logits[VOCAB];
    apr_error err = {0};
    const apr_status status = logits_of(name, logits, &err);
    if (status != wanted || strstr(err.text, part) == NULL) fail_msg("%s: %d, %s", name, status, err.text);
}

static void assert_refused(const char *name, const char *part) { assert_refused_as(name, part, APR_E_UNSUPPORTED); }

/* --- arithmetic: logits of the last token as numpy computes them in float64 from transformers' formulas --- */

static const float llama_biases[] = {0.5704944f, 6.759115f, 1.058753f,  2.935331f,  -5.771511f, 10.21079f,  -6.969972f, 3.391374f,
                                     -1.043717f, 2.079573f, -7.462859f, -8.134409f, -2.441926f, -4.112544f, 2.298921f,  -1.006661f,
                                     1.846623f,  -6.96208f, 2.392673f,  3.724963f,  8.265513f,  2.962642f,  9.579809f,  14.5177f,
                                     8.168699f,  3.048765f, -2.937612f, -3.044344f, -5.46107f,  -4.436275f, 7.026992f,  0.9030545f,
                                     -4.647661f, 1.038703f, -2.380533f, -7.051197f, 9.715369f,  0.7930676f, 2.820179f,  -9.097475f};
static const float qwen2_yarn[] = {5.785637f,  -5.671503f,   3.839367f,  -2.864597f, -5.942108f,  1.133511f,   -4.661693f, -6.045096f,
                                   -1.191836f, 4.563003f,    -3.872133f, 3.353495f,  -0.7399019f, -3.778568f,  -2.160004f, 10.33721f,
                                   5.05834f,   -4.458486f,   4.634405f,  -1.984803f, 9.040574f,   -0.4447583f, 2.630648f,  5.007395f,
                                   4.112615f,  -4.462136f,   -0.25647f,  3.404876f,  -9.195107f,  -1.285195f,  0.3392955f, -3.923897f,
                                   -4.969362f, -0.08634769f, -1.871676f, -15.4677f,  10.32627f,   3.850201f,   -3.293195f, 6.734719f};
static const float qwen2_window[] = {7.246342f,  -5.066135f, 3.289433f,  -5.682102f, -4.899189f, 0.2485293f, -2.20398f,  -2.341565f,
                                     -2.074584f, 2.641205f,  -3.061048f, 2.694884f,  2.286086f,  -3.309887f, -2.351928f, 10.77374f,
                                     6.24618f,   -5.240503f, 5.117152f,  -2.774983f, 5.001616f,  3.151191f,  4.813087f,  3.533174f,
                                     2.779927f,  -2.894921f, 0.4511396f, 3.877765f,  -9.983005f, 1.107834f,  -2.170888f, -2.465009f,
                                     -1.469278f, 0.5793017f, -1.38093f,  -10.73138f, 7.853214f,  5.913403f,  -2.046393f, 3.082999f};

#define LLAMA "{\"model_type\":\"llama\"," SIZES ",\"tie_word_embeddings\":true"
#define QWEN2 "{\"model_type\":\"qwen2\"," SIZES ",\"tie_word_embeddings\":true"
#define UNTIED                                                          \
    "{\"model_type\":\"llama\"," SIZES ",\"tie_word_embeddings\":false" \
    ",\"attention_bias\":true,\"mlp_bias\":true,\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.0}}"
#define BIASED LLAMA ",\"attention_bias\":true,\"mlp_bias\":true,\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.0}}"

static void all_biases_of_a_llama_are_added(void **state)
{
    const checkpoint c = tensors_of(true, true, true);

    (void)state;
    make_checkpoint("biases", &c, BIASED);
    assert_logits("biases", llama_biases);
    must_convert("biases", "biases.apr", NULL, 0);
    must_convert("biases.apr", "biases.gguf", NULL, 0);
    must_convert("biases.gguf", "biases2", NULL, 0); /* config.json made from what the tensors show */
    assert_logits("biases.apr", llama_biases);
    assert_logits("biases.gguf", llama_biases);
    assert_logits("biases2", llama_biases);
}

static void scaled_and_windowed_attention_is_that_of_transformers(void **state)
{
    const checkpoint c = tensors_of(true, false, false);

    (void)state;
    make_checkpoint("yarn", &c,
                    QWEN2 ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":8.0,\"original_max_position_embeddings\":16,"
                          "\"mscale\":1.0,\"mscale_all_dim\":0.5}}");
    assert_logits("yarn", qwen2_yarn);
    make_checkpoint("window", &c, QWEN2 ",\"use_sliding_window\":true,\"sliding_window\":5,\"max_window_layers\":1}");
    assert_logits("window", qwen2_window);
    must_convert("window", "window.apr", NULL, 0);
    assert_logits("window.apr", qwen2_window);
}

/* A GGUF may hold biases of q, k and v alone; transformers' llama also has those of o, or none. */
static void biases_that_no_config_can_say_are_named(void **state)
{
    const checkpoint c = tensors_of(true, false, false);
    char config[600], notes[1000], from[128];
    apr_error err = {0};

    (void)state;
    snprintf(config, sizeof config, "%s}", LLAMA ",\"attention_bias\":true");
    make_checkpoint("qkv", &c, config);
    must_convert("qkv", "qkv.gguf", NULL, 0);
    snprintf(from, sizeof from, "%s", in_work("qkv.gguf"));
    assert_int_equal(convert_with(from, in_work("qkv2"), APR_PROFILE_DEFAULT, notes, sizeof notes, &err), APR_E_UNSUPPORTED);
    assert_non_null(strstr(notes, "none called '*.self_attn.o_proj.bias'"));
}

static void what_is_not_done_is_refused_by_name(void **state)
{
    static const char *const words[] = {"gelu", "relu"};
    const checkpoint c = tensors_of(true, true, true), plain = tensors_of(false, false, false);

    (void)state;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char config[600], from[128];
        apr_error err = {0};
        snprintf(config, sizeof config, LLAMA ",\"hidden_act\":\"%s\"}", words[i]);
        make_checkpoint("act", &plain, config);
        assert_refused("act", "\"hidden_act\" is");
        must_convert("act", "act.apr", NULL, 0); /* it can be carried, and still not be run */
        assert_refused("act.apr", words[i]);
        snprintf(from, sizeof from, "%s", in_work("act"));
        assert_int_equal(convert_with(from, in_work("act.gguf"), APR_PROFILE_DEFAULT, NULL, 0, &err), APR_E_UNSUPPORTED);
        assert_non_null(strstr(err.text, words[i]));
    }
    make_checkpoint("stray", &c, LLAMA ",\"attention_bias\":true}"); /* transformers would compute without the others */
    assert_refused("stray", "mlp.gate_proj.bias");
    make_checkpoint("stray", &c, LLAMA "}");
    assert_refused("stray", "self_attn.q_proj.bias");
    must_convert("stray", "stray.apr", NULL, 0);
    assert_refused("stray.apr", "self_attn.q_proj.bias");
}

static void no_tensor_is_left_out_silently(void **state)
{
    static const char *const names[] = {"lm_head.bias", "model.layers.0.self_attn.q_norm.weight", "model.layers.3.mlp.up_proj.weight",
                                        "model.embed_positions.weight"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        checkpoint c = tensors_of(false, false, false);
        add(&c, names[i], 0, 8, 0, 1);
        make_checkpoint("extra", &c, LLAMA "}");
        assert_refused_as("extra", names[i], strstr(names[i], "layers.3.") != NULL ? APR_E_DAMAGED : APR_E_UNSUPPORTED);
    }
    float logits[VOCAB];
    checkpoint c = tensors_of(false, false, false);
    add(&c, "model.layers.0.self_attn.rotary_emb.inv_freq", 0, 4, 0, 1);
    add(&c, "mtp.fc.weight", 0, 4, 0, 1);
    make_checkpoint("extra", &c, LLAMA "}");
    assert_int_equal(logits_of("extra", logits, NULL), APR_OK);
}

/* Each once made the editor of config.json read past its end, in files that were found to be good. */
static void a_damaged_config_inside_an_apr_is_found_on_opening(void **state)
{
    static const struct {
        const char *text;
        size_t n; /* 0: strlen */
    } cases[] = {{"", 0},
                 {"{", 0},
                 {"{\"", 0},
                 {"{\"dtype\": \"x", 0},
                 {"{\"a\": [[[", 0},
                 {"{\"a\":1}\0{", 9},
                 {"[]", 0},
                 {"{\"a\":1,\"a\":2}", 0}};
    const checkpoint c = tensors_of(false, false, false);
    const apr_convert_options options = {.format = APR_FORMAT_APR, .sink = {.overwrite = true}};

    (void)state;
    make_checkpoint("sound", &c, LLAMA "}");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const size_t n = cases[i].n > 0 ? cases[i].n : strlen(cases[i].text);
        const apr_attachment config = {"config.json", (const uint8_t *)cases[i].text, n};
        apr_conversion conversion;
        apr_error err = {0};
        apr_model m;
        assert_int_equal(apr_model_open(&m, in_work("sound"), NULL), APR_OK);
        m.attachments = &config;
        m.n_attachments = 1;
        assert_int_equal(apr_conversion_plan(&conversion, &m, &options, &err), APR_OK);
        assert_int_equal(apr_conversion_run(&conversion, &(apr_convert_run){0}, in_work("damaged.apr"), NULL, &err),
                         APR_E_UNSUPPORTED); /* it is read back */
        apr_conversion_close(&conversion);
        apr_model_close(&m);
        if (strstr(err.text, "its config.json") == NULL) fail_msg("%s gave: %s", cases[i].text, err.text);
        assert_int_equal(access(in_work("damaged.apr"), F_OK), -1);
    }
}

/* --- a tied model with an output head of its own: transformers computes with the embedding --- */

static bool has_tensor(const char *path, const char *name)
{
    apr_model m;
    assert_int_equal(apr_model_open(&m, in_work(path), NULL), APR_OK);
    const bool found = apr_model_find(&m, name) != NULL;
    apr_model_close(&m);
    return found;
}

/* transformers 5 does not tie what differs, and llama.cpp keeps output.weight. */
static void a_head_of_its_own_is_used_whatever_config_says(void **state)
{
    checkpoint c = tensors_of(true, true, true);
    float wanted[VOCAB];
    char notes[1000];

    (void)state;
    add(&c, "lm_head.weight", VOCAB, HIDDEN, 0, 1);
    make_checkpoint("untied", &c, UNTIED);
    assert_int_equal(logits_of("untied", wanted, NULL), APR_OK);
    make_checkpoint("head", &c, BIASED);
    assert_logits("head", wanted);
    must_convert("head", "head.apr", notes, sizeof notes);
    assert_non_null(strstr(notes, "'lm_head.weight' is used"));
    assert_logits("head.apr", wanted);
    must_convert("head.apr", "head2", NULL, 0);
    assert_same_file(in_work("head/model.safetensors"), in_work("head2/model.safetensors"));
    must_convert("head.apr", "head.gguf", NULL, 0);
    assert_true(has_tensor("head.gguf", "output.weight"));
    assert_logits("head.gguf", wanted);
}

/* Names the entry's numbers after another tensor: an equal copy. */
static void overwrite_with_embedding(const char *path)
{
    uint8_t *bytes;
    apr_map map;
    assert_int_equal(apr_map_open(&map, in_work(path), NULL), APR_OK);
    const size_t n = map.n_bytes, n_head = (size_t)VOCAB * HIDDEN * 4, first = 8 + (size_t)apr_load_le64(map.data);
    bytes = malloc(n);
    assert_non_null(bytes);
    memcpy(bytes, map.data, n);
    memcpy(bytes + n - n_head, bytes + first, n_head); /* the head is the last tensor, the embedding the first */
    apr_map_close(&map);
    write_file(in_work(path), bytes, n);
    free(bytes);
}

/* aprender's readers need one. */
static void lend_tokenizer(const char *folder)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json", "generation_config.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        apr_map map;
        assert_int_equal(apr_map_open(&map, inside("tests/data/tiny-qwen2", names[i]), NULL), APR_OK);
        write_file(in_work(inside(folder, names[i])), map.data, map.n_bytes);
        apr_map_close(&map);
    }
}

static void an_equal_head_comes_back_too(void **state)
{
    checkpoint c = tensors_of(true, true, true);
    apr_error err = {0};
    char from[128];

    (void)state;
    add(&c, "lm_head.weight", VOCAB, HIDDEN, 0, 1);
    make_checkpoint("equal", &c, BIASED);
    overwrite_with_embedding("equal/model.safetensors");
    must_convert("equal", "equal.apr", NULL, 0);
    must_convert("equal.apr", "equal2", NULL, 0);
    assert_same_file(in_work("equal/model.safetensors"), in_work("equal2/model.safetensors"));

    /* but a copy that we made for aprender goes again */
    const checkpoint tied = tensors_of(true, true, true);
    make_checkpoint("tied", &tied, BIASED);
    lend_tokenizer("tied");
    snprintf(from, sizeof from, "%s", in_work("tied"));
    if (convert_with(from, in_work("tied.apr"), APR_PROFILE_APRENDER, NULL, 0, &err) != APR_OK) fail_msg("%s", err.text);
    assert_true(has_tensor("tied.apr", "lm_head.weight"));
    must_convert("tied.apr", "tied2", NULL, 0);
    assert_same_file(in_work("tied/model.safetensors"), in_work("tied2/model.safetensors"));

    /* and aprender, which has no ties, gets the head that is used */
    make_checkpoint("own", &c, BIASED);
    lend_tokenizer("own");
    snprintf(from, sizeof from, "%s", in_work("own"));
    if (convert_with(from, in_work("own.apr"), APR_PROFILE_APRENDER, NULL, 0, &err) != APR_OK) fail_msg("%s", err.text);
    apr_model m;
    assert_int_equal(apr_model_open(&m, in_work("own.apr"), NULL), APR_OK);
    const apr_tensor *const head = apr_model_find(&m, "lm_head.weight"), *const embedding = apr_model_find(&m, "model.embed_tokens.weight");
    assert_true(head->n_bytes == embedding->n_bytes);
    assert_memory_not_equal(head->data, embedding->data, head->n_bytes);
    apr_model_close(&m);
}

/* --- the files next to the weights --- */

static void files_to_be_read_travel_and_the_others_are_named(void **state)
{
    static const char *const travel[] = {"README.md",
                                         "LICENSE",
                                         "NOTICE",
                                         "USE_POLICY.md",
                                         "preprocessor_config.json",
                                         "video_processor.json",
                                         "extra.jinja",
                                         "tokenizer.model.v3.txt",
                                         "Licence.rst"};
    static const char *const stay[] = {"modeling_x.py", "pytorch_model.bin", "adapter.safetensors", "README.py",
                                       "big.txt",       "stolen.md",         "golden.json",         "new\nline.md"};
    const checkpoint c = tensors_of(false, false, false);
    char notes[1000], path[64], back[64];

    (void)state;
    make_checkpoint("next", &c, LLAMA "}");
    for (size_t i = 0; i < sizeof travel / sizeof *travel; i++)
        write_file(in_work(inside("next", travel[i])), travel[i], strlen(travel[i]));
    for (size_t i = 0; i < 5; i++) write_file(in_work(inside("next", stay[i])), "x", i == 0 ? 0 : 1);
    write_file(in_work("next/golden.json"), "{}", 2);
    write_file(in_work("next/new\nline.md"), "x", 1);
    write_file(in_work("next/.gitattributes"), "x", 1);
    assert_int_equal(truncate(in_work("next/big.txt"), (16 << 20) + 1), 0);
    write_file(in_work("secret"), "my key", 6);
    assert_int_equal(symlink(".."
                             "/secret",
                             in_work("next/stolen.md")),
                     0);
    mkdir(in_work("blobs"), 0777); /* a hub's cache keeps files elsewhere, under their checksums */

    must_convert("next", "next.apr", notes, sizeof notes);
    for (size_t i = 0; i < 7; i++)
        if (strstr(notes, stay[i]) == NULL) fail_msg("%s is not named in: %s", stay[i], notes);
    assert_null(strstr(notes, "README.md"));
    assert_null(strstr(notes, ".gitattributes"));
    must_convert("next.apr", "next2", NULL, 0);
    for (size_t i = 0; i < sizeof travel / sizeof *travel; i++) {
        snprintf(path, sizeof path, "next/%s", travel[i]);
        snprintf(back, sizeof back, "next2/%s", travel[i]);
        assert_same_file(in_work(path), in_work(back));
    }
    assert_same_file(in_work("next/model.safetensors"), in_work("next2/model.safetensors"));
    assert_same_file(in_work("next/config.json"), in_work("next2/config.json"));
    for (size_t i = 0; i < sizeof stay / sizeof *stay; i++) assert_int_not_equal(access(in_work(inside("next2", stay[i])), F_OK), 0);
    must_convert("next", "next.gguf", notes, sizeof notes);
    assert_non_null(strstr(notes, "a GGUF holds no files"));
    assert_non_null(strstr(notes, "LICENSE"));
}

/* A file that was named may be in any folder: its folder's README is not the model's. */
static void next_to_a_named_file_only_what_loaders_know_is_taken(void **state)
{
    apr_model m;

    (void)state;
    assert_int_equal(apr_model_open(&m, in_work("next/model.safetensors"), NULL), APR_OK);
    assert_null(apr_model_attachment(&m, "README.md"));
    assert_non_null(apr_model_attachment(&m, "config.json"));
    assert_non_null(apr_model_attachment(&m, "preprocessor_config.json"));
    assert_null(m.not_copied);
    apr_model_close(&m);
}

/* The cache of a hub: snapshots/REVISION/NAME is a link to ../../blobs/CHECKSUM. */
static void links_of_a_hubs_cache_are_files(void **state)
{
    const checkpoint c = tensors_of(false, false, false);
    apr_model m;

    (void)state;
    mkdir(in_work("snapshots"), 0777);
    make_checkpoint("snapshots/1234", &c, LLAMA "}");
    write_file(in_work("blobs/abcd"), "read me", 7);
    assert_int_equal(symlink(".."
                             "/../blobs/abcd",
                             in_work("snapshots/1234/README.md")),
                     0);
    assert_int_equal(symlink(".."
                             "/../blobs/../secret",
                             in_work("snapshots/1234/LICENSE")),
                     0);
    assert_int_equal(apr_model_open(&m, in_work("snapshots/1234"), NULL), APR_OK);
    assert_non_null(apr_model_attachment(&m, "README.md"));
    assert_null(apr_model_attachment(&m, "LICENSE"));
    assert_string_equal(m.not_copied, "LICENSE");
    apr_model_close(&m);
}

/* Links to anything of the user's are read, as a loader reads them, and travel nowhere. */
static void links_out_of_the_folder_do_not_travel(void **state)
{
    const checkpoint c = tensors_of(false, false, false);
    static const char *const folders[] = {"archive/inner", "models--org--x", "models--org--x/blobs"};
    char notes[512];
    apr_model m;

    (void)state;
    make_checkpoint("archive", &c, LLAMA "}");
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) assert_int_equal(mkdir(in_work(folders[i]), 0777), 0);
    write_file(in_work("secret"), "PRIVATE", 7);
    write_file(in_work("models--org--x/blobs/abcd"), "{}", 2);
    write_file(in_work("archive/inner/own.json"), "{}", 2);
    assert_int_equal(symlink("../secret", in_work("archive/vocab.json")), 0);
    assert_int_equal(symlink(in_work("models--org--x/blobs/abcd"), in_work("archive/added_tokens.json")), 0);
    assert_int_equal(symlink("inner/own.json", in_work("archive/preprocessor_config.json")), 0);
    assert_int_equal(symlink("inner/way_out", in_work("archive/processor_config.json")), 0);
    assert_int_equal(symlink("../../secret", in_work("archive/inner/way_out")), 0);
    for (int i = 0; i < 2; i++) {
        apr_error err = {0};
        if (apr_model_open(&m, in_work(i == 0 ? "archive" : "archive/model.safetensors"), &err) != APR_OK) fail_msg("%s", err.text);
        assert_null(apr_model_attachment(&m, "vocab.json"));
        assert_null(apr_model_attachment(&m, "processor_config.json"));
        assert_non_null(apr_model_attachment(&m, "config.json"));
        assert_non_null(apr_model_attachment(&m, "added_tokens.json"));
        assert_non_null(apr_model_attachment(&m, "preprocessor_config.json"));
        assert_non_null(strstr(m.not_copied, "vocab.json (a link out of the folder)"));
        apr_model_close(&m);
    }
    must_convert("archive", "archive.apr", notes, sizeof notes);
    assert_non_null(strstr(notes, "vocab.json (a link out of the folder)"));
}

/* A folder of links to a checkpoint elsewhere: its small files are that one's. */
static void links_to_where_the_weights_are_travel(void **state)
{
    const checkpoint c = tensors_of(false, false, false);
    static const char *const names[] = {"model.safetensors", "config.json", "generation_config.json"};
    char to[256], from[256];
    apr_model m;

    (void)state;
    assert_int_equal(mkdir(in_work("store"), 0777) | mkdir(in_work("farm"), 0777), 0);
    make_checkpoint("store/base", &c, LLAMA "}");
    write_file(in_work("store/base/generation_config.json"), "{}", 2);
    write_file(in_work("farm/README.md"), "read me", 7);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(to, sizeof to, "../store/base/%s", names[i]);
        snprintf(from, sizeof from, "farm/%s", names[i]);
        assert_int_equal(symlink(to, in_work(from)), 0);
    }
    assert_int_equal(apr_model_open(&m, in_work("farm"), NULL), APR_OK);
    assert_int_equal(m.n_attachments, 3);
    assert_non_null(apr_model_attachment(&m, "config.json"));
    assert_non_null(apr_model_attachment(&m, "generation_config.json"));
    assert_null(m.not_copied);
    apr_model_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_biases_of_a_llama_are_added),
        cmocka_unit_test(scaled_and_windowed_attention_is_that_of_transformers),
        cmocka_unit_test(biases_that_no_config_can_say_are_named),
        cmocka_unit_test(what_is_not_done_is_refused_by_name),
        cmocka_unit_test(no_tensor_is_left_out_silently),
        cmocka_unit_test(a_damaged_config_inside_an_apr_is_found_on_opening),
        cmocka_unit_test(a_head_of_its_own_is_used_whatever_config_says),
        cmocka_unit_test(an_equal_head_comes_back_too),
        cmocka_unit_test(files_to_be_read_travel_and_the_others_are_named),
        cmocka_unit_test(next_to_a_named_file_only_what_loaders_know_is_taken),
        cmocka_unit_test(links_of_a_hubs_cache_are_files),
        cmocka_unit_test(links_out_of_the_folder_do_not_travel),
        cmocka_unit_test(links_to_where_the_weights_are_travel),
    };
    return cmocka_run_group_tests_name("checkpoint", tests, make_work, remove_work);
}
