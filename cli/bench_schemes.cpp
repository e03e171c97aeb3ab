#include "cli/bench_schemes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <utility>

#include "cli/bench_measure.hpp"
#include "octavo/float_linear.hpp"
#include "octavo/quantized_linear.hpp"

namespace octavo::cli {
namespace {

struct Scheme {
  const char* name;
  DType weight;
  DType quantized;
  bool has_groups;
};
constexpr Scheme schemes[] = {{"w4a8-group", DType::s4, DType::s8, true},
                              {"w4a16-group", DType::s4, DType::s16, true},
                              {"w8a16", DType::s8, DType::s16, false},
                              {"f32", DType::f32, DType::f32, false},
                              {"bf16", DType::bf16, DType::bf16, false}};

std::int64_t group_for(std::int64_t k, std::int64_t group) {
  constexpr std::int64_t least = 4;
  while (group >= least && k % group != 0) group /= 2;
  return group < least || group >= k ? 0 : group;
}

// Random weights, as rows.
std::vector<std::byte> random_rows(DType type, std::int64_t count) {
  std::minstd_rand rng(1);
  std::vector<std::byte> rows(static_cast<std::size_t>(bytes_for(type, count)));
  const auto fill = [&](auto&& make) {
    for (std::size_t i = 0; i < rows.size(); i += sizeof(make())) {
      const auto value = make();
      std::memcpy(rows.data() + i, &value, sizeof value);
    }
  };
  const auto byte = [&] { return static_cast<std::uint8_t>(rng() >> 8U & 0xFFU); };
  const auto real = [&] { return static_cast<float>(byte()) - 127.5F; };
  if (type == DType::f32)
    fill(real);
  else if (type == DType::bf16)
    fill([&] { return to_bf16(real()); });
  else
    fill(byte);
  return rows;
}

template <class Plan>
Result<std::function<void()>> bind(const Stream& stream,
                                   const typename Plan::Descriptor& descriptor,
                                   std::vector<typename Plan::Args> all, Status& status) {
  const auto plan = Plan::select(stream, descriptor);
  if (!plan) return plan.error();
  const auto workspace = std::make_shared<WorkspaceBuffer>(plan->workspace_size());
  return std::function<void()>([&status, stream, plan = *plan, workspace, all = std::move(all),
                                next = std::make_shared<std::size_t>(0)] {
    Status s = plan.run(stream, *workspace, all[(*next)++ % all.size()]);
    if (!s) status = std::move(s);
  });
}

}  // namespace

const std::vector<std::string>& scheme_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Scheme& s : schemes) all.emplace_back(s.name);
    return all;
  }();
  return names;
}

double scheme_bytes(const std::string& scheme) {
  for (const Scheme& s : schemes)
    if (s.name == scheme) return bits(s.weight) / 8.0 + (s.has_groups ? 0.5 : 0.0);
  return 0;
}

Result<SchemeLayer> SchemeLayer::make(const Stream& stream, const std::string& scheme,
                                      std::int64_t group, LayerShape shape, std::int64_t beyond) {
  constexpr std::int64_t most = 256;
  const auto* const found = std::find_if(std::begin(schemes), std::end(schemes),
                                         [&](const Scheme& s) { return s.name == scheme; });
  const std::int64_t n = shape.n, k = shape.k;
  SchemeLayer layer;
  layer.scheme_ = scheme;
  layer.weight_ = found->weight;
  layer.quantized_ = found->quantized;
  layer.group_ = found->has_groups ? group_for(k, group) : 0;
  layer.channels_.assign(static_cast<std::size_t>(n), 0.01F);
  const std::vector<std::byte> bytes =
      random_rows(layer.weight_, is_packed(layer.weight_) ? n * (k + k % 2) : n * k);
  const TensorRef rows(bytes.data(), layer.weight_, {n, k});
  std::vector<f16> scales;
  if (layer.group_ > 0)
    scales.assign(static_cast<std::size_t>(n * (k / layer.group_)), to_f16(0.01F));
  std::int64_t copies = 1;
  for (std::int64_t i = 0; i < copies; ++i) {
    auto packed = layer.group_ == 0
                      ? pack(stream, rows)
                      : pack(stream, rows,
                             {.size = layer.group_,
                              .scales = TensorRef(scales.data(), {n, k / layer.group_})});
    if (!packed) return packed.error();
    layer.packed_.push_back(*std::move(packed));
    if (beyond > 0) copies = std::min(most, beyond / layer.bytes() + 1);
  }
  return layer;
}

std::string SchemeLayer::title() const {
  const std::string start = scheme_.substr(0, scheme_.find('-'));
  if (group_ > 0) return fmt::format("{}, groups of {}", start, group_);
  return is_float() ? scheme_ + ", by octavo" : start + ", a scale per channel";
}

std::int64_t SchemeLayer::bytes() const noexcept {
  return static_cast<std::int64_t>(packed_.front().bytes());
}

Result<std::function<void()>> SchemeLayer::call(const Stream& stream, const TensorRef& x,
                                                const TensorMut& y, Status& status) const {
  const std::int64_t m = x.shape[0], n = packed_[0].n(), k = packed_[0].k();
  if (is_float()) {
    std::vector<FloatLinearArgs> all;
    for (const PackedWeight& weight : packed_)
      all.push_back({.input = x, .weight = weight, .output = y});
    return bind<FloatLinearPlan>(stream,
                                 {.m = m, .n = n, .k = k, .weight = weight_, .packed_weight = true},
                                 std::move(all), status);
  }
  std::vector<LinearArgs> all;
  for (const PackedWeight& weight : packed_)
    all.push_back({.input = x,
                   .weight = weight,
                   .weight_scales = group_ == 0 ? TensorRef(channels_) : TensorRef(),
                   .output = y});
  return bind<QuantizedLinearPlan>(stream,
                                   {.m = m,
                                    .n = n,
                                    .k = k,
                                    .weight = weight_,
                                    .quantized = quantized_,
                                    .packed_weight = true,
                                    .group_size = group_,
                                    .weight_scale = group_ > 0 ? DType::f16 : DType::f32},
                                   std::move(all), status);
}

}  // namespace octavo::cli
