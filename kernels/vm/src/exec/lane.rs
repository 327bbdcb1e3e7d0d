//! The arithmetic of whole warps, one function a kernel. `dispatch` compiles each for the wide
//! and the portable build and puts them into a table that [`Kernel`] indexes.

use super::warp::{FULL, Longs, Warp, Words, lanes};
use crate::float::{self, Rounding, bits32};
use crate::program::Slot;

/// Destination and up to three sources.
pub(crate) type Slots = [Slot; 4];

/// Calls a macro with every kernel: its name in [`Kernel`] and its function here.
macro_rules! with_kernels {
    ($then:ident) => {
        $then! {
            Mov32 mov32, Mov64 mov64, MovP mov_p, NotP not_p, AndP and_p, OrP or_p, XorP xor_p,
            Not not, Negate negate, AbsS abs_s, FloatNegate float_negate, FloatAbs float_abs,
            Popc popc, Clz clz, Brev brev, Low16 low16, High16 high16, Sext8 sext8, Sext16 sext16,
            F32OfS32 f32_of_s32, F32OfU32 f32_of_u32, Saturate saturate, Bf16OfF32 bf16_of_f32,
            F32OfBf16 f32_of_bf16, F32OfF16 f32_of_f16, F16OfF32 f16_of_f32,
            Add add, Sub sub, Mul mul, MulHiS mul_hi_s, MulHiU mul_hi_u, And and, Or or, Xor xor,
            Shl shl, ShrU shr_u, ShrS shr_s, MinS min_s, MinU min_u, MaxS max_s, MaxU max_u,
            Pack16 pack16, FAdd f_add, FSub f_sub, FMul f_mul, FMin f_min, FMax f_max,
            FAddZero f_add_zero, BfPairAdd bf_pair_add, BfPairMul bf_pair_mul, PackBf16 pack_bf16,
            Mad mad, Fma fma, FmaDown fma_down, BfPairFma bf_pair_fma,
            Add64 add64, Sub64 sub64, Mul64 mul64, And64 and64, Or64 or64, Xor64 xor64,
            MinS64 min_s64, MinU64 min_u64, MaxS64 max_s64, MaxU64 max_u64,
            Shl64 shl64, ShrU64 shr_u64, ShrS64 shr_s64,
            MulWideS mul_wide_s, MulWideU mul_wide_u, MadWideS mad_wide_s, MadWideU mad_wide_u,
            Mad64 mad64, Sext sext, Zext zext, Trunc trunc, Join join, Split split,
            Select32 select32, Select64 select64,
            Eq32 eq32, Ne32 ne32, LtS32 lt_s32, LeS32 le_s32, GtS32 gt_s32, GeS32 ge_s32,
            LtU32 lt_u32, LeU32 le_u32, GtU32 gt_u32, GeU32 ge_u32,
            FEq f_eq, FNe f_ne, FLt f_lt, FLe f_le, FGt f_gt, FGe f_ge,
            FEqU f_eq_u, FNeU f_ne_u, FLtU f_lt_u, FLeU f_le_u, FGtU f_gt_u, FGeU f_ge_u,
            FNum f_num, FNan f_nan,
            Eq64 eq64, Ne64 ne64, LtS64 lt_s64, LeS64 le_s64, GtS64 gt_s64, GeS64 ge_s64,
            LtU64 lt_u64, LeU64 le_u64, GtU64 gt_u64, GeU64 ge_u64,
            Broadcast broadcast, Swap1 swap1, Swap2 swap2, Swap4 swap4, Swap8 swap8, Swap16 swap16,
            Up1 up1, Up2 up2, Up4 up4, Up8 up8, Up16 up16,
            Down1 down1, Down2 down2, Down4 down4, Down8 down8, Down16 down16,
        }
    };
}
pub(crate) use with_kernels;

macro_rules! kernel_names {
    ($($kernel:ident $name:ident,)*) => {
        /// A function of this module.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum Kernel { $($kernel),* }
    };
}
with_kernels!(kernel_names);

