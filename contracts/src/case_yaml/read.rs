//! YAML to a case that is legal under its contract. Every number is bounded before memory is taken.

use super::{CASE_LIMIT_BYTES, FORM_VERSION};
use crate::case::{Case, CaseTensor, Content, Decisions, Fill, Found, Layout, Schedule, StoreForm};
use crate::case_error::CaseError;
use crate::dtype::{DType, Poison};
use crate::format::{Contract, Word};
use crate::geometry::{Geometry, TensorGeometry};
use crate::layout::MOST_ELEMENTS;
use crate::{load, migrate, yaml};
use indexmap::IndexMap;
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a map with case, contract, version, dtypes, dims, poison and tensors"
)]
struct RawCase {
    case: u32,
    contract: String,
    version: u32,
    #[serde(default)]
    found: Option<Found>,
    dtypes: Decisions<DType>,
    #[serde(default)]
    options: Decisions<Word>,
    #[serde(default)]
    variants: Decisions<Word>,
    #[serde(default)]
    dims: Decisions<i64>,
    #[serde(default)]
    lists: Decisions<Vec<i64>>,
    #[serde(default)]
    scalars: Decisions<u64>,
    #[serde(default)]
    stores: Decisions<RawStore>,
    poison: Poison,
    #[serde(default)]
    schedule: Option<Word>,
    #[serde(default)]
    tensors: Decisions<RawTensor>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum RawStore {
    Separate,
    Packed(u64),
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum RawLayout {
    Dense,
    RowPadded(u64),
    OuterPadded(u64),
    Offset(u64),
    Permuted,
    OddUnitStrides(u64),
    Wide,
    Rank0,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTensor {
    #[serde(default)]
    layout: Option<RawLayout>,
    #[serde(default)]
    fill: Option<serde_json::Value>,
    #[serde(default)]
    at: IndexMap<String, u64>,
    #[serde(default)]
    bits: Option<String>,
    #[serde(default)]
    derived: Option<Vec<i64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawHashed {
    hashed: u64,
}

/// Reads a case, brought to its contract's version where it is older; `file` is only named in errors,
/// `lookup` finds its contract.
pub fn read_case<'a>(
    text: &str,
    file: &str,
    lookup: &dyn Fn(&str) -> Option<&'a Contract>,
) -> Result<Case, CaseError> {
    read_versioned(text, file, lookup).map(|(case, _)| case)
}

/// As [`read_case`], and whether the text was of an older version.
pub fn read_versioned<'a>(
    text: &str,
    file: &str,
    lookup: &dyn Fn(&str) -> Option<&'a Contract>,
) -> Result<(Case, bool), CaseError> {
    read(text, lookup).map_err(|error| {
        let line = error.line.or_else(|| yaml::line_of(text, &error.path));
        CaseError { line, ..error.in_file(file) }
    })
}

fn read<'a>(
    text: &str,
    lookup: &dyn Fn(&str) -> Option<&'a Contract>,
) -> Result<(Case, bool), CaseError> {
    let mut tree = yaml::parse(text, CASE_LIMIT_BYTES)
        .map_err(|e| CaseError { line: e.line, ..CaseError::new("", e.what, e.remedy) })?;
    // The contract first: of a case of another contract, nothing else is worth saying.
    let named =
        tree.get("contract").and_then(|name| name.as_str()).map(|name| contract(name, lookup));
    let is_older = match named.transpose()? {
        Some(contract) => migrate::migrate(&mut tree, contract)?,
        None => false,
    };
    let raw: RawCase =
        load::typed(tree).map_err(|(path, what, remedy)| CaseError::new(path, what, remedy))?;
    if raw.case != FORM_VERSION {
        let what = format!("form {} is unknown", raw.case);
        return Err(CaseError::new("case", what, format!("write case: {FORM_VERSION}")));
    }
    let contract = contract(&raw.contract, lookup)?;
    let schedule = schedule(raw.schedule.as_ref())?;
    let (mut case, mut tensors) = split(raw, schedule);
    if is_older {
        migrate::settle(contract, &mut case, &mut tensors, RawTensor::default)?;
    }
    // Shapes need every decision, contents need the shapes: lay out with empty contents first.
    for (name, tensor) in &tensors {
        let layout = tensor.layout.as_ref().map_or(Layout::Dense, RawLayout::layout);
        case.tensors.insert(name.clone(), CaseTensor { layout, content: Content::Output });
    }
    let geometry = Geometry::layout_only(contract, &case)?;
    for (name, tensor) in tensors {
        let Some(placed) = geometry.tensor(&name) else { continue };
        let is_derived = contract.tensors[&name].from.is_some();
        let content = if is_derived && is_older && tensor.derived.is_none() {
            Content::Derived
        } else {
            contents(&tensor, placed, is_derived)?
        };
        case.tensors[&name].content = content;
    }
    Geometry::of(contract, &case)?;
    Ok((case, is_older))
}

fn contract<'a>(
    name: &str,
    lookup: &dyn Fn(&str) -> Option<&'a Contract>,
) -> Result<&'a Contract, CaseError> {
    lookup(name).ok_or_else(|| {
        let what = format!("no contract is named `{name}`");
        CaseError::new("contract", what, "name a contract that exists, or remove the file")
    })
}

/// `in_order`, which is also what nothing means, or a seed.
fn schedule(word: Option<&Word>) -> Result<Schedule, CaseError> {
    match word.map(|word| word.0.as_str()) {
        None | Some("in_order") => Ok(Schedule::InOrder),
        Some(text) => text.parse().map(Schedule::Seeded).map_err(|_| {
            let what = format!("`{text}` is no order of blocks and warps");
            CaseError::new("schedule", what, "write in_order, or a seed from 0 to 2^64 - 1")
        }),
    }
}

