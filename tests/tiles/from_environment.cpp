// OCTAVO_TILES=amx, avxvnni or both (amx,avxvnni): the emulator before anything else, for the tests
// that this is linked to. AVX-VNNI where the CPU has it is its own; tiles are the emulator's even
// there, since the system is not asked for them and gives none.
#include <cstdlib>
#include <string_view>

#include "emulator.hpp"

namespace {

[[gnu::constructor]] void install_as_asked() {
  const char* text = std::getenv("OCTAVO_TILES");
  if (text == nullptr) return;
  const std::string_view wanted(text);
  octavo::testing::tiles::install(wanted.find("amx") != std::string_view::npos,
                                  wanted.find("avxvnni") != std::string_view::npos);
}

}  // namespace
