#include "cli/print.hpp"

#include <cstdio>
#include <nlohmann/json.hpp>

namespace octavo::cli {

void to_stderr(std::string_view text) noexcept {
  [[maybe_unused]] const std::size_t n = std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

void print_json(const nlohmann::ordered_json& json) {
  fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

}  // namespace octavo::cli
