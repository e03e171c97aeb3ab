#include <fmt/core.h>

#include <cstdio>
#include <exception>

#include "cli/commands.hpp"

namespace {

int run(int argc, char** argv) {
  CLI::App app{
      "octavo: quantization with the same bits on every CPU.\n"
      "From a float checkpoint to one that runs in 8 or 4 bits."};
  app.set_version_flag("--version", OCTAVO_VERSION);
  app.require_subcommand(1);
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
  } catch (const CLI::ParseError& e) {
    const int code = app.exit(e);
    return code == 0 ? octavo::cli::exit_ok : octavo::cli::exit_usage;
  }
  return context.run();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "octavo: {}\n", e.what());
    return octavo::cli::exit_error;
  }
}
