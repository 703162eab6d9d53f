/* nvml.cu - properties that only the driver's management library has: its version, and memory in use without making a context. */
#include "kernels/cuda/device/device.cuh"

#include <dlfcn.h>
#include <stdio.h>

/* The declarations of nvml.h that are needed: the library comes with every driver, its header does not. */
typedef struct nvml_memory {
    unsigned long long total, free, used;
} nvml_memory;

typedef struct nvml_functions {
    int (*init)(void);
    int (*shutdown)(void);
    int (*driver)(char *text, unsigned n);
    int (*by_bus)(const char *bus, void **device);
    int (*memory)(void *device, nvml_memory *memory);
} nvml_functions;

static bool find_functions(void *library, nvml_functions *f)
{
    *(void **)&f->init = dlsym(library, "nvmlInit_v2");
    *(void **)&f->shutdown = dlsym(library, "nvmlShutdown");
    *(void **)&f->driver = dlsym(library, "nvmlSystemGetDriverVersion");
    *(void **)&f->by_bus = dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2");
    *(void **)&f->memory = dlsym(library, "nvmlDeviceGetMemoryInfo");
    return f->init != NULL && f->shutdown != NULL && f->driver != NULL && f->by_bus != NULL && f->memory != NULL;
}

void apr_cuda_nvml_facts(apr_cuda_facts *facts)
{
    nvml_functions f;
    nvml_memory used;
    void *device;

    facts->driver[0] = '\0';
    facts->used_bytes = UINT64_MAX;
    void *const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return;
    if (find_functions(library, &f) && f.init() == 0) {
        if (f.driver(facts->driver, sizeof facts->driver) != 0) facts->driver[0] = '\0';
        if (f.by_bus(facts->bus, &device) == 0 && f.memory(device, &used) == 0) facts->used_bytes = used.used;
        f.shutdown();
    }
    dlclose(library);
}
