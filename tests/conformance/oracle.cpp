#include "oracle.hpp"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

namespace octavo::conformance {
namespace {

using nlohmann::json;

template <class T>
T load(const std::byte* data, std::int64_t i) {
  T value;
  std::memcpy(&value, data + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

// Calls `f` with a value of the C++ type that `dtype` names.
template <class F>
auto visit(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32:
      return f(float{});
    case DType::f64:
      return f(double{});
    case DType::f16:
      return f(f16{});
    case DType::bf16:
      return f(bf16{});
    case DType::s8:
      return f(std::int8_t{});
    case DType::u8:
      return f(std::uint8_t{});
    case DType::s32:
      return f(std::int32_t{});
    default:
      throw std::runtime_error("the oracle has no packed tensors");
  }
}

DType to_dtype(std::string_view text) {
  for (int i = 0; i < dtype_count; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (name(dtype) == text) return dtype;
  }
  throw std::runtime_error("unknown element type: " + std::string(text));
}

RangeMode to_mode(std::string_view text) {
  for (const RangeMode mode : {RangeMode::symmetric, RangeMode::asymmetric})
    if (name(mode) == text) return mode;
  throw std::runtime_error("unknown range mode: " + std::string(text));
}

std::vector<std::byte> read_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<std::byte> bytes(std::filesystem::file_size(path));
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!file) throw std::runtime_error("cannot read " + path.string());
  return bytes;
}

Tensor to_tensor(const json& j, const std::vector<std::byte>& blob) {
  const auto offset = j.at("offset").get<std::size_t>();
  Tensor t{to_dtype(j.at("dtype").get<std::string>()), j.at("count").get<std::int64_t>(), nullptr};
  if (offset > blob.size() || t.bytes() > blob.size() - offset)
    throw std::runtime_error("a tensor lies outside cases.bin");
  t.data = blob.data() + offset;
  return t;
}

template <class T>
std::optional<T> maybe(const json& j, const char* key) {
  if (!j.contains(key)) return std::nullopt;
  return j.at(key).get<T>();
}

Case to_case(const json& j, const std::vector<std::byte>& blob) {
  Case c;
  c.name = j.at("name").get<std::string>();
  c.op = j.at("op").get<std::string>();
  c.profile = j.at("profile") == "onnx" ? Profile::onnx : Profile::torch;
  c.shape = Shape(j.at("shape").get<std::vector<std::int64_t>>());
  c.axis = maybe<int>(j, "axis");
  if (const auto mode = maybe<std::string>(j, "mode")) c.mode = to_mode(*mode);
  c.q_min = maybe<std::int32_t>(j, "q_min");
  c.q_max = maybe<std::int32_t>(j, "q_max");
  c.as_numbers = j.value("compare", "bits") == "numbers";
  c.refused = j.value("refused", false);
  c.input = to_tensor(j.at("input"), blob);
  if (j.contains("grad")) c.grad = to_tensor(j.at("grad"), blob);
  c.scales = to_tensor(j.at("scales"), blob);
  c.zero_points = to_tensor(j.at("zero_points"), blob);
  c.expected = to_tensor(j.at("expected"), blob);
  c.torch = j.value("torch", std::vector<std::string>{});
  if (c.expected.count != c.input.count || (c.grad && c.grad->count != c.input.count))
    throw std::runtime_error(c.name + ": tensors of different sizes");
  return c;
}

LinearCase to_linear_case(const json& j, const std::vector<std::byte>& blob) {
  LinearCase c;
  c.name = j.at("name").get<std::string>();
  c.op = j.at("op").get<std::string>();
  c.profile = j.at("profile") == "onnx" ? Profile::onnx : Profile::torch;
  c.m = j.at("m").get<std::int64_t>();
  c.n = j.at("n").get<std::int64_t>();
  c.k = j.at("k").get<std::int64_t>();
  if (const auto mode = maybe<std::string>(j, "mode")) c.mode = to_mode(*mode);
  if (const auto type = maybe<std::string>(j, "quantized")) c.quantized = to_dtype(*type);
  c.relu = j.value("relu", false);
  c.act_scale = j.value("act_scale", 1.0);
  c.act_zero_point = j.value("act_zero_point", 0);
  c.output_scale = j.value("output_scale", 1.0);
  c.output_zero_point = j.value("output_zero_point", 0);
  const auto tensor = [&](const char* key) -> std::optional<Tensor> {
    if (!j.contains(key)) return std::nullopt;
    return to_tensor(j.at(key), blob);
  };
  c.input = to_tensor(j.at("input"), blob);
  c.weight = to_tensor(j.at("weight"), blob);
  c.activation_scales = tensor("activation_scales");
  c.activation_zero_points = tensor("activation_zero_points");
  c.weight_scales = tensor("weight_scales");
  c.weight_zero_points = tensor("weight_zero_points");
  c.bias = tensor("bias");
  c.residual = tensor("residual");
  c.cells = tensor("cells");
  c.expected = to_tensor(j.at("expected"), blob);
  if (c.input.count != c.m * c.k || c.weight.count != c.n * c.k ||
      c.expected.count != (c.cells ? c.cells->count : c.m * c.n))
    throw std::runtime_error(c.name + ": tensors of the wrong size");
  return c;
}

}  // namespace

