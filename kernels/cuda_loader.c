/* cuda_loader.c - loads the CUDA plug-in from the program's folder, from lib/aprkit next to it, or from where the system looks. */
#include "kernels/cuda_loader.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Debian's folder of libraries for this machine, in lib/. The Makefile asks the compiler. */
#ifndef APR_MULTIARCH
#define APR_MULTIARCH ""
#endif

/* For "/usr/bin/aprrun": "/usr/bin/libaprkit-cuda.so", "/usr/bin/../lib/aprkit/libaprkit-cuda.so" and so on, the first that can be read;
 * false: there is none. */
static bool near_program(const char *library, char *path, size_t n_bytes)
{
    static const char *const folders[] = {"", "../lib/aprkit/", "../lib/" APR_MULTIARCH "/aprkit/", "../lib64/aprkit/"};
    const ssize_t n = readlink("/proc/self/exe", path, n_bytes);
    if (n <= 0 || (size_t)n >= n_bytes) return false;
    path[n] = '\0';
    char *const slash = strrchr(path, '/');
    if (slash == NULL) return false;
    const size_t n_left = n_bytes - (size_t)(slash + 1 - path);
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        const int length = snprintf(slash + 1, n_left, "%s%s", folders[i], library);
        if (length > 0 && (size_t)length < n_left && access(path, R_OK) == 0) return true;
    }
    return false;
}

/* Without a driver there is no need to load the plug-in and cuBLAS, which take 90 MiB. */
static bool has_driver(void)
{
    void *const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL); /* the CUDA runtime loads the same library */
    if (driver != NULL) dlclose(driver);
    return driver != NULL;
}

#if APR_CUDA_INTERFACE == 0
#error "the number of the interface is missing: compile with the Makefile, which includes cuda_interface.h"
#endif

/* Checks that the library is of the same build as this program. Calls none of its functions. */
static apr_status check_build(void *library, const char *path, apr_error *err)
{
    static const char what_to_do[] = "rebuild both from one commit with make";
    const apr_cuda_description *const build = dlsym(library, APR_CUDA_BUILD);

    if (build == NULL && dlsym(library, APR_CUDA_ENTRY) != NULL)
        return apr_fail(err, APR_E_DEVICE, "%s is an older build, without a number of its interface; this program needs %016" PRIx64 ": %s",
                        path, APR_CUDA_ABI, what_to_do);
    if (build == NULL || memcmp(build->mark, APR_CUDA_MARK, sizeof APR_CUDA_MARK) != 0)
        return apr_fail(err, APR_E_DEVICE, "%s is not aprkit's CUDA library: it has no %s", path, APR_CUDA_BUILD);
    if (build->abi == APR_CUDA_ABI) return APR_OK;
    return apr_fail(err, APR_E_DEVICE,
                    "%s is another build: its interface is %016" PRIx64 " (code for %.*s), this program's is %016" PRIx64 ": %s", path,
                    build->abi, (int)sizeof build->architectures, build->architectures, APR_CUDA_ABI, what_to_do);
}

/* POSIX allows dlsym to return a function pointer; C has no cast for it. */
typedef union entry_point {
    void *object;
    apr_cuda_plugin_fn plugin;
    apr_cuda_drill_fn drill;
} entry_point;

/* Loads the library, and gets its table. */
static apr_status load(const char *name, const apr_cuda_api **api, void **library, apr_error *err)
{
    char path[4096];
    entry_point entry;

    *api = NULL;
    if (!has_driver()) return apr_fail(err, APR_E_DEVICE, "there is no NVIDIA driver here (libcuda.so.1 was not found)");
    if (!near_program(name, path, sizeof path)) snprintf(path, sizeof path, "%s", name);
    *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (*library == NULL) return apr_fail(err, APR_E_DEVICE, "CUDA is not available: %s", dlerror());
    APR_TRY(check_build(*library, path, err));
    entry.object = dlsym(*library, APR_CUDA_ENTRY);
    if (entry.object != NULL) *api = entry.plugin(APR_CUDA_ABI);
    if (*api == NULL) return apr_fail(err, APR_E_DEVICE, "%s is damaged: it has no table of functions (%s)", path, APR_CUDA_ENTRY);
    return APR_OK;
}

apr_status apr_cuda_load(const apr_cuda_api **api, apr_error *err)
{
    void *library;
    return load(APR_CUDA_LIBRARY, api, &library, err);
}

apr_status apr_cuda_load_drills(const apr_cuda_api **api, apr_cuda_drill_fn *drill, apr_error *err)
{
    entry_point entry;
    apr_error failure = {0};
    void *library;

    const apr_status status = load(APR_CUDA_DRILLS_LIBRARY, api, &library, &failure);
    if (status != APR_OK)
        return apr_fail(err, status, "fault injection needs %s, which only tests build (make check-gpu): %s", APR_CUDA_DRILLS_LIBRARY,
                        failure.text);
    entry.object = dlsym(library, APR_CUDA_DRILL_ENTRY);
    if (entry.object == NULL) return apr_fail(err, APR_E_DEVICE, "%s has no %s", APR_CUDA_DRILLS_LIBRARY, APR_CUDA_DRILL_ENTRY);
    *drill = entry.drill;
    return APR_OK;
}
