/* gpu_names.c - finds a GPU by name: the table's name, nvidia-smi's, or a MIG slice. */
#include "runtime/plan/gpus.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORD = 64 };

static bool cut_end(char *word, const char *end)
{
    const size_t n = strlen(word), n_end = strlen(end);
    if (n <= n_end || strcmp(word + n - n_end, end) != 0) return false;
    word[n - n_end] = '\0';
    return true;
}

/* Keeps only letters and digits, in lower case, without the words that every GPU's name may have: "NVIDIA GeForce RTX 4090" is
 * "rtx4090". */
static void plain_name(const char *name, char word[WORD])
{
    static const char *const heads[] = {"nvidia", "geforce", "tesla", "quadro", "jetson"};
    static const char *const ends[] = {"generation", "edition", "gpu"};
    size_t n = 0;

    for (; *name != '\0' && n + 1 < WORD; name++)
        if (isalnum((unsigned char)*name)) word[n++] = (char)tolower((unsigned char)*name);
    word[*name == '\0' ? n : 0] = '\0'; /* longer than any known name: empty */
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        const size_t n_head = strlen(heads[i]);
        if (strncmp(word, heads[i], n_head) == 0) memmove(word, word + n_head, strlen(word) - n_head + 1);
    }
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) cut_end(word, ends[i]);
}

/* nvidia-smi's names that are neither the table's name nor its label. */
static const struct {
    const char *alias, *name;
} aliases[] = {
    {"a100sxm440gb", "a100-40g"},
    {"a100pcie40gb", "a100-40g"},
    {"a100sxm480gb", "a100-80g"},
    {"a100pcie80gb", "a100-80g"},
    {"a10080gbpcie", "a100-80g"},
    {"h10080gbhbm3", "h100"},
    {"h100sxm", "h100"},
    {"h100sxm5", "h100"},
    {"h200sxm", "h200"},
    {"h200nvl", "h200"},
    {"gh200480gb", "gh200"},
    {"b300sxm6ac", "b300"},
    {"rtx4060ti8gb", "rtx4060ti"},
    {"rtx5060ti16g", "rtx5060ti"},
    {"rtxpro6000blackwellworkstation", "rtxpro6000"},
    {"rtxpro6000blackwellserver", "rtxpro6000"},
    {"rtxpro6000blackwellmaxqworkstation", "rtxpro6000"},
    {"dgxspark", "gb10"},
    {"orinnv", "orin"},
    {"agxorin", "orin"},
    {"agxorin64gb", "orin"},
    {"orinnano8gb", "orin-nano"},
    {"thornv", "thor"},
    {"agxthor", "thor"},
};

static bool is_called(const apr_gpu *gpu, const char *word)
{
    char name[WORD], label[WORD];
    plain_name(gpu->name, name);
    plain_name(gpu->label, label);
    return strcmp(word, name) == 0 || strcmp(word, label) == 0;
}

/* "4090" of "rtx4090", "6000ada" of "rtx6000ada": the short form people use. */
static const char *without_line(const char *word)
{
    static const char *const lines[] = {"rtx", "gtx", "geforce"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (strncmp(word, lines[i], strlen(lines[i])) == 0 && word[strlen(lines[i])] != '\0') return word + strlen(lines[i]);
    return word;
}

/* Matches the name without the product line. With `goes_on` it matches the beginning of several names ("a100" of "a100-40g"). */
static bool is_called_short(const apr_gpu *gpu, const char *word, bool goes_on)
{
    char names[2][WORD];
    const size_t n = strlen(word);

    plain_name(gpu->name, names[0]);
    plain_name(gpu->label, names[1]);
    for (int k = 0; k < 2; k++) {
        const char *const name = without_line(names[k]);
        if (goes_on ? strncmp(names[k], word, n) == 0 && strncmp(gpu->name, word, n) == 0 && gpu->name[n] == '-' : strcmp(name, word) == 0)
            return true;
    }
    return false;
}

/* Matches a name with the memory size added, which carries no further information: "rtx309024gb". */
static const apr_gpu *find_with_memory(const char *word)
{
    for (size_t i = 0; i < apr_n_gpus; i++) {
        char name[WORD], with[WORD + 8];
        plain_name(apr_gpus[i].name, name);
        for (int unit = 0; unit < 2; unit++) {
            snprintf(with, sizeof with, "%s%d%s", without_line(name), (int)((apr_gpus[i].vram_mib + 512) / 1024), unit == 0 ? "gb" : "g");
            if (strcmp(without_line(word), with) == 0) return &apr_gpus[i];
        }
    }
    return NULL;
}

const apr_gpu *apr_gpu_find(const char *name)
{
    char word[WORD], alias[WORD];

    plain_name(name, word);
    if (word[0] == '\0') return NULL;
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++) {
        if (strcmp(word, aliases[i].alias) != 0) continue;
        plain_name(aliases[i].name, alias);
        memcpy(word, alias, sizeof word);
        break;
    }
    for (size_t i = 0; i < apr_n_gpus; i++)
        if (is_called(&apr_gpus[i], word)) return &apr_gpus[i];
    for (size_t i = 0; i < apr_n_gpus; i++)
        if (is_called_short(&apr_gpus[i], without_line(word), false)) return &apr_gpus[i];
    return find_with_memory(word);
}

