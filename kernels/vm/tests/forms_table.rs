//! Every instruction form on operands at the edges, against answers computed apart (`forms`) or an
//! H200's. The outcome is the table in `CONFORMANCE.md`, which is part of the crate's
//! documentation: `PTX_VM_WRITE_TABLE=1 cargo test -p ptx-vm --test forms_table` writes it anew.

mod flushes;
mod forms;
mod support;
mod warpgroups;

use forms::Form;
use ptx_vm::{Memory, Module, Options};
use safetensors::SafeTensors;
use std::collections::HashMap;
use std::fmt::Write;
use support::{Parameters, bytes32, go, input, output, products, words};

fn run(form: &Form) -> Result<Vec<u64>, String> {
    let module = Module::parse(&form.text()).map_err(|error| error.to_string())?;
    let mut memory = Memory::new();
    let x = input(&mut memory, "x", &operand_bytes(form));
    let d = output(&mut memory, "d", form.operands.len() as u64 * 8);
    let parameters = Parameters::default().u64(memory.address(x, 0)).u64(memory.address(d, 0)).0;
    let grid = [(form.operands.len() / 32) as u32, 1, 1];
    go(&module, &mut memory, "t", grid, [32, 1, 1], &parameters, &Options::default())
        .map_err(|stop| stop.to_string())?;
    let out = words(&memory, d);
    Ok(out.as_chunks::<2>().0.iter().map(|[a, b]| u64::from(*a) | u64::from(*b) << 32).collect())
}

/// One row of the table.
struct Row {
    name: String,
    cases: usize,
    basis: &'static str,
    outcome: String,
}

impl Row {
    fn of_hardware(name: &str, cases: usize, wrong: usize) -> Row {
        let outcome = if wrong == 0 { "equal".to_owned() } else { format!("{wrong} differ") };
        Row { name: name.to_owned(), cases, basis: "H200", outcome }
    }
}

/// Failures, with the first operands of each.
#[derive(Default)]
struct Failures(String);

