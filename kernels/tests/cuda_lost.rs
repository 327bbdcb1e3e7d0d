//! A fault on the device takes its context with it, for the whole process: hence a process of its own.
#![cfg(feature = "cuda")]

use contracts::dtype::DType;
use kernels::arena::Arena;
use kernels::backend::cuda::CudaBackend;
use kernels::backend::{Backend, BackendError, Fault, Outcome};
use kernels::call::{Call, TensorArg};
use kernels::launch::{Argument, Launch, Plan};

#[test]
fn a_device_fault_is_reported_and_ends_the_backend() {
    let mut gpu = CudaBackend::new().unwrap_or_else(|error| panic!("{error}"));
    gpu.replace_module("copy", include_str!("ptx/copy.ptx")).expect("the PTX parses");
    let mut arena = Arena::new();
    let buffer = arena.add_buffer("x", 256, &[1], 0);
    let x = TensorArg {
        dtype: DType::I32,
        shape: vec![64],
        strides: vec![1],
        buffer,
        offset_bytes: 0,
        kind: None,
    };
    let call = Call { tensors: vec![("x".to_owned(), x)], ..Call::default() };
    let launch = Launch {
        module: "copy",
        entry: "copy".into(),
        grid: [1, 1, 1],
        block: [32, 1, 1],
        dynamic_shared_bytes: 0,
        arguments: vec![Argument::Tensor("x"), Argument::Null, Argument::I64(0), Argument::U32(32)],
    };
    let plan = Plan { scratch: vec![], launches: vec![launch] };
    let outcome = gpu.run(&call, &plan, &mut arena).expect("a fault is an outcome");
    let Outcome::Fault(Fault::Device { code, entries, .. }) = &outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!((*code, entries.as_str()), (700, "copy"));
    let error = gpu.run(&call, &plan, &mut arena).expect_err("the context is lost");
    assert!(matches!(error, BackendError::DeviceLost { .. }), "{error}");
}
