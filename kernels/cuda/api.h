/* api.h - what libaprkit-cuda.so offers: plain C without a CUDA header. It exports a table of functions.
 *
 * A device is opened once: context (with a small stack limit), one stream, no allocation. Memory is only what alloc() gives;
 * cuBLAS gets its workspace from there too. Operations take the argument structs of kernels/ops.h with device pointers
 * (apr_tensor.data and apr_tensor.scale->data as well; the structs themselves stay on the host) and run in order on the
 * device's stream; upload() and download() are ordered with them and have finished when they return.
 *
 * Several devices may be open in one thread, on several cards or on one; every function makes its device the current one first.
 *
 * Errors on a GPU come late and stick: after the first one nothing works in that process. Every function then answers
 * APR_E_DEVICE with the first sentence (stage, operation, tensor, types, dimensions), and is_lost() says so. */
#ifndef APR_KERNELS_CUDA_API_H
#define APR_KERNELS_CUDA_API_H

#include "formats/model/packing.h"
#include "kernels/best.h"
#include "kernels/cuda/flow_args.h"
#include "kernels/cuda/prompt_args.h"
#include "kernels/cuda/rows_args.h"
#include "kernels/misfits.h"
#include "kernels/ops.h"

/* The library exports two symbols. The first is a description of itself (apr_cuda_description). The second is a function that returns the
 * table of functions, or NULL when the library was built for another APR_CUDA_ABI. */
#define APR_CUDA_BUILD "apr_cuda_build"
#define APR_CUDA_ENTRY "apr_cuda_plugin"

enum { APR_CUDA_MARKS = 16 };

typedef struct apr_cuda_device apr_cuda_device;
typedef struct apr_cuda_graph apr_cuda_graph; /* operations of one device, recorded: see record */

/* What a device finds of a row of logits, in its own memory: keys of kernels/best.h, the largest first, as many as were asked for. */
typedef struct apr_cuda_found {
    uint64_t keys[APR_MOST_BEST];
    double sum, parts[APR_MOST_PARTS]; /* the parts only where a row has not more */
} apr_cuda_found;

/* A single token in a device's memory: what operations that were recorded read of it, and what comes back. */
typedef struct apr_cuda_token {
    int64_t position;
    int32_t id, unused;
    apr_cuda_found found;
} apr_cuda_token;

/* What is known of a device before a context exists on it. Versions as CUDA counts them: 13000 is 13.0. */
typedef struct apr_cuda_facts {
    char name[256], bus[32];
    char driver[80]; /* "580.95.05"; "" when NVML is not there */
    int ordinal, major, minor, n_sms, threads_per_sm;
    uint64_t total_bytes;
    uint64_t used_bytes; /* of the whole card, by all processes, as NVML says; UINT64_MAX: unknown */
    int l2_bytes, memory_bus_bits;
    bool is_integrated;                  /* shares the host's memory */
    int driver_version, runtime_version; /* the newest CUDA that the driver knows; the one that is linked */
} apr_cuda_facts;

typedef struct apr_cuda_options {
    uint32_t stack_bytes;    /* of every thread: see runtime/plan/gpus.h for what it costs; 0: CUDA's own */
    bool check_each;         /* wait after every operation, so that an error names the one that made it */
    int64_t fail_allocation; /* drills: the n-th allocation (from 1) fails as if the memory were full; 0: none */
    /* An operation in words, asked for when something failed; NULL: it has a number only. */
    void (*describe)(apr_op_kind kind, const apr_op_args *args, char *text, size_t n_bytes);
} apr_cuda_options;

typedef enum { APR_CUDA_PROBE_FP16, APR_CUDA_PROBE_FP8, APR_CUDA_PROBE_COUNT } apr_cuda_probe;

/* --- codecs: kernels/ref's bytes, made on the device --- */

/* One worker of a pipeline: a stream, pinned host memory and as much on the device. What is started on it runs while others are
 * filled. A worker belongs to one thread at a time; workers may be used side by side. */
typedef struct apr_cuda_worker {
    uint8_t *in;       /* [sizes.in_bytes] the source's blocks */
    float *factors;    /* [sizes.n_factors] of decoded values, see apr_cuda_portion */
    uint8_t *out;      /* [sizes.out_bytes] the encoded blocks */
    float *row_scales; /* [sizes.n_rows] of FP8 rows */
    float *importance; /* [sizes.n_importance] of columns, see apr_cuda_portion */
} apr_cuda_worker;

