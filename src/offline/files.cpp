#include "offline/files.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <system_error>
#include <utility>

#include "offline/printable.hpp"

namespace octavo::offline {

std::string in_quotes(std::string_view text) {
  constexpr std::size_t most = 120;
  std::size_t length = std::min(most, text.size());
  // No character is cut in its middle.
  while (length < text.size() && length > most - 4 &&
         (static_cast<unsigned char>(text[length]) & 0xC0U) == 0x80U)
    --length;
  return fmt::format("\"{}{}\"", printable(text.substr(0, length)),
                     length < text.size() ? "..." : "");
}

Error bad_file(const std::string& path, const std::string& text) {
  return {ErrorCode::invalid_problem, path, fmt::format("{}: {}", path, text)};
}

Error bad_tensor(const std::string& path, std::string_view tensor, const std::string& text) {
  return bad_file(path, fmt::format("tensor {}: {}", in_quotes(tensor), text));
}

Error system_error(const std::string& path, std::string_view action, int error) {
  std::string text =
      fmt::format("{}: cannot {}: {}", path, action, std::generic_category().message(error));
  if (error == ENOSPC || error == EFBIG || error == EDQUOT)
    text += "; the disk or a limit is full: make room and run again";
  return {ErrorCode::backend, path, text};
}

Error zero_in_path(std::string_view path) {
  return {ErrorCode::invalid_problem, "path",
          fmt::format("path: expected one without a zero byte, got {}", in_quotes(path))};
}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = other.release();
  }
  return *this;
}
FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) ::close(fd_);
}
int FileDescriptor::release() noexcept { return std::exchange(fd_, -1); }

Status write_at(const FileDescriptor& file, const std::string& path, std::uint64_t offset,
                std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(file.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error(path, "write", errno);
    if (n == 0) return system_error(path, "write", ENOSPC);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
  return {};
}

Status flush(const std::filesystem::path& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) return system_error(path.string(), "open", errno);
  // Some file systems cannot flush a directory, and say EINVAL.
  if (::fsync(file.get()) != 0 && errno != EINVAL)
    return system_error(path.string(), "flush", errno);
  return {};
}

std::filesystem::path temporary_name(const std::filesystem::path& path) {
  std::filesystem::path out = path;
  out += ".tmp";
  return out;
}

Status write_file(const std::filesystem::path& path, std::string_view text) {
  const std::filesystem::path temporary = temporary_name(path);
  {
    const FileDescriptor file(
        ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!file.is_open()) return system_error(temporary.string(), "create", errno);
    if (Status s = write_at(file, temporary.string(), 0,
                            std::as_bytes(std::span(text.data(), text.size())));
        !s)
      return s;
    if (::fsync(file.get()) != 0) return system_error(temporary.string(), "flush", errno);
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0)
    return system_error(path.string(), "rename the finished file to this name", errno);
  return {};
}

Result<std::string> read_text(const std::filesystem::path& path, std::uint64_t most) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) return system_error(path.string(), "open", errno);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return system_error(path.string(), "read", errno);
  if (!S_ISREG(info.st_mode)) return bad_file(path.string(), "expected a file");
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (size > most)
    return bad_file(path.string(), fmt::format("expected at most {} bytes, got {}", most, size));
  std::string text(size, '\0');
  std::size_t have = 0;
  while (have < text.size()) {
    const ssize_t n = ::read(file.get(), text.data() + have, text.size() - have);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error(path.string(), "read", errno);
    if (n == 0) break;
    have += static_cast<std::size_t>(n);
  }
  text.resize(have);
  return text;
}

std::string file_start(const std::filesystem::path& path, std::size_t bytes) {
  std::ifstream in(path, std::ios::binary);
  std::string text(bytes, '\0');
  in.read(text.data(), static_cast<std::streamsize>(bytes));
  text.resize(static_cast<std::size_t>(in.gcount()));
  return text;
}

}  // namespace octavo::offline
