//! Lane functions of the integer and bit instructions; operands and results zero-extended.

pub(crate) fn div_s32(a: u64, b: u64, _: u64) -> u64 {
    let (a, b) = (a as i32, b as i32);
    // The hardware's answer to a zero divisor is all ones.
    u64::from(if b == 0 { u32::MAX } else { a.wrapping_div(b) as u32 })
}

pub(crate) fn div_u32(a: u64, b: u64, _: u64) -> u64 {
    u64::from((a as u32).checked_div(b as u32).unwrap_or(u32::MAX))
}

pub(crate) fn rem_s32(a: u64, b: u64, _: u64) -> u64 {
    let (x, y) = (a as i32, b as i32);
    u64::from(if y == 0 { a as u32 } else { x.wrapping_rem(y) as u32 })
}

pub(crate) fn rem_u32(a: u64, b: u64, _: u64) -> u64 {
    u64::from((a as u32).checked_rem(b as u32).unwrap_or(a as u32))
}

pub(crate) fn div_s64(a: u64, b: u64, _: u64) -> u64 {
    if b == 0 { u64::MAX } else { (a as i64).wrapping_div(b as i64) as u64 }
}

pub(crate) fn div_u64(a: u64, b: u64, _: u64) -> u64 {
    a.checked_div(b).unwrap_or(u64::MAX)
}

pub(crate) fn rem_s64(a: u64, b: u64, _: u64) -> u64 {
    if b == 0 { a } else { (a as i64).wrapping_rem(b as i64) as u64 }
}

pub(crate) fn rem_u64(a: u64, b: u64, _: u64) -> u64 {
    a.checked_rem(b).unwrap_or(a)
}

pub(crate) fn add_sat(a: u64, b: u64, _: u64) -> u64 {
    u64::from((a as i32).saturating_add(b as i32) as u32)
}

pub(crate) fn sub_sat(a: u64, b: u64, _: u64) -> u64 {
    u64::from((a as i32).saturating_sub(b as i32) as u32)
}

pub(crate) fn mul_hi_s64(a: u64, b: u64, _: u64) -> u64 {
    ((i128::from(a as i64) * i128::from(b as i64)) >> 64) as u64
}

pub(crate) fn mul_hi_u64(a: u64, b: u64, _: u64) -> u64 {
    ((u128::from(a) * u128::from(b)) >> 64) as u64
}

fn hi_s32(a: u64, b: u64) -> i32 {
    ((i64::from(a as i32) * i64::from(b as i32)) >> 32) as i32
}

pub(crate) fn mad_hi_s32(a: u64, b: u64, c: u64) -> u64 {
    u64::from(hi_s32(a, b).wrapping_add(c as i32) as u32)
}

pub(crate) fn mad_hi_sat(a: u64, b: u64, c: u64) -> u64 {
    u64::from(hi_s32(a, b).saturating_add(c as i32) as u32)
}

pub(crate) fn mad_hi_u32(a: u64, b: u64, c: u64) -> u64 {
    let high = ((a & 0xffff_ffff) * (b & 0xffff_ffff)) >> 32;
    u64::from((high as u32).wrapping_add(c as u32))
}

/// The low 24 bits, sign-extended.
pub(crate) fn s24(a: u64) -> i64 {
    i64::from(((a as u32) << 8) as i32 >> 8)
}

pub(crate) fn bfind_u32(a: u64, _: u64, _: u64) -> u64 {
    let a = a as u32;
    u64::from(if a == 0 { u32::MAX } else { 31 - a.leading_zeros() })
}

pub(crate) fn bfind_s32(a: u64, _: u64, _: u64) -> u64 {
    let a = a as i32;
    bfind_u32(u64::from((a ^ (a >> 31)) as u32), 0, 0)
}

pub(crate) fn bfind_u32_shift(a: u64, _: u64, _: u64) -> u64 {
    let at = bfind_u32(a, 0, 0);
    if at == 0xffff_ffff { at } else { 31 - at }
}

pub(crate) fn bfind_s32_shift(a: u64, _: u64, _: u64) -> u64 {
    let at = bfind_s32(a, 0, 0);
    if at == 0xffff_ffff { at } else { 31 - at }
}

pub(crate) fn bfind_u64(a: u64, _: u64, _: u64) -> u64 {
    if a == 0 { 0xffff_ffff } else { u64::from(63 - a.leading_zeros()) }
}

pub(crate) fn bfind_s64(a: u64, _: u64, _: u64) -> u64 {
    let signed = a as i64;
    bfind_u64((signed ^ (signed >> 63)) as u64, 0, 0)
}

