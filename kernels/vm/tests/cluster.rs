//! Clusters of several blocks: their registers, shared memory and mbarriers against an H200, in every
//! order of the blocks; each misuse, named; and the code beside it that must stay silent.

mod hopper;
mod support;

use hopper::{golden, words as drawn};
use ptx_vm::{
    BufferId, ClusterFault, Coverage, Fault, FaultKind, Launch, LaunchError, Limits, Memory,
    Module, Options, RaceKind, Schedule, Stop, TensorMap, TensorType, launch,
};
use safetensors::SafeTensors;
use support::{Parameters, bytes32, input, words};

/// Entry, grid and cluster, as in `hopper.py`.
type Case = (&'static str, [u32; 3], Option<[u32; 3]>);

fn list() -> Vec<Case> {
    let mut all = vec![
        ("registers", [4, 1, 1], None),
        ("registers", [4, 4, 2], Some([2, 2, 2])),
        ("registers", [6, 4, 1], Some([3, 2, 1])),
        ("registers", [8, 2, 1], Some([8, 1, 1])),
        ("registers", [2, 3, 4], Some([1, 1, 4])),
        ("registers", [2, 1, 1], Some([1, 1, 1])),
    ];
    for entry in ["ring", "atomics", "async_stores", "async_sums", "arrivals", "copies", "boxes"] {
        for (grid, cluster) in [(4, 2), (8, 4), (8, 8), (6, 3), (2, 1)] {
            all.push((entry, [grid, 1, 1], Some([cluster, 1, 1])));
        }
    }
    all
}

fn run_case(index: usize, options: &Options, limits: &Limits) -> Result<Vec<u8>, Stop> {
    let (entry, grid, cluster) = list()[index];
    let blocks: u32 = grid.iter().product();
    let module = Module::parse(include_str!("hardware/cluster.ptx")).unwrap();
    let mut memory = Memory::new();
    let source: Vec<u8> =
        drawn(1000 + index, 0, 2048).iter().flat_map(|w| w.to_le_bytes()).collect();
    let source = input(&mut memory, "in", &source);
    let len = if entry == "registers" { blocks * 128 } else { blocks * 1024 };
    let out = support::output(&mut memory, "out", len.into());
    let mut parameters = Parameters::default();
    if entry == "boxes" {
        let dims = [32, u64::from(blocks)];
        let map =
            TensorMap::tiled(TensorType::U32, memory.address(source, 0), &dims, &[128], &[32, 1]);
        parameters.0.extend(map.encode().unwrap());
    }
    let parameters = parameters.u64(memory.address(source, 0)).u64(memory.address(out, 0)).0;
    let threads = if entry == "registers" { 1 } else { 32 };
    let what = Launch {
        entry,
        grid,
        block: [threads, 1, 1],
        dynamic_shared_bytes: 0,
        parameters: &parameters,
    };
    let options = Options { cluster, ..*options };
    launch(&module, &mut memory, &what, limits, &options, &mut Coverage::new())?;
    let mut bytes = vec![0; len as usize];
    memory.read(out, 0, &mut bytes);
    Ok(bytes)
}

#[test]
fn clusters_do_what_the_hardwares_do_in_every_order() {
    let bytes = golden("cluster_h200.safetensors");
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let tight = Limits { multiprocessors: 1, ..Limits::default() };
    let orders = (0..6).map(Schedule::Seeded).chain([Schedule::InOrder]);
    for schedule in orders {
        for (checks, limits) in [(true, &Limits::default()), (true, &tight), (false, &tight)] {
            let options = Options { schedule, checks, ..Options::default() };
            for (index, (entry, grid, cluster)) in list().into_iter().enumerate() {
                let name = format!("{entry} {grid:?} {cluster:?} {schedule:?}");
                let want = file.tensor(&format!("{entry}.{index}/out"));
                let want = want.unwrap_or_else(|error| panic!("{name}: {error}"));
                let got = run_case(index, &options, limits);
                let got = got.unwrap_or_else(|stop| panic!("{name}: {stop}"));
                let at = got.iter().zip(want.data()).position(|(a, b)| a != b);
                assert_eq!(at, None, "{name}");
                assert_eq!(got.len(), want.data().len(), "{name}");
            }
        }
    }
}

/// A cluster of two blocks of 32 threads: `%r1` tid, `%r2` rank, `%r3` the other rank, `%r4` shared
/// bytes, `%r5` the other's, `%r6` an mbarrier, `%r7` the other's, `%rd1` 64 words, `%p1`: tid is 0,
/// `%p2`: rank is 0.
fn kernel(body: &str) -> String {
    format!(
        ".version 8.7\n.target sm_90\n.address_size 64\n.visible .entry t(.param .u64 p)\n.reqnctapercluster 2, 1, 1\n{{\n\
         .reg .pred %p<9>;.reg .b32 %r<30>;.reg .b64 %rd<20>;.shared .align 16 .b8 s[256];.shared .align 8 .b64 m;\n\
         ld.param.u64 %rd1, [p];mov.u32 %r1, %tid.x;mov.u32 %r2, %cluster_ctarank;xor.b32 %r3, %r2, 1;mov.u32 %r4, s;\n\
         mapa.shared::cluster.u32 %r5, %r4, %r3;mov.u32 %r6, m;mapa.shared::cluster.u32 %r7, %r6, %r3;\n\
         setp.eq.u32 %p1, %r1, 0;setp.eq.u32 %p2, %r2, 0;\n{body}\nret;\n}}\n"
    )
}

const SYNC: &str = "barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;\n";
const RELAXED: &str = "barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait;\n";

fn run_with(body: &str, options: &Options) -> Result<Vec<u32>, Stop> {
    let module = Module::parse(&kernel(body)).unwrap_or_else(|error| panic!("{body}: {error}"));
    let mut memory = Memory::new();
    let x = memory.allocate("x", 256, &[], 0);
    memory.write(x, 0, &bytes32(&[0; 64]));
    let parameters = memory.address(x, 0).to_le_bytes();
    let what = Launch {
        entry: "t",
        grid: [2, 1, 1],
        block: [32, 1, 1],
        dynamic_shared_bytes: 0,
        parameters: &parameters,
    };
    let limits = Limits { instructions: 3_000_000, ..Limits::default() };
    launch(&module, &mut memory, &what, &limits, options, &mut Coverage::new())?;
    Ok(words(&memory, BufferId(0)))
}

fn run(body: &str) -> Result<Vec<u32>, Stop> {
    run_with(body, &Options::default())
}

#[track_caller]
fn silent(body: &str) -> Vec<u32> {
    for seed in 0..8 {
        let options = Options { schedule: Schedule::Seeded(seed), ..Options::default() };
        run_with(body, &options).unwrap_or_else(|stop| panic!("{body}: seed {seed}: {stop}"));
    }
    run(body).unwrap_or_else(|stop| panic!("{body}: {stop}"))
}

#[track_caller]
fn fault(body: &str) -> Fault {
    match run(body) {
        Err(Stop::Fault(fault)) => *fault,
        other => panic!("{body}: {other:?}"),
    }
}

#[track_caller]
fn wrong(body: &str) -> ClusterFault {
    match fault(body).kind {
        FaultKind::Cluster { wrong } => wrong,
        other => panic!("{body}: {other}"),
    }
}

/// Both parties of a fault, as block and instruction.
fn parties(fault: &Fault) -> [(Option<u32>, String); 2] {
    let other = fault.other.clone().unwrap_or_else(|| panic!("{fault}: no other party"));
    [
        (Some(fault.block[0]), fault.instruction.clone()),
        (other.block.map(|block| block[0]), other.instruction),
    ]
}

#[test]
fn a_read_of_what_the_other_block_stores() {
    let body = |between: &str| {
        format!(
            "@%p2 st.shared.u32 [%r4], 1;\nbar.sync 0;\n{between}setp.ne.and.u32 %p3, %r2, 0, %p1;\n\
             @%p3 ld.shared::cluster.u32 %r8, [%r5];\n{SYNC}"
        )
        .replace("@%p2 st", "setp.eq.and.u32 %p4, %r2, 0, %p1;\n@%p4 st")
    };
    silent(&body(SYNC));
    let found = fault(&body(""));
    assert_eq!(
        found.kind,
        FaultKind::ClusterRace {
            rank: 0,
            offset: 0,
            access_bytes: 4,
            race: RaceKind::ReadAfterWrite
        }
    );
    let [mine, other] = parties(&found);
    assert_eq!((mine.0, other.0), (Some(1), Some(0)), "{found}");
    assert!(mine.1.contains("ld.shared::cluster") && other.1.contains("st.shared.u32"), "{found}");
    // The same through a generic address.
    let generic = body("").replace(
        "@%p3 ld.shared::cluster.u32 %r8, [%r5];",
        "cvt.u64.u32 %rd3, %r5;cvta.shared::cluster.u64 %rd3, %rd3;@%p3 ld.u32 %r8, [%rd3];",
    );
    assert!(matches!(fault(&generic).kind, FaultKind::ClusterRace { .. }));
}

#[test]
fn the_blocks_own_barrier_orders_nobody_else() {
    // Rank 1 stores into rank 0, whose barrier of its own comes between that and its load.
    let body = |sync: &str| {
        format!(
            "@%p1 st.shared.u32 [%r4], 0;\n{SYNC}setp.ne.and.u32 %p3, %r2, 0, %p1;\n\
             @%p3 st.shared::cluster.u32 [%r5], 7;\n{sync}bar.sync 0;\n\
             setp.eq.and.u32 %p4, %r2, 0, %p1;\n@%p4 ld.shared.u32 %r8, [%r4];\n@%p4 st.global.u32 [%rd1], %r8;\n{SYNC}"
        )
    };
    assert_eq!(silent(&body(SYNC))[0], 7);
    assert_eq!(silent(&body(&format!("fence.acq_rel.cluster;\n{RELAXED}")))[0], 7);
    let found = fault(&body(RELAXED));
    assert!(matches!(found.kind, FaultKind::ClusterRace { rank: 0, offset: 0, .. }), "{found}");
    let [mine, other] = parties(&found);
    assert_eq!((mine.0, other.0), (Some(0), Some(1)), "{found}");
    assert!(mine.1.contains("ld.shared.u32") && other.1.contains("st.shared::cluster"), "{found}");
    assert_eq!(found.other.unwrap().thread, Some([0, 0, 0]));
}

#[test]
fn a_block_that_exits_under_others() {
    let body = |first: &str, last: &str| {
        format!(
            "@%p1 st.shared.u32 [%r4], 5;\n{first}@%p1 ld.shared::cluster.u32 %r8, [%r5];\n{last}"
        )
    };
    silent(&body(SYNC, SYNC));
    // Whoever has met the others has read what it read.
    silent(&body(SYNC, RELAXED));
    // Rank 0 reads and exits; rank 1 exits while nothing says that the read is over.
    let used = fault(&body(SYNC, ""));
    assert!(
        matches!(used.kind, FaultKind::Cluster { wrong: ClusterFault::StillUsed { offset: 0 } })
            || matches!(used.kind, FaultKind::Cluster { wrong: ClusterFault::Exited { .. } }),
        "{used}"
    );
    let [_, other] = parties(&used);
    assert!(other.0.is_some(), "{used}");
    // Rank 0 is gone before rank 1 reads.
    let gone = fault(&format!(
        "@%p1 st.shared.u32 [%r4], 5;\n{SYNC}@%p2 st.volatile.global.u32 [%rd1], 1;\n@%p2 ret;\n\
         L: ld.volatile.global.u32 %r8, [%rd1];setp.eq.u32 %p4, %r8, 0;@%p4 bra L;\n\
         @%p1 ld.shared::cluster.u32 %r8, [%r5];\n"
    ));
    let exited = FaultKind::Cluster { wrong: ClusterFault::Exited { rank: 0 } };
    assert_eq!(gone.kind, exited, "{gone}");
    let [mine, other] = parties(&gone);
    assert_eq!((mine.0, other.0), (Some(1), Some(0)), "{gone}");
    assert!(other.1.contains("ret"), "{gone}");
}

#[test]
fn addresses_of_ranks() {
    let read = "ld.shared::cluster.u32 %r8, [%r9];";
    let body =
        |rank: u32| format!("mapa.shared::cluster.u32 %r9, %r4, {rank};\n{SYNC}{read}\n{SYNC}");
    assert_eq!(wrong(&body(2)), ClusterFault::NoSuchRank { rank: 2, ranks: 2 });
    // The map alone does no harm.
    silent(&body(2).replace(read, ""));
    // What the other block has not written holds nothing.
    assert!(matches!(fault(&body(1)).kind, FaultKind::Uninitialised { .. }));
    // `.shared::cta` reaches the own block alone.
    let cta = body(1).replace("ld.shared::cluster", "ld.shared::cta");
    let kinds = [fault(&cta).kind, fault(&body(0).replace("[%r9]", "[%r9+65536]")).kind];
    assert!(
        kinds.iter().all(|kind| matches!(
            kind,
            FaultKind::OutOfBounds { .. } | FaultKind::Uninitialised { .. }
        )),
        "{kinds:?}"
    );
}

#[test]
fn the_clusters_barrier() {
    let twice = "barrier.cluster.arrive;\nbarrier.cluster.arrive;\nbarrier.cluster.wait;\n";
    assert_eq!(wrong(twice), ClusterFault::ArrivedTwice);
    assert_eq!(wrong("barrier.cluster.wait;\n"), ClusterFault::NotArrived);
    // Exited threads are not waited for, whether they arrived or not.
    silent(&format!("setp.gt.u32 %p3, %r1, 7;\n@%p3 ret;\n{SYNC}"));
    silent(&format!(
        "setp.gt.u32 %p3, %r1, 7;\nbarrier.cluster.arrive;\n@%p3 ret;\nbarrier.cluster.wait;\n{SYNC}"
    ));
    silent(&format!("@%p2 ret;\n{SYNC}{SYNC}"));
    // One thread waits at the block's barrier for those who wait at the cluster's.
    let kind =
        fault("@%p1 barrier.sync 0;\n@!%p1 barrier.cluster.arrive;\n@!%p1 barrier.cluster.wait;\n")
            .kind;
    assert_eq!(kind, FaultKind::BarrierMismatch { first: 0, second: 16 });
    for seed in 0..6 {
        let options = Options { schedule: Schedule::Seeded(seed), ..Options::default() };
        let body =
            "@%p1 barrier.sync 0;\n@!%p1 barrier.cluster.arrive;\n@!%p1 barrier.cluster.wait;\n";
        let result = run_with(body, &options);
        assert!(matches!(result, Err(Stop::Fault(_))), "seed {seed}: {result:?}");
    }
    // Rank 1 never comes: it waits for more threads than it has.
    let kind = fault(&format!("@!%p2 barrier.sync 1, 64;\n{SYNC}")).kind;
    assert!(matches!(kind, FaultKind::BarrierDivergence { .. }), "{kind}");
    // Rank 1 polls for what rank 0 would store behind the barrier.
    let poll = "@%p2 bra GO;\nL: ld.volatile.global.u32 %r8, [%rd1];setp.eq.u32 %p4, %r8, 0;@%p4 bra L;\nGO:\n";
    let kind = fault(&format!("{poll}{SYNC}@%p1 st.volatile.global.u32 [%rd1], 1;\n")).kind;
    assert!(matches!(kind, FaultKind::NoProgress { .. }), "{kind}");
}

#[test]
fn the_clusters_barrier_orders_global_memory() {
    let body = |sync: &str| {
        format!(
            "setp.eq.and.u32 %p3, %r2, 0, %p1;\nsetp.ne.and.u32 %p4, %r2, 0, %p1;\n@%p3 st.global.u32 [%rd1], 9;\n{sync}\
             @%p4 ld.global.u32 %r8, [%rd1];\n@%p4 st.global.u32 [%rd1+4], %r8;\n"
        )
    };
    assert_eq!(silent(&body(SYNC))[1], 9);
    assert!(matches!(fault(&body(RELAXED)).kind, FaultKind::BlockRace { .. }));
}

#[test]
fn mbarriers_of_other_blocks() {
    let init = format!(
        "@%p1 mbarrier.init.shared::cta.b64 [%r6], 32;\nfence.mbarrier_init.release.cluster;\n{RELAXED}"
    );
    let wait = "L: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p5, [%r6], 0;\n@!%p5 bra L;\n";
    let body = |arrive: &str, store: &str| {
        format!(
            "{init}mad.lo.u32 %r9, %r1, 4, %r5;\n{store}\n{arrive}\n{wait}mad.lo.u32 %r10, %r1, 4, %r4;\n\
             ld.shared.u32 %r8, [%r10];\nbarrier.cluster.arrive.relaxed;\nbarrier.cluster.wait;\n"
        )
    };
    let store = "st.shared::cluster.u32 [%r9], %r1;";
    for arrive in [
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r7];",
        "mbarrier.arrive.shared::cluster.b64 _, [%r7];",
        "fence.acq_rel.cluster;\nmbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%r7];",
    ] {
        silent(&body(arrive, store));
    }
    // What is stored behind the arrival is not told by it.
    let arrive = "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r7];";
    let late = format!("{arrive}\nst.shared::cluster.u32 [%r9], %r1;");
    let kind = fault(&body(&late, store)).kind;
    assert!(matches!(kind, FaultKind::ClusterRace { .. }), "{kind}");
    // Others may not wait at it, nor initialise it.
    let generic = "cvt.u64.u32 %rd3, %r7;cvta.shared::cluster.u64 %rd3, %rd3;\n";
    for what in ["mbarrier.init.b64 [%rd3], 1;", "mbarrier.test_wait.parity.b64 %p5, [%rd3], 0;"] {
        assert_eq!(wrong(&format!("{init}{generic}{what}\n{SYNC}")), ClusterFault::AnotherBlock);
    }
    // Bytes for one block, counted in another.
    let copy = format!(
        "{init}@%p1 st.shared.v4.u32 [%r4], {{%r1, %r1, %r1, %r1}};\n\
         @%p1 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r5], [%r4], 16, [%r6];\n{SYNC}"
    );
    assert_eq!(wrong(&copy), ClusterFault::AnotherBlock);
}

