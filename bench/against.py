#!/usr/bin/env python3
"""Measures two builds of octavo_bench in turns: this revision and another one.

    against.py OTHER OURS [words and options of octavo_bench]

Both run the cases that both have, without peers, one program after the other and the other way
round, several times; of each case the fastest time counts. Cases that seem slower than BOUND are
measured three times more, alone; only those that stay so are called slower, and make the exit
status 1.
"""

import argparse
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile

BOUND = 0.97
AGAIN = 3


def measure(program, arguments):
    """Microseconds of each case."""
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / "out.json"
        subprocess.run(
            [program, *arguments, "--json", path],
            check=True,
            stdout=subprocess.DEVNULL,
            env=os.environ | {"OCTAVO_BENCH_PEER": "none"},
        )
        runs = json.loads(path.read_text())["benchmarks"]
    return {
        re.sub(r"/iterations:\d+/manual_time$", "", run["name"]): run["real_time"]
        for run in runs
        if not run.get("error_occurred")
    }


def race(programs, arguments, rounds, best):
    """Lowers `best`, a dictionary of times for each program, by so many rounds of both."""
    for turn in range(rounds):
        for i in (0, 1) if turn % 2 == 0 else (1, 0):
            for name, time in measure(programs[i], arguments).items():
                best[i][name] = min(time, best[i].get(name, math.inf))
        if sys.stderr.isatty():
            print(f"\r{turn + 1} of {rounds} rounds", end="", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)


def ratios(best):
    return {name: best[0][name] / time for name, time in best[1].items() if name in best[0]}


def filter_of(names):
    alternatives = "|".join(re.escape(name) for name in names)
    return f"--benchmark_filter=^({alternatives})/iterations"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", help="octavo_bench of the other revision")
    parser.add_argument("ours", help="octavo_bench of this one")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--label", default="the other", help="what to call the other revision")
    arguments, rest = parser.parse_known_args()
    programs = (arguments.other, arguments.ours)

    best = ({}, {})
    race(programs, rest, arguments.rounds, best)
    found = ratios(best)
    if not found:
        sys.exit("against.py: the two have no case in common")
    doubtful = [name for name, ratio in found.items() if ratio < BOUND]
    if doubtful:
        print(f"{len(doubtful)} cases below {BOUND} are measured {AGAIN} times more", flush=True)
        race(programs, [*rest, filter_of(doubtful)], AGAIN, best)
        found = ratios(best)

    width = max(map(len, found))
    print(f"{'case':{width}} {arguments.label + ', us':>20} {'now, us':>12} {'ratio':>7}")
    for name, ratio in sorted(found.items(), key=lambda item: item[1]):
        print(f"{name:{width}} {best[0][name]:20.3f} {best[1][name]:12.3f} {ratio:6.2f}x")
    mean = math.exp(sum(map(math.log, found.values())) / len(found))
    slower = sum(ratio < BOUND for ratio in found.values())
    missing = len(set(best[0]) ^ set(best[1]))
    print(
        f"\n{len(found)} cases: {mean:.3f}x of {arguments.label} (above 1: faster now), "
        f"{slower} slower than {BOUND}"
        + (f"; {missing} that only one of the two has are left out" if missing else "")
    )
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
