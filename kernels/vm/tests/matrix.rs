//! Fragments, matrix products and asynchronous copies of whole warps, and what their checks say.

mod support;

use ptx_vm::{Fault, FaultKind, Memory, MemorySpace, Module, Options, RaceKind, Stop};
use support::{Parameters, bytes32, go, input, output, words};

/// Runs `code` in blocks of `threads`: `%rd1` = 512 input words (word i is i), `%rd2` = 512 output
/// words, `%r1` = lane, `%r2` = address of 1024 shared bytes `s` that hold the input's first words.
fn run(code: &str, threads: u32) -> Result<Vec<u32>, Stop> {
    let text = format!(
        ".version 8.6\n.target sm_90\n.address_size 64\n.visible .entry t(.param .u64 x, .param .u64 d)\n{{\n\
         .reg .pred %p<9>;.reg .f32 %f<9>;.reg .b32 %r<40>;.reg .b64 %rd<20>;\n.shared .align 16 .b8 s[1024];\n\
         ld.param.u64 %rd1, [x];ld.param.u64 %rd2, [d];mov.u32 %r1, %tid.x;mov.u32 %r2, s;\n\
         mul.wide.u32 %rd3, %r1, 4;add.u64 %rd4, %rd1, %rd3;add.u64 %rd5, %rd2, %rd3;mov.u32 %r3, %r1;\n\
         F: shl.b32 %r4, %r3, 2;add.u32 %r5, %r2, %r4;cvt.u64.u32 %rd6, %r4;add.u64 %rd6, %rd1, %rd6;ld.global.u32 %r6, [%rd6];\n\
         st.shared.u32 [%r5], %r6;add.u32 %r3, %r3, {threads};setp.lt.u32 %p1, %r3, 256;@%p1 bra F;\nbar.sync 0;\n\
         shl.b32 %r7, %r1, 4;add.u32 %r7, %r7, %r2;\n{code}\nret;\n}}\n"
    );
    let module = Module::parse(&text).unwrap_or_else(|e| panic!("{code}: {e}"));
    let mut memory = Memory::new();
    let x = input(&mut memory, "x", &bytes32(&std::array::from_fn::<u32, 512, _>(|i| i as u32)));
    let d = output(&mut memory, "d", 2048);
    let parameters = Parameters::default().u64(memory.address(x, 0)).u64(memory.address(d, 0)).0;
    go(&module, &mut memory, "t", [1; 3], [threads, 1, 1], &parameters, &Options::default())?;
    Ok(words(&memory, d))
}

#[track_caller]
fn fine(code: &str) -> Vec<u32> {
    run(code, 32).unwrap_or_else(|stop| panic!("{code}: {stop}"))
}

#[track_caller]
fn fault(code: &str, threads: u32) -> Fault {
    match run(code, threads) {
        Err(Stop::Fault(fault)) => *fault,
        other => panic!("expected a fault, got {other:?}"),
    }
}

/// Halves of the shared words: half h of word w is w or, above, zero.
fn half(index: usize) -> u32 {
    if index.is_multiple_of(2) { index as u32 / 2 } else { 0 }
}

#[test]
fn fragments_are_loaded_as_they_lie_and_transposed() {
    for (count, suffix) in [(1, "x1"), (2, "x2"), (4, "x4")] {
        let list = ["%r10", "%r11", "%r12", "%r13"][..count].join(",");
        let last = ["%r10", "%r11", "%r12", "%r13"][count - 1];
        let load = format!("ldmatrix.sync.aligned.m8n8.{suffix}.shared.b16 {{{list}}}, [%r7];");
        let out = fine(&format!("{load} st.global.u32 [%rd5], {last};"));
        for (lane, word) in out.iter().enumerate().take(32) {
            assert_eq!(*word as usize, (count - 1) * 32 + lane, "{load}");
        }
        let load = load.replace(suffix, &format!("{suffix}.trans"));
        let out = fine(&format!("{load} st.global.u32 [%rd5], {last};"));
        for (lane, word) in out.iter().enumerate().take(32) {
            let element = |row: usize| half((count - 1) * 64 + row * 8 + lane / 4);
            let row = lane % 4 * 2;
            assert_eq!(*word, element(row) | element(row + 1) << 16, "{load} {lane}");
        }
    }
}

#[test]
fn stored_fragments_come_back_and_registers_transpose() {
    let load = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10,%r11,%r12,%r13}, [%r7];";
    let store = "add.u32 %r8, %r7, 512; stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r8], {%r10,%r11,%r12,%r13}; bar.warp.sync -1;";
    let show = "shl.b32 %r9, %r1, 2; add.u32 %r9, %r9, %r2; ld.shared.u32 %r20, [%r9+896]; st.global.u32 [%rd5], %r20;";
    let out = fine(&format!("{load}{store}{show}"));
    assert_eq!(out[..32], std::array::from_fn::<u32, 32, _>(|i| 96 + i as u32));
    let transposed = store.replace("x4", "x4.trans");
    let by_store = fine(&format!("{load}{transposed}{show}"));
    let moved = "movmatrix.sync.aligned.m8n8.trans.b16 %r20, %r13; st.global.u32 [%rd5], %r20;";
    let by_move = fine(&format!("{load}{moved}"));
    let by_load = fine(&format!("{} st.global.u32 [%rd5], %r13;", load.replace("x4", "x4.trans")));
    assert_eq!(by_store[..32], by_load[..32]);
    assert_eq!(by_move[..32], by_load[..32]);
}

