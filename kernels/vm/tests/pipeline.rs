//! Barriers, asynchronous and bulk copies as the CUDA C++ library writes them, through both
//! compilers; and the forms that only clusters use, in a cluster of one block.

mod support;

use ptx_vm::{ClusterFault, FaultKind, LaunchError, Memory, Module, Options, Stop};
use support::{Parameters, bytes_f32, go, input, output, words};

const PIPELINE: [&str; 2] =
    [include_str!("ptx/pipeline.sm80.ptx"), include_str!("ptx/pipeline.sm121a.ptx")];

fn run(
    text: &str,
    entry: &str,
    [blocks, threads]: [u32; 2],
    x: &[f32],
    (out_len, last): (usize, Option<u32>),
) -> Result<Vec<f32>, Stop> {
    let module = Module::parse(text).unwrap();
    let mut memory = Memory::new();
    let x = input(&mut memory, "x", &bytes_f32(x));
    let out = output(&mut memory, "out", 4 * out_len as u64);
    let mut parameters =
        Parameters::default().u64(memory.address(x, 0)).u64(memory.address(out, 0));
    if let Some(last) = last {
        parameters = parameters.u32(last);
    }
    let (grid, block) = ([blocks, 1, 1], [threads, 1, 1]);
    go(&module, &mut memory, entry, grid, block, &parameters.0, &Options::default())?;
    Ok(words(&memory, out).iter().map(|bits| f32::from_bits(*bits)).collect())
}

#[test]
fn rounds_through_two_barriers() {
    for text in PIPELINE {
        for n in [1usize, 33, 128] {
            let x: Vec<f32> = (0..5 * n).map(|i| (i * i % 101) as f32).collect();
            let got = run(text, "rounds", [1, n as u32], &x, (n, Some(5))).unwrap();
            for t in 0..n {
                let want: f32 = (0..5).map(|r| x[r * n + (t + 1) % n]).sum();
                assert_eq!(got[t], want, "{n} threads");
            }
        }
    }
}

#[test]
fn a_copy_that_all_share() {
    for text in PIPELINE {
        for n in [32usize, 96] {
            let x: Vec<f32> = (0..512).map(|i| (i % 37) as f32).collect();
            let got = run(text, "copied", [1, n as u32], &x, (n, None)).unwrap();
            assert!(got.iter().all(|sum| *sum == x.iter().sum::<f32>()), "{got:?}");
        }
    }
}

#[test]
fn bulk_copies_in_and_out() {
    let x: Vec<f32> = (0..1536).map(|i| i as f32).collect();
    let got = run(PIPELINE[1], "bulk", [3, 64], &x, (1536, None)).unwrap();
    assert!((0..1536).all(|i| got[i] == x[i] + 1.0));
    match run(PIPELINE[1], "bulk", [3, 64], &x[..1532], (1536, None)) {
        Err(Stop::Fault(fault)) => {
            assert!(matches!(fault.kind, FaultKind::OutOfBounds { .. }), "{fault}");
            assert_eq!(fault.block, [2, 0, 0]);
        }
        other => panic!("{other:?}"),
    }
}

fn cluster(head: &str, body: &str) -> Result<Vec<f32>, Stop> {
    let text = format!(
        ".version 8.4\n.target sm_90\n.address_size 64\n.visible .entry t(.param .u64 x, .param .u64 d)\n{head}\n{{\n\
         .reg .pred %p<9>;.reg .b32 %r<20>;.reg .b64 %rd<20>;.shared .align 8 .b8 s[256];\n\
         ld.param.u64 %rd1, [d];mov.u32 %r1, %tid.x;mul.wide.u32 %rd2, %r1, 4;add.s64 %rd1, %rd1, %rd2;\n\
         mov.u32 %r2, s;mad.lo.u32 %r3, %r1, 4, %r2;xor.b32 %r4, %r3, 4;\n{body}\nret;\n}}\n"
    );
    run(&text, "t", [1, 64], &[0.0], (64, None))
}

#[test]
fn a_cluster_of_one_block() {
    let body = "st.shared.u32 [%r3], 0f3F800000;barrier.cluster.arrive.release.aligned;barrier.cluster.wait.acquire.aligned;\n\
        mov.u32 %r7, %cluster_ctarank;mapa.shared::cluster.u32 %r5, %r4, %r7;ld.shared::cluster.u32 %r6, [%r5];st.global.u32 [%rd1], %r6;";
    assert_eq!(cluster("", body).unwrap(), [1.0; 64]);
    let race = body.replace("barrier.cluster.wait.acquire.aligned;", "");
    assert!(matches!(cluster("", &race), Err(Stop::Fault(_))));
    let elsewhere = body.replace("%cluster_ctarank", "1");
    match cluster("", &elsewhere) {
        Err(Stop::Fault(fault)) => assert_eq!(
            fault.kind,
            FaultKind::Cluster { wrong: ClusterFault::NoSuchRank { rank: 1, ranks: 1 } }
        ),
        other => panic!("{other:?}"),
    }
    assert!(cluster(".reqnctapercluster 1, 1, 1", body).is_ok());
    match cluster(".reqnctapercluster 2, 1, 1", body) {
        Err(Stop::BadLaunch(LaunchError::Cluster { cluster, .. })) => {
            assert_eq!(cluster, [2, 1, 1])
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_missing_says_its_name() {
    for body in [
        "cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%r2], [%rd1, {%r1, %r1, %r1}], [%r2], {%rs1};",
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.min.f32 [%rd1], [%r2], 16;",
        "barrier.cluster.arrive.strange;",
        "fence.strange;",
        "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%r1}, %rd1, %rd1, %r1, 0, 0, 1, 1;",
        "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r2], 32;",
        "mbarrier.arrive.strange.b64 %rd2, [%r2];",
        "atom.global.min.noftz.f16 %r1, [%rd1], %r1;",
        "multimem.red.relaxed.sys.global.add.u32 [%rd1], %r1;",
    ] {
        let name = body.split(' ').next().unwrap().trim_end_matches(';');
        match cluster("", body) {
            Err(Stop::Unsupported { what, .. }) => assert_eq!(what, name),
            other => panic!("{body}: {other:?}"),
        }
    }
}
