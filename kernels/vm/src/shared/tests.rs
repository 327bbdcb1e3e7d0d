//! The checks of shared memory, one rule a test.

use super::*;
use crate::exec::warp::lanes;

fn shared() -> Shared {
    let mut shared = Shared::default();
    let array = SharedArray { offset_bytes: 0, size_bytes: 64 };
    shared.prepare(&[array], 96, 16);
    shared.start_block(false);
    shared
}

fn me(thread: u32, clock: u32) -> Toucher {
    Toucher { thread, clock, synced: clock, pc: 7 }
}

#[test]
fn a_barrier_orders_and_its_absence_races() {
    let mut s = shared();
    s.store(0, &[1; 4], me(0, 0), Touch::Write).unwrap();
    assert!(s.load(0, 4, me(0, 0), Touch::Read).is_ok());
    assert!(matches!(
        s.load(0, 4, me(40, 0), Touch::Read),
        Err(SharedFault::Race { race: RaceKind::ReadAfterWrite, .. })
    ));
    s.next_epoch();
    assert!(s.load(0, 4, me(40, 0), Touch::Read).is_ok());
    assert!(matches!(
        s.store(0, &[2; 4], me(0, 0), Touch::Write),
        Err(SharedFault::Race { race: RaceKind::WriteAfterRead, .. })
    ));
}

#[test]
fn neighbouring_bytes_do_not_race() {
    let mut s = shared();
    s.store(0, &[1; 2], me(0, 0), Touch::Write).unwrap();
    s.store(2, &[1; 2], me(1, 0), Touch::Write).unwrap();
    assert!(s.load(0, 2, me(0, 0), Touch::Read).is_ok());
    assert!(s.load(2, 2, me(0, 0), Touch::Read).is_err());
    s.next_epoch();
    assert!(s.load(0, 4, me(9, 0), Touch::Read).is_ok());
}

#[test]
fn warp_synchronisation_orders_its_own_warp_only() {
    let mut s = shared();
    s.store(0, &[1; 4], me(0, 0), Touch::Write).unwrap();
    assert!(s.load(0, 4, me(1, 0), Touch::Read).is_err());
    assert!(s.load(0, 4, me(1, 1), Touch::Read).is_ok());
    assert!(s.load(0, 4, me(32, 1), Touch::Read).is_err());
}

#[test]
fn a_reader_ordered_before_me_and_my_own_read_do_not_race() {
    let mut s = shared();
    s.store(0, &[1; 4], me(5, 0), Touch::Write).unwrap();
    s.next_epoch();
    s.load(0, 4, me(0, 0), Touch::Read).unwrap();
    s.load(0, 4, me(1, 1), Touch::Read).unwrap();
    assert!(s.store(0, &[2; 4], me(1, 1), Touch::Write).is_ok());
}

#[test]
fn atomics_race_with_plain_accesses_only() {
    let mut s = shared();
    s.store(0, &[0; 4], me(0, 0), Touch::Write).unwrap();
    s.next_epoch();
    s.touch(0, 4, me(3, 0), Touch::StrongWrite, false).unwrap();
    s.touch(0, 4, me(70, 0), Touch::StrongWrite, false).unwrap();
    assert!(s.load(0, 4, me(3, 0), Touch::Read).is_err());
    s.next_epoch();
    assert!(s.load(0, 4, me(3, 0), Touch::Read).is_ok());
}

#[test]
fn equal_stores_do_not_race_and_different_ones_do() {
    let mut s = shared();
    s.store(0, &[1; 4], me(0, 0), Touch::Write).unwrap();
    assert!(s.store(0, &[1; 4], me(33, 0), Touch::Write).is_ok());
    assert!(s.store(0, &[2; 4], me(33, 0), Touch::Write).is_err());
}

#[test]
fn redzones_and_missing_bytes() {
    let mut s = shared();
    assert_eq!(s.store(62, &[0; 4], me(0, 0), Touch::Write), Err(SharedFault::OutOfBounds));
    s.store(60, &[0; 4], me(0, 0), Touch::Write).unwrap();
    assert_eq!(
        s.load(56, 8, me(0, 0), Touch::Read),
        Err(SharedFault::Uninitialised { offset: 56 })
    );
    assert_eq!(s.load(64, 4, me(0, 0), Touch::Read), Err(SharedFault::OutOfBounds));
    s.store(96, &[0; 16], me(0, 0), Touch::Write).unwrap();
    assert_eq!(s.store(112, &[0; 4], me(0, 0), Touch::Write), Err(SharedFault::OutOfBounds));
}

/// A run leaves the records that its threads would leave one by one, or is refused.
#[test]
fn a_run_is_its_threads_one_by_one() {
    let mut seed = 5u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let block = SharedArray { offset_bytes: 0, size_bytes: 512 };
    let (mut done, mut refused) = (0, 0);
    for _ in 0..3000 {
        let mut s = Shared::default();
        s.prepare(&[block], 512, 0);
        s.start_block(false);
        s.set_ready(0, 512, true);
        for _ in 0..random(6) {
            let thread = me(random(96) as u32, random(3) as u32);
            let touch = [Touch::Read, Touch::Write, Touch::StrongRead, Touch::StrongWrite];
            let at = random(64) as usize * 4;
            let (at, len) = if random(8) == 0 { (at + 2, 2) } else { (at, 4) };
            let _ = s.touch(at, len, thread, touch[random(4) as usize], random(2) == 0);
            if random(12) == 0 {
                s.next_epoch();
            }
        }
        let piece = [4, 8, 16][random(3) as usize];
        let lanes = 1 + random(16) as usize;
        let at = random((256 / piece) as u64) as usize * piece;
        let first = me(random(2) as u32 * 32 + random(16) as u32, random(3) as u32);
        let store = random(2) == 0;
        let touch = if store { Touch::Write } else { Touch::Read };
        let before = (s.writers.clone(), s.readers.clone());
        let fast = if store {
            s.write_run(at as u64, lanes, piece, first)
        } else {
            s.read_run(at as u64, lanes, piece, first)
        };
        let after = (s.writers.clone(), s.readers.clone());
        (s.writers, s.readers) = before;
        let slowly = (0..lanes).try_for_each(|l| {
            let thread = me(first.thread + l as u32, first.clock);
            s.touch(at + l * piece, piece, thread, touch, false)
        });
        if fast {
            assert_eq!(slowly, Ok(()));
            assert_eq!((s.writers, s.readers), after);
            done += 1;
        } else {
            refused += 1;
        }
    }
    assert!(done > 500 && refused > 500, "{done} {refused}");
}

