//! Proof of the one-time secret and of the transfer's key, bound to one connection.
//!
//! ```text
//! binding = SHA-256("xbrs-wire binding" ‖ TLS exporter, or 32 zero bytes
//!                   ‖ donor's nonce ‖ joiner's nonce)
//! key     = HMAC-SHA-256(secret, or nothing; "xbrs-wire key" ‖ transfer id ‖ transfer key)
//! proof   = HMAC-SHA-256(key; "donor" or "joiner" ‖ connection number ‖ binding)
//! ```
//!
//! A man in the middle has different exporters on its two connections, so it cannot use a proof.

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::announce::secret::Secret;

/// Label of the TLS exporter.
pub(crate) const EXPORTER: &[u8] = b"EXPORTER-xbrs-wire";

/// Value that is the same for both ends of one connection and for no other.
#[derive(Clone, Copy)]
pub(crate) struct Binding([u8; 32]);

impl Binding {
    pub(crate) fn new(exported: &[u8; 32], donor: &[u8; 16], joiner: &[u8; 16]) -> Self {
        let hash = Sha256::new_with_prefix(b"xbrs-wire binding");
        Self(hash.chain_update(exported).chain_update(donor).chain_update(joiner).finalize().into())
    }
}

/// The side that makes a proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Donor,
    Joiner,
}

/// ID and key of a transfer.
#[derive(Clone)]
pub(crate) struct Transfer {
    pub(crate) id: [u8; 16],
    pub(crate) key: Zeroizing<[u8; 32]>,
}

impl Transfer {
    pub(crate) fn new() -> Result<Self, getrandom::Error> {
        let (mut id, mut key) = ([0; 16], Zeroizing::new([0; 32]));
        getrandom::fill(&mut id)?;
        getrandom::fill(&mut *key)?;
        Ok(Self { id, key })
    }

    pub(crate) fn same(&self, other: &Self) -> bool {
        (self.id.ct_eq(&other.id) & self.key.ct_eq(&*other.key)).into()
    }

    fn mac(
        &self,
        secret: Option<&Secret>,
        side: Side,
        connection: u16,
        at: &Binding,
    ) -> Hmac<Sha256> {
        let key = secret.map_or_else(|| keyed(&[]), |secret| keyed(secret.bytes()));
        let key = key.chain_update(b"xbrs-wire key").chain_update(self.id);
        let key: [u8; 32] = key.chain_update(*self.key).finalize().into_bytes().into();
        let key = Zeroizing::new(key);
        let side: &[u8] = match side {
            Side::Donor => b"donor",
            Side::Joiner => b"joiner",
        };
        keyed(&key).chain_update(side).chain_update(connection.to_le_bytes()).chain_update(at.0)
    }

    pub(crate) fn prove(
        &self,
        secret: Option<&Secret>,
        side: Side,
        connection: u16,
        at: &Binding,
    ) -> [u8; 32] {
        self.mac(secret, side, connection, at).finalize().into_bytes().into()
    }

    /// Verifies a proof in constant time.
    pub(crate) fn holds(
        &self,
        proof: &[u8; 32],
        secret: Option<&Secret>,
        side: Side,
        connection: u16,
        at: &Binding,
    ) -> bool {
        self.mac(secret, side, connection, at).verify_slice(proof).is_ok()
    }
}

/// HMAC-SHA-256 with a key of at most one block of the hash.
fn keyed<const LEN: usize>(key: &[u8; LEN]) -> Hmac<Sha256> {
    const { assert!(LEN <= 64) };
    // HMAC itself fills up a short key with zeros.
    let mut block = Zeroizing::new([0; 64]);
    block.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
    Hmac::new((&*block).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_holds_for_one_secret_side_connection_and_binding() {
        let transfer = Transfer::new().unwrap();
        let (secret, other) = (Secret::new().unwrap(), Secret::new().unwrap());
        let at = Binding::new(&[1; 32], &[2; 16], &[3; 16]);
        let proof = transfer.prove(Some(&secret), Side::Donor, 3, &at);
        assert!(transfer.holds(&proof, Some(&secret), Side::Donor, 3, &at));
        assert!(!transfer.holds(&proof, Some(&other), Side::Donor, 3, &at));
        assert!(!transfer.holds(&proof, None, Side::Donor, 3, &at));
        assert!(!transfer.holds(&proof, Some(&secret), Side::Joiner, 3, &at));
        assert!(!transfer.holds(&proof, Some(&secret), Side::Donor, 4, &at));
        let elsewhere = Binding::new(&[9; 32], &[2; 16], &[3; 16]);
        assert!(!transfer.holds(&proof, Some(&secret), Side::Donor, 3, &elsewhere));
        let another = Transfer { id: transfer.id, key: Zeroizing::new([0; 32]) };
        assert!(!another.holds(&proof, Some(&secret), Side::Donor, 3, &at));
    }
}
