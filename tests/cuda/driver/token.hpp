#pragma once

#include <string_view>
#include <vector>

#include "tests/cuda/driver/program.hpp"

namespace standin {

struct Token {
  std::string_view text;  // empty: the end
  u32 line = 0;
  bool is(std::string_view other) const { return text == other; }
  bool is_number() const { return !text.empty() && text[0] >= '0' && text[0] <= '9'; }
  bool is_word() const;
};

std::vector<Token> tokens_of(std::string_view text);

}  // namespace standin
