# shellcheck shell=bash
# The CUDA backend: its tests on the stand-in driver or on a GPU, and what its kernels ask of one.

topic 'Before a change is merged'

# Cases on a device by their names, of the programs that have some. (Others go there in some of their cases
# beside the CPU: --all.)
readonly device_cases='sm80|[Cc]uda|OnADevice'
# Orders of warps, blocks and streams of the stand-in beside the plain one.
readonly standin_seeds='1 2 3'

# real_driver: the directory of NVIDIA's libcuda.so.1, if the system has one.
real_driver() { ldconfig -p 2>/dev/null | awk '$1 == "libcuda.so.1" { sub("/[^/]*$", "", $NF); print $NF; exit }'; }

describe cuda <<'HELP'
the tests of CUDA plans: on the GPU where there is a driver (--device: only there), else on
the stand-in, which executes the kernels on the CPU (--stand-in: in any case);
--all: all tests that go there, several orders of warps and blocks, ptxas for all GPUs;
other arguments go to ctest
HELP
cmd_cuda() {
  local where='' all=0 seed directory
  while [[ ${1:-} == --* ]]; do
    case $1 in
      --device | --stand-in) where=$1 ;;
      --all) all=1 ;;
      *) break ;;
    esac
    shift
  done
  need "${build_packages[@]}"
  build release
  directory=$(real_driver)
  if [[ -n $directory && $where != --stand-in ]]; then
    say "cuda: the driver in $directory"
    LD_LIBRARY_PATH=$directory${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} \
      suite release -L '^cuda$' -R "$device_cases" "$@"
  elif [[ $where == --device ]]; then
    die 'cuda: there is no libcuda.so.1 of a device'
  fi
  [[ $where != --device ]] || return 0
  [[ -z $directory || $where == --stand-in || $all == 1 ]] || return 0
  say 'cuda: the stand-in driver'
  (($#)) || suite release -L '^standin$'
  ((all)) || { suite release -L '^cuda$' -R "$device_cases" "$@"; return; }
  suite release -L '^cuda$' "$@"
  for seed in $standin_seeds; do
    say "cuda: the stand-in driver, order $seed"
    OCTAVO_STANDIN_SEED=$seed suite release -L '^cuda$' -R "$device_cases" "$@"
  done
  OCTAVO_PTXAS_ALL=1 suite release -R '^cuda\.ptxas$'
  say 'cuda: passed'
}
