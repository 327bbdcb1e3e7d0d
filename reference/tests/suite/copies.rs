//! References that compute nothing: where each element comes from, by elements that are all different.

use contracts::dtype::DType;
use contracts::logical::Logical;
use reference::{Expected, Inputs, Outputs, reference};

fn tensor(dtype: DType, shape: &[u64], elements: impl IntoIterator<Item = u64>) -> Logical {
    let mut bytes = Vec::new();
    elements.into_iter().for_each(|bits| dtype.push_bytes(bits, &mut bytes));
    Logical::from_bytes(dtype, shape.to_vec(), bytes)
}

fn bits<'a>(outputs: &'a Outputs, name: &str) -> &'a [u64] {
    match outputs.tensor(name) {
        Some(Expected::Bits(bits)) => bits,
        other => panic!("{name} is not exact: {other:?}"),
    }
}

fn dims(sizes: &[(&str, i64)]) -> Vec<(String, i64)> {
    sizes.iter().map(|(name, size)| ((*name).to_owned(), *size)).collect()
}

#[test]
fn a_row_by_key_head_is_taken_apart() {
    let [rows, key_heads, value_heads, keys, values] = [5u64, 2, 6, 3, 2];
    let group = value_heads / key_heads;
    let width = 2 * keys + 2 * group * values;
    let count = rows * key_heads * width;
    let inputs = Inputs {
        tensors: vec![(
            "mixed".to_owned(),
            tensor(DType::F32, &[rows, key_heads, width], 1000..1000 + count),
        )],
        dims: dims(&[("Hk", 2), ("Hv", 6), ("Dk", 3), ("Dv", 2)]),
        ..Inputs::default()
    };
    let outputs = reference("qkvz_deinterleave").expect("it is registered")(&inputs);
    for row in 0..rows {
        for key_head in 0..key_heads {
            let first = 1000 + (row * key_heads + key_head) * width;
            for key in 0..keys {
                let at = ((row * key_heads + key_head) * keys + key) as usize;
                assert_eq!(bits(&outputs, "q")[at], first + key);
                assert_eq!(bits(&outputs, "k")[at], first + keys + key);
            }
            for of_group in 0..group * values {
                let head = key_head * group + of_group / values;
                let at = ((row * value_heads + head) * values + of_group % values) as usize;
                assert_eq!(bits(&outputs, "v")[at], first + 2 * keys + of_group);
                assert_eq!(bits(&outputs, "z")[at], first + 2 * keys + group * values + of_group);
            }
        }
    }
    let lengths = ["q", "k", "v", "z"].map(|name| bits(&outputs, name).len() as u64);
    let [of_keys, of_values] = [rows * key_heads * keys, rows * value_heads * values];
    assert_eq!(lengths, [of_keys, of_keys, of_values, of_values]);
}

#[test]
fn named_rows_go_to_their_places_and_no_other() {
    let inputs = Inputs {
        tensors: vec![("from".to_owned(), tensor(DType::F32, &[3, 4], 1..13))],
        dims: dims(&[("slots", 5)]),
        lists: vec![("source".to_owned(), vec![2, 0, 1]), ("place".to_owned(), vec![4, 1, -1])],
        ..Inputs::default()
    };
    let outputs = reference("state_scatter").expect("it is registered")(&inputs);
    let none = [0; 4];
    let wanted = [none, [1, 2, 3, 4], none, none, [9, 10, 11, 12]];
    assert_eq!(bits(&outputs, "to"), wanted.as_flattened());
}

#[test]
fn the_k_largest_of_each_row_come_with_their_signs() {
    // 1 −0 +0 NaN | −∞ NaN NaN NaN | 2 2 3 −1, in f16.
    let x = [
        0x3c00, 0x8000, 0x0000, 0x7e00, 0xfc00, 0x7e00, 0xfe00, 0x7e00, 0x4000, 0x4000, 0x4200,
        0xbc00,
    ];
    let inputs = Inputs {
        tensors: vec![("x".to_owned(), tensor(DType::F16, &[3, 4], x))],
        dims: dims(&[("k", 3)]),
        ..Inputs::default()
    };
    let outputs = reference("row_topk").expect("it is registered")(&inputs);
    let none = 0xffff_ffff;
    assert_eq!(bits(&outputs, "ids"), [0, 1, 2, 0, none, none, 2, 0, 1]);
    let values =
        [1.0, -0.0, 0.0, f32::NEG_INFINITY, f32::NEG_INFINITY, f32::NEG_INFINITY, 3.0, 2.0, 2.0];
    assert_eq!(bits(&outputs, "values"), values.map(|value| u64::from(f32::to_bits(value))));
}
