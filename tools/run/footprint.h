/* footprint.h - what sessions take of memory together: as planned, and as others counted it. */
#ifndef APR_TOOLS_FOOTPRINT_H
#define APR_TOOLS_FOOTPRINT_H

#include "formats/base/json.h"
#include "runtime/session/session.h"

#include <stdio.h>

typedef struct apr_footprint {
    apr_place on;
    uint64_t weights;  /* by the plans */
    bool mapped;       /* the weights are where files are mapped, and part of neither of the next two */
    uint64_t planned;  /* the plans' lines without headroom; one context, however many sessions */
    uint64_t measured; /* what the heap or the card's memory in use grew by; UINT64_MAX: nobody counts */
    uint64_t allowed;  /* between the two */
} apr_footprint;

/* Of sessions in the order in which they were opened; those that went to another place than the first are left out. */
apr_footprint apr_footprint_of(const apr_session *const *sessions, size_t n);
/* Host weights that lie in anonymous memory of this process, of so many bytes by the C library's count, are planned and measured, too. */
void apr_footprint_add_weights(apr_footprint *footprint, uint64_t heap_bytes);
/* Of plans that are to be carried out side by side: what they need where they are judged, one headroom and one context. */
uint64_t apr_planned_together(const apr_plan *a, const apr_plan *b);

/* False too when nobody counts. */
bool apr_footprint_as_planned(const apr_footprint *footprint);

void apr_footprint_json(const apr_footprint *footprint, apr_json_text *json);
/* One line. */
void apr_footprint_print(const apr_footprint *footprint, FILE *out);
/* A line for each of the plans'; under the place's name where there are several. */
void apr_session_lines_print(const apr_session *session, FILE *out);
/* What crosses between the places of a session for each token, and what the host reads: one line; an object "link". */
void apr_link_print(const apr_session *session, FILE *out);
void apr_link_json(const apr_session *session, apr_json_text *json);
/* "GPU 1", "host". Returns text. */
char *apr_place_text(const apr_session *session, int place, char text[32]);

#endif
