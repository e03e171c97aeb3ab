// Reads the header event by event: nothing of a hostile one is kept but what it may hold.
#include "offline/safetensors_header.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "offline/files.hpp"
#include "offline/json_text.hpp"

namespace octavo::offline {
namespace {

using Json = nlohmann::json;

// The JSON reader of the reference also takes an entry as an array of its three fields in order,
// and a type as {"F32": null}; so does this one, to accept and reject the same files.
class HeaderEvents {
 public:
  std::vector<StoredTensor> tensors;
  std::vector<std::pair<std::string, std::string>> metadata;
  std::string problem;

  bool null() {
    if (state_ == State::dtype) return true;
    if (state_ == State::top && tensor_.name == metadata_key) return true;
    return other("null");
  }
  bool boolean(bool) { return other("a boolean"); }
  // Only negative numbers come as signed ones, -0 included.
  bool number_integer(Json::number_integer_t) { return other("a negative number"); }
  bool number_float(Json::number_float_t, const std::string&) { return other("a fraction"); }
  bool binary(Json::binary_t&) { return other("binary data"); }
  bool number_unsigned(Json::number_unsigned_t value) {
    if (state_ == State::shape) {
      tensor_.shape.push_back(value);
      return true;
    }
    if (state_ == State::offsets) {
      if (offsets_ == 2) return fail("expected two data_offsets, got more");
      (offsets_ == 0 ? tensor_.begin : tensor_.end) = value;
      ++offsets_;
      return true;
    }
    return other("a number");
  }
  bool string(std::string& value) {
    if (state_ == State::metadata) {
      metadata.emplace_back(std::move(key_), std::move(value));
      return true;
    }
    if (is_entry() && next_field() == Field::dtype) return set_type(value);
    return other("a string");
  }

  bool key(std::string& name) {
    switch (state_) {
      case State::top:
        tensor_ = StoredTensor{};
        tensor_.name = std::move(name);
        if (tensor_.name == metadata_key && std::exchange(has_metadata_, true))
          return fail("duplicate key \"__metadata__\"");
        return true;
      case State::metadata:
        key_ = std::move(name);
        return true;
      case State::entry:
        return set_field(name);
      case State::dtype:
        if (seen_variant_) return fail("expected one type");
        seen_variant_ = true;
        return set_type(name);
      default:
        return true;
    }
  }

  bool start_object(std::size_t) {
    ++depth_;
    if (state_ == State::outside) return enter(State::top);
    if (state_ == State::top) {
      if (tensor_.name == metadata_key) return enter(State::metadata);
      begin_entry();
      return enter(State::entry);
    }
    if (is_entry()) {
      const Field field = next_field();
      if (field == Field::dtype) {
        seen_variant_ = false;
        return enter(State::dtype);
      }
      if (field == Field::unknown) return enter_skipped();
    }
    return state_ == State::skipped || other("an object");
  }
  bool start_array(std::size_t) {
    ++depth_;
    if (state_ == State::top && tensor_.name != metadata_key) {
      begin_entry();
      return enter(State::entry_array);
    }
    if (is_entry()) {
      const Field field = next_field();
      if (field == Field::shape) return enter(State::shape);
      if (field == Field::offsets) return enter(State::offsets);
      if (field == Field::unknown) return enter_skipped();
    }
    return state_ == State::skipped || other("an array");
  }
  bool end_object() { return leave(); }
  bool end_array() { return leave(); }
  bool parse_error(std::size_t, const std::string&, const Json::exception& e) {
    if (problem.empty())
      problem = fmt::format("expected JSON in the header: {}", in_quotes(e.what()));
    return false;
  }

 private:
  enum class State { outside, top, metadata, entry, entry_array, dtype, shape, offsets, skipped };
  enum class Field { dtype = 0, shape = 1, offsets = 2, unknown = 3, excess = 4 };
  static constexpr std::string_view metadata_key = "__metadata__";

