// Files and their errors: what the readers and writers of this part share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "octavo/result.hpp"
#include "octavo/safetensors.hpp"

namespace octavo::offline {

inline constexpr const char* config_name = "config.json";
inline constexpr const char* index_name = "model.safetensors.index.json";

/// A name from a file, for a message: in quotes, escaped, and not longer than a line.
std::string in_quotes(std::string_view text);
/// What is wrong with the contents of a file.
Error bad_file(const std::string& path, const std::string& text);
/// The same, of one of its tensors.
Error bad_tensor(const std::string& path, std::string_view tensor, const std::string& text);
/// What the system refused; `error` is errno.
Error system_error(const std::string& path, std::string_view action, int error);

/// An open file that closes itself.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();
  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] bool is_open() const noexcept { return fd_ >= 0; }

 private:
  int release() noexcept;
  int fd_ = -1;
};

/// A file that is open for reading, and what it was then.
struct OpenedFile {
  FileDescriptor file;
  FileStamp stamp;
};
/// Refuses whatever is not a regular file (or a link to one), and never waits for a pipe.
Result<OpenedFile> open_file(const std::filesystem::path& path);
/// "a pipe", for a message.
std::string_view kind_name(std::filesystem::file_type type);
/// Whether loaders take a file of this name, beside an index, for weights.
bool is_shard_name(const std::string& name);
/// Whether there is anything of this name, a link to nothing included.
bool is_there(const std::filesystem::path& path);
/// Whether a path is a directory or leads into it. Both are canonical.
bool is_inside(const std::filesystem::path& path, const std::filesystem::path& directory);
/// Refuses if the file is no longer what it was; a stamp of zeros says that there was none.
Status check_unchanged(const std::filesystem::path& path, const FileStamp& stamp);

/// The first bytes of a file, or all if it has fewer.
Result<std::string> read_start(const FileDescriptor& file, const std::string& path,
                               std::size_t bytes);
/// All of `bytes` at a position; whatever the system leaves over is written again.
Status write_at(const FileDescriptor& file, const std::string& path, std::uint64_t offset,
                std::span<const std::byte> bytes);
/// Flushes a file, or a directory's entries, to the disk.
Status flush(const std::filesystem::path& path);
/// A file that is being written: under a name of its own beside `path`, which is removed again
/// unless finish() has flushed the file and renamed it.
class NewFile {
 public:
  static Result<NewFile> create(const std::filesystem::path& path);
  NewFile(NewFile&&) noexcept = default;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();
  [[nodiscard]] bool is_open() const noexcept { return file_.is_open(); }
  Status write(std::uint64_t offset, std::span<const std::byte> bytes) const;
  Status finish();

 private:
  NewFile(FileDescriptor file, std::filesystem::path path, std::filesystem::path temporary)
      : file_(std::move(file)),
        path_(std::move(path)),
        temporary_(std::move(temporary)) {}
  FileDescriptor file_;
  std::filesystem::path path_;
  std::filesystem::path temporary_;
};
/// A whole file, by NewFile.
Status write_file(const std::filesystem::path& path, std::string_view text);
/// A small file as text; refused beyond `most` bytes.
Result<std::string> read_text(const std::filesystem::path& path, std::uint64_t most,
                              FileStamp* stamp = nullptr);

/// A path with a zero byte: the system would take what stands before it, which is another file.
Error zero_in_path(std::string_view path);

/// Where every call of the interface begins. Memory that is allocated here or refused, never thrown
/// out of; no path with a zero byte goes further.
template <class F>
auto guarded(const std::string& path, const F& body) -> decltype(body()) {
  try {
    if (path.find('\0') != std::string::npos) return zero_in_path(path);
    return body();
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::backend, path, path + ": not enough memory");
  } catch (const std::exception& e) {
    return Error(ErrorCode::backend, path, path + ": " + e.what());
  }
}

}  // namespace octavo::offline
