//! Proofs that an account has the password: one function for each plugin.
//! (MySQL: "Authentication Method"; MariaDB: "Authentication Plugins".)

use aws_lc_rs::digest::{self, Algorithm, SHA1_FOR_LEGACY_USE_ONLY, SHA256, SHA512};
use curve25519_dalek::scalar::clamp_integer;
use curve25519_dalek::{EdwardsPoint, Scalar};
use zeroize::Zeroizing;

use crate::error::Error;
use crate::fields::Fields;

pub(crate) const NATIVE: &[u8] = b"mysql_native_password";
pub(crate) const CACHING_SHA2: &[u8] = b"caching_sha2_password";
const ED25519: &[u8] = b"client_ed25519";

/// caching_sha2_password: the server knows the password already.
const FAST: &[u8] = &[3];
/// caching_sha2_password: the server needs the password itself.
const FULL: &[u8] = &[4];

/// Account that logs in.
#[derive(Clone, Default)]
pub struct Account {
    /// Name of the account, without NUL.
    pub user: Vec<u8>,
    /// Its password; may be empty.
    pub password: Zeroizing<Vec<u8>>,
    /// The database to use, without NUL; empty for none.
    pub database: Vec<u8>,
}

impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Account")
            .field("user", &String::from_utf8_lossy(&self.user))
            .finish_non_exhaustive()
    }
}

/// Transport of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    /// TLS; the server's certificate is verified, or the connection does not leave this host.
    Tls,
    /// TLS with a server that has not proven who it is.
    Unproven,
    /// A Unix socket.
    Socket,
    /// Anything that others can read.
    Plain,
}

/// The first answer of a plugin, to the server's challenge.
///
/// # Errors
/// [`Error::Plugin`] if the plugin is not one of the three.
pub(crate) fn answer(plugin: &[u8], password: &[u8], challenge: &[u8]) -> Result<Vec<u8>, Error> {
    let nonce = |length| Fields::new("authentication challenge", challenge).bytes(length);
    match plugin {
        NATIVE | CACHING_SHA2 if password.is_empty() => Ok(Vec::new()),
        NATIVE => Ok(native(password, nonce(20)?)),
        CACHING_SHA2 => Ok(caching_sha2(password, nonce(20)?)),
        ED25519 => Ok(ed25519(password, nonce(32)?)),
        _ => Err(Error::Plugin(String::from_utf8_lossy(plugin).into_owned())),
    }
}

/// The answer to later data of a plugin; `None` if the server only wants to be listened to.
pub(crate) fn more(
    plugin: &[u8],
    password: &[u8],
    data: &[u8],
    channel: Channel,
) -> Result<Option<Vec<u8>>, Error> {
    match (plugin, data, channel) {
        (CACHING_SHA2, FAST, _) => Ok(None),
        // The alternative, an RSA key that the server sends, would be a key of anyone in between.
        (CACHING_SHA2, FULL, Channel::Plain | Channel::Unproven) => Err(Error::NotPrivate),
        (CACHING_SHA2, FULL, Channel::Tls | Channel::Socket) => Ok(Some([password, &[0]].concat())),
        _ => Err(Error::Malformed { packet: "authentication data" }),
    }
}

/// `SHA1(password) XOR SHA1(nonce, SHA1(SHA1(password)))`
fn native(password: &[u8], nonce: &[u8]) -> Vec<u8> {
    let sha1 = |parts: &[&[u8]]| hash(&SHA1_FOR_LEGACY_USE_ONLY, parts);
    let once = sha1(&[password]);
    xor(&once, &sha1(&[nonce, &sha1(&[&once])]))
}

/// `SHA256(password) XOR SHA256(SHA256(SHA256(password)), nonce)`
fn caching_sha2(password: &[u8], nonce: &[u8]) -> Vec<u8> {
    let sha256 = |parts: &[&[u8]]| hash(&SHA256, parts);
    let once = sha256(&[password]);
    xor(&once, &sha256(&[&sha256(&[&once]), nonce]))
}

/// An Ed25519 signature of the nonce (RFC 8032, 5.1.6), with the password in place of the seed of 32
/// bytes: that is why no ordinary signing function will do.
fn ed25519(password: &[u8], nonce: &[u8]) -> Vec<u8> {
    let expanded = hash(&SHA512, &[password]);
    let (low, prefix) = expanded.split_at(32);
    let secret = Scalar::from_bytes_mod_order(clamp_integer(array(low)));
    let public = EdwardsPoint::mul_base(&secret).compress();
    let number = |parts: &[&[u8]]| Scalar::from_bytes_mod_order_wide(&array(&hash(&SHA512, parts)));
    let once = number(&[prefix, nonce]);
    let point = EdwardsPoint::mul_base(&once).compress();
    let challenge = number(&[point.as_bytes(), public.as_bytes(), nonce]);
    [*point.as_bytes(), (once + challenge * secret).to_bytes()].concat()
}

fn hash(algorithm: &'static Algorithm, parts: &[&[u8]]) -> Zeroizing<Vec<u8>> {
    let mut context = digest::Context::new(algorithm);
    parts.iter().for_each(|part| context.update(part));
    Zeroizing::new(context.finish().as_ref().to_vec())
}

fn xor(one: &[u8], other: &[u8]) -> Vec<u8> {
    one.iter().zip(other).map(|(a, b)| a ^ b).collect()
}

/// The first bytes of a digest, which has at least as many.
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    array
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_plugin_is_named() {
        let error = answer(b"dialog", b"x", &[1; 20]).expect_err("unknown").to_string();
        assert!(error.contains("plugin dialog, "), "{error}");
    }

    #[test]
    fn a_short_challenge_is_refused() {
        for (plugin, length) in [(NATIVE, 20), (CACHING_SHA2, 20), (ED25519, 32)] {
            assert!(answer(plugin, b"secret", &vec![1; length - 1]).is_err());
            assert!(answer(plugin, b"secret", &vec![1; length]).is_ok());
        }
    }

    #[test]
    fn the_password_itself_goes_only_over_a_private_channel() {
        let ask = |channel| more(CACHING_SHA2, b"secret", FULL, channel);
        for channel in [Channel::Plain, Channel::Unproven] {
            assert!(matches!(ask(channel), Err(Error::NotPrivate)));
        }
        for channel in [Channel::Tls, Channel::Socket] {
            assert_eq!(ask(channel).ok().flatten().as_deref(), Some(&b"secret\0"[..]));
        }
        // Only this plugin asks for it.
        assert!(more(NATIVE, b"secret", FULL, Channel::Tls).is_err());
    }
}
