// A linear in steps gives the bits of a run, however k and n are shared out: ranges are put
// together before rows are quantized, and sums before they are finished, or are continued piece by
// piece.
#include <gtest/gtest.h>

#include "ops/linear/testing_guard.hpp"
#include "testing/threads.hpp"

namespace octavo::testing {
namespace {

using octavo::detail::AnyLinearPlan;
using octavo::detail::LinearAccess;
using octavo::detail::LinearOperands;
using octavo::detail::LinearStages;
using octavo::detail::RowRanges;

/// How a layer is cut, and what is done between the steps.
struct Cut {
  std::int64_t k_pieces = 1;
  std::int64_t n_pieces = 1;
  int bits = 32;          // of sums
  bool together = false;  // each piece by itself, put together afterwards; else continued
};

std::string text(const Cut& cut) {
  return " k/" + std::to_string(cut.k_pieces) + " n/" + std::to_string(cut.n_pieces) + " s" +
         std::to_string(cut.bits) + (cut.together ? " together" : " continued");
}

/// Elements first..last-1 of each row.
template <class Tensor>
Tensor columns(const Tensor& t, std::int64_t first, std::int64_t last) {
  Tensor part = t;
  part.data = static_cast<unsigned char*>(const_cast<void*>(static_cast<const void*>(t.data))) +
              first * (bits(t.dtype) / 8);
  part.shape[1] = last - first;
  part.buffer_bytes = -1;
  return part;
}
TensorRef elements(const TensorRef& t, std::int64_t first, std::int64_t last) {
  if (t.data == nullptr || t.shape[0] == 1) return t;  // (a single one serves all)
  return {static_cast<const unsigned char*>(t.data) + first * (bits(t.dtype) / 8),
          t.dtype,
          {last - first}};
}

detail::LinearProblem problem_of(const LinearData& d) {
  switch (d.c.kind) {
    case LinearKind::matmul:
      return detail::linear_problem(matmul_descriptor(d.c));
    case LinearKind::dynamic:
      return detail::linear_problem(dynamic_descriptor(d.c));
    default:
      return detail::linear_problem(smoothquant_descriptor(d));
  }
}

/// What one of those who share a layer holds: some of k, by some of n.
struct Piece {
  AnyLinearPlan plan;
  TensorRef input;  // floats, or quantized already
  TensorRef rows;   // of weights
  WeightRef weight;
  WorkspaceBuffer workspace;
  Matrix quantized;  // of floats
  Bytes low, high;   // of them

  [[nodiscard]] const LinearStages& stages() const { return *LinearAccess::impl(plan).stages(); }
};

class Staged {
 public:
  Staged(const Stream& stream, const LinearData& d, const Cut& cut)
      : stream_(stream),
        d_(d),
        cut_(cut),
        out_(blank_output(d.c)),
        args_(linear_args<QuantizedMatmulArgs>(d, PackedWeight(), out_)),
        scales_(static_cast<std::size_t>(8 * d.c.m)),
        zero_points_(static_cast<std::size_t>(d.c.m)) {}

  Matrix run() {
    for (std::int64_t i = 0; i < cut_.n_pieces; ++i)
      run_columns(d_.c.n * i / cut_.n_pieces, d_.c.n * (i + 1) / cut_.n_pieces);
    return std::move(out_);
  }

 private:
  static void expect_ok(const Status& status) { EXPECT_TRUE(status) << status.error().message(); }
  [[nodiscard]] bool dynamic() const { return d_.c.kind == LinearKind::dynamic; }
  [[nodiscard]] bool symmetric() const { return d_.c.mode == RangeMode::symmetric; }
  [[nodiscard]] DType compute() const { return compute_type(d_.c.activation); }

  void run_columns(std::int64_t first, std::int64_t last) {
    std::vector<Piece> pieces;
    for (std::int64_t i = 0; i < cut_.k_pieces; ++i)
      pieces.push_back(
          make_piece(first, last, d_.c.k * i / cut_.k_pieces, d_.c.k * (i + 1) / cut_.k_pieces));
    if (dynamic()) quantize(pieces);
    const Matrix sums = multiply(pieces, first, last);
    finish(pieces.back(), sums, first, last);
  }

