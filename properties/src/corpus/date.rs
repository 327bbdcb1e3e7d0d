//! Days of the Gregorian calendar, in UTC: until when a known failure is tolerated.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// One day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Date {
    year: i64,
    month: u8,
    day: u8,
}

const DAYS_IN_400_YEARS: i64 = 146_097;

impl Date {
    /// `YYYY-MM-DD`, a day that exists.
    pub fn parse(text: &str) -> Option<Date> {
        let digits = |part: &str, count: usize| {
            let all = part.len() == count && part.bytes().all(|byte| byte.is_ascii_digit());
            all.then(|| part.parse().ok()).flatten()
        };
        let mut parts = text.split('-');
        let year: i64 = digits(parts.next()?, 4)?;
        let month = digits(parts.next()?, 2)?;
        let day = digits(parts.next()?, 2)?;
        let (month, day) = (u8::try_from(month).ok()?, u8::try_from(day).ok()?);
        let exists = parts.next().is_none() && day >= 1 && day <= days_in(year, month);
        exists.then_some(Date { year, month, day })
    }

    /// Today, by this machine's clock.
    pub fn today() -> Date {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Date::after_epoch((since / 86_400) as i64)
    }

    /// The day so many days after the first of January 1970.
    fn after_epoch(days: i64) -> Date {
        // The calendar repeats every 400 years; within them it is walked year by year.
        let mut year = 1970 + days.div_euclid(DAYS_IN_400_YEARS) * 400;
        let mut left = days.rem_euclid(DAYS_IN_400_YEARS);
        let length = |year| if is_leap(year) { 366 } else { 365 };
        while left >= length(year) {
            left -= length(year);
            year += 1;
        }
        let mut month = 1;
        while left >= i64::from(days_in(year, month)) {
            left -= i64::from(days_in(year, month));
            month += 1;
        }
        Date { year, month, day: left as u8 + 1 }
    }
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i64, month: u8) -> u8 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => 0,
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_that_exist_are_read_and_no_others() {
        for text in ["2026-11-30", "2028-02-29", "2000-02-29"] {
            assert_eq!(Date::parse(text).expect("a day").to_string(), text);
        }
        for text in [
            "2026-11-31",
            "2027-02-29",
            "1900-02-29",
            "2026-13-01",
            "2026-1-01",
            "2026-11-00",
            "",
            "2026-11-30-1",
            "+026-11-30",
            "2026/11/30",
            "99999-01-01",
        ] {
            assert_eq!(Date::parse(text), None, "{text}");
        }
    }

    #[test]
    fn days_are_counted_from_the_epoch() {
        for (days, text) in [
            (0, "1970-01-01"),
            (58, "1970-02-28"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (20_787, "2026-11-30"),
            (DAYS_IN_400_YEARS, "2370-01-01"),
        ] {
            assert_eq!(Date::after_epoch(days).to_string(), text);
        }
        let day = |text| Date::parse(text).expect("a day");
        assert!(day("2026-11-30") < day("2026-12-01") && day("2026-12-31") < day("2027-01-01"));
    }
}
