"""ple_gather against torch: index_select, cast, multiply."""

from typing import Iterator

import torch

from harness import I64, Comparison, Module, kernel, sets_for

TABLE_ROWS, WIDTH = 2500012, 160
ROWS = (1, 128, 4096, 65536)
FEW_IDS, MAX_ROW_BLOCKS = 4096, 4096  # as the launch function plans


@kernel
def ple_gather(options) -> Iterator[Comparison]:
    module = Module(options.ptx / "ple_gather.ptx")
    codes = torch.randint(0, 256, (TABLE_ROWS, WIDTH), dtype=torch.uint8, device="cuda")
    codes[codes & 127 == 127] = 0  # NaN codes: values are compared by their bits
    scale = torch.tensor([0.0371], dtype=torch.bfloat16, device="cuda")
    status = torch.zeros(1, dtype=torch.int32, device="cuda")
    for rows in ROWS:
        shape = f"{rows} x {WIDTH} bf16"
        if options.only not in shape:
            continue
        sets = max(sets_for(3 * rows * WIDTH), 8)
        ids = [torch.randint(0, TABLE_ROWS, (rows,), device="cuda") for _ in range(sets)]
        outs = [torch.empty(rows, WIDTH, dtype=torch.bfloat16, device="cuda") for _ in range(sets)]

        def ours(index, rows=rows, ids=ids, outs=outs):
            threads = 128 if rows <= FEW_IDS else 512
            blocks = min(-(-rows * WIDTH * 2 // 16 // threads), MAX_ROW_BLOCKS)
            module.launch(
                "ple_gather_bf16", 1 + blocks, threads, 0, codes, scale, ids[index], outs[index], status,
                I64(WIDTH), I64(WIDTH), I64(TABLE_ROWS), I64(rows),
            )

        def peer(index, ids=ids):
            # Rows are selected as bytes: there is no index_select of float8.
            picked = torch.index_select(codes, 0, ids[index]).view(torch.float8_e4m3fn)
            return picked.to(torch.bfloat16) * scale

        half = rows * (3 * WIDTH + 8) // 2
        copies = [torch.empty(2, half, dtype=torch.uint8, device="cuda") for _ in range(sets)]

        def copied(index, copies=copies):
            """A device-to-device copy that moves as many bytes."""
            copies[index][1].copy_(copies[index][0])

        for index in (0, sets - 1):
            ours(index)
            exact = (codes[ids[index]].view(torch.float8_e4m3fn).float() * scale.float()).to(torch.bfloat16)
            same = outs[index].view(torch.int16) == exact.view(torch.int16)
            if not bool(same.all()) or int(status) != 0:
                raise SystemExit(f"{shape}: {int((~same).sum())} elements differ, status {int(status)}")
        if not torch.equal(peer(0), outs[0]) and (peer(0).float() - outs[0].float()).abs().max() > 0.1:
            raise SystemExit(f"{shape}: the peer computes something else")
        yield Comparison(shape, {"ours": ours, "torch": peer, "copy": copied}, sets, bytes=float(rows * (3 * WIDTH + 8)))
