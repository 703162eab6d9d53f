/* show.h - aprconv show: prints what is in a model file, an adapter or an imatrix, as text or as JSON. */
#ifndef APR_TOOLS_SHOW_H
#define APR_TOOLS_SHOW_H

#include "formats/base/pattern.h"
#include "tools/cli/cli.h"

typedef struct apr_show_options {
    bool tensors, metadata, parts;
    const char *filter; /* regular expression on tensor names, or NULL */
} apr_show_options;

/* Prints the adapter at that path, as text or JSON (show_adapter.c). */
apr_status apr_show_adapter(const char *path, const apr_show_options *options, const apr_pattern *filter, apr_answer *answer,
                            apr_error *err);

/* The filter has been tried on this name before and did not fail. */
static inline bool apr_is_shown(const apr_pattern *filter, const char *name)
{
    bool found = true;
    return filter == NULL || (apr_pattern_find(filter, name, &found, NULL) == APR_OK && found);
}

#endif
