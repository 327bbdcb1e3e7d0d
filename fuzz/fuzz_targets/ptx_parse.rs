//! Any bytes, and real PTX edited by lines and tokens: a module or a typed error.
#![no_main]

use arbitrary::Arbitrary;
use assay_fuzz::edit::{Edit, Mutant};
use assay_fuzz::kernel::Kernel;
use assay_fuzz::spread::{Rest, Spread};
use assay_fuzz::text::words;
use libfuzzer_sys::fuzz_target;
use ptx_vm::Module;
use std::fmt;

#[derive(Arbitrary)]
enum Input {
    Mutant(Mutant),
    Words(Vec<(u16, Edit)>),
    Kernel(Kernel, Vec<Edit>),
    Bytes(Rest),
}

impl Input {
    fn text(&self) -> String {
        let mut text = String::new();
        match self {
            Input::Mutant(mutant) => text = mutant.text(),
            Input::Words(all) => {
                for (word, edit) in all {
                    text.push_str(words()[usize::from(*word) % words().len()]);
                    text.push([' ', '\n'][usize::from(*word) % 2]);
                    if *word % 5 == 0 {
                        edit.apply(&mut text);
                    }
                }
            }
            Input::Kernel(kernel, edits) => {
                text.push_str(&kernel.text);
                edits.iter().take(16).for_each(|edit| edit.apply(&mut text));
            }
            Input::Bytes(rest) => text = String::from_utf8_lossy(&rest.0).into_owned(),
        }
        text
    }
}

/// `cargo fuzz fmt ptx_parse FILE` shows the text.
impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

fuzz_target!(|input: Spread<Input>| {
    let Spread(input) = input;
    let text = input.text();
    match (Module::parse(&text), Module::parse_plainly(&text)) {
        (Ok(module), Ok(_)) => {
            for entry in module.entries() {
                drop((entry.unsupported().count(), entry.reachable_blocks()));
            }
        }
        (Err(error), Err(same)) => {
            assert_eq!(error, same);
            assert!(!error.to_string().is_empty());
        }
        _ => panic!("a simplification decides whether the text is a module"),
    }
});
