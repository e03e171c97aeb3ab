# shellcheck shell=bash
# The first commands.

topic 'Start here'

describe demo <<'HELP'
build the command `octavo`, and take a small language model that comes with the
project to 8 bits with it: inspect, smooth, quantize, verify, report
HELP
cmd_demo() {
  need "${build_packages[@]}"
  build release octavo_cli
  exec examples/checkpoint/demo.sh build/release/bin/octavo build/demo
}

describe test <<'HELP'
build everything and run the tests; arguments go to ctest: ./dev test -R Quantize
HELP
cmd_test() {
  need "${build_packages[@]}"
  debian_oracle
  with_python release
  language_model
  build release
  suite release "$@"
}

describe format <<'HELP'
rewrite C++ and Python sources in the project's style
HELP
cmd_format() {
  style_tools
  sources '*.hpp' '*.h' '*.cpp' '*.c' '*.cu' | xargs -r "clang-format-$clang_version" -i
  ruff_over_sources format
}

describe lock <<'HELP'
write requirements/*.txt, what is installed from PyPI, anew from *.in beside them
HELP
cmd_lock() {
  local list
  local -a options
  python_env
  locked uv
  for list in requirements/*.in; do
    read -ra options < <(sed -n 's/^# options: //p' "$list") || true
    [[ $list == */torch_gpu.in ]] || options+=(--override requirements/overrides.txt)
    say "$list"
    "$venv/bin/uv" pip compile --quiet --no-header --generate-hashes \
      --python-version "$lock_python_version" "${options[@]}" "$@" "$list" -o "${list%.in}.txt"
  done
}
