// tests/digests.txt: one line for each digest, of all families of operations.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <iomanip>
#include <map>
#include <sstream>
#include <string>

#include "testing/memory.hpp"

namespace octavo::testing {

using Digests = std::map<std::string, std::string>;

[[nodiscard]] inline std::string hex(const Digest& digest) {
  std::ostringstream text;
  text << std::hex << std::setfill('0') << std::setw(16) << digest.value();
  return text.str();
}

/// The lines whose operation (what stands before the first dot) `is_own` accepts.
template <class F>
Digests read_digests(const std::string& path, F&& is_own) {
  Digests digests;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::size_t equals = line.find(" = ");
    if (equals != std::string::npos && is_own(line.substr(0, line.find('.'))))
      digests[line.substr(0, equals)] = line.substr(equals + 3);
  }
  return digests;
}

/// Compares a family's digests with its lines in the file; or, with OCTAVO_WRITE_DIGESTS=<path>,
/// replaces those lines there.
template <class F>
void expect_recorded(const Digests& digests, F&& is_own) {
  const char* path = std::getenv("OCTAVO_WRITE_DIGESTS");
  if (path == nullptr) {
    EXPECT_EQ(digests, read_digests(OCTAVO_DIGESTS, is_own));
    return;
  }
  Digests all = read_digests(path, [&](const std::string& op) { return !is_own(op); });
  all.insert(digests.begin(), digests.end());
  std::ofstream file(path);
  for (const auto& [key, value] : all) file << key << " = " << value << '\n';
  ASSERT_TRUE(file.good()) << path;
}

}  // namespace octavo::testing
