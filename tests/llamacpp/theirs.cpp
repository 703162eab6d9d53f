// theirs.cpp - llama.cpp's word on a GGUF, for run.sh:
//   theirs ids MODEL TEXTS       one line of ids for each text, special tokens recognised; then again with them as text
//   theirs logits MODEL IDS OUT  f32 logits of every position
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

static int logits_of(const char *path, const char *ids_path, const char *out_path)
{
    llama_model *const model = load(path, false);
    if (model == nullptr) return 3;
    llama_context_params params = llama_context_default_params();
    params.n_ctx = params.n_batch = params.n_ubatch = 512;
    params.n_threads = params.n_threads_batch = 2;
    params.type_k = params.type_v = GGML_TYPE_F32;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    llama_context *const context = llama_init_from_model(model, params);
    if (context == nullptr) return 3;
    std::ifstream in(ids_path);
    std::vector<llama_token> ids;
    for (llama_token id; in >> id;) ids.push_back(id);
    llama_batch batch = llama_batch_init((int)ids.size(), 0, 1);
    for (size_t i = 0; i < ids.size(); i++) {
        batch.token[i] = ids[i];
        batch.pos[i] = (llama_pos)i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = 1;
    }
    batch.n_tokens = (int)ids.size();
    if (llama_decode(context, batch) != 0) return 4;
    const size_t n_vocab = (size_t)llama_vocab_n_tokens(llama_model_get_vocab(model));
    std::ofstream out(out_path, std::ios::binary);
    out.write(reinterpret_cast<const char *>(llama_get_logits(context)), (std::streamsize)(4 * n_vocab * ids.size()));
    return out.good() ? 0 : 3;
}

int main(int argc, char **argv)
{
    llama_log_set(quiet, nullptr);
    llama_backend_init();
    int code = 2;
    if (argc == 4 && strcmp(argv[1], "ids") == 0) code = ids_of(argv[2], argv[3]);
    if (argc == 5 && strcmp(argv[1], "logits") == 0) code = logits_of(argv[2], argv[3], argv[4]);
    fflush(nullptr);
    _Exit(code); // without its global destructors
}