std::string oracle_missing() {
  const char* directory = std::getenv("OCTAVO_ORACLE_DIR");
  if (directory == nullptr || *directory == '\0')
    return "OCTAVO_ORACLE_DIR is not set: run tests/conformance/make_oracle.py";
  if (!std::filesystem::exists(std::filesystem::path(directory) / "index.json"))
    return std::string(directory) + " has no index.json: run tests/conformance/make_oracle.py";
  return {};
}

double value_at(const std::byte* data, DType dtype, std::int64_t i) {
  return visit(dtype, [&]<class T>(T) -> double {
    if constexpr (requires(T t) { to_float(t); }) {
      return static_cast<double>(to_float(load<T>(data, i)));
    } else {
      return static_cast<double>(load<T>(data, i));
    }
  });
}

std::uint64_t bits_at(const std::byte* data, DType dtype, std::int64_t i) {
  std::uint64_t bits = 0;  // little-endian, as every machine this runs on
  const auto size = static_cast<std::size_t>(octavo::bits(dtype) / 8);
  std::memcpy(&bits, data + i * static_cast<std::int64_t>(size), size);
  return bits;
}

std::string show(const std::byte* data, DType dtype, std::int64_t i) {
  std::ostringstream out;
  out.precision(dtype == DType::f64 ? 17 : 9);
  out << value_at(data, dtype, i) << " (0x" << std::hex << bits_at(data, dtype, i) << ")";
  return out.str();
}

Oracle read_oracle(const std::filesystem::path& directory) {
  std::ifstream file(directory / "index.json");
  const json index = json::parse(file);
  if (index.at("format") != 1) throw std::runtime_error("index.json: unknown format");

  Oracle oracle;
  oracle.blob = read_bytes(directory / "cases.bin");
  if (index.at("blob_bytes") != oracle.blob.size())
    throw std::runtime_error("index.json and cases.bin do not belong together");
  oracle.made_by = "PyTorch " + index.at("torch").get<std::string>() + " (" +
                   index.at("engine").get<std::string>() + ")";
  for (const json& j : index.at("cases")) {
    const auto group = j.at("group").get<std::string>();
    if (j.contains("weight")) {
      oracle.linear[group].push_back(to_linear_case(j, oracle.blob));
    } else {
      oracle.groups[group].push_back(to_case(j, oracle.blob));
    }
  }
  for (const auto& [group, count] : index.at("counts").items())
    if (oracle.groups[group].size() + oracle.linear[group].size() != count)
      throw std::runtime_error("index.json: group " + group + " is incomplete");
  return oracle;
}

}  // namespace octavo::conformance
