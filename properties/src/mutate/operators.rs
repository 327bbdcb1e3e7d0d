//! The edits of one instruction, by kind: each gives PTX that is still well typed, so that an edit the
//! tests cannot see is a gap in them and not a compile error. Edits that change nothing by
//! construction (adding zero, swapping the factors of a product) are not made.

use super::listing::{Instruction, Site};
use std::fmt;

/// A kind of edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operator {
    /// `add` for `sub`, `and` for `or`, `shl` for `shr`.
    Arithmetic,
    /// The neighbouring or the opposite comparison.
    Comparison,
    /// The guard negated.
    Predicate,
    /// An integer literal one more or less; a float literal one more, a large one twice itself.
    Immediate,
    /// A factor for the addend of `fma` and `mad`.
    FmaOperands,
    /// `min` for `max`.
    MinMax,
    /// The arms of a `selp`.
    Select,
    /// Lane, direction or member mask of a warp exchange.
    Shuffle,
    /// A barrier or fence left out.
    Barrier,
    /// A copy group less awaited or not committed.
    CopyGroup,
    /// The address of an access, one element on or back.
    Offset,
    /// An access half as wide, or two lanes of a vector swapped.
    Width,
    /// Another direction of rounding in a conversion.
    Rounding,
    /// The address register of the access before.
    StaleAddress,
    /// A guarded instruction always or never executed.
    DeadPredicate,
}

impl Operator {
    /// Every operator.
    pub const ALL: [Operator; 15] = [
        Operator::Arithmetic,
        Operator::Comparison,
        Operator::Predicate,
        Operator::Immediate,
        Operator::FmaOperands,
        Operator::MinMax,
        Operator::Select,
        Operator::Shuffle,
        Operator::Barrier,
        Operator::CopyGroup,
        Operator::Offset,
        Operator::Width,
        Operator::Rounding,
        Operator::StaleAddress,
        Operator::DeadPredicate,
    ];

    /// Its word in tables and declarations.
    pub fn word(self) -> &'static str {
        match self {
            Operator::Arithmetic => "arithmetic",
            Operator::Comparison => "comparison",
            Operator::Predicate => "predicate",
            Operator::Immediate => "immediate",
            Operator::FmaOperands => "fma_operands",
            Operator::MinMax => "min_max",
            Operator::Select => "select",
            Operator::Shuffle => "shuffle",
            Operator::Barrier => "barrier",
            Operator::CopyGroup => "copy_group",
            Operator::Offset => "offset",
            Operator::Width => "width",
            Operator::Rounding => "rounding",
            Operator::StaleAddress => "stale_address",
            Operator::DeadPredicate => "dead_predicate",
        }
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// One edit: the line that stands in the old one's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// Its kind.
    pub operator: Operator,
    /// The new line.
    pub now: String,
}

