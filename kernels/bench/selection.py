"""Selection kernels against torch on one GPU, side by side: argmax_rows and row_topk.

    python kernels/bench/selection.py [--ptx kernels/ptx] [--sweep] [--out selection.json]

Needs torch with CUDA, nothing else: the checked-in PTX is loaded through the driver. FlashInfer's top_k
joins as an arm where it can be imported. Both arms of a comparison run in one process through CUDA graphs
over the same inputs, which rotate through at least 256 MB so that no input is still in the L2 when its turn
comes. A replay runs every input once; its time over the number of inputs is one sample, arms take turns, and
the table shows the median and the 10th and 90th percentile of the samples in microseconds. Every arm's
outputs are held against a stable sort before anything is timed.
"""

import argparse
import ctypes
import json
import math
import pathlib
import statistics

import torch

ROTATED_BYTES = 256 << 20
SAMPLES = 40
VECTOR_BYTES = 16
VECTORS_PER_THREAD = {"argmax_rows": 1, "row_topk": 4}

CUDA = ctypes.CDLL("libcuda.so.1")
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def check(status, doing):
    if status != 0:
        raise SystemExit(f"{doing}: CUDA error {status}")


class Module:
    """One PTX file, loaded; `launch` puts an entry on torch's current stream."""

    def __init__(self, path):
        torch.zeros(1, device="cuda")
        self.handle, self.entries = ctypes.c_void_p(), {}
        text = pathlib.Path(path).read_bytes() + b"\0"
        check(CUDA.cuModuleLoadData(ctypes.byref(self.handle), text), f"loading {path}")

    def launch(self, entry, grid, threads, *arguments):
        if entry not in self.entries:
            function = ctypes.c_void_p()
            found = CUDA.cuModuleGetFunction(ctypes.byref(function), self.handle, entry.encode())
            check(found, entry)
            self.entries[entry] = function
        values = [
            ctypes.c_uint64(0 if a is None else a.data_ptr())
            if a is None or isinstance(a, torch.Tensor)
            else a
            for a in arguments
        ]
        pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(v) for v in values])
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        launched = CUDA.cuLaunchKernel(
            self.entries[entry], *grid, threads, 1, 1, 0, stream, pointers, None
        )
        check(launched, entry)


def i32(value):
    return ctypes.c_int32(value)


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


