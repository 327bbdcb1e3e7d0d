//! Real kernels, as two compiler generations write them, against plain Rust.

mod support;

use ptx_vm::{Memory, Module, Options};
use support::{Gdn, Random, argmax, bf16, from_bf16, gemm, halves, top_k, words};

const GDN: [&str; 2] = [include_str!("ptx/gdn.sm80.ptx"), include_str!("ptx/gdn.sm121a.ptx")];
const TOP: [&str; 2] = [include_str!("ptx/topk.sm80.ptx"), include_str!("ptx/topk.sm121a.ptx")];
const GEMM: [&str; 2] = [include_str!("ptx/gemm.sm80.ptx"), include_str!("ptx/gemm.sm121a.ptx")];

fn both() -> [Options; 2] {
    [true, false].map(|checks| Options { checks, ..Options::default() })
}

#[test]
fn gated_delta_rule() {
    for text in GDN {
        let module = Module::parse(text).unwrap();
        for (dim, options) in [32, 128].into_iter().zip(both()) {
            let case = Gdn::new(3, dim, 5);
            let mut memory = Memory::new();
            let (state, out, _) = case.run(&module, &mut memory, &options).unwrap();
            let (want_state, want_out) = case.reference();
            for (got, want) in words(&memory, state).iter().zip(&want_state) {
                let got = f64::from(f32::from_bits(*got));
                assert!((got - want).abs() < 1e-5 * (1.0 + want.abs()), "{got} {want}");
            }
            for (got, want) in halves(&memory, out).iter().zip(&want_out) {
                let got = f64::from(from_bf16(*got));
                assert!((got - want).abs() < 1e-2 * (0.1 + want.abs()), "{got} {want}");
            }
            assert_eq!(memory.written_ranges(out), vec![0..memory.len_bytes(out)]);
        }
    }
}

#[test]
fn argmax_with_ties_and_nan() {
    for text in TOP {
        let module = Module::parse(text).unwrap();
        let mut memory = Memory::new();
        let mut random = Random(3);
        for n in [1usize, 31, 64, 257, 1000] {
            let mut row: Vec<u16> = (0..2 * n).map(|_| bf16(random.unit()) & 0xfff0).collect();
            if n > 40 {
                row[3] = 0x7fc0;
                row[n + 5] = 0x7f80;
                row[n + 17] = 0x7f80;
            }
            for options in both() {
                let (index, value, _) = argmax(&module, &mut memory, &row, n, &options).unwrap();
                for r in 0..2 {
                    let mut best: Option<(f32, usize)> = None;
                    for i in 0..n {
                        let x = from_bf16(row[r * n + i]);
                        if !x.is_nan() && best.is_none_or(|(b, _)| x > b) {
                            best = Some((x, i));
                        }
                    }
                    let (x, i) = best.unwrap();
                    assert_eq!(words(&memory, index)[r], i as u32);
                    assert_eq!(words(&memory, value)[r], x.to_bits());
                }
            }
        }
    }
}

#[test]
fn top_k_in_order() {
    for text in TOP {
        let module = Module::parse(text).unwrap();
        let mut memory = Memory::new();
        let mut random = Random(11);
        for (n, k) in [(32usize, 5u32), (1000, 32), (777, 256)] {
            let row: Vec<f32> = (0..n).map(|_| (random.unit() * 50.0).floor()).collect();
            let mut order: Vec<usize> = (0..n).collect();
            order.sort_by(|a, b| row[*b].total_cmp(&row[*a]).then(a.cmp(b)));
            for options in both() {
                let (index, value, _) = top_k(&module, &mut memory, &row, k, &options).unwrap();
                let got = words(&memory, index);
                for j in 0..k as usize {
                    assert_eq!(got[j] as usize, order[j]);
                    assert_eq!(words(&memory, value)[j], row[order[j]].to_bits());
                }
            }
        }
    }
}

#[test]
fn tensor_core_product() {
    for text in GEMM {
        let module = Module::parse(text).unwrap();
        let mut memory = Memory::new();
        let mut random = Random(2);
        for shape in [[1usize, 64, 64], [70, 66, 96], [64, 128, 40]] {
            let [m, n, k] = shape;
            let mut many = |count: usize| -> Vec<f32> {
                (0..count).map(|_| from_bf16(bf16(random.unit()))).collect()
            };
            let (a, b) = (many(m * k), many(n * k));
            for options in both() {
                let (c, _) = gemm(&module, &mut memory, &a, &b, shape, &options).unwrap();
                let got = halves(&memory, c);
                for i in 0..m {
                    for j in 0..n {
                        let want: f64 =
                            (0..k).map(|x| f64::from(a[i * k + x]) * f64::from(b[j * k + x])).sum();
                        let got = f64::from(from_bf16(got[i * n + j]));
                        assert!((got - want).abs() < 0.02 + want.abs() * 0.01, "{got} {want}");
                    }
                }
            }
        }
    }
}
