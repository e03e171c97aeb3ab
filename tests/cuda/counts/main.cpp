// octavo_cuda_counts [--check] [word...]: a table of what each kernel does, for the cases whose
// name and shape have each of the words. With --check only what misses its aim, and exit code 1
// then.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "testing/floats.hpp"
#include "tests/cuda/counts/counts.hpp"
#include "tests/cuda/driver/control.hpp"

namespace octavo::counts {

TensorMut Data::upload(DType type, const Shape& shape, const std::vector<std::byte>& bytes) {
  bytes_ += static_cast<std::int64_t>(bytes.size());
  return {memory_.upload(bytes.data(), bytes.size()), type, shape};
}

TensorMut Data::random(DType type, const Shape& shape) {
  std::int64_t count = 1;
  for (int i = 0; i < shape.rank(); ++i) count *= shape[i];
  std::vector<std::byte> bytes(static_cast<std::size_t>(bytes_for(type, count)));
  const auto next = [this] { return (seed_ = seed_ * 1664525U + 1013904223U) >> 8U; };
  if (!is_float(type)) {
    for (std::byte& b : bytes) b = static_cast<std::byte>(next() >> 8U);
    return upload(type, shape, bytes);
  }
  const auto size = static_cast<std::size_t>(bytes_for(type, 1));
  for (std::size_t at = 0; at < bytes.size(); at += size) {
    const double value = (static_cast<double>(next()) / (1 << 23) - 1) * 7;
    const std::uint64_t bits = testing::encode(type, value);
    std::memcpy(&bytes[at], &bits, size);
  }
  return upload(type, shape, bytes);
}

TensorMut Data::powers(DType type, std::int64_t count, int exponent) {
  const std::uint64_t bits = testing::encode(type, std::ldexp(1.0, exponent));
  const auto size = static_cast<std::size_t>(bytes_for(type, 1));
  std::vector<std::byte> bytes(size * static_cast<std::size_t>(count));
  for (std::size_t at = 0; at < bytes.size(); at += size) std::memcpy(&bytes[at], &bits, size);
  return upload(type, {count}, bytes);
}

TensorMut Data::counted(std::int64_t count) {
  std::vector<std::byte> bytes(4 * static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    const auto number = static_cast<std::int32_t>(i);
    std::memcpy(&bytes[4 * static_cast<std::size_t>(i)], &number, sizeof(number));
  }
  return upload(DType::s32, {count}, bytes);
}

Workspace Data::workspace(std::size_t bytes) {
  if (bytes == 0) return {};
  lent_.emplace_back(stream_, bytes);
  return lent_.back();
}

namespace {

constexpr double most_traffic = 1.05;
constexpr const char* line = "{:<29}{:<19}{:<34}{:>8}{:>8}{:>8}{:>10}{:>7}{:>7}{:>5}\n";

// What a kernel did; counters of the driver whose name lasts.
struct Kernel : standin::KernelCounters {
  explicit Kernel(const standin::KernelCounters& c) : KernelCounters(c), called(c.name) {}
  std::string called;
};
using Kernels = std::vector<Kernel>;

double ratio(std::uint64_t a, std::uint64_t b) {
  return static_cast<double>(a) / static_cast<double>(b);
}
std::string two_digits(double value) { return fmt::format("{:.2f}", value); }

class Table {
 public:
  explicit Table(bool check) : check_(check) {
    if (check_) return;
    fmt::print(
        "memory     bytes of the sectors (of 32 bytes) that a launch touches, over those of all "
        "operands:\n"
        "           aim {0:.2f}\n"
        "asked      the same of all that warps ask for, much of which a cache has: aim {0:.2f} "
        "where no\n"
        "           scales are shared\n"
        "sectors    asked for, over those that the bytes of a request fill: aim 1.00\n"
        "conflicts  of banks of shared memory, for 1000 requests; of products those of the main "
        "loop\n"
        "           (what twice the k adds): aim 0\n"
        "instr      of threads, for each element\n"
        "mma        of 100 instructions of warps\n"
        "f64        the same: aim 0\n"
        "Conflicts and mma of products are those of the main loop, which is what twice the k adds; "
        "(in\n"
        "brackets of all, where k was cut otherwise for that.) * misses its aim.\n\n",
        most_traffic);
    fmt::print(line, "case", "", "kernel", "memory", "asked", "sectors", "conflicts", "instr",
               "mma", "f64");
  }
  void add(const Case& c, const Kernels& kernels, const Kernels& deeper);
  [[nodiscard]] int missed() const { return missed_; }

 private:
  std::string judged(const std::string& text, bool good) {
    if (good) return text;
    ++missed_;
    bad_ = true;
    return "*" + text;
  }
  std::string conflicts(const Kernel& kernel, bool judge);