pub(crate) fn bfind_u64_shift(a: u64, _: u64, _: u64) -> u64 {
    let at = bfind_u64(a, 0, 0);
    if at == 0xffff_ffff { at } else { 63 - at }
}

pub(crate) fn bfind_s64_shift(a: u64, _: u64, _: u64) -> u64 {
    let at = bfind_s64(a, 0, 0);
    if at == 0xffff_ffff { at } else { 63 - at }
}

/// Find the n-th set bit from a base position.
pub(crate) fn fns(mask: u64, base: u64, offset: u64) -> u64 {
    let (mask, base, offset) = (mask as u32, base as i64 & 31, i64::from(offset as i32));
    let mut at = base;
    let step = if offset < 0 { -1 } else { 1 };
    let mut left = if offset == 0 { 1 } else { offset.abs() };
    while (0..32).contains(&at) {
        if mask >> at & 1 == 1 {
            left -= 1;
            if left == 0 {
                return at as u64;
            }
        }
        if offset == 0 {
            break;
        }
        at += step;
    }
    0xffff_ffff
}

fn field_u(a: u64, position: u64, length: u64, width: u64) -> u64 {
    if position >= width || length == 0 {
        return 0;
    }
    let shifted = a >> position;
    if length >= 64 { shifted } else { shifted & ((1 << length) - 1) }
}

pub(crate) fn bfe_u32(a: u64, position: u64, length: u64) -> u64 {
    field_u(a & 0xffff_ffff, position & 0xff, length & 0xff, 32)
}

/// The ISA keeps place and length below 256; where they are not, an H200 takes them as they stand
/// here, and their lowest bytes in fields of 32 bits.
pub(crate) fn bfe_u64(a: u64, position: u64, length: u64) -> u64 {
    field_u(a, position & 0xffff_ffff, length & 0xffff_ffff, 64)
}

fn field_s(a: i64, position: u64, length: u64) -> i64 {
    if length == 0 {
        return 0;
    }
    // Beyond the top the field continues with the sign.
    let shifted = a >> position.min(63);
    if length >= 64 { shifted } else { shifted << (64 - length) >> (64 - length) }
}

pub(crate) fn bfe_s32(a: u64, position: u64, length: u64) -> u64 {
    u64::from(field_s(i64::from(a as i32), position & 0xff, length & 0xff) as u32)
}

/// See [`bfe_u64`].
pub(crate) fn bfe_s64(a: u64, position: u64, length: u64) -> u64 {
    field_s(a as i64, position & 0xffff_ffff, length & 0xffff_ffff) as u64
}

fn insert(a: u64, b: u64, range: u64, width: u64) -> u64 {
    let (position, length) = (range & 0xff, range >> 8 & 0xff);
    if length == 0 || position >= width {
        return b;
    }
    let ones = if length >= 64 { u64::MAX } else { (1 << length) - 1 };
    let mask = ones << position;
    (b & !mask) | (a << position & mask)
}

/// `range` is position | length << 8.
pub(crate) fn bfi_32(a: u64, b: u64, range: u64) -> u64 {
    insert(a, b, range, 32) & 0xffff_ffff
}

/// `range` is position | length << 8.
pub(crate) fn bfi_64(a: u64, b: u64, range: u64) -> u64 {
    insert(a, b, range, 64)
}

pub(crate) fn bmsk_clamp(position: u64, length: u64, _: u64) -> u64 {
    if position >= 32 {
        return 0;
    }
    let ones = if length >= 32 { u64::from(u32::MAX) } else { (1 << length) - 1 };
    ones << position & 0xffff_ffff
}

pub(crate) fn prmt(a: u64, b: u64, selector: u64) -> u64 {
    let all = (a & 0xffff_ffff) | b << 32;
    let mut out = 0;
    for i in 0..4 {
        let pick = selector >> (4 * i);
        let byte = all >> (8 * (pick & 7)) & 0xff;
        // Bit 3 asks for the byte's sign, replicated.
        let byte = if pick & 8 != 0 { (byte >> 7) * 0xff } else { byte };
        out |= byte << (8 * i);
    }
    out
}

fn prmt_mode(a: u64, b: u64, c: u64, table: [u64; 4]) -> u64 {
    prmt(a, b, table[(c & 3) as usize])
}

pub(crate) fn prmt_f4e(a: u64, b: u64, c: u64) -> u64 {
    prmt_mode(a, b, c, [0x3210, 0x4321, 0x5432, 0x6543])
}

pub(crate) fn prmt_b4e(a: u64, b: u64, c: u64) -> u64 {
    prmt_mode(a, b, c, [0x5670, 0x6701, 0x7012, 0x0123])
}

