# shellcheck shell=bash
# What other libraries answer, for the tests to compare with.

# oracle <directory> <PYTHONPATH>: writes the conformance cases, unless newer than their scripts.
oracle() {
  local -r out=$root/build/$1 scripts=tests/conformance
  export OCTAVO_ORACLE_DIR=$out
  [[ -f $out/.complete && -z $(find $scripts -name '*.py' -newer "$out/.complete") ]] && return
  [[ -f $scripts/make_oracle.py ]] || { say "no $scripts/make_oracle.py: no oracle"; return; }
  rm -rf "$out"
  mkdir -p "$out"
  PYTHONPATH=$2 "$venv/bin/python" -c \
    'import torch; print(f"== asking PyTorch {torch.__version__} for the conformance cases")' >&2
  PYTHONPATH=$2 "$venv/bin/python" $scripts/make_oracle.py --out "$out"
  touch "$out/.complete"
}

debian_oracle() {
  python_env
  oracle oracle ''
  safetensors_answers
}

# What PyPI's safetensors accepts. Without it, that comparison is shown as skipped.
safetensors_answers() {
  local -r out=$root/build/safetensors script=tests/safetensors/make_corpus.py
  export OCTAVO_SAFETENSORS_DIR=$out
  [[ -f $out/.complete && $out/.complete -nt $script ]] && return
  if ! locked safetensors; then
    say 'no safetensors from PyPI: the comparison with it is skipped'
    return
  fi
  rm -rf "$out"
  "$venv/bin/python" "$script" --out "$out" >&2
  touch "$out/.complete"
}
