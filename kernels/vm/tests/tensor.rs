//! Tensor maps and copies under them: what goes wrong is named with the map and the memory, and the
//! correct code beside it stays silent. Results are compared with hardware in `tensor_golden.rs`.

mod support;

use ptx_vm::{
    Coverage, Fault, FaultKind, Fill, Launch, Limits, MbarrierFault, MemorySpace, Module, Options,
    RaceKind, Stop, Swizzle, TensorFault, TensorMap, TensorType, Watch, launch_watched, marks,
};
use support::boxes::{Setup, fault, go, kernel, map, setup, silent};
use support::words;

#[track_caller]
fn wrong(fault: Fault) -> (String, TensorFault) {
    match fault.kind {
        FaultKind::Tensor { map, wrong } => (map, wrong),
        _ => panic!("{fault}"),
    }
}

const INIT: &str = "@%p1 mbarrier.init.shared::cta.b64 [%r4], 1;\nfence.mbarrier_init.release.cluster;\nbar.sync 0;\n";
const WAIT: &str = "L: mbarrier.try_wait.parity.shared::cta.b64 %p5, [%r4], 0;\n@!%p5 bra L;\n";

/// One box to `%r3`, waited for by all.
fn load(at: &str, bytes: u32) -> String {
    format!(
        "{INIT}@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], {bytes};\n\
         @%p1 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r3], [%rd1, {{{at}}}], [%r4];\n{WAIT}"
    )
}

/// The first 32 words of shared memory to `d`.
const OUT: &str = "setp.lt.u32 %p6, %r1, 32;\nmad.lo.u32 %r10, %r1, 4, %r3;\nmul.wide.u32 %rd3, %r1, 4;\nadd.u64 %rd3, %rd3, %rd2;\n\
     @%p6 ld.shared.u32 %r11, [%r10];\n@%p6 st.global.u32 [%rd3], %r11;\n";

#[test]
fn a_box_and_its_edges() {
    let setup = silent(map, &format!("{}{OUT}", load("8, 2", 128)), 1);
    let got = words(&setup.memory, setup.d);
    for i in 0..32u32 {
        assert_eq!(got[i as usize], (2 + i / 8) * 64 + 8 + i % 8);
    }
    // Beyond the tensor's end, in a buffer that ends there: zeros, and nothing to report.
    let setup = silent(map, &format!("{}{OUT}", load("60, 14", 128)), 1);
    let got = words(&setup.memory, setup.d);
    for i in 0..32u32 {
        let inside = i / 8 < 2 && i % 8 < 4;
        let value = if inside { (14 + i / 8) * 64 + 60 + i % 8 } else { 0 };
        assert_eq!(got[i as usize], value, "{i}");
    }
}

#[test]
fn a_map_that_reaches_beyond_its_memory() {
    // 17 lines where 16 are there.
    let longer = |setup: &Setup| TensorMap { dims: vec![64, 17], ..map(setup) };
    let found = fault(longer, &load("8, 14", 128));
    assert!(found.instruction.contains("cp.async.bulk.tensor.2d"), "{found}");
    assert!(
        found.to_string().contains("tensor map map")
            && found.to_string().contains("past the end of x")
    );
    match wrong(found) {
        (
            name,
            TensorFault::BeyondBuffer { element, dims, buffer: Some(buffer), store: false, .. },
        ) => {
            assert_eq!((name.as_str(), element, dims), ("map", vec![8, 16], vec![64, 17]));
            assert_eq!((buffer.name.as_str(), buffer.offset), ("x", 4096 + 32));
        }
        other => panic!("{other:?}"),
    }
    // The same map, as long as no box comes there.
    silent(longer, &load("8, 12", 128), 1);
    // A line too long for its stride only reads the next one; the last one ends too early.
    let wider = |setup: &Setup| TensorMap { dims: vec![68, 16], ..map(setup) };
    silent(wider, &load("64, 3", 128), 1);
    assert!(matches!(
        wrong(fault(wider, &load("64, 12", 128))).1,
        TensorFault::BeyondBuffer { .. }
    ));
}

