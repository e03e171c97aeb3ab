// The contract for f32 once more, in vectors that any compiler knows: fast enough for all
// 2^32 inputs. It shares no code with the library and is checked against the plain oracle.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "octavo/dtype.hpp"
#include "octavo/sku.hpp"

namespace octavo::exhaustive {

struct Pair {
  float scale;
  std::int32_t zero_point;  // |zero_point| <= 2^20
};

/// What one block of inputs is quantized with.
struct Setting {
  Pair pair;
  Profile profile;
  IntRange range;     // within +-2^20
  bool wide = false;  // 16 bits instead of 8
};

/// Gradients: as given, NaN made canonical, and divided by the scale as the profile says.
struct Gradients {
  std::vector<float> given;
  std::vector<std::uint32_t> canonical;
};
[[nodiscard]] std::vector<std::uint32_t> divided(const Gradients& gradients,
                                                 const Setting& setting);

/// The results of all operations on a block, as bits.
struct Answers {
  explicit Answers(std::size_t block)
      : quantize(2 * block),
        fake_quantize(block),
        quantize_backward(block),
        fake_quantize_backward(block) {}
  std::vector<std::uint8_t> quantize;  // bytes; pairs of them where wide
  std::vector<std::uint32_t> fake_quantize;
  std::vector<std::uint32_t> quantize_backward;
  std::vector<std::uint32_t> fake_quantize_backward;
};

void answer(const Setting& setting, const std::vector<std::uint32_t>& inputs,
            const Gradients& gradients, const std::vector<std::uint32_t>& divided_gradients,
            Answers& answers);

/// The same on bare arrays, for one instruction set each.
struct AnswerArrays {
  std::size_t count;  // a multiple of 16
  const std::uint32_t* inputs;
  const std::uint32_t* gradients;
  const std::uint32_t* divided;
  std::uint8_t* quantize;
  std::uint32_t* fake_quantize;
  std::uint32_t* quantize_backward;
  std::uint32_t* fake_quantize_backward;
};
void answer_baseline(const Setting& setting, const AnswerArrays& arrays);
void answer_avx2(const Setting& setting, const AnswerArrays& arrays);
void answer_avx512(const Setting& setting, const AnswerArrays& arrays);

/// Compares with the plain oracle on hard values; empty if they agree.
[[nodiscard]] std::string check_fast_oracle(const Setting& setting);

}  // namespace octavo::exhaustive
