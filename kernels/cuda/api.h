/* api.h - the interface of libaprkit-cuda.so: plain C without a CUDA header. The library exports a table of functions.
 *
 * A device is opened once: this makes a context (with a small stack limit) and one stream, and allocates nothing. Memory comes only from
 * alloc(); cuBLAS also gets its workspace from there. Operations take the argument structs of kernels/ops.h with device pointers
 * (apr_tensor.data and apr_tensor.scale->data are also device pointers; the structs themselves stay on the host). They run in order on the
 * device's stream. upload() and download() are gathered with them and have finished when they return.
 *
 * Several devices may be open in one thread, on several cards or on one. Every function first makes its device the current one.
 *
 * Errors on a GPU are asynchronous and sticky: after the first one nothing works in that process. Every function then returns APR_E_DEVICE
 * with the first message (stage, operation, tensor, types, dimensions), and is_lost() returns true. */
#ifndef APR_KERNELS_CUDA_API_H
#define APR_KERNELS_CUDA_API_H

#include "formats/tensor/packing.h"
#include "kernels/cuda/decode_gemv_args.h"
#include "kernels/cuda/prompt_args.h"
#include "kernels/cuda/rows_args.h"
#include "kernels/grad.h"
#include "kernels/ops.h"
#include "kernels/out_of_range.h"
#include "kernels/topk.h"

/* The library exports two symbols. The first is its description (apr_cuda_description). The second is a function that returns the table of
 * functions, or NULL when the library was built for another APR_CUDA_ABI. */
#define APR_CUDA_BUILD "apr_cuda_build"
#define APR_CUDA_ENTRY "apr_cuda_plugin"

enum { APR_CUDA_MARKS = 16 };

typedef struct apr_cuda_device apr_cuda_device;
typedef struct apr_cuda_graph apr_cuda_graph; /* recorded operations of one device: see record */

/* Top-k of a row of logits, in device memory: keys of kernels/topk.h, the largest first, as many as were asked for. */
typedef struct apr_cuda_topk_result {
    uint64_t keys[APR_TOPK_MAX];
    double sum, parts[APR_TOPK_MAX_PARTS]; /* the parts only where a row has at most APR_TOPK_MAX_PARTS */
} apr_cuda_topk_result;

/* Two models' distributions of the next token, in one row of logits each (runtime/check/compare.h). */
typedef struct apr_cuda_logits_difference {
    double kl;                       /* of the other from the reference; NaN when a logit is not finite */
    double nll_reference, nll_other; /* negative log likelihood of the token that follows; 0 when there is none */
    int64_t same_top;                /* 1: both have the same argmax */
} apr_cuda_logits_difference;

/* The state of a single token in device memory: what recorded operations read of it, and its result. */
typedef struct apr_cuda_token {
    int64_t position;
    int32_t id, unused;
    apr_cuda_topk_result found;
} apr_cuda_token;

/* Properties of a device that are known before it has a context. Versions as CUDA counts them: 13000 is 13.0. */
typedef struct apr_cuda_facts {
    char name[256], bus[32];
    char driver[80]; /* "580.95.05"; "" when NVML is not there */
    int ordinal, major, minor, n_sms, threads_per_sm;
    uint64_t total_bytes;
    uint64_t used_bytes; /* of the whole card, by all processes, from NVML; UINT64_MAX: unknown */
    int l2_bytes, memory_bus_bits;
    bool is_integrated;                  /* shares the host's memory */
    int driver_version, runtime_version; /* the newest CUDA that the driver supports; the one that is linked */
} apr_cuda_facts;

typedef struct apr_cuda_options {
    uint32_t stack_bytes;    /* of every thread: see runtime/plan/gpus.h for its cost; 0: CUDA's default */
    bool check_each;         /* wait after every operation, so that an error names the operation that caused it */
    int64_t fail_allocation; /* tests: the n-th allocation (from 1) fails as if memory were full; 0: none */
    /* Describes an operation for an error message; NULL: messages have its number only. */
    void (*describe)(apr_op_kind kind, const apr_op_args *args, char *text, size_t n_bytes);
} apr_cuda_options;

typedef enum { APR_CUDA_PROBE_FP16, APR_CUDA_PROBE_FP8, APR_CUDA_PROBE_COUNT } apr_cuda_probe;

/* --- codecs: the same bytes as kernels/ref, on the device --- */

/* One worker of a pipeline: a stream, pinned host memory and buffers of the same sizes on the device. Its work runs while other workers'
 * buffers are filled. A worker belongs to one thread at a time; different workers may be used concurrently. */
typedef struct apr_cuda_worker {
    uint8_t *in;       /* [sizes.in_bytes] the source's blocks */
    float *factors;    /* [sizes.n_factors] of decoded values, see apr_cuda_portion */
    uint8_t *out;      /* [sizes.out_bytes] the encoded blocks */
    float *row_scales; /* [sizes.n_rows] of FP8 rows */
    float *importance; /* [sizes.n_importance] of columns, see apr_cuda_portion */
} apr_cuda_worker;

typedef struct apr_cuda_worker_sizes {
    size_t in_bytes, out_bytes;
    int64_t n_elems, n_factors, n_rows, n_importance; /* maxima for one portion */
} apr_cuda_worker_sizes;

