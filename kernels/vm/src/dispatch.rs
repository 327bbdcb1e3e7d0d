//! Chooses the hot loop's build for this processor and speaks to libFuzzer. The only unsafe code
//! of the crate. The loop's wrappers bear `__sanitizer_` names so that LLVM's coverage
//! instrumentation leaves them alone: the fuzzer sees the kernel's edges, not the machine's. Under
//! the fuzzer what they often call is inlined into them, for the same reason.
#![allow(unsafe_code)]

use crate::exec::floor::{Floor, Halt};
use crate::exec::lane::{Kernel, Slots, with_kernels};
use crate::exec::machine::Machine;
use crate::exec::product::{MatrixModel, Operands};
use crate::exec::step::{Laned, Outcome, Raised, run};
use crate::exec::warp::Warp;
use crate::exec::{access, alu, atomic, collective, lane, matrix, product as products, store};
use crate::program::{Access, Action, Approx, Atomic, Matrix, Product, Slot};
use crate::watch;
use std::cell::Cell;

/// A number cut toward zero: what is outside of an `i32` becomes its nearest end, what is none the upper
/// one. One instruction a vector on any x86-64, where `as` takes six.
#[inline(always)]
pub(crate) fn truncated(x: f32) -> i32 {
    const LOW: f32 = -2_147_483_648.0;
    const HIGH: f32 = 2_147_483_520.0;
    let below = if x < HIGH { x } else { HIGH };
    let within = if below > LOW { below } else { LOW };
    // SAFETY: the comparisons leave a number from -2^31 to the largest f32 below 2^31: NaN fails the
    // first, so that it becomes `HIGH`.
    unsafe { within.to_int_unchecked() }
}

/// Runs a warp until it blocks, ends or uses up its slice.
pub(crate) fn run_warp(warp: &mut Warp, machine: &mut Machine<'_>) -> Result<Outcome, Box<Raised>> {
    if machine.watch.is_some() {
        return run_watched(warp, machine);
    }
    #[cfg(target_arch = "x86_64")]
    if let Some(vectors) = machine.wide {
        // SAFETY: a `Wide` exists only after `detect` found every feature that `run_wide` is
        // compiled for.
        return unsafe { run_wide(vectors, warp, machine) };
    }
    run_portable(warp, machine)
}

/// Runs the blocks of a launch.
// SAFETY: the name is this crate's alone; nothing else defines or looks it up.
#[cfg_attr(feature = "libfuzzer", unsafe(export_name = "__sanitizer_ptx_vm_run_blocks"))]
pub(crate) fn run_blocks(floor: &mut Floor<'_>, machine: &mut Machine<'_>) -> Result<(), Halt> {
    floor.run(machine)
}

/// A matrix product of a whole warp.
#[inline(always)]
pub(crate) fn product(
    vectors: Option<Wide>,
    warp: &mut Warp,
    operands: &mut Operands,
    what: &Product,
    model: MatrixModel,
) {
    #[cfg(target_arch = "x86_64")]
    if let Some(Wide { pairs }) = vectors {
        if pairs && model == MatrixModel::H200 {
            // SAFETY: `pairs` is set only after `detect` found every feature that `product_pairs` is
            // compiled for.
            return unsafe { product_pairs(warp, operands, what) };
        }
        // SAFETY: as in `run_warp`.
        return unsafe { product_wide(warp, operands, what, model) };
    }
    let _ = vectors;
    product_portable(warp, operands, what, model);
}

/// Proof that this processor has everything the wide build needs; `detect` alone makes one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wide {
    /// Vectors of 512 bits as well: matrix products take two rows at once.
    pairs: bool,
}

thread_local! {
    static PORTABLY: Cell<bool> = const { Cell::new(false) };
}

/// Calls `f` as on a processor without AVX2: the modules that it parses and the launches that it makes
/// on this thread take the portable build, whose results are the same.
pub fn portably<T>(f: impl FnOnce() -> T) -> T {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            PORTABLY.set(self.0);
        }
    }
    let _restore = Restore(PORTABLY.replace(true));
    f()
}

/// The wide build, where this processor can run it and nobody asks for the portable one.
pub(crate) fn detect() -> Option<Wide> {
    if PORTABLY.get() {
        return None;
    }
    #[cfg(target_arch = "x86_64")]
    {
        let all = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("popcnt")
            && is_x86_feature_detected!("lzcnt");
        let pairs = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        all.then_some(Wide { pairs })
    }
    #[cfg(not(target_arch = "x86_64"))]
    None
}

