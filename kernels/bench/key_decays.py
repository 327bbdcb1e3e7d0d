"""kda_decode and kda_chunk, whose every key channel decays by itself, against fla-core."""

import sys
from typing import Iterator

import torch

from harness import DTYPES, I64, Comparison, Module, agree, kernel, sets_for

HEADS, DIM, CHUNK_ROWS = 64, 128, 64


def rule(q, k, v, g, beta, s, scale):
    """Row by row in f64: o [T,H,Dv] and the final state [H,Dv,Dk]."""
    q, k, v, g, beta, s = (x.double() for x in (q, k, v, g, beta, s))
    out = torch.empty_like(v)
    for row in range(q.shape[0]):
        s = s * g[row].exp()[:, None, :]
        change = beta[row][:, None] * (v[row] - torch.einsum("hvk,hk->hv", s, k[row]))
        s = s + change[:, :, None] * k[row][:, None, :]
        out[row] = scale * torch.einsum("hvk,hk->hv", s, q[row])
    return out, s


def inputs(io, batch, rows):
    """`batch` sequences of `rows` rows end to end: log decays of the lower-bound law, states apart."""
    total, dtype, device = batch * rows, DTYPES[io], "cuda"

    def unit():
        x = torch.randn(total, HEADS, DIM, device=device)
        return (x / x.norm(dim=-1, keepdim=True)).to(dtype)

    return dict(
        q=unit(),
        k=unit(),
        v=torch.randn(total, HEADS, DIM, device=device).to(dtype),
        g=-5 * torch.sigmoid(torch.randn(total, HEADS, DIM, device=device)),
        beta=torch.sigmoid(1.5 * torch.randn(total, HEADS, device=device)),
        s=0.3 * torch.randn(batch, HEADS, DIM, DIM, device=device),
        o=torch.empty(total, HEADS, DIM, device=device, dtype=dtype),
    )


class Run:
    """Input sets of one shape, and what a call moves."""

    def __init__(self, module, io, batch, rows):
        self.module, self.io, self.batch, self.rows = module, io, batch, rows
        total = batch * rows
        self.scale = DIM**-0.5
        self.bytes = 2 * 4 * batch * HEADS * DIM * DIM + total * HEADS * (4 * DIM + 4)
        self.bytes += 4 * total * HEADS * DIM * DTYPES[io].itemsize
        self.flops = float(total * HEADS * (6 * DIM * DIM + CHUNK_ROWS * 5 * DIM))
        self.sets = sets_for(self.bytes)
        self.inputs = [inputs(io, batch, rows) for _ in range(self.sets)]
        self.slot_of = torch.arange(batch, dtype=torch.int64, device="cuda")

    def split(self, index, names):
        x = self.inputs[index]
        return {name: x[name].view(self.batch, self.rows, *x[name].shape[1:]) for name in names}

    def check(self, peers, most: float, most_s: float) -> list[str]:
        """Ours and the peers, where there are any, against the rule in f64 on the first sequence; the
        peers that ran."""
        x, rows = self.inputs[0], min(self.rows, 1024)
        whole = rows == self.rows
        first = [x[name][:rows] for name in ("q", "k", "v", "g", "beta")]
        o, s = rule(*first, x["s"][0], self.scale)
        kept = x["s"].clone()
        self.ours(0)
        torch.cuda.synchronize()
        agree("ours, o", x["o"][:rows], o, most)
        if whole:
            agree("ours, s", x["s"][0], s, most_s)
        ran = []
        for name, peer in peers.items():
            x["s"].copy_(kept)
            try:
                peer_o, peer_s = peer(0)
            except ImportError as error:
                print(f"  {name} left out: {error}", file=sys.stderr)
                continue
            agree(f"{name}, o", peer_o.flatten(0, 1)[:rows], o, most)
            if whole:
                agree(f"{name}, s", peer_s[0], s, 2 * most_s)
            ran.append(name)
        x["s"].copy_(kept)
        return ran


