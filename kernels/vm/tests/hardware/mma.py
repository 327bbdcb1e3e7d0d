#!/usr/bin/env python3
"""What an NVIDIA GPU answers to matrix products of every kind of operand, for kernels/vm/tests/mma.rs.

    python3 kernels/vm/tests/hardware/mma.py OUT.safetensors      (needs torch with CUDA, safetensors)

Inputs follow from the form, the operand, the tile, lane and register alone (`words`), so the file holds
outputs only: every word of the first FULL tiles, and a digest of each of TILES.
"""

import ctypes
import sys
from pathlib import Path

import numpy as np

TILES, FULL, KINDS = 1536, 72, 12
# name: (registers of a, b, c and d; formats of a, b and c)
FORMS = {
    "m16n8k16.f32.bf16.bf16.f32": ((4, 2, 4), ("bf16", "bf16", "f32")),
    "m16n8k16.f32.f16.f16.f32": ((4, 2, 4), ("f16", "f16", "f32")),
    "m16n8k16.f16.f16.f16.f16": ((4, 2, 2), ("f16", "f16", "f16")),
    "m16n8k8.f32.bf16.bf16.f32": ((2, 1, 4), ("bf16", "bf16", "f32")),
    "m16n8k8.f32.f16.f16.f32": ((2, 1, 4), ("f16", "f16", "f32")),
    "m16n8k8.f16.f16.f16.f16": ((2, 1, 2), ("f16", "f16", "f16")),
    "m16n8k8.f32.tf32.tf32.f32": ((4, 2, 4), ("f32", "f32", "f32")),
    "m16n8k4.f32.tf32.tf32.f32": ((2, 1, 4), ("f32", "f32", "f32")),
    "m16n8k32.f32.e4m3.e4m3.f32": ((4, 2, 4), ("e4m3", "e4m3", "f32")),
    "m16n8k32.f32.e5m2.e5m2.f32": ((4, 2, 4), ("e5m2", "e5m2", "f32")),
    "m16n8k32.f32.e4m3.e5m2.f32": ((4, 2, 4), ("e4m3", "e5m2", "f32")),
    "m16n8k32.s32.s8.s8.s32": ((4, 2, 4), ("bits", "bits", "bits")),
    "m16n8k32.satfinite.s32.u8.s8.s32": ((4, 2, 4), ("bits", "bits", "high")),
    "m16n8k16.s32.s8.u8.s32": ((2, 1, 4), ("bits", "bits", "bits")),
    "m16n8k64.s32.s4.s4.s32": ((4, 2, 4), ("bits", "bits", "bits")),
    "m16n8k32.s32.u4.s4.s32": ((2, 1, 4), ("bits", "bits", "bits")),
}
# bits, exponent bits, mantissa bits
FORMATS = {"bf16": (16, 8, 7), "f16": (16, 5, 10), "f32": (32, 8, 23), "e4m3": (8, 4, 3), "e5m2": (8, 5, 2)}


