# shellcheck shell=bash
# Configuring, building and running the tests.

jobs=$(nproc)
export CMAKE_BUILD_PARALLEL_LEVEL=$jobs CTEST_PARALLEL_LEVEL=$jobs

# configure <preset> [cmake options]: once, and again when the presets have changed.
configure() {
  local -r tree=build/$1
  [[ -f $tree/build.ninja && $tree/build.ninja -nt CMakePresets.json ]] && return
  say "configuring $tree"
  cmake --preset "$@"
}

# with_python <preset>: the same, with the Python module in it.
with_python() {
  module_env
  grep -qs '^OCTAVO_PYTHON:BOOL=ON' "build/$1/CMakeCache.txt" &&
    [[ build/$1/build.ninja -nt CMakePresets.json ]] && return
  say "configuring build/$1 with the Python module"
  cmake --preset "$1" -DOCTAVO_PYTHON=ON "-DPython_EXECUTABLE=$venv/bin/python"
}

# build <preset> [targets]
build() {
  local -r preset=$1
  local -a targets=("${@:2}")
  configure "$preset"
  say "building build/$preset"
  cmake --build "build/$preset" ${targets[@]:+--target "${targets[@]}"}
}

# suite <preset> [ctest arguments]: its output ends with ctest's closing lines.
launcher=()
suite() {
  "${launcher[@]}" ctest --test-dir "build/$1" --output-on-failure --no-tests=error "${@:2}"
}

# emulated <preset> <CPU models> [ctest arguments]
emulated() {
  local -r preset=$1 models=$2
  local model
  build "$preset"
  for model in $models; do
    say "$preset: the tests under qemu, CPU model $model"
    # ctest remembers each program's list of cases, and that list may depend on the CPU.
    find "build/$preset" -name '*_tests.cmake' -delete
    QEMU_CPU=$model OCTAVO_EMULATED=1 suite "$preset" "${@:3}"
  done
  say "$preset: passed on every CPU model"
}
