// The elementwise kernels, for the .cu files beside this one: one for each element type.
//
// Neighbouring threads do neighbouring units, so that a warp's accesses are consecutive; a unit of
// vectors is 16 bytes of floats. Rows and their parameters are found once for all units of a
// thread.
#pragma once

#include "cuda/device/refusals.hpp"
#include "cuda/device/vectors.hpp"
#include "ops/elementwise/cuda/elementwise_args.hpp"

namespace octavo::cuda {

struct Quantize {
  static constexpr bool reads_input = true, reads_grad = false, divides = true;
  template <class A>
  OCTAVO_DEVICE static std::int32_t apply(double x, double /*dy*/, const A& a) {
    return numerics::quantize(x, a);
  }
  // The conversion takes NaN to 0 and what is beyond 32 bits to their ends, so integers can be
  // clamped.
  OCTAVO_DEVICE static std::int32_t apply(float x, float /*dy*/, const numerics::AffineF32& a) {
    if (!a.narrow) return numerics::quantize(x, a);
    const std::int32_t q = round_to_int(a.divide(x));
    const std::int32_t low = a.range.min - a.zero_point;
    const std::int32_t high = a.range.max - a.zero_point;
    return std::min(std::max(q, low), high) + a.zero_point;
  }
};
struct QuantizeBackward {
  static constexpr bool reads_input = true, reads_grad = true, divides = true;
  template <class C, class A>
  OCTAVO_DEVICE static C apply(C x, C dy, const A& a) {
    return numerics::quantize_backward(x, dy, a);
  }
};
struct Dequantize {
  static constexpr bool reads_input = true, reads_grad = false, divides = false;
  template <class A>
  OCTAVO_DEVICE static float apply(std::int32_t q, float /*dy*/, const A& a) {
    return numerics::dequantize_f32(q, a.scale, a.zero_point);
  }
  template <class A>
  OCTAVO_DEVICE static double apply(std::int32_t q, double /*dy*/, const A& a) {
    return numerics::dequantize(q, a.scale, a.zero_point);
  }
};
struct DequantizeBackward {
  static constexpr bool reads_input = false, reads_grad = true, divides = false;
  template <class C, class A>
  OCTAVO_DEVICE static C apply(C /*x*/, C dy, const A& a) {
    return numerics::dequantize_backward(dy, a.scale);
  }
};
struct FakeQuantize {
  static constexpr bool reads_input = true, reads_grad = false, divides = true;
  template <class C, class A>
  OCTAVO_DEVICE static C apply(C x, C /*dy*/, const A& a) {
    return numerics::fake_quantize(x, a);
  }
};
struct FakeQuantizeBackward {
  static constexpr bool reads_input = true, reads_grad = true, divides = true;
  template <class C, class A>
  OCTAVO_DEVICE static C apply(C x, C dy, const A& a) {
    return numerics::fake_quantize_backward(x, dy, a);
  }
};

template <class Op, DType element, class In, class Out, bool vectors, bool per_lane>
struct Elementwise {
  using C = typename numerics::Type<element>::Compute;
  using Float = FloatLanes<element>;
  using Args = ElementwiseKernelArgs<C>;
  using Affine = typename numerics::AffineOf<C>::type;
  static constexpr bool packed = In::bits == 4 || Out::bits == 4;
  static constexpr unsigned lanes = vectors ? Float::lanes : packed ? 2 : 1;

  struct Row {
    std::int64_t input = 0, grad = 0, output = 0, parameters = 0;
  };

  OCTAVO_DEVICE static Row row_of(const Args& args, std::int64_t row) {
    Row at;
#pragma unroll 1
    for (int d = args.outer - 1; d >= 0; --d) {
      // (The compiler divides in 32 bits where both fit.)
      const std::int64_t above = d > 0 ? row / args.dims[d].size : 0;
      const std::int64_t i = row - above * args.dims[d].size;
      at.input += i * args.dims[d].stride[0];
      at.grad += i * args.dims[d].stride[1];
      at.output += i * args.dims[d].stride[2];
      at.parameters += i * args.dims[d].stride[3];
      row = above;
    }
    return at;
  }

  OCTAVO_DEVICE static Affine affine_at(const Args& args, std::int64_t i) {
    C scale = opaque(args.scale);
    std::int32_t zero_point = opaque(args.zero_point);
    if (args.scales != nullptr) scale = static_cast<const C*>(args.scales)[i];
    if (args.zero_points != nullptr) zero_point = args.zero_points[i];
    return Affine(scale, zero_point, args.range, args.profile);
  }
  OCTAVO_DEVICE static std::int64_t parameter_of(const Args& args, const Row& row,
                                                 std::int64_t column) {
    if constexpr (packed && !vectors)
      if (args.group_size != 0) return row.parameters * args.groups + column / args.group_size;
    return row.parameters + column;
  }

