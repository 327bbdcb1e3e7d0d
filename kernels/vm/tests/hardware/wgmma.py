#!/usr/bin/env python3
"""What a Hopper GPU answers to `wgmma` of every kind of operand and layout, for kernels/vm/tests/wgmma.rs.

    python3 kernels/vm/tests/hardware/wgmma.py OUT.safetensors [RAW_FOLDER]     (needs torch with CUDA, safetensors)

Variants are lines of wgmma.tsv, the kernel is wgmma.ptx. Inputs follow from form, operand, tile and place alone, as
in mma.py; an image in shared memory is drawn as it lies there, so that the hardware alone says what a descriptor
means. The file holds a digest of each tile, and the first FULL tiles of the plain variant. RAW_FOLDER receives
more tiles in full, to see a difference by.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from mma import FORMATS, digests, elements, mixed

FULL, RAW, RAW_PLAIN = 12, 12, 120
# Sums, factors a and b, and the formats that a, b and the sums are drawn in.
TYPES = [
    ("f32", "bf16", "bf16", ("bf16", "bf16", "f32")),
    ("f32", "f16", "f16", ("f16", "f16", "f32")),
    ("f16", "f16", "f16", ("f16", "f16", "f16")),
    ("f32", "tf32", "tf32", ("f32", "f32", "f32")),
    *[(d, a, b, (a, b, d)) for d in ("f32", "f16") for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")],
    *[("s32", a, b, ("bits", "bits", "bits")) for a in ("s8", "u8") for b in ("s8", "u8")],
]
FACTOR_BITS = {"bf16": 16, "f16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8}


class Image:
    def __init__(self, text):
        self.row, self.leading, self.stride, self.lines, self.step, self.bytes = map(int, text.split(":"))

    def descriptor(self):
        """All but the start."""
        code = {16: 0, 128: 1, 64: 2, 32: 3}[self.row]
        return code << 62 | self.stride // 16 << 32 | self.leading // 16 << 16


class Form:
    def __init__(self, types, number, line):
        self.sum, self.a, self.b, self.formats = TYPES[types]
        self.variant, families, *numbers, left, right = line.split("\t")
        self.tiles, self.n, self.steps, self.scale_d, *self.scales = map(int, numbers)
        self.left = None if left == "regs" else Image(left)
        self.right = Image(right)
        self.number = types * 32 + number
        self.name = f"{self.sum}.{self.a}.{self.b}/{self.variant}"
        kind = {"s32": "int"}.get(self.sum, "float")
        half = FACTOR_BITS[self.a] == 16
        self.exists = families in ("all", kind) or families == "half" and half
        if self.variant == "saturate":
            self.formats = ("bits", "bits", "high")

    @property
    def sums(self):
        return self.n // (4 if self.sum == "f16" else 2)

    def instruction(self):
        saturate = ".satfinite" if self.variant == "saturate" else ""
        shape = f"m64n{self.n}k{256 // FACTOR_BITS[self.a]}"
        return f"wgmma.mma_async.sync.aligned.{shape}{saturate}.{self.sum}.{self.a}.{self.b}"

    def product(self, step):
        sums = ", ".join(f"%d{r}" for r in range(self.sums))
        left = f"%left{step}" if self.left else "{" + ", ".join(f"%a{4 * step + r}" for r in range(4)) + "}"
        tail = [f"%p{1 if step == 0 else 2}"]
        if self.sum != "s32":
            tail += map(str, self.scales)
        if FACTOR_BITS[self.a] == 16:
            tail += [str(self.left.lines)] if self.left else []
            tail += [str(self.right.lines)]
        return f"{self.instruction()} {{{sums}}}, {left}, %right{step}, {', '.join(tail)};"

    def ptx(self):
        steps, sums = range(self.steps), range(self.sums)
        images = [("left", self.left, "%x4"), ("right", self.right, "%x5")]
        descriptors = [
            f"add.u64 %{name}{s}, {start}, {image.descriptor() + image.step // 16 * s:#x};"
            for name, image, start in images
            if image
            for s in steps
        ]
        loaded = 0 if self.left else 4 * self.steps
        text = (HERE / "wgmma.ptx").read_text()
        for name, value in {
            "LEFT_IMAGE": self.left.bytes if self.left else 1024,
            "LEFT_COPIED": self.left.bytes if self.left else 0,
            "RIGHT_IMAGE": self.right.bytes,
            "LEFT_BYTES": 4 * loaded,
            "SUM_BYTES": 4 * self.sums,
            "LOAD_LEFT": "\n    ".join(f"ld.global.b32 %a{r}, [%x4+{4 * r}];" for r in range(loaded)),
            "LOAD_SUMS": "\n    ".join(f"ld.global.b32 %d{r}, [%x2+{4 * r}];" for r in sums),
            "STORE_SUMS": "\n    ".join(f"st.global.b32 [%x3+{4 * r}], %d{r};" for r in sums),
            "DESCRIPTORS": "\n    ".join(descriptors),
            "SCALE_D": self.scale_d,
            "PRODUCTS": "\n    ".join(self.product(s) for s in steps),
        }.items():
            text = text.replace(name, str(value))
        return text

    def words(self, operand):
        """The words of an operand, [tile, word]: registers thread after thread, or an image."""
        image = (self.left, self.right, None)[operand]
        registers = (4 * self.steps, 0, self.sums)[operand]
        tile, word = np.indices((self.tiles, image.bytes // 4 if image else 128 * registers))
        key = self.number << 48 | operand << 44 | tile << 24 | word << 4
        kind = self.formats[operand]
        with np.errstate(over="ignore"):
            draw = lambda part: mixed((key | part).astype(np.uint64))
            if kind == "bits":
                return draw(0).astype(np.uint32)
            if kind == "high":  # near the ends of the range, so that sums saturate
                ends = np.where(draw(0) >> np.uint64(40) & np.uint64(1), 0x7FFFFFFF, 0x80000000)
                return ends.astype(np.uint32) ^ (draw(0).astype(np.uint32) & np.uint32(0x3FFFF))
            bits, exponent_bits, mantissa_bits = FORMATS[kind]
            words = np.zeros(tile.shape, dtype=np.uint64)
            for part in range(32 // bits):
                value = elements(draw(part), tile, operand, exponent_bits, mantissa_bits)
                words |= value << np.uint64(bits * part)
            return words.astype(np.uint32)


def forms():
    lines = [line for line in (HERE / "wgmma.tsv").read_text().splitlines() if not line.startswith("#")]
    every = (Form(t, v, line) for t in range(len(TYPES)) for v, line in enumerate(lines))
    return [form for form in every if form.exists]


def main():
    import torch
    from safetensors.numpy import save_file

    sys.path.insert(0, str(HERE.parents[2] / "bench"))
    from harness import Module

    out, raw = {}, {}
    for form in forms():
        source = Path(tempfile.gettempdir()) / "wgmma_form.ptx"
        source.write_text(form.ptx())
        operands = [torch.from_numpy(form.words(operand).view(np.int32)).cuda().flatten() for operand in range(3)]
        d = torch.zeros(form.tiles * 128 * form.sums, dtype=torch.int32, device="cuda")
        Module(source).launch("form", form.tiles, 128, 0, *operands, d)
        torch.cuda.synchronize()
        result = d.cpu().numpy().view(np.uint32).reshape(form.tiles, 128 * form.sums)
        out[f"{form.name}/digest"] = digests(result)
        plain = form.variant == "plain"
        if plain:
            out[f"{form.name}/d"] = np.ascontiguousarray(result[:FULL])
        raw.setdefault(form.number // 32 % 4, {})[form.name] = result[: RAW_PLAIN if plain else RAW].copy()
        print(form.name, result[0, :4], flush=True)
    save_file(out, sys.argv[1], metadata={"device": torch.cuda.get_device_name()})
    if len(sys.argv) > 2:
        for number, tensors in raw.items():
            save_file(tensors, str(Path(sys.argv[2]) / f"wgmma_raw{number}.safetensors"))


if __name__ == "__main__":
    main()
