/* checkpoint_files.c - sorts the files of a checkpoint's folder into those that are copied and those that are not. Opens none of them. */
#include "formats/hf/checkpoint_files.h"

#include "formats/base/text.h"
#include "formats/files/checkpoint_names.h"
#include "formats/tensor/kv.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const int64_t MAX_BYTES = 16 << 20; /* of a copied file that no loader asks for by name */
typedef struct sorting {
    const char *const *weights;
    size_t n_weights;
    int folder;
    const char *names[APR_MAX_CHECKPOINT_FILES]; /* after the known ones */
    size_t n;
    const char *not_copied[APR_MAX_CHECKPOINT_FILES];
    size_t n_not_copied, n_uncounted;
} sorting;

static bool is_ignored(const sorting *s, const char *name)
{
    if (name[0] == '.' || strcmp(name, APR_TEMPLATE_FOLDER) == 0 || strcmp(name, APR_CHECKPOINT_INDEX) == 0 || apr_is_checkpoint_name(name))
        return true;
    for (size_t i = 0; i < s->n_weights; i++)
        if (strcmp(s->weights[i], name) == 0) return true;
    return false;
}

/* A name that is safe in every container and on a terminal, and that no output uses for weights. */
static bool is_plain_name(const char *name)
{
    for (const char *c = name; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) return false;
    return apr_str_is_utf8(apr_str_of(name)) && strlen(name) <= 200 && strstr(name, ".safetensors") == NULL &&
           strstr(name, ".part") == NULL;
}

/* A regular file of this folder. Links do not count, because they may lead to private files; links that the hub's cache makes do. */
static bool is_own_file(int folder, const char *name, int64_t *n_bytes)
{
    static const char cache[] = "../../blobs/";
    const char *at;
    char target[256];
    struct stat st;

    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) != 0) return false;
    if (S_ISLNK(st.st_mode)) {
        const ssize_t n = readlinkat(folder, name, target, sizeof target - 1);
        if (n < 0) return false;
        target[n] = '\0';
        at = strchr(name, '/') != NULL && apr_begins_with(target, "../") ? target + 3 : target; /* one folder deeper */
        if (strncmp(at, cache, sizeof cache - 1) != 0 || strchr(at + sizeof cache - 1, '/') != NULL) return false;
        if (fstatat(folder, name, &st, 0) != 0) return false;
    }
    *n_bytes = st.st_size;
    return S_ISREG(st.st_mode);
}

static apr_status sort_name(sorting *s, const char *name, apr_arena *arena, apr_error *err)
{
    int64_t n_bytes = 0;

    if (is_ignored(s, name)) return APR_OK;
    const char *const copy = apr_arena_copy(arena, name, strlen(name));
    if (copy == NULL) return apr_no_memory(err, "the small files");
    const bool is_copied =
        apr_is_checkpoint_text(name) && is_plain_name(name) && is_own_file(s->folder, name, &n_bytes) && n_bytes <= MAX_BYTES;
    if (is_copied && s->n + APR_N_CHECKPOINT_NAMES < APR_MAX_CHECKPOINT_FILES) s->names[s->n++] = copy;
    else if (s->n_not_copied < APR_MAX_CHECKPOINT_FILES) s->not_copied[s->n_not_copied++] = copy;
    else s->n_uncounted++;
    return APR_OK;
}

/* "a, b, c and 4 more" */
static apr_status list_not_copied(sorting *s, const char **text, apr_arena *arena, apr_error *err)
{
    enum { MAX_NAMED = 8 };

    *text = NULL;
    qsort(s->not_copied, s->n_not_copied, sizeof *s->not_copied, apr_compare_texts);
    for (size_t i = 0; i < s->n_not_copied && i < MAX_NAMED; i++) {
        *text = apr_arena_print(arena, "%s%s%.80s", *text != NULL ? *text : "", *text != NULL ? ", " : "", s->not_copied[i]);
        if (*text == NULL) return apr_no_memory(err, "the small files");
    }
    const size_t n_more = s->n_uncounted + (s->n_not_copied > MAX_NAMED ? s->n_not_copied - MAX_NAMED : 0);
    if (n_more > 0) *text = apr_arena_print(arena, "%s and %zu more", *text, n_more);
    return n_more == 0 || *text != NULL ? APR_OK : apr_no_memory(err, "the small files");
}

