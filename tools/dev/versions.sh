# shellcheck shell=bash
# All that is pinned, and all that is installed from Debian. Packages without a number in their name have
# the version of the release, Debian 12. What comes from PyPI is pinned in requirements/*.txt, by version
# and hash; `./dev lock` writes those (requirements/README.md).
#
# CMakePresets.json and cmake/OctavoWarnings.cmake cannot read this file and name compilers themselves:
# the test `dev` sees that they agree with it.

# --- Tools ---------------------------------------------------------------------------------------

readonly gcc_version=12
# clang, and clang-format, clang-tidy and llvm with it: another release formats and warns otherwise.
readonly clang_version=14
# The Python for which requirements/*.txt are made: that of Debian.
readonly lock_python_version=3.11

# --- Debian packages -----------------------------------------------------------------------------

# (clang compiles what runs on GPUs.)
readonly build_packages=(
  "clang-$clang_version" "g++-$gcc_version" "gcc-$gcc_version" g++ cmake ninja-build ccache pkg-config libhwy-dev libtbb-dev
  libgtest-dev libgmock-dev libfmt-dev libre2-dev libcli11-dev nlohmann-json3-dev)
readonly oracle_packages=(
  python3 python3-venv python3-numpy python3-torch libonnx-testdata)
readonly python_packages=(python3-dev python3-pytest python3-hypothesis)
readonly style_packages=(git "clang-format-$clang_version" shellcheck)
readonly clang_packages=("clang-$clang_version")
readonly tidy_packages=("clang-tidy-$clang_version")
readonly sanitizer_packages=("libclang-rt-$clang_version-dev" "llvm-$clang_version")
readonly bench_packages=(libbenchmark-dev libdnnl-dev libxnnpack-dev libpthreadpool-dev)
readonly report_packages=(chromium fonts-dejavu-core python3)
readonly fuzz_packages=("${sanitizer_packages[@]}" python3)
readonly mutation_packages=(git)
readonly against_packages=(git python3)
readonly deb_packages=(dpkg-dev file)
readonly rootless_deb_packages=(fakeroot)
readonly x86_packages=(qemu-user)
readonly arm64_packages=(
  g++-aarch64-linux-gnu qemu-user libhwy-dev:arm64 libtbb-dev:arm64 libgtest-dev:arm64
  libgmock-dev:arm64 libfmt-dev:arm64 libre2-dev:arm64)

# --- CPU models of qemu --------------------------------------------------------------------------

# Less those features of a Haswell that qemu cannot emulate and would warn of at every start.
readonly x86_cpus=(qemu64 "Haswell,-pcid,-x2apic,-tsc-deadline,-hle,-invpcid,-rtm")
# Vectors of 512 bits are what qemu gives by itself; the last has the longest there are.
readonly arm64_cpus=(cortex-a72 neoverse-n1 max "max,sve-default-vector-length=256")
