/* ours.c - the same two answers as theirs.cpp, from the library: ids of texts, logits of ids (as one prompt, or "steps"); and
 * "ours pre MODEL NAME OUT". */
#include "convert/naming.h"
#include "formats/tensor/sink.h"
#include "runtime/session/session.h"
#include "runtime/tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_IDS = 512 };

static int complain(const apr_error *err)
{
    fprintf(stderr, "ours: %s\n", err->text);
    return 3;
}

static int ids_of(const apr_model *model, const char *texts)
{
    apr_error err = {0};
    apr_tokenizer *tokenizer;
    uint32_t n;

    if (apr_tokenizer_open(&tokenizer, &model->vocab, &err) != APR_OK) return complain(&err);
    for (int parse_special = 1; parse_special >= 0; parse_special--) {
        FILE *const in = fopen(texts, "rb");
        while (in != NULL && fread(&n, sizeof n, 1, in) == 1) {
            const apr_encode_options options = {.add_special = true, .parse_special = parse_special != 0};
            char *const text = malloc(n + 1);
            int32_t *ids;
            size_t n_ids;
            if (text == NULL || fread(text, 1, n, in) != n) return 3;
            if (apr_tokenizer_encode(tokenizer, text, n, &options, &ids, &n_ids, &err) != APR_OK) return complain(&err);
            for (size_t i = 0; i < n_ids; i++) printf("%d ", (int)ids[i]);
            printf("\n");
            free(ids);
            free(text);
        }
        if (in == NULL) return 3;
        fclose(in);
    }
    apr_tokenizer_close(tokenizer);
    return 0;
}

static apr_status eval(apr_session *s, const int32_t *ids, size_t n, size_t at_once, float *logits, apr_error *err)
{
    const size_t width = (size_t)apr_session_program(s)->vocab_size;
    for (size_t i = 0; i < n; i += at_once) {
        const apr_eval_output wanted = {.all_logits = true, .logits = logits + i * width};
        APR_TRY(apr_session_eval(s, ids + i, at_once, &wanted, err));
    }
    return APR_OK;
}

static int logits_of(const apr_model *model, const char *ids_path, const char *out_path, bool by_steps)
{
    apr_error err = {0};
    apr_model canonical;
    apr_session *session;
    apr_session_options options = apr_session_defaults;
    int32_t ids[MAX_IDS];
    size_t n = 0;
    FILE *const in = fopen(ids_path, "r"), *const out = fopen(out_path, "wb");

    while (in != NULL && n < MAX_IDS && fscanf(in, "%d", &ids[n]) == 1) n++;
    options.n_ctx = MAX_IDS;
    options.kv_dtype = APR_F32;
    if (in == NULL || out == NULL) return 3;
    if (apr_canonical(&canonical, model, &err) != APR_OK || apr_session_open(&session, &canonical, &options, &err) != APR_OK)
        return complain(&err);
    const size_t n_logits = n * (size_t)apr_session_program(session)->vocab_size;
    float *const logits = malloc(n_logits * sizeof *logits);
    if (logits == NULL || eval(session, ids, n, by_steps ? 1 : n, logits, &err) != APR_OK) return complain(&err);
    const bool written = fwrite(logits, sizeof *logits, n_logits, out) == n_logits;
    fclose(in);
    free(logits);
    apr_session_close(session);
    apr_model_close(&canonical);
    return fclose(out) == 0 && written ? 0 : 3;
}

/* The same GGUF, whose tokenizer says that it splits by another rule. */
static int rename_rule(apr_model *model, const char *pre, const char *out)
{
    apr_error err = {0};
    apr_sink *sink;

    if (apr_kv_set_string(&model->kv, "tokenizer.ggml.pre", apr_str_of(pre), &err) != APR_OK ||
        apr_kv_set_bool(&model->kv, "tokenizer.ggml.add_bos_token", false, &err) != APR_OK || /* the vocabulary has none */
        apr_sink_open(&sink, APR_FORMAT_GGUF, out, model, NULL, &err) != APR_OK)
        return complain(&err);
    for (size_t i = 0; i < model->n_tensors; i++)
        if (apr_sink_put(sink, model->tensors[i].data, (size_t)model->tensors[i].n_bytes, &err) != APR_OK) return complain(&err);
    return apr_sink_finish(sink, &err) == APR_OK ? 0 : complain(&err);
}

int main(int argc, char **argv)
{
    apr_error err = {0};
    apr_model model;
    int code = 2;

    if (argc < 4) return 2;
    if (apr_model_open(&model, argv[2], &err) != APR_OK) return complain(&err);
    if (argc == 4 && strcmp(argv[1], "ids") == 0) code = ids_of(&model, argv[3]);
    if (argc == 5 && strcmp(argv[1], "logits") == 0) code = logits_of(&model, argv[3], argv[4], false);
    if (argc == 5 && strcmp(argv[1], "steps") == 0) code = logits_of(&model, argv[3], argv[4], true);
    if (argc == 5 && strcmp(argv[1], "pre") == 0) code = rename_rule(&model, argv[3], argv[4]);
    apr_model_close(&model);
    return code;
}
