#!/usr/bin/env python3
"""Our kernels against their peers on one GPU, side by side in one run.

    python3 kernels/bench/peers.py [KERNEL ...] --ptx kernels/ptx --path fla_core.whl

Needs torch with CUDA; a peer that cannot be imported is left out and said so. harness.py says how an
arm is timed and checked; a kernel is one function in a file of its family.
"""

import argparse
import json
import sys
from pathlib import Path

import torch

import convolution  # noqa: F401: registers its kernels
import elementwise  # noqa: F401
import embedding  # noqa: F401
import linear_attention  # noqa: F401
import selection  # noqa: F401
import speculative  # noqa: F401
from harness import KERNELS, report, timed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kernels", nargs="*", help=f"of {', '.join(KERNELS)}; all when none is named")
    parser.add_argument("--ptx", type=Path, default=Path(__file__).parent.parent / "ptx")
    parser.add_argument("--path", action="append", default=[], help="wheel or folder of a peer")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", default="", help="shapes that contain this text")
    parser.add_argument("--sweep", action="store_true", help="selection: every split of a row")
    parser.add_argument("--json", type=Path, help="write every sample here")
    options = parser.parse_args()
    sys.path[:0] = options.path
    torch.manual_seed(1)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}", file=sys.stderr)
    results = []
    for name in options.kernels or KERNELS:
        if name not in KERNELS:
            parser.error(f"no kernel {name}; there are {', '.join(KERNELS)}")
        for comparison in KERNELS[name](options):
            times = timed(comparison, options.rounds)
            report(name, comparison, times)
            for arm, samples in times.items():
                results.append(dict(kernel=name, shape=comparison.shape, arm=arm, us=samples))
            torch.cuda.empty_cache()
    if options.json:
        options.json.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
