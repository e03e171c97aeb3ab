// Text from outside, for people.
#pragma once

#include <string>
#include <string_view>

namespace octavo::offline {

/// What a terminal would obey, or a page show as something else, as an escape (\n, \x1b, \u202e):
/// control and format characters, separators, bytes that are not UTF-8. All else stays, quotes and
/// backslashes too, so that nothing changes the second time.
std::string printable(std::string_view text);

}  // namespace octavo::offline
