// config.json, before anything is known of it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "octavo/result.hpp"

namespace octavo::offline {

/// An object that has no key twice.
Result<nlohmann::json> parse_config(const std::string& path, const std::string& text);

}  // namespace octavo::offline
