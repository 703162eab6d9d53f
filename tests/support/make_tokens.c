/* make_tokens.c - usage: make_tokens FOLDER|FILE. Encodes texts with the tokenizer of a checkpoint's small files, or of a GGUF or APR;
 * tests/tokenizer_styles.py compares.
 *
 * Reads texts from standard input, each a 32-bit number of bytes (little endian) and the bytes; prints a line for each: its ids, and after
 * a tab the ids of the same text without special tokens around it, decoded, as hexadecimal bytes. A failure is a line "error: ...". */
#include "formats/base/bytes.h"
#include "formats/files/checkpoint_names.h"
#include "formats/files/map.h"
#include "formats/hf/safetensors.h"
#include "formats/open.h"
#include "formats/vocab/hf_tokenizer.h"
#include "runtime/tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_FILES = 64 };

static apr_status read_files(const char *folder, apr_model *model, apr_error *err)
{
    static apr_attachment files[MOST_FILES];
    static apr_map maps[MOST_FILES];
    static const char *const names[] = {"tokenizer.json",
                                        "tokenizer_config.json",
                                        "generation_config.json",
                                        "config.json",
                                        "chat_template.jinja",
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        "vocab.json",
                                        "merges.txt",
                                        "tokenizer.model",
                                        "tiktoken.model",
                                        "tekken.json",
                                        "vocab.txt",
                                        "qwen.tiktoken"};
    char path[4096];

    model->attachments = files;
    model->path = folder;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        if (access(path, F_OK) != 0) continue;
        APR_TRY(apr_map_open(&maps[i], path, err));
        files[model->n_attachments++] = (apr_attachment){names[i], maps[i].data, maps[i].n_bytes};
    }
    return APR_OK;
}

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static void print_ids(const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) printf(i > 0 ? " %d" : "%d", ids[i]);
}

static apr_status answer(const apr_tokenizer *tokenizer, const char *text, size_t n_bytes, apr_error *err)
{
    const apr_encode_options whole = {.add_special = true, .parse_special = true}, plain = {.parse_special = true};
    int32_t *ids = NULL, *inner = NULL;
    size_t n, n_inner, n_back = 0;
    char *back = NULL;

    apr_status status = apr_tokenizer_encode(tokenizer, text, n_bytes, &whole, &ids, &n, err);
    if (status == APR_OK) status = apr_tokenizer_encode(tokenizer, text, n_bytes, &plain, &inner, &n_inner, err);
    if (status == APR_OK) status = apr_tokenizer_decode(tokenizer, inner, n_inner, true, &back, &n_back, err);
    if (status == APR_OK) {
        print_ids(ids, n);
        printf("\t");
        for (size_t i = 0; i < n_back; i++) printf("%02x", (unsigned)(uint8_t)back[i]);
        printf("\n");
    }
    free(ids);
    free(inner);
    free(back);
    return status;
}

int main(int argc, char **argv)
{
    apr_error err = {0};
    apr_arena arena = {0};
    apr_model model = {0};
    apr_vocab vocab;
    apr_tokenizer *tokenizer = NULL;
    uint8_t head[4];

    if (argc != 2) {
        fprintf(stderr, "usage: make_tokens FOLDER|FILE <texts\n");
        return APR_E_USAGE;
    }
    apr_status status = is_folder(argv[1]) ? read_files(argv[1], &model, &err) : apr_model_open_vocab(&model, argv[1], &err);
    if (status == APR_OK && is_folder(argv[1])) status = apr_hf_vocab_read(&model, &vocab, &arena, &err);
    else vocab = model.vocab;
    if (status == APR_OK) status = apr_tokenizer_open(&tokenizer, &vocab, &err);
    if (status != APR_OK) fprintf(stderr, "make_tokens: %s\n", err.text);
    while (status == APR_OK && fread(head, 1, sizeof head, stdin) == sizeof head) {
        const size_t n = apr_load_le32(head);
        char *const text = malloc(n + 1);
        apr_error own = {0};
        if (text == NULL || fread(text, 1, n, stdin) != n) status = APR_E_IO;
        else if (answer(tokenizer, text, n, &own) != APR_OK) printf("error: %s\n", own.text);
        free(text);
    }
    apr_tokenizer_close(tokenizer);
    apr_arena_close(&arena);
    return (int)status;
}