#[test]
fn stores_of_boxes() {
    let body = |at: &str| {
        format!(
            "mad.lo.u32 %r10, %r1, 4, %r3;\nst.shared.u32 [%r10], %r1;\nfence.proxy.async.shared::cta;\nbar.sync 0;\n\
             @%p1 cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd1, {{{at}}}], [%r3];\n\
             @%p1 cp.async.bulk.commit_group;\n@%p1 cp.async.bulk.wait_group.read 0;\n"
        )
    };
    let setup = silent(map, &body("60, 14"), 1);
    let got = words(&setup.memory, setup.x);
    assert_eq!(got[14 * 64 + 60..14 * 64 + 64], [0, 1, 2, 3]);
    assert_eq!(got[15 * 64 + 60..], [8, 9, 10, 11]);
    assert_eq!(got[13 * 64 + 63], 13 * 64 + 63);
    // The hardware has no such store.
    let found = wrong(fault(map, &body("-4, 3"))).1;
    assert_eq!(found, TensorFault::Before { coordinates: vec![-4, 3] });
    // The last piece of a line is stored whole, here behind the end of `x`.
    let odd = |setup: &Setup| TensorMap {
        address: setup.memory.address(setup.x, 4080),
        ty: TensorType::U8,
        dims: vec![17],
        strides: vec![],
        box_dims: vec![32],
        element_strides: vec![1],
        ..map(setup)
    };
    let one = body("0").replace(".2d.", ".1d.");
    let found = wrong(fault(odd, &one)).1;
    assert!(matches!(found, TensorFault::BeyondBuffer { store: true, .. }), "{found}");
    silent(|setup| TensorMap { dims: vec![13], ..odd(setup) }, &one, 1);
    // Into what nobody may store to.
    let mut setup = setup_unwritable();
    let map = map(&setup);
    let result = go(&mut setup, &map, &body("0, 0"), 1, &Options::default());
    let kind = match result {
        Err(Stop::Fault(fault)) => fault.kind,
        other => panic!("{other:?}"),
    };
    assert!(matches!(kind, FaultKind::UnwritableWrite { .. }), "{kind}");
    // What nobody wrote is not stored.
    let unwritten = body("0, 0").replace("st.shared.u32 [%r10], %r1;", "");
    assert!(matches!(fault(map_of_x, &unwritten).kind, FaultKind::Uninitialised { .. }));
}

fn map_of_x(setup: &Setup) -> TensorMap {
    map(setup)
}

fn setup_unwritable() -> Setup {
    let mut setup = setup();
    setup.memory.mark(setup.x, 0..4096, marks::UNWRITABLE, 0);
    setup
}

#[test]
fn what_a_store_reads_may_not_change_before_its_wait() {
    let fill = "mad.lo.u32 %r10, %r1, 4, %r3;\nst.shared.u32 [%r10], %r1;\nfence.proxy.async.shared::cta;\nbar.sync 0;\n";
    let store = "@%p1 cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd1, {8, 2}], [%r3];\n\
                 @%p1 cp.async.bulk.commit_group;\n";
    let plain = "@%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r3], 128;\n@%p1 cp.async.bulk.commit_group;\n";
    let again = "bar.sync 0;\nadd.u32 %r11, %r1, 7;\nst.shared.u32 [%r10], %r11;\n";
    let wait = |n: u32| format!("@%p1 cp.async.bulk.wait_group.read {n};\n");
    for copy in [store, plain] {
        silent(map, &format!("{fill}{copy}{}{again}", wait(0)), 1);
        // Others may read it meanwhile.
        silent(map, &format!("{fill}{copy}ld.shared.u32 %r12, [%r10];\n{}{again}", wait(0)), 1);
        // No wait, a wait for older groups only, a group that was not closed.
        for body in [
            format!("{fill}{copy}{again}"),
            format!("{fill}{copy}{}{again}", wait(1)),
            format!(
                "{fill}{}{}{again}",
                copy.replace("@%p1 cp.async.bulk.commit_group;\n", ""),
                wait(0)
            ),
            format!(
                "{fill}{copy}setp.eq.u32 %p4, %r1, 1;\n@%p4 cp.async.bulk.wait_group.read 0;\n{again}"
            ),
        ] {
            let found = fault(map, &body);
            assert!(
                matches!(found.kind, FaultKind::SharedRace { race: RaceKind::WriteAfterRead, .. }),
                "{found}"
            );
            let other = found.other.as_ref().unwrap_or_else(|| panic!("{found}"));
            assert!(other.instruction.contains("bulk_group"), "{found}");
            assert_eq!((other.thread, other.block), (Some([0, 0, 0]), None), "{found}");
        }
        // The newer of two groups reads other bytes.
        let second = plain.replace("[%r3]", "[%r3+128]");
        let first_only = "setp.lt.u32 %p6, %r1, 32;\nbar.sync 0;\nadd.u32 %r11, %r1, 7;\n@%p6 st.shared.u32 [%r10], %r11;\n";
        silent(map, &format!("{fill}{copy}{second}{}{first_only}", wait(1)), 1);
        // The next box may not come there either.
        let next = format!("{}{}", load("8, 2", 128), OUT);
        silent(map, &format!("{fill}{copy}{}{next}", wait(0)), 1);
        assert!(matches!(
            fault(map, &format!("{fill}{copy}{next}")).kind,
            FaultKind::SharedRace { race: RaceKind::WriteAfterRead, .. }
        ));
    }
}