/* Values to decode and encode: n_elems of them in in_bytes, whole blocks of `to`. Decoded value i is multiplied by factors[i / columns *
 * factors_wide + i % columns / factors_group]. FP8 consists of rows of `columns` with a scale each. */
typedef struct apr_cuda_portion {
    apr_dtype from, to;
    int64_t n_elems, columns;
    size_t in_bytes;
    int64_t factors_wide, factors_group; /* 0: no factors */
    apr_range range;                     /* of `to`: apr_encode_range */
    bool saturate;                       /* clamp finite values to the range */
    /* With n_importance > 0, for types that are encoded by importance: value i of the portion is element e = importance_first + i of
     * consecutive matrices. Its importance is importance[e / importance_matrix * columns + e % columns]. Columns are whole blocks. */
    int64_t n_importance, importance_matrix, importance_first;
} apr_cuda_portion;

typedef struct apr_cuda_codecs {
    bool (*decodes)(apr_dtype dtype);
    bool (*encodes)(apr_dtype dtype);
    bool (*encodes_by)(apr_dtype dtype); /* by importance */
    /* Whether the device has free memory for n_workers workers of these sizes. APR_E_MEMORY: no, the message has both numbers. */
    apr_status (*check_memory)(apr_cuda_device *device, const apr_cuda_worker_sizes *sizes, int n_workers, apr_error *err);
    apr_status (*open_worker)(apr_cuda_device *device, const apr_cuda_worker_sizes *sizes, apr_cuda_worker **worker, apr_error *err);
    void (*close_worker)(apr_cuda_worker *worker); /* NULL is fine */
    /* Queues upload, decoding, encoding and download, and returns at once. */
    apr_status (*start)(apr_cuda_worker *worker, const apr_cuda_portion *portion, apr_error *err);
    /* Waits until out and row_scales are complete. out_of_range: out-of-range values among the decoded ones. */
    apr_status (*wait)(apr_cuda_worker *worker, apr_out_of_range *out_of_range, apr_error *err);
    /* For benchmarks: seconds of decoding and of encoding the last portion once more, without transfers, and bytes per second (read plus
     * written) of a copy on the device. Medians of n_times. */
    apr_status (*measure)(apr_cuda_worker *worker, int n_times, double *decode_s, double *encode_s, double *copy_bytes_per_s,
                          apr_error *err);
} apr_cuda_codecs;

/* --- rounding with error feedback: the steps of quant/feedback on a device, many rows in parallel --- */

enum { APR_CUDA_PANEL = 256 }; /* columns that are rounded before the later columns are updated; a multiple of every block size */

/* What the search must know of a type (explained in quant/feedback/grid.h). Only the host handles its bytes. */
typedef struct apr_cuda_grid {
    int elems, sub_elems;
    bool is_e2m1, is_iq4; /* codes are those of E2M1, doubled, or the levels of IQ4; else whole numbers */
    float low, high;
    int steps; /* 0: d alone; 1: d times an integer; 2: an exponent; 3: an E4M3 number; 4: d times first + gap * an integer */
    int scale_low, scale_high, min_low, min_high;
    bool fits_min, min_is_signed;
    int scale_reach, min_reach;
    apr_dtype points;       /* the type, if it has a codebook; else APR_DTYPE_COUNT */
    float unit, first, gap; /* of a codebook: level = unit * code; step = d * (first + gap * scale) */
} apr_cuda_grid;

/* A prepared Hessian (quant/feedback/hessian.h) in device memory. */
typedef struct apr_cuda_factors {
    int64_t n;
    float *h;        /* [n, n] */
    float *pull;     /* [n, n]: pull[j * n + k] of order[k] for the error of order[j], j < k; else 0. The host's is the transpose */
    float *diagonal; /* [n] of h */
    float *pivot;    /* [n] R_kk */
    int32_t *order;  /* [n] */
} apr_cuda_factors;

/* Of a group of eight columns, for types with codebooks. */
typedef struct apr_cuda_points_metric {
    float s[8][8];     /* the error of codes c for wanted values u is (u - c) S (u - c)^T */
    float solve[8][8]; /* what wanted values follow from: the factors of pull inside of the group, or the inverse of S */
    float inverse[8];  /* one over the diagonal of S */
} apr_cuda_points_metric;

/* Rows that are being rounded, in device memory: [n_rows, n] unless noted. */
typedef struct apr_cuda_feedback_rows {
    apr_cuda_grid grid;
    const apr_cuda_factors *factors;
    int64_t n_rows;
    float *weight, *error;
    float *gathered; /* errors in column order */
    int8_t *code;
    int16_t *scale, *min;            /* [n_rows, n / sub_elems] */
    uint16_t *d, *dmin;              /* [n_rows, n / elems] */
    float *panel;                    /* [n_rows, APR_CUDA_PANEL] */
    apr_cuda_points_metric *metrics; /* [n / 8], of types with codebooks */
    double *objective;               /* [n_rows] */
} apr_cuda_feedback_rows;

typedef struct apr_cuda_solver apr_cuda_solver; /* handles of cuBLAS and cuSOLVER on one device */

/* All functions run in order on the device's stream. Those that return a number have waited for it. Pointers are device pointers unless
 * noted. */