pub(crate) fn prmt_rc8(a: u64, b: u64, c: u64) -> u64 {
    prmt_mode(a, b, c, [0x0000, 0x1111, 0x2222, 0x3333])
}

pub(crate) fn prmt_ecl(a: u64, b: u64, c: u64) -> u64 {
    prmt_mode(a, b, c, [0x3210, 0x3211, 0x3222, 0x3333])
}

pub(crate) fn prmt_ecr(a: u64, b: u64, c: u64) -> u64 {
    prmt_mode(a, b, c, [0x0000, 0x1110, 0x2210, 0x3210])
}

pub(crate) fn prmt_rc16(a: u64, b: u64, c: u64) -> u64 {
    prmt_mode(a, b, c, [0x1010, 0x3232, 0x1010, 0x3232])
}

fn funnel(a: u64, b: u64) -> u64 {
    b << 32 | (a & 0xffff_ffff)
}

pub(crate) fn shf_left_wrap(a: u64, b: u64, c: u64) -> u64 {
    funnel(a, b) << (c & 31) >> 32
}

pub(crate) fn shf_left_clamp(a: u64, b: u64, c: u64) -> u64 {
    funnel(a, b) << c.min(32) >> 32
}

pub(crate) fn shf_right_wrap(a: u64, b: u64, c: u64) -> u64 {
    funnel(a, b) >> (c & 31) & 0xffff_ffff
}

pub(crate) fn shf_right_clamp(a: u64, b: u64, c: u64) -> u64 {
    funnel(a, b) >> c.min(32) & 0xffff_ffff
}

pub(crate) fn dp4a<const A_SIGNED: bool, const B_SIGNED: bool>(a: u64, b: u64, c: u64) -> u64 {
    let byte = |x: u64, i: u32, signed: bool| {
        let byte = (x >> (8 * i)) as u8;
        if signed { i32::from(byte as i8) } else { i32::from(byte) }
    };
    let mut sum = c as i32;
    for i in 0..4 {
        sum = sum.wrapping_add(byte(a, i, A_SIGNED) * byte(b, i, B_SIGNED));
    }
    u64::from(sum as u32)
}

/// Two products: 16-bit parts of `a` with the low or the high two bytes of `b`.
pub(crate) fn dp2a<const A_SIGNED: bool, const B_SIGNED: bool, const HIGH: bool>(
    a: u64,
    b: u64,
    c: u64,
) -> u64 {
    let mut sum = c as i32;
    for i in 0..2 {
        let short = (a >> (16 * i)) as u16;
        let byte = (b >> (8 * i + if HIGH { 16 } else { 0 })) as u8;
        let x = if A_SIGNED { i32::from(short as i16) } else { i32::from(short) };
        let y = if B_SIGNED { i32::from(byte as i8) } else { i32::from(byte) };
        sum = sum.wrapping_add(x * y);
    }
    u64::from(sum as u32)
}

/// The low or high half of a product.
pub(crate) fn product_part(high: bool, signed: bool, long: bool) -> fn(u64, u64, u64) -> u64 {
    match (high, signed, long) {
        (false, _, false) => |a, b, _| u64::from((a as u32).wrapping_mul(b as u32)),
        (false, _, true) => |a, b, _| a.wrapping_mul(b),
        (true, true, false) => |a, b, _| u64::from(hi_s32(a, b) as u32),
        (true, false, false) => |a, b, _| ((a & 0xffff_ffff) * (b & 0xffff_ffff)) >> 32,
        (true, true, true) => mul_hi_s64,
        (true, false, true) => mul_hi_u64,
    }
}

/// The function of an instruction on two 16-bit integers.
pub(crate) fn pair_function(parts: &[&str], signed: bool) -> Option<fn(u64, u64, u64) -> u64> {
    fn both(a: u64, b: u64, f: fn(u16, u16) -> u16) -> u64 {
        let one = |shift: u32| u64::from(f((a >> shift) as u16, (b >> shift) as u16)) << shift;
        one(0) | one(16)
    }
    fn signed_pick(x: u16, y: u16, larger: bool) -> i16 {
        let (x, y) = (x as i16, y as i16);
        if larger { x.max(y) } else { x.min(y) }
    }
    let rest = &parts[1..parts.len() - 1];
    Some(match (parts[0], rest, signed) {
        ("add", [], _) => |a, b, _| both(a, b, u16::wrapping_add),
        ("min", [], false) => |a, b, _| both(a, b, u16::min),
        ("max", [], false) => |a, b, _| both(a, b, u16::max),
        ("min", [], true) => |a, b, _| both(a, b, |x, y| signed_pick(x, y, false) as u16),
        ("max", [], true) => |a, b, _| both(a, b, |x, y| signed_pick(x, y, true) as u16),
        ("min", ["relu"], true) => {
            |a, b, _| both(a, b, |x, y| signed_pick(x, y, false).max(0) as u16)
        }
        ("max", ["relu"], true) => {
            |a, b, _| both(a, b, |x, y| signed_pick(x, y, true).max(0) as u16)
        }
        _ => return None,
    })
}