#[test]
fn a_watch_names_the_copy() {
    let body = "mad.lo.u32 %r10, %r1, 4, %r3;\nst.shared.u32 [%r10], %r1;\nfence.proxy.async.shared::cta;\nbar.sync 0;\n\
                @%p1 cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd1, {8, 2}], [%r3];\n\
                @%p1 cp.async.bulk.commit_group;\n@%p1 cp.async.bulk.wait_group 0;\n";
    let mut setup = setup();
    let parameters = map(&setup).encode().unwrap().to_vec();
    let parameters = [parameters, setup.memory.address(setup.d, 0).to_le_bytes().to_vec()].concat();
    let module = Module::parse(&kernel(body)).unwrap();
    let what = Launch {
        entry: "t",
        grid: [1; 3],
        block: [64, 1, 1],
        dynamic_shared_bytes: 0,
        parameters: &parameters,
    };
    let mut watch = Watch::new();
    let at = (3 * 64 + 9) * 4;
    watch.add(&setup.memory, setup.x, at..at + 4);
    let (limits, options) = (Limits::default(), Options::default());
    let mut coverage = Coverage::new();
    launch_watched(&module, &mut setup.memory, &what, &limits, &options, &mut coverage, &mut watch)
        .unwrap();
    let write = watch.last(setup.x, at).expect("somebody wrote");
    assert!(write.instruction.contains("cp.async.bulk.tensor"), "{write}");
    assert_eq!((write.thread, write.values.as_slice()), ([0, 0, 0], &[9][..]));
}

#[test]
fn boxes_larger_than_any_memory() {
    let huge = |setup: &Setup| TensorMap {
        dims: vec![64; 5],
        strides: vec![256; 4],
        box_dims: vec![256; 5],
        element_strides: vec![1; 5],
        ..map(setup)
    };
    let five = |body: &str| body.replace("2d", "5d").replace("{8, 2}", "{0, 0, 0, 0, 0}");
    let kind = fault(huge, &five(&load("8, 2", 128))).kind;
    assert!(matches!(kind, FaultKind::OutOfBounds { space: MemorySpace::Shared, .. }), "{kind}");
    let store =
        "@%p1 cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd1, {8, 2}], [%r3];";
    let kind = fault(huge, &five(store)).kind;
    assert!(matches!(kind, FaultKind::OutOfBounds { space: MemorySpace::Shared, .. }), "{kind}");
}