typedef struct apr_cuda_feedback {
    /* workspace: for cuBLAS. *name (a static host string): the library that factorises, and the reason where it is not cuSOLVER. */
    apr_status (*open)(apr_cuda_device *device, void *workspace, uint64_t n_bytes, apr_cuda_solver **solver, const char **name,
                       apr_error *err);
    void (*close)(apr_cuda_solver *solver); /* NULL is fine */
    /* sums [n, n] += x^T x of x [n_tokens, n]. Inputs are rounded to TF32 (10 bits; not on devices without TF32), sums are float32. So each
     * sum is off by at most 2^-9 of the sum of its products' magnitudes, and stays that of a positive matrix, since each input is rounded
     * the same way in all products. */
    apr_status (*add)(apr_cuda_solver *solver, float *sums, int64_t n, const float *x, int64_t n_tokens, apr_error *err);
    /* h = sums, or h += sums */
    apr_status (*merge)(apr_cuda_solver *solver, float *h, const float *sums, int64_t n, bool first, apr_error *err);
    apr_status (*diagonal)(apr_cuda_solver *solver, const float *h, int64_t n, float *diagonal, apr_error *err);
    /* l [n, n], by rows: the lower Cholesky factor, float64, of h * scale + damping, rows and columns in reversed order. *done (on the
     * host) false: h has none. work: apr_cuda_solver_bytes(n). */
    apr_status (*factorise)(apr_cuda_solver *solver, const apr_cuda_factors *factors, double scale, double damping, double *l, void *work,
                            bool *done, apr_error *err);
    /* pull and pivot from l; h scaled and damped in place, and its diagonal. */
    apr_status (*finish)(apr_cuda_solver *solver, const apr_cuda_factors *factors, double scale, double damping, const double *l,
                         apr_error *err);
    /* Blocks as the type's encoder makes them, weighted by the diagonal where the type has an encoder by importance. */
    apr_status (*start)(apr_cuda_solver *solver, apr_dtype dtype, const apr_cuda_feedback_rows *lanes, void *blocks, apr_error *err);
    /* Errors of the current codes and scales; then the steps of quant/feedback/lane_rows.h. */
    apr_status (*errors)(apr_cuda_solver *solver, const apr_cuda_feedback_rows *lanes, apr_error *err);
    apr_status (*round)(apr_cuda_solver *solver, const apr_cuda_feedback_rows *lanes, apr_error *err);
    apr_status (*descend)(apr_cuda_solver *solver, const apr_cuda_feedback_rows *lanes, bool rescale, apr_error *err);
    apr_status (*refit)(apr_cuda_solver *solver, const apr_cuda_feedback_rows *lanes, apr_error *err);
    /* tr(E H E^T) of each row, into lanes->objective. */
    apr_status (*objective)(apr_cuda_solver *solver, const apr_cuda_feedback_rows *lanes, apr_error *err);
} apr_cuda_feedback;

/* Bytes of factorise's work buffer. */
static inline uint64_t apr_cuda_solver_bytes(int64_t n) { return ((uint64_t)n * 1024 + (1 << 17)) * sizeof(double); }

/* --- training: the operations of kernels/grad.h on a device, in float32 --- */

/* Adam: mean = mean_decay * mean + mean_share * gradient, power the same of its square; what is used of them is multiplied by the scales. */
typedef struct apr_cuda_adam {
    float mean_decay, mean_share, power_decay, power_share;
    float mean_scale, power_scale, epsilon;
} apr_cuda_adam;

/* A call is that of kernels/grad.h; its pointers, and those of ids and frequencies, are device pointers; `tiles` is not read. All functions
 * run in order on the device's stream and do not wait. They need start_blas. Products that give the gradients of a layer's input and weight
 * round theirs to TF32 (11 bits), unless use_exact is on; all others are as exact as float32. Sums have one order: the same inputs give the
 * same bits. */
typedef struct apr_cuda_grad {
    bool (*has)(apr_op_kind kind);
    /* Numbers of scratch memory (`work`) for either pass. Of the call, shapes are read, and which inputs are NULL. */
    uint64_t (*work)(apr_op_kind kind, const apr_grad_call *call);
    apr_status (*forward)(apr_cuda_device *device, apr_op_kind kind, const apr_grad_call *call, apr_error *err);
    apr_status (*backward)(apr_cuda_device *device, apr_op_kind kind, const apr_grad_call *call, apr_error *err);
    /* As in apr_grad_numbers; kl: [n_rows] in device memory. */
    apr_status (*divergence)(apr_cuda_device *device, const float *teacher, float *student, int64_t n_rows, int64_t width, double factor,
                             bool gradient, double *kl, apr_error *err);
    /* Into *found, in device memory: the complement (~) of the index of the first number that is not finite; 0 (which is ~-1): all are. */
    apr_status (*first_not_finite)(apr_cuda_device *device, const float *x, int64_t n, uint64_t *found, apr_error *err);
    /* What F32, F16 or BF16 store of n numbers. */
    apr_status (*stored)(apr_cuda_device *device, const float *x, int64_t n, apr_dtype dtype, float *to, apr_error *err);
    /* A step of AdamW: x -= rate * mean / sqrt(power) + decay * x, with mean and power updated by the gradient before. */
    apr_status (*adamw)(apr_cuda_device *device, const apr_cuda_adam *adam, float rate, float decay, const float *gradient, int64_t n,
                        float *x, float *mean, float *power, apr_error *err);
} apr_cuda_grad;

