//! The GPU backend against the virtual machine, and its own checks, on a real device. Without one
//! these tests fail and say why.
#![cfg(feature = "cuda")]

use contracts::dtype::{DType, Poison};
use kernels::arena::Arena;
use kernels::backend::cuda::{CudaBackend, MEMORY_LIMIT_BYTES, Timing};
use kernels::backend::vm::VmBackend;
use kernels::backend::{Backend, Fault, Outcome};
use kernels::call::{Call, TensorArg};
use kernels::launch::{Argument, Launch, Plan, Scratch};
use kernels::registry::CANARY;
use ptx_vm::{BufferId, marks};

/// to[i + shift] = from[i] + 1 for every thread i < count.
const COPY: &str = include_str!("ptx/copy.ptx");

fn gpu() -> CudaBackend {
    let mut backend = CudaBackend::new().unwrap_or_else(|error| panic!("{error}"));
    backend.replace_module("copy", COPY).expect("the PTX parses");
    backend
}

fn tensor(buffer: u32) -> TensorArg {
    TensorArg {
        dtype: DType::I32,
        shape: vec![64],
        strides: vec![1],
        buffer,
        offset_bytes: 0,
        kind: None,
    }
}

fn copy(from: Argument, to: Argument, shift: i64, count: u32) -> Launch {
    Launch {
        module: "copy",
        entry: "copy".into(),
        grid: [2, 1, 1],
        block: [32, 1, 1],
        dynamic_shared_bytes: 0,
        arguments: vec![from, to, Argument::I64(shift), Argument::U32(count)],
    }
}

/// x, read-only, holds 0, 1, … 63; y has room for 64 elements.
fn case(y_bytes: u64, y_marks: u8) -> (Call, Arena) {
    let mut arena = Arena::new();
    arena.set_poison(Poison::Signalling);
    let x = arena.add_buffer("x", 256, &[], marks::UNWRITABLE);
    let y = arena.add_buffer("y", y_bytes, &[0xa5, 0x5a], y_marks);
    let bytes: Vec<u8> = (0i32..64).flat_map(i32::to_le_bytes).collect();
    arena.memory_mut().write(BufferId(x), 0, &bytes);
    let call = Call {
        tensors: vec![("x".to_owned(), tensor(x)), ("y".to_owned(), tensor(y))],
        ..Call::default()
    };
    (call, arena)
}

fn through_scratch() -> Plan {
    Plan {
        scratch: vec![Scratch { name: "s", dtype: DType::I32, shape: vec![64], zeroed: false }],
        launches: vec![
            copy(Argument::Tensor("x"), Argument::Scratch(0), 0, 64),
            copy(Argument::Scratch(0), Argument::Tensor("y"), 1, 60),
        ],
    }
}

fn one(to: Argument, shift: i64, count: u32) -> Plan {
    Plan { scratch: vec![], launches: vec![copy(Argument::Tensor("x"), to, shift, count)] }
}

fn bytes_of(arena: &Arena, buffer: u32) -> Vec<u8> {
    let buffer = BufferId(buffer);
    let mut bytes = vec![0; arena.memory().len_bytes(buffer) as usize];
    arena.memory().read(buffer, 0, &mut bytes);
    bytes
}

fn ran(outcome: Outcome) {
    assert!(matches!(outcome, Outcome::Ran(_)), "{outcome:?}");
}

#[test]
fn both_backends_leave_the_same_arena() {
    let plan = through_scratch();
    let (call, mut expected) = case(256, 0);
    let mut vm = VmBackend::new();
    vm.replace_module("copy", COPY).expect("the PTX parses");
    ran(vm.run(&call, &plan, &mut expected).expect("the machine works"));
    let mut gpu = gpu();
    for captured in [false, true] {
        let (call, mut arena) = case(256, 0);
        let outcome = if captured {
            gpu.run_captured(&call, &plan, &mut arena)
        } else {
            gpu.run(&call, &plan, &mut arena)
        };
        ran(outcome.expect("the GPU works"));
        for buffer in 0..3 {
            assert_eq!(bytes_of(&arena, buffer), bytes_of(&expected, buffer), "buffer {buffer}");
        }
        assert_eq!(
            arena.memory().marks(BufferId(1), 0..256),
            expected.memory().marks(BufferId(1), 0..256)
        );
    }
}

#[test]
fn the_canary_runs_alike() {
    let rows = |dtype, shape: Vec<u64>, buffer| {
        let columns = shape.get(1).copied().unwrap_or(1);
        let strides = if shape.len() == 2 { vec![columns, 1] } else { vec![1] };
        TensorArg { dtype, shape, strides, buffer, offset_bytes: 0, kind: None }
    };
    let call = Call {
        tensors: vec![
            ("x".to_owned(), rows(DType::F32, vec![3, 67], 0)),
            ("y".to_owned(), rows(DType::F32, vec![3], 1)),
        ],
        ..Call::default()
    };
    let plan = (CANARY.plan)(&call).expect("a legal call");
    let fill = |arena: &mut Arena| {
        arena.add_buffer("x", 3 * 67 * 4, &[], marks::UNWRITABLE);
        arena.add_buffer("y", 12, &[0xff], 0);
        let bytes: Vec<u8> = (0..201u32).flat_map(|i| (0.37 * i as f32).to_le_bytes()).collect();
        arena.memory_mut().write(BufferId(0), 0, &bytes);
    };
    let (mut on_vm, mut on_gpu) = (Arena::new(), Arena::new());
    fill(&mut on_vm);
    fill(&mut on_gpu);
    ran(VmBackend::new().run(&call, &plan, &mut on_vm).expect("the machine works"));
    ran(gpu().run(&call, &plan, &mut on_gpu).expect("the GPU works"));
    assert_eq!(bytes_of(&on_vm, 1), bytes_of(&on_gpu, 1));
}

