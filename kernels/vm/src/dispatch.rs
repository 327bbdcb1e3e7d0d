//! Chooses the hot loop's build for this processor and speaks to libFuzzer. The only unsafe code
//! of the crate. The loop's wrappers bear `__sanitizer_` names so that LLVM's coverage
//! instrumentation leaves them alone: the fuzzer sees the kernel's edges, not the machine's.
#![allow(unsafe_code)]

use crate::exec::machine::Machine;
use crate::exec::step::{Outcome, Raised, run};
use crate::exec::warp::Warp;

/// Runs a warp until it blocks, ends or uses up its slice.
pub(crate) fn run_warp(warp: &mut Warp, machine: &mut Machine<'_>) -> Result<Outcome, Box<Raised>> {
    #[cfg(target_arch = "x86_64")]
    if machine.wide_vectors {
        // SAFETY: `wide_vectors` is set by `detect` alone, after the processor reported every
        // feature that `run_wide` is compiled for.
        return unsafe { run_wide(warp, machine) };
    }
    run_portable(warp, machine)
}

/// Whether this processor has everything `run_wide` needs.
pub(crate) fn detect() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("popcnt")
            && is_x86_feature_detected!("lzcnt")
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

// SAFETY: the name is this crate's alone; nothing else defines or looks it up.
#[cfg_attr(feature = "libfuzzer", unsafe(export_name = "__sanitizer_ptx_vm_run_portable"))]
fn run_portable(warp: &mut Warp, machine: &mut Machine<'_>) -> Result<Outcome, Box<Raised>> {
    run(warp, machine)
}

// SAFETY: the name is this crate's alone; nothing else defines or looks it up.
#[cfg(target_arch = "x86_64")]
#[cfg_attr(feature = "libfuzzer", unsafe(export_name = "__sanitizer_ptx_vm_run_wide"))]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,popcnt,lzcnt")]
fn run_wide(warp: &mut Warp, machine: &mut Machine<'_>) -> Result<Outcome, Box<Raised>> {
    run(warp, machine)
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

    unsafe extern "C" {
        fn __sanitizer_cov_trace_cmp4(a: u32, b: u32);
        fn __sanitizer_cov_trace_cmp8(a: u64, b: u64);
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

    #[inline(always)]
    pub fn trace_compare32(_a: u32, _b: u32) {}

    #[inline(always)]
    pub fn trace_compare64(_a: u64, _b: u64) {}
}

pub(crate) use fuzzer::{count_edge, trace_compare32, trace_compare64};
