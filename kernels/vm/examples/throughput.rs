//! Launches per second of the measured kernels on one core, with and without checks. An argument
//! keeps the shapes whose name contains it.

#[path = "../tests/support/mod.rs"]
mod support;

use ptx_vm::{Memory, Module, Options, Stats, Stop};
use std::time::{Duration, Instant};
use support::{Gdn, Random, argmax, bf16, gemm, top_k};

/// Time this process spent on a processor, where the system tells: a busy machine then measures
/// like an idle one.
fn processor_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/self/schedstat").ok()?;
    Some(Duration::from_nanos(text.split(' ').next()?.parse().ok()?))
}

fn measure(name: &str, mut once: impl FnMut(&Options) -> Result<Stats, Stop>) {
    if std::env::args().nth(1).is_some_and(|wanted| !name.contains(&wanted)) {
        return;
    }
    for checks in [true, false] {
        let options = Options { checks, ..Options::default() };
        let mut best = 0.0f64;
        let mut instructions = 0;
        for _ in 0..3 {
            let (start, busy) = (Instant::now(), processor_time());
            let mut launches = 0u32;
            while start.elapsed() < Duration::from_millis(400) {
                match once(&options) {
                    Ok(stats) => instructions = stats.warp_instructions,
                    Err(stop) => {
                        println!("{name}: {stop}");
                        return;
                    }
                }
                launches += 1;
            }
            let spent = match (processor_time(), busy) {
                (Some(now), Some(then)) => now - then,
                _ => start.elapsed(),
            };
            best = best.max(f64::from(launches) / spent.as_secs_f64());
        }
        println!(
            "{name:28} checks {:5}  {best:10.0} launches/s  {:7.1} M warp instructions/s",
            checks,
            best * instructions as f64 / 1e6
        );
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
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
    Ok(())
}
