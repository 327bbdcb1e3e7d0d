//! `wgmma.mma_async` against an H200, bit for bit: every type, factors in registers and in shared
//! memory in every layout, several widths and steps of k, signs, saturation, and the kinds of operands
//! of `mma`. The hardware's answers are `corpora/golden/wgmma_h200.safetensors`, written by
//! `hardware/wgmma.py`; `hardware/wgmma.tsv` has the variants and `hardware/wgmma.ptx` the kernel.

#![allow(dead_code)]

use crate::support::drawn::Element::{self, Bits, High};
use crate::support::drawn::{self, BF16, E4M3, E5M2, F16, F32, KINDS, digest};
use crate::support::{Parameters, bytes32, go, input, output, words};
use ptx_vm::{Memory, Module, Options, Stop};
use safetensors::SafeTensors;
use std::fmt::Write;

/// Tiles of the plain variant whose every word is stored.
const FULL: usize = 12;
const VARIANTS: &str = include_str!("../hardware/wgmma.tsv");
const KERNEL: &str = include_str!("../hardware/wgmma.ptx");

/// Sums, factors a and b, and what the three are drawn as; in the order of `wgmma.py`.
type Types = ([&'static str; 3], [Element; 3]);

pub fn types() -> Vec<Types> {
    let mut all = vec![
        (["f32", "bf16", "bf16"], [BF16, BF16, F32]),
        (["f32", "f16", "f16"], [F16, F16, F32]),
        (["f16", "f16", "f16"], [F16, F16, F16]),
        (["f32", "tf32", "tf32"], [F32, F32, F32]),
    ];
    let eight = [("e4m3", E4M3), ("e5m2", E5M2)];
    for (sum, sums) in [("f32", F32), ("f16", F16)] {
        for (a, left) in eight {
            all.extend(eight.map(|(b, right)| ([sum, a, b], [left, right, sums])));
        }
    }
    for a in ["s8", "u8"] {
        all.extend(["s8", "u8"].map(|b| (["s32", a, b], [Bits, Bits, Bits])));
    }
    all
}

/// How a factor lies in shared memory.
#[derive(Clone, Copy)]
pub struct Image {
    row: u64,
    leading: u64,
    stride: u64,
    lines: u64,
    step: u64,
    bytes: usize,
}

impl Image {
    fn parse(text: &str) -> Image {
        let fields: Vec<u64> = text.split(':').map(|field| field.parse().unwrap()).collect();
        let [row, leading, stride, lines, step, bytes] = *fields else { panic!("{text}") };
        Image { row, leading, stride, lines, step, bytes: bytes as usize }
    }

    /// All but the start.
    fn descriptor(self) -> u64 {
        let code = match self.row {
            128 => 1,
            64 => 2,
            32 => 3,
            _ => 0,
        };
        code << 62 | (self.stride / 16) << 32 | (self.leading / 16) << 16
    }
}

pub struct Form {
    pub name: String,
    number: u64,
    pub types: [&'static str; 3],
    elements: [Element; 3],
    saturate: bool,
    pub tiles: usize,
    n: usize,
    steps: usize,
    scale_d: u32,
    scales: [String; 2],
    pub left: Option<Image>,
    right: Image,
}

pub fn bits(factor: &str) -> usize {
    match factor {
        "tf32" => 32,
        "bf16" | "f16" => 16,
        _ => 8,
    }
}

pub fn forms() -> Vec<Form> {
    let mut forms = Vec::new();
    for (t, (types, elements)) in types().into_iter().enumerate() {
        for (v, line) in VARIANTS.lines().filter(|line| !line.starts_with('#')).enumerate() {
            let fields: Vec<&str> = line.split('\t').collect();
            let [variant, families, tiles, n, steps, scale_d, scale_a, scale_b, left, right] =
                *fields
            else {
                panic!("{line}")
            };
            let integer = types[0] == "s32";
            let exists = match families {
                "half" => bits(types[1]) == 16,
                "float" => !integer,
                "int" => integer,
                _ => true,
            };
            if !exists {
                continue;
            }
            let saturate = variant == "saturate";
            let number = |field: &str| field.parse::<usize>().unwrap();
            forms.push(Form {
                name: format!("{}/{variant}", types.join(".")),
                number: (t * 32 + v) as u64,
                types,
                elements: if saturate { [Bits, Bits, High] } else { elements },
                saturate,
                tiles: number(tiles),
                n: number(n),
                steps: number(steps),
                scale_d: number(scale_d) as u32,
                scales: [scale_a.to_owned(), scale_b.to_owned()],
                left: (left != "regs").then(|| Image::parse(left)),
                right: Image::parse(right),
            });
        }
    }
    forms
}

fn lines(count: usize, line: impl Fn(usize) -> String) -> String {
    (0..count).map(line).collect::<Vec<_>>().join("\n    ")
}

fn registers(name: &str, range: std::ops::Range<usize>) -> String {
    let list: Vec<String> = range.map(|r| format!("%{name}{r}")).collect();
    format!("{{{}}}", list.join(", "))
}

impl Form {
    fn sums(&self) -> usize {
        self.n / if self.types[0] == "f16" { 4 } else { 2 }
    }

    /// Words of A in registers of one thread.
    fn loaded(&self) -> usize {
        if self.left.is_some() { 0 } else { 4 * self.steps }
    }

    fn product(&self, step: usize) -> String {
        let width = bits(self.types[1]);
        let saturate = if self.saturate { ".satfinite" } else { "" };
        let mut text = format!(
            "wgmma.mma_async.sync.aligned.m64n{}k{}{saturate}.{} {}, ",
            self.n,
            256 / width,
            self.types.join("."),
            registers("d", 0..self.sums())
        );
        match self.left {
            Some(_) => text += &format!("%left{step}"),
            None => text += &registers("a", 4 * step..4 * step + 4),
        }
        let _ = write!(text, ", %right{step}, %p{}", if step == 0 { 1 } else { 2 });
        if self.types[0] != "s32" {
            let _ = write!(text, ", {}", self.scales.join(", "));
        }
        if width == 16 {
            let _ = self.left.map(|left| write!(text, ", {}", left.lines));
            let _ = write!(text, ", {}", self.right.lines);
        }
        text + ";"
    }

    fn ptx(&self) -> String {
        let descriptors = |name: &str, start: &str, image: Image| {
            lines(self.steps, |s| {
                let descriptor = image.descriptor() + image.step / 16 * s as u64;
                format!("add.u64 %{name}{s}, {start}, {descriptor:#x};")
            })
        };
        let left = self.left.map(|image| descriptors("left", "%x4", image)).unwrap_or_default();
        let (copied, sums) = (self.left.map_or(0, |image| image.bytes), self.sums());
        let load =
            |r: usize, to: &str, from: &str| format!("ld.global.b32 %{to}{r}, [{from}+{}];", 4 * r);
        KERNEL
            .replace("LEFT_IMAGE", &self.left.map_or(1024, |image| image.bytes).to_string())
            .replace("LEFT_COPIED", &copied.to_string())
            .replace("RIGHT_IMAGE", &self.right.bytes.to_string())
            .replace("LEFT_BYTES", &(4 * self.loaded()).to_string())
            .replace("SUM_BYTES", &(4 * sums).to_string())
            .replace("LOAD_LEFT", &lines(self.loaded(), |r| load(r, "a", "%x4")))
            .replace("LOAD_SUMS", &lines(sums, |r| load(r, "d", "%x2")))
            .replace(
                "STORE_SUMS",
                &lines(sums, |r| format!("st.global.b32 [%x3+{}], %d{r};", 4 * r)),
            )
            .replace("DESCRIPTORS", &(left + "\n    " + &descriptors("right", "%x5", self.right)))
            .replace("SCALE_D", &self.scale_d.to_string())
            .replace("PRODUCTS", &lines(self.steps, |s| self.product(s)))
    }

    /// The words of an operand, tile after tile: registers thread after thread, or an image.
    fn words(&self, operand: usize) -> Vec<u32> {
        let registers = [self.loaded(), 0, self.sums()][operand];
        let image = [self.left, Some(self.right), None][operand];
        let count = image.map_or(128 * registers, |image| image.bytes / 4);
        let mut words = Vec::with_capacity(self.tiles * count);
        for tile in 0..self.tiles {
            for word in 0..count {
                let place = (operand << 44 | tile << 24 | word << 4) as u64;
                let key = self.number << 48 | place;
                words.push(drawn::word(self.elements[operand], key, tile, operand));
            }
        }
        words
    }

    fn run(&self) -> Result<Vec<u32>, Stop> {
        let module = Module::parse(&self.ptx()).unwrap_or_else(|e| panic!("{}: {e}", self.name));
        let mut memory = Memory::new();
        let mut parameters = Parameters::default();
        for (operand, name) in ["a", "b", "c"].iter().enumerate() {
            let buffer = input(&mut memory, name, &bytes32(&self.words(operand)));
            parameters = parameters.u64(memory.address(buffer, 0));
        }
        let d = output(&mut memory, "d", (self.tiles * 512 * self.sums()) as u64);
        let parameters = parameters.u64(memory.address(d, 0)).0;
        let grid = [self.tiles as u32, 1, 1];
        go(&module, &mut memory, "form", grid, [128, 1, 1], &parameters, &Options::default())?;
        Ok(words(&memory, d))
    }
}

/// What differs, kind by kind, and the first differing word that is stored.
pub fn differences(form: &Form, golden: &SafeTensors<'_>) -> Vec<String> {
    let tensor = |part: &str| golden.tensor(&format!("{}/{part}", form.name)).ok();
    let stored = tensor("digest").unwrap_or_else(|| panic!("{} is not stored", form.name));
    let digests: Vec<u64> =
        stored.data().as_chunks::<8>().0.iter().map(|b| u64::from_le_bytes(*b)).collect();
    let got = match form.run() {
        Ok(words) => words,
        Err(stop) => return vec![format!("{}: {stop}", form.name)],
    };
    let per_tile = 128 * form.sums();
    assert_eq!((got.len(), digests.len()), (form.tiles * per_tile, form.tiles), "{}", form.name);
    let mut wrong = [0; KINDS.len()];
    for (tile, words) in got.chunks_exact(per_tile).enumerate() {
        wrong[tile % KINDS.len()] += usize::from(digest(words) != digests[tile]);
    }
    let some = KINDS.iter().zip(wrong).filter(|(_, wrong)| *wrong > 0);
    let count = form.tiles / KINDS.len();
    let mut list: Vec<String> =
        some.map(|(kind, n)| format!("{}: {n} of {count} tiles, {kind}", form.name)).collect();
    if let Some(stored) = tensor("d") {
        let stored = stored.data().as_chunks::<4>().0;
        assert_eq!(stored.len(), FULL * per_tile, "{}", form.name);
        let theirs = stored.iter().map(|bytes| u32::from_le_bytes(*bytes));
        let first = got.iter().zip(theirs).enumerate().find(|(_, (ours, theirs))| *ours != theirs);
        list.extend(first.map(|(at, (ours, theirs))| {
            let (tile, thread) = (at / per_tile, at % per_tile / form.sums());
            let register = at % form.sums();
            format!("tile {tile}, thread {thread}, register {register}: machine {ours:08x}, H200 {theirs:08x}")
        }));
    }
    list
}

/// What the hardware answered.
pub fn golden<T>(read: impl FnOnce(&SafeTensors<'_>) -> T) -> T {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../corpora/golden/wgmma_h200.safetensors");
    let file = std::fs::read(path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let golden = SafeTensors::deserialize(&file).expect("a safetensors file");
    assert_eq!(golden.names().len(), forms().len() + types().len());
    read(&golden)
}
