// The subcommands. Each adds its options to the parser and sets what is to run when it was chosen.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "octavo/stream.hpp"

namespace octavo::cli {

/// Exit codes: a shell script can tell a refusal from a failed check.
enum Exit : int { exit_ok = 0, exit_error = 1, exit_usage = 2, exit_check_failed = 3 };

struct Context {
  int threads = 0;
  std::function<int()> run;
  [[nodiscard]] Stream stream() const { return Stream::cpu({.threads = threads}); }
};

void add_info(CLI::App& app, Context& context);
void add_inspect(CLI::App& app, Context& context);
void add_quantize(CLI::App& app, Context& context);
void add_verify(CLI::App& app, Context& context);
void add_report(CLI::App& app, Context& context);
void add_bench(CLI::App& app, Context& context);

}  // namespace octavo::cli