typedef struct apr_cuda_worker_sizes {
    size_t in_bytes, out_bytes;
    int64_t n_elems, n_factors, n_rows, n_importance; /* at most, in one portion */
} apr_cuda_worker_sizes;

/* Values to decode and encode: n_elems of them in in_bytes, whole blocks of `to`. Decoded value i is multiplied by
 * factors[i / columns * factors_wide + i % columns / factors_group]. FP8 is made of rows of `columns` with a scale each. */
typedef struct apr_cuda_portion {
    apr_dtype from, to;
    int64_t n_elems, columns;
    size_t in_bytes;
    int64_t factors_wide, factors_group; /* 0: no factors */
    apr_range range;                     /* of `to`: apr_encode_range */
    bool saturate;                       /* finite values outside become its bounds */
    /* By importance, where n_importance > 0 and the type is encoded by it: value i of the portion is number e = importance_first + i of
     * matrices that lie one after another, and counts as importance[e / importance_matrix * columns + e % columns]. Columns are whole
     * blocks. */
    int64_t n_importance, importance_matrix, importance_first;
} apr_cuda_portion;

typedef struct apr_cuda_codecs {
    bool (*decodes)(apr_dtype dtype);
    bool (*encodes)(apr_dtype dtype);
    bool (*encodes_by)(apr_dtype dtype); /* by importance */
    /* Are so many workers of these sizes free on the device? APR_E_MEMORY: no, with both numbers. */
    apr_status (*room)(apr_cuda_device *device, const apr_cuda_worker_sizes *sizes, int n_workers, apr_error *err);
    apr_status (*open_worker)(apr_cuda_device *device, const apr_cuda_worker_sizes *sizes, apr_cuda_worker **worker, apr_error *err);
    void (*close_worker)(apr_cuda_worker *worker); /* NULL is fine */
    /* Queues upload, decoding, encoding and download, and returns. */
    apr_status (*start)(apr_cuda_worker *worker, const apr_cuda_portion *portion, apr_error *err);
    /* Until out and row_scales are there. misfits: among the decoded values. */
    apr_status (*wait)(apr_cuda_worker *worker, apr_misfits *misfits, apr_error *err);
    /* For figures: seconds of decoding and of encoding the last portion once more, without the way there and back, and bytes per
     * second (read and written) of a copy on the device. Medians of n_times. */
    apr_status (*measure)(apr_cuda_worker *worker, int n_times, double *decode_s, double *encode_s, double *copy_bytes_per_s,
                          apr_error *err);
} apr_cuda_codecs;

/* --- rounding with error feedback: quant/feedback's steps on a device, many rows side by side --- */

enum { APR_CUDA_PANEL = 256 }; /* columns that are rounded before the columns behind them hear of it; a multiple of every block */

/* What of a type the search must know (quant/feedback/grid.h says what it means); bytes are the host's business. */
typedef struct apr_cuda_grid {
    int elems, sub_elems;
    bool is_e2m1;
    float low, high;
    int steps; /* 0: d alone; 1: d times a whole number; 2: an exponent */
    int scale_low, scale_high, min_low, min_high;
    bool fits_min, min_is_signed;
} apr_cuda_grid;

/* A prepared matrix of sums (quant/feedback/hessian.h), in the device's memory. */
typedef struct apr_cuda_factors {
    int64_t n;
    float *h;        /* [n, n] */
    float *pull;     /* [n, n]: pull[j * n + k] of order[k] for the error of order[j], j < k; else 0. The host's lies the other way */
    float *diagonal; /* [n] of h */
    int32_t *order;  /* [n] */
} apr_cuda_factors;

/* Rows on their way into blocks, in the device's memory: [n_rows, n] but where said. */
typedef struct apr_cuda_lanes {
    apr_cuda_grid grid;
    const apr_cuda_factors *factors;
    int64_t n_rows;
    float *weight, *error;
    float *ordered; /* errors in the order of columns */
    int8_t *code;
    int16_t *scale, *min; /* [n_rows, n / sub_elems] */
    uint16_t *d, *dmin;   /* [n_rows, n / elems] */
    float *panel;         /* [n_rows, APR_CUDA_PANEL] */
    double *objective;    /* [n_rows] */
} apr_cuda_lanes;

