//! `wgmma.mma_async` against an H200, bit for bit, every form of `warpgroups`.

mod support;
mod warpgroups;

use warpgroups::{bits, differences, forms, golden};

/// Compares the forms of some types; the types are split so that several tests share the work.
fn compare(chosen: impl Fn([&str; 3]) -> bool) {
    let all = forms();
    let mut forms = all.iter().filter(|form| chosen(form.types)).peekable();
    assert!(forms.peek().is_some());
    let failures: Vec<String> =
        golden(|golden| forms.flat_map(|form| differences(form, golden)).collect());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn halves_have_the_bits_of_an_h200() {
    compare(|[_, a, _]| bits(a) == 16);
}

#[test]
fn tf32_has_the_bits_of_an_h200() {
    compare(|[_, a, _]| a == "tf32");
}

#[test]
fn eight_bit_floats_have_the_bits_of_an_h200() {
    compare(|[sum, a, _]| bits(a) == 8 && sum == "f32");
}

#[test]
fn eight_bit_floats_with_half_sums_have_the_bits_of_an_h200() {
    compare(|[sum, a, _]| bits(a) == 8 && sum == "f16");
}

#[test]
fn integers_have_the_bits_of_an_h200() {
    compare(|[sum, ..]| sum == "s32");
}
