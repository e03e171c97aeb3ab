// Files and their errors: what the readers and writers of this part share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "octavo/result.hpp"

namespace octavo::offline {

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

/// All of `bytes` at a position; whatever the system leaves over is written again.
Status write_at(const FileDescriptor& file, const std::string& path, std::uint64_t offset,
                std::span<const std::byte> bytes);
/// Flushes a file, or a directory's entries, to the disk.
Status flush(const std::filesystem::path& path);
/// Writes a whole file under a temporary name, flushes it and renames it.
Status write_file(const std::filesystem::path& path, std::string_view text);
/// The name that a file has until it is complete.
std::filesystem::path temporary_name(const std::filesystem::path& path);
/// A small file as text; refused beyond `most` bytes.
Result<std::string> read_text(const std::filesystem::path& path, std::uint64_t most);

/// The first bytes of a file, or fewer if it cannot be read.
std::string file_start(const std::filesystem::path& path, std::size_t bytes);

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
