//! Creation of a missing bucket ("CreateBucket").

use bytes::Bytes;
use http::Method;

use crate::error::{StoreError, StoreErrorKind};
use crate::operation::Operation;
use crate::request::raw_request::RawApi;
use crate::store::Store;

/// Region for which S3 requires that none is named.
const DEFAULT_REGION: &str = "us-east-1";

impl Store {
    /// Creates the bucket if it does not exist, in S3 and in stores that speak its language.
    /// Returns whether it was created. Does nothing for other stores, and if the account may not
    /// look.
    ///
    /// # Errors
    /// Any error of the creation, after all retries.
    pub async fn create_missing_bucket(&self) -> Result<bool, StoreError> {
        let raw_api = &self.traits.raw_api;
        let RawApi::S3 { region, .. } = raw_api else { return Ok(false) };
        let head = || raw_api.call(Method::HEAD, "", Bytes::new());
        match self.retrying(Operation::Head, "bucket", head).await {
            Err(error) if error.kind == StoreErrorKind::NotFound => {}
            // Later requests show whether the bucket can be used.
            _ => return Ok(false),
        }
        let body = Bytes::from(configuration(region));
        let put = || raw_api.call(Method::PUT, "", body.clone());
        match self.retrying(Operation::Create, "bucket", put).await {
            Ok(_) => Ok(true),
            // Created by another run in between.
            Err(error) if error.to_string().contains("BucketAlreadyOwnedByYou") => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Request body of "CreateBucket".
fn configuration(region: &str) -> String {
    if region == DEFAULT_REGION {
        return String::new();
    }
    // A region never needs escapes; whatever else was given here is not sent as markup.
    let region: String =
        region.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
    format!(
        r#"<CreateBucketConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><LocationConstraint>{region}</LocationConstraint></CreateBucketConfiguration>"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_region_is_named_unless_it_is_the_default() {
        assert_eq!(configuration("us-east-1"), "");
        assert!(configuration("eu-west-1").contains("<LocationConstraint>eu-west-1</"));
    }
}
