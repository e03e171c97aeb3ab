#include "linear_group_case.hpp"

#include <cstring>
#include <utility>

namespace octavo::bench {

std::string GroupCase::name() const {
  std::string text = scheme.is_float() ? "linear/floats" : "linear/groups";
  const auto add = [&](const std::string& part) { text.append("/").append(part); };
  add(scheme.name);
  if (!scheme.is_float()) add(group == 0 ? "channel" : "g" + std::to_string(group));
  add(cold ? "cold" : "warm");
  add(shape.name());
  add(std::to_string(threads) + 't');
  return text;
}

void GroupWeights::prepare(const GroupCase& c) {
  const std::int64_t count = c.shape.n * c.shape.k;
  const DType type = c.scheme.weight;
  rows_ = buffer_.reserve(bytes_for(type, count));
  fill_random(rows_, type, count, 2);
  const std::int64_t groups = c.group == 0 ? c.shape.n : count / c.group;
  scales_.resize(static_cast<std::size_t>(groups));
  wide_scales_.resize(scales_.size());
  for (std::size_t i = 0; i < scales_.size(); ++i) {
    scales_[i] = to_f16(0.01F * (1.0F + 0.01F * static_cast<float>(i % 17)));
    wide_scales_[i] = to_float(scales_[i]);
  }
}

Result<std::vector<PackedWeight>> GroupWeights::pack_all(const GroupCase& c) const {
  const std::int64_t n = c.shape.n, k = c.shape.k;
  const Stream stream = Stream::cpu();
  const TensorRef rows(rows_, c.scheme.weight, {n, k});
  std::vector<PackedWeight> packed;
  std::int64_t copies = 1;
  while (static_cast<std::int64_t>(packed.size()) < copies) {
    auto made =
        c.group == 0
            ? pack(stream, rows)
            : pack(stream, rows,
                   {.size = c.group, .scales = TensorRef(scales_.data(), {n, k / c.group})});
    if (!made) return made.error();
    if (c.cold) copies = linear_copies(static_cast<std::int64_t>(made->bytes()));
    packed.push_back(*std::move(made));
  }
  return packed;
}

std::vector<float> GroupWeights::floats(const GroupCase& c) const {
  std::vector<float> all(static_cast<std::size_t>(c.shape.n * c.shape.k));
  const auto widen = [&]<class T>(T value) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      std::memcpy(&value, rows_ + i * sizeof(T), sizeof(T));
      all[i] = to_float(value);
    }
  };
  if (c.scheme.weight == DType::f32)
    std::memcpy(all.data(), rows_, all.size() * sizeof(float));
  else if (c.scheme.weight == DType::bf16)
    widen(bf16{});
  else
    widen(f16{});
  return all;
}

template <class Plan>
Status GroupLayer::bind(const Stream& stream, const typename Plan::Descriptor& descriptor,
                        std::vector<typename Plan::Args> all) {
  const auto plan = Plan::select(stream, descriptor);
  if (!plan) return plan.error();
  for (const auto& args : all)
    if (auto status = plan->can_implement(args); !status) return status;
  target_ = plan->sku().target;
  const auto workspace = std::make_shared<WorkspaceBuffer>(plan->workspace_size());
  run_ = [=, plan = *plan, all = std::move(all), next = std::make_shared<std::size_t>(0)] {
    (void)plan.run(stream, *workspace, all[(*next)++ % all.size()]);
  };
  return {};
}

Result<GroupLayer> GroupLayer::make(const GroupCase& c, std::vector<PackedWeight> packed,
                                    const std::byte* input, std::byte* output) {
  GroupLayer layer;
  layer.packed_ = std::move(packed);
  if (const Status status = layer.bind(c, input, output); !status) return status.error();
  return layer;
}

Result<GroupLayer> GroupLayer::make(const GroupCase& c, std::shared_ptr<const GroupWeights> rows,
                                    const std::byte* input, std::byte* output) {
  GroupLayer layer;
  layer.rows_ = std::move(rows);
  if (const Status status = layer.bind(c, input, output); !status) return status.error();
  return layer;
}

Status GroupLayer::bind(const GroupCase& c, const std::byte* input, std::byte* output) {
  const auto [m, n, k, seconds] = c.shape;
  const Stream stream = Stream::cpu({.threads = c.threads});
  const TensorRef x(input, DType::f32, {m, k});
  const TensorMut y(output, c.output, {m, n});
  std::vector<WeightRef> weights(packed_.begin(), packed_.end());
  if (rows_ != nullptr) weights.emplace_back(TensorRef(rows_->rows(), c.scheme.weight, {n, k}));
  if (c.scheme.is_float()) {
    std::vector<FloatLinearArgs> all;
    all.reserve(weights.size());
    for (const auto& weight : weights) all.push_back({.input = x, .weight = weight, .output = y});
    return bind<FloatLinearPlan>(
        stream,
        {.m = m, .n = n, .k = k, .weight = c.scheme.weight, .packed_weight = rows_ == nullptr},
        std::move(all));
  }
  const auto channels = std::make_shared<std::vector<float>>(static_cast<std::size_t>(n), 0.01F);
  channels_ = channels;
  TensorRef scales;
  if (c.group == 0) {
    scales = TensorRef(*channels);
  } else if (rows_ != nullptr) {
    scales = TensorRef(rows_->scales().data(), {n, k / c.group});
  }
  std::vector<LinearArgs> all;
  all.reserve(weights.size());
  for (const auto& weight : weights)
    all.push_back({.input = x, .weight = weight, .weight_scales = scales, .output = y});
  return bind<QuantizedLinearPlan>(stream,
                                   {.m = m,
                                    .n = n,
                                    .k = k,
                                    .weight = c.scheme.weight,
                                    .output = c.output,
                                    .quantized = c.scheme.quantized,
                                    .packed_weight = rows_ == nullptr,
                                    .group_size = c.group,
                                    .weight_scale = DType::f16},
                                   std::move(all));
}

}  // namespace octavo::bench
