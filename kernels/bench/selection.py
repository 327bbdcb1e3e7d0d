"""argmax_rows and row_topk against torch and, where it can be imported, FlashInfer."""

import functools
import math
from typing import Iterator

import torch

from harness import DTYPES, I64, Comparison, Module, kernel, name_of, sets_for

VECTOR_BYTES = 16
VECTORS_PER_THREAD = {"argmax_rows": 1, "row_topk": 4}
# Blocks a row, by rows, for a vocabulary of 150 to 250 thousand.
ARGMAX_PARTS = {1: 128, 8: 32, 16: 16, 64: 8}
TOPK_PARTS = {1: 16, 8: 16, 16: 8, 64: 6}
SHAPES = [(1, 151936, "f32"), (8, 151936, "f32"), (64, 151936, "f32")]
SHAPES += [(1, 248320, "bf16"), (16, 151936, "bf16"), (64, 151936, "bf16")]


def stretch(columns, parts, dtype):
    """Columns of a part, and the bytes of one, as the launch functions plan them."""
    vector = VECTOR_BYTES // dtype.itemsize
    part = columns if parts == 1 else -(-(-(-columns // parts)) // vector) * vector
    return part, part * dtype.itemsize


def argmax_threads(stretch_bytes):
    vectors = -(-stretch_bytes // VECTOR_BYTES)
    threads = -(-(-(-vectors // VECTORS_PER_THREAD["argmax_rows"])) // 32) * 32
    return min(max(threads, 32), 512)


def topk_threads(stretch_bytes, k):
    vectors = -(-stretch_bytes // VECTOR_BYTES)
    threads = -(-(-(-vectors // VECTORS_PER_THREAD["row_topk"])) // 32) * 32
    return min(max(threads, 32 if k <= 16 else 128), 512)


def topk_pool(k):
    return min(max(2 * k + 16, 32), 128)


class Argmax:
    """argmax_rows in `parts` blocks a row; ids and values of every input."""

    def __init__(self, module, inputs, parts, threads=None):
        rows, columns = inputs[0].shape
        dtype = inputs[0].dtype
        self.module, self.inputs, self.parts = module, inputs, parts
        self.part, size = stretch(columns, parts, dtype)
        self.threads = threads or argmax_threads(size)
        self.ids = [torch.empty(rows, dtype=torch.int32, device="cuda") for _ in inputs]
        self.values = [torch.empty(rows, device="cuda") for _ in inputs]
        self.partials = torch.empty(rows * parts, dtype=torch.int64, device="cuda")
        self.finished = torch.zeros(rows, dtype=torch.int32, device="cuda")

    def __call__(self, number):
        x = self.inputs[number]
        rows, columns = x.shape
        name = name_of(x.dtype)
        outputs = (self.ids[number], self.values[number])
        row = (I64(x.stride(0)), columns)
        if self.parts == 1:
            self.module.launch(f"argmax_rows_{name}", rows, self.threads, 0, x, *outputs, *row)
        else:
            scratch = (self.partials, self.finished)
            self.module.launch(
                f"argmax_rows_split_{name}",
                (rows, self.parts),
                self.threads,
                0,
                *(x, *scratch, *outputs, *row, self.part),
            )

    def result(self, number):
        return self.ids[number].long()[:, None], self.values[number][:, None]


class Topk:
    """row_topk in `parts` blocks a row; ids and values of every input."""

    def __init__(self, module, inputs, k, parts, threads=None):
        rows, columns = inputs[0].shape
        dtype = inputs[0].dtype
        self.module, self.inputs, self.parts, self.k = module, inputs, parts, k
        self.part, size = stretch(columns, parts, dtype)
        self.threads = threads or topk_threads(size, k)
        self.tops = min(max(k // (self.threads // 32) + 1, 2), 32)
        self.ids = [torch.empty(rows, k, dtype=torch.int32, device="cuda") for _ in inputs]
        self.values = [torch.empty(rows, k, device="cuda") for _ in inputs]
        self.partials = torch.empty(rows * parts * topk_pool(k), dtype=torch.int64, device="cuda")
        self.finished = torch.zeros(rows, dtype=torch.int32, device="cuda")

    def __call__(self, number):
        x = self.inputs[number]
        rows, columns = x.shape
        scratch = (self.partials, self.finished) if self.parts > 1 else (None, None)
        self.module.launch(
            f"row_topk_{name_of(x.dtype)}",
            (rows, self.parts),
            self.threads,
            0,
            *(x, self.ids[number], self.values[number], *scratch),
            *(I64(x.stride(0)), columns, self.part, self.k, topk_pool(self.k), self.tops),
        )

    def result(self, number):
        return self.ids[number].long(), self.values[number]


def expected(x, k):
    """Ids and values by a stable sort; NaN counts as nothing."""
    wide = x.float()
    ordered = torch.where(wide.isnan(), torch.full_like(wide, -math.inf), wide)
    # Numbers first, so that NaN does not stand among elements of -inf.
    numbers = torch.sort(wide.isnan().to(torch.int8), dim=1, stable=True).indices
    by_value = torch.sort(ordered.gather(1, numbers), dim=1, descending=True, stable=True)
    ids = numbers.gather(1, by_value.indices)[:, :k]
    values = wide.gather(1, ids)
    if ids.shape[1] < k:
        short = (ids.shape[0], k - ids.shape[1])
        ids = torch.cat([ids, ids.new_zeros(short)], 1)
        values = torch.cat([values, values.new_full(short, math.nan)], 1)
    absent = values.isnan()
    return ids.masked_fill(absent, -1), values.masked_fill(absent, -math.inf)


def agrees(arm, number, x, k, what):
    ids, values = arm.result(number)
    wanted_ids, wanted_values = expected(x, k)
    if k == 1 and isinstance(arm, Argmax):
        wanted_values = torch.where(wanted_ids < 0, math.nan, wanted_values)
    same_bits = values.contiguous().view(torch.int32) == wanted_values.contiguous().view(torch.int32)
    same = same_bits | (values.isnan() & wanted_values.isnan())
    if not (torch.equal(ids, wanted_ids) and bool(same.all())):
        wrong = int((ids != wanted_ids).sum() + (~same).sum())
        raise SystemExit(f"{what}: {wrong} outputs differ from a stable sort")


def hard_rows(columns, dtype):
    """Rows on which selections go wrong: ties, crowds, masks, NaN, zeros of both signs, ramps."""
    rows = torch.randn(14, columns, device="cuda")
    at = torch.arange(columns, device="cuda")
    rows[0] = 1.0
    rows[1] = -math.inf
    rows[2] = math.nan
    rows[3, 3 * columns // 4 :] = 1.0 + at[: columns - 3 * columns // 4] * 2e-6
    rows[3, : 3 * columns // 4] = 0.5
    rows[4] = torch.where(at % 7 == 3, 9.0, -math.inf)
    rows[5, : columns // 2] = math.nan
    rows[6] = torch.where(at % 2 == 0, -0.0, 0.0)
    rows[7] = at.float()
    rows[8] = -at.float()
    rows[9] = 1.0 + torch.rand(columns, device="cuda") * 0.2
    rows[10] = -math.inf
    rows[10, columns - 1] = 1.0
    rows[11] = torch.where(at % 64 < 32, 5.0 + torch.rand(columns, device="cuda"), 0.0)
    rows[12] = math.inf
    rows[13] = torch.where(at < 70, -math.inf, math.nan)
    return rows.to(dtype)


@functools.cache
def argmax_module(ptx):
    """Loaded, and right on hard rows in every split."""
    module = Module(ptx / "argmax_rows.ptx")
    for what, x in hard_inputs():
        for parts in (1, 2, 16, 64):
            arm = Argmax(module, [x], parts)
            for _ in range(2):
                arm(0)
                agrees(arm, 0, x, 1, f"argmax_rows {what} in {parts}")
    return module


@functools.cache
def topk_module(ptx):
    module = Module(ptx / "row_topk.ptx")
    for what, x in hard_inputs():
        for parts in (1, 2, 16, 64):
            for k in (1, 2, 10, 33, 64):
                arm = Topk(module, [x], k, parts)
                for _ in range(2):
                    arm(0)
                    agrees(arm, 0, x, k, f"row_topk {what} k {k} in {parts}")
                assert not arm.finished.any(), "a counter was left behind"
    return module


def hard_inputs():
    for name, dtype in DTYPES.items():
        for columns in (1, 5, 33, 1025, 20000, 151936):
            hard = hard_rows(columns, dtype)
            padded = torch.full((14, columns + 3), math.nan, dtype=dtype, device="cuda")
            yield f"{name} {columns}", hard
            yield f"{name} {columns} unaligned", padded[:, 1 : columns + 1].copy_(hard)


def torch_argmax(inputs):
    out = [torch.empty(x.shape[0], dtype=torch.int64, device="cuda") for x in inputs]
    return lambda number: torch.argmax(inputs[number], 1, out=out[number])


def torch_topk(inputs, k):
    out = [
        (
            torch.empty(x.shape[0], k, dtype=x.dtype, device="cuda"),
            torch.empty(x.shape[0], k, dtype=torch.int64, device="cuda"),
        )
        for x in inputs
    ]
    return lambda number: torch.topk(inputs[number], k, dim=1, out=out[number])


def flashinfer_topk(inputs, k):
    try:
        import flashinfer
    except ImportError:
        return None
    return lambda number: flashinfer.top_k(inputs[number], k, sorted=True)


def rotated(rows, columns, dtype):
    count = sets_for(rows * columns * dtype.itemsize, most=1024)
    return [torch.randn(rows, columns, device="cuda").to(dtype) for _ in range(count)]


def checked(arm, inputs, k, what):
    for number in (0, len(inputs) - 1):
        arm(number)
        agrees(arm, number, inputs[number], k, what)
    return arm


def arms_of(ours, peers, inputs, k, shape):
    """`ours` by (blocks a row, threads); without a sweep the plan's alone."""
    named = {"ours" if number == 0 else f"ours {arm.parts}x{arm.threads}": arm for number, arm in enumerate(ours)}
    arms = {name: checked(arm, inputs, k, f"{shape} {name}") for name, arm in named.items()}
    arms.update({name: peer for name, peer in peers.items() if peer is not None})
    rows, columns = inputs[0].shape
    return Comparison(shape, arms, len(inputs), bytes=float(rows * columns * inputs[0].dtype.itemsize))


def splits(options, rows, planned):
    """The plan's split of a row first, then every other one that a sweep asks for."""
    others = [(parts, threads) for parts in (4, 8, 16, 32, 64, 128) for threads in (None, 256, 512)]
    return [(planned[rows], None)] + [
        split for split in others if options.sweep and split != (planned[rows], None) and rows * split[0] <= 2048
    ]


@kernel
def argmax_rows(options) -> Iterator[Comparison]:
    for rows, columns, name in SHAPES:
        shape = f"{rows} x {columns} {name}"
        if options.only not in shape:
            continue
        module, inputs = argmax_module(options.ptx), rotated(rows, columns, DTYPES[name])
        ours = [Argmax(module, inputs, *split) for split in splits(options, rows, ARGMAX_PARTS)]
        yield arms_of(ours, {"torch.argmax": torch_argmax(inputs)}, inputs, 1, shape)


@kernel
def row_topk(options) -> Iterator[Comparison]:
    for rows, columns, name in SHAPES:
        for k in (8, 64):
            shape = f"{rows} x {columns} {name} k {k}"
            if options.only not in shape:
                continue
            module, inputs = topk_module(options.ptx), rotated(rows, columns, DTYPES[name])
            ours = [Topk(module, inputs, k, *split) for split in splits(options, rows, TOPK_PARTS)]
            peers = {"torch.topk": torch_topk(inputs, k), "flashinfer.top_k": flashinfer_topk(inputs, k)}
            yield arms_of(ours, peers, inputs, k, shape)
