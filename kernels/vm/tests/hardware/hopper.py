#!/usr/bin/env python3
"""What a Hopper GPU does with tensor maps and in clusters, for kernels/vm/tests/tensor_golden.rs and cluster.rs.

    python3 kernels/vm/tests/hardware/hopper.py OUT_FOLDER      (needs numpy, safetensors, libcuda)

Writes tensor_h200.safetensors, cluster_h200.safetensors and a log. The cases are tensor.tsv's rows and CLUSTERS;
inputs follow from a case's place in the list (`words`). A launch that breaks the context, as the hardware does on
forms it lacks, is recorded by its error, and a fresh process goes on behind it.
"""

import ctypes
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
TYPES = "u8 u16 u32 s32 u64 s64 f16 f32 f64 bf16 f32ftz tf32 tf32ftz".split()
SIZES = dict(zip(TYPES, (1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4)))
# exponent bits, mantissa bits
FORMATS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f32ftz": (8, 23), "tf32": (8, 23), "tf32ftz": (8, 23), "f64": (11, 52)}
SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
# entry, grid, cluster (none for a launch that names none)
CLUSTERS = [
    ("registers", (4, 1, 1), None),
    ("registers", (4, 4, 2), (2, 2, 2)),
    ("registers", (6, 4, 1), (3, 2, 1)),
    ("registers", (8, 2, 1), (8, 1, 1)),
    ("registers", (2, 3, 4), (1, 1, 4)),
    ("registers", (2, 1, 1), (1, 1, 1)),
    *((entry, (grid, 1, 1), (cluster, 1, 1))
      for entry in ("ring", "atomics", "async_stores", "async_sums", "arrivals", "copies", "boxes")
      for grid, cluster in ((4, 2), (8, 4), (8, 8), (6, 3), (2, 1))),
]
BLOCK_WORDS = 32 * 8
BROKEN = 3  # the exit status after a launch that broke the context


def mixed(x):
    """splitmix64's finaliser."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def words(case, part, count):
    """64-bit words: of the case's tensor (part 0) or of its other input (1)."""
    with np.errstate(over="ignore"):
        return mixed(np.arange(count, dtype=np.uint64) | np.uint64(case << 40 | part << 32))


