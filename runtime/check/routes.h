/* runtime/check/routes.h - records the choices of one session, of experts (MoE routing) and of positions (the index of sparse attention), and
 * compares those of another with them.
 *
 * Rounding may swap two experts, or two positions, with nearly equal scores. Everything after that differs, although nothing is wrong. So the reference's
 * choices are recorded with their gaps (apr_route_gap). The other session's choices are compared as sets. A different choice whose gap is
 * within the bound is replaced by the reference's (forced, and counted), so that later operations can be compared. A different choice
 * with a larger gap is wrong. */
#ifndef APR_RUNTIME_ROUTES_H
#define APR_RUNTIME_ROUTES_H

#include "runtime/session/trace.h"

typedef struct apr_route_count {
    int64_t n_choices, n_forced, n_wrong;
    int first_layer; /* of the first wrong one */
    bool first_is_position;
    int64_t first_position;
    double first_gap;
} apr_route_count;

typedef struct apr_routes {
    int64_t n_ops, n_positions;
    int64_t *widths; /* [n_ops] row width of each routing operation, in program order */
    float **rows;    /* [n_ops][n_positions * width] */
    double bound;    /* of the gap, for the compared session */
    apr_route_count count;
} apr_routes;

/* True if the program has operations that choose. */
bool apr_program_routes(const apr_program *program);

/* Evaluates the text with the reference from position 0 and records its choices. Failed or zeroed routes may be closed. */
apr_status apr_routes_record(apr_routes *routes, apr_session *reference, const int32_t *ids, int64_t n_ids, apr_error *err);
void apr_routes_close(apr_routes *routes);

/* For two sessions that evaluate the same tokens alternately, window by window: from now on, records the reference's choices at positions
 * below n_positions, and compares the other session's choices with the latest record. The reference must evaluate each window first. Call
 * apr_routes_compare_stop for both sessions before closing the routes. */
apr_status apr_routes_compare_live(apr_routes *routes, apr_session *reference, apr_session *other, int64_t n_positions, double bound,
                                   apr_error *err);

/* From now on, compares the session's choices with the recorded ones, until apr_routes_compare_stop. The routes must live until then. */
void apr_routes_compare(apr_routes *routes, apr_session *session, double bound);
/* Ends recording or comparing. */
void apr_routes_compare_stop(apr_session *session);

#endif
