// The files of a checkpoint, found by an index or in a directory.
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "octavo/safetensors.hpp"
#include "offline/files.hpp"
#include "offline/json_text.hpp"
#include "offline/statistics_access.hpp"

namespace octavo {

using namespace offline;
namespace fs = std::filesystem;

namespace {

using Json = nlohmann::json;
using WeightMap = std::map<std::string, std::string>;  // tensor to file

constexpr std::uint64_t max_index_bytes = 100'000'000;

// {"metadata": anything, "weight_map": {tensor: file}}
class IndexEvents {
 public:
  WeightMap map;
  bool has_map = false;
  std::string problem;

  bool null() { return value("null"); }
  bool boolean(bool) { return value("a boolean"); }
  bool number_integer(Json::number_integer_t) { return value("a number"); }
  bool number_unsigned(Json::number_unsigned_t) { return value("a number"); }
  bool number_float(Json::number_float_t, const std::string&) { return value("a number"); }
  bool binary(Json::binary_t&) { return value("binary data"); }
  bool string(std::string& text) {
    if (!in_map()) return value("a string");
    if (!map.emplace(key_, std::move(text)).second)
      return fail(fmt::format("expected one file for tensor {}, got two", in_quotes(key_)));
    return true;
  }
  bool key(std::string& name) {
    key_ = std::move(name);
    if (depth_ != 1) return true;
    is_map_ = key_ == "weight_map";
    if (is_map_ && std::exchange(has_map, true)) return fail("expected one weight_map, got two");
    return true;
  }
  bool start_object(std::size_t) {
    if (in_map()) return value("an object");
    ++depth_;
    return true;
  }
  bool start_array(std::size_t) {
    if (depth_ == 0 || (is_map_ && depth_ <= 2)) return fail("expected an object, got an array");
    ++depth_;
    return true;
  }
  bool end_object() { return leave(); }
  bool end_array() { return leave(); }
  bool parse_error(std::size_t, const std::string&, const Json::exception& e) {
    if (problem.empty()) problem = fmt::format("expected JSON: {}", in_quotes(e.what()));
    return false;
  }

 private:
  [[nodiscard]] bool in_map() const { return is_map_ && depth_ == 2; }
  bool leave() {
    --depth_;
    return true;
  }
  bool value(std::string_view kind) {
    if (depth_ == 0 || (is_map_ && depth_ <= 2))
      return fail(fmt::format("expected a weight_map of tensors to file names, got {}", kind));
    return true;
  }
  bool fail(std::string text) {
    problem = std::move(text);
    return false;
  }
  std::string key_;
  int depth_ = 0;
  bool is_map_ = false;
};

Result<WeightMap> read_index(const fs::path& path, FileStamp& stamp) {
  const Result<std::string> text = read_text(path, max_index_bytes, &stamp);
  if (!text) return text.error();
  if (Status s = check_json(path.string(), *text); !s) return s.error();
  IndexEvents events;
  if (!Json::sax_parse(*text, &events) || !events.problem.empty())
    return bad_file(path.string(), events.problem.empty() ? "expected JSON" : events.problem);
  if (!events.has_map) return bad_file(path.string(), "expected a weight_map, got none");
  // By any other ending they would be taken for files that are carried over, or for our own.
  for (const auto& [tensor, file] : events.map)
    if (!is_shard_name(file))
      return bad_tensor(
          path.string(), tensor,
          fmt::format("expected the name of a .safetensors file beside the index, got {}",
                      in_quotes(file)));
  return std::move(events.map);
}

// Of a directory without weights: the first one in it that has some, as a question.
std::string where_else(const fs::path& directory) {
  std::set<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    std::error_code unread;
    if (!it->is_directory(unread) || it->path().filename().string().starts_with('.')) continue;
    for (fs::directory_iterator in(it->path(), unread); !unread && in != end; in.increment(unread))
      if (is_shard_name(in->path().filename().string())) found.insert(it->path());
  }
  return found.empty() ? "" : fmt::format("; did you mean {}?", found.begin()->string());
}

// The .safetensors files of a directory, in the order of their names; what is no file is refused
// when it is opened.
Result<std::vector<std::string>> files_of(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error))
    if (is_shard_name(it->path().filename().string()))
      names.push_back(it->path().filename().string());
  if (error) return system_error(directory.string(), "read the directory", error.value());
  if (names.empty())
    return bad_file(directory.string(), "expected .safetensors files in this directory, got none" +
                                            where_else(directory));
  std::sort(names.begin(), names.end());
  return names;
}

