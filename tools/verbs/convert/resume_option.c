/* resume_option.c - reads --resume, --part and --finish, and prints what several runs have made. */
#include "tools/verbs/convert/resume_option.h"

#include "tools/report/text.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_PARTS = 100000 };

/* Reads a whole number of [1, most] at *text, and advances *text after it. */
static bool read_number(const char **text, long most, int *n)
{
    char *end;

    if (**text < '1' || **text > '9') return false;
    const long value = strtol(*text, &end, 10);
    *text = end;
    *n = (int)value;
    return value <= most;
}

static apr_status parse_part(const char *text, apr_resume_part *part, apr_error *err)
{
    const char *at = text;

    if (read_number(&at, MAX_PARTS, &part->part) && *at++ == '/' && read_number(&at, MAX_PARTS, &part->n_parts) && *at == '\0' &&
        part->part <= part->n_parts)
        return APR_OK;
    return apr_fail(err, APR_E_USAGE, "--part takes K/N, the K-th of N parts, as in 3/8 (N at most %d), not '%s'", (int)MAX_PARTS, text);
}

apr_status apr_runs_parse(const apr_runs_options *o, bool dry_run, apr_resume_part *storage, const apr_resume_part **part, apr_error *err)
{
    const int n = o->resume + o->finish + (o->part != NULL);

    *part = NULL;
    if (n > 1) return apr_fail(err, APR_E_USAGE, "give only one of --resume, --part and --finish");
    if (n > 0 && dry_run)
        return apr_fail(err, APR_E_USAGE, "--dry-run writes nothing and cannot be combined with --resume, --part or --finish");
    if (n == 0) return APR_OK;
    *storage = (apr_resume_part){.part = 0, .n_parts = o->resume ? 1 : 0};
    if (o->part != NULL) APR_TRY(parse_part(o->part, storage, err));
    *part = storage;
    return APR_OK;
}

static void print_folder(const apr_sink_progress *p, const apr_resume_part *part)
{
    const size_t n = p->n_there + p->n_done;

    if (part->part > 0)
        printf("  part %d/%d in %s: %zu of %zu tensors", part->part, p->n_parts, apr_printable(p->folder), n, n + p->n_elsewhere);
    else printf("  made in %s", apr_printable(p->folder));
    if (part->n_parts > 0) printf(", %zu tensors reused from earlier runs", p->n_there);
    printf("\n");
}

void apr_runs_print(const apr_sink_progress *p, const apr_resume_part *part, bool quiet)
{
    if (p->folder == NULL) return;
    if (!quiet) print_folder(p, part);
    if (p->n_damaged > 0)
        printf("  note: %zu tensors of earlier runs had changed since they were written, and were made again\n", p->n_damaged);
    if (part->part == 0 && access(p->folder, F_OK) == 0) /* the output is complete */
        printf("  note: %s could not be removed; it is no longer needed\n", apr_printable(p->folder));
    if (part->part > 0 && !quiet) printf("  when all parts are done, run the same command with --finish instead of --part\n");
}

void apr_runs_json(apr_json_text *json, const apr_sink_progress *p, const apr_resume_part *part)
{
    if (p->folder == NULL) return;
    apr_json_open(json, "resumed", '{');
    apr_json_string(json, "folder", p->folder, strlen(p->folder));
    if (part->part > 0) apr_json_int(json, "part", part->part);
    apr_json_int(json, "parts", p->n_parts);
    apr_json_uint(json, "taken_over", p->n_there);
    apr_json_uint(json, "made", p->n_done);
    apr_json_uint(json, "made_anew", p->n_damaged);
    apr_json_uint(json, "of_other_parts", p->n_elsewhere);
    apr_json_bool(json, "complete", part->part == 0);
    apr_json_close(json, '}');
}
