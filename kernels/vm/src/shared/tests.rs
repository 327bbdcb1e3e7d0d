//! The checks of shared memory, one rule a test.

use super::*;

fn shared() -> Shared {
    let mut shared = Shared::default();
    let array = SharedArray { offset_bytes: 0, size_bytes: 64 };
    shared.prepare(&[array], 96, 16);
    shared.start_block();
    shared
}

fn me(thread: u32, clock: u32) -> Toucher {
    Toucher { thread, clock, pc: 7 }
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
