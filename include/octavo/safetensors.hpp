// safetensors files: read through a memory map, and written as their tensors are produced.
//
//     auto file = SafetensorsFile::open("model.safetensors");
//     for (const StoredTensor& tensor : file->tensors()) use(file->bytes(tensor));
//
// A file is 8 bytes with the length of a header, the header (JSON: name, type, shape and place of
// each tensor), and the data. Nothing in a header is believed before it has been checked: sizes,
// gaps, overlaps, overflows, duplicate names, UTF-8, the length of the file. What is refused is
// named by file and tensor. Reading costs time and memory in proportion to the header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/dtype.hpp"
#include "octavo/result.hpp"
#include "octavo/tensor.hpp"

namespace octavo {

/// The element types of the format, by their names there. Most are stored and copied only.
enum class StoredType : std::uint8_t {
  BOOL = 0,
  F4 = 1,
  F6_E2M3 = 2,
  F6_E3M2 = 3,
  U8 = 4,
  I8 = 5,
  F8_E5M2 = 6,
  F8_E4M3 = 7,
  F8_E8M0 = 8,
  F8_E4M3FNUZ = 9,
  F8_E5M2FNUZ = 10,
  I16 = 11,
  U16 = 12,
  F16 = 13,
  BF16 = 14,
  I32 = 15,
  U32 = 16,
  F32 = 17,
  C64 = 18,
  F64 = 19,
  I64 = 20,
  U64 = 21,
};
inline constexpr int stored_type_count = 22;

[[nodiscard]] std::string_view name(StoredType type) noexcept;
[[nodiscard]] int bits(StoredType type) noexcept;
[[nodiscard]] std::optional<StoredType> parse_stored_type(std::string_view name) noexcept;
/// The type that plans know, if they do: F32, F64, F16, BF16, I8, U8, I16, I32.
[[nodiscard]] std::optional<DType> dtype_of_stored(StoredType type) noexcept;
[[nodiscard]] StoredType stored_type(DType type) noexcept;

/// A tensor of a file. [begin, end) counts from the start of the data.
struct StoredTensor {
  std::string name;
  StoredType type = StoredType::F32;
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  [[nodiscard]] std::uint64_t size() const noexcept { return end - begin; }
};

using StoredMetadata = std::map<std::string, std::string>;

/// What a file was when it was opened, to tell later whether it still is. Zeros: there was none.
struct FileStamp {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t size = 0;
  std::int64_t modified = 0;  ///< in nanoseconds since 1970
  bool operator==(const FileStamp&) const = default;
};

/// One file, mapped. Copies share the map. The file must not shrink while it is open.
class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(const std::filesystem::path& path);
  /// The same of bytes that the caller keeps; `path` is only for messages.
  static Result<SafetensorsFile> parse(std::span<const std::byte> bytes, std::string path);

  [[nodiscard]] const std::string& path() const noexcept;
  /// In the order of their data.
  [[nodiscard]] const std::vector<StoredTensor>& tensors() const noexcept;
  [[nodiscard]] const StoredMetadata& metadata() const noexcept;
  /// Bytes of the whole file.
  [[nodiscard]] std::uint64_t size() const noexcept;
  /// Zeros if it was parsed from bytes.
  [[nodiscard]] const FileStamp& stamp() const noexcept;
  /// Null if there is none of that name.
  [[nodiscard]] const StoredTensor* find(std::string_view name) const noexcept;
  [[nodiscard]] std::span<const std::byte> bytes(const StoredTensor& tensor) const noexcept;
  /// For plans: a type that they know, at most 8 dimensions, and data that is aligned to its type
  /// (the format does not promise that; bytes() may be copied to where it is).
  [[nodiscard]] Result<TensorRef> view(const StoredTensor& tensor) const;
  /// Tells the system that these bytes will not be read again soon. Never changes a result.
  void release(std::span<const std::byte> bytes) const noexcept;

  struct Impl;

 private:
  explicit SafetensorsFile(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

/// All files of a checkpoint: one file; a directory (by its model.safetensors.index.json if it has
/// one, else all its .safetensors files that are not statistics); or an index, whose files are
/// named *.safetensors and lie beside it. Names are unique over all of them.
class SafetensorsSet {
 public:
  static Result<SafetensorsSet> open(const std::filesystem::path& path);

  struct Entry {
    const SafetensorsFile* file = nullptr;
    const StoredTensor* tensor = nullptr;
    explicit operator bool() const noexcept { return tensor != nullptr; }
  };
  [[nodiscard]] const std::vector<SafetensorsFile>& files() const noexcept { return *files_; }
  [[nodiscard]] Entry find(std::string_view name) const noexcept;
  /// The directory that holds the files.
  [[nodiscard]] const std::filesystem::path& directory() const noexcept { return directory_; }
  /// Whether an index named the files.
  [[nodiscard]] bool indexed() const noexcept { return indexed_; }
  /// Refuses, by name, a file or an index that is no longer what it was when it was opened.
  [[nodiscard]] Status unchanged() const;

 private:
  SafetensorsSet() = default;
  std::filesystem::path directory_;
  std::filesystem::path index_;  // or where one would be; empty for one file
  FileStamp index_stamp_;
  bool indexed_ = false;
  std::shared_ptr<std::vector<SafetensorsFile>> files_;
  std::shared_ptr<std::map<std::string_view, Entry>> entries_;
};

struct StoredTensorSpec {
  std::string name;
  StoredType type = StoredType::F32;
  std::vector<std::uint64_t> shape;
};

/// Writes a file. All tensors are declared first, so every position is known and their bytes may
/// be written in any order and from many threads. Until finish() the file has a temporary name,
/// and it is removed if the writer goes away before.
///
/// Tensors lie in the order of their type's size, largest first, then of their names; the header
/// is padded with spaces to 8 bytes, which aligns every tensor to its type.
class SafetensorsWriter {
 public:
  static Result<SafetensorsWriter> create(const std::filesystem::path& path,
                                          std::vector<StoredTensorSpec> tensors,
                                          const StoredMetadata& metadata = {});
  SafetensorsWriter(SafetensorsWriter&&) noexcept;
  SafetensorsWriter& operator=(SafetensorsWriter&&) noexcept;
  ~SafetensorsWriter();

  /// Bytes `offset`... of a tensor. Each byte is to be written once.
  Status write(std::string_view tensor, std::uint64_t offset, std::span<const std::byte> bytes);
  /// All bytes of a tensor.
  Status write(std::string_view tensor, std::span<const std::byte> bytes);
  /// Refuses if bytes are missing; then flushes to the disk and renames.
  Status finish();
  /// Bytes of the finished file.
  [[nodiscard]] std::uint64_t size() const noexcept;

  struct Impl;

 private:
  explicit SafetensorsWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// The first bytes of the file that such a writer makes: its length field and its header.
[[nodiscard]] Result<std::string> safetensors_header(std::vector<StoredTensorSpec> tensors,
                                                     const StoredMetadata& metadata = {});

}  // namespace octavo
