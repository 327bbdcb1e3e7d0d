//! Edits of contents: fewer elements that differ from the base value, then plainer ones. Every edit
//! lowers the number of such elements or the rank of one, so a sequence of them ends.

use contracts::case::{Case, CaseTensor, Content, Fill};
use contracts::dtype::DType;
use contracts::format::{Contract, Domain, Scalar, Values};
use std::collections::{BTreeMap, BTreeSet};

/// Contents with more elements than this are edited through their overrides alone.
const LISTED_ELEMENTS: u64 = 1 << 20;
/// Up to this many elements are made plain one by one.
const FEW_ELEMENTS: usize = 64;
/// A hashed table is written out when at most this many of its elements may be touched.
const WRITE_OUT_ELEMENTS: u64 = 1 << 14;

/// One change of values.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ValueEdit {
    /// Every tensor to its base value.
    BlankAll,
    /// One value everywhere.
    Uniform { tensor: String, bits: u64 },
    /// One and then zeros, in each innermost row.
    OneHotRows { tensor: String },
    /// Hashed contents to the base value, but for the rows that may be touched.
    WriteOut { tensor: String },
    /// Some of the elements that differ from the base value, by their places among them.
    Clear { tensor: String, start: usize, count: usize },
    /// Every element to this many significant bits; 0 keeps the sign alone.
    Shorten { tensor: String, significant: u32 },
    /// One element.
    Set { tensor: String, index: u64, bits: u64 },
}

impl ValueEdit {
    /// The tensor edited, if it is one.
    pub(super) fn tensor(&self) -> Option<&str> {
        match self {
            ValueEdit::BlankAll => None,
            ValueEdit::Uniform { tensor, .. }
            | ValueEdit::OneHotRows { tensor }
            | ValueEdit::WriteOut { tensor }
            | ValueEdit::Clear { tensor, .. }
            | ValueEdit::Shorten { tensor, .. }
            | ValueEdit::Set { tensor, .. } => Some(tensor),
        }
    }
}

/// The plainest legal value of a domain: zero where zero is legal.
pub(super) fn base_bits(domain: Option<&Domain>, dtype: DType) -> u64 {
    match domain {
        Some(Domain::Positive | Domain::Nonzero) => dtype.round_from_f64(1.0),
        Some(Domain::AtMost(most)) => dtype.round_from_f64(most.min(0.0)),
        Some(Domain::Range([low, high]) | Domain::RangeOrInfinite([low, high])) => {
            dtype.round_from_f64(0f64.clamp(*low, high.max(*low)))
        }
        _ => 0,
    }
}

/// Contents of another type: each element by value.
pub(super) fn converted(content: Content, from: DType, to: DType) -> Content {
    if from == to {
        return content;
    }
    let convert = |bits: u64| to.round_from_f64(from.to_f64(bits));
    match content {
        Content::Dense(bytes) => {
            let mut out = Vec::with_capacity(bytes.len());
            for element in bytes.chunks_exact(from.size_bytes() as usize) {
                to.push_bytes(convert(from.from_bytes(element)), &mut out);
            }
            Content::Dense(out)
        }
        Content::Sparse { fill, at } => Content::Sparse {
            fill: match fill {
                Fill::Bits(bits) => Fill::Bits(convert(bits)),
                hashed => hashed,
            },
            at: at.into_iter().map(|(index, bits)| (index, convert(bits))).collect(),
        },
        same => same,
    }
}

/// One tensor's contents with what is needed to edit them.
pub(super) struct Edited<'a> {
    pub(super) content: &'a Content,
    pub(super) dtype: DType,
    pub(super) base: u64,
    /// Logical shape.
    shape: Vec<u64>,
    row_norm: bool,
}

