// ONNX Runtime's fused nodes: DynamicQuantizeMatMul from f32, which has one scale and zero point
// for all rows, so it does less than per row; MatMulIntegerToFloat from int8, on u8 with zero point
// 128, for on s8 it is 20 times slower. With weights in groups MatMulNBits, which makes int8 of
// its activations, a scale for each group (accuracy level 4), or keeps them as floats (level 1).
// PyPI's package carries the library without its C header.
// Its API is a table of functions to which new ones are only appended, so their places are known.
#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "peers/onnx_model.hpp"
#include "peers/plugin.hpp"

namespace octavo::bench {
namespace {

// The functions' places. All return a status, null if all is well, but for the releases.
enum Function : std::uint8_t {
  get_error_message = 2,
  create_env = 3,
  create_session_from_array = 8,
  run_session = 9,
  create_session_options = 10,
  set_intra_op_num_threads = 24,
  create_tensor_with_data = 49,
  create_cpu_memory_info = 69,
  release_status = 93,
  release_session = 95,
  release_value = 96,
  release_session_options = 100,
};

class Api {
 public:
  static const Api* instance() {
    static const Api api;
    return api.table_ ? &api : nullptr;
  }

  template <class... Args>
  void call(Function function, Args... args) const {
    void* status = at<void*(Args...)>(function)(args...);
    if (!status) return;
    const std::string message = at<const char*(void*)>(get_error_message)(status);
    release(release_status, status);
    throw std::runtime_error(message);
  }
  void release(Function function, void* object) const { at<void(void*)>(function)(object); }

  [[nodiscard]] const std::string& version() const { return version_; }
  [[nodiscard]] void* env() const { return env_; }
  [[nodiscard]] void* memory() const { return memory_; }

 private:
  struct Base {
    const void* const* (*get_api)(std::uint32_t version);
    const char* (*get_version)();
  };
  static constexpr std::uint32_t api_version = 14;  // older than all that has these functions

  Api() {
    void* library = dlopen(OCTAVO_ONNXRUNTIME, RTLD_NOW | RTLD_LOCAL);
    if (!library) return;
    using GetBase = const Base* (*)();
    const auto get = reinterpret_cast<GetBase>(dlsym(library, "OrtGetApiBase"));
    if (!get) return;
    table_ = get()->get_api(api_version);
    if (!table_) return;
    version_ = get()->get_version();
    constexpr int only_errors = 3, arena = 1, default_memory = 0;
    call(create_env, only_errors, "octavo_bench", &env_);
    call(create_cpu_memory_info, arena, default_memory, &memory_);
  }
  template <class F>
  [[nodiscard]] F* at(Function function) const {
    return reinterpret_cast<F*>(const_cast<void*>(table_[function]));
  }