  [[nodiscard]] bool is_entry() const {
    return state_ == State::entry || state_ == State::entry_array;
  }
  bool enter(State state) {
    state_ = state;
    return true;
  }
  bool enter_skipped() {
    skipped_from_ = depth_;
    before_skipped_ = state_;
    return enter(State::skipped);
  }
  void begin_entry() {
    seen_ = 0;
    offsets_ = 0;
    position_ = 0;
  }

  // The field that a value belongs to; in an array it is told by the position.
  Field next_field() {
    if (state_ == State::entry) return field_;
    const int at = position_++;
    if (at > 2) return Field::excess;
    seen_ |= 1U << static_cast<unsigned>(at);
    in_array_ = true;
    return static_cast<Field>(at);
  }
  bool set_field(std::string_view name) {
    in_array_ = false;
    field_ = name == "dtype"          ? Field::dtype
             : name == "shape"        ? Field::shape
             : name == "data_offsets" ? Field::offsets
                                      : Field::unknown;
    if (field_ == Field::unknown) return true;
    const unsigned bit = 1U << static_cast<unsigned>(field_);
    if ((seen_ & bit) != 0) return fail(fmt::format("duplicate key {}", in_quotes(name)));
    seen_ |= bit;
    return true;
  }
  bool set_type(std::string_view name) {
    const auto type = parse_stored_type(name);
    if (!type) return fail(fmt::format("expected a dtype of the format, got {}", in_quotes(name)));
    tensor_.type = *type;
    return true;
  }

  bool leave() {
    --depth_;
    switch (state_) {
      case State::top:
        return enter(State::outside);
      case State::metadata:
        return enter(State::top);
      case State::entry:
      case State::entry_array:
        if (seen_ != 7U) return fail("expected dtype, shape and data_offsets, got fewer");
        tensors.push_back(std::move(tensor_));
        return enter(State::top);
      case State::dtype:
        if (!seen_variant_) return fail("expected one type");
        return back_to_entry();
      case State::offsets:
        if (offsets_ != 2) return fail("expected two data_offsets, got fewer");
        return back_to_entry();
      case State::shape:
        return back_to_entry();
      case State::skipped:
        if (depth_ < skipped_from_) return enter(before_skipped_);
        return true;
      case State::outside:
        break;
    }
    return true;
  }
  bool back_to_entry() { return enter(in_array_ ? State::entry_array : State::entry); }

  // A value of a kind that does not belong here, unless nobody looks at it.
  bool other(std::string_view kind) {
    if (state_ == State::skipped) return true;
    if (state_ == State::entry && field_ == Field::unknown) return true;
    if (state_ == State::metadata)
      return fail(fmt::format("expected strings in __metadata__, got {}", kind));
    if (state_ == State::outside) return fail(fmt::format("expected an object, got {}", kind));
    return fail(fmt::format("expected a tensor's dtype, shape and data_offsets, got {}", kind));
  }
  bool fail(std::string text) {
    if (depth_ > 0 && state_ != State::metadata && tensor_.name != metadata_key)
      text = fmt::format("tensor {}: {}", in_quotes(tensor_.name), text);
    problem = std::move(text);
    return false;
  }

