//! The clauses of a contract: every promise code can check, each under a dotted id. Counting, mutants
//! and known failures all speak in these ids, so the list is made in one place.

use crate::case::Decisions;
use crate::dtype::DType;
use crate::expr::{Expr, Scope, Value};
use crate::format::{Access, By, Contract, Detected, Drift, Named, Tensor, Tolerance};
use crate::scope::worded;

/// What a clause needs beside the machine every run has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Nothing: exercisable everywhere.
    Nothing,
    /// A CUDA device.
    Cuda,
    /// The run-time compiler.
    Nvrtc,
}

impl Need {
    /// The name of what is missing for it here, if something is.
    pub fn missing(self, has_cuda: bool, has_nvrtc: bool) -> Option<&'static str> {
        match self {
            Need::Cuda if !has_cuda => Some("cuda"),
            Need::Nvrtc if !has_nvrtc => Some("nvrtc"),
            _ => None,
        }
    }
}

/// What is promised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClauseKind {
    /// `tolerance.<tensor>.<class>`.
    Tolerance {
        /// The written tensor.
        tensor: String,
        /// The class.
        class: String,
    },
    /// `drift.<tensor>.<class>`.
    Drift {
        /// The written tensor.
        tensor: String,
        /// The class.
        class: String,
    },
    /// `nan.<tensor>`.
    Nan {
        /// The written tensor.
        tensor: String,
    },
    /// `relations.<name>`.
    Relation(String),
    /// `paths.<name>`.
    Path(String),
    /// `requires.<name>`.
    Requires(String),
    /// `rejects.<name>`.
    Rejects(String),
    /// `rejects.auto.<what>.<tensor>`.
    AutoReject {
        /// What is broken.
        what: AutoReject,
        /// The tensor it is broken for.
        tensor: String,
    },
    /// `house.<rule>`.
    House(&'static str),
    /// `mutants.<id>`.
    Mutant(String),
}

/// Refusals every contract promises without writing them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AutoReject {
    /// A type the tensor must not have.
    Dtype,
    /// A shape that contradicts the dims.
    Shape,
    /// A row stride smaller than a row.
    Stride,
    /// A base that is not a multiple of the alignment.
    Align,
    /// A scale of another kind.
    Kind,
    /// A written tensor that overlaps another.
    Alias,
}

impl AutoReject {
    /// The word in the clause id.
    pub fn name(self) -> &'static str {
        match self {
            AutoReject::Dtype => "dtype",
            AutoReject::Shape => "shape",
            AutoReject::Stride => "stride",
            AutoReject::Align => "align",
            AutoReject::Kind => "kind",
            AutoReject::Alias => "alias",
        }
    }
}

/// Rules every kernel keeps unless its contract excepts one, and what checking them needs.
pub const HOUSE_RULES: [(&str, Need); 15] = [
    ("accepts", Need::Nothing),
    ("bounds", Need::Nothing),
    ("initialised", Need::Nothing),
    ("races", Need::Nothing),
    ("barriers", Need::Nothing),
    ("budget", Need::Nothing),
    ("read_only", Need::Nothing),
    ("dead_untouched", Need::Nothing),
    ("unread", Need::Nothing),
    ("written", Need::Nothing),
    ("poison_agree", Need::Nothing),
    ("repeat", Need::Nothing),
    ("schedule", Need::Nothing),
    ("guard", Need::Cuda),
    ("capture", Need::Cuda),
];

/// House rules that a contract may except. The others end a run where they are broken, and what it would
/// have left is unknown.
pub const EXCUSABLE_RULES: [&str; 5] = ["written", "poison_agree", "repeat", "schedule", "capture"];

/// One promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clause {
    /// Dotted id.
    pub id: String,
    /// What is promised, in parts.
    pub kind: ClauseKind,
    /// Where it can be exercised.
    pub needs: Need,
}

impl Clause {
    /// As `applies`, for any choice of the dtype symbols after the contract's first.
    pub fn applies_to(&self, contract: &Contract, first_symbol: DType) -> bool {
        let first = contract.dtypes.keys().next().cloned();
        self.applies(contract, &first.into_iter().map(|symbol| (symbol, first_symbol)).collect())
    }

