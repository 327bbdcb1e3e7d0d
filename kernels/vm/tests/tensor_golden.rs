//! Tensor copies against an H200, byte for byte: boxes of every type and rank, at every edge, in every
//! swizzle, stores, reductions, and what the driver encodes. The cases are `hardware/tensor.tsv`, the
//! hardware's answers `corpora/golden/tensor_h200.safetensors`, written by `hardware/hopper.py`.

mod hopper;
mod support;

use hopper::{Case, cases, contents, golden, tensor_type};
use ptx_vm::{
    BufferId, Coverage, FaultKind, Fill, Launch, Limits, Memory, MemorySpace, Module, Options,
    Stop, Swizzle, TensorFault, TensorMap, launch, marks,
};
use safetensors::SafeTensors;
use support::Parameters;

/// What a case gave: the bytes of its output, and of loads whether the phase completed.
#[derive(PartialEq, Debug)]
enum Outcome {
    Bytes(Vec<u8>, bool),
    /// The driver encodes no such map.
    Refused,
    Encoded,
    /// The hardware has not been asked.
    Unasked,
    /// The launch fails.
    Broken,
    /// The kernel reads what the phase has not brought.
    Incomplete,
}

fn map(case: &Case, address: u64) -> TensorMap {
    TensorMap {
        element_strides: case.steps.clone(),
        swizzle: match case.swizzle {
            0 => Swizzle::None,
            32 => Swizzle::B32,
            64 => Swizzle::B64,
            _ => Swizzle::B128,
        },
        fill: if case.fill == "nan" { Fill::Nan } else { Fill::Zero },
        ..TensorMap::tiled(
            tensor_type(&case.ty),
            address,
            &case.dims,
            &case.strides,
            &case.box_dims,
        )
    }
}

fn buffer(memory: &mut Memory, name: &str, bytes: &[u8]) -> BufferId {
    let id = memory.allocate(name, bytes.len() as u64, &[0], marks::INIT);
    memory.write(id, 0, bytes);
    id
}

fn text(case: &Case) -> String {
    let rank = case.dims.len();
    let place: Vec<String> = (0..rank).map(|i| format!("%c{i}")).collect();
    let map = format!("[%rd1, {{{}}}]", place.join(", "));
    let (file, operation) = match case.kind.as_str() {
        "load" => (
            include_str!("hardware/tensor_load.ptx"),
            format!(
                "cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes \
                 [%r1], {map}, [%r5];"
            ),
        ),
        "store" => (
            include_str!("hardware/tensor_store.ptx"),
            format!(
                "cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group {map}, [%r1];"
            ),
        ),
        kind => (
            include_str!("hardware/tensor_store.ptx"),
            format!(
                "cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{}.tile.bulk_group {map}, [%r1];",
                kind.trim_start_matches("reduce.")
            ),
        ),
    };
    file.replace("OPERATION", &operation)
}