typedef struct apr_cuda_api {
    uint64_t abi;
    const char *architectures; /* its native code: "75 80 86 89 90 100 103 120 121"; the last one also as PTX */

    /* Number of devices that the driver shows. Without a driver or a device APR_E_DEVICE (and *n = 0) with the driver's message. */
    apr_status (*count)(int *n, apr_error *err);
    apr_status (*facts)(int ordinal, apr_cuda_facts *facts, apr_error *err);

    apr_status (*open)(apr_cuda_device **device, int ordinal, const apr_cuda_options *options, apr_error *err);
    void (*close)(apr_cuda_device *device); /* NULL is fine; frees all its allocations */
    bool (*is_lost)(const apr_cuda_device *device);

    /* As the driver reports them, for the whole card. */
    apr_status (*memory)(apr_cuda_device *device, uint64_t *free_bytes, uint64_t *total_bytes, apr_error *err);
    /* n_bytes at a multiple of 256; `what` is the plan's line, for error messages. 0 bytes give NULL. */
    apr_status (*alloc)(apr_cuda_device *device, uint64_t n_bytes, const char *what, void **p, apr_error *err);
    /* Frees memory of alloc or pin; NULL is fine. Waits for work in progress that uses it. */
    void (*release)(apr_cuda_device *device, void *p);
    /* Pinned host memory for asynchronous copies, at a multiple of 256; freed when the device is closed. */
    apr_status (*pin)(apr_cuda_device *device, uint64_t n_bytes, const char *what, void **p, apr_error *err);
    /* Copies from pinned memory to the device, and back. In order with operations, without waiting; check() waits. */
    apr_status (*send)(apr_cuda_device *device, void *to, const void *pinned, uint64_t n_bytes, apr_error *err);
    apr_status (*receive)(apr_cuda_device *device, void *pinned, const void *from, uint64_t n_bytes, apr_error *err);
    /* Records an event behind the work queued until now, in one of APR_CUDA_MARKS places; replaces the event recorded there before. */
    apr_status (*mark)(apr_cuda_device *device, int mark, apr_error *err);
    /* Waits for that event, or until the device has failed; the next call then reports it. Any thread may wait while another one uses the
     * device. */
    void (*wait_mark)(apr_cuda_device *device, int mark);
    apr_status (*upload)(apr_cuda_device *device, void *to, const void *from, uint64_t n_bytes, apr_error *err);
    apr_status (*download)(apr_cuda_device *device, void *to, const void *from, uint64_t n_bytes, apr_error *err);
    /* Copies between devices or within one card: after the work queued on from_device, before later work on to_device. Waits. */
    apr_status (*transfer)(apr_cuda_device *from_device, const void *from, apr_cuda_device *to_device, void *to, uint64_t n_bytes,
                           apr_error *err);
    /* Fills with zeros; in order with operations, without waiting. */
    apr_status (*clear)(apr_cuda_device *device, void *p, uint64_t n_bytes, apr_error *err);

    /* Creates the cuBLAS handle with `workspace` (device memory); needed before the first linear of many tokens. */
    apr_status (*start_blas)(apr_cuda_device *device, void *workspace, uint64_t n_bytes, int *version, apr_error *err);

    /* Whether weights of this type can be used as stored. Otherwise the caller stores them as F16. */
    bool (*takes)(apr_dtype dtype);
    /* The same for a packed matrix in the canonical layout (kernels/repack.h), whose values are of `dtype`. Its tensors' data is on the
     * device, the structs stay on the host. */
    bool (*takes_packing)(const struct apr_packing *packing, apr_dtype dtype);
    /* Dequantizes logical rows of a matrix to FP16, into device memory. */
    apr_status (*decode_f16)(apr_cuda_device *device, const apr_tensor *matrix, int64_t first, int64_t n_rows, void *out, apr_error *err);
    /* With `on` no linear reads packed weights directly: all of them, also those of a single token, dequantize FP16 tiles first. */
    void (*use_tiles)(apr_cuda_device *device, bool on);
    /* With `on` products of many tokens are computed like those of few: float32 inputs, weights as stored. Slower, but exact to float32. */
    void (*use_exact)(apr_cuda_device *device, bool on);
    /* With `on` products are batch invariant: a token's results do not depend on how many other tokens are in the call. All products of
     * types with a small GEMM go through it (kernels/cuda/small_gemm/small_gemm.cuh), the others a few rows at a time. */
    void (*use_batch_invariant)(apr_cuda_device *device, bool on);
    /* With `on` products of many tokens with FP8 weights that have a scale per row, or one scale, run in FP8. */
    void (*use_fp8)(apr_cuda_device *device, bool on);
    /* The operations that exist here, for apr_program_missing_op; the functions in the table do nothing. */
    const apr_backend *backend;
    /* Tensors that args point to must stay valid until another operation is run or the device is closed: error messages about this one use
     * them. */
    apr_status (*run)(apr_cuda_device *device, apr_op_kind kind, const apr_op_args *args, apr_error *err);
    /* Whether there is a decode GEMV (kernels/cuda/decode_gemv_args.h) for such a matrix. Weights of a tiled type must then be tiled. */
    bool (*has_decode_gemv)(const apr_cuda_device *device, apr_dtype dtype, int64_t n_out, int64_t n_in);
    /* Most kernels from now on are decode GEMVs, or run between them: all kernels then use the same shared memory carveout. */
    apr_status (*expect_decode_gemv)(apr_cuda_device *device, bool on, apr_error *err);
    /* Tiles rows as stored, a multiple of 16 of them, into `to`: both on the device. Does not wait. */
    apr_status (*to_tiles)(apr_cuda_device *device, apr_dtype dtype, void *to, const void *rows, int64_t n_rows, int64_t n_in,
                           apr_error *err);
    apr_status (*decode_gemv)(apr_cuda_device *device, const apr_decode_gemv_args *args, apr_error *err);
    apr_status (*decode_gemv_inputs)(apr_cuda_device *device, const apr_decode_gemv_inputs *args, apr_error *err);
    /* The experts of a single token, where apr_experts_have_decode_gemv is true. `gemv` describes input and epilogue as of one
     * product: activations, squares and eps; STORE or ADD, residual, gains, activations_out, and parts[0].out. Its weights are not read, nor
     * are x and out of `args`. */
    apr_status (*experts)(apr_cuda_device *device, const apr_experts_args *args, const apr_decode_gemv_args *gemv, apr_error *err);
    /* The QKV epilogue of one token or of several, where apr_has_qkv_epilogue is true. */
    apr_status (*qkv_epilogue)(apr_cuda_device *device, const apr_qkv_epilogue_args *args, apr_error *err);
    /* Latent attention of any number of tokens: the operations before attention, in two calls or, with `store`, in one. Up to
     * APR_LATENT_MAX_DIM numbers. */
    apr_status (*latent_query)(apr_cuda_device *device, const apr_latent_query_args *args, const apr_latent_store_args *store,
                               apr_error *err);
    apr_status (*latent_store)(apr_cuda_device *device, const apr_latent_store_args *args, apr_error *err);
    /* Attention of a single token, whose output is written as activations (kernels/cuda/common/activations_i16.cuh). n_heads * value_dim is a multiple
     * of 16. With `qkv` the QKV epilogue runs first; then neither the rotated query nor the output need exist as float32. */
    apr_status (*attend_to_i16)(apr_cuda_device *device, const apr_qkv_epilogue_args *qkv, const apr_attend_args *args,
                                uint8_t *activations_out, apr_error *err);
    /* Fused operations of many tokens (kernels/cuda/prompt_args.h), after start_blas, while use_tiles, use_exact, use_batch_invariant and use_fp8 are
     * off. What a call leaves for the next one is valid for that call only. */
    apr_status (*prompt)(apr_cuda_device *device, const apr_prompt_args *args, apr_error *err);
    /* Whether there is a small GEMM with epilogues (kernels/cuda/rows_args.h) for such a matrix, and `work` is large enough when the widest
     * value in a slot has `widest` numbers. Results are those with use_batch_invariant. */
    bool (*has_rows)(const apr_cuda_device *device, const apr_tensor *weight, int64_t n_out, int64_t n_in, int64_t widest,
                     const apr_workspace *work);
    apr_status (*rows)(apr_cuda_device *device, const apr_rows_args *args, apr_error *err);
    apr_status (*rows_inputs)(apr_cuda_device *device, const apr_rows_inputs *args, apr_error *err);
    apr_status (*rows_experts)(apr_cuda_device *device, const apr_rows_experts *args, apr_error *err);
    /* Top-k of logits[n] on the device, and their softmax sum where a temperature is given, into device memory at `found`; `work` has
     * apr_cuda_topk_bytes(n). Does not wait. */
    apr_status (*topk)(apr_cuda_device *device, const float *logits, int64_t n, int n_wanted, float temperature, void *work,
                       apr_cuda_topk_result *found, apr_error *err);
    /* The same for n_rows rows, row i with n_wanted and temperature of wishes[i], into found[n_rows]. `work` has n_bytes, at least those of
     * one row. */
    apr_status (*topk_rows)(apr_cuda_device *device, const float *logits, int64_t n, int64_t n_rows, const apr_topk *wishes, void *work,
                            uint64_t n_bytes, apr_cuda_topk_result *found, apr_error *err);

    /* sums[c] += x[r][c]^2 for each row r of x [n_rows, width], in the order of the rows: the bits of a host's loop in float64. Does not
     * wait. */
    apr_status (*column_squares)(apr_cuda_device *device, const float *x, int64_t n_rows, int64_t width, double *sums, apr_error *err);

    /* Compares n_rows rows of n logits, all in device memory. next: [n_rows] the ids of the tokens that follow, -1: none. Does not wait. */
    apr_status (*compare_logits)(apr_cuda_device *device, const float *reference, const float *other, int64_t n, int64_t n_rows,
                                 const int32_t *next, apr_cuda_logits_difference *found, apr_error *err);

    /* From record to end_record operations are recorded, not run. Their pointers and sizes are fixed then; the contents of memory are not.
     * Call nothing else of the device meanwhile. Operations that wait cannot be recorded (APR_E_UNSUPPORTED). After every successful record
     * end_record must follow, also when an operation failed. The device is usable afterwards, whatever end_record returns. */
    apr_status (*record)(apr_cuda_device *device, apr_error *err);
    /* *graph belongs to the caller, who must pass it to forget() before the device is closed; NULL on failure. */
    apr_status (*end_record)(apr_cuda_device *device, apr_cuda_graph **graph, apr_error *err);
    /* Runs all recorded operations once more, in order with others, without waiting. */
    apr_status (*replay)(apr_cuda_graph *graph, apr_error *err);
    void (*forget)(apr_cuda_graph *graph); /* NULL is fine */

    /* Waits for everything, and returns the first error, with the stage's name in front. */
    apr_status (*check)(apr_cuda_device *device, const char *stage, apr_error *err);
    void (*check_each)(apr_cuda_device *device, bool on); /* as in the options */

    /* Multiplies small matrices and compares with the host: APR_OK correct, APR_E_NO wrong, APR_E_UNSUPPORTED not available here. */
    apr_status (*probe)(apr_cuda_device *device, apr_cuda_probe which, apr_error *err);
    /* Bytes per second of a large read, and of host to device from pinned memory; allocates 512 MiB temporarily. */
    apr_status (*bandwidth)(apr_cuda_device *device, double *read, double *upload, apr_error *err);

    const apr_cuda_codecs *codecs;
    const apr_cuda_feedback *feedback;
    const apr_cuda_grad *grad;
} apr_cuda_api;