  Piece make_piece(std::int64_t first, std::int64_t last, std::int64_t k0, std::int64_t k1) {
    detail::LinearProblem p = problem_of(d_);
    p.n = last - first;
    p.k = k1 - k0;
    TensorRef rows = columns(d_.weight.ref(), k0, k1);
    rows.data = static_cast<const unsigned char*>(rows.data) + first * d_.weight.stride;
    rows.shape[0] = p.n;
    auto plan = AnyLinearPlan::select(stream_, p, {});
    EXPECT_TRUE(plan) << plan.error().message();
    const WeightRef weight =
        d_.c.packed ? WeightRef(*octavo::pack(stream_, rows)) : WeightRef(rows);
    const DType quantized = p.quantized;
    const auto room = static_cast<std::size_t>(8 * d_.c.m);
    return {*plan,
            columns(d_.input.ref(), k0, k1),
            rows,
            weight,
            WorkspaceBuffer(plan->workspace_size()),
            Matrix(quantized, d_.c.m, p.k, d_.c.padding),
            Bytes(room, std::byte{0x55}),
            Bytes(room, std::byte{0x55})};
  }

  template <class C>
  void put_together(Piece& all, const Piece& other) const {
    for (std::int64_t row = 0; row < d_.c.m; ++row) {
      auto& low = reinterpret_cast<C*>(all.low.data())[row];
      auto& high = reinterpret_cast<C*>(all.high.data())[row];
      if (!symmetric()) low = std::min(low, reinterpret_cast<const C*>(other.low.data())[row]);
      high = std::max(high, reinterpret_cast<const C*>(other.high.data())[row]);
    }
  }

  void quantize(std::vector<Piece>& pieces) {
    const auto ranges = [&](Piece& p) {
      return RowRanges{symmetric() ? nullptr : p.low.data(), p.high.data()};
    };
    Piece& all = pieces.front();
    bool widen = false;
    for (Piece& piece : pieces) {
      expect_ok(piece.stages().range(stream_, piece.input, ranges(cut_.together ? piece : all),
                                     widen && !cut_.together));
      if (cut_.together && widen && compute() == DType::f64) put_together<double>(all, piece);
      if (cut_.together && widen && compute() == DType::f32) put_together<float>(all, piece);
      widen = true;
    }
    for (Piece& piece : pieces)
      expect_ok(piece.stages().rows(
          stream_, piece.input, ranges(all),
          {piece.quantized.mut(), scales_.data(), symmetric() ? nullptr : zero_points_.data()}));
  }

  /// A row of sums more than there are, painted, and some between the rows.
  Matrix multiply(std::vector<Piece>& pieces, std::int64_t first, std::int64_t last) {
    // (Bits of 64: two elements of 32.)
    const std::int64_t words = cut_.bits / 32;
    const auto blank = [&] {
      Matrix m(DType::s32, d_.c.m + 1, (last - first) * words, 3 * words);
      std::fill(m.bytes.begin(), m.bytes.end(), std::byte{0x77});
      return m;
    };
    Matrix all = blank();
    bool more = false;
    const TensorRef zeros(zero_points_.data(), DType::s32, {d_.c.m});
    const TensorRef weight_zeros = elements(args_.weight_zero_points, first, last);
    for (Piece& piece : pieces) {
      Matrix own = blank();
      LinearOperands o;
      const TensorRef rows = dynamic() ? piece.quantized.ref() : piece.input;
      o.input = &rows;
      o.weight = &piece.weight;
      o.weight_zero_points = &weight_zeros;
      o.activation_zero_points = dynamic() ? &zeros : &args_.activation_zero_points;
      Matrix& to = cut_.together ? own : all;
      expect_ok(piece.stages().dot(stream_, Workspace(piece.workspace).data, o,
                                   {cut_.bits, to.bytes.data(), to.stride / words},
                                   more && !cut_.together));
      if (cut_.together) add(all, own, last - first, more);
      more = true;
    }
    // What is around them is as it was.
    for (std::int64_t r = 0; r <= d_.c.m; ++r)
      for (std::int64_t i = r == d_.c.m ? 0 : all.columns;
           i < (r == d_.c.m ? all.columns : all.stride); ++i)
        EXPECT_EQ(all.get(r, i), 0x77777777U) << "beside the sums";
    return all;
  }

