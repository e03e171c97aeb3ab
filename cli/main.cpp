#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <sstream>

#include "cli/commands.hpp"
#include "cli/print.hpp"

namespace {

using octavo::cli::complain;

// What was printed may still wait in a buffer.
int flushed(int code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  complain("cannot write the output: {}", std::strerror(errno));
  return octavo::cli::exit_error;
}

// Help that was asked for, or what is wrong with the arguments.
int parsing_ended(const CLI::App& app, const CLI::Error& e) {
  std::ostringstream help, wrong;
  const int code = app.exit(e, help, wrong);
  fmt::print("{}", help.str());
  std::istringstream lines(wrong.str());
  for (std::string line; std::getline(lines, line);)
    octavo::cli::to_stderr(octavo::cli::printable(line) + "\n");
  return flushed(code == 0 ? octavo::cli::exit_ok : octavo::cli::exit_usage);
}

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
    if (words.empty() || !app.get_subcommands().empty()) return parsing_ended(app, e);
    complain("expected one of the subcommands that octavo --help lists, got {}", words.front());
    return octavo::cli::exit_usage;
  } catch (const CLI::ParseError& e) {
    return parsing_ended(app, e);
  }
  return flushed(context.run());
}

// A mapped file that became shorter, or a disk that failed: the one place to say so is here.
void on_bus_error(int /*signal*/) {
  constexpr char text[] =
      "\noctavo: an input file could not be read any more: it became shorter, or its disk failed\n";
  [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, text, sizeof(text) - 1);
  ::_exit(octavo::cli::exit_error);
}

// A file that is opened while one of the three standard streams is closed would take its number,
// and what is said would be written into it. These refuse: the first what is read, the others what
// is written.
void fill_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(fd, F_GETFD) < 0) [[maybe_unused]]
      const int opened = ::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

}  // namespace

int main(int argc, char** argv) {
  fill_standard_streams();
  std::signal(SIGBUS, on_bus_error);
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    complain("{}", e.what());
    return octavo::cli::exit_error;
  }
}