#[test]
fn launches_that_cannot_be() {
    let module = Module::parse(&kernel("")).unwrap();
    let own = Module::parse(&kernel("").replace(".reqnctapercluster 2, 1, 1", "")).unwrap();
    let explicit = kernel("").replace(".reqnctapercluster 2, 1, 1", ".explicitcluster");
    let explicit = Module::parse(&explicit).unwrap();
    let go = |module: &Module, grid, cluster| {
        let what = Launch {
            entry: "t",
            grid: [grid, 1, 1],
            block: [32, 1, 1],
            dynamic_shared_bytes: 0,
            parameters: &[0; 8],
        };
        let options = Options { cluster, ..Options::default() };
        let (limits, memory) = (Limits::default(), &mut Memory::new());
        launch(module, memory, &what, &limits, &options, &mut Coverage::new()).map(|_| ())
    };
    let refused = |result: Result<(), Stop>| match result {
        Err(Stop::BadLaunch(LaunchError::Cluster { why, .. })) => why,
        other => panic!("{other:?}"),
    };
    assert!(go(&module, 4, None).is_ok() && go(&module, 4, Some([2, 1, 1])).is_ok());
    assert!(go(&own, 3, None).is_ok() && go(&own, 16, Some([16, 1, 1])).is_ok());
    assert!(refused(go(&module, 3, None)).contains("whole number"));
    assert!(refused(go(&module, 4, Some([4, 1, 1]))).contains("another size"));
    assert!(refused(go(&own, 32, Some([32, 1, 1]))).contains("at most 16"));
    assert!(refused(go(&own, 32, Some([0, 1, 1]))).contains("no such"));
    assert!(refused(go(&explicit, 2, None)).contains("must be launched"));
    assert!(go(&explicit, 2, Some([2, 1, 1])).is_ok());
}
