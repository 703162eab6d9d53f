// theirs.cpp - llama.cpp's word on a GGUF, for llamacpp.sh:
//   theirs ids MODEL TEXTS       one line of ids for each text, special tokens recognised; then again with them as text
//   theirs logits MODEL IDS OUT  f32 logits of every position, of the ids as one prompt
//   theirs steps MODEL IDS OUT   the same, one id after the other
//   theirs loads MODEL           exit 0: the whole model loads
//   theirs stops MODEL           the tokens that end generation, a line each: id and text; only the vocabulary is loaded
#include "llama.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

static void quiet(ggml_log_level level, const char *text, void *)
{
    if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

static llama_model *load(const char *path, bool vocab_only)
{
    llama_model_params params = llama_model_default_params();
    params.vocab_only = vocab_only;
    return llama_model_load_from_file(path, params);
}

static int loads(const char *path)
{
    llama_model *const model = load(path, false);
    if (model == nullptr) return 3;
    llama_model_free(model);
    return 0;
}

static int ids_of(const char *path, const char *texts)
{
    llama_model *const model = load(path, true);
    if (model == nullptr) return 3;
    const llama_vocab *const vocab = llama_model_get_vocab(model);
    for (int parse_special = 1; parse_special >= 0; parse_special--) {
        std::ifstream in(texts, std::ios::binary);
        uint32_t n;
        while (in.read(reinterpret_cast<char *>(&n), 4)) {
            std::string text(n, '\0');
            in.read(&text[0], n);
            std::vector<llama_token> ids(n + 16);
            const int k = llama_tokenize(vocab, text.data(), (int)n, ids.data(), (int)ids.size(), true, parse_special != 0);
            if (k < 0) return 4;
            for (int i = 0; i < k; i++) printf("%d ", ids[i]);
            printf("\n");
        }
    }
    return 0;
}

static int stops_of(const char *path)
{
    llama_model *const model = load(path, true);
    if (model == nullptr) return 3;
    const llama_vocab *const vocab = llama_model_get_vocab(model);
    for (llama_token id = 0; id < llama_vocab_n_tokens(vocab); id++)
        if (llama_vocab_is_eog(vocab, id)) printf("%d %s\n", id, llama_vocab_get_text(vocab, id));
    return 0;
}

static llama_context *context_of(llama_model *model)
{
    llama_context_params params = llama_context_default_params();
    params.n_ctx = params.n_batch = params.n_ubatch = 512;
    params.n_threads = params.n_threads_batch = 2;
    params.type_k = params.type_v = GGML_TYPE_F32;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    return llama_init_from_model(model, params);
}

static bool decode(llama_context *context, const std::vector<llama_token> &ids, size_t first, size_t n)
{
    llama_batch batch = llama_batch_init((int)n, 0, 1);
    for (size_t i = 0; i < n; i++) {
        batch.token[i] = ids[first + i];
        batch.pos[i] = (llama_pos)(first + i);
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = 1;
    }
    batch.n_tokens = (int)n;
    const bool is_done = llama_decode(context, batch) == 0;
    llama_batch_free(batch);
    return is_done;
}

static int logits_of(const char *path, const char *ids_path, const char *out_path, bool by_steps)
{
    llama_model *const model = load(path, false);
    if (model == nullptr) return 3;
    llama_context *const context = context_of(model);
    if (context == nullptr) return 3;
    std::ifstream in(ids_path);
    std::vector<llama_token> ids;
    for (llama_token id; in >> id;) ids.push_back(id);
    const size_t n_vocab = (size_t)llama_vocab_n_tokens(llama_model_get_vocab(model)), at_once = by_steps ? 1 : ids.size();
    std::ofstream out(out_path, std::ios::binary);
    for (size_t i = 0; i < ids.size(); i += at_once) {
        if (!decode(context, ids, i, at_once)) return 4;
        out.write(reinterpret_cast<const char *>(llama_get_logits(context)), (std::streamsize)(4 * n_vocab * at_once));
    }
    out.close();
    return out.good() ? 0 : 3;
}

int main(int argc, char **argv)
{
    llama_log_set(quiet, nullptr);
    llama_backend_init();
    int code = 2;
    if (argc == 4 && strcmp(argv[1], "ids") == 0) code = ids_of(argv[2], argv[3]);
    if (argc == 3 && strcmp(argv[1], "loads") == 0) code = loads(argv[2]);
    if (argc == 3 && strcmp(argv[1], "stops") == 0) code = stops_of(argv[2]);
    if (argc == 5 && strcmp(argv[1], "logits") == 0) code = logits_of(argv[2], argv[3], argv[4], false);
    if (argc == 5 && strcmp(argv[1], "steps") == 0) code = logits_of(argv[2], argv[3], argv[4], true);
    fflush(nullptr);
    _Exit(code); // without its global destructors
}
