/* Embedding: rows of a table, gathered by their indices; octavo/embedding.hpp has the formula. */
#ifndef OCTAVO_C_EMBEDDING_H
#define OCTAVO_C_EMBEDDING_H

#include "octavo/c/core.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct octavo_embedding_desc {
  size_t struct_size;
  int64_t m;           /* the most rows a run may gather */
  int64_t rows;        /* of the table */
  int64_t columns;     /* of the table, and of the output */
  octavo_dtype table;  /* f32, f16, bf16; s8, u8, s4, u4 */
  octavo_dtype output; /* f32, f16, bf16 */
  /* Columns that share a scale (and a zero point): a multiple of 4 that divides them. 0, or
   * `columns` and more: all of a row. */
  int64_t group_size;
  int32_t zero_points; /* not 0: runs are given them */
} octavo_embedding_desc;

typedef struct octavo_embedding_args {
  size_t struct_size;
  const octavo_tensor* indices; /* s32, 0 to rows - 1; at most m of any shape, contiguous */
  const octavo_tensor* table;   /* [rows, columns]; rows may lie apart */
  /* Of quantized tables: one per row, or [rows, columns / group_size]; any float type. NULL of
   * floats. */
  const octavo_tensor* scales;
  const octavo_tensor* zero_points; /* s32, likewise; NULL unless the descriptor has them */
  const octavo_tensor* output;      /* [indices, columns]; rows may lie apart */
} octavo_embedding_args;

OCTAVO_API octavo_status octavo_embedding_select(const octavo_stream* stream,
                                                 const octavo_embedding_desc* desc,
                                                 const octavo_preference* preference,
                                                 octavo_plan** out);
OCTAVO_API octavo_status octavo_embedding_can_implement(const octavo_plan* plan,
                                                        const octavo_embedding_args* args);
OCTAVO_API octavo_status octavo_embedding_run(const octavo_plan* plan, const octavo_stream* stream,
                                              void* workspace, size_t workspace_bytes,
                                              const octavo_embedding_args* args);

#ifdef __cplusplus
}
#endif

#endif