/// All ones where a lane's bit is set. Without a branch, so that lanes become vectors.
#[inline(always)]
pub(crate) fn ones32(mask: u32, lane: usize) -> u32 {
    (mask >> lane & 1).wrapping_neg()
}

#[inline(always)]
pub(crate) fn ones64(mask: u32, lane: usize) -> u64 {
    u64::from(mask >> lane & 1).wrapping_neg()
}

/// All ones where a bit of the byte is set. Looked up rather than compared: compilers make masked
/// stores of comparisons, and some processors run those in microcode.
static EIGHT: [[u32; 8]; 256] = {
    let mut table = [[0; 8]; 256];
    let mut i = 0;
    while i < 256 * 8 {
        table[i / 8][i % 8] = (((i / 8) >> (i % 8) & 1) as u32).wrapping_neg();
        i += 1;
    }
    table
};

/// The same for four bits and registers twice as wide.
static FOUR: [[u64; 4]; 16] = {
    let mut table = [[0; 4]; 16];
    let mut i = 0;
    while i < 16 * 4 {
        table[i / 4][i % 4] = (((i / 4) >> (i % 4) & 1) as u64).wrapping_neg();
        i += 1;
    }
    table
};

#[inline(always)]
pub(crate) fn put32(d: &mut Words, t: &[u32; 32], mask: u32) {
    if mask == FULL {
        d.0 = *t;
        return;
    }
    let (d, t) = (d.0.as_chunks_mut::<8>().0, t.as_chunks::<8>().0);
    for ((d, t), byte) in d.iter_mut().zip(t).zip(mask.to_le_bytes()) {
        let ones = &EIGHT[usize::from(byte)];
        for l in 0..8 {
            d[l] = t[l] & ones[l] | d[l] & !ones[l];
        }
    }
}

#[inline(always)]
pub(crate) fn put64(d: &mut Longs, t: &[u64; 32], mask: u32) {
    if mask == FULL {
        d.0 = *t;
        return;
    }
    let (d, t) = (d.0.as_chunks_mut::<4>().0, t.as_chunks::<4>().0);
    for (i, (d, t)) in d.iter_mut().zip(t).enumerate() {
        let ones = &FOUR[(mask >> (4 * i) & 15) as usize];
        for l in 0..4 {
            d[l] = t[l] & ones[l] | d[l] & !ones[l];
        }
    }
}

static BITS: Words = {
    let mut bits = [0; 32];
    let mut l = 0;
    while l < 32 {
        bits[l] = 1 << l;
        l += 1;
    }
    Words(bits)
};

/// The lanes for which `f` holds.
#[inline(always)]
pub(crate) fn lanes_where(f: impl Fn(usize) -> bool) -> u32 {
    // Known constants would be simplified, each lane's in another way, and no vectors be made.
    let bits = &std::hint::black_box(&BITS).0;
    let mut out = 0;
    for l in 0..32 {
        out |= u32::from(f(l)).wrapping_neg() & bits[l];
    }
    out
}

#[inline(always)]
fn put_predicate(warp: &mut Warp, d: Slot, value: u32, mask: u32) {
    let p = &mut warp.predicates[usize::from(d)];
    *p = *p & !mask | value & mask;
}

/// Kernels of one shape: the files of destination and sources, and the function of a lane.
macro_rules! lanewise {
    ($d:ident $put:ident $sources:tt $($name:ident = $f:expr;)*) => {
        $(lanewise! { @one $d $put $sources $name $f })*
    };
    (@one $d:ident $put:ident ($($x:ident: $source:ident @ $i:literal),*) $name:ident $f:expr) => {
        #[inline(always)]
        pub(crate) fn $name(warp: &mut Warp, s: Slots, mask: u32) {
            let f = $f;
            $(let $x = &warp.$source[usize::from(s[$i])].0;)*
            let mut t = [0; 32];
            for l in 0..32 {
                t[l] = f($($x[l]),*);
            }
            $put(&mut warp.$d[usize::from(s[0])], &t, mask);
        }
    };
}

