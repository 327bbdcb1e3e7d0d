//! The instruction that computed a stored value, read from the PTX text: the only one in the kernel
//! that names the register as its destination, behind moves and conversions. A register with
//! several definitions has none here: which of them was last, the text does not say.

use super::Computed;
use crate::module::{Entry, Module};

/// How many moves and conversions are looked through.
const DEPTH: usize = 8;

/// Where the value of the store on that line was computed; of a vector store, its `which`th.
pub(super) fn of_stored(
    module: &Module,
    entry: &Entry,
    ptx_line: u32,
    which: u64,
) -> Option<Computed> {
    let store = instructions(module.line(ptx_line)).find(|text| is_store(text))?;
    let values = store.split_once(']')?.1.trim_start_matches([',', ' ', '\t', '{']);
    let mut register = only_register(values.split(',').nth(usize::try_from(which).ok()?)?)?;
    let mut found = None;
    for _ in 0..DEPTH {
        let Some((line, text)) = only_definition(module, entry, register) else { break };
        found = Some((line, text));
        let (opcode, operands) = text.split_once(char::is_whitespace)?;
        let passes_on = opcode.starts_with("mov.") || opcode.starts_with("cvt.");
        let source = operands.split_once(',').and_then(|(_, rest)| only_register(rest));
        match source.filter(|_| passes_on) {
            Some(next) => register = next,
            None => break,
        }
    }
    let (ptx_line, text) = found?;
    let place = entry.places.iter().find(|place| place.ptx_line == ptx_line);
    Some(Computed {
        ptx_line,
        instruction: text.split_whitespace().collect::<Vec<_>>().join(" "),
        source: place.and_then(|place| module.source(*place)),
    })
}

/// The only instruction of the kernel that writes a register.
fn only_definition<'m>(
    module: &'m Module,
    entry: &Entry,
    register: &str,
) -> Option<(u32, &'m str)> {
    let lines = entry.places.iter().map(|place| place.ptx_line);
    let (first, last) = (lines.clone().min()?, lines.max()?);
    let all = (first..=last)
        .flat_map(|line| instructions(module.line(line)).map(move |text| (line, text)));
    let mut all = all.filter(|(_, text)| defines(text, register));
    let only = all.next()?;
    all.next().is_none().then_some(only)
}

/// The instructions of a line, without guards, braces and comments.
fn instructions(line: &str) -> impl Iterator<Item = &str> {
    let code = line.split("//").next().unwrap_or_default();
    code.split(';').map(|text| {
        let text = text.trim().trim_start_matches(['{', '}']).trim_start();
        match text.strip_prefix('@') {
            Some(guarded) => {
                guarded.split_once(char::is_whitespace).map_or("", |(_, rest)| rest.trim_start())
            }
            None => text,
        }
    })
}

fn is_store(text: &str) -> bool {
    text.starts_with("st.") || text.starts_with("red.") || text.starts_with("atom.")
}

/// Whether an instruction's destination is, or holds, a register.
fn defines(text: &str, register: &str) -> bool {
    let Some((opcode, operands)) = text.split_once(char::is_whitespace) else { return false };
    if opcode.starts_with("st.") || opcode.starts_with("red.") || opcode.starts_with(['.', '$']) {
        return false;
    }
    let operands = operands.trim_start();
    let destination = match operands.strip_prefix('{') {
        Some(list) => list.split('}').next(),
        None => operands.split(',').next(),
    };
    registers(destination.unwrap_or_default()).any(|one| one == register)
}

fn registers(text: &str) -> impl Iterator<Item = &str> {
    let is_end = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '%' | '_' | '$' | '.'));
    text.split(is_end).filter(|word| word.starts_with('%'))
}

/// The register an operand is, where it is one.
fn only_register(text: &str) -> Option<&str> {
    let mut all = registers(text);
    all.next().filter(|_| all.next().is_none())
}
