/* Six weights to 8-bit integers and back, in C. */
#include <octavo/octavo.h>

#include <stdio.h>

enum { n = 6 };

static int fail(void) {
  puts(octavo_last_error()->message);
  return 1;
}

int main(void) {
  const float weights[n] = {0.314F, -1.272F, 0.0F, 0.045F, 0.9F, 1.5F};
  int8_t q[n];
  float back[n];
  const int64_t shape[] = {n};
  const octavo_tensor w = octavo_tensor_of(weights, OCTAVO_F32, 1, shape);
  const octavo_tensor i = octavo_tensor_of(q, OCTAVO_S8, 1, shape);
  const octavo_tensor b = octavo_tensor_of(back, OCTAVO_F32, 1, shape);

  /* What is not named is 0, and so has its default: one scale for the whole tensor. */
  const octavo_elementwise_desc to_s8 = {.struct_size = sizeof to_s8,
                                         .op = OCTAVO_QUANTIZE,
                                         .rank = 1,
                                         .shape = shape,
                                         .input = OCTAVO_F32,
                                         .output = OCTAVO_S8};
  const octavo_elementwise_desc to_f32 = {.struct_size = sizeof to_f32,
                                          .op = OCTAVO_DEQUANTIZE,
                                          .rank = 1,
                                          .shape = shape,
                                          .input = OCTAVO_S8,
                                          .output = OCTAVO_F32};
  octavo_stream* cpu;
  octavo_plan *quantize, *restore;
  if (octavo_stream_create(NULL, &cpu)) return fail(); /* all cores */
  if (octavo_elementwise_select(cpu, &to_s8, NULL, &quantize)) return fail();
  if (octavo_elementwise_select(cpu, &to_f32, NULL, &restore)) return fail();

  const octavo_elementwise_args forth = {
      .struct_size = sizeof forth, .input = &w, .scale = 0.01, .output = &i};
  const octavo_elementwise_args back_again = {
      .struct_size = sizeof back_again, .input = &i, .scale = 0.01, .output = &b};
  if (octavo_elementwise_run(quantize, cpu, NULL, 0, &forth)) return fail();
  if (octavo_elementwise_run(restore, cpu, NULL, 0, &back_again)) return fail();

  for (int k = 0; k < n; ++k)
    printf("%6.3f -> %4d -> %5.2f\n", (double)weights[k], q[k], (double)back[k]);
  octavo_plan_destroy(quantize);
  octavo_plan_destroy(restore);
  octavo_stream_destroy(cpu);
  return 0;
}
