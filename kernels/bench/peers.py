#!/usr/bin/env python3
"""Our kernels against their peers on one GPU, side by side in one run.

    python3 kernels/bench/peers.py gdn_chunk --ptx kernels/ptx --path fla_core.whl

Needs torch with CUDA; a peer that cannot be imported is left out and said so. A kernel is one
function decorated with @kernel: it yields Comparisons, each a shape with several arms over the same
rotated inputs. Every arm's outputs are checked against a reference before anything is timed. Timing:
CUDA-graph replay, one call per input set, the sets together past the L2, arms in turn, medians.
"""

import argparse
import ctypes
import dataclasses
import json
import statistics
import sys
from pathlib import Path
from typing import Callable, Iterator

import torch

L2_BYTES_PAST = 256 << 20
KERNELS: dict[str, Callable] = {}


def kernel(function):
    KERNELS[function.__name__] = function
    return function


@dataclasses.dataclass
class Comparison:
    shape: str
    arms: dict[str, Callable[[int], None]]  # arm -> call on one input set
    sets: int
    flops: float = 0.0
    bytes: float = 0.0


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

    def launch(self, entry: str, grid: int, block: int, shared: int, *arguments):
        values = []
        for argument in arguments:
            if isinstance(argument, torch.Tensor):
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
                self.function(entry, shared), grid, 1, 1, block, 1, 1, shared, stream, pointers, None
            ),
            entry,
        )


# ---- timing ----


def captured(call: Callable[[int], None], sets: int):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        call(0)
        call(sets - 1)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for index in range(sets):
            call(index)
    return graph


def timed(comparison: Comparison, rounds: int) -> dict[str, list[float]]:
    """Microseconds a call, one number a replay; the arms take turns."""
    graphs = {name: captured(call, comparison.sets) for name, call in comparison.arms.items()}
    times = {name: [] for name in graphs}
    for turn in range(rounds + 3):
        for name, graph in graphs.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            if turn >= 3:
                times[name].append(begin.elapsed_time(end) * 1e3 / comparison.sets)
    return times


def sets_for(bytes_of_one: float) -> int:
    return max(2, min(64, int(L2_BYTES_PAST / bytes_of_one) + 1))


def relative_rms(x: torch.Tensor, reference: torch.Tensor) -> float:
    x, reference = x.double(), reference.double()
    return float((x - reference).norm() / reference.norm())


def agree(what: str, x: torch.Tensor, reference: torch.Tensor, most: float):
    error = relative_rms(x, reference)
    if not error <= most:
        raise SystemExit(f"{what}: relative RMS error {error:.3e}, at most {most:.1e}")
    print(f"  {what}: relative RMS error {error:.2e}", file=sys.stderr)


# ---- kernels ----


def gated_delta_rule(q, k, v, g, beta, s, scale, head_of):
    """Row by row in f64: o [T,Hv,Dv] and the final state [Hv,Dv,Dk]."""
    q, k, v, g, beta, s = (x.double() for x in (q, k, v, g, beta, s))
    q, k, out = q[:, head_of], k[:, head_of], torch.empty_like(v)
    for row in range(q.shape[0]):
        s = s * g[row].exp()[:, None, None]
        change = beta[row][:, None] * (v[row] - torch.einsum("hvk,hk->hv", s, k[row]))
        s = s + change[:, :, None] * k[row][:, None, :]
        out[row] = scale * torch.einsum("hvk,hk->hv", s, q[row])
    return out, s


