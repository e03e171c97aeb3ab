#include "octavo/verdict.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "offline/checkpoint_parts.hpp"
#include "offline/words.hpp"

namespace octavo {

using namespace offline;

namespace {

constexpr std::size_t most_named = 5;

// What is no number cannot be worse.
double comparable(const LayerError& e) {
  const double error = e.error();
  return std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
}

using Worst = std::vector<const LayerError*>;  // the layers above their bound, the worst first

// Their names and errors, not more than a line has room for.
std::string named(const Worst& worst) {
  std::string out;
  for (std::size_t i = 0; i < std::min(worst.size(), most_named); ++i)
    out += fmt::format("{}{} {}", i == 0 ? "" : ", ", worst[i]->name, percent(worst[i]->error()));
  if (worst.size() > most_named) out += fmt::format(" and {} more", worst.size() - most_named);
  return out;
}

// A name as a shell takes it for one word: it comes from a file, and is copied from here.
std::string shell_word(std::string_view text) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '/' || c == '-';
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), plain)) return std::string(text);
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

// The fewest patterns that name them: one for a kind of which half or more are bad, else names.
// What is fused when it runs is kept float together.
std::string ignore_options(const VerifyReport& report, const Worst& worst) {
  std::map<std::string_view, std::size_t> all, bad;
  for (const LayerError& e : report.layers) ++all[last_part(e.name)];
  for (const LayerError* e : worst) ++bad[last_part(e->name)];
  std::set<std::string> patterns;
  for (const LayerError* e : worst) {
    const std::string_view kind = last_part(e->name);
    const bool by_kind = kind != e->name && all[kind] > 1 && 2 * bad[kind] >= all[kind];
    std::vector<std::string> names = fused_with(e->name);
    if (names.empty()) names.push_back(e->name);
    // Experts of a block are one layer when they run.
    if (const std::size_t at = e->name.find(".experts."); at != std::string::npos)
      names = {e->name.substr(0, at) + ".experts.*"};
    for (const std::string& name : names)
      patterns.insert(shell_word(by_kind ? fmt::format("*.{}", last_part(name)) : name));
  }
  return fmt::format("--ignore {}", fmt::join(patterns, " "));
}

bool any(const Worst& worst, bool (*holds)(const LayerError&)) {
  return std::any_of(worst.begin(), worst.end(), [&](const LayerError* e) { return holds(*e); });
}

std::vector<std::string> advice_for(const VerifyReport& report, const Worst& worst) {
  std::vector<std::string> out;
  if (any(worst, [](const LayerError& e) { return e.smoothable && !e.smoothed; }))
    out.emplace_back("smooth the layers that follow a norm: --smooth STATS --alpha auto");
  if (any(worst, [](const LayerError& e) { return e.scheme == Scheme::w8a8_static; }))
    out.emplace_back("give each token its own scale: --scheme w8a8-dynamic");
  if (any(worst, [](const LayerError& e) {
        return weight_bits(e.scheme) == 4 && (e.group_size == 0 || e.group_size > 32);
      }))
    out.emplace_back("take smaller groups: --group-size 32");
  // To keep most of a model float is no advice, unless there is no other.
  if (out.empty() || 2 * worst.size() <= report.layers.size())
    out.push_back(fmt::format("keep {} float: {}", worst.size() == 1 ? "it" : "them",
                              ignore_options(report, worst)));
  return out;
}

// What was measured: outputs, weights only, or outputs of some layers.
std::string measured(const VerifyReport& report) {
  const auto with_rows =
      std::count_if(report.layers.begin(), report.layers.end(),
                    [](const LayerError& e) { return e.output_error.has_value(); });
  if (with_rows == 0)
    return "of weights alone: statistics with sampled rows of the layers (--stats) measure outputs";
  if (static_cast<std::size_t>(with_rows) == report.layers.size()) return "of outputs";
  return fmt::format(
      "of the outputs of {} of {} layers, of the weights of the others, which have no sampled rows",
      with_rows, report.layers.size());
}

// Schemes have bounds of their own, unless one was asked for.
std::string bound_text(const VerifyReport& report, const Verdict& verdict) {
  std::set<double> bounds;
  for (const LayerError& e : report.layers) bounds.insert(verdict.bound(e));
  std::vector<std::string> words;
  words.reserve(bounds.size());
  for (const double bound : bounds) words.push_back(percent(bound));
  return fmt::format("{} of {}", bounds.size() == 1 ? "the bound" : "their bounds",
                     fmt::join(words, " and "));
}