  template <class T>
  static void add_as(Matrix& all, const Matrix& own, std::int64_t n, bool more) {
    using U = std::make_unsigned_t<T>;
    for (std::int64_t r = 0; r + 1 < all.rows; ++r)
      for (std::int64_t c = 0; c < n; ++c) {
        const auto at =
            static_cast<std::size_t>(r * all.stride * 4) + static_cast<std::size_t>(c) * sizeof(T);
        U a = 0;
        U b = 0;
        std::memcpy(&a, all.bytes.data() + at, sizeof a);
        std::memcpy(&b, own.bytes.data() + at, sizeof b);
        a = static_cast<U>((more ? a : U{0}) + b);
        std::memcpy(all.bytes.data() + at, &a, sizeof a);
      }
  }
  void add(Matrix& all, const Matrix& own, std::int64_t n, bool more) const {
    if (cut_.bits == 64) {
      add_as<std::int64_t>(all, own, n, more);
    } else {
      add_as<std::int32_t>(all, own, n, more);
    }
  }

  void finish(const Piece& piece, const Matrix& sums, std::int64_t first, std::int64_t last) {
    LinearOperands o;
    const TensorRef found(scales_.data(), compute(), {d_.c.m});
    const TensorRef weight_scales = elements(args_.weight_scales, first, last);
    const TensorRef bias = args_.bias.data == nullptr
                               ? TensorRef()
                               : TensorRef(static_cast<const unsigned char*>(args_.bias.data) +
                                               first * (bits(args_.bias.dtype) / 8),
                                           args_.bias.dtype, {last - first});
    const TensorRef residual =
        args_.residual.data == nullptr ? TensorRef() : columns(args_.residual, first, last);
    const TensorMut output = columns(args_.output, first, last);
    if (dynamic()) o.activation_scales = &found;
    if (d_.c.kind == LinearKind::matmul) o.activation_scales = &args_.activation_scales;
    o.weight_scales = &weight_scales;
    o.bias = &bias;
    o.residual = &residual;
    o.output_scale = args_.output_scale;
    o.output_zero_point = args_.output_zero_point;
    o.output = &output;
    auto* data = const_cast<std::byte*>(sums.bytes.data());
    expect_ok(piece.stages().epilogue(stream_, o, {cut_.bits, data, sums.stride * 32 / cut_.bits}));
  }

  const Stream& stream_;
  const LinearData& d_;
  const Cut cut_;
  Matrix out_;
  QuantizedMatmulArgs args_;
  Bytes scales_;
  std::vector<std::int32_t> zero_points_;
};

class LinearStagesOn : public ::testing::TestWithParam<Target> {
 protected:
  void SetUp() override {
    if (!is_available(GetParam())) GTEST_SKIP() << "this CPU lacks " << name(GetParam());
    if (!has_dot_product(GetParam()))
      GTEST_SKIP() << name(GetParam()) << " has no dot product of its own";
  }
  void TearDown() override {
    // What ran was what was asked for.
    if (!IsSkipped() && !HasFailure()) {
      EXPECT_EQ(trace_.load(), 1U << static_cast<unsigned>(GetParam()));
    }
  }
  [[nodiscard]] Stream stream(int threads = 1) {
    return Stream::cpu({.threads = threads, .cap = GetParam(), .trace = &trace_});
  }
  void check(const Stream& stream, const LinearData& d, const Matrix& answer, const Cut& cut) {
    const Matrix out = Staged(stream, d, cut).run();
    ASSERT_TRUE(out.bytes == answer.bytes) << d.c.text() << text(cut);
  }
  std::atomic<std::uint32_t> trace_{0};
};

INSTANTIATE_TEST_SUITE_P(All, LinearStagesOn, ::testing::ValuesIn(machine_targets),
                         [](const auto& info) { return std::string(name(info.param)); });

/// A cut for each turn.
Cut cut_in_turn(std::uint64_t turn) {
  Cut cut;
  cut.k_pieces = static_cast<std::int64_t>(turn % 3) + 1;
  cut.n_pieces = static_cast<std::int64_t>(turn / 3 % 2) + 1;
  cut.bits = turn / 6 % 2 == 0 ? 32 : 64;
  cut.together = turn / 12 % 2 != 0;
  return cut;
}

TEST_P(LinearStagesOn, GiveTheBitsOfARun) {
  const Stream s = stream();
  std::uint64_t turn = 0;
  for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{1, 1, 1},
                                {3, 17, 5},
                                {5, 70, 33},
                                {50, 33, 16},
                                {2, 130, 64},
                                {66, 31, 192}})
    for (std::uint64_t i = 0; i < (slow_machine() ? 28U : 168U); ++i) {
      ++turn;
      const LinearData d = make_linear(linear_case_in_turn(turn, m, n, k));
      check(s, d, expected(d), cut_in_turn(turn));
    }
}

