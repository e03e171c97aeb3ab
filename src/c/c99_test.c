/* Every plan from a program in C99, with scales that are powers of two, so that the expected
 * results are plain arithmetic here. Prints what is wrong; the exit code is 1 if anything is. */
#include "c99_test.h"

int failures = 0;
octavo_stream* cpu;
const int64_t shape[] = {rows, cols};

/* ---- elementwise
 * --------------------------------------------------------------------------------*/

static const int64_t slices_of[] = {1, cols, rows, rows * 2};
static int slice_of(octavo_layout layout, int i) {
  switch (layout) {
    case OCTAVO_PER_CHANNEL:
      return i % cols;
    case OCTAVO_PER_TOKEN:
      return i / cols;
    case OCTAVO_PER_GROUP:
      return i / 2;
    default:
      return 0;
  }
}

static const float scales[] = {0.5F, 0.25F, 2, 1};
static const int32_t zero_points[] = {1, 0, -2, 3};
static const float floats[count] = {0.75F, -100, 100, 3, -0.5F, 1.25F, 7, 1000};
static const float gradients[count] = {1, 2, 3, 4, 5, 6, 7, 8};
static const int8_t integers[count] = {0, 1, -1, 127, -128, 5, 10, -20};

/* To nearest, ties to even; for what fits. */
static double rounded(double v) {
  const double low = (double)(int64_t)v - (v < (double)(int64_t)v ? 1 : 0);
  const double rest = v - low;
  if (rest > 0.5 || (rest == 0.5 && (int64_t)low % 2 != 0)) return low + 1;
  return low;
}

static double expected(octavo_op op, octavo_layout layout, int i) {
  const double scale = (double)scales[slice_of(layout, i)];
  const double zero = zero_points[slice_of(layout, i)];
  const double raw = rounded((double)floats[i] / scale) + zero;
  const double q = raw < -128 ? -128 : raw > 127 ? 127 : raw;
  switch (op) {
    case OCTAVO_QUANTIZE:
      return q;
    case OCTAVO_QUANTIZE_BACKWARD:
      return raw == q ? (double)gradients[i] / scale : 0;
    case OCTAVO_DEQUANTIZE:
      return scale * (integers[i] - zero);
    case OCTAVO_DEQUANTIZE_BACKWARD:
      return (double)gradients[i] * scale;
    case OCTAVO_FAKE_QUANTIZE:
      return scale * (q - zero);
    default:
      return raw == q ? (double)gradients[i] : 0;
  }
}

static octavo_elementwise_desc elementwise_desc(octavo_op op, octavo_layout layout) {
  octavo_elementwise_desc d = {0};
  d.struct_size = sizeof d;
  d.op = op;
  d.layout = layout;
  d.rank = 2;
  d.shape = shape;
  d.axis = -1;
  d.group_size = 2;
  if (op <= OCTAVO_QUANTIZE_BACKWARD) d.output = OCTAVO_S8;
  if (op == OCTAVO_DEQUANTIZE || op == OCTAVO_DEQUANTIZE_BACKWARD) d.input = OCTAVO_S8;
  return d;
}

