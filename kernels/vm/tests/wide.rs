//! `wmma` tiles and atomics of every width, as two compiler generations write them. Factors are
//! small integers, so that sums are exact in every type.

mod support;

use ptx_vm::{FaultKind, Memory, Module, Options, Stop};
use support::{Parameters, Random, bf16, go, halves, input, output, words};

const WIDE: [&str; 3] = [
    include_str!("ptx/wide.sm80.ptx"),
    include_str!("ptx/wide.sm90.ptx"),
    include_str!("ptx/wide.sm121a.ptx"),
];

/// The f16 of an integer below 2048.
fn f16(x: i32) -> u16 {
    let bits = (x as f32).to_bits();
    let magnitude = if x == 0 { 0 } else { (bits >> 13 & 0x3ffff) - (112 << 10) };
    (bits >> 16 & 0x8000 | magnitude) as u16
}

fn store(ty: &str, x: i32) -> Vec<u8> {
    match ty {
        "half" => f16(x).to_le_bytes().to_vec(),
        "brain" => bf16(x as f32).to_le_bytes().to_vec(),
        "byte" => vec![x as u8],
        "float" => (x as f32).to_le_bytes().to_vec(),
        _ => x.to_le_bytes().to_vec(),
    }
}

/// A matrix in memory: rows by columns, by columns if so, with a leading dimension.
fn image(
    ty: &str,
    [rows, columns]: [usize; 2],
    by_column: bool,
    lead: usize,
    at: impl Fn(usize, usize) -> i32,
) -> Vec<u8> {
    let lines = if by_column { columns } else { rows };
    (0..lines * lead)
        .flat_map(|i| {
            let (line, along) = (i / lead, i % lead);
            let (row, column) = if by_column { (along, line) } else { (line, along) };
            store(ty, if row < rows && column < columns { at(row, column) } else { 99 })
        })
        .collect()
}

