//! The one registry.
macro_rules! registry {
    ($callback:ident) => {
        $callback! {
            families { scale_rows sum_rows }
        }
    };
}
