/* page.c - the block at the head of each page: the command, the time and the machine; the files with their types and SHA-256. */
#include "tools/report/page.h"

#include "formats/base/text.h"
#include "kernels/cuda_loader.h"
#include "tools/report/html.h"
#include "tools/report/sha256.h"
#include "tools/report/text.h"

#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

/* The Makefile sets APR_COMMIT, from git or from what git archive left in tools/packaging/commit.sh. */
#ifndef APR_COMMIT
#define APR_COMMIT ""
#endif

const char *apr_build_commit(void) { return APR_COMMIT[0] != '\0' ? APR_COMMIT : "unknown"; }

static void put(FILE *out, const char *what, const char *text)
{
    if (text[0] != '\0') apr_html_print(out, "<dt>%s</dt><dd>%s</dd>\n", what, text);
}

/* --- made by --- */

/* "model name : Intel(R) Xeon(R)"; other systems than x86 have no such line, and then it is the architecture. */
static const char *cpu_name(const struct utsname *system, char *line, size_t capacity)
{
    FILE *const in = fopen("/proc/cpuinfo", "r");
    const char *name = NULL;

    while (in != NULL && name == NULL && fgets(line, (int)capacity, in) != NULL)
        if (apr_begins_with(line, "model name") && strchr(line, ':') != NULL) name = strchr(line, ':') + 1;
    if (in != NULL) fclose(in);
    if (name == NULL) return system->machine;
    line[strcspn(line, "\n")] = '\0';
    return name + strspn(name, " ");
}

static void put_gpus(FILE *out, const apr_session *session)
{
    const apr_cuda_api *cuda;
    apr_cuda_facts facts;
    const char *driver = "";

    for (int place = 0; session != NULL && place < apr_session_n_places(session); place++) {
        const int ordinal = apr_session_place_ordinal(session, place);
        if (ordinal < 0 || apr_cuda_load(&cuda, NULL) != APR_OK || cuda->facts(ordinal, &facts, NULL) != APR_OK) continue;
        put(out, "GPU", facts.name);
        driver = facts.driver;
    }
    put(out, "driver", driver);
}

static void put_maker(FILE *out, const apr_page_about *about)
{
    char text[512], line[256], date[32] = "";
    const time_t now = time(NULL);
    struct utsname system = {0};
    struct tm utc;

    uname(&system);
    if (gmtime_r(&now, &utc) != NULL) strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S UTC", &utc);
    fputs("<dl><b>made by</b>\n", out);
    if (about->command != NULL) apr_html_print(out, "<dt>command</dt><dd><code>%s</code></dd>\n", about->command);
    put(out, "date", date);
    snprintf(text, sizeof text, "%s, commit %s", APR_VERSION, apr_build_commit());
    put(out, "aprkit", text);
    put(out, "host", system.nodename);
    snprintf(text, sizeof text, "%s, %ld threads", cpu_name(&system, line, sizeof line), sysconf(_SC_NPROCESSORS_ONLN));
    put(out, "CPU", text);
    put_gpus(out, about->session);
    fputs("</dl>\n", out);
}

/* --- of --- */

char *apr_page_types(const apr_model *model, char *text, size_t capacity)
{
    int64_t elems[APR_DTYPE_COUNT] = {0}, n_all = 0;
    size_t n = 0;

    text[0] = '\0';
    for (size_t i = 0; i < model->n_tensors; i++) {
        if (model->tensors[i].rank < 2 || !apr_dtype_is_weights(model->tensors[i].dtype)) continue;
        elems[model->tensors[i].dtype] += apr_tensor_elems(&model->tensors[i]);
        n_all += apr_tensor_elems(&model->tensors[i]);
    }
    for (;;) {
        const apr_dtype most = apr_dtype_most_common(elems);
        if (most == APR_DTYPE_COUNT || n + 32 > capacity) return text;
        const double share = 100.0 * (double)elems[most] / (double)n_all;
        n += (size_t)snprintf(text + n, capacity - n, "%s%s %.*f %%", n > 0 ? ", " : "", apr_dtypes[most].name, share < 1.0 ? 1 : 0, share);
        elems[most] = 0;
    }
}

size_t apr_page_head_bytes(const apr_model *model, const apr_map *map)
{
    size_t n = map->n_bytes;

    for (size_t i = 0; i < model->n_tensors; i++) {
        const uint8_t *const data = model->tensors[i].data;
        if (data >= map->data && data < map->data + n) n = (size_t)(data - map->data);
    }
    return n;
}

char *apr_page_sum(const apr_model *model, bool is_whole, uint64_t *n_bytes, char text[APR_SHA256_TEXT])
{
    apr_sha256 hash;

    *n_bytes = 0;
    apr_sha256_start(&hash);
    for (size_t i = 0; i < model->n_maps; i++) {
        const size_t n = is_whole ? model->maps[i].n_bytes : apr_page_head_bytes(model, &model->maps[i]);
        apr_sha256_add(&hash, model->maps[i].data, n);
        *n_bytes += n;
    }
    return apr_sha256_text(&hash, text);
}

static void put_model(FILE *out, const apr_page_model *m, bool hash)
{
    char text[512], size[APR_SMALL_TEXT], count[APR_SMALL_TEXT], sum[APR_SHA256_TEXT];
    uint64_t n_bytes = 0, n_head;

    for (size_t i = 0; i < m->model->n_maps; i++) n_bytes += m->model->maps[i].n_bytes;
    apr_html_print(out, "<dt>%s</dt><dd><code>%s</code></dd>\n", m->label, m->model->path);
    snprintf(text, sizeof text, "%s bytes (%s)", apr_count_text(count, (int64_t)n_bytes), apr_size_text(size, n_bytes));
    put(out, "size", text);
    put(out, "types", apr_page_types(m->model, text, sizeof text));
    if (n_bytes == 0) return;
    apr_page_sum(m->model, false, &n_head, sum);
    apr_html_print(out, "<dt>SHA-256</dt><dd><code>%s</code> of %s (%s bytes)</dd>\n", sum,
                   m->model->n_tensors > 0 ? "header and list of tensors" : "the file", apr_count_text(count, (int64_t)n_head));
    if (hash && m->model->n_tensors > 0)
        apr_html_print(out, "<dt></dt><dd><code>%s</code> of the whole %s</dd>\n", apr_page_sum(m->model, true, &n_bytes, sum),
                       m->model->n_maps == 1 ? "file" : "files, one after the other");
}

/* What --json answers, for programs that read the page. */
static void put_answer(FILE *out, const char *json)
{
    fputs("<script type=\"application/json\" id=\"answer\">", out);
    for (const char *c = json; *c != '\0'; c++)
        if (*c == '<') fputs("\\u003c", out); /* only strings have it; so no string can end the script */
        else fputc(*c, out);
    fputs("</script>\n", out);
}

void apr_page_about_html(FILE *out, const apr_page_about *about)
{
    fputs("<div class=\"about\">\n", out);
    if (about->options->stamp) put_maker(out, about);
    fputs("<dl><b>of</b>\n", out);
    for (size_t i = 0; i < about->n_models; i++) put_model(out, &about->models[i], about->options->hash);
    fputs("</dl>\n</div>\n", out);
    if (about->answer != NULL) put_answer(out, about->answer);
    apr_html_contents(out);
}
