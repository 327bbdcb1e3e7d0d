"""gdn_chunk and gdn_decode against fla-core."""

import sys
from typing import Iterator

import torch

from harness import DTYPES, I64, Comparison, Module, agree, kernel, sets_for


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

    def __init__(self, module, hopper, io, batch, rows, key_heads, value_heads, dim, chunk_rows=64):
        self.module, self.hopper, self.io, self.batch, self.rows = module, hopper, io, batch, rows
        self.key_heads, self.value_heads, self.dim = key_heads, value_heads, dim
        self.chunk_rows, self.dtype = chunk_rows, DTYPES[io]
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
        self.intra(index)
        self.inter(index, hopper=False)

    def intra(self, index: int):
        """The first of the tensor-core class's two launches."""
        x, heads, key_heads = self.inputs[index], self.value_heads, self.key_heads
        keys, gates = I64(key_heads * self.dim), I64(heads)
        self.module.launch(f"gdn_chunk_intra_{self.io}", self.chunks * key_heads, 128, 0, x["q"], x["k"], x["g"], x["beta"], self.cu_seqlens, self.slot_of, self.decays, self.t, self.p, keys, keys, gates, gates, self.chunk_rows, self.batch, key_heads, heads, self.dim, 0, 0)

    def inter(self, index: int, hopper: bool):
        """The second, portable or for Hopper alone."""
        x, heads, key_heads, dim = self.inputs[index], self.value_heads, self.key_heads, self.dim
        keys, values, state = I64(key_heads * dim), I64(heads * dim), I64(heads * dim * dim)
        tile = min(dim, 64)
        arguments = (x["q"], x["k"], x["v"], self.decays, self.t, self.p, self.cu_seqlens, self.slot_of, x["s"], x["o"], keys, keys, values, state, values, self.chunk_rows, key_heads, heads, dim, 0, 0, 0, self.scale)
        if hopper:
            shared = 24 * 8192 + 64 * 144 + 5 * 64 * 8 + 14 * 8
            self.hopper.launch(f"gdn_chunk_inter_hopper_{self.io}_k{dim}", self.batch * heads * dim // tile, 384, shared, *arguments)
            return
        shared = 2 * (64 * 2 * (2 * dim + 64 + 128) + 2 * 64 * 8 + 4 * 512 * (dim // 16 + 4 + 1))
        self.module.launch(f"gdn_chunk_inter_{self.io}_k{dim}", self.batch * heads * dim // tile, 128 + 3 * tile, shared, *arguments)

    def ours_hopper(self, index: int):
        self.intra(index)
        self.inter(index, hopper=True)

    def arms(self):
        """Ours, and on a Hopper GPU, in bf16, with the second launch's variant for it."""
        arms = {"ours": self.ours}
        if self.hopper and self.io == "bf16":
            arms["hopper"] = self.ours_hopper
        return arms

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
        for arm, call in self.arms().items():
            x["o"].fill_(float("nan"))
            call(0)
            torch.cuda.synchronize()
            agree(f"{arm}, o", x["o"][:rows], o, most)
            if whole:
                agree(f"{arm}, s", x["s"][0], s, most)
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
    module, hopper = Module(options.ptx / "gdn_chunk.ptx"), None
    if torch.cuda.get_device_capability() == (9, 0):
        hopper = Module(options.ptx / "gdn_chunk_hopper.ptx")
    shapes = [("bf16", 1, rows) for rows in (1024, 4096, 16384)]
    shapes += [("bf16", 4, 4096), ("f16", 1, 4096), ("f32", 1, 4096)]
    for io, batch, rows in shapes:
        shape = f"{io} B{batch} T{rows} Hk16 Hv48 D128"
        if options.only not in shape:
            continue
        run = GdnChunk(module, hopper, io, batch, rows, 16, 48, 128)
        arms = run.arms()
        if run.check({"f32": 1e-5, "f16": 2e-3, "bf16": 1e-2}[io]):
            arms["fla"] = run.fla
        if "hopper" in arms:
            arms["second launch"] = lambda index: run.inter(index, hopper=False)
            arms["second, hopper"] = lambda index: run.inter(index, hopper=True)
        yield Comparison(shape, arms, run.sets, run.flops, run.bytes)


class GdnDecode:
    """Input sets of one batch, and one step of gdn_decode over them: log gates, state in place."""

    THREADS = {"f32": 128, "f16": 64}

    def __init__(self, module, io, state, batch, key_heads, value_heads, dim):
        self.module, self.io, self.state, self.batch = module, io, state, batch
        self.key_heads, self.value_heads, self.dim = key_heads, value_heads, dim
        self.scale, device, dtype = dim**-0.5, "cuda", DTYPES[io]
        self.state_bytes = 2 * batch * value_heads * dim * dim * DTYPES[state].itemsize
        self.bytes = self.state_bytes + batch * (2 * key_heads + 2 * value_heads) * dim * dtype.itemsize
        self.bytes += batch * (value_heads * 8 + 8)
        self.sets = sets_for(self.bytes)

        def unit():
            x = torch.randn(batch, key_heads, dim, device=device)
            return (x / x.norm(dim=-1, keepdim=True)).to(dtype)

        def one():
            gates = (batch, value_heads)
            return dict(
                q=unit(),
                k=unit(),
                v=torch.randn(batch, value_heads, dim, device=device).to(dtype),
                g=-torch.rand(gates, device=device) * 0.5,
                beta=torch.sigmoid(1.5 * torch.randn(gates, device=device)),
                s=0.3 * torch.randn(batch, value_heads, dim, dim, device=device),
                o=torch.empty(batch, value_heads, dim, device=device, dtype=dtype),
            )

        self.inputs = [one() for _ in range(self.sets)]
        for x in self.inputs:
            x["narrow_s"] = x["s"].half() if state == "f16" else x["s"]
            x["copy"] = torch.empty_like(x["narrow_s"])
            if state == "f32":
                x["key_first_s"] = x["s"].transpose(-1, -2).contiguous()
        self.slot_of = torch.arange(batch, dtype=torch.int64, device=device)

    def ours(self, index: int):
        x, heads, dim = self.inputs[index], self.value_heads, self.dim
        keys, values = I64(self.key_heads * dim), I64(heads * dim)
        self.module.launch(
            f"gdn_decode_{self.io}_{self.state}_k{dim}", (dim // 32, heads, self.batch), self.THREADS[self.state], 0,
            x["q"], x["k"], x["v"], x["g"], x["beta"], x["narrow_s"], self.slot_of, x["o"],
            keys, keys, values, I64(heads), I64(heads), I64(heads * dim * dim), values,
            self.batch, self.key_heads, heads, dim, 0, 0, self.scale,
        )

    def peer(self, index: int, value_first: bool):
        from fla.ops.gated_delta_rule import fused_recurrent_gated_delta_rule

        x = self.inputs[index]
        row = lambda name: x[name][:, None]
        out = fused_recurrent_gated_delta_rule(
            row("q"), row("k"), row("v"), g=row("g"), beta=row("beta"), scale=self.scale,
            initial_state=x["s" if value_first else "key_first_s"],
            output_final_state=True, state_v_first=value_first,
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
        """A device-to-device copy of as many bytes as the state's read and write."""
        self.inputs[index]["copy"].copy_(self.inputs[index]["narrow_s"])

    def check(self, most: float) -> bool:
        x = self.inputs[0]
        head_of = torch.arange(self.value_heads, device="cuda") // (self.value_heads // self.key_heads)
        kept, narrow = x["s"].clone(), x["narrow_s"].clone()
        steps = [
            gated_delta_rule(*(x[name][n : n + 1] for name in ("q", "k", "v", "g", "beta")), narrow[n], self.scale, head_of)
            for n in range(self.batch)
        ]
        o, s = torch.cat([step[0] for step in steps]), torch.stack([step[1] for step in steps])
        self.ours(0)
        torch.cuda.synchronize()
        agree("ours, o", x["o"], o, most)
        agree("ours, s", x["narrow_s"], s, 1e-6 if self.state == "f32" else 1e-3)
        x["narrow_s"].copy_(narrow)
        if self.state != "f32":
            return False
        try:
            (o_keys, s_keys), (o_values, s_values) = self.fla(0), self.fla_value_first(0)
        except ImportError as error:
            print(f"  fla left out: {error}", file=sys.stderr)
            return False
        agree("fla, o", o_keys[:, 0], o, most)
        agree("fla, s", s_keys.transpose(-1, -2), s, 1e-5)
        agree("fla [value, key], o", o_values[:, 0], o, most)
        agree("fla [value, key], s", s_values, s, 1e-5)
        x["s"].copy_(kept)
        return True


@kernel
def gdn_decode(options) -> Iterator[Comparison]:
    module = Module(options.ptx / "gdn_decode.ptx")
    for state in ("f32", "f16"):
        for batch in (1, 8, 32, 128):
            shape = f"bf16 {state} B{batch} Hk16 Hv48 D128"
            if options.only not in shape:
                continue
            run = GdnDecode(module, "bf16", state, batch, 16, 48, 128)
            arms = {"ours": run.ours}
            if run.check(1e-2):
                arms |= {"fla": run.fla, "fla [value, key]": run.fla_value_first}
            arms["copy"] = run.copied
            yield Comparison(shape, arms, run.sets, bytes=run.bytes)