/// FNV-1a.
fn digest(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |state, byte| {
        (state ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

fn operand_bytes(form: &Form) -> Vec<u8> {
    bytes32(form.operands.as_flattened())
}

/// Digests of an H200's results, by those of a form's text and operands: `hardware/forms.py` wrote them.
fn stored() -> HashMap<u64, u64> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../corpora/golden/forms_h200.tsv");
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let number = |field: &str| u64::from_str_radix(field, 16).expect("a digest");
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split('\t').collect::<Vec<_>>())
        .map(|fields| (number(fields[1]), number(fields[2])))
        .collect()
}

fn computed(failures: &mut Failures) -> Vec<Row> {
    let mut rows = Vec::new();
    let stored = stored();
    for form in forms::all() {
        let key = digest(form.text().into_bytes().into_iter().chain(operand_bytes(&form)));
        let mut basis = "computed apart";
        let want = form.expected();
        let outcome = match run(&form) {
            Err(why) => {
                let _ = writeln!(failures.0, "{}: {why}", form.name);
                why
            }
            Ok(got) => {
                let wrong: Vec<usize> = (0..want.len()).filter(|i| got[*i] != want[*i]).collect();
                if let Some(i) = wrong.first() {
                    let _ = writeln!(
                        failures.0,
                        "{}: {} wrong, first {:x?}: {:#x}, not {:#x}",
                        form.name,
                        wrong.len(),
                        form.operands[*i],
                        got[*i],
                        want[*i]
                    );
                }
                if let Some(answer) = stored.get(&key) {
                    basis = "computed apart, and H200";
                    if digest(got.iter().flat_map(|value| value.to_le_bytes())) != *answer {
                        let _ = writeln!(failures.0, "{}: an H200 has other results", form.name);
                    }
                }
                if wrong.is_empty() {
                    "equal".to_owned()
                } else {
                    format!("{} differ", wrong.len())
                }
            }
        };
        rows.push(Row { name: form.name, cases: want.len(), basis, outcome });
    }
    rows
}

fn tensor(file: &SafeTensors<'_>, name: &str) -> Vec<u32> {
    let view = file.tensor(name).unwrap();
    let data = view.data();
    match data.len() / view.shape().iter().product::<usize>().max(1) {
        1 => data.iter().map(|b| u32::from(*b)).collect(),
        2 => data.as_chunks::<2>().0.iter().map(|c| u16::from_le_bytes(*c).into()).collect(),
        4 => data.as_chunks::<4>().0.iter().map(|c| u32::from_le_bytes(*c)).collect(),
        _ => data.as_chunks::<8>().0.iter().map(|c| u64::from_le_bytes(*c) as u32).collect(),
    }
}

/// The error that the PTX ISA states for the hardware. The machine's own results are rounded values of
/// the functions, so that half a unit in the last place comes to it.
#[derive(Clone, Copy)]
enum Bound {
    /// An absolute error of two to this power.
    Absolute(f64),
    /// A relative one.
    Relative(f64),
}

impl Bound {
    fn holds(self, got: u32, want: u32) -> bool {
        let [a, b] = [got, want].map(|bits| f64::from(f32::from_bits(bits)));
        let rounding = a.abs() * 2f64.powi(-24) + 2f64.powi(-150);
        if got == want {
            return true;
        }
        if a.is_nan() || b.is_nan() {
            return false;
        }
        match self {
            Bound::Absolute(power) => (a - b).abs() <= 2f64.powf(power) + rounding,
            Bound::Relative(power) => (a - b).abs() <= 2f64.powf(power) * a.abs() + rounding,
        }
    }

    fn text(self) -> String {
        match self {
            Bound::Absolute(power) => format!("within 2^{power}"),
            Bound::Relative(power) => format!("within 2^{power} of it"),
        }
    }
}

/// Operands for which the PTX ISA states an error, and what the machine and the hardware differ by there;
/// without a bound, where it states none.
struct Range {
    text: &'static str,
    holds: fn(f32) -> bool,
    bound: Option<Bound>,
}

const ELSEWHERE: Range = Range { text: "elsewhere", holds: |_| true, bound: None };

fn positive(x: f32) -> bool {
    x > 0.0 && x.is_finite()
}

/// The approximate functions that are not the hardware's to the bit, and their ranges, of which the
/// first that holds counts.
fn approximate() -> Vec<(&'static str, &'static str, Vec<Range>)> {
    use std::f32::consts::TAU;
    let range = |text, holds, bound| Range { text, holds, bound: Some(bound) };
    let circle = || {
        vec![
            range("\\|x\\| ≤ 2π", |x| x.abs() <= TAU, Bound::Absolute(-20.5)),
            range("2π < \\|x\\| ≤ 100π", |x| x.abs() <= 50.0 * TAU, Bound::Absolute(-14.7)),
            ELSEWHERE,
        ]
    };
    let root = vec![range("0 < x < ∞", positive, Bound::Relative(-23.0)), ELSEWHERE];
    let logarithm = vec![
        range("½ < x < 2", |x| x > 0.5 && x < 2.0, Bound::Absolute(-22.0)),
        range("other 0 < x < ∞", positive, Bound::Relative(-22.0)),
        ELSEWHERE,
    ];
    let tangent = vec![range("finite x", f32::is_finite, Bound::Relative(-11.0)), ELSEWHERE];
    vec![
        ("sqrt.approx.f32", "unary.sqrt_approx", root),
        ("lg2.approx.f32", "unary.lg2_approx", logarithm),
        ("sin.approx.f32", "unary.sin_approx", circle()),
        ("cos.approx.f32", "unary.cos_approx", circle()),
        ("tanh.approx.f32", "unary.tanh_approx", tangent),
    ]
}

/// What the machine makes of the file's operands, and what the hardware did.
struct Measured {
    x: Vec<u32>,
    got: Vec<u32>,
    want: Vec<u32>,
}

fn measured(file: &SafeTensors<'_>, name: &str, key: &str) -> Measured {
    let (a, b, sources) = match key.split('.').next() {
        Some("unary") => (tensor(file, "unary.x"), tensor(file, "unary.x"), "%f1"),
        _ => (tensor(file, "binary.a"), tensor(file, "binary.b"), "%f1, %f2"),
    };
    let want = tensor(file, key);
    let operands: Vec<_> = a.iter().zip(&b).map(|(a, b)| [*a, *b, 0, 0]).collect();
    let code = format!("{name} %f3, {sources};mov.b32 %r3, %f3;");
    let got = run(&Form::each(name, code, &operands, |_| 0))
        .unwrap_or_else(|why| panic!("{name}: {why}"));
    let got = got.into_iter().take(want.len()).map(|value| value as u32).collect();
    Measured { x: a, got, want }
}

/// How often results are the hardware's to the bit, range by range.
fn rates(failures: &mut Failures, name: &str, all: &Measured, ranges: &[Range]) -> String {
    let mut text = Vec::new();
    let of = |x: u32| ranges.iter().position(|range| (range.holds)(f32::from_bits(x)));
    for (number, range) in ranges.iter().enumerate() {
        let cases: Vec<usize> =
            (0..all.want.len()).filter(|i| of(all.x[*i]) == Some(number)).collect();
        let equal = cases.iter().filter(|i| all.got[**i] == all.want[**i]).count();
        let bound = range.bound.map_or(String::new(), |bound| bound.text() + ", ");
        let rate = 100.0 * equal as f64 / cases.len() as f64;
        text.push(format!("{}: {bound}{equal} of {} equal ({rate:.1} %)", range.text, cases.len()));
        let holds = |i: &usize| range.bound.is_none_or(|b| b.holds(all.got[*i], all.want[*i]));
        if let Some(i) = cases.iter().find(|i| !holds(i)) {
            let _ = writeln!(
                failures.0,
                "{name}, {}: {:#x}: {:#x}, not {:#x}",
                range.text, all.x[*i], all.got[*i], all.want[*i]
            );
        }
    }
    text.join("; ")
}

fn hardware(failures: &mut Failures) -> Vec<Row> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../corpora/golden/h200.safetensors");
    let bytes = std::fs::read(path).expect("the golden vectors are in corpora/golden");
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut rows = Vec::new();
    for (name, key) in [
        ("ex2.approx.f32", "unary.ex2_approx"),
        ("ex2.approx.ftz.f32", "unary.ex2_approx_ftz"),
        ("rcp.approx.f32", "unary.rcp_approx"),
        ("rcp.approx.ftz.f32", "unary.rcp_approx_ftz"),
        ("rsqrt.approx.f32", "unary.rsqrt_approx"),
        ("div.approx.f32", "binary.div_approx"),
        ("div.full.f32", "binary.div_full"),
        ("div.rn.f32", "binary.div_rn"),
        ("min.f32", "binary.min_f32"),
        ("max.NaN.f32", "binary.max_nan"),
        ("add.ftz.f32", "binary.add_ftz"),
        ("add.sat.f32", "binary.add_sat"),
        ("mul.f32", "binary.mul_f32"),
    ] {
        let Measured { x, got, want } = measured(&file, name, key);
        let wrong: Vec<usize> = (0..want.len()).filter(|i| got[*i] != want[*i]).collect();
        if let Some(i) = wrong.first() {
            let (n, x, got, want) = (wrong.len(), x[*i], got[*i], want[*i]);
            let _ =
                writeln!(failures.0, "{name}: {n} wrong, first {x:#x}: {got:#x}, not {want:#x}");
        }
        rows.push(Row::of_hardware(name, want.len(), wrong.len()));
    }
    for (name, key, ranges) in approximate() {
        let all = measured(&file, name, key);
        let outcome = rates(failures, name, &all, &ranges);
        rows.push(Row { name: name.to_owned(), cases: all.want.len(), basis: "H200", outcome });
    }
    for (family, form, per_lane) in [
        ("bf16", "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", [4, 2, 4]),
        ("f16", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", [4, 2, 4]),
        ("f16_f16acc", "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", [4, 2, 2]),
        ("tf32", "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", [4, 2, 4]),
        ("e4m3", "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", [4, 2, 4]),
        ("e5m2", "mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32", [4, 2, 4]),
        ("s8", "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", [4, 2, 4]),
    ] {
        let part = |part: &str| tensor(&file, &format!("mma_{family}.{part}"));
        let want = part("d");
        let got = products(form, per_lane, [&part("a"), &part("b"), &part("c")]).unwrap();
        let wrong = got.iter().zip(&want).filter(|(a, b)| a != b).count();
        if wrong != 0 {
            let _ = writeln!(failures.0, "{form}: {wrong} of {} words differ", want.len());
        }
        rows.push(Row::of_hardware(form, want.len(), wrong));
    }
    rows
}

/// Results about the least normal number.
fn flushed(failures: &mut Failures) -> Vec<Row> {
    let all = flushes::compared().into_iter();
    all.map(|(form, wrong)| {
        failures.0.extend(wrong.first().map(|first| format!("{first}\n")));
        let name = format!("{}, about the least normal number", form.instruction);
        Row::of_hardware(&name, flushes::CASES, wrong.len())
    })
    .collect()
}

/// `wgmma`, by types and where the left factor is; the cases are products of 64 lines. `tests/wgmma.rs`
/// runs them, and fails where a word is not the hardware's.
fn warpgroup() -> Vec<Row> {
    let forms = warpgroups::forms();
    let mut rows = Vec::new();
    for (types, _) in warpgroups::types() {
        for (registers, place) in [(true, "registers"), (false, "shared memory")] {
            let of =
                |form: &&warpgroups::Form| form.types == types && form.left.is_none() == registers;
            let name = format!(
                "wgmma.mma_async.sync.aligned.m64nNk{}.{}, A in {place}",
                256 / warpgroups::bits(types[1]),
                types.join(".")
            );
            let cases = forms.iter().filter(of).map(|form| form.tiles).sum();
            let basis = "H200, in `tests/wgmma.rs`";
            rows.push(Row { name, cases, basis, outcome: "equal".to_owned() });
        }
    }
    rows
}

const HEAD: &str = "\
Instruction forms and how far their results are known to be right. Each form runs as a kernel of its \
own on operands at the edges: zeros of both signs, subnormal, largest and infinite numbers, no number, \
bounds of integers, shifts past the width. *Computed apart*: the answer comes from whole numbers of any \
size in the test, no line of which the machine shares. *H200*: the answer is what an NVIDIA H200 returned. \
*Computed apart, and H200*: both are the machine's to the bit on every case (digests of the H200's \
results, measured 2026-11-30: `corpora/golden/forms_h200.tsv`). *H200* alone: vectors in \
`corpora/golden/h200.safetensors`; where results are not equal, the row has, range by range of the \
operand as the PTX ISA states errors, the error that it states there, within which (and half a unit of rounding) all cases were, and the rate of those that are the \
hardware's to the bit. Left out: quotients by zero, and integers of no \
number, which the PTX ISA leaves open. `wgmma` is compared with an H200 in \
`tests/wgmma.rs`: all 16 combinations of types, factors in registers and in shared memory with every swizzle, \
stride and order, five widths, chains of k, signs, saturation, 27,084 products of any bits, subnormals, \
specials and overflows among them, all equal (digests measured 2026-11-30: \
`corpora/golden/wgmma_h200.safetensors`). Results about the least normal number, with `.ftz` and without, \
512 operands each of 54 forms in `tests/flush.rs`, all equal \
(`corpora/golden/flush_h200.safetensors`): `.ftz` judges a product by its value rounded to a normal number's bits, a quotient of `div` or `rcp` before it is rounded. The memory order of \
`mbarrier` and bulk copies is in `tests/mbarrier.rs`, that of `wgmma` in `tests/asynchrony.rs`. \
Tensor copies (`cp.async.bulk.tensor` and `cp.reduce.async.bulk.tensor`, 1d to 5d, of every type, in \
every swizzle, at every edge: 347 cases in `tests/tensor_golden.rs`) and clusters (their registers, \
`mapa`, `getctarank`, `isspacep`, `barrier.cluster`, loads, stores and atomics of \
`.shared::cluster`, `st.async`, `red.async`, remote arrivals, `cp.async.bulk` between blocks and to \
many: 41 launches in `tests/cluster.rs`) give the H200's bytes (measured 2026-11-30, \
`tests/hardware/hopper.py`).

`PTX_VM_WRITE_TABLE=1 cargo test --release -p ptx-vm --test forms_table` writes this page.

| form | cases | against | result |
|---|---|---|---|
";

#[test]
fn every_form_gives_its_answer_and_the_table_says_so() {
    let mut failures = Failures::default();
    let mut rows = hardware(&mut failures);
    rows.extend(flushed(&mut failures));
    rows.extend(warpgroup());
    rows.extend(computed(&mut failures));
    let mut table = HEAD.to_owned();
    let mut list = String::new();
    for Row { name, cases, basis, outcome } in &rows {
        let name = name.replace('|', "\\|");
        let _ = writeln!(list, "{name:60} {cases:5} {basis:24} {outcome}");
        let _ = writeln!(table, "| `{name}` | {cases} | {basis} | {outcome} |");
    }
    // Past the harness, which would keep what a test that passes prints.
    let _ = std::io::Write::write_all(&mut std::io::stdout(), list.as_bytes());
    assert!(failures.0.is_empty(), "{}", failures.0);
    assert!(rows.len() > 400, "{} forms", rows.len());
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/CONFORMANCE.md");
    if std::env::var_os("PTX_VM_WRITE_TABLE").is_some() {
        std::fs::write(path, &table).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == table,
        "{path} is not what this test finds; its documentation says how to write it"
    );
}

/// For `hardware/forms.py`: every form's text and operands, in the folder that the variable names.
#[test]
fn forms_can_be_carried_to_a_gpu() {
    let forms = forms::all();
    let names: Vec<&str> = forms.iter().map(|form| form.name.as_str()).collect();
    assert!(names.iter().all(|name| !name.contains(['\t', '\n'])), "a name is one field of a line");
    let Some(folder) = std::env::var_os("PTX_VM_DUMP_FORMS").map(std::path::PathBuf::from) else {
        return;
    };
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("names"), names.join("\n")).unwrap();
    for (number, form) in forms.iter().enumerate() {
        std::fs::write(folder.join(format!("{number}.ptx")), form.text()).unwrap();
        std::fs::write(folder.join(format!("{number}.operands")), operand_bytes(form)).unwrap();
    }
}

#[test]
fn a_wrong_answer_shows() {
    let form = Form::each("add.u32", "add.u32 %r3, %r1, %r2;", &[[1, 2, 3, 4]], |[a, b, ..]| {
        u64::from(a - b.min(a))
    });
    assert_ne!(run(&form).unwrap(), form.expected());
    let missing = Form::each("vadd4", "vadd4.u32.u32.u32 %r3, %r1, %r2, %r4;", &[[0; 4]], |_| 0);
    assert!(run(&missing).is_err());
}
