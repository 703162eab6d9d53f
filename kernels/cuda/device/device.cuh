/* device.cuh - shared by the files of the plug-in: an open device, and errors turned into messages. */
#ifndef APR_KERNELS_CUDA_DEVICE_CUH
#define APR_KERNELS_CUDA_DEVICE_CUH

extern "C" {
#include "kernels/cuda/api.h"
}

#include <cublas_v2.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

/* The operation that was started last, for error messages: an operation that is described on demand, or a text. */
typedef struct apr_cuda_started {
    bool is_operation;
    const char *words; /* a static string; NULL: use text */
    apr_op_kind kind;
    apr_op_args args;
    char text[512]; /* "" before the first */
} apr_cuda_started;

struct apr_cuda_choices;

/* FP16 inputs in a workspace, for products that share them: written by the previous product, or by the operation that made the inputs. They
 * are valid for the next call only. gemm.cu manages them (apr_cuda_cache_inputs, apr_cuda_has_cached_inputs). */
typedef struct apr_cuda_cached_inputs {
    const float *x;
    void *work;
    int64_t n_tokens, n_in;
    bool shares_scale; /* one power of two for all tokens if that loses nothing */
    bool fragments;    /* as fragments of the small GEMM (small_gemm/small_gemm.cuh) */
    int layout;        /* of the fragments: apr_small_gemm_layout */
} apr_cuda_cached_inputs;

struct apr_cuda_device {
    apr_cuda_options options;
    apr_cuda_facts facts;
    cudaStream_t stream;
    cublasHandle_t blas; /* NULL before start_blas */
    void *workspace;
    uint64_t workspace_bytes;
    struct apr_cuda_choices *choices; /* algorithm choices of cuBLASLt (blaslt.cu), NULL before the first product */
    uint64_t n_writes;                /* calls so far, including this one, that may have written to device memory */
    apr_cuda_cached_inputs cached_inputs;
    uint64_t kept_for;  /* the value of n_writes in the call that may use them */
    void **allocations; /* [n_allocations], NULL where released */
    size_t n_allocations;
    void **pinned; /* [n_pinned] host memory */
    size_t n_pinned;
    cudaEvent_t marks[APR_CUDA_MARKS]; /* created on first use */
    int64_t n_asked;                   /* allocations, for the test that makes one fail */
    apr_cuda_started started;
    bool recording;       /* see record */
    bool tiles;           /* see use_tiles */
    bool exact;           /* see use_exact */
    bool batch_invariant; /* see use_batch_invariant */
    bool fp8;             /* see use_fp8 */
    bool refuses;         /* tests: every cuBLAS product is refused */
    bool lost;            /* a sticky error: the device is unusable */
    char lost_text[1024]; /* the message about it */
};

/* Whether the context is unusable after this error. */
bool apr_cuda_is_sticky(cudaError_t error);

/* APR_OK for cudaSuccess; else APR_E_DEVICE with "<doing>: <CUDA's message>", or APR_E_UNSUPPORTED when the library has no code for the
 * device. A sticky error makes the device lost. */
apr_status apr_cuda_result(apr_cuda_device *device, cudaError_t error, const char *doing, apr_error *err);
/* The same, with what was started last as `doing`. */
apr_status apr_cuda_outcome(apr_cuda_device *device, cudaError_t error, apr_error *err);
/* What was started last, as text; "" if nothing was. */
const char *apr_cuda_operation(apr_cuda_device *device);
/* Describes what is started now, if it is not an operation. */
__attribute__((format(printf, 2, 3))) void apr_cuda_begin(apr_cuda_device *device, const char *format, ...);
/* The same for a static string: only the pointer is kept. */
void apr_cuda_begin_phase(apr_cuda_device *device, const char *words);
/* APR_OK, or the error message of a lost device again. */
apr_status apr_cuda_alive(const apr_cuda_device *device, apr_error *err);
/* Device memory may be written from here on: what an earlier call left there is no longer valid. */
static inline void apr_cuda_count_write(apr_cuda_device *device) { device->n_writes++; }

/* Every function of the table calls this first. Returns the error of a lost device, or makes the device current. Counts as a write. */
apr_status apr_cuda_make_current(apr_cuda_device *device, apr_error *err);
/* The same for a function that writes nothing to device memory, or nothing that operations read. */
apr_status apr_cuda_make_current_to_read(apr_cuda_device *device, apr_error *err);

/* gemm.cu */
apr_status apr_cuda_linear(apr_cuda_device *device, const apr_linear_args *args, apr_error *err);
apr_status apr_cuda_glu(apr_cuda_device *device, const apr_glu_args *args, apr_error *err);
/* heads.cu: a matrix per head */
apr_status apr_cuda_linear_heads(apr_cuda_device *device, const apr_linear_args *args, apr_error *err);
/* blaslt.cu: frees the device's algorithm choices; NULL is fine */
void apr_cuda_free_gemm_choices(struct apr_cuda_choices *choices);
/* fp8.cu; done: false if another kernel must compute the product */
apr_status apr_cuda_linear_fp8(apr_cuda_device *device, const apr_linear_args *args, bool *done, apr_error *err);
apr_status apr_cuda_start_blas(apr_cuda_device *device, void *workspace, uint64_t n_bytes, int *version, apr_error *err);
apr_status apr_cuda_decode_f16(apr_cuda_device *device, const apr_tensor *matrix, int64_t first, int64_t n_rows, void *out, apr_error *err);

