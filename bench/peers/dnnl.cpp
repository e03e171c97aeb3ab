// oneDNN's reorder: f32 (and what else it takes) to integers and back, with one scale or one per
// index of an axis. Written for oneDNN 2, where scales are output scales. Its matmul is in
// dnnl_linear.cpp.
#include <oneapi/dnnl/dnnl.hpp>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "peers/dnnl.hpp"
#include "peers/plugin.hpp"

namespace octavo::bench {
namespace {

using dnnl::memory;

memory::data_type data_type(DType t) {
  switch (t) {
    case DType::f32:
      return memory::data_type::f32;
    case DType::f16:
      return memory::data_type::f16;
    case DType::bf16:
      return memory::data_type::bf16;
    case DType::s8:
      return memory::data_type::s8;
    case DType::u8:
      return memory::data_type::u8;
    default:
      return memory::data_type::undef;
  }
}

const char* isa_name(dnnl::cpu_isa isa) {
  switch (isa) {
    case dnnl::cpu_isa::sse41:
      return "sse41";
    case dnnl::cpu_isa::avx:
      return "avx";
    case dnnl::cpu_isa::avx2:
      return "avx2";
    case dnnl::cpu_isa::avx2_vnni:
      return "avx2_vnni";
    case dnnl::cpu_isa::avx512_core:
      return "avx512_core";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "avx512_core_vnni";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "avx512_core_bf16";
    case dnnl::cpu_isa::avx512_core_amx:
      return "avx512_core_amx";
    default:
      return "other";
  }
}

std::string version() {
  const auto* v = dnnl::version();
  return "oneDNN " + std::to_string(v->major) + '.' + std::to_string(v->minor) + '.' +
         std::to_string(v->patch) + ", " + isa_name(dnnl::get_effective_cpu_isa());
}

struct Reorder {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  memory source, target;
  dnnl::reorder primitive;
};

Task make(const Elementwise& e) {
  const bool forward = op_of(e) == Op::quantize;
  if (!forward && op_of(e) != Op::dequantize) return {};
  const auto real = data_type(real_of(e)), integer = data_type(integer_of(e));
  if (real == memory::data_type::undef || integer == memory::data_type::undef) return {};

  Gomp::instance().set_threads(e.threads);
  auto r = std::make_shared<Reorder>();
  const memory::dims dims =
      e.axis < 0 ? memory::dims{e.rows * e.cols} : memory::dims{e.rows, e.cols};
  const auto tag = e.axis < 0 ? memory::format_tag::a : memory::format_tag::ab;
  r->source = memory({dims, forward ? real : integer, tag}, r->engine, const_cast<void*>(e.input));
  r->target = memory({dims, forward ? integer : real, tag}, r->engine, e.output);

  std::vector<float> scales;
  for (std::int64_t i = 0; i < e.scale_count; ++i) {
    const auto scale = static_cast<float>(e.scales[i]);
    scales.push_back(forward ? 1.0F / scale : scale);
  }
  dnnl::primitive_attr attributes;
  attributes.set_output_scales(e.axis < 0 ? 0 : 1 << e.axis, scales);
  const bool shifted = std::any_of(e.zero_points, e.zero_points + e.scale_count,
                                   [](std::int32_t zero) { return zero != 0; });
  if (shifted) {
    if (e.axis >= 0) return {};
    attributes.set_zero_points(forward ? DNNL_ARG_TO : DNNL_ARG_FROM, 0, {e.zero_points[0]});
  }
  r->primitive = dnnl::reorder(dnnl::reorder::primitive_desc(r->source, r->target, attributes));
  return [r, output = e.output]() -> const void* {
    r->primitive.execute(r->stream, r->source, r->target);
    r->stream.wait();
    return output;
  };
}

}  // namespace
}  // namespace octavo::bench

OCTAVO_PEER_EXPORT const octavo_peer* octavo_peer_entry() {
  static const std::string version = octavo::bench::version();
  static const octavo_peer peer =
      octavo::bench::make_peer<octavo::bench::make, octavo::bench::dnnl_linear,
                               octavo::bench::no_task, octavo::bench::dnnl_floats>("dnnl",
                                                                                   version.c_str());
  return &peer;
}
