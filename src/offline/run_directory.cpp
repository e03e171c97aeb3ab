#include "offline/run_directory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace octavo::offline {

namespace fs = std::filesystem;

namespace {

constexpr const char* state_name = ".octavo-run";

Status remove_all_but_state(const fs::path& directory) {
  std::error_code error;
  std::vector<fs::path> old;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error))
    if (it->path().filename() != state_name) old.push_back(it->path());
  for (const fs::path& path : old) {
    if (error) break;
    fs::remove_all(path, error);
  }
  if (error) return system_error(directory.string(), "empty the directory", error.value());
  return {};
}

// Whether there is nothing, or an empty directory.
bool is_free(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(path, error))) return true;
  return fs::is_directory(fs::symlink_status(path, error)) && fs::is_empty(path, error);
}

// A run that was stopped just after the directory got its name is taken up like any other.
Status take_back(const fs::path& out, const fs::path& partial, const std::string& fingerprint) {
  std::error_code error;
  if (fs::exists(fs::symlink_status(partial, error)) ||
      file_start(out / state_name, fingerprint.size() + 1) != fingerprint)
    return {};
  fs::rename(out, partial, error);
  if (error)
    return system_error(partial.string(), "rename " + out.string() + " to this", error.value());
  return {};
}

// Weights in other forms, or parts of ones that are not read here, would only be mistaken for
// the quantized ones.
bool is_weights(const fs::path& path) {
  constexpr std::array<std::string_view, 11> endings{".safetensors", ".bin",     ".pt",    ".pth",
                                                     ".h5",          ".msgpack", ".gguf",  ".onnx",
                                                     ".ckpt",        ".ot",      ".tflite"};
  const std::string extension = path.extension().string();
  return std::find(endings.begin(), endings.end(), extension) != endings.end();
}

Status copy_one(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::create_directories(to.parent_path(), error);
  if (!error) fs::copy_file(from, to, fs::copy_options::overwrite_existing, error);
  if (error) return system_error(to.string(), "copy " + from.string() + " to this", error.value());
  return {};
}

}  // namespace

fs::path partial_path(const fs::path& out) {
  fs::path partial = out;
  partial += ".partial";
  return partial;
}

Result<RunDirectory> RunDirectory::open(const fs::path& out, const std::string& fingerprint) {
  RunDirectory run;
  // Without a slash at its end, which would make ".partial" a file inside.
  run.out_ = fs::absolute(out).lexically_normal();
  if (!run.out_.has_filename()) run.out_ = run.out_.parent_path();
  run.path_ = partial_path(run.out_);
  if (Status s = take_back(run.out_, run.path_, fingerprint); !s) return s.error();
  if (!is_free(run.out_))
    return Error(ErrorCode::invalid_problem, "out",
                 fmt::format("out: expected a new or empty directory, got {}, which is "
                             "something else",
                             out.string()));
  const fs::path state = run.path_ / state_name;
  std::error_code error;
  // Nothing is removed that a run did not make.
  if (!fs::exists(state, error) && !is_free(run.path_))
    return Error(ErrorCode::invalid_problem, "out",
                 fmt::format("out: expected {} to be new or left by an earlier run, got something "
                             "else; move it, or take another name",
                             run.path_.string()));
  fs::create_directories(run.path_, error);
  if (error) return system_error(run.path_.string(), "create the directory", error.value());
  run.lock_ = FileDescriptor(::open(state.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!run.lock_.is_open()) return system_error(state.string(), "create", errno);
  if (::flock(run.lock_.get(), LOCK_EX | LOCK_NB) != 0)
    return Error(ErrorCode::backend, "out",
                 fmt::format("out: another run is writing {}", run.path_.string()));
  if (file_start(state, fingerprint.size() + 1) == fingerprint) return run;
  if (Status s = remove_all_but_state(run.path_); !s) return s.error();
  if (::ftruncate(run.lock_.get(), 0) != 0) return system_error(state.string(), "write", errno);
  if (Status s = write_at(run.lock_, state.string(), 0,
                          std::as_bytes(std::span(fingerprint.data(), fingerprint.size())));
      !s)
    return s.error();
  return run;
}

Status RunDirectory::finish() {
  std::error_code error;
  // The directory keeps its mark until it has its name: a stop in between is taken back.
  if (Status s = flush(path_); !s) return s;
  if (fs::exists(out_, error)) fs::remove(out_, error);  // it is empty
  if (!error) fs::rename(path_, out_, error);
  if (error)
    return system_error(out_.string(), "rename the finished directory to this", error.value());
  fs::remove(out_ / state_name, error);
  return flush(out_.parent_path());
}

Result<std::vector<std::string>> carry_over(const fs::path& from, const fs::path& to) {
  std::vector<std::string> skipped;
  std::error_code error;
  fs::recursive_directory_iterator it(from, error);
  for (const fs::recursive_directory_iterator end; !error && it != end; it.increment(error)) {
    const fs::path relative = it->path().lexically_relative(from);
    const std::string name = relative.string();
    if (it->is_directory()) {
      if (it->is_symlink()) skipped.push_back(name + ": a link to a directory");
      if (it->path().filename().string().starts_with('.')) it.disable_recursion_pending();
      continue;
    }
    if (!it->is_regular_file() || name == "config.json" ||
        name.ends_with(".safetensors.index.json"))
      continue;
    const bool top = !relative.has_parent_path();
    if (top && it->path().extension() == ".safetensors") continue;  // written by their own
    if (is_weights(relative)) {
      skipped.push_back(name + ": weights in another form");
      continue;
    }
    if (Status s = copy_one(it->path(), to / relative); !s) return s.error();
  }
  if (error) return system_error(from.string(), "read the directory", error.value());
  std::sort(skipped.begin(), skipped.end());
  return skipped;
}

}  // namespace octavo::offline
