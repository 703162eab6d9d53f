/* text_config.c - the keys under which larger models nest the language model's config. */
#include "formats/tensor/text_config.h"

const cJSON *apr_config_text_part(const cJSON *root)
{
    static const char *const keys[] = {"text_config", "llm_config", "language_config"};
    const cJSON *const thinker = apr_json_get(root, "thinker_config");

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (cJSON_IsObject(apr_json_get(root, keys[i]))) return apr_json_get(root, keys[i]);
    return cJSON_IsObject(thinker) && cJSON_IsObject(apr_json_get(thinker, "text_config")) ? apr_json_get(thinker, "text_config") : NULL;
}
