//! Numbers as text for people.

use std::time::Duration;

use jiff::Timestamp;

const BINARY: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// Converts a count to a number that can be divided. Loses precision only beyond 2^53.
#[allow(clippy::cast_precision_loss)]
pub(super) fn real(n: u64) -> f64 {
    n as f64
}

/// Formats a size: `12.3 GiB`.
pub(super) fn size(bytes: u64) -> String {
    scaled(real(bytes))
}

/// Formats a rate: `12.3 MiB/s`.
pub(super) fn rate(bytes_per_second: f64) -> String {
    format!("{}/s", scaled(bytes_per_second.max(0.0)))
}

/// Returns the binary unit in which the number has at least one digit before the point: its name
/// and size.
pub(super) fn unit(number: f64) -> (&'static str, f64) {
    let (mut name, mut scale) = (BINARY[0], 1.0);
    for next in &BINARY[1..] {
        // 999.5 would be rounded to 1000, which has four digits.
        if number / scale < 999.5 {
            break;
        }
        (name, scale) = (next, scale * 1024.0);
    }
    (name, scale)
}

fn scaled(number: f64) -> String {
    let (name, scale) = unit(number);
    let value = number / scale;
    let decimals = match value {
        _ if scale < 2.0 => 0,
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {name}")
}

/// Formats a duration: `0.42 s`, `5.1 s`, `59 s`, `2m 05s`, `3h 07m`, `2d 04h`.
pub(super) fn duration(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0 => format!("{:.2} s", span.as_secs_f64()),
        1..10 => format!("{:.1} s", span.as_secs_f64()),
        10..60 => format!("{seconds} s"),
        60..3_600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h {:02}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d {:02}h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// Formats a share of 1: `42 %`, and `under 1 %` for a small one that is not zero.
pub(super) fn percent(share: f64) -> String {
    match share {
        s if s > 0.0 && s < 0.01 => "under 1 %".to_owned(),
        s => format!("{:.0} %", s * 100.0),
    }
}

/// Formats how many times smaller something has become: `3.1×`; `–` if that has no meaning.
pub(super) fn ratio(plain: u64, stored: u64) -> String {
    match (plain, stored) {
        (0, _) | (_, 0) => "–".to_owned(),
        (plain, stored) => match real(plain) / real(stored) {
            ratio if ratio < 99.95 => format!("{ratio:.2}×"),
            ratio => format!("{ratio:.0}×"),
        },
    }
}

/// Formats a number with its digits in groups of three: `1 234 567`.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            // Narrow, and never the end of a line.
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// Formats a number of things: `1 retry`, `2 retries`.
pub(super) fn count(number: u64, one: &str, many: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        n => format!("{} {many}", grouped(n)),
    }
}

/// Formats a time: `2026-11-22 03:15:00 UTC`.
pub(super) fn time(at: Timestamp) -> String {
    format!("{} UTC", at.strftime("%Y-%m-%d %H:%M:%S"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_have_units() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1023), "1.00 KiB");
        assert_eq!(size(5 << 30), "5.00 GiB");
        assert_eq!(size(u64::MAX), "16.0 EiB");
        assert_eq!(rate(1536.0 * 1024.0), "1.50 MiB/s");
        assert_eq!(rate(f64::NAN), "0 B/s");
        assert_eq!(grouped(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!(grouped(123), "123");
        assert_eq!(count(1, "retry", "retries"), "1 retry");
        assert_eq!(count(0, "retry", "retries"), "0 retries");
        assert_eq!(ratio(300, 100), "3.00×");
        assert_eq!(ratio(300, 0), "–");
        assert_eq!(ratio(30_000, 2), "15000×");
        assert_eq!(percent(0.004), "under 1 %");
        assert_eq!(percent(0.0), "0 %");
        assert_eq!(percent(0.425), "42 %");
    }

    #[test]
    fn durations_have_two_units_at_most() {
        let table = [
            (0.42, "0.42 s"),
            (5.12, "5.1 s"),
            (59.9, "59 s"),
            (125.0, "2m 05s"),
            (11_220.0, "3h 07m"),
        ];
        for (seconds, text) in table {
            assert_eq!(duration(Duration::from_secs_f64(seconds)), text);
        }
    }
}
