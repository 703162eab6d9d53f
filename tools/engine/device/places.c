/* places.c - reads --offload, --gpus, and the lists of --gpu. */
#include "tools/engine/device/places.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads a whole number in [least, most] at *text, and moves *text past it. */
static bool read_number(const char **text, int64_t least, int64_t most, int64_t *n)
{
    char *end;

    if (**text < '0' || **text > '9') return false;
    const long long value = strtoll(*text, &end, 10);
    *text = end;
    *n = value;
    return value >= least && value <= most;
}

static bool begins_with(const char **text, const char *word)
{
    const size_t n = strlen(word);
    if (strncmp(*text, word, n) != 0) return false;
    *text += n;
    return true;
}

static bool read_part(const char **text, apr_offload *offload)
{
    if (begins_with(text, "experts")) {
        offload->experts = true;
        return !begins_with(text, "=") || read_number(text, 1, 1000000, &offload->n_expert_layers);
    }
    if (!begins_with(text, "layers=")) return false;
    if (!begins_with(text, "all")) return read_number(text, 1, 1000000, &offload->n_layers);
    offload->n_layers = INT64_MAX;
    return true;
}

apr_status apr_offload_parse(const char *text, apr_offload *offload, apr_error *err)
{
    const char *at = text;

    *offload = (apr_offload){0};
    if (text == NULL) return APR_OK;
    bool is_good = read_part(&at, offload);
    if (is_good && *at == ',') {
        at++;
        is_good = read_part(&at, offload);
    }
    if (is_good && *at == '\0') return APR_OK;
    return apr_fail(err, APR_E_USAGE, "--offload takes 'experts', 'experts=N', 'layers=N' or 'layers=all', not '%s'", text);
}

char *apr_offload_text(const apr_offload *offload, char *text, size_t n_bytes)
{
    const char *const comma = offload->experts && offload->n_layers > 0 ? "," : "";
    char experts[40] = "";

    if (offload->experts) snprintf(experts, sizeof experts, "experts");
    if (offload->experts && offload->n_expert_layers > 0)
        snprintf(experts, sizeof experts, "experts=%lld", (long long)offload->n_expert_layers);
    if (offload->n_layers == INT64_MAX) snprintf(text, n_bytes, "%s%slayers=all", experts, comma);
    else if (offload->n_layers > 0) snprintf(text, n_bytes, "%s%slayers=%lld", experts, comma, (long long)offload->n_layers);
    else snprintf(text, n_bytes, "%s", experts);
    return text;
}

apr_status apr_gpus_parse(const char *text, int *n, int ordinals[APR_MAX_DEVICES], apr_error *err)
{
    const char *at = text;
    int64_t number;

    *n = 0;
    if (text == NULL) return APR_OK;
    if (strchr(text, ',') == NULL) {
        if (read_number(&at, 1, APR_MAX_DEVICES, &number) && *at == '\0') {
            for (int i = 0; i < (int)number; i++) ordinals[i] = i;
            *n = (int)number;
            return APR_OK;
        }
    } else {
        while (*n < APR_MAX_DEVICES && read_number(&at, 0, 1024, &number)) {
            ordinals[(*n)++] = (int)number;
            for (int i = 0; i + 2 < *n; i++)
                if (ordinals[i] == (int)number && ordinals[*n - 2] != (int)number)
                    return apr_fail(err, APR_E_USAGE, "--gpus %s: parts on the same GPU must be next to each other", text);
            if (*at == '\0') return APR_OK;
            if (*at++ != ',') break;
        }
    }
    return apr_fail(err, APR_E_USAGE, "--gpus takes a number of GPUs, 1 to %d, or a list, as in 0,2; not '%s'", (int)APR_MAX_DEVICES, text);
}

apr_status apr_gpu_list_parse(const char *text, int *n, int ordinals[APR_MAX_DEVICES], apr_error *err)
{
    const char *at = text;
    int64_t number;

    *n = 0;
    if (strcmp(text, "all") == 0) return APR_OK;
    while (*n < APR_MAX_DEVICES && read_number(&at, 0, 1024, &number)) {
        ordinals[(*n)++] = (int)number;
        if (*at == '\0') return APR_OK;
        if (*at++ != ',') break;
    }
    return apr_fail(err, APR_E_USAGE, "--gpu takes 'all' or a list of at most %d GPUs, as in 0,1; not '%s'", (int)APR_MAX_DEVICES, text);
}
