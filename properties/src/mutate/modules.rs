//! The PTX of a contract: the module of its name and, where a variant has one to itself, that of
//! `CONTRACT_WORD`. Mutants are made of all of them.

use super::listing::Listing;
use crate::check::ToolError;
use crate::subject::Subject;
use kernels::backend::BackendError;

/// One module.
pub struct Module {
    /// Its name.
    pub stem: &'static str,
    /// Its text.
    pub listing: Listing<'static>,
    /// As the machine runs it.
    pub parsed: &'static ptx_vm::Module,
}

/// Every module of a contract, its own first.
///
/// # Errors
/// When one is missing, or the machine refuses it.
pub fn of_contract(subject: &Subject) -> Result<Vec<Module>, ToolError> {
    let own = subject.name();
    let words = subject.contract.variants.values().flat_map(|variant| &variant.values);
    let of_variants: Vec<String> = words.map(|word| format!("{own}_{}", word.0)).collect();
    let mut stems: Vec<&'static str> = vec![own];
    stems.extend(kernels::ptx::stems().filter(|stem| of_variants.iter().any(|one| one == stem)));
    let read = |stem: &'static str| {
        let text = kernels::ptx::module_text(stem).map_err(BackendError::from)?;
        let parsed = kernels::ptx::module(stem).map_err(BackendError::from)?;
        Ok(Module { stem, listing: Listing::of(text), parsed })
    };
    stems.into_iter().map(read).collect()
}

/// The module of this name among several.
pub fn named<'m>(modules: &'m [Module], stem: &str) -> &'m Module {
    modules.iter().find(|module| module.stem == stem).unwrap_or(&modules[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variants_own_module_belongs_to_the_contract() {
        let stems = |contract: &str| -> Vec<&str> {
            let subject = crate::subject::subject(contract).expect("a contract");
            of_contract(subject).expect("its PTX").iter().map(|module| module.stem).collect()
        };
        assert_eq!(stems("gdn_chunk"), ["gdn_chunk", "gdn_chunk_hopper"]);
        assert_eq!(stems("gdn_decode"), ["gdn_decode"]);
    }
}