static void test_elementwise(octavo_op op, octavo_layout layout) {
  const octavo_elementwise_desc d = elementwise_desc(op, layout);
  octavo_elementwise_args a = {0};
  octavo_plan* plan = NULL;
  float floats_out[count] = {0};
  int8_t integers_out[count] = {0};
  const int64_t slices = slices_of[layout];
  octavo_tensor in = op == OCTAVO_DEQUANTIZE ? octavo_tensor_of(integers, OCTAVO_S8, 2, shape)
                                             : octavo_tensor_of(floats, OCTAVO_F32, 2, shape);
  octavo_tensor grad = octavo_tensor_of(gradients, OCTAVO_F32, 2, shape);
  octavo_tensor out = op == OCTAVO_QUANTIZE ? octavo_tensor_of(integers_out, OCTAVO_S8, 2, shape)
                                            : octavo_tensor_of(floats_out, OCTAVO_F32, 2, shape);
  octavo_tensor s = octavo_tensor_of(scales, OCTAVO_F32, 1, &slices);
  octavo_tensor z = octavo_tensor_of(zero_points, OCTAVO_S32, 1, &slices);
  int i;

  CHECK(octavo_elementwise_select(cpu, &d, NULL, &plan) == OCTAVO_OK);
  CHECK(octavo_plan_workspace_size(plan) == 0);
  CHECK(octavo_plan_slices(plan) == slices);
  CHECK(strncmp(octavo_plan_sku(plan), "elementwise.", 12) == 0);
  a.struct_size = sizeof a;
  if (op != OCTAVO_DEQUANTIZE_BACKWARD) a.input = &in;
  if (op % 2 != 0) { /* backward */
    a.grad_output = &grad;
    a.grad_input = &out;
  } else {
    a.output = &out;
  }
  if (layout == OCTAVO_PER_TENSOR) {
    a.scale = (double)scales[0];
    a.zero_point = zero_points[0];
  } else {
    a.scales = &s;
    if (op != OCTAVO_DEQUANTIZE_BACKWARD) a.zero_points = &z;
  }
  CHECK(octavo_elementwise_can_implement(plan, &a) == OCTAVO_OK);
  CHECK(octavo_elementwise_run(plan, cpu, NULL, 0, &a) == OCTAVO_OK);
  for (i = 0; i < count; ++i) {
    const double got = op == OCTAVO_QUANTIZE ? integers_out[i] : (double)floats_out[i];
    if (got != expected(op, layout, i)) {
      ++failures;
      printf("%s [%d]: expected %g, got %g\n", octavo_plan_sku(plan), i, expected(op, layout, i),
             got);
    }
  }
  octavo_plan_destroy(plan);
}

/* ---- dynamic range
 * ------------------------------------------------------------------------------*/

static void test_dynamic_range(void) {
  octavo_dynamic_range_desc d = {0};
  octavo_dynamic_range_args a = {0};
  octavo_plan* plan = NULL;
  float x[count] = {127, -63.5F, 1, 2, 254, -2, 4, 6};
  int8_t q[count] = {0};
  float found[rows] = {0};
  const int64_t slices = rows;
  octavo_tensor in = octavo_tensor_of(x, OCTAVO_F32, 2, shape);
  octavo_tensor out = octavo_tensor_of(q, OCTAVO_S8, 2, shape);
  octavo_tensor s = octavo_tensor_of(found, OCTAVO_F32, 1, &slices);
  d.struct_size = sizeof d;
  d.scope = OCTAVO_PER_TOKEN;
  d.rank = 2;
  d.shape = shape;
  d.output = OCTAVO_S8;
  CHECK(octavo_dynamic_range_select(cpu, &d, NULL, &plan) == OCTAVO_OK);
  CHECK(octavo_plan_slices(plan) == rows);
  a.struct_size = sizeof a;
  a.input = &in;
  a.output = &out;
  a.scales = &s;
  CHECK(octavo_dynamic_range_can_implement(plan, &a) == OCTAVO_OK);
  CHECK(octavo_dynamic_range_run(plan, cpu, NULL, 0, &a) == OCTAVO_OK);
  CHECK(found[0] == 1 && found[1] == 2);
  CHECK(q[0] == 127 && q[1] == -64 && q[4] == 127 && q[7] == 3);
  octavo_plan_destroy(plan);
}

