// libFuzzer: any bytes as the files of a checkpoint (config.json, index and tensors, one after
// another with their lengths before them), and as a statistics file.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>

#include "octavo/checkpoint.hpp"

namespace {

namespace fs = std::filesystem;
using Bytes = std::span<const std::uint8_t>;

const fs::path& directory() {
  static const fs::path path = [] {
    const fs::path memory = "/dev/shm";
    fs::path p = (fs::exists(memory) ? memory : fs::temp_directory_path()) /
                 ("octavo-fuzz-" + std::to_string(::getpid()));
    fs::create_directories(p);
    std::atexit([] { fs::remove_all(directory()); });
    return p;
  }();
  return path;
}

// The next part of the input: two bytes of length, then as many bytes as there are.
Bytes take(Bytes& rest) {
  if (rest.size() < 2) return {};
  const std::size_t wanted = rest[0] + std::size_t{256} * rest[1];
  const Bytes part = rest.subspan(2, std::min(wanted, rest.size() - 2));
  rest = rest.subspan(2 + part.size());
  return part;
}

void put(const char* name, Bytes bytes) {
  const fs::path path = directory() / name;
  if (bytes.empty()) {
    fs::remove(path);
    return;
  }
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

void check(const octavo::Error& error) {
  if (error.message().empty()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Bytes rest(data, size);
  put("config.json", take(rest));
  put("model.safetensors.index.json", take(rest));
  const Bytes statistics_bytes = take(rest);
  put("model.safetensors", rest);
  put("statistics", statistics_bytes);
  const auto statistics = octavo::Statistics::read(directory() / "statistics");
  if (!statistics) check(statistics.error());
  const auto checkpoint = octavo::Checkpoint::open(directory());
  if (!checkpoint) {
    check(checkpoint.error());
    return 0;
  }
  for (const auto scheme : {octavo::Scheme::w8a8_dynamic, octavo::Scheme::w4a16_group}) {
    const auto plan = octavo::resolve(
        *checkpoint, {.scheme = scheme,
                      .group_size = 2,
                      .statistics = statistics ? &*statistics : nullptr,
                      .smooth = statistics && scheme == octavo::Scheme::w8a8_dynamic});
    if (!plan) check(plan.error());
  }
  return 0;
}
