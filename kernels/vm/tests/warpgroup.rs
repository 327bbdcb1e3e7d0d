//! `wgmma` against what an H200 returned, and every way its factors may lie in shared memory
//! against that. A layout is written here as the PTX ISA draws it: core matrices of eight lines by
//! sixteen bytes, whose places are permuted within a swizzled row.

mod support;

use ptx_vm::{FaultKind, Memory, Module, Options, Stop};
use safetensors::SafeTensors;
use support::{Parameters, bytes32, go, input, output, words};

fn golden(name: &str) -> [Vec<u32>; 4] {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../corpora/golden/wgmma.safetensors");
    let bytes = std::fs::read(path).expect("the golden vectors are in corpora/golden");
    let file = SafeTensors::deserialize(&bytes).unwrap();
    ["a", "b", "c", "d"].map(|part| {
        let data = file.tensor(&format!("wgmma_{name}.{part}")).unwrap().data().to_vec();
        data.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
    })
}

/// How a factor lies: bytes of a swizzled row, and whether k runs across memory.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Layout {
    row_bytes: usize,
    transposed: bool,
}

const PLAIN: Layout = Layout { row_bytes: 16, transposed: false };

impl Layout {
    /// An image of `lines` by 32 bytes of k, element sizes in bytes, and the descriptor's upper
    /// bits. The image starts at a multiple of 1024.
    fn image(self, lines: &[[u8; 32]], element: usize) -> (Vec<u8>, u64) {
        let row = self.row_bytes;
        let mut image = vec![0u8; 64 * 1024];
        // Strides beyond what is needed: a mistaken one reads zeros.
        let (near, far) = (8 * row.max(16) + 1024, 16 * row.max(16) + 3072);
        let (leading, stride) = if row == 16 { (near, far) } else { (far, near) };
        let mut end = 0;
        for (i, line) in lines.iter().enumerate() {
            for k in 0..32 / element {
                let at = if self.transposed {
                    let per_row = row / element;
                    let (block, within) = (i / per_row, i % per_row);
                    let k_part = k / 8 * stride + k % 8 * row;
                    match row {
                        16 => i / 8 * stride + i % 8 * element + k / 8 * leading + k % 8 * 16,
                        _ => block * leading + within * element + k_part,
                    }
                } else {
                    let byte = k * element;
                    match row {
                        16 => i / 8 * stride + byte / 16 * leading + i % 8 * 16 + byte % 16,
                        _ => i / 8 * stride + i % 8 * row + byte,
                    }
                };
                let unit = at / 16;
                let permuted = unit ^ (unit / 8 % 8 % (row / 16));
                let at = permuted * 16 + at % 16;
                image[at..at + element].copy_from_slice(&line[k * element..(k + 1) * element]);
                end = end.max(at + element);
            }
        }
        image.truncate(end.next_multiple_of(1024));
        let code = match row {
            128 => 1u64,
            64 => 2,
            32 => 3,
            _ => 0,
        };
        (image, code << 62 | (stride as u64 >> 4) << 32 | (leading as u64 >> 4) << 16)
    }
}

/// The lines of B in the file's image: two core matrices along k.
fn lines_of_b(words: &[u32]) -> Vec<[u8; 32]> {
    let bytes = bytes32(words);
    let byte = |line: usize, k: usize| bytes[k / 16 * 128 + line * 16 + k % 16];
    (0..8).map(|line| std::array::from_fn(|k| byte(line, k))).collect()
}

/// The 64 lines of A, which the file has as four warps' fragments.
fn lines_of_a(words: &[u32]) -> Vec<[u8; 32]> {
    let mut lines = vec![[0u8; 32]; 64];
    for (thread, registers) in words.as_chunks::<4>().0.iter().enumerate() {
        let (warp, lane) = (thread / 32, thread % 32);
        for (i, word) in registers.iter().enumerate() {
            let line = 16 * warp + lane / 4 + 8 * (i % 2);
            let k = lane % 4 * 4 + 16 * (i / 2);
            lines[line][k..k + 4].copy_from_slice(&word.to_le_bytes());
        }
    }
    lines
}

