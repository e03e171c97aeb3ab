// The header of a safetensors file, as text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/safetensors.hpp"

namespace octavo::offline {

inline constexpr std::uint64_t max_header_bytes = 100'000'000;

struct Header {
  std::vector<StoredTensor> tensors;  // in the order of their data, without gaps
  StoredMetadata metadata;
};

/// Bytes of a tensor, or nothing if the shape overflows 64 bits or ends within a byte.
struct StoredSize {
  enum class Kind { valid, overflow, partial_byte };
  Kind kind = Kind::valid;
  std::uint64_t bytes = 0;
};
StoredSize stored_size(StoredType type, const std::vector<std::uint64_t>& shape);
std::string to_string(const std::vector<std::uint64_t>& shape);

/// Reads a header, and checks that its tensors fill `data_bytes` exactly.
Result<Header> parse_header(std::string_view text, std::uint64_t data_bytes,
                            const std::string& path);

}  // namespace octavo::offline