impl<'a> Edited<'a> {
    /// The tensor, unless its contents follow from something else.
    pub(super) fn of(contract: &'a Contract, case: &'a Case, name: &str) -> Option<Edited<'a>> {
        let (declared, held) = (contract.tensors.get(name)?, case.tensors.get(name)?);
        if matches!(held.content, Content::Derived | Content::Output) {
            return None;
        }
        let dtype = declared.dtype.resolve(&case.dtypes)?;
        let scope = contracts::CaseScope::new(contract, case);
        let shape = declared
            .shape
            .iter()
            .map(|axis| u64::try_from(axis.eval_int(&scope).ok()?).ok())
            .collect::<Option<_>>()?;
        let domain = declared.domain_under(&case.options);
        let row_norm = matches!(domain, Some(Domain::RowNorm(_)));
        let base = base_bits(domain, dtype);
        Some(Edited { content: &held.content, dtype, base, shape, row_norm })
    }

    /// Number of elements.
    pub(super) fn count(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Elements that differ from the base value, in row-major order: index and bits. Of contents too
    /// large to list, the overrides that do.
    pub(super) fn different(&self) -> Vec<(u64, u64)> {
        let differs = |(_, bits): &(u64, u64)| *bits != self.base;
        match self.content {
            Content::Dense(bytes) => {
                let elements = bytes.chunks_exact(self.dtype.size_bytes() as usize);
                (0..)
                    .zip(elements.map(|element| self.dtype.from_bytes(element)))
                    .filter(differs)
                    .collect()
            }
            Content::Sparse { fill: Fill::Bits(bits), at }
                if *bits != self.base && self.count() <= LISTED_ELEMENTS =>
            {
                (0..self.count())
                    .map(|index| (index, at.get(&index).copied().unwrap_or(*bits)))
                    .filter(differs)
                    .collect()
            }
            Content::Sparse { at, .. } => {
                at.iter().map(|(index, bits)| (*index, *bits)).filter(differs).collect()
            }
            Content::Derived | Content::Output => Vec::new(),
        }
    }

    /// Whether every element holds the base value.
    pub(super) fn is_blank(&self) -> bool {
        match self.content {
            Content::Dense(bytes) => bytes
                .chunks_exact(self.dtype.size_bytes() as usize)
                .all(|e| self.dtype.from_bytes(e) == self.base),
            Content::Sparse { fill: Fill::Bits(bits), at } => {
                let overridden = at.len() as u64 >= self.count();
                (*bits == self.base || overridden) && at.values().all(|bits| *bits == self.base)
            }
            Content::Sparse { fill: Fill::Hashed { .. }, .. } => self.count() == 0,
            Content::Derived | Content::Output => true,
        }
    }

    fn is_hashed(&self) -> bool {
        matches!(self.content, Content::Sparse { fill: Fill::Hashed { .. }, .. })
    }

    /// Contents with the base value everywhere but at these elements.
    fn holding(&self, elements: &[(u64, u64)]) -> Content {
        let sparse = self.is_hashed()
            || self.count() > LISTED_ELEMENTS
            || (elements.len() as u64) * 4 <= self.count();
        if sparse {
            return Content::Sparse {
                fill: Fill::Bits(self.base),
                at: elements.iter().copied().collect(),
            };
        }
        let size = self.dtype.size_bytes() as usize;
        let mut bytes = Vec::with_capacity(self.count() as usize * size);
        (0..self.count()).for_each(|_| self.dtype.push_bytes(self.base, &mut bytes));
        for (index, bits) in elements {
            let start = *index as usize * size;
            bytes[start..start + size].copy_from_slice(&bits.to_le_bytes()[..size]);
        }
        Content::Dense(bytes)
    }

    fn large_fill(&self) -> bool {
        self.count() > LISTED_ELEMENTS
            && matches!(self.content, Content::Sparse { fill, .. } if *fill != Fill::Bits(self.base))
    }

    /// These elements replaced, the rest as they are.
    fn replacing(&self, new: &[(u64, u64)]) -> Content {
        if (self.is_hashed() || self.large_fill())
            && let Content::Sparse { fill, at } = self.content
        {
            let mut at = at.clone();
            at.extend(new.iter().copied());
            return Content::Sparse { fill: *fill, at };
        }
        let mut elements: BTreeMap<u64, u64> = self.different().into_iter().collect();
        elements.extend(new.iter().copied());
        elements.retain(|_, bits| *bits != self.base);
        self.holding(&elements.into_iter().collect::<Vec<_>>())
    }

    /// Edits that make the whole tensor plain, plainest first.
    pub(super) fn whole(&self, tensor: &str) -> Vec<ValueEdit> {
        if self.is_blank() {
            return Vec::new();
        }
        let tensor = tensor.to_owned();
        let mut edits = vec![ValueEdit::Uniform { tensor: tensor.clone(), bits: self.base }];
        let different = self.different();
        let one = self.dtype.round_from_f64(1.0);
        let uniform = different.len() as u64 == self.count()
            && different.iter().all(|d| d.1 == different[0].1);
        let most = self.is_hashed() || different.len() as u64 * 2 > self.count();
        let plainer =
            different.iter().any(|(_, bits)| rank(self.dtype, *bits) > rank(self.dtype, one));
        if most && one != self.base && (plainer || self.is_hashed()) {
            edits.push(ValueEdit::Uniform { tensor: tensor.clone(), bits: one });
        }
        if uniform && let Some((_, bits)) = different.first() {
            let plain = plainer_values(self.dtype, *bits)
                .into_iter()
                .filter(|bits| *bits != one && *bits != self.base);
            edits.extend(plain.map(|bits| ValueEdit::Uniform { tensor: tensor.clone(), bits }));
        }
        let rows: u64 = self.shape.iter().rev().skip(1).product();
        if self.row_norm && different.len() as u64 > rows {
            edits.push(ValueEdit::OneHotRows { tensor: tensor.clone() });
        }
        if self.is_hashed() {
            edits.push(ValueEdit::WriteOut { tensor });
        }
        edits
    }

    /// Edits that clear one of about `2^level` equal parts of the elements that differ; empty when
    /// the parts of the level before were single elements already.
    pub(super) fn clear(&self, tensor: &str, level: u32) -> Vec<ValueEdit> {
        let total = self.different().len();
        if total < 2 || level > usize::BITS - total.leading_zeros() {
            return Vec::new();
        }
        let count = (total >> level).max(1);
        let clear = |start| ValueEdit::Clear {
            tensor: tensor.to_owned(),
            start,
            count: count.min(total - start),
        };
        (0..total).step_by(count).map(clear).collect()
    }

    /// Edits that round every element.
    pub(super) fn shorten(&self, tensor: &str) -> Vec<ValueEdit> {
        let different = self.different();
        let edits = [0, 1, 2, 4, 8].into_iter().filter(|significant| {
            different.iter().any(|(_, bits)| shortened(self.dtype, *bits, *significant) != *bits)
        });
        edits
            .map(|significant| ValueEdit::Shorten { tensor: tensor.to_owned(), significant })
            .collect()
    }

    /// Edits that make one element plainer, when there are at most `most` elements; of many elements
    /// only those that clear one.
    pub(super) fn elements(&self, tensor: &str, most: usize) -> Vec<ValueEdit> {
        let different = self.different();
        if different.len() > most {
            return Vec::new();
        }
        let few = different.len() <= FEW_ELEMENTS;
        let mut edits = Vec::new();
        for (index, bits) in different {
            let plainer = if few { plainer_values(self.dtype, bits) } else { Vec::new() };
            let plain = std::iter::once(self.base).chain(plainer);
            edits.extend(plain.map(|bits| ValueEdit::Set {
                tensor: tensor.to_owned(),
                index,
                bits,
            }));
        }
        edits
    }
}

