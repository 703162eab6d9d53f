/* apr.h - the APR v2 container: the reader is tolerant, the writer is strict.
 *
 *    0  "APR\0"  u8 2, u8 0, u16 flags, u32 n_tensors, u64 metadata offset (64), u32 metadata bytes, u64 index offset,
 *       u64 data offset, u32 CRC of this header (bytes 0..39 and 44..63), 20 zero bytes
 *   64  metadata: one JSON object, zeros to a multiple of 64
 *       index, sorted by name: {u16 n, name, u8 dtype, u8 rank, u64 dims[rank], u64 offset, u64 bytes}, zeros to 64
 *       data: each tensor at a multiple of 64, padded to 64
 *   -4  u32 CRC of everything before
 *
 * aprkit's own data is in the metadata under "aprkit" (one object; other readers ignore it): the origin's format, tensor order,
 * names and conversion steps, its metadata with types, its small files byte for byte, and a CRC-32 for each tensor.
 *
 * A plain model has no "aprkit" object and no tensor CRCs: it has no origin, no hyperparameters, no vocabulary, no files, and only
 * metadata that plain JSON can express. aprender's own writer makes the same file, byte for byte.
 *
 * If a model has no origin (model.origin.format NONE), its metadata is at the top of the JSON under its own names:
 * "model_type", "name", "version", ...; a reader returns it as model.kv (strings, i64, f64, bool). */
#ifndef APR_FORMATS_APR_H
#define APR_FORMATS_APR_H

#include "formats/tensor/model.h"
#include "formats/tensor/sink.h"

enum {
    APR_FLAG_LZ4 = 0x0001,
    APR_FLAG_ZSTD = 0x0002,
    APR_FLAG_ENCRYPTED = 0x0004,
    APR_FLAG_QUANTIZED = 0x0020,
    APR_FLAG_HAS_VOCAB = 0x0200,
    APR_FLAG_ROW_MAJOR = 0x0400,
    APR_FLAG_COLUMN_MAJOR = 0x0800
};

apr_status apr_apr_open(apr_model *model, const char *path, apr_error *err);
/* The same from memory, which is borrowed until apr_model_close. `path` is for messages. */
apr_status apr_apr_read(apr_model *model, const uint8_t *bytes, size_t n_bytes, const char *path, apr_error *err);
apr_status apr_apr_sink_open(apr_sink **sink, const char *path, const apr_model *layout, const apr_sink_options *options, apr_error *err);
apr_status apr_apr_offsets(apr_offsets *offsets, const char *path, const apr_model *layout, const apr_sink_options *options,
                           apr_error *err);

/* The CRC-32 that the file states for a tensor. False when it states none. */
bool apr_apr_stated_crc(const apr_model *model, const char *name, uint32_t *crc);
/* Is the footer present, and equal to the CRC of the file? Reads the whole file, which apr_apr_open must have opened. */
typedef enum { APR_FOOTER_GOOD, APR_FOOTER_MISSING, APR_FOOTER_BAD } apr_footer;
apr_footer apr_apr_check_footer(const apr_model *model);

/* apr_model_check_head for an APR file: computes the footer from the bytes between the tensors and the stated CRC of each tensor. */
apr_status apr_apr_check_head(const apr_model *model, apr_error *err);

/* Required parts that some writers leave out, besides the footer, such as "the header's checksum, a sorted index". "": none missing, or not
 * an APR file. Returns text; 96 bytes are enough. */
char *apr_apr_missing(const apr_model *model, char *text, size_t n_bytes);

/* --profile aprender: can aprender and realizar load this layout, read it correctly and run it? It needs dtypes f32, f16, q4_k, q6_k,
 * bf16; one-dimensional tensors in f32; rank 1 to 8; lm_head.weight; K-quants only where the columns are a multiple of 256; the
 * hyperparameters and the vocabulary that realizar needs, in its ranges. The message names the first tensor that does not fit
 * and the nearest type that does. */
apr_status apr_check_aprender(const apr_model *layout, apr_error *err);

/* Is it a type that both projects read the same way? */
bool apr_aprender_supports(apr_dtype dtype);

#endif
