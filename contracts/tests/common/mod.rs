//! Cases for tests: every decision from one seed, contents of every kind, all legal.
#![allow(dead_code)]

use contracts::case::hashed_bits;
use contracts::expr::Value;
use contracts::format::{Access, Domain, LayoutKind};
use contracts::{
    Case, CaseScope, CaseTensor, Content, Contract, DType, Decision, Decisions, Fill, Geometry,
    Layout, Poison, Schedule, StoreForm, decision_order,
};

/// A stream of numbers from a seed.
pub struct Draws(pub u64, pub u64);

impl Draws {
    pub fn below(&mut self, n: u64) -> u64 {
        self.1 += 1;
        hashed_bits(self.0, self.1) % n.max(1)
    }

    fn between(&mut self, [low, high]: [i64; 2]) -> i64 {
        low + self.below((high - low + 1) as u64) as i64
    }

    fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }
}

/// A legal case.
pub fn sample(contract: &Contract, seed: u64) -> Case {
    sample_of(contract, seed, false)
}

/// A legal case with the first type, option and variant of each.
pub fn plain_sample(contract: &Contract, seed: u64) -> Case {
    sample_of(contract, seed, true)
}

fn sample_of(contract: &Contract, seed: u64, plain: bool) -> Case {
    let mut draws = Draws(seed, 0);
    let mut case = Case {
        contract: contract.contract.clone(),
        version: contract.version,
        found: None,
        dtypes: contract.dtypes.iter().map(|(n, types)| (n.clone(), *draws.pick(types))).collect(),
        options: Decisions::new(),
        variants: Decisions::new(),
        dims: Decisions::new(),
        lists: Decisions::new(),
        scalars: Decisions::new(),
        stores: Decisions::new(),
        poison: *draws.pick(&[Poison::Quiet, Poison::Signalling]),
        schedule: *draws.pick(&[
            Schedule::InOrder,
            Schedule::Seeded(0),
            Schedule::Seeded(u64::MAX),
        ]),
        tensors: Decisions::new(),
    };
    for (name, words) in &contract.options {
        case.options.insert(name.clone(), draws.pick(words).clone());
    }
    for (name, variant) in &contract.variants {
        case.variants.insert(name.clone(), draws.pick(&variant.values).0.clone());
    }
    if plain {
        for (name, types) in &contract.dtypes {
            case.dtypes.insert(name.clone(), types[0]);
        }
        for (name, words) in &contract.options {
            case.options.insert(name.clone(), words[0].clone());
        }
        for (name, variant) in &contract.variants {
            case.variants.insert(name.clone(), variant.values[0].0.clone());
        }
    }
    for decision in decision_order(contract) {
        decide(contract, &mut case, decision, &mut draws);
    }
    for (name, variant) in &contract.variants {
        let is_available = |condition: &contracts::Expr| {
            condition.eval_bool(&CaseScope::new(contract, &case)).expect("a condition")
        };
        if !variant.available.get(&case.variants[name]).is_none_or(is_available) {
            case.variants.insert(name.clone(), variant.values[0].0.clone());
        }
    }
    for (name, scalar) in &contract.scalars {
        case.scalars.insert(name.clone(), scalar.dtype.round_from_f64(0.125));
    }
    for name in contract.stores.keys() {
        let form = if draws.below(2) == 0 {
            StoreForm::Separate
        } else {
            StoreForm::Packed { pad: 8 * draws.below(3) }
        };
        case.stores.insert(name.clone(), form);
    }
    for (name, tensor) in &contract.tensors {
        let present = tensor.when.as_ref().is_none_or(|when| {
            when.eval_bool(&CaseScope::new(contract, &case)).expect("a condition")
        });
        if present {
            case.tensors.insert(
                name.clone(),
                CaseTensor { layout: Layout::Dense, content: Content::Output },
            );
        }
    }
    let dense = Geometry::layout_only(contract, &case).expect("a legal structure");
    for tensor in &dense.tensors {
        let declared = &contract.tensors[&tensor.name];
        let packed = contract.stores.iter().any(|(store, s)| {
            s.holds.contains(&tensor.name) && matches!(case.stores[store], StoreForm::Packed { .. })
        });
        let align = tensor.align_bytes / tensor.dtype.size_bytes();
        let amount = align * (1 + draws.below(3));
        let layout = match declared.layout.get(draws.below(declared.layout.len() as u64) as usize) {
            _ if packed => Layout::Dense,
            Some(LayoutKind::RowPadded) => Layout::RowPadded(amount),
            Some(LayoutKind::OuterPadded) => Layout::OuterPadded(amount),
            Some(LayoutKind::Offset) => Layout::Offset(amount),
            Some(LayoutKind::Wide) if tensor.shape[0] >= 2 => Layout::Wide,
            Some(LayoutKind::Wide) => Layout::Dense,
            Some(LayoutKind::Permuted) => Layout::Permuted,
            Some(LayoutKind::OddUnitStrides) => Layout::OddUnitStrides(amount),
            Some(LayoutKind::Rank0) => Layout::Rank0,
            Some(LayoutKind::Dense) | None => Layout::Dense,
        };
        let content = if declared.from.is_some() {
            Content::Derived
        } else if tensor.access == Access::Write {
            Content::Output
        } else {
            let domain = declared.domain_under(&case.options).expect("an input has a domain");
            contents(domain, tensor.dtype, tensor.count(), &mut draws)
        };
        case.tensors[&tensor.name] = CaseTensor { layout, content };
    }
    case
}

