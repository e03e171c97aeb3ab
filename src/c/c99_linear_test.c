/* Linear layers and their weights; see c99_test.c. */
#include "c99_test.h"

enum { outputs = 3 };
static const int64_t weight_shape[] = {outputs, cols};
static const int64_t output_shape[] = {rows, outputs};
static int8_t weights[outputs * cols] = {1, 2, 3, 4, -1, 0, 1, 0, 10, -10, 5, -5};

static void run_linear(const octavo_linear_desc* d, octavo_linear_args* a, const double* want) {
  octavo_plan* plan = NULL;
  void* workspace = NULL;
  octavo_guarantee g = {0};
  float y[rows * outputs] = {0};
  int32_t sums[rows * outputs] = {0};
  octavo_tensor out = d->output == OCTAVO_S32 ? octavo_tensor_of(sums, OCTAVO_S32, 2, output_shape)
                                              : octavo_tensor_of(y, OCTAVO_F32, 2, output_shape);
  int i;
  CHECK(octavo_linear_select(cpu, d, NULL, &plan) == OCTAVO_OK);
  CHECK(octavo_workspace_create(octavo_plan_workspace_size(plan), &workspace) == OCTAVO_OK);
  a->output = &out;
  CHECK(octavo_linear_can_implement(plan, a) == OCTAVO_OK);
  CHECK(octavo_linear_run(plan, cpu, workspace, octavo_plan_workspace_size(plan), a) == OCTAVO_OK);
  for (i = 0; i < rows * outputs; ++i)
    CHECK((d->output == OCTAVO_S32 ? sums[i] : (double)y[i]) == want[i]);
  g.struct_size = sizeof g;
  CHECK(octavo_plan_guarantee(plan, &g) == OCTAVO_OK);
  CHECK(g.accumulator.is_set == (d->op != OCTAVO_FLOAT_LINEAR) && g.bit_stable_everywhere);
  octavo_workspace_destroy(workspace);
  octavo_plan_destroy(plan);
}

/* The sums of `a` [rows, cols] and the weights, times `scale`, with a bias and ReLU. */
static void layer(const double* a, double scale, double bias, int relu, double* y) {
  int r, o, i;
  for (r = 0; r < rows; ++r)
    for (o = 0; o < outputs; ++o) {
      double sum = 0;
      for (i = 0; i < cols; ++i) sum += a[r * cols + i] * weights[o * cols + i];
      sum = sum * scale + bias;
      y[r * outputs + o] = relu && sum < 0 ? 0 : sum;
    }
}

void test_linear(void) {
  octavo_tensor w = octavo_tensor_of(weights, OCTAVO_S8, 2, weight_shape);
  int8_t q[count] = {1, 2, 3, 4, 127, -127, 0, 5};
  float x[count] = {127, 1, 2, 3, -254, 2, 4, 6}; /* scales 1 and 2: exact */
  double a[count], want[rows * outputs];
  float half = 0.5F, biases[outputs] = {8, 8, 8};
  const int64_t one = 1, three = outputs;
  octavo_tensor in = octavo_tensor_of(q, OCTAVO_S8, 2, shape);
  octavo_tensor fin = octavo_tensor_of(x, OCTAVO_F32, 2, shape);
  octavo_tensor s = octavo_tensor_of(&half, OCTAVO_F32, 1, &one);
  octavo_tensor b = octavo_tensor_of(biases, OCTAVO_F32, 1, &three);
  float float_weights[outputs * cols];
  octavo_tensor fw = octavo_tensor_of(float_weights, OCTAVO_F32, 2, weight_shape);
  octavo_packed_weight* packed = NULL;
  octavo_linear_desc d = {0};
  octavo_linear_args args = {0};
  int i;

  d.struct_size = sizeof d;
  d.m = rows;
  d.n = outputs;
  d.k = cols;
  d.activation = d.weight = OCTAVO_S8;
  args.struct_size = sizeof args;
  args.input = &in;
  args.weight = &w;
  for (i = 0; i < count; ++i) a[i] = q[i];
  for (i = 0; i < outputs * cols; ++i) float_weights[i] = weights[i];

  d.op = OCTAVO_QUANTIZED_MATMUL; /* the sums themselves */
  d.output = OCTAVO_S32;
  layer(a, 1, 0, 0, want);
  run_linear(&d, &args, want);

  d.output = OCTAVO_F32;
  args.weight_scales = args.activation_scales = &s;
  layer(a, 0.25, 0, 0, want);
  run_linear(&d, &args, want);

  d.op = OCTAVO_SMOOTHQUANT_LINEAR;
  d.act_scale = 4;
  d.epilogue = OCTAVO_BIAS | OCTAVO_RELU;
  args.activation_scales = NULL;
  args.bias = &b;
  layer(a, 2, 8, 1, want);
  run_linear(&d, &args, want);

  d.op = OCTAVO_QUANTIZED_LINEAR;
  d.activation = OCTAVO_F32;
  d.packed_weight = 1;
  CHECK(octavo_pack_weight(cpu, &w, &packed) == OCTAVO_OK);
  args.input = &fin;
  args.weight = NULL;
  args.packed = packed;
  for (i = 0; i < count; ++i) a[i] = (double)x[i];
  layer(a, 0.5, 8, 1, want);
  run_linear(&d, &args, want);
  octavo_packed_weight_destroy(packed);

  d.op = OCTAVO_FLOAT_LINEAR;
  d.weight = OCTAVO_F32;
  d.packed_weight = 0;
  args.packed = NULL;
  args.weight = &fw;
  args.weight_scales = NULL;
  layer(a, 1, 8, 1, want);
  run_linear(&d, &args, want);
}

