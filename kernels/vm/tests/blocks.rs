//! Kernels as nvcc's users write them whose blocks and warps work together: what is right runs in
//! every order without a report, and what is wrong is named with both `.cu` lines. Most of them wait
//! for other blocks, which a machine that runs block after block would never end.

mod support;

use ptx_vm::{BufferId, FaultKind, Memory, Schedule, Stop, marks};
use support::strictly::{floats, orders, run, whole};
use support::{Parameters, bytes_f32, bytes32, input, output, words};

const RIGHT: &str = include_str!("ptx/blocks.sm80.ptx");
const NO_FENCE: &str = include_str!("ptx/blocks_NOFENCE.sm80.ptx");

fn zeros(memory: &mut Memory, name: &str, count: usize) -> BufferId {
    let b = output(memory, name, count as u64 * 4);
    memory.write(b, 0, &bytes32(&vec![0; count]));
    b
}

fn last_block_sum(text: &str, schedule: Schedule) -> Result<f32, Stop> {
    let mut memory = Memory::new();
    let x = input(&mut memory, "x", &bytes_f32(&whole(5000)));
    let (parts, out) = (output(&mut memory, "parts", 11 * 4), output(&mut memory, "out", 4));
    let parameters = Parameters::default()
        .u64(memory.address(x, 0))
        .u64(memory.address(parts, 0))
        .u64(memory.address(out, 0))
        .u32(5000);
    run(text, "last_block_sum", [11, 256], &mut memory, &parameters, schedule)?;
    Ok(floats(&memory, out)[0])
}

#[test]
fn the_last_block_adds_up() {
    let expected: f32 = whole(5000).iter().sum();
    for schedule in orders(12) {
        assert_eq!(last_block_sum(RIGHT, schedule).unwrap(), expected);
    }
}

#[test]
fn a_missing_fence_is_named_with_both_lines() {
    for schedule in orders(12) {
        let fault = match last_block_sum(NO_FENCE, schedule) {
            Err(Stop::Fault(fault)) => *fault,
            other => panic!("{other:?}"),
        };
        let FaultKind::BlockRace { buffer: Some(place), .. } = &fault.kind else {
            panic!("{fault}");
        };
        assert_eq!(place.name, "parts");
        let other = fault.other.clone().unwrap();
        assert_ne!(other.block, Some(fault.block));
        assert_eq!(other.thread, Some([0, 0, 0]));
        let cuda = include_str!("cuda/blocks.cu");
        let line = |source: &Option<ptx_vm::SourceLine>| {
            let source = source.as_ref().unwrap();
            assert_eq!(&*source.file, "blocks.cu");
            cuda.lines().nth(source.line as usize - 1).unwrap().trim()
        };
        assert_eq!(line(&fault.source), "all += parts[i];");
        assert_eq!(line(&other.source), "parts[blockIdx.x] = sums[0];");
    }
}

#[test]
fn blocks_meet_between_the_steps_of_a_stencil() {
    let start = whole(20 * 64);
    let n = start.len();
    let mut expected = start.clone();
    for _ in 0..3 {
        expected = (0..n).map(|i| expected[(i + 1) % n] + expected[(i + n - 1) % n]).collect();
    }
    for schedule in orders(12) {
        let mut memory = Memory::new();
        let a = output(&mut memory, "a", n as u64 * 4);
        memory.write(a, 0, &bytes_f32(&start));
        let b = output(&mut memory, "b", n as u64 * 4);
        let parameters = Parameters::default()
            .u64(memory.address(a, 0))
            .u64(memory.address(b, 0))
            .u32(n as u32)
            .u32(3);
        run(RIGHT, "ring", [20, 64], &mut memory, &parameters, schedule).unwrap();
        assert_eq!(floats(&memory, b), expected);
    }
}

#[test]
fn a_running_sum_looks_back() {
    let x: Vec<u32> = (0..70 * 32).map(|i| i % 13).collect();
    for schedule in orders(12) {
        let mut memory = Memory::new();
        let input = input(&mut memory, "x", &bytes32(&x));
        let sums = zeros(&mut memory, "sums", 70);
        let ready = zeros(&mut memory, "ready", 70);
        let out = output(&mut memory, "out", 70 * 32 * 4);
        let mut parameters = Parameters::default();
        for b in [input, sums, ready, out] {
            parameters = parameters.u64(memory.address(b, 0));
        }
        run(RIGHT, "look_back", [70, 32], &mut memory, &parameters, schedule).unwrap();
        let mut sum = 0;
        for (got, x) in words(&memory, out).iter().zip(&x) {
            sum += x;
            assert_eq!(*got, sum);
        }
    }
}

#[test]
fn one_block_adds_what_another_leaves() {
    let x = whole(8 * 6 * 64);
    for schedule in orders(12) {
        let mut memory = Memory::new();
        let input = input(&mut memory, "x", &bytes_f32(&x));
        let left = output(&mut memory, "left", 8 * 64 * 4);
        let flags = zeros(&mut memory, "flags", 8);
        let out = output(&mut memory, "out", 8 * 64 * 4);
        let mut parameters = Parameters::default();
        for b in [input, left, flags, out] {
            parameters = parameters.u64(memory.address(b, 0));
        }
        let parameters = parameters.u32(6);
        run(RIGHT, "fix_up", [16, 64], &mut memory, &parameters, schedule).unwrap();
        for (i, got) in floats(&memory, out).iter().enumerate() {
            let sum: f32 = (0..6).map(|k| x[((i / 64) * 6 + k) * 64 + i % 64]).sum();
            assert_eq!(*got, sum);
        }
    }
}

#[test]
fn two_tiles_in_turn_and_warps_in_step() {
    let x = whole(5 * 128);
    for schedule in orders(12) {
        let mut memory = Memory::new();
        let input = input(&mut memory, "x", &bytes_f32(&x));
        let out = output(&mut memory, "out", 16);
        let parameters =
            Parameters::default().u64(memory.address(input, 0)).u64(memory.address(out, 0)).u32(5);
        run(RIGHT, "double_buffer", [1, 128], &mut memory, &parameters, schedule).unwrap();
        for (warp, got) in floats(&memory, out).iter().enumerate() {
            let reversed = (0..5).flat_map(|t| (0..32).map(move |l| t * 128 + 127 - warp * 32 - l));
            assert_eq!(*got, reversed.map(|i| x[i]).sum::<f32>());
        }
    }
}

#[test]
fn equal_stores_declared_so_and_a_lock_within_warps() {
    let found = |declared: u8, schedule| {
        let mut memory = Memory::new();
        let x = input(&mut memory, "x", &bytes32(&[u32::MAX; 6 * 64]));
        let any = zeros(&mut memory, "any", 1);
        memory.mark(any, 0..4, declared, 0);
        let lock = zeros(&mut memory, "lock", 1);
        let count = zeros(&mut memory, "count", 1);
        let mut parameters = Parameters::default();
        for b in [x, any, lock, count] {
            parameters = parameters.u64(memory.address(b, 0));
        }
        run(RIGHT, "found", [6, 64], &mut memory, &parameters, schedule)?;
        Ok((words(&memory, any)[0], words(&memory, count)[0]))
    };
    for schedule in orders(12) {
        assert_eq!(found(marks::SAME_VALUE, schedule), Ok((1, 24)));
        match found(0, schedule) {
            Err(Stop::Fault(fault)) => {
                assert!(fault.to_string().contains("byte 0 of any"), "{fault}");
                assert!(matches!(fault.kind, FaultKind::BlockRace { .. }));
            }
            other => panic!("{other:?}"),
        }
    }
}
