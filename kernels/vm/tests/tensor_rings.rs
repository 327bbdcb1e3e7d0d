//! Rings of boxes, two stages each, as kernels for Hopper have them: one thread loads boxes that warps
//! read behind it, or stores boxes that warps wrote before it. The handover is by the phases of
//! mbarriers and by groups. Each ring that must run in silence has wrong twins.

mod support;

use ptx_vm::{Fault, FaultKind, MbarrierFault, Options, RaceKind, Stop};
use support::boxes::{fault, go, map, setup, silent};
use support::words;

/// Boxes that pass through a ring.
const ROUNDS: u32 = 9;

/// What a ring of loads does in each round; its twins do one of it otherwise.
#[derive(Clone, Copy)]
struct Loads<'a> {
    /// The producer waits until the stage is free.
    free: &'a str,
    /// Bytes that it announces.
    bytes: u32,
    /// The consumers wait until the box is there, read a word to `%r6` and release the stage.
    consume: [&'a str; 3],
}

/// Mbarriers at `%r3+3072`: two of full stages, two of free ones. `%r20` and `%r21` are those of the
/// round's stage, `%r11` the parity of its phase, `%r13` the other one, `%r22` the place of the box.
const LOADS: Loads<'static> = Loads {
    free: "F: mbarrier.try_wait.parity.shared::cta.b64 %p5, [%r21], %r13;\n@!%p5 bra F;\n",
    bytes: 128,
    consume: [
        "C: mbarrier.try_wait.parity.shared::cta.b64 %p5, [%r20], %r11;\n@!%p5 bra C;\n",
        "ld.shared.u32 %r6, [%r22];\n",
        "mbarrier.arrive.shared::cta.b64 _, [%r21];\n",
    ],
};

impl Loads<'_> {
    /// The boxes begin at columns −4, 4, 12 … 60 of the first lines: the first and the last of them reach
    /// beyond the tensor. Warp 1 adds up the words of all.
    fn body(&self) -> String {
        let Loads { free, bytes, consume } = self;
        let stage = "and.b32 %r12, %r10, 1;shr.u32 %r11, %r10, 1;and.b32 %r11, %r11, 1;xor.b32 %r13, %r11, 1;\n\
                     shl.b32 %r14, %r12, 3;add.u32 %r20, %r3, %r14;add.u32 %r20, %r20, 3072;add.u32 %r21, %r20, 16;\n\
                     shl.b32 %r15, %r12, 7;add.u32 %r22, %r3, %r15;\n";
        format!(
            "@%p1 mbarrier.init.shared::cta.b64 [%r3+3072], 1;@%p1 mbarrier.init.shared::cta.b64 [%r3+3080], 1;\n\
             @%p1 mbarrier.init.shared::cta.b64 [%r3+3088], 32;@%p1 mbarrier.init.shared::cta.b64 [%r3+3096], 32;\n\
             fence.mbarrier_init.release.cluster;\nbar.sync 0;\n\
             mov.u32 %r10, 0;mov.u32 %r7, 0;mov.u32 %r16, -4;setp.ge.u32 %p2, %r1, 32;@%p2 bra Q;@!%p1 bra E;\n\
             P: {stage}{free}mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r20], {bytes};\n\
             cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r22], [%rd1, {{%r16, 0}}], [%r20];\n\
             add.u32 %r16, %r16, 8;add.u32 %r10, %r10, 1;setp.lt.u32 %p3, %r10, {ROUNDS};@%p3 bra P;bra E;\n\
             Q: {stage}and.b32 %r17, %r1, 31;shl.b32 %r17, %r17, 2;add.u32 %r22, %r22, %r17;\n\
             {}add.u32 %r7, %r7, %r6;\n\
             add.u32 %r10, %r10, 1;setp.lt.u32 %p3, %r10, {ROUNDS};@%p3 bra Q;\n\
             and.b32 %r17, %r1, 31;mul.wide.u32 %rd3, %r17, 4;add.u64 %rd3, %rd3, %rd2;st.global.u32 [%rd3], %r7;\nE:\n",
            consume.concat()
        )
    }
}

#[test]
fn two_stages_of_boxes_take_turns() {
    let done = silent(map, &LOADS.body(), 1);
    let sums = words(&done.memory, done.d);
    for (lane, sum) in sums.iter().take(32).enumerate() {
        let (line, column) = (lane as i64 / 8, lane as i64 % 8);
        let at = |round: i64| 8 * round - 4 + column;
        let inside = (0..i64::from(ROUNDS)).map(at).filter(|at| (0..64).contains(at));
        assert_eq!(i64::from(*sum), inside.map(|at| line * 64 + at).sum::<i64>(), "{lane}");
    }
    // The consumers may wait in either order, read by parts, or release by one lane for all.
    let [wait, read, release] = LOADS.consume;
    let twice = format!("{wait}{}", wait.replace("C", "D"));
    silent(map, &Loads { consume: [&twice, read, release], ..LOADS }.body(), 1);
    let one = format!("bar.warp.sync -1;\nsetp.eq.u32 %p6, %r1, 32;@%p6 {release}");
    let one_lane = Loads { consume: [wait, read, &one], ..LOADS }.body();
    silent(map, &one_lane.replace("3088], 32", "3088], 1").replace("3096], 32", "3096], 1"), 1);
}

