//! PTX text by line: which entry a line belongs to, which CUDA line it came from, and the one
//! instruction on it. A line is read only as far as an edit of it needs; what is not one plain
//! instruction is left alone.

use std::collections::BTreeMap;
use std::ops::Range;

/// A module's text with its entries.
pub struct Listing<'a> {
    lines: Vec<&'a str>,
    entries: Vec<Body<'a>>,
    files: BTreeMap<u32, &'a str>,
}

/// One entry's lines, its declaration included.
struct Body<'a> {
    name: &'a str,
    lines: Range<usize>,
}

/// A line of an entry that holds one instruction.
#[derive(Clone, Debug)]
pub struct Site<'a> {
    /// The entry.
    pub entry: &'a str,
    /// PTX line, from 1.
    pub line: u32,
    /// CUDA file as the compiler recorded it, and line.
    pub source: Option<(&'a str, u32)>,
    /// The instruction.
    pub instruction: Instruction<'a>,
    /// Whether control can only come here from the site before.
    pub follows: bool,
}

/// One instruction and what stands around it on its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instruction<'a> {
    /// Blanks and an opening brace of inline assembly.
    before: &'a str,
    /// The guarding predicate and whether it is negated.
    pub guard: Option<(&'a str, bool)>,
    /// With its modifiers: `ld.global.nc.v4.f32`.
    pub opcode: &'a str,
    /// As written, split at the commas outside brackets.
    pub operands: Vec<&'a str>,
    /// The semicolon, and a closing brace of inline assembly.
    after: &'a str,
}

impl<'a> Listing<'a> {
    /// Splits a module's text as NVRTC writes it: entries begin with `.entry` and end at a `}` of its
    /// own in the first column.
    pub fn of(text: &'a str) -> Listing<'a> {
        let lines: Vec<&str> = text.lines().collect();
        let (mut entries, mut files) = (Vec::new(), BTreeMap::new());
        let mut open: Option<(&str, usize)> = None;
        for (at, line) in lines.iter().enumerate() {
            if let Some((_, declared)) = line.split_once(".entry ").filter(|_| open.is_none()) {
                let name = declared.split(['(', ' ', '{']).next().unwrap_or(declared);
                open = Some((name, at));
            } else if line.starts_with('}')
                && let Some((name, first)) = open.take()
            {
                entries.push(Body { name, lines: first..at + 1 });
            } else if let Some(rest) = line.trim_start().strip_prefix(".file")
                && let Some((number, name)) = rest.trim().split_once(char::is_whitespace)
                && let Ok(number) = number.parse()
            {
                files.insert(number, name.trim().trim_matches('"'));
            }
        }
        Listing { lines, entries, files }
    }

    /// Every line with one instruction, in the order of the text.
    pub fn sites(&self) -> Vec<Site<'a>> {
        let mut sites = Vec::new();
        for body in &self.entries {
            let (mut source, mut follows) = (None, false);
            for at in body.lines.clone().skip(1) {
                let line = self.lines[at];
                if let Some(place) = location(line) {
                    source = Some(place).filter(|(_, line)| *line != 0);
                } else if line.trim_end().ends_with(':') {
                    follows = false;
                } else if let Some(instruction) = Instruction::read(line) {
                    let source =
                        source.and_then(|(file, line)| Some((*self.files.get(&file)?, line)));
                    let ends = instruction.opcode.starts_with("bra") || instruction.opcode == "ret";
                    let line = at as u32 + 1;
                    sites.push(Site { entry: body.name, line, source, instruction, follows });
                    follows = !ends;
                }
            }
        }
        sites
    }

    /// The text with this line in place of the one of that number, other entries than `entry` left
    /// blank. Line numbers stay.
    pub fn with_line(&self, entry: &str, line: u32, now: &str) -> String {
        let mut text = String::with_capacity(1 << 16);
        let mut bodies = self.entries.iter().peekable();
        for (at, old) in self.lines.iter().enumerate() {
            while bodies.next_if(|body| body.lines.end <= at).is_some() {}
            let is_other =
                bodies.peek().is_some_and(|body| body.lines.contains(&at) && body.name != entry);
            if at as u32 + 1 == line {
                text.push_str(now);
            } else if !is_other {
                text.push_str(old);
            }
            text.push('\n');
        }
        text
    }

    /// The line of that number, from 1.
    pub fn line(&self, line: u32) -> &'a str {
        self.lines.get((line as usize).wrapping_sub(1)).copied().unwrap_or("")
    }
}

/// File number and line of a `.loc`.
fn location(line: &str) -> Option<(u32, u32)> {
    let mut words = line.trim_start().strip_prefix(".loc")?.split_whitespace();
    Some((words.next()?.parse().ok()?, words.next()?.trim_end_matches(',').parse().ok()?))
}

