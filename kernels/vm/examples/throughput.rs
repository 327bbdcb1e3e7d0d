//! Launches per second of the measured kernels on one core, with and without checks, and
//! nanoseconds of single matrix instructions. An argument keeps the rows whose name contains it; a
//! second one asks for so many checked launches of each, untimed, for instruction counters. With
//! `--portable`, all in the build for processors without AVX2.

#[path = "../tests/support/mod.rs"]
mod support;

use ptx_vm::{MatrixModel, Memory, Module, Options, Stats, Stop, portably};
use std::time::{Duration, Instant};
use support::{Gdn, Parameters, Random, argmax, bf16, bytes32, gemm, go, input, top_k};

const PORTABLE: &str = "--portable";

/// An argument by its place among those that are no flags.
fn argument(place: usize) -> Option<String> {
    std::env::args().skip(1).filter(|argument| argument != PORTABLE).nth(place)
}

fn wanted(name: &str) -> bool {
    argument(0).is_none_or(|wanted| name.contains(&wanted))
}

/// Launches per second, the best of many short windows: on a busy machine some are undisturbed.
/// Also says what one launch did.
fn rate(mut once: impl FnMut() -> Result<Stats, Stop>) -> Result<(f64, Stats), Stop> {
    let mut best = 0.0f64;
    let mut stats = Stats::default();
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(1) {
        let start = Instant::now();
        let mut launches = 0u32;
        while start.elapsed() < Duration::from_millis(3) {
            stats = once()?;
            launches += 1;
        }
        best = best.max(f64::from(launches) / start.elapsed().as_secs_f64());
    }
    Ok((best, stats))
}

fn measure(name: &str, mut once: impl FnMut(&Options) -> Result<Stats, Stop>) {
    if !wanted(name) {
        return;
    }
    if let Some(launches) = argument(1).and_then(|n| n.parse::<u32>().ok()) {
        for _ in 0..launches {
            if let Err(stop) = once(&Options::default()) {
                println!("{name}: {stop}");
            }
        }
        return;
    }
    for checks in [true, false] {
        let options = Options { checks, ..Options::default() };
        match rate(|| once(&options)) {
            Ok((best, stats)) => println!(
                "{name:28} checks {checks:5}  {best:10.0} launches/s  {:7.1} M warp instructions/s",
                best * stats.warp_instructions as f64 / 1e6
            ),
            Err(stop) => println!("{name}: {stop}"),
        }
    }
}

/// Nanoseconds of one `instruction`, of which a loop holds eight in a row, less those of the
/// same loop without it. `%r1` to `%r8` hold ordinary bf16 pairs that `change` alters each time.
fn single(
    name: &str,
    change: &str,
    instruction: &str,
    options: &Options,
) -> Result<(), Box<dyn std::error::Error>> {
    if !wanted(name) || argument(1).is_some() {
        return Ok(());
    }
    const TIMES: u32 = 200;
    let time = |body: &str| -> Result<f64, Box<dyn std::error::Error>> {
        let module = Module::parse(&format!(
            ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry t(.param .u64 x)\n{{\n\
             .reg .pred %p<3>;.reg .f32 %f<9>;.reg .b32 %r<40>;.reg .b64 %rd<9>;\n\
             .shared .align 16 .b8 s[4096];\n\
             mov.u32 %r10, %tid.x;mov.u32 %r11, s;mul.wide.u32 %rd2, %r10, 128;mad.lo.u32 %r12, %r10, 16, %r11;mad.lo.u32 %r13, %r10, 80, %r11;\n\
             ld.param.u64 %rd1, [x];add.u64 %rd3, %rd1, %rd2;ld.global.v4.u32 {{%r1,%r2,%r3,%r4}}, [%rd3];ld.global.v4.u32 {{%r5,%r6,%r7,%r8}}, [%rd3+16];\n\
             mov.f32 %f1, 0f00000000;mov.f32 %f2, %f1;mov.f32 %f3, %f1;mov.f32 %f4, %f1;mov.u32 %r9, 0;mov.u32 %r14, 0;\n\
             F: mad.lo.u32 %r15, %r10, 16, %r14;add.u32 %r15, %r15, %r11;st.shared.v4.u32 [%r15], {{%r1,%r2,%r3,%r4}};add.u32 %r14, %r14, 512;setp.lt.u32 %p1, %r14, 4096;@%p1 bra F;bar.sync 0;\n\
             L: {body}\nadd.u32 %r9, %r9, 1;setp.lt.u32 %p1, %r9, {TIMES};@%p1 bra L;\nret;\n}}\n"
        ))?;
        let mut random = Random(5);
        let mut memory = Memory::new();
        let pairs: Vec<u32> = (0..1024)
            .map(|_| u32::from(bf16(random.unit())) | u32::from(bf16(random.unit())) << 16)
            .collect();
        let x = input(&mut memory, "x", &bytes32(&pairs));
        let parameters = Parameters::default().u64(memory.address(x, 0)).0;
        let (best, _) =
            rate(|| go(&module, &mut memory, "t", [1; 3], [32, 1, 1], &parameters, options))?;
        Ok(1e9 / best)
    };
    let with = time(&format!("{change}{instruction}").repeat(8))?;
    let without = time(&change.repeat(8))?;
    println!("{name:28} {:36.0} ns", (with - without) / f64::from(8 * TIMES));
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if std::env::args().any(|argument| argument == PORTABLE) { portably(rows) } else { rows() }
}

