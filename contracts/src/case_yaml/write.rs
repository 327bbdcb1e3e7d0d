//! A case as YAML. Contents become the most frequent element and those that differ, so that a reader
//! sees what matters; sections and tensors come in the contract's order.

use super::{FORM_VERSION, MOST_OVERRIDES};
use crate::case::{Case, CaseTensor, Content, Decisions, Fill, Layout, Schedule, StoreForm};
use crate::dtype::{DType, Poison};
use crate::format::Contract;
use crate::geometry::{Geometry, TensorGeometry};
use std::collections::{BTreeMap, HashMap};
use std::fmt::{Display, Write};

/// The text of a case, with an optional comment at the top. A case that cannot be laid out, which a
/// legal one always can, is written without what depends on shapes: its overrides and derived contents.
pub fn write_case(case: &Case, contract: &Contract, header: Option<&str>) -> String {
    let mut out = String::new();
    for line in header.unwrap_or_default().lines() {
        let line: String = line.chars().filter(|c| !c.is_control()).collect();
        out.push_str(format!("# {line}").trim_end());
        out.push('\n');
    }
    out.push_str(&format!("case: {FORM_VERSION}\ncontract: {}\n", word(&case.contract)));
    out.push_str(&format!("version: {}\n", case.version));
    if let Some(found) = &case.found {
        let mut parts = vec![
            format!("clause: {}", word(&found.clause)),
            format!("backend: {}", word(&found.backend)),
        ];
        parts.extend(found.issue.iter().map(|issue| format!("issue: {}", quoted(issue))));
        out.push_str(&format!("found: {{{}}}\n", parts.join(", ")));
    }
    section(&mut out, "dtypes", &case.dtypes, contract.dtypes.keys(), DType::to_string);
    section(&mut out, "options", &case.options, contract.options.keys(), |w| word(w));
    section(&mut out, "variants", &case.variants, contract.variants.keys(), |w| word(w));
    section(&mut out, "dims", &case.dims, contract.dims.keys(), i64::to_string);
    section(&mut out, "lists", &case.lists, contract.lists.keys(), |items| list(items));
    let scalars = case.scalars.iter().map(|(name, bits)| {
        let dtype = contract.scalars.get(name).map_or(DType::I64, |scalar| scalar.dtype);
        (name.clone(), hex(dtype, *bits))
    });
    section(&mut out, "scalars", &scalars.collect(), contract.scalars.keys(), String::clone);
    section(&mut out, "stores", &case.stores, contract.stores.keys(), store);
    out.push_str(&format!("poison: {}\n", poison_word(case.poison)));
    if let Schedule::Seeded(seed) = case.schedule {
        out.push_str(&format!("schedule: {seed}\n"));
    }
    let geometry = Geometry::lay_out(contract, case).ok();
    out.push_str("tensors:\n");
    for (name, tensor) in in_order(&case.tensors, contract.tensors.keys()) {
        let placed = geometry.as_ref().and_then(|geometry| geometry.tensor(name));
        out.push_str(&format!("  {}: {}\n", word(name), tensor_text(tensor, placed)));
    }
    out
}

/// Entries in the contract's order, then any others.
fn in_order<'a, T>(
    decisions: &'a Decisions<T>,
    declared: impl Iterator<Item = &'a String> + Clone,
) -> impl Iterator<Item = (&'a String, &'a T)> {
    let known: Vec<&String> = declared.collect();
    let others: Vec<_> = decisions.iter().filter(|(name, _)| !known.contains(name)).collect();
    known.into_iter().filter_map(|name| decisions.get_key_value(name)).chain(others)
}

fn section<'a, T>(
    out: &mut String,
    name: &str,
    decisions: &'a Decisions<T>,
    declared: impl Iterator<Item = &'a String> + Clone,
    text: impl Fn(&T) -> String,
) {
    if !decisions.is_empty() {
        let entries = in_order(decisions, declared)
            .map(|(key, value)| format!("{}: {}", word(key), text(value)));
        out.push_str(&format!("{name}: {{{}}}\n", entries.collect::<Vec<_>>().join(", ")));
    }
}

fn list<T: Display>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(T::to_string).collect();
    format!("[{}]", items.join(", "))
}

