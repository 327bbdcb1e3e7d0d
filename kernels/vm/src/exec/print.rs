//! `printf` and `assert`: texts are read from the kernel's memory under the usual checks, and
//! formatted as C does. The log is bounded; what does not fit is dropped.

use super::access::{read_one, toucher};
use super::address::resolve;
use super::machine::{Machine, Trouble};
use super::rare::Turn;
use super::step::Laned;
use super::warp::{Warp, lanes};
use crate::fault::FaultKind;
use crate::program::Slot;
use crate::rare::{Assert, Print};
use crate::shared::Toucher;
use crate::syntax::Space;

const LARGEST_LOG: usize = 1 << 16;
const LARGEST_TEXT: usize = 1 << 12;
/// CUDA takes 32.
const MOST_ARGUMENTS: u32 = 32;

fn bytes<const LEN: usize>(
    machine: &mut Machine<'_>,
    address: u64,
    me: Toucher,
) -> Result<[u8; LEN], Box<Trouble>> {
    let mut out = [0; LEN];
    let target = resolve(Space::Generic, address);
    if machine.checks {
        read_one::<true>(machine, target, &mut out, me, false)?;
    } else {
        read_one::<false>(machine, target, &mut out, me, false)?;
    }
    Ok(out)
}

/// A text up to its zero, or as much of it as is taken.
fn text(machine: &mut Machine<'_>, address: u64, me: Toucher) -> Result<String, Box<Trouble>> {
    let mut out = Vec::new();
    while out.len() < LARGEST_TEXT {
        match bytes::<1>(machine, address.wrapping_add(out.len() as u64), me)? {
            [0] => break,
            [byte] => out.push(byte),
        }
    }
    Ok(String::from_utf8_lossy(&out).into_owned())
}

pub(super) fn assertion(
    warp: &mut Warp,
    machine: &mut Machine<'_>,
    what: &Assert,
    mask: u32,
    pc: u32,
) -> Result<Turn, Laned> {
    let lane = mask.trailing_zeros() as usize & 31;
    let me = toucher(warp, lane, pc);
    let mut read = |slot: Slot| {
        let address = warp.longs[usize::from(slot)].0[lane];
        text(machine, address, me).map_err(|trouble| (lane as u32, trouble))
    };
    let (message, file) = (read(what.message)?, read(what.file)?);
    let function = read(what.function)?;
    let line = warp.word(what.line)[lane];
    Err((lane as u32, FaultKind::Assertion { message, file, line, function }.into()))
}

pub(super) fn print(
    warp: &mut Warp,
    machine: &mut Machine<'_>,
    what: &Print,
    mask: u32,
    pc: u32,
) -> Result<Turn, Laned> {
    for lane in lanes(mask) {
        let me = toucher(warp, lane, pc);
        let [format, arguments] =
            [what.format, what.arguments].map(|slot| warp.longs[usize::from(slot)].0[lane]);
        let mut printer = Printer { machine: &mut *machine, me, next: arguments, count: 0 };
        let printed = printer.format(format).map_err(|trouble| (lane as u32, trouble))?;
        let count = printer.count;
        if machine.printed.len() + printed.len() <= LARGEST_LOG {
            machine.printed.push_str(&printed);
        }
        warp.words[usize::from(what.count)].0[lane] = count;
    }
    Ok(Turn::Next)
}

struct Printer<'w, 'm> {
    machine: &'w mut Machine<'m>,
    me: Toucher,
    /// Where the next argument may stand.
    next: u64,
    count: u32,
}

/// A conversion such as `%-8.3lf`.
#[derive(Default)]
struct Conversion {
    left: bool,
    plus: bool,
    blank: bool,
    alternate: bool,
    zeros: bool,
    width: usize,
    precision: Option<usize>,
    long: bool,
}

/// Widths and precisions beyond this are cut.
const WIDEST: usize = 256;

impl Printer<'_, '_> {
    fn argument<const LEN: usize>(&mut self) -> Result<[u8; LEN], Box<Trouble>> {
        let at = self.next.wrapping_add(LEN as u64 - 1) & !(LEN as u64 - 1);
        self.next = at.wrapping_add(LEN as u64);
        bytes(self.machine, at, self.me)
    }

    fn integer(&mut self, long: bool, signed: bool) -> Result<i128, Box<Trouble>> {
        Ok(match (long, signed) {
            (true, true) => i64::from_le_bytes(self.argument()?).into(),
            (true, false) => u64::from_le_bytes(self.argument()?).into(),
            (false, true) => i32::from_le_bytes(self.argument()?).into(),
            (false, false) => u32::from_le_bytes(self.argument()?).into(),
        })
    }

    fn format(&mut self, address: u64) -> Result<String, Box<Trouble>> {
        let format = text(self.machine, address, self.me)?;
        let mut out = String::new();
        let mut rest = format.chars().peekable();
        while let Some(c) = rest.next() {
            if c != '%' || self.count > MOST_ARGUMENTS {
                out.push(c);
                continue;
            }
            if rest.peek() == Some(&'%') {
                rest.next();
                out.push('%');
                continue;
            }
            let how = self.conversion(&mut rest)?;
            let Some(kind) = rest.next() else {
                break;
            };
            let body = self.convert(&how, kind)?;
            self.count += 1;
            out.push_str(&how.padded(&body, kind));
        }
        Ok(out)
    }