/* run.cu */
extern const apr_backend apr_cuda_backend;
bool apr_cuda_takes(apr_dtype dtype);
bool apr_cuda_takes_packing(const struct apr_packing *packing, apr_dtype dtype);
apr_status apr_cuda_run(apr_cuda_device *device, apr_op_kind kind, const apr_op_args *args, apr_error *err);

/* topk.cu */
apr_status apr_cuda_topk(apr_cuda_device *device, const float *logits, int64_t n, int n_wanted, float temperature, void *work,
                         apr_cuda_topk_result *found, apr_error *err);
apr_status apr_cuda_topk_rows(apr_cuda_device *device, const float *logits, int64_t n, int64_t n_rows, const apr_topk *requests, void *work,
                              uint64_t n_bytes, apr_cuda_topk_result *found, apr_error *err);

/* compare_logits.cu */
apr_status apr_cuda_compare_logits(apr_cuda_device *device, const float *reference, const float *other, int64_t n, int64_t n_rows,
                                   const int32_t *next, apr_cuda_logits_difference *found, apr_error *err);

/* column_squares.cu */
apr_status apr_cuda_column_squares(apr_cuda_device *device, const float *x, int64_t n_rows, int64_t width, double *sums, apr_error *err);

/* rows_run.cu */
bool apr_cuda_has_rows(const apr_cuda_device *device, const apr_tensor *weight, int64_t n_out, int64_t n_in, int64_t widest,
                       const apr_workspace *work);
apr_status apr_cuda_run_rows(apr_cuda_device *device, const apr_rows_args *args, apr_error *err);
apr_status apr_cuda_run_rows_inputs(apr_cuda_device *device, const apr_rows_inputs *args, apr_error *err);

/* run.cu */
apr_status apr_cuda_run_rows_experts(apr_cuda_device *device, const apr_rows_experts *args, apr_error *err);

/* graph.cu */
apr_status apr_cuda_record(apr_cuda_device *device, apr_error *err);
apr_status apr_cuda_end_record(apr_cuda_device *device, apr_cuda_graph **graph, apr_error *err);
apr_status apr_cuda_replay(apr_cuda_graph *graph, apr_error *err);
void apr_cuda_free_graph(apr_cuda_graph *graph);

/* decode_gemv_run.cu */
bool apr_cuda_has_decode_gemv(const apr_cuda_device *device, apr_dtype dtype, int64_t n_out, int64_t n_in);
apr_status apr_cuda_run_to_tiles(apr_cuda_device *device, apr_dtype dtype, void *to, const void *rows, int64_t n_rows, int64_t n_in,
                                 apr_error *err);
apr_status apr_cuda_run_decode_gemv(apr_cuda_device *device, const apr_decode_gemv_args *args, apr_error *err);
apr_status apr_cuda_run_decode_gemv_inputs(apr_cuda_device *device, const apr_decode_gemv_inputs *args, apr_error *err);
apr_status apr_cuda_run_experts(apr_cuda_device *device, const apr_experts_args *args, const apr_decode_gemv_args *gemv, apr_error *err);
apr_status apr_cuda_run_qkv_epilogue(apr_cuda_device *device, const apr_qkv_epilogue_args *args, apr_error *err);
apr_status apr_cuda_run_latent_query(apr_cuda_device *device, const apr_latent_query_args *args, const apr_latent_store_args *store,
                                     apr_error *err);
apr_status apr_cuda_run_latent_store(apr_cuda_device *device, const apr_latent_store_args *args, apr_error *err);
apr_status apr_cuda_run_attend_to_i16(apr_cuda_device *device, const apr_qkv_epilogue_args *qkv, const apr_attend_args *args,
                                      uint8_t *activations_out, apr_error *err);

/* prompt.cu */
apr_status apr_cuda_run_prompt(apr_cuda_device *device, const apr_prompt_args *args, apr_error *err);

/* probe.cu */
apr_status apr_cuda_run_probe(apr_cuda_device *device, apr_cuda_probe which, apr_error *err);
apr_status apr_cuda_measure_bandwidth(apr_cuda_device *device, double *read, double *upload, apr_error *err);

/* codec_workers.cu */
extern const apr_cuda_codecs apr_cuda_codec_table;

/* kernels/cuda/feedback/solver.cu */
extern const apr_cuda_feedback apr_cuda_feedback_table;

/* kernels/cuda/grad/table.cu */
extern const apr_cuda_grad apr_cuda_grad_table;

/* nvml.cu */
void apr_cuda_nvml_facts(apr_cuda_facts *facts);

#endif
