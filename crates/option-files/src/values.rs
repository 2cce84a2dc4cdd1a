//! Values of options: sizes and ages.

use std::time::Duration;

use thiserror::Error;

/// Units of option values, largest first.
pub const SIZE_UNITS: [(char, u32); 4] = [('T', 40), ('G', 30), ('M', 20), ('K', 10)];

/// Errors in a size.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SizeError {
    /// No digits at the front: empty, a sign, a fraction without a whole part.
    #[error("a size must be a whole number, optionally followed by K, M, G or T")]
    NotANumber,
    /// The text after the digits is not a unit.
    #[error("unknown unit {unit:?}: use K, M, G or T (powers of 1024)")]
    UnknownUnit {
        /// Text after the digits.
        unit: String,
    },
    /// More than 2^64 - 1 bytes.
    #[error("the size is larger than 2^64 - 1 bytes")]
    TooLarge,
}

/// Parses a size in bytes: digits, then nothing or `K`, `M`, `G`, `T` in either case.
///
/// Units are powers of 1024, as in the stock tools' options. `KiB`, `KB` and plain `B` are
/// accepted, too, with the same meaning; there are no powers of 1000. No sign, no fraction, no
/// spaces.
///
/// # Errors
/// [`SizeError`], by kind.
///
/// ```
/// assert_eq!(xb_option_files::parse_size("64M"), Ok(64 << 20));
/// assert_eq!(xb_option_files::parse_size("1GiB"), Ok(1 << 30));
/// assert!(xb_option_files::parse_size("64X").is_err());
/// ```
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err(SizeError::NotANumber);
    }
    // Only digits are left, so the only possible error is overflow.
    let number: u64 = number.parse().map_err(|_| SizeError::TooLarge)?;
    let shift = shift_of(unit).ok_or_else(|| SizeError::UnknownUnit { unit: unit.to_owned() })?;
    number.checked_mul(1 << shift).ok_or(SizeError::TooLarge)
}

fn shift_of(unit: &str) -> Option<u32> {
    let unit = unit.to_ascii_uppercase();
    if unit.is_empty() || unit == "B" {
        return Some(0);
    }
    let (letter, rest) = unit.split_at_checked(1)?;
    let (_, shift) = SIZE_UNITS.into_iter().find(|(known, _)| letter.starts_with(*known))?;
    matches!(rest, "" | "B" | "IB").then_some(shift)
}

/// Errors in an age.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{text}` is not an age; use a form such as 12h, 30d or 8w")]
pub struct AgeError {
    text: String,
}

/// Parses a number of hours, days or weeks: `12h`, `30d`, `8w`.
///
/// # Errors
/// Another form, or more seconds than 2^64 - 1.
pub fn parse_age(text: &str) -> Result<Duration, AgeError> {
    let wrong = || AgeError { text: text.to_owned() };
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let hours = match text.get(digits.len()..) {
        Some("h") => 1,
        Some("d") => 24,
        Some("w") => 7 * 24,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(hours * 3600).map(Duration::from_secs).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_understood() {
        assert_eq!(parse_age("12h").unwrap().as_secs(), 12 * 3600);
        assert_eq!(parse_age("30d").unwrap().as_secs(), 30 * 86_400);
        assert_eq!(parse_age("8w").unwrap().as_secs(), 56 * 86_400);
        for bad in
            ["", "d", "12", "-1d", "1.5d", "1y", "99999999999999999999d", "9999999999999999w"]
        {
            assert!(parse_age(bad).is_err(), "{bad}");
        }
    }
}
