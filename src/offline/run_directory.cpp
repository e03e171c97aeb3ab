#include "offline/run_directory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <map>
#include <set>

#include "core/check.hpp"
#include "octavo/checkpoint.hpp"
#include "offline/statistics_access.hpp"

namespace octavo::offline {

namespace fs = std::filesystem;

namespace {

constexpr const char* state_name = ".octavo-run";
// Of what stands in it: see fingerprint.
constexpr std::string_view mark_start = "octavo quantize ";

// Everything but the mark of the run and finished files of these names.
Status remove_all_but(const fs::path& directory, const std::set<std::string>& kept) {
  std::error_code error;
  std::vector<fs::path> old;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name != state_name && !(kept.contains(name) && fs::is_regular_file(it->symlink_status())))
      old.push_back(it->path());
  }
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
  if (!is_there(path)) return true;
  return fs::is_directory(fs::symlink_status(path, error)) && fs::is_empty(path, error);
}

// The mark of a run in this directory, locked. A closed descriptor: there is none, or it was taken
// away before it was locked.
Result<FileDescriptor> lock_state(const fs::path& directory, int flags) {
  const fs::path path = directory / state_name;
  // A link that someone has put there is not followed, a pipe not waited for.
  FileDescriptor file(
      ::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | flags, 0666));
  if (!file.is_open() && (errno == ENOENT || errno == ENOTDIR)) return file;
  if (!file.is_open() && errno != ELOOP) return system_error(path.string(), "open", errno);
  struct stat opened {};
  struct stat named {};
  if (!file.is_open() || ::fstat(file.get(), &opened) != 0 || !S_ISREG(opened.st_mode) ||
      opened.st_nlink > 1)
    return bad_file(path.string(),
                    "expected the mark of an earlier run, got a link or something else; remove it, "
                    "or give another name for the output");
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0)
    return Error(ErrorCode::backend, "out",
                 fmt::format("out: another run is writing {}; wait for it, or give another name",
                             directory.string()));
  if (::lstat(path.c_str(), &named) != 0 || named.st_ino != opened.st_ino ||
      named.st_dev != opened.st_dev)
    return FileDescriptor();
  return file;
}

Result<bool> holds(const FileDescriptor& state, const fs::path& path, const std::string& text) {
  const auto start = read_start(state, path.string(), text.size() + 1);
  if (!start) return start.error();
  return *start == text;
}

std::string lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

// Weights in other forms, or parts of ones that are not read here, would only be mistaken for
// the quantized ones.
bool is_weights(const fs::path& path) {
  constexpr std::array<std::string_view, 11> endings{".safetensors", ".bin",     ".pt",    ".pth",
                                                     ".h5",          ".msgpack", ".gguf",  ".onnx",
                                                     ".ckpt",        ".ot",      ".tflite"};
  const std::string extension = lower(path.extension().string());
  return std::find(endings.begin(), endings.end(), extension) != endings.end();
}

// Of a link out of the input, where it leads; empty if it stays. A snapshot in the cache of the
// Hugging Face hub is all links to ../../blobs, which belong to the same model.
std::string way_out(const fs::directory_entry& entry, const fs::path& in) {
  if (!entry.is_symlink()) return {};
  std::error_code error;
  const fs::path target = fs::weakly_canonical(entry.path(), error);
  const fs::path snapshots = in.parent_path();
  if (is_inside(target, in) ||
      (snapshots.filename() == "snapshots" &&
       is_inside(target, fs::weakly_canonical(snapshots.parent_path() / "blobs", error))))
    return {};
  return target.string();
}

Status copy_one(const fs::path& from, const fs::path& to) {
  const auto opened = open_file(from);
  if (!opened) return opened.error();
  std::error_code error;
  fs::create_directories(to.parent_path(), error);
  if (!error) fs::copy_file(from, to, fs::copy_options::none, error);
  if (error) return system_error(to.string(), "copy " + from.string() + " to this", error.value());
  if (Status s = flush(to); !s) return s;
  return check_unchanged(from, opened->stamp);
}

// Why a file of the input is left out; empty if it is not.
std::string reason_to_skip(const fs::directory_entry& entry, const std::string& name,
                           const std::set<std::string>& written) {
  if (!entry.is_regular_file()) {
    const fs::file_type type = entry.status().type();
    return fmt::format("{}{}", kind_name(type),
                       type == fs::file_type::not_found ? "" : ", not a file");
  }
  if (written.contains(lower(name))) return "has the name of a file that is written here";
  if (is_shard_name(name)) {
    const auto file = SafetensorsFile::open(entry.path());
    return file && is_statistics(*file) ? "statistics, which loaders would take for weights"
                                        : "weights that are not a part of this checkpoint";
  }
  if (name.ends_with(".safetensors.index.json")) return "an index of other weights";
  return is_weights(name) ? "weights in another form" : "";
}

}  // namespace

fs::path partial_path(const fs::path& out) {
  fs::path partial = out;
  partial += ".partial";
  return partial;
}