/// Every edit of the site at this place among all sites of a module. No two give the same line.
pub fn edits(sites: &[Site<'_>], at: usize) -> Vec<Edit> {
    let site = &sites[at];
    let mut edits = Edits { instruction: &site.instruction, found: Vec::new() };
    edits.guard();
    edits.opcode();
    edits.operands(is_exchange_lane(site, &sites[at + 1..]));
    edits.access(site, &sites[..at]);
    edits.synchronisation();
    edits.found
}

struct Edits<'s, 'a> {
    instruction: &'s Instruction<'a>,
    found: Vec<Edit>,
}

impl Edits<'_, '_> {
    fn push(&mut self, operator: Operator, now: String) {
        let old = self.write(self.instruction.opcode, &self.operands_as_written());
        if now != old && self.found.iter().all(|edit| edit.now != now) {
            self.found.push(Edit { operator, now });
        }
    }

    fn operands_as_written(&self) -> Vec<String> {
        self.instruction.operands.iter().map(|&operand| operand.to_owned()).collect()
    }

    fn write(&self, opcode: &str, operands: &[String]) -> String {
        self.instruction.write(self.instruction.guard, opcode, operands)
    }

    fn with_opcode(&mut self, operator: Operator, opcode: &str) {
        let now = self.write(opcode, &self.operands_as_written());
        self.push(operator, now);
    }

    fn with_operand(&mut self, operator: Operator, at: usize, operand: String) {
        let mut operands = self.operands_as_written();
        operands[at] = operand;
        let now = self.write(self.instruction.opcode, &operands);
        self.push(operator, now);
    }

    fn with_swapped(&mut self, operator: Operator, first: usize, second: usize) {
        let mut operands = self.operands_as_written();
        if operands.len() > first.max(second) {
            operands.swap(first, second);
            let now = self.write(self.instruction.opcode, &operands);
            self.push(operator, now);
        }
    }

    fn guard(&mut self) {
        let Some((name, negated)) = self.instruction.guard else { return };
        let (opcode, operands) = (self.instruction.opcode, self.operands_as_written());
        let inverted = self.instruction.write(Some((name, !negated)), opcode, &operands);
        self.push(Operator::Predicate, inverted);
        let always = self.instruction.write(None, opcode, &operands);
        self.push(Operator::DeadPredicate, always);
        self.push(Operator::DeadPredicate, self.instruction.removed());
    }

    fn opcode(&mut self) {
        let opcode = self.instruction.opcode;
        let mnemonic = self.instruction.mnemonic();
        let rest = &opcode[mnemonic.len()..];
        let is_float = [".f32", ".f64", ".f16", ".bf16", ".f16x2", ".bf16x2"]
            .iter()
            .any(|ty| opcode.ends_with(ty));
        match mnemonic {
            "add" | "sub" | "and" | "or" | "xor" | "shl" | "shr" | "div" | "rem" => {
                if let Some(other) = arithmetic(mnemonic, rest) {
                    self.with_opcode(Operator::Arithmetic, &other);
                }
            }
            // A product of integers is `mul.lo` or `mul.wide`, whose operands no sum takes alike.
            "mul" if is_float => self.with_opcode(Operator::Arithmetic, &format!("add{rest}")),
            "mul" if rest.starts_with(".lo.") => {
                self.with_opcode(Operator::Arithmetic, &format!("add{}", &rest[3..]));
            }
            "neg" | "not" | "abs" => {
                let ty = opcode.rsplit('.').next().unwrap_or("");
                if !matches!(ty, "f16x2" | "bf16x2" | "f16" | "bf16") {
                    self.with_opcode(Operator::Arithmetic, &format!("mov.{ty}"));
                }
            }
            "min" => self.with_opcode(Operator::MinMax, &format!("max{rest}")),
            "max" => self.with_opcode(Operator::MinMax, &format!("min{rest}")),
            "selp" => self.with_swapped(Operator::Select, 1, 2),
            "fma" | "mad" if !rest.starts_with(".wide") => {
                self.with_swapped(Operator::FmaOperands, 2, 3);
                self.with_swapped(Operator::FmaOperands, 1, 3);
            }
            "setp" | "set" => {
                let mut parts = opcode.split('.');
                let (head, comparison) = (parts.next(), parts.next());
                let tail: Vec<&str> = parts.collect();
                for other in comparison.map(comparisons).unwrap_or_default() {
                    let opcode = format!("{}.{other}.{}", head.unwrap_or(""), tail.join("."));
                    self.with_opcode(Operator::Comparison, &opcode);
                }
            }
            "cvt" => {
                for (from, to) in [("rn", "rz"), ("rz", "rn"), ("rm", "rp"), ("rp", "rm")]
                    .into_iter()
                    .chain([("rzi", "rpi"), ("rni", "rzi"), ("rmi", "rpi"), ("rpi", "rmi")])
                {
                    if self.instruction.has(from) {
                        let opcode = opcode.replacen(&format!(".{from}."), &format!(".{to}."), 1);
                        self.with_opcode(Operator::Rounding, &opcode);
                        break;
                    }
                }
            }
            _ => {}
        }
    }

    /// Literals among the operands; not those whose value the encoding restricts. One more than the
    /// lane distance of a butterfly exchanges the same lanes in another order, and one more than the
    /// last shift of a sign is clamped to it.
    fn operands(&mut self, is_lane_distance: bool) {
        let mnemonic = self.instruction.mnemonic();
        let is_restricted = matches!(
            mnemonic,
            "bra" | "bar" | "barrier" | "ret" | "shfl" | "redux" | "vote" | "cp"
        );
        if is_restricted {
            return;
        }
        for (at, operand) in self.instruction.operands.iter().enumerate().skip(1) {
            if let Some(bits) = float32(operand) {
                let value = f32::from_bits(bits);
                // One more than a large number rounds to it in a narrow type.
                let other = if value.abs() < 1024.0 { value + 1.0 } else { 2.0 * value };
                self.with_operand(Operator::Immediate, at, format!("0f{:08X}", other.to_bits()));
            } else if let Ok(value) = operand.parse::<i64>() {
                let is_divisor = matches!(mnemonic, "div" | "rem");
                let is_sign = match self.instruction.opcode {
                    "shr.s32" => value == 31,
                    "shr.s64" => value == 63,
                    _ => false,
                };
                let more = value.checked_add(1).filter(|_| !is_lane_distance && !is_sign);
                for other in [more, value.checked_sub(1)].into_iter().flatten() {
                    if !(is_divisor && other == 0) && fits(other, self.instruction.opcode) {
                        self.with_operand(Operator::Immediate, at, other.to_string());
                    }
                }
            }
        }
    }

    /// Offsets, widths and registers of loads and stores.
    fn access(&mut self, site: &Site<'_>, earlier: &[Site<'_>]) {
        let instruction = self.instruction;
        let Some((at, base, offset)) = address(instruction) else { return };
        if instruction.has("param") {
            return;
        }
        let element = element_bytes(instruction);
        for other in [offset + element, offset - element] {
            self.with_operand(Operator::Offset, at, written_address(base, other));
        }
        let value = if at == 0 { 1 } else { 0 };
        let is_plain = matches!(instruction.mnemonic(), "ld" | "st");
        if let Some(list) = instruction.operands.get(value).filter(|_| is_plain)
            && let Some(inner) = list.strip_prefix('{').and_then(|list| list.strip_suffix('}'))
        {
            let mut lanes: Vec<&str> = inner.split(',').map(str::trim).collect();
            if lanes.len() > 1 {
                lanes.swap(0, 1);
                self.with_operand(Operator::Width, value, format!("{{{}}}", lanes.join(", ")));
            }
        } else if is_plain {
            for (from, to) in [("32", "16"), ("64", "32"), ("16", "8")] {
                // A register of bits or integers may be wider than what is accessed.
                if let Some(kind) = ["u", "s", "b"]
                    .iter()
                    .find(|kind| instruction.opcode.ends_with(&format!(".{kind}{from}")))
                {
                    let cut = instruction.opcode.len() - from.len() - 1;
                    let opcode = format!("{}{kind}{to}", &instruction.opcode[..cut]);
                    self.with_opcode(Operator::Width, &opcode);
                    break;
                }
            }
        }
        if let Some(stale) = stale_address(site, base, earlier) {
            self.with_operand(Operator::StaleAddress, at, written_address(stale, offset));
        }
    }

    fn synchronisation(&mut self) {
        let instruction = self.instruction;
        let opcode = instruction.opcode;
        match instruction.mnemonic() {
            "bar" | "barrier" | "membar" | "fence"
                if !instruction.has("red") && !instruction.has("arrive") =>
            {
                self.push(Operator::Barrier, instruction.removed());
            }
            "cp" if instruction.has("commit_group") || instruction.has("wait_all") => {
                self.push(Operator::CopyGroup, instruction.removed());
            }
            "cp" if instruction.has("wait_group") => {
                if let Some(Ok(count)) = instruction.operands.first().map(|one| one.parse::<u32>())
                {
                    self.with_operand(Operator::CopyGroup, 0, (count + 1).to_string());
                }
                self.push(Operator::CopyGroup, instruction.removed());
            }
            "shfl" => {
                let other = |from: &str, to: &str| {
                    instruction.has(from).then(|| opcode.replacen(from, to, 1))
                };
                let direction = other("up", "down")
                    .or_else(|| other("down", "up"))
                    .or_else(|| other("bfly", "idx"))
                    .or_else(|| other("idx", "bfly"));
                if let Some(opcode) = direction {
                    self.with_opcode(Operator::Shuffle, &opcode);
                }
                self.lane(2);
                self.mask();
            }
            "redux" => {
                for (from, to) in [("max", "min"), ("min", "max"), ("add", "max"), ("and", "or")] {
                    if instruction.has(from) {
                        let opcode = opcode.replacen(&format!(".{from}."), &format!(".{to}."), 1);
                        self.with_opcode(Operator::MinMax, &opcode);
                        break;
                    }
                }
                self.mask();
            }
            "vote" => self.mask(),
            _ => {}
        }
    }

    /// The lane of an exchange where it is a literal.
    fn lane(&mut self, at: usize) {
        let lane = self.instruction.operands.get(at).and_then(|one| one.parse::<i64>().ok());
        for other in lane.into_iter().flat_map(|lane| [lane + 1, lane - 1]) {
            if (0..32).contains(&other) {
                self.with_operand(Operator::Shuffle, at, other.to_string());
            }
        }
    }

    /// The members of an exchange, without the last lane.
    fn mask(&mut self) {
        if let Some(last) = self.instruction.operands.len().checked_sub(1) {
            self.with_operand(Operator::Shuffle, last, "0x7fffffff".to_owned());
        }
    }
}

