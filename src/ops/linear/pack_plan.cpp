// The plan that packs weights. Neutral: no weight is read here.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/check.hpp"
#include "core/memory_place.hpp"
#include "ops/linear/check.hpp"
#include "ops/linear/implementation.hpp"
#include "ops/linear/packed_weight.hpp"
#include "ops/linear/problem.hpp"

namespace octavo {
namespace {

Status check_descriptor(const PackWeightDescriptor& d) {
  using detail::invalid;
  if (Status s = detail::check_type<detail::PackedTypes>("weight", d.weight); !s) return s;
  if (Status s = detail::check_weight_sizes(d.n, d.k); !s) return s;
  const bool is_signed = detail::LinearWeights::has(d.weight) && storage_range(d.weight).min < 0;
  if (d.offset && !is_signed)
    return invalid("offset", fmt::format("expected none of {}, got one", name(d.weight)));
  const std::int64_t group = detail::group_of(d.k, d.group_size);
  if (Status s = detail::check_group(group, d.k); !s) return s;
  if (group != 0 && is_float(d.weight))
    return invalid("group_size", fmt::format("expected none of {}, got {}", name(d.weight), group));
  if (group != 0) return detail::check_type<detail::LinearFloats>("scale", d.scale);
  if (d.zero_points)
    return invalid("zero_points",
                   "expected none without groups (runs are given those of channels), got some");
  return {};
}

// Of groups, one for each; none without.
Status check_of_groups(const char* argument, const TensorRef& t, bool wanted, DType type,
                       const PackWeightDescriptor& d) {
  if (!wanted) {
    if (!detail::is_given(&t)) return {};
    if (d.group_size >= d.k && d.group_size > 0)
      return detail::invalid(
          argument,
          fmt::format("expected none (groups of {} are whole rows of k = {}, whose scales "
                      "and zero points are given to runs), got some",
                      d.group_size, d.k));
    return detail::invalid(argument, "expected none, as the plan was made for, got some");
  }
  const std::int64_t count = d.n * (d.k / d.group_size);
  if (!detail::is_given(&t) && count > 0)
    return detail::invalid(
        argument, fmt::format("expected shape [{}, {}], got none", d.n, d.k / d.group_size));
  const auto checked = detail::check_array(argument, t, type, count);
  return checked ? Status() : Status(checked.error());
}

Status check_tensors(const detail::PackImpl& impl, const PackWeightArgs& args) {
  const PackWeightDescriptor& d = impl.problem;
  if (Status s = detail::check_weight(args.weight, d.weight, d.n, d.k); !s) return s;
  const bool groups = impl.format.group != 0;
  if (Status s = check_of_groups("scales", args.scales, groups, d.scale, d); !s) return s;
  if (Status s =
          check_of_groups("zero_points", args.zero_points, groups && d.zero_points, DType::s32, d);
      !s)
    return s;
  if (args.packed == nullptr || args.packed->empty())
    return detail::invalid("packed", "expected one of make_packed, got none");
  if (args.packed->n() != d.n || args.packed->k() != d.k || args.packed->dtype() != d.weight)
    return detail::invalid("packed", fmt::format("expected [{}, {}] of {}, got [{}, {}] of {}", d.n,
                                                 d.k, name(d.weight), args.packed->n(),
                                                 args.packed->k(), name(args.packed->dtype())));
  if (args.packed->format() != impl.format)
    return detail::unsupported("packed", fmt::format("expected one of make_packed ({}), got {}",
                                                     detail::to_string(impl.format),
                                                     detail::to_string(args.packed->format())));
  if (PackedWeightAccess::is_shared(*args.packed))
    return detail::invalid("packed",
                           "expected one without copies (they share its memory, and may be in "
                           "use), got one that has some; make another");
  if (PackedWeightAccess::is_lent(*args.packed))
    return detail::invalid("packed",
                           "expected one of make_packed, got one of an image in place, whose "
                           "memory is only read");
  return {};
}

Status check_pack_memory(const PackWeightArgs& args, Backend backend, int device) {
  const auto data = [](const TensorRef& t) -> const void* {
    for (int i = 0; i < t.shape.rank(); ++i)
      if (t.shape[i] == 0) return nullptr;
    return t.data;
  };
  return detail::check_memory(backend, device,
                              {{"weight", data(args.weight)},
                               {"scales", data(args.scales)},
                               {"zero_points", data(args.zero_points)}});
}

}  // namespace

Result<PackWeightPlan> PackWeightPlan::select(const Stream& stream, const Descriptor& descriptor,
                                              const PlanPreference& preference) {
  if (Status s = check_descriptor(descriptor); !s) return s.error();
  const auto allowed = detail::allowed_places(stream, preference);
  if (!allowed) return allowed.error();
  auto chosen = detail::choose(*allowed, descriptor,
                               {detail::cpu_pack(), detail::cuda_pack(), detail::test_pack});
  if (!chosen) return chosen.error();
  KernelSku& sku = chosen->impl->sku;
  sku.category = Category::linear;
  sku.op = Op::pack_weight;
  sku.element = sku.aux_element = descriptor.weight;
  sku.target = chosen->at.target;
  sku.backend = chosen->at.backend;
  sku.guarantee.math = DType::s32;
  return PackWeightPlan(std::move(chosen->impl));
}

const KernelSku& PackWeightPlan::sku() const noexcept { return impl_->sku; }

Result<PackedWeight> PackWeightPlan::make_packed() const { return impl_->make(true); }

Status PackWeightPlan::can_implement(const Args& args) const {
  if (Status s = check_tensors(*impl_, args); !s) return s;
  if (Status s = check_pack_memory(args, impl_->sku.backend, -1); !s) return s;
  return impl_->check_values(args);
}

Status PackWeightPlan::run(const Stream& stream, Workspace /*workspace*/, const Args& args) const {
  if (Status s = detail::check_stream(stream, impl_->sku.backend); !s) return s;
  if (Status s = check_tensors(*impl_, args); !s) return s;
  if (Status s = check_pack_memory(args, impl_->sku.backend, stream.impl().device); !s) return s;
  return impl_->run(stream, args);
}

Result<PackedWeight> PackedWeight::to(const Stream& stream) const {
  if (empty()) return detail::invalid("packed", "expected a packed weight, got an empty one");
  const WeightFormat own = format();
  const auto plan = PackWeightPlan::select(stream, {.n = n(),
                                                    .k = k(),
                                                    .weight = own.code,
                                                    .group_size = own.group,
                                                    .scale = own.scales,
                                                    .zero_points = own.zero_points});
  if (!plan) return plan.error();
  const detail::PackImpl& impl = PackedWeightAccess::impl(*plan);
  if (impl.holds(*this)) return *this;
  // Through its rows, in the host's memory.
  const std::int64_t groups = detail::groups_of(k(), own.group);
  const std::int64_t stride = is_packed(own.code) ? k() + k() % 2 : k();  // rows start on a byte
  const auto bytes = [](DType type, std::int64_t count) {
    return std::vector<std::byte>(static_cast<std::size_t>(bytes_for(type, count)));
  };
  std::vector<std::byte> rows = bytes(own.code, n() * stride);
  std::vector<std::byte> scales = bytes(own.scales, n() * groups);
  std::vector<std::int32_t> zero_points(
      static_cast<std::size_t>(own.zero_points ? n() * groups : 0));
  const TensorMut weight(rows.data(), own.code, {n(), k()}, {stride, 1},
                         static_cast<std::int64_t>(rows.size()));
  TensorMut held_scales;
  TensorMut held_zeros;
  if (own.group != 0) held_scales = TensorMut(scales.data(), own.scales, {n(), groups});
  if (own.zero_points) held_zeros = TensorMut(zero_points.data(), DType::s32, {n(), groups});
  if (Status s = unpack(weight, held_scales, held_zeros); !s) return s.error();
  Result<PackedWeight> made = impl.make(false);
  if (!made) return made;
  PackWeightArgs args;
  args.weight = weight;
  args.scales = held_scales;
  args.zero_points = held_zeros;
  args.packed = &*made;
  if (Status s = impl.pack_from_host(stream, args); !s) return s.error();
  return made;
}

Result<PackedWeight> pack(const Stream& stream, const TensorRef& weight) {
  return pack(stream, weight, WeightGroups());
}

Result<PackedWeight> pack(const Stream& stream, const TensorRef& weight,
                          const WeightGroups& groups) {
  if (weight.shape.rank() != 2)
    return detail::invalid(
        "weight", fmt::format("expected a shape [n, k], got {}", detail::to_string(weight.shape)));
  const auto plan =
      PackWeightPlan::select(stream, {.n = weight.shape[0],
                                      .k = weight.shape[1],
                                      .weight = weight.dtype,
                                      .group_size = groups.size,
                                      .scale = groups.scales.dtype,
                                      .zero_points = detail::is_given(&groups.zero_points),
                                      .offset = groups.offset});
  if (!plan) return plan.error();
  Result<PackedWeight> packed = PackedWeightAccess::impl(*plan).make(false);
  if (!packed) return packed;
  if (Status s = plan->run(stream, {},
                           {.weight = weight,
                            .scales = groups.scales,
                            .zero_points = groups.zero_points,
                            .packed = &*packed});
      !s)
    return s.error();
  return packed;
}

}  // namespace octavo
