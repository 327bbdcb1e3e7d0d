//! A backend for tests: Rust in the kernel's place. `honest` computes what the reference expects from
//! the bytes in the arena and the call's layout, nothing else; tests plant errors around it.

use crate::subject::Subject;
use contracts::case::Decisions;
use contracts::dtype::DType;
use contracts::expr::Expr;
use contracts::format::{Access, Derivation, Tensor};
use contracts::logical::Logical;
use kernels::arena::Arena;
use kernels::backend::{Backend, BackendError, Fault, Outcome, RunStats};
use kernels::call::{Call, ScalarArg, TensorArg};
use kernels::launch::Plan;
use ptx_vm::{BufferId, marks};
use reference::{Expected, Inputs};

/// What a fake kernel sees and does.
pub(crate) struct Hand<'a> {
    pub(crate) call: &'a Call,
    pub(crate) arena: &'a mut Arena,
    /// Runs before this one.
    pub(crate) run: usize,
}

/// A backend whose kernel is a closure; it returns a fault to report.
pub(crate) struct Fake<F> {
    pub(crate) name: &'static str,
    pub(crate) runs: usize,
    pub(crate) kernel: F,
}

/// A fake that passes for the virtual machine.
pub(crate) fn fake<F: FnMut(&mut Hand<'_>) -> Option<Fault>>(kernel: F) -> Fake<F> {
    Fake { name: "vm", runs: 0, kernel }
}

impl<F: FnMut(&mut Hand<'_>) -> Option<Fault>> Backend for Fake<F> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn run(
        &mut self,
        call: &Call,
        plan: &Plan,
        arena: &mut Arena,
    ) -> Result<Outcome, BackendError> {
        let run = self.runs;
        self.runs += 1;
        if plan.launches.is_empty() {
            return Ok(Outcome::Ran(RunStats::default()));
        }
        Ok(match (self.kernel)(&mut Hand { call, arena, run }) {
            Some(fault) => Outcome::Fault(fault),
            None => Outcome::Ran(RunStats { launches: 1, instructions: 0 }),
        })
    }

    fn replace_module(&mut self, _: &str, _: &str) -> Result<(), BackendError> {
        Ok(())
    }

    fn restore_modules(&mut self) {}
}