  const void* const* table_ = nullptr;
  std::string version_;
  void* env_ = nullptr;
  void* memory_ = nullptr;
};

// An object of the library's.
using Handle = std::shared_ptr<void>;
Handle own(void* object, Function release) {
  return {object, [release](void* o) { Api::instance()->release(release, o); }};
}

Handle tensor_over(const void* data, std::size_t bytes, onnx::Type type, const onnx::Dims& dims) {
  const Api& api = *Api::instance();
  void* value = nullptr;
  api.call(create_tensor_with_data, static_cast<const void*>(api.memory()), const_cast<void*>(data),
           bytes, dims.data(), dims.size(), static_cast<int>(type), &value);
  return own(value, release_value);
}

Handle session_of(const std::string& model, int threads) {
  const Api& api = *Api::instance();
  void* made = nullptr;
  api.call(create_session_options, &made);
  const Handle options = own(made, release_session_options);
  api.call(set_intra_op_num_threads, made, threads);
  void* session = nullptr;
  api.call(create_session_from_array, static_cast<const void*>(api.env()),
           static_cast<const void*>(model.data()), model.size(), static_cast<const void*>(made),
           &session);
  return own(session, release_session);
}

// [n, k] to [k, n], by blocks that stay in cache.
std::vector<std::int8_t> transposed(const std::int8_t* from, std::int64_t n, std::int64_t k) {
  constexpr std::int64_t block = 64;
  std::vector<std::int8_t> to(static_cast<std::size_t>(n * k));
  for (std::int64_t i0 = 0; i0 < n; i0 += block)
    for (std::int64_t j = 0; j < k; ++j)
      for (std::int64_t i = i0; i < std::min(n, i0 + block); ++i)
        to[static_cast<std::size_t>(j * n + i)] = from[i * k + j];
  return to;
}

std::string model_of(const Linear& l, bool whole) {
  const auto weights = transposed(l.weight, l.n, l.k);
  std::vector<onnx::Message> constants{
      onnx::tensor("w", onnx::s8, {l.k, l.n}, weights.data(), weights.size()),
      onnx::tensor("w_scale", onnx::f32, {l.n}, l.weight_scales,
                   static_cast<std::size_t>(l.n) * sizeof(float))};
  const auto y = onnx::value("y", onnx::f32, {l.m, l.n});
  if (whole)
    return onnx::model("DynamicQuantizeMatMul", {"x", "w", "w_scale"},
                       onnx::value("x", onnx::f32, {l.m, l.k}), y, constants);
  const std::uint8_t zero = 128;
  constants.push_back(onnx::tensor("x_scale", onnx::f32, {}, &l.act_scale, sizeof(float)));
  constants.push_back(onnx::tensor("x_zero", onnx::u8, {}, &zero, 1));
  return onnx::model("MatMulIntegerToFloat", {"x", "w", "x_scale", "w_scale", "x_zero"},
                     onnx::value("x", onnx::u8, {l.m, l.k}), y, constants);
}

// Runs the model from x to y; with each copy of the weights, a session of its own, in turn. `input`
// is kept for as long as x.
Task task_of(const std::string& model, int copies, int threads, const Handle& x, const Handle& y,
             const float* output,
             std::shared_ptr<const std::vector<std::uint8_t>> input = nullptr) {
  std::vector<Handle> sessions;
  sessions.reserve(static_cast<std::size_t>(copies));
  for (int i = 0; i < copies; ++i) sessions.push_back(session_of(model, threads));
  return [=, input = std::move(input), next = std::size_t{0}]() mutable -> const void* {
    const char* const x_name = "x";
    const char* const y_name = "y";
    const void* const in = x.get();
    void* out = y.get();
    Api::instance()->call(run_session, sessions[next++ % sessions.size()].get(),
                          static_cast<const void*>(nullptr), &x_name, &in, std::size_t{1}, &y_name,
                          std::size_t{1}, &out);
    return output;
  };
}

Handle floats_over(const float* data, const onnx::Dims& dims) {
  return tensor_over(data, static_cast<std::size_t>(dims[0] * dims[1]) * sizeof(float), onnx::f32,
                     dims);
}

Task make(const Linear& l) {
  const bool whole = static_cast<DType>(l.activation) == DType::f32;
  if (!whole && static_cast<DType>(l.activation) != DType::s8) return {};
  const auto count = static_cast<std::size_t>(l.m * l.k);
  std::vector<std::uint8_t> shifted;
  if (!whole) {
    const auto* input = static_cast<const std::uint8_t*>(l.input);
    for (std::size_t i = 0; i < count; ++i)
      shifted.push_back(static_cast<std::uint8_t>(input[i] ^ 128));
  }
  const auto input = std::make_shared<const std::vector<std::uint8_t>>(std::move(shifted));
  const Handle x = whole ? floats_over(static_cast<const float*>(l.input), {l.m, l.k})
                         : tensor_over(input->data(), count, onnx::u8, {l.m, l.k});
  return task_of(model_of(l, whole), l.copies, l.threads, x, floats_over(l.output, {l.m, l.n}),
                 l.output, input);
}

// Its weights are unsigned, more by half their range. Those of 8 bits with wide activations it
// makes floats of in every call, a hundred times slower: nothing to compare with.
Task make_groups(const Groups& g) {
  if (g.bits != 4 && g.wide) return {};
  const std::int64_t blocks = g.k / g.group;
  const auto count = static_cast<std::size_t>(g.n * g.k * g.bits / 8);
  const auto* given = static_cast<const std::uint8_t*>(g.weight);
  std::vector<std::uint8_t> weights(given, given + count);
  for (auto& byte : weights) byte = static_cast<std::uint8_t>(byte ^ (g.bits == 4 ? 0x88 : 0x80));
  const std::vector<onnx::Message> constants{
      onnx::tensor("w", onnx::u8, {g.n, blocks, g.group * g.bits / 8}, weights.data(), count),
      onnx::tensor("w_scale", onnx::f32, {g.n, blocks}, g.scales,
                   static_cast<std::size_t>(g.n * blocks) * sizeof(float))};
  const std::string model =
      onnx::model("MatMulNBits", {"x", "w", "w_scale"}, onnx::value("x", onnx::f32, {g.m, g.k}),
                  onnx::value("y", onnx::f32, {g.m, g.n}), constants,
                  {{"K", g.k},
                   {"N", g.n},
                   {"bits", g.bits},
                   {"block_size", g.group},
                   {"accuracy_level", g.wide ? 1 : 4}});
  return task_of(model, g.copies, g.threads, floats_over(g.input, {g.m, g.k}),
                 floats_over(g.output, {g.m, g.n}), g.output);
}

}  // namespace
}  // namespace octavo::bench

OCTAVO_PEER_EXPORT const octavo_peer* octavo_peer_entry() {
  using namespace octavo::bench;
  const Api* api = nullptr;
  try {
    api = Api::instance();
  } catch (const std::exception&) {
    return nullptr;
  }
  if (!api) return nullptr;
  static const std::string version = "ONNX Runtime " + api->version();
  static const octavo_peer peer =
      make_peer<no_task, make, make_groups>("onnxruntime", version.c_str());
  return &peer;
}