    /// Whether some case with these dtypes exercises it: whether any choice of options, variants and
    /// symbols not given admits its condition, and has its tensor present and written.
    pub fn applies(&self, contract: &Contract, dtypes: &Decisions<DType>) -> bool {
        let (tensor, when) = match &self.kind {
            ClauseKind::Tolerance { tensor, class } => {
                let classes = contract.tolerance.get(tensor);
                (Some(tensor), classes.and_then(|c| c.get(class)).and_then(|c| c.when.as_ref()))
            }
            ClauseKind::Drift { tensor, class } => {
                let classes = contract.drift.get(tensor);
                (Some(tensor), classes.and_then(|c| c.get(class)).and_then(|c| c.when.as_ref()))
            }
            ClauseKind::Nan { tensor } => (Some(tensor), None),
            ClauseKind::Relation(name) => {
                (None, contract.relations.get(name).and_then(|r| r.when.as_ref()))
            }
            ClauseKind::Path(name) => {
                (None, contract.paths.get(name).and_then(|path| path.when.as_ref()))
            }
            _ => return true,
        };
        let tensor = tensor.and_then(|name| contract.tensors.get(name));
        let exprs = when.into_iter().chain(tensor.and_then(|t| t.when.as_ref()));
        assignments(contract, exprs, tensor.map(|t| &t.access), Some(dtypes)).iter().any(|scope| {
            let holds = |e: &Expr| e.eval_bool(scope).unwrap_or(false);
            when.is_none_or(holds)
                && tensor.is_none_or(|t| t.when.as_ref().is_none_or(holds) && is_written(t, scope))
        })
    }
}

impl Contract {
    /// The class of tolerance that judges a written tensor in this scope, and its name.
    pub fn tolerance_of(&self, tensor: &str, scope: &dyn Scope) -> Option<(&str, &Tolerance)> {
        admitting(self.tolerance.get(tensor)?, scope, |class| class.when.as_ref())
    }

    /// The drift clause that judges a written tensor in this scope, if there is one, and its name.
    pub fn drift_of(&self, tensor: &str, scope: &dyn Scope) -> Option<(&str, &Drift)> {
        admitting(self.drift.get(tensor)?, scope, |class| class.when.as_ref())
    }
}

/// The first class whose condition holds.
fn admitting<'a, T>(
    classes: &'a Named<T>,
    scope: &dyn Scope,
    when: fn(&T) -> Option<&Expr>,
) -> Option<(&'a str, &'a T)> {
    let holds = |class: &T| when(class).is_none_or(|expr| expr.eval_bool(scope).unwrap_or(false));
    classes.iter().find(|(_, class)| holds(class)).map(|(name, class)| (name.as_str(), class))
}

/// Every clause of a contract, in the order of its sections.
pub fn clauses(contract: &Contract) -> Vec<Clause> {
    let mut all = Vec::new();
    let mut add = |id: String, kind, needs| all.push(Clause { id, kind, needs });
    for (tensor, classes) in &contract.tolerance {
        for class in classes.keys() {
            let kind = ClauseKind::Tolerance { tensor: tensor.clone(), class: class.clone() };
            add(format!("tolerance.{tensor}.{class}"), kind, Need::Nothing);
        }
    }
    for (tensor, classes) in &contract.drift {
        for class in classes.keys() {
            let kind = ClauseKind::Drift { tensor: tensor.clone(), class: class.clone() };
            add(format!("drift.{tensor}.{class}"), kind, Need::Nothing);
        }
    }
    for tensor in contract.nan.iter().flat_map(|nan| nan.reach.keys()) {
        add(format!("nan.{tensor}"), ClauseKind::Nan { tensor: tensor.clone() }, Need::Nothing);
    }
    for name in contract.relations.keys() {
        add(format!("relations.{name}"), ClauseKind::Relation(name.clone()), Need::Nothing);
    }
    for name in contract.paths.keys() {
        add(format!("paths.{name}"), ClauseKind::Path(name.clone()), Need::Nothing);
    }
    for name in contract.requires.keys() {
        add(format!("requires.{name}"), ClauseKind::Requires(name.clone()), Need::Nothing);
    }
    for (name, rejection) in &contract.rejects {
        if rejection.detected != Detected::Caller {
            add(format!("rejects.{name}"), ClauseKind::Rejects(name.clone()), Need::Nothing);
        }
    }
    for (tensor, what) in auto_rejects(contract) {
        let id = format!("rejects.auto.{}.{tensor}", what.name());
        add(id, ClauseKind::AutoReject { what, tensor: tensor.to_owned() }, Need::Nothing);
    }
    for (rule, needs) in HOUSE_RULES {
        if !contract.except.contains_key(rule) {
            add(format!("house.{rule}"), ClauseKind::House(rule), needs);
        }
    }
    let to_catch = contract.mutants.iter().filter(|(_, mutant)| mutant.equivalent.is_none());
    for (id, _) in to_catch {
        add(format!("mutants.{id}"), ClauseKind::Mutant(id.clone()), Need::Nvrtc);
    }
    all
}

