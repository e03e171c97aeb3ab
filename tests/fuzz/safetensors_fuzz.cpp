// libFuzzer: any bytes at all as a safetensors file.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "octavo/safetensors.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file =
      octavo::SafetensorsFile::parse(std::as_bytes(std::span(data, size)), "fuzz.safetensors");
  if (!file) {
    if (file.error().message().empty()) std::abort();
    return 0;
  }
  // What was accepted must be whole: every byte of data belongs to one tensor.
  std::uint64_t at = 0;
  unsigned sum = 0;
  for (const octavo::StoredTensor& tensor : file->tensors()) {
    if (tensor.begin != at || file->find(tensor.name) != &tensor) std::abort();
    at = tensor.end;
    for (const std::byte b : file->bytes(tensor)) sum += static_cast<unsigned>(b);
    if (const auto view = file->view(tensor); view && view->data == nullptr && tensor.size() > 0)
      std::abort();
  }
  return sum == ~0U ? 1 : 0;
}
