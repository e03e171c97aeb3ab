#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <nlohmann/json.hpp>

#include "octavo/safetensors.hpp"
#include "offline/files.hpp"
#include "offline/safetensors_header.hpp"

namespace octavo {

using namespace offline;

struct SafetensorsWriter::Impl {
  std::filesystem::path path;
  std::optional<NewFile> file;
  std::vector<StoredTensor> tensors;  // by name
  std::uint64_t data_begin = 0;
  std::uint64_t data_bytes = 0;
  std::atomic<std::uint64_t> written{0};
};

namespace {

std::string json_string(std::string_view text) { return nlohmann::json(text).dump(); }

// Every tensor's place, in the order of the data.
Result<std::vector<StoredTensor>> place(std::vector<StoredTensorSpec> specs,
                                        const std::string& path) {
  std::sort(specs.begin(), specs.end(), [](const StoredTensorSpec& a, const StoredTensorSpec& b) {
    return bits(a.type) != bits(b.type) ? bits(a.type) > bits(b.type) : a.name < b.name;
  });
  std::vector<StoredTensor> tensors;
  tensors.reserve(specs.size());
  std::uint64_t at = 0;
  for (StoredTensorSpec& spec : specs) {
    const StoredSize size = stored_size(spec.type, spec.shape);
    if (size.kind != StoredSize::Kind::valid || size.bytes > INT64_MAX - at)
      return bad_tensor(path, spec.name,
                        fmt::format("expected a shape of whole bytes, fewer than "
                                    "2^63 in all, got {} of {}",
                                    to_string(spec.shape), name(spec.type)));
    if (spec.name == "__metadata__")
      return bad_tensor(path, spec.name, "expected another name: this one is the metadata's");
    tensors.push_back(
        {std::move(spec.name), spec.type, std::move(spec.shape), at, at + size.bytes});
    at += size.bytes;
  }
  return tensors;
}

Result<std::string> header_text(const std::vector<StoredTensor>& tensors,
                                const StoredMetadata& metadata, const std::string& path) {
  std::string out = "{";
  const auto separate = [&out] {
    if (out.size() > 1) out += ',';
  };
  if (!metadata.empty()) {
    out += "\"__metadata__\":{";
    bool first = true;
    for (const auto& [key, value] : metadata) {
      if (!std::exchange(first, false)) out += ',';
      out += json_string(key);
      out += ':';
      out += json_string(value);
    }
    out += '}';
  }
  for (const StoredTensor& t : tensors) {
    separate();
    out += json_string(t.name);
    fmt::format_to(std::back_inserter(out),
                   R"(:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", name(t.type),
                   fmt::join(t.shape, ","), t.begin, t.end);
  }
  out += '}';
  out.append((8 - out.size() % 8) % 8, ' ');
  if (out.size() > max_header_bytes)
    return bad_file(path, fmt::format("expected a header of at most {} bytes, got {}",
                                      max_header_bytes, out.size()));
  const std::uint64_t length = out.size();
  std::string prefix(sizeof(length), '\0');
  std::memcpy(prefix.data(), &length, sizeof(length));
  return prefix + out;
}

const StoredTensor* find_in(const std::vector<StoredTensor>& tensors, std::string_view name) {
  const auto found = std::lower_bound(
      tensors.begin(), tensors.end(), name,
      [](const StoredTensor& t, std::string_view wanted) { return t.name < wanted; });
  return found != tensors.end() && found->name == name ? &*found : nullptr;
}

}  // namespace

Result<std::string> safetensors_header(std::vector<StoredTensorSpec> tensors,
                                       const StoredMetadata& metadata) {
  return guarded("header", [&]() -> Result<std::string> {
    const auto placed = place(std::move(tensors), "header");
    if (!placed) return placed.error();
    return header_text(*placed, metadata, "header");
  });
}

Result<SafetensorsWriter> SafetensorsWriter::create(const std::filesystem::path& path,
                                                    std::vector<StoredTensorSpec> tensors,
                                                    const StoredMetadata& metadata) {
  return guarded(path.string(), [&]() -> Result<SafetensorsWriter> {
    auto placed = place(std::move(tensors), path.string());
    if (!placed) return placed.error();
    const Result<std::string> header = header_text(*placed, metadata, path.string());
    if (!header) return header.error();

    auto impl = std::make_unique<Impl>();
    impl->path = path;
    impl->data_begin = header->size();
    impl->data_bytes = placed->empty() ? 0 : placed->back().end;
    impl->tensors = *std::move(placed);
    std::sort(impl->tensors.begin(), impl->tensors.end(),
              [](const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; });
    for (std::size_t i = 1; i < impl->tensors.size(); ++i)
      if (impl->tensors[i].name == impl->tensors[i - 1].name)
        return bad_tensor(path.string(), impl->tensors[i].name,
                          "expected one tensor of this name, got two");
    auto file = NewFile::create(path);
    if (!file) return file.error();
    impl->file.emplace(*std::move(file));
    if (Status s = impl->file->write(0, std::as_bytes(std::span(header->data(), header->size())));
        !s)
      return s.error();
    return SafetensorsWriter(std::move(impl));
  });
}

SafetensorsWriter::SafetensorsWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&&) noexcept = default;
SafetensorsWriter& SafetensorsWriter::operator=(SafetensorsWriter&&) noexcept = default;
SafetensorsWriter::~SafetensorsWriter() = default;

std::uint64_t SafetensorsWriter::size() const noexcept {
  return impl_->data_begin + impl_->data_bytes;
}

Status SafetensorsWriter::write(std::string_view tensor, std::uint64_t offset,
                                std::span<const std::byte> bytes) {
  const StoredTensor* to = find_in(impl_->tensors, tensor);
  if (to == nullptr)
    return bad_tensor(impl_->path.string(), tensor, "expected a tensor that was declared");
  if (offset > to->size() || bytes.size() > to->size() - offset)
    return bad_tensor(impl_->path.string(), tensor,
                      fmt::format("expected bytes within its {}, got {} from {}", to->size(),
                                  bytes.size(), offset));
  impl_->written += bytes.size();
  return impl_->file->write(impl_->data_begin + to->begin + offset, bytes);
}

Status SafetensorsWriter::write(std::string_view tensor, std::span<const std::byte> bytes) {
  const StoredTensor* to = find_in(impl_->tensors, tensor);
  if (to != nullptr && to->size() != bytes.size())
    return bad_tensor(impl_->path.string(), tensor,
                      fmt::format("expected {} bytes, got {}", to->size(), bytes.size()));
  return write(tensor, 0, bytes);
}

Status SafetensorsWriter::finish() {
  if (!impl_->file->is_open())
    return bad_file(impl_->path.string(), "expected a file that is not finished yet");
  if (impl_->written != impl_->data_bytes)
    return bad_file(impl_->path.string(), fmt::format("expected {} bytes of tensors, got {}",
                                                      impl_->data_bytes, impl_->written.load()));
  if (Status s = impl_->file->finish(); !s) return s;
  const auto parent = impl_->path.parent_path();
  return flush(parent.empty() ? "." : parent);
}

}  // namespace octavo
