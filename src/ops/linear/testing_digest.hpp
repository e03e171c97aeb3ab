// Digests of linear layers: what the oracle gives, and that every thread count gives it too.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ops/elementwise/testing_streams.hpp"
#include "ops/linear/testing_guard.hpp"
#include "testing/digests.hpp"

namespace octavo::testing {

[[nodiscard]] inline std::string oracle_digest(const std::vector<LinearData>& all) {
  Digest digest;
  for (const LinearData& d : all) digest.add(expected(d).bytes);
  return hex(digest);
}

/// That each of the streams gives what is recorded under this key.
inline void expect_digest(const Digests& recorded, const std::string& key, const Streams& streams,
                          const std::vector<LinearData>& all) {
  ASSERT_TRUE(recorded.contains(key)) << key << " is not recorded";
  for (const Stream& stream : streams) {
    Digest digest;
    for (const LinearData& d : all) {
      Matrix out;
      ASSERT_EQ(run(stream, d, out), "") << d.c.text();
      digest.add(out.bytes);
    }
    EXPECT_EQ(hex(digest), recorded.at(key))
        << key << " on " << name(streams.target()) << ", " << stream.threads() << " threads";
  }
}

}  // namespace octavo::testing
