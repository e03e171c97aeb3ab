// Tables, sizes, shares and progress, as they are printed.
#include <gtest/gtest.h>

#include <limits>

#include "cli/progress.hpp"
#include "cli/table.hpp"

namespace octavo::cli {
namespace {

TEST(Table, ColumnsAreAsWideAsTheirCharacters) {
  Table table({"name", "n", "why"}, {false, true, false});
  table.add({"h.10", "5", "x"});
  table.add({"層.層", "1000", ""});  // three characters, of seven bytes
  table.add({"h.9", "70", "a\nb"});
  table.sort();
  ::testing::internal::CaptureStdout();
  table.print();
  EXPECT_EQ(::testing::internal::GetCapturedStdout(),
            "name     n  why\n"
            "h.9     70  a\\nb\n"
            "h.10     5  x\n"
            "層.層   1000\n");
}

TEST(Numbers, Bytes) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(999), "999 B");
  EXPECT_EQ(human_bytes(1000), "1 kB");
  EXPECT_EQ(human_bytes(1234), "1.23 kB");
  EXPECT_EQ(human_bytes(999'499), "999 kB");
  EXPECT_EQ(human_bytes(999'500), "1 MB");
  EXPECT_EQ(human_bytes(1'500'000'000), "1.5 GB");
  EXPECT_EQ(human_bytes(250'000'000'000'000), "250 TB");
}

TEST(Numbers, SharesAndOthers) {
  EXPECT_EQ(percent(0), "0");
  EXPECT_EQ(percent(0.01234), "1.23 %");
  EXPECT_EQ(percent(1), "100 %");
  EXPECT_EQ(number(0.00012345), "0.000123");
  EXPECT_EQ(number(-std::numeric_limits<double>::infinity()), "-inf");
  EXPECT_EQ(number(std::numeric_limits<double>::infinity()), "inf");
}

TEST(ProgressText, SaysHowFarAndHowLong) {
  EXPECT_EQ(progress_text({0, 0, "a"}, 0, false), "100 %  a");
  EXPECT_EQ(progress_text({0, 1000, "a"}, 3, false), "  0 %  a");
  EXPECT_EQ(progress_text({500, 1000, "a"}, 10, false), " 50 %  0:10 left  a");
  EXPECT_EQ(progress_text({20, 1000, "a"}, 2, false), "  2 %  1:38 left  a");
  EXPECT_EQ(progress_text({1000, 1000, "a"}, 10, false), "100 %  a");
  // Bytes have a rate.
  EXPECT_EQ(progress_text({2'000'000, 8'000'000, "a"}, 2, false), " 25 %  1 MB/s  0:06 left  a");
  EXPECT_EQ(progress_text({2'000'000, 8'000'000, "a"}, 0.1, false), " 25 %  a");
  EXPECT_EQ(progress_text({500, 1000, "\x1b"}, 0, true), "[############            ]  50 %  \\x1b");
  EXPECT_EQ(progress_text({1000, 1000, "a"}, 0, true), "[########################] 100 %  a");
}

}  // namespace
}  // namespace octavo::cli