/// The case after an edit; `None` when the edit does not apply.
pub(super) fn apply(contract: &Contract, case: &Case, edit: &ValueEdit) -> Option<Case> {
    let mut new = case.clone();
    let (tensor, content) = match edit {
        ValueEdit::BlankAll => {
            for name in contract.tensors.keys() {
                if let Some(edited) = Edited::of(contract, case, name) {
                    new.tensors.get_mut(name)?.content = edited.uniform(edited.base);
                }
            }
            return Some(new);
        }
        ValueEdit::Uniform { tensor, bits } => {
            (tensor, Edited::of(contract, case, tensor)?.uniform(*bits))
        }
        ValueEdit::OneHotRows { tensor } => {
            let edited = Edited::of(contract, case, tensor)?;
            let row = *edited.shape.last()?;
            let one = edited.dtype.round_from_f64(1.0);
            let rows = edited.count().checked_div(row)?;
            let elements: Vec<_> = (0..rows).map(|index| (index * row, one)).collect();
            (tensor, edited.holding(&elements))
        }
        ValueEdit::WriteOut { tensor } => {
            let edited = Edited::of(contract, case, tensor)?;
            (tensor, edited.written_out(contract, case, tensor)?)
        }
        ValueEdit::Clear { tensor, start, count } => {
            let edited = Edited::of(contract, case, tensor)?;
            let cleared: Vec<_> = edited
                .different()
                .into_iter()
                .skip(*start)
                .take(*count)
                .map(|(index, _)| (index, edited.base))
                .collect();
            (tensor, edited.replacing(&cleared))
        }
        ValueEdit::Shorten { tensor, significant } => {
            let edited = Edited::of(contract, case, tensor)?;
            let shorter: Vec<_> = edited
                .different()
                .into_iter()
                .map(|(index, bits)| (index, shortened(edited.dtype, bits, *significant)))
                .collect();
            (tensor, edited.replacing(&shorter))
        }
        ValueEdit::Set { tensor, index, bits } => {
            (tensor, Edited::of(contract, case, tensor)?.replacing(&[(*index, *bits)]))
        }
    };
    new.tensors.get_mut(tensor)?.content = content;
    Some(new)
}

