// The verdict at the end of quantize, verify and report.
#pragma once

#include <optional>

#include "cli/commands.hpp"
#include "octavo/verdict.hpp"

namespace octavo::cli {

/// --max-error E|none; an infinite one lifts the bound. `beyond` says what follows from more.
void add_max_error(CLI::App& command, std::optional<double>& max_error,
                   const std::string& beyond = "beyond it the exit code is 3");

/// Prints it, and returns the exit code for it.
int conclude(const Verdict& verdict);

}  // namespace octavo::cli
