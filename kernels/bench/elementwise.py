"""gated_rms_norm against fla-core's fused norm and gate."""

import sys
from typing import Iterator

import torch

from harness import DTYPES, I64, Comparison, Module, agree, kernel, sets_for

EPSILON = 1e-6
BLOCK_THREADS = 256


class GatedRmsNorm:
    """Input sets of rows of one length, silu gate, plain weight."""

    def __init__(self, module, io: str, rows: int, channels: int):
        self.module, self.io, self.rows, self.channels = module, io, rows, channels
        dtype = DTYPES[io]
        self.bytes = 3 * rows * channels * dtype.itemsize + channels * dtype.itemsize
        self.sets = sets_for(self.bytes)
        draw = lambda: torch.randn(rows, channels, device="cuda").to(dtype)
        self.inputs = [dict(x=draw(), z=draw(), out=draw()) for _ in range(self.sets)]
        self.w = torch.randn(channels, device="cuda").to(dtype)
        pieces = -(-channels * dtype.itemsize // 16)
        form, self.lanes = "part", min(1 << (-(-pieces // 2) - 1).bit_length(), 32)
        if pieces > 128:
            form, self.lanes = "block", BLOCK_THREADS
        self.entry = f"gated_rms_norm_{io}_{form}"

    def ours(self, index: int):
        x, stride = self.inputs[index], I64(self.channels)
        self.module.launch(
            self.entry, -(-self.rows // (BLOCK_THREADS // self.lanes)), BLOCK_THREADS, 0,
            x["x"], x["z"], self.w, x["out"], None, stride, stride, stride, I64(0), I64(self.rows),
            self.channels, self.lanes, 1, 0, 0, 0, EPSILON,
        )

    def peer(self):
        from fla.modules import FusedRMSNormGated

        norm = FusedRMSNormGated(self.channels, eps=EPSILON, activation="silu", device="cuda", dtype=DTYPES[self.io])
        norm.weight.data.copy_(self.w)

        def call(index: int):
            x = self.inputs[index]
            with torch.no_grad():
                x["peer"] = norm(x["x"], x["z"])
            return x["peer"]

        return call

    def check(self) -> dict:
        x = self.inputs[0]
        wide = {name: x[name].double() for name in ("x", "z")}
        normed = wide["x"] / (wide["x"].square().mean(-1, keepdim=True) + EPSILON).sqrt()
        expected = normed * self.w.double() * torch.nn.functional.silu(wide["z"])
        self.ours(0)
        torch.cuda.synchronize()
        most = {"f32": 1e-6, "f16": 1e-3, "bf16": 4e-3}[self.io]
        agree("ours", x["out"], expected, most)
        try:
            call = self.peer()
            agree("fla", call(0), expected, most)
        except ImportError as error:
            print(f"  fla left out: {error}", file=sys.stderr)
            return {}
        return {"fla": call}

    def copied(self, index: int):
        """A device-to-device copy of two thirds of the bytes: x to out."""
        self.inputs[index]["out"].copy_(self.inputs[index]["x"])


@kernel
def gated_rms_norm(options) -> Iterator[Comparison]:
    module = Module(options.ptx / "gated_rms_norm.ptx")
    for io, rows, channels in [
        ("bf16", 48, 128),
        ("bf16", 8 * 48, 128),
        ("bf16", 4096 * 48, 128),
        ("f32", 4096 * 48, 128),
        ("bf16", 4096, 5120),
    ]:
        shape = f"{io} {rows} x {channels}"
        if options.only not in shape:
            continue
        run = GatedRmsNorm(module, io, rows, channels)
        arms = {"ours": run.ours} | run.check() | {"copy of two thirds": run.copied}
        yield Comparison(shape, arms, run.sets, bytes=run.bytes)
