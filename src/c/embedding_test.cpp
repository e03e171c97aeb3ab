// The same bits through C as through C++: embeddings of every type; and what C adds to refusals.
#include "c/testing.hpp"
#include "ops/linear/testing_data.hpp"

namespace octavo::testing {
namespace {

struct Gather {
  EmbeddingDescriptor d;
  Matrix table, scales;
  std::vector<std::int32_t> indices{3, 0, 4, 4, 1}, zero_points;

  Gather(DType type, DType output, std::int64_t group, bool zeros) {
    d = {.m = 6,
         .rows = 5,
         .columns = 24,
         .table = type,
         .output = output,
         .group_size = group,
         .zero_points = zeros};
    Random random(7);
    table = Matrix(type, d.rows, d.columns, 4);
    for (std::int64_t i = 0; i < d.rows; ++i)
      for (std::int64_t j = 0; j < d.columns; ++j)
        table.set(i, j, random.next() & (is_float(type) ? 0x3BFF : ~0ULL));
    scales = Matrix(DType::f16, 1, d.rows * groups(), 0);
    for (std::int64_t i = 0; i < scales.columns; ++i) {
      scales.set(0, i, encode(DType::f16, 0.125 * static_cast<double>(1 + random.below(9))));
      zero_points.push_back(static_cast<std::int32_t>(random.below(8)));
    }
  }
  [[nodiscard]] std::int64_t groups() const {
    return d.group_size == 0 ? 1 : d.columns / d.group_size;
  }
  [[nodiscard]] EmbeddingArgs args(Matrix& out) const {
    EmbeddingArgs a{.indices = TensorRef(indices), .table = table.ref(), .output = out.mut()};
    if (!is_float(d.table))
      a.scales = TensorRef(scales.bytes.data(), scales.type, {d.rows, groups()});
    if (d.zero_points) a.zero_points = TensorRef(zero_points.data(), {d.rows, groups()});
    return a;
  }
  [[nodiscard]] Matrix blank() const { return {d.output, std::ssize(indices), d.columns, 3}; }
};

octavo_embedding_desc to_c(const EmbeddingDescriptor& d) {
  octavo_embedding_desc c{};
  c.struct_size = sizeof c;
  c.m = d.m;
  c.rows = d.rows;
  c.columns = d.columns;
  c.table = static_cast<octavo_dtype>(d.table);
  c.output = static_cast<octavo_dtype>(d.output);
  c.group_size = d.group_size;
  c.zero_points = d.zero_points ? 1 : 0;
  return c;
}

octavo_embedding_args to_c(CTensors& tensors, const EmbeddingArgs& a) {
  octavo_embedding_args c{};
  c.struct_size = sizeof c;
  c.indices = tensors(a.indices);
  c.table = tensors(a.table);
  c.scales = tensors.maybe(a.scales);
  c.zero_points = tensors.maybe(a.zero_points);
  c.output = tensors(a.output);
  return c;
}

Handle<octavo_plan> plan_of(const octavo_stream* stream, const EmbeddingDescriptor& descriptor) {
  const octavo_embedding_desc d = to_c(descriptor);
  return made<octavo_plan>(
      [&](auto out) { return octavo_embedding_select(stream, &d, nullptr, out); });
}

TEST(CEmbedding, GivesTheBitsOfCxx) {
  const Stream stream = Stream::cpu();
  const auto cpu = c_stream();
  for (const DType table :
       {DType::f32, DType::f16, DType::bf16, DType::s8, DType::u8, DType::s4, DType::u4})
    for (const DType output : {DType::f32, DType::f16, DType::bf16})
      for (const std::int64_t group : {0, 8})
        for (const bool zeros : {false, true}) {
          if (is_float(table) && (group != 0 || zeros)) continue;
          const Gather g(table, output, group, zeros);
          const auto plan = EmbeddingPlan::select(stream, g.d);
          ASSERT_TRUE(plan) << plan.error().message();
          SCOPED_TRACE(to_string(plan->sku()));
          Matrix want = g.blank();
          const Status ran = plan->run(stream, {}, g.args(want));
          ASSERT_TRUE(ran) << ran.error().message();

          const auto c_plan = plan_of(cpu.get(), g.d);
          ASSERT_NE(c_plan, nullptr);
          EXPECT_EQ(octavo_plan_sku(c_plan.get()), to_string(plan->sku()));
          EXPECT_EQ(octavo_plan_workspace_size(c_plan.get()), 0U);
          Matrix got = g.blank();
          CTensors tensors;
          const octavo_embedding_args a = to_c(tensors, g.args(got));
          EXPECT_EQ(octavo_embedding_can_implement(c_plan.get(), &a), OCTAVO_OK);
          ASSERT_EQ(octavo_embedding_run(c_plan.get(), cpu.get(), nullptr, 0, &a), OCTAVO_OK)
              << octavo_last_error()->message;
          EXPECT_TRUE(got.bytes == want.bytes);
        }
}

TEST(CEmbedding, Refuses) {
  const auto cpu = c_stream(1);
  const Gather g(DType::s4, DType::f32, 8, true);
  const auto select = [&](auto change, octavo_status code, const char* argument) {
    octavo_embedding_desc d = to_c(g.d);
    change(d);
    octavo_plan* out = nullptr;
    expect_refusal(octavo_embedding_select(cpu.get(), &d, nullptr, &out), code, argument, "got");
    EXPECT_EQ(out, nullptr);
  };
  using Desc = octavo_embedding_desc;
  select([](Desc& d) { d.m = -1; }, OCTAVO_INVALID_PROBLEM, "m");
  select([](Desc& d) { d.rows = -1; }, OCTAVO_INVALID_PROBLEM, "rows");
  select([](Desc& d) { d.columns = -1; }, OCTAVO_INVALID_PROBLEM, "columns");
  select([](Desc& d) { d.table = OCTAVO_F64; }, OCTAVO_UNSUPPORTED, "table");
  select([](Desc& d) { d.table = 260; }, OCTAVO_UNSUPPORTED, "table");
  select([](Desc& d) { d.output = OCTAVO_S8; }, OCTAVO_UNSUPPORTED, "output");
  select([](Desc& d) { d.group_size = 7; }, OCTAVO_INVALID_PROBLEM, "group_size");

  const auto plan = plan_of(cpu.get(), g.d);
  Matrix out = g.blank();
  const Bytes before = out.bytes;
  const auto run = [&](auto change, const char* argument, const char* words) {
    CTensors tensors;
    octavo_embedding_args a = to_c(tensors, g.args(out));
    change(a);
    expect_refusal(octavo_embedding_can_implement(plan.get(), &a), OCTAVO_INVALID_PROBLEM, argument,
                   words);
    expect_refusal(octavo_embedding_run(plan.get(), cpu.get(), nullptr, 0, &a),
                   OCTAVO_INVALID_PROBLEM, argument, words);
    EXPECT_EQ(out.bytes, before);
  };
  using Args = octavo_embedding_args;
  run([](Args& a) { a.indices = nullptr; }, "indices", "NULL");
  run([](Args& a) { a.table = nullptr; }, "table", "NULL");
  run([](Args& a) { a.output = nullptr; }, "output", "NULL");
  run([](Args& a) { a.scales = nullptr; }, "scales", "got none");
  run([](Args& a) { a.zero_points = nullptr; }, "zero_points", "got none");
  run([](Args& a) { a.struct_size = 3; }, "struct_size", "args");

  const std::int32_t wrong[] = {0, 5};
  CTensors tensors;
  run([&](Args& a) { a.indices = tensors(TensorRef(wrong)); }, "output", "[2, 24]");
  const std::int32_t beyond[] = {0, 5, 0, 0, 0};
  run([&](Args& a) { a.indices = tensors(TensorRef(beyond)); }, "indices", "got 5 at index 1");

  const Gather floats(DType::f16, DType::f32, 0, false);
  const auto of_floats = plan_of(cpu.get(), floats.d);
  octavo_embedding_args a = to_c(tensors, floats.args(out));
  a.scales = tensors(g.args(out).scales);
  expect_refusal(octavo_embedding_can_implement(of_floats.get(), &a), OCTAVO_INVALID_PROBLEM,
                 "scales", "expected none");
}

}  // namespace
}  // namespace octavo::testing
