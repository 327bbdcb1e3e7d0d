//! Production CUDA kernels for LLM inference. A launch function turns a checked [`call::Call`] into
//! a [`launch::Plan`], pure data; a backend runs it: the GPU, or the PTX virtual machine.
//! The PTX that ships is embedded, so one binary carries its kernels to any host.

pub mod arena;
pub mod backend;
pub mod call;
pub mod canary;
pub mod compile;
pub mod elementwise;
pub mod embedding;
pub mod launch;
pub mod linear_attention;
pub mod ptx;
pub mod registry;
pub mod selection;
pub mod transaction;
