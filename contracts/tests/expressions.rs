//! The expression grammar: precedence, arithmetic, words, limits, and text that survives a round trip.

mod common;

use common::constant;
use contracts::{DType, Expr, ExprError, Scope, Value};

struct Names;

impl Scope for Names {
    fn value(&self, name: &str) -> Option<Value<'_>> {
        match name {
            "n" => Some(Value::Int(7)),
            "len" => Some(Value::List(&[3, 0, 65])),
            "none" => Some(Value::List(&[])),
            "io" => Some(Value::DType(DType::BF16)),
            "mask" => Some(Value::Word("causal")),
            _ => None,
        }
    }
}

fn int(text: &str) -> Result<i128, ExprError> {
    Expr::parse(text).expect("an expression").eval_int(&Names)
}

fn holds(text: &str) -> bool {
    Expr::parse(text).expect("an expression").eval_bool(&Names).expect("a condition")
}

#[test]
fn operators_bind_as_usual_and_associate_to_the_left() {
    for (text, value) in [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("10 - 3 - 2", 5),
        ("100 / 10 / 2", 5),
        ("7 % 4 * 2", 6),
        ("2 * -3", -6),
        ("1 - -1", 2),
    ] {
        assert_eq!(constant(text), Some(value), "{text}");
    }
    assert!(holds("1 == 2 or 3 == 3 and not 4 == 5"));
    assert!(holds("not 1 == 2 and 2 < 3"));
    assert!(!holds("not (1 == 1 or 1 == 2)"));
}

#[test]
fn division_floors_and_the_remainder_has_the_divisors_sign() {
    for (a, b) in [(7, 2), (-7, 2), (7, -2), (-7, -2), (6, 3), (-6, 3), (0, 5), (-1, 64)] {
        let (quotient, rest) = (constant(&format!("{a} / {b}")), constant(&format!("{a} % {b}")));
        let floor = f64::floor(f64::from(a) / f64::from(b)) as i128;
        assert_eq!(quotient, Some(floor), "{a} / {b}");
        assert_eq!(rest, Some(i128::from(a) - floor * i128::from(b)), "{a} % {b}");
    }
    assert_eq!(int("ceil_div(n, 2) + align_up(n, 4) + min(n, 3) + max(n, 3)"), Ok(4 + 8 + 3 + 7));
    assert_eq!(int("ceil_div(-7, 2)"), Ok(-3));
    assert_eq!(int("align_up(0, 64)"), Ok(0));
}

#[test]
fn lists_dtypes_and_words() {
    assert_eq!(int("sum(len) + largest(len) + count(len)"), Ok(68 + 65 + 3));
    assert_eq!(int("sum(none) + largest(none) + count(none)"), Ok(0));
    assert_eq!(int("bytes(io)"), Ok(2));
    assert!(holds("io in [f16, bf16]") && !holds("io == f32"));
    assert!(holds("mask != full") && holds("mask == causal"));
    assert!(holds("n in [1, 7]"));
    // `len` is a list, yet beside a choice it is a word.
    assert!(holds("mask != len") && holds("not len == mask"));
}

#[test]
fn evaluation_is_total() {
    let largest = i128::MAX.to_string();
    assert_eq!(int(&format!("{largest} + 1")), Err(ExprError::Overflow));
    assert_eq!(int(&format!("{largest} * 2")), Err(ExprError::Overflow));
    assert_eq!(int(&format!("{} / -1", i128::MIN)), Err(ExprError::Overflow));
    assert_eq!(int(&format!("align_up({largest}, 2)")), Err(ExprError::Overflow));
    for text in ["n / 0", "n % 0", "ceil_div(n, 0)", "align_up(n, 0)"] {
        assert_eq!(int(text), Err(ExprError::DivideByZero), "{text}");
    }
    for (text, message) in [
        ("missing + 1", "expected an integer, found `missing`, which has no value here"),
        ("len + 1", "expected an integer, found `len`, a whole list"),
        ("io + 1", "expected an integer, found `io`, the type bf16"),
        ("sum(n)", "expected a list, found `n`, the integer 7"),
        ("bytes(n)", "expected a dtype symbol, found `n`, the integer 7"),
    ] {
        assert_eq!(int(text).expect_err("a value").to_string(), message);
    }
    let ordered = Expr::parse("mask < n").expect("an expression");
    assert!(ordered.eval_bool(&Names).is_err());
    // The right side is not looked at when the left decides.
    assert!(holds("n == 7 or n / 0 == 1") && !holds("n == 8 and n / 0 == 1"));
}

#[test]
fn syntax_errors_say_where() {
    for (text, at) in [
        ("", 0),
        ("1 +", 3),
        ("1 2", 2),
        ("(1", 2),
        ("1 < 2 < 3", 6),
        ("floor(1)", 0),
        ("min(1)", 0),
        ("n in []", 6),
        ("n in [1", 7),
        ("12abc", 2),
        ("and", 0),
        ("1 == not 2", 5),
        ("a.b", 1),
        ("- n", 1),
    ] {
        match Expr::parse(text) {
            Err(ExprError::Syntax { at: found, .. }) => assert_eq!(found, at, "{text}"),
            other => panic!("{text}: {other:?}"),
        }
    }
    assert!(Expr::parse(&"(".repeat(900)).is_err());
    assert!(Expr::parse(&format!("{}1", "not ".repeat(200))).is_err());
    assert!(Expr::parse(&"1 + ".repeat(2000)).is_err());
    assert!(Expr::parse(&"9".repeat(60)).is_err());
}

#[test]
fn canonical_text_parses_to_the_same_expression() {
    for text in [
        "1 + 2 * 3",
        "(1 + 2) * 3",
        "a - (b - c)",
        "a / (b * c)",
        "not (a == 1 or b == 2) and c in [x, 1, -2]",
        "not a == 1",
        "not not a == 1",
        "(a == 1) == (b == 2)",
        "ceil_div(sum(len), align_up(n, 4)) % 3",
        "(a or b) and c",
        "a or b and c",
        "-5 - -4",
    ] {
        let expr = Expr::parse(text).expect("an expression");
        let again = Expr::parse(&expr.to_string()).expect("canonical text");
        assert_eq!(expr, again, "{text} became {expr}");
        let yaml: Expr =
            serde_json::from_value(serde_json::to_value(&expr).expect("json")).expect("back");
        assert_eq!(expr, yaml);
    }
    assert_eq!(Expr::parse("((1)+(2*3))").expect("an expression").to_string(), "1 + 2 * 3");
    assert_eq!(Expr::parse("n*(2+k)").expect("an expression").names(), ["n", "k"]);
}
