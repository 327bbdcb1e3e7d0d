"""The Triton kernels behind the PTX files of this folder, and how they are compiled.

    pip install triton==3.9.0 && python3 kernels.py

needs no GPU: the target is named, and Triton writes PTX for it.
"""

import pathlib
import re

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def softmax(out, x, row_stride, columns, BLOCK: tl.constexpr):
    """One row a program, masked past its end."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    v = tl.load(x + row * row_stride + at, mask=inside, other=-float("inf"))
    v = v - tl.max(v, axis=0)
    e = tl.exp(v)
    tl.store(out + row * row_stride + at, e / tl.sum(e, axis=0), mask=inside)


@triton.jit
def matmul(
    a, b, c, m, n, k,
    stride_am, stride_bk, stride_cm,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr,
):
    """C = A·B, row-major, tiles in groups of GROUP rows; every edge is masked."""
    pid = tl.program_id(0)
    rows, columns = tl.cdiv(m, M), tl.cdiv(n, N)
    in_group = GROUP * columns
    first = pid // in_group * GROUP
    size = min(rows - first, GROUP)
    pid_m = first + pid % in_group % size
    pid_n = pid % in_group // size
    i = pid_m * M + tl.arange(0, M)
    j = pid_n * N + tl.arange(0, N)
    r = tl.arange(0, K)
    left = a + i[:, None] * stride_am + r[None, :]
    right = b + r[:, None] * stride_bk + j[None, :]
    sums = tl.zeros((M, N), dtype=tl.float32)
    for step in range(0, tl.cdiv(k, K)):
        rest = k - step * K
        x = tl.load(left, mask=(i[:, None] < m) & (r[None, :] < rest), other=0.0)
        y = tl.load(right, mask=(r[:, None] < rest) & (j[None, :] < n), other=0.0)
        sums = tl.dot(x, y, sums)
        left += K
        right += K * stride_bk
    where = (i[:, None] < m) & (j[None, :] < n)
    tl.store(c + i[:, None] * stride_cm + j[None, :], sums, mask=where)


@triton.jit
def attention(
    q, k, v, out, lse, scale, rows,
    stride_head, stride_row,
    M: tl.constexpr, N: tl.constexpr, D: tl.constexpr,
):
    """Causal flash attention: one head and M queries a program, keys by N, sums in f32."""
    start = tl.program_id(0)
    head = tl.program_id(1)
    base = head * stride_head
    i = start * M + tl.arange(0, M)
    d = tl.arange(0, D)
    j = tl.arange(0, N)
    query = tl.load(q + base + i[:, None] * stride_row + d[None, :], mask=i[:, None] < rows, other=0.0)
    top = tl.full((M,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((M,), dtype=tl.float32)
    sums = tl.zeros((M, D), dtype=tl.float32)
    for first in range(0, tl.minimum((start + 1) * M, rows), N):
        at = first + j
        key = tl.load(k + base + at[None, :] * stride_row + d[:, None], mask=at[None, :] < rows, other=0.0)
        scores = tl.dot(query, key) * (scale * 1.44269504)
        scores = tl.where((at[None, :] <= i[:, None]) & (at[None, :] < rows), scores, -float("inf"))
        higher = tl.maximum(top, tl.max(scores, axis=1))
        weight = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(top - higher)
        total = total * shrink + tl.sum(weight, axis=1)
        value = tl.load(v + base + at[:, None] * stride_row + d[None, :], mask=at[:, None] < rows, other=0.0)
        sums = tl.dot(weight.to(value.dtype), value, sums * shrink[:, None])
        top = higher
    inside = i < rows
    tl.store(out + base + i[:, None] * stride_row + d[None, :], sums / total[:, None], mask=inside[:, None])
    tl.store(lse + head * rows + i, top + tl.log2(total), mask=inside)


def matmul_types(io, out="fp32"):
    types = {"a": "*" + io, "b": "*" + io, "c": "*" + out}
    return types | {n: "i32" for n in ("m", "n", "k", "stride_am", "stride_bk", "stride_cm")}


def build(kernel, name, types, constants, capability, aligned="", **options):
    """`aligned`: further parameters that are multiples of 16."""
    constants = {(list(kernel.arg_names).index(n),): value for n, value in constants.items()}
    signature = {n: types.get(n, "constexpr") for n in kernel.arg_names}
    # Pointers and strides are multiples of 16, as allocators and padded rows make them.
    aligned = {
        (i,): [["tt.divisibility", 16]]
        for i, n in enumerate(kernel.arg_names)
        if signature[n].startswith("*") or "stride" in n or n in aligned
    }
    source = ASTSource(kernel, signature, constants, aligned)
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    text = compiled.asm["ptx"]
    # Debugging sections say where this file lay; the lines of `.loc` stay.
    text = text.split("\t.section\t.debug")[0]
    text = re.sub(r'(\.file\s+\d+) ".*/', r'\1 "', text)
    head = f"// Written by Triton {triton.__version__} (MIT licence, see README.md); launch with "
    head += f"{compiled.metadata.num_warps * 32} threads, {compiled.metadata.shared} bytes of shared memory.\n"
    path = pathlib.Path(__file__).parent / f"{name}.sm{capability}.ptx"
    path.write_text(head + text)
    print(path.name, compiled.metadata.num_warps, compiled.metadata.shared, len(text))


SOFTMAX = {"out": "*fp32", "x": "*fp32", "row_stride": "i32", "columns": "i32"}
ATTENTION = {n: "*bf16" for n in "qkv"} | {
    "out": "*fp32", "lse": "*fp32", "scale": "fp32", "rows": "i32",
    "stride_head": "i32", "stride_row": "i32",
}

if __name__ == "__main__":
    for capability in (80, 90):
        build(softmax, "softmax", SOFTMAX, {"BLOCK": 1024}, capability, num_warps=4)
        tiles = {"M": 64, "N": 64, "K": 32, "GROUP": 4}
        for io, aligned in (("bf16", "nk"), ("fp32", ""), ("fp8e5", "nk")):
            build(matmul, f"matmul_{io}", matmul_types(io), tiles, capability, aligned, num_warps=4, num_stages=3)
        build(attention, "attention", ATTENTION, {"M": 64, "N": 32, "D": 64}, capability, num_warps=4, num_stages=2)
