//! Lays a launch's arguments out as its PTX entry declares them: count, order, sizes and kinds are
//! checked against the `.param` list, the first of the obligations of a launch.

use super::{BackendError, Fault};
use crate::arena::Arena;
use crate::call::Call;
use crate::launch::{Argument, Launch, Plan};
use ptx_vm::{BufferId, Entry, Parameter, ParameterType};

/// What a launch reaches: the call's buffers and the plan's scratch.
pub(super) struct Reach<'a> {
    /// The call.
    pub call: &'a Call,
    /// Scratch buffers by index.
    pub scratch: &'a [BufferId],
}

/// More scratch than this no backend gives.
const SCRATCH_LIMIT_BYTES: u64 = 1 << 36;

/// Gives the plan its scratch; the error says which is too large.
pub(super) fn allocate_scratch(plan: &Plan, arena: &mut Arena) -> Result<Vec<BufferId>, String> {
    let mut buffers = Vec::with_capacity(plan.scratch.len());
    for scratch in &plan.scratch {
        let size = scratch.shape.iter().try_fold(scratch.dtype.size_bytes(), |size, &extent| {
            size.checked_mul(extent).filter(|size| *size <= SCRATCH_LIMIT_BYTES)
        });
        let Some(len_bytes) = size else {
            let (name, shape) = (scratch.name, &scratch.shape);
            return Err(format!(
                "scratch `{name}` of shape {shape:?} needs more than {SCRATCH_LIMIT_BYTES} bytes"
            ));
        };
        buffers.push(if scratch.zeroed {
            arena.add_zeroed_scratch(scratch.name, len_bytes)
        } else {
            arena.add_scratch(scratch.name, scratch.dtype, len_bytes)
        });
    }
    Ok(buffers)
}

/// The first byte that a plan did not leave zero in scratch it was given zeroed.
pub(super) fn residue(plan: &Plan, buffers: &[BufferId], arena: &Arena) -> Option<Fault> {
    let memory = arena.memory();
    let zeroed = plan.scratch.iter().zip(buffers).filter(|(scratch, _)| scratch.zeroed);
    zeroed.into_iter().find_map(|(scratch, &buffer)| {
        memory.written_ranges(buffer).into_iter().find_map(|range| {
            let mut bytes = vec![0; (range.end - range.start) as usize];
            memory.read(buffer, range.start, &mut bytes);
            let at = bytes.iter().position(|byte| *byte != 0)?;
            Some(Fault::Residue {
                scratch: scratch.name,
                offset_bytes: range.start + at as u64,
                left: bytes[at],
            })
        })
    })
}

/// Encodes the arguments at the entry's parameter offsets. `address` maps a byte of a buffer to the
/// backend's address of it.
pub(super) fn encode(
    entry: &Entry,
    launch: &Launch,
    reach: &Reach<'_>,
    arena: &Arena,
    address: &dyn Fn(BufferId, u64) -> u64,
    out: &mut Vec<u8>,
) -> Result<(), BackendError> {
    let parameters = entry.parameters();
    if parameters.len() != launch.arguments.len() {
        return Err(BackendError::Signature {
            entry: launch.entry.to_string(),
            index: parameters.len().min(launch.arguments.len()),
            expected: format!("{} arguments", parameters.len()),
            found: format!("{}", launch.arguments.len()),
        });
    }
    out.clear();
    for (index, (parameter, argument)) in parameters.iter().zip(&launch.arguments).enumerate() {
        let accepted = accepts(parameter, argument);
        if !accepted {
            return Err(BackendError::Signature {
                entry: launch.entry.to_string(),
                index,
                expected: describe_parameter(parameter),
                found: describe_argument(argument),
            });
        }
        let pointer =
            |place: Option<(BufferId, u64)>| place.map_or(0, |(buffer, at)| address(buffer, at));
        let bits = match argument {
            Argument::Tensor(name) => pointer(tensor(name, reach.call, arena)?),
            Argument::Scratch(number) => pointer(Some((scratch(*number, launch, reach)?, 0))),
            Argument::Null => 0,
            Argument::U32(value) => u64::from(*value),
            Argument::I32(value) => u64::from(*value as u32),
            Argument::I64(value) => *value as u64,
            Argument::F32(value) => u64::from(value.to_bits()),
        };
        // Padding between parameters is zero.
        out.resize(parameter.offset_bytes as usize, 0);
        out.extend_from_slice(&bits.to_le_bytes()[..parameter.size_bytes as usize]);
    }
    Ok(())
}

