/* attachment_links.h - finds small files of a checkpoint that are links out of it, and so may be private files of the user.
 *
 * A checkpoint that was fetched as an archive can hold vocab.json -> ~/.ssh/id_rsa. Such a file is read where a loader would read it, but
 * it is not copied into any output. A link counts as the checkpoint's own file when it leads
 *   - into the checkpoint's folder,
 *   - into the blobs of a hub's cache: "../../blobs/NAME" or ".../models--ORG--NAME/blobs/NAME",
 *   - into a folder that a link of the weights leads to: the checkpoint is a folder of links to another one. */
#ifndef APR_FORMATS_ATTACHMENT_LINKS_H
#define APR_FORMATS_ATTACHMENT_LINKS_H

#include "formats/tensor/model.h"

/* Removes all other links from the model's attachments. *left names them, "a, b"; NULL: none. weights: the name of a file of weights in the
 * folder. */
apr_status apr_drop_links(apr_model *model, const char *folder, const char *weights, const char **left, apr_error *err);

#endif