fn f(bits: u32) -> f32 {
    f32::from_bits(bits)
}

lanewise! { words put32 (x: words @ 1)
    mov32 = |x: u32| x;
    not = |x: u32| !x;
    negate = u32::wrapping_neg;
    abs_s = |x: u32| (x as i32).wrapping_abs() as u32;
    float_negate = |x: u32| x ^ 0x8000_0000;
    float_abs = |x: u32| x & 0x7fff_ffff;
    popc = u32::count_ones;
    clz = u32::leading_zeros;
    brev = u32::reverse_bits;
    low16 = |x: u32| x & 0xffff;
    high16 = |x: u32| x >> 16;
    sext8 = |x: u32| (((x << 24) as i32) >> 24) as u32;
    sext16 = |x: u32| (((x << 16) as i32) >> 16) as u32;
    f32_of_s32 = |x: u32| (x as i32 as f32).to_bits();
    f32_of_u32 = |x: u32| (x as f32).to_bits();
    saturate = float::saturate;
    bf16_of_f32 = float::bf16_of;
    f32_of_bf16 = |x: u32| float::bf16_to_f32(x & 0xffff);
    f32_of_f16 = |x: u32| float::f16_to_f32(x & 0xffff);
}

/// Too long to repeat per lane in vector code.
#[inline(always)]
pub(crate) fn f16_of_f32(warp: &mut Warp, [d, a, ..]: Slots, mask: u32) {
    for lane in lanes(mask) {
        let code = float::f16_of(warp.words[usize::from(a)].0[lane]);
        warp.words[usize::from(d)].0[lane] = code;
    }
}

lanewise! { words put32 (x: words @ 1, y: words @ 2)
    add = u32::wrapping_add;
    sub = u32::wrapping_sub;
    mul = u32::wrapping_mul;
    mul_hi_s = |x: u32, y: u32| ((i64::from(x as i32) * i64::from(y as i32)) >> 32) as u32;
    mul_hi_u = |x: u32, y: u32| ((u64::from(x) * u64::from(y)) >> 32) as u32;
    and = |x: u32, y: u32| x & y;
    or = |x: u32, y: u32| x | y;
    xor = |x: u32, y: u32| x ^ y;
    shl = |x: u32, y: u32| (x << (y & 31)) & u32::from(y < 32).wrapping_neg();
    shr_u = |x: u32, y: u32| (x >> (y & 31)) & u32::from(y < 32).wrapping_neg();
    shr_s = |x: u32, y: u32| ((x as i32) >> y.min(31)) as u32;
    min_s = |x: u32, y: u32| (x as i32).min(y as i32) as u32;
    min_u = u32::min;
    max_s = |x: u32, y: u32| (x as i32).max(y as i32) as u32;
    max_u = u32::max;
    pack16 = |x: u32, y: u32| x & 0xffff | y << 16;
    f_add = |x: u32, y: u32| bits32(f(x) + f(y));
    f_sub = |x: u32, y: u32| bits32(f(x) - f(y));
    f_mul = |x: u32, y: u32| bits32(f(x) * f(y));
    f_min = |x: u32, y: u32| float::min32(x, y, false);
    f_max = |x: u32, y: u32| float::max32(x, y, false);
    f_add_zero = |x: u32, y: u32| float::add32(f(x), f(y), Rounding::Zero);
    bf_pair_add = |x: u32, y: u32| {
        bf_pair(|s| float::add32(f(half(x, s)), f(half(y, s)), Rounding::Nearest))
    };
    bf_pair_mul = |x: u32, y: u32| {
        bf_pair(|s| float::mul32(f(half(x, s)), f(half(y, s)), Rounding::Nearest))
    };
    pack_bf16 = |x: u32, y: u32| float::bf16_of(x) | float::bf16_of(y) << 16;
}