/* --- the number on which tools and library agree --- */

/* APR_CUDA_ABI is two halves of 32 bits. A library of another number is refused.
 *
 * The upper half is a hash of the text of the headers that both read, and of all these include (kernels/cuda/interface.sh, called by the
 * Makefile). It notices a field or a list's entry that was added, renamed or moved. Comments and white space do not count.
 * The lower half is a hash of what the compiler makes of that text: the sizes of the types that cross the boundary, and what lists hold.
 * It notices what the text cannot show: flags such as -fshort-enums and -fpack-struct. */
#ifndef APR_CUDA_INTERFACE
#define APR_CUDA_INTERFACE 0u /* compiled without the Makefile's number: the upper half is 0 */
#endif
#define APR_CUDA_ABI ((uint64_t)APR_CUDA_INTERFACE << 32 | (uint64_t)APR_CUDA_LAYOUT)

/* X(type): every type that a call passes, by value or by pointer. */
#define APR_CUDA_TABLES(X)   X(apr_cuda_api) X(apr_cuda_codecs) X(apr_cuda_feedback) X(apr_cuda_grad) X(apr_backend)
#define APR_CUDA_DEVICES(X)  X(apr_cuda_options) X(apr_cuda_facts) X(apr_cuda_probe) X(apr_status) X(apr_error)
#define APR_CUDA_WORKERS(X)  X(apr_cuda_worker) X(apr_cuda_worker_sizes) X(apr_cuda_portion) X(apr_range) X(apr_out_of_range)
#define APR_CUDA_ROUNDING(X) X(apr_cuda_grid) X(apr_cuda_factors) X(apr_cuda_points_metric) X(apr_cuda_feedback_rows)
#define APR_CUDA_TRAINING(X) X(apr_cuda_adam)
#define APR_CUDA_TOKENS(X)   X(apr_cuda_topk_result) X(apr_cuda_logits_difference) X(apr_cuda_token) X(apr_topk)
#define APR_CUDA_TENSORS(X)  X(apr_dtype) X(apr_dtype_facts) X(apr_tensor) X(apr_step) X(apr_step_kind) X(apr_chain) X(apr_origins)
#define APR_CUDA_PACKINGS(X) X(apr_packing) X(apr_nested_scales) X(apr_code_order) X(apr_code_level) X(apr_zero_order)
#define APR_CUDA_OPS(X) \
    X(apr_op_kind) X(apr_op_args) X(apr_grad_call) X(apr_workspace) X(apr_cache) X(apr_linear_heads) X(apr_glu_shape) X(apr_route_shape)
