//! S3 and compatible stores.

use std::sync::Arc;

use http::HeaderMap;
use object_store::aws::{
    AmazonS3Builder, AmazonS3ConfigKey, Checksum as S3Checksum, S3ConditionalPut,
};
use object_store::client::HttpConnector as _;

use crate::open::client::{
    CRC64, ClientSettings, InvalidSettings, SHA256, SIGNED, TRANSPORT, no_retries, no_tags,
    storage_class,
};
use crate::open::endpoint::{bucket_address, is_plain, origin_of, with_scheme};
use crate::request::raw_request::RawApi;
use crate::settings::aws_profile::{self, ProfileKeys};
use crate::settings::checked::{self, CheckedKeys};
use crate::settings::credential_process::ProcessKeys;
use crate::settings::provider::Provider;
use crate::settings::{BucketLookup, Checksum, ContainerCredentials, Encryption, S3Settings};
use crate::store::{Store, StoreTraits};

pub(crate) fn open(
    mut opening: ClientSettings,
    bucket: &str,
    mut s3: S3Settings,
) -> Result<Store, InvalidSettings> {
    let mut builder = AmazonS3Builder::new();
    let refreshable = s3.access_key.is_none() && s3.secret_key.is_none();
    if refreshable {
        builder = renewed_keys(builder, &mut s3)?;
    }
    check(&s3)?;
    let address = Address::of(bucket, &s3)?;
    let provider = s3.provider.unwrap_or_else(|| Provider::of_endpoint(address.given.as_deref()));
    // TLS protects the body; over plain HTTP the signature must.
    let signed = address.is_plain || s3.sign_bodies;
    let checksum = s3.checksum.unwrap_or(match provider.checks_crc64() {
        true => Checksum::Crc64Nvme,
        false => Checksum::None,
    });
    let options = opening.options(address.is_plain);
    // The client sends no default headers with listings.
    let payer = opening.connector.headers.contains_key("x-amz-request-payer");
    opening.connector.home = address.home()?;
    builder = address
        .set(builder.with_bucket_name(bucket))
        .with_client_options(options.clone())
        .with_http_connector(opening.connector.clone())
        .with_retry(no_retries())
        .with_unsigned_payload(!signed)
        .with_request_payer(payer)
        .with_disable_bulk_delete(!provider.deletes_in_bulk());
    if !provider.has_conditions() {
        builder = builder.with_conditional_put(S3ConditionalPut::Disabled);
    }
    builder = static_keys(body_options(builder, checksum, s3.encryption.as_ref())?, &s3);
    let keys = Arc::clone(builder.clone().build()?.credentials());
    let store = Arc::new(builder.with_credentials(Arc::new(CheckedKeys(keys))).build()?);
    let raw_api = RawApi::S3 {
        client: opening.connector.connect(&options)?,
        credentials: Arc::clone(store.credentials()),
        region: address.region,
        bucket: address.bucket,
        payer,
        bulk: provider.deletes_in_bulk(),
        headers: signed_headers(&opening.connector.headers),
    };
    // A copy needs the headers of a put, and the client does not send them with a copy.
    let copies = s3.storage_class.is_none() && s3.encryption.is_none() && opening.tags.is_empty();
    if !opening.tags.is_empty() && provider == Provider::Google {
        return Err(no_tags("Google Cloud Storage"));
    }
    let traits = StoreTraits {
        limits: provider.limits(),
        protection: match checksum {
            Checksum::Crc64Nvme => CRC64,
            Checksum::Sha256 => SHA256,
            Checksum::None if signed => SIGNED,
            Checksum::None => TRANSPORT,
        },
        conditions: provider.has_conditions(),
        refreshable,
        attributes: storage_class(s3.storage_class),
        attributes_of_parts: true,
        tags: opening.tags.set(),
        raw_api,
        rate: None,
        copies,
        empty_folders: provider.may_list_empty_folders(),
        opened: None,
    };
    Ok(Store::new(store.clone(), Some(store), traits, opening.policy, opening.traffic))
}

/// Checks what the client puts into headers and URLs as it is.
fn check(s3: &S3Settings) -> Result<(), InvalidSettings> {
    checked::word("access key", s3.access_key.as_deref())?;
    checked::secret("secret key", s3.secret_key.as_deref())?;
    checked::word("session token", s3.session_token.as_deref())?;
    checked::word("storage class", s3.storage_class.as_deref())?;
    match &s3.encryption {
        Some(Encryption::Kms { key_id }) => {
            checked::word("ID of the KMS key", key_id.as_deref())?;
        }
        Some(Encryption::Customer { key }) => {
            checked::word("key for encryption by the store", Some(key))?;
        }
        _ => {}
    }
    if let Some(endpoint) = &s3.metadata_endpoint {
        origin_of("address of the metadata service", endpoint)?;
    }
    match &s3.container {
        Some(ContainerCredentials::Relative(path)) => {
            let address = format!("http://169.254.170.2{path}");
            origin_of("address of the container's credentials", &address)?;
        }
        Some(ContainerCredentials::Full { url, token_file }) => {
            origin_of("address of the container's credentials", url)?;
            let token = std::fs::read_to_string(token_file)
                .map_err(|error| format!("cannot read {}: {error}", token_file.display()))?;
            checked::word("token for the container's credentials", Some(&token))?;
        }
        None => {}
    }
    Ok(())
}

/// Location of a bucket.
struct Address {
    /// Endpoint of the settings, with its scheme.
    given: Option<String>,
    region: String,
    /// Whether the bucket is part of the host name.
    by_host: bool,
    /// Whether requests go over plain HTTP.
    is_plain: bool,
    /// URL of the bucket.
    bucket: String,
}

