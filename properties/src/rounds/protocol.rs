//! The contract of speculative rounds: sizes, legality, refusals, limits, and which promise each planted
//! fault breaks. The generator draws by it, stored histories are read by it.

use super::store::CONTRACT;
use contracts::protocol::Protocol;

/// The contract.
///
/// # Panics
/// When it does not load, which every command says first, with file and line.
pub fn protocol() -> &'static Protocol {
    contracts::protocol_contract(CONTRACT).unwrap_or_else(|| match contracts::check_builtin() {
        Err(error) => panic!("{error}"),
        Ok(()) => panic!("no shipped protocol is named {CONTRACT}"),
    })
}
