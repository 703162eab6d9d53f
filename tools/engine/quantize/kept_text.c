/* kept_text.c - the kept text file: lines of terms, the number of windows with the generator's state, token ids in decimal, "end". */
#include "tools/engine/quantize/kept_text.h"

#include "convert/run_terms.h"
#include "formats/files/resume.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS_BETWEEN = 1024, ID_BYTES = 12 };

static apr_status make_terms(apr_kept_text *kept, apr_error *err)
{
    const apr_own_text *const how = kept->how;
    char *inputs;

    APR_TRY(apr_inputs_terms(&inputs, NULL, 0, err));
    const size_t n = strlen(inputs) + 256;
    kept->terms = malloc(n);
    if (kept->terms != NULL)
        snprintf(kept->terms, n, "aprkit text 1\n%stext of %" PRId64 " windows of %" PRId64 ", seed %" PRIu64 ", begin %" PRId32 "\n",
                 inputs, how->n_windows, how->window, how->seed, how->has_begin ? how->begin : -1);
    free(inputs);
    return kept->terms != NULL ? APR_OK : apr_no_memory(err, "a text that is kept");
}

static apr_status save(apr_kept_text *kept, int64_t n_windows, uint64_t state, apr_error *err)
{
    const int64_t n_ids = n_windows * kept->how->window;
    const size_t n_terms = strlen(kept->terms), capacity = n_terms + 96 + (size_t)n_ids * ID_BYTES;
    char *const text = malloc(capacity);

    if (text == NULL) return apr_no_memory(err, "a text that is kept");
    size_t n = (size_t)snprintf(text, capacity, "%s%" PRId64 " %" PRIu64 "\n", kept->terms, n_windows, state);
    for (int64_t i = 0; i < n_ids; i++) n += (size_t)snprintf(text + n, capacity - n, "%" PRId32 "\n", kept->ids[i]);
    snprintf(text + n, capacity - n, "end\n");
    const apr_status status = apr_resume_keep_text(kept->target, text, err);
    free(text);
    kept->n_saved = n_ids;
    apr_listener_kept(kept->listener, (uint64_t)n_windows, (uint64_t)kept->how->n_windows);
    return status;
}

static apr_status on_window(void *user, int64_t n_windows, uint64_t state, apr_error *err)
{
    apr_kept_text *const kept = user;
    const bool is_last = n_windows == kept->how->n_windows;

    if (!is_last && n_windows * kept->how->window - kept->n_saved < TOKENS_BETWEEN) return APR_OK;
    return save(kept, n_windows, state, err);
}

/* False: the file is incomplete, has ids that are not in the vocabulary, or belongs to another model. */
static bool read_ids(const apr_kept_text *kept, const char *text, int64_t *n_windows, uint64_t *state)
{
    const size_t n_terms = strlen(kept->terms);
    int n_read = 0;

    if (strncmp(text, kept->terms, n_terms) != 0) return false;
    if (sscanf(text + n_terms, "%" SCNd64 " %" SCNu64 "\n%n", n_windows, state, &n_read) != 2 || n_read == 0) return false;
    if (*n_windows < 0 || *n_windows > kept->how->n_windows) return false;
    const char *at = text + n_terms + n_read;
    for (int64_t i = 0; i < *n_windows * kept->how->window; i++) {
        char *end;
        const long id = strtol(at, &end, 10);
        if (end == at || *end != '\n' || id < 0 || id > INT32_MAX) return false;
        if (kept->how->n_tokens_known > 0 && id >= kept->how->n_tokens_known) return false;
        kept->ids[i] = (int32_t)id;
        at = end + 1;
    }
    return strcmp(at, "end\n") == 0;
}

apr_status apr_kept_text_open(apr_kept_text *kept, apr_own_text *how, apr_error *err)
{
    int64_t n_windows;
    uint64_t state;

    APR_TRY(make_terms(kept, err));
    char *const text = apr_resume_kept_text(kept->target);
    if (text != NULL && read_ids(kept, text, &n_windows, &state)) {
        how->n_before = n_windows;
        how->state = state;
    }
    free(text);
    kept->n_saved = how->n_before * how->window;
    how->on_window = on_window;
    how->user = kept;
    return how->n_before > 0 ? APR_OK : save(kept, 0, 0, err); /* creates the folder at the start */
}

void apr_kept_text_close(apr_kept_text *kept)
{
    free(kept->terms);
    kept->terms = NULL;
}