  bool check_;
  bool bad_ = false;  // whether the line at hand misses an aim
  int missed_ = 0;
};

// The main loop of a product: what twice the k adds. None if k was cut in other pieces then.
std::optional<Kernel> main_loop(const Kernel& kernel, const Kernels& deeper) {
  for (Kernel d : deeper) {
    if (d.called != kernel.called || d.blocks != kernel.blocks) continue;
    d.shared_requests -= kernel.shared_requests;
    d.shared_conflicts -= kernel.shared_conflicts;
    d.mma -= kernel.mma;
    d.warp_instructions -= kernel.warp_instructions;
    return d;
  }
  return std::nullopt;
}

std::string Table::conflicts(const Kernel& kernel, bool judge) {
  if (kernel.shared_requests == 0) return "-";
  const double each = 1000 * ratio(kernel.shared_conflicts, kernel.shared_requests);
  return judged(fmt::format("{:.0f}", std::ceil(each)), !judge || kernel.shared_conflicts == 0);
}

void Table::add(const Case& c, const Kernels& kernels, const Kernels& deeper) {
  const auto least = static_cast<std::uint64_t>(c.least);
  std::uint64_t memory = 0;
  std::uint64_t asked = 0;
  for (const Kernel& k : kernels) {
    memory += k.touched_bytes_read + k.touched_bytes_written;
    asked += 32 * k.sectors;
  }
  bad_ = false;
  const std::string of_memory = judged(two_digits(ratio(memory, least)),
                                       !c.aims.memory || ratio(memory, least) <= most_traffic);
  const std::string of_asked =
      judged(two_digits(ratio(asked, least)), !c.aims.asked || ratio(asked, least) <= most_traffic);
  const bool one = kernels.size() == 1;
  if (!one && (!check_ || bad_))
    fmt::print(line, c.name, c.shape, fmt::format("{} kernels", kernels.size()), of_memory,
               of_asked, "", "", "", "", "");
  for (const Kernel& k : kernels) {
    if (!one) bad_ = false;
    const std::string sectors =
        k.ideal_sectors == 0 ? "-"
                             : judged(two_digits(ratio(k.sectors, k.ideal_sectors)),
                                      !c.aims.sectors || ratio(k.sectors, k.ideal_sectors) < 1.005);
    const std::optional<Kernel> loop = c.deeper ? main_loop(k, deeper) : k;
    const auto maybe = [&](const std::string& text) {
      return loop || text == "-" ? text : "(" + text + ")";
    };
    const Kernel& counted = loop ? *loop : k;
    const std::string banks = maybe(conflicts(counted, loop.has_value()));
    const std::string products =
        counted.mma == 0
            ? "-"
            : maybe(fmt::format("{:.1f}", 100 * ratio(counted.mma, counted.warp_instructions)));
    const std::string doubles =
        k.double_instructions == 0
            ? "-"
            : judged(fmt::format("{:.1f}", 100 * ratio(k.double_instructions, k.warp_instructions)),
                     false);
    if (check_ && !bad_) continue;
    const bool named = one || check_;
    fmt::print(
        line, named ? c.name : "", named ? c.shape : "", k.called,
        one ? of_memory : two_digits(ratio(k.touched_bytes_read + k.touched_bytes_written, least)),
        one ? of_asked : two_digits(ratio(32 * k.sectors, least)), sectors, banks,
        c.elements == 0 ? "-"
                        : fmt::format("{:.1f}", ratio(k.thread_instructions,
                                                      static_cast<std::uint64_t>(c.elements))),
        products, doubles);
  }
}

// What the kernels of a run did.
Result<Kernels> count(const Stream& stream, const standin::Control& control,
                      const std::function<Status()>& run) {
  if (Status s = stream.synchronize(); !s) return s.error();
  control.reset_counters();
  control.set_counting(true);
  Status s = run();
  if (s) s = stream.synchronize();
  control.set_counting(false);
  if (!s) return s.error();
  Kernels kernels;
  standin::KernelCounters counters{};
  for (std::uint64_t i = 0; i < control.counter_count(); ++i)
    if (control.counters(i, &counters) && counters.launches != 0) kernels.emplace_back(counters);
  return kernels;
}

int fail(const Error& error) {
  fmt::print(stderr, "octavo_cuda_counts: {}\n", error.message());
  return 2;
}

int run(bool check, const std::vector<std::string>& words) {
  const auto stream = Stream::cuda();
  if (!stream) return fail(stream.error());
  const standin::Control* control = standin::Control::find();
  if (control == nullptr) {
    fmt::print(stderr,
               "octavo_cuda_counts: only the stand-in driver counts, and this is another\n");
    return 2;
  }
  Cases cases;
  add_elementwise(cases);
  add_rows(cases);
  add_linear(cases);
  Table table(check);
  int ran = 0;
  for (const auto& make : cases) {
    Data data(*stream);
    const Result<Case> c = make(data);
    if (!c) return fail(c.error());
    const std::string name = c->name + " " + c->shape;
    if (!std::all_of(words.begin(), words.end(),
                     [&](const std::string& w) { return name.find(w) != std::string::npos; }))
      continue;
    const auto kernels = count(*stream, *control, c->run);
    if (!kernels) return fail(kernels.error());
    const auto deeper = c->deeper ? count(*stream, *control, c->deeper) : Kernels();
    if (!deeper) return fail(deeper.error());
    table.add(*c, *kernels, *deeper);
    ++ran;
  }
  fmt::print("{}{} cases, {} misses of an aim\n", check ? "" : "\n", ran, table.missed());
  return ran == 0 || (check && table.missed() != 0) ? 1 : 0;
}

}  // namespace
}  // namespace octavo::counts

int main(int argc, char** argv) {
  bool check = false;
  std::vector<std::string> words;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--check")
      check = true;
    else
      words.emplace_back(argv[i]);
  }
  return octavo::counts::run(check, words);
}
