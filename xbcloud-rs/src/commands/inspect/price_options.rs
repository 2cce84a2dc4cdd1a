//! From the options about prices to prices.

use serde_json::{Value, json};
use xb_cli::Failure;
use xb_tune::{PRICE_TABLE, PriceFacts, Prices};
use xb_uploader::{Provider, StorePlace};

use crate::args::{CommonOptions, PriceOptions};
use crate::settings::settings;

/// Prices, and where they come from.
pub(crate) struct Priced {
    pub(crate) prices: Prices,
    /// The built-in prices they are based on.
    facts: Option<PriceFacts>,
    /// Options that set a price.
    options: Vec<&'static str>,
}

/// The built-in prices for a store, if there are any for its provider.
pub(crate) fn provider_of(
    place: &StorePlace,
    CommonOptions { run, store }: &CommonOptions,
) -> Result<Option<&'static str>, Failure> {
    Ok(match place {
        StorePlace::S3 { .. } => {
            let s3 = settings(place, store, run)?.s3;
            let by_endpoint = || Provider::of_endpoint(s3.endpoint.as_deref());
            match s3.provider.unwrap_or_else(by_endpoint) {
                Provider::Aws => Some("aws"),
                Provider::Google => Some("gcs"),
                _ => None,
            }
        }
        StorePlace::Google { .. } => Some("gcs"),
        StorePlace::Azure { .. } => Some("azure"),
        _ => None,
    })
}

/// The prices that apply; `default` is used if no provider is named.
pub(crate) fn priced(
    options: &PriceOptions,
    default: Option<&str>,
) -> Result<Option<Priced>, Failure> {
    let facts = match options.prices.as_deref().or(default) {
        None | Some("none") => None,
        Some(id) => Some(*PRICE_TABLE.iter().find(|facts| facts.id == id).ok_or_else(|| {
            let known: Vec<&str> = PRICE_TABLE.iter().map(|facts| facts.id).collect();
            Failure::usage(format!("no prices of `{id}` are built in")).hint(format!(
                "use {} or none, and set prices with --price-put and the other --price options",
                known.join(", ")
            ))
        })?),
    };
    let none = Prices { put: 0.0, list: 0.0, get: 0.0, storage: 0.0, egress: 0.0 };
    let mut prices = facts.map_or(none, |facts| facts.prices);
    let mut set = Vec::new();
    for (option, value, price) in [
        ("--price-put", options.price_put, &mut prices.put),
        ("--price-list", options.price_list, &mut prices.list),
        ("--price-get", options.price_get, &mut prices.get),
        ("--price-storage", options.price_storage, &mut prices.storage),
        ("--price-egress", options.price_egress, &mut prices.egress),
    ] {
        if let Some(value) = value {
            *price = value;
            set.push(option);
        }
    }
    let known = facts.is_some() || !set.is_empty();
    Ok(known.then_some(Priced { prices, facts, options: set }))
}

impl Priced {
    /// Source and date of the prices.
    pub(crate) fn origin(&self) -> String {
        let own = (!self.options.is_empty()).then(|| self.options.join(", "));
        match (&self.facts, own) {
            (Some(facts), own) => {
                let own = own.map_or_else(String::new, |own| format!("; except {own}"));
                let PriceFacts { service, as_of, source, .. } = facts;
                format!("list prices of {service} as of {as_of}, {source}{own}")
            }
            (None, own) => format!("only {}; all others are 0", own.unwrap_or_default()),
        }
    }

    pub(crate) fn json(&self) -> Value {
        let facts = self.facts.as_ref();
        json!({
            "currency": "USD",
            "provider": facts.map(|facts| facts.id),
            "service": facts.map(|facts| facts.service),
            "as_of": facts.map(|facts| facts.as_of),
            "source": facts.map(|facts| facts.source),
            "options": self.options,
            "put_1000": self.prices.put,
            "list_1000": self.prices.list,
            "get_1000": self.prices.get,
            "storage_gib_month": self.prices.storage,
            "egress_gib": self.prices.egress,
        })
    }
}

/// An amount of money for people.
pub(crate) fn dollars(amount: f64) -> String {
    match amount {
        0.0 => "$0".to_owned(),
        0.0..0.01 => format!("${amount:.4}"),
        _ => format!("${amount:.2}"),
    }
}
