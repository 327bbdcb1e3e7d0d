//! How two accesses collide.

/// Which two accesses collide.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum RaceKind {
    /// A read of what another thread stored.
    ReadAfterWrite,
    /// A store to what another thread read.
    WriteAfterRead,
    /// Two stores of different values.
    WriteAfterWrite,
}

impl RaceKind {
    /// What happens to a byte that two of `who` touch. Where stores of one value are none, a race of two
    /// stores is one of `values`.
    pub(super) fn words(self, who: &str, values: bool) -> String {
        match self {
            RaceKind::ReadAfterWrite => format!("is read while another {who} stores to it"),
            RaceKind::WriteAfterRead => format!("is stored to while another {who} reads it"),
            RaceKind::WriteAfterWrite if values => format!("gets different values from two {who}s"),
            RaceKind::WriteAfterWrite => format!("is stored to by two {who}s"),
        }
    }
}