struct Listing {
  std::vector<std::string> names;
  WeightMap map;
};

Result<Listing> list(const fs::path& directory, const fs::path& index, FileStamp& stamp) {
  Listing listing;
  if (index.empty()) {
    auto names = files_of(directory);
    if (!names) return names.error();
    listing.names = *std::move(names);
    return listing;
  }
  auto map = read_index(index, stamp);
  if (!map) return map.error();
  listing.map = *std::move(map);
  std::set<std::string> names;
  for (const auto& entry : listing.map) names.insert(entry.second);
  listing.names.assign(names.begin(), names.end());
  return listing;
}

}  // namespace

Result<SafetensorsSet> SafetensorsSet::open(const fs::path& path) {
  return guarded(path.string(), [&]() -> Result<SafetensorsSet> {
    SafetensorsSet set;
    Listing listing;
    std::error_code error;
    if (fs::is_directory(path, error)) {
      set.directory_ = path;
      set.index_ = path / index_name;
      set.indexed_ = is_there(set.index_);
    } else {
      set.directory_ = path.has_parent_path() ? path.parent_path() : fs::path(".");
      set.indexed_ = path.extension() == ".json";
      if (set.indexed_) set.index_ = path;
    }
    if (set.index_.empty()) {
      listing.names.push_back(path.filename().string());
    } else {
      auto found = list(set.directory_, set.indexed_ ? set.index_ : "", set.index_stamp_);
      if (!found) return found.error();
      listing = *std::move(found);
    }

    set.files_ = std::make_shared<std::vector<SafetensorsFile>>();
    set.files_->reserve(listing.names.size());
    for (const std::string& name : listing.names) {
      auto file = SafetensorsFile::open(set.directory_ / name);
      if (!file) return file.error();
      // Statistics may lie beside the weights; where one is asked for by name, it is meant.
      if (!set.index_.empty() && !set.indexed_ && is_statistics(*file)) continue;
      set.files_->push_back(*std::move(file));
    }
    if (set.files_->empty() && !listing.names.empty())
      return bad_file(path.string(),
                      fmt::format("expected the weights of a model, got statistics only ({}){}",
                                  in_quotes(listing.names.front()), where_else(path)));
    set.entries_ = std::make_shared<std::map<std::string_view, Entry>>();
    for (const SafetensorsFile& file : *set.files_)
      for (const StoredTensor& tensor : file.tensors())
        if (const auto [other, added] = set.entries_->emplace(tensor.name, Entry{&file, &tensor});
            !added)
          return bad_tensor(file.path(), tensor.name,
                            fmt::format("expected each tensor in one file only, but {} has it too",
                                        other->second.file->path()));
    for (const auto& [tensor, name] : listing.map) {
      const Entry entry = set.find(tensor);
      if (!entry || fs::path(entry.file->path()).filename() != name)
        return bad_tensor(set.index_.string(), tensor,
                          fmt::format("expected it in {}, as this index says; it is {}",
                                      in_quotes(name), entry ? "in another file" : "in none"));
    }
    return set;
  });
}

Status SafetensorsSet::unchanged() const {
  if (!index_.empty())
    if (Status s = check_unchanged(index_, index_stamp_); !s) return s;
  for (const SafetensorsFile& file : *files_)
    if (Status s = check_unchanged(file.path(), file.stamp()); !s) return s;
  return {};
}

SafetensorsSet::Entry SafetensorsSet::find(std::string_view name) const noexcept {
  const auto found = entries_->find(name);
  return found == entries_->end() ? Entry{} : found->second;
}

}  // namespace octavo
