// Arrays of NumPy, PyTorch and anything that speaks DLPack, seen as tensors without a copy.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "octavo/tensor.hpp"
#include "queue.hpp"

namespace octavo::python {

namespace nb = nanobind;

/// What an array may hold; floats come first.
enum class Held : std::uint8_t {
  f32,
  f64,
  f16,
  bf16,
  s8,
  u8,
  s32,
  s16,
  u16,
  u32,
  s64,
  u64,
  boolean
};
inline constexpr std::size_t held_count = 13;

/// Whose array it is: results are made by the same. Those of devices that are not PyTorch's are our
/// own, DeviceArray.
enum class Maker : std::uint8_t { numpy, torch, device };

class On;

/// A view of an array; keeps it alive.
class Array {
 public:
  /// `name` is that of the argument, for refusals. Only an `out` is written. One on a device is
  /// refused here, for nobody would know where to run.
  Array(nb::handle given, const char* name, bool writes = false);
  /// One of a call's, on the CPU or on a device: it joins the call, unless told not to.
  Array(nb::handle given, const char* name, On& on, bool writes = false, bool joins = true);
  /// A new one of the maker's, contiguous, to write to. Packed types are bytes with two to each,
  /// row by row. `asked_by` is the argument that decided the type, for refusals.
  static Array make(Maker maker, const Shape& shape, DType dtype, const char* asked_by,
                    On* on = nullptr);

  [[nodiscard]] std::int64_t numel() const;
  [[nodiscard]] int rank() const { return shape.rank(); }
  /// As a type that the library takes, or refuses.
  [[nodiscard]] DType dtype() const;
  [[nodiscard]] TensorRef ref() const { return {data, dtype(), shape, strides}; }
  [[nodiscard]] TensorMut mut() const { return {data, dtype(), shape, strides}; }
  [[nodiscard]] bool is_contiguous() const;
  /// The same array, copied by its maker so that it is contiguous. (Only PyTorch does on devices.)
  [[nodiscard]] Array contiguous(On* on = nullptr) const;
  /// The first byte it touches, and one past the last.
  [[nodiscard]] std::pair<std::uintptr_t, std::uintptr_t> extent() const;
  /// Element i, counted as if contiguous.
  [[nodiscard]] double as_double(std::int64_t i) const;
  [[nodiscard]] std::int64_t as_integer(std::int64_t i) const;
  [[nodiscard]] bool is_integer() const;

  const char* argument = "out";
  Maker maker = Maker::numpy;
  bool is_ml_dtypes = false;  // a NumPy array whose bf16 is of that package
  Held held = Held::f32;
  void* data = nullptr;
  Shape shape;
  Shape strides;  // in elements
  nb::object object;
  int device = -1;          // of CUDA; -1: the host
  QueuePtr home;            // on a device: the stream that its maker is ordered with
  bool is_foreign = false;  // its maker does not know of that stream

 private:
  Array() = default;
  void import(On* on, bool writes);
  void from_buffer(bool writes);
  void from_torch(On* on);
  void from_dlpack(On* on, bool writes);
  bool from_cuda_interface(On* on, bool writes);
  void from_device_array(On* on);
  [[noreturn]] void refuse_device() const;
  void check_rank(std::int64_t rank) const;
  /// Refuse sizes, then strides and addresses too, that no array in memory has.
  void check_sizes() const;
  void check_memory() const;
  [[nodiscard]] const unsigned char* at(std::int64_t i) const;

  std::shared_ptr<void> keep_;  // a buffer, or a DLPack tensor
};

[[nodiscard]] const char* name(Held held);
[[nodiscard]] std::int64_t bytes_of(Held held);
/// What holds elements of a type: bytes for packed ones.
[[nodiscard]] Held held_for(DType dtype);
/// np.dtype of it. `asked_by` is refused where that needs ml_dtypes, and there is none.
[[nodiscard]] nb::object numpy_dtype(Held held, const char* asked_by);
[[nodiscard]] nb::object tuple_of(const Shape& shape);
[[nodiscard]] std::string class_name(nb::handle object);
/// What str() says of it; where that fails, the name of its class.
[[nodiscard]] std::string str_of(const nb::object& object);

/// `shape` as the array is that holds it: the last size halved and rounded up for packed types.
[[nodiscard]] Shape stored_shape(const Shape& shape, DType dtype);

/// A given `out`, or a new array; seen as a tensor of `dtype`, which may be packed. `asked_by` is
/// the argument that decided the type.
class Output {
 public:
  Output(nb::handle out, Maker maker, const Shape& shape, DType dtype, On& on,
         const char* asked_by = "dtype");
  [[nodiscard]] const TensorMut& tensor() const { return tensor_; }
  [[nodiscard]] const nb::object& object() const { return array_->object; }

 private:
  std::optional<Array> array_;
  TensorMut tensor_;
};

[[nodiscard]] std::string to_string(const Shape& shape);

}  // namespace octavo::python
