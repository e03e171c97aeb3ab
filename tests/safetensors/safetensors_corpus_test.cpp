// The reader accepts and rejects the files that the reference implementation does, and reads the
// same from them. The one difference: a name that is there twice is refused, not overwritten.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "octavo/safetensors.hpp"

namespace octavo {
namespace {

namespace fs = std::filesystem;

std::vector<char> read_all(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The directory of the answers, or empty.
fs::path answers() {
  const char* set = std::getenv("OCTAVO_SAFETENSORS_DIR");
  return set == nullptr ? fs::path() : fs::path(set);
}

// As zlib has it.
std::uint32_t crc32(std::span<const std::byte> bytes) {
  std::uint32_t crc = ~0U;
  for (const std::byte b : bytes) {
    crc ^= static_cast<std::uint32_t>(b);
    for (int i = 0; i < 8; ++i) crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? 0xEDB88320U : 0U);
  }
  return ~crc;
}

std::string describe(const SafetensorsFile& file) {
  std::vector<std::string> lines;
  lines.reserve(file.tensors().size());
  for (const StoredTensor& t : file.tensors()) {
    std::string hex;
    for (const char c : t.name) hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
    lines.push_back(fmt::format("{} {} [{}] {}", hex, name(t.type), fmt::join(t.shape, ", "),
                                crc32(file.bytes(t))));
  }
  std::sort(lines.begin(), lines.end());
  return fmt::format("{}", fmt::join(lines, "\n"));
}

TEST(SafetensorsCorpus, AgreesWithTheReference) {
  const fs::path path = answers() / "corpus.bin";
  if (answers().empty() || !fs::exists(path))
    GTEST_SKIP() << "no answers of PyPI's safetensors (OCTAVO_SAFETENSORS_DIR)";
  const std::vector<char> corpus = read_all(path);
  std::size_t at = 0;
  std::array<int, 3> counts{};
  while (at < corpus.size()) {
    std::uint32_t verdict = 0;
    std::array<std::uint64_t, 2> lengths{};
    std::memcpy(&verdict, &corpus[at], 4);
    std::memcpy(lengths.data(), &corpus[at + 4], 16);
    at += 20;
    const std::span<const char> data(corpus.data() + at, lengths[0]);
    const std::string expected(corpus.data() + at + lengths[0], lengths[1]);
    at += lengths[0] + lengths[1];
    const auto file = SafetensorsFile::parse(std::as_bytes(data), "file");
    const std::string head(data.data(), std::min<std::size_t>(data.size(), 600));
    ++counts.at(verdict);
    ASSERT_EQ(file.has_value(), verdict == 1) << head << "\n"
                                              << (file ? "" : file.error().message());
    if (verdict == 1) {
      ASSERT_EQ(describe(*file), expected) << head;
    }
  }
  EXPECT_GT(counts[0], 1000);
  EXPECT_GT(counts[1], 1000);
  EXPECT_GT(counts[2], 1);
}

TEST(SafetensorsCorpus, WritesWhatTheReferenceWrites) {
  const fs::path path = answers() / "written.safetensors";
  if (answers().empty() || !fs::exists(path))
    GTEST_SKIP() << "no file of PyPI's safetensors (OCTAVO_SAFETENSORS_DIR)";
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file) << file.error().message();
  std::vector<StoredTensorSpec> specs;
  for (const StoredTensor& t : file->tensors()) specs.push_back({t.name, t.type, t.shape});
  const fs::path mine = fs::temp_directory_path() / "octavo_corpus_written.safetensors";
  auto writer = SafetensorsWriter::create(mine, specs, file->metadata());
  ASSERT_TRUE(writer) << writer.error().message();
  for (const StoredTensor& t : file->tensors()) ASSERT_TRUE(writer->write(t.name, file->bytes(t)));
  ASSERT_TRUE(writer->finish());
  EXPECT_EQ(read_all(mine), read_all(path));
  fs::remove(mine);
}

}  // namespace
}  // namespace octavo
