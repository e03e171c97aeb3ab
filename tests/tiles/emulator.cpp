#include "emulator.hpp"

#include <cpuid.h>
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "core/target.hpp"
#include "decode.hpp"

namespace octavo::testing::tiles {
namespace {

constexpr int tile_count = 8, most_rows = 16, row_bytes = 64;

struct Tile {
  std::uint8_t data[most_rows][row_bytes];
  int rows, bytes;
  bool written;
};
struct State {
  bool configured;
  Tile tiles[tile_count];
};
// Of each thread, as the CPU has it. Zero at first, so that a signal handler may touch it.
thread_local State state;

bool tiles_emulated = false, vectors_emulated = false;
std::atomic<bool> permitted{false};
bool grants = true;
std::atomic<std::int64_t> configured{0}, released{0}, products{0}, vectors{0};

// (A signal handler may not do more than write.)
[[noreturn]] void fault(const char* why) {
  const char* const parts[] = {"\nAMX emulator: ", why, "\n"};
  for (const char* part : parts) {
    [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, part, std::strlen(part));
  }
  ::abort();
}
// An address in a register, as the program meant it.
template <class T>
T* pointer(std::uint64_t address) {
  return reinterpret_cast<T*>(address);  // NOLINT(performance-no-int-to-ptr)
}

void require(bool holds, const char* why) {
  if (!holds) fault(why);
}

struct Cpuid {
  unsigned a = 0, b = 0, c = 0, d = 0;
};
Cpuid cpuid(unsigned leaf, unsigned part) {
  Cpuid out;
  __get_cpuid_count(leaf, part, &out.a, &out.b, &out.c, &out.d);
  return out;
}

class Frame {
 public:
  explicit Frame(ucontext_t& context) : context_(context) {}

  [[nodiscard]] std::uint64_t general(int number) const {
    constexpr int where[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                             REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                             REG_R12, REG_R13, REG_R14, REG_R15};
    return static_cast<std::uint64_t>(context_.uc_mcontext.gregs[where[number]]);
  }
  [[nodiscard]] std::uint64_t ip() const {
    return static_cast<std::uint64_t>(context_.uc_mcontext.gregs[REG_RIP]);
  }
  void step(int bytes) { context_.uc_mcontext.gregs[REG_RIP] += bytes; }

  // Base and displacement; the index is the stride of tiles, or a part of the address.
  [[nodiscard]] std::uint64_t start(const Instruction& i) const {
    std::uint64_t at = static_cast<std::uint64_t>(std::int64_t{i.rm.displacement});
    if (i.rm.base == 16) return at + ip() + static_cast<std::uint64_t>(i.length);
    if (i.rm.base >= 0) at += general(i.rm.base);
    return at;
  }
  [[nodiscard]] std::uint64_t scaled_index(const Instruction& i) const {
    return i.rm.index < 0 ? 0 : general(i.rm.index) * static_cast<std::uint64_t>(i.rm.scale);
  }

  // A vector register: its lower half stands where it always did, what is above where CPUID says.
  void read(int number, std::uint8_t (&out)[32]) {
    std::memcpy(out, xmm(number), 16);
    if (holds(ymm))
      std::memcpy(out + 16, upper_ymm(number), 16);
    else
      std::memset(out + 16, 0, 16);
  }
  // All above the result becomes zero: the upper half of a narrow one, and of ZMM always.
  void write(int number, const std::uint8_t (&value)[32]) {
    if (!holds(ymm)) {
      std::memset(upper_ymm(0), 0, std::size_t{16} * 16);
      *present() |= ymm;
    }
    std::memcpy(xmm(number), value, 16);
    std::memcpy(upper_ymm(number), value + 16, 16);
    if (holds(zmm)) std::memset(upper_zmm(number), 0, 32);
  }