impl Edited<'_> {
    fn uniform(&self, bits: u64) -> Content {
        Content::Sparse { fill: Fill::Bits(bits), at: BTreeMap::new() }
    }

    /// Hashed contents with only the touchable rows kept, if those are known and few.
    fn written_out(&self, contract: &Contract, case: &Case, tensor: &str) -> Option<Content> {
        let rows = touchable_rows(contract, case, tensor);
        let row: u64 = self.shape.iter().skip(1).product();
        let rows = match rows {
            Some(rows) => rows,
            None if self.count() <= WRITE_OUT_ELEMENTS => (0..*self.shape.first()?).collect(),
            None => return None,
        };
        if (rows.len() as u64).checked_mul(row)? > WRITE_OUT_ELEMENTS {
            return None;
        }
        let indices = rows.into_iter().flat_map(|index| index * row..(index + 1) * row);
        let elements: Vec<_> = indices
            .map(|index| (index, self.content.bits(self.dtype, index)))
            .filter(|(_, bits)| *bits != self.base)
            .collect();
        Some(self.holding(&elements))
    }
}

/// The rows of a pool that a list selects.
fn touchable_rows(contract: &Contract, case: &Case, tensor: &str) -> Option<BTreeSet<u64>> {
    let declared = contract.tensors.get(tensor)?;
    let name = &declared.live.as_ref()?.by;
    let list = contract.lists.get(name)?;
    let pool =
        list.ids.as_ref().map(|ids| &ids.below).or(list.slots.as_ref().map(|slots| &slots.pool))?;
    if super::structure::plain_name(declared.shape.first()?) != Some(pool.as_str()) {
        return None;
    }
    let size = *case.dims.get(pool)?;
    Some(
        case.lists
            .get(name)?
            .iter()
            .filter(|id| (0..size).contains(*id))
            .map(|id| *id as u64)
            .collect(),
    )
}

