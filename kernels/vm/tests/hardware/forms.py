#!/usr/bin/env python3
"""What an NVIDIA GPU answers to every instruction form, for kernels/vm/tests/forms_table.rs.

    PTX_VM_DUMP_FORMS=DIR cargo test --release -p ptx-vm --test forms_table
    python3 kernels/vm/tests/hardware/forms.py DIR OUT.tsv [RAW.bin]      (needs torch with CUDA)

A line is a form's name, the digest of its text and operands, and the digest of the GPU's results. RAW
receives every result, eight bytes each, in the order of the forms.
"""

import sys
from pathlib import Path

import numpy as np


def digest(data: bytes) -> int:
    """FNV-1a."""
    state = 0xCBF29CE484222325
    for byte in data:
        state = (state ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return state


def main():
    import torch

    sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench"))
    from harness import Module

    folder, lines, raw = Path(sys.argv[1]), [], []
    names = (folder / "names").read_text().splitlines()
    for number, name in enumerate(names):
        path, operands = folder / f"{number}.ptx", (folder / f"{number}.operands").read_bytes()
        x = torch.from_numpy(np.frombuffer(operands, dtype=np.int32).copy()).cuda()
        d = torch.zeros(x.numel() // 4, dtype=torch.int64, device="cuda")
        try:
            Module(path).launch("t", d.numel() // 32, 32, 0, x, d)
            torch.cuda.synchronize()
        except RuntimeError as error:
            print(f"{name}: {error}", file=sys.stderr)
            raw.append(d.cpu().numpy().tobytes())
            continue
        answer = d.cpu().numpy().tobytes()
        raw.append(answer)
        lines.append(f"{name}\t{digest(path.read_bytes() + operands):016x}\t{digest(answer):016x}")
    Path(sys.argv[2]).write_text(f"# {torch.cuda.get_device_name()}\n" + "\n".join(lines) + "\n")
    if len(sys.argv) > 3:
        Path(sys.argv[3]).write_bytes(b"".join(raw))
    print(f"{len(lines)} of {len(names)} forms")


if __name__ == "__main__":
    main()
