// Any bytes at all as a safetensors file; what is accepted is whole, and is the same once it was
// written again.
#include "octavo/safetensors.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "files.hpp"

namespace octavo::fuzz {
namespace {

// Tensors, their bytes and the metadata of the file, in another order of its data.
void write_again(const SafetensorsFile& file) {
  const auto path = Files::other("written.safetensors");
  std::vector<StoredTensorSpec> specs;
  for (const StoredTensor& t : file.tensors()) specs.push_back({t.name, t.type, t.shape});
  auto writer = SafetensorsWriter::create(path, specs, file.metadata());
  require(accepted(writer), "that what was read can be written");
  for (const StoredTensor& t : file.tensors())
    require(accepted(writer->write(t.name, file.bytes(t))), "that each tensor can be written");
  require(accepted(writer->finish()), "that the file is complete");
  const auto again = SafetensorsFile::open(path);
  require(accepted(again), "that what was written can be read");
  require(again->size() == writer->size(), "as many bytes as were announced");
  require(again->metadata() == file.metadata(), "the same metadata");
  require(again->tensors().size() == file.tensors().size(), "as many tensors");
  for (const StoredTensor& t : file.tensors()) {
    const StoredTensor* const other = again->find(t.name);
    require(other != nullptr && other->type == t.type && other->shape == t.shape, "each tensor");
    const auto bytes = file.bytes(t), written = again->bytes(*other);
    require(std::equal(bytes.begin(), bytes.end(), written.begin(), written.end()), "its bytes");
  }
}

void run(std::span<const std::byte> input) {
  const auto file = SafetensorsFile::parse(input, "fuzz.safetensors");
  if (!accepted(file)) return;
  // Every byte of data belongs to one tensor.
  std::uint64_t at = 0;
  for (const StoredTensor& tensor : file->tensors()) {
    require(tensor.begin == at && file->find(tensor.name) == &tensor, "tensors without gaps");
    at = tensor.end;
    const auto view = file->view(tensor);
    if (accepted(view)) require(view->data != nullptr || tensor.size() == 0, "data");
  }
  require(at + 8 <= input.size(), "data inside the file");
  write_again(*file);
}

}  // namespace
}  // namespace octavo::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  octavo::fuzz::run(std::as_bytes(std::span(data, size)));
  return 0;
}