/// A word as it is where YAML reads it as text or as the integer it spells; else in quotes.
fn word(text: &str) -> String {
    let plain = !text.is_empty()
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.'))
        && (text.as_bytes()[0].is_ascii_alphabetic()
            || text.parse::<u32>().is_ok_and(|n| n.to_string() == text))
        && !matches!(
            text.to_ascii_lowercase().as_str(),
            "true" | "false" | "null" | "yes" | "no" | "on" | "off"
        );
    if plain { text.to_owned() } else { quoted(text) }
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() || !c.is_ascii() => {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\U{:08x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn hex(dtype: DType, bits: u64) -> String {
    format!("0x{bits:0width$x}", width = 2 * dtype.size_bytes() as usize)
}

fn store(form: &StoreForm) -> String {
    match form {
        StoreForm::Separate => "separate".to_owned(),
        StoreForm::Packed { pad } => format!("{{packed: {pad}}}"),
    }
}

pub(super) fn poison_word(poison: Poison) -> &'static str {
    match poison {
        Poison::Quiet => "quiet",
        Poison::Signalling => "signalling",
        Poison::Large => "large",
    }
}

fn layout(layout: Layout) -> String {
    let word = crate::check_tensors::layout_word(layout.kind());
    match layout {
        Layout::RowPadded(amount)
        | Layout::OuterPadded(amount)
        | Layout::Offset(amount)
        | Layout::OddUnitStrides(amount) => format!("{{{word}: {amount}}}"),
        Layout::Dense | Layout::Permuted | Layout::Wide | Layout::Rank0 => word.to_owned(),
    }
}

fn tensor_text(tensor: &CaseTensor, placed: Option<&TensorGeometry>) -> String {
    let mut parts = Vec::new();
    let derived = matches!(tensor.content, Content::Derived);
    if !derived || tensor.layout != Layout::Dense {
        parts.push(format!("layout: {}", layout(tensor.layout)));
    }
    let dtype = placed.map_or(DType::I64, |placed| placed.dtype);
    match &tensor.content {
        Content::Output => {}
        Content::Derived => {
            let items = placed.and_then(|placed| placed.derived.as_deref()).unwrap_or(&[]);
            parts.push(format!("derived: {}", list(items)));
        }
        Content::Sparse { fill, at } => {
            parts.push(match fill {
                Fill::Bits(bits) => format!("fill: {}", hex(dtype, *bits)),
                Fill::Hashed { seed } => format!("fill: {{hashed: {seed:#x}}}"),
            });
            parts.extend(overrides(dtype, at, placed));
        }
        Content::Dense(bytes) => parts.extend(dense(dtype, bytes, placed)),
    }
    format!("{{{}}}", parts.join(", "))
}

fn overrides(
    dtype: DType,
    at: &BTreeMap<u64, u64>,
    placed: Option<&TensorGeometry>,
) -> Option<String> {
    let placed = placed.filter(|_| !at.is_empty())?;
    let entries: Vec<String> = at
        .iter()
        .map(|(flat, bits)| {
            let coordinates: Vec<String> =
                placed.coordinates(*flat).iter().map(u64::to_string).collect();
            format!("\"{}\": {}", coordinates.join(","), hex(dtype, *bits))
        })
        .collect();
    Some(format!("at: {{{}}}", entries.join(", ")))
}

fn dense(dtype: DType, bytes: &[u8], placed: Option<&TensorGeometry>) -> Vec<String> {
    let elements: Vec<u64> = bytes
        .chunks_exact(dtype.size_bytes() as usize)
        .map(|chunk| dtype.from_bytes(chunk))
        .collect();
    let mut counts: HashMap<u64, usize> = HashMap::new();
    for bits in &elements {
        *counts.entry(*bits).or_default() += 1;
    }
    // The smallest bits among the most frequent, so that the text does not depend on a hash order.
    let most = counts.values().max().copied().unwrap_or(0);
    let fill = counts
        .iter()
        .filter(|(_, count)| **count == most)
        .map(|(bits, _)| *bits)
        .min()
        .unwrap_or(0);
    if elements.len() - most > MOST_OVERRIDES {
        let width = 2 * dtype.size_bytes() as usize;
        let mut digits = String::with_capacity(elements.len() * width);
        for bits in &elements {
            let _ = write!(digits, "{bits:0width$x}");
        }
        return vec![format!("bits: \"{digits}\"")];
    }
    let differing =
        (0..).zip(&elements).filter(|(_, bits)| **bits != fill).map(|(flat, bits)| (flat, *bits));
    let at: BTreeMap<u64, u64> = differing.collect();
    std::iter::once(format!("fill: {}", hex(dtype, fill)))
        .chain(overrides(dtype, &at, placed))
        .collect()
}
