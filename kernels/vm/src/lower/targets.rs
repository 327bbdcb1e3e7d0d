//! Forms that the module's `.target` lacks although the machine has them: those of sm_100 and later.
//! A module without a target may use all.

use super::operand::Ty;
use super::{Lower, Refusal};
use crate::syntax::{Instruction, Operand};

/// The first architecture that has a form, and its name in full.
const BLACKWELL: (u32, &str) = (100, "sm_100 or later");
const BLACKWELL_OWN: (u32, &str) =
    (100, "sm_100 or later with its own features, such as sm_100a or sm_120a");

/// The number in `sm_90a`.
fn number(target: &str) -> Option<u32> {
    let digits = target.strip_prefix("sm_")?.trim_end_matches(|c: char| c.is_ascii_lowercase());
    digits.parse().ok()
}

fn needed(ins: &Instruction<'_>, parts: &[&str]) -> Option<(u32, &'static str)> {
    let narrow = |part: &&str| matches!(*part, "e2m1x2" | "ue8m0x2");
    match parts[0] {
        "cvt" if parts.iter().any(narrow) => Some(BLACKWELL_OWN),
        "ld" | "st" => {
            let ty = parts.last().and_then(|name| Ty::parse(name))?;
            let list = ins.operands.iter().find_map(|operand| match operand {
                Operand::Vector(list) => Some(list.len()),
                _ => None,
            });
            let elements = if parts.contains(&"v8") { 8 } else { list.unwrap_or(1) };
            let bits = elements * usize::from(ty.bits);
            (elements <= 8 && bits > 128 && bits <= 256).then_some(BLACKWELL)
        }
        _ => None,
    }
}

/// Refuses what the target lacks, and says which has it.
pub(super) fn admit(target: Option<&str>, ins: &Instruction<'_>, parts: &[&str]) -> Lower<()> {
    let Some(target) = target else { return Ok(()) };
    match (number(target), needed(ins, parts)) {
        (Some(given), Some((first, name))) if given < first => {
            let what = format!("{} under .target {target} (it takes {name})", ins.opcode);
            Err(Refusal::Missing(what))
        }
        _ => Ok(()),
    }
}