#[test]
fn reads_apart_are_refused_where_one_thread_may_not_read() {
    let mut s = shared();
    s.store(0, &[1; 16], me(0, 0), Touch::Write).unwrap();
    s.next_epoch();
    s.store(8, &[2; 4], me(40, 0), Touch::Write).unwrap();
    let mut read = |addresses: [u64; 3]| {
        let mut all = [0; 32];
        all[..3].copy_from_slice(&addresses);
        let mut out = [[0; 4]; 32];
        s.read_apart(&all, 0b111, me(0, 0), &mut out).then_some(out[2])
    };
    assert_eq!(read([0, 12, 4]), Some([1; 4]));
    assert_eq!(read([0, 12, 8]), None, "another warp stored it");
    assert_eq!(read([0, 12, 2]), None, "misaligned");
    assert_eq!(read([0, 12, 16]), None, "not initialised");
    assert_eq!(read([0, 12, 64]), None, "outside");
    assert_eq!(read([0, 12, u64::MAX - 3]), None, "far outside");
    // The readers are on record: a store of another warp races with them.
    assert!(s.store(4, &[3; 4], me(70, 0), Touch::Write).is_err());
}

#[test]
fn accesses_of_many_lanes_are_their_threads_one_by_one() {
    let mut seed = 11u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let block = SharedArray { offset_bytes: 0, size_bytes: 128 };
    let (mut done, mut refused) = ([0; 4], [0; 4]);
    for _ in 0..20_000 {
        let mut s = Shared::default();
        s.prepare(&[block], 128, 0);
        s.start_block(false);
        s.set_ready(0, 128, true);
        for _ in 0..random(5) {
            let pc = random(2) as u32 + 7;
            let thread = Toucher { pc, ..me(random(64) as u32, random(3) as u32) };
            let touch = [Touch::Read, Touch::Read, Touch::StrongWrite, Touch::Write];
            let at = random(8) as usize * 4;
            let (at, len) = if random(16) == 0 { (at + 2, 2) } else { (at, 4) };
            let _ = s.touch(at, len, thread, touch[random(4) as usize], false);
            if random(12) == 0 {
                s.next_epoch();
            }
        }
        let first = me(random(2) as u32 * 32, random(3) as u32);
        let lane = |l: usize| me(first.thread + l as u32, first.clock);
        let mask = random(1 << 6) as u32 | 1 << random(6);
        let mut at: [u64; 32] = std::array::from_fn(|_| 0);
        at.iter_mut().for_each(|at| *at = random(2) * 16);
        let before = (s.writers.clone(), s.readers.clone());
        let kind = random(4) as usize;
        let (mut used, mut len) = (mask, 4);
        let fast = match kind {
            0 => {
                at = [at[0]; 32];
                let second = mask & (mask - 1);
                // Two threads stand for all.
                used = mask & !second | second & second.wrapping_neg();
                let a = lane(mask.trailing_zeros() as usize);
                let b = (second != 0).then(|| lane(second.trailing_zeros() as usize));
                len = if random(2) == 0 { 4 } else { 16 };
                if len == 4 {
                    s.read_same::<4>(at[0], a, b)
                } else {
                    s.read_same::<16>(at[0], a, b)
                }
            }
            1 => s.read_apart(&at, mask, first, &mut [[0; 4]; 32]),
            2 => {
                let turn = random(8);
                at = std::array::from_fn(|l| (l as u64 ^ turn) % 8 * 4);
                s.write_apart::<4, true>(&at, mask, first, &[[9; 4]; 32]) == 0
            }
            _ => s.update_words(|l| at[l], mask, first, &mut [0; 32], |old, _| old + 1) == 0,
        };
        let after = (s.writers.clone(), s.readers.clone());
        (s.writers, s.readers) = before;
        let slowly = lanes(used).try_for_each(|l| {
            if kind < 2 {
                return s.touch(at[l] as usize, len, lane(l), Touch::Read, true);
            }
            if kind == 2 {
                return s.touch(at[l] as usize, len, lane(l), Touch::Write, false);
            }
            s.touch(at[l] as usize, len, lane(l), Touch::StrongRead, true)?;
            s.touch(at[l] as usize, len, lane(l), Touch::StrongWrite, false)
        });
        if fast {
            assert_eq!(slowly, Ok(()), "{kind}");
            assert_eq!((s.writers, s.readers), after, "{kind}");
            done[kind] += 1;
        } else {
            refused[kind] += 1;
        }
    }
    assert!(
        done.iter().all(|n| *n > 1000) && refused.iter().all(|n| *n > 500),
        "{done:?} {refused:?}"
    );
}