/// One bf16 of a pair as f32 bits: the high one or the low one.
#[inline(always)]
fn half(x: u32, high: bool) -> u32 {
    if high { x & 0xffff_0000 } else { x << 16 }
}

#[inline(always)]
fn bf_pair(exact: impl Fn(bool) -> u32) -> u32 {
    float::bf16_of(exact(false)) | float::bf16_of(exact(true)) << 16
}

lanewise! { words put32 (x: words @ 1, y: words @ 2, z: words @ 3)
    mad = |x: u32, y: u32, z: u32| x.wrapping_mul(y).wrapping_add(z);
    fma = |x: u32, y: u32, z: u32| bits32(f(x).mul_add(f(y), f(z)));
    fma_by_double = |x: u32, y: u32, z: u32| {
        // The product is exact, and 53 bits that are rounded to odd decide as all would.
        let product = f64::from(f(x)) * f64::from(f(y));
        bits32(float::add_to_odd(product, f(z).into()) as f32)
    };
    fma_down = |x: u32, y: u32, z: u32| float::fma32(f(x), f(y), f(z), Rounding::Down);
    bf_pair_fma = |x: u32, y: u32, z: u32| {
        let one = |high| {
            let product = f64::from(f(half(x, high))) * f64::from(f(half(y, high)));
            let sum = float::add_to_odd(product, f64::from(f(half(z, high))));
            float::BF16.encode(sum, Rounding::Nearest, false)
        };
        one(false) | one(true) << 16
    };
}

lanewise! { longs put64 (x: longs @ 1)
    mov64 = |x: u64| x;
}

lanewise! { longs put64 (x: longs @ 1, y: longs @ 2)
    add64 = u64::wrapping_add;
    sub64 = u64::wrapping_sub;
    mul64 = u64::wrapping_mul;
    and64 = |x: u64, y: u64| x & y;
    or64 = |x: u64, y: u64| x | y;
    xor64 = |x: u64, y: u64| x ^ y;
    min_s64 = |x: u64, y: u64| (x as i64).min(y as i64) as u64;
    min_u64 = u64::min;
    max_s64 = |x: u64, y: u64| (x as i64).max(y as i64) as u64;
    max_u64 = u64::max;
}

lanewise! { longs put64 (x: longs @ 1, y: longs @ 2, z: longs @ 3)
    mad64 = |x: u64, y: u64, z: u64| x.wrapping_mul(y).wrapping_add(z);
}

lanewise! { longs put64 (x: longs @ 1, y: words @ 2)
    shl64 = |x: u64, y: u32| (x << (y & 63)) & u64::from(y < 64).wrapping_neg();
    shr_u64 = |x: u64, y: u32| (x >> (y & 63)) & u64::from(y < 64).wrapping_neg();
    shr_s64 = |x: u64, y: u32| ((x as i64) >> y.min(63)) as u64;
}

lanewise! { longs put64 (x: words @ 1, y: words @ 2)
    mul_wide_s = |x: u32, y: u32| (i64::from(x as i32) * i64::from(y as i32)) as u64;
    mul_wide_u = |x: u32, y: u32| u64::from(x) * u64::from(y);
    join = |x: u32, y: u32| u64::from(x) | u64::from(y) << 32;
}

lanewise! { longs put64 (x: words @ 1, y: words @ 2, z: longs @ 3)
    mad_wide_s = |x: u32, y: u32, z: u64| {
        ((i64::from(x as i32) * i64::from(y as i32)) as u64).wrapping_add(z)
    };
    mad_wide_u = |x: u32, y: u32, z: u64| (u64::from(x) * u64::from(y)).wrapping_add(z);
}

lanewise! { longs put64 (x: words @ 1)
    sext = |x: u32| i64::from(x as i32) as u64;
    zext = |x: u32| u64::from(x);
}

lanewise! { words put32 (x: longs @ 1)
    trunc = |x: u64| x as u32;
}