def contents(case, part, count, kind, data):
    """Bytes of `count` elements: any bits, numbers near one, or special ones."""
    size = SIZES[kind]
    if data == "bits" or kind not in FORMATS:
        return words(case, part, -(-count * size // 8)).view(np.uint8)[: count * size].copy()
    exponent_bits, mantissa_bits = FORMATS[kind]
    u = np.uint64
    random = words(case, part, count)
    bias, ones, pick = (1 << (exponent_bits - 1)) - 1, (1 << exponent_bits) - 1, random >> u(53) & u(0x3FF)
    exponent, mantissa = u(bias - 3) + pick % u(7), random & u((1 << mantissa_bits) - 1)
    if data == "special":  # subnormal, infinite, no number, halfway between shorter ones
        exponent = np.array([0, 0, 1, ones, bias, bias + 1, ones - 1, 0], dtype=np.uint64)[(pick % u(8)).astype(np.int64)]
        halfway, low = mantissa & ~u(0x1FFF) | u(0x1000), u((1 << mantissa_bits) - 1)
        mantissa = np.choose((pick >> u(3) & u(3)).astype(np.int64), [mantissa, mantissa * u(0), halfway & low, mantissa | low])
    bits = (random >> u(63)) << u(exponent_bits + mantissa_bits) | exponent << u(mantissa_bits) | mantissa
    return bits.astype({2: np.uint16, 4: np.uint32, 8: np.uint64}[size]).view(np.uint8).copy()


class Driver:
    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.cuda.cuMemAlloc_v2.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        self.cuda.cuMemcpyHtoD_v2.argtypes = [ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t]
        self.cuda.cuMemcpyDtoH_v2.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t]
        self.call("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        name = ctypes.create_string_buffer(100)
        self.call("cuDeviceGetName", name, 100, device)
        self.name = name.value.decode()

    def call(self, function, *arguments):
        code = getattr(self.cuda, function)(*arguments)
        if code:
            raise RuntimeError(f"{function}: CUDA error {code}")

    def function(self, text, entry):
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        log = ctypes.create_string_buffer(4096)
        options = (ctypes.c_int * 2)(5, 6)  # CU_JIT_ERROR_LOG_BUFFER and its size
        values = (ctypes.c_void_p * 2)(ctypes.cast(log, ctypes.c_void_p), 4096)
        code = self.cuda.cuModuleLoadDataEx(ctypes.byref(module), text.encode() + b"\0", 2, options, values)
        if code:
            raise ValueError(f"error {code}: {log.value.decode(errors='replace').strip()}")
        self.call("cuModuleGetFunction", ctypes.byref(function), module, entry.encode())
        return function

    def buffer(self, data):
        address = ctypes.c_uint64()
        data = np.ascontiguousarray(data)
        self.call("cuMemAlloc_v2", ctypes.byref(address), data.nbytes)
        self.call("cuMemcpyHtoD_v2", address, data.ctypes.data, data.nbytes)
        return address.value

    def read(self, address, count):
        out = np.zeros(count, dtype=np.uint8)
        self.call("cuMemcpyDtoH_v2", out.ctypes.data, address, count)
        return out

    def launch(self, function, grid, block, shared, cluster, arguments):
        class Config(ctypes.Structure):
            _fields_ = [(n, ctypes.c_uint) for n in "gx gy gz bx by bz shared".split()]
            _fields_ += [("stream", ctypes.c_void_p), ("attributes", ctypes.c_void_p), ("count", ctypes.c_uint)]

        attribute = (ctypes.c_uint * 18)(4, 0, *(cluster or (1, 1, 1)))  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        config = Config(*grid, *block, shared, None, ctypes.addressof(attribute), 1 if cluster else 0)
        pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(a) for a in arguments))
        self.call("cuLaunchKernelEx", ctypes.byref(config), function, pointers, None)
        self.call("cuCtxSynchronize")

    def tensor_map(self, kind, address, dims, strides, box, steps, swizzle, fill):
        """A map of 128 bytes on 64, and the driver's answer."""
        raw = (ctypes.c_uint8 * 192)()
        start = -ctypes.addressof(raw) % 64
        array = lambda t, values: (t * max(len(values), 1))(*values)
        code = self.cuda.cuTensorMapEncodeTiled(
            ctypes.byref(raw, start), TYPES.index(kind), len(dims), ctypes.c_uint64(address), array(ctypes.c_uint64, dims),
            array(ctypes.c_uint64, strides), array(ctypes.c_uint32, box), array(ctypes.c_uint32, steps), 0,
            SWIZZLES[swizzle], 0, 1 if fill == "nan" else 0)
        return (ctypes.c_uint8 * 128)(*raw[start : start + 128]), code


def tensor_cases():
    rows = [line.split("\t") for line in (HERE / "tensor.tsv").read_text().splitlines() if not line.startswith("#")]
    numbers = lambda text: [] if text == "-" else [int(x) for x in text.split(",")]
    for i, (name, kind, ty, dims, strides, box, steps, swizzle, fill, at, window, place, expected, data, base) in enumerate(
        (r[0], r[1], r[2], *map(numbers, r[3:7]), int(r[7]), r[8], int(r[10]), int(r[11]), numbers(r[9]), int(r[12]), r[13], int(r[14]))
        for r in rows
    ):
        yield dict(index=i, name=name, kind=kind, ty=ty, dims=dims, strides=strides, box=box, steps=steps, swizzle=swizzle,
                   fill=fill, coordinates=place, at=at, window=window, expected=expected, data=data, base=base)


def operation(kind, rank):
    coordinates = "{" + ", ".join(f"%c{i}" for i in range(rank)) + "}"
    if kind == "load":
        return (f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                f"[%r1], [%rd1, {coordinates}], [%r5];")
    if kind == "store":
        return f"cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group [%rd1, {coordinates}], [%r1];"
    op = kind.removeprefix("reduce.")
    return f"cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{op}.tile.bulk_group [%rd1, {coordinates}], [%r1];"


