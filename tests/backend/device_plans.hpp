// Every plan on the backend of src/testing/device.hpp: the reference, inside the open memory, when
// the stream is synchronized. It checks values then, and refuses them before it writes anything.
#pragma once

#include <array>
#include <cstring>
#include <memory>
#include <optional>

#include "ops/dynamic_range/implementation.hpp"
#include "ops/elementwise/implementation.hpp"
#include "ops/linear/implementation.hpp"
#include "ops/linear/packed_weight.hpp"
#include "ops/observer/implementation.hpp"
#include "testing/device.hpp"

namespace octavo::testing {

using octavo::detail::Allowed;
using octavo::detail::DynamicRangeImpl;
using octavo::detail::Found;
using octavo::detail::ObserverImpl;

/// The reference's implementation of a problem: the last of the CPU's that covers it.
template <class Key, class Impl>
std::shared_ptr<const typename Impl::element_type> reference_of(
    std::span<const octavo::detail::Entry<Key, Impl>> list, const Key& key) {
  for (std::size_t i = list.size(); i-- > 0;)
    if (auto found = list[i].find(key, Allowed()).impl) return found;
  return nullptr;
}

inline Stream host_stream() { return Stream::cpu({.threads = 1, .cap = Target::scalar}); }

/// A tensor that may be left out, held by value: the caller's is gone when the work is done.
template <class Tensor>
struct Held {
  std::optional<Tensor> tensor;
  explicit Held(const Tensor* given) {
    if (given != nullptr) tensor = *given;
  }
  [[nodiscard]] const Tensor* get() const { return tensor ? &*tensor : nullptr; }
};

class DeviceElementwise final : public octavo::detail::ElementwiseImpl {
 public:
  explicit DeviceElementwise(const octavo::detail::SlicedProblem& p)
      : ElementwiseImpl(p),
        inner_(reference_of(octavo::detail::cpu_elementwise(), p)) {
    workspace_bytes = inner_->workspace_bytes;
  }

  [[nodiscard]] Status check_values(
      const octavo::detail::ElementwiseArgs& /*args*/) const override {
    return {};  // (what is queued may yet write them)
  }
  [[nodiscard]] Status run(const Stream& stream, void* workspace,
                           const octavo::detail::ElementwiseArgs& args, bool plain) const override {
    device_of(stream).enqueue([=, inner = inner_, input = Held(args.input), grad = Held(args.grad),
                               output = Held(args.output), scales = Held(args.scales),
                               zero_points = Held(args.zero_points)] {
      octavo::detail::ElementwiseArgs own = args;
      own.input = input.get();
      own.grad = grad.get();
      own.output = output.get();
      own.scales = scales.get();
      own.zero_points = zero_points.get();
      return inner->run(host_stream(), workspace, own, plain);
    });
    return {};
  }

 private:
  std::shared_ptr<const ElementwiseImpl> inner_;
};

class DeviceDynamicRange final : public DynamicRangeImpl {
 public:
  explicit DeviceDynamicRange(const octavo::detail::DynamicRangeProblem& p)
      : DynamicRangeImpl(p),
        inner_(reference_of(octavo::detail::cpu_dynamic_range(), p)) {
    workspace_bytes = inner_->workspace_bytes;
  }
  [[nodiscard]] Status run(const Stream& stream, void* workspace,
                           const DynamicRangeQuantizeArgs& args, bool plain) const override {
    device_of(stream).enqueue(
        [=, inner = inner_] { return inner->run(host_stream(), workspace, args, plain); });
    return {};
  }

 private:
  std::shared_ptr<const DynamicRangeImpl> inner_;
};

class DeviceObserver final : public ObserverImpl {
 public:
  explicit DeviceObserver(const octavo::detail::ObserverProblem& p)
      : ObserverImpl(p),
        inner_(reference_of(octavo::detail::cpu_observers(), p)) {
    workspace_bytes = inner_->workspace_bytes;
  }
  [[nodiscard]] Status run(const Stream& stream, void* workspace, const TensorRef& input,
                           std::int64_t numel, const octavo::detail::Seen& seen) const override {
    // (The state is the host's: it is waited for.)
    return device_of(stream).run_now(
        [&] { return inner_->run(host_stream(), workspace, input, numel, seen); });
  }