/// The opcode of another operation on the same operands.
fn arithmetic(mnemonic: &str, rest: &str) -> Option<String> {
    let other = match mnemonic {
        // Sums that carry have no difference that does.
        "add" | "sub" if rest.starts_with(".cc") => return None,
        "add" => "sub",
        "sub" => "add",
        "and" => "or",
        "or" | "xor" => "and",
        "shl" => {
            let bits = rest.trim_start_matches(".b");
            return Some(format!("shr.u{bits}"));
        }
        "shr" => {
            let bits = rest.trim_start_matches(['.', 'b', 'u', 's']);
            return Some(format!("shl.b{bits}"));
        }
        // A quotient of integers and its rest take the same operands.
        "rem" => "div",
        "div" if rest.contains(".f") => {
            let ty = rest.rsplit('.').next()?;
            return Some(format!("mul.{ty}"));
        }
        "div" => "rem",
        _ => return None,
    };
    Some(format!("{other}{rest}"))
}

/// The comparison that differs at equality, and the opposite one.
fn comparisons(word: &str) -> Vec<&'static str> {
    match word {
        "lt" => vec!["le", "ge"],
        "le" => vec!["lt", "gt"],
        "gt" => vec!["ge", "le"],
        "ge" => vec!["gt", "lt"],
        "eq" => vec!["ne"],
        "ne" => vec!["eq"],
        "lo" => vec!["ls", "hs"],
        "ls" => vec!["lo", "hi"],
        "hi" => vec!["hs", "ls"],
        "hs" => vec!["hi", "lo"],
        "ltu" => vec!["leu", "geu"],
        "leu" => vec!["ltu", "gtu"],
        "gtu" => vec!["geu", "leu"],
        "geu" => vec!["gtu", "ltu"],
        "equ" => vec!["neu"],
        "neu" => vec!["equ"],
        "num" => vec!["nan"],
        "nan" => vec!["num"],
        _ => Vec::new(),
    }
}