/// How plain a value is; smaller is plainer. Zero, one, −1, 2, ½, small integers, powers of two,
/// short significands, infinities, NaN.
pub(super) fn rank(dtype: DType, bits: u64) -> u32 {
    let value = dtype.to_f64(bits);
    let negative = u32::from(value.is_sign_negative());
    if bits == 0 {
        0
    } else if value == 1.0 {
        1
    } else if value == -1.0 {
        2
    } else if value == 2.0 {
        3
    } else if value == 0.5 {
        4
    } else if value == 0.0 {
        5
    } else if value.is_nan() {
        1000 + u32::from(bits != dtype.round_from_f64(f64::NAN))
    } else if value.is_infinite() {
        900 + negative
    } else if value.fract() == 0.0 && value.abs() <= 16.0 {
        8 + 2 * value.abs() as u32 + negative
    } else {
        50 + 2 * significant_bits(value) + negative
    }
}

/// Bits from the leading one to the last one set.
fn significant_bits(value: f64) -> u32 {
    let fraction = value.to_bits() & ((1 << 52) - 1);
    if fraction == 0 { 1 } else { 53 - fraction.trailing_zeros() }
}

/// The value cut to its leading significant bits; 0 keeps ±1. Zeros, infinities and NaN stay.
fn shortened(dtype: DType, bits: u64, significant: u32) -> u64 {
    let value = dtype.to_f64(bits);
    if value == 0.0
        || !value.is_finite()
        || (dtype.is_float() && significant_bits(value) <= significant)
    {
        return bits;
    }
    let short = match significant {
        0 => 1f64.copysign(value),
        bits => f64::from_bits(value.to_bits() >> (53 - bits) << (53 - bits)),
    };
    let short = dtype.round_from_f64(short);
    if rank(dtype, short) < rank(dtype, bits) { short } else { bits }
}

/// Values to try in an element's place, plainest first, all plainer than it.
fn plainer_values(dtype: DType, bits: u64) -> Vec<u64> {
    let value = dtype.to_f64(bits);
    let mut plain: Vec<u64> =
        [1.0, -1.0, 2.0, 0.5].into_iter().map(|v| dtype.round_from_f64(v)).collect();
    if value.is_nan() {
        plain.push(dtype.round_from_f64(f64::NAN));
    } else if value.is_finite() {
        if value.abs() <= 16.0 {
            plain.push(dtype.round_from_f64(value.round()));
        }
        plain.extend([1, 2, 4, 8].map(|significant| shortened(dtype, bits, significant)));
    }
    plain.dedup();
    plain.retain(|new| *new != 0 && rank(dtype, *new) < rank(dtype, bits));
    plain
}

/// Values to try for a scalar: one, then the contract's first.
pub(super) fn plain_scalars(scalar: &Scalar, case: &Case, bits: u64) -> Vec<u64> {
    let one = scalar.dtype.round_from_f64(1.0);
    let first = match scalar.values.first() {
        Some(Values::Zero) => Some(0.0),
        Some(Values::Constant(value)) => Some(*value),
        Some(Values::ModelScale(dim)) => case.dims.get(dim).map(|size| 1.0 / (*size as f64).sqrt()),
        _ => None,
    };
    let mut plain = vec![one];
    plain.extend(first.map(|value| scalar.dtype.round_from_f64(value)));
    // Stops at the value already held: what comes after it is no plainer.
    let held = plain.iter().position(|candidate| *candidate == bits).unwrap_or(plain.len());
    plain.truncate(held);
    plain
}

/// Sparse where that is smaller; the same bits.
pub(super) fn compact(contract: &Contract, case: &mut Case) {
    let names: Vec<String> = contract.tensors.keys().cloned().collect();
    for name in names {
        let Some(edited) = Edited::of(contract, case, &name) else { continue };
        if !matches!(edited.content, Content::Dense(_)) {
            continue;
        }
        let different = edited.different();
        if different.len() as u64 * 16 <= edited.count() * edited.dtype.size_bytes() {
            let content = Content::Sparse {
                fill: Fill::Bits(edited.base),
                at: different.into_iter().collect(),
            };
            if let Some(CaseTensor { content: held, .. }) = case.tensors.get_mut(&name) {
                *held = content;
            }
        }
    }
}