fn auto_rejects(contract: &Contract) -> Vec<(&str, AutoReject)> {
    let mut all = Vec::new();
    for (name, tensor) in &contract.tensors {
        let mut add = |what, wanted: bool| {
            if wanted {
                all.push((name.as_str(), what));
            }
        };
        let smallest = allowed_dtypes(contract, tensor).map(DType::size_bytes).min().unwrap_or(1);
        add(AutoReject::Dtype, true);
        add(AutoReject::Shape, true);
        add(AutoReject::Stride, tensor.shape.len() >= 2);
        add(AutoReject::Align, tensor.align.is_some_and(|align| align > smallest));
        add(AutoReject::Kind, tensor.kind.is_some());
        add(AutoReject::Alias, accesses(tensor).any(|access| access != Access::Read));
    }
    all
}

/// Every type a tensor may have.
pub(crate) fn allowed_dtypes<'a>(
    contract: &'a Contract,
    tensor: &'a Tensor,
) -> impl Iterator<Item = DType> + 'a {
    let symbol = contract.dtypes.get(&tensor.dtype.0);
    let fixed = DType::ALL.into_iter().find(|dtype| dtype.name() == tensor.dtype.0);
    symbol.into_iter().flatten().copied().chain(fixed.filter(move |_| symbol.is_none()))
}

/// Every access a tensor may have.
pub(crate) fn accesses(tensor: &Tensor) -> impl Iterator<Item = Access> + '_ {
    let (always, table) = match &tensor.access {
        By::Always(access) => (Some(*access), None),
        By::Option { by } => (None, by.first().map(|(_, table)| table.values().copied())),
    };
    always.into_iter().chain(table.into_iter().flatten())
}

/// Whether the tensor is written under this assignment.
pub(crate) fn is_written(tensor: &Tensor, scope: &Assignment<'_>) -> bool {
    let access = match &tensor.access {
        By::Always(access) => Some(access),
        By::Option { by } => by.first().and_then(|(option, table)| {
            scope.0.iter().find(|(name, _)| name == option).and_then(|(_, word)| table.get(*word))
        }),
    };
    access.is_some_and(|access| *access != Access::Read)
}

/// One choice of words for some options, variants and dtype symbols.
#[derive(Clone, Debug)]
pub(crate) struct Assignment<'a>(pub(crate) Vec<(&'a str, &'a str)>);

impl Scope for Assignment<'_> {
    fn value(&self, name: &str) -> Option<Value<'_>> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, word)| worded(word))
    }
}

/// Most assignments looked at; a contract with more in one condition is refused.
pub(crate) const MOST_ASSIGNMENTS: usize = 4096;

/// Every assignment of the choices these conditions and this access mention; dtype symbols are fixed
/// where given. Stops growing beyond `MOST_ASSIGNMENTS`.
pub(crate) fn assignments<'a>(
    contract: &'a Contract,
    exprs: impl Iterator<Item = &'a Expr>,
    access: Option<&'a By<Access>>,
    fixed: Option<&Decisions<DType>>,
) -> Vec<Assignment<'a>> {
    let mut names: Vec<&str> = exprs.flat_map(Expr::names).collect();
    if let Some(By::Option { by }) = access {
        names.extend(by.keys().map(String::as_str));
    }
    names.sort_unstable();
    names.dedup();
    let mut all = vec![Assignment(Vec::new())];
    for name in names {
        let words = match fixed.and_then(|dtypes| dtypes.get(name)) {
            Some(dtype) => vec![dtype.name()],
            None => match crate::names::words_of(contract, name) {
                Some(words) => words,
                None => continue,
            },
        };
        if all.len() * words.len() > MOST_ASSIGNMENTS {
            break;
        }
        all = all
            .into_iter()
            .flat_map(|Assignment(known)| {
                words.iter().map(move |word| {
                    let mut next = known.clone();
                    next.push((name, *word));
                    Assignment(next)
                })
            })
            .collect();
    }
    all
}