/// Runs a case here.
fn run(index: usize, case: &Case) -> Outcome {
    let size = tensor_type(&case.ty).size_bytes() as usize;
    let mut memory = Memory::new();
    let encode = case.kind == "encode";
    let extent = if encode { 1 << 16 } else { case.extent() };
    let mut bytes = contents(index, 0, extent.div_ceil(size), &case.ty, &case.data);
    bytes.truncate(extent);
    let tensor = buffer(&mut memory, "tensor", &bytes);
    let parameter = match map(case, memory.address(tensor, case.base)).encode() {
        Ok(_) if encode => return Outcome::Encoded,
        Ok(parameter) => parameter,
        Err(_) => return Outcome::Refused,
    };
    let load = case.kind == "load";
    let window = case.window;
    let other = if load {
        vec![0; window + 4]
    } else {
        contents(index, 1, window / size, &case.ty, &case.data)
    };
    let other = buffer(&mut memory, "other", &other);
    let mut parameters = parameter.to_vec();
    let rest = Parameters::default().u64(memory.address(other, 0)).u32(case.at).u32(window as u32);
    parameters.extend(rest.u32(case.expected).0);
    for i in 0..5 {
        let c = case.coordinates.get(i).copied().unwrap_or(0);
        parameters.extend((c as u32).to_le_bytes());
    }
    let module =
        Module::parse(&text(case)).unwrap_or_else(|error| panic!("{}: {error}", case.name));
    let what = Launch {
        entry: "box",
        grid: [1; 3],
        block: [64, 1, 1],
        dynamic_shared_bytes: window as u32 + 16,
        parameters: &parameters,
    };
    let (limits, options) = (Limits::default(), Options::default());
    let result = launch(&module, &mut memory, &what, &limits, &options, &mut Coverage::new());
    match result {
        Ok(_) => {}
        Err(Stop::Fault(fault)) => match fault.kind {
            // The kernel gives up, and reads what has not come.
            FaultKind::Uninitialised { space: MemorySpace::Shared, .. } => {
                return Outcome::Incomplete;
            }
            FaultKind::Tensor {
                wrong:
                    TensorFault::Reduction | TensorFault::Crooked { .. } | TensorFault::Before { .. },
                ..
            } => return Outcome::Broken,
            _ => panic!("{}: {fault}", case.name),
        },
        Err(stop) => panic!("{}: {stop}", case.name),
    }
    if load {
        let mut out = vec![0; window + 4];
        memory.read(other, 0, &mut out);
        let complete = out[window] == 1;
        out.truncate(window);
        Outcome::Bytes(out, complete)
    } else {
        let mut out = vec![0; extent];
        memory.read(tensor, 0, &mut out);
        Outcome::Bytes(out, true)
    }
}

/// The hardware's.
fn answer(file: &SafeTensors<'_>, case: &Case) -> Outcome {
    let part = |part: &str| file.tensor(&format!("{}/{part}", case.name)).ok();
    if let Some(code) = part("encode") {
        return if code.data() == [0; 4] { Outcome::Encoded } else { Outcome::Refused };
    }
    if part("error").is_some() {
        return Outcome::Broken;
    }
    let Some(out) = part("out") else {
        return Outcome::Unasked;
    };
    let complete = part("complete").is_none_or(|complete| complete.data()[0] == 1);
    Outcome::Bytes(out.data().to_vec(), complete)
}

#[test]
fn boxes_are_the_hardwares() {
    let bytes = golden("tensor_h200.safetensors");
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let (mut wrong, mut same) = (Vec::new(), 0);
    for (index, case) in cases().iter().enumerate() {
        if MISCOUNTED.contains(&case.name.as_str()) {
            continue;
        }
        let (got, want) = (run(index, case), answer(&file, case));
        if got == want {
            same += 1;
            continue;
        }
        let detail = match (&got, &want) {
            (Outcome::Bytes(a, x), Outcome::Bytes(b, y)) => {
                let at = (0..a.len().min(b.len())).find(|i| a[*i] != b[*i]);
                let count = (0..a.len().min(b.len())).filter(|i| a[*i] != b[*i]).count();
                let show = at.map(|i| {
                    let i = i / 16 * 16;
                    format!("{:02x?}, not {:02x?}", &a[i..i + 16], &b[i..i + 16])
                });
                format!("{count} bytes, first {at:?}: {show:?}; complete {x}, not {y}")
            }
            _ => {
                let kind = |o: &Outcome| match o {
                    Outcome::Bytes(..) => "bytes".to_owned(),
                    other => format!("{other:?}"),
                };
                format!("{}, not {}", kind(&got), kind(&want))
            }
        };
        wrong.push(format!("{}: {detail}", case.name));
    }
    assert!(wrong.is_empty(), "{} differ, {same} do not:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(same + MISCOUNTED.len(), cases().len());
}

/// Fewer or more bytes expected than come. The hardware's phase completes when the count passes zero,
/// or never, and its kernel reads whatever is there.
const MISCOUNTED: [&str; 2] = ["load.2d.short", "load.2d.too.much"];

#[test]
fn bytes_that_nobody_expects_or_brings_are_a_fault() {
    for (index, case) in cases().iter().enumerate() {
        if MISCOUNTED.contains(&case.name.as_str()) {
            assert_eq!(run(index, case), Outcome::Incomplete, "{}", case.name);
        }
    }
}
