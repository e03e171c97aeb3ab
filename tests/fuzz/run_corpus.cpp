// A fuzzer without libFuzzer: runs it on the files that it is given, or that are in directories.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int main(int argc, char** argv) {
  namespace fs = std::filesystem;
  std::vector<fs::path> paths;
  for (const std::string& word : std::vector<std::string>(argv + 1, argv + argc)) {
    if (fs::is_directory(word))
      for (const auto& entry : fs::directory_iterator(word)) paths.push_back(entry.path());
    else
      paths.emplace_back(word);
  }
  std::sort(paths.begin(), paths.end());
  for (const fs::path& path : paths) {
    // The last name is that of the input that failed.
    std::printf("%s\n", path.c_str());
    std::fflush(stdout);
    std::ifstream in(path, std::ios::binary);
    if (!in.good()) return 1;
    // In memory of its size, so that a sanitizer sees what is read behind it.
    const std::vector<std::uint8_t> bytes(std::istreambuf_iterator<char>(in), {});
    if (LLVMFuzzerTestOneInput(bytes.data(), bytes.size()) != 0) return 1;
  }
  std::printf("%zu inputs\n", paths.size());
  return paths.empty() ? 1 : 0;
}
