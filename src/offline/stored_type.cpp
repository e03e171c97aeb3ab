#include <array>

#include "octavo/safetensors.hpp"

namespace octavo {
namespace {

struct Info {
  std::string_view name;
  int bits;
};
constexpr std::array<Info, stored_type_count> infos{{
    {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
    {"I64", 64},        {"U64", 64},
}};

}  // namespace

std::string_view name(StoredType type) noexcept {
  const auto i = static_cast<std::size_t>(type);
  return i < infos.size() ? infos[i].name : "unknown";
}

int bits(StoredType type) noexcept {
  const auto i = static_cast<std::size_t>(type);
  return i < infos.size() ? infos[i].bits : 0;
}

std::optional<StoredType> parse_stored_type(std::string_view name) noexcept {
  for (std::size_t i = 0; i < infos.size(); ++i)
    if (infos[i].name == name) return static_cast<StoredType>(i);
  return std::nullopt;
}

std::optional<DType> dtype_of_stored(StoredType type) noexcept {
  switch (type) {
    case StoredType::F32:
      return DType::f32;
    case StoredType::F64:
      return DType::f64;
    case StoredType::F16:
      return DType::f16;
    case StoredType::BF16:
      return DType::bf16;
    case StoredType::I8:
      return DType::s8;
    case StoredType::U8:
      return DType::u8;
    case StoredType::I16:
      return DType::s16;
    case StoredType::I32:
      return DType::s32;
    default:
      return std::nullopt;
  }
}

StoredType stored_type(DType type) noexcept {
  switch (type) {
    case DType::f64:
      return StoredType::F64;
    case DType::f16:
      return StoredType::F16;
    case DType::bf16:
      return StoredType::BF16;
    case DType::s8:
      return StoredType::I8;
    case DType::s16:
      return StoredType::I16;
    case DType::s32:
      return StoredType::I32;
    case DType::f32:
      return StoredType::F32;
    case DType::u8:
    case DType::s4:  // the bytes of packed types
    case DType::u4:
      break;
  }
  return StoredType::U8;
}

}  // namespace octavo
