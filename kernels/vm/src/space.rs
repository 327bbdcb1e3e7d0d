//! The windows of the generic address space below the first global buffer (2⁴⁰).

/// Generic address of shared offset 0.
pub(crate) const SHARED_BASE: u64 = 1 << 32;
/// Generic address of local offset 0.
pub(crate) const LOCAL_BASE: u64 = 2 << 32;
/// Address of the module's own `.global` and `.const` variables.
pub(crate) const DATA_BASE: u64 = 3 << 32;
/// Generic address of parameter offset 0.
pub(crate) const PARAM_BASE: u64 = 4 << 32;
/// Where function pointers point; nothing can be read there.
pub(crate) const CODE_BASE: u64 = 5 << 32;
/// Length of each window.
pub(crate) const WINDOW_BYTES: u64 = 1 << 32;
