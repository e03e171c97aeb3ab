// What the tests of the C interface share: C++ views as C structs, and handles that free
// themselves.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <memory>
#include <string>

#include "octavo/octavo.h"
#include "octavo/octavo.hpp"

namespace octavo::testing {

struct Destroy {
  void operator()(octavo_stream* s) const { octavo_stream_destroy(s); }
  void operator()(octavo_plan* p) const { octavo_plan_destroy(p); }
  void operator()(octavo_packed_weight* w) const { octavo_packed_weight_destroy(w); }
  void operator()(octavo_observer_state* s) const { octavo_observer_state_destroy(s); }
};
template <class T>
using Handle = std::unique_ptr<T, Destroy>;

/// Takes what `make(&out)` gives; fails the test if it refuses.
template <class T, class Make>
Handle<T> made(Make make) {
  T* out = nullptr;
  EXPECT_EQ(make(&out), OCTAVO_OK) << octavo_last_error()->message;
  return Handle<T>(out);
}

[[nodiscard]] inline Handle<octavo_stream> c_stream(int threads = 0) {
  octavo_stream_options options{sizeof options, threads, {}};
  return made<octavo_stream>(
      [&](octavo_stream** out) { return octavo_stream_create(&options, out); });
}

/// Scratch memory of a plan.
class CWorkspace {
 public:
  explicit CWorkspace(const octavo_plan* plan) : bytes(octavo_plan_workspace_size(plan)) {
    EXPECT_EQ(octavo_workspace_create(bytes, &data), OCTAVO_OK);
  }
  ~CWorkspace() { octavo_workspace_destroy(data); }
  CWorkspace(const CWorkspace&) = delete;
  CWorkspace& operator=(const CWorkspace&) = delete;

  std::size_t bytes;
  void* data = nullptr;
};

/// The sizes of a shape, as C wants them.
[[nodiscard]] inline const std::int64_t* sizes_of(const Shape& shape) {
  return &const_cast<Shape&>(shape)[0];
}

/// C tensors, with their shapes and strides, for as long as this lives.
class CTensors {
 public:
  template <class View>
  const octavo_tensor* operator()(const View& view) {
    const Shape& shape = numbers_.emplace_back(view.shape);
    const Shape& strides = numbers_.emplace_back(view.strides);
    octavo_tensor t{};
    t.struct_size = sizeof t;
    t.data = const_cast<void*>(static_cast<const void*>(view.data));
    t.dtype = static_cast<octavo_dtype>(view.dtype);
    t.rank = shape.rank();
    t.shape = sizes_of(shape);
    t.strides = sizes_of(strides);
    t.buffer_bytes = view.buffer_bytes < 0 ? 0 : view.buffer_bytes;
    return &tensors_.emplace_back(t);
  }
  /// Null for a view that was left out.
  template <class View>
  const octavo_tensor* maybe(const View& view) {
    return view.data == nullptr && view.shape.rank() == 0 ? nullptr : (*this)(view);
  }

 private:
  std::deque<Shape> numbers_;
  std::deque<octavo_tensor> tensors_;
};

template <class T>
octavo_optional to_c(const std::optional<T>& value) {
  return value ? octavo_some(static_cast<std::int32_t>(*value)) : octavo_optional{0, 0};
}

/// The last call was refused with this code, for this argument, in a sentence with these words.
inline void expect_refusal(octavo_status got, octavo_status code, const std::string& argument,
                           const std::string& words) {
  EXPECT_EQ(got, code);
  const octavo_error* error = octavo_last_error();
  EXPECT_EQ(error->code, code);
  EXPECT_EQ(error->argument, argument);
  EXPECT_NE(std::string(error->message).find(words), std::string::npos) << error->message;
}

inline constexpr std::int64_t six[] = {6};

/// Quantize, 6 floats to s8.
[[nodiscard]] inline octavo_elementwise_desc good_descriptor() {
  octavo_elementwise_desc d{};
  d.struct_size = sizeof d;
  d.rank = 1;
  d.shape = six;
  d.output = OCTAVO_S8;
  return d;
}

/// One plan of it, with arguments that a test may change.
struct Quantize {
  Handle<octavo_stream> cpu = c_stream(1);
  Handle<octavo_plan> plan;
  float x[6] = {0.314F, -1.272F, 0.0F, 0.045F, 0.9F, 1.5F};
  std::int8_t q[6] = {99, 99, 99, 99, 99, 99};
  octavo_tensor input{};
  octavo_tensor output{};
  octavo_elementwise_args args{};

  Quantize() {
    const octavo_elementwise_desc d = good_descriptor();
    plan = made<octavo_plan>(
        [&](auto out) { return octavo_elementwise_select(cpu.get(), &d, nullptr, out); });
    input = {sizeof input, x, OCTAVO_F32, 1, six, nullptr, sizeof x};
    output = {sizeof output, q, OCTAVO_S8, 1, six, nullptr, sizeof q};
    args.struct_size = sizeof args;
    args.input = &input;
    args.output = &output;
    args.scale = 0.01;
  }
  Quantize(const Quantize&) = delete;
  Quantize& operator=(const Quantize&) = delete;
  ~Quantize() = default;

  octavo_status run() { return octavo_elementwise_run(plan.get(), cpu.get(), nullptr, 0, &args); }
  void expect_refused(octavo_status code, const char* argument, const char* words) {
    expect_refusal(octavo_elementwise_can_implement(plan.get(), &args), code, argument, words);
    expect_refusal(run(), code, argument, words);
    for (const std::int8_t value : q) EXPECT_EQ(value, 99);
  }
};

/// What select says to a descriptor.
inline void expect_refused(const octavo_elementwise_desc& d, octavo_status code,
                           const char* argument, const char* words) {
  const auto cpu = c_stream(1);
  octavo_plan* out = nullptr;
  expect_refusal(octavo_elementwise_select(cpu.get(), &d, nullptr, &out), code, argument, words);
  EXPECT_EQ(out, nullptr);
}

}  // namespace octavo::testing
