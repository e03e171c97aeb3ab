/* Octavo for C: quantization with the same bits on every CPU, thread count and split.
 *
 * An operation is a plan. A caller describes it, selects a plan once, and runs it as often as it
 * likes, from as many threads as it likes:
 *
 *     descriptor --select--> plan --can_implement(args)--> run(stream, workspace, args)
 *
 *     octavo_stream* cpu;
 *     octavo_plan* plan;
 *     const int64_t shape[] = {6};
 *     octavo_elementwise_desc desc = {.struct_size = sizeof desc,
 *                                     .op = OCTAVO_QUANTIZE,
 *                                     .rank = 1,
 *                                     .shape = shape,
 *                                     .input = OCTAVO_F32,
 *                                     .output = OCTAVO_S8};
 *     if (octavo_stream_create(NULL, &cpu) || octavo_elementwise_select(cpu, &desc, NULL, &plan))
 *       puts(octavo_last_error()->message);
 *
 * What each operation computes, to the bit, stands in docs/numerics.md; docs/c.md is about this
 * interface, examples/first.c is a whole program.
 *
 * STRUCTS begin with `struct_size`: set it to sizeof the struct, and leave at 0 what is of no
 * interest. A field that is 0 has its default; so a program that was compiled against an older and
 * shorter struct goes on as before. A newer and longer one is accepted if all that this library
 * does not know is 0, and refused otherwise. (octavo_optional, a pair of numbers, will not grow.)
 *
 * HANDLES are opaque, and freed by their own `_destroy`, which ignores NULL. They may be used from
 * many threads at once; only what is said to change a handle needs it alone.
 *
 * REFUSALS: a function that can fail returns an octavo_status, and octavo_last_error() says the
 * rest. Any pointer may be NULL without harm: where it is needed, it is refused. Nothing throws,
 * and after a refusal no byte of any output, and no `*out`, has changed.
 */
#ifndef OCTAVO_OCTAVO_H
#define OCTAVO_OCTAVO_H

#include "octavo/c/core.h"          /* errors, tensors, streams, plans */
#include "octavo/c/dynamic_range.h" /* ranges that are found, and quantize */
#include "octavo/c/elementwise.h"   /* quantize, dequantize, fake-quantize; gradients */
#include "octavo/c/embedding.h"     /* rows of tables */
#include "octavo/c/linear.h"        /* packed weights, linear layers, matmul */
#include "octavo/c/observer.h"      /* calibration */

#endif
