/* losses.h - what an output format cannot express of a model. Losses are listed before anything is written, and refused unless allowed.
 *
 * APR_LOST changes what other programs compute with the output: it is refused, or reported if the user allows it. APR_LOST_TO_OTHERS is
 * stored under keys that only our reader knows: it is reported as a warning. APR_NOTE changes no numbers (a checkpoint without a
 * tokenizer gives a GGUF without one): it is reported. Texts are clauses without a full stop. */
#ifndef APR_FORMATS_LOSSES_H
#define APR_FORMATS_LOSSES_H

#include "formats/base/arena.h"
#include "formats/base/status.h"

#include <stdbool.h>

typedef enum { APR_LOST, APR_LOST_TO_OTHERS, APR_NOTE } apr_loss_kind;

typedef struct apr_loss {
    const char *text;
    apr_loss_kind kind;
    bool is_refusal; /* other readers do not open the file because of it; otherwise they compute something else */
} apr_loss;

/* A zeroed list is empty; close it with apr_losses_close. */
typedef struct apr_losses {
    apr_loss *items;
    size_t n_items, capacity;
    apr_arena arena; /* owns items and texts */
} apr_losses;

apr_status apr_loss_add(apr_losses *losses, apr_loss_kind kind, apr_error *err, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
size_t apr_losses_count(const apr_losses *losses); /* of the kind APR_LOST */
/* APR_E_UNSUPPORTED with the first loss and the number of the others; APR_OK when there is none. `where` names the output. */
apr_status apr_losses_refuse(const apr_losses *losses, const char *where, apr_error *err);
void apr_losses_close(apr_losses *losses);

#endif