#[test]
fn a_store_to_what_is_only_read_is_found() {
    let (call, mut arena) = case(256, marks::UNWRITABLE);
    let outcome =
        gpu().run(&call, &one(Argument::Tensor("y"), 3, 2), &mut arena).expect("the GPU works");
    let Outcome::Fault(Fault::StrayWrite { buffer, offset_bytes, .. }) = &outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!((buffer.as_str(), *offset_bytes), ("y", 12));
}

#[test]
fn a_store_beyond_a_buffer_is_found() {
    for (shift, expected) in [(8, 64), (-1, -4)] {
        let (call, mut arena) = case(64, 0);
        let outcome = gpu()
            .run(&call, &one(Argument::Tensor("y"), shift, 9), &mut arena)
            .expect("the GPU works");
        let Outcome::Fault(Fault::GuardWrite { buffer, offset_bytes, .. }) = &outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!((buffer.as_str(), *offset_bytes), ("y", expected));
    }
}

#[test]
fn a_huge_buffer_travels_by_the_pages_that_were_touched() {
    const BYTES: u64 = (400 << 20) + 36;
    for pattern in [&[][..], &[7], &[1, 2], &[1, 2, 3, 4], &[1, 2, 3, 4, 5, 6, 7, 8]] {
        let (mut call, mut arena) = case(256, 0);
        let huge = arena.add_buffer("huge", BYTES, pattern, marks::UNWRITABLE);
        // Elements 1 … of the last page; element 0 keeps the fill.
        let last = BYTES / 4 - 63;
        let bytes: Vec<u8> = (100i32..163).flat_map(i32::to_le_bytes).collect();
        arena.memory_mut().write(BufferId(huge), last * 4, &bytes);
        let mut from = tensor(huge);
        from.offset_bytes = last * 4 - 4;
        call.tensors.push(("huge".to_owned(), from));
        let plan = Plan {
            scratch: vec![],
            launches: vec![copy(Argument::Tensor("huge"), Argument::Tensor("y"), 0, 64)],
        };
        let mut gpu = gpu();
        ran(gpu.run(&call, &plan, &mut arena).expect("the GPU works"));
        let mut element = [0; 4];
        arena.memory().read(BufferId(huge), last * 4 - 4, &mut element);
        let first = i32::from_le_bytes(element).wrapping_add(1);
        let expected: Vec<u8> =
            [first].into_iter().chain(101..164).flat_map(i32::to_le_bytes).collect();
        assert_eq!(bytes_of(&arena, 1), expected, "fill {pattern:?}");

        let back = Plan {
            scratch: vec![],
            launches: vec![copy(Argument::Tensor("x"), Argument::Tensor("huge"), 0, 3)],
        };
        let outcome = gpu.run(&call, &back, &mut arena).expect("the GPU works");
        assert!(
            matches!(&outcome, Outcome::Fault(Fault::StrayWrite { buffer, .. }) if buffer == "huge"),
            "{outcome:?}"
        );
    }
}

#[test]
fn too_much_memory_is_unsupported() {
    let (call, mut arena) = case(256, 0);
    arena.add_buffer("vast", MEMORY_LIMIT_BYTES, &[], 0);
    let outcome = gpu().run(&call, &through_scratch(), &mut arena).expect("the GPU works");
    let Outcome::Unsupported { what, .. } = &outcome else { panic!("{outcome:?}") };
    assert!(what.contains("bytes of device memory"), "{what}");
}

#[test]
fn a_launch_the_device_refuses_leaves_it_alive() {
    let (call, mut arena) = case(256, 0);
    let mut gpu = gpu();
    let mut plan = through_scratch();
    plan.launches[1].block = [2048, 1, 1];
    let error = gpu.run(&call, &plan, &mut arena).expect_err("too many threads");
    assert!(error.to_string().contains("entry `copy`"), "{error}");
    let (call, mut arena) = case(256, 0);
    ran(gpu.run(&call, &through_scratch(), &mut arena).expect("the GPU still works"));
}

#[test]
fn time_is_measured() {
    let (call, mut arena) = case(256, 0);
    let timing = Timing { warm_ups: 2, runs: 5, cold_cache: true };
    let mut gpu = gpu();
    let times = gpu.time_ms(&call, &through_scratch(), &mut arena, timing).expect("the GPU works");
    assert_eq!(times.len(), 5);
    assert!(times.iter().all(|time| *time > 0.0 && *time < 10.0), "{times:?} on {}", gpu.device());
}
