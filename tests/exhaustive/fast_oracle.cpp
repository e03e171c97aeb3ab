#include "fast_oracle.hpp"

#include <bit>
#include <sstream>

#include "ops/elementwise/testing_data.hpp"

namespace octavo::exhaustive {
namespace {

using AnswerFunction = void (*)(const Setting&, const AnswerArrays&);
AnswerFunction best_answer() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return answer_avx512;
  if (__builtin_cpu_supports("avx2")) return answer_avx2;
#endif
  return answer_baseline;
}

testing::Oracle<float> plain(const Setting& s) {
  return {s.pair.scale, s.pair.zero_point, s.range.min, s.range.max, s.profile};
}
std::uint32_t bits_of(float value) {
  return static_cast<std::uint32_t>(testing::encode(DType::f32, value));
}

}  // namespace

std::vector<std::uint32_t> divided(const Gradients& gradients, const Setting& setting) {
  std::vector<std::uint32_t> result;
  result.reserve(gradients.given.size());
  for (const float dy : gradients.given) result.push_back(bits_of(plain(setting).divide(dy)));
  return result;
}

void answer(const Setting& setting, const std::vector<std::uint32_t>& inputs,
            const Gradients& gradients, const std::vector<std::uint32_t>& divided_gradients,
            Answers& answers) {
  static const AnswerFunction function = best_answer();
  function(setting,
           {inputs.size(), inputs.data(), gradients.canonical.data(), divided_gradients.data(),
            answers.quantize.data(), answers.fake_quantize.data(), answers.quantize_backward.data(),
            answers.fake_quantize_backward.data()});
}

std::string check_fast_oracle(const Setting& setting) {
  constexpr std::size_t count = 1U << 17;
  testing::Random random(7);
  const testing::HardFloats hard{DType::f32, setting.range};
  const auto draw = [&] {
    return static_cast<std::uint32_t>(
        hard.bits(setting.pair.scale, setting.pair.zero_point, random));
  };
  std::vector<std::uint32_t> inputs(count);
  Gradients gradients;
  for (std::uint32_t& input : inputs) {
    input = draw();
    gradients.given.push_back(std::bit_cast<float>(draw()));
    gradients.canonical.push_back(bits_of(gradients.given.back()));
  }
  Answers answers(count);
  answer(setting, inputs, gradients, divided(gradients, setting), answers);
  const testing::Oracle<float> oracle = plain(setting);
  for (std::size_t i = 0; i < count; ++i) {
    const auto x = std::bit_cast<float>(inputs[i]);
    const float dy = gradients.given[i];
    const int bytes = setting.wide ? 2 : 1;
    const auto q = static_cast<std::uint64_t>(oracle.quantize(x)) & ((1U << 8 * bytes) - 1);
    if (testing::load_bits(answers.quantize.data(), bytes, static_cast<std::int64_t>(i)) == q &&
        answers.fake_quantize[i] == bits_of(oracle.fake_quantize(x)) &&
        answers.quantize_backward[i] == bits_of(oracle.quantize_backward(x, dy)) &&
        answers.fake_quantize_backward[i] == bits_of(oracle.fake_quantize_backward(x, dy)))
      continue;
    std::ostringstream text;
    text << "the fast oracle differs from the plain one at input " << std::hex << inputs[i]
         << " scale " << std::hexfloat << setting.pair.scale << std::dec << " zero point "
         << setting.pair.zero_point;
    return text.str();
  }
  return {};
}

}  // namespace octavo::exhaustive