fn decide(contract: &Contract, case: &mut Case, decision: Decision<'_>, draws: &mut Draws) {
    let int = |case: &Case, expr: &contracts::Expr| {
        expr.eval_int(&CaseScope::new(contract, case)).expect("an integer") as i64
    };
    match decision {
        Decision::Dim(name) => {
            let dim = &contract.dims[name];
            let size = if let Some(range) = dim.range {
                draws.between([range[0], range[1].min(range[0] + 40)])
            } else if !dim.one_of.is_empty() {
                *draws.pick(&dim.one_of[..dim.one_of.len().min(2)])
            } else if let Some(unit) = &dim.multiple_of {
                int(case, unit) * draws.between(dim.factor.expect("a factor"))
            } else if let Some(least) = &dim.at_least {
                int(case, least) + draws.between(dim.slack.expect("a slack"))
            } else if let Some(list) = &dim.segments {
                case.lists[list].iter().sum::<i64>() + draws.between(dim.spare.unwrap_or([0, 0]))
            } else {
                int(case, dim.is.as_ref().expect("a form"))
            };
            case.dims.insert(name.to_owned(), size);
        }
        Decision::List(name) => {
            let list = &contract.lists[name];
            let count = case.dims[&list.each] as usize;
            let mut free: Vec<i64> = match &list.slots {
                Some(slots) => (0..case.dims[&slots.pool]).collect(),
                None => Vec::new(),
            };
            let items = (0..count).map(|index| {
                if let Some(length) = &list.length {
                    draws.between([length.range[0], length.range[1].min(70)])
                } else if let Some(slots) = &list.slots {
                    match slots.pad.first() {
                        Some(pad) if draws.below(4) == 0 => *pad,
                        _ => free.swap_remove(draws.below(free.len() as u64) as usize),
                    }
                } else if let Some(ids) = &list.ids {
                    match ids.invalid.first() {
                        Some(invalid) if draws.below(4) == 0 => int(case, invalid),
                        _ => draws.below(case.dims[&ids.below] as u64) as i64,
                    }
                } else {
                    let scope = CaseScope::new(contract, case).at(&list.each, index);
                    list.is.as_ref().expect("a form").eval_int(&scope).expect("an integer") as i64
                }
            });
            let items = items.collect();
            case.lists.insert(name.to_owned(), items);
        }
    }
}

fn contents(domain: &Domain, dtype: DType, count: u64, draws: &mut Draws) -> Content {
    let value = match domain {
        Domain::Range([low, high]) | Domain::RangeOrInfinite([low, high]) => (low + high) / 2.0,
        Domain::Positive | Domain::Nonzero => 1.5,
        Domain::AtMost(most) => most.min(0.0),
        Domain::Any | Domain::Finite | Domain::RowNorm(_) => 0.0,
    };
    let fill = dtype.round_from_f64(value);
    let seed = draws.below(u64::MAX);
    let any = *domain == Domain::Any;
    let element = |index: u64| {
        let bits = hashed_bits(seed, index) & dtype.mask();
        if any || (dtype.to_f64(bits).abs() <= 0.01 && matches!(domain, Domain::RowNorm(_))) {
            bits
        } else {
            fill
        }
    };
    match draws.below(3) {
        0 if any => Content::Sparse { fill: Fill::Hashed { seed }, at: Default::default() },
        1 => {
            let at =
                (0..count.min(5)).map(|i| (i * count / 5 % count.max(1), element(i))).collect();
            Content::Sparse { fill: Fill::Bits(fill), at }
        }
        _ if count > 100_000 => Content::Sparse { fill: Fill::Bits(fill), at: Default::default() },
        _ => {
            let mut bytes = Vec::new();
            (0..count).for_each(|index| dtype.push_bytes(element(index), &mut bytes));
            Content::Dense(bytes)
        }
    }
}

/// The integer an expression text gives without any name.
pub fn constant(text: &str) -> Option<i128> {
    struct Nothing;
    impl contracts::Scope for Nothing {
        fn value(&self, _: &str) -> Option<Value<'_>> {
            None
        }
    }
    contracts::Expr::parse(text).ok()?.eval_int(&Nothing).ok()
}