static void test_sixteen_bits(void) {
  octavo_dynamic_range_desc d = {0};
  octavo_dynamic_range_args a = {0};
  octavo_plan* plan = NULL;
  float x[count] = {32639, -16319.5F, 1, 2, 65278, -2, 4, 6};
  int16_t q[count] = {0};
  float found[rows] = {0};
  const int64_t slices = rows;
  octavo_tensor in = octavo_tensor_of(x, OCTAVO_F32, 2, shape);
  octavo_tensor out = octavo_tensor_of(q, OCTAVO_S16, 2, shape);
  octavo_tensor s = octavo_tensor_of(found, OCTAVO_F32, 1, &slices);
  CHECK(strcmp(octavo_dtype_name(OCTAVO_S16), "s16") == 0);
  CHECK(octavo_bytes_for(OCTAVO_S16, 3) == 6);
  d.struct_size = sizeof d;
  d.scope = OCTAVO_PER_TOKEN;
  d.rank = 2;
  d.shape = shape;
  d.output = OCTAVO_S16;
  CHECK(octavo_dynamic_range_select(cpu, &d, NULL, &plan) == OCTAVO_OK);
  a.struct_size = sizeof a;
  a.input = &in;
  a.output = &out;
  a.scales = &s;
  CHECK(octavo_dynamic_range_run(plan, cpu, NULL, 0, &a) == OCTAVO_OK);
  CHECK(found[0] == 1 && found[1] == 2);
  CHECK(q[0] == 32639 && q[1] == -16320 && q[4] == 32639 && q[7] == 3);
  octavo_plan_destroy(plan);
}

/* ---- embeddings
 * ---------------------------------------------------------------------------------*/

static void test_embedding(void) {
  enum { gathered = 3 };
  static const int8_t table[count] = {1, 2, 3, 4, -5, -6, -7, 127};
  static const int32_t indices[gathered] = {1, 0, 1}, zeros[rows] = {0, 1};
  static const float row_scales[rows] = {0.5F, 2};
  const int64_t of_indices = gathered, of_rows = rows, of_output[] = {gathered, cols};
  float y[gathered * cols] = {0};
  octavo_embedding_desc d = {0};
  octavo_embedding_args a = {0};
  octavo_plan* plan = NULL;
  octavo_tensor i = octavo_tensor_of(indices, OCTAVO_S32, 1, &of_indices);
  octavo_tensor t = octavo_tensor_of(table, OCTAVO_S8, 2, shape);
  octavo_tensor s = octavo_tensor_of(row_scales, OCTAVO_F32, 1, &of_rows);
  octavo_tensor z = octavo_tensor_of(zeros, OCTAVO_S32, 1, &of_rows);
  octavo_tensor out = octavo_tensor_of(y, OCTAVO_F32, 2, of_output);
  int n;
  d.struct_size = sizeof d;
  d.m = gathered;
  d.rows = rows;
  d.columns = cols;
  d.table = OCTAVO_S8;
  d.zero_points = 1;
  CHECK(octavo_embedding_select(cpu, &d, NULL, &plan) == OCTAVO_OK);
  a.struct_size = sizeof a;
  a.indices = &i;
  a.table = &t;
  a.scales = &s;
  a.zero_points = &z;
  a.output = &out;
  CHECK(octavo_embedding_can_implement(plan, &a) == OCTAVO_OK);
  CHECK(octavo_embedding_run(plan, cpu, NULL, 0, &a) == OCTAVO_OK);
  for (n = 0; n < gathered * cols; ++n) {
    const int32_t row = indices[n / cols];
    CHECK(y[n] == row_scales[row] * (float)(table[row * cols + n % cols] - zeros[row]));
  }
  octavo_plan_destroy(plan);
}

/* ---- observers
 * ----------------------------------------------------------------------------------*/