 private:
  std::shared_ptr<const ObserverImpl> inner_;
};

inline constexpr std::uint32_t device_layout = 0xDE;
constexpr WeightFormat device_format(WeightFormat host) {
  host.layout = device_layout;
  return host;
}

/// A packed weight whose bytes, those of the host's, lie on the device.
struct DevicePacked final : PackedWeight::Impl {
  DevicePacked(const PackWeightDescriptor& d, const WeightFormat& on_host, std::size_t size)
      : Impl(d.n, d.k, device_format(on_host)),
        host_format(on_host),
        body(static_cast<std::byte*>(device_memory().allocate(size))) {
    bytes = size;
  }
  // With the memory open:
  void put(const PackedWeight& host) const {
    if (bytes > 0) std::memcpy(body, host.impl()->image(), bytes);
  }
  [[nodiscard]] Result<PackedWeight> get() const {
    return octavo::detail::load_weight(n, k, host_format, {body, bytes}, nullptr);
  }
  const WeightFormat host_format;
  std::byte* const body;
};

class DevicePack final : public octavo::detail::PackImpl {
 public:
  explicit DevicePack(const PackWeightDescriptor& d)
      : DevicePack(d, reference_of(octavo::detail::cpu_pack(), d)) {}
  [[nodiscard]] Result<PackedWeight> make(bool zeroed) const override {
    const auto host = inner_->make(false);
    if (!host) return host.error();
    const auto made = std::make_shared<DevicePacked>(problem, inner_->format, host->bytes());
    const DeviceMemory::Open open(device_memory());
    std::memset(made->body, zeroed ? 0 : 0xA5, made->bytes);
    return PackedWeightAccess::make(made);
  }
  [[nodiscard]] Status check_values(const PackWeightArgs& /*args*/) const override {
    return {};  // (what is queued may yet write them)
  }
  [[nodiscard]] Status run(const Stream& stream, const PackWeightArgs& args) const override {
    const auto& to = static_cast<const DevicePacked&>(*args.packed->impl());
    // The copy keeps the memory. It also counts as one, so that PackWeightPlan refuses the weight
    // until this is done, like one that a queued linear reads.
    device_of(stream).enqueue([inner = inner_, args, &to, held = *args.packed]() -> Status {
      auto host = inner->make(false);
      if (!host) return host.error();
      PackWeightArgs own = args;
      own.packed = &*host;
      if (Status s = inner->run(host_stream(), own); !s) return s;
      to.put(*host);
      return {};
    });
    return {};
  }

 private:
  DevicePack(const PackWeightDescriptor& d, std::shared_ptr<const PackImpl> inner)
      : PackImpl(d, device_format(inner->format)),
        inner_(std::move(inner)) {}
  std::shared_ptr<const PackImpl> inner_;
};

class DeviceLinear final : public octavo::detail::LinearImpl {
 public:
  explicit DeviceLinear(const octavo::detail::LinearProblem& p)
      : DeviceLinear(p, reference_of(octavo::detail::cpu_linear(), p)) {}
  [[nodiscard]] Status check_values(const octavo::detail::LinearOperands& /*o*/) const override {
    return {};  // (what is queued may yet write them)
  }
  [[nodiscard]] Status run(const Stream& stream, void* workspace,
                           const octavo::detail::LinearOperands& o) const override {
    device_of(stream).enqueue(
        [=, inner = inner_, input = Held(o.input), weight = *o.weight,
         weight_scales = Held(o.weight_scales), weight_zeros = Held(o.weight_zero_points),
         bias = Held(o.bias), residual = Held(o.residual), output = Held(o.output),
         scales = Held(o.activation_scales), zeros = Held(o.activation_zero_points)]() -> Status {
          octavo::detail::LinearOperands own = o;
          own.input = input.get();
          WeightRef host = weight;
          if (weight.is_packed) {
            const auto got = static_cast<const DevicePacked*>(weight.packed.impl())->get();
            if (!got) return got.error();
            host = WeightRef(*got);
          }
          own.weight = &host;
          own.weight_scales = weight_scales.get();
          own.weight_zero_points = weight_zeros.get();
          own.bias = bias.get();
          own.residual = residual.get();
          own.output = output.get();
          own.activation_scales = scales.get();
          own.activation_zero_points = zeros.get();
          return inner->run(host_stream(), workspace, own);
        });
    return {};
  }

 private:
  DeviceLinear(const octavo::detail::LinearProblem& p, std::shared_ptr<const LinearImpl> inner)
      : LinearImpl(p, device_format(inner->format)),
        inner_(std::move(inner)) {
    workspace_bytes = inner_->workspace_bytes;
  }
  std::shared_ptr<const LinearImpl> inner_;
};

/// Puts the implementations where `select` finds them.
inline void install_device() {
  using namespace octavo::detail;
  constexpr Place at{test_backend, Target::scalar};
  static const std::array<ElementwiseEntry, 1> elementwise{
      {{at, [](const SlicedProblem& p, const Allowed&) {
          return Found<std::shared_ptr<ElementwiseImpl>>{std::make_shared<DeviceElementwise>(p)};
        }}}};
  static const std::array<DynamicRangeEntry, 1> dynamic_range{
      {{at, [](const DynamicRangeProblem& p, const Allowed&) {
          return Found<std::shared_ptr<DynamicRangeImpl>>{std::make_shared<DeviceDynamicRange>(p)};
        }}}};
  static const std::array<ObserverEntry, 1> observers{
      {{at, [](const ObserverProblem& p, const Allowed&) {
          return Found<std::shared_ptr<ObserverImpl>>{std::make_shared<DeviceObserver>(p)};
        }}}};
  static const std::array<LinearEntry, 1> linear{{{at, [](const LinearProblem& p, const Allowed&) {
                                                     return Found<std::shared_ptr<LinearImpl>>{
                                                         std::make_shared<DeviceLinear>(p)};
                                                   }}}};
  static const std::array<PackEntry, 1> packs{
      {{at, [](const PackWeightDescriptor& d, const Allowed&) {
          return Found<std::shared_ptr<PackImpl>>{std::make_shared<DevicePack>(d)};
        }}}};
  test_elementwise = elementwise;
  test_dynamic_range = dynamic_range;
  test_observers = observers;
  test_linear = linear;
  test_pack = packs;
}

}  // namespace octavo::testing