/// Low and high halves of the third slot into the first two.
#[inline(always)]
pub(crate) fn split(warp: &mut Warp, [low, high, a, _]: Slots, mask: u32) {
    let x = &warp.longs[usize::from(a)].0;
    let (mut t, mut u) = ([0; 32], [0; 32]);
    for l in 0..32 {
        t[l] = x[l] as u32;
        u[l] = (x[l] >> 32) as u32;
    }
    put32(&mut warp.words[usize::from(low)], &t, mask);
    put32(&mut warp.words[usize::from(high)], &u, mask);
}

#[inline(always)]
pub(crate) fn select32(warp: &mut Warp, [d, a, b, p]: Slots, mask: u32) {
    let p = warp.predicates[usize::from(p)];
    let x = &warp.words[usize::from(a)].0;
    let y = &warp.words[usize::from(b)].0;
    let mut t = [0; 32];
    for l in 0..32 {
        let ones = ones32(p, l);
        t[l] = x[l] & ones | y[l] & !ones;
    }
    put32(&mut warp.words[usize::from(d)], &t, mask);
}

#[inline(always)]
pub(crate) fn select64(warp: &mut Warp, [d, a, b, p]: Slots, mask: u32) {
    let p = warp.predicates[usize::from(p)];
    let x = &warp.longs[usize::from(a)].0;
    let y = &warp.longs[usize::from(b)].0;
    let mut t = [0; 32];
    for l in 0..32 {
        let ones = ones64(p, l);
        t[l] = x[l] & ones | y[l] & !ones;
    }
    put64(&mut warp.longs[usize::from(d)], &t, mask);
}

/// Exchanges within a whole warp: a register, what each lane finds elsewhere in another or itself
/// where there is no such lane, and (unless slot 0) who found something. Known distances become a
/// few vector permutations.
macro_rules! exchanges {
    ($($name:ident = $from:expr, $found:expr;)*) => {$(
        #[inline(always)]
        pub(crate) fn $name(warp: &mut Warp, [d, a, p, _]: Slots, _: u32) {
            let from = $from;
            let a = &warp.words[usize::from(a)].0;
            let mut t = [0; 32];
            for l in 0..32 {
                t[l] = a[from(l)];
            }
            warp.words[usize::from(d)].0 = t;
            if p != 0 {
                warp.predicates[usize::from(p)] = $found;
            }
        }
    )*};
}

exchanges! {
    swap1 = |l| l ^ 1, FULL;
    swap2 = |l| l ^ 2, FULL;
    swap4 = |l| l ^ 4, FULL;
    swap8 = |l| l ^ 8, FULL;
    swap16 = |l| l ^ 16, FULL;
    up1 = |l| above::<1>(l), FULL << 1;
    up2 = |l| above::<2>(l), FULL << 2;
    up4 = |l| above::<4>(l), FULL << 4;
    up8 = |l| above::<8>(l), FULL << 8;
    up16 = |l| above::<16>(l), FULL << 16;
    down1 = |l| below::<1>(l), FULL >> 1;
    down2 = |l| below::<2>(l), FULL >> 2;
    down4 = |l| below::<4>(l), FULL >> 4;
    down8 = |l| below::<8>(l), FULL >> 8;
    down16 = |l| below::<16>(l), FULL >> 16;
}

/// One lane's word for all.
#[inline(always)]
pub(crate) fn broadcast(warp: &mut Warp, [d, a, p, from]: Slots, _: u32) {
    let value = warp.words[usize::from(a)].0[usize::from(from) & 31];
    warp.words[usize::from(d)].0 = [value; 32];
    // Slot 0 always holds.
    warp.predicates[usize::from(p)] = FULL;
}

#[inline(always)]
fn above<const BY: usize>(l: usize) -> usize {
    if l < BY { l } else { l - BY }
}

#[inline(always)]
fn below<const BY: usize>(l: usize) -> usize {
    if l + BY > 31 { l } else { l + BY }
}

