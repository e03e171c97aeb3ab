"""Prints which lines of each file a summary of llvm-cov says are reached; too few are an error."""

import argparse
import json
import os
import sys

parser = argparse.ArgumentParser()
parser.add_argument("--least", type=float, required=True, help="percent of all lines")
parser.add_argument("--under", required=True, help="the directory whose files count")
parser.add_argument("summary")
arguments = parser.parse_args()

with open(arguments.summary) as file:
    data = json.load(file)["data"][0]
rows = [(os.path.relpath(f["filename"]), f["summary"]["lines"]) for f in data["files"]]
rows = [row for row in rows if row[0].startswith(arguments.under + "/") and row[1]["count"] > 0]
reached = sum(lines["covered"] for _, lines in rows)
count = sum(lines["count"] for _, lines in rows)
for name, lines in sorted(rows) + [("all", {"covered": reached, "count": count})]:
    covered, total = lines["covered"], lines["count"]
    print(f"{100 * covered / total:5.1f} %  {covered:5} of {total:5} lines  {name}")
share = 100 * reached / count
if share < arguments.least:
    sys.exit(f"expected at least {arguments.least} % of the lines, got {share:.1f} %")