#[test]
fn maps_that_do_not_fit() {
    let body = load("8, 2", 128);
    // Not a map, or not one any more.
    let elsewhere = format!("mov.u64 %rd1, %rd2;\n{body}");
    let (name, what) = wrong(fault(map, &elsewhere));
    assert_eq!(what, TensorFault::NoMap);
    assert!(name.contains("of d"), "{name}");
    let rank = body.replace("2d", "3d").replace("{8, 2}", "{8, 2, 0}");
    assert_eq!(wrong(fault(map, &rank)).1, TensorFault::Rank { map: 2, instruction: 3 });
    let crooked = load("9, 2", 128);
    let found = wrong(fault(map, &crooked)).1;
    assert_eq!(found, TensorFault::Crooked { coordinate: 9, element_bytes: 4 });
    let shifted = format!("add.u32 %r3, %r3, 64;\n{body}");
    assert!(matches!(
        fault(map, &shifted).kind,
        FaultKind::Misaligned { space: MemorySpace::Shared, access_bytes: 128, .. }
    ));
    let map_shifted = format!("add.u64 %rd1, %rd1, 16;\n{body}");
    assert!(matches!(
        fault(map, &map_shifted).kind,
        FaultKind::Misaligned { space: MemorySpace::Param, .. }
    ));
    let behind = format!("add.u32 %r3, %r3, 4096;\n{body}");
    assert!(matches!(fault(map, &behind).kind, FaultKind::OutOfBounds { .. }));
}

#[test]
fn a_map_may_be_copied() {
    // Through registers to `d`, and used from there: the bytes stand for the map.
    let body = format!(
        "setp.lt.u32 %p3, %r1, 16;\nmul.wide.u32 %rd4, %r1, 8;\nadd.u64 %rd5, %rd1, %rd4;\nadd.u64 %rd6, %rd2, %rd4;\n\
         @%p3 ld.u64 %rd7, [%rd5];\n@%p3 st.global.u64 [%rd6+2048], %rd7;\nbar.sync 0;\nadd.u64 %rd1, %rd2, 2048;\n\
         fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128;\nprefetch.tensormap [%rd1];\n{}{OUT}",
        load("8, 2", 128)
    );
    let setup = silent(map, &body, 1);
    assert_eq!(words(&setup.memory, setup.d)[..2], [136, 137]);
}

#[test]
fn bytes_that_never_come() {
    // More are expected than the box has: the mbarrier is named.
    let more = fault(map, &load("8, 2", 144));
    match more.kind {
        FaultKind::Mbarrier { offset, wrong: MbarrierFault::NoProgress { bytes, .. } } => {
            assert_eq!((offset % 8, bytes), (0, 16));
        }
        _ => panic!("{more}"),
    }
    // Only the part of the box inside the tensor: the whole box counts.
    let part = fault(map, &load("60, 14", 32));
    assert!(
        matches!(
            part.kind,
            FaultKind::Mbarrier { wrong: MbarrierFault::NoProgress { bytes: -96, .. }, .. }
        ),
        "{part}"
    );
}

#[test]
fn races_with_boxes() {
    // Read before the wait.
    let early = format!("{}{OUT}{WAIT}", load("8, 2", 128).replace(WAIT, ""));
    let found = fault(map, &early);
    assert!(
        matches!(found.kind, FaultKind::Uninitialised { space: MemorySpace::Shared, .. })
            || matches!(found.kind, FaultKind::SharedRace { race: RaceKind::ReadAfterWrite, .. }),
        "{found}"
    );
    // A second box over one that is still read.
    let again = |sync: &str| {
        format!(
            "{}{OUT}{sync}@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], 128;\n\
             @%p1 cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r3], [%rd1, {{16, 2}}], [%r4];\n\
             K: mbarrier.try_wait.parity.shared::cta.b64 %p5, [%r4], 1;\n@!%p5 bra K;\n",
            load("8, 2", 128)
        )
    };
    silent(map, &again("bar.sync 0;\n"), 1);
    let found = fault(map, &again(""));
    assert!(
        matches!(found.kind, FaultKind::SharedRace { race: RaceKind::WriteAfterRead, .. }),
        "{found}"
    );
    assert!(found.other.unwrap().instruction.contains("ld.shared"));
    // Two blocks store boxes to one place; reductions may.
    let out = |what: &str| {
        format!(
            "mad.lo.u32 %r10, %r1, 4, %r3;\nst.shared.u32 [%r10], 1;\nfence.proxy.async.shared::cta;\nbar.sync 0;\n\
             @%p1 {what} [%rd1, {{8, 2}}], [%r3];\n@%p1 cp.async.bulk.commit_group;\n@%p1 cp.async.bulk.wait_group 0;\n"
        )
    };
    let mut two = setup();
    let tensor = map(&two);
    let plain = out("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group");
    match go(&mut two, &tensor, &plain, 2, &Options::default()) {
        Err(Stop::Fault(fault)) => {
            assert!(matches!(fault.kind, FaultKind::BlockRace { .. }), "{fault}");
            let other = fault.other.as_ref().unwrap_or_else(|| panic!("{fault}"));
            assert!(other.instruction.contains("cp.async.bulk.tensor"), "{fault}");
        }
        other => panic!("{other:?}"),
    }
    let sums = out("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group");
    let setup = silent(map, &sums, 5);
    assert_eq!(words(&setup.memory, setup.x)[2 * 64 + 8], 2 * 64 + 8 + 5);
}