/// Where element 0 of a tensor lies; `None` for a tensor the call lacks, whose pointer is null.
fn tensor(name: &str, call: &Call, arena: &Arena) -> Result<Option<(BufferId, u64)>, BackendError> {
    let Some(tensor) = call.optional_tensor(name) else { return Ok(None) };
    match arena.buffer(tensor.buffer) {
        Some(buffer) => Ok(Some((buffer, tensor.offset_bytes))),
        None => Err(BackendError::NoBuffer { tensor: name.to_owned(), buffer: tensor.buffer }),
    }
}

fn scratch(number: usize, launch: &Launch, reach: &Reach<'_>) -> Result<BufferId, BackendError> {
    reach.scratch.get(number).copied().ok_or_else(|| BackendError::NoScratch {
        entry: launch.entry.to_string(),
        number,
        planned: reach.scratch.len(),
    })
}

/// Whether the parameter's declared type can be what the argument is. PTX declares a pointer as a
/// 64-bit integer, and 32-bit integers without regard to sign.
fn accepts(parameter: &Parameter, argument: &Argument) -> bool {
    use ParameterType::{F32, S32, S64, U32, U64};
    match argument {
        Argument::Tensor(_) | Argument::Scratch(_) | Argument::Null => parameter.ty == U64,
        Argument::I64(_) => matches!(parameter.ty, U64 | S64),
        Argument::U32(_) | Argument::I32(_) => matches!(parameter.ty, U32 | S32),
        Argument::F32(_) => parameter.ty == F32,
    }
}

fn describe_parameter(parameter: &Parameter) -> String {
    let ty = match parameter.ty {
        ParameterType::U64 | ParameterType::S64 => "a pointer or a 64-bit integer",
        ParameterType::U32 | ParameterType::S32 => "a 32-bit integer",
        ParameterType::F32 => "an f32",
        _ => {
            return format!(
                "`{}`, {} bytes of {:?}",
                parameter.name, parameter.size_bytes, parameter.ty
            );
        }
    };
    format!("`{}`, {ty}", parameter.name)
}

