/* plan_grid.h - the tables of aprplan: types by contexts (--table), and GPUs by types (--gpus-table), as text, JSON and a page. */
#ifndef APR_TOOLS_PLAN_GRID_H
#define APR_TOOLS_PLAN_GRID_H

#include "tools/cli/cli.h"
#include "tools/engine/plan/grid.h"
#include "tools/verbs/page.h"

#define APR_PLAN_HTML_MARK "content=\"aprkit plan\""

typedef struct apr_plan_grid_asked {
    bool by_gpu;      /* GPUs by types; false: types by contexts */
    const char *html; /* a page's path; NULL: none */
    const apr_page_options *page;
    const char *path; /* of the model */
} apr_plan_grid_asked;

/* q is open, and its device is chosen unless the rows are GPUs. APR_E_NO: nothing in the table fits. */
apr_status apr_plan_grid_answer(apr_plan_question *q, const apr_plan_grid_asked *asked, const apr_call *call, apr_error *err);

#endif
