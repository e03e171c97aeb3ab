// octavo::offline from outside: a checkpoint is written, quantized and measured.
#include <octavo/checkpoint.hpp>

#include <cstdio>
#include <filesystem>
#include <vector>

namespace {

int fail(const octavo::Error& error) {
  std::fprintf(stderr, "%s\n", error.message().c_str());
  return 1;
}

}  // namespace

int main() {
  const std::filesystem::path in = "in", out = "out";
  std::filesystem::remove_all(in);
  std::filesystem::remove_all(out);
  std::filesystem::create_directory(in);
  std::vector<float> values(64 * 32);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 101) - 50;
  auto writer = octavo::SafetensorsWriter::create(
      in / "model.safetensors", {{"up.weight", octavo::StoredType::F32, {64, 32}}});
  if (!writer) return fail(writer.error());
  if (auto s = writer->write("up.weight", std::as_bytes(std::span(values))); !s)
    return fail(s.error());
  if (auto s = writer->finish(); !s) return fail(s.error());

  const auto model = octavo::Checkpoint::open(in);
  if (!model) return fail(model.error());
  const auto plan = octavo::resolve(*model, {});
  if (!plan) return fail(plan.error());
  const octavo::Stream stream = octavo::Stream::cpu();
  if (const auto made = octavo::quantize(stream, *plan, out); !made) return fail(made.error());
  const auto quantized = octavo::Checkpoint::open(out);
  if (!quantized) return fail(quantized.error());
  const auto report = octavo::verify(stream, *model, *quantized);
  if (!report) return fail(report.error());
  std::printf("%s %.1f dB\n", report->layers[0].name.c_str(), report->layers[0].sqnr_db);
  return report->layers[0].sqnr_db > 40 ? 0 : 1;
}
