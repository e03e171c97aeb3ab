# shellcheck shell=bash
# What takes hours.

topic 'Before a change is merged'

describe mutate <<'HELP'
small bugs, put into copies of the sources one at a time: which does no test notice?
(two hours); words choose: ./dev mutate src/core
HELP
cmd_mutate() {
  need "${build_packages[@]}" "${mutation_packages[@]}"
  module_env
  exec "$venv/bin/python" tests/mutation/mutate.py "$@"
}

describe exhaustive <<'HELP'
all 2^32 floats through the kernels, all small shapes of dynamic ranges, guard pages
(up to an hour); resumes where it stopped: ./dev exhaustive --pairs 16
HELP
cmd_exhaustive() {
  need "${build_packages[@]}"
  build release octavo_exhaustive
  exec build/release/bin/octavo_exhaustive --state build/exhaustive.state "$@"
}