/* Named chat templates, in their own folder. Other files in it are not copied. */
static apr_status sort_templates(sorting *s, apr_arena *arena, apr_error *err)
{
    const int fd = openat(s->folder, APR_TEMPLATE_FOLDER, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *const dir = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *entry;
    apr_status status = APR_OK;

    if (fd < 0 && errno != ENOENT && s->n_not_copied < APR_MAX_CHECKPOINT_FILES)
        s->not_copied[s->n_not_copied++] = APR_TEMPLATE_FOLDER; /* a link */
    const int why = errno;
    if (fd >= 0 && dir == NULL) {
        close(fd);
        return apr_fail(err, apr_errno_status(why), APR_TEMPLATE_FOLDER ": %s", strerror(why));
    }
    while (dir != NULL && status == APR_OK && (entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] == '.') continue;
        const char *const name = apr_arena_print(arena, APR_TEMPLATE_FOLDER "/%s", entry->d_name);
        size_t n_name;
        int64_t n_bytes = 0;
        if (name == NULL) status = apr_no_memory(err, "the small files");
        else if (apr_template_name(name, &n_name) != NULL && apr_str_is_utf8(apr_str_of(name)) && is_own_file(s->folder, name, &n_bytes) &&
                 n_bytes <= MAX_BYTES && s->n + APR_N_CHECKPOINT_NAMES < APR_MAX_CHECKPOINT_FILES)
            s->names[s->n++] = name;
        else if (s->n_not_copied < APR_MAX_CHECKPOINT_FILES) s->not_copied[s->n_not_copied++] = name;
        else s->n_uncounted++;
    }
    if (dir != NULL) closedir(dir);
    return status;
}

/* False for a dangling link, and for a file that cannot be examined: opening it will report what is wrong. */
static bool is_missing(int folder, const char *name)
{
    struct stat st;
    return fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT;
}

static apr_status sort_all(sorting *s, DIR *dir, apr_file_list *list, apr_arena *arena, apr_error *err)
{
    const struct dirent *entry;

    s->folder = dirfd(dir);
    while (s->weights != NULL && (entry = readdir(dir)) != NULL) APR_TRY(sort_name(s, entry->d_name, arena, err));
    if (s->weights != NULL) APR_TRY(sort_templates(s, arena, err));
    list->names = apr_arena_array(arena, APR_N_CHECKPOINT_NAMES + s->n, sizeof *list->names);
    if (list->names == NULL) return apr_no_memory(err, "the small files");
    for (size_t i = 0; i < APR_N_CHECKPOINT_NAMES; i++)
        if (!is_missing(s->folder, apr_checkpoint_names[i])) list->names[list->n++] = apr_checkpoint_names[i];
    qsort(s->names, s->n, sizeof *s->names, apr_compare_texts);
    for (size_t i = 0; i < s->n; i++) list->names[list->n++] = s->names[i];
    return list_not_copied(s, &list->not_copied, arena, err);
}

apr_status apr_checkpoint_files(const char *folder, const char *const *weights, size_t n_weights, apr_file_list *list, apr_arena *arena,
                                apr_error *err)
{
    sorting *const s = calloc(1, sizeof *s);
    DIR *const dir = opendir(*folder != '\0' ? folder : "/");
    const int why = errno;
    apr_status status = APR_OK;

    *list = (apr_file_list){0};
    if (s == NULL) {
        status = apr_no_memory(err, "the small files");
    } else if (dir == NULL) {
        status = apr_fail(err, apr_errno_status(why), "%s: %s", folder, strerror(why));
    } else {
        s->weights = weights;
        s->n_weights = n_weights;
        status = sort_all(s, dir, list, arena, err);
    }
    if (dir != NULL) closedir(dir);
    free(s);
    return status;
}
