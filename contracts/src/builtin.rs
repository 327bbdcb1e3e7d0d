//! The contracts this project ships, embedded and parsed once, and the one registry of their names.

use crate::format::Contract;
use crate::load::{ContractError, parse_contract};
use crate::protocol::{Protocol, parse_protocol};
use std::sync::LazyLock;

/// Calls `$callback! { family { name … } … }` with every kernel of the project. Kernels, references,
/// fuzz targets and corpora are all enumerated through it, so one word here is what adding a kernel
/// costs, and a missing piece does not compile.
#[macro_export]
macro_rules! registry {
    ($callback:ident) => {
        $callback! {
            linear_attention { gdn_decode gdn_chunk gdn_verify gdn_write_on_accept gdn_gates qkvz_deinterleave causal_conv1d draft_conv state_convert }
            elementwise { gated_rms_norm }
            embedding { ple_gather }
            selection { argmax_rows row_topk }
            transaction { state_scatter }
        }
    };
}

/// One embedded file.
struct Source {
    family: &'static str,
    name: &'static str,
    text: &'static str,
}

macro_rules! embed {
    ($($family:ident { $($name:ident)* })*) => {
        &[$($(Source {
            family: stringify!($family),
            name: stringify!($name),
            text: include_str!(concat!("../", stringify!($family), "/", stringify!($name), ".yaml")),
        }),*),*]
    };
}

const SOURCES: &[Source] = registry!(embed);

/// A kernel with a planted bug. It stands apart: a search that does not find the bug is broken itself.
const CANARY: &[Source] = embed! { canary { canary_row_sum } };

/// Kernels that are right and can be told to be wrong: what clauses and relations are shown on.
const TEST_KERNELS: &[Source] =
    embed! { canary { canary_rows canary_steps canary_experts canary_step } };

/// What a sequence of events promises; no kernel of its own.
const PROTOCOLS: &[Source] = embed! { transaction { speculative_round } };

type Loaded = (Vec<Contract>, Vec<ContractError>);

fn load(sources: &[Source]) -> Loaded {
    let mut loaded = (Vec::new(), Vec::new());
    for source in sources {
        let file = format!("contracts/{}/{}.yaml", source.family, source.name);
        match parse_contract(source.text, &file) {
            Ok(contract) => loaded.0.push(contract),
            Err(error) => loaded.1.push(error),
        }
    }
    loaded
}

static LOADED: LazyLock<Loaded> = LazyLock::new(|| load(SOURCES));
static LOADED_CANARY: LazyLock<Loaded> = LazyLock::new(|| load(CANARY));
static LOADED_TEST_KERNELS: LazyLock<Loaded> = LazyLock::new(|| load(TEST_KERNELS));

/// Every shipped contract, in the registry's order; those that do not load are missing.
pub fn builtin() -> &'static [Contract] {
    &LOADED.0
}

/// The first reason a shipped contract does not load, if one does not.
pub fn check_builtin() -> Result<(), &'static ContractError> {
    let canaries = LOADED_CANARY.1.first().or(LOADED_TEST_KERNELS.1.first());
    let protocols = LOADED_PROTOCOLS.iter().find_map(|loaded| loaded.as_ref().err());
    LOADED.1.first().or(canaries).or(protocols).map_or(Ok(()), Err)
}

/// A shipped contract by name, the canary and the test kernels included.
pub fn contract(name: &str) -> Option<&'static Contract> {
    builtin()
        .iter()
        .chain(canary())
        .chain(test_kernels())
        .find(|contract| contract.contract == name)
}

/// The canary.
pub fn canary() -> Option<&'static Contract> {
    LOADED_CANARY.0.first()
}

/// Contracts of the kernels on which clauses and relations are shown.
pub fn test_kernels() -> &'static [Contract] {
    &LOADED_TEST_KERNELS.0
}

static LOADED_PROTOCOLS: LazyLock<Vec<Result<Protocol, ContractError>>> = LazyLock::new(|| {
    let file = |source: &Source| format!("contracts/{}/{}.yaml", source.family, source.name);
    PROTOCOLS.iter().map(|source| parse_protocol(source.text, &file(source))).collect()
});

/// Every shipped protocol.
pub fn protocols() -> impl Iterator<Item = &'static Protocol> {
    LOADED_PROTOCOLS.iter().filter_map(|loaded| loaded.as_ref().ok())
}

/// A shipped protocol by name.
pub fn protocol_contract(name: &str) -> Option<&'static Protocol> {
    protocols().find(|protocol| protocol.contract == name)
}

/// The YAML of a shipped contract.
pub fn source(name: &str) -> Option<&'static str> {
    embedded(name).map(|source| source.text)
}

/// The family, and folder, of a shipped contract.
pub fn family(name: &str) -> Option<&'static str> {
    embedded(name).map(|source| source.family)
}

fn embedded(name: &str) -> Option<&'static Source> {
    SOURCES
        .iter()
        .chain(CANARY)
        .chain(TEST_KERNELS)
        .chain(PROTOCOLS)
        .find(|source| source.name == name)
}
