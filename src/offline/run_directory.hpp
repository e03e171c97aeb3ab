// The directory that a checkpoint grows in until it is complete.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "octavo/result.hpp"
#include "offline/files.hpp"

namespace octavo::offline {

/// OUT.partial.
std::filesystem::path partial_path(const std::filesystem::path& out);

/// OUT.partial, with a file that says which run it belongs to and that is locked until OUT has its
/// name and the file is gone. Of what the same run left there, the shards are kept; everything else
/// is removed, and what no run has made is refused.
class RunDirectory {
 public:
  static Result<RunDirectory> open(const std::filesystem::path& out, const std::string& fingerprint,
                                   const std::vector<std::string>& shards);
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  /// Gives the directory its name.
  Status finish();

 private:
  Result<FileDescriptor> lock(const std::string& fingerprint) const;

  std::filesystem::path out_;
  std::filesystem::path path_;
  FileDescriptor lock_;
};

/// Refuses shards whose names loaders would not know, or that would become one file where case does
/// not count.
Status check_shard_names(const std::vector<std::string>& shards);

struct CarriedOver {
  std::vector<std::string> skipped;  ///< what was left out, and why
  std::vector<std::string> links;    ///< what of the input is a link out of it, and where to
};
/// Copies files that are not weights, directories included, and flushes them. A file that has the
/// name of one that is written here is left out, so none takes the place of another.
Result<CarriedOver> carry_over(const std::filesystem::path& from, const std::filesystem::path& to,
                               const std::vector<std::string>& shards);

}  // namespace octavo::offline
