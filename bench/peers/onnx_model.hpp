// Writes ONNX models of a single node: as much of the protobuf format as that takes, for a library
// that writes it would be the largest part of the plugin. The numbers are those of onnx.proto.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace octavo::bench::onnx {

enum Type : std::uint8_t { f32 = 1, u8 = 2, s8 = 3 };

// A message: fields one after another.
class Message {
 public:
  Message& number(int field, std::uint64_t value) {
    varint(static_cast<std::uint64_t>(field) << 3);
    varint(value);
    return *this;
  }
  Message& bytes(int field, std::string_view value) {
    varint(static_cast<std::uint64_t>(field) << 3 | 2);
    varint(value.size());
    text_.append(value);
    return *this;
  }
  Message& message(int field, const Message& value) { return bytes(field, value.text_); }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  void varint(std::uint64_t value) {
    for (; value >= 128; value >>= 7) text_.push_back(static_cast<char>(value | 128));
    text_.push_back(static_cast<char>(value));
  }
  std::string text_;
};

using Dims = std::vector<std::int64_t>;

// A constant.
inline Message tensor(const char* name, Type type, const Dims& dims, const void* data,
                      std::size_t bytes) {
  Message m;
  for (const auto d : dims) m.number(1, static_cast<std::uint64_t>(d));
  m.number(2, type).bytes(8, name);
  return m.bytes(9, {static_cast<const char*>(data), bytes});
}

// The type of an input or output.
inline Message value(const char* name, Type type, const Dims& dims) {
  Message shape;
  for (const auto d : dims) shape.message(1, Message().number(1, static_cast<std::uint64_t>(d)));
  const Message tensor_type = Message().number(1, type).message(2, shape);
  return Message().bytes(1, name).message(2, Message().message(1, tensor_type));
}

// An attribute that is an integer.
using Attribute = std::pair<const char*, std::int64_t>;

// y = op(inputs), one of which is x and the others are constants.
inline std::string model(const char* op, const std::vector<const char*>& inputs, const Message& x,
                         const Message& y, const std::vector<Message>& constants,
                         const std::vector<Attribute>& attributes = {}) {
  constexpr std::uint64_t integer = 2;
  Message node, graph;
  for (const char* name : inputs) node.bytes(1, name);
  node.bytes(2, "y").bytes(4, op);
  for (const auto& [name, number] : attributes)
    node.message(
        5,
        Message().bytes(1, name).number(3, static_cast<std::uint64_t>(number)).number(20, integer));
  node.bytes(7, "com.microsoft");
  graph.message(1, node).bytes(2, "linear");
  for (const auto& constant : constants) graph.message(5, constant);
  graph.message(11, x).message(12, y);
  const Message standard = Message().bytes(1, "").number(2, 17);
  const Message extended = Message().bytes(1, "com.microsoft").number(2, 1);
  return Message().number(1, 8).message(7, graph).message(8, standard).message(8, extended).text();
}

}  // namespace octavo::bench::onnx
