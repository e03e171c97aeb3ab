// For fuzzers of what is read from files: one input as a directory of them.
//
// An input is text where it can be, so that seeds are written and findings are read by eye:
//
//     w8a8-dynamic smooth alpha=auto            the first line: words, for the fuzzer
//     == in/config.json                         a file of the bytes that follow, up to the next ==
//     {"model_type": "llama"}
//     == in/model.safetensors tensors           a safetensors file, made from a list
//     # format pt                               metadata: a key, and a value
//     a.weight F32 2x3 0.5 -1 nan               name, type, shape, and values, again and again
//     == in/more.safetensors header             one of a header, and the data after its line
//     {"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}
//     x
//     == in/tokenizer.json link                 a link to a file of this input
//     in/config.json
//     == in/empty directory
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/result.hpp"

namespace octavo::fuzz {

/// Ends the program, with these words, unless `holds`.
void require(bool holds, std::string_view what);
/// Of a refusal: it must say something.
void check(const Error& error);
template <class T>
bool accepted(const Result<T>& result) {
  if (!result) check(result.error());
  return result.has_value();
}
inline bool accepted(const Status& status) {
  if (!status) check(status.error());
  return static_cast<bool>(status);
}

/// The words of a line.
class Words {
 public:
  explicit Words(std::string_view line);
  [[nodiscard]] bool has(std::string_view word) const;
  /// What follows "name=": of the first such word, or of all.
  [[nodiscard]] std::optional<std::string> value(std::string_view name) const;
  [[nodiscard]] std::vector<std::string> values(std::string_view name) const;
  /// A number there; `otherwise` if there is none.
  [[nodiscard]] double number(std::string_view name, double otherwise) const;

 private:
  std::vector<std::string> words_;
};

/// An input as files, in memory where there is /dev/shm. The directory is emptied for each.
class Files {
 public:
  Files(const std::uint8_t* data, std::size_t size);
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;
  ~Files();

  [[nodiscard]] const Words& words() const { return words_; }
  /// Of a file of the input. What is no name of one is "unnamed".
  [[nodiscard]] std::filesystem::path operator/(std::string_view name) const;
  /// Of one that the fuzzer writes: no name of the input is this.
  [[nodiscard]] static std::filesystem::path other(std::string_view name);

 private:
  Words words_;
};

/// All files below a directory by their names, and what is in them; no links.
std::map<std::string, std::string> read_tree(const std::filesystem::path& directory);
std::string read_bytes(const std::filesystem::path& path);

}  // namespace octavo::fuzz
