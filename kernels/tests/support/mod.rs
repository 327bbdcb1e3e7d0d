//! What every test of a launch function needs: calls to build and to break, and plans held against the
//! PTX they name.
#![allow(dead_code, reason = "each test file uses its own part")]

pub mod calls;

use contracts::dtype::DType;
use contracts::format::ErrorKind;
use kernels::call::{Call, ScalarArg, TensorArg};
use kernels::launch::{Argument, Launch, Plan};
use kernels::registry::{CANARY, kernel};
use std::collections::BTreeSet;

/// A dense tensor in a buffer of its own.
pub fn tensor(buffer: u32, dtype: DType, shape: &[u64]) -> TensorArg {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis].max(1);
    }
    TensorArg { dtype, shape: shape.to_vec(), strides, buffer, offset_bytes: 0, kind: None }
}

/// A call of dense tensors.
pub fn call(
    tensors: &[(&str, DType, &[u64])],
    scalars: &[(&str, f32)],
    words: &[(&str, &str)],
) -> Call {
    let word = |(name, word): &(&str, &str)| ((*name).to_owned(), (*word).to_owned());
    Call {
        tensors: tensors
            .iter()
            .zip(0..)
            .map(|((name, dtype, shape), buffer)| {
                ((*name).to_owned(), tensor(buffer, *dtype, shape))
            })
            .collect(),
        scalars: scalars
            .iter()
            .map(|(name, value)| ((*name).to_owned(), ScalarArg::F32(value.to_bits())))
            .collect(),
        words: words.iter().map(word).collect(),
    }
}

/// A tensor of a call, to be changed.
pub fn edit<'a>(call: &'a mut Call, name: &str) -> &'a mut TensorArg {
    let found = call.tensors.iter_mut().find(|(key, _)| key == name);
    &mut found.unwrap_or_else(|| panic!("no tensor `{name}`")).1
}

/// Another word for an option.
pub fn set_word(call: &mut Call, name: &str, word: &str) {
    let found = call.words.iter_mut().find(|(key, _)| key == name);
    found.unwrap_or_else(|| panic!("no word `{name}`")).1 = word.to_owned();
}

/// The plan of a kernel by name.
pub fn plan(kernel_name: &str, call: &Call) -> Result<Plan, kernels::call::Rejection> {
    let subject =
        if kernel_name == CANARY.name { &CANARY } else { kernel(kernel_name).expect("registered") };
    (subject.plan)(call)
}

/// The declared parameter types of every entry of a module.
pub fn parameters(ptx: &str) -> Vec<(String, Vec<String>)> {
    let mut entries = Vec::new();
    for text in ptx.split(".visible .entry ").skip(1) {
        let (name, rest) = text.split_once('(').expect("an entry has a parameter list");
        let (list, _) = rest.split_once(')').expect("a parameter list ends");
        let types = list.split(',').filter_map(|line| {
            line.split_whitespace()
                .find(|word| word.starts_with('.') && *word != ".param")
                .map(str::to_owned)
        });
        entries.push((name.trim().to_owned(), types.collect()));
    }
    entries
}

fn ptx_type(argument: &Argument) -> &'static str {
    match argument {
        Argument::Tensor(_) | Argument::Scratch(_) | Argument::Null | Argument::I64(_) => ".u64",
        Argument::U32(_) | Argument::I32(_) => ".u32",
        Argument::F32(_) => ".f32",
    }
}

/// Checks the arguments of a launch against its entry, whose name it returns.
pub fn fits(launch: &Launch) -> String {
    let ptx = kernels::ptx::embedded(launch.module).unwrap_or_else(|| {
        panic!("no PTX for `{}`; run `{}`", launch.module, kernels::ptx::COMPILE_COMMAND)
    });
    let entries = parameters(ptx);
    let (_, declared) = entries
        .iter()
        .find(|(name, _)| *name == launch.entry)
        .unwrap_or_else(|| panic!("`{}` has no entry `{}`", launch.module, launch.entry));
    let given: Vec<_> = launch.arguments.iter().map(ptx_type).collect();
    assert_eq!(*declared, given, "arguments of `{}`", launch.entry);
    assert!(launch.block[0].is_multiple_of(32) && launch.grid.iter().all(|extent| *extent > 0));
    launch.entry.to_string()
}

/// One legal call, one edit, the refusal it must meet.
pub fn refuses(
    name: &str,
    legal: &Call,
    kind: ErrorKind,
    argument: &str,
    break_it: impl FnOnce(&mut Call),
) {
    plan(name, legal)
        .unwrap_or_else(|refusal| panic!("{name}: the unbroken call is refused: {refusal}"));
    let mut broken = legal.clone();
    break_it(&mut broken);
    match plan(name, &broken) {
        Ok(_) => panic!("{name}: {kind:?} of `{argument}` is planned"),
        Err(refusal) => {
            assert_eq!(
                (refusal.kind, refusal.argument.as_str()),
                (kind, argument),
                "{name}: {refusal}"
            );
        }
    }
}

/// Plans every call of a kernel, holds each launch against the PTX, and each entry of the kernel's module
/// against the launches.
pub fn every_entry_is_planned(name: &str, calls: &[Call]) {
    let mut planned = BTreeSet::new();
    for call in calls {
        for launch in plan(name, call).expect("a legal call").launches {
            planned.insert(fits(&launch));
        }
    }
    let module = kernels::ptx::embedded(name).unwrap_or_else(|| panic!("no PTX for `{name}`"));
    for (entry, _) in parameters(module) {
        assert!(planned.contains(&entry), "no plan reaches entry `{entry}` of `{name}`");
    }
}
