// A case of the linear layers and what it works on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness.hpp"
#include "octavo/octavo.hpp"

namespace octavo::bench {

struct LinearShape {
  std::int64_t m, n, k;
  double seconds;  // for each case

  [[nodiscard]] std::int64_t operations() const { return 2 * m * n * k; }
  [[nodiscard]] std::string name() const;
};

struct LinearCase {
  LinearShape shape{};
  DType activation = DType::f32;  // of the output too; s8: the matrix product alone, to f32
  bool packed = true;             // or rows as they are
  bool cold = false;
  std::optional<Target> cap = std::nullopt;
  int threads = 1;

  [[nodiscard]] bool is_whole() const { return activation != DType::s8; }
  [[nodiscard]] DType output() const { return is_whole() ? activation : DType::f32; }
  // "linear/quantized_linear/f32/packed/warm/any/128x4096x4096/1t"
  [[nodiscard]] std::string name() const;
};

// Warm weights are one copy, used in every call, and so in a cache if they fit. Cold ones are so
// many copies, used in turn, that a copy has left every cache when it is used again.
class LinearWeights {
 public:
  void prepare(std::int64_t n, std::int64_t k, bool cold);

  [[nodiscard]] std::int64_t n() const { return n_; }
  [[nodiscard]] std::int64_t k() const { return k_; }
  [[nodiscard]] std::int64_t bytes() const { return n_ * k_; }
  [[nodiscard]] const std::vector<const std::byte*>& copies() const { return copies_; }
  [[nodiscard]] const std::vector<float>& scales() const { return scales_; }

 private:
  Buffer buffer_;
  std::int64_t n_ = 0, k_ = 0;
  std::vector<const std::byte*> copies_;
  std::vector<float> scales_;
};

// So many copies of so many bytes that one has left every cache when it is used again.
std::int64_t linear_copies(std::int64_t bytes);

inline constexpr double linear_act_scale = 0.05;

// Our plan for a case, with inputs and outputs of its own.
class LinearLayer {
 public:
  static Result<std::shared_ptr<LinearLayer>> make(const LinearCase& c,
                                                   const LinearWeights& weights);
  void run() { run_(); }
  [[nodiscard]] const std::byte* input() const { return input_; }
  [[nodiscard]] std::byte* output() const { return output_; }
  [[nodiscard]] Target target() const { return target_; }

 private:
  template <class Plan>
  Status bind(const LinearCase& c, const LinearWeights& weights,
              const typename Plan::Descriptor& descriptor);

  Buffer input_buffer_, output_buffer_;
  std::byte* input_ = nullptr;
  std::byte* output_ = nullptr;
  std::vector<PackedWeight> packed_;
  std::vector<LinearArgs> args_;  // one for each copy of the weights
  std::size_t next_ = 0;
  Target target_ = Target::scalar;
  std::function<void()> run_;
};

// Our quantizer of rows for peers that have none: one part of the rows for each thread, to be
// called from threads of the peer's.
class RowQuantizer {
 public:
  RowQuantizer(const std::byte* input, std::int64_t rows, std::int64_t k, int parts);
  void run(int part) const { parts_[static_cast<std::size_t>(part)](); }
  [[nodiscard]] const std::int8_t* quantized() const { return quantized_; }
  [[nodiscard]] const float* scales() const { return scales_.data(); }

 private:
  Buffer buffer_;
  std::int8_t* quantized_ = nullptr;
  std::vector<float> scales_;
  std::vector<std::function<void()>> parts_;
};

}  // namespace octavo::bench
