//! Once warm, a launch takes no memory from the allocator, whatever it runs: registers, shared
//! memory, records and pending copies stay from launch to launch. And what stays has a limit, however
//! many launches of whatever size there were.
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
    /// Bytes that this thread took and did not give back.
    static HELD: Cell<i64> = const { Cell::new(0) };
}

fn count() {
    // A thread that ends has no counter any more.
    let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
}

fn hold(bytes: i64) {
    let _ = HELD.try_with(|n| n.set(n.get() + bytes));
}

// SAFETY: every call goes to the system's allocator as it came; counting touches no memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        hold(layout.size() as i64);
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        hold(layout.size() as i64);
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        hold(size as i64 - layout.size() as i64);
        unsafe { System.realloc(old, layout, size) }
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        hold(-(layout.size() as i64));
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

/// Every thread stores a byte at p + step·its number, and one of the next half of a cell, so that a page
/// gets every kind of record.
const STEPS: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry t(.param .u64 p, .param .u64 step)
{
.reg .b32 %r<9>;.reg .b64 %rd<9>;
ld.param.u64 %rd1, [p];ld.param.u64 %rd2, [step];
mov.u32 %r1, %ctaid.x;mov.u32 %r2, %ntid.x;mov.u32 %r3, %tid.x;
mad.lo.u32 %r4, %r1, %r2, %r3;cvt.u64.u32 %rd3, %r4;
mad.lo.s64 %rd4, %rd3, %rd2, %rd1;
st.global.u8 [%rd4], %r4;st.global.u16 [%rd4+2], %r4;st.global.u8 [%rd4+1], %r4;
ret;
}
";

/// Many buffers of every size, then fewer and smaller ones: a memory must not hold on to what the
/// largest took, nor to what each buffer once took.
#[test]
fn what_stays_has_a_limit_whatever_came() {
    const LIMIT: i64 = 48 << 20;
    /// Of two tensors with 1024 rows far apart, which have pages of their own.
    const ROWS_APART: i64 = 96 << 20;
    let module = Module::parse(STEPS).expect("text");
    let mut memory = Memory::new();
    let mut coverage = Coverage::new();
    let (limits, options) = (Limits::default(), Options::default());
    let before = HELD.get();
    let mut most = 0;
    for round in 0..24u64 {
        // Rows of a tensor far apart, tensors of many pages, and pages of their own of all sizes.
        let lengths: Vec<u64> = match round % 3 {
            0 => vec![1 << 33; 2],
            1 => vec![(24 << 20) + round],
            _ => (0..40).map(|nth| (1 << 20) - 4096 * ((nth * 7 + round) % 40)).collect(),
        };
        for len_bytes in lengths {
            let buffer = memory.allocate("b", len_bytes, &[7], 0);
            let step = len_bytes / 1024 / 4 * 4;
            let parameters = Parameters::default().u64(memory.address(buffer, 0)).u64(step).0;
            let what = Launch {
                entry: "t",
                grid: [4, 1, 1],
                block: [256, 1, 1],
                dynamic_shared_bytes: 0,
                parameters: &parameters,
            };
            launch(&module, &mut memory, &what, &limits, &options, &mut coverage)
                .unwrap_or_else(|stop| panic!("{len_bytes} bytes: {stop}"));
            most = most.max(HELD.get() - before);
        }
        let held = HELD.get() - before;
        assert!(round % 3 != 0 || held <= ROWS_APART, "{held} bytes are held in round {round}");
        memory.clear();
        let held = HELD.get() - before;
        assert!(held <= LIMIT, "{held} bytes are held after round {round}");
    }
    assert!(most > 4 * LIMIT, "the buffers took {most} bytes, too few to show anything");
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