// Every cut of one layer of each kind.
TEST_P(LinearStagesOn, HoweverALayerIsCut) {
  const Stream s = stream(2);
  for (const LinearKind kind : {LinearKind::matmul, LinearKind::dynamic, LinearKind::smoothquant})
    for (const bool packed : {false, true}) {
      LinearCase c;
      c.kind = kind;
      c.m = 7;
      c.n = 75;
      c.k = 131;
      c.packed = packed;
      c.activation = kind == LinearKind::dynamic ? DType::bf16 : DType::u8;
      c.mode = RangeMode::asymmetric;
      c.activation_zero_points = kind != LinearKind::dynamic;
      c.weight_zero_points = true;
      c.epilogue = Epilogue::bias | Epilogue::residual | Epilogue::relu;
      const LinearData d = make_linear(c);
      const Matrix answer = expected(d);
      for (std::uint64_t turn = 0; turn < 24; ++turn) check(s, d, answer, cut_in_turn(turn));
    }
}

// Sums that need 64 bits altogether, and those of which each piece does.
TEST_P(LinearStagesOn, SumsBeyond32Bits) {
  const Stream s = stream(2);
  std::uint64_t seed = 0;
  for (const DType output : {DType::f32, DType::f64, DType::bf16, DType::u8})
    for (const std::int64_t k_pieces : {1, 2, 3}) {
      if (slow_machine() && output != DType::f32) continue;
      LinearCase c;
      c.seed = ++seed;
      c.m = 2;
      c.n = 5;
      c.k = 66100;
      c.activation = output == DType::bf16 ? DType::f32 : DType::u8;
      c.kind = is_float(c.activation) ? LinearKind::dynamic : LinearKind::matmul;
      c.mode = RangeMode::asymmetric;
      c.extreme = true;
      c.weight = DType::u8;
      c.weight_zero_points = c.activation_zero_points = true;
      c.output = output;
      c.epilogue = static_cast<Epilogue>(7);
      const LinearData d = make_linear(c);
      const Matrix answer = expected(d);
      for (const bool together : {false, true}) check(s, d, answer, {k_pieces, 1, 64, together});
    }
}

// Threads share rows, and columns of one row.
TEST_P(LinearStagesOn, AnyNumberOfThreads) {
  [[maybe_unused]] const ManyThreads many;
  for (const auto& [m, n, k] :
       {std::array<std::int64_t, 3>{33, 500, 300}, {1400, 20, 300}, {1, 70'000, 40}}) {
    if (slow_machine() && m * n * k > 5'000'000) continue;
    LinearCase c;
    c.kind = LinearKind::dynamic;
    c.activation = DType::f32;
    c.m = m;
    c.n = n;
    c.k = k;
    c.epilogue = Epilogue::bias;
    const LinearData d = make_linear(c);
    const Matrix answer = expected(d);
    for (const int threads : {1, 2, 5, 16}) check(stream(threads), d, answer, {2, 1, 32, false});
  }
}

}  // namespace
}  // namespace octavo::testing