macro_rules! predicates {
    ($($name:ident = $f:expr;)*) => {$(
        #[inline(always)]
        pub(crate) fn $name(warp: &mut Warp, [d, a, b, _]: Slots, mask: u32) {
            let f = $f;
            let value =
                f(warp.predicates[usize::from(a)], warp.predicates[usize::from(b)]);
            put_predicate(warp, d, value, mask);
        }
    )*};
}

predicates! {
    mov_p = |x: u32, _: u32| x;
    not_p = |x: u32, _: u32| !x;
    and_p = |x: u32, y: u32| x & y;
    or_p = |x: u32, y: u32| x | y;
    xor_p = |x: u32, y: u32| x ^ y;
}

macro_rules! comparisons {
    ($source:ident $trace:ident $invert:literal $($name:ident = $f:expr;)*) => {$(
        #[inline(always)]
        pub(crate) fn $name(warp: &mut Warp, [d, a, b, _]: Slots, mask: u32) {
            let f = $f;
            let x = &warp.$source[usize::from(a)].0;
            let y = &warp.$source[usize::from(b)].0;
            let first = mask.trailing_zeros() as usize & 31;
            crate::dispatch::$trace(x[first], y[first]);
            let out = lanes_where(|l| f(x[l], y[l]));
            put_predicate(warp, d, if $invert { !out } else { out }, mask);
        }
    )*};
}

comparisons! { words trace_compare32 false
    eq32 = |x: u32, y: u32| x == y;
    ne32 = |x: u32, y: u32| x != y;
    lt_s32 = |x: u32, y: u32| (x as i32) < y as i32;
    le_s32 = |x: u32, y: u32| x as i32 <= y as i32;
    gt_s32 = |x: u32, y: u32| x as i32 > y as i32;
    ge_s32 = |x: u32, y: u32| x as i32 >= y as i32;
    lt_u32 = |x: u32, y: u32| x < y;
    le_u32 = |x: u32, y: u32| x <= y;
    gt_u32 = |x: u32, y: u32| x > y;
    ge_u32 = |x: u32, y: u32| x >= y;
    f_eq = |x: u32, y: u32| f(x) == f(y);
    f_ne = |x: u32, y: u32| f(x) < f(y) || f(x) > f(y);
    f_lt = |x: u32, y: u32| f(x) < f(y);
    f_le = |x: u32, y: u32| f(x) <= f(y);
    f_gt = |x: u32, y: u32| f(x) > f(y);
    f_ge = |x: u32, y: u32| f(x) >= f(y);
    f_ne_u = |x: u32, y: u32| f(x) != f(y);
    f_num = |x: u32, y: u32| !f(x).is_nan() && !f(y).is_nan();
    f_nan = |x: u32, y: u32| f(x).is_nan() || f(y).is_nan();
}

comparisons! { words trace_compare32 true
    f_eq_u = |x: u32, y: u32| f(x) < f(y) || f(x) > f(y);
    f_lt_u = |x: u32, y: u32| f(x) >= f(y);
    f_le_u = |x: u32, y: u32| f(x) > f(y);
    f_gt_u = |x: u32, y: u32| f(x) <= f(y);
    f_ge_u = |x: u32, y: u32| f(x) < f(y);
}

comparisons! { longs trace_compare64 false
    eq64 = |x: u64, y: u64| x == y;
    ne64 = |x: u64, y: u64| x != y;
    lt_s64 = |x: u64, y: u64| (x as i64) < y as i64;
    le_s64 = |x: u64, y: u64| x as i64 <= y as i64;
    gt_s64 = |x: u64, y: u64| x as i64 > y as i64;
    ge_s64 = |x: u64, y: u64| x as i64 >= y as i64;
    lt_u64 = |x: u64, y: u64| x < y;
    le_u64 = |x: u64, y: u64| x <= y;
    gt_u64 = |x: u64, y: u64| x > y;
    ge_u64 = |x: u64, y: u64| x >= y;
}
