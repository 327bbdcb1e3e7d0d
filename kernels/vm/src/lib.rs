//! A virtual machine for the PTX that NVRTC writes: it executes a kernel launch bit-exactly on
//! the host and reports memory, race and barrier faults with PTX and CUDA source lines.
//!
//! ```
//! use ptx_vm::{Coverage, Launch, Limits, Memory, Module, Options, marks};
//! let ptx = "
//! .version 8.0
//! .target sm_80
//! .address_size 64
//! .visible .entry double(.param .u64 p) {
//!     .reg .b32 %r<4>; .reg .b64 %rd<4>;
//!     ld.param.u64 %rd1, [p];
//!     mov.u32 %r1, %tid.x;
//!     mul.wide.u32 %rd2, %r1, 4;
//!     add.s64 %rd3, %rd1, %rd2;
//!     ld.global.u32 %r2, [%rd3];
//!     shl.b32 %r3, %r2, 1;
//!     st.global.u32 [%rd3], %r3;
//!     ret;
//! }";
//! let module = Module::parse(ptx)?;
//! let mut memory = Memory::new();
//! let x = memory.allocate("x", 16, &[0xa5], 0);
//! memory.write(x, 0, bytemuck(&[1, 2, 3, 4]).as_slice());
//! let launch = Launch {
//!     entry: "double",
//!     grid: [1, 1, 1],
//!     block: [4, 1, 1],
//!     dynamic_shared_bytes: 0,
//!     parameters: &memory.address(x, 0).to_le_bytes(),
//! };
//! let mut coverage = Coverage::new();
//! ptx_vm::launch(&module, &mut memory, &launch, &Limits::default(), &Options::default(), &mut coverage)?;
//! let mut out = [0; 16];
//! memory.read(x, 0, &mut out);
//! assert_eq!(out[12], 8);
//! # fn bytemuck(x: &[u32]) -> Vec<u8> { x.iter().flat_map(|v| v.to_le_bytes()).collect() }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! It runs what NVRTC (NVVM 7 and 20) and Triton write for `sm_80` to `sm_90`, `wgmma`, mbarriers,
//! bulk copies, tensor maps ([`TensorMap`]) and clusters ([`Options::cluster`]) included;
//! [`conformance`] lists forms and how far each is known to be right. Not there, and refused by name
//! where a launch reaches it: `im2col` and gathering modes of tensor copies, `tensormap.replace`,
//! interleaved maps, `tcgen05`, `multimem`, texture and surface access, `malloc` on the device. `printf` goes to [`Stats::printed`]; device functions are inlined, recursion as deep as
//! its copies stay small.
//!
//! # What is checked
//!
//! Bounds, alignment, barriers and shuffles always; with [`Options::checks`], as by default, bytes
//! nobody wrote, marks ([`marks`]), races of a block's threads on shared memory and of blocks on
//! global memory; with [`Options::strict`], what hardware lets pass as well. Blocks that wait for
//! each other run as far as a GPU could hold them at once ([`Limits::multiprocessors`]), and where
//! nobody can go on, [`FaultKind::NoProgress`] names a poll. [`Schedule::Seeded`] runs blocks and
//! warps in other orders, so that results which depend on the order differ.
//!
//! A fault is what the launch really did in the order in which it ran: no checker guesses, and each
//! says in its module what it misses.
//!
//! Module-scope `.global` variables start every launch with their initial values.
//!
//! [`FaultKind`] lists what is checked; the crate's README has each checker's definition and the
//! figures. [`launch_watched`] says which instruction wrote a byte, [`Lcov`] which lines were
//! executed.

#![deny(unsafe_code)]
#![warn(missing_docs)]
// Loops over lanes index several arrays at once.
#![allow(clippy::needless_range_loop)]

#[doc = include_str!("../CONFORMANCE.md")]
pub mod conformance {}

mod approx;
mod coverage;
mod dispatch;
mod exact;
mod exec;
mod fault;
mod float;
pub mod guidance;
mod integer;
mod lcov;
mod lexer;
mod lower;
mod memory;
mod module;
mod parse;
mod parse_error;
mod program;
mod race;
mod rare;
mod shared;
mod source;
mod space;
mod syntax;
mod tensor_map;
mod watch;
mod wide;

pub use approx::FloatModel;
pub use coverage::{Coverage, EntryCoverage, LineHits};
pub use dispatch::portably;
pub use exec::{Launch, Limits, MatrixModel, Options, Schedule, Stats, launch, launch_watched};
pub use fault::{
    BufferPlace, ClusterFault, Fault, FaultKind, LaunchError, MbarrierFault, MemorySpace, Party,
    RaceKind, Stop, TensorFault, WarpgroupFault,
};
pub use lcov::Lcov;
pub use memory::{BufferId, Memory, marks};
pub use module::{BlockInfo, Entry, Module, Parameter, ParameterType};
pub use parse_error::{ParseError, ParseErrorKind};
pub use source::SourceLine;
pub use tensor_map::{
    Fill, Interleave, Swizzle, TENSOR_MAP_BYTES, TensorMap, TensorMapError, TensorType,
};
pub use watch::{Computed, Watch, Write};

/// The README's example compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