def tensor_case(driver, case):
    """The outcome's tensors by name, and a line for the log."""
    size, rank = SIZES[case["ty"]], len(case["dims"])
    last = sum((n - 1) * s for n, s in zip(case["dims"][1:], case["strides"])) + (case["dims"][0] if rank else 1) * size
    encode = case["kind"] == "encode"
    extent = 1 << 16 if encode else -(-(case["base"] + last) // 16) * 16 + 64
    tensor = contents(case["index"], 0, -(-extent // size), case["ty"], case["data"])[:extent]
    address = driver.buffer(tensor)
    map_, code = driver.tensor_map(case["ty"], address + case["base"], case["dims"], case["strides"], case["box"],
                                   case["steps"], case["swizzle"], case["fill"])
    if encode or code:
        return {"encode": np.array([code], dtype=np.uint32)}, f"encode: {code}"
    load = case["kind"] == "load"
    text = (HERE / ("tensor_load.ptx" if load else "tensor_store.ptx")).read_text()
    try:
        function = driver.function(text.replace("OPERATION", operation(case["kind"], rank)), "box")
    except ValueError as why:
        return {"refused": np.array([1], dtype=np.uint32)}, str(why)
    window = case["window"]
    other = np.zeros(window + 4, np.uint8) if load else contents(case["index"], 1, window // size, case["ty"], case["data"])
    buffer = driver.buffer(other)
    u32 = lambda x: ctypes.c_uint32(x & 0xFFFFFFFF)
    arguments = [map_, ctypes.c_uint64(buffer), u32(case["at"]), u32(window), u32(case["expected"])]
    arguments += [u32(c) for c in (case["coordinates"] + [0] * 5)[:5]]
    driver.launch(function, (1, 1, 1), (64, 1, 1), window + 16, None, arguments)
    if load:
        out = driver.read(buffer, window + 4)
        return {"out": out[:window], "complete": out[window:]}, f"complete: {out[window]}"
    return {"out": driver.read(address, extent)}, "stored"


def cluster_case(driver, index):
    entry, grid, cluster = CLUSTERS[index]
    blocks = int(np.prod(grid))
    text = (HERE / "cluster.ptx").read_text()
    source = words(1000 + index, 0, 2048).view(np.uint8)
    address, out = driver.buffer(source), driver.buffer(np.zeros(blocks * BLOCK_WORDS * 4, np.uint8))
    arguments = [ctypes.c_uint64(address), ctypes.c_uint64(out)]
    if entry == "boxes":
        map_, code = driver.tensor_map("u32", address, [32, blocks], [128], [32, 1], [1, 1], 0, "zero")
        if code:
            raise ValueError(f"encode: {code}")
        arguments.insert(0, map_)
    threads = 1 if entry == "registers" else 32
    driver.launch(driver.function(text, entry), grid, (threads, 1, 1), 0, cluster, arguments)
    result = driver.read(out, blocks * BLOCK_WORDS * 4)
    return {"out": result[: blocks * 128] if entry == "registers" else result}, "ran"


def work(folder, start):
    """Cases from `start` on, each to a file of its own."""
    driver = Driver()
    (folder / "device").write_text(driver.name)
    cases = [("tensor", c) for c in tensor_cases()] + [("cluster", i) for i in range(len(CLUSTERS))]
    for number, (family, case) in enumerate(cases[start:], start):
        name = case["name"] if family == "tensor" else "{}.{}".format(CLUSTERS[case][0], case)
        broken = False
        try:
            out, line = (tensor_case if family == "tensor" else cluster_case)(driver, case)
        except ValueError as why:
            out, line = {"refused": np.array([1], dtype=np.uint32)}, str(why)
        except RuntimeError as why:
            code = int(str(why).rsplit(" ", 1)[1])
            out, line, broken = {"error": np.array([code], dtype=np.uint32)}, str(why), True
        np.savez(folder / f"{number}.npz", **{f"{name}/{part}": value for part, value in out.items()})
        print(f"{family} {name}: {line}", flush=True)
        if broken:
            sys.stdout.flush()
            os._exit(BROKEN)


def main():
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    if len(sys.argv) > 2:
        return work(Path(sys.argv[2]), int(sys.argv[3]))
    from safetensors.numpy import save_file

    parts = Path(tempfile.mkdtemp(prefix="hopper."))
    tensors = len(list(tensor_cases()))
    total = tensors + len(CLUSTERS)
    done = 0
    with (out / "hopper.log").open("w") as log:
        while done < total:
            run = subprocess.run([sys.executable, __file__, str(out), str(parts), str(done)], stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, text=True, timeout=300)
            log.write(run.stdout)
            before, done = done, len(list(parts.glob("*.npz")))
            if done == before or done < total and run.returncode not in (0, BROKEN):
                log.write(f"stopped at case {done}\n")
                print(run.stdout[-3000:])
                break
    device = (parts / "device").read_text()
    for family, numbers in (("tensor", range(tensors)), ("cluster", range(tensors, total))):
        all_ = {}
        for number in numbers:
            if (parts / f"{number}.npz").exists():
                with np.load(parts / f"{number}.npz") as file:
                    all_.update({key: file[key] for key in file.files})
        save_file(all_, str(out / f"{family}_h200.safetensors"), metadata={"device": device})
        print(family, len(all_), "tensors")
    print((out / "hopper.log").read_text()[-6000:])


if __name__ == "__main__":
    main()