class KdaDecode(Run):
    def __init__(self, module, io, batch):
        super().__init__(module, io, batch, 1)
        for x in self.inputs:
            x["copy"] = torch.empty_like(x["s"])

    def ours(self, index: int):
        x, keys = self.inputs[index], I64(HEADS * DIM)
        self.module.launch(
            f"kda_decode_{self.io}_k{DIM}", (DIM // 32, HEADS, self.batch), 128, 0,
            x["q"], x["k"], x["v"], x["g"], x["beta"], x["s"], self.slot_of, x["o"],
            keys, keys, keys, keys, I64(HEADS), I64(HEADS * DIM * DIM), keys,
            self.batch, HEADS, HEADS, DIM, 0, -5.0, self.scale,
        )

    def fla(self, index: int):
        """The peer, its state as [value, key] as ours is."""
        from fla.ops.kda import fused_recurrent_kda

        x = self.inputs[index]
        out = fused_recurrent_kda(
            **self.split(index, ("q", "k", "v", "g", "beta")), scale=self.scale,
            initial_state=x["s"], output_final_state=True, state_v_first=True,
        )
        x["peer"] = out  # kept, or every call is given the same new state, which then stays in the L2
        return out

    def copied(self, index: int):
        """A device-to-device copy of as many bytes as the state's read and write."""
        self.inputs[index]["copy"].copy_(self.inputs[index]["s"])


@kernel
def kda_decode(options) -> Iterator[Comparison]:
    module = Module(options.ptx / "kda_decode.ptx")
    for batch in (1, 8, 32, 128):
        shape = f"bf16 B{batch} H{HEADS} D{DIM}"
        if options.only not in shape:
            continue
        run = KdaDecode(module, "bf16", batch)
        ran = run.check({"fla": run.fla}, 1e-2, 1e-6)
        arms = {"ours": run.ours} | {name: getattr(run, name) for name in ran} | {"copy": run.copied}
        yield Comparison(shape, arms, run.sets, bytes=run.bytes)


class KdaChunk(Run):
    def __init__(self, module, io, batch, rows):
        super().__init__(module, io, batch, rows)
        total = batch * rows
        self.chunks = total // CHUNK_ROWS + batch
        self.cu_seqlens = torch.arange(0, total + 1, rows, dtype=torch.int32, device="cuda")
        dtype = torch.bfloat16 if io == "bf16" else torch.float32
        empty = lambda width: torch.empty(self.chunks, HEADS, CHUNK_ROWS, width, dtype=dtype, device="cuda")
        self.ut = empty(CHUNK_ROWS if io == "bf16" else DIM)
        self.w, self.p, self.qd, self.kd = empty(DIM), empty(CHUNK_ROWS), empty(DIM), empty(DIM)
        self.decay = torch.empty(self.chunks, HEADS, DIM, device="cuda")

    def ours(self, index: int):
        x, keys, state = self.inputs[index], I64(HEADS * DIM), I64(HEADS * DIM * DIM)
        places = (self.cu_seqlens, self.slot_of)
        launch = self.module.launch
        if self.io == "bf16":
            launch(
                "kda_chunk_intra_bf16", self.chunks * HEADS, 128, 3 * 3 * 16 * DIM * 4,
                x["q"], x["k"], x["g"], x["beta"], *places,
                self.ut, self.w, self.p, self.qd, self.kd, self.decay,
                keys, keys, keys, I64(HEADS), self.batch, HEADS, HEADS, DIM, 0, 0, -5.0,
            )
            shared = 2 * (64 * 2 * (3 * DIM + 64 + 128) + 512 + 4 * 512 * (DIM // 16 + 4))
            launch(
                f"kda_chunk_inter_bf16_k{DIM}", self.batch * HEADS * DIM // 64, 320, shared,
                x["v"], self.w, self.kd, self.qd, self.ut, self.p, self.decay, *places, x["s"], x["o"],
                keys, state, keys, HEADS, DIM, 0, 0, self.scale,
            )
            return
        launch(
            f"kda_chunk_wy_{self.io}", self.chunks * HEADS, 256, 0,
            x["q"], x["k"], x["v"], x["g"], x["beta"], *places,
            self.ut, self.w, self.p, self.qd, self.kd, self.decay,
            keys, keys, keys, keys, I64(HEADS), self.batch, HEADS, HEADS, DIM, DIM, 0, 0, -5.0,
        )
        launch(
            f"kda_chunk_carry_{self.io}_k{DIM}", self.batch * HEADS * DIM // 32, 256, 0,
            self.ut, self.w, self.p, self.qd, self.kd, self.decay, *places, x["s"], x["o"],
            state, keys, HEADS, DIM, 0, 0, self.scale,
        )

    def peer(self, index: int, safe_gate: bool):
        from fla.ops.kda import chunk_kda

        return chunk_kda(
            **self.split(index, ("q", "k", "v", "g", "beta")), scale=self.scale,
            initial_state=self.inputs[index]["s"], output_final_state=True, state_v_first=True,
            safe_gate=safe_gate,
        )

    def fla(self, index: int):
        return self.peer(index, safe_gate=False)

    def fla_safe_gate(self, index: int):
        """The peer told that log decays are at least -5."""
        return self.peer(index, safe_gate=True)


@kernel
def kda_chunk(options) -> Iterator[Comparison]:
    module = Module(options.ptx / "kda_chunk.ptx")
    shapes = [("bf16", 1, rows) for rows in (1024, 4096, 16384)]
    shapes += [("bf16", 4, 4096), ("f32", 1, 4096)]
    for io, batch, rows in shapes:
        shape = f"{io} B{batch} T{rows} H{HEADS} D{DIM}"
        if options.only not in shape:
            continue
        run = KdaChunk(module, io, batch, rows)
        # In f32 the peer multiplies in tf32: another class.
        peers = {"fla": run.fla, "fla_safe_gate": run.fla_safe_gate} if io == "bf16" else {}
        ran = run.check(peers, 1e-2 if io == "bf16" else 1e-5, 1e-2 if io == "bf16" else 1e-5)
        arms = {"ours": run.ours} | {name: getattr(run, name) for name in ran}
        yield Comparison(shape, arms, run.sets, run.flops, run.bytes)