static void test_observer(octavo_op op) {
  octavo_observer_desc d = {0};
  octavo_observer_args a = {0};
  octavo_calibration_options o = {0};
  octavo_plan* plan = NULL;
  octavo_observer_state *first = NULL, *second = NULL;
  void* workspace = NULL;
  size_t bytes;
  float x[2][count] = {{1, 2, 3, 4, 5, 6, 7, 63.5F}, {-1, -2, 3, 1, 1, 1, 1, 1}};
  octavo_tensor in = octavo_tensor_of(x[0], OCTAVO_F32, 2, shape);
  double low = 9, high = 9, scale = 9;
  int32_t zero = 9;
  d.struct_size = sizeof d;
  d.op = op;
  CHECK(octavo_observer_select(cpu, &d, NULL, &plan) == OCTAVO_OK);
  CHECK(octavo_observer_make_state(plan, &first) == OCTAVO_OK);
  CHECK(octavo_observer_make_state(plan, &second) == OCTAVO_OK);
  bytes = octavo_plan_workspace_size(plan);
  CHECK(octavo_workspace_create(bytes, &workspace) == OCTAVO_OK);
  a.struct_size = sizeof a;
  a.input = &in;
  a.state = first;
  CHECK(octavo_observer_can_implement(plan, &a) == OCTAVO_OK);
  CHECK(octavo_observer_run(plan, cpu, workspace, bytes, &a) == OCTAVO_OK);
  in.data = x[1];
  a.state = second;
  CHECK(octavo_observer_run(plan, cpu, workspace, bytes, &a) == OCTAVO_OK);
  CHECK(octavo_observer_state_merge(first, second) == OCTAVO_OK);
  CHECK(octavo_observer_state_slices(first) == 1);
  CHECK(octavo_observer_state_extremes(first, &low, &high, 1) == OCTAVO_OK);
  CHECK(low == -2 && high == 63.5);
  o.struct_size = sizeof o;
  o.output = OCTAVO_S8;
  CHECK(octavo_observer_state_calibrate(first, &o, &scale, &zero, 1) == OCTAVO_OK);
  CHECK(scale == 0.5 && zero == 0);
  for (o.method = OCTAVO_PERCENTILE; o.method <= OCTAVO_ENTROPY; ++o.method)
    CHECK(octavo_observer_state_calibrate(first, &o, &scale, NULL, 1) ==
          (op == OCTAVO_OBSERVE_HISTOGRAM ? OCTAVO_OK : OCTAVO_UNSUPPORTED));
  CHECK(scale > 0 && scale <= 0.51);
  octavo_workspace_destroy(workspace);
  octavo_observer_state_destroy(first);
  octavo_observer_state_destroy(second);
  octavo_plan_destroy(plan);
}

/* ---- errors
 * -------------------------------------------------------------------------------------*/

static void test_errors(void) {
  octavo_elementwise_desc d = elementwise_desc(OCTAVO_QUANTIZE, OCTAVO_PER_TENSOR);
  octavo_plan* plan = NULL;
  octavo_target targets[16];
  size_t available = 0;
  d.output = OCTAVO_F32;
  CHECK(octavo_elementwise_select(cpu, &d, NULL, &plan) == OCTAVO_UNSUPPORTED);
  CHECK(plan == NULL);
  CHECK(octavo_last_error()->code == OCTAVO_UNSUPPORTED);
  CHECK(strcmp(octavo_last_error()->argument, "output") == 0);
  CHECK(strcmp(octavo_last_error()->message, "output: expected s8, u8, s4, u4 or s16, got f32") ==
        0);
  CHECK(octavo_elementwise_run(NULL, NULL, NULL, 0, NULL) == OCTAVO_INVALID_PROBLEM);
  CHECK(octavo_version() == OCTAVO_VERSION);
  CHECK(octavo_available_targets(targets, 16, &available) == OCTAVO_OK);
  CHECK(available >= 1 && strcmp(octavo_target_name(targets[0]), "scalar") == 0);
}

int main(void) {
  octavo_op op;
  octavo_layout layout;
  CHECK(octavo_stream_create(NULL, &cpu) == OCTAVO_OK);
  for (op = OCTAVO_QUANTIZE; op <= OCTAVO_FAKE_QUANTIZE_BACKWARD; ++op)
    for (layout = OCTAVO_PER_TENSOR; layout <= OCTAVO_PER_GROUP; ++layout)
      test_elementwise(op, layout);
  test_dynamic_range();
  test_sixteen_bits();
  test_embedding();
  test_linear();
  test_groups();
  test_packed_weight();
  test_observer(OCTAVO_OBSERVE_MIN_MAX);
  test_observer(OCTAVO_OBSERVE_HISTOGRAM);
  test_errors();
  octavo_stream_destroy(cpu);
  printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
