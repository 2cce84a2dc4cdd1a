//! A duration as a number of seconds. It is read up to a limit at which sums do not overflow.

use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize as _, Deserializer, Serializer};

/// More than 300 years.
const MAX: f64 = 1e10;

pub(crate) fn serialize<S: Serializer>(span: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(span.as_secs_f64())
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let seconds = f64::deserialize(from)?;
    let span = Duration::try_from_secs_f64(seconds).ok().filter(|_| seconds <= MAX);
    span.ok_or_else(|| D::Error::custom(format_args!("{seconds} is not a duration in seconds")))
}
