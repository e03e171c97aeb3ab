# shellcheck shell=bash
# Measurements of models.

topic 'Accuracy'

describe accuracy <<'HELP'
a real language model in 8 and 4 bits: the tables of docs/accuracy.md
./dev accuracy checkpoint: one that the command quantized, in 8 and 4 bits: the table of
docs/offline.md (some twenty minutes)
HELP
cmd_accuracy() {
  newest_python
  [[ ${1:-} == checkpoint ]] || exec "$venv/bin/python" python/tests/model_accuracy.py
  pypi_compressed_tensors
  locked smollm2 --upgrade --target "$venv/compressed_tensors"
  build release octavo_cli
  PYTHONPATH=$PYTHONPATH:$venv/compressed_tensors exec "$venv/bin/python" \
    python/tests/checkpoint_accuracy.py build/release/bin/octavo build/accuracy
}
