"""causal_conv1d against fla-core, draft_conv and state_convert against torch."""

import sys
from typing import Iterator

import torch

from harness import DTYPES, I64, Comparison, Module, agree, kernel, sets_for

# As the launch functions plan.
THREADS, TILE_ROWS, TILE_CHANNELS, MANY_ROWS = 128, 32, 4, 16
NARROW_PROJECTION = 512, 64, 1024, 137216  # of a block: threads, outputs, channels, shared bytes
CONVERT_THREADS, PIECE, MOST_BLOCKS_A_SLOT = 256, 8, 1 << 16


def convolution(x, weight, window):
    """silu of the depthwise convolution in f64: x [T,C], weight [C,W], window [C,W-1] of inputs before."""
    taps = weight.shape[1]
    history = torch.cat([window.T.double(), x.double()])
    acc = sum(weight[:, tap].double() * history[tap : tap + x.shape[0]] for tap in range(taps))
    return acc * torch.sigmoid(acc), history[-(taps - 1) :].T


class CausalConv1d:
    """Input sets of one shape: `batch` sequences of `rows` rows, silu, windows in slots of f32."""

    def __init__(self, module, io, out, batch, rows, channels, taps=4):
        self.module, self.io, self.out, self.batch, self.rows = module, io, out, batch, rows
        self.channels, self.taps = channels, taps
        total, device = batch * rows, "cuda"
        self.total = total
        self.bytes = float(total * channels * (DTYPES[io].itemsize + DTYPES[out].itemsize))
        self.bytes += channels * taps * DTYPES[io].itemsize + 8 * batch * channels * (taps - 1)
        self.flops = float(total * channels * (2 * taps + 5))
        self.sets = sets_for(self.bytes)
        self.inputs = [
            dict(
                x=torch.randn(total, channels, device=device).to(DTYPES[io]),
                weight=(0.5 * torch.randn(channels, taps, device=device)).to(DTYPES[io]),
                state=torch.randn(batch, channels, taps - 1, device=device),
                out=torch.empty(total, channels, device=device, dtype=DTYPES[out]),
            )
            for _ in range(self.sets)
        ]
        half = int(self.bytes) // 2
        self.copies = [torch.empty(2, half, dtype=torch.uint8, device=device) for _ in range(self.sets)]
        self.cu_seqlens = torch.arange(0, total + 1, rows, dtype=torch.int32, device=device)
        self.slot_of = torch.arange(batch, dtype=torch.int64, device=device)

    def launch(self, index: int, tiles: bool):
        x, channels, kept = self.inputs[index], self.channels, self.taps - 1
        entry = f"causal_conv1d{'_tiles' if tiles else ''}_{self.io}_{self.out}_w{self.taps}"
        arguments = (
            x["x"], x["weight"], None, x["state"], None, self.cu_seqlens, self.slot_of, x["out"],
            I64(channels), I64(channels * kept), I64(0), I64(channels), 0, self.batch, channels, kept,
            1, 0, THREADS, 0, 1e-6,
        )
        if tiles:
            blocks = -(-channels // (THREADS * TILE_CHANNELS))
            grid = (-(-self.total // TILE_ROWS) + self.batch) * blocks
            self.module.launch(entry, grid, THREADS, 0, *arguments, blocks)
        else:
            self.module.launch(entry, (-(-channels // THREADS), self.batch), THREADS, 0, *arguments)

    def ours(self, index: int):
        """As the launch function chooses."""
        self.launch(index, self.total > MANY_ROWS * self.batch)

    def by_rows(self, index: int):
        self.launch(index, False)

    def fla(self, index: int, with_state: bool = False):
        from fla.modules.causal_conv1d import causal_conv1d

        x = self.inputs[index]
        state = {}
        if with_state:
            state = dict(initial_state=x["wide_state"], output_final_state=True)
        return causal_conv1d(
            x["x"].view(self.batch, self.rows, self.channels), x["weight"], activation="silu", **state
        )

    def fla_with_state(self, index: int):
        """The peer with a window taken and given back, as ours has it."""
        return self.fla(index, with_state=True)

    def copied(self, index: int):
        """A device-to-device copy that moves as many bytes."""
        self.copies[index][1].copy_(self.copies[index][0])

    def check(self, most: float) -> bool:
        x, rows = self.inputs[0], self.rows
        state = x["state"].clone()
        for name, call in (("ours", self.ours), ("row by row", self.by_rows)):
            x["state"].copy_(state)
            x["out"].fill_(float("nan"))
            call(0)
            torch.cuda.synchronize()
            for n in range(self.batch):
                own = slice(n * rows, (n + 1) * rows)
                y, window = convolution(x["x"][own], x["weight"], state[n])
                agree(f"{name}, out", x["out"][own], y, most)
                agree(f"{name}, state", x["state"][n], window, 0.0)
            if name == "ours":
                first = x["out"].clone()
        if not torch.equal(first, x["out"]):
            raise SystemExit("the two walks differ")
        x["state"].copy_(state)
        for one in self.inputs:
            oldest = torch.zeros(self.batch, self.channels, 1, device="cuda")
            one["wide_state"] = torch.cat([oldest, one["state"]], dim=-1).to(DTYPES[self.io])
        try:
            plain, kept = self.fla(0)[0], self.fla_with_state(0)[0]
        except ImportError as error:
            print(f"  fla left out: {error}", file=sys.stderr)
            return False
        for n in range(self.batch):
            own = slice(n * rows, (n + 1) * rows)
            empty = torch.zeros_like(state[n])
            agree("fla, out", plain[n], convolution(x["x"][own], x["weight"], empty)[0], 2 * most)
            held = x["wide_state"][n][:, 1:]
            agree("fla with state, out", kept[n], convolution(x["x"][own], x["weight"], held)[0], 2 * most)
        return True


@kernel
def causal_conv1d(options) -> Iterator[Comparison]:
    module = Module(options.ptx / "causal_conv1d.ptx")
    shapes = [("bf16", "bf16", 1, 4096, 10240), ("bf16", "bf16", 1, 16384, 10240), ("bf16", "bf16", 1, 1024, 10240)]
    shapes += [("bf16", "bf16", 1, 4096, 24576), ("bf16", "bf16", 4, 1024, 10240), ("f16", "f16", 1, 4096, 10240)]
    shapes += [("bf16", "f32", 1, 4096, 10240), ("f32", "f32", 1, 4096, 10240), ("bf16", "bf16", 8, 1, 10240)]
    for io, out, batch, rows, channels in shapes:
        shape = f"{io} {out} B{batch} T{rows} C{channels} W4"
        if options.only not in shape:
            continue
        run = CausalConv1d(module, io, out, batch, rows, channels)
        arms = {"ours": run.ours}
        if run.check({"f32": 1e-6, "f16": 1e-3, "bf16": 5e-3}[out]):
            arms |= {"fla": run.fla, "fla, state": run.fla_with_state}
        arms |= {"row by row": run.by_rows, "copy": run.copied}
        yield Comparison(shape, arms, run.sets, run.flops, run.bytes)


def grouped_convolution(x, base, coef, side, residual=None):
    """The reference, eager, each operation rounded to its type: x [B,R,H], base [2,2,H], coef [B,R,2,2,G]."""
    group = x.shape[-1] // coef.shape[-1]
    taps = base[side] + coef[:, :, side].repeat_interleave(group, dim=-1)
    before = torch.nn.functional.pad(x, (0, 0, 1, 0))[:, :-1]
    y = taps[:, :, 0] * x + taps[:, :, 1] * before
    return y if residual is None else y + residual


@kernel
def draft_conv(options) -> Iterator[Comparison]:
    module = Module(options.ptx / "draft_conv.ptx")
    channels, groups, io = 5120, 320, "bf16"
    compiled = torch.compile(grouped_convolution)
    for batch, rows in ((1, 8), (8, 8), (8, 10)):
        shape = f"{io} B{batch} R{rows} H{channels} G{groups}"
        if options.only not in shape:
            continue
        total, dtype, device = batch * rows, DTYPES[io], "cuda"
        weight_bytes = 4 * groups * channels * 2
        bytes_moved = float(total * (4 * channels + 12 * groups) + 4 * channels + weight_bytes)
        sets = sets_for(bytes_moved)
        normal = lambda *extents: torch.randn(*extents, device=device).to(dtype)
        inputs = [
            dict(
                x=normal(batch, rows, channels),
                base=normal(2, 2, channels),
                w=(channels**-0.5 * torch.randn(4 * groups, channels, device=device)).to(dtype),
                coef=torch.empty(batch, rows, 2, 2, groups, device=device, dtype=dtype),
                y=torch.empty(batch, rows, channels, device=device, dtype=dtype),
                parts=torch.empty(-(-channels // NARROW_PROJECTION[2]), total, 4 * groups, device=device),
            )
            for _ in range(sets)
        ]

        def ours(index, total=total, rows=rows, inputs=inputs):
            x = inputs[index]
            outputs, of_row = 4 * groups, I64(rows * channels)
            threads, tile, part, shared = NARROW_PROJECTION
            parts = -(-channels // part)
            module.launch(
                f"draft_conv_project_{io}", (parts, -(-outputs // tile)), threads, shared, x["x"], x["w"], x["parts"],
                of_row, I64(channels), I64(total), rows, channels, outputs,
            )
            blocks = -(-channels // (THREADS * 4)) + -(-outputs // THREADS)
            module.launch(
                f"draft_conv_{io}", (blocks, total), THREADS, 0, x["x"], x["base"], x["coef"], x["parts"], None,
                x["y"], of_row, I64(rows * outputs), I64(0), of_row, I64(total), rows, channels,
                channels // groups, 0, parts,
            )

        def torch_arm(index, function, batch=batch, rows=rows, inputs=inputs):
            x = inputs[index]
            coef = torch.nn.functional.linear(x["x"], x["w"]).view(batch, rows, 2, 2, groups)
            return function(x["x"], x["base"], coef, 0)

        eager = lambda index: torch_arm(index, grouped_convolution)
        fused = lambda index: torch_arm(index, compiled)
        ours(0)
        torch.cuda.synchronize()
        x = inputs[0]
        coef = torch.einsum("brk,ok->bro", x["x"].double(), x["w"].double()).view(batch, rows, 2, 2, groups)
        agree("ours, coef", x["coef"], coef, 5e-3)
        y = grouped_convolution(x["x"].double(), x["base"].double(), x["coef"].double(), 0)
        agree("ours, y", x["y"], y, 5e-3)
        agree("torch, y", eager(0), y, 2e-2)
        agree("torch compiled, y", fused(0), y, 2e-2)
        arms = {"ours": ours, "torch": eager, "torch compiled": fused}
        yield Comparison(shape, arms, sets, bytes=bytes_moved)


@kernel
def state_convert(options) -> Iterator[Comparison]:
    module = Module(options.ptx / "state_convert.ptx")
    for source, target in (("f32", "f16"), ("f16", "f32")):
        for slots in (1, 16, 128):
            count = 48 * 128 * 128
            shape = f"{source} {target} {slots} x {count}"
            if options.only not in shape:
                continue
            bytes_moved = 6.0 * slots * count
            sets = sets_for(bytes_moved)
            sources = [torch.randn(slots * count, device="cuda").to(DTYPES[source]) for _ in range(sets)]
            targets = [torch.empty(slots * count, device="cuda", dtype=DTYPES[target]) for _ in range(sets)]
            copies = [torch.empty(2, int(bytes_moved) // 2, dtype=torch.uint8, device="cuda") for _ in range(sets)]

            def ours(index, total=slots * count, sources=sources, targets=targets, entry=f"state_convert_{source}_{target}"):
                units = total // PIECE
                blocks = min(-(-units // CONVERT_THREADS), MOST_BLOCKS_A_SLOT)
                module.launch(
                    entry, blocks, CONVERT_THREADS, 0, sources[index], targets[index], I64(total), I64(total), I64(1),
                    I64(units),
                )

            def cast(index, sources=sources, targets=targets):
                targets[index].copy_(sources[index])

            def copied(index, copies=copies):
                """A device-to-device copy that moves as many bytes."""
                copies[index][1].copy_(copies[index][0])

            ours(0)
            torch.cuda.synchronize()
            if not torch.equal(targets[0], sources[0].to(DTYPES[target])):
                raise SystemExit(f"{shape}: elements differ from torch's")
            yield Comparison(shape, {"ours": ours, "torch": cast, "copy": copied}, sets, bytes=bytes_moved)
