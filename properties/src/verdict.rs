//! What became of one case. A verdict is data, never an error; an error is the tool itself failing.

use std::fmt;

/// What became of one case.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Every clause examined held.
    Agree,
    /// A clause failed on values.
    Disagree(Box<Disagreement>),
    /// The kernel did what no kernel may: the clause is the house rule it broke.
    Fault(Box<FaultReport>),
    /// The backend cannot run this; never a kernel's fault.
    Unsupported(String),
    /// The case is not one the contract speaks of.
    Discard(String),
}

/// A clause that failed on values.
#[derive(Clone, Debug, PartialEq)]
pub struct Disagreement {
    /// Clause id.
    pub clause: String,
    /// Tensor, where one is at fault.
    pub tensor: Option<String>,
    /// Logical index of the first wrong element.
    pub index: Vec<u64>,
    /// Expected, as a reader should see it: value and bits.
    pub expected: String,
    /// Observed, likewise.
    pub observed: String,
    /// Which instruction stored the element last, with place, thread and values, or that none did;
    /// empty where nobody asked (`provenance::trace`).
    pub written_by: String,
    /// |observed − expected| and what was allowed, where the clause is numeric.
    pub error: Option<ErrorSummary>,
    /// What the clause compares, in words, when that is not plain.
    pub note: String,
}

/// How far off a tensor was.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ErrorSummary {
    /// At the first wrong element.
    pub error: f64,
    /// Allowed there.
    pub bound: f64,
    /// Wrong elements.
    pub wrong: u64,
    /// Elements compared.
    pub compared: u64,
    /// Largest error.
    pub max_abs: f64,
    /// Largest error in units in the last place of the expectation, in the tensor's type.
    pub max_ulps: f64,
    /// Relative RMS error over the tensor.
    pub relative_rms: f64,
    /// ‖observed‖ / ‖expected‖.
    pub norm_ratio: f64,
    /// NaN or infinite where the expectation is finite.
    pub nonfinite: u64,
    /// Largest error / bound over all elements: how far inside (or outside) the bound the kernel is.
    pub worst_ratio: f64,
}

/// What a kernel did that no kernel may.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultReport {
    /// The house rule: `house.bounds`, `house.races`…
    pub clause: String,
    /// One paragraph: kind, PTX line, `.cu` line, block, thread, buffer and tensor index.
    pub text: String,
    /// Tensor and logical index, where the address belongs to one.
    pub tensor: Option<String>,
    /// Line of the `.cu` source, where known: `gdn_chunk.cu:120`.
    pub source: Option<String>,
}

impl Verdict {
    /// The clause that failed.
    pub fn clause(&self) -> Option<&str> {
        match self {
            Verdict::Disagree(d) => Some(&d.clause),
            Verdict::Fault(f) => Some(&f.clause),
            _ => None,
        }
    }

    /// The tensor that failed.
    pub fn tensor(&self) -> Option<&str> {
        match self {
            Verdict::Disagree(d) => d.tensor.as_deref(),
            Verdict::Fault(f) => f.tensor.as_deref(),
            _ => None,
        }
    }

    /// Whether this is a finding.
    pub fn is_failure(&self) -> bool {
        matches!(self, Verdict::Disagree(_) | Verdict::Fault(_))
    }

    /// Whether two findings are the same one for a shrinker: same clause, same tensor.
    pub fn same_failure(&self, other: &Verdict) -> bool {
        self.is_failure() && self.clause() == other.clause() && self.tensor() == other.tensor()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Agree => f.write_str("agree"),
            Verdict::Disagree(d) => {
                write!(f, "{}: ", d.clause)?;
                if let Some(tensor) = &d.tensor {
                    write!(f, "{tensor}{:?} ", d.index)?;
                }
                write!(f, "expected {}, observed {}", d.expected, d.observed)?;
                if let Some(e) = &d.error {
                    write!(
                        f,
                        "; off by {:.3e}, allowed {:.3e}; {} of {} elements wrong",
                        e.error, e.bound, e.wrong, e.compared
                    )?;
                }
                if !d.note.is_empty() {
                    write!(f, "; {}", d.note)?;
                }
                Ok(())
            }
            Verdict::Fault(fault) => write!(f, "{}: {}", fault.clause, fault.text),
            Verdict::Unsupported(what) => write!(f, "unsupported: {what}"),
            Verdict::Discard(why) => write!(f, "discarded: {why}"),
        }
    }
}
