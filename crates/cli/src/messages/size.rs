//! Numbers with units: parsing for options, and formatting for people.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use xb_option_files::SIZE_UNITS;
pub use xb_option_files::{SizeError, parse_age, parse_size};

/// Size in bytes as an option's value, parsed by [`parse_size`].
///
/// `Display` prints the shortest form that parses to the same number: `64M`, `1025`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Size(pub u64);

impl Size {
    /// Returns the number of bytes.
    pub fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        parse_size(text).map(Self)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (letter, shift) in SIZE_UNITS {
            if self.0 != 0 && self.0.trailing_zeros() >= shift {
                return write!(f, "{}{letter}", self.0 >> shift);
            }
        }
        write!(f, "{}", self.0)
    }
}

/// Formats a size for people, with three digits: `0 B`, `999 B`, `1.50 KiB`, `64.0 MiB`, `512 GiB`.
pub fn format_size(bytes: u64) -> String {
    const NAMES: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut name = NAMES[0];
    for next in &NAMES[1..] {
        // 999.5 would be rounded to 1000, which has four digits.
        if value < 999.5 {
            break;
        }
        value /= 1024.0;
        name = next;
    }
    let decimals = if value < 9.995 {
        2
    } else if value < 99.95 {
        1
    } else {
        0
    };
    format!("{value:.decimals$} {name}")
}

/// Formats a number of things for people: `1 object`, `2 objects`. The plural of `noun` must end in
/// `s`.
pub fn format_count(number: u64, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        n => format!("{n} {noun}s"),
    }
}

/// Formats a rate for people: `12.3 MiB/s`. A rate that is not a number or is negative counts as 0.
pub fn format_rate(bytes_per_second: f64) -> String {
    // `as` saturates and maps NaN to 0, as documented above.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let whole = bytes_per_second as u64;
    format!("{}/s", format_size(whole))
}

/// Formats a duration for people: `0.4 s`, `59 s`, `2m 05s`, `3h 07m`, `2d 04h`.
pub fn format_duration(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0..10 => format!("{}.{} s", seconds, span.subsec_millis() / 100),
        10..60 => format!("{seconds} s"),
        60..3_600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h {:02}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d {:02}h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// Formats the time until an event as a clock shows it: `0:14`, `12:05`, `3:07:00`.
pub(crate) fn format_clock(span: Duration) -> String {
    let seconds = span.as_secs();
    let (hours, minutes, seconds) = (seconds / 3_600, seconds % 3_600 / 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_clock_shows_hours_only_if_there_are_any() {
        let table =
            [(0, "0:00"), (14, "0:14"), (725, "12:05"), (3_599, "59:59"), (11_220, "3:07:00")];
        for (seconds, text) in table {
            assert_eq!(format_clock(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn sizes_are_read() {
        let table: &[(&str, u64)] = &[
            ("0", 0),
            ("1", 1),
            ("007", 7),
            ("64B", 64),
            ("4k", 4096),
            ("4K", 4096),
            ("4KB", 4096),
            ("4kib", 4096),
            ("64M", 64 << 20),
            ("64MiB", 64 << 20),
            ("10m", 10 << 20),
            ("1G", 1 << 30),
            ("3t", 3 << 40),
            ("16777215T", 16_777_215 << 40),
            ("18446744073709551615", u64::MAX),
        ];
        for (text, bytes) in table {
            assert_eq!(parse_size(text), Ok(*bytes), "{text}");
        }
    }

    #[test]
    fn wrong_sizes_are_refused_by_kind() {
        let unit = |unit: &str| SizeError::UnknownUnit { unit: unit.to_owned() };
        let table = [
            ("", SizeError::NotANumber),
            ("M", SizeError::NotANumber),
            ("-1", SizeError::NotANumber),
            ("+1", SizeError::NotANumber),
            (" 1", SizeError::NotANumber),
            (".5M", SizeError::NotANumber),
            ("1.5M", unit(".5M")),
            ("1 M", unit(" M")),
            ("1X", unit("X")),
            ("1MM", unit("MM")),
            ("1Mi", unit("Mi")),
            ("1iB", unit("iB")),
            ("1ä", unit("ä")),
            ("16777216T", SizeError::TooLarge),
            ("18446744073709551616", SizeError::TooLarge),
            ("99999999999999999999999M", SizeError::TooLarge),
        ];
        for (text, error) in table {
            assert_eq!(parse_size(text), Err(error), "{text}");
        }
    }

    #[test]
    fn sizes_for_people() {
        let table: &[(u64, &str)] = &[
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (1536, "1.50 KiB"),
            (10 << 10, "10.0 KiB"),
            (999 << 10, "999 KiB"),
            (1000 << 10, "0.98 MiB"),
            (64 << 20, "64.0 MiB"),
            (200 << 30, "200 GiB"),
            (u64::MAX, "16.0 EiB"),
        ];
        for (bytes, text) in table {
            assert_eq!(format_size(*bytes), *text);
        }
    }

    #[test]
    fn rates_and_spans_for_people() {
        assert_eq!(format_rate(1_048_576.0), "1.00 MiB/s");
        assert_eq!(format_rate(f64::NAN), "0 B/s");
        assert_eq!(format_rate(-3.0), "0 B/s");
        let table: &[(u64, &str)] = &[
            (0, "0.0 s"),
            (450, "0.4 s"),
            (9_990, "9.9 s"),
            (59_999, "59 s"),
            (125_000, "2m 05s"),
            (11_220_000, "3h 07m"),
            (187_200_000, "2d 04h"),
        ];
        for (millis, text) in table {
            assert_eq!(format_duration(Duration::from_millis(*millis)), *text);
        }
    }

    proptest! {
        #[test]
        fn shown_values_read_back(bytes: u64, shift in 0u32..44) {
            let size = Size(bytes >> shift << shift);
            prop_assert_eq!(size.to_string().parse(), Ok(size));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC*") {
            let _ = parse_size(&text);
        }

        #[test]
        fn digits_and_units_agree_with_wide_arithmetic(number: u64, unit in 0usize..4) {
            let (letter, shift) = SIZE_UNITS[unit];
            let wide = u128::from(number) << shift;
            let read = parse_size(&format!("{number}{letter}"));
            prop_assert_eq!(read.ok().map(u128::from), (wide <= u128::from(u64::MAX)).then_some(wide));
        }
    }
}
