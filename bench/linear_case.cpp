#include "linear_case.hpp"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <utility>

namespace octavo::bench {
namespace {

// Of the largest cache, as the kernel sees it: glibc says ten times as much on some machines.
std::int64_t cache_bytes() {
  constexpr std::int64_t likely = std::int64_t{32} << 20;
  std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index3/size");  // "32768K"
  std::int64_t kilobytes = 0;
  return file >> kilobytes ? kilobytes << 10 : likely;
}

}  // namespace

// Together six times the cache: some caches, used in turn by more than they hold, keep a part of it
// rather than nothing, and so that part is small.
std::int64_t linear_copies(std::int64_t bytes) {
  return std::max<std::int64_t>(2, (6 * cache_bytes() + bytes - 1) / bytes);
}

std::string LinearShape::name() const {
  return std::to_string(m) + 'x' + std::to_string(n) + 'x' + std::to_string(k);
}

std::string LinearCase::name() const {
  std::string text = "linear";
  const auto add = [&](std::string_view part) { text.append("/").append(part); };
  add(octavo::name(is_whole() ? Op::quantized_linear : Op::smoothquant_linear));
  add(octavo::name(activation));
  add(packed ? "packed" : "rows");
  add(cold ? "cold" : "warm");
  add(cap ? octavo::name(*cap) : "any");
  add(shape.name());
  add(std::to_string(threads) + 't');
  return text;
}

void LinearWeights::prepare(std::int64_t n, std::int64_t k, bool cold) {
  constexpr std::int64_t page = 4096;
  n_ = n;
  k_ = k;
  const std::int64_t count = cold ? linear_copies(bytes()) : 1;
  const std::int64_t stride = (bytes() + page - 1) / page * page;
  std::byte* data = buffer_.reserve(count * stride);
  fill_random(data, DType::s8, bytes(), 2);
  copies_.clear();
  for (std::int64_t i = 0; i < count; ++i) {
    if (i > 0) std::memcpy(data + i * stride, data, static_cast<std::size_t>(bytes()));
    copies_.push_back(data + i * stride);
  }
  scales_.resize(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < scales_.size(); ++i)
    scales_[i] = 0.01F * (1.0F + 0.01F * static_cast<float>(i % 17));
}

template <class Plan>
Status LinearLayer::bind(const LinearCase& c, const LinearWeights& weights,
                         const typename Plan::Descriptor& descriptor) {
  const auto [m, n, k, seconds] = c.shape;
  const Stream stream = Stream::cpu({.threads = c.threads, .cap = c.cap});
  const auto plan = Plan::select(stream, descriptor);
  if (!plan) return plan.error();
  target_ = plan->sku().target;
  for (const std::byte* copy : weights.copies()) {
    const TensorRef rows(copy, DType::s8, {n, k});
    args_.push_back({.input = {input_, c.activation, {m, k}},
                     .weight = rows,
                     .weight_scales = weights.scales(),
                     .output = {output_, c.output(), {m, n}}});
    if (!c.packed) continue;
    auto packed = pack(stream, rows);
    if (!packed) return packed.error();
    packed_.push_back(*std::move(packed));
  }
  for (std::size_t i = 0; i < packed_.size(); ++i) args_[i].weight = packed_[i];
  for (const auto& args : args_)
    if (auto status = plan->can_implement(args); !status) return status;
  const auto workspace = std::make_shared<WorkspaceBuffer>(plan->workspace_size());
  run_ = [this, stream, plan = *plan, workspace] {
    (void)plan.run(stream, *workspace, args_[next_++ % args_.size()]);
  };
  return {};
}

Result<std::shared_ptr<LinearLayer>> LinearLayer::make(const LinearCase& c,
                                                       const LinearWeights& weights) {
  const auto [m, n, k, seconds] = c.shape;
  auto layer = std::make_shared<LinearLayer>();
  layer->input_ = layer->input_buffer_.reserve(bytes_for(c.activation, m * k));
  layer->output_ = layer->output_buffer_.reserve(bytes_for(c.output(), m * n));
  fill_random(layer->input_, c.activation, m * k, 1);
  const Status status =
      c.is_whole()
          ? layer->bind<QuantizedLinearPlan>(c, weights,
                                             {.m = m,
                                              .n = n,
                                              .k = k,
                                              .activation = c.activation,
                                              .output = c.output(),
                                              .packed_weight = c.packed})
          : layer->bind<SmoothQuantLinearPlan>(
                c, weights,
                {.m = m, .n = n, .k = k, .act_scale = linear_act_scale, .packed_weight = c.packed});
  if (!status) return status.error();
  return layer;
}

RowQuantizer::RowQuantizer(const std::byte* input, std::int64_t rows, std::int64_t k, int parts)
    : quantized_(reinterpret_cast<std::int8_t*>(buffer_.reserve(rows * k))),
      scales_(static_cast<std::size_t>(rows)) {
  const Stream stream = Stream::cpu({.threads = 1});
  for (int part = 0; part < parts; ++part) {
    const std::int64_t first = rows * part / parts, count = rows * (part + 1) / parts - first;
    const Shape shape{count, k};
    const auto plan = DynamicRangeQuantizePlan::select(stream, {.shape = shape});
    const DynamicRangeQuantizeArgs args{
        .input = {reinterpret_cast<const float*>(input) + first * k, shape},
        .output = {quantized_ + first * k, shape},
        .scales = std::span(scales_).subspan(static_cast<std::size_t>(first),
                                             static_cast<std::size_t>(count))};
    if (plan) {
      parts_.emplace_back([=, plan = *plan] { (void)plan.run(stream, {}, args); });
    } else {
      parts_.emplace_back([] {});
    }
  }
}

}  // namespace octavo::bench
