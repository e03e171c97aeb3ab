#!/bin/sh
# check.sh <objdump> <library>
#
# Only functions in a per-target namespace (Highway's N_AVX2, N_SVE ...) may use instructions beyond
# the baseline. Any other function that does could be the one copy of a template that the linker
# keeps for all targets, and would then run on CPUs that lack them. Exit 77: cannot be checked here.

objdump=$1
library=$2
if ! command -v "$objdump" >/dev/null 2>&1; then
  echo "skipped: there is no objdump"
  exit 77
fi

"$objdump" -d -C --no-show-raw-insn "$library" | awk '
  /^[0-9a-f]+ <.*>:$/ {
    name = $0
    sub(/^[0-9a-f]+ </, "", name)
    sub(/>:$/, "", name)
    own = name ~ /(^|[^A-Za-z0-9_])N_[A-Z0-9_]+::/
    if (own) ++functions
    next
  }
  /^ *[0-9a-f]+: *\t/ {
    instruction = $0
    sub(/^[^\t]*\t/, "", instruction)
    mnemonic = instruction
    sub(/[ \t].*/, "", mnemonic)
    # x86: AVX and what came with it, AMX; Arm: SVE, dotprod, i8mm
    beyond = mnemonic ~ /^v[a-z]/ ||
             mnemonic ~ /^k(mov|and|or|not|x|test|shift|unpck|add)/ ||
             mnemonic ~ /^(shlx|shrx|sarx|rorx|mulx|andn|bextr|pdep|pext|lzcnt|popcnt|movbe)[lq]?$/ ||
             mnemonic ~ /^(ldtilecfg|tile(loadd|stored|zero|release)|tdp)/ ||
             mnemonic ~ /^(usdot|sudot|sdot|udot|smmla|ummla|usmmla)$/ ||
             instruction ~ /[^a-z0-9]z[0-9]+\.[bhsd]/
    if (!beyond) next
    if (own) {
      ++uses
    } else if (!(name in reported)) {
      reported[name] = 1
      ++leaks
      print "outside of the per-target namespaces: " name ": " instruction
    }
  }
  END {
    printf "%d per-target functions, %d of their instructions beyond the baseline, %d leaks\n",
           functions, uses, leaks
    if (functions == 0 || uses == 0) {
      print "nothing to compare with: is this the library?"
      exit 1
    }
    exit leaks > 0
  }'