impl Address {
    fn of(bucket: &str, s3: &S3Settings) -> Result<Self, InvalidSettings> {
        checked::name("bucket name", Some(bucket))?;
        checked::name("region", s3.region.as_deref())?;
        let given = s3.endpoint.as_deref().map(with_scheme).transpose()?;
        let by_host = match s3.lookup {
            BucketLookup::Dns => true,
            BucketLookup::Path => false,
            // A bucket name with dots would not match a wildcard certificate.
            BucketLookup::Auto => given.is_none() && !bucket.contains('.'),
        };
        let region = s3.region.clone().unwrap_or_else(|| "us-east-1".to_owned());
        let is_plain = is_plain(given.as_deref());
        let bucket = bucket_address(given.as_deref(), bucket, &region, by_host);
        Ok(Self { given, region, by_host, is_plain, bucket })
    }

    /// Origin of the bucket.
    fn home(&self) -> Result<String, InvalidSettings> {
        origin_of("address of the bucket", &self.bucket).map_err(|error| {
            match self.by_host {
                true => format!("{error}; the bucket becomes a part of the host name: use another bucket or endpoint, or --s3-bucket-lookup=path").into(),
                false => error,
            }
        })
    }

    fn set(&self, builder: AmazonS3Builder) -> AmazonS3Builder {
        let builder = builder
            .with_region(&self.region)
            .with_virtual_hosted_style_request(self.by_host)
            .with_allow_http(self.is_plain);
        match &self.given {
            None => builder,
            // For host-style requests, the client requires the bucket in the endpoint.
            Some(_) if self.by_host => builder.with_endpoint(&self.bucket),
            Some(given) => builder.with_endpoint(given),
        }
    }
}

/// The headers that a store accepts only if the signature covers them.
fn signed_headers(all: &HeaderMap) -> HeaderMap {
    let signed = all.iter().filter(|(name, _)| name.as_str().starts_with("x-amz-"));
    signed.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Sets the store's checks and encryption.
fn body_options(
    builder: AmazonS3Builder,
    checksum: Checksum,
    encryption: Option<&Encryption>,
) -> Result<AmazonS3Builder, InvalidSettings> {
    let builder = match checksum {
        Checksum::Crc64Nvme => builder.with_checksum_algorithm(S3Checksum::CRC64NVME),
        Checksum::Sha256 => builder.with_checksum_algorithm(S3Checksum::SHA256),
        Checksum::None => builder,
    };
    Ok(match encryption {
        None => builder,
        Some(Encryption::Store) => sse(builder, "AES256")?,
        Some(Encryption::Kms { key_id: None }) => sse(builder, "aws:kms")?,
        Some(Encryption::Kms { key_id: Some(id) }) => builder.with_sse_kms_encryption(id),
        Some(Encryption::Customer { key }) => builder.with_ssec_encryption(key),
    })
}

fn static_keys(mut builder: AmazonS3Builder, s3: &S3Settings) -> AmazonS3Builder {
    if let Some(key) = &s3.access_key {
        builder = builder.with_access_key_id(key);
    }
    if let Some(secret) = &s3.secret_key {
        builder = builder.with_secret_access_key(secret);
    }
    if let Some(token) = &s3.session_token {
        builder = builder.with_token(token);
    }
    builder
}

fn sse(builder: AmazonS3Builder, value: &str) -> Result<AmazonS3Builder, InvalidSettings> {
    // The key's own type is not public.
    let key: AmazonS3ConfigKey = "aws_server_side_encryption".parse()?;
    Ok(builder.with_config(key, value))
}

/// Adds the sources of renewable keys in their order of precedence.
fn renewed_keys(
    mut builder: AmazonS3Builder,
    s3: &mut S3Settings,
) -> Result<AmazonS3Builder, InvalidSettings> {
    use object_store::aws::AmazonS3ConfigKey as Key;

    let mut web_identity = s3.web_identity.clone();
    if let Some(profile) = &s3.profile {
        let found = aws_profile::read(profile)?;
        s3.region = s3.region.take().or(found.region);
        s3.endpoint = s3.endpoint.take().or(found.endpoint);
        // A profile that was named explicitly takes precedence.
        if web_identity.is_none() || profile.required {
            if let Some(keys) = found.keys {
                let keys = ProfileKeys::new(profile.clone(), keys);
                return Ok(builder.with_credentials(Arc::new(keys)));
            }
            if found.web_identity.is_none()
                && let Some(command) = &found.process
            {
                let keys = ProcessKeys::new(command)?;
                return Ok(builder.with_credentials(Arc::new(keys)));
            }
            web_identity = found.web_identity.or(web_identity);
        }
    }
    if let Some(identity) = web_identity {
        builder = builder
            .with_config(Key::WebIdentityTokenFile, identity.token_file.display().to_string())
            .with_config(Key::RoleArn, identity.role_arn);
        if let Some(name) = identity.session_name {
            builder = builder.with_config(Key::RoleSessionName, name);
        }
        return Ok(builder);
    }
    match &s3.container {
        Some(ContainerCredentials::Relative(path)) => {
            builder = builder.with_config(Key::ContainerCredentialsRelativeUri, path);
        }
        Some(ContainerCredentials::Full { url, token_file }) => {
            builder = builder.with_config(Key::ContainerCredentialsFullUri, url).with_config(
                Key::ContainerAuthorizationTokenFile,
                token_file.display().to_string(),
            );
        }
        None => {
            if let Some(endpoint) = &s3.metadata_endpoint {
                builder = builder.with_metadata_endpoint(endpoint);
            }
        }
    }
    Ok(builder)
}