/// One product of 64×8, A from registers unless it has a layout.
fn product(
    form: &str,
    tail: &str,
    a: &[u32],
    (b, b_layout): (&[u32], Layout),
    c: &[u32],
    (a_layout, element): (Option<Layout>, usize),
) -> Result<Vec<u32>, Stop> {
    let (b_image, b_descriptor) = b_layout.image(&lines_of_b(b), element);
    let (a_image, a_descriptor) = match a_layout {
        Some(layout) => layout.image(&lines_of_a(a), element),
        None => (vec![0; 1024], 0),
    };
    let left = if a_layout.is_some() { "%rd10" } else { "{%r0,%r1,%r2,%r3}" };
    let text = format!(
        ".version 8.4\n.target sm_90a\n.address_size 64\n.visible .entry t(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d, .param .u64 am, .param .u32 abytes, .param .u32 bbytes, .param .u64 ad, .param .u64 bd)\n{{\n\
         .reg .pred %p<5>;.reg .b32 %r<40>;.reg .b64 %rd<20>;.shared .align 1024 .b8 sa[65536];.shared .align 1024 .b8 sb[65536];\n\
         ld.param.u64 %rd1, [a];ld.param.u64 %rd2, [b];ld.param.u64 %rd3, [c];ld.param.u64 %rd4, [d];ld.param.u64 %rd5, [am];ld.param.u32 %r20, [abytes];ld.param.u32 %r21, [bbytes];\n\
         mov.u32 %r31, %tid.x;mul.wide.u32 %rd6, %r31, 16;add.u64 %rd1, %rd1, %rd6;add.u64 %rd3, %rd3, %rd6;add.u64 %rd4, %rd4, %rd6;\n\
         ld.global.v4.u32 {{%r0,%r1,%r2,%r3}}, [%rd1];ld.global.v4.u32 {{%r8,%r9,%r10,%r11}}, [%rd3];\n\
         mov.u32 %r22, sa;mov.u32 %r23, sb;shl.b32 %r24, %r31, 2;mov.u32 %r25, %r24;\n\
         A: setp.ge.u32 %p1, %r24, %r20;@%p1 bra B;cvt.u64.u32 %rd7, %r24;add.u64 %rd7, %rd7, %rd5;ld.global.u32 %r26, [%rd7];add.u32 %r27, %r22, %r24;st.shared.u32 [%r27], %r26;add.u32 %r24, %r24, 512;bra A;\n\
         B: setp.ge.u32 %p1, %r25, %r21;@%p1 bra C;cvt.u64.u32 %rd7, %r25;add.u64 %rd7, %rd7, %rd2;ld.global.u32 %r26, [%rd7];add.u32 %r27, %r23, %r25;st.shared.u32 [%r27], %r26;add.u32 %r25, %r25, 512;bra B;\n\
         C: bar.sync 0;fence.proxy.async;\n\
         ld.param.u64 %rd10, [ad];shr.u32 %r22, %r22, 4;cvt.u64.u32 %rd11, %r22;or.b64 %rd10, %rd10, %rd11;\n\
         ld.param.u64 %rd12, [bd];shr.u32 %r23, %r23, 4;cvt.u64.u32 %rd13, %r23;or.b64 %rd12, %rd12, %rd13;\n\
         setp.eq.u32 %p2, %r31, %r31;wgmma.fence.sync.aligned;\n\
         {form} {{%r8,%r9,%r10,%r11}}, {left}, %rd12, %p2{tail};\n\
         wgmma.commit_group.sync.aligned;wgmma.wait_group.sync.aligned 0;\n\
         st.global.v4.u32 [%rd4], {{%r8,%r9,%r10,%r11}};ret;\n}}\n"
    );
    let module = Module::parse(&text).unwrap_or_else(|e| panic!("{form}: {e}"));
    let mut memory = Memory::new();
    let buffers = [
        input(&mut memory, "a", &bytes32(a)),
        input(&mut memory, "b", &b_image),
        input(&mut memory, "c", &bytes32(c)),
        output(&mut memory, "d", 128 * 16),
        input(&mut memory, "am", &a_image),
    ];
    let mut parameters = Parameters::default();
    for buffer in buffers {
        parameters = parameters.u64(memory.address(buffer, 0));
    }
    let parameters = parameters.u32(a_image.len() as u32).u32(b_image.len() as u32);
    let parameters = parameters.u64(a_descriptor).u64(b_descriptor).0;
    go(&module, &mut memory, "t", [1; 3], [128, 1, 1], &parameters, &Options::default())?;
    Ok(words(&memory, buffers[3]))
}

/// Every tile of the file with these layouts, `tail` standing behind the predicate.
fn agrees(name: &str, k: usize, element: usize, tail: &str, a: Option<Layout>, b: Layout) {
    let form = format!("wgmma.mma_async.sync.aligned.m64n8k{k}.f32.{name}.{name}");
    let [all_a, all_b, all_c, all_d] = golden(name);
    let tiles =
        all_a.chunks(512).zip(all_b.chunks(64)).zip(all_c.chunks(512).zip(all_d.chunks(512)));
    for (tile, ((x, y), (c, d))) in tiles.enumerate() {
        let got = product(&form, tail, x, (y, b), c, (a, element));
        let got = got.unwrap_or_else(|e| panic!("{form}: {e}"));
        let wrong = got.iter().zip(d).filter(|(x, y)| x != y).count();
        assert_eq!(wrong, 0, "{form}, tile {tile}, A {a:?}, B {b:?}: {wrong} of 512 differ");
    }
}