    fn conversion(
        &mut self,
        rest: &mut std::iter::Peekable<std::str::Chars<'_>>,
    ) -> Result<Conversion, Box<Trouble>> {
        let mut how = Conversion::default();
        while let Some(c) = rest.peek() {
            match c {
                '-' => how.left = true,
                '+' => how.plus = true,
                ' ' => how.blank = true,
                '#' => how.alternate = true,
                '0' => how.zeros = true,
                _ => break,
            }
            rest.next();
        }
        let width = self.number(rest)?;
        how.left |= width < 0;
        how.width = (width.unsigned_abs() as usize).min(WIDEST);
        if rest.next_if_eq(&'.').is_some() {
            let precision = self.number(rest)?;
            how.precision = usize::try_from(precision).ok().map(|n| n.min(WIDEST));
        }
        while let Some(c) = rest.next_if(|c| matches!(c, 'h' | 'l' | 'j' | 'z' | 't' | 'L')) {
            how.long |= c != 'h';
        }
        Ok(how)
    }

    fn number(
        &mut self,
        rest: &mut std::iter::Peekable<std::str::Chars<'_>>,
    ) -> Result<i64, Box<Trouble>> {
        if rest.next_if_eq(&'*').is_some() {
            self.count += 1;
            return Ok(self.integer(false, true)? as i64);
        }
        let mut value = 0i64;
        while let Some(digit) = rest.peek().and_then(|c| c.to_digit(10)) {
            value = (value * 10 + i64::from(digit)).min(WIDEST as i64);
            rest.next();
        }
        Ok(value)
    }

    fn convert(&mut self, how: &Conversion, kind: char) -> Result<String, Box<Trouble>> {
        Ok(match kind {
            'd' | 'i' => {
                let value = self.integer(how.long, true)?;
                how.signed(value < 0, &how.digits(value.unsigned_abs().to_string(), value == 0))
            }
            'u' => {
                let value = self.integer(how.long, false)?;
                how.digits(value.to_string(), value == 0)
            }
            'x' | 'X' | 'o' => {
                let value = self.integer(how.long, false)?;
                let (digits, prefix) = match kind {
                    'x' => (format!("{value:x}"), "0x"),
                    'X' => (format!("{value:X}"), "0X"),
                    _ => (format!("{value:o}"), "0"),
                };
                let prefix = if how.alternate && value != 0 { prefix } else { "" };
                format!("{prefix}{}", how.digits(digits, value == 0))
            }
            'p' => format!("{:#x}", u64::from_le_bytes(self.argument()?)),
            'c' => char::from(self.integer(false, false)? as u8).to_string(),
            's' => {
                let address = u64::from_le_bytes(self.argument()?);
                let all = text(self.machine, address, self.me)?;
                all.chars().take(how.precision.unwrap_or(usize::MAX)).collect()
            }
            'f' | 'F' | 'e' | 'E' | 'g' | 'G' => {
                let value = f64::from_le_bytes(self.argument()?);
                let negative = value.is_sign_negative() && !value.is_nan();
                let body = how.float(value.abs(), kind.to_ascii_lowercase());
                let all = how.signed(negative, &body);
                if kind.is_ascii_uppercase() { all.to_ascii_uppercase() } else { all }
            }
            // An argument of eight bytes that has no wording here.
            'a' | 'A' => {
                let value = f64::from_le_bytes(self.argument()?);
                format!("{value:e}")
            }
            other => format!("%{other}"),
        })
    }
}

impl Conversion {
    fn digits(&self, digits: String, zero: bool) -> String {
        match self.precision {
            Some(0) if zero => String::new(),
            Some(n) => format!("{digits:0>n$}"),
            None => digits,
        }
    }

    fn signed(&self, negative: bool, body: &str) -> String {
        let sign = match (negative, self.plus, self.blank) {
            (true, ..) => "-",
            (_, true, _) => "+",
            (_, _, true) => " ",
            _ => "",
        };
        format!("{sign}{body}")
    }

    /// A value that is not negative.
    fn float(&self, value: f64, kind: char) -> String {
        if value.is_nan() {
            return "nan".to_owned();
        }
        if value.is_infinite() {
            return "inf".to_owned();
        }
        let precision = self.precision.unwrap_or(6);
        match kind {
            'f' => format!("{value:.precision$}"),
            'e' => scientific(value, precision),
            _ => {
                let precision = precision.max(1);
                let rounded = format!("{value:.*e}", precision - 1);
                let exponent: i64 =
                    rounded.split('e').nth(1).and_then(|e| e.parse().ok()).unwrap_or(0);
                let body = if exponent < -4 || exponent >= precision as i64 {
                    scientific(value, precision - 1)
                } else {
                    format!("{value:.*}", (precision as i64 - 1 - exponent) as usize)
                };
                if self.alternate { body } else { shortened(&body) }
            }
        }
    }

    fn padded(&self, body: &str, kind: char) -> String {
        let width = self.width;
        if self.left {
            return format!("{body:<width$}");
        }
        let number = !matches!(kind, 'c' | 's' | 'p') && !body.contains(['n', 'N']);
        let whole = matches!(kind, 'd' | 'i' | 'u' | 'x' | 'X' | 'o') && self.precision.is_some();
        if self.zeros && number && !whole {
            let sign = usize::from(body.starts_with(['-', '+', ' ']));
            let (sign, digits) = body.split_at(sign);
            let width = width.saturating_sub(sign.len());
            return format!("{sign}{digits:0>width$}");
        }
        format!("{body:>width$}")
    }
}

/// `1.5e+02`.
fn scientific(value: f64, precision: usize) -> String {
    let text = format!("{value:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i64 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// Without zeros at the end of the fraction.
fn shortened(text: &str) -> String {
    let (digits, exponent) = match text.find('e') {
        Some(at) => text.split_at(at),
        None => (text, ""),
    };
    if !digits.contains('.') {
        return text.to_owned();
    }
    format!("{}{exponent}", digits.trim_end_matches('0').trim_end_matches('.'))
}
