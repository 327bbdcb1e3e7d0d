//! Values of scalars and tensors: joint generators, one named generator per other tensor, then a few
//! special values and, rarely, NaN where the contract says how far it may reach.

use super::layouts::shape_of;
use super::plan::first_axis;
use super::structure::pick;
use super::{Source, Swarm};
use crate::choices::Path;
use crate::values::{
    self, Field, GateField, GateTensors, Gates, MATERIALISED_ELEMENTS, Member, SPARSE_ELEMENTS,
    in_domain, rounded, set_element,
};
use contracts::Geometry;
use contracts::case::{Case, Content};
use contracts::dtype::{DType, Poison};
use contracts::format::{Domain, Joint, Tensor, Values};

impl Source<'_> {
    /// Draws every scalar and the contents of every tensor the kernel reads.
    pub(super) fn contents(&mut self, case: &mut Case) {
        self.scalars(case);
        let contract = self.contract;
        let mut joint: Vec<&str> = Vec::new();
        for (name, generator) in &contract.joint {
            joint.extend(self.gates(case, name, generator));
        }
        for (index, (name, tensor)) in contract.tensors.iter().enumerate() {
            let assigned = self.fixture.and_then(|fixture| fixture.values.get(name));
            if !is_drawn(case, name) || (joint.contains(&name.as_str()) && assigned.is_none()) {
                continue;
            }
            let Some(content) = self.tensor(case, name, tensor, assigned, self.plan.pooled[index])
            else {
                continue;
            };
            if let Some(drawn) = case.tensors.get_mut(name) {
                drawn.content = content;
            }
        }
        if self.swarm.has(Swarm::SPECIAL) {
            self.special_values(case);
        }
        if self.swarm.has(Swarm::NAN) && self.choices.one_in(Path::new("nan"), 3) {
            self.nan(case);
        }
    }

    fn scalars(&mut self, case: &mut Case) {
        for (name, scalar) in &self.contract.scalars {
            let path = Path::new("scalars").child(name);
            let seed = self.choices.seed(path.child("seed"));
            let field = Field {
                dtype: scalar.dtype,
                shape: &[1],
                domain: &scalar.domain,
                seed,
                dims: &case.dims,
            };
            let drawn = pick(self.choices, path.child("values"), &scalar.values);
            let bits = drawn.map_or(field.zero(), |values| values::scalar(values, &field));
            case.scalars.insert(name.clone(), bits);
        }
    }

    /// One tensor's contents. A zero seed is the simplest of them all: zero, where the domain has it.
    fn tensor(
        &mut self,
        case: &Case,
        name: &str,
        tensor: &Tensor,
        assigned: Option<&Values>,
        pooled: bool,
    ) -> Option<Content> {
        let path = Path::new("tensors").child(name);
        let dtype = tensor.dtype.resolve(&case.dtypes)?;
        let shape = shape_of(self.contract, case, tensor)?;
        let domain = tensor.domain_under(&case.options).unwrap_or(&Domain::Any);
        let seed = self.choices.seed(path.child("seed"));
        let field = Field { dtype, shape: &shape, domain, seed, dims: &case.dims };
        let generator = match assigned {
            Some(values) => values,
            None => pick(self.choices, path.child("values"), &tensor.values)?,
        };
        if seed == 0 && assigned.is_none() {
            return Some(values::fill(field.zero()));
        }
        if let Some(content) = values::described(generator, &field) {
            return Some(content);
        }
        let rows = if pooled { named_rows(case, tensor, &shape) } else { None };
        let count = field.count();
        if count <= MATERIALISED_ELEMENTS || (self.production && !pooled) {
            return Some(values::materialised(generator, &field, rows.as_deref()));
        }
        // A table: only the rows named exist, if they are few enough to be written down.
        let rows = rows.unwrap_or_default();
        let few = rows.len() as u64 * (count / shape[0].max(1)) <= SPARSE_ELEMENTS;
        Some(match (few, domain) {
            (true, _) => values::content_of_rows(generator, &field, &rows),
            (false, Domain::Any) => values::described(&Values::Hashed, &field)?,
            (false, _) => values::fill(field.zero()),
        })
    }

    /// Draws the gates in the form that is there to be drawn; the tensors written.
    fn gates<'j>(&mut self, case: &mut Case, name: &str, joint: &'j Joint) -> Vec<&'j str> {
        let contract = self.contract;
        let Joint::GdnGates { log, alpha, beta, raw, classes } = joint;
        let forms = [
            Some(vec![log.as_str(), beta]),
            alpha.as_ref().map(|alpha| vec![alpha.as_str(), beta]),
            raw.as_ref().map(|raw| vec![raw.a.as_str(), &raw.b, &raw.dt_bias, &raw.a_log]),
        ];
        let is_whole = |form: &Option<Vec<&str>>| {
            form.as_ref().is_some_and(|form| form.iter().all(|name| is_drawn(case, name)))
        };
        let Some(place) = forms.iter().position(is_whole) else { return Vec::new() };
        let members = forms.into_iter().nth(place).flatten().unwrap_or_default();
        let declared: Vec<&Tensor> =
            members.iter().filter_map(|name| contract.tensors.get(*name)).collect();
        let typed: Vec<Member<'_>> = declared
            .iter()
            .map(|tensor| {
                let domain = tensor.domain_under(&case.options);
                (type_of(case, tensor), domain.unwrap_or(&Domain::Finite))
            })
            .collect();
        let tensors = match (place, typed.as_slice()) {
            (0, &[log, beta]) => GateTensors::Log([log, beta]),
            (1, &[alpha, beta]) => GateTensors::Alpha([alpha, beta]),
            (2, &[a, b, dt_bias, a_log]) => GateTensors::Raw([a, b, dt_bias, a_log]),
            _ => return Vec::new(),
        };
        let Some(shape) = shape_of(contract, case, declared[0]) else { return Vec::new() };
        let path = Path::new("joint").child(name);
        let assigned = self.fixture.and_then(|fixture| fixture.joint.get(name)).copied();
        // Half of the cases have one class in every head; the other half mix.
        let drawn = self.choices.choose(path.child("class"), 2 * classes.len() as u64);
        let gates = Gates {
            classes,
            only: assigned.or_else(|| classes.get(drawn as usize).copied()),
            adversarial: assigned.is_none() && self.swarm.has(Swarm::SPECIAL),
            seed: self.choices.seed(path.child("seed")),
        };
        let segments = first_axis(declared[0])
            .and_then(|axis| contract.dims.get(axis)?.segments.as_ref())
            .and_then(|list| case.lists.get(list));
        let field = GateField {
            tensors,
            rows: shape.first().copied().unwrap_or(1),
            heads: shape.iter().skip(1).product(),
            segments: segments.map(Vec::as_slice),
        };
        let contents = gates.contents(&field);
        for (tensor, content) in members.iter().zip(contents) {
            if let Some(drawn) = case.tensors.get_mut(*tensor) {
                drawn.content = content;
            }
        }
        members
    }

    /// Up to three elements of one tensor become special values its domain admits.
    fn special_values(&mut self, case: &mut Case) {
        let path = Path::new("special");
        let count = self.choices.choose(path, 4);
        if count == 0 {
            return;
        }
        let readable: Vec<usize> =
            (0..case.tensors.len()).filter(|index| is_drawn_at(case, *index)).collect();
        let Some(index) = pick(self.choices, path.child("tensor"), &readable).copied() else {
            return;
        };
        let Some((name, _)) = case.tensors.get_index(index) else { return };
        let Some(tensor) = self.contract.tensors.get(name) else { return };
        let assigned = self.fixture.is_some_and(|fixture| fixture.values.contains_key(name));
        let (Some(shape), false) = (shape_of(self.contract, case, tensor), assigned) else {
            return;
        };
        let (dtype, elements) = (type_of(case, tensor), shape.iter().product::<u64>());
        let domain = tensor.domain_under(&case.options).unwrap_or(&Domain::Any);
        let candidates = special_in(domain, dtype);
        for planted in 0..count {
            let path = path.index(planted as usize);
            let flat = self.choices.choose(path.child("element"), elements);
            let bits = pick(self.choices, path.child("bits"), &candidates).copied();
            if let (Some(bits), true) = (bits, elements > 0) {
                set_element(&mut case.tensors[index].content, dtype, flat, bits);
            }
        }
    }

    /// One or two NaN, quiet or signalling, among the live elements of one tensor the contract names.
    fn nan(&mut self, case: &mut Case) {
        let Some(policy) = &self.contract.nan else { return };
        let path = Path::new("nan");
        let into: Vec<&String> = policy.into.iter().filter(|name| is_drawn(case, name)).collect();
        let Some(name) = pick(self.choices, path.child("tensor"), &into).copied() else { return };
        let Ok(geometry) = Geometry::lay_out(self.contract, case) else { return };
        let Some(tensor) = geometry.tensor(name) else { return };
        let live: Vec<u64> = (0..tensor.shape.first().copied().unwrap_or(1))
            .filter(|row| tensor.is_live_row(*row))
            .collect();
        for planted in 0..=self.choices.choose(path.child("count"), 2) {
            let path = path.index(planted as usize);
            let row = pick(self.choices, path.child("row"), &live).copied();
            let column = self.choices.choose(path.child("column"), tensor.row_count());
            let signalling = self.choices.choose(path.child("signalling"), 2) == 1;
            let bits =
                tensor.dtype.poison(if signalling { Poison::Signalling } else { Poison::Quiet });
            if let (Some(row), Some(drawn), true) =
                (row, case.tensors.get_mut(name), tensor.row_count() > 0)
            {
                set_element(
                    &mut drawn.content,
                    tensor.dtype,
                    row * tensor.row_count() + column,
                    bits,
                );
            }
        }
    }
}