impl Hand<'_> {
    fn argument(&self, tensor: &str) -> TensorArg {
        self.call.tensor(tensor).unwrap_or_else(|error| panic!("{error}")).clone()
    }

    fn place(argument: &TensorArg, flat: u64) -> (BufferId, u64) {
        let mut rest = flat;
        let mut element = 0;
        for (extent, stride) in argument.shape.iter().zip(&argument.strides).rev() {
            element += rest % extent * stride;
            rest /= extent;
        }
        (BufferId(argument.buffer), argument.offset_bytes + element * argument.dtype.size_bytes())
    }

    /// Device address of an element.
    pub(crate) fn address(&self, tensor: &str, flat: u64) -> (BufferId, u64) {
        Self::place(&self.argument(tensor), flat)
    }

    pub(crate) fn bits(&self, tensor: &str, flat: u64) -> u64 {
        let argument = self.argument(tensor);
        let (buffer, offset) = Self::place(&argument, flat);
        let mut raw = [0; 8];
        let size = argument.dtype.size_bytes() as usize;
        self.arena.memory().read(buffer, offset, &mut raw[..size]);
        argument.dtype.from_bytes(&raw[..size])
    }

    /// Stores an element, marked as a kernel's store.
    pub(crate) fn store(&mut self, tensor: &str, flat: u64, bits: u64) {
        let argument = self.argument(tensor);
        let (buffer, offset) = Self::place(&argument, flat);
        let size = argument.dtype.size_bytes();
        let memory = self.arena.memory_mut();
        memory.write(buffer, offset, &bits.to_le_bytes()[..size as usize]);
        memory.mark(buffer, offset..offset + size, marks::WRITTEN, 0);
    }

    /// Changes one element's value.
    pub(crate) fn edit(&mut self, tensor: &str, flat: u64, change: impl FnOnce(f64) -> f64) {
        let dtype = self.argument(tensor).dtype;
        let value = dtype.to_f64(self.bits(tensor, flat));
        self.store(tensor, flat, dtype.round_from_f64(change(value)));
    }

    fn words(&self) -> Decisions<String> {
        self.call.words.iter().cloned().collect()
    }

    fn access(&self, declared: &Tensor) -> Access {
        *declared.access.resolve(&self.words()).expect("access is total")
    }

    /// The logical inputs, rebuilt from the call and the arena.
    fn inputs(&self, subject: &Subject) -> Inputs {
        let contract = subject.contract;
        let mut inputs = Inputs::default();
        for (name, argument) in &self.call.tensors {
            let declared = &contract.tensors[name];
            if let Some(types) = contract.dtypes.get(&declared.dtype.0) {
                assert!(types.contains(&argument.dtype));
                inputs.dtypes.push((declared.dtype.0.clone(), argument.dtype));
            }
            for (axis, extent) in declared.shape.iter().zip(&argument.shape) {
                if let Expr::Name(dim) = axis {
                    inputs.dims.push((dim.to_string(), *extent as i64));
                }
            }
            if self.access(declared) == Access::Write {
                continue;
            }
            let mut bytes = Vec::new();
            (0..argument.count())
                .for_each(|flat| argument.dtype.push_bytes(self.bits(name, flat), &mut bytes));
            let logical = Logical::from_bytes(argument.dtype, argument.shape.clone(), bytes);
            match &declared.from {
                Some(Derivation::Copy(list)) => inputs.lists.push((list.clone(), logical.to_i64())),
                Some(Derivation::PrefixSum(list)) => {
                    let lengths =
                        logical.to_i64().windows(2).map(|pair| pair[1] - pair[0]).collect();
                    inputs.lists.push((list.clone(), lengths));
                }
                None => {}
            }
            inputs.tensors.push((name.clone(), logical));
        }
        for (name, scalar) in &self.call.scalars {
            let value = match scalar {
                ScalarArg::F32(bits) => DType::F32.to_f64(u64::from(*bits)),
                ScalarArg::I32(value) => f64::from(*value),
                ScalarArg::I64(value) => *value as f64,
            };
            inputs.scalars.push((name.clone(), value));
        }
        inputs.options = self.call.words.clone();
        inputs
    }

    /// Whether an index of a tensor's first axis is live.
    fn is_live(subject: &Subject, inputs: &Inputs, declared: &Tensor, row: u64) -> bool {
        let Some(live) = &declared.live else { return true };
        let contract = subject.contract;
        let list = &contract.lists[&live.by];
        let items = inputs.list(&live.by);
        let Expr::Name(axis) = &declared.shape[0] else { return true };
        if **axis == *list.each {
            return items[row as usize] >= 0;
        }
        if let Some(lengths) = contract.dims[&**axis].segments.as_ref() {
            let mut end = 0;
            let mut segments = inputs.list(lengths).iter().zip(items);
            return segments
                .find_map(|(length, item)| {
                    end += length;
                    (row < end as u64).then_some(*item >= 0)
                })
                .unwrap_or(false);
        }
        items.contains(&(row as i64))
    }

    /// Does what the reference expects, rounded once, on live elements. A decode step reads its outputs
    /// from the state as it stored it.
    pub(crate) fn honest(&mut self, subject: &Subject) {
        let inputs = self.inputs(subject);
        self.leave(subject, &inputs, |_| true);
        if subject.name() == "gdn_decode" {
            let stored = idle(self.inputs(subject));
            self.leave(subject, &stored, |tensor| tensor == "o");
        }
    }

    /// Stores the outputs asked for, as the reference expects them of these inputs.
    fn leave(&mut self, subject: &Subject, inputs: &Inputs, wanted: impl Fn(&str) -> bool) {
        let outputs = (subject.reference)(inputs);
        for (name, argument) in &self.call.tensors.clone() {
            let declared = &subject.contract.tensors[name];
            let Some(expected) = outputs
                .tensor(name)
                .filter(|_| self.access(declared) != Access::Read && wanted(name))
            else {
                continue;
            };
            let row = argument.shape.iter().skip(1).product::<u64>().max(1);
            for flat in 0..argument.count() {
                if !Self::is_live(subject, inputs, declared, flat / row) {
                    continue;
                }
                let bits = match expected {
                    Expected::Bits(bits) => bits[flat as usize],
                    Expected::Real { value, .. } => {
                        argument.dtype.round_from_f64(value[flat as usize])
                    }
                };
                self.store(name, flat, bits);
            }
        }
    }
}

/// The same step without decay or write.
fn idle(mut inputs: Inputs) -> Inputs {
    let shape = inputs.tensor("v").shape[..2].to_vec();
    let count = shape.iter().product::<u64>() as usize;
    let gate = |value: f32| {
        let bytes = value.to_le_bytes().repeat(count);
        Logical::from_bytes(DType::F32, shape.clone(), bytes)
    };
    inputs.tensors.retain(|(name, _)| !["alpha", "beta"].contains(&name.as_str()));
    inputs.tensors.extend([("alpha", 1.0), ("beta", 0.0)].map(|(n, v)| (n.to_owned(), gate(v))));
    for (option, word) in &mut inputs.options {
        match option.as_str() {
            "gate_form" => "alpha".clone_into(word),
            "alpha_clamp" => "none".clone_into(word),
            _ => {}
        }
    }
    inputs
}
