"""gdn_verify and gdn_write_on_accept: the rows of a speculative round, against fla-core's recurrence over as
many rows, which keeps the last state alone."""

import sys
from typing import Iterator

import torch

from harness import DTYPES, I64, Comparison, Module, agree, kernel, sets_for
from linear_attention import gated_delta_rule

KEY_HEADS, VALUE_HEADS, DIM = 16, 48, 128


class Round:
    """Input sets of one batch of rounds of `rows` rows each, in log gates."""

    def __init__(self, io: str, state: str, batch: int, rows: int, copies: float):
        self.io, self.state, self.batch, self.rows = io, state, batch, rows
        self.scale, dtype, narrow, total = DIM**-0.5, DTYPES[io], DTYPES[state], batch * rows
        self.state_bytes = batch * VALUE_HEADS * DIM * DIM * narrow.itemsize
        row_bytes = (2 * KEY_HEADS + 2 * VALUE_HEADS) * DIM * dtype.itemsize + 8 * VALUE_HEADS
        self.bytes = copies * self.state_bytes + total * row_bytes
        self.sets = sets_for(self.bytes)

        def unit():
            x = torch.randn(total, KEY_HEADS, DIM, device="cuda")
            return (x / x.norm(dim=-1, keepdim=True)).to(dtype)

        def one():
            gates = (total, VALUE_HEADS)
            values = (total, VALUE_HEADS, DIM)
            return dict(
                q=unit(),
                k=unit(),
                v=torch.randn(values, device="cuda").to(dtype),
                g=-torch.rand(gates, device="cuda") * 0.5,
                beta=torch.sigmoid(1.5 * torch.randn(gates, device="cuda")),
                s=(0.3 * torch.randn(batch, VALUE_HEADS, DIM, DIM, device="cuda")).to(narrow),
                o=torch.empty(values, device="cuda", dtype=dtype),
                # As many bytes as the launch moves, half of them read and half written.
                copy=torch.empty(2, int(copies * self.state_bytes) // 2, device="cuda", dtype=torch.uint8),
            )

        self.inputs = [one() for _ in range(self.sets)]
        if state == "f32":
            for x in self.inputs:
                x["key_first_s"] = x["s"].transpose(-1, -2).contiguous()
        self.cu_seqlens = torch.arange(batch + 1, dtype=torch.int64, device="cuda") * rows
        self.slot_of = torch.arange(batch, dtype=torch.int64, device="cuda")
        self.keys, self.values = I64(KEY_HEADS * DIM), I64(VALUE_HEADS * DIM)
        self.slot, self.gates = I64(VALUE_HEADS * DIM * DIM), I64(VALUE_HEADS)
        self.grid, self.threads = (DIM // 32, VALUE_HEADS, batch), 32 if state == "f32" else 64
        self.sizes = (1, batch, KEY_HEADS, VALUE_HEADS, DIM, 0)

    def peer(self, index: int, value_first: bool):
        from fla.ops.gated_delta_rule import fused_recurrent_gated_delta_rule

        x = self.inputs[index]
        split = lambda name: x[name].view(self.batch, self.rows, *x[name].shape[1:])
        out = fused_recurrent_gated_delta_rule(
            split("q"), split("k"), split("v"), g=split("g"), beta=split("beta"), scale=self.scale,
            initial_state=x["s" if value_first else "key_first_s"], output_final_state=True,
            state_v_first=value_first,
        )
        # Kept, or the allocator gives every call the same new state, which then stays in the L2.
        x["peer", value_first] = out
        return out

    def fla(self, index: int):
        """The peer as it comes: the state as [key, value]."""
        return self.peer(index, value_first=False)

    def fla_value_first(self, index: int):
        """The peer with the state as [value, key], as ours has it."""
        return self.peer(index, value_first=True)

    def copied(self, index: int):
        """A device-to-device copy of as many bytes of states."""
        copy = self.inputs[index]["copy"]
        copy[1].copy_(copy[0])

    def of_first(self):
        """o and every row's state of the first sequence in f64, by as many prefixes."""
        x = self.inputs[0]
        head_of = torch.arange(VALUE_HEADS, device="cuda") // (VALUE_HEADS // KEY_HEADS)
        rows = lambda n: [x[name][:n] for name in ("q", "k", "v", "g", "beta")]
        return [gated_delta_rule(*rows(n), x["s"][0], self.scale, head_of) for n in range(1, self.rows + 1)]

    def peer_arm(self) -> dict:
        if self.state != "f32":
            return {}
        try:
            (o_keys, s_keys), (o_values, s_values) = self.fla(0), self.fla_value_first(0)
        except ImportError as error:
            print(f"  fla left out: {error}", file=sys.stderr)
            return {}
        o, s = self.of_first()[-1]
        agree("fla, o", o_keys[0], o, 1e-2)
        agree("fla, s", s_keys[0].transpose(-1, -2), s, 1e-5)
        agree("fla [value, key], o", o_values[0], o, 1e-2)
        agree("fla [value, key], s", s_values[0], s, 1e-5)
        return {"fla": self.fla, "fla [value, key]": self.fla_value_first}


class Verify(Round):
    """gdn_verify with the live state kept: one read of the state, a write for every row."""

    def __init__(self, module, io, state, batch, rows):
        super().__init__(io, state, batch, rows, 1 + rows)
        self.module = module
        for x in self.inputs:
            x["snap"] = torch.empty(batch * rows, VALUE_HEADS, DIM, DIM, device="cuda", dtype=DTYPES[state])

    def ours(self, index: int):
        x = self.inputs[index]
        self.module.launch(
            f"gdn_verify_{self.io}_{self.state}_k{DIM}", self.grid, self.threads if self.batch < 3 else 32, 0,
            x["q"], x["k"], x["v"], x["g"], x["beta"], x["s"], x["snap"], self.cu_seqlens, self.slot_of, x["o"],
            self.keys, self.keys, self.values, self.gates, self.gates, self.slot, self.slot, self.values,
            *self.sizes, 0, 1, self.scale,
        )

    def check(self):
        self.ours(0)
        torch.cuda.synchronize()
        x, expected = self.inputs[0], self.of_first()
        agree("ours, o", x["o"][: self.rows], expected[-1][0], 1e-2)
        for row, (_, s) in enumerate(expected):
            agree(f"ours, state after row {row}", x["snap"][row], s, 1e-6 if self.state == "f32" else 2e-3)


class WriteOnAccept(Round):
    """gdn_write_on_accept: a verify that only reads the state, and the fold of all its rows."""

    def __init__(self, module, io, state, batch, rows):
        super().__init__(io, state, batch, rows, 1)
        self.module, total = module, batch * rows
        for x in self.inputs:
            x["alpha"] = torch.empty(total, VALUE_HEADS, device="cuda")
            x["delta"] = torch.empty(total, VALUE_HEADS, DIM, device="cuda")
            x["key"] = torch.empty(total, KEY_HEADS, DIM, device="cuda")
            x["engaged"] = torch.empty(batch, dtype=torch.int32, device="cuda")
        self.accepted = torch.full((batch,), rows, dtype=torch.int32, device="cuda")

    def ours(self, index: int):
        """The verify, which writes the engaged words as well."""
        x = self.inputs[index]
        stash = (x["alpha"], x["delta"], x["key"])
        tiles = 1 if self.batch < 3 else self.grid[0]  # of a block
        grid, threads = (self.grid[0] // tiles, *self.grid[1:]), tiles * self.threads
        self.module.launch(
            f"gdn_write_on_accept_verify_{self.io}_{self.state}_k{DIM}", grid, threads, 0,
            x["q"], x["k"], x["v"], x["g"], x["beta"], x["s"], self.cu_seqlens, self.slot_of, x["o"], *stash, x["engaged"],
            self.keys, self.keys, self.values, self.gates, self.gates, self.slot, self.values,
            self.gates, self.values, self.keys, *self.sizes, 0, self.scale,
        )

    def folded(self, index: int):
        """The verify and the fold of every row."""
        self.ours(index)
        x = self.inputs[index]
        self.module.launch(
            f"gdn_write_on_accept_fold_{self.state}_k{DIM}", self.grid, 64, 0,
            x["s"], None, self.cu_seqlens, self.slot_of, self.accepted, x["engaged"], x["alpha"], x["delta"], x["key"],
            self.slot, I64(0), self.gates, self.values, self.keys, *self.sizes,
        )

    def check(self):
        x, kept = self.inputs[0], self.inputs[0]["s"].clone()
        o, s = self.of_first()[-1]
        self.folded(0)
        torch.cuda.synchronize()
        agree("ours, o", x["o"][: self.rows], o, 1e-2)
        agree("ours, s folded", x["s"][0], s, 1e-6 if self.state == "f32" else 2e-3)
        x["s"].copy_(kept)


SHAPES = [(state, batch, rows) for state in ("f32", "f16") for batch in (1, 8, 32) for rows in (4, 8)]


@kernel
def gdn_verify(options) -> Iterator[Comparison]:
    module = Module(options.ptx / "gdn_verify.ptx")
    for state, batch, rows in SHAPES:
        shape = f"bf16 {state} B{batch} K{rows}"
        if options.only not in shape:
            continue
        run = Verify(module, "bf16", state, batch, rows)
        run.check()
        arms = {"ours": run.ours} | run.peer_arm() | {"copy": run.copied}
        yield Comparison(shape, arms, run.sets, bytes=run.bytes)


@kernel
def gdn_write_on_accept(options) -> Iterator[Comparison]:
    module = Module(options.ptx / "gdn_write_on_accept.ptx")
    for state, batch, rows in SHAPES:
        shape = f"bf16 {state} B{batch} K{rows}"
        if options.only not in shape:
            continue
        run = WriteOnAccept(module, "bf16", state, batch, rows)
        run.check()
        arms = {"ours": run.ours, "with fold": run.folded} | run.peer_arm()
        yield Comparison(shape, arms, run.sets, bytes=run.bytes)