fn rows() -> Result<(), Box<dyn std::error::Error>> {
    let gdn = Module::parse(include_str!("../tests/ptx/gdn.sm80.ptx"))?;
    let top = Module::parse(include_str!("../tests/ptx/topk.sm80.ptx"))?;
    let product = Module::parse(include_str!("../tests/ptx/gemm.sm80.ptx"))?;
    let mut memory = Memory::new();
    for dim in [32, 128] {
        let case = Gdn::new(2, dim, 1);
        measure(&format!("gdn 2 heads dim {dim}"), |options| {
            case.run(&gdn, &mut memory, options).map(|r| r.2)
        });
    }
    let mut random = Random(7);
    for n in [64, 1000, 50_000] {
        let row: Vec<u16> = (0..n).map(|_| bf16(random.unit())).collect();
        measure(&format!("argmax n {n}"), |options| {
            argmax(&top, &mut memory, &row, n, options).map(|r| r.2)
        });
    }
    let row: Vec<f32> = (0..1000).map(|_| random.unit()).collect();
    measure("top-k n 1000 k 32", |options| {
        top_k(&top, &mut memory, &row, 32, options).map(|r| r.2)
    });
    for shape in [[1, 64, 64], [64, 64, 256]] {
        let [m, n, k] = shape;
        let a: Vec<f32> = (0..m * k).map(|_| random.unit()).collect();
        let b: Vec<f32> = (0..n * k).map(|_| random.unit()).collect();
        measure(&format!("gemm {shape:?}"), |options| {
            gemm(&product, &mut memory, &a, &b, shape, options).map(|r| r.1)
        });
    }
    let product = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%f1,%f2,%f3,%f4};";
    let flip = |n: u32| format!("xor.b32 %r{n}, %r{n}, 0x00100003;");
    let exact = Options::default();
    single("mma, same factors", "", product, &exact)?;
    single("mma, new right factors", &flip(6), product, &exact)?;
    single("mma, new factors", &(flip(2) + &flip(6)), product, &exact)?;
    let plain = Options { matrix_model: MatrixModel::F32, ..exact };
    single("mma in f32, same factors", "", product, &plain)?;
    single("mma in f32, new factors", &(flip(2) + &flip(6)), product, &plain)?;
    let load = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r16,%r17,%r18,%r19}, [%r13];";
    single("ldmatrix.x4", "", load, &exact)?;
    single("ldmatrix.x4.trans", "", &load.replace("x4", "x4.trans"), &exact)?;
    let copy = "cp.async.cg.shared.global [%r12], [%rd3], 16;";
    single("cp.async 16 and its wait", "", &format!("{copy}cp.async.wait_all;"), &exact)?;
    let atomic = "atom.shared.add.u32 %r16, [%r13], 1;";
    single("atom.shared.add, own words", "", atomic, &exact)?;
    single("red.shared.add, one word", "", "red.shared.add.u32 [s], 1;", &exact)?;
    single("ld.shared.u32, apart", "", "ld.shared.u32 %r16, [%r13];", &exact)?;
    single("st.shared.u32, apart", "", "st.shared.u32 [%r13], %r1;", &exact)?;
    Ok(())
}
