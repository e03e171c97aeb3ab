#!/usr/bin/env python3
"""Writes the conformance oracle: inputs, parameters and what PyTorch and ONNX make of them.

    make_oracle.py --out DIR

DIR receives index.json and cases.bin (see oracle_io.py), which conformance_test reads through the
environment variable OCTAVO_ORACLE_DIR. Needs numpy, any PyTorch from 1.13 on, and the ONNX node
tests; on Debian: apt install python3-torch python3-numpy libonnx-testdata.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.dont_write_bytecode = True

try:
    import differences
    import dynamic_cases
    import dynamic_differences
    import linear_cases
    import linear_exact
    import onnx_nodes
    import torch_cases
    import torch_ops
    from oracle_io import Oracle
except ImportError as error:
    raise SystemExit(f"{error}; on Debian: apt install python3-torch python3-numpy") from error


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="directory to write")
    parser.add_argument(
        "--onnx", type=Path, default=onnx_nodes.NODE_TESTS, help="directory of the ONNX node tests"
    )
    options = parser.parse_args()

    about = {"format": 1, **torch_ops.about()}
    oracle = Oracle(about)
    onnx_nodes.add_node_tests(oracle, options.onnx)
    onnx_nodes.add_formula(oracle)
    about["unsupported"] = torch_cases.add_all(oracle)
    dynamic_cases.add_all(oracle)
    differences.add_all(oracle)
    dynamic_differences.add_all(oracle)
    about["int_mm"] = linear_cases.add_all(oracle, options.onnx)
    linear_exact.add_all(oracle)
    counts = oracle.write(options.out)
    summary = ", ".join(f"{group} {count}" for group, count in counts.items())
    print(f"{options.out}: PyTorch {about['torch']} ({about['engine']}); cases: {summary}")


if __name__ == "__main__":
    main()