  // A whole unit of a row.
  OCTAVO_DEVICE static void do_unit(const Args& args, const Row& row, std::int64_t column,
                                    const Affine& affine) {
    typename In::template Lanes<lanes> x{};
    typename Float::template Lanes<lanes> dy{};
    if constexpr (Op::reads_input) x.load(args.input, row.input + column);
    if constexpr (Op::reads_grad) dy.load(args.grad, row.grad + column);
    typename Out::template Lanes<lanes> y{};
    if constexpr (per_lane) {
      C scales[lanes];
      std::int32_t zero_points[lanes] = {};
      load_parameters(args, row.parameters + column, scales, zero_points);
#pragma unroll
      for (unsigned i = 0; i < lanes; ++i)
        y.set(i, Op::apply(x.get(i, args.sign), dy.get(i, 0),
                           Affine(scales[i], zero_points[i], args.range, args.profile)));
    } else {
#pragma unroll
      for (unsigned i = 0; i < lanes; ++i)
        y.set(i, Op::apply(x.get(i, args.sign), dy.get(i, 0), affine));
    }
    y.store(args.output, row.output + column);
  }
  // Of consecutive elements: 16 bytes at a time where they lie so.
  OCTAVO_DEVICE static void load_parameters(const Args& args, std::int64_t at, C (&scales)[lanes],
                                            std::int32_t (&zero_points)[lanes]) {
    const C* const from = static_cast<const C*>(args.scales) + at;
    if (args.aligned_parameters) {
      load_consecutive<lanes>(from, scales);
      if (args.zero_points != nullptr) load_consecutive<lanes>(args.zero_points + at, zero_points);
    } else {
#pragma unroll
      for (unsigned i = 0; i < lanes; ++i) {
        scales[i] = from[i];
        if (args.zero_points != nullptr) zero_points[i] = args.zero_points[at + i];
      }
    }
  }
  // The same, with what is the same for all its elements decided once.
  OCTAVO_DEVICE static void do_decided(const Args& args, const Row& row, std::int64_t column,
                                       const Affine& affine) {
    if constexpr (per_lane || !Op::divides) {
      do_unit(args, row, column, affine);
    } else {
      Affine decided = affine;
      if constexpr (requires { decided.narrow; }) {
        if (!affine.narrow) return do_elements(args, row, column, lanes, affine);
        decided.narrow = true;
      }
      if (affine.profile == Profile::torch) {
        decided.profile = Profile::torch;
        do_unit(args, row, column, decided);
      } else {
        decided.profile = Profile::onnx;
        do_unit(args, row, column, decided);
      }
    }
  }

  // One after another; of a packed output, both elements of a byte, or what there is of them.
  OCTAVO_DEVICE static void do_elements(const Args& args, const Row& row, std::int64_t column,
                                        unsigned count, const Affine& affine) {
    constexpr unsigned together = Out::bits == 4 ? 2 : 1;
    for (unsigned first = 0; first < count; first += together) {
      typename Out::template Lanes<together> y{};
#pragma unroll
      for (unsigned i = first; i < first + together; ++i) {
        if (i >= count) continue;
        const std::int64_t at = column + i;
        typename In::Value x{};
        C dy{};
        if constexpr (Op::reads_input)
          x = In::read(args.input, row.input + (vectors ? at : at * args.input_step), args.sign);
        if constexpr (Op::reads_grad)
          dy = Float::read(args.grad, row.grad + (vectors ? at : at * args.grad_step), 0);
        if constexpr (per_lane) {
          y.set(i - first, Op::apply(x, dy, affine_at(args, parameter_of(args, row, at))));
        } else {
          y.set(i - first, Op::apply(x, dy, affine));
        }
      }
      y.store(args.output, row.output + column + first);
    }
  }

  OCTAVO_DEVICE static void run(const Args& args) {
    if (is_refused(args.refusal)) return;
    const unsigned wide = threads_x();
    std::uint32_t row_block = block_x();
    std::uint32_t chunk = 0;
    if (args.chunks != 1) {
      row_block = block_x() / args.chunks;
      chunk = block_x() - row_block * args.chunks;
    }
    const std::int64_t row_number =
        static_cast<std::int64_t>(std::uint64_t{row_block} * threads_y() + thread_y());
    if (row_number >= args.rows) return;
    const Row row = row_of(args, row_number);
    const auto first =
        static_cast<std::int64_t>(std::uint64_t{chunk} * (wide * args.units * lanes));
    // Within a chunk 32 bits are enough.
    const auto left = static_cast<std::uint32_t>(
        std::min(args.length - first, std::int64_t{wide} * args.units * lanes));
    const Affine affine = affine_at(args, per_lane ? 0 : row.parameters);
#pragma unroll 1
    for (unsigned at = thread_x() * lanes; at < left; at += wide * lanes) {
      if (vectors && at + lanes <= left) {
        do_decided(args, row, first + at, affine);
      } else {
        do_elements(args, row, first + at, left - at < lanes ? left - at : lanes, affine);
      }
    }
  }
};

}  // namespace octavo::cuda