/// The bits of a literal such as `0f3F800000`.
fn float32(operand: &str) -> Option<u32> {
    let digits = operand.strip_prefix("0f").or_else(|| operand.strip_prefix("0F"))?;
    (digits.len() == 8).then(|| u32::from_str_radix(digits, 16).ok()).flatten()
}

/// Whether a literal is one of the instruction's type.
fn fits(value: i64, opcode: &str) -> bool {
    let ty = opcode.rsplit('.').next().unwrap_or("");
    match ty {
        "u16" | "s16" | "b16" => (-0x8000..=0xffff).contains(&value),
        "u32" | "s32" | "b32" => (-0x8000_0000..=0xffff_ffff).contains(&value),
        "pred" => false,
        _ => true,
    }
}

/// Whether a site loads the lane distance of the next butterfly exchange.
fn is_exchange_lane(site: &Site<'_>, later: &[Site<'_>]) -> bool {
    let [register, _] = site.instruction.operands[..] else { return false };
    if site.instruction.mnemonic() != "mov" {
        return false;
    }
    let exchange = later
        .iter()
        .take_while(|later| later.entry == site.entry && later.follows)
        .find(|later| later.instruction.operands.contains(&register));
    exchange.is_some_and(|later| {
        let instruction = &later.instruction;
        instruction.mnemonic() == "shfl"
            && instruction.has("bfly")
            && instruction.operands.get(2) == Some(&register)
    })
}

