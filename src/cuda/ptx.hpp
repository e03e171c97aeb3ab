// Device code as data.
#pragma once

#include <string_view>

namespace octavo::cuda {

/// The PTX of a .cu file, `extern const Ptx <stem>_ptx`, ended by a zero; empty where the library
/// was built without a clang that makes it. cmake/OctavoCuda.cmake writes these.
struct Ptx {
  const char* name;
  std::string_view text;
};

}  // namespace octavo::cuda
