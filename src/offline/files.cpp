#include "offline/files.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <system_error>
#include <utility>

#include "offline/printable.hpp"

namespace octavo::offline {

namespace fs = std::filesystem;

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

namespace {

FileStamp stamp_of(const struct stat& info) {
  return {info.st_dev, info.st_ino, static_cast<std::uint64_t>(info.st_size),
          std::int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec};
}

}  // namespace

std::string_view kind_name(fs::file_type type) {
  switch (type) {
    case fs::file_type::directory:
      return "a directory";
    case fs::file_type::fifo:
      return "a pipe";
    case fs::file_type::socket:
      return "a socket";
    case fs::file_type::block:
    case fs::file_type::character:
      return "a device";
    case fs::file_type::not_found:
      return "a link to nothing";
    default:
      return "something else";
  }
}

Result<OpenedFile> open_file(const fs::path& path) {
  // Looked at before, since to open a device may do something, and after, since it may have been
  // exchanged meanwhile.
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::exists(status) && !fs::is_regular_file(status))
    return bad_file(path.string(),
                    fmt::format("expected a file, got {}", kind_name(status.type())));
  OpenedFile opened;
  opened.file = FileDescriptor(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  struct stat info {};
  if (!opened.file.is_open() || ::fstat(opened.file.get(), &info) != 0)
    return system_error(path.string(), "open", errno);
  if (!S_ISREG(info.st_mode)) return bad_file(path.string(), "expected a file, got something else");
  opened.stamp = stamp_of(info);
  return opened;
}

bool is_shard_name(const std::string& name) {
  return name.find_first_of(std::string_view("/\0", 2)) == std::string::npos &&
         fs::path(name).extension() == ".safetensors";
}

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

bool is_inside(const fs::path& path, const fs::path& directory) {
  return std::mismatch(directory.begin(), directory.end(), path.begin(), path.end()).first ==
         directory.end();
}

Status check_unchanged(const fs::path& path, const FileStamp& stamp) {
  struct stat info {};
  const FileStamp now = ::stat(path.c_str(), &info) == 0 ? stamp_of(info) : FileStamp{};
  if (now == stamp) return {};
  return bad_file(path.string(),
                  fmt::format("expected a file that stays as it is while it is read, got one that "
                              "{}; run again once it stays",
                              now == FileStamp{}     ? "was removed"
                              : stamp == FileStamp{} ? "was not there before"
                                                     : "was changed"));
}

Result<std::string> read_start(const FileDescriptor& file, const std::string& path,
                               std::size_t bytes) {
  std::string text(bytes, '\0');
  std::size_t have = 0;
  while (have < text.size()) {
    const ssize_t n =
        ::pread(file.get(), text.data() + have, text.size() - have, static_cast<off_t>(have));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error(path, "read", errno);
    if (n == 0) break;
    have += static_cast<std::size_t>(n);
  }
  text.resize(have);
  return text;
}

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

Status flush(const fs::path& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) return system_error(path.string(), "open", errno);
  // Some file systems cannot flush a directory, and say EINVAL.
  if (::fsync(file.get()) != 0 && errno != EINVAL)
    return system_error(path.string(), "flush", errno);
  return {};
}

Result<NewFile> NewFile::create(const fs::path& path) {
  // A name that no other writer has, even of the same file; what is there by chance is left alone.
  static std::atomic<unsigned> count{0};
  for (;;) {
    fs::path temporary = path;
    temporary += fmt::format(".{}-{}.tmp", ::getpid(), count++);
    FileDescriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (file.is_open()) return NewFile(std::move(file), path, std::move(temporary));
    if (errno != EEXIST) return system_error(path.string(), "create", errno);
  }
}

NewFile::~NewFile() {
  if (file_.is_open()) ::unlink(temporary_.c_str());
}

Status NewFile::write(std::uint64_t offset, std::span<const std::byte> bytes) const {
  return write_at(file_, path_.string(), offset, bytes);
}

Status NewFile::finish() {
  if (::fsync(file_.get()) != 0) return system_error(path_.string(), "flush", errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0)
    return system_error(path_.string(), "rename the finished file to this name", errno);
  file_ = FileDescriptor();
  return {};
}

Status write_file(const fs::path& path, std::string_view text) {
  auto file = NewFile::create(path);
  if (!file) return file.error();
  if (Status s = file->write(0, std::as_bytes(std::span(text.data(), text.size()))); !s) return s;
  return file->finish();
}

Result<std::string> read_text(const fs::path& path, std::uint64_t most, FileStamp* stamp) {
  const auto opened = open_file(path);
  if (!opened) return opened.error();
  const std::uint64_t size = opened->stamp.size;
  if (size > most)
    return bad_file(path.string(), fmt::format("expected at most {} bytes, got {}", most, size));
  if (stamp != nullptr) *stamp = opened->stamp;
  return read_start(opened->file, path.string(), size);
}

}  // namespace octavo::offline
