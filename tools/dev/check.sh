# shellcheck shell=bash
# What a change must pass: style, compilers, sanitizers, CPUs, PyTorch, a browser.

topic 'Before a change is merged'

describe lint <<'HELP'
formatting, clang-tidy, shellcheck and ruff; any finding is an error
HELP
cmd_lint() {
  style_tools
  say 'clang-format'
  sources '*.hpp' '*.h' '*.cpp' '*.c' '*.cu' | xargs -r "clang-format-$clang_version" --dry-run -Werror
  say 'shellcheck'
  # The parts of ./dev are checked as it sources them, for each uses what others define.
  shellcheck --external-sources --check-sourced dev
  sources .ci/run '*.sh' ':!tools/dev' | xargs -r shellcheck --external-sources
  say 'ruff'
  ruff_over_sources check --select E,F,W,I,B,UP
  ruff_over_sources format --check
  # ninja runs clang-tidy with each compilation and remembers which files passed.
  say 'clang-tidy'
  need "${build_packages[@]}" "${clang_packages[@]}" "${bench_packages[@]}" "${tidy_packages[@]}"
  with_python lint
  cmake --build build/lint -- -k 0
  say 'lint: no findings'
}

describe matrix <<'HELP'
build and test with g++ 12 and clang 14, Debug and Release
HELP
cmd_matrix() {
  local preset
  need "${build_packages[@]}" "${clang_packages[@]}"
  debian_oracle
  for preset in gcc-debug gcc-release clang-debug clang-release; do
    build "$preset"
    say "matrix: the tests of $preset"
    suite "$preset" "$@"
  done
  say "matrix: passed with g++ $gcc_version and clang $clang_version, Debug and Release"
}

describe sanitize <<'HELP'
the tests under ASan with UBSan, then under TSan
HELP
cmd_sanitize() {
  local preset
  need "${build_packages[@]}" "${clang_packages[@]}" "${sanitizer_packages[@]}"
  debian_oracle
  # TSan of clang 14 cannot place its shadow where the kernel randomises addresses too widely.
  if setarch -R true 2>/dev/null; then launcher=(setarch -R); fi
  export UBSAN_OPTIONS=print_stacktrace=1
  for preset in asan tsan; do
    build "$preset"
    say "sanitize: the tests of $preset"
    suite "$preset" "$@"
  done
  say 'sanitize: clean'
}

describe aarch64 <<'HELP'
cross-build for 64-bit Arm; the tests under qemu as cortex-a72, neoverse-n1 and
max (with SVE of 512 and of 2048 bits)
HELP
cmd_aarch64() {
  need "${build_packages[@]}"
  if ! dpkg --print-foreign-architectures | grep -qx arm64; then
    say 'adding the architecture arm64 to dpkg'
    as_root dpkg --add-architecture arm64
  fi
  need "${arm64_packages[@]}"
  debian_oracle
  emulated aarch64 "${arm64_cpus[*]}" "$@"
}

describe oldx86 <<'HELP'
the tests under qemu as older x86-64 CPUs: qemu64 (no AVX) and Haswell (AVX2)
HELP
cmd_oldx86() {
  need "${build_packages[@]}" "${x86_packages[@]}"
  debian_oracle
  emulated oldx86 "${x86_cpus[*]}" "$@"
}

describe tiles <<'HELP'
the linear layers on AMX and AVX-VNNI, whose instructions a part of the tests carries out
where the CPU lacks them (some of it is in ./dev test)
HELP
cmd_tiles() {
  need "${build_packages[@]}"
  build release linear_test linear_group_test linear_digest_test linear_guard_test \
    linear_behaviour_test packed_weight_test octavo_exhaustive tiles_test
  suite release -C tiles -R '^tiles|^Emulator|^Decoder' "$@"
}

describe conformance <<'HELP'
compare with PyTorch afresh: first PyPI's, then Debian's
HELP
cmd_conformance() {
  need "${build_packages[@]}"
  pypi_torch
  pypi_compressed_tensors
  build release
  rm -rf build/oracle build/oracle-pypi
  oracle oracle-pypi "$overlay"
  suite release -L conformance "$@"
  oracle oracle ''
  suite release -L conformance "$@"
}

describe python <<'HELP'
the tests of the Python module with PyPI's PyTorch and NumPy, which are newer than
Debian's; arguments go to pytest: ./dev python -k linear
HELP
cmd_python() {
  newest_python
  build release octavo_cli
  export OCTAVO_COMMAND=$root/build/release/bin/octavo
  "$venv/bin/python" -c \
    'import numpy, torch; print(f"== PyTorch {torch.__version__}, NumPy {numpy.__version__}")' >&2
  exec "$venv/bin/python" -m pytest -rs -p no:cacheprovider python/tests "$@"
}

describe report-check <<'HELP'
the page of `octavo report` in Chromium (a large package): on a phone, on a screen, on
paper, with hostile names, with 700 layers; pictures of it are in build/report
HELP
cmd_report-check() {
  need "${build_packages[@]}" "${report_packages[@]}"
  build release octavo_cli
  PYTHONDONTWRITEBYTECODE=1 python3 tests/report/check_report.py \
    --octavo build/release/bin/octavo --checkpoint examples/checkpoint --out build/report
}