#[test]
fn a_box_outside_the_tensor_is_a_strict_rule() {
    let strict = Options { strict: true, ..Options::default() };
    for (at, outside) in [("64, 0", true), ("0, -4", true), ("60, 14", false), ("-4, -3", false)] {
        let mut setup = setup();
        let map = map(&setup);
        let result = go(&mut setup, &map, &load(at, 128), 1, &strict);
        match result {
            Ok(()) => assert!(!outside, "{at}"),
            Err(Stop::Fault(fault)) => {
                assert!(outside, "{at}: {fault}");
                assert!(matches!(wrong(*fault).1, TensorFault::Outside { .. }));
            }
            Err(stop) => panic!("{stop}"),
        }
        silent(map_of_x, &load(at, 128), 1);
    }
}

#[test]
fn what_nobody_wrote_is_not_copied() {
    let mut setup = setup();
    let y = setup.memory.allocate("y", 4096, &[], 0);
    setup.memory.write(y, 0, &[1; 1024]);
    let address = setup.memory.address(y, 0);
    let map = TensorMap { address, ..map(&setup) };
    go(&mut setup, &map, &load("0, 0", 128), 1, &Options::default()).unwrap();
    match go(&mut setup, &map, &load("0, 2", 128), 1, &Options::default()) {
        Err(Stop::Fault(fault)) => match &fault.kind {
            FaultKind::Uninitialised { buffer: Some(buffer), .. } => {
                assert_eq!((buffer.name.as_str(), buffer.offset), ("y", 1024));
            }
            _ => panic!("{fault}"),
        },
        other => panic!("{other:?}"),
    }
}

#[test]
fn forms_that_are_missing_say_their_names() {
    for body in [
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%r3], [%rd1, {%r1, %r1, %r1, %r1}], [%r4], {%rs1, %rs1};",
        "cp.async.bulk.tensor.4d.global.shared::cta.im2col_no_offs.bulk_group [%rd1, {%r1, %r1, %r1, %r1}], [%r3];",
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile::gather4.mbarrier::complete_tx::bytes [%r3], [%rd1, {%r1, %r1, %r1, %r1, %r1}], [%r4];",
        "tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r3], %rd1;",
    ] {
        let name = body.split(' ').next().unwrap();
        let mut setup = setup();
        let map = map(&setup);
        match go(&mut setup, &map, body, 1, &Options::default()) {
            Err(Stop::Unsupported { what, .. }) => assert_eq!(what, name),
            other => panic!("{body}: {other:?}"),
        }
    }
}

#[test]
fn swizzled_boxes_are_read_as_they_lie() {
    // A line of 32 words is 128 bytes: piece i of line n lies at piece i ^ n.
    let swizzled = |setup: &Setup| TensorMap {
        box_dims: vec![32, 8],
        swizzle: Swizzle::B128,
        fill: Fill::Zero,
        ..map(setup)
    };
    let setup =
        silent(swizzled, &format!("{}add.u32 %r3, %r3, 384;\n{OUT}", load("0, 0", 1024)), 1);
    let got = words(&setup.memory, setup.d);
    for i in 0..32u32 {
        assert_eq!(got[i as usize], 3 * 64 + (((i / 4) ^ 3) * 4 + i % 4), "{i}");
    }
}

