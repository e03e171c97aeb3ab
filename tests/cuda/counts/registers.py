"""Registers of each kernel, and what it spills, as ptxas says for several sorts of GPUs.

    registers.py <ptxas> <directory of .ptx files> [word...]

Words choose kernels by a part of their name. A sort that this ptxas does not know is left out,
and said. The exit code is 1 if something is spilled.
"""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ARCHITECTURES = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
ENTRY = re.compile(
    r"Compiling entry function '(?P<name>\w+)'.*?"
    r"(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads.*?"
    r"Used (?P<registers>\d+) registers",
    re.DOTALL,
)


def assemble(ptxas, ptx, arch):
    """Kernels by name, with registers and bytes that are spilled; none if the sort is not known."""
    run = subprocess.run(
        [ptxas, "-v", f"-arch={arch}", str(ptx), "-o", os.devnull], capture_output=True, text=True
    )
    said = run.stdout + run.stderr
    if run.returncode != 0:
        if "is not defined for option" in said:
            return None
        sys.exit(f"{ptx} for {arch}:\n{said}")
    return {
        m["name"]: (int(m["registers"]), int(m["stores"]) + int(m["loads"]))
        for m in ENTRY.finditer(said)
    }


def main():
    ptxas, directory, *words = sys.argv[1:]
    files = sorted(Path(directory).glob("*.ptx"))
    if not files:
        sys.exit(f"{directory}: there is no PTX")
    pairs = [(ptx, arch) for arch in ARCHITECTURES for ptx in files]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(lambda pair: assemble(ptxas, *pair), pairs))
    known = {arch for (_, arch), kernels in zip(pairs, found, strict=True) if kernels is not None}
    table = {}
    for (_, arch), kernels in zip(pairs, found, strict=True):
        for name, values in (kernels or {}).items():
            table.setdefault(name, {})[arch] = values

    print("registers by ptxas; +N: bytes that are spilled, aim 0; * misses its aim\n")
    print(f"{'kernel':<42}" + "".join(f"{arch:>10}" for arch in ARCHITECTURES))
    misses = 0
    shown = 0
    for name, by_arch in sorted(table.items()):
        if not all(word in name for word in words):
            continue
        shown += 1
        line = f"{name:<42}"
        for arch in ARCHITECTURES:
            registers, spilled = by_arch.get(arch, ("-", 0))
            misses += spilled > 0
            line += f"{f'*{registers}+{spilled}' if spilled else registers:>10}"
        print(line)
    unknown = [arch for arch in ARCHITECTURES if arch not in known]
    if unknown:
        print(f"\nthis ptxas does not know {', '.join(unknown)}")
    print(f"\n{shown} kernels, {misses} misses of an aim")
    return 1 if misses else 0


if __name__ == "__main__":
    sys.exit(main())
