// octavo quantize: a float checkpoint in, one in 8 or 4 bits out.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <map>

#include "cli/commands.hpp"
#include "cli/progress.hpp"
#include "cli/table.hpp"
#include "cli/verdict.hpp"
#include "core/check.hpp"
#include "octavo/checkpoint.hpp"

namespace octavo::cli {
namespace {

struct Options {
  std::string in, out, scheme = "w8a8-dynamic", smooth, stats, alpha = "0.5";
  std::string group_size = "128";
  bool asymmetric = false;
  std::vector<std::string> layers, ignore;
  std::optional<double> max_error;
  std::string loader = "both";
  bool strict = false;
  bool dry_run = false;
  // Without a bound nothing is judged.
  [[nodiscard]] bool measures() const { return !max_error || std::isfinite(*max_error); }
  // Whether a scheme of this kind is named, for all layers or for some.
  template <class Kind>
  [[nodiscard]] bool names(const Kind& kind) const {
    const auto is_one = [&](const std::string& text) {
      const auto scheme = parse_scheme(text);
      return scheme && kind(*scheme);
    };
    return is_one(scheme) || std::any_of(layers.begin(), layers.end(), [&](const auto& choice) {
             return is_one(choice.substr(choice.rfind('=') + 1));
           });
  }
};

bool is_int4(Scheme scheme) { return weight_bits(scheme) == 4; }
bool is_static(Scheme scheme) { return scheme == Scheme::w8a8_static; }

// What a plan leaves float against its scheme's intent.
void print_left_float(const QuantizePlan& plan) {
  for (const LeftFloat& left : left_float(plan))
    fmt::print("warning: {}\n", printable(left.text()));
}

// "14 layers to w8a16, 8.1 bits per weight", or the number of each.
std::string forms_text(const QuantizePlan& plan) {
  const std::vector<FormCount> forms = forms_of(plan);
  std::vector<std::string> parts;
  parts.reserve(forms.size());
  for (const FormCount& f : forms)
    parts.push_back(fmt::format("{} to {}", f.layers, to_string(f.form)));
  return fmt::format("{} layers{}, {:.3g} bits per weight", plan.layers.size(),
                     forms.size() == 1 ? " to " + to_string(forms[0].form)
                                       : fmt::format(": {}", fmt::join(parts, ", ")),
                     bits_per_weight(plan));
}

void print_notes(const QuantizePlan& plan) {
  for (const std::string& note : plan.notes) fmt::print("note: {}\n", note);
}

void print_plan(const QuantizePlan& plan) {
  const QuantizeOptions& o = plan.options;
  fmt::print("{}: {}\n", printable(plan.checkpoint->path().string()), forms_text(plan));
  Table layers({"layer", "scheme", "type", "out", "in", "smoothed after"},
               {false, false, false, true, true, false});
  for (const PlannedLayer& p : plan.layers)
    layers.add({p.layer.name, std::string(name(p.form.scheme)), std::string(name(p.layer.type)),
                std::to_string(p.layer.n), std::to_string(p.layer.k),
                p.pair ? plan.pairs[*p.pair].names.norm : ""});
  layers.sort();
  layers.print();
  if (!plan.pairs.empty())
    fmt::print("\n{} pairs are smoothed with alpha {}\n", plan.pairs.size(),
               o.alpha ? number(*o.alpha) : "searched for each");
  fmt::print("\n{} tensors stay as they are\n", plan.kept.size());
  Table kept({"tensor", "why"});
  for (const KeptTensor& k : plan.kept) kept.add({k.name, k.reason});
  kept.sort();
  if (!plan.kept.empty()) kept.print();
  fmt::print("\n{} become {}\n", human_bytes(plan.checkpoint->bytes()),
             human_bytes(plan.output_bytes));
  print_left_float(plan);
  print_notes(plan);
}

void print_report(const QuantizePlan& plan, const QuantizeReport& report, const std::string& out,
                  double seconds) {
  if (!plan.pairs.empty() && !plan.options.alpha) {
    Table table({"smoothed after", "alpha", "error"}, {false, true, true});
    for (std::size_t i = 0; i < plan.pairs.size(); ++i)
      table.add(
          {plan.pairs[i].names.norm, number(report.alphas[i]), number(report.alpha_errors[i])});
    table.sort();
    table.print();
  }
  for (const std::string& skipped : report.skipped)
    fmt::print("not carried over: {}\n", printable(skipped));
  for (const std::string& link : report.links)
    fmt::print("read through a link out of the input: {}\n", printable(link));
  if (report.shards_kept > 0)
    fmt::print("{} files were kept from a run that was stopped\n", report.shards_kept);
  fmt::print("{}: {}, {} to {}, {:.3g} s, {}/s\n", printable(out), forms_text(plan),
             human_bytes(plan.checkpoint->bytes()), human_bytes(report.bytes_written), seconds,
             human_bytes(static_cast<std::uint64_t>(static_cast<double>(plan.checkpoint->bytes()) /
                                                    std::max(seconds, 1e-6))));
  print_notes(plan);
}

// A number, or none for auto.
template <class T>
Result<std::optional<T>> number_or_auto(const char* option, const char* expected,
                                        const std::string& text) {
  if (text == "auto") return std::optional<T>();
  T value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    return detail::invalid(option, fmt::format("expected {} or auto, got {}", expected, text));
  return std::optional<T>(value);
}

// The same, or 0 for a scale per channel.
Result<std::optional<std::int64_t>> group_size_of(const std::string& text) {
  if (text == "channel") return std::optional<std::int64_t>(0);
  constexpr const char* expected = "a multiple of 4 (input channels), channel";
  auto size = number_or_auto<std::int64_t>("group_size", expected, text);
  if (size && *size && (**size <= 0 || **size % 4 != 0))
    return detail::invalid("group_size",
                           fmt::format("expected {} or auto, got {}", expected, text));
  return size;
}

// (One of the words that the option admits.)
Loader loader_of(const std::string& word) {
  if (word == "vllm") return Loader::vllm;
  if (word == "none") return Loader::none;
  return word == "transformers" ? Loader::transformers : Loader::both;
}

// How good the result is, as far as it was measured on the way.
int conclude_run(const QuantizePlan& plan, const QuantizeReport& report, const Options& o) {
  print_left_float(plan);
  if (!report.measured.layers.empty()) return conclude(judge(report.measured, o.max_error));
  if (plan.options.measure)
    fmt::print(
        "not measured: octavo verify {} {} does, best with statistics that hold sampled rows "
        "(--stats)\n",
        printable(o.in), printable(o.out));
  return exit_ok;
}

int run(const Context& context, const Options& o) {
  const auto scheme = parse_scheme(o.scheme);
  if (!scheme) return fail(scheme.error());
  const auto alpha = number_or_auto<double>("alpha", "a number from 0 to 1,", o.alpha);
  if (!alpha) return fail(alpha.error());
  const auto group_size = group_size_of(o.group_size);
  if (!group_size) return fail(group_size.error());
  std::vector<LayerChoice> layers;
  for (const std::string& text : o.layers) {
    auto choice = parse_layer_choice(text);
    if (!choice) return fail(choice.error());
    layers.push_back(*std::move(choice));
  }
  std::optional<Statistics> statistics;
  if (const std::string& path = o.smooth.empty() ? o.stats : o.smooth; !path.empty()) {
    auto read = Statistics::read(path);
    if (!read) return fail(read.error());
    statistics = *std::move(read);
  }
  const auto checkpoint = Checkpoint::open(o.in);
  if (!checkpoint) return fail(checkpoint.error());
  const auto plan = resolve(*checkpoint, {.scheme = *scheme,
                                          .group_size = *group_size,
                                          .asymmetric = o.asymmetric,
                                          .layers = std::move(layers),
                                          .ignore = o.ignore,
                                          .statistics = statistics ? &*statistics : nullptr,
                                          .smooth = !o.smooth.empty(),
                                          .alpha = *alpha,
                                          .strict = o.strict,
                                          .loader = loader_of(o.loader),
                                          .measure = o.measures()});
  if (!plan) return fail(plan.error());
  if (!o.names(is_static) && !o.stats.empty() && !plan->measured)
    return fail(detail::invalid(
        "stats", fmt::format("expected sampled rows of layers of {} to measure with, for {} uses "
                             "nothing else of them, got none in {}",
                             o.in, o.scheme, o.stats)));
  if (o.dry_run) {
    print_plan(*plan);
    return exit_ok;
  }
  const auto start = std::chrono::steady_clock::now();
  const auto report = [&] {
    ProgressLine line;
    return quantize(context.stream(), *plan, o.out, [&](const Progress& p) { line(p); });
  }();
  if (!report) return fail(report.error());
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  print_report(*plan, *report, o.out, seconds.count());
  return conclude_run(*plan, *report, o);
}

}  // namespace

void add_quantize(CLI::App& app, Context& context) {
  CLI::App* command = app.add_subcommand("quantize", "Quantize a checkpoint for vLLM and others");
  auto o = std::make_shared<Options>();
  command->add_option("in", o->in, "A safetensors file, a directory of them, or an index")
      ->required();
  command->add_option("out", o->out, "The new directory")->required();
  command
      ->add_option("--scheme", o->scheme,
                   "w8a8-dynamic, w8a8-static, w8a16, w4a8-group or w4a16-group")
      ->capture_default_str();
  command->add_option("--layer", o->layers,
                      "Another scheme, or float, for some layers: PATTERN=SCHEME. Of several that "
                      "name a layer the last counts; heads and embeddings are float unless named");
  CLI::Option* smooth =
      command->add_option("--smooth", o->smooth, "Smooth with the statistics in this file");
  command
      ->add_option("--stats", o->stats,
                   "Statistics without smoothing: for w8a8-static, and sampled rows to measure "
                   "every layer with")
      ->excludes(smooth);
  command->add_option("--alpha", o->alpha, "How far to smooth, from 0 to 1, or auto")
      ->needs(smooth)
      ->capture_default_str();
  CLI::Option* group_size =
      command
          ->add_option(
              "--group-size", o->group_size,
              "Input channels that share a scale in int4, a multiple of 4; channel: all of them; "
              "auto: the largest of 128, 64, 32 and 16 that takes every layer")
          ->capture_default_str();
  command->add_flag("--asymmetric", o->asymmetric, "A zero point for each scale of int4 weights");
  command->add_option("--ignore", o->ignore,
                      "Layers that stay float, as --layer P=float after all others: a name, a "
                      "pattern with * and ?, or re:REGEX");
  command
      ->add_option("--loader", o->loader,
                   "Who must load the result: both, vllm or transformers. What it does not take is "
                   "refused; none: what Octavo alone reads will do")
      ->check(CLI::IsMember({"both", "vllm", "transformers", "none"}))
      ->capture_default_str();
  add_max_error(*command, o->max_error);
  command->add_flag(
      "--strict", o->strict,
      "Refuse, before anything is written, if layers that the scheme should take would "
      "stay float");
  command->add_flag("--dry-run", o->dry_run, "Only print what would be done");
  // A setting that would be ignored is a mistake.
  command->callback([&context, o, group_size] {
    if (!o->stats.empty() && !o->measures() && !o->names(is_static))
      throw CLI::ValidationError("--stats",
                                 "only --scheme w8a8-static uses them when nothing is "
                                 "measured (--max-error none)");
    if ((group_size->count() > 0 || o->asymmetric) && !o->names(is_int4))
      throw CLI::ValidationError(
          o->asymmetric ? "--asymmetric" : "--group-size",
          "only --scheme w4a16-group and w4a8-group have groups and zero points");
    context.run = [&context, o] { return run(context, *o); };
  });
}

}  // namespace octavo::cli