#[test]
fn what_a_copy_reads_needs_a_proxy_fence() {
    const STORE: &str = "st.shared.u32 [%r10], %r1;\n";
    const MEET: &str = "bar.sync 0;\n";
    const FENCE: &str = "fence.proxy.async.shared::cta;\n";
    let boxes =
        "@%p1 cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd1, {8, 2}], [%r3];\n";
    let sums = "@%p1 cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%rd1, {8, 2}], [%r3];\n";
    let bytes = "@%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r3], 128;\n";
    let totals =
        "@%p1 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd2], [%r3], 128;\n";
    let by_warp_one = "setp.ge.u32 %p4, %r1, 32;\n@%p4 fence.proxy.async;\n";
    let init = "@%p1 mbarrier.init.shared::cta.b64 [%r4], 64;\nbar.sync 0;\n";
    let arrive = "mbarrier.arrive.shared::cta.b64 _, [%r4];\n";
    for copy in [boxes, sums, bytes, totals] {
        let body = |lines: &[&str]| {
            format!(
                "mad.lo.u32 %r10, %r1, 4, %r3;\n{}{copy}@%p1 cp.async.bulk.commit_group;\n@%p1 cp.async.bulk.wait_group 0;\n",
                lines.concat()
            )
        };
        for lines in [
            &[STORE, MEET][..],
            // Too early, of other memory, by another warp before the block met.
            &[FENCE, STORE, MEET],
            &[STORE, "fence.proxy.async.global;\n", MEET],
            &[STORE, by_warp_one, MEET],
            // One store was fenced, the next was not.
            &[STORE, FENCE, MEET, "@%p1 st.shared.u32 [%r3+64], 5;\n"],
            &[init, STORE, arrive, WAIT],
            &[STORE, FENCE, MEET, "atom.shared.exch.b32 %r12, [%r10], 3;\n", MEET],
        ] {
            let found = fault(map, &body(lines));
            assert!(matches!(found.kind, FaultKind::ProxyFence { .. }), "{found}");
            assert_eq!(found.instruction, copy.trim_end(), "{found}");
            let other = &found.other.as_ref().unwrap().instruction;
            assert!(other.contains("st.shared") || other.contains("atom.shared"), "{found}");
        }
        for lines in [
            &[STORE, FENCE, MEET][..],
            &[STORE, "fence.proxy.async;\n", MEET],
            // By the reader, or by one thread between two barriers.
            &[STORE, MEET, FENCE],
            &[STORE, MEET, "@%p1 fence.proxy.async;\n"],
            &[STORE, MEET, by_warp_one, MEET],
            &[init, STORE, arrive, WAIT, FENCE],
            &[init, STORE, FENCE, arrive, WAIT],
            // What is stored later, or beside what is read.
            &[STORE, FENCE, MEET, "@%p1 st.shared.u32 [%r3+256], 5;\n"],
            &[
                "@%p1 st.shared.u32 [%r3+1024], 5;\n",
                STORE,
                MEET,
                FENCE,
                "@%p1 st.shared.u32 [%r3+128], 5;\n",
            ],
        ] {
            silent(map, &body(lines), 1);
        }
    }
}

#[test]
fn what_a_copy_brought_another_may_take_without_a_fence() {
    let out = "@%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r3], 128;\n@%p1 cp.async.bulk.commit_group;\n@%p1 cp.async.bulk.wait_group 0;\n";
    let setup = silent(map, &format!("{}{out}", load("8, 2", 128)), 1);
    assert_eq!(words(&setup.memory, setup.d)[..9], [136, 137, 138, 139, 140, 141, 142, 143, 200]);
    // What stood there before has been overwritten.
    let before = "mad.lo.u32 %r10, %r1, 4, %r3;\nst.shared.u32 [%r10], 5;\nbar.sync 0;\n";
    silent(map, &format!("{before}{}{out}", load("8, 2", 128)), 1);
    // A thread touches it up.
    let touch = "@%p1 st.shared.u32 [%r3+4], 5;\n";
    let found = fault(map, &format!("{}{touch}{out}", load("8, 2", 128)));
    assert_eq!(found.kind, FaultKind::ProxyFence { offset: 4 }, "{found}");
}
