// AMX and AVX-VNNI on CPUs without them: SIGILL is caught, the instruction decoded, carried out as
// the manual says, and stepped over. The library's own kernels run unchanged.
//
// A CPU with tiles raises no SIGILL: LDTILECFG runs there without the system's permission, which is
// for the tiles' data alone. So the emulator leaves tiles to it, and the library finds them by
// itself.
//
// Strict: what the CPU would fault on ends the program, with the reason on standard error: tiles
// that are not configured, reserved bytes of a configuration, shapes that do not fit, tiles without
// the system's permission. So does what is legal and never meant: a tile that was never written.
#pragma once

#include <cstdint>

#include "octavo/stream.hpp"

namespace octavo::testing::tiles {

/// Whether this CPU has tiles, and the system lets them be used.
bool cpu_has_tiles();
/// Whether this CPU has AVX-VNNI.
bool cpu_has_avxvnni();

/// Installs it, and lets the library find these targets on this CPU, if it lacks them. Must come
/// before the library first looks. `permission`: whether the system grants tiles when it is asked.
void install(bool amx, bool avxvnni, bool permission = true);

/// Whether tiles are the emulator's.
bool emulates_tiles();
/// Whether AVX-VNNI is the emulator's.
bool emulates_avxvnni();

/// Whether the thread that calls has tiles configured: what XGETBV with ECX = 1 tells.
bool in_use();

/// How often each was carried out, by all threads.
struct Counts {
  std::int64_t configured = 0;  // LDTILECFG
  std::int64_t released = 0;
  std::int64_t products = 0;  // TDPB*
  std::int64_t vectors = 0;   // VPDP*
};
Counts counts();

}  // namespace octavo::testing::tiles
