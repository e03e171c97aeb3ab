#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>

#include "cli/commands.hpp"
#include "cli/table.hpp"

namespace {

int run(int argc, char** argv) {
  CLI::App app{
      "octavo: quantization with the same bits on every CPU.\n"
      "From a float checkpoint to one that runs in 8 or 4 bits."};
  app.set_version_flag("--version", OCTAVO_VERSION);
  app.require_subcommand(1);
  app.fallthrough();  // --threads may follow the subcommand
  octavo::cli::Context context;
  app.add_option("--threads", context.threads, "How many threads share the work; 0: all cores")
      ->check(CLI::Range(0, 4096));
  octavo::cli::add_info(app, context);
  octavo::cli::add_inspect(app, context);
  octavo::cli::add_quantize(app, context);
  octavo::cli::add_verify(app, context);
  octavo::cli::add_report(app, context);
  octavo::cli::add_bench(app, context);
  try {
    app.parse(argc, argv);
  } catch (const CLI::RequiredError& e) {
    const std::vector<std::string> words = app.remaining();
    if (words.empty() || !app.get_subcommands().empty()) {
      app.exit(e);
    } else {
      fmt::print(stderr,
                 "octavo: expected one of the subcommands that octavo --help lists, got {}\n",
                 octavo::cli::printable(words.front()));
    }
    return octavo::cli::exit_usage;
  } catch (const CLI::ParseError& e) {
    const int code = app.exit(e);
    return code == 0 ? octavo::cli::exit_ok : octavo::cli::exit_usage;
  }
  const int code = context.run();
  // What was printed may still wait in a buffer.
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    fmt::print(stderr, "octavo: cannot write the output: {}\n", std::strerror(errno));
    return octavo::cli::exit_error;
  }
  return code;
}

// A mapped file that became shorter, or a disk that failed: the one place to say so is here.
void on_bus_error(int /*signal*/) {
  constexpr char text[] =
      "\noctavo: an input file could not be read any more: it became shorter, or its disk failed\n";
  [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, text, sizeof(text) - 1);
  ::_exit(octavo::cli::exit_error);
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGBUS, on_bus_error);
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "octavo: {}\n", e.what());
    return octavo::cli::exit_error;
  }
}