  State state_ = State::outside;
  State before_skipped_ = State::outside;
  Field field_ = Field::unknown;
  StoredTensor tensor_;
  std::string key_;
  unsigned seen_ = 0;
  int depth_ = 0, skipped_from_ = 0, offsets_ = 0, position_ = 0;
  bool has_metadata_ = false, seen_variant_ = false, in_array_ = false;
};

// The tensors must fill the data, each once, in their order.
Status check_layout(const std::vector<StoredTensor>& tensors, std::uint64_t data_bytes,
                    const std::string& path) {
  std::uint64_t at = 0;
  for (const StoredTensor& t : tensors) {
    if (t.end < t.begin)
      return bad_tensor(
          path, t.name,
          fmt::format("expected its end to follow its start, got data_offsets [{}, {}]", t.begin,
                      t.end));
    if (t.begin != at)
      return bad_tensor(
          path, t.name,
          fmt::format("expected its data at offset {}, where the one before ends, got {}"
                      " (a gap or an overlap)",
                      at, t.begin));
    at = t.end;
    const StoredSize size = stored_size(t.type, t.shape);
    if (size.kind == StoredSize::Kind::overflow)
      return bad_tensor(path, t.name, "expected a shape of fewer than 2^64 bits, got more");
    if (size.kind == StoredSize::Kind::partial_byte)
      return bad_tensor(path, t.name,
                        fmt::format("expected whole bytes, got shape {} of {}", to_string(t.shape),
                                    name(t.type)));
    if (t.size() != size.bytes)
      return bad_tensor(path, t.name,
                        fmt::format("expected {} bytes for shape {} of {}, got {}", size.bytes,
                                    to_string(t.shape), name(t.type), t.size()));
  }
  const auto sizes = [&](std::string_view what) {
    return fmt::format("expected {} bytes of data as the header says, got {}; the file is {}", at,
                       data_bytes, what);
  };
  if (at < data_bytes) return bad_file(path, sizes("too long"));
  // The first tensor that is not all there.
  for (const StoredTensor& t : tensors)
    if (t.end > data_bytes) return bad_tensor(path, t.name, sizes("truncated"));
  return {};
}

template <class T, class Name>
const T* duplicate(std::vector<T>& items, const Name& name_of) {
  std::sort(items.begin(), items.end(),
            [&](const T& a, const T& b) { return name_of(a) < name_of(b); });
  const auto found = std::adjacent_find(
      items.begin(), items.end(), [&](const T& a, const T& b) { return name_of(a) == name_of(b); });
  return found == items.end() ? nullptr : &*found;
}

}  // namespace

StoredSize stored_size(StoredType type, const std::vector<std::uint64_t>& shape) {
  std::uint64_t count = static_cast<std::uint64_t>(1);
  for (const std::uint64_t size : shape)
    if (__builtin_mul_overflow(count, size, &count)) return {StoredSize::Kind::overflow, 0};
  if (__builtin_mul_overflow(count, static_cast<std::uint64_t>(bits(type)), &count))
    return {StoredSize::Kind::overflow, 0};
  if (count % 8 != 0) return {StoredSize::Kind::partial_byte, 0};
  return {StoredSize::Kind::valid, count / 8};
}

std::string to_string(const std::vector<std::uint64_t>& shape) {
  constexpr std::size_t most = 16;
  const auto end = shape.begin() + static_cast<std::ptrdiff_t>(std::min(most, shape.size()));
  return fmt::format("[{}{}]", fmt::join(shape.begin(), end, ", "),
                     shape.size() > most ? ", ..." : "");
}

Result<Header> parse_header(std::string_view text, std::uint64_t data_bytes,
                            const std::string& path) {
  if (Status s = check_json(path, text); !s) return s.error();
  if (text.starts_with(byte_order_mark))  // which the JSON library would skip
    return bad_file(path, "expected JSON in the header, got a byte order mark");
  HeaderEvents events;
  if (!Json::sax_parse(text.begin(), text.end(), &events) || !events.problem.empty())
    return bad_file(path, events.problem.empty() ? "expected JSON in the header" : events.problem);

  if (const auto* twice =
          duplicate(events.tensors, [](const auto& t) -> const std::string& { return t.name; }))
    return bad_tensor(path, twice->name, "expected one tensor of this name, got two");
  if (const auto* twice =
          duplicate(events.metadata, [](const auto& m) -> const std::string& { return m.first; }))
    return bad_file(
        path, fmt::format("expected one key {} in __metadata__, got two", in_quotes(twice->first)));
  // Names break ties between empty tensors, so that the order does not depend on the library.
  std::stable_sort(events.tensors.begin(), events.tensors.end(),
                   [](const StoredTensor& a, const StoredTensor& b) {
                     return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
                   });
  if (Status s = check_layout(events.tensors, data_bytes, path); !s) return s.error();
  Header header;
  header.tensors = std::move(events.tensors);
  for (auto& [key, value] : events.metadata) header.metadata.emplace(key, std::move(value));
  return header;
}

}  // namespace octavo::offline
