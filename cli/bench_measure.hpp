// The times of a linear layer on this machine, and the least they could be.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "cli/float_gemm.hpp"
#include "octavo/result.hpp"
#include "octavo/stream.hpp"

namespace octavo::cli {

/// What this machine can do with all threads of a stream.
struct MachineLimits {
  double bytes_per_second = 0;             ///< read from memory, beyond the caches
  double operations_per_second = 0;        ///< multiplications and additions of int8; 0: not known
  double float_operations_per_second = 0;  ///< of f32; 0: not known
  std::string target;                      ///< whose operations these are
};
/// Raises them to what is reached now: on a machine that others use too, the best of many counts.
void measure_limits(int threads, double seconds, MachineLimits& limits);

struct LayerShape {
  std::int64_t n = 0, k = 0;
  friend bool operator<(const LayerShape& a, const LayerShape& b) {
    return std::tie(a.n, a.k) < std::tie(b.n, b.k);
  }
};

/// Of one of the other layers.
struct SchemeTimes {
  std::string scheme, title;
  std::int64_t group = 0;  ///< 0: none
  bool is_float = false;
  double seconds = 0;
  double memory_seconds = 0;
  double peak_seconds = 0;
  [[nodiscard]] double limit() const {
    return memory_seconds > peak_seconds ? memory_seconds : peak_seconds;
  }
  [[nodiscard]] const char* bound() const {
    return memory_seconds > peak_seconds ? "memory" : is_float ? "f32 peak" : "int8 peak";
  }
};

struct LayerTimes {
  std::int64_t m = 0;
  double int8_seconds = 0;
  double float_seconds = 0;   ///< 0 without a library
  double memory_seconds = 0;  ///< to read the weights and activations and write the output
  double peak_seconds = 0;    ///< to multiply and add; 0: not known
  [[nodiscard]] double limit() const {
    return memory_seconds > peak_seconds ? memory_seconds : peak_seconds;
  }
  [[nodiscard]] const char* bound() const {
    return memory_seconds > peak_seconds ? "memory" : "int8 peak";
  }
  std::vector<SchemeTimes> schemes = {};
};

struct MeasureOptions {
  std::vector<std::int64_t> rows;
  double seconds = 0.1;  ///< for each figure
  bool warm = false;     ///< the same weights in every call, from a cache if they fit
  std::vector<std::string> schemes = {};          ///< of scheme_names(), beside float and int8
  std::int64_t group = 128;                       ///< of those with groups
  std::function<void(std::int64_t m)> next = {};  ///< told before each
};

/// float, int8 and the schemes take turns, and the fastest call of each counts. Unless `warm`,
/// copies of the weights that exceed the caches take turns too, as the layers of a model do.
Result<std::vector<LayerTimes>> measure_layer(const Stream& stream, const FloatGemm& gemm,
                                              const MachineLimits& limits, LayerShape shape,
                                              const MeasureOptions& options);

}  // namespace octavo::cli
