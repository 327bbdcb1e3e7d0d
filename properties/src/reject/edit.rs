//! One edit of a call, and the small steps edits are made of.

use contracts::format::ErrorKind;
use kernels::call::{Call, TensorArg};

/// An edited call and the error it must get.
pub(super) struct Edit {
    pub(super) call: Call,
    /// The edit, for a reader.
    pub(super) what: String,
    /// The tensor edited.
    pub(super) argument: Option<String>,
    pub(super) error: ErrorKind,
}

/// A tensor of a call, to edit.
pub(super) fn tensor<'c>(call: &'c mut Call, name: &str) -> Option<&'c mut TensorArg> {
    call.tensors.iter_mut().find(|(key, _)| key == name).map(|(_, tensor)| tensor)
}

/// Gives a tensor a shape with dense strides; the stride of rows is a multiple of `unit` elements.
pub(super) fn reshape(tensor: &mut TensorArg, shape: Vec<u64>, unit: u64) {
    let mut run: u64 = 1;
    tensor.strides = vec![0; shape.len()];
    for axis in (0..shape.len()).rev() {
        if axis == 0 && shape.len() > 1 {
            run = run.next_multiple_of(unit);
        }
        tensor.strides[axis] = run;
        run *= shape[axis];
    }
    tensor.shape = shape;
}