#[test]
fn fragments_are_checked_row_by_row() {
    let load = |address: &str| {
        format!("{address} ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r10}}, [%r8];")
    };
    // Only the first eight lanes give addresses.
    fine(&load("setp.ge.u32 %p1, %r1, 8; selp.b32 %r8, 3, %r7, %p1;"));
    let f = fault(&load("setp.eq.u32 %p1, %r1, 7; selp.b32 %r8, 1024, %r7, %p1;"), 32);
    assert!(matches!(f.kind, FaultKind::OutOfBounds { space: MemorySpace::Shared, .. }));
    assert_eq!(f.thread, [7, 0, 0]);
    let f = fault(&load("add.u32 %r8, %r7, 8;"), 32);
    assert!(matches!(f.kind, FaultKind::Misaligned { access_bytes: 16, store: false, .. }));
    // Rows that another warp reads are no race, rows that it wrote are.
    let other = "setp.eq.u32 %p1, %r1, 40; @%p1 st.shared.u32 [s+64], 1;";
    let mine = "setp.ge.u32 %p2, %r1, 32; mov.u32 %r8, %r7; @%p2 mov.u32 %r8, %r2;";
    let f = fault(&format!("{other} {}", load(mine)), 64);
    assert!(matches!(f.kind, FaultKind::SharedRace { .. }));
    run(&format!("{other} bar.sync 0; {}", load(mine)), 64).unwrap();
    let store = "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r8], {%r1};";
    let f = fault(&format!("{mine} {store}"), 64);
    match f.kind {
        FaultKind::SharedRace { race: RaceKind::WriteAfterWrite, .. } => {}
        other => panic!("{other:?}"),
    }
    run(&format!("add.u32 %r8, %r7, 0; {store}"), 64).unwrap();
}

#[test]
fn matrix_instructions_take_the_whole_warp() {
    let product = "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r1}, {%r1}, {%f1,%f1,%f1,%f1};";
    let start = "mov.f32 %f1, 0f3F800000; setp.lt.u32 %p1, %r1, 16;";
    for one in [
        product,
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r10}, [%r2];",
        "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r7], {%r1};",
        "movmatrix.sync.aligned.m8n8.trans.b16 %r10, %r1;",
    ] {
        fine(&format!("{start} {one}"));
        // Both halves come to the same place by different ways.
        fine(&format!(
            "{start} @%p1 bra A; add.u32 %r20, %r1, 1; bra B; A: add.u32 %r20, %r1, 2; B: {one}"
        ));
        let f = fault(&format!("{start} @%p1 {one}"), 32);
        assert!(matches!(f.kind, FaultKind::BarrierDivergence { .. }), "{one}: {:?}", f.kind);
        let f = fault(&format!("{start} @%p1 ret; {one}"), 32);
        assert!(matches!(f.kind, FaultKind::BarrierDivergence { .. }), "{one}: {:?}", f.kind);
    }
}

#[test]
fn copies_arrive_with_their_wait_and_fill_with_zeros() {
    let copy = |form: &str, rest: &str| {
        format!(
            "mul.wide.u32 %rd7, %r1, 16; add.u64 %rd7, %rd1, %rd7; {form} [%r7], [%rd7+1024], {rest};\n\
             cp.async.commit_group; cp.async.wait_group 0; bar.sync 0;\n\
             shl.b32 %r9, %r1, 2; add.u32 %r9, %r9, %r2; ld.shared.u32 %r20, [%r9]; st.global.u32 [%rd5], %r20;"
        )
    };
    let cg = "cp.async.cg.shared.global";
    let out = fine(&copy(cg, "16"));
    assert_eq!(out[..32], std::array::from_fn::<u32, 32, _>(|i| 256 + i as u32));
    assert_eq!(fine(&copy("cp.async.cg.shared.global.L2::128B", "16"))[31], 287);
    assert_eq!(fine(&copy("cp.async.ca.shared::cta.global", "16"))[31], 287);
    let out = fine(&format!("mov.u32 %r30, 8; {}", copy(cg, "16, %r30")));
    assert_eq!(out[..8], [256, 257, 0, 0, 260, 261, 0, 0]);
    assert_eq!(fine(&copy(cg, "16, 0"))[..4], [0; 4]);
    // One lane that wants more than the piece, and one that would.
    let more = "selp.u32 %r30, 17, 16, %p3;";
    let f = fault(&format!("setp.eq.u32 %p3, %r1, 5; {more} {}", copy(cg, "16, %r30")), 32);
    assert_eq!(f.kind, FaultKind::CopySize { wanted_bytes: 17, piece_bytes: 16 });
    let nobody = format!("setp.eq.u32 %p3, %r1, 99; {more} {}", copy(cg, "16, %r30"));
    assert_eq!(fine(&nobody)[..4], [256, 257, 258, 259]);
    for (form, odd) in [("%p3", 0), ("!%p3", 260)] {
        let out = fine(&format!("setp.eq.u32 %p3, %r1, 1; {}", copy(cg, &format!("16, {form}"))));
        assert_eq!(out[4], odd, "{form}");
        assert_eq!(out[0], 256 - odd.min(1) * 256, "{form}");
    }
    // Four and eight bytes, into a part of each lane's piece.
    let out = fine(&copy("cp.async.ca.shared.global", "4"));
    assert_eq!(out[..8], [256, 1, 2, 3, 260, 5, 6, 7]);
    let out = fine(&copy("cp.async.ca.shared.global", "8"));
    assert_eq!(out[..8], [256, 257, 2, 3, 260, 261, 6, 7]);
}

