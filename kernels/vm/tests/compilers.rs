//! One source through two compilers (NVVM 7 for sm_80 and sm_90, NVVM 20 for sm_121a): results are
//! the same to the bit, and faults name the same source line. Where PTX for sm_90 is that for sm_80
//! but for the header, it is not repeated here. References are in `kernels`.

mod support;

use ptx_vm::{Fault, Memory, Module, Options, Stop};
use support::{Gdn, Parameters, Random, argmax, bf16, bytes_f32, from_bf16, gemm, go};
use support::{halves, output, top_k, words};

fn modules(texts: &[&str]) -> Vec<Module> {
    texts.iter().map(|text| Module::parse(text).unwrap()).collect()
}

/// Every module gives what the first gives.
fn agree<T: PartialEq + std::fmt::Debug>(texts: &[&str], mut run: impl FnMut(&Module) -> T) {
    let all: Vec<T> = modules(texts).iter().map(&mut run).collect();
    for (i, other) in all.iter().enumerate().skip(1) {
        assert_eq!(&all[0], other, "compiler {i}");
    }
}

#[test]
fn the_gated_delta_rule() {
    let texts = [
        include_str!("ptx/gdn.sm80.ptx"),
        include_str!("ptx/gdn.sm90.ptx"),
        include_str!("ptx/gdn.sm121a.ptx"),
    ];
    for (heads, dim, seed) in [(1, 32, 1), (3, 32, 2), (2, 128, 3)] {
        agree(&texts, |module| {
            let case = Gdn::new(heads, dim, seed);
            let mut memory = Memory::new();
            let (state, out, _) = case.run(module, &mut memory, &Options::default()).unwrap();
            (words(&memory, state), halves(&memory, out))
        });
    }
}

#[test]
fn selections() {
    let texts = [
        include_str!("ptx/topk.sm80.ptx"),
        include_str!("ptx/topk.sm90.ptx"),
        include_str!("ptx/topk.sm121a.ptx"),
    ];
    for n in [1usize, 33, 1000, 1025] {
        let mut random = Random(n as u64);
        let row: Vec<u16> = (0..2 * n).map(|_| bf16(random.unit()) & 0xffe0).collect();
        agree(&texts, |module| {
            let mut memory = Memory::new();
            let options = Options::default();
            let (index, value, _) = argmax(module, &mut memory, &row, n, &options).unwrap();
            (words(&memory, index), words(&memory, value))
        });
        let row: Vec<f32> = (0..n).map(|_| (random.unit() * 40.0).round()).collect();
        agree(&texts, |module| {
            let mut memory = Memory::new();
            let (options, k) = (Options::default(), n.min(32) as u32);
            let (index, value, _) = top_k(module, &mut memory, &row, k, &options).unwrap();
            (words(&memory, index), words(&memory, value))
        });
    }
}

#[test]
fn products() {
    let texts = [include_str!("ptx/gemm.sm80.ptx"), include_str!("ptx/gemm.sm121a.ptx")];
    for shape @ [m, n, k] in [[1usize, 64, 64], [70, 66, 96], [64, 128, 40]] {
        let mut random = Random(m as u64);
        let mut draw = |count: usize| -> Vec<f32> {
            (0..count).map(|_| from_bf16(bf16(random.unit()))).collect()
        };
        let (a, b) = (draw(m * k), draw(n * k));
        agree(&texts, |module| {
            let mut memory = Memory::new();
            let (c, _) = gemm(module, &mut memory, &a, &b, shape, &Options::default()).unwrap();
            halves(&memory, c)
        });
    }
}

/// The simple delta rule of two heads: its state and output, or its fault.
fn simple(module: &Module) -> Result<(Vec<u32>, Vec<u32>), Box<Fault>> {
    let mut memory = Memory::new();
    let mut random = Random(9);
    let mut parameters = Parameters::default();
    let mut buffers = Vec::new();
    for (name, len) in [
        ("S", 128 * 128),
        ("k", 128),
        ("q", 128),
        ("v", 128),
        ("alpha", 1),
        ("beta", 1),
        ("o", 128),
    ] {
        let values: Vec<f32> = (0..2 * len).map(|_| random.unit()).collect();
        let buffer = output(&mut memory, name, 8 * len as u64);
        memory.write(buffer, 0, &bytes_f32(&values));
        parameters = parameters.u64(memory.address(buffer, 0));
        buffers.push(buffer);
    }
    let (grid, block) = ([2, 1, 1], [128, 1, 1]);
    let options = Options::default();
    match go(module, &mut memory, "gdn_simple", grid, block, &parameters.0, &options) {
        Ok(_) => Ok((words(&memory, buffers[0]), words(&memory, buffers[6]))),
        Err(Stop::Fault(fault)) => Err(fault),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn the_simple_delta_rule_and_its_planted_faults() {
    agree(&[include_str!("ptx/sim.sm80.ptx"), include_str!("ptx/sim.sm121a.ptx")], |module| {
        simple(module).unwrap_or_else(|fault| panic!("{fault}"))
    });
    let planted = [
        [include_str!("ptx/sim_NOSYNC.sm80.ptx"), include_str!("ptx/sim_NOSYNC.sm121a.ptx")],
        [include_str!("ptx/sim_OOB.sm80.ptx"), include_str!("ptx/sim_OOB.sm121a.ptx")],
        [include_str!("ptx/sim_UNINIT.sm80.ptx"), include_str!("ptx/sim_UNINIT.sm121a.ptx")],
    ];
    for texts in planted {
        agree(&texts, |module| {
            let fault = simple(module).unwrap_err();
            let source = fault.source.expect("compiled with lines");
            (std::mem::discriminant(&fault.kind), source.line, source.file)
        });
    }
}

#[test]
fn the_simple_argmax() {
    let texts = [include_str!("ptx/sim.sm80.ptx"), include_str!("ptx/sim.sm121a.ptx")];
    let mut random = Random(4);
    for n in [256usize, 257, 5000] {
        let row: Vec<f32> = (0..n).map(|_| (random.unit() * 100.0).round()).collect();
        let best = row.iter().fold(f32::NEG_INFINITY, |a, b| a.max(*b));
        let first = row.iter().position(|x| *x == best).unwrap() as u32;
        agree(&texts, |module| {
            let mut memory = Memory::new();
            let x = output(&mut memory, "x", 4 * n as u64);
            memory.write(x, 0, &bytes_f32(&row));
            let index = output(&mut memory, "idx", 4);
            let parameters = Parameters::default()
                .u64(memory.address(x, 0))
                .u64(memory.address(index, 0))
                .u32(n as u32)
                .0;
            let options = Options::default();
            go(module, &mut memory, "argmax_simple", [1; 3], [256, 1, 1], &parameters, &options)
                .unwrap();
            assert_eq!(words(&memory, index), [first]);
            words(&memory, index)
        });
    }
}
