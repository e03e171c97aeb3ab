// Which norm feeds which layers, by architecture.
#include <algorithm>
#include <array>
#include <set>

#include "octavo/smooth.hpp"

namespace octavo {
namespace {

using Names = std::set<std::string, std::less<>>;

// A norm, and layers that together are all that read its output. Names are relative to a block; *
// stands for every number from 0. Of several rules for a norm the first whose layers exist counts.
struct Rule {
  std::string_view norm;
  std::vector<std::string_view> linears;
  std::string_view unless = {};  // a norm whose presence means that there is another reader
};

const std::vector<Rule>& rules_of(std::string_view family) {
  static const std::vector<Rule> llama{
      {"input_layernorm", {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}},
      {"input_layernorm", {"self_attn.qkv_proj"}},
      {"post_attention_layernorm", {"mlp.gate_proj", "mlp.up_proj"}},
      {"post_attention_layernorm", {"mlp.gate_up_proj"}}};
  static const std::vector<Rule> mixtral{
      {"input_layernorm", {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}},
      {"post_attention_layernorm",
       {"block_sparse_moe.gate", "block_sparse_moe.experts.*.w1",
        "block_sparse_moe.experts.*.w3"}}};
  static const std::vector<Rule> opt{
      {"self_attn_layer_norm", {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}},
      {"final_layer_norm", {"fc1"}}};
  // Falcon with one norm runs attention and the MLP beside each other on its output.
  static const std::vector<Rule> bloom{{"input_layernorm",
                                        {"self_attention.query_key_value", "mlp.dense_h_to_4h"},
                                        "post_attention_layernorm"},
                                       {"input_layernorm", {"self_attention.query_key_value"}},
                                       {"post_attention_layernorm", {"mlp.dense_h_to_4h"}},
                                       {"ln_attn", {"self_attention.query_key_value"}},
                                       {"ln_mlp", {"mlp.dense_h_to_4h"}}};
  static const std::vector<Rule> gpt_neox{{"input_layernorm", {"attention.query_key_value"}},
                                          {"post_attention_layernorm", {"mlp.dense_h_to_4h"}}};
  static const std::vector<Rule> gpt2{{"ln_1", {"attn.c_attn"}}, {"ln_2", {"mlp.c_fc"}}};
  static const std::vector<Rule> none;
  return family == "llama"      ? llama
         : family == "mixtral"  ? mixtral
         : family == "opt"      ? opt
         : family == "bloom"    ? bloom
         : family == "falcon"   ? bloom
         : family == "gpt_neox" ? gpt_neox
         : family == "gpt2"     ? gpt2
                                : none;
}

constexpr std::array<std::pair<std::string_view, std::string_view>, 15> families{{
    {"llama", "llama"},
    {"mistral", "llama"},
    {"qwen2", "llama"},
    {"qwen3", "llama"},
    {"phi3", "llama"},
    {"mixtral", "mixtral"},
    {"opt", "opt"},
    {"bloom", "bloom"},
    {"falcon", "falcon"},
    {"gpt_neox", "gpt_neox"},
    {"gpt2", "gpt2"},
    {"bert", "bert"},
    {"roberta", "bert"},
    {"xlm-roberta", "bert"},
    {"distilbert", "bert"},
}};

// The family by what its blocks contain; all of the words must be there and none of the others.
struct Signature {
  std::string_view family;
  std::vector<std::string_view> present;
  std::vector<std::string_view> absent;
};

std::string_view family_of(const Names& tensors) {
  static const std::vector<Signature> signatures{
      {"mixtral", {".block_sparse_moe.gate.", ".input_layernorm."}, {}},
      {"llama",
       {".input_layernorm.", ".post_attention_layernorm.", ".self_attn.", ".mlp."},
       {".pre_feedforward_layernorm.", ".mlp.experts.", ".mlp.fc1."}},
      {"opt", {".self_attn_layer_norm.", ".fc1."}, {"encoder"}},
      {"bloom", {".self_attention.query_key_value."}, {}},
      {"gpt_neox", {".attention.query_key_value."}, {}},
      {"gpt2", {".attn.c_attn.", "ln_1."}, {}},
      {"bert", {"attention.self.query.", "attention.output.LayerNorm."}, {}},
  };
  const auto has = [&](std::string_view word) {
    return std::any_of(tensors.begin(), tensors.end(),
                       [&](const std::string& t) { return t.find(word) != std::string::npos; });
  };
  for (const Signature& s : signatures)
    if (std::all_of(s.present.begin(), s.present.end(), has) &&
        std::none_of(s.absent.begin(), s.absent.end(), has))
      return s.family;
  return "unknown";
}

bool exists(const Names& tensors, const std::string& module) {
  return tensors.contains(module + ".weight");
}

// The modules of one name of a rule; none if it does not exist.
std::vector<std::string> expand(const Names& tensors, const std::string& block,
                                std::string_view relative) {
  const std::string full = block + "." + std::string(relative);
  const std::size_t star = full.find('*');
  std::vector<std::string> found;
  if (star == std::string::npos) {
    if (exists(tensors, full)) found.push_back(full);
    return found;
  }
  for (int i = 0;; ++i) {
    std::string one = full;
    one.replace(star, 1, std::to_string(i));
    if (!exists(tensors, one)) return found;
    found.push_back(std::move(one));
  }
}

// The layers that a rule names in a block, or none if one is missing.
std::vector<std::string> readers(const Names& tensors, const std::string& block, const Rule& rule) {
  std::vector<std::string> all;
  if (!rule.unless.empty() && exists(tensors, block + "." + std::string(rule.unless))) return all;
  for (const std::string_view relative : rule.linears) {
    std::vector<std::string> found = expand(tensors, block, relative);
    if (found.empty()) return {};
    all.insert(all.end(), found.begin(), found.end());
  }
  return all;
}

}  // namespace

SmoothingPairs smoothing_pairs(std::span<const std::string> tensors, const ModelTraits& traits) {
  const Names names(tensors.begin(), tensors.end());
  SmoothingPairs out;
  if (traits.model_type.empty()) {
    out.architecture = family_of(names);
  } else {
    const auto* const found = std::find_if(families.begin(), families.end(), [&](const auto& f) {
      return f.first == traits.model_type;
    });
    out.architecture = found == families.end() ? "unknown" : std::string(found->second);
  }
  if (out.architecture == "unknown") {
    out.note = (traits.model_type.empty() ? "the tensors are those of an architecture that is not"
                                          : "the architecture " + traits.model_type + " is not") +
               std::string(" among those whose norms are known to feed nothing else");
    return out;
  }
  if (out.architecture == "bert" || traits.norm_feeds_residual) {
    out.note = "the output of each norm also feeds the residual, so no scale can be folded into it";
    return out;
  }
  const std::vector<Rule>& rules = rules_of(out.architecture);
  for (const std::string& tensor : names) {
    for (const Rule& rule : rules) {
      const std::string ending = "." + std::string(rule.norm) + ".weight";
      if (!tensor.ends_with(ending)) continue;
      const std::string block = tensor.substr(0, tensor.size() - ending.size());
      std::vector<std::string> linears = readers(names, block, rule);
      if (linears.empty()) continue;
      out.pairs.push_back({block + "." + std::string(rule.norm), std::move(linears)});
      break;
    }
  }
  if (out.pairs.empty()) out.note = "no norm with the layers of this architecture was found";
  return out;
}

}  // namespace octavo
