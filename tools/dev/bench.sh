# shellcheck shell=bash
# Measurements of speed.

topic 'Speed'

# bench_checkpoint [arguments]: octavo quantize against copies of the same files.
bench_checkpoint() {
  need "${build_packages[@]}"
  python_env
  build release octavo_cli
  exec "$venv/bin/python" bench/checkpoint.py build/release/bin/octavo "$@"
}

# bench_cuda [words]: what kernels ask of a GPU, which the stand-in driver counts, and their registers.
bench_cuda() {
  local missed=0
  need "${build_packages[@]}"
  build release octavo_cuda_counts
  build/release/bin/octavo_cuda_counts "$@" || missed=$?
  if (($#)); then return "$missed"; fi
  if command -v ptxas >/dev/null; then
    python3 tests/cuda/counts/registers.py ptxas build/release/src/ptx || missed=$?
  else
    say 'bench cuda: there is no ptxas to ask for registers'
  fi
  return "$missed"
}

# bench_against <revision> [words and options]: this tree and that one, in turns, without peers.
bench_against() {
  (($#)) || die 'bench --against needs a revision'
  local revision
  revision=$(git rev-parse --verify --quiet "$1^{commit}") || die "no such revision: $1"
  need "${build_packages[@]}" "${bench_packages[@]}" "${against_packages[@]}"
  # (Laid out as the project, so that the compiler cache knows what it has compiled before.)
  local -r other=build/against/$revision
  if [[ ! -f $other/CMakeLists.txt ]]; then
    mkdir -p "$other"
    git archive "$revision" | tar -x -C "$other"
  fi
  cmp -s CMakePresets.json "$other/CMakePresets.json" || cp CMakePresets.json "$other"
  export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1
  (cd "$other" && build bench-alone octavo_bench)
  build bench-alone octavo_bench
  exec python3 bench/against.py --label "$1" "$other/build/bench-alone/bin/octavo_bench" \
    build/bench-alone/bin/octavo_bench "${@:2}"
}

describe bench <<'HELP'
measure against the limit and against PyTorch, oneDNN, XNNPACK and ONNX Runtime; words
choose cases: ./dev bench elementwise | dynamic_range | linear [--quick]; of linear,
groups and floats; other arguments go to the benchmark:
./dev bench --benchmark_filter=quantize
./dev bench torch [--quick]: octavo.torch beside PyTorch's own linear layers
./dev bench checkpoint: quantizing a checkpoint against copying its files
./dev bench cuda [words]: bytes, sectors, bank conflicts, instructions of each CUDA
kernel, counted by the stand-in driver, and registers by ptxas
./dev bench --against REF [words]: this tree and another revision, in turns
HELP
cmd_bench() {
  case ${1:-} in
    torch)
      newest_python
      exec "$venv/bin/python" bench/torch_linear.py "${@:2}"
      ;;
    checkpoint) bench_checkpoint "${@:2}" ;;
    cuda)
      bench_cuda "${@:2}"
      return
      ;;
    --against) bench_against "${@:2}" ;;
  esac
  need "${build_packages[@]}" "${bench_packages[@]}"
  pypi_torch
  pypi_onnxruntime
  configure bench "-DOCTAVO_TORCH_PREFIX=$overlay/torch/share/cmake"
  build bench octavo_bench
  exec build/bench/bin/octavo_bench "$@"
}