#define APR_CUDA_KINDS(X)  X(apr_activation) X(apr_norm_kind) X(apr_rope_mode) X(apr_score_kind) X(apr_epilogue) X(apr_prompt_epilogue)
#define APR_CUDA_DECODE(X) X(apr_decode_gemv_part) X(apr_decode_gemv_args) X(apr_decode_gemv_inputs) X(apr_qkv_epilogue_args)
#define APR_CUDA_LATENT(X) X(apr_latent_query_args) X(apr_latent_store_args)
#define APR_CUDA_STEPS(X) \
    X(apr_prompt_args) X(apr_rows_workspace) X(apr_rows_output) X(apr_rows_args) X(apr_rows_inputs) X(apr_rows_experts)

/* X(constant): lengths of lists, and of arrays. */
#define APR_CUDA_ENUMS(X)  X(APR_DTYPE_COUNT) X(APR_OP_COUNT) X(APR_ACT_COUNT) X(APR_SCORE_KINDS) X(APR_CODES_ORDER_COUNT) X(APR_STEP_COUNT)
#define APR_CUDA_ARRAYS(X) X(APR_CUDA_PROBE_COUNT) X(APR_CUDA_MARKS) X(APR_CUDA_PANEL) X(APR_MAX_RANK)

#define APR_CUDA_TYPES(X) \
    APR_CUDA_TABLES(X)    \
    APR_CUDA_DEVICES(X)   \
    APR_CUDA_WORKERS(X)   \
    APR_CUDA_ROUNDING(X)  \
    APR_CUDA_TRAINING(X)  \
    APR_CUDA_TOKENS(X)    \
    APR_CUDA_TENSORS(X)   \
    APR_CUDA_PACKINGS(X)  \
    APR_CUDA_OPS(X)       \
    APR_CUDA_KINDS(X)     \
    APR_CUDA_DECODE(X)    \
    APR_CUDA_LATENT(X)    \
    APR_CUDA_STEPS(X)
