// Which scheme each layer is to have, by the patterns that name it.
#include <fmt/format.h>

#include <algorithm>

#include "core/check.hpp"
#include "octavo/pattern.hpp"
#include "offline/checkpoint_parts.hpp"
#include "offline/files.hpp"

namespace octavo {

using detail::invalid;

namespace offline {
namespace {

// Modules that patterns may name.
struct Modules {
  explicit Modules(const Checkpoint& checkpoint) {
    for (const LinearLayer& layer : checkpoint.layers()) linear.push_back(layer.name);
    for (const KeptTensor& kept : checkpoint.kept())
      if (kept.is_linear) linear.emplace_back(parent(kept.name));
    for (const LinearLayer& layer : checkpoint.named_layers())
      if (layer.kind == LayerKind::embedding) embeddings.push_back(layer.name);
  }
  std::vector<std::string> linear, embeddings;
};

Error matches_nothing(const Checkpoint& checkpoint, const Modules& modules, const char* argument,
                      const LayerChoice& choice, const Pattern& pattern) {
  const std::size_t count = modules.linear.size() + (choice.scheme ? modules.embeddings.size() : 0);
  const bool no_head = std::none_of(modules.linear.begin(), modules.linear.end(),
                                    [](const auto& m) { return kind_of(m) == LayerKind::head; });
  return invalid(
      argument,
      fmt::format("expected a pattern that matches a layer, got {}, which matches {}{}",
                  in_quotes(choice.pattern),
                  modules.linear.empty()
                      ? fmt::format("nothing: {} has no linear layers", checkpoint.path().string())
                      : fmt::format("none of {}, the first of which is {}", count,
                                    in_quotes(modules.linear.front())),
                  no_head && pattern.matches("lm_head")
                      ? "; the head is not stored: it is tied to the embedding, or there is none"
                      : ""));
}

Status apply(const Checkpoint& checkpoint, const Modules& modules, const char* argument,
             const LayerChoice& choice, Choices& out) {
  const auto pattern = Pattern::parse(argument, choice.pattern);
  if (!pattern) return pattern.error();
  std::vector<std::string> matched;
  for (const std::string& module : modules.linear)
    if (pattern->matches(module)) matched.push_back(module);
  // Embeddings are float already, unless an earlier choice has named them.
  for (const std::string& module : modules.embeddings)
    if (pattern->matches(module) && (choice.scheme || out.contains(module)))
      matched.push_back(module);
  if (matched.empty()) return matches_nothing(checkpoint, modules, argument, choice, *pattern);
  if (choice.scheme && std::none_of(matched.begin(), matched.end(), [&](const std::string& m) {
        return checkpoint.any_layer(m) != nullptr;
      })) {
    const auto kept =
        std::find_if(checkpoint.kept().begin(), checkpoint.kept().end(),
                     [&](const KeptTensor& k) { return parent(k.name) == matched.front(); });
    return invalid(argument,
                   fmt::format("expected a pattern that matches a layer that can be quantized, got "
                               "{}, which matches {} ({}){}",
                               in_quotes(choice.pattern), matched.front(), kept->reason,
                               matched.size() > 1 ? " and others like it" : ""));
  }
  for (std::string& module : matched) out[std::move(module)] = choice.scheme;
  return {};
}

}  // namespace

Result<Choices> choose_schemes(const Checkpoint& checkpoint, const QuantizeOptions& options) {
  const Modules modules(checkpoint);
  Choices out;
  for (const LayerChoice& choice : options.layers)
    if (Status s = apply(checkpoint, modules, "layer", choice, out); !s) return s.error();
  for (const std::string& pattern : options.ignore)
    if (Status s = apply(checkpoint, modules, "ignore", {pattern}, out); !s) return s.error();
  return out;
}

}  // namespace offline

Result<LayerChoice> parse_layer_choice(std::string_view text) {
  // A pattern may have the sign in it, a scheme has not.
  const std::size_t sign = text.rfind('=');
  if (sign == std::string_view::npos || sign == 0)
    return invalid("layer",
                   fmt::format("expected PATTERN=SCHEME, got {}", offline::in_quotes(text)));
  LayerChoice choice{std::string(text.substr(0, sign))};
  const std::string_view scheme = text.substr(sign + 1);
  if (scheme == "float") return choice;
  const auto parsed = parse_scheme(scheme);
  if (!parsed)
    return invalid("layer", fmt::format("expected {} after the = of {}, got {}",
                                        offline::scheme_words("float"), offline::in_quotes(text),
                                        offline::in_quotes(scheme)));
  choice.scheme = *parsed;
  return choice;
}

}  // namespace octavo
