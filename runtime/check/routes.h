/* runtime/check/routes.h - which experts each token went to: recorded from one session, held against another's.
 *
 * Where scores differ by rounding, two experts that are nearly as good may change places, and everything behind them differs without
 * anything being wrong. So the truth's choices are recorded with their gaps (apr_route_gap). In the other session, whatever evaluates
 * it, each choice is compared as a set: another one whose gap is within the bound is replaced by the truth's (forced, and counted), so
 * that what follows can be compared; one with a larger gap is wrong. */
#ifndef APR_RUNTIME_ROUTES_H
#define APR_RUNTIME_ROUTES_H

#include "runtime/session/trace.h"

typedef struct apr_route_count {
    int64_t n_choices, n_forced, n_wrong;
    int first_layer; /* of the first wrong one */
    int64_t first_position;
    double first_gap;
} apr_route_count;

typedef struct apr_routes {
    int64_t n_ops, n_positions;
    int64_t *widths; /* [n_ops] numbers of a row of each routing operation, in the program's order */
    float **rows;    /* [n_ops][n_positions * width] */
    double bound;    /* of the gap, for the session that is watched */
    apr_route_count count;
} apr_routes;

/* Does the program choose experts? */
bool apr_program_routes(const apr_program *program);

/* Evaluates the text with the truth, from nothing, and keeps its choices. Failed or zeroed ones may be closed. */
apr_status apr_routes_record(apr_routes *routes, apr_session *truth, const int32_t *ids, int64_t n_ids, apr_error *err);
void apr_routes_close(apr_routes *routes);

/* From now on the truth's choices at positions below n_positions are kept whenever it evaluates them, and the other's, which must follow,
 * are held against the latest; for two that evaluate the same tokens in turn, window by window. Until apr_routes_leave, which the
 * sessions must see before the routes are closed. */
apr_status apr_routes_follow(apr_routes *routes, apr_session *truth, apr_session *other, int64_t n_positions, double bound, apr_error *err);
void apr_routes_leave(apr_session *truth, apr_session *other);

/* From now on the session's choices at the recorded positions are held against them. The routes must outlive that. */
void apr_routes_hold(apr_routes *routes, apr_session *session, double bound);
void apr_routes_release(apr_session *session);

#endif