typedef struct apr_cuda_solver apr_cuda_solver; /* handles of cuBLAS and cuSOLVER on one device */

/* All in order on the device's stream; what answers a number has waited for it. Pointers are the device's but where said. */
typedef struct apr_cuda_feedback {
    /* workspace: cuBLAS's. *name (the host's, of the program's life): what factorises, and why where it is not cuSOLVER. */
    apr_status (*open)(apr_cuda_device *device, void *workspace, uint64_t n_bytes, apr_cuda_solver **solver, const char **name,
                       apr_error *err);
    void (*close)(apr_cuda_solver *solver); /* NULL is fine */
    /* sums [n, n] += x^T x of x [n_tokens, n], inputs rounded to TF32 (10 bits; where a device has none: not), float32 sums. So each sum
     * is off by at most 2^-9 of the sum of its products' magnitudes, and for that of a positive matrix: inputs are rounded alike. */
    apr_status (*add)(apr_cuda_solver *solver, float *sums, int64_t n, const float *x, int64_t n_tokens, apr_error *err);
    /* h = sums, or h += sums */
    apr_status (*merge)(apr_cuda_solver *solver, float *h, const float *sums, int64_t n, bool first, apr_error *err);
    apr_status (*diagonal)(apr_cuda_solver *solver, const float *h, int64_t n, float *diagonal, apr_error *err);
    /* l [n, n], rows: the lower Cholesky factor, float64, of h * scale + damping, rows and columns in reversed order. *done (the host's)
     * false: it has none. work: apr_cuda_solver_bytes(n). */
    apr_status (*factorise)(apr_cuda_solver *solver, const apr_cuda_factors *factors, double scale, double damping, double *l, void *work,
                            bool *done, apr_error *err);
    /* pull from l; h scaled and damped where it lies, and its diagonal. */
    apr_status (*finish)(apr_cuda_solver *solver, const apr_cuda_factors *factors, double scale, double damping, const double *l,
                         apr_error *err);
    /* Blocks as the type's encoder makes them, by the diagonal's importance where the type has such an encoder. */
    apr_status (*start)(apr_cuda_solver *solver, apr_dtype dtype, const apr_cuda_lanes *lanes, void *blocks, apr_error *err);
    /* Errors of what codes and scales say; then the steps of quant/feedback/lane_rows.h. */
    apr_status (*errors)(apr_cuda_solver *solver, const apr_cuda_lanes *lanes, apr_error *err);
    apr_status (*round)(apr_cuda_solver *solver, const apr_cuda_lanes *lanes, apr_error *err);
    apr_status (*descend)(apr_cuda_solver *solver, const apr_cuda_lanes *lanes, bool rescale, apr_error *err);
    apr_status (*refit)(apr_cuda_solver *solver, const apr_cuda_lanes *lanes, apr_error *err);
    /* tr(E H E^T) of each row, into lanes->objective. */
    apr_status (*objective)(apr_cuda_solver *solver, const apr_cuda_lanes *lanes, apr_error *err);
} apr_cuda_feedback;

/* What factorise needs beside the matrix. */
static inline uint64_t apr_cuda_solver_bytes(int64_t n) { return ((uint64_t)n * 1024 + (1 << 17)) * sizeof(double); }