Result<FileDescriptor> RunDirectory::lock(const std::string& fingerprint) const {
  // A run that was stopped just after the directory got its name is taken up like any other; one
  // that is about to remove its mark there holds the lock.
  std::error_code error;
  if (!is_there(path_) && fs::is_directory(fs::symlink_status(out_, error))) {
    auto left = lock_state(out_, 0);
    if (!left) return left;
    if (left->is_open()) {
      const auto same = holds(*left, out_ / state_name, fingerprint);
      if (!same) return same.error();
      if (*same) {
        fs::rename(out_, path_, error);
        if (!error) return left;
        return system_error(path_.string(), "rename " + out_.string() + " to this", error.value());
      }
    }
  }
  if (!is_free(out_))
    return detail::invalid("out", fmt::format("expected a new or empty directory, got {}, which "
                                              "exists: remove it, or give another name",
                                              out_.string()));
  const auto not_ours = [&] {
    return detail::invalid("out",
                           fmt::format("expected {} to be new or left by an earlier run, got "
                                       "something else; move it, or give another name",
                                       path_.string()));
  };
  // Nothing is removed that a run did not make.
  if (fs::is_symlink(fs::symlink_status(path_, error))) return not_ours();
  auto state = lock_state(path_, 0);
  if (!state) return state;
  if (state->is_open()) {
    const auto start = read_start(*state, (path_ / state_name).string(), mark_start.size());
    if (!start) return start.error();
    // (Of a run that was stopped before it had written its mark there is nothing else.)
    const bool alone = start->empty() && std::distance(fs::directory_iterator(path_, error),
                                                       fs::directory_iterator()) == 1;
    if (*start != mark_start && !alone) return not_ours();
    return state;
  }
  if (!is_free(path_)) return not_ours();
  fs::create_directories(path_, error);
  if (error) return system_error(path_.string(), "create the directory", error.value());
  return lock_state(path_, O_CREAT);
}

Result<RunDirectory> RunDirectory::open(const fs::path& out, const std::string& fingerprint,
                                        const std::vector<std::string>& shards) {
  RunDirectory run;
  // Without a slash at its end, which would make ".partial" a file inside.
  run.out_ = fs::absolute(out).lexically_normal();
  if (!run.out_.has_filename()) run.out_ = run.out_.parent_path();
  run.path_ = partial_path(run.out_);
  // Again if another run has just finished: its result is there now.
  do {
    auto lock = run.lock(fingerprint);
    if (!lock) return lock.error();
    run.lock_ = *std::move(lock);
  } while (!run.lock_.is_open() || !is_free(run.out_));
  const fs::path state = run.path_ / state_name;
  const auto same = holds(run.lock_, state, fingerprint);
  if (!same) return same.error();
  const std::set<std::string> names(shards.begin(), shards.end());
  if (Status s = remove_all_but(run.path_, *same ? names : std::set<std::string>()); !s)
    return s.error();
  if (*same) return run;
  // What another run left must be gone for good before it could be taken for this run's.
  if (Status s = flush(run.path_); !s) return s.error();
  if (::ftruncate(run.lock_.get(), 0) != 0) return system_error(state.string(), "write", errno);
  if (Status s = write_at(run.lock_, state.string(), 0,
                          std::as_bytes(std::span(fingerprint.data(), fingerprint.size())));
      !s)
    return s.error();
  return run;
}

Status RunDirectory::finish() {
  // The directory keeps its mark until it has its name: a stop in between is taken back.
  if (Status s = flush(path_); !s) return s;
  // This replaces an empty directory, and nothing else.
  if (::rename(path_.c_str(), out_.c_str()) != 0)
    return system_error(out_.string(), "rename the finished directory to this", errno);
  const fs::path state = out_ / state_name;
  if (::unlink(state.c_str()) != 0) return system_error(state.string(), "remove", errno);
  return flush(out_.parent_path());
}

Status check_shard_names(const std::vector<std::string>& shards) {
  std::map<std::string, std::string> seen;
  for (const std::string& name : shards) {
    if (!is_shard_name(name))
      return bad_file(name,
                      "expected a file whose name ends in .safetensors, as the result's will");
    if (const auto [other, added] = seen.emplace(lower(name), name); !added)
      return bad_file(name,
                      fmt::format("expected names of files that differ in more than case, but "
                                  "there is {} too",
                                  in_quotes(other->second)));
  }
  return {};
}

Result<CarriedOver> carry_over(const fs::path& from, const fs::path& to,
                               const std::vector<std::string>& shards) {
  CarriedOver out;
  std::set<std::string> sources{config_name, index_name};
  sources.insert(shards.begin(), shards.end());
  std::set<std::string> written{smoothing_file_name, state_name};
  for (const std::string& name : sources) written.insert(lower(name));
  std::set<fs::path> directories;
  std::error_code error;
  const fs::path in = fs::weakly_canonical(from, error);
  fs::recursive_directory_iterator it(from, error);
  for (const fs::recursive_directory_iterator end; !error && it != end; it.increment(error)) {
    const fs::path relative = it->path().lexically_relative(from);
    const std::string name = relative.string();
    if (it->is_directory()) {
      if (it->is_symlink()) {
        out.skipped.push_back(name + ": a link to a directory");
      } else if (it->path().filename().string().starts_with('.')) {
        out.skipped.push_back(name + ": a hidden directory");
        it.disable_recursion_pending();
      }
      continue;
    }
    const bool is_source = sources.contains(name);
    if (!is_source) {
      if (const std::string reason = reason_to_skip(*it, name, written); !reason.empty()) {
        out.skipped.push_back(fmt::format("{}: {}", name, reason));
        continue;
      }
    }
    if (const std::string target = way_out(*it, in); !target.empty())
      out.links.push_back(fmt::format("{} -> {}", name, target));
    if (is_source) continue;
    if (Status s = copy_one(it->path(), to / relative); !s) return s.error();
    for (fs::path p = relative.parent_path(); !p.empty(); p = p.parent_path())
      directories.insert(to / p);
  }
  if (error) return system_error(from.string(), "read the directory", error.value());
  for (const fs::path& directory : directories)
    if (Status s = flush(directory); !s) return s.error();
  std::sort(out.skipped.begin(), out.skipped.end());
  std::sort(out.links.begin(), out.links.end());
  return out;
}

}  // namespace octavo::offline