class GdnChunk:
    """Input sets of one shape, and the launches of gdn_chunk over them."""

    def __init__(self, module, io, batch, rows, key_heads, value_heads, dim, chunk_rows=64):
        self.module, self.io, self.batch, self.rows = module, io, batch, rows
        self.key_heads, self.value_heads, self.dim = key_heads, value_heads, dim
        self.chunk_rows, self.dtype = chunk_rows, getattr(torch, {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}[io])
        total, size = batch * rows, torch.finfo(self.dtype).bits // 8
        self.bytes = total * (2 * key_heads + 2 * value_heads) * dim * size
        self.bytes += total * value_heads * 8 + 2 * 4 * batch * value_heads * dim * dim
        per_row = value_heads * (6 * dim * dim + chunk_rows * (3 * dim + 2 * dim))
        self.flops = float(total * per_row)
        self.scale, device = dim**-0.5, "cuda"
        self.sets = sets_for(self.bytes)

        def unit(heads):
            x = torch.randn(total, heads, dim, device=device)
            return (x / x.norm(dim=-1, keepdim=True)).to(self.dtype)

        def one():
            gates = (total, value_heads)
            return dict(
                q=unit(key_heads),
                k=unit(key_heads),
                v=torch.randn(total, value_heads, dim, device=device).to(self.dtype),
                g=-torch.rand(gates, device=device) * 0.5,
                beta=torch.sigmoid(1.5 * torch.randn(gates, device=device)),
                s=0.3 * torch.randn(batch, value_heads, dim, dim, device=device),
                o=torch.empty(total, value_heads, dim, device=device, dtype=self.dtype),
            )

        self.inputs = [one() for _ in range(self.sets)]
        self.cu_seqlens = torch.arange(0, total + 1, rows, dtype=torch.int32, device=device)
        self.slot_of = torch.arange(batch, dtype=torch.int64, device=device)
        self.chunks = total // chunk_rows + batch
        shape = (self.chunks, value_heads, chunk_rows)
        if io == "f32":
            self.g_sum = torch.empty(total, value_heads, 2, device=device)
            self.u, self.w, self.delta = (torch.empty(*shape, dim, device=device) for _ in range(3))
            self.s_chunk = torch.empty(self.chunks, value_heads, dim, dim, device=device)
        else:
            self.decays = torch.empty(*shape, 2, device=device)
            self.t, self.p = (torch.empty(*shape, chunk_rows, dtype=self.dtype, device=device) for _ in range(2))

    def ours(self, index: int):
        x, heads, key_heads = self.inputs[index], self.value_heads, self.key_heads
        keys, values = I64(key_heads * self.dim), I64(heads * self.dim)
        gates, state = I64(heads), I64(heads * self.dim * self.dim)
        launch, io, dim, rows = self.module.launch, self.io, self.dim, self.chunk_rows
        places = (self.cu_seqlens, self.slot_of)
        if io == "f32":
            launch("gdn_chunk_recompute_wu_f32", self.chunks * heads, 256, 0, x["k"], x["v"], x["g"], x["beta"], *places, self.g_sum, self.u, self.w, keys, values, gates, gates, rows, self.batch, key_heads, heads, dim, dim, 0, 0)
            launch(f"gdn_chunk_delta_h_f32_k{dim}", self.batch * heads * dim // 32, 128, 0, x["k"], self.g_sum, self.u, self.w, *places, x["s"], self.s_chunk, self.delta, keys, state, rows, key_heads, heads, dim, 0, 0, 0)
            launch("gdn_chunk_fwd_o_f32", self.chunks * heads, 256, 0, x["q"], x["k"], self.g_sum, self.s_chunk, self.delta, *places, x["o"], keys, keys, values, rows, self.batch, key_heads, heads, dim, dim, 0, 0, self.scale)
            return
        launch(f"gdn_chunk_intra_{io}", self.chunks * key_heads, 128, 0, x["q"], x["k"], x["g"], x["beta"], *places, self.decays, self.t, self.p, keys, keys, gates, gates, rows, self.batch, key_heads, heads, dim, 0, 0)
        tile = min(dim, 64)
        shared = 2 * (64 * 2 * (2 * dim + 64 + 128) + 2 * 64 * 8 + 4 * 512 * (dim // 16 + 4 + 1))
        launch(f"gdn_chunk_inter_{io}_k{dim}", self.batch * heads * dim // tile, 128 + 3 * tile, shared, x["q"], x["k"], x["v"], self.decays, self.t, self.p, *places, x["s"], x["o"], keys, keys, values, state, values, rows, key_heads, heads, dim, 0, 0, 0, self.scale)

    def fla(self, index: int):
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule

        x = self.inputs[index]
        split = lambda name: x[name].view(self.batch, self.rows, *x[name].shape[1:])
        return chunk_gated_delta_rule(
            split("q"), split("k"), split("v"), split("g"), split("beta"), scale=self.scale,
            initial_state=x["s"], output_final_state=True, state_v_first=True,
        )

    def check(self, most: float) -> bool:
        """Ours and the peer, where there is one, against the recurrence in f64 on the first sequence:
        o of its first rows, and the final state unless it is long."""
        x, whole = self.inputs[0], self.rows <= 4096
        rows = self.rows if whole else 1024
        head_of = torch.arange(self.value_heads, device="cuda") // (self.value_heads // self.key_heads)
        first = [x[name][:rows] for name in ("q", "k", "v", "g", "beta")]
        o, s = gated_delta_rule(*first, x["s"][0], self.scale, head_of)
        kept = x["s"].clone()
        self.ours(0)
        torch.cuda.synchronize()
        agree("ours, o", x["o"][:rows], o, most)
        if whole:
            agree("ours, s", x["s"][0], s, most)
        x["s"].copy_(kept)
        if self.io == "f32":  # the peer multiplies in tf32: another class
            return False
        try:
            peer_o, peer_s = self.fla(0)
        except ImportError as error:
            print(f"  fla left out: {error}", file=sys.stderr)
            return False
        agree("fla, o", peer_o[0, :rows], o, most)
        if whole:
            agree("fla, s", peer_s[0], s, most)
        return True


@kernel
def gdn_chunk(options) -> Iterator[Comparison]:
    module = Module(options.ptx / "gdn_chunk.ptx")
    shapes = [("bf16", 1, rows) for rows in (1024, 4096, 16384)]
    shapes += [("bf16", 4, 4096), ("f16", 1, 4096), ("f32", 1, 4096)]
    for io, batch, rows in shapes:
        shape = f"{io} B{batch} T{rows} Hk16 Hv48 D128"
        if options.only not in shape:
            continue
        run = GdnChunk(module, io, batch, rows, 16, 48, 128)
        arms = {"ours": run.ours}
        if run.check({"f32": 1e-5, "f16": 2e-3, "bf16": 1e-2}[io]):
            arms["fla"] = run.fla
        yield Comparison(shape, arms, run.sets, run.flops, run.bytes)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kernels", nargs="*", help=f"of {', '.join(KERNELS)}; all when none is named")
    parser.add_argument("--ptx", type=Path, default=Path(__file__).parent.parent / "ptx")
    parser.add_argument("--path", action="append", default=[], help="wheel or folder of a peer")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", default="", help="shapes that contain this text")
    parser.add_argument("--json", type=Path, help="write every sample here")
    options = parser.parse_args()
    sys.path[:0] = options.path
    torch.manual_seed(1)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}", file=sys.stderr)
    results = []
    for name in options.kernels or KERNELS:
        for comparison in KERNELS[name](options):
            times = timed(comparison, options.rounds)
            ours = statistics.median(times["ours"])
            for arm, samples in times.items():
                samples.sort()
                median, tenth = statistics.median(samples), len(samples) // 10
                line = f"{name:<12} {comparison.shape:<32} {arm:<8} {median:9.1f} us ({samples[tenth]:.1f} to {samples[-1 - tenth]:.1f})"
                line += f" {comparison.flops / median / 1e6:7.1f} TFLOP/s {comparison.bytes / median / 1e6:6.2f} TB/s"
                print(line + (f"  x{median / ours:.2f}" if arm != "ours" else ""), flush=True)
                results.append(dict(kernel=name, shape=comparison.shape, arm=arm, us=samples))
            torch.cuda.empty_cache()
    if options.json:
        options.json.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
