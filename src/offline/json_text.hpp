// What all JSON from outside must be before it is read.
#pragma once

#include <string>
#include <string_view>

#include "octavo/result.hpp"

namespace octavo::offline {

inline constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";

/// Refuses a zero byte, which the JSON library takes for the end, and more than 127 levels of
/// nesting (as many as the reference reader of safetensors takes): values are copied, printed and
/// freed level by level, on the stack.
Status check_json(const std::string& path, std::string_view text);

}  // namespace octavo::offline
