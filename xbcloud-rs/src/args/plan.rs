//! Command line of plan and tune.

use std::path::PathBuf;

use clap::Args;
use xb_cli::Size;
use xb_repo::manifest::Layout;

use crate::args::shared::CommonOptions;

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// Size of the backup as stored, such as 8T
    #[arg(long, value_name = "SIZE", required_unless_present = "like", value_parser = some)]
    pub(crate) size: Option<Size>,
    /// Use size, file count, layout and seal of this backup
    #[arg(long, value_name = "NAME", conflicts_with_all = ["size", "files", "layout", "sealed"])]
    pub(crate) like: Option<String>,
    /// Number of files; in the classic layout, each has objects of its own
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(crate) files: u64,
    /// Object size [default: 32M; classic: one object per chunk, like the stock tool]
    #[arg(long, value_name = "SIZE", value_parser = some)]
    pub(crate) chunk_size: Option<Size>,
    /// packed or classic [default: packed]
    #[arg(long, value_enum, value_name = "LAYOUT", hide_possible_values = true)]
    pub(crate) layout: Option<Layout>,
    /// Plan for a sealed backup
    #[arg(long)]
    pub(crate) sealed: bool,
    /// Probability that one try of a request fails, such as 0.001: also show how likely the run is to fail
    #[arg(long, value_name = "RATE", value_parser = likelihood)]
    pub(crate) failure_rate: Option<f64>,
    #[command(flatten)]
    pub(crate) prices: PriceOptions,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

#[derive(Debug, Args)]
pub(crate) struct TuneArgs {
    /// file:///DIR; s3://, gs:// or azure://BUCKET/PREFIX; or @REPOSITORY: measure the link to this
    /// store with random objects, which are removed afterwards
    #[arg(value_name = "ROOT", conflicts_with = "link")]
    pub(crate) place: Option<String>,
    /// Take the sample from this file, for example a stream of an earlier backup [default: stdin, if
    /// it is a pipe or a file]
    #[arg(long, value_name = "FILE", conflicts_with = "data_dir")]
    pub(crate) sample: Option<PathBuf>,
    /// Take the sample from this data directory
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Size of the sample, which is held in memory; at least 1M
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = mebibytes)]
    pub(crate) sample_size: Size,
    /// Size of the backup before compression [default: size of the data directory or file]
    #[arg(long, value_name = "SIZE", value_parser = some)]
    pub(crate) size: Option<Size>,
    /// Recommend for sealed backups
    #[arg(long)]
    pub(crate) sealed: bool,
    /// Throughput of the link in bytes per second, instead of measuring it
    #[arg(long, value_name = "SIZE", value_parser = some)]
    pub(crate) link: Option<Size>,
    /// With --link: latency of a request, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 20)]
    pub(crate) latency: u64,
    /// Maximum number of bytes to upload to the store
    #[arg(long, value_name = "SIZE", default_value = "128M")]
    pub(crate) upload_size: Size,
    /// Seconds in which uploads are started; those under way are completed
    #[arg(long, value_name = "S", default_value_t = 15)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) upload_time: u64,
    /// Maximum number of parallel requests to recommend
    #[arg(long, value_name = "N", default_value_t = 16)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) max_parallel: u16,
    /// Maximum memory to recommend [default: 512M, at most a quarter of RAM and half of
    /// what is free]
    #[arg(long, value_name = "SIZE")]
    pub(crate) max_memory: Option<Size>,
    #[command(flatten)]
    pub(crate) prices: PriceOptions,
    #[command(flatten)]
    pub(crate) common: CommonOptions,
}

/// Prices of the store in US dollars.
#[derive(Debug, Args)]
#[command(next_help_heading = "Prices")]
pub(crate) struct PriceOptions {
    /// Built-in list prices: aws, gcs, azure, or none [default: by the provider of the store; plan
    /// without a store: aws]
    #[arg(long, value_name = "PROVIDER")]
    pub(crate) prices: Option<String>,
    /// Dollars for 1,000 write requests
    #[arg(long, value_name = "DOLLARS", value_parser = dollars)]
    pub(crate) price_put: Option<f64>,
    /// Dollars for 1,000 listings
    #[arg(long, value_name = "DOLLARS", value_parser = dollars)]
    pub(crate) price_list: Option<f64>,
    /// Dollars for 1,000 read requests
    #[arg(long, value_name = "DOLLARS", value_parser = dollars)]
    pub(crate) price_get: Option<f64>,
    /// Dollars for one GiB stored for a month
    #[arg(long, value_name = "DOLLARS", value_parser = dollars)]
    pub(crate) price_storage: Option<f64>,
    /// Dollars for one GiB read from outside the provider's network
    #[arg(long, value_name = "DOLLARS", value_parser = dollars)]
    pub(crate) price_egress: Option<f64>,
}

/// A size that is not 0.
fn some(text: &str) -> Result<Size, String> {
    at_least(text, 1, "1")
}

fn mebibytes(text: &str) -> Result<Size, String> {
    at_least(text, 1 << 20, "1M")
}

fn at_least(text: &str, least: u64, shown: &str) -> Result<Size, String> {
    let size: Size = text.parse().map_err(|error: xb_cli::SizeError| error.to_string())?;
    if size.bytes() < least { Err(format!("must be at least {shown}")) } else { Ok(size) }
}

fn dollars(text: &str) -> Result<f64, String> {
    number(text)
        .filter(|price| (0.0..=1e6).contains(price))
        .ok_or_else(|| format!("`{text}` is not a price; use a number such as 0.005"))
}

fn likelihood(text: &str) -> Result<f64, String> {
    number(text)
        .filter(|rate| (0.0..=1.0).contains(rate))
        .ok_or_else(|| format!("`{text}` is not a probability; use a number from 0 to 1"))
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_outside_their_range_are_refused() {
        assert_eq!((dollars("0.005"), likelihood("1e-3")), (Ok(0.005), Ok(0.001)));
        for bad in ["", "-1", "NaN", "inf", "1e99", "cheap"] {
            assert!(dollars(bad).is_err() && likelihood(bad).is_err(), "{bad}");
        }
        assert!(likelihood("1.1").is_err());
        assert!(some("0").is_err() && some("x").is_err() && some("1").is_ok());
        assert!(mebibytes("1023K").is_err() && mebibytes("1M").is_ok());
    }
}
