#!/usr/bin/env python3
"""What an NVIDIA GPU makes of results about the least normal number, with `.ftz` in every rounding, for
kernels/vm/tests/flush.rs: judged before rounding a result just below it is zero, after rounding it is not.

    python3 kernels/vm/tests/hardware/flush.py OUT.safetensors      (needs torch with CUDA, safetensors)

Operands follow from the instruction's number and the case alone (`operands`); the file holds all results.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

CASES = 512
# precision, exponent bits
FORMATS = {"f16": (11, 5), "f32": (24, 8), "f64": (53, 11)}
MODES = ("rn", "rz", "rm", "rp")
# instruction, how its operands are drawn, their format, how many there are
FORMS = [
    *[(f"mul.{m}.ftz.f32", "mul", "f32", 2) for m in MODES],
    *[(f"fma.{m}.ftz.f32", "mul", "f32", 3) for m in MODES],
    *[(f"add.{m}.ftz.f32", "add", "f32", 2) for m in MODES],
    *[(f"sub.{m}.ftz.f32", "add", "f32", 2) for m in MODES],
    *[(f"div.{m}.ftz.f32", "div", "f32", 2) for m in MODES],
    *[(f"rcp.{m}.ftz.f32", "rcp", "f32", 1) for m in MODES],
    *[(f"cvt.{m}.ftz.f32.f64", "cvt", "f64", 1) for m in MODES],
    *[(f"{op}.ftz.f32", "div", "f32", 2) for op in ("div.approx", "div.full")],
    ("mul.rn.ftz.sat.f32", "mul", "f32", 2),
    ("fma.rp.ftz.sat.f32", "mul", "f32", 3),
    ("mul.rn.ftz.f16", "mul", "f16", 2),
    ("fma.rn.ftz.f16", "mul", "f16", 3),
    ("add.rn.ftz.f16", "add", "f16", 2),
    ("sub.rn.ftz.f16", "add", "f16", 2),
    *[(f"mul.{m}.f32", "mul", "f32", 2) for m in MODES],
    *[(f"fma.{m}.f32", "mul", "f32", 3) for m in MODES],
    ("mul.rn.f16", "mul", "f16", 2),
    ("fma.rn.f16", "mul", "f16", 3),
    *[(f"mul.{m}.f64", "mul", "f64", 2) for m in MODES],
    *[(f"fma.{m}.f64", "mul", "f64", 3) for m in MODES],
]
ALL = (1 << 64) - 1


def mixed(x):
    """splitmix64's finaliser."""
    x = x + 0x9E3779B97F4A7C15 & ALL
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & ALL
    x = (x ^ x >> 27) * 0x94D049BB133111EB & ALL
    return x ^ x >> 31


def operands(number, case):
    """Bits of a, b and c."""
    _, kind, name, count = FORMS[number]
    precision, exponent_bits = FORMATS[name]
    most = (1 << exponent_bits - 1) - 1
    least, one = 1 - most, 1 << precision - 1
    r = [mixed(number << 32 | case << 8 | part) for part in range(8)]
    bits = lambda negative, e, m: (
        (negative & 1) << precision - 1 + exponent_bits
        | (e + most if m >= one else 0) << precision - 1
        | m % one
    )
    any_mantissa = lambda x: one + x % one
    m = any_mantissa(r[0])
    if kind == "mul":
        third = case // 4 % 4 if count == 3 else 0
        # Products about the least number, or far below it beside a c that is the least.
        total = least - 1 - (precision + r[1] % 3 if third == 2 else 0)
        near = (1 << 2 * precision - 1) // m
        spread = (3, 1, 9, 1)[case % 4]
        n = near + r[2] % spread - spread // 2 if case % 2 == 0 else any_mantissa(r[2])
        n = min(max(n, one), 2 * one - 1)
        total += r[3] % 3 - 1 if case % 4 == 1 and third != 2 else 0
        e = least + r[4] % (total - 2 * least + 1)
        c = (
            bits(r[5], least, 0),
            bits(r[5], least, r[6] % one),
            bits(r[5], least, one + r[6] % 2),
            bits(r[5], least + r[6] % 3, any_mantissa(r[7])),
        )[third]
        return bits(r[0] >> 63, e, m), bits(r[2] >> 63, total - e, n), c
    if kind == "add":
        return bits(r[1], least + r[2] % 3, m), bits(r[3], least + r[4] % 3, any_mantissa(r[5])), 0
    if kind == "div":
        n = min(max(m + r[1] % 9 - 4, one), 2 * one - 1) if case % 2 == 0 else any_mantissa(r[1])
        total = least + r[2] % 3 - 1
        e = least + r[3] % (most + total - least)
        return bits(r[4], e, m), bits(r[5], e - total, n), 0
    if kind == "rcp":
        n = one + r[1] % 4 if case % 2 == 0 else m
        return bits(r[2], most - r[3] % 3, n), 0, 0
    # A double about the least f32.
    low = (r[1] >> r[2] % 50) % one
    m = (one + low, 2 * one - 1 - low)[case % 2]
    return bits(r[3], -126 - case % 2 - (case // 2 % 8 == 0), m), 0, 0


def ptx(number):
    instruction, _, name, count = FORMS[number]
    kind = {"f16": "b16", "f32": "b32", "f64": "b64"}
    register = {"f16": "%h", "f32": "%s", "f64": "%l"}
    result = "f32" if instruction.startswith("cvt") else name
    text = [".version 8.6", ".target sm_90", ".address_size 64"]
    text += [".visible .entry flush(.param .u64 x, .param .u64 d)", "{", ".reg .b16 %h<4>;"]
    text += [".reg .b32 %s<4>, %t<4>;", ".reg .b64 %l<4>, %x, %d;", "ld.param.u64 %x, [x];"]
    text += ["ld.param.u64 %d, [d];", "mov.u32 %t0, %ctaid.x;", "mov.u32 %t1, %tid.x;"]
    text += ["mad.lo.u32 %t2, %t0, 32, %t1;", "mad.wide.u32 %x, %t2, 24, %x;", "mad.wide.u32 %d, %t2, 8, %d;"]
    text += [f"ld.global.{kind[name]} {register[name]}{i}, [%x+{8 * i}];" for i in range(count)]
    text += [f"{instruction} {register[result]}3, {', '.join(f'{register[name]}{i}' for i in range(count))};"]
    text += [f"st.global.{kind[result]} [%d], {register[result]}3;", "ret;", "}", ""]
    return "\n".join(text)


def main():
    import torch
    from safetensors.numpy import save_file

    sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench"))
    from harness import Module

    out = {}
    for number, (instruction, *_) in enumerate(FORMS):
        x = np.array([operands(number, case) for case in range(CASES)], dtype=np.uint64)
        x = torch.from_numpy(x.view(np.int64)).cuda()
        d = torch.zeros(CASES, dtype=torch.int64, device="cuda")
        source = Path(tempfile.gettempdir()) / "flush.ptx"
        source.write_text(ptx(number))
        Module(source).launch("flush", CASES // 32, 32, 0, x, d)
        torch.cuda.synchronize()
        result = d.cpu().numpy().view(np.uint64)
        out[instruction] = result if result.max() >> np.uint64(32) else result.astype(np.uint32)
        print(instruction, [f"{value:x}" for value in result[:6]], flush=True)
    save_file(out, sys.argv[1], metadata={"device": torch.cuda.get_device_name()})


if __name__ == "__main__":
    main()
