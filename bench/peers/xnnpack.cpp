// XNNPACK's convert operators: f32 to 8-bit integers and back, one scale for the tensor.
#include <pthreadpool.h>
#include <xnnpack.h>

#include <memory>

#include "peers/plugin.hpp"

#ifndef OCTAVO_XNNPACK_VERSION
#define OCTAVO_XNNPACK_VERSION "of unknown version"
#endif

namespace octavo::bench {
namespace {

struct Free {
  void operator()(xnn_operator_t op) const { xnn_delete_operator(op); }
  void operator()(pthreadpool_t pool) const { pthreadpool_destroy(pool); }
};

// The task of an operator that was just created. Tensors are bound in each call, as in ours.
template <class In, class Out>
Task task_of(const Elementwise& e, xnn_status created, xnn_operator_t op,
             xnn_status setup(xnn_operator_t, std::size_t, const In*, Out*, pthreadpool_t)) {
  if (created != xnn_status_success) return {};
  const std::shared_ptr<xnn_operator> owner(op, Free());
  std::shared_ptr<pthreadpool> pool;  // none: the caller's thread alone
  if (e.threads > 1) pool.reset(pthreadpool_create(static_cast<std::size_t>(e.threads)), Free());
  return [=, in = static_cast<const In*>(e.input), out = static_cast<Out*>(e.output)] {
    const bool done = setup(owner.get(), 1, in, out, pool.get()) == xnn_status_success &&
                      xnn_run_operator(owner.get(), pool.get()) == xnn_status_success;
    return static_cast<const void*>(done ? out : nullptr);
  };
}

template <class Q, class Create, class Setup>
Task quantize(const Elementwise& e, Create create, Setup setup) {
  const auto n = static_cast<std::size_t>(e.rows * e.cols);
  xnn_operator_t op = nullptr;
  const auto created =
      create(n, n, n, static_cast<float>(e.scales[0]), static_cast<Q>(e.zero_points[0]),
             static_cast<Q>(e.q_min), static_cast<Q>(e.q_max), 0, &op);
  return task_of<float, Q>(e, created, op, setup);
}

template <class Q, class Create, class Setup>
Task dequantize(const Elementwise& e, Create create, Setup setup) {
  const auto n = static_cast<std::size_t>(e.rows * e.cols);
  xnn_operator_t op = nullptr;
  const auto created =
      create(n, n, n, static_cast<float>(e.scales[0]), static_cast<Q>(e.zero_points[0]), 0, &op);
  return task_of<Q, float>(e, created, op, setup);
}

Task make(const Elementwise& e) {
  if (real_of(e) != DType::f32 || e.axis >= 0) return {};
  const bool is_signed = integer_of(e) == DType::s8;
  if (!is_signed && integer_of(e) != DType::u8) return {};
  switch (op_of(e)) {
    case Op::quantize:
      return is_signed ? quantize<std::int8_t>(e, xnn_create_convert_nc_f32_qs8,
                                               xnn_setup_convert_nc_f32_qs8)
                       : quantize<std::uint8_t>(e, xnn_create_convert_nc_f32_qu8,
                                                xnn_setup_convert_nc_f32_qu8);
    case Op::dequantize:
      return is_signed ? dequantize<std::int8_t>(e, xnn_create_convert_nc_qs8_f32,
                                                 xnn_setup_convert_nc_qs8_f32)
                       : dequantize<std::uint8_t>(e, xnn_create_convert_nc_qu8_f32,
                                                  xnn_setup_convert_nc_qu8_f32);
    default:
      return {};
  }
}

}  // namespace
}  // namespace octavo::bench

OCTAVO_PEER_EXPORT const octavo_peer* octavo_peer_entry() {
  static const octavo_peer peer =
      octavo::bench::make_peer<octavo::bench::make, octavo::bench::no_task>(
          "xnnpack", "XNNPACK " OCTAVO_XNNPACK_VERSION " convert");
  return xnn_initialize(nullptr) == xnn_status_success ? &peer : nullptr;
}
