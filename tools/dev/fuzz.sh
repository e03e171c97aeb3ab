# shellcheck shell=bash
# Fuzzers.

topic 'Before a change is merged'

readonly fuzz_targets=(safetensors checkpoint verify statistics packed_weight pattern)

# The lines of src/offline that the kept inputs of all fuzzers reach; an error if they are too few.
fuzz_coverage() {
  local -r least=85 profiles=$root/build/fuzz-coverage/profiles
  local target
  local -a binaries=() objects
  build fuzz-coverage "${fuzz_targets[@]/%/_fuzz}"
  rm -rf "$profiles"
  for target in "${fuzz_targets[@]}"; do
    LLVM_PROFILE_FILE=$profiles/$target.profraw \
      "build/fuzz-coverage/bin/${target}_fuzz" "tests/fuzz/$target" | tail -n 1 | sed "s/^/$target: /"
    binaries+=("build/fuzz-coverage/bin/${target}_fuzz")
  done
  "llvm-profdata-$clang_version" merge -o "$profiles/all" "$profiles"/*.profraw
  objects=("${binaries[@]:1}")
  "llvm-cov-$clang_version" export -summary-only "${binaries[0]}" "${objects[@]/#/-object=}" \
    -instr-profile="$profiles/all" >"$profiles/summary.json"
  python3 tests/fuzz/print_coverage.py --under src/offline --least $least "$profiles/summary.json"
}

# fuzz_one <target> [libFuzzer arguments]
fuzz_one() {
  local -r corpus=$root/build/fuzz/corpus/$1
  mkdir -p "$corpus"
  say "fuzzing $1"
  UBSAN_OPTIONS=print_stacktrace=1 "build/fuzz/bin/$1_fuzz" -max_total_time=60 -max_len=65536 \
    -rss_limit_mb=1024 -timeout=60 -dict=tests/fuzz/words.dict -print_final_stats=1 \
    -artifact_prefix="build/fuzz/$1-" "${@:2}" "$corpus" "tests/fuzz/$1"
}

describe fuzz <<'HELP'
random bytes as everything that is read from files, under ASan with UBSan, for a minute
each: safetensors, checkpoint, verify, statistics, packed_weight and pattern; a word
chooses one, and arguments go to libFuzzer: ./dev fuzz verify -max_total_time=3600
./dev fuzz --coverage: the lines of src/offline that the kept inputs reach
./dev fuzz --keep: keeps those new inputs that reach more (tests/fuzz)
HELP
cmd_fuzz() {
  need "${build_packages[@]}" "${clang_packages[@]}" "${fuzz_packages[@]}"
  if [[ ${1:-} == --coverage ]]; then
    fuzz_coverage
    return
  fi
  local -a targets=("${fuzz_targets[@]}")
  local keep='' target
  if [[ ${1:-} == --keep ]]; then
    keep=1
    shift
  fi
  if [[ -n ${1:-} && $1 != -* ]]; then
    [[ " ${fuzz_targets[*]} " == *" $1 "* ]] || die "no fuzzer \"$1\"; there are ${fuzz_targets[*]}"
    targets=("$1")
    shift
  fi
  build fuzz "${targets[@]/%/_fuzz}"
  for target in "${targets[@]}"; do
    if [[ -n $keep ]]; then
      # Small ones, and by edges alone: an input that only goes round more often is not kept.
      rm -rf "build/fuzz/small/$target"
      mkdir -p "build/fuzz/small/$target" "build/fuzz/corpus/$target"
      find "build/fuzz/corpus/$target" -type f -size -513c -exec cp -t "build/fuzz/small/$target" {} +
      "build/fuzz/bin/${target}_fuzz" -set_cover_merge=1 -use_counters=0 -max_len=65536 \
        -artifact_prefix="build/fuzz/$target-" "$@" "tests/fuzz/$target" "build/fuzz/small/$target"
    else
      fuzz_one "$target" "$@"
    fi
  done
}