/// Where an access's address stands among its operands, its register and its offset.
fn address<'a>(instruction: &Instruction<'a>) -> Option<(usize, &'a str, i64)> {
    let is_access = matches!(
        instruction.mnemonic(),
        "ld" | "st" | "atom" | "red" | "ldmatrix" | "stmatrix" | "ldu"
    ) || (instruction.mnemonic() == "cp" && instruction.has("async"));
    if !is_access {
        return None;
    }
    let (at, inner) = instruction.operands.iter().enumerate().find_map(|(at, operand)| {
        Some((at, operand.strip_prefix('[')?.strip_suffix(']')?.trim()))
    })?;
    match inner.split_once('+') {
        Some((base, offset)) => Some((at, base.trim(), offset.trim().parse().ok()?)),
        None => Some((at, inner, 0)),
    }
}

fn written_address(base: &str, offset: i64) -> String {
    if offset == 0 { format!("[{base}]") } else { format!("[{base}+{offset}]") }
}

/// Bytes of one element of an access: what an offset is wrong by when it is wrong by one.
fn element_bytes(instruction: &Instruction<'_>) -> i64 {
    match instruction.mnemonic() {
        // A row of eight halves; the size of a copy is its third operand.
        "ldmatrix" | "stmatrix" => 16,
        "cp" => instruction.operands.get(2).and_then(|size| size.parse().ok()).unwrap_or(16),
        _ => {
            let ty = instruction.opcode.rsplit('.').next().unwrap_or("");
            let bits = ty.trim_start_matches(|c: char| c.is_ascii_alphabetic());
            let bits: i64 = bits.split('x').next().and_then(|bits| bits.parse().ok()).unwrap_or(32);
            let halves = if ty.ends_with("x2") { 2 } else { 1 };
            (bits * halves / 8).max(1)
        }
    }
}