impl<'a> Instruction<'a> {
    /// The instruction of a line that holds exactly one.
    pub fn read(line: &'a str) -> Option<Instruction<'a>> {
        let start = line.find(|c: char| !c.is_whitespace() && c != '{')?;
        let (before, rest) = line.split_at(start);
        let end = rest.find(';')?;
        let (body, after) = rest.split_at(end);
        let is_end = |c: char| c == ';' || c == '}' || c.is_whitespace();
        if before.matches('{').count() > 1 || !after.chars().all(is_end) || body.contains("//") {
            return None;
        }
        let (guard, body) = match body.strip_prefix('@') {
            Some(guarded) => {
                let (name, body) = guarded.split_once(char::is_whitespace)?;
                let plain = name.trim_start_matches('!');
                (Some((plain, plain.len() != name.len())), body.trim_start())
            }
            None => (None, body),
        };
        let (opcode, operands) = body.split_once(char::is_whitespace).unwrap_or((body, ""));
        if !opcode.starts_with(|c: char| c.is_ascii_lowercase()) {
            return None;
        }
        Some(Instruction { before, guard, opcode, operands: split(operands), after })
    }

    /// The line with another opcode, guard or operands.
    pub fn write(&self, guard: Option<(&str, bool)>, opcode: &str, operands: &[String]) -> String {
        let mut line = self.before.to_owned();
        if let Some((name, negated)) = guard {
            line.push('@');
            line.push_str(if negated { "!" } else { "" });
            line.push_str(name);
            line.push(' ');
        }
        line.push_str(opcode);
        if !operands.is_empty() {
            line.push('\t');
            line.push_str(&operands.join(", "));
        }
        line.push_str(self.after);
        line
    }

    /// The line without its instruction, braces kept.
    pub fn removed(&self) -> String {
        format!("{}{}", self.before, self.after.trim_start_matches(';'))
    }

    /// Whether the opcode has this modifier: `v4` of `ld.global.v4.f32`.
    pub fn has(&self, modifier: &str) -> bool {
        self.opcode.split('.').skip(1).any(|part| part == modifier)
    }

    /// The opcode's first word: `ld` of `ld.global.v4.f32`.
    pub fn mnemonic(&self) -> &'a str {
        self.opcode.split('.').next().unwrap_or(self.opcode)
    }
}

/// Splits operands at the commas outside brackets.
fn split(operands: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0usize, 0);
    for (at, byte) in operands.bytes().enumerate() {
        match byte {
            b'[' | b'{' | b'(' => depth += 1,
            b']' | b'}' | b')' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                parts.push(operands[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    let last = operands[start..].trim();
    if !last.is_empty() {
        parts.push(last);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    pub const TWO: &str = "\
.version 9.0
.visible .entry first(
	.param .u64 p
)
{
	.reg .b32 	%r<3>;
	.loc	1 7 3
	add.s32 	%r1, %r2, 4;
	@!%p1 bra 	$L1;
	.loc	2 50 3, function_name $L__info_string0, inlined_at 1 30 7
	st.shared.v2.f32 	[%rd1+8], {%f1, %f2};
$L1:
	{  mov.b32 %r1, {%rs1,%rs2};}
	{.reg .f16 low,high;
	mov.b32 {low,high}, %r1; cvt.f32.f16 %f1, low;}
	ret;
}
.visible .entry second(
)
{
	ret;
}
	.file	1 \"a/b.cu\"
	.file	2 \"include/c.cuh\"
";

    #[test]
    fn instructions_are_read_with_their_place() {
        let listing = Listing::of(TWO);
        let sites = listing.sites();
        let shown: Vec<_> = sites
            .iter()
            .map(|site| (site.entry, site.line, site.source, site.instruction.opcode, site.follows))
            .collect();
        let (a, c) = (Some(("a/b.cu", 7)), Some(("include/c.cuh", 50)));
        assert_eq!(
            shown,
            [
                ("first", 8, a, "add.s32", false),
                ("first", 9, a, "bra", true),
                ("first", 11, c, "st.shared.v2.f32", false),
                ("first", 13, c, "mov.b32", false),
                ("first", 16, c, "ret", true),
                ("second", 21, None, "ret", false),
            ]
        );
        assert_eq!(sites[1].instruction.guard, Some(("%p1", true)));
        assert_eq!(sites[2].instruction.operands, ["[%rd1+8]", "{%f1, %f2}"]);
    }

    #[test]
    fn lines_that_hold_no_single_instruction_are_left_alone() {
        for line in [
            "",
            "// add.s32 %r1, %r2, 1;",
            "\t.reg .b32 %r<3>;",
            "$L1:",
            "\tmov.u32 %r1, 1; mov.u32 %r2, 2;",
            "\tcall (x),",
        ] {
            assert_eq!(Instruction::read(line), None, "{line}");
        }
    }

    #[test]
    fn a_line_is_written_as_it_was_read() {
        let line = "\t{  mov.b32 \t%r1, {%rs1,%rs2};}";
        let read = Instruction::read(line).expect("an instruction");
        let operands: Vec<_> = read.operands.iter().map(|&one| one.to_owned()).collect();
        let written = read.write(read.guard, read.opcode, &operands);
        assert_eq!(written, "\t{  mov.b32\t%r1, {%rs1,%rs2};}");
        assert_eq!(read.removed(), "\t{  }");
    }

    #[test]
    fn a_changed_text_keeps_its_line_numbers_and_one_entry() {
        let listing = Listing::of(TWO);
        let text = listing.with_line("first", 8, "\tsub.s32 \t%r1, %r2, 4;");
        assert_eq!(text.lines().count(), TWO.lines().count());
        assert_eq!(text.lines().nth(7), Some("\tsub.s32 \t%r1, %r2, 4;"));
        assert!(!text.contains("second") && text.contains(".file\t1"));
    }
}
