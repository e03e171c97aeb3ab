// For tests: quantized checkpoints, and what plain loops make of the same weights.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "octavo/checkpoint.hpp"
#include "offline/testing_checkpoint.hpp"

namespace octavo::testing {

inline Checkpoint open(const std::filesystem::path& path) {
  auto checkpoint = Checkpoint::open(path);
  EXPECT_TRUE(checkpoint) << checkpoint.error().message();
  return *checkpoint;
}
/// Quantizes or fails the test.
inline QuantizeReport run(const Checkpoint& checkpoint, const QuantizeOptions& options,
                          const std::filesystem::path& out, int threads = 2) {
  const auto plan = resolve(checkpoint, options);
  EXPECT_TRUE(plan) << plan.error().message();
  const auto report = quantize(Stream::cpu({.threads = threads}), *plan, out);
  EXPECT_TRUE(report) << report.error().message();
  return *report;
}
inline std::string bytes_of(const Checkpoint& c, const std::string& name) {
  const auto entry = c.tensors().find(name);
  EXPECT_TRUE(entry) << name;
  if (!entry) return {};
  const auto bytes = entry.file->bytes(*entry.tensor);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
template <class T>
std::vector<T> values_of(const Checkpoint& c, const std::string& name) {
  const std::string bytes = bytes_of(c, name);
  std::vector<T> out(bytes.size() / sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}
inline std::vector<std::uint64_t> shape_of(const Checkpoint& c, const std::string& name) {
  return c.tensors().find(name).tensor->shape;
}

/// The values of a made tensor as its type holds them.
inline std::vector<float> rounded(const MadeTensor& t) {
  std::vector<float> out = made_values(t);
  for (float& x : out) {
    if (t.type == StoredType::F16) x = to_float(to_f16(x));
    if (t.type == StoredType::BF16) x = to_float(to_bf16(x));
  }
  return out;
}

/// A row as plain loops quantize it.
struct Row {
  float scale = 1;
  std::vector<int> q;
};
inline Row quantized_row(const std::vector<float>& w, float q_max) {
  Row row;
  float most = 0;
  for (const float x : w) most = std::max(most, std::fabs(x));
  row.scale = most > 0 ? most / q_max : 1.0F;
  for (const float x : w)
    row.q.push_back(
        static_cast<int>(std::clamp(std::rint(x * (1.0F / row.scale)), -q_max - 1, q_max)));
  return row;
}

}  // namespace octavo::testing