#[test]
fn a_copy_is_not_there_before_its_own_group_has_arrived() {
    let two = |before: &str| {
        format!(
            "mul.wide.u32 %rd7, %r1, 16; add.u64 %rd7, %rd1, %rd7;\n\
             cp.async.cg.shared.global [%r7], [%rd7], 16; cp.async.commit_group;\n\
             cp.async.cg.shared.global [%r7+512], [%rd7], 16; cp.async.commit_group; {before}"
        )
    };
    let read = |at: u32| format!("ld.shared.v4.u32 {{%r10,%r11,%r12,%r13}}, [%r7+{at}];");
    fine(&two(&format!("cp.async.wait_group 1; {}", read(0))));
    fine(&two(&format!("cp.async.wait_all; {}", read(512))));
    for early in [
        format!("cp.async.wait_group 2; {}", read(0)),
        format!("cp.async.wait_group 1; {}", read(512)),
    ] {
        let f = fault(&two(&early), 32);
        assert!(matches!(f.kind, FaultKind::Uninitialised { space: MemorySpace::Shared, .. }));
    }
    // Half of the warp waits for one group more: its own copies arrive, the others' do not.
    let half = "setp.lt.u32 %p1, %r1, 16; @%p1 cp.async.wait_group 0; @!%p1 cp.async.wait_group 1;";
    fine(&two(&format!("{half} @%p1 {}", read(512))));
    let f = fault(&two(&format!("{half} {}", read(512))), 32);
    assert_eq!(f.thread, [16, 0, 0]);
    // Threads with fewer commits wait for fewer groups.
    let uneven = "setp.lt.u32 %p1, %r1, 16; @%p1 cp.async.commit_group; cp.async.wait_group 1;";
    fine(&two(&format!("{uneven} @%p1 {}", read(512))));
    assert_eq!(fault(&two(&format!("{uneven} {}", read(512))), 32).thread, [16, 0, 0]);
    // Another thread's copy needs the barrier behind the wait.
    let next = "xor.b32 %r8, %r7, 16; ld.shared.u32 %r10, [%r8];";
    let f = fault(&two(&format!("cp.async.wait_all; {next}")), 32);
    assert!(matches!(f.kind, FaultKind::SharedRace { race: RaceKind::ReadAfterWrite, .. }));
    fine(&two(&format!("cp.async.wait_all; bar.sync 0; {next}")));
}

#[test]
fn copies_are_checked_at_both_ends() {
    let copy = |rest: &str| {
        format!(
            "mul.wide.u32 %rd7, %r1, 16; add.u64 %rd7, %rd1, %rd7; cp.async.cg.shared.global {rest}; cp.async.wait_all;"
        )
    };
    fine(&copy("[%r7+512], [%rd7+1536], 16"));
    let f = fault(&copy("[%r7+528], [%rd7], 16"), 32);
    assert!(matches!(
        f.kind,
        FaultKind::OutOfBounds { space: MemorySpace::Shared, store: true, .. }
    ));
    assert_eq!(f.thread, [31, 0, 0]);
    let f = fault(&copy("[%r7], [%rd7+1552], 16"), 32);
    assert!(matches!(f.kind, FaultKind::OutOfBounds { space: MemorySpace::Global, .. }));
    assert_eq!(f.thread, [31, 0, 0]);
    // What is not read may lie anywhere.
    fine(&copy("[%r7], [%rd7+1552], 16, 0"));
    let f = fault(&copy("[%r7+8], [%rd7], 16"), 32);
    assert!(matches!(f.kind, FaultKind::Misaligned { space: MemorySpace::Shared, .. }));
    let f = fault(&copy("[%r7], [%rd7+8], 16"), 32);
    assert!(matches!(f.kind, FaultKind::Misaligned { space: MemorySpace::Global, .. }));
    let f = fault("cp.async.cg.shared.global [s], [%rd1], 16; cp.async.wait_all;", 64);
    assert!(matches!(f.kind, FaultKind::SharedRace { .. }));
}
