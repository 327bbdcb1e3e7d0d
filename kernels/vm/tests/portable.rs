//! Without AVX2 the results are the same: bits, faults, coverage and counts.

mod support;

use ptx_vm::{Coverage, Launch, Limits, Memory, Module, Options, launch, portably};
use std::fmt::Debug;
use support::{Gdn, Random, argmax, bf16, gemm, top_k};

fn module(name: &str) -> Module {
    let path = format!("{}/tests/ptx/{name}", env!("CARGO_MANIFEST_DIR"));
    Module::parse(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// What `run` gives on this processor and without its vectors: all of memory and what it returns.
fn both<T: PartialEq + Debug>(file: &str, run: impl Fn(&Module, &mut Memory) -> T) {
    let once = || {
        let mut memory = Memory::new();
        let result = run(&module(file), &mut memory);
        let bytes = |buffer| {
            let mut bytes = vec![0; memory.len_bytes(buffer) as usize];
            memory.read(buffer, 0, &mut bytes);
            (bytes, memory.written_ranges(buffer))
        };
        (memory.buffers().map(bytes).collect::<Vec<_>>(), result)
    };
    assert!(once() == portably(once), "{file}");
}

#[test]
fn kernels_of_the_bench_agree() {
    let options = Options::default();
    let gdn = Gdn::new(2, 32, 1);
    for file in ["gdn.sm80.ptx", "gdn.sm90.ptx", "gdn.sm121a.ptx"] {
        both(file, |module, memory| gdn.run(module, memory, &options).unwrap().2);
    }
    let mut random = Random(7);
    let row: Vec<u16> = (0..1000).map(|_| bf16(random.unit())).collect();
    let values: Vec<f32> = (0..1000).map(|_| random.unit()).collect();
    both("topk.sm80.ptx", |module, memory| argmax(module, memory, &row, 1000, &options).unwrap().2);
    both("topk.sm80.ptx", |module, memory| top_k(module, memory, &values, 32, &options).unwrap().2);
    // Infinities, NaN, subnormals, zeros and far-off exponents among the factors too.
    let mut factors: Vec<f32> = (0..64 * 64).map(|_| random.unit()).collect();
    both("gemm.sm80.ptx", |module, memory| {
        gemm(module, memory, &factors, &factors, [64; 3], &options).unwrap().1
    });
    let odd = [f32::INFINITY, f32::NAN, 1e-40, 0.0, f32::MAX, -f32::MAX, 1e-20, 1e20];
    for (i, odd) in odd.into_iter().enumerate() {
        factors[i * 65] = odd;
    }
    both("gemm.sm80.ptx", |module, memory| {
        gemm(module, memory, &factors, &factors, [64; 3], &options).unwrap().1
    });
}

#[test]
fn faults_agree() {
    both("sim_OOB.sm80.ptx", |module, memory| {
        let entry = module.entries().next().unwrap();
        let parameters = vec![0; entry.parameter_bytes() as usize];
        let what = Launch {
            entry: entry.name(),
            grid: [2, 1, 1],
            block: [64, 1, 1],
            dynamic_shared_bytes: 0,
            parameters: &parameters,
        };
        let mut coverage = Coverage::new();
        let options = Options::default();
        let stop = launch(module, memory, &what, &Limits::default(), &options, &mut coverage);
        (stop, coverage)
    });
}

#[test]
fn the_switch_is_for_one_call() {
    let nested = portably(|| portably(|| 1) + 1);
    assert_eq!(nested, 2);
    let caught = std::panic::catch_unwind(|| portably(|| panic!("within")));
    assert!(caught.is_err());
}
