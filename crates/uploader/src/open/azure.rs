//! Azure Blob Storage.

use std::sync::Arc;

use object_store::TagSet;
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::client::HttpConnector as _;

use crate::open::client::{
    ClientSettings, InvalidSettings, NOTHING, TRANSPORT, no_retries, no_tags, storage_class,
};
use crate::open::endpoint::{is_plain, origin_of, with_scheme};
use crate::request::raw_request::RawApi;
use crate::settings::AzureSettings;
use crate::settings::checked::{self, CheckedKeys};
use crate::settings::provider::StoreLimits;
use crate::store::{Store, StoreTraits};

/// Address, account and key of Azure's emulator, the same everywhere ("Use the Azurite emulator").
const EMULATOR: &str = "http://127.0.0.1:10000";
const EMULATOR_ACCOUNT: &str = "devstoreaccount1";
const EMULATOR_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

pub(crate) fn open(
    mut opening: ClientSettings,
    container: &str,
    azure: &AzureSettings,
) -> Result<Store, InvalidSettings> {
    // The client would not send them with the list of blocks of a large object.
    if !opening.tags.is_empty() {
        return Err(no_tags("Azure"));
    }
    check(container, azure)?;
    let endpoint = azure.endpoint.as_deref().map(with_scheme).transpose()?;
    let endpoint = match (endpoint, azure.development) {
        // The emulator has the account in its path.
        (None, true) => Some(format!("{EMULATOR}/{EMULATOR_ACCOUNT}")),
        (given, _) => given,
    };
    let plain = is_plain(endpoint.as_deref());
    let account = match (&azure.account, azure.development) {
        (None, true) => EMULATOR_ACCOUNT,
        (None, false) => {
            return Err("the storage account is missing; give --azure-storage-account".into());
        }
        (Some(account), _) => account,
    };
    let default = || format!("https://{account}.blob.core.windows.net");
    let address = endpoint.clone().unwrap_or_else(default);
    opening.connector.home = origin_of("address of the storage account", &address)?;
    let mut builder = MicrosoftAzureBuilder::new()
        .with_account(account)
        .with_container_name(container)
        .with_allow_http(plain)
        .with_client_options(opening.options(plain))
        .with_http_connector(opening.connector.clone())
        .with_retry(no_retries());
    if let Some(endpoint) = &endpoint {
        builder = builder.with_endpoint(endpoint.trim_end_matches('/').to_owned());
    }
    let development_key =
        (azure.development && azure.access_key.is_none()).then(|| EMULATOR_KEY.to_owned());
    let key = azure.access_key.clone().or(development_key);
    let refreshable = key.is_none() && azure.sas.is_none();
    for (setting, value) in [
        (AzureConfigKey::AccessKey, &key),
        (AzureConfigKey::AuthorityId, &azure.tenant_id),
        (AzureConfigKey::ClientId, &azure.client_id),
        (AzureConfigKey::ClientSecret, &azure.client_secret),
        (AzureConfigKey::SasKey, &azure.sas),
    ] {
        if let Some(value) = value {
            builder = builder.with_config(setting, value);
        }
    }
    if let Some(file) = &azure.federated_token_file {
        builder = builder.with_federated_token_file(file.display().to_string());
    }
    let keys = Arc::clone(builder.clone().build()?.credentials());
    let store = Arc::new(builder.with_credentials(Arc::new(CheckedKeys(keys))).build()?);
    let raw_api = RawApi::Azure {
        client: opening.connector.connect(&opening.options(plain))?,
        credentials: Arc::clone(store.credentials()),
        account: account.to_owned(),
        container: format!("{}/{container}", address.trim_end_matches('/')),
    };
    let traits = StoreTraits {
        limits: StoreLimits::AZURE,
        protection: if plain { NOTHING } else { TRANSPORT },
        conditions: true,
        refreshable,
        attributes: storage_class(azure.tier.clone()),
        // The client sends no tier when it commits a list of blocks: such a blob gets the
        // account's default tier.
        attributes_of_parts: false,
        tags: TagSet::default(),
        raw_api,
        rate: None,
        // A copy in Azure may still be running when the response arrives.
        copies: false,
        empty_folders: false,
        opened: None,
    };
    Ok(Store::new(store.clone(), Some(store), traits, opening.policy, opening.traffic))
}

/// Checks what the client puts into headers and URLs as it is.
fn check(container: &str, azure: &AzureSettings) -> Result<(), InvalidSettings> {
    checked::name("container name", Some(container))?;
    checked::name("storage account", azure.account.as_deref())?;
    checked::word("access key", azure.access_key.as_deref())?;
    checked::word("shared access signature", azure.sas.as_deref())?;
    checked::name("tenant ID", azure.tenant_id.as_deref())?;
    checked::name("client ID", azure.client_id.as_deref())?;
    checked::secret("client secret", azure.client_secret.as_deref())?;
    checked::word("access tier", azure.tier.as_deref())?;
    Ok(())
}