const char *apr_gpu_several(const char *name, char *text, size_t n_bytes)
{
    char word[WORD];
    const apr_gpu *first = NULL;
    size_t n = 0;

    plain_name(name, word);
    for (size_t i = 0; i < apr_n_gpus && word[0] != '\0'; i++) {
        if (!is_called_short(&apr_gpus[i], word, true)) continue;
        n += (size_t)snprintf(text + n, n < n_bytes ? n_bytes - n : 0, "%s%s", first != NULL ? " or " : "", apr_gpus[i].name);
        if (first == NULL) first = &apr_gpus[i];
        if (n >= n_bytes) break;
    }
    return first != NULL ? first->name : NULL;
}

/* --- too old GPUs --- */

static const struct {
    const char *head; /* start of the plain name */
    int major, minor;
} too_old[] = {{"v100", 7, 0},  {"titanv", 7, 0}, {"p100", 6, 0},  {"p40", 6, 1}, {"p4", 6, 1},
               {"gtx10", 6, 1}, {"titanx", 6, 1}, {"p6000", 6, 1}, {"m40", 5, 2}, {"m60", 5, 2},
               {"m4", 5, 2},    {"gtx9", 5, 2},   {"k80", 3, 7},   {"k40", 3, 5}, {"xavier", 7, 2}};

static apr_status refuse_unknown(const char *name, apr_error *err)
{
    char word[WORD], several[256];

    plain_name(name, word);
    if (apr_gpu_several(name, several, sizeof several) != NULL)
        return apr_fail(err, APR_E_USAGE, "the GPU name '%s' is ambiguous: %s", name, several);
    for (size_t i = 0; i < sizeof too_old / sizeof *too_old; i++)
        if (strncmp(word, too_old[i].head, strlen(too_old[i].head)) == 0)
            return apr_fail(err, APR_E_NO, "%s has compute capability %d.%d; 7.5 (Turing) is the oldest that is supported", name,
                            too_old[i].major, too_old[i].minor);
    return apr_fail(err, APR_E_USAGE, "unknown GPU '%s'; try 'aprplan --list-gpus' for the known ones, or --vram SIZE for any other", name);
}

/* --- MIG slices --- */

/* Finds "3g.40gb" at the end of a name: the number of eighths of the processors, and GiB. *n_before: length of the name before it. */
static bool find_slice(const char *name, int *n_parts, int *gib, size_t *n_before)
{
    const char *const dot = strstr(name, "g.");
    char *end;

    if (dot == NULL || dot == name || dot[-1] < '1' || dot[-1] > '7') return false;
    const long n = strtol(dot + 2, &end, 10);
    if (end == dot + 2 || n < 1 || n > 1024 || tolower((unsigned char)end[0]) != 'g' || tolower((unsigned char)end[1]) != 'b') return false;
    if (end[2] != '\0' && end[2] != '+' && end[2] != ' ') return false;
    *n_parts = dot[-1] - '0';
    *gib = (int)n;
    *n_before = (size_t)(dot - 1 - name);
    return true;
}

/* The measured memory of slices is at least 0.95 of what their names say. */
static bool cut_slice(const apr_gpu *whole, int n_parts, int gib, apr_gpu *gpu, char label[APR_GPU_LABEL])
{
    const int n_all = strcmp(whole->name, "a30") == 0 ? 4 : 8, each = whole->n_sms * 8 / n_all / 8 / 2 * 2;
    const int64_t mib = (int64_t)gib * 1024 * 95 / 100;

    if ((whole->minor != 0 && whole->major < 10) || whole->major > 10 || mib > whole->vram_mib) return false;
    snprintf(label, APR_GPU_LABEL, "%s %dg.%dgb", whole->label, n_parts, gib);
    *gpu = *whole;
    gpu->label = label;
    gpu->vram_mib = mib;
    gpu->n_sms = n_parts >= n_all - 1 ? whole->n_sms : each * n_parts;
    gpu->bandwidth_gbs = (int)((int64_t)whole->bandwidth_gbs * mib / whole->vram_mib);
    return true;
}

apr_status apr_gpu_named(const char *name, apr_gpu *gpu, char label[APR_GPU_LABEL], apr_error *err)
{
    char before[2 * WORD];
    int n_parts, gib;
    size_t n;

    const apr_gpu *whole = apr_gpu_find(name);
    if (whole != NULL) {
        *gpu = *whole;
        return APR_OK;
    }
    if (!find_slice(name, &n_parts, &gib, &n) || n >= sizeof before) return refuse_unknown(name, err);
    snprintf(before, sizeof before, "%.*s", (int)n, name);
    while (n > 0 && !isalnum((unsigned char)before[n - 1])) before[--n] = '\0';
    if (cut_end(before, "MIG") || cut_end(before, "mig")) n = strlen(before);
    while (n > 0 && !isalnum((unsigned char)before[n - 1])) before[--n] = '\0';
    whole = apr_gpu_find(before);
    if (whole == NULL) return refuse_unknown(name, err);
    if (cut_slice(whole, n_parts, gib, gpu, label)) return APR_OK;
    return apr_fail(err, APR_E_USAGE, "%s: %s has no such MIG slice", name, whole->label);
}
