// Embeddings against the oracle: every type, granularity, target and thread count; and refusals.
#include <gtest/gtest.h>

#include "ops/elementwise/testing_checks.hpp"
#include "ops/linear/testing_refusals.hpp"
#include "testing/lent.hpp"

namespace octavo::testing {
namespace {

constexpr std::array tables{DType::f32, DType::f16, DType::bf16, DType::s8,
                            DType::u8,  DType::s4,  DType::u4};
constexpr std::array outputs{DType::f32, DType::f16, DType::bf16};

struct EmbeddingData {
  EmbeddingDescriptor d;
  Matrix table, scales;
  std::vector<std::int32_t> indices, zero_points;
  std::int64_t groups = 1;

  [[nodiscard]] EmbeddingArgs args(Matrix& out) const {
    EmbeddingArgs a{.indices = TensorRef(indices), .table = table.ref(), .output = out.mut()};
    if (!is_float(d.table))
      a.scales = TensorRef(scales.bytes.data(), scales.type, {d.rows, groups});
    if (d.zero_points) a.zero_points = TensorRef(zero_points.data(), {d.rows, groups});
    return a;
  }
  [[nodiscard]] Matrix blank() const {
    Matrix out(d.output, std::ssize(indices), d.columns, 3);
    std::fill(out.bytes.begin(), out.bytes.end(), linear_paint);
    return out;
  }
  [[nodiscard]] Matrix answer() const {
    Matrix out = blank();
    for (std::int64_t i = 0; i < out.rows; ++i)
      for (std::int64_t j = 0; j < d.columns; ++j) {
        const std::int64_t row = indices[static_cast<std::size_t>(i)];
        if (d.table == d.output) {
          out.set(i, j, table.get(row, j));
        } else if (is_float(d.table)) {
          out.set(i, j, encode(d.output, decode(d.table, table.get(row, j))));
        } else {
          const std::int64_t at = row * groups + j / (d.columns / groups);
          const std::int64_t zero = d.zero_points ? zero_points[static_cast<std::size_t>(at)] : 0;
          const auto scale = static_cast<float>(decode(scales.type, scales.get(0, at)));
          out.set(i, j,
                  encode(d.output, static_cast<double>(
                                       scale * static_cast<float>(table.integer(row, j) - zero))));
        }
      }
    return out;
  }
};

/// The arguments where the stream has them.
EmbeddingArgs lend(Lent& lent, EmbeddingArgs a, Matrix& out) {
  a.indices = lent.lend(a.indices);
  a.table = lent.lend(a.table);
  a.scales = lent.lend(a.scales);
  a.zero_points = lent.lend(a.zero_points);
  const auto at = static_cast<std::byte*>(a.output.data) - out.bytes.data();
  a.output.data = lent.lend(out.bytes) + at;
  return a;
}

EmbeddingData make(EmbeddingDescriptor d, DType scale, std::int64_t count, std::uint64_t seed) {
  EmbeddingData data;
  Random random(seed);
  data.d = d;
  data.d.m = count + static_cast<std::int64_t>(random.below(3));
  if (d.group_size > 0) data.groups = d.columns / d.group_size;
  data.table = Matrix(d.table, d.rows, d.columns, is_packed(d.table) ? 4 : 5);
  for (std::int64_t r = 0; r < d.rows; ++r)
    for (std::int64_t c = 0; c < d.columns; ++c)
      data.table.set(r, c,
                     is_float(d.table) && d.table != d.output && random.below(2) == 0
                         ? encode(d.table, tame(random, 100))
                         : random.next());
  data.scales = Matrix(scale, 1, d.rows * data.groups, 0);
  for (std::int64_t i = 0; i < data.scales.columns; ++i) {
    data.scales.set(0, i, encode(scale, tame(random, 2)));
    const IntRange range = storage_range(d.table);
    data.zero_points.push_back(
        is_float(d.table)
            ? 0
            : range.min + static_cast<std::int32_t>(
                              random.below(static_cast<std::uint64_t>(range.max - range.min) + 1)));
  }
  for (std::int64_t i = 0; i < count; ++i)
    data.indices.push_back(
        static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(d.rows))));
  return data;
}

