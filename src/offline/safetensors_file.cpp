#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <unordered_map>

#include "octavo/safetensors.hpp"
#include "offline/files.hpp"
#include "offline/safetensors_header.hpp"

namespace octavo {

using namespace offline;

struct SafetensorsFile::Impl {
  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    if (mapped && !bytes.empty()) ::munmap(const_cast<std::byte*>(bytes.data()), bytes.size());
  }
  std::string path;
  FileStamp stamp;
  std::span<const std::byte> bytes;
  bool mapped = false;
  std::span<const std::byte> data;
  Header header;
  std::unordered_map<std::string_view, std::size_t> by_name;
};

namespace {

// Fills in what follows from the bytes.
Status read_header(SafetensorsFile::Impl& impl) {
  constexpr std::size_t prefix = 8;
  if (impl.bytes.size() < prefix)
    return bad_file(
        impl.path,
        fmt::format("expected a safetensors file of at least 8 bytes, got {}", impl.bytes.size()));
  std::uint64_t length = 0;
  std::memcpy(&length, impl.bytes.data(), prefix);
  if (length > max_header_bytes)
    return bad_file(impl.path, fmt::format("expected a header of at most {} bytes, got {}; is this "
                                           "a safetensors file?",
                                           max_header_bytes, length));
  if (length > impl.bytes.size() - prefix)
    return bad_file(impl.path,
                    fmt::format("expected a header of {} bytes, got {}; the file is truncated",
                                length, impl.bytes.size() - prefix));
  const std::string_view text(reinterpret_cast<const char*>(impl.bytes.data()) + prefix, length);
  impl.data = impl.bytes.subspan(prefix + length);
  Result<Header> header = parse_header(text, impl.data.size(), impl.path);
  if (!header) return header.error();
  impl.header = *std::move(header);
  impl.by_name.reserve(impl.header.tensors.size());
  for (std::size_t i = 0; i < impl.header.tensors.size(); ++i)
    impl.by_name.emplace(impl.header.tensors[i].name, i);
  return {};
}

Status map_file(SafetensorsFile::Impl& impl) {
  const auto opened = open_file(impl.path);
  if (!opened) return opened.error();
  impl.stamp = opened->stamp;
  const std::size_t size = impl.stamp.size;
  if (size == 0) return {};
  void* at = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, opened->file.get(), 0);
  if (at == MAP_FAILED) return system_error(impl.path, "map into memory", errno);
  impl.bytes = {static_cast<const std::byte*>(at), size};
  impl.mapped = true;
  return {};
}

}  // namespace

Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  return guarded(path.string(), [&]() -> Result<SafetensorsFile> {
    auto impl = std::make_shared<Impl>();
    impl->path = path.string();
    if (Status s = map_file(*impl); !s) return s.error();
    if (Status s = read_header(*impl); !s) return s.error();
    return SafetensorsFile(std::move(impl));
  });
}

Result<SafetensorsFile> SafetensorsFile::parse(std::span<const std::byte> bytes, std::string path) {
  return guarded(path, [&]() -> Result<SafetensorsFile> {
    auto impl = std::make_shared<Impl>();
    impl->path = path;
    impl->bytes = bytes;
    if (Status s = read_header(*impl); !s) return s.error();
    return SafetensorsFile(std::move(impl));
  });
}

const std::string& SafetensorsFile::path() const noexcept { return impl_->path; }
const std::vector<StoredTensor>& SafetensorsFile::tensors() const noexcept {
  return impl_->header.tensors;
}
const StoredMetadata& SafetensorsFile::metadata() const noexcept { return impl_->header.metadata; }
std::uint64_t SafetensorsFile::size() const noexcept { return impl_->bytes.size(); }

const FileStamp& SafetensorsFile::stamp() const noexcept { return impl_->stamp; }

const StoredTensor* SafetensorsFile::find(std::string_view name) const noexcept {
  const auto found = impl_->by_name.find(name);
  return found == impl_->by_name.end() ? nullptr : &impl_->header.tensors[found->second];
}

std::span<const std::byte> SafetensorsFile::bytes(const StoredTensor& tensor) const noexcept {
  return impl_->data.subspan(tensor.begin, tensor.size());
}

Result<TensorRef> SafetensorsFile::view(const StoredTensor& tensor) const {
  const std::optional<DType> type = dtype_of_stored(tensor.type);
  if (!type)
    return bad_tensor(path(), tensor.name,
                      fmt::format("expected F32, F64, F16, BF16, I8, U8, I16 or I32, got {}",
                                  octavo::name(tensor.type)));
  if (tensor.shape.size() > max_rank)
    return bad_tensor(
        path(), tensor.name,
        fmt::format("expected at most {} dimensions, got {}", max_rank, tensor.shape.size()));
  std::vector<std::int64_t> sizes;
  sizes.reserve(tensor.shape.size());
  for (const std::uint64_t size : tensor.shape) {
    if (size > INT64_MAX)
      return bad_tensor(path(), tensor.name,
                        fmt::format("expected sizes below 2^63, got {}", to_string(tensor.shape)));
    sizes.push_back(static_cast<std::int64_t>(size));
  }
  const std::span<const std::byte> data = bytes(tensor);
  const auto alignment = static_cast<std::uintptr_t>(octavo::bits(*type) / 8);
  if (reinterpret_cast<std::uintptr_t>(data.data()) % alignment != 0)
    return Error(
        ErrorCode::misaligned_operand, path(),
        fmt::format("{}: tensor {}: expected data aligned to {} bytes; copy it to where it "
                    "is",
                    path(), in_quotes(tensor.name), alignment));
  const Shape shape{std::span<const std::int64_t>(sizes)};
  return TensorRef(data.data(), *type, shape, contiguous_strides(shape, *type),
                   static_cast<std::int64_t>(data.size()));
}

void SafetensorsFile::release(std::span<const std::byte> bytes) const noexcept {
  if (!impl_->mapped || bytes.empty()) return;
  // Whole pages within the range only: its neighbours may still be in use. The map starts on a
  // page.
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto at = static_cast<std::size_t>(bytes.data() - impl_->bytes.data());
  const std::size_t begin = (at + page - 1) / page * page;
  const std::size_t end = (at + bytes.size()) / page * page;
  if (begin < end)
    ::madvise(const_cast<std::byte*>(impl_->bytes.data()) + begin, end - begin, MADV_DONTNEED);
}

}  // namespace octavo