 private:
  static constexpr std::uint64_t ymm = 1 << 2, zmm = 1 << 6;  // in XSTATE_BV
  static constexpr std::size_t header = 512;
  [[nodiscard]] std::uint8_t* area() const {
    return reinterpret_cast<std::uint8_t*>(context_.uc_mcontext.fpregs);
  }
  [[nodiscard]] std::uint8_t* xmm(int number) const {
    return area() + 160 + 16 * static_cast<std::size_t>(number);
  }
  // What the system saved beyond the 512 bytes that are always there, it says in the last of them.
  [[nodiscard]] std::uint64_t* present() const {
    _fpx_sw_bytes said{};
    std::memcpy(&said, area() + header - sizeof said, sizeof said);
    require(said.magic1 == FP_XSTATE_MAGIC1 && (said.xstate_bv & ymm) != 0,
            "a signal's frame without vector registers");
    return reinterpret_cast<std::uint64_t*>(area() + header);
  }
  // Whether a part of the state is there; otherwise it is zero.
  [[nodiscard]] bool holds(std::uint64_t part) const { return (*present() & part) != 0; }
  [[nodiscard]] std::uint8_t* upper_ymm(int number) const {
    static const std::size_t offset = cpuid(13, 2).b;
    return area() + offset + 16 * static_cast<std::size_t>(number);
  }
  [[nodiscard]] std::uint8_t* upper_zmm(int number) const {
    static const std::size_t offset = cpuid(13, 6).b;
    return area() + offset + 32 * static_cast<std::size_t>(number);
  }
  ucontext_t& context_;
};

void configure(const std::uint8_t* m) {
  require(permitted, "LDTILECFG without the system's permission for tiles");
  std::uint8_t config[64];
  std::memcpy(config, m, sizeof config);
  require(config[0] <= 1, "LDTILECFG: a palette that there is not");
  std::memset(&state, 0, sizeof state);
  ++configured;
  if (config[0] == 0) return;
  require(config[1] == 0, "LDTILECFG: start_row is not 0");
  for (int i = 2; i < 16; ++i) require(config[i] == 0, "LDTILECFG: reserved bytes are not 0");
  for (int t = 0; t < 16; ++t) {
    std::uint16_t bytes = 0;
    std::memcpy(&bytes, &config[16 + 2 * t], 2);
    const int rows = config[48 + t];
    if (t >= tile_count) {
      require(bytes == 0 && rows == 0, "LDTILECFG: a tile beyond the eighth");
      continue;
    }
    require((bytes == 0) == (rows == 0), "LDTILECFG: rows without bytes, or bytes without rows");
    require(bytes <= row_bytes && rows <= most_rows, "LDTILECFG: a tile that is too large");
    state.tiles[t].rows = rows;
    state.tiles[t].bytes = bytes;
  }
  state.configured = true;
}

void store_configuration(std::uint8_t* m) {
  std::uint8_t config[64] = {};
  config[0] = state.configured ? 1 : 0;
  for (int t = 0; t < tile_count && state.configured; ++t) {
    const auto bytes = static_cast<std::uint16_t>(state.tiles[t].bytes);
    std::memcpy(&config[16 + 2 * t], &bytes, 2);
    config[48 + t] = static_cast<std::uint8_t>(state.tiles[t].rows);
  }
  std::memcpy(m, config, sizeof config);
}

Tile& tile(int number) {
  require(state.configured, "tiles are used that are not configured");
  require(state.tiles[number].rows > 0, "a tile is used that has no shape");
  return state.tiles[number];
}
Tile& written_tile(int number) {
  Tile& t = tile(number);
  require(t.written, "a tile is read that was never written");
  return t;
}

void clear(Tile& t) {
  std::memset(t.data, 0, sizeof t.data);
  t.written = true;
}

// Memory is touched row by row, just what the CPU would touch: guard pages see it.
void load(Tile& t, std::uint64_t start, std::uint64_t stride) {
  clear(t);
  for (int r = 0; r < t.rows; ++r)
    std::memcpy(t.data[r], pointer<const void>(start + static_cast<std::uint64_t>(r) * stride),
                static_cast<std::size_t>(t.bytes));
}
void store(const Tile& t, std::uint64_t start, std::uint64_t stride) {
  for (int r = 0; r < t.rows; ++r)
    std::memcpy(pointer<void>(start + static_cast<std::uint64_t>(r) * stride), t.data[r],
                static_cast<std::size_t>(t.bytes));
}

// Widened once, so that the products below are whole vectors: most of the time goes there.
void widen(const Tile& tile, bool is_signed, std::int16_t (&out)[most_rows][row_bytes]) {
  for (int r = 0; r < most_rows; ++r)
    for (int i = 0; i < row_bytes; ++i) {
      const std::uint8_t byte = tile.data[r][i];
      out[r][i] = is_signed ? static_cast<std::int8_t>(byte) : byte;
    }
}

// sums[n] += the four products of a[0..3] and b[4 n .. 4 n + 3], all columns of a tile.
void add_products(const std::int16_t* a, const std::int16_t* b, std::uint32_t* sums) {
  for (int n = 0; n < row_bytes / 4; ++n) {
    std::int32_t sum = 0;
    for (int j = 0; j < 4; ++j) sum += a[j] * b[4 * n + j];
    sums[n] += static_cast<std::uint32_t>(sum);
  }
}

// c += a * b in steps of four bytes; a is ModRM.rm, b is vvvv.
void multiply(const Instruction& i) {
  require(i.reg != i.rm.reg && i.reg != i.vvvv && i.rm.reg != i.vvvv,
          "TDPB*: one tile in two places");
  Tile& c = written_tile(i.reg);
  const Tile& a = written_tile(i.rm.reg);
  const Tile& b = written_tile(i.vvvv);
  require(c.rows == a.rows && a.bytes == 4 * b.rows && c.bytes == b.bytes && c.bytes % 4 == 0,
          "TDPB*: shapes that do not fit");
  std::int16_t left[most_rows][row_bytes];
  std::int16_t right[most_rows][row_bytes];
  widen(a, i.kind == Kind::tdpbssd || i.kind == Kind::tdpbsud, left);
  widen(b, i.kind == Kind::tdpbssd || i.kind == Kind::tdpbusd, right);
  for (int m = 0; m < c.rows; ++m) {
    std::uint32_t sums[row_bytes / 4];
    std::memcpy(sums, c.data[m], sizeof sums);
    // (Beyond its shape a tile holds zeros.)
    for (int k = 0; k < a.bytes; k += 4) add_products(&left[m][k], right[k / 4], sums);
    std::memcpy(c.data[m], sums, sizeof sums);
  }
  ++products;
}

std::int32_t saturated(std::int64_t x) {
  return x > INT32_MAX ? INT32_MAX : x < INT32_MIN ? INT32_MIN : static_cast<std::int32_t>(x);
}

// One lane of VPDP*: unsigned bytes (or signed words) of `a` by signed ones of `b`.
std::int32_t lane(Kind kind, std::int32_t sum, const std::uint8_t* a, const std::uint8_t* b) {
  std::int64_t products_sum = 0;
  if (kind == Kind::vpdpbusd || kind == Kind::vpdpbusds) {
    for (int j = 0; j < 4; ++j) products_sum += std::int64_t{a[j]} * static_cast<std::int8_t>(b[j]);
  } else {
    std::int16_t x[2], y[2];
    std::memcpy(x, a, 4);
    std::memcpy(y, b, 4);
    for (int j = 0; j < 2; ++j) products_sum += std::int64_t{x[j]} * y[j];
  }
  if (kind == Kind::vpdpbusds || kind == Kind::vpdpwssds) return saturated(sum + products_sum);
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(sum) +
                                   static_cast<std::uint32_t>(products_sum));
}

void multiply_vectors(const Instruction& i, Frame& frame) {
  const int bytes = i.wide ? 32 : 16;
  std::uint8_t c[32], a[32], b[32] = {};
  frame.read(i.reg, c);
  frame.read(i.vvvv, a);
  if (i.rm.is_memory)
    std::memcpy(b, pointer<const void>(frame.start(i) + frame.scaled_index(i)),
                static_cast<std::size_t>(bytes));
  else
    frame.read(i.rm.reg, b);
  std::uint8_t out[32] = {};
  for (int at = 0; at < bytes; at += 4) {
    std::int32_t sum = 0;
    std::memcpy(&sum, &c[at], 4);
    sum = lane(i.kind, sum, &a[at], &b[at]);
    std::memcpy(&out[at], &sum, 4);
  }
  frame.write(i.reg, out);
  ++vectors;
}

void carry_out(const Instruction& i, Frame& frame) {
  switch (i.kind) {
    case Kind::ldtilecfg:
      return configure(pointer<const std::uint8_t>(frame.start(i) + frame.scaled_index(i)));
    case Kind::sttilecfg:
      return store_configuration(pointer<std::uint8_t>(frame.start(i) + frame.scaled_index(i)));
    case Kind::tilerelease:
      std::memset(&state, 0, sizeof state);
      ++released;
      return;
    case Kind::tilezero:
      return clear(tile(i.reg));
    case Kind::tileloadd:
    case Kind::tileloaddt1:
      return load(tile(i.reg), frame.start(i), frame.scaled_index(i));
    case Kind::tilestored:
      return store(written_tile(i.reg), frame.start(i), frame.scaled_index(i));
    case Kind::tdpbssd:
    case Kind::tdpbsud:
    case Kind::tdpbusd:
    case Kind::tdpbuud:
      return multiply(i);
    case Kind::vpdpbusd:
    case Kind::vpdpbusds:
    case Kind::vpdpwssd:
    case Kind::vpdpwssds:
      return multiply_vectors(i, frame);
  }
}

// (qemu starts handlers on a stack that is not aligned.)
[[gnu::force_align_arg_pointer]] void on_illegal(int /*signal*/, siginfo_t* /*info*/,
                                                 void* context) {
  Frame frame(*static_cast<ucontext_t*>(context));
  auto instruction = decode(pointer<const std::uint8_t>(frame.ip()));
  if (!instruction) fault("an illegal instruction that is none of AMX or AVX-VNNI");
  // Those that follow at once, too: a signal costs more than what is done here.
  for (; instruction; instruction = decode(pointer<const std::uint8_t>(frame.ip()))) {
    carry_out(*instruction, frame);
    frame.step(instruction->length);
  }
}

}  // namespace

