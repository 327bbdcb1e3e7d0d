//! Which PTX a backend runs for a module: the checked-in text, or what replaces it.

use crate::ptx::{self, PtxError};
use std::collections::HashMap;

/// The replacements in force.
#[derive(Default)]
pub(super) struct Modules {
    replaced: HashMap<String, Replacement>,
}

struct Replacement {
    text: String,
    module: ptx_vm::Module,
    /// The one entry it stands for; the others stay the checked-in ones. All when `None`.
    only: Option<String>,
}

impl Modules {
    pub(super) fn replace(&mut self, stem: &str, text: &str) -> Result<(), PtxError> {
        let module = ptx::parse(text, &format!("the replacement of `{stem}`"))?;
        let replacement = Replacement { text: text.to_owned(), module, only: None };
        self.replaced.insert(stem.to_owned(), replacement);
        Ok(())
    }

    /// Replaces one entry of a module by a text that has at least that entry.
    pub(super) fn replace_entry(
        &mut self,
        stem: &str,
        entry: &str,
        text: String,
    ) -> Result<(), PtxError> {
        let module = ptx::parse(&text, &format!("the replacement of `{entry}`"))?;
        let replacement = Replacement { text, module, only: Some(entry.to_owned()) };
        self.replaced.insert(stem.to_owned(), replacement);
        Ok(())
    }

    /// Ends every replacement; gives the stems that were replaced.
    pub(super) fn restore(&mut self) -> Vec<String> {
        self.replaced.drain().map(|(stem, _)| stem).collect()
    }

    pub(super) fn is_replaced(&self, stem: &str) -> bool {
        self.replaced.contains_key(stem)
    }

    /// The parsed module that this entry is run from.
    pub(super) fn module_of(&self, stem: &str, entry: &str) -> Result<&ptx_vm::Module, PtxError> {
        match self.replaced.get(stem) {
            Some(replacement) if replacement.only.as_ref().is_none_or(|only| only == entry) => {
                Ok(&replacement.module)
            }
            _ => ptx::module(stem),
        }
    }

    /// The parsed module.
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "only the driver takes it whole"))]
    pub(super) fn module(&self, stem: &str) -> Result<&ptx_vm::Module, PtxError> {
        match self.replaced.get(stem) {
            Some(replacement) => Ok(&replacement.module),
            None => ptx::module(stem),
        }
    }

    /// Its text.
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "only the driver takes text"))]
    pub(super) fn text(&self, stem: &str) -> Result<&str, PtxError> {
        match self.replaced.get(stem) {
            Some(replacement) => Ok(&replacement.text),
            None => ptx::module_text(stem),
        }
    }
}
