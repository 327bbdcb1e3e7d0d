"""What every comparison shares: PTX loaded through the driver, timing, checks and the table.

A kernel is one function decorated with @kernel that yields Comparisons: a shape and several arms over
the same rotated inputs, each arm's outputs checked before. Timing: CUDA-graph replay, at least 64 calls
over the input sets in rotation, the sets together past the L2, arms in turn; a sample is one replay's
time over its calls.
"""

import ctypes
import dataclasses
import statistics
import sys
from pathlib import Path
from typing import Callable

import torch

L2_BYTES_PAST = 256 << 20
GRAPH_CALLS = 64  # at least, so that the start of a replay is a small part of it
KERNELS: dict[str, Callable] = {}
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def kernel(function):
    KERNELS[function.__name__] = function
    return function


@dataclasses.dataclass
class Comparison:
    shape: str
    arms: dict[str, Callable[[int], None]]  # arm -> call on one input set; "ours" is what others are held to
    sets: int
    flops: float = 0.0
    bytes: float = 0.0


def name_of(dtype: torch.dtype) -> str:
    return next(name for name, known in DTYPES.items() if known == dtype)


# ---- our side: PTX through the driver, on torch's context and stream ----


class I64(int):
    """An argument of 64 bits; a plain int has 32."""


class Module:
    driver = None

    def __init__(self, path: Path):
        if Module.driver is None:
            torch.zeros(1, device="cuda")
            Module.driver = ctypes.CDLL("libcuda.so.1")
        self.handle, self.functions = ctypes.c_void_p(), {}
        self.check(
            Module.driver.cuModuleLoadData(ctypes.byref(self.handle), path.read_bytes() + b"\0"),
            f"load {path}",
        )

    @staticmethod
    def check(code: int, what: str):
        if code:
            raise RuntimeError(f"{what}: CUDA error {code}")

    def function(self, entry: str, shared: int):
        if entry not in self.functions:
            function = ctypes.c_void_p()
            self.check(
                Module.driver.cuModuleGetFunction(
                    ctypes.byref(function), self.handle, entry.encode()
                ),
                entry,
            )
            if shared > 48 << 10:  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                self.check(Module.driver.cuFuncSetAttribute(function, 8, shared), entry)
            self.functions[entry] = function
        return self.functions[entry]

    def launch(self, entry: str, grid, block: int, shared: int, *arguments):
        """grid: a number of blocks or up to three; None is a null pointer."""
        grid = (grid,) if isinstance(grid, int) else tuple(grid)
        grid += (1,) * (3 - len(grid))
        values = []
        for argument in arguments:
            if argument is None:
                values.append(ctypes.c_uint64(0))
            elif isinstance(argument, torch.Tensor):
                values.append(ctypes.c_uint64(argument.data_ptr()))
            elif isinstance(argument, I64):
                values.append(ctypes.c_int64(argument))
            elif isinstance(argument, float):
                values.append(ctypes.c_float(argument))
            else:
                values.append(ctypes.c_int32(argument))
        pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(v) for v in values])
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        self.check(
            Module.driver.cuLaunchKernel(
                self.function(entry, shared), *grid, block, 1, 1, shared, stream, pointers, None
            ),
            entry,
        )


# ---- timing ----


def captured(call: Callable[[int], None], sets: int, turns: int):
    """A graph of one call for every input set, `turns` times over."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        call(0)
        call(sets - 1)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(turns):
            for index in range(sets):
                call(index)
    return graph


def timed(comparison: Comparison, rounds: int) -> dict[str, list[float]]:
    """Microseconds a call, one number a replay; the arms take turns."""
    turns = -(-GRAPH_CALLS // comparison.sets)
    graphs = {name: captured(call, comparison.sets, turns) for name, call in comparison.arms.items()}
    times = {name: [] for name in graphs}
    for turn in range(rounds + 3):
        for name, graph in graphs.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            if turn >= 3:
                times[name].append(begin.elapsed_time(end) * 1e3 / (turns * comparison.sets))
    return times


def sets_for(bytes_of_one: float, most: int = 64) -> int:
    return max(2, min(most, int(L2_BYTES_PAST / bytes_of_one) + 1))


def spread(samples: list[float]) -> tuple[float, float, float]:
    """Median, 10th and 90th percentile."""
    tenths = statistics.quantiles(samples, n=10)
    return statistics.median(samples), tenths[0], tenths[-1]


def report(name: str, comparison: Comparison, times: dict[str, list[float]]):
    ours = statistics.median(times["ours"])
    for arm, samples in times.items():
        median, low, high = spread(samples)
        line = f"{name:12} {comparison.shape:32} {arm:22} {median:9.2f} us [{low:.2f} {high:.2f}]"
        if comparison.flops:
            line += f" {comparison.flops / median / 1e6:7.1f} TFLOP/s"
        if comparison.bytes:
            line += f" {comparison.bytes / median / 1e6:6.2f} TB/s"
        print(line + (f"  x{median / ours:.2f}" if arm != "ours" else ""), flush=True)


def relative_rms(x: torch.Tensor, reference: torch.Tensor) -> float:
    x, reference = x.double(), reference.double()
    return float((x - reference).norm() / reference.norm())


def agree(what: str, x: torch.Tensor, reference: torch.Tensor, most: float):
    error = relative_rms(x, reference)
    if not error <= most:
        raise SystemExit(f"{what}: relative RMS error {error:.3e}, at most {most:.1e}")
    print(f"  {what}: relative RMS error {error:.2e}", file=sys.stderr)
