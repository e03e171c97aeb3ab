// OCTAVO_TILES=amx, avxvnni or both (amx,avxvnni): the emulator before anything else, for the tests
// that this is linked to. What the CPU has is its own. A program that was to be emulated and used
// none of it has tested nothing, and fails in the end.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "emulator.hpp"

namespace {

using namespace octavo::testing;

pid_t installed_in = 0;  // (children of fork are left alone)

[[gnu::constructor]] void install_as_asked() {
  const char* text = std::getenv("OCTAVO_TILES");
  if (text == nullptr) return;
  const std::string_view wanted(text);
  tiles::install(wanted.find("amx") != std::string_view::npos,
                 wanted.find("avxvnni") != std::string_view::npos);
  installed_in = ::getpid();
}

[[gnu::destructor]] void require_use() {
  if (installed_in != ::getpid()) return;
  const tiles::Counts counts = tiles::counts();
  const auto require = [](bool used, const char* what) {
    if (used) return;
    std::fprintf(stderr, "\nOCTAVO_TILES: no %s was carried out\n", what);
    ::_exit(1);
  };
  require(!tiles::emulates_tiles() || counts.products > 0, "product of tiles");
  require(!tiles::emulates_avxvnni() || counts.vectors > 0, "AVX-VNNI instruction");
}

}  // namespace