#[test]
fn a_stage_that_is_still_read_is_no_place_for_a_box() {
    let [wait, read, release] = LOADS.consume;
    let race = |found: Fault, kind: RaceKind| {
        let same = matches!(&found.kind, FaultKind::SharedRace { race, .. } if *race == kind);
        assert!(same, "{found}");
        let parties = [&found.instruction, &found.other.as_ref().expect("two parties").instruction];
        assert!(parties.iter().any(|text| text.starts_with("cp.async.bulk.tensor")), "{found}");
        assert!(parties.iter().any(|text| text.starts_with("ld.shared")), "{found}");
    };
    let early = Loads { consume: [wait, release, read], ..LOADS };
    race(fault(map, &early.body()), RaceKind::WriteAfterRead);
    // The wait is for the other stage's box, or there is none.
    let other_stage = wait.replace("[%r20], %r11", "[%r3+3072], 0");
    let found = fault(map, &Loads { consume: [&other_stage, read, release], ..LOADS }.body());
    assert!(
        matches!(found.kind, FaultKind::SharedRace { .. } | FaultKind::Uninitialised { .. }),
        "{found}"
    );
    let found = fault(map, &Loads { consume: ["", read, release], ..LOADS }.body());
    assert!(
        matches!(found.kind, FaultKind::SharedRace { .. } | FaultKind::Uninitialised { .. }),
        "{found}"
    );
}

#[test]
fn a_ring_that_cannot_turn_is_named() {
    let [wait, read, release] = LOADS.consume;
    let stuck = |loads: Loads<'_>| match fault(map, &loads.body()).kind {
        FaultKind::Mbarrier { wrong, .. } => wrong,
        other => panic!("{other}"),
    };
    // The producer waits for a stage to be freed that nobody has filled.
    let swapped = LOADS.free.replace("%r13", "%r11");
    assert!(matches!(stuck(Loads { free: &swapped, ..LOADS }), MbarrierFault::NoProgress { .. }));
    // Nobody waits for a stage to be free: phases pass that the consumers still wait for.
    assert!(matches!(stuck(Loads { free: "", ..LOADS }), MbarrierFault::NoProgress { .. }));
    let more = stuck(Loads { bytes: 160, ..LOADS });
    assert!(matches!(more, MbarrierFault::NoProgress { .. }), "{more:?}");
    let never = stuck(Loads { consume: [wait, read, ""], ..LOADS });
    assert!(matches!(never, MbarrierFault::NoProgress { pending: 32, .. }), "{never:?}");
    let twice = format!("{release}{release}");
    let over = go(
        &mut setup(),
        &map(&setup()),
        &Loads { consume: [wait, read, &twice], ..LOADS }.body(),
        1,
        &Options::default(),
    );
    assert!(matches!(over, Err(Stop::Fault(_))), "{over:?}");
}

/// Both warps write a box of numbers into one of two stages, thread 0 stores it to the tensor, and
/// before the stage is written again it waits as `wait` says.
fn stores(wait: &str) -> String {
    format!(
        "mov.u32 %r10, 0;mad.lo.u32 %r17, %r1, 4, %r3;setp.lt.u32 %p6, %r1, 32;\n\
         R: and.b32 %r12, %r10, 1;shl.b32 %r15, %r12, 7;add.u32 %r22, %r17, %r15;add.u32 %r23, %r3, %r15;\n\
         mad.lo.u32 %r24, %r10, 1000, %r1;@%p6 st.shared.u32 [%r22], %r24;fence.proxy.async.shared::cta;\nbar.sync 0;\n\
         shl.b32 %r16, %r10, 3;\n\
         @%p1 cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd1, {{%r16, 0}}], [%r23];\n\
         @%p1 cp.async.bulk.commit_group;\n{wait}bar.sync 0;\n\
         add.u32 %r10, %r10, 1;setp.lt.u32 %p3, %r10, 8;@%p3 bra R;\n\
         @%p1 cp.async.bulk.wait_group 0;\n"
    )
}

#[test]
fn two_stages_of_stored_boxes_take_turns() {
    for wait in ["read 1", "read 0", " 1", " 0"] {
        let wait = format!("@%p1 cp.async.bulk.wait_group.{wait};\n").replace(". ", " ");
        let done = silent(map, &stores(&wait), 1);
        let x = words(&done.memory, done.x);
        for line in 0..4 {
            for column in 0..64 {
                let value = 1000 * (column / 8) + 8 * line + column % 8;
                assert_eq!(x[(64 * line + column) as usize], value, "{wait}: {line}, {column}");
            }
        }
    }
    // One group too many may still be read, and another thread's wait says nothing.
    for wait in [
        "@%p1 cp.async.bulk.wait_group.read 2;\n",
        "setp.eq.u32 %p4, %r1, 1;@%p4 cp.async.bulk.wait_group.read 0;\n",
        "",
    ] {
        let found = fault(map, &stores(wait));
        let race =
            matches!(found.kind, FaultKind::SharedRace { race: RaceKind::WriteAfterRead, .. });
        assert!(race, "{wait}: {found}");
        assert!(
            found.instruction.starts_with("st.shared") || found.instruction.contains("st.shared"),
            "{found}"
        );
        assert!(found.other.unwrap().instruction.contains("cp.async.bulk.tensor"));
    }
}
