#include "files.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "octavo/safetensors.hpp"

namespace octavo::fuzz {

namespace fs = std::filesystem;

void require(bool holds, std::string_view what) {
  if (holds) return;
  std::fprintf(stderr, "expected: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

void check(const Error& error) { require(!error.message().empty(), "a refusal that says why"); }

namespace {

// More than any small model needs; an input that wants more gets an empty tensor.
constexpr std::uint64_t most_bytes = 1 << 17;

const fs::path& base() {
  // (Never destroyed, for it is used at the very end.)
  static const fs::path& path = *new fs::path([] {
    const fs::path memory = "/dev/shm";
    std::string p =
        (fs::exists(memory) ? memory : fs::temp_directory_path()) / "octavo-fuzz-XXXXXX";
    require(::mkdtemp(p.data()) != nullptr, "a directory of our own");
    std::atexit([] { fs::remove_all(base()); });
    return p;
  }());
  return path;
}

// Takes what comes before `end`, and `end`, away from the front of a text.
std::string_view take(std::string_view& text, std::string_view end) {
  const std::size_t at = std::min(text.find(end), text.size());
  const std::string_view taken = text.substr(0, at);
  text.remove_prefix(std::min(text.size(), at + end.size()));
  return taken;
}

template <class T>
T number_in(std::string_view text, T otherwise) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : otherwise;
}

// A relative name that stays inside, of at most three directories.
bool is_name(std::string_view name) {
  if (name.empty() || name.size() > 100 || name.find('\0') != std::string_view::npos) return false;
  int parts = 0;
  while (!name.empty()) {
    const std::string_view part = take(name, "/");
    if (part.empty() || part == "." || part == ".." || ++parts > 4) return false;
  }
  return true;
}

// One value in the bytes of a type, little-endian: a float if it is one, else an integer.
std::string encoded(StoredType type, std::string_view text) {
  const double real = number_in<double>(text, 0);
  const auto single = static_cast<float>(real);
  std::uint64_t raw = 0;
  if (type == StoredType::F64)
    raw = std::bit_cast<std::uint64_t>(real);
  else if (type == StoredType::F32)
    raw = std::bit_cast<std::uint32_t>(single);
  else if (type == StoredType::F16)
    raw = to_f16(single).bits;
  else if (type == StoredType::BF16)
    raw = to_bf16(single).bits;
  else
    raw = static_cast<std::uint64_t>(number_in<std::int64_t>(text, 0));
  std::string bytes(static_cast<std::size_t>(std::max(bits(type) / 8, 1)), '\0');
  std::memcpy(bytes.data(), &raw, bytes.size());
  return bytes;
}

// A header before its data, with the length of it.
std::string safetensors(std::string_view header, std::string_view data) {
  const std::uint64_t length = header.size();
  std::string out(sizeof(length), '\0');
  std::memcpy(out.data(), &length, sizeof(length));
  return out.append(header).append(data);
}

// Names and types stand in the header as they stand in the list, right or wrong.
std::string safetensors_of(std::string_view list) {
  std::string metadata, header, data;
  while (!list.empty()) {
    std::string_view line = take(list, "\n");
    const std::string name(take(line, " "));
    if (name == "#") {
      const std::string key(take(line, " "));
      metadata += (metadata.empty() ? "\"" : ",\"") + key + "\":\"" + std::string(line) + "\"";
      continue;
    }
    const std::string type(take(line, " "));
    std::string_view sizes = take(line, " ");
    const auto known = parse_stored_type(type);
    std::string shape;
    std::uint64_t bytes = known ? static_cast<std::uint64_t>(bits(*known)) : 0;
    while (!sizes.empty()) {
      const std::string_view size = take(sizes, "x");
      shape.append(shape.empty() ? "" : ",").append(size);
      if (__builtin_mul_overflow(bytes, number_in<std::uint64_t>(size, 0), &bytes)) bytes = 0;
    }
    bytes = (bytes + 7) / 8;
    if (bytes + data.size() > most_bytes) bytes = 0;
    const std::string begin = std::to_string(data.size());
    std::string values;
    while (known && !line.empty()) values += encoded(*known, take(line, " "));
    if (values.empty()) values = std::string(1, '\0');
    for (std::uint64_t i = 0; i < bytes; ++i) data += values[i % values.size()];
    header.append(",\"").append(name).append(R"(":{"dtype":")").append(type);
    header.append(R"(","shape":[)").append(shape).append(R"(],"data_offsets":[)");
    header.append(begin).append(",").append(std::to_string(data.size())).append("]}");
  }
  if (!metadata.empty()) metadata = "\"__metadata__\":{" + metadata + "}";
  if (metadata.empty() && !header.empty()) header.erase(0, 1);
  header = "{" + metadata + header + "}";
  header.append((8 - header.size() % 8) % 8, ' ');  // so that data may be aligned
  return safetensors(header, data);
}

void write(const fs::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

void make(const Files& files, std::string_view title, std::string_view content) {
  const std::string_view name = take(title, " ");
  const fs::path path = files / name;
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  if (error || fs::is_symlink(path, error) || fs::exists(path, error)) return;
  if (title == "directory") {
    fs::create_directory(path, error);
  } else if (title == "link") {
    fs::create_symlink(files / take(content, "\n"), path, error);
  } else if (title == "tensors") {
    write(path, safetensors_of(content));
  } else if (title == "header") {
    const std::string_view header = take(content, "\n");
    write(path, safetensors(header, content));
  } else {
    write(path, content);
  }
}

}  // namespace

Words::Words(std::string_view line) {
  while (!line.empty()) words_.emplace_back(take(line, " "));
}

bool Words::has(std::string_view word) const {
  return std::find(words_.begin(), words_.end(), word) != words_.end();
}

std::vector<std::string> Words::values(std::string_view name) const {
  std::vector<std::string> out;
  for (const std::string& word : words_)
    if (const std::size_t at = word.find('='); at == name.size() && word.starts_with(name))
      out.push_back(word.substr(at + 1));
  return out;
}

std::optional<std::string> Words::value(std::string_view name) const {
  const std::vector<std::string> all = values(name);
  return all.empty() ? std::nullopt : std::optional(all.front());
}

double Words::number(std::string_view name, double otherwise) const {
  const auto text = value(name);
  return text ? number_in<double>(*text, otherwise) : otherwise;
}

Files::Files(const std::uint8_t* data, std::size_t size) : words_(std::string_view()) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  std::string_view first = take(rest, "\n== ");
  words_ = Words(take(first, "\n"));
  fs::create_directories(base() / "input");
  while (!rest.empty()) {
    std::string_view content = take(rest, "\n== ");
    const std::string_view title = take(content, "\n");
    make(*this, title, content);
  }
}

Files::~Files() {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(base(), ignored))
    fs::remove_all(entry.path(), ignored);
}

fs::path Files::operator/(std::string_view name) const {
  return base() / "input" / (is_name(name) ? name : "unnamed");
}

fs::path Files::other(std::string_view name) { return base() / name; }

std::string read_bytes(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::map<std::string, std::string> read_tree(const fs::path& directory) {
  std::map<std::string, std::string> out;
  std::error_code error;
  for (fs::recursive_directory_iterator it(directory, error), end; !error && it != end;
       it.increment(error))
    if (fs::is_regular_file(it->symlink_status(error)))
      out[it->path().lexically_relative(directory).string()] = read_bytes(it->path());
  return out;
}

}  // namespace octavo::fuzz