bool cpu_has_tiles() {
  if ((cpuid(1, 0).c >> 27U & 1U) == 0) return false;  // OSXSAVE
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low >> 17U & 1U) != 0;
}

bool cpu_has_avxvnni() { return cpuid(7, 0).a >= 1 && (cpuid(7, 1).a >> 4U & 1U) != 0; }

void install(bool amx, bool avxvnni, bool permission) {
  tiles_emulated = amx && !cpu_has_tiles();
  vectors_emulated = avxvnni && !cpu_has_avxvnni();
  if (!tiles_emulated && !vectors_emulated) return;
  struct sigaction action {};
  action.sa_sigaction = on_illegal;
  // A fault in a guarded page inside the handler must reach its own handler.
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  if (::sigaction(SIGILL, &action, nullptr) != 0) ::abort();
  grants = permission;
  std::uint32_t targets = 0;
  if (tiles_emulated) targets |= 1U << static_cast<unsigned>(Target::amx);
  if (vectors_emulated) targets |= 1U << static_cast<unsigned>(Target::avxvnni);
  bool (*const ask)() = [] {
    permitted = grants;
    return grants;
  };
  detail::pretend({.targets = targets, .ask_for_tiles = tiles_emulated ? ask : nullptr});
}

bool emulates_tiles() { return tiles_emulated; }
bool emulates_avxvnni() { return vectors_emulated; }

bool in_use() { return state.configured; }

Counts counts() { return {configured, released, products, vectors}; }

}  // namespace octavo::testing::tiles