/// Bits `position` to `position + length`, numbers taken modulo 32.
pub(crate) fn bmsk_wrap(position: u64, length: u64, _: u64) -> u64 {
    bmsk_clamp(position & 31, length & 31, 0)
}

/// The low `count` bits, extended by their sign; `CLAMP` takes 32 and more for all bits.
pub(crate) fn szext<const SIGNED: bool, const CLAMP: bool>(a: u64, count: u64, _: u64) -> u64 {
    let (a, count) = (a as u32, count as u32);
    if CLAMP && count >= 32 {
        return a.into();
    }
    let unused = 32 - (count & 31);
    if unused == 32 {
        return 0;
    }
    let top = a << unused;
    u64::from(if SIGNED { (top as i32 >> unused) as u32 } else { top >> unused })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn division_edges() {
        let minimum = u64::from(i32::MIN as u32);
        let minus_one = u64::from(u32::MAX);
        assert_eq!(div_s32(minimum, minus_one, 0), minimum);
        assert_eq!(rem_s32(minimum, minus_one, 0), 0);
        assert_eq!(div_s32(u64::from(-7i32 as u32), 2, 0), u64::from(-3i32 as u32));
        assert_eq!(rem_s32(u64::from(-7i32 as u32), 2, 0), minus_one);
        assert_eq!(div_u32(7, 0, 0), minus_one);
        assert_eq!(rem_u32(7, 0, 0), 7);
        assert_eq!(div_s64(i64::MIN as u64, u64::MAX, 0), i64::MIN as u64);
    }

    #[test]
    fn bit_fields() {
        assert_eq!(bfe_u32(0x1234_5678, 8, 8), 0x56);
        assert_eq!(bfe_s32(0x0000_8000, 8, 8), 0xffff_ff80);
        assert_eq!(bfe_s32(0x8000_0000, 28, 8), 0xffff_fff8);
        assert_eq!(bfe_s32(0x8000_0000, 40, 8), 0xffff_ffff);
        assert_eq!(bfe_u32(0xffff_ffff, 32, 8), 0);
        assert_eq!(bfe_u32(0xffff_ffff, 4, 0), 0);
        // Beyond a byte: taken whole in 64 bits, cut to a byte in 32.
        assert_eq!(bfe_u64(0x1234, 0, 0x8000_0000), 0x1234);
        assert_eq!(bfe_u64(0x1234, 0x100, 64), 0);
        assert_eq!(bfe_u64(0x1234, 4, 0x100), 0x123);
        assert_eq!(bfe_u64(0x1234, 4, 8), 0x23);
        assert_eq!(bfe_s64(1 << 63, 0x100, 1), u64::MAX);
        assert_eq!(bfe_s64(1 << 63, 60, 0xffff_ffff), 8u64 | !7);
        assert_eq!(bfe_s64(1 << 63, 0x100, 0), 0);
        assert_eq!(bfe_u32(0x1234, 0x104, 0x108), 0x23);
        assert_eq!(bfi_32(0xff, 0x1234_5678, 8 | 4 << 8), 0x1234_5f78);
        assert_eq!(bfi_32(0xff, 0x1234_5678, 8), 0x1234_5678);
        assert_eq!(bfi_64(u64::MAX, 0, 60 | 8 << 8), 0xf << 60);
        assert_eq!(prmt(0x3322_1100, 0x7766_5544, 0x7531), 0x7755_3311);
        assert_eq!(prmt(0x0000_0080, 0, 0x8888), 0xffff_ffff);
        assert_eq!(shf_left_wrap(0x8000_0000, 1, 1), 3);
        assert_eq!(shf_right_clamp(0, 5, 32), 5);
        assert_eq!(shf_right_wrap(7, 5, 32), 7);
        assert_eq!(bfind_s32(u64::from(-1i32 as u32), 0, 0), 0xffff_ffff);
        assert_eq!(bfind_u32(0x10, 0, 0), 4);
        assert_eq!(dp4a::<true, false>(0xff, 0xff, 1), u64::from(-254i32 as u32));
        assert_eq!(fns(0b1010_0100, 0, 2), 5);
    }
}
