#include "core/check.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>

namespace octavo::detail {
namespace {

// Element offsets of the first and the last element in memory, relative to `data`.
struct Offsets {
  std::int64_t lowest = 0;
  std::int64_t highest = 0;
};

bool offsets_of(const Shape& shape, const Shape& strides, Offsets& offsets) {
  for (int i = 0; i < shape.rank(); ++i) {
    std::int64_t reach = 0;
    if (__builtin_mul_overflow(shape[i] - 1, strides[i], &reach)) return false;
    std::int64_t& bound = reach < 0 ? offsets.lowest : offsets.highest;
    if (__builtin_add_overflow(bound, reach, &bound)) return false;
  }
  constexpr std::int64_t most = std::int64_t{1} << 59;  // times 8 bytes, and still an int64
  return -most < offsets.lowest && offsets.highest < most;
}

Status check_packed_strides(const char* argument, const Shape& shape, const Shape& strides) {
  const int last = shape.rank() - 1;
  for (int i = 0; i <= last; ++i) {
    if (shape[i] <= 1) continue;
    if (i == last ? strides[i] != 1 : strides[i] % 2 != 0)
      return invalid(
          argument, fmt::format("expected a packed 4-bit tensor whose last stride is 1 and whose "
                                "other strides are even, got strides {}; each row starts on a byte",
                                to_string(strides)));
  }
  return {};
}

// No two elements of a tensor that is written may share memory.
Status check_disjoint(const char* argument, const Shape& shape, const Shape& strides) {
  struct Dim {
    std::int64_t size;
    std::int64_t stride;
  };
  std::array<Dim, max_rank> dims{};
  std::size_t n = 0;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == 1) continue;
    const Dim dim{shape[i], std::abs(strides[i])};
    std::size_t at = n++;  // by insertion, nearest first
    for (; at > 0 && dims[at - 1].stride > dim.stride; --at) dims[at] = dims[at - 1];
    dims[at] = dim;
  }
  std::int64_t reach = 0;  // of the dimensions so far
  for (std::size_t i = 0; i < n; ++i) {
    const Dim& d = dims[i];
    if (d.stride <= reach)
      return invalid(argument, fmt::format("expected strides that keep its elements apart, got "
                                           "shape {} with strides {}",
                                           to_string(shape), to_string(strides)));
    reach += (d.size - 1) * d.stride;
  }
  return {};
}

Result<Checked> check_tensor(const char* argument, const TensorRef& t, DType dtype) {
  if (t.dtype != dtype)
    return unsupported(argument, fmt::format("expected a tensor of {}, as the plan was made for, "
                                             "got {}",
                                             name(dtype), name(t.dtype)));
  const Result<std::int64_t> numel = count_elements(argument, t.shape);
  if (!numel) return numel.error();
  if (t.strides.rank() != t.shape.rank())
    return invalid(argument, fmt::format("expected as many strides as sizes ({}), got {}",
                                         t.shape.rank(), t.strides.rank()));
  Checked checked;
  checked.numel = *numel;
  if (checked.numel == 0) return checked;
  Offsets offsets;
  if (!offsets_of(t.shape, t.strides, offsets))
    return invalid(argument, fmt::format("expected strides within the address space, got {}",
                                         to_string(t.strides)));
  if (t.data == nullptr)
    return invalid(argument, fmt::format("expected {} elements of {}, got a null pointer",
                                         checked.numel, name(dtype)));
  const bool packed = is_packed(dtype);
  const std::int64_t element_bytes = packed ? 1 : bits(dtype) / 8;
  const auto address = reinterpret_cast<std::uintptr_t>(t.data);
  if (address % static_cast<std::uintptr_t>(element_bytes) != 0)
    return Error(ErrorCode::misaligned_operand, argument,
                 fmt::format("{}: expected a pointer aligned to its {} elements ({} bytes), got "
                             "one that is {} past; copy it to aligned memory",
                             argument, name(dtype), element_bytes,
                             address % static_cast<std::uintptr_t>(element_bytes)));
  if (packed)
    if (Status s = check_packed_strides(argument, t.shape, t.strides); !s) return s.error();
  const std::int64_t first = packed ? offsets.lowest / 2 : offsets.lowest * element_bytes;
  const std::int64_t last =
      packed ? offsets.highest / 2 + 1 : (offsets.highest + 1) * element_bytes;
  if (t.buffer_bytes >= 0 && (first < 0 || last > t.buffer_bytes))
    return Error(ErrorCode::buffer_too_small, argument,
                 fmt::format("{}: shape {} with strides {} needs bytes {} to {} of its buffer, "
                             "which has {}",
                             argument, to_string(t.shape), to_string(t.strides), first, last,
                             t.buffer_bytes),
                 last - std::min<std::int64_t>(first, 0), t.buffer_bytes);
  checked.extent = {address + static_cast<std::uintptr_t>(first),
                    address + static_cast<std::uintptr_t>(last)};
  return checked;
}

}  // namespace

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (int i = 0; i < std::min(shape.rank(), max_rank); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : ", ", shape[i]);
  return text + (shape.rank() > max_rank ? ", ...]" : "]");
}