typedef struct apr_cuda_api {
    uint64_t abi;
    const char *architectures; /* native code inside: "75 80 86 89 90 100 103 120 121"; also as PTX: the last */

    /* Devices that the driver shows; APR_E_DEVICE (and *n = 0) without a driver or a device, with the driver's words. */
    apr_status (*count)(int *n, apr_error *err);
    apr_status (*facts)(int ordinal, apr_cuda_facts *facts, apr_error *err);

    apr_status (*open)(apr_cuda_device **device, int ordinal, const apr_cuda_options *options, apr_error *err);
    void (*close)(apr_cuda_device *device); /* NULL is fine; what was allocated is freed */
    bool (*is_lost)(const apr_cuda_device *device);

    /* As the driver reports them, of the whole card. */
    apr_status (*memory)(apr_cuda_device *device, uint64_t *free_bytes, uint64_t *total_bytes, apr_error *err);
    /* n_bytes at a multiple of 256; `what` is the plan's line, for the sentence. 0 bytes give NULL. */
    apr_status (*alloc)(apr_cuda_device *device, uint64_t n_bytes, const char *what, void **p, apr_error *err);
    /* What alloc or pin gave; NULL is fine. Waits for what is under way there. */
    void (*release)(apr_cuda_device *device, void *p);
    /* Memory of the host that the device copies from and to by itself, at a multiple of 256; freed when the device is closed. */
    apr_status (*pin)(apr_cuda_device *device, uint64_t n_bytes, const char *what, void **p, apr_error *err);
    /* To the device out of such memory, and back into it: in order with operations, and not waited for; check() does. */
    apr_status (*send)(apr_cuda_device *device, void *to, const void *pinned, uint64_t n_bytes, apr_error *err);
    apr_status (*receive)(apr_cuda_device *device, void *pinned, const void *from, uint64_t n_bytes, apr_error *err);
    /* What was queued until now, by a number of APR_CUDA_MARKS; the number's earlier meaning is forgotten. */
    apr_status (*mark)(apr_cuda_device *device, int mark, apr_error *err);
    /* Until that has happened, or the device has failed: then the next call says so. Any thread may wait while another uses the device. */
    void (*wait_mark)(apr_cuda_device *device, int mark);
    apr_status (*upload)(apr_cuda_device *device, void *to, const void *from, uint64_t n_bytes, apr_error *err);
    apr_status (*download)(apr_cuda_device *device, void *to, const void *from, uint64_t n_bytes, apr_error *err);
    /* From one device to another, or to another part of the same card: behind what was started on the one, before what is started on the
     * other from now on; has happened when it returns. */
    apr_status (*transfer)(apr_cuda_device *from_device, const void *from, apr_cuda_device *to_device, void *to, uint64_t n_bytes,
                           apr_error *err);
    /* Zeros; in order with operations, and not waited for. */
    apr_status (*clear)(apr_cuda_device *device, void *p, uint64_t n_bytes, apr_error *err);

    /* Makes the cuBLAS handle and gives it `workspace` (device memory); needed before the first linear of many tokens. */
    apr_status (*start_blas)(apr_cuda_device *device, void *workspace, uint64_t n_bytes, int *version, apr_error *err);

    /* Can weights of that type be used as they are stored? Where not, the caller stores them as F16. */
    bool (*takes)(apr_dtype dtype);
    /* The same of a packed matrix in its regular form (kernels/relay.h), whose values are of `dtype`. Its tensors' data is on the
     * device, the structs stay on the host. */
    bool (*takes_packing)(const struct apr_packing *packing, apr_dtype dtype);
    /* Logical rows of a matrix as FP16, into device memory. */
    apr_status (*decode_f16)(apr_cuda_device *device, const apr_tensor *matrix, int64_t first, int64_t n_rows, void *out, apr_error *err);
    /* No linear reads packed weights directly any more: all go through FP16 tiles, a single token's too. */
    void (*use_tiles)(apr_cuda_device *device, bool on);
    /* Products of many tokens are made as those of few are: float32 inputs, weights as they are stored. Slower, and right to float32. */
    void (*use_exact)(apr_cuda_device *device, bool on);
    /* Tokens are of a sequence each, and a token's numbers do not depend on how many others are beside it: all products are made as those
     * of 2 to 64 are, where those have tensor cores' (kernels/cuda/ops/abreast.cuh), else a few rows at a time. */
    void (*use_alike)(apr_cuda_device *device, bool on);
    /* Products of many tokens with FP8 weights that have a scale for each row, or one for all, are made in FP8. */
    void (*use_fp8)(apr_cuda_device *device, bool on);
    /* Operations that are here: the table of apr_program_missing_op; its functions do nothing. */
    const apr_backend *backend;
    /* Tensors that args point to must stay until another operation is run or the device is closed: for sentences about this one. */
    apr_status (*run)(apr_cuda_device *device, apr_op_kind kind, const apr_op_args *args, apr_error *err);
    /* Products of a single token that stream their weights (kernels/cuda/flow_args.h). Is there one for such a matrix? Its type's rows must
     * lie in items then, where types are put into them. */
    bool (*streams)(const apr_cuda_device *device, apr_dtype dtype, int64_t n_out, int64_t n_in);
    /* Most kernels from now on are such products, or stand between them: all of them share memory as they want it. */
    apr_status (*expect_streams)(apr_cuda_device *device, bool on, apr_error *err);
    /* Rows as they are stored, a multiple of 16 of them, into items at `to`: both on the device. Not waited for. */
    apr_status (*to_items)(apr_cuda_device *device, apr_dtype dtype, void *to, const void *rows, int64_t n_rows, int64_t n_in,
                           apr_error *err);
    apr_status (*flow)(apr_cuda_device *device, const apr_flow_args *args, apr_error *err);
    apr_status (*flow_inputs)(apr_cuda_device *device, const apr_flow_inputs *args, apr_error *err);
    /* Of a single token, for which apr_experts_flow. What they multiply and how they end says `flow`, as of one product: x, squares and
     * eps; STORE or ADD, residual, gains, planes, and parts[0].out; its weights are not read, nor are x and out of `args`. */
    apr_status (*experts)(apr_cuda_device *device, const apr_experts_args *args, const apr_flow_args *flow, apr_error *err);
    /* Of a single token, or of several, for which apr_turns. */
    apr_status (*turn)(apr_cuda_device *device, const apr_turn_args *args, apr_error *err);
    /* Of a single token: its answer is left in planes (kernels/cuda/ops/planes.cuh). n_heads * value_dim is a multiple of 16. With a turn
     * that is done in front of it; then neither the turned query nor the answer need be there as floats. */
    apr_status (*attend_to_planes)(apr_cuda_device *device, const apr_turn_args *turn, const apr_attend_args *args, uint8_t *planes,
                                   apr_error *err);
    /* Products of many tokens, and what stands around them (kernels/cuda/prompt_args.h), on a device that start_blas has been asked of, and
     * of which neither tiles nor exact, alike or FP8 products are wanted. What a step leaves for the next is there for that one alone. */
    apr_status (*prompt)(apr_cuda_device *device, const apr_prompt_args *args, apr_error *err);
    /* Products of a step's rows, as after use_alike (kernels/cuda/rows_args.h). Is there one for such a matrix, and room in `work`, where
     * the widest value that is left in a slot has so many numbers? */
    bool (*takes_rows)(const apr_cuda_device *device, const apr_tensor *weight, int64_t n_out, int64_t n_in, int64_t widest,
                       const apr_workspace *work);
    apr_status (*rows)(apr_cuda_device *device, const apr_rows_args *args, apr_error *err);
    apr_status (*rows_inputs)(apr_cuda_device *device, const apr_rows_inputs *args, apr_error *err);
    /* The largest of logits[n] on the device, and their sum where a temperature is given, into its memory at `found`; `work` has
     * apr_cuda_best_bytes(n). Not waited for. */
    apr_status (*find_best)(apr_cuda_device *device, const float *logits, int64_t n, int n_wanted, float temperature, void *work,
                            apr_cuda_found *found, apr_error *err);
    /* The same of n_rows rows, each as its wish says (n_wanted and temperature), into found[n_rows]; `work` has n_bytes, at least what one
     * row needs. */
    apr_status (*find_bests)(apr_cuda_device *device, const float *logits, int64_t n, int64_t n_rows, const apr_best *wishes, void *work,
                             uint64_t n_bytes, apr_cuda_found *found, apr_error *err);

    /* From record to end_record operations are not run but recorded: what they read and write of the device's memory, and the sizes of
     * their arguments, stay as they are then; what is in the memory does not. Nothing else may be asked of the device meanwhile.
     * Operations of which each is waited for cannot be recorded (APR_E_UNSUPPORTED). After every record that succeeded end_record
     * follows, also when an operation failed; whatever it answers, the device can be used as before. */
    apr_status (*record)(apr_cuda_device *device, apr_error *err);
    /* *graph is the caller's, to be forgotten before the device is closed; NULL when it failed. */
    apr_status (*end_record)(apr_cuda_device *device, apr_cuda_graph **graph, apr_error *err);
    /* All of them once more, in order with operations, and not waited for. */
    apr_status (*replay)(apr_cuda_graph *graph, apr_error *err);
    void (*forget)(apr_cuda_graph *graph); /* NULL is fine */

    /* Waits for everything; what went wrong, with the stage's name in front. */
    apr_status (*check)(apr_cuda_device *device, const char *stage, apr_error *err);
    void (*check_each)(apr_cuda_device *device, bool on); /* as in the options */

    /* Multiplies small matrices and compares with the host: APR_OK right, APR_E_NO wrong, APR_E_UNSUPPORTED not here. */
    apr_status (*probe)(apr_cuda_device *device, apr_cuda_probe which, apr_error *err);
    /* Bytes per second of a large read, and of host to device from pinned memory; takes 512 MiB for the moment. */
    apr_status (*bandwidth)(apr_cuda_device *device, double *read, double *upload, apr_error *err);

    const apr_cuda_codecs *codecs;
    const apr_cuda_feedback *feedback;
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

/* X(type): every type that a call passes, by value or behind a pointer. */
#define APR_CUDA_TABLES(X)   X(apr_cuda_api) X(apr_cuda_codecs) X(apr_cuda_feedback) X(apr_backend)
#define APR_CUDA_DEVICES(X)  X(apr_cuda_options) X(apr_cuda_facts) X(apr_cuda_probe) X(apr_status) X(apr_error)
#define APR_CUDA_WORKERS(X)  X(apr_cuda_worker) X(apr_cuda_worker_sizes) X(apr_cuda_portion) X(apr_range) X(apr_misfits)
#define APR_CUDA_ROUNDING(X) X(apr_cuda_grid) X(apr_cuda_factors) X(apr_cuda_lanes)
#define APR_CUDA_TOKENS(X)   X(apr_cuda_found) X(apr_cuda_token) X(apr_best)
#define APR_CUDA_TENSORS(X)  X(apr_dtype) X(apr_dtype_facts) X(apr_tensor) X(apr_step) X(apr_step_kind) X(apr_chain) X(apr_origins)
#define APR_CUDA_PACKINGS(X) X(apr_packing) X(apr_nested_scales) X(apr_code_order) X(apr_code_level) X(apr_zero_order)
#define APR_CUDA_OPS(X)      X(apr_op_kind) X(apr_op_args) X(apr_workspace) X(apr_cache) X(apr_linear_heads) X(apr_glu_shape) X(apr_route_shape)
#define APR_CUDA_KINDS(X)    X(apr_activation) X(apr_norm_kind) X(apr_rope_mode) X(apr_score_kind) X(apr_flow_ending) X(apr_prompt_ending)
#define APR_CUDA_FLOWS(X)    X(apr_flow_part) X(apr_flow_args) X(apr_flow_inputs) X(apr_turn_args)
#define APR_CUDA_STEPS(X)    X(apr_prompt_args) X(apr_rows_room) X(apr_rows_left) X(apr_rows_args) X(apr_rows_inputs)

/* X(constant): lengths of lists, and of arrays. */
#define APR_CUDA_ENUMS(X)  X(APR_DTYPE_COUNT) X(APR_OP_COUNT) X(APR_ACT_COUNT) X(APR_SCORE_KINDS) X(APR_CODES_ORDER_COUNT) X(APR_STEP_COUNT)
#define APR_CUDA_ARRAYS(X) X(APR_CUDA_PROBE_COUNT) X(APR_CUDA_MARKS) X(APR_CUDA_PANEL) X(APR_MAX_RANK)

#define APR_CUDA_TYPES(X) \
    APR_CUDA_TABLES(X)    \
    APR_CUDA_DEVICES(X)   \
    APR_CUDA_WORKERS(X)   \
    APR_CUDA_ROUNDING(X)  \
    APR_CUDA_TOKENS(X)    \
    APR_CUDA_TENSORS(X)   \
    APR_CUDA_PACKINGS(X)  \
    APR_CUDA_OPS(X)       \
    APR_CUDA_KINDS(X)     \
    APR_CUDA_FLOWS(X)     \
    APR_CUDA_STEPS(X)
#define APR_CUDA_LENGTHS(X) APR_CUDA_ENUMS(X) APR_CUDA_ARRAYS(X)

/* Each of them has a place of its own in the hash. */
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
/* What a number of the enum stands for: APR ids and blocks of types, the size of an operation's arguments. */
#define APR_CUDA_MIX_DTYPE(id, name, class_of, elems, bytes, scales, flat, ggml, apr, safetensors) \
    +APR_CUDA_MIX(1000 + APR_##id, (apr) << 20 | (elems) << 10 | (bytes))
#define APR_CUDA_MIX_OP(ID, id, name) +APR_CUDA_MIX(2000 + APR_OP_##ID, sizeof(apr_##id##_args))

#define APR_CUDA_LAYOUT                                                                                                     \
    ((uint32_t)0 APR_CUDA_TYPES(APR_CUDA_MIX_TYPE) APR_CUDA_LENGTHS(APR_CUDA_MIX_LENGTH) APR_DTYPE_LIST(APR_CUDA_MIX_DTYPE) \
         APR_OP_LIST(APR_CUDA_MIX_OP))

/* What a library says of itself, at the symbol APR_CUDA_BUILD. A tool reads it before it calls anything, so this layout never changes.
 * Older libraries do not have it. */
#define APR_CUDA_MARK "aprkit CUDA"
typedef struct apr_cuda_description {
    char mark[16];           /* APR_CUDA_MARK */
    uint64_t abi;            /* APR_CUDA_ABI */
    char architectures[104]; /* as in apr_cuda_api */
} apr_cuda_description;
extern const apr_cuda_description apr_cuda_build; /* the library's own */

typedef const apr_cuda_api *(*apr_cuda_plugin_fn)(uint64_t abi);

/* --- workspace: linear and attend get the plan's one buffer in args.work (n_threads 1, slice floats) --- */

enum {
    APR_CUDA_FEW_TOKENS = 8,             /* up to here weights are read packed; more go through cuBLAS on FP16 tiles */
    APR_CUDA_CAREFUL_TOKENS = 128,       /* up to here inputs go to the tensor cores in two FP16 parts, which round as float32 does */
    APR_CUDA_TILE_BYTES = 1 << 29,       /* of FP16 weights decoded at a time where there is room: most matrices are decoded whole */
    APR_CUDA_LEAST_TILE_BYTES = 1 << 26, /* where there is little */
    APR_CUDA_EXPERT_TOKENS = 64,         /* tokens whose experts are computed at a time */
    APR_CUDA_ATTEND_SPLITS = 64,         /* parts at most that a long context is read in when the queries are few */
};

static inline size_t apr_cuda_round(size_t n_bytes) { return (n_bytes + 255) / 256 * 256; }

/* Rows of a matrix of n_in columns that are decoded at a time: all when they are tile_bytes at most, else parts of equal size, a multiple
 * of 256, so that none of them leaves most of a device idle. A tile of 256 rows may be more than tile_bytes. */
static inline int64_t apr_cuda_tile_rows(int64_t n_in, int64_t n_out, size_t tile_bytes)
{
    const int64_t room = (int64_t)(tile_bytes / 2) / n_in, most = room < 256 ? 256 : room / 256 * 256;
    if (n_out <= room || n_out <= most) return n_out;
    const int64_t n_tiles = (n_out + most - 1) / most, rows = (n_out + n_tiles - 1) / n_tiles;
    return (rows + 255) / 256 * 256;
}

/* FP16 inputs of at most n_tokens rows: of up to CAREFUL_TOKENS twice, the second part behind the first. */
static inline size_t apr_cuda_inputs_bytes(int64_t n_tokens, int64_t n_in)
{
    const int64_t n_careful = n_tokens < APR_CUDA_CAREFUL_TOKENS ? n_tokens : (int64_t)APR_CUDA_CAREFUL_TOKENS;
    const size_t once = apr_cuda_round((size_t)n_tokens * (size_t)n_in * 2),
                 twice = 2 * apr_cuda_round((size_t)n_careful * (size_t)n_in * 2);
    return once > twice ? once : twice;
}

/* Of each row of inputs its power of two and its largest number; the three numbers of what rows share (kernels/cuda/ops/halves.cuh). */
static inline size_t apr_cuda_scales_bytes(int64_t n_rows) { return 2 * apr_cuda_round((size_t)n_rows * 4) + apr_cuda_round(12); }

/* The inputs, their scales, a tile of FP16 weights (none for weights stored as F16) of tile_bytes at most. A product takes larger tiles
 * where its workspace has room for them. */
static inline size_t apr_cuda_linear_bytes_within(int64_t n_tokens, int64_t n_in, int64_t n_out, bool is_f16, size_t tile_bytes)
{
    const size_t inputs = apr_cuda_inputs_bytes(n_tokens, n_in) + apr_cuda_scales_bytes(n_tokens);
    return inputs + (is_f16 ? 0 : apr_cuda_round((size_t)apr_cuda_tile_rows(n_in, n_out, tile_bytes) * (size_t)n_in * 2));
}

static inline size_t apr_cuda_linear_bytes(int64_t n_tokens, int64_t n_in, int64_t n_out, bool is_f16)
{
    return apr_cuda_linear_bytes_within(n_tokens, n_in, n_out, is_f16, APR_CUDA_TILE_BYTES);
}

/* Where each head has a matrix of its own: heads whose rows are decoded at a time. */
static inline int64_t apr_cuda_tile_heads(int64_t n_heads, int64_t head_rows, int64_t n_columns, size_t tile_bytes)
{
    const int64_t heads = (int64_t)(tile_bytes / 2) / n_columns / head_rows;
    return heads < 1 ? 1 : heads < n_heads ? heads : n_heads;
}

/* The same as apr_cuda_linear_bytes: n_in is of each head, n_columns of the weight. */
static inline size_t apr_cuda_linear_heads_bytes_within(int64_t n_tokens, const apr_linear_heads *heads, int64_t n_in, int64_t n_columns,
                                                        bool is_f16, size_t tile_bytes)
{
    const size_t inputs = apr_cuda_inputs_bytes(n_tokens, heads->n * n_in) + apr_cuda_scales_bytes(n_tokens * heads->n);
    const size_t tile_rows = (size_t)(apr_cuda_tile_heads(heads->n, heads->rows, n_columns, tile_bytes) * heads->rows);
    return inputs + (is_f16 ? 0 : apr_cuda_round(tile_rows * (size_t)n_columns * 2));
}

static inline size_t apr_cuda_linear_heads_bytes(int64_t n_tokens, const apr_linear_heads *heads, int64_t n_in, int64_t n_columns,
                                                 bool is_f16)
{
    return apr_cuda_linear_heads_bytes_within(n_tokens, heads, n_in, n_columns, is_f16, APR_CUDA_TILE_BYTES);
}

/* Of each token and chosen expert: both halves of the middle, what the expert gives, a weighed input. */
static inline size_t apr_cuda_experts_bytes(int64_t n_tokens, int64_t n_in, int64_t n_mid, int64_t n_out, int64_t n_used)
{
    const int64_t n = n_tokens < APR_CUDA_EXPERT_TOKENS ? n_tokens : (int64_t)APR_CUDA_EXPERT_TOKENS;
    return (size_t)(n * n_used) * (size_t)(2 * n_mid + n_out + n_in) * 4;
}

/* Blocks of numbers that are sorted together, of a row of n. */
enum { APR_CUDA_BEST_CHUNK = 1024 };
static inline int64_t apr_cuda_best_chunks(int64_t n) { return (n + APR_CUDA_BEST_CHUNK - 1) / APR_CUDA_BEST_CHUNK; }

/* For find_best: what each block keeps, and what blocks that read that keep. */
static inline size_t apr_cuda_best_bytes(int64_t n)
{
    const int64_t n_kept = apr_cuda_best_chunks(n) * APR_MOST_BEST;
    return apr_cuda_round((size_t)(n_kept + apr_cuda_best_chunks(n_kept) * APR_MOST_BEST) * sizeof(uint64_t));
}

/* Of each part of the context: sums of values, maximum, sum of weights, a word that says it is done, for each query row of at most
 * FEW_TOKENS tokens. */
static inline size_t apr_cuda_attend_bytes(int64_t n_heads, int64_t head_dim)
{
    return apr_cuda_round((size_t)APR_CUDA_ATTEND_SPLITS * APR_CUDA_FEW_TOKENS * (size_t)n_heads * ((size_t)head_dim + 4) * 4);
}

#endif
