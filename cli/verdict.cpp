#include "cli/verdict.hpp"

#include <fmt/core.h>

#include <limits>

#include "cli/table.hpp"

namespace octavo::cli {

void add_max_error(CLI::App& command, std::optional<double>& max_error, const std::string& beyond) {
  command
      .add_option_function<std::string>(
          "--max-error",
          [&max_error](const std::string& text) {
            double value = std::numeric_limits<double>::infinity();
            if (text != "none" && !(CLI::detail::lexical_cast(text, value) && value >= 0))
              throw CLI::ValidationError("--max-error",
                                         "expected a number of 0 or more, or none, got " + text);
            max_error = value;
          },
          "The largest relative error of a layer (of its output where rows are sampled, else of "
          "its weights) that is good; " +
              beyond + ". none: no bound. Default: 0.1, int4 0.25")
      ->type_name("E|none");
}

int conclude(const Verdict& verdict) {
  fmt::print("{}\n", printable(verdict.summary));
  for (const std::string& line : verdict.advice) fmt::print("  {}\n", printable(line));
  return verdict.failed ? exit_check_failed : exit_ok;
}

}  // namespace octavo::cli