Result<std::int64_t> count_elements(const char* argument, const Shape& shape) {
  if (shape.rank() > max_rank)
    return invalid(argument,
                   fmt::format("expected at most {} dimensions, got {}", max_rank, shape.rank()));
  constexpr std::int64_t most = INT64_MAX / 8;  // bytes are counted in int64, too
  std::int64_t numel = 1;
  bool empty = false;
  bool overflow = false;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] < 0)
      return invalid(argument,
                     fmt::format("expected sizes of 0 or more, got {}", to_string(shape)));
    empty = empty || shape[i] == 0;
    overflow = overflow || __builtin_mul_overflow(numel, shape[i], &numel) || numel > most;
  }
  if (empty) return std::int64_t{0};
  if (overflow)
    return invalid(argument, fmt::format("expected at most {} elements, got sizes {}", most,
                                         to_string(shape)));
  return numel;
}

Result<Checked> check_input(const char* argument, const TensorRef& tensor, DType dtype) {
  return check_tensor(argument, tensor, dtype);
}

Result<Checked> check_output(const char* argument, const TensorMut& tensor, DType dtype) {
  Result<Checked> checked = check_tensor(argument, tensor, dtype);
  if (!checked || checked->numel == 0) return checked;
  const int last = tensor.shape.rank() - 1;
  if (last >= 0 && tensor.shape[last] > 1 && tensor.strides[last] != 1)
    return invalid(argument, fmt::format("expected rows of consecutive elements (last stride 1), "
                                         "got strides {}",
                                         to_string(tensor.strides)));
  if (Status s = check_disjoint(argument, tensor.shape, tensor.strides); !s) return s.error();
  return checked;
}

Result<Checked> check_array(const char* argument, const TensorRef& tensor, DType dtype,
                            std::int64_t count) {
  Result<Checked> checked = check_tensor(argument, tensor, dtype);
  if (!checked) return checked;
  if (checked->numel != count)
    return invalid(argument, fmt::format("expected {} elements, got {} (shape {})", count,
                                         checked->numel, to_string(tensor.shape)));
  const Shape expected = contiguous_strides(tensor.shape, dtype);
  for (int i = 0; count > 0 && i < tensor.shape.rank(); ++i)
    if (tensor.shape[i] > 1 && tensor.strides[i] != expected[i])
      return invalid(argument, fmt::format("expected a contiguous array (strides {}), got strides "
                                           "{}; copy it first",
                                           to_string(expected), to_string(tensor.strides)));
  return checked;
}

Status check_workspace(const Workspace& workspace, std::size_t needed,
                       std::initializer_list<const TensorRef*> arguments) {
  if (workspace.bytes < needed || (needed > 0 && workspace.data == nullptr))
    return Error(
        ErrorCode::workspace_too_small, "workspace",
        fmt::format("workspace: expected at least {} bytes (plan.workspace_size()), got {}", needed,
                    workspace.data == nullptr ? 0 : workspace.bytes),
        static_cast<std::int64_t>(needed),
        static_cast<std::int64_t>(workspace.data == nullptr ? 0 : workspace.bytes));
  if (needed > 0 && reinterpret_cast<std::uintptr_t>(workspace.data) % workspace_alignment != 0)
    return Error(
        ErrorCode::misaligned_operand, "workspace",
        fmt::format("workspace: expected memory aligned to {} bytes, got one that is {} "
                    "past; WorkspaceBuffer aligns it",
                    workspace_alignment,
                    reinterpret_cast<std::uintptr_t>(workspace.data) % workspace_alignment));
  if (needed == 0) return {};
  const auto begin = reinterpret_cast<std::uintptr_t>(workspace.data);
  for (const TensorRef* argument : arguments) {
    if (argument == nullptr) continue;
    const Result<Checked> checked = check_input("", *argument, argument->dtype);
    if (checked && checked->extent.overlaps({begin, begin + needed}))
      return invalid("workspace", "expected memory apart from every argument, got an overlap");
  }
  return {};
}

Status check_max_workspace(const PlanPreference& preference, std::size_t needed,
                           const char* what_for) {
  const auto& most = preference.max_workspace_bytes;
  if (!most || needed <= *most) return {};
  return Error(ErrorCode::workspace_too_small, "max_workspace_bytes",
               fmt::format("max_workspace_bytes: expected at least {} ({}), got {}", needed,
                           what_for, *most),
               static_cast<std::int64_t>(needed), static_cast<std::int64_t>(*most));
}

bool same_strides(const TensorRef& a, const TensorRef& b) {
  for (int i = 0; i < a.shape.rank(); ++i)
    if (a.shape[i] > 1 && a.strides[i] != b.strides[i]) return false;
  return true;
}

}  // namespace octavo::detail