// Weights that are not finite: the float model has them, too.
void add_non_finite(const VerifyReport& report, std::vector<std::string>& lines) {
  std::int64_t weights = 0;
  std::vector<std::string_view> layers;
  for (const LayerError& e : report.layers) {
    if (e.non_finite == 0) continue;
    weights += e.non_finite;
    layers.push_back(e.name);
  }
  if (layers.empty()) return;
  lines.push_back(fmt::format(
      "{} NaN or infinite, in {}{}",
      counted(static_cast<std::size_t>(weights), "weight is", "weights are"), layers.front(),
      layers.size() > 1 ? fmt::format(" and {}", counted(layers.size() - 1, "other", "others"))
                        : ""));
}

// Of layers none of which is above its bound, in a word or two.
std::string_view how_good(const VerifyReport& report, const Verdict& verdict, bool numbers) {
  if (!report.unexpected.empty() || !report.added.empty()) return "tensors were changed";
  if (!numbers) return "weights are no numbers";
  if (verdict.max_error && std::isinf(*verdict.max_error)) return "no bound";
  // The weights say nothing of the one scale that all inputs share.
  const bool blind = std::any_of(
      report.layers.begin(), report.layers.end(),
      [](const LayerError& e) { return e.scheme == Scheme::w8a8_static && !e.output_error; });
  return blind ? "not judged, for static scales are seen in outputs alone" : "good";
}

}  // namespace

double default_max_error(Scheme scheme) noexcept { return weight_bits(scheme) == 4 ? 0.25 : 0.1; }

double Verdict::bound(const LayerError& layer) const noexcept {
  return max_error.value_or(default_max_error(layer.scheme));
}

std::string Verdict::text() const {
  std::string out = summary;
  for (const std::string& line : advice) out += "\n  " + line;
  return out;
}

Verdict judge(const VerifyReport& report, std::optional<double> max_error) {
  Verdict verdict;
  verdict.max_error = max_error;
  verdict.order.resize(report.layers.size());
  std::iota(verdict.order.begin(), verdict.order.end(), std::size_t{0});
  // Layers of several schemes by how far they are beyond their own bounds.
  const auto badness = [&](std::size_t i) {
    const LayerError& e = report.layers[i];
    return comparable(e) / (max_error ? 1.0 : verdict.bound(e));
  };
  std::stable_sort(verdict.order.begin(), verdict.order.end(),
                   [&](std::size_t a, std::size_t b) { return badness(a) > badness(b); });
  Worst worst;
  for (const std::size_t i : verdict.order)
    if (const LayerError& e = report.layers[i];
        !std::isinf(verdict.bound(e)) && !(e.error() <= verdict.bound(e)))
      worst.push_back(&e);
  verdict.above = worst.size();
  const bool lifted = max_error && std::isinf(*max_error);
  const bool numbers = lifted || std::none_of(report.layers.begin(), report.layers.end(),
                                              [](const LayerError& e) { return e.non_finite > 0; });
  verdict.failed =
      !worst.empty() || !report.unexpected.empty() || !report.added.empty() || !numbers;
  if (report.layers.empty()) {
    verdict.headline = "nothing was measured";
    verdict.summary = "verdict: " + verdict.headline;
    return verdict;
  }
  const LayerError& first = report.layers[verdict.order.front()];
  if (!worst.empty()) {
    verdict.headline = fmt::format("{} of {} {} above {}", worst.size(),
                                   counted(report.layers.size(), "layer", "layers"),
                                   worst.size() == 1 ? "is" : "are", bound_text(report, verdict));
    verdict.details = fmt::format("{} (errors {})", named(worst), measured(report));
    verdict.advice = advice_for(report, worst);
  } else {
    verdict.headline = fmt::format("{}, {}{}", how_good(report, verdict, numbers),
                                   counted(report.layers.size(), "layer", "layers"),
                                   lifted ? "" : ", none above " + bound_text(report, verdict));
    verdict.details = fmt::format("the largest error is {}, in {} (errors {})",
                                  percent(first.error()), first.name, measured(report));
  }
  if (report.float_layers > 0)
    verdict.details +=
        fmt::format("; {} of the linear weights, in {}, are float", percent(report.float_share),
                    counted(report.float_layers, "layer", "layers"));
  verdict.summary =
      fmt::format("verdict: {}{} {}", verdict.headline, worst.empty() ? ";" : ":", verdict.details);
  if (!report.added.empty())
    verdict.advice.push_back(fmt::format("{} not in the float checkpoint: {}{}",
                                         counted(report.added.size(), "tensor is", "tensors are"),
                                         report.added.front(),
                                         report.added.size() > 1 ? ", ..." : ""));
  if (!report.unexpected.empty())
    verdict.advice.push_back(fmt::format("{} should not have changed, but did: {}{}",
                                         counted(report.unexpected.size(), "tensor", "tensors"),
                                         report.unexpected.front(),
                                         report.unexpected.size() > 1 ? ", ..." : ""));
  add_non_finite(report, verdict.advice);
  return verdict;
}

}  // namespace octavo