class EmbeddingTarget : public ::testing::TestWithParam<Target> {};
INSTANTIATE_TEST_SUITE_P(All, EmbeddingTarget, ::testing::ValuesIn(tested_places()),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST_P(EmbeddingTarget, EveryType) {
  const Streams streams(GetParam());
  std::uint64_t seed = 0;
  for (const DType table : tables)
    for (const DType output : outputs)
      for (const DType scale : all_floats)
        for (const auto& [columns, group] :
             {std::array<std::int64_t, 2>{1, 0}, {7, 0}, {64, 0}, {96, 32}, {133, 0}, {1200, 4}})
          for (const bool zero_points : {false, true}) {
            if (is_float(table) && (zero_points || group != 0)) continue;
            const EmbeddingData data = make({.rows = 19,
                                             .columns = columns,
                                             .table = table,
                                             .output = output,
                                             .group_size = group,
                                             .zero_points = zero_points},
                                            scale, seed % 3 == 0 ? 1 : 150, seed + 1);
            ++seed;
            const Matrix want = data.answer();
            for (const Stream& stream : streams) {
              const auto plan = EmbeddingPlan::select(stream, data.d);
              ASSERT_TRUE(plan) << plan.error().message();
              Matrix out = data.blank();
              Lent lent(stream);
              const Status s = plan->run(stream, {}, lend(lent, data.args(out), out));
              ASSERT_TRUE(s) << s.error().message();
              ASSERT_TRUE(lent.fetch());
              ASSERT_TRUE(out.bytes == want.bytes) << to_string(plan->sku()) << " " << columns;
              ASSERT_EQ(plan->sku().target, GetParam());
            }
            EXPECT_EQ(streams.take_trace(), 1U << static_cast<int>(GetParam()));
          }
}

TEST_P(EmbeddingTarget, OfNothing) {
  const Streams streams(GetParam());
  const Stream& stream = *streams.begin();
  for (const auto& [rows, columns, count] :
       {std::array<std::int64_t, 3>{0, 4, 0}, {4, 0, 3}, {4, 4, 0}}) {
    const EmbeddingDescriptor d{.m = 3, .rows = rows, .columns = columns, .table = DType::s8};
    const auto plan = EmbeddingPlan::select(stream, d);
    ASSERT_TRUE(plan) << plan.error().message();
    const std::vector<std::int32_t> indices(static_cast<std::size_t>(count));
    const std::vector<std::int8_t> table(16);
    const std::vector<float> scales(4, 1.0F);
    std::vector<float> out(16, 7.0F);
    Lent lent(stream);
    const Status s = plan->run(stream, {},
                               {.indices = lent.lend(TensorRef(indices)),
                                .table = lent.lend(TensorRef(table.data(), {rows, columns})),
                                .scales = lent.lend(TensorRef(scales.data(), {rows})),
                                .output = TensorMut(lent.lend(out), {count, columns})});
    EXPECT_TRUE(s) << s.error().message();
    EXPECT_TRUE(lent.fetch());
    EXPECT_EQ(out, std::vector<float>(16, 7.0F));
  }
}

TEST(Embedding, GroupsOfARowAndMoreAreTheRow) {
  const Stream stream = Stream::cpu({.threads = 1});
  for (const std::int64_t group : {0, 4, 8, 12}) {
    const auto plan = EmbeddingPlan::select(
        stream, {.m = 1, .rows = 2, .columns = 8, .table = DType::s8, .group_size = group});
    ASSERT_TRUE(plan) << plan.error().message();
    EXPECT_EQ(plan->sku().layout, group == 4 ? Layout::per_group : Layout::per_token) << group;
  }
}

TEST(Embedding, SelectRefuses) {
  const Stream stream = Stream::cpu({.threads = 1});
  const auto refused = [&](const EmbeddingDescriptor& d, const Refusal& expected) {
    const auto plan = EmbeddingPlan::select(stream, d);
    ASSERT_FALSE(plan);
    expect_error(plan.error(), expected);
  };
  const EmbeddingDescriptor good{.m = 2, .rows = 3, .columns = 8, .table = DType::s8};
  const auto with = [&](auto set) {
    EmbeddingDescriptor d = good;
    set(d);
    return d;
  };
  for (int i = 0; i <= dtype_count; ++i) {
    const auto type = static_cast<DType>(i);
    const auto table = with([&](auto& d) { d.table = type; });
    if (std::find(tables.begin(), tables.end(), type) == tables.end())
      refused(table, unsupported("table", {"f32", "s4", std::string(name(type))}));
    const auto output = with([&](auto& d) { d.output = type; });
    if (std::find(outputs.begin(), outputs.end(), type) == outputs.end())
      refused(output, unsupported("output", {"f32", "bf16", std::string(name(type))}));
  }
  refused(with([](auto& d) { d.m = -1; }), invalid("m", {"-1"}));
  refused(with([](auto& d) { d.rows = -1; }), invalid("rows", {"-1"}));
  refused(with([](auto& d) { d.columns = -1; }), invalid("columns", {"-1"}));
  refused(with([](auto& d) { d.rows = d.columns = std::int64_t{1} << 40; }), invalid("columns"));
  for (const std::int64_t group : {-4, 2, 6})
    refused(with([&](auto& d) { d.group_size = group; }),
            invalid("group_size", {"4", std::to_string(group)}));
  refused(with([](auto& d) {
            d.columns = 12;
            d.group_size = 8;
          }),
          invalid("group_size", {"12", "8"}));
  refused(with([](auto& d) {
            d.table = DType::f16;
            d.group_size = 4;
          }),
          invalid("group_size", {"f16"}));
  refused(with([](auto& d) {
            d.table = DType::f16;
            d.zero_points = true;
          }),
          invalid("zero_points", {"f16"}));
}

TEST(Embedding, RunRefuses) {
  const Stream stream = Stream::cpu({.threads = 1});
  EmbeddingData data =
      make({.rows = 5, .columns = 8, .table = DType::s4, .group_size = 4, .zero_points = true},
           DType::f32, 3, 7);
  data.indices = {1, 4, 0};
  const auto plan = EmbeddingPlan::select(stream, data.d);
  ASSERT_TRUE(plan) << plan.error().message();
  Matrix out = data.blank();
  const Bytes before = out.bytes;
  const auto refused = [&](const EmbeddingArgs& args, const Refusal& expected) {
    for (const Status& s : {plan->can_implement(args), plan->run(stream, {}, args)}) {
      ASSERT_FALSE(s);
      expect_error(s.error(), expected);
    }
    EXPECT_EQ(out.bytes, before);
  };
  const auto with = [&](auto set) {
    EmbeddingArgs args = data.args(out);
    set(args);
    return args;
  };
  for (const std::int32_t wrong : {-1, 5, INT32_MAX, INT32_MIN}) {
    const std::vector<std::int32_t> indices{1, wrong, 0};
    refused(with([&](auto& a) { a.indices = TensorRef(indices); }),
            invalid("indices", {"0 to 4", std::to_string(wrong), "index 1"}));
  }
  const std::vector<std::int32_t> many(9);
  refused(with([&](auto& a) { a.indices = TensorRef(many); }), invalid("indices", {"9"}));
  refused(with([](auto& a) { a.indices.dtype = DType::f32; }), unsupported("indices", {"s32"}));
  refused(with([](auto& a) { a.table.dtype = DType::u4; }), unsupported("table", {"s4", "u4"}));
  refused(with([](auto& a) { a.table.shape = {4, 8}; }), invalid("table", {"[5, 8]", "[4, 8]"}));
  refused(with([](auto& a) { a.output.dtype = DType::f16; }), unsupported("output", {"f32"}));
  refused(with([](auto& a) { a.scales = {}; }), invalid("scales", {"[5, 2]", "none"}));
  refused(with([](auto& a) { a.scales = TensorRef(a.scales.data, a.scales.dtype, {9}); }),
          invalid("scales", {"10", "9"}));
  refused(with([](auto& a) { a.scales.dtype = DType::s32; }), unsupported("scales", {"s32"}));
  refused(with([](auto& a) { a.zero_points = {}; }), invalid("zero_points", {"[5, 2]", "none"}));
  refused(with([&](auto& a) { a.table.data = out.bytes.data() + 4; }),
          invalid("output", {"table", "overlap"}));
  refused(with([&](auto& a) { a.indices.data = out.bytes.data() + 4; }),
          invalid("output", {"indices", "overlap"}));
  refused(with([&](auto& a) { a.scales.data = out.bytes.data() + 4; }),
          invalid("output", {"scales", "overlap"}));
  refused(with([&](auto& a) { a.zero_points.data = out.bytes.data() + 4; }),
          invalid("output", {"zero_points", "overlap"}));
  // Values, of the rows that are gathered alone: 1, 4 and 0.
  const std::vector<std::int32_t> zeros = data.zero_points;
  data.zero_points[9] = 8;
  refused(data.args(out), invalid("zero_points", {"-8 to 7", "8", "index 9"}));
  data.zero_points = zeros;
  data.zero_points[4] = 8;  // of row 2
  EXPECT_TRUE(plan->can_implement(data.args(out)));
  data.scales.set(0, 3, encode(DType::f32, std::numeric_limits<double>::infinity()));
  refused(data.args(out), invalid("scales", {"finite", "index 3"}));
}

// On a GPU values are looked at when the work is carried out: nothing is written of what they
// refuse, the next synchronize says what the CPU says, and later runs are carried out all the same.
TEST(Embedding, ValuesAreRefusedWhereTheyAre) {
  if (!has_cuda()) GTEST_SKIP() << "no CUDA device";
  const Stream host = Stream::cpu({.threads = 1});
  const Stream stream = *cuda_stream();
  // Few, which one block checks, and many.
  for (const std::int64_t count : {9, 3000}) {
    const EmbeddingData good =
        make({.rows = 50, .columns = 32, .table = DType::s4, .group_size = 4, .zero_points = true},
             DType::f64, count, 7);
    const auto plan = EmbeddingPlan::select(stream, good.d);
    ASSERT_TRUE(plan) << plan.error().message();
    const auto on_host = EmbeddingPlan::select(host, good.d);
    const double inf = std::numeric_limits<double>::infinity();
    const auto spoil_index = [&](EmbeddingData& d, std::int64_t i, std::int32_t value) {
      d.indices[static_cast<std::size_t>(i)] = value;
    };
    const auto spoil_scale = [&](EmbeddingData& d, std::int64_t row, std::int64_t group) {
      d.scales.set(0, row * d.groups + group, encode(DType::f64, inf));
    };
    const auto spoil_zero_point = [&](EmbeddingData& d, std::int64_t row, std::int64_t group) {
      d.zero_points[static_cast<std::size_t>(row * d.groups + group)] = -9;
    };
    const std::int64_t row = good.indices[static_cast<std::size_t>(count - 2)];
    std::vector<EmbeddingData> wrong;
    const auto with = [&](auto spoil) {
      wrong.push_back(good);
      spoil(wrong.back());
    };
    with([&](auto& d) { spoil_index(d, count - 1, 50); });
    with([&](auto& d) { spoil_index(d, 0, -1); });
    with([&](auto& d) { spoil_scale(d, row, 3); });
    with([&](auto& d) { spoil_zero_point(d, row, 3); });
    with([&](auto& d) { spoil_zero_point(d, row, 2), spoil_scale(d, row, 3); });
    with([&](auto& d) { spoil_zero_point(d, row, 3), spoil_scale(d, row, 3); });
    with([&](auto& d) { spoil_index(d, count - 1, INT32_MIN), spoil_scale(d, row, 7); });
    with([&](auto& d) { spoil_index(d, 1, INT32_MAX), spoil_scale(d, row, 7); });
    // An f64 that is finite, and no f32.
    with([&](auto& d) { d.scales.set(0, row * d.groups, encode(DType::f64, 1e300)); });
    for (const EmbeddingData& data : wrong) {
      Matrix out = data.blank();
      const Matrix before = out;
      const Status said = on_host->run(host, {}, data.args(out));
      ASSERT_FALSE(said);
      Lent lent(stream);
      const EmbeddingArgs args = lend(lent, data.args(out), out);
      EXPECT_TRUE(plan->can_implement(args));
      ASSERT_TRUE(plan->run(stream, {}, args));
      // A run that is right, and one that is wrong in another way: of that nothing is said.
      Matrix after = good.blank();
      Lent more(stream);
      ASSERT_TRUE(plan->run(stream, {}, lend(more, good.args(after), after)));
      const EmbeddingData& other = wrong[(&data - wrong.data() + 1) % wrong.size()];
      Matrix none = other.blank();
      Lent most(stream);
      ASSERT_TRUE(plan->run(stream, {}, lend(most, other.args(none), none)));
      const Status s = lent.fetch();
      ASSERT_FALSE(s);
      EXPECT_EQ(s.error().message(), said.error().message());
      EXPECT_EQ(s.error().argument(), said.error().argument());
      EXPECT_EQ(s.error().code(), said.error().code());
      EXPECT_TRUE(more.fetch());
      EXPECT_TRUE(most.fetch());
      EXPECT_TRUE(out.bytes == before.bytes);
      EXPECT_TRUE(none.bytes == other.blank().bytes);
      EXPECT_TRUE(after.bytes == good.answer().bytes);
    }
  }
}

// Memory of the host is not a GPU's, nor the reverse.
TEST(Embedding, MemoryOfAnotherBackendIsRefused) {
  if (!has_cuda()) GTEST_SKIP() << "no CUDA device";
  const EmbeddingData data =
      make({.rows = 5, .columns = 8, .table = DType::s8, .zero_points = true}, DType::f32, 3, 7);
  for (const Stream& stream : {*cuda_stream(), Stream::cpu({.threads = 1})}) {
    const auto plan = EmbeddingPlan::select(stream, data.d);
    ASSERT_TRUE(plan);
    Matrix out = data.blank();
    const EmbeddingArgs host = data.args(out);
    Lent lent(*cuda_stream());
    const EmbeddingArgs device = lend(lent, host, out);
    const bool on_host = stream.backend() == Backend::cpu;
    const EmbeddingArgs& good = on_host ? host : device;
    const EmbeddingArgs& bad = on_host ? device : host;
    ASSERT_TRUE(plan->can_implement(good));
    const auto refused = [&](const char* argument, auto spoil) {
      EmbeddingArgs args = good;
      spoil(args);
      for (const Status& s : {plan->can_implement(args), plan->run(stream, {}, args)}) {
        ASSERT_FALSE(s) << argument;
        EXPECT_EQ(s.error().argument(), argument) << s.error().message();
      }
    };
    refused("indices", [&](auto& a) { a.indices.data = bad.indices.data; });
    refused("table", [&](auto& a) { a.table.data = bad.table.data; });
    refused("scales", [&](auto& a) { a.scales.data = bad.scales.data; });
    refused("zero_points", [&](auto& a) { a.zero_points.data = bad.zero_points.data; });
    refused("output", [&](auto& a) { a.output.data = bad.output.data; });
  }
}

}  // namespace
}  // namespace octavo::testing
