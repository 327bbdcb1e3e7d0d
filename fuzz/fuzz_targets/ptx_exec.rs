//! Made-up kernels and edited real ones, launched with small budgets: results, a fault or a typed
//! error, and the same ones in every build of the machine's loop.
#![no_main]

use arbitrary::Arbitrary;
use assay_fuzz::edit::{Edit, Mutant};
use assay_fuzz::execute::{self, Setup};
use assay_fuzz::kernel::Kernel;
use assay_fuzz::spread::Spread;
use libfuzzer_sys::fuzz_target;
use ptx_vm::{Module, ParseErrorKind};
use std::fmt;

#[derive(Arbitrary)]
struct Input {
    setup: Setup,
    program: Program,
}

#[derive(Arbitrary)]
enum Program {
    Kernel(Kernel),
    Edited(Kernel, Vec<Edit>),
    Mutant(Mutant),
}

impl Program {
    fn text(&self) -> String {
        match self {
            Program::Kernel(kernel) => kernel.text.clone(),
            Program::Edited(kernel, edits) => {
                let mut text = kernel.text.clone();
                edits.iter().take(16).for_each(|edit| edit.apply(&mut text));
                text
            }
            Program::Mutant(mutant) => mutant.text(),
        }
    }
}

/// `cargo fuzz fmt ptx_exec FILE` shows the launch and the text.
impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}\n{}", self.setup, self.program.text())
    }
}

fuzz_target!(|input: Spread<Input>| {
    let Spread(input) = input;
    let text = input.program.text();
    let mut initialised = false;
    if let Program::Kernel(kernel) = &input.program {
        initialised = kernel.initialised;
        // Its functions call each other, and copies may become too many.
        match Module::parse(&text).map_err(|error| error.what) {
            Ok(_) | Err(ParseErrorKind::TooLarge(_)) => {}
            Err(what) => panic!("a made-up kernel is no PTX: {what:?}\n{text}"),
        }
    }
    execute::module(&text, &input.setup, initialised);
});