#[test]
fn tiles_of_every_shape_and_layout() {
    /// Entry, rows and columns, types of factors and sums, which of A, B and D lie by columns.
    type Tile = (&'static str, [usize; 2], &'static str, &'static str, [bool; 3]);
    let forms: [Tile; 8] = [
        ("half_16x16_rr", [16, 16], "half", "float", [false, false, false]),
        ("half_16x16_cc", [16, 16], "half", "float", [true, true, true]),
        ("half_32x8_rc", [32, 8], "half", "float", [false, true, false]),
        ("half_8x32_cr", [8, 32], "half", "float", [true, false, false]),
        ("short_16x16_rc", [16, 16], "half", "half", [false, true, false]),
        ("brain_16x16_rc", [16, 16], "brain", "float", [false, true, false]),
        ("brain_8x32_rr", [8, 32], "brain", "float", [false, false, true]),
        ("byte_16x16_rc", [16, 16], "byte", "int", [false, true, false]),
    ];
    for text in WIDE {
        let module = Module::parse(text).unwrap();
        for (entry, [m, n], ty, sum, [a_column, b_column, out_column]) in forms {
            let mut random = Random(entry.len() as u64);
            let mut draw = |count: usize| -> Vec<i32> {
                (0..count).map(|_| (random.next() % 15) as i32 - 7).collect()
            };
            let (a, b, c) = (draw(m * 16), draw(16 * n), draw(m * n));
            let mut memory = Memory::new();
            let left = image(ty, [m, 16], a_column, 40, |i, k| a[i * 16 + k]);
            let right = image(ty, [16, n], b_column, 48, |k, j| b[k * n + j]);
            let start = image(sum, [m, n], out_column, 32, |i, j| c[i * n + j]);
            let want = image(sum, [m, n], out_column, 32, |i, j| {
                let product: i32 = (0..16).map(|k| a[i * 16 + k] * b[k * n + j]).sum();
                2 * (c[i * n + j] + product)
            });
            let buffers = [
                input(&mut memory, "a", &left),
                input(&mut memory, "b", &right),
                input(&mut memory, "c", &start),
                output(&mut memory, "d", want.len() as u64),
            ];
            let mut parameters = Parameters::default();
            for buffer in buffers {
                parameters = parameters.u64(memory.address(buffer, 0));
            }
            for checks in [true, false] {
                let options = Options { checks, ..Options::default() };
                let block = [32, 1, 1];
                let parameters = &parameters.0;
                go(&module, &mut memory, entry, [1; 3], block, parameters, &options)
                    .unwrap_or_else(|e| panic!("{entry}: {e}"));
                let mut got = vec![0; want.len()];
                memory.read(buffers[3], 0, &mut got);
                for range in memory.written_ranges(buffers[3]) {
                    let range = range.start as usize..range.end as usize;
                    assert_eq!(got[range.clone()], want[range], "{entry}");
                }
                let written = memory.written_ranges(buffers[3]);
                let size = want.len() / (32 * if out_column { n } else { m });
                let bytes: u64 = written.iter().map(|r| r.end - r.start).sum();
                assert_eq!(bytes as usize, m * n * size, "{entry}");
            }
        }
    }
}

#[test]
fn atomics_of_every_type() {
    for text in WIDE {
        let module = Module::parse(text).unwrap();
        let mut memory = Memory::new();
        let initial: [(&str, Vec<u8>); 8] = [
            ("f", store("float", 2)),
            ("d", 3f64.to_le_bytes().to_vec()),
            ("h", [1, 2, 3, 0].iter().flat_map(|x| f16(*x).to_le_bytes()).collect()),
            ("b", [1, 2, 3, 0].iter().flat_map(|x| bf16(*x as f32).to_le_bytes()).collect()),
            ("s", [500u16, 7].iter().flat_map(|x| x.to_le_bytes()).collect()),
            (
                "u",
                [5u32, 3, 9, 9, u32::MAX, 0, 1, 0].iter().flat_map(|x| x.to_le_bytes()).collect(),
            ),
            ("i", [5i32, 3].iter().flat_map(|x| x.to_le_bytes()).collect()),
            ("l", [5u64, 9, 0, u64::MAX].iter().flat_map(|x| x.to_le_bytes()).collect()),
        ];
        let mut parameters = Parameters::default();
        let buffers = initial.map(|(name, bytes)| {
            let buffer = output(&mut memory, name, bytes.len() as u64);
            memory.write(buffer, 0, &bytes);
            buffer
        });
        for buffer in buffers {
            parameters = parameters.u64(memory.address(buffer, 0));
        }
        let options = Options::default();
        go(&module, &mut memory, "atomics", [1; 3], [32, 1, 1], &parameters.0, &options).unwrap();
        let [f, d, h, b, s, u, i, l] = buffers;
        let sum: i32 = (0..32).sum();
        let longs = |buffer| -> Vec<u64> {
            let all = words(&memory, buffer);
            all.chunks(2).map(|c| u64::from(c[0]) | u64::from(c[1]) << 32).collect()
        };
        assert_eq!(words(&memory, f), [(34.0 + sum as f32).to_bits()]);
        assert_eq!(longs(d), [(3.0 + 0.5 * f64::from(sum)).to_bits()]);
        assert_eq!(halves(&memory, h), [f16(33), f16(2 + sum), f16(67), 0]);
        let brain = [33.0, -30.0, 131.0, 0.0].map(bf16);
        assert_eq!(halves(&memory, b), brain);
        assert_eq!(halves(&memory, s), [500 + 96, 7]);
        // 32 steps of a cycle of 21; a decrement of 0 goes to 20.
        let xor = (0..32).fold(1, |all, t| all ^ t);
        assert_eq!(words(&memory, u), [(5 + 32) % 21, 13, 0, 31, 0, u32::MAX, xor, 77]);
        assert_eq!(words(&memory, i), [(-31i32) as u32, 31]);
        assert_eq!(longs(l), [(-31i64 << 40) as u64, 31 << 40, 32, 0]);
    }
}

#[test]
fn atomics_of_vectors_and_of_sixteen_bytes() {
    for text in &WIDE[1..] {
        let module = Module::parse(text).unwrap();
        let run = |skew: u64| {
            let mut memory = Memory::new();
            let f = output(&mut memory, "f", 33 * 16);
            memory.write(f, 0, &[0; 16]);
            let g = output(&mut memory, "g", 32);
            memory.write(g, 0, &[0; 32]);
            let q = output(&mut memory, "q", 32);
            let mut start = [0; 32];
            start[0] = 16;
            memory.write(q, 0, &start);
            let parameters = Parameters::default()
                .u64(memory.address(f, 0))
                .u64(memory.address(g, skew))
                .u64(memory.address(q, 0))
                .0;
            let options = Options::default();
            go(&module, &mut memory, "vectors", [1; 3], [32, 1, 1], &parameters, &options)?;
            Ok::<_, Stop>((words(&memory, f), halves(&memory, g), words(&memory, q)))
        };
        let (f, g, q) = run(0).unwrap();
        let floats: Vec<f32> = f.iter().map(|bits| f32::from_bits(*bits)).collect();
        assert_eq!(floats[..4], [32.0, 496.0, 16.0, -32.0]);
        // Each thread saw what the threads before it had added.
        for t in 0..32 {
            let before = (0..t).sum::<usize>() as f32;
            let t = t as f32;
            let at = 4 + 4 * t as usize;
            assert_eq!(floats[at..at + 4], [t, before, 0.5 * t, -t]);
        }
        assert_eq!(g[..4], [0, 0x43f8, 0, 0x4280], "496 and 64 as f32");
        assert_eq!(g[4..8], [f16(32); 4]);
        assert_eq!(g[8..12], [bf16(32.0); 4]);
        // 16 less 32 in the lower half, 32 more in the upper.
        assert_eq!(q[..4], [(-16i32) as u32, u32::MAX, 32, 0]);
        assert_eq!(q[4], 31);
        match run(4) {
            Err(Stop::Fault(fault)) => {
                assert!(matches!(fault.kind, FaultKind::Misaligned { .. }), "{fault}");
            }
            other => panic!("{other:?}"),
        }
    }
}
