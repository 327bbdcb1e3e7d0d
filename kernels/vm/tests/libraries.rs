//! Synchronisation as CUB and libcu++ write it: every kernel is right in every order and reports
//! nothing, with strict rules too, and each way to weaken one is found.

mod support;

use ptx_vm::{BufferId, FaultKind, Memory, Schedule, Stop};
use support::strictly::{floats, orders, run, whole};
use support::{Parameters, Random, bytes_f32, bytes32, input, output, words};

const AMPERE: &str = include_str!("ptx/library/library.sm80.ptx");
const HOPPER: &str = include_str!("ptx/library/library.sm90.ptx");

/// Inclusive sums of rows of `width` numbers below 100, by the single-pass scan over blocks.
fn scan(text: &str, kind: &str, width: usize, schedule: Schedule) -> Result<(), Stop> {
    const ROWS: usize = 1500;
    const BLOCKS: usize = 40;
    let mut random = Random(7);
    let values: Vec<u32> = (0..ROWS * width).map(|_| random.next() % 100).collect();
    let mut memory = Memory::new();
    let x = input(&mut memory, "x", &bytes32(&values));
    let y = output(&mut memory, "y", values.len() as u64 * 4);
    let tiles = output(&mut memory, "tiles", 1 << 16);
    let at = |memory: &Memory, b: BufferId| memory.address(b, 0);
    let clear = Parameters::default().u64(at(&memory, tiles)).u32(BLOCKS as u32);
    run(text, &format!("clear_{kind}"), [1, 128], &mut memory, &clear, Schedule::InOrder)?;
    let parameters = [x, y, tiles]
        .into_iter()
        .fold(Parameters::default(), |parameters, b| parameters.u64(at(&memory, b)))
        .u32(ROWS as u32);
    run(text, &format!("scan_{kind}"), [BLOCKS as u32, 64], &mut memory, &parameters, schedule)?;
    let mut sums = vec![0; width];
    let expected: Vec<u32> = (0..values.len())
        .map(|i| {
            sums[i % width] += values[i];
            sums[i % width]
        })
        .collect();
    assert_eq!(words(&memory, y), expected, "{kind} {schedule:?}");
    Ok(())
}

/// `entry(x, y[, n])` by one block.
fn one_block(
    text: &str,
    entry: &str,
    threads: u32,
    x: &[f32],
    outputs: usize,
    n: Option<u32>,
    schedule: Schedule,
) -> Result<Vec<f32>, Stop> {
    let mut memory = Memory::new();
    let from = input(&mut memory, "x", &bytes_f32(x));
    let to = output(&mut memory, "y", outputs as u64 * 4);
    let pointers = Parameters::default().u64(memory.address(from, 0)).u64(memory.address(to, 0));
    let parameters = n.into_iter().fold(pointers, Parameters::u32);
    run(text, entry, [1, threads], &mut memory, &parameters, schedule)?;
    Ok(floats(&memory, to))
}

#[test]
fn single_pass_scans_are_right_in_every_order() {
    for text in [AMPERE, HOPPER] {
        for schedule in orders(8) {
            scan(text, "int", 1, schedule).unwrap_or_else(|stop| panic!("{schedule:?}: {stop}"));
            scan(text, "triple", 3, schedule).unwrap_or_else(|stop| panic!("{schedule:?}: {stop}"));
        }
    }
}

/// Sums wider than a word are published by a status apart from them: relaxed, it publishes nothing.
#[test]
fn a_scan_that_publishes_its_sums_too_weakly_is_found() {
    for text in [AMPERE, HOPPER] {
        let weak = text
            .replace("st.release.gpu", "st.relaxed.gpu")
            .replace("membar.gl;", "")
            .replace("fence.acq_rel.gpu;", "");
        assert_ne!(weak, text);
        let is_found = orders(8).any(|schedule| {
            matches!(scan(&weak, "triple", 3, schedule),
                Err(Stop::Fault(fault)) if matches!(fault.kind, FaultKind::BlockRace { .. }))
        });
        assert!(is_found, "no order shows it");
    }
}

#[test]
fn a_pipeline_of_two_roles_is_right_in_every_order() {
    let x = whole(1024);
    let expected: Vec<f32> = (0..128)
        .map(|i| (0..8).map(|tile| x[tile * 128 + ((i + 32) * 7 + 3) % 128]).sum())
        .collect();
    for text in [AMPERE, HOPPER] {
        for schedule in orders(8) {
            let y = one_block(text, "roles", 160, &x, 128, Some(1024), schedule);
            assert_eq!(y.unwrap_or_else(|stop| panic!("{schedule:?}: {stop}")), expected);
        }
    }
}

#[test]
fn a_barrier_in_phases_is_right_in_every_order() {
    let x = whole(96);
    let expected: Vec<f32> =
        (0..96).map(|i| (0..5).map(|round| x[(i + round) % 96] + round as f32).sum()).collect();
    for text in [AMPERE, HOPPER] {
        for schedule in orders(8) {
            let y = one_block(text, "phases", 96, &x, 96, None, schedule);
            assert_eq!(y.unwrap_or_else(|stop| panic!("{schedule:?}: {stop}")), expected);
        }
    }
}

fn lock(text: &str, schedule: Schedule) -> Result<Vec<u32>, Stop> {
    let mut memory = Memory::new();
    let [held, data] = ["held", "data"].map(|name| {
        let b = output(&mut memory, name, 4);
        memory.write(b, 0, &bytes32(&[0]));
        b
    });
    let parameters =
        Parameters::default().u64(memory.address(held, 0)).u64(memory.address(data, 0));
    run(text, "lock", [8, 64], &mut memory, &parameters, schedule)?;
    Ok([words(&memory, held), words(&memory, data)].concat())
}

#[test]
fn a_lock_counts_every_holder_and_a_weak_release_is_found() {
    for text in [AMPERE, HOPPER] {
        for schedule in orders(8) {
            assert_eq!(lock(text, schedule).unwrap_or_else(|stop| panic!("{stop}")), [0, 16]);
        }
        let weak = text.replace("st.release.gpu", "st.relaxed.gpu");
        let is_found = orders(8).any(|schedule| {
            matches!(lock(&weak, schedule),
                Err(Stop::Fault(fault)) if matches!(fault.kind, FaultKind::BlockRace { .. }))
        });
        assert!(is_found, "no order shows it");
    }
}

#[test]
fn the_last_block_sees_what_all_others_stored() {
    let x = whole(512);
    let expected: Vec<f32> =
        (0..64).map(|i| (0..8).map(|block| 2.0 * x[block * 64 + i]).sum()).collect();
    for text in [AMPERE, HOPPER] {
        for schedule in orders(8) {
            let mut memory = Memory::new();
            let from = input(&mut memory, "x", &bytes_f32(&x));
            let [parts, y, done] = [("parts", 2048), ("y", 256), ("done", 4)]
                .map(|(name, bytes)| output(&mut memory, name, bytes));
            memory.write(done, 0, &bytes32(&[0]));
            let parameters = [from, parts, y, done]
                .into_iter()
                .fold(Parameters::default(), |all, b| all.u64(memory.address(b, 0)));
            let ran = run(text, "last_block", [8, 64], &mut memory, &parameters, schedule);
            ran.unwrap_or_else(|stop| panic!("{schedule:?}: {stop}"));
            assert_eq!(floats(&memory, y), expected);
        }
    }
}
