//! Once warm, a launch takes no memory from the allocator, whatever it runs: registers, shared
//! memory, records and pending copies stay from launch to launch.
// The one way to count allocations.
#![allow(unsafe_code)]

mod support;

use ptx_vm::{Coverage, Launch, Limits, Memory, Module, Options, launch};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use support::{Parameters, bytes_bf16, bytes_f32, input, output};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // A thread that ends has no counter any more.
    let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
}

// SAFETY: every call goes to the system's allocator as it came; counting touches no memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        unsafe { System.realloc(old, layout, size) }
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        unsafe { System.dealloc(old, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Allocations of `f` on this thread.
fn allocations(f: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    f();
    ALLOCATIONS.get() - before
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| drop(std::hint::black_box(vec![1u8; 100]))), 1);
    assert_eq!(allocations(|| ()), 0);
}

#[test]
fn a_warm_launch_allocates_nothing() {
    let top = Module::parse(include_str!("ptx/topk.sm80.ptx")).expect("text");
    let product = Module::parse(include_str!("ptx/gemm.sm80.ptx")).expect("text");
    let mut memory = Memory::new();
    let numbers: Vec<f32> = (0..64 * 256).map(|i| (i % 61) as f32 / 16.0 - 1.0).collect();
    let halves = input(&mut memory, "halves", &bytes_bf16(&numbers));
    let floats = input(&mut memory, "floats", &bytes_f32(&numbers[..1000]));
    let out = output(&mut memory, "out", 64 * 64 * 2);
    let more = output(&mut memory, "more", 4096);
    let at = |b| memory.address(b, 0);
    let argmax =
        Parameters::default().u64(at(halves)).u64(at(out)).u64(at(more)).u32(1000).u32(1000).0;
    let top_k =
        Parameters::default().u64(at(floats)).u64(at(out)).u64(at(more)).u32(1000).u32(32).0;
    // Tiles by `cp.async` and `ldmatrix`.
    let gemm = Parameters::default()
        .u64(at(halves))
        .u64(at(halves))
        .u64(at(out))
        .u32(64)
        .u32(64)
        .u32(256)
        .0;
    let kernels: [(&Module, &str, u32, &[u8]); 3] = [
        (&top, "argmax_rows", 256, &argmax),
        (&top, "topk_rows", 256, &top_k),
        (&product, "gemm_bf16", 128, &gemm),
    ];
    let mut coverage = Coverage::new();
    let mut round = |memory: &mut Memory| {
        for (module, entry, threads, parameters) in kernels {
            let what = Launch {
                entry,
                grid: [1; 3],
                block: [threads, 1, 1],
                dynamic_shared_bytes: 0,
                parameters,
            };
            let (limits, options) = (Limits::default(), Options::default());
            launch(module, memory, &what, &limits, &options, &mut coverage)
                .unwrap_or_else(|stop| panic!("{entry}: {stop}"));
        }
    };
    let cold = allocations(|| round(&mut memory));
    assert!(cold > 10, "the first launches set up: {cold}");
    for _ in 0..3 {
        assert_eq!(allocations(|| round(&mut memory)), 0);
    }
}