/// Every build that this processor can run.
#[cfg(test)]
pub(crate) fn builds() -> Vec<Option<Wide>> {
    let best = detect();
    let mut all = vec![None, best.map(|_| Wide { pairs: false }), best];
    all.dedup_by_key(|build| build.map(|wide| wide.pairs));
    all
}

/// One build of the functions that the loop calls rather than inlines.
pub(crate) trait Vectors: Copy {
    fn load(self, w: &mut Warp, m: &mut Machine<'_>, a: &Access, mask: u32, pc: u32) -> Done;
    fn store(self, w: &mut Warp, m: &mut Machine<'_>, a: &Access, mask: u32, pc: u32) -> Done;
    /// Lanes that have to wait, as [`collective::synchronous`] returns them.
    fn synchronous(
        self,
        w: &mut Warp,
        m: &mut Machine<'_>,
        action: &Action,
        mask: u32,
    ) -> Result<u32, Laned>;
    fn atomic(self, w: &mut Warp, m: &mut Machine<'_>, a: &Atomic, mask: u32, pc: u32) -> Done;
    fn matrix(self, w: &mut Warp, m: &mut Machine<'_>, what: &Matrix, mask: u32, pc: u32) -> Done;
    fn approximate(self, w: &mut Warp, m: &mut Machine<'_>, s: [Slot; 2], op: Approx, mask: u32);
}

type Done = Result<(), Laned>;

/// The functions of one build: `$symbol` begins their names for the fuzzer, `$feature` is what
/// they are compiled for.
macro_rules! build {
    ($symbol:literal $feature:tt $($kernel:ident $name:ident,)*) => {
        use super::*;

        $(build! { @lane $symbol $feature $name })*
        build! { @each $symbol $feature
            load1(a: &Access, mask: u32, pc: u32) -> bool
                = access::load::<true, 1>, access::load::<false, 1>;
            load2(a: &Access, mask: u32, pc: u32) -> bool
                = access::load::<true, 2>, access::load::<false, 2>;
            load4(a: &Access, mask: u32, pc: u32) -> bool
                = access::load::<true, 4>, access::load::<false, 4>;
            load8(a: &Access, mask: u32, pc: u32) -> bool
                = access::load::<true, 8>, access::load::<false, 8>;
            load16(a: &Access, mask: u32, pc: u32) -> bool
                = access::load::<true, 16>, access::load::<false, 16>;
            load_each(a: &Access, mask: u32, pc: u32) -> Done
                = access::load_each::<true>, access::load_each::<false>;
            store1(a: &Access, mask: u32, pc: u32) -> bool
                = store::store::<true, 1>, store::store::<false, 1>;
            store2(a: &Access, mask: u32, pc: u32) -> bool
                = store::store::<true, 2>, store::store::<false, 2>;
            store4(a: &Access, mask: u32, pc: u32) -> bool
                = store::store::<true, 4>, store::store::<false, 4>;
            store8(a: &Access, mask: u32, pc: u32) -> bool
                = store::store::<true, 8>, store::store::<false, 8>;
            store16(a: &Access, mask: u32, pc: u32) -> bool
                = store::store::<true, 16>, store::store::<false, 16>;
            store_each(a: &Access, mask: u32, pc: u32) -> Done
                = store::store_each::<true>, store::store_each::<false>;
            synchronous(action: &Action, mask: u32) -> Result<u32, Laned>
                = collective::synchronous, collective::synchronous;
            atomic(a: &Atomic, mask: u32, pc: u32) -> Done
                = atomic::atomic::<true>, atomic::atomic::<false>;
            matrix(a: &Matrix, mask: u32, pc: u32) -> Done
                = matrix::execute::<true>, matrix::execute::<false>;
            approximate(s: [Slot; 2], op: Approx, mask: u32) -> ()
                = alu::approximate, alu::approximate;
        }
    };
    (@lane $symbol:literal [$($feature:tt)*] $name:ident) => {
        // SAFETY: the name is this crate's alone; nothing else defines or looks it up.
        #[cfg_attr(
            feature = "libfuzzer",
            unsafe(export_name = concat!("__sanitizer_ptx_vm_", $symbol, stringify!($name)))
        )]
        $($feature)*
        fn $name(warp: &mut Warp, s: Slots, mask: u32) {
            lane::$name(warp, s, mask);
        }
    };
    (@each $symbol:literal [$($feature:tt)*]
        $name:ident($($arg:ident: $ty:ty),*) -> $result:ty = $checked:path, $plain:path;
        $($rest:tt)*
    ) => {
        // SAFETY: as above.
        #[cfg_attr(
            feature = "libfuzzer",
            unsafe(export_name = concat!("__sanitizer_ptx_vm_", $symbol, stringify!($name)))
        )]
        $($feature)*
        #[inline(never)]
        pub(super) fn $name(w: &mut Warp, m: &mut Machine<'_>, $($arg: $ty),*) -> $result {
            if m.checks { $checked(w, m, $($arg),*) } else { $plain(w, m, $($arg),*) }
        }
        build! { @each $symbol [$($feature)*] $($rest)* }
    };
    (@each $symbol:literal $feature:tt) => {};
}

macro_rules! portable_build {
    ($($kernel:ident $name:ident,)*) => {
        mod portable {
            build! { "portable_" [] $($kernel $name,)* }
            pub(super) static LANES: [unsafe fn(&mut Warp, Slots, u32); KERNELS] = [$($name),*];
        }
        const KERNELS: usize = [$(Kernel::$kernel),*].len();
    };
}
with_kernels!(portable_build);

#[cfg(target_arch = "x86_64")]
macro_rules! wide_build {
    ($($kernel:ident $name:ident,)*) => {
        mod wide {
            build! { "wide_"
                [#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,popcnt,lzcnt")]]
                $($kernel $name,)*
            }
            pub(super) static LANES: [unsafe fn(&mut Warp, Slots, u32); KERNELS] = [$($name),*];
        }
    };
}
#[cfg(target_arch = "x86_64")]
with_kernels!(wide_build);

/// The kernel `fma` where the processor may lack the instruction: else each lane is a call.
// SAFETY: the name is this crate's alone; nothing else defines or looks it up.
#[cfg_attr(feature = "libfuzzer", unsafe(export_name = "__sanitizer_ptx_vm_fma_by_double"))]
fn fma_by_double(warp: &mut Warp, s: Slots, mask: u32) {
    lane::fma_by_double(warp, s, mask);
}

/// A kernel of `lane` in the build for this processor; [`LaneFunction::of`] alone makes one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneFunction(unsafe fn(&mut Warp, Slots, u32));

impl LaneFunction {
    pub(crate) fn of(kernel: Kernel) -> LaneFunction {
        #[cfg(target_arch = "x86_64")]
        if detect().is_some() {
            return LaneFunction(wide::LANES[kernel as usize]);
        }
        if kernel == Kernel::Fma && cfg!(target_arch = "x86_64") {
            return LaneFunction(fma_by_double);
        }
        LaneFunction(portable::LANES[kernel as usize])
    }

    #[inline(always)]
    pub(crate) fn call(self, warp: &mut Warp, s: Slots, mask: u32) {
        // SAFETY: `of` takes a function of the wide build only after `detect` found every feature
        // it is compiled for; the portable ones are safe.
        unsafe { (self.0)(warp, s, mask) }
    }
}

#[derive(Clone, Copy)]
struct Portable;

/// Calls the functions of one build. The wide ones are unsafe to call; a `Wide` is the proof
/// that they may be.
macro_rules! vectors {
    ($kind:ident $build:ident $($call:ident)?) => {
        impl Vectors for $kind {
            #[inline(always)]
            fn load(
                self, w: &mut Warp, m: &mut Machine<'_>, a: &Access, mask: u32, pc: u32,
            ) -> Done {
                // The short way, or each lane.
                $($call!)? {
                    if match a.bytes() {
                        1 => $build::load1(w, m, a, mask, pc),
                        2 => $build::load2(w, m, a, mask, pc),
                        4 => $build::load4(w, m, a, mask, pc),
                        8 => $build::load8(w, m, a, mask, pc),
                        16 => $build::load16(w, m, a, mask, pc),
                        _ => false,
                    } {
                        Ok(())
                    } else {
                        $build::load_each(w, m, a, mask, pc)
                    }
                }
            }
            #[inline(always)]
            fn store(
                self, w: &mut Warp, m: &mut Machine<'_>, a: &Access, mask: u32, pc: u32,
            ) -> Done {
                // The short way, or each lane.
                $($call!)? {
                    if match a.bytes() {
                        1 => $build::store1(w, m, a, mask, pc),
                        2 => $build::store2(w, m, a, mask, pc),
                        4 => $build::store4(w, m, a, mask, pc),
                        8 => $build::store8(w, m, a, mask, pc),
                        16 => $build::store16(w, m, a, mask, pc),
                        _ => false,
                    } {
                        Ok(())
                    } else {
                        $build::store_each(w, m, a, mask, pc)
                    }
                }
            }
            #[inline(always)]
            fn synchronous(
                self, w: &mut Warp, m: &mut Machine<'_>, action: &Action, mask: u32,
            ) -> Result<u32, Laned> {
                $($call!)? { $build::synchronous(w, m, action, mask) }
            }
            #[inline(always)]
            fn atomic(
                self, w: &mut Warp, m: &mut Machine<'_>, a: &Atomic, mask: u32, pc: u32,
            ) -> Done {
                $($call!)? { $build::atomic(w, m, a, mask, pc) }
            }
            #[inline(always)]
            fn approximate(
                self, w: &mut Warp, m: &mut Machine<'_>, s: [Slot; 2], op: Approx, mask: u32,
            ) {
                $($call!)? { $build::approximate(w, m, s, op, mask) }
            }
            #[inline(always)]
            fn matrix(
                self, w: &mut Warp, m: &mut Machine<'_>, a: &Matrix, mask: u32, pc: u32,
            ) -> Done {
                $($call!)? { $build::matrix(w, m, a, mask, pc) }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
macro_rules! proven {
    ($call:expr) => {
        // SAFETY: `self` is a `Wide`, which exists only after `detect` found every feature that
        // the functions of `wide` are compiled for.
        unsafe { $call }
    };
}

vectors!(Portable portable);
#[cfg(target_arch = "x86_64")]
vectors!(Wide wide proven);

// SAFETY: the name is this crate's alone; nothing else defines or looks it up.
#[cfg_attr(feature = "libfuzzer", unsafe(export_name = "__sanitizer_ptx_vm_run_portable"))]
fn run_portable(warp: &mut Warp, machine: &mut Machine<'_>) -> Result<Outcome, Box<Raised>> {
    run(Portable, warp, machine)
}

// SAFETY: the name is this crate's alone; nothing else defines or looks it up.
#[cfg(target_arch = "x86_64")]
#[cfg_attr(feature = "libfuzzer", unsafe(export_name = "__sanitizer_ptx_vm_run_wide"))]
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,popcnt,lzcnt")]
fn run_wide(
    vectors: Wide,
    warp: &mut Warp,
    machine: &mut Machine<'_>,
) -> Result<Outcome, Box<Raised>> {
    run(vectors, warp, machine)
}

// SAFETY: the name is this crate's alone; nothing else defines or looks it up.
#[cfg_attr(feature = "libfuzzer", unsafe(export_name = "__sanitizer_ptx_vm_product_portable"))]
fn product_portable(warp: &mut Warp, operands: &mut Operands, what: &Product, model: MatrixModel) {
    match model {
        MatrixModel::H200 => products::portable::product(warp, operands, what),
        MatrixModel::F32 => products::portable::plain(warp, operands, what),
    }
}

// SAFETY: the name is this crate's alone; nothing else defines or looks it up.
#[cfg(target_arch = "x86_64")]
#[cfg_attr(feature = "libfuzzer", unsafe(export_name = "__sanitizer_ptx_vm_product_wide"))]
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,popcnt,lzcnt")]
fn product_wide(warp: &mut Warp, operands: &mut Operands, what: &Product, model: MatrixModel) {
    match model {
        MatrixModel::H200 => products::wide::product(warp, operands, what),
        MatrixModel::F32 => products::wide::plain(warp, operands, what),
    }
}

// SAFETY: the name is this crate's alone; nothing else defines or looks it up.
#[cfg(target_arch = "x86_64")]
#[cfg_attr(feature = "libfuzzer", unsafe(export_name = "__sanitizer_ptx_vm_product_pairs"))]
#[target_feature(
    enable = "avx2,fma,f16c,bmi1,bmi2,popcnt,lzcnt,avx512f,avx512bw,avx512dq,avx512vl"
)]
fn product_pairs(warp: &mut Warp, operands: &mut Operands, what: &Product) {
    products::pairs::product(warp, operands, what);
}

/// A build that tells the launch's watch who stores what.
#[derive(Clone, Copy)]
struct Watching<V>(V);

impl<V: Vectors> Vectors for Watching<V> {
    fn load(self, w: &mut Warp, m: &mut Machine<'_>, a: &Access, mask: u32, pc: u32) -> Done {
        self.0.load(w, m, a, mask, pc)
    }

    fn store(self, w: &mut Warp, m: &mut Machine<'_>, a: &Access, mask: u32, pc: u32) -> Done {
        self.0.store(w, m, a, mask, pc)?;
        watch::stored(w, m, a, mask, pc);
        Ok(())
    }

    fn synchronous(
        self,
        w: &mut Warp,
        m: &mut Machine<'_>,
        action: &Action,
        mask: u32,
    ) -> Result<u32, Laned> {
        self.0.synchronous(w, m, action, mask)
    }

    fn atomic(self, w: &mut Warp, m: &mut Machine<'_>, a: &Atomic, mask: u32, pc: u32) -> Done {
        let pending = watch::before(w, m, a, mask);
        self.0.atomic(w, m, a, mask, pc)?;
        watch::updated(w, m, a, &pending, pc);
        Ok(())
    }

    fn matrix(self, w: &mut Warp, m: &mut Machine<'_>, what: &Matrix, mask: u32, pc: u32) -> Done {
        self.0.matrix(w, m, what, mask, pc)
    }

    fn approximate(self, w: &mut Warp, m: &mut Machine<'_>, s: [Slot; 2], op: Approx, mask: u32) {
        self.0.approximate(w, m, s, op, mask);
    }
}

/// The portable build under a watch: its results are those of every build, and a watched launch is
/// one somebody waits for, not one of thousands.
#[inline(never)]
fn run_watched(warp: &mut Warp, machine: &mut Machine<'_>) -> Result<Outcome, Box<Raised>> {
    run(Watching(Portable), warp, machine)
}

#[cfg(feature = "libfuzzer")]
mod fuzzer {
    use std::sync::atomic::{AtomicU8, Ordering};

    #[cfg(not(target_os = "linux"))]
    compile_error!("the `libfuzzer` feature needs Linux: other systems have no such link section");

    const COUNTERS: usize = 1 << 14;

    // SAFETY: libFuzzer reads and clears this section as plain bytes between runs, on the thread
    // that runs the target; `AtomicU8` has the layout of `u8`.
    #[used]
    #[unsafe(link_section = "__libfuzzer_extra_counters")]
    static EDGES: [AtomicU8; COUNTERS] = [const { AtomicU8::new(0) }; COUNTERS];

    // SAFETY: as for `EDGES`.
    #[used]
    #[unsafe(link_section = "__libfuzzer_extra_counters")]
    static FEATURES: [AtomicU8; COUNTERS] = [const { AtomicU8::new(0) }; COUNTERS];

    unsafe extern "C" {
        fn __sanitizer_cov_trace_cmp4(a: u32, b: u32);
        fn __sanitizer_cov_trace_cmp8(a: u64, b: u64);
    }

    /// Where a fuzz target may link what instrumented code would tell libFuzzer of itself:
    /// [`crate::guidance`].
    // SAFETY: the name is this crate's alone; nothing else defines it.
    #[unsafe(export_name = "__sanitizer_ptx_vm_nothing")]
    pub extern "C" fn nothing() {}

    /// Options of AddressSanitizer for every fuzz target, which the variable of that name may override.
    /// Each allocation's stack is not kept: that takes a tenth of the time, and a crash that needs it
    /// runs again with `ASAN_OPTIONS=malloc_context_size=30`. What was freed stays unusable for the
    /// next 16 MiB.
    // SAFETY: the runtime looks the name up and reads the string; nothing else defines it.
    #[unsafe(no_mangle)]
    pub extern "C" fn __asan_default_options() -> *const std::ffi::c_char {
        c"malloc_context_size=0:quarantine_size_mb=16:detect_stack_use_after_return=0".as_ptr()
    }

    pub fn count_feature(key: u64) {
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50;
        FEATURES[hash as usize % COUNTERS].store(1, Ordering::Relaxed);
    }

    #[inline(always)]
    pub fn count_edge(seed: u32, edge: u16) {
        let hash = (seed ^ u32::from(edge)).wrapping_mul(0x9e37_79b1) >> 18;
        let counter = &EDGES[hash as usize % COUNTERS];
        let count = counter.load(Ordering::Relaxed);
        counter.store(count.wrapping_add(1), Ordering::Relaxed);
    }

    #[inline(always)]
    pub fn trace_compare32(a: u32, b: u32) {
        // SAFETY: libFuzzer's runtime, which the feature asks for, defines it; any values are
        // allowed.
        unsafe { __sanitizer_cov_trace_cmp4(a, b) }
    }

    #[inline(always)]
    pub fn trace_compare64(a: u64, b: u64) {
        // SAFETY: as for 32 bits.
        unsafe { __sanitizer_cov_trace_cmp8(a, b) }
    }
}

#[cfg(not(feature = "libfuzzer"))]
mod fuzzer {
    #[inline(always)]
    pub fn count_edge(_seed: u32, _edge: u16) {}

    pub fn count_feature(_key: u64) {}

    #[inline(always)]
    pub fn trace_compare32(_a: u32, _b: u32) {}

    #[inline(always)]
    pub fn trace_compare64(_a: u64, _b: u64) {}
}

pub(crate) use fuzzer::{count_edge, count_feature, trace_compare32, trace_compare64};