/* Two groups of four input channels, in four bits; activations in 16. */
void test_groups(void) {
  enum { wide = 8 };
  static const int64_t wide_shape[] = {rows, wide}, nibbles_shape[] = {outputs, wide};
  static const int64_t scales_shape[] = {outputs, 2};
  uint8_t nibbles[outputs * wide / 2] = {0x21, 0x43, 0x78, 0xF0, 0x11, 0x11,
                                         0x9A, 0xBC, 0x00, 0x70, 0x08, 0x01};
  float by_group[outputs * 2] = {0.5F, 2, 1, 0.25F, 4, 0.125F};
  int32_t zeros[outputs * 2] = {0, 1, -2, 3, 7, -8};
  float x[rows * wide] = {32639, 1, 2, 3, -4, 5, 6, 7, -65278, 2, 4, 6, 8, -10, 0, 2};
  octavo_tensor w = octavo_tensor_of(nibbles, OCTAVO_S4, 2, nibbles_shape);
  octavo_tensor s = octavo_tensor_of(by_group, OCTAVO_F32, 2, scales_shape);
  octavo_tensor z = octavo_tensor_of(zeros, OCTAVO_S32, 2, scales_shape);
  octavo_tensor in = octavo_tensor_of(x, OCTAVO_F32, 2, wide_shape);
  uint8_t again[outputs * wide / 2] = {0};
  octavo_tensor to = octavo_tensor_of(again, OCTAVO_S4, 2, nibbles_shape);
  octavo_packed_weight* packed = NULL;
  octavo_linear_desc d = {0};
  octavo_linear_args args = {0};
  double want[rows * outputs];
  int r, o, i;
  for (r = 0; r < rows; ++r)
    for (o = 0; o < outputs; ++o) {
      double sum = 0;
      for (i = 0; i < wide; ++i) {
        const int code = nibbles[(o * wide + i) / 2] >> (i % 2 * 4) & 15;
        const int group = o * 2 + i / 4;
        sum += (double)x[r * wide + i] * ((code < 8 ? code : code - 16) - zeros[group]) *
               (double)by_group[group];
      }
      want[r * outputs + o] = sum;
    }
  CHECK(octavo_pack_weight_groups(cpu, &w, 4, &s, &z, &packed) == OCTAVO_OK);
  CHECK(octavo_packed_weight_unpack(packed, &to, NULL, NULL) == OCTAVO_OK);
  CHECK(memcmp(again, nibbles, sizeof again) == 0);
  d.struct_size = sizeof d;
  d.op = OCTAVO_QUANTIZED_LINEAR;
  d.m = rows;
  d.n = outputs;
  d.k = wide;
  d.weight = OCTAVO_S4;
  d.weight_zero_points = d.packed_weight = 1;
  d.quantized = octavo_some(OCTAVO_S16);
  d.group_size = 4;
  args.struct_size = sizeof args;
  args.input = &in;
  args.packed = packed;
  run_linear(&d, &args, want);
  d.packed_weight = 0;
  args.packed = NULL;
  args.weight = &w;
  args.weight_scales = &s;
  args.weight_zero_points = &z;
  run_linear(&d, &args, want);
  octavo_packed_weight_destroy(packed);
}

void test_packed_weight(void) {
  octavo_tensor w = octavo_tensor_of(weights, OCTAVO_S8, 2, weight_shape);
  octavo_pack_desc d = {0};
  octavo_pack_args a = {0};
  octavo_packed_weight_info info = {0};
  octavo_plan* plan = NULL;
  octavo_packed_weight *packed = NULL, *read = NULL;
  void* image;
  d.struct_size = sizeof d;
  d.n = outputs;
  d.k = cols;
  d.weight = OCTAVO_S8;
  CHECK(octavo_pack_select(cpu, &d, NULL, &plan) == OCTAVO_OK);
  CHECK(octavo_pack_make_packed(plan, &packed) == OCTAVO_OK);
  a.struct_size = sizeof a;
  a.weight = &w;
  a.packed = packed;
  CHECK(octavo_pack_can_implement(plan, &a) == OCTAVO_OK);
  CHECK(octavo_pack_run(plan, cpu, NULL, 0, &a) == OCTAVO_OK);
  info.struct_size = sizeof info;
  CHECK(octavo_packed_weight_get_info(packed, &info) == OCTAVO_OK);
  CHECK(info.n == outputs && info.k == cols && info.dtype == OCTAVO_S8);
  image = malloc(info.serialized_bytes);
  CHECK(octavo_packed_weight_serialize(packed, image, info.serialized_bytes) == OCTAVO_OK);
  CHECK(octavo_packed_weight_deserialize(image, info.serialized_bytes, &read) == OCTAVO_OK);
  octavo_packed_weight_destroy(read);
  read = NULL;
  CHECK(octavo_packed_weight_deserialize(image, 10, &read) == OCTAVO_INVALID_PROBLEM);
  CHECK(read == NULL);
  free(image);
  octavo_packed_weight_destroy(packed);
  octavo_plan_destroy(plan);
}