/// The indices of a pool that its list names, ascending: nobody sees the others.
fn named_rows(case: &Case, tensor: &Tensor, shape: &[u64]) -> Option<Vec<u64>> {
    let list = case.lists.get(&tensor.live.as_ref()?.by)?;
    let extent = shape.first().copied()?;
    let mut rows: Vec<u64> = list
        .iter()
        .filter_map(|row| u64::try_from(*row).ok())
        .filter(|row| *row < extent)
        .collect();
    rows.sort_unstable();
    rows.dedup();
    Some(rows)
}

fn type_of(case: &Case, tensor: &Tensor) -> DType {
    tensor.dtype.resolve(&case.dtypes).unwrap_or(DType::F32)
}

fn is_drawn(case: &Case, name: &str) -> bool {
    case.tensors.get_index_of(name).is_some_and(|index| is_drawn_at(case, index))
}

fn is_drawn_at(case: &Case, index: usize) -> bool {
    !matches!(case.tensors[index].content, Content::Derived | Content::Output)
}

/// Special values that stay in the domain wherever they stand: where row norms are bounded, only
/// those too small to count.
fn special_in(domain: &Domain, dtype: DType) -> Vec<u64> {
    let sign = (dtype.mask() >> 1) + 1;
    match domain {
        Domain::Any => values::special_bits(dtype),
        Domain::RowNorm(_) => vec![0, sign, 1, sign | 1],
        Domain::Range(ends) | Domain::RangeOrInfinite(ends) => {
            let values = [ends[0], ends[1], 0.0, -0.0, 1.0, dtype.smallest_subnormal()];
            values.iter().map(|value| in_domain(domain, dtype, rounded(dtype, *value))).collect()
        }
        Domain::AtMost(most) => {
            let values = [f64::NEG_INFINITY, *most, -104.0, -1.0e4, -0.0, 0.0];
            values.iter().map(|value| in_domain(domain, dtype, rounded(dtype, *value))).collect()
        }
        Domain::Finite | Domain::Positive | Domain::Nonzero => {
            let tiny = dtype.smallest_subnormal();
            let values = [0.0, -0.0, 1.0, -1.0, tiny, -tiny, 1024.0, 0.000_976_562_5];
            values.iter().map(|value| in_domain(domain, dtype, rounded(dtype, *value))).collect()
        }
    }
}
