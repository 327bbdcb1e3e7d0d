//! The inputs of `hardware/hopper.py`, drawn as it draws them.

use ptx_vm::TensorType;

/// A row of `hardware/tensor.tsv`.
#[allow(dead_code)]
pub struct Case {
    pub name: String,
    pub kind: String,
    pub ty: String,
    pub dims: Vec<u64>,
    pub strides: Vec<u64>,
    pub box_dims: Vec<u32>,
    pub steps: Vec<u32>,
    pub swizzle: u32,
    pub fill: String,
    pub coordinates: Vec<i64>,
    pub at: u32,
    pub window: usize,
    pub expected: u32,
    pub data: String,
    pub base: u64,
}

#[allow(dead_code)]
impl Case {
    /// Bytes of the buffer that holds the tensor.
    pub fn extent(&self) -> usize {
        let outer = self.dims[1..].iter().zip(&self.strides).map(|(n, stride)| (n - 1) * stride);
        let last = outer.sum::<u64>() + self.dims[0] * tensor_type(&self.ty).size_bytes();
        (self.base + last).next_multiple_of(16) as usize + 64
    }
}

fn numbers<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> Vec<T> {
    text.split(',').filter(|n| *n != "-").map(|n| n.parse().expect("a number")).collect()
}

#[allow(dead_code)]
pub fn cases() -> Vec<Case> {
    let rows = include_str!("../hardware/tensor.tsv").lines().filter(|row| !row.starts_with('#'));
    rows.map(|row| {
        let field: Vec<&str> = row.split('\t').collect();
        Case {
            name: field[0].to_owned(),
            kind: field[1].to_owned(),
            ty: field[2].to_owned(),
            dims: numbers(field[3]),
            strides: numbers(field[4]),
            box_dims: numbers(field[5]),
            steps: numbers(field[6]),
            swizzle: field[7].parse().unwrap(),
            fill: field[8].to_owned(),
            coordinates: numbers(field[9]),
            at: field[10].parse().unwrap(),
            window: field[11].parse().unwrap(),
            expected: field[12].parse().unwrap(),
            data: field[13].to_owned(),
            base: field[14].parse().unwrap(),
        }
    })
    .collect()
}

#[allow(dead_code)]
pub fn tensor_type(name: &str) -> TensorType {
    match name {
        "u8" => TensorType::U8,
        "u16" => TensorType::U16,
        "u32" => TensorType::U32,
        "s32" => TensorType::S32,
        "u64" => TensorType::U64,
        "s64" => TensorType::S64,
        "f16" => TensorType::F16,
        "f32" => TensorType::F32,
        "f64" => TensorType::F64,
        "bf16" => TensorType::Bf16,
        "f32ftz" => TensorType::F32Flushed,
        "tf32" => TensorType::Tf32,
        "tf32ftz" => TensorType::Tf32Flushed,
        _ => panic!("no type {name}"),
    }
}

/// splitmix64's finaliser.
fn mixed(key: u64) -> u64 {
    let x = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// 64-bit words of a case: of its tensor (part 0) or its other input (1).
pub fn words(case: usize, part: u64, count: usize) -> Vec<u64> {
    (0..count as u64).map(|i| mixed(i | (case as u64) << 40 | part << 32)).collect()
}

/// Bytes of `count` elements: any bits, numbers near one, or special ones.
#[allow(dead_code)]
pub fn contents(case: usize, part: u64, count: usize, ty: &str, data: &str) -> Vec<u8> {
    let size = tensor_type(ty).size_bytes() as usize;
    let format = match ty {
        "f16" => Some((5u32, 10u32)),
        "bf16" => Some((8, 7)),
        "f32" | "f32ftz" | "tf32" | "tf32ftz" => Some((8, 23)),
        "f64" => Some((11, 52)),
        _ => None,
    };
    let Some((exponent_bits, mantissa_bits)) = format.filter(|_| data != "bits") else {
        let all = words(case, part, (count * size).div_ceil(8));
        let mut bytes: Vec<u8> = all.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.truncate(count * size);
        return bytes;
    };
    let all = words(case, part, count);
    all.iter()
        .flat_map(|random| {
            let (ones, bias) = ((1u64 << exponent_bits) - 1, (1u64 << (exponent_bits - 1)) - 1);
            let (pick, low) = (random >> 53 & 0x3ff, (1u64 << mantissa_bits) - 1);
            let (mut exponent, mut mantissa) = (bias - 3 + pick % 7, random & low);
            if data == "special" {
                exponent = [0, 0, 1, ones, bias, bias + 1, ones - 1, 0][pick as usize % 8];
                mantissa = match pick >> 3 & 3 {
                    0 => mantissa,
                    1 => 0,
                    2 => (mantissa & !0x1fff | 0x1000) & low,
                    _ => low,
                };
            }
            let bits = random >> 63 << (exponent_bits + mantissa_bits)
                | exponent << mantissa_bits
                | mantissa;
            bits.to_le_bytes().into_iter().take(size)
        })
        .collect()
}

/// A file of the hardware's answers.
pub fn golden(name: &str) -> Vec<u8> {
    let path = format!("{}/../../corpora/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}