const FORMS: [(&str, usize, usize); 5] =
    [("bf16", 16, 2), ("f16", 16, 2), ("tf32", 8, 4), ("e4m3", 32, 1), ("e5m2", 32, 1)];

#[test]
fn sums_are_the_hardwares() {
    for (name, k, element) in FORMS {
        let tail = if element == 2 { ", 1, 1, 0" } else { ", 1, 1" };
        agrees(name, k, element, tail, None, PLAIN);
    }
}

#[test]
fn factors_lie_with_k_along_memory() {
    for (name, k, element) in FORMS {
        let tail = if element == 2 { ", 1, 1, 0, 0" } else { ", 1, 1" };
        for row_bytes in [16, 32, 64, 128] {
            let layout = Layout { row_bytes, transposed: false };
            agrees(name, k, element, tail, Some(layout), layout);
        }
    }
}

#[test]
fn factors_lie_with_lines_along_memory() {
    for (name, k, element) in &FORMS[..2] {
        for row_bytes in [16, 32, 64, 128] {
            let layout = Layout { row_bytes, transposed: true };
            agrees(name, *k, *element, ", 1, 1, 1, 1", Some(layout), layout);
            agrees(name, *k, *element, ", 1, 1, 1, 0", Some(layout), PLAIN);
        }
    }
}

#[test]
fn a_negated_factor_changes_the_products_sign() {
    let form = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16";
    let [a, b, c, _] = golden("bf16");
    let (a, b, c) = (&a[..512], &b[..64], &c[512 * 8..512 * 9]);
    let flipped: Vec<u32> = a.iter().map(|word| word ^ 0x8000_8000).collect();
    let run = |a: &[u32], tail: &str| product(form, tail, a, (b, PLAIN), c, (None, 2)).unwrap();
    assert_eq!(run(a, ", -1, 1, 0"), run(&flipped, ", 1, 1, 0"));
    assert_eq!(run(a, ", 1, -1, 0"), run(&flipped, ", 1, 1, 0"));
    assert_eq!(run(a, ", -1, -1, 0"), run(a, ", 1, 1, 0"));
}

#[test]
fn bytes_nobody_wrote_and_missing_warpgroups_are_faults() {
    let kernel = |threads: u32, upper: &str| {
        let text = format!(
            ".version 8.4\n.target sm_90a\n.address_size 64\n.visible .entry t()\n{{\n\
             .reg .pred %p<5>;.reg .b32 %r<40>;.reg .b64 %rd<20>;.shared .align 1024 .b8 s[2048];\n\
             mov.u32 %r1, s;shr.u32 %r1, %r1, 4;cvt.u64.u32 %rd1, %r1;or.b64 %rd1, %rd1, {upper};setp.ne.u32 %p1, %r1, %r1;wgmma.fence.sync.aligned;\n\
             wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{%r4,%r5,%r6,%r7}}, {{%r8,%r9,%r10,%r11}}, %rd1, %p1, 1, 1, 0;\nret;\n}}\n"
        );
        let module = Module::parse(&text).unwrap();
        let options = Options::default();
        go(&module, &mut Memory::new(), "t", [1; 3], [threads, 1, 1], &[], &options).unwrap_err()
    };
    let kind = |stop| match stop {
        Stop::Fault(fault) => fault.kind,
        other => panic!("{other}"),
    };
    let plain = "0x1000080000";
    assert!(matches!(kind(kernel(128, plain)), FaultKind::Uninitialised { .. }));
    // A warpgroup that the block cuts off, which comes after a whole one here.
    assert!(matches!(kind(kernel(96, plain)), FaultKind::BadDescriptor { .. }));
    assert!(matches!(kind(kernel(160, plain)), FaultKind::Uninitialised { .. }));
    // The first group of lines is there, sixteen bytes further along k nothing is.
    assert!(matches!(kind(kernel(128, "0x03ff0000")), FaultKind::Uninitialised { .. }));
    match kernel(128, "0x2001000080000") {
        Stop::Unsupported { what, .. } => assert_eq!(
            what,
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 with a base offset"
        ),
        other => panic!("{other}"),
    }
}
