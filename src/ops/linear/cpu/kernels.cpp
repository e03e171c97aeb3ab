#include "ops/linear/cpu/kernels.hpp"

#include "ops/dynamic_range/cpu/kernels.hpp"
#include "ops/elementwise/cpu/kernels.hpp"

namespace octavo::detail {
namespace {

template <Target target, class C>
EpilogueFunction<C> find_for(DType output, bool& direct) {
  const EpilogueFunction<C> found = find_epilogue<target, C>(output);
  direct = found != nullptr;
  return direct ? found : find_epilogue<target, C>(dtype_of<C>);
}

template <Target target>
struct Find {
  static Found<LinearKernels> find(const LinearProblem& p, const Allowed& /*allowed*/) {
    LinearKernels found;
    std::string missing;
    const auto need = [&missing](auto kernel, const char* what, DType from, DType to) {
      if (kernel == nullptr && missing.empty())
        missing = std::string("no ") + what + " from " + std::string(name(from)) + " to " +
                  std::string(name(to));
      return kernel;
    };
    const DType compute = compute_type(p);
    found.rows = row_kernels<target>();
    found.conversion = find_convert<target>;
    found.terms_f32 = find_terms<target, float>();
    found.terms_f64 = find_terms<target, double>();
    found.sums = need(find_epilogue<target, float>(DType::s32), "sums", DType::s32, DType::s32);
    if (compute == DType::f64) {
      found.epilogue_f64 =
          need(find_for<target, double>(p.output, found.direct), "epilogue", compute, p.output);
    } else {
      found.epilogue_f32 =
          need(find_for<target, float>(p.output, found.direct), "epilogue", compute, p.output);
    }
    if (is_quantized(p.output)) {
      const KernelKey key{Op::quantize, compute, p.output, false};
      found.quantize = need(find_kernel<target>(key), "quantize", compute, p.output);
      found.quantize_reference =
          need(find_kernel<Target::scalar>(key), "reference", compute, p.output);
    }
    if (is_float_linear(p))
      found.floats = need(find_float<target>(p.weight), "products", p.activation, p.weight);
    if (is_dynamic(p)) {
      const KernelKey key{Op::quantize, p.activation, p.quantized, false};
      found.fused = need(find_fused<target>(key), "dynamic range", p.activation, p.quantized);
      found.range = need(find_range<target>(key), "range", p.activation, p.quantized);
      found.quantize_rows = need(find_kernel<target>(key), "quantize", p.activation, p.quantized);
    }
    if (!missing.empty()) return {{}, missing};
    found.scan = scan<target>;
    return {found};
  }
};

constexpr auto entries = entries_of<LinearProblem, LinearKernels, Find>(VectorTargets());

}  // namespace

Found<LinearKernels> choose_kernels(const LinearProblem& problem, const Allowed& allowed) {
  const std::span<const Entry<LinearProblem, LinearKernels>> all = entries;
  const Choice<LinearKernels> choice = choose_first(allowed, problem, {all});
  if (!choice.chosen) return {{}, choice.reasons};
  return {choice.chosen->impl};
}

}  // namespace octavo::detail