def mixed(x):
    """splitmix64's finaliser."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def elements(random, tile, operand, exponent_bits, mantissa_bits):
    """Bits of elements: their kind goes by the tile's number. `operand` is 0, 1 or 2 for a, b, c."""
    u = np.uint64
    ones, bias = (1 << exponent_bits) - 1, (1 << (exponent_bits - 1)) - 1
    sign, mantissa = random >> u(63), random & u((1 << mantissa_bits) - 1)
    pick = random >> u(32) & u(0xFFFF)
    near_one = u(bias - 3) + pick % u(7)
    large = u(ones - 1) - pick % u(3)
    none, kind, c = np.zeros_like(pick), tile % KINDS, operand == 2
    exponent = np.choose(
        kind,
        [
            u(ones) & random >> u(mantissa_bits),  # any bits
            near_one,
            (none, near_one, pick % u(min(30, ones)))[operand],  # subnormal times ordinary
            u(1) + pick % u(ones - 1),  # any normal number
            large,  # overflows
            near_one,  # special values among ordinary ones, below
            (none, large, none)[operand],  # subnormal times large
            u(bias) + pick % u(2) + u(4 if c else 0),  # cancels
            none if c else pick % u(8),  # tiny, on a zero
            u(min(bias + 20, ones - 10)) + pick % u(10) if c else near_one,  # vanishes beside c
            none if c else near_one * (pick & u(8) != 0),  # zeros of both signs
            large if c else u(bias + bias // 2) + pick % u(2),  # about the largest number
        ],
    )
    special, rare = np.where(kind == 5, pick % u(8), u(2)), pick >> u(3) & u(7)
    mantissa = np.where((kind == 8) & c | (kind == 10) & (exponent == 0), u(0), mantissa)
    infinite, nan = (special == 6) & (rare == 0), (special == 7) & (rare == 0)
    exponent = np.where(special <= 1, u(0), np.where(special == 5, u(ones - 1), exponent))
    exponent = np.where(infinite | nan, u(ones), exponent)
    mantissa = np.where(special == 0, u(0), np.where(special == 5, u((1 << mantissa_bits) - 1), mantissa))
    mantissa = np.where(infinite, u(0), np.where(nan, mantissa | u(1), mantissa))
    return sign << u(exponent_bits + mantissa_bits) | exponent << u(mantissa_bits) | mantissa


def operand_words(form, operand):
    """The 32-bit registers of an operand, [tile, lane, register]; elements lie lowest first."""
    count, kind = FORMS[form][0][operand], FORMS[form][1][operand]
    tile, lane, register = np.indices((TILES, 32, count))
    key = list(FORMS).index(form) << 48 | operand << 44 | tile << 20 | lane << 12 | register << 4
    with np.errstate(over="ignore"):
        draw = lambda part: mixed((key | part).astype(np.uint64))
        if kind == "bits":
            return draw(0).astype(np.uint32)
        if kind == "high":  # near the ends of the range, so that sums saturate
            ends = np.where(draw(0) >> np.uint64(40) & np.uint64(1), 0x7FFFFFFF, 0x80000000)
            return ends.astype(np.uint32) ^ (draw(0).astype(np.uint32) & np.uint32(0x3FFFF))
        bits, exponent_bits, mantissa_bits = FORMATS[kind]
        word = np.zeros(tile.shape, dtype=np.uint64)
        for part in range(32 // bits):
            value = elements(draw(part), tile, operand, exponent_bits, mantissa_bits)
            word |= value << np.uint64(bits * part)
        return word.astype(np.uint32)


def digests(d):
    """FNV-1a over each tile's words, low byte first."""
    state = np.full(d.shape[0], 0xCBF29CE484222325, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for byte in d.reshape(d.shape[0], -1).view(np.uint8).T:
            state = (state ^ byte.astype(np.uint64)) * np.uint64(0x100000001B3)
    return state


def ptx(form):
    """One warp a block, one tile a warp."""
    counts = FORMS[form][0]
    lines = [".visible .entry form(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d)", "{",
             ".reg .b32 %a<4>, %b<4>, %c<4>, %d<4>, %t<4>;", ".reg .b64 %p<4>, %o;",
             "mov.u32 %t0, %ctaid.x;", "mov.u32 %t1, %tid.x;", "mad.lo.u32 %t2, %t0, 32, %t1;"]
    for number, (name, count) in enumerate(zip("abcd", (*counts, counts[2]))):
        lines += [f"ld.param.u64 %p{number}, [{name}];", f"mul.wide.u32 %o, %t2, {4 * count};",
                  f"add.u64 %p{number}, %p{number}, %o;"]
    for number, (name, count) in enumerate(zip("abc", counts)):
        lines += [f"ld.global.b32 %{name}{r}, [%p{number}+{4 * r}];" for r in range(count)]
    group = lambda name, count: "{" + ", ".join(f"%{name}{r}" for r in range(count)) + "}"
    shape, *types = form.split(".")
    operands = ", ".join([group("d", counts[2])] + [group(n, c) for n, c in zip("abc", counts)])
    lines.append(f"mma.sync.aligned.{shape}.row.col.{'.'.join(types)} {operands};")
    lines += [f"st.global.b32 [%p3+{4 * r}], %d{r};" for r in range(counts[2])]
    return "\n".join([".version 8.7", ".target sm_89", ".address_size 64", *lines, "ret;", "}", ""])


def main():
    import torch
    from safetensors.numpy import save_file

    sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench"))
    from harness import Module

    out = {}
    for form, (counts, _) in FORMS.items():
        source = Path(f"/tmp/{form}.ptx")
        source.write_text(ptx(form))
        operands = [torch.from_numpy(operand_words(form, operand).view(np.int32)).cuda().flatten() for operand in range(3)]
        d = torch.zeros(TILES * 32 * counts[2], dtype=torch.int32, device="cuda")
        Module(source).launch("form", TILES, 32, 0, *operands, d)
        torch.cuda.synchronize()
        result = d.cpu().numpy().view(np.uint32).reshape(TILES, 32, counts[2])
        out[f"{form}/d"] = np.ascontiguousarray(result[:FULL])
        out[f"{form}/digest"] = digests(result)
        print(form, result[0, 0], flush=True)
    save_file(out, sys.argv[1], metadata={"device": torch.cuda.get_device_name()})


if __name__ == "__main__":
    main()
