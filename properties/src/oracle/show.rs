//! How values are written for a reader: the number and its bits.

use contracts::dtype::DType;

/// `1.25 (0x3fa00000)`: value, then bits at the type's width.
pub fn show(dtype: DType, bits: u64) -> String {
    let width = 2 * dtype.size_bytes() as usize;
    match dtype.to_i64(bits) {
        Some(integer) => format!("{integer} (0x{bits:0width$x})"),
        None => format!("{} (0x{bits:0width$x})", show_number(dtype.to_f64(bits))),
    }
}

/// A number, in scientific notation where plain digits would be many.
pub fn show_number(value: f64) -> String {
    if value == 0.0 || !value.is_finite() || (1e-4..1e9).contains(&value.abs()) {
        format!("{value}")
    } else {
        format!("{value:e}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_with_their_bits() {
        assert_eq!(show(DType::F32, 0x3fa0_0000), "1.25 (0x3fa00000)");
        assert_eq!(show(DType::F32, 0x8000_0000), "-0 (0x80000000)");
        assert_eq!(show(DType::BF16, 0x7fc1), "NaN (0x7fc1)");
        assert_eq!(show(DType::I32, 0xffff_ffff), "-1 (0xffffffff)");
        assert_eq!(show(DType::E4M3, 0x38), "1 (0x38)");
        assert_eq!(show(DType::F32, 0x0da2_4260), "1.0000000031710769e-30 (0x0da24260)");
    }
}
