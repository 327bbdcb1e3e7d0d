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
/// Shared addresses from here on are of other blocks of the cluster: rank + 1 in the bits above.
pub(crate) const OWN_BYTES: u64 = 1 << 24;

/// Where an offset in the memory of a block lies for the block of rank `own`.
pub(crate) fn at_rank(offset: u64, rank: u64, own: u64) -> u64 {
    let offset = offset % OWN_BYTES;
    // Ranks that no cluster has all lead nowhere.
    if rank == own { offset } else { (rank.min(254) + 1) * OWN_BYTES + offset }
}

/// The rank of the block that a shared address leads to.
pub(crate) fn rank_of(address: u64, own: u64) -> u64 {
    (address / OWN_BYTES).checked_sub(1).unwrap_or(own)
}