/// The address register of the nearest access before, of the same state space and in the same run of
/// instructions, where it is another one.
fn stale_address<'a>(site: &Site<'_>, base: &str, earlier: &[Site<'a>]) -> Option<&'a str> {
    if !base.starts_with('%') || !site.follows {
        return None;
    }
    let space = space(&site.instruction);
    for before in earlier.iter().rev() {
        if before.entry != site.entry {
            return None;
        }
        if space_matches(&before.instruction, space)
            && let Some((_, other, _)) = address(&before.instruction)
            && other.starts_with('%')
            && other != base
        {
            return Some(other);
        }
        if !before.follows {
            return None;
        }
    }
    None
}

fn space(instruction: &Instruction<'_>) -> &'static str {
    ["shared", "global", "local"].into_iter().find(|space| instruction.has(space)).unwrap_or("")
}

fn space_matches(instruction: &Instruction<'_>, wanted: &str) -> bool {
    !instruction.has("param") && space(instruction) == wanted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutate::listing::Listing;

    /// The edits of the last instruction of these, as `operator: line`.
    fn shown(lines: &[&str]) -> Vec<String> {
        let text = format!(".visible .entry k(\n)\n{{\n{}\n}}\n", lines.join("\n"));
        let listing = Listing::of(&text);
        let sites = listing.sites();
        let last = sites.len() - 1;
        edits(&sites, last).iter().map(|edit| format!("{}: {}", edit.operator, edit.now)).collect()
    }

    #[track_caller]
    fn gives(lines: &[&str], expected: &[&str]) {
        let found = shown(lines);
        for wanted in expected {
            assert!(found.iter().any(|line| line == wanted), "{wanted} is not among {found:#?}");
        }
        assert_eq!(found.len(), expected.len(), "{found:#?}");
    }

    #[test]
    fn arithmetic_and_immediates() {
        gives(
            &["add.s32 %r1, %r2, 4;"],
            &[
                "arithmetic: sub.s32\t%r1, %r2, 4;",
                "immediate: add.s32\t%r1, %r2, 5;",
                "immediate: add.s32\t%r1, %r2, 3;",
            ],
        );
        gives(&["shl.b64 %rd1, %rd2, %r1;"], &["arithmetic: shr.u64\t%rd1, %rd2, %r1;"]);
        gives(&["shr.s32 %r1, %r2, %r3;"], &["arithmetic: shl.b32\t%r1, %r2, %r3;"]);
        gives(&["mul.f32 %f1, %f2, %f3;"], &["arithmetic: add.f32\t%f1, %f2, %f3;"]);
        gives(&["mul.lo.s64 %rd1, %rd2, %rd3;"], &["arithmetic: add.s64\t%rd1, %rd2, %rd3;"]);
        gives(&["div.rn.f32 %f1, %f2, %f3;"], &["arithmetic: mul.f32\t%f1, %f2, %f3;"]);
        gives(&["not.b32 %r1, %r2;"], &["arithmetic: mov.b32\t%r1, %r2;"]);
        gives(
            &["div.s32 %r1, %r2, 1;"],
            &["arithmetic: rem.s32\t%r1, %r2, 1;", "immediate: div.s32\t%r1, %r2, 2;"],
        );
        gives(&["mov.f32 %f1, 0f3F800000;"], &["immediate: mov.f32\t%f1, 0f40000000;"]);
        gives(&["mov.f32 %f1, 0f477FE000;"], &["immediate: mov.f32\t%f1, 0f47FFE000;"]);
    }

    #[test]
    fn comparisons_guards_and_selections() {
        gives(
            &["setp.lt.s32 %p1, %r1, %r2;"],
            &["comparison: setp.le.s32\t%p1, %r1, %r2;", "comparison: setp.ge.s32\t%p1, %r1, %r2;"],
        );
        gives(
            &["@%p1 bra $L1;"],
            &["predicate: @!%p1 bra\t$L1;", "dead_predicate: bra\t$L1;", "dead_predicate: "],
        );
        gives(&["selp.f32 %f1, %f2, %f3, %p1;"], &["select: selp.f32\t%f1, %f3, %f2, %p1;"]);
        gives(&["max.f32 %f1, %f2, %f3;"], &["min_max: min.f32\t%f1, %f2, %f3;"]);
    }

    #[test]
    fn fma_never_swaps_its_factors() {
        gives(
            &["fma.rn.f32 %f1, %f2, %f3, %f4;"],
            &[
                "fma_operands: fma.rn.f32\t%f1, %f2, %f4, %f3;",
                "fma_operands: fma.rn.f32\t%f1, %f4, %f3, %f2;",
            ],
        );
        gives(
            &["fma.rn.f32 %f1, %f2, %f3, %f3;"],
            &["fma_operands: fma.rn.f32\t%f1, %f3, %f3, %f2;"],
        );
    }

    #[test]
    fn exchanges_barriers_and_copies() {
        gives(
            &["shfl.sync.up.b32 %r1|%p1, %r2, 1, 0, -1;"],
            &[
                "shuffle: shfl.sync.down.b32\t%r1|%p1, %r2, 1, 0, -1;",
                "shuffle: shfl.sync.up.b32\t%r1|%p1, %r2, 2, 0, -1;",
                "shuffle: shfl.sync.up.b32\t%r1|%p1, %r2, 0, 0, -1;",
                "shuffle: shfl.sync.up.b32\t%r1|%p1, %r2, 1, 0, 0x7fffffff;",
            ],
        );
        gives(&["bar.sync 0;"], &["barrier: "]);
        gives(&["cp.async.commit_group;"], &["copy_group: "]);
        gives(
            &["cp.async.wait_group 1;"],
            &["copy_group: cp.async.wait_group\t2;", "copy_group: "],
        );
        gives(
            &["cvt.rn.bf16x2.f32 %r1, %f1, %f2;"],
            &["rounding: cvt.rz.bf16x2.f32\t%r1, %f1, %f2;"],
        );
        gives(&["cvt.f32.f16 %f1, %rs1;"], &[]);
    }

    #[test]
    fn edits_that_change_nothing_by_construction_are_not_made() {
        let text = ".visible .entry k(\n)\n{\nmov.u32 %r7, 16;\nmov.b32 %r5, %f1;\n\
                    shfl.sync.bfly.b32 %r9|%p1, %r5, %r7, %r6, %r8;\n}\n";
        let listing = Listing::of(text);
        let lines: Vec<_> = edits(&listing.sites(), 0).into_iter().map(|edit| edit.now).collect();
        assert_eq!(lines, ["mov.u32\t%r7, 15;"], "17, 8, 4, 2, 1 reach every lane too");
        gives(
            &["shr.s32 %r1, %r2, 31;"],
            &["arithmetic: shl.b32\t%r1, %r2, 31;", "immediate: shr.s32\t%r1, %r2, 30;"],
        );
    }

    #[test]
    fn accesses() {
        gives(
            &["ld.global.nc.u32 %r1, [%rd1+4];"],
            &[
                "offset: ld.global.nc.u32\t%r1, [%rd1+8];",
                "offset: ld.global.nc.u32\t%r1, [%rd1];",
                "width: ld.global.nc.u16\t%r1, [%rd1+4];",
            ],
        );
        gives(
            &["st.shared.v2.f32 [%r1+-8], {%f1, %f2};"],
            &[
                "offset: st.shared.v2.f32\t[%r1+-4], {%f1, %f2};",
                "offset: st.shared.v2.f32\t[%r1+-12], {%f1, %f2};",
                "width: st.shared.v2.f32\t[%r1+-8], {%f2, %f1};",
            ],
        );
        gives(
            &["cp.async.cg.shared.global [%r1], [%rd1], 16, %r2;"],
            &[
                "offset: cp.async.cg.shared.global\t[%r1+16], [%rd1], 16, %r2;",
                "offset: cp.async.cg.shared.global\t[%r1+-16], [%rd1], 16, %r2;",
            ],
        );
        gives(&["ld.param.u64 %rd1, [k_param_0];"], &[]);
    }

    #[test]
    fn an_address_goes_stale_only_within_a_run_and_a_space() {
        let stale = |lines: &[&str]| {
            shown(lines).into_iter().find(|line| line.starts_with("stale_address"))
        };
        let load = "ld.global.f32 %f2, [%rd2];";
        assert_eq!(
            stale(&["ld.global.f32 %f1, [%rd1];", "add.s64 %rd2, %rd1, 4;", load]),
            Some("stale_address: ld.global.f32\t%f2, [%rd1];".to_owned())
        );
        assert_eq!(stale(&["ld.shared.f32 %f1, [%rd1];", load]), None, "another space");
        assert_eq!(stale(&["ld.global.f32 %f1, [%rd1];", "$L1:", load]), None, "a label between");
        assert_eq!(stale(&["ld.global.f32 %f1, [%rd2];", load]), None, "the same register");
    }
}
