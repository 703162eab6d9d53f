/* footprint.h - the memory that sessions take together: as planned, and as the heap or the driver counts it. */
#ifndef APR_ENGINE_FOOTPRINT_H
#define APR_ENGINE_FOOTPRINT_H

#include "runtime/session/session.h"

typedef struct apr_footprint {
    apr_place on;
    uint64_t weights;  /* by the plans */
    bool mapped;       /* the weights are mapped from files, and not part of the next two */
    uint64_t planned;  /* the plans' lines without headroom, and with one CUDA context */
    uint64_t measured; /* growth of the heap, or of the GPU's memory in use; UINT64_MAX: not measurable */
    uint64_t allowed;  /* allowed difference between the two */
} apr_footprint;

/* sessions: in the order in which they were opened. Those on another place than the first are left out. */
apr_footprint apr_footprint_of(const apr_session *const *sessions, size_t n);
/* Adds host weights in anonymous memory to both sums. heap_bytes: their size by the C library's count. */
void apr_footprint_add_weights(apr_footprint *footprint, uint64_t heap_bytes);
/* What two plans need together in the memory that they are checked against, with one headroom and one CUDA context. */
uint64_t apr_planned_together(const apr_plan *a, const apr_plan *b);

uint64_t apr_footprint_difference(const apr_footprint *footprint);
/* Also false if it was not measured. */
bool apr_footprint_as_planned(const apr_footprint *footprint);

#endif
