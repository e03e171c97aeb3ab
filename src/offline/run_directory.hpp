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

/// OUT.partial, with a file that says which run it belongs to and that is locked while one runs.
/// What another run left there is removed; what the same run left is kept; what no run has made is
/// refused.
class RunDirectory {
 public:
  static Result<RunDirectory> open(const std::filesystem::path& out,
                                   const std::string& fingerprint);
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  /// Gives the directory its name.
  Status finish();

 private:
  std::filesystem::path out_;
  std::filesystem::path path_;
  FileDescriptor lock_;
};

/// Copies files that are not weights, directories included; returns what was left out, and why.
Result<std::vector<std::string>> carry_over(const std::filesystem::path& from,
                                            const std::filesystem::path& to);

}  // namespace octavo::offline