fn describe_argument(argument: &Argument) -> String {
    match argument {
        Argument::Tensor(name) => format!("the address of tensor `{name}`"),
        Argument::Scratch(number) => format!("the address of scratch {number}"),
        Argument::Null => "a null pointer".to_owned(),
        Argument::U32(value) => format!("the 32-bit integer {value}"),
        Argument::I32(value) => format!("the 32-bit integer {value}"),
        Argument::I64(value) => format!("the 64-bit integer {value}"),
        Argument::F32(value) => format!("the f32 {value}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::TensorArg;
    use contracts::dtype::DType;

    const PTX: &str = "
.version 9.0
.target sm_80
.address_size 64
.visible .entry k(
	.param .u64 k_param_0,
	.param .u32 k_param_1,
	.param .u64 k_param_2,
	.param .f32 k_param_3,
	.param .u64 k_param_4
)
{
	ret;
}
";

    fn launch(arguments: Vec<Argument>) -> Launch {
        Launch {
            module: "k",
            entry: "k".into(),
            grid: [1, 1, 1],
            block: [32, 1, 1],
            dynamic_shared_bytes: 0,
            arguments,
        }
    }

    fn call() -> Call {
        let x = TensorArg {
            dtype: DType::F32,
            shape: vec![2],
            strides: vec![1],
            buffer: 0,
            offset_bytes: 8,
            kind: None,
        };
        Call { tensors: vec![("x".to_owned(), x)], ..Call::default() }
    }

    fn encoded(arguments: Vec<Argument>) -> Result<Vec<u8>, BackendError> {
        let module = ptx_vm::Module::parse(PTX).expect("the PTX parses");
        let entry = module.entry("k").expect("the entry");
        let mut arena = Arena::new();
        arena.add_buffer("x", 16, &[], 0);
        let scratch = [arena.add_scratch("s", DType::F32, 4)];
        let call = call();
        let reach = Reach { call: &call, scratch: &scratch };
        let mut out = vec![9];
        let address = |buffer: BufferId, at: u64| 1000 * (u64::from(buffer.0) + 1) + at;
        encode(entry, &launch(arguments), &reach, &arena, &address, &mut out)?;
        Ok(out)
    }

    #[test]
    fn arguments_stand_at_the_declared_offsets() {
        let bytes = encoded(vec![
            Argument::Tensor("x"),
            Argument::I32(-2),
            Argument::I64(-3),
            Argument::F32(1.5),
            Argument::Scratch(0),
        ])
        .expect("the arguments fit");
        let mut expected = Vec::new();
        expected.extend(1008u64.to_le_bytes());
        expected.extend((-2i32).to_le_bytes());
        expected.extend([0; 4]);
        expected.extend((-3i64).to_le_bytes());
        expected.extend(1.5f32.to_le_bytes());
        expected.extend([0; 4]);
        expected.extend(2000u64.to_le_bytes());
        assert_eq!(bytes, expected);
    }

    #[test]
    fn an_absent_tensor_is_a_null_pointer() {
        let bytes = encoded(vec![
            Argument::Tensor("absent"),
            Argument::U32(0),
            Argument::I64(0),
            Argument::F32(0.0),
            Argument::Null,
        ])
        .expect("the arguments fit");
        assert_eq!(bytes, vec![0; 40]);
    }

    #[test]
    fn a_mismatch_names_entry_index_and_both_sides() {
        let good = [
            Argument::Null,
            Argument::U32(0),
            Argument::I64(0),
            Argument::F32(0.0),
            Argument::Null,
        ];
        for (index, wrong) in [
            (0, Argument::U32(0)),
            (1, Argument::I64(0)),
            (1, Argument::F32(0.0)),
            (1, Argument::Tensor("x")),
            (2, Argument::I32(0)),
            (3, Argument::U32(0)),
            (4, Argument::F32(0.0)),
        ] {
            let mut arguments = good.to_vec();
            arguments[index] = wrong;
            let error = encoded(arguments).expect_err("the arguments do not fit");
            assert!(
                matches!(&error, BackendError::Signature { index: at, .. } if *at == index),
                "{error}"
            );
            assert!(error.to_string().contains(&format!("k_param_{index}")), "{error}");
        }
        let error = encoded(good[..4].to_vec()).expect_err("one argument too few").to_string();
        assert!(error.contains("5 arguments") && error.contains('4'), "{error}");
    }

    #[test]
    fn scratch_beyond_all_memory_is_refused_by_name() {
        let plan = |shape: Vec<u64>| Plan {
            scratch: vec![crate::launch::Scratch {
                name: "s",
                dtype: DType::F32,
                shape,
                zeroed: false,
            }],
            launches: vec![],
        };
        let mut arena = Arena::new();
        assert!(allocate_scratch(&plan(vec![4, 0]), &mut arena).is_ok());
        for shape in [vec![1 << 35], vec![u64::MAX, 2], vec![u64::MAX, u64::MAX]] {
            let error = allocate_scratch(&plan(shape), &mut arena).expect_err("too large");
            assert!(error.contains("`s`"), "{error}");
        }
    }

    #[test]
    fn memory_that_is_not_there_is_an_error() {
        let mut arguments = vec![
            Argument::Scratch(1),
            Argument::U32(0),
            Argument::I64(0),
            Argument::F32(0.0),
            Argument::Null,
        ];
        assert!(matches!(
            encoded(arguments.clone()),
            Err(BackendError::NoScratch { number: 1, .. })
        ));
        arguments[0] = Argument::Tensor("x");
        assert!(encoded(arguments).is_ok());
    }
}