#define APR_CUDA_LENGTHS(X) APR_CUDA_ENUMS(X) APR_CUDA_ARRAYS(X)

/* Each of them has its own place in the hash. */
typedef enum {
#define X(name) APR_CUDA_PLACE_##name,
    APR_CUDA_TYPES(X) APR_CUDA_LENGTHS(X)
#undef X
        APR_CUDA_PLACES
} apr_cuda_passed;

/* The hash is the sum of all values, each mixed with its place, so that two changes do not cancel out. */
#define APR_CUDA_STIR(x)           (((x) ^ (x) >> 15) * 0x2c1b3c6du)
#define APR_CUDA_MIX(place, value) APR_CUDA_STIR((uint32_t)(place)*0x85ebca6bu + (uint32_t)(value)*0x9e3779b1u)

#define APR_CUDA_MIX_TYPE(type)     +APR_CUDA_MIX(APR_CUDA_PLACE_##type, sizeof(type))
#define APR_CUDA_MIX_LENGTH(length) +APR_CUDA_MIX(APR_CUDA_PLACE_##length, length)
/* The values behind the enums: APR ids and blocks of types, the size of an operation's arguments. */
#define APR_CUDA_MIX_DTYPE(id, name, class_of, elems, bytes, scales, flat, ggml, apr, safetensors) \
    +APR_CUDA_MIX(1000 + APR_##id, (apr) << 20 | (elems) << 10 | (bytes))
#define APR_CUDA_MIX_OP(ID, id, name) +APR_CUDA_MIX(2000 + APR_OP_##ID, sizeof(apr_##id##_args))

#define APR_CUDA_LAYOUT                                                                                                     \
    ((uint32_t)0 APR_CUDA_TYPES(APR_CUDA_MIX_TYPE) APR_CUDA_LENGTHS(APR_CUDA_MIX_LENGTH) APR_DTYPE_LIST(APR_CUDA_MIX_DTYPE) \
         APR_OP_LIST(APR_CUDA_MIX_OP))

/* The library's description of itself, at the symbol APR_CUDA_BUILD. A tool reads it before it calls anything, so this layout never
 * changes. Older libraries do not have it. */
#define APR_CUDA_MARK "aprkit CUDA"
typedef struct apr_cuda_description {
    char mark[16];           /* APR_CUDA_MARK */
    uint64_t abi;            /* APR_CUDA_ABI */
    char architectures[104]; /* as in apr_cuda_api */
} apr_cuda_description;
extern const apr_cuda_description apr_cuda_build; /* defined by the library */

typedef const apr_cuda_api *(*apr_cuda_plugin_fn)(uint64_t abi);

/* --- workspace: linear and attend get the plan's single buffer in args.work (n_threads 1, slice floats) --- */

enum {
    APR_CUDA_FEW_TOKENS = 8,                  /* up to this many tokens read packed weights; more go through cuBLAS on FP16 tiles */
    APR_CUDA_CAREFUL_TOKENS = 128,            /* up to this many tokens have inputs of two FP16 parts, as accurate as float32 */
    APR_CUDA_DEQUANTIZED_BYTES = 1 << 29,     /* bytes of FP16 weights dequantized at a time if there is room: most matrices fit */
    APR_CUDA_MIN_DEQUANTIZED_BYTES = 1 << 26, /* the same if there is little room */
    APR_CUDA_EXPERT_TOKENS = 64,              /* tokens whose experts are computed at a time */
    APR_CUDA_ATTEND_SPLITS = 64,              /* maximum parts of a long context for few queries (split-KV) */
};

static inline size_t apr_cuda_round(size_t n_bytes) { return (n_bytes + 255) / 256 * 256; }

/* Rows of a matrix of n_in columns that are dequantized at a time: all if they are at most tile_bytes, else parts of equal size, a multiple
 * of 256, so that no part leaves most of a device idle. A tile of 256 rows may be more than tile_bytes. */
static inline int64_t apr_cuda_dequantized_rows(int64_t n_in, int64_t n_out, size_t tile_bytes)
{
    const int64_t fitting = (int64_t)(tile_bytes / 2) / n_in, most = fitting < 256 ? 256 : fitting / 256 * 256;
    if (n_out <= fitting || n_out <= most) return n_out;
    const int64_t n_tiles = (n_out + most - 1) / most, rows = (n_out + n_tiles - 1) / n_tiles;
    return (rows + 255) / 256 * 256;
}

/* Bytes of the FP16 inputs of at most n_tokens rows. Up to CAREFUL_TOKENS rows have two parts, the second after the first. */
static inline size_t apr_cuda_inputs_bytes(int64_t n_tokens, int64_t n_in)
{
    const int64_t n_careful = n_tokens < APR_CUDA_CAREFUL_TOKENS ? n_tokens : (int64_t)APR_CUDA_CAREFUL_TOKENS;
    const size_t once = apr_cuda_round((size_t)n_tokens * (size_t)n_in * 2),
                 twice = 2 * apr_cuda_round((size_t)n_careful * (size_t)n_in * 2);
    return once > twice ? once : twice;
}

/* For each row of inputs its power of two and its largest number; then the three numbers that rows share (kernels/cuda/gemm/activations_f16.cuh). */
static inline size_t apr_cuda_scales_bytes(int64_t n_rows) { return 2 * apr_cuda_round((size_t)n_rows * 4) + apr_cuda_round(12); }

/* Inputs, their scales, and a tile of FP16 weights (none for F16 weights) of at most tile_bytes. A product uses larger tiles if its
 * workspace has room for them. */
static inline size_t apr_cuda_linear_bytes_within(int64_t n_tokens, int64_t n_in, int64_t n_out, bool is_f16, size_t tile_bytes)
{
    const size_t inputs = apr_cuda_inputs_bytes(n_tokens, n_in) + apr_cuda_scales_bytes(n_tokens);
    return inputs + (is_f16 ? 0 : apr_cuda_round((size_t)apr_cuda_dequantized_rows(n_in, n_out, tile_bytes) * (size_t)n_in * 2));
}

static inline size_t apr_cuda_linear_bytes(int64_t n_tokens, int64_t n_in, int64_t n_out, bool is_f16)
{
    return apr_cuda_linear_bytes_within(n_tokens, n_in, n_out, is_f16, APR_CUDA_DEQUANTIZED_BYTES);
}

/* For a matrix per head: the number of heads whose rows are dequantized at a time. */
static inline int64_t apr_cuda_dequantized_heads(int64_t n_heads, int64_t head_rows, int64_t n_columns, size_t tile_bytes)
{
    const int64_t heads = (int64_t)(tile_bytes / 2) / n_columns / head_rows;
    return heads < 1 ? 1 : heads < n_heads ? heads : n_heads;
}

/* Like apr_cuda_linear_bytes_within, for a matrix per head: n_in of each head, n_columns of the weight. */
static inline size_t apr_cuda_linear_heads_bytes_within(int64_t n_tokens, const apr_linear_heads *heads, int64_t n_in, int64_t n_columns,
                                                        bool is_f16, size_t tile_bytes)
{
    const size_t inputs = apr_cuda_inputs_bytes(n_tokens, heads->n * n_in) + apr_cuda_scales_bytes(n_tokens * heads->n);
    const size_t tile_rows = (size_t)(apr_cuda_dequantized_heads(heads->n, heads->rows, n_columns, tile_bytes) * heads->rows);
    return inputs + (is_f16 ? 0 : apr_cuda_round(tile_rows * (size_t)n_columns * 2));
}

static inline size_t apr_cuda_linear_heads_bytes(int64_t n_tokens, const apr_linear_heads *heads, int64_t n_in, int64_t n_columns,
                                                 bool is_f16)
{
    return apr_cuda_linear_heads_bytes_within(n_tokens, heads, n_in, n_columns, is_f16, APR_CUDA_DEQUANTIZED_BYTES);
}

/* For each pair of token and chosen expert: gate and up, the expert's output, a weighted input. */
static inline size_t apr_cuda_experts_bytes(int64_t n_tokens, int64_t n_in, int64_t n_mid, int64_t n_out, int64_t n_used)
{
    const int64_t n = n_tokens < APR_CUDA_EXPERT_TOKENS ? n_tokens : (int64_t)APR_CUDA_EXPERT_TOKENS;
    return (size_t)(n * n_used) * (size_t)(2 * n_mid + n_out + n_in) * 4;
}

/* Top-k: numbers that are sorted together, and the chunks of a row of n. */
enum { APR_CUDA_TOPK_CHUNK = 1024 };
static inline int64_t apr_cuda_topk_chunks(int64_t n) { return (n + APR_CUDA_TOPK_CHUNK - 1) / APR_CUDA_TOPK_CHUNK; }

/* Workspace of topk: the keys that each chunk keeps, and those that the next pass keeps. */
static inline size_t apr_cuda_topk_bytes(int64_t n)
{
    const int64_t n_kept = apr_cuda_topk_chunks(n) * APR_TOPK_MAX;
    return apr_cuda_round((size_t)(n_kept + apr_cuda_topk_chunks(n_kept) * APR_TOPK_MAX) * sizeof(uint64_t));
}

/* For each part of the context and each query row of at most FEW_TOKENS tokens: sums of values, maximum, sum of weights, a done flag. */
static inline size_t apr_cuda_attend_bytes(int64_t n_heads, int64_t head_dim)
{
    return apr_cuda_round((size_t)APR_CUDA_ATTEND_SPLITS * APR_CUDA_FEW_TOKENS * (size_t)n_heads * ((size_t)head_dim + 4) * 4);
}

#endif
