#!/bin/bash -eu
# Builds every fuzz target into $OUT, each with a seed corpus of everything known about its contract.
# ClusterFuzzLite and OSS-Fuzz set SRC and OUT; without them, from the checkout:
#   SRC=.. PROJECT_FOLDER=$(basename "$PWD") OUT=/tmp/out .clusterfuzzlite/build.sh
# FUZZ_TARGETS="argmax_rows gdn_chunk" builds those alone.
cd "${SRC:?}/${PROJECT_FOLDER:-assay}"
: "${OUT:?}"
mkdir -p "$OUT"

# The host's flags are for C and C++; cargo-fuzz adds the sanitizer and the coverage itself. Kernels run
# in the virtual machine, in safe code: address sanitizer is what the platforms ask for.
sanitizer=${SANITIZER:-address}
[ "$sanitizer" = address ] || sanitizer=none
unset RUSTFLAGS

# The canary is a kernel with a planted bug: it would crash for ever.
targets=${FUZZ_TARGETS:-$(cargo fuzz list | grep -v -x canary_row_sum)}
if [ -n "${FUZZ_TARGETS:-}" ]; then
  for target in $targets; do cargo fuzz build --release --sanitizer "$sanitizer" "$target"; done
else
  cargo fuzz build --release --sanitizer "$sanitizer"
fi
host=$(rustc -vV | sed -n 's/^host: //p')

# Every stored case as an input, so that a run starts from what is known and not from nothing.
inputs=$(mktemp -d)
cargo run --quiet --release -- corpus export --to "$inputs"

for target in $targets; do
  cp "fuzz/target/$host/release/$target" "$OUT/"
  # Longer than libFuzzer's own default: a case before its records may be as long as the longest stored.
  printf '[libfuzzer]\nmax_len = 1048576\n' > "$OUT/$target.options"
  if [ -d "$inputs/$target" ]; then
    python3 - "$inputs/$target" "$OUT/${target}_seed_corpus.zip" <<'PY'
import os, sys, zipfile
folder, archive = sys.argv[1:]
with zipfile.ZipFile(archive, "w") as out:
    for name in sorted(os.listdir(folder)):
        out.write(os.path.join(folder, name), name)
PY
  fi
done
rm -rf "$inputs"