def name_of(dtype):
    return next(name for name, known in DTYPES.items() if known == dtype)


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
        row = (ctypes.c_int64(x.stride(0)), i32(columns))
        if self.parts == 1:
            self.module.launch(f"argmax_rows_{name}", (rows, 1, 1), self.threads, x, *outputs, *row)
        else:
            scratch = (self.partials, self.finished)
            self.module.launch(
                f"argmax_rows_split_{name}",
                (rows, self.parts, 1),
                self.threads,
                *(x, *scratch, *outputs, *row, i32(self.part)),
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
            (rows, self.parts, 1),
            self.threads,
            *(x, self.ids[number], self.values[number], *scratch),
            *(ctypes.c_int64(x.stride(0)), i32(columns), i32(self.part)),
            *(i32(self.k), i32(topk_pool(self.k)), i32(self.tops)),
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


def correct(modules):
    for name, dtype in DTYPES.items():
        for columns in (1, 5, 33, 1025, 20000, 151936):
            hard = hard_rows(columns, dtype)
            padded = torch.full((14, columns + 3), math.nan, dtype=dtype, device="cuda")
            for x in (hard, padded[:, 1 : columns + 1].copy_(hard)):
                for parts in (1, 2, 16, 64):
                    arm = Argmax(modules["argmax_rows"], [x], parts)
                    for repeat in range(2):
                        arm(0)
                        agrees(arm, 0, x, 1, f"argmax_rows {name} {columns} in {parts}")
                    for k in (1, 2, 10, 33, 64):
                        arm = Topk(modules["row_topk"], [x], k, parts)
                        for repeat in range(2):
                            arm(0)
                            agrees(arm, 0, x, k, f"row_topk {name} {columns} k {k} in {parts}")
                        assert not arm.finished.any(), "a counter was left behind"


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


def captured(arm, count):
    """A graph that runs the arm once on every input."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for number in range(min(count, 3)):
            arm(number)
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for number in range(count):
            arm(number)
    return graph


def compare(arms, count):
    """Microseconds per call of every arm, arms taking turns."""
    graphs = {name: captured(arm, count) for name, arm in arms.items()}
    times = {name: [] for name in arms}
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for sample in range(SAMPLES + 3):
        for name, graph in graphs.items():
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            if sample >= 3:
                times[name].append(begin.elapsed_time(end) * 1e3 / count)
    return {name: spread(samples) for name, samples in times.items()}


def spread(samples):
    tenths = statistics.quantiles(samples, n=10)
    return {"median": statistics.median(samples), "p10": tenths[0], "p90": tenths[-1]}


def rotated(rows, columns, dtype):
    size = rows * columns * dtype.itemsize
    count = min(max(-(-ROTATED_BYTES // size), 4), 1024)
    return [torch.randn(rows, columns, device="cuda").to(dtype) for _ in range(count)]


# Blocks a row, by rows, for a vocabulary of 150 to 250 thousand.
ARGMAX_PARTS = {1: 128, 8: 32, 16: 16, 64: 8}
TOPK_PARTS = {1: 16, 8: 16, 16: 8, 64: 6}


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--ptx", default="kernels/ptx")
    options.add_argument("--sweep", action="store_true", help="every number of blocks and threads")
    options.add_argument("--out")
    given = options.parse_args()
    torch.manual_seed(1)
    modules = {
        stem: Module(pathlib.Path(given.ptx) / f"{stem}.ptx") for stem in ("argmax_rows", "row_topk")
    }
    correct(modules)
    print(f"{torch.cuda.get_device_name()}: outputs agree with a stable sort", flush=True)
    results = []
    shapes = [(1, 151936, "f32"), (8, 151936, "f32"), (64, 151936, "f32")]
    shapes += [(1, 248320, "bf16"), (16, 151936, "bf16"), (64, 151936, "bf16")]
    for rows, columns, name in shapes:
        inputs = rotated(rows, columns, DTYPES[name])
        sweep = given.sweep
        arms = {"torch.argmax": torch_argmax(inputs)}
        ours = {}
        for parts in (8, 16, 32, 64, 128) if sweep else (ARGMAX_PARTS[rows],):
            for threads in (None, 256, 512) if sweep else (None,):
                if rows * parts <= 2048:
                    ours[f"{parts}x{threads}" if sweep else "ours"] = Argmax(
                        modules["argmax_rows"], inputs, parts, threads
                    )
        results += table(("argmax_rows", rows, columns, name, 1), arms, ours, inputs)
        for k in (8, 64):
            arms = {"torch.topk": torch_topk(inputs, k)}
            if (peer := flashinfer_topk(inputs, k)) is not None:
                arms["flashinfer.top_k"] = peer
            ours = {}
            for parts in (4, 8, 16, 32, 64) if sweep else (TOPK_PARTS[rows],):
                for threads in (None, 256, 512) if sweep else (None,):
                    if rows * parts <= 2048:
                        ours[f"{parts}x{threads}" if sweep else "ours"] = Topk(
                            modules["row_topk"], inputs, k, parts, threads
                        )
            results += table(("row_topk", rows, columns, name, k), arms, ours, inputs)
        del inputs, arms, ours
    if given.out:
        pathlib.Path(given.out).write_text(json.dumps(results, indent=1))


def table(shape, peers, ours, inputs):
    """Prints one line an arm of ours: its time, each peer's, and the ratios."""
    times = compare({**peers, **ours}, len(inputs))
    for arm in ours.values():
        for number in (0, len(inputs) - 1):
            agrees(arm, number, inputs[number], shape[-1], f"{shape}")
    kernel, rows, columns, dtype, k = shape
    lines = []
    for name in ours:
        own = times[name]
        text = f"{kernel:12} {rows:3} x {columns} {dtype:4} k {k:2} {name:8} {own['median']:7.2f}"
        text += f" [{own['p10']:.2f} {own['p90']:.2f}]"
        for peer in peers:
            ratio = times[peer]["median"] / own["median"]
            text += f"  {peer} {times[peer]['median']:.2f} ratio {ratio:.2f}"
        print(text, flush=True)
        lines.append({"shape": shape, "arm": name, "times": times})
    return lines


if __name__ == "__main__":
    main()
