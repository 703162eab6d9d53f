/* compare_state.c - the figures of earlier comparisons: FOLDER/KEY.json, where KEY is a SHA-256 of everything that they depend on. */
#include "tools/verbs/check/compare.h"

#include "formats/base/json.h"
#include "formats/files/map.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SAMPLE = 1024 };
static const char mark[] = "{\"aprrun_compare\":1,";

static void add_sample(apr_sha256 *key, const apr_tensor *t, uint64_t at)
{
    apr_sha256_add(key, t->data + at, t->n_bytes - at < SAMPLE ? (size_t)(t->n_bytes - at) : SAMPLE);
}

/* Reading all bytes of large files takes minutes. Two models that differ differ in the samples of many tensors. */
void apr_compare_add_model(apr_sha256 *key, const apr_model *model)
{
    for (size_t i = 0; i < model->n_maps; i++) apr_sha256_add(key, model->maps[i].data, apr_page_head_bytes(model, &model->maps[i]));
    for (size_t i = 0; i < model->n_tensors; i++) {
        const apr_tensor *const t = &model->tensors[i];
        if (t->data == NULL) continue;
        add_sample(key, t, 0);
        add_sample(key, t, t->n_bytes / 2);
        add_sample(key, t, t->n_bytes > SAMPLE ? t->n_bytes - SAMPLE : 0);
    }
}

/* The members of a file. */
static const struct {
    const char *name;
    size_t offset;
} members[] = {
    {"kl_mean", offsetof(apr_compare_figures, kl)},
    {"same_top", offsetof(apr_compare_figures, same_top)},
    {"perplexity", offsetof(apr_compare_figures, perplexity)},
    {"perplexity_ref", offsetof(apr_compare_figures, perplexity_ref)},
    {"kl_low", offsetof(apr_compare_figures, kl_95.low)},
    {"kl_high", offsetof(apr_compare_figures, kl_95.high)},
    {"decode", offsetof(apr_compare_figures, decode)},
    {"prompt", offsetof(apr_compare_figures, prompt)},
};

static char *path_of(const char *folder, const char *key, apr_error *err)
{
    const size_t n = strlen(folder) + strlen(key) + sizeof "/.json";
    char *const path = malloc(n);

    if (path == NULL) apr_no_memory(err, "a path");
    else snprintf(path, n, "%s/%s.json", folder, key);
    return path;
}

static apr_status read_figures(const cJSON *json, const char *path, apr_compare_figures *f, apr_error *err)
{
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        double *const to = (double *)(void *)((char *)f + members[i].offset);
        if (cJSON_IsNull(apr_json_get(json, members[i].name))) *to = NAN; /* one window has no interval */
        else if (!apr_json_get_real(json, members[i].name, to))
            return apr_fail(err, APR_E_DAMAGED, "%s: no number '%s'; remove the file, and it is measured again", path, members[i].name);
    }
    if (!apr_json_get_int(json, "positions", &f->n_positions) || !apr_json_get_int(json, "window", &f->window))
        return apr_fail(err, APR_E_DAMAGED, "%s: no number 'positions' or 'window'; remove the file, and it is measured again", path);
    return APR_OK;
}

apr_status apr_compare_load(const char *folder, const char *key, apr_compare_figures *figures, bool *is_there, apr_error *err)
{
    char *const path = path_of(folder, key, err);
    apr_map map = {0};
    cJSON *json = NULL;
    apr_status status = APR_OK;

    if (path == NULL) return APR_E_MEMORY;
    *is_there = access(path, F_OK) == 0;
    if (*is_there) {
        status = apr_map_open(&map, path, err);
        if (status == APR_OK) status = apr_json_parse(&json, map.data, map.n_bytes, path, err);
        if (status == APR_OK) status = read_figures(json, path, figures, err);
        cJSON_Delete(json);
        apr_map_forget(&map);
    }
    free(path);
    return status;
}

static apr_status write_figures(apr_out *out, const apr_compare_figures *f, apr_error *err)
{
    apr_json_text json = {0};
    size_t n = 0;

    apr_json_open(&json, NULL, '{');
    apr_json_int(&json, "aprrun_compare", 1);
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        apr_json_real(&json, members[i].name, *(const double *)(const void *)((const char *)f + members[i].offset));
    apr_json_int(&json, "positions", f->n_positions);
    apr_json_int(&json, "window", f->window);
    apr_json_close(&json, '}');
    char *const text = apr_json_text_take(&json, &n);
    if (text == NULL) return apr_no_memory(err, "the figures");
    const apr_status status = apr_out_write(out, text, n, NULL, err);
    free(text);
    return status;
}

apr_status apr_compare_save(const char *folder, const char *key, const apr_compare_figures *figures, apr_error *err)
{
    apr_out *out = NULL;

    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return apr_fail(err, APR_E_IO, "%s: cannot make this folder: %s", folder, strerror(errno));
    char *const path = path_of(folder, key, err);
    if (path == NULL) return APR_E_MEMORY;
    apr_status status = apr_out_open_marked(&out, path, mark, err);
    if (status == APR_OK) status = write_figures(out, figures, err);
    if (status == APR_OK) status = apr_out_finish(out, err);
    else apr_out_abandon(out);
    free(path);
    return status;
}
