//! `tensormap:BOX:BUFFER`: the map of a buffer whose lines lie side by side.

use super::argument::TensorMap as Wanted;
use super::buffer::Made;
use super::element::Element;
use ptx_vm::{Fill, Swizzle, TENSOR_MAP_BYTES, TensorMap, TensorType};

fn tensor_type(element: Element) -> TensorType {
    match element {
        Element::F64 => TensorType::F64,
        Element::F32 => TensorType::F32,
        Element::F16 => TensorType::F16,
        Element::BF16 => TensorType::Bf16,
        Element::I64 => TensorType::S64,
        Element::I32 => TensorType::S32,
        Element::U64 => TensorType::U64,
        Element::U32 => TensorType::U32,
        Element::I16 | Element::U16 => TensorType::U16,
        Element::I8 | Element::U8 | Element::E4M3 => TensorType::U8,
    }
}

/// The map's bytes, or why there are none.
pub fn encode(
    wanted: &Wanted,
    made: &Made,
    address: u64,
) -> Result<[u8; TENSOR_MAP_BYTES], String> {
    if wanted.extents.len() != made.shape.len() {
        let (boxed, shape) = (wanted.extents.len(), made.shape.len());
        return Err(format!("the box has {boxed} extents, the buffer {shape}"));
    }
    // A map begins with what lies along memory.
    let dims: Vec<u64> = made.shape.iter().rev().copied().collect();
    let extents: Vec<u32> = wanted.extents.iter().rev().copied().collect();
    let mut stride = made.element.size_bytes();
    let strides = dims.iter().take(dims.len().saturating_sub(1)).map(|extent| {
        stride = stride.saturating_mul(*extent);
        stride
    });
    let strides: Vec<u64> = strides.collect();
    let map = TensorMap {
        swizzle: match wanted.swizzle_bytes {
            32 => Swizzle::B32,
            64 => Swizzle::B64,
            128 => Swizzle::B128,
            _ => Swizzle::None,
        },
        fill: if wanted.nan { Fill::Nan } else { Fill::Zero },
        ..TensorMap::tiled(tensor_type(made.element), address, &dims, &strides, &extents)
    };
    map.encode().map_err(|error| format!("there is no such tensor map: {error}"))
}
