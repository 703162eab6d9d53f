/* attachment_links.h - small files of a checkpoint that are links to somewhere else, and so may be anything of the user's.
 *
 * A checkpoint that was fetched as an archive can hold vocab.json -> ~/.ssh/id_rsa. Such a file is read where a loader would read it, but
 * it does not travel: no output contains it. A link counts as the checkpoint's own file when it leads
 *   - into the checkpoint's folder,
 *   - into the blobs of a hub's cache: "../../blobs/NAME" or ".../models--ORG--NAME/blobs/NAME",
 *   - to where a link of the weights leads: a folder of links to another checkpoint. */
#ifndef APR_FORMATS_ATTACHMENT_LINKS_H
#define APR_FORMATS_ATTACHMENT_LINKS_H

#include "formats/model/model.h"

/* Takes the others out of the model's attachments and names them in *left, "a, b"; NULL: none. weights: the name of a file of weights in
 * the folder. */
apr_status apr_leave_links(apr_model *model, const char *folder, const char *weights, const char **left, apr_error *err);

#endif