fn split(raw: RawCase, schedule: Schedule) -> (Case, Decisions<RawTensor>) {
    let words =
        |words: Decisions<Word>| words.into_iter().map(|(name, word)| (name, word.0)).collect();
    let stores = raw.stores.into_iter().map(|(name, form)| match form {
        RawStore::Separate => (name, StoreForm::Separate),
        RawStore::Packed(pad) => (name, StoreForm::Packed { pad }),
    });
    let case = Case {
        contract: raw.contract,
        version: raw.version,
        found: raw.found,
        dtypes: raw.dtypes,
        options: words(raw.options),
        variants: words(raw.variants),
        dims: raw.dims,
        lists: raw.lists,
        scalars: raw.scalars,
        stores: stores.collect(),
        poison: raw.poison,
        schedule,
        tensors: Decisions::new(),
    };
    (case, raw.tensors)
}

impl RawLayout {
    fn layout(&self) -> Layout {
        match *self {
            RawLayout::Dense => Layout::Dense,
            RawLayout::RowPadded(amount) => Layout::RowPadded(amount),
            RawLayout::OuterPadded(amount) => Layout::OuterPadded(amount),
            RawLayout::Offset(amount) => Layout::Offset(amount),
            RawLayout::Permuted => Layout::Permuted,
            RawLayout::OddUnitStrides(amount) => Layout::OddUnitStrides(amount),
            RawLayout::Wide => Layout::Wide,
            RawLayout::Rank0 => Layout::Rank0,
        }
    }
}

fn contents(
    raw: &RawTensor,
    placed: &TensorGeometry,
    is_derived: bool,
) -> Result<Content, CaseError> {
    let path = format!("tensors.{}", placed.name);
    let refuse = |what: String, remedy: &str| Err(CaseError::new(path.clone(), what, remedy));
    let forms = [raw.derived.is_some(), raw.bits.is_some(), raw.fill.is_some()];
    if forms.iter().filter(|written| **written).count() > 1 {
        return refuse("derived, bits and fill exclude each other".to_owned(), "keep one");
    }
    if raw.fill.is_none() && !raw.at.is_empty() {
        return refuse("`at` without `fill`".to_owned(), "add `fill:`");
    }
    if let Some(stored) = &raw.derived {
        return match &placed.derived {
            Some(computed) if computed == stored => Ok(Content::Derived),
            Some(computed) => refuse(
                format!("stored {stored:?}, but its list gives {computed:?}"),
                "correct the list or the tensor",
            ),
            None => refuse("the tensor is not derived".to_owned(), "write its contents"),
        };
    }
    if let Some(digits) = &raw.bits {
        return dense(&path, digits, placed);
    }
    let Some(fill) = &raw.fill else {
        // A derived tensor may leave its contents to its list only by saying so.
        return if is_derived {
            refuse("the contents are missing".to_owned(), "add `derived:`")
        } else {
            Ok(Content::Output)
        };
    };
    let fill = match (fill.as_u64(), fill) {
        (Some(bits), _) => Fill::Bits(bits),
        (None, map) if map.is_object() => {
            let hashed: RawHashed = load::typed(map.clone()).map_err(|(_, what, remedy)| {
                CaseError::new(format!("{path}.fill"), what, remedy)
            })?;
            Fill::Hashed { seed: hashed.hashed }
        }
        (None, other) => {
            return refuse(
                format!("the fill {other} is no bits"),
                "write hexadecimal bits or {hashed: seed}",
            );
        }
    };
    let mut at = BTreeMap::new();
    for (coordinates, bits) in &raw.at {
        let Some(flat) = flat_index(coordinates, &placed.shape) else {
            let what = format!("\"{coordinates}\" lies outside the shape {:?}", placed.shape);
            return Err(CaseError::new(
                format!("{path}.at"),
                what,
                "write one index an axis, separated by commas",
            ));
        };
        if at.insert(flat, *bits).is_some() {
            return refuse(format!("\"{coordinates}\" is written twice"), "keep one");
        }
    }
    Ok(Content::Sparse { fill, at })
}

fn flat_index(coordinates: &str, shape: &[u64]) -> Option<u64> {
    if shape.is_empty() {
        return coordinates.is_empty().then_some(0);
    }
    let mut flat = 0u64;
    let mut parts = coordinates.split(',');
    for extent in shape {
        let index: u64 = parts.next()?.trim().parse().ok()?;
        if index >= *extent {
            return None;
        }
        flat = flat.checked_mul(*extent)?.checked_add(index)?;
    }
    parts.next().is_none().then_some(flat)
}

fn dense(path: &str, digits: &str, placed: &TensorGeometry) -> Result<Content, CaseError> {
    let path = format!("{path}.bits");
    let width = 2 * placed.dtype.size_bytes() as usize;
    let wanted = placed.count().saturating_mul(width as u64);
    if placed.count() > MOST_ELEMENTS || digits.len() as u64 != wanted || !digits.is_ascii() {
        let what = format!("{} digits for the shape {:?}", digits.len(), placed.shape);
        return Err(CaseError::new(path, what, format!("write {wanted}, {width} an element")));
    }
    let mut bytes = Vec::with_capacity(digits.len() / 2);
    for start in (0..digits.len()).step_by(width) {
        let element = &digits[start..start + width];
        let bits = match u64::from_str_radix(element, 16) {
            Ok(bits) if !element.starts_with('+') => bits,
            _ => {
                return Err(CaseError::new(
                    path,
                    format!("`{element}` is not hexadecimal"),
                    "write hexadecimal digits",
                ));
            }
        };
        placed.dtype.push_bytes(bits, &mut bytes);
    }
    Ok(Content::Dense(bytes))
}
